"""A method's phases with corrected stand-ins in place of counted rates: states, messages and the functions that it is given.

What is counted, and what follows from it, is in `counted_rates.py`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from fedpact.algorithms.parts.counting import WAYS
from fedpact.arrays import xp
from fedpact.federation.blocks import Block
from fedpact.problem.oracle import Oracle
from fedpact.protocol.algorithm import Answer, Begin, Corrections, Goal, Info, Status
from fedpact.protocol.messages import Reply
from fedpact.protocol.phases import Phase, Phases, ServerData, Step
from fedpact.records import Record

SOFTEST = 10.0  # the temperatures of stand-ins begin at so many times the stated ones
ROUGH = 1e-3  # of stationarity, and a quarter of it of feasibility, before the rates are met

# messages


class Opening(Record):
    """Before the first round: the method's own message, and how much softer than stated the rates begin."""

    softening: jax.Array
    message: Any


class CountAt(Record):
    """Count at this answer; the stand-ins that are compared with the counts are softer than stated by a factor."""

    answer: Answer
    softening: jax.Array


class CountShifted(Record):
    """Count at this answer, with the threshold of decisions moved by each of these, in units of the temperature."""

    answer: Answer
    shifts: jax.Array


class ShiftedSums(Record):
    pooled: jax.Array  # (shifts, constraints): a holder's part, counted


class ShiftedMaxima(Record):
    violation: jax.Array  # (shifts,): of the counted constraints of one party


class CountSums(Record):
    """A holder's part of the objective and of the pooled constraints."""

    objective: jax.Array
    counted: jax.Array
    smooth: jax.Array
    strictest: jax.Array


class Settlement(Record):
    """From the server after a count.

    - `softening`: of the rates from now on.
    - `correct`: take the corrections proposed in this `way`.
    - `keep`: what was counted is the best so far. `restore`: go back to that.
    - `pooled`: corrections of pooled constraints, for label holders.
    """

    softening: jax.Array
    correct: jax.Array
    way: jax.Array
    keep: jax.Array
    restore: jax.Array
    pooled: jax.Array


# states


class PartyState(Record):
    inner: Any
    softening: jax.Array
    correction: jax.Array  # δ: of its own constraints, over columns of the pooled ones
    proposed: jax.Array  # (ways, constraints)
    too_loose: jax.Array  # the largest δ at which a counted constraint was broken
    best: Any  # inner
    best_correction: jax.Array

    @property
    def gradient(self) -> jax.Array:
        """A party's own, of methods that `fp.audit` reads it of."""
        return self.inner.gradient


class ServerState(Record):
    """Within a round `inner` is what the method carries through its phases."""

    inner: Any
    goal: Goal
    softening: jax.Array
    corrections: Corrections
    proposed: Corrections  # (ways, constraints)
    too_loose: Corrections
    rounds: jax.Array  # in this stage
    strict: jax.Array  # whether the method aims at the goal, and not roughly
    tries: (
        jax.Array
    )  # corrections so far, those before and after the method aims at the goal, and how many loosened bounds
    loosened: jax.Array
    way: jax.Array  # of correcting
    best: Any  # inner
    best_corrections: Corrections
    best_objective: jax.Array
    best_violation: jax.Array  # counted; ∞ where other constraints are broken
    best_solved: jax.Array  # whether it was solved to the tolerance
    correct: jax.Array  # what follows from a count, see `Settlement`
    keep: jax.Array
    restore: jax.Array
    aim: jax.Array  # the method is to aim at the goal from now on
    shifting: jax.Array  # the corrected bounds leave counts outside: another threshold is looked for
    shift: jax.Array  # of the threshold; 0 where none was found
    status: jax.Array


# the functions with their corrections


def corrected(own: Any, softening: jax.Array, correction: jax.Array) -> Any:
    """A party's own data."""
    if isinstance(own, Block):
        return (
            own if own.labels is None else dataclasses.replace(own, labels=_limited(own.labels, softening, correction))
        )
    return own.softened(softening).limited(constraints=correction)


def _limited(labels: Oracle, softening: jax.Array, correction: jax.Array) -> Oracle:
    return labels.softened(softening).limited(pooled=correction)


def at_server(own: ServerData, state: ServerState) -> ServerData:
    """The server's own data."""
    deltas = state.corrections
    functions = own.functions.softened(state.softening).limited(deltas.server, deltas.pooled)
    return dataclasses.replace(without_rates(own), functions=functions)


def without_rates(own: ServerData) -> ServerData:
    """As if all rates were soft: the method need not sharpen them itself."""
    return dataclasses.replace(own, coldest_rate=1.0 + 0.0 * own.coldest_rate)


# phases


