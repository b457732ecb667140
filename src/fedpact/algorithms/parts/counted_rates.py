"""A method for problems with counted rates of decisions, which have no slope: it is given smooth stand-ins, and corrected.

    g_j(w) + δ_j <= 0     a constraint with its rates smoothed at a temperature T,   C_j(w) <= 0   the same, counted

T falls, unless the method sharpens rates itself. With T as stated and the problem roughly solved, every holder counts, once
for all its constraints, and sets δ_j = C_j − g_j: what is bounded then passes through what was counted. That is repeated until
all counted constraints hold, and those that bind hold closely. The rest is solving to the tolerance with these δ, and counting
again. Of the points that were solved to the tolerance and whose counted constraints hold, the one with the lowest objective is
handed out. δ of a party's constraints stays with it.

A round in which the method itself has come to an end has two exchanges more: counts, and what is made of them.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Self

import jax
import numpy as np

from fedpact.arrays import choose, cond, xp
from fedpact.federation.blocks import Block
from fedpact.federation.setting import Setting
from fedpact.problem.oracle import Oracle
from fedpact.problem.program import rate_factors
from fedpact.problem.split import EMBEDDED
from fedpact.protocol.algorithm import Answer, Begin, Corrections, Goal, Info, Method, Status
from fedpact.protocol.embedding import combined, contribution
from fedpact.protocol.messages import Reply
from fedpact.protocol.phases import Phase, Phases, ServerData, Step
from fedpact.records import Record

FIRST = 2.0  # the temperature that the sharpest stand-in begins at
SHARPER = 0.5
ROUGH = 1e-3  # of stationarity, and a quarter of it of feasibility, before the rates are met
EXACT = 1e-9  # counts are exact up to the rounding of sums
INSIDE = 0.004  # a constraint that binds is met closely enough within this, in units of a rate
AIM = 0.001  # so far inside is aimed at
PUSH = 0.5  # of the violation, further than the count says, where a correction was not enough
BINDS = 2e-3  # a smooth constraint with less room than this binds
ROUGHLY = 6  # corrections before the problem is solved to the tolerance,
CLOSELY = 8  # and afterwards

# messages


class Opening(Record):
    """Before the first round: the method's own message, and how much softer than stated the rates begin."""

    softening: jax.Array
    message: Any


class CountSums(Record):
    """A holder's part of the pooled constraints."""

    counted: jax.Array
    smooth: jax.Array


class CountMaxima(Record):
    """Of the counted constraints of one party."""

    violation: jax.Array
    inside: jax.Array  # how far those that bind are met


class Settlement(Record):
    """From the server after a count.

    - `softening`: of the rates from now on.
    - `correct`: take the proposed corrections. `keep`: what was counted is the best so far. `restore`: go back to that.
    - `pooled`: corrections of pooled constraints, for label holders.
    """

    softening: jax.Array
    correct: jax.Array
    keep: jax.Array
    restore: jax.Array
    pooled: jax.Array


# states


class PartyState(Record):
    inner: Any
    softening: jax.Array
    correction: jax.Array  # δ: of its own constraints, over columns of the pooled ones
    proposed: jax.Array
    best: Any  # inner
    best_correction: jax.Array


class ServerState(Record):
    """Within a round `inner` is what the method carries through its phases."""

    inner: Any
    goal: Goal
    softening: jax.Array
    corrections: Corrections
    proposed: Corrections
    strict: jax.Array  # whether the method aims at the goal, and not roughly
    tries: jax.Array  # corrections so far, those before and after the method aims at the goal
    best: Any  # inner
    best_corrections: Corrections
    best_objective: jax.Array
    best_violation: jax.Array  # counted
    correct: jax.Array  # what follows from a count, see `Settlement`
    keep: jax.Array
    restore: jax.Array
    aim: jax.Array  # the method is to aim at the goal from now on
    counted: jax.Array  # whether this round has counted
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
    return dataclasses.replace(own, functions=functions)


def proposal(correction: jax.Array, counted: jax.Array, smooth: jax.Array, unit: np.ndarray) -> jax.Array:
    """δ, from a count. unit: of each constraint, the largest factor of a rate in it; 0 where it has none."""
    push = PUSH * xp.where(correction != 0, xp.maximum(counted, 0.0), 0.0)
    return xp.where(unit > 0, counted - smooth + AIM * unit + push, 0.0)