@dataclasses.dataclass(frozen=True)
class AskCorrected:
    wrapped: Callable[[ServerData, Any], Any]

    def __call__(self, own: ServerData, carry: ServerState) -> Any:
        return self.wrapped(at_server(own, carry), carry.inner)


@dataclasses.dataclass(frozen=True)
class StepCorrected:
    wrapped: Step

    def __call__(self, own: Any, state: PartyState, message: Any) -> tuple[PartyState, Reply]:
        inner, reply = self.wrapped(corrected(own, state.softening, state.correction), state.inner, message)
        return dataclasses.replace(state, inner=inner), reply


@dataclasses.dataclass(frozen=True)
class HearCorrected:
    wrapped: Callable[[ServerData, Any, Reply], Any]

    def __call__(self, own: ServerData, carry: ServerState, reply: Reply) -> ServerState:
        return dataclasses.replace(carry, inner=self.wrapped(at_server(own, carry), carry.inner, reply))


class Finished(Record):
    """The wrapped method's state where its round has been finished, and the line of the history."""

    server: Any
    info: Info


@dataclasses.dataclass(frozen=True)
class HearLast(HearCorrected):
    """Of the last exchange of a round, after which `finish` is called once, and not wherever its outcome is needed."""

    finish: Callable[[ServerData, Any], tuple[Any, Info]]

    def __call__(self, own: ServerData, carry: ServerState, reply: Reply) -> ServerState:
        heard = super().__call__(own, carry, reply)
        return dataclasses.replace(heard, inner=Finished(*self.finish(at_server(own, heard), heard.inner)))


@dataclasses.dataclass(frozen=True)
class OnlyIfCorrected:
    wrapped: Callable[[ServerData, Any], jax.Array]

    def __call__(self, own: ServerData, carry: ServerState) -> jax.Array:
        return self.wrapped(at_server(own, carry), carry.inner)


@dataclasses.dataclass(frozen=True)
class AskFirst:
    """Of the phases before the first round, which see the functions as they are stated."""

    wrapped: Callable[[ServerData, Any], Any]

    def __call__(self, own: ServerData, carry: Begin | ServerState) -> Opening:
        state = begun(carry, own)
        return Opening(state.softening, self.wrapped(without_rates(own), state.inner))


@dataclasses.dataclass(frozen=True)
class StepFirst:
    wrapped: Step

    def __call__(self, own: Any, state: PartyState | None, message: Opening) -> tuple[PartyState, Reply]:
        none = xp.zeros(_correctable(own))
        ways, never = xp.zeros((WAYS, none.size)), xp.full(none.size, -xp.inf)
        inner = None if state is None else state.inner
        inner, reply = self.wrapped(own, inner, message.message)
        return PartyState(inner, message.softening, none, ways, never, inner, none), reply


@dataclasses.dataclass(frozen=True)
class HearFirst:
    wrapped: Callable[[ServerData, Any, Reply], Any]

    def __call__(self, own: ServerData, carry: Begin | ServerState, reply: Reply) -> ServerState:
        state = begun(carry, own)
        inner = self.wrapped(without_rates(own), state.inner, reply)
        return dataclasses.replace(state, inner=inner, best=inner)


def _correctable(own: Any) -> int:
    if isinstance(own, Block):
        return 0 if own.labels is None else len(own.labels.program.pooled)
    return len(own.program.constraints)


def begun(carry: Begin | ServerState, own: ServerData) -> ServerState:
    """The server's state before the first round."""
    if isinstance(carry, ServerState):
        return carry
    goal, no, endless = carry.goal, xp.asarray(False), xp.asarray(xp.inf)
    rough = Goal(xp.maximum(goal.stationarity, ROUGH), xp.maximum(goal.feasibility, 0.25 * ROUGH))
    softening = xp.asarray(SOFTEST)
    program = own.functions.program
    m, p = len(program.constraints), len(program.pooled)
    none, zero = Corrections(xp.zeros(m), xp.zeros(p)), xp.zeros((), int)
    return ServerState(
        inner=dataclasses.replace(carry, goal=rough),
        goal=goal,
        softening=softening,
        corrections=none,
        proposed=Corrections(xp.zeros((WAYS, m)), xp.zeros((WAYS, p))),
        too_loose=Corrections(xp.full(m, -xp.inf), xp.full(p, -xp.inf)),
        rounds=zero,
        strict=no,
        tries=zero,
        loosened=zero,
        way=zero,
        best=None,
        best_corrections=none,
        best_objective=endless,
        best_violation=endless,
        best_solved=no,
        correct=no,
        keep=no,
        restore=no,
        aim=no,
        shifting=no,
        shift=xp.asarray(0.0),
        status=Status.running.as_array(),
    )


def mapped(phases: Phases, one: Callable[[Phase], Phase]) -> Phases:
    return tuple(tuple(map(one, entry)) if isinstance(entry, tuple) else one(entry) for entry in phases)