def maxima(correction: jax.Array, counted: jax.Array, smooth: jax.Array, unit: np.ndarray) -> CountMaxima:
    """How far counted constraints are broken, and how far those that bind are met, in units of a rate."""
    rates, safe = unit > 0, np.where(unit > 0, unit, 1.0)
    binds = rates & (smooth + correction > -BINDS * safe)
    violation = xp.max(xp.where(rates, counted / safe, -xp.inf), initial=0.0)
    return CountMaxima(violation, xp.max(xp.where(binds, -counted / safe, 0.0), initial=0.0))


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


@dataclasses.dataclass(frozen=True)
class OnlyIfCorrected:
    wrapped: Callable[[ServerData, Any], jax.Array]

    def __call__(self, own: ServerData, carry: ServerState) -> jax.Array:
        return self.wrapped(at_server(own, carry), carry.inner)


@dataclasses.dataclass(frozen=True)
class AskFirst:
    """Of the phases before the first round, which see the functions as they are stated."""

    wrapped: Callable[[ServerData, Any], Any]
    sharpens: bool

    def __call__(self, own: ServerData, carry: Begin | ServerState) -> Opening:
        state = begun(carry, own, self.sharpens)
        return Opening(state.softening, self.wrapped(own, state.inner))


@dataclasses.dataclass(frozen=True)
class StepFirst:
    wrapped: Step

    def __call__(self, own: Any, state: PartyState | None, message: Opening) -> tuple[PartyState, Reply]:
        none = xp.zeros(_correctable(own))
        inner = None if state is None else state.inner
        inner, reply = self.wrapped(own, inner, message.message)
        return PartyState(inner, message.softening, none, none, inner, none), reply


@dataclasses.dataclass(frozen=True)
class HearFirst:
    wrapped: Callable[[ServerData, Any, Reply], Any]
    sharpens: bool

    def __call__(self, own: ServerData, carry: Begin | ServerState, reply: Reply) -> ServerState:
        state = begun(carry, own, self.sharpens)
        inner = self.wrapped(own, state.inner, reply)
        return dataclasses.replace(state, inner=inner, best=inner)


def _correctable(own: Any) -> int:
    if isinstance(own, Block):
        return 0 if own.labels is None else len(own.labels.program.pooled)
    return len(own.program.constraints)


def begun(carry: Begin | ServerState, own: ServerData, sharpens: bool) -> ServerState:
    """The server's state before the first round."""
    if isinstance(carry, ServerState):
        return carry
    goal, no, endless = carry.goal, xp.asarray(False), xp.asarray(xp.inf)
    rough = Goal(xp.maximum(goal.stationarity, ROUGH), xp.maximum(goal.feasibility, 0.25 * ROUGH))
    softening = xp.asarray(1.0) if sharpens else xp.maximum(FIRST / own.coldest_rate, 1.0)
    program = own.functions.program
    none = Corrections(xp.zeros(len(program.constraints)), xp.zeros(len(program.pooled)))
    return ServerState(
        inner=dataclasses.replace(carry, goal=rough),
        goal=goal,
        softening=softening,
        corrections=none,
        proposed=none,
        strict=no,
        tries=xp.zeros((), int),
        best=None,
        best_corrections=none,
        best_objective=endless,
        best_violation=endless,
        correct=no,
        keep=no,
        restore=no,
        aim=no,
        counted=no,
        status=Status.running.as_array(),
    )


def mapped(phases: Phases, one: Callable[[Phase], Phase]) -> Phases:
    return tuple(tuple(map(one, entry)) if isinstance(entry, tuple) else one(entry) for entry in phases)


class CountedRates(Method[ServerState]):
    """A method given smooth stand-ins for counted rates.

    - `method`: the method that solves the smooth problems.
    - `sharpens`: whether it begins with soft rates and sharpens them itself.
    - `columns`: whether parties hold columns, so that the label holder counts by itself.
    """

    method: Method
    sharpens: bool
    columns: bool

    constants: tuple[float, ...]  # of pooled constraints, where no oracle has them: over columns
    pooled_units: tuple[float, ...]  # of pooled constraints, the largest factor of a rate in them

    @property
    def few_rounds(self) -> bool:
        return self.method.few_rounds

    # the phases

    @property
    def opening(self) -> Phases:
        def first(phase: Phase) -> Phase:
            ask, hear = AskFirst(phase.ask, self.sharpens), HearFirst(phase.hear, self.sharpens)
            return dataclasses.replace(phase, ask=ask, step=StepFirst(phase.step), hear=hear)

        return mapped(self.method.opening, first)

    @property
    def round(self) -> Phases:
        count = Phase(
            self.send_answer, self.embed if self.columns else self.count, self.hear_count, only_if=self.has_ended_sharp
        )
        return (
            *self._corrected(self.method.round),
            count,
            Phase(self.send_settlement, self.settle, _unchanged, only_if=self.has_ended),
        )

    @property
    def closing(self) -> Phases:
        return self._corrected(self.method.closing)

    def _corrected(self, phases: Phases) -> Phases:
        def one(phase: Phase) -> Phase:
            return dataclasses.replace(
                phase,
                ask=AskCorrected(phase.ask),
                step=StepCorrected(phase.step),
                hear=HearCorrected(phase.hear),
                only_if=None if phase.only_if is None else OnlyIfCorrected(phase.only_if),
            )

        return mapped(phases, one)

    # at a party

    def count(self, own: Oracle, state: PartyState, message: Answer) -> tuple[PartyState, Reply]:
        w, unit = message.parameters, rate_factors(own.program)[1]
        counted, smooth = own.counted(w), own(w)
        mine = state.correction, counted.constraints, smooth.constraints, unit
        sums = CountSums(counted.pooled, smooth.pooled)
        return dataclasses.replace(state, proposed=proposal(*mine)), Reply(sum=sums, max=maxima(*mine))

    def embed(self, own: Block, state: PartyState, message: Answer) -> tuple[PartyState, Reply]:
        """Over columns: what the bottom model gives, from which the label holder counts."""
        return state, contribution(own, own.embed(self.block(own, state, message)))

    def settle(self, own: Any, state: PartyState, message: Settlement) -> tuple[PartyState, Reply]:
        own_correction = message.pooled if isinstance(own, Block) and own.active else state.proposed
        best = choose(message.keep, state.inner, state.best)
        best_correction = choose(message.keep, state.correction, state.best_correction)
        correction = choose(message.correct, own_correction, state.correction)
        after = PartyState(
            inner=choose(message.restore, best, state.inner),
            softening=message.softening,
            correction=choose(message.restore, best_correction, correction),
            proposed=state.proposed,
            best=best,
            best_correction=best_correction,
        )
        return after, Reply()

    def multipliers(self, own: Oracle, state: PartyState, answer: Answer) -> jax.Array:
        return self.method.multipliers(corrected(own, state.softening, state.correction), state.inner, answer)

    def block(self, own: Any, state: PartyState, answer: Any) -> jax.Array:
        return self.method.block(own, state.inner, answer)

    def correction(self, state: PartyState) -> jax.Array:
        return state.correction

    # at the server

    def has_ended(self, own: ServerData, carry: ServerState) -> jax.Array:
        """Whether the method itself has come to an end in this round."""
        server, _ = self.method.finish(at_server(own, carry), carry.inner)
        return self.method.status(server) != int(Status.running)

    def has_ended_sharp(self, own: ServerData, carry: ServerState) -> jax.Array:
        return self.has_ended(own, carry) & (carry.softening == 1.0)

    def send_answer(self, own: ServerData, carry: ServerState) -> Answer:
        server, _ = self.method.finish(at_server(own, carry), carry.inner)
        answer = self.method.answer(at_server(own, carry), server)
        return dataclasses.replace(answer, parameters=answer.parameters[: own.functions.program.shape.size])

    def hear_count(self, own: ServerData, carry: ServerState, reply: Reply) -> ServerState:
        """What the counts say, and what follows from it."""
        before = at_server(own, carry)
        server, info = self.method.finish(before, carry.inner)
        w, deltas, functions = self.send_answer(own, carry).parameters, carry.corrections, own.functions
        if self.columns:
            functions = dataclasses.replace(functions, rows={**functions.rows, EMBEDDED: combined(reply)})
            shift = xp.asarray(self.constants)
            counted, smooth = functions.counted(w).pooled + shift, functions(w).pooled + shift
            counted_own = smooth_own = xp.zeros(len(functions.program.constraints))
            told: list[CountMaxima] = []
        else:
            mine_counted, mine_smooth = functions.counted(w), functions(w)
            counted, smooth = reply.sum.counted + mine_counted.pooled, reply.sum.smooth + mine_smooth.pooled
            counted_own, smooth_own = mine_counted.constraints, mine_smooth.constraints
            told = [reply.max]
        unit, pooled_unit = rate_factors(own.functions.program)[1], np.asarray(self.pooled_units)
        at_own, at_pooled = (
            (deltas.server, counted_own, smooth_own, unit),
            (deltas.pooled, counted, smooth, pooled_unit),
        )
        told += [maxima(*at_own), maxima(*at_pooled)]
        worst: CountMaxima = jax.tree.map(lambda *x: xp.max(xp.stack(x)), *told)

        solved = self.method.status(server) == int(Status.converged)
        met, seen = worst.violation <= EXACT, carry.best_violation <= EXACT
        good = solved & met & (worst.inside <= INSIDE)
        lower = xp.where(seen, met & (info.objective < carry.best_objective), worst.violation < carry.best_violation)
        keep = solved & carry.strict & lower
        patience = xp.where(carry.strict, CLOSELY, ROUGHLY)
        more = solved & ~good & (carry.tries < patience)
        aim = solved & ~carry.strict & ~more
        ends = ~more & ~aim
        return dataclasses.replace(
            carry,
            proposed=Corrections(proposal(*at_own), proposal(*at_pooled)),
            best_objective=xp.where(keep, info.objective, carry.best_objective),
            best_violation=xp.where(keep, worst.violation, carry.best_violation),
            tries=xp.where(aim, 0, carry.tries + 1),
            correct=more,
            keep=keep,
            restore=ends & ~good & (seen | (keep & met)),
            aim=aim,
            counted=xp.asarray(True),
        )

    def send_settlement(self, own: ServerData, carry: ServerState) -> Settlement:
        sharper = xp.maximum(SHARPER * carry.softening, 1.0)
        return Settlement(sharper, carry.correct, carry.keep, carry.restore, carry.proposed.pooled)

    def finish(self, own: ServerData, carry: ServerState) -> tuple[ServerState, Info]:
        server, info = self.method.finish(at_server(own, carry), carry.inner)
        status, no = self.method.status(server), xp.asarray(False)
        ended = status != int(Status.running)
        sharpen = ended & (carry.softening > 1.0)
        best = choose(carry.keep, server, carry.best)
        best_corrections = choose(carry.keep, carry.corrections, carry.best_corrections)
        deltas = choose(carry.correct, carry.proposed, carry.corrections)
        after = dataclasses.replace(
            carry,
            softening=xp.where(ended, xp.maximum(SHARPER * carry.softening, 1.0), carry.softening),
            corrections=choose(carry.restore, best_corrections, deltas),
            best=best,
            best_corrections=best_corrections,
            strict=carry.strict | carry.aim,
            correct=no,
            keep=no,
            restore=no,
            aim=no,
            counted=no,
        )
        inner = choose(carry.restore, best, choose(carry.aim, self.method.aim(server, carry.goal), server))
        inner = cond(carry.correct | sharpen, lambda: self.method.renewed(at_server(own, after), server), lambda: inner)
        unmet = (status == int(Status.converged)) & (carry.best_violation > EXACT)
        status = xp.where(unmet, int(Status.stalled), status)
        status = xp.where(carry.restore, int(Status.converged), status)
        goes_on = ~ended | sharpen | carry.correct | carry.aim
        status = xp.where(goes_on, int(Status.running), status)
        return dataclasses.replace(after, inner=inner, status=status), info

    def answer(self, own: ServerData, carry: ServerState) -> Answer:
        answer = self.method.answer(at_server(own, carry), carry.inner)
        return dataclasses.replace(answer, corrections=carry.corrections)

    def aim(self, server: ServerState, goal: Goal) -> ServerState:
        inner = self.method.aim(server.inner, goal)
        running = Status.running.as_array()
        return dataclasses.replace(server, inner=inner, goal=goal, strict=xp.asarray(True), status=running)

    def deployed(self, enough: Callable[[], bool]) -> Self:
        return dataclasses.replace(self, method=self.method.deployed(enough))


def _unchanged(own: ServerData, carry: ServerState, reply: Reply) -> ServerState:
    return carry


def with_counted_rates(method: Method[Any], setting: Setting, sharpens: bool = False) -> Method[Any]:
    """The method for problems with counted rates; unchanged where there are none."""
    if not any(program.decides for program in setting.programs):
        return method
    party, server = setting.programs
    units = np.maximum(rate_factors(party)[2], rate_factors(server)[2])
    columns = setting.split == "columns"
    constants = server.pooled.constants if columns else ()
    return CountedRates(method, sharpens, columns, constants, tuple(units.tolist()))
