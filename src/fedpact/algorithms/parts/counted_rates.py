"""A method for problems with counted rates of decisions, which have no slope: it is given smooth stand-ins, and corrected.

    g_j(w) + δ_j <= 0     a constraint with its rates smoothed at a temperature T,   C_j(w) <= 0   the same, counted

T falls in stages. Where the problem of a stage is roughly solved every holder counts and sets δ_j = C_j − g_j, with g_j as it
will be in the next stage: what is bounded then passes through what was counted. In the last stage T is as stated. Counts
jump, so δ_j may be too much or too little there. After the next counts it grows where C_j > 0; and once all counted
constraints hold, it shrinks where one binds and holds by more than need be, but stays above every δ_j that was too small. The
rest is solving to the tolerance, and counting again. Of the points that were solved to the tolerance and whose counted
constraints hold, the one with the lowest objective is handed out. δ of a party's constraints stays with it.

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

FIRST = 1.0  # the temperature that the sharpest stand-in begins at
SHARPER = 0.5  # its factor from stage to stage
PATIENCE = 12, 60  # rounds in a stage but the last, of methods of few rounds and of others
ROUGH = 1e-3  # of stationarity, and a quarter of it of feasibility, before the rates are met
EXACT = 1e-9  # counts are exact up to the rounding of sums
INSIDE = 0.004  # a constraint that binds is met closely enough within this, in units of a rate,
ROWS = 2.0  # or within what so many rows count
AIM = 0.001  # so far inside is aimed at
PUSH = 0.5  # of a violation: so much further than the count says
BINDS = 2e-3  # a smooth constraint with less room than this binds
ROUGHLY = 3  # corrections before the problem is solved to the tolerance,
CLOSELY = 10  # and afterwards,
LOOSER = 5  # of which so many may loosen bounds
WHOLLY, TIGHTER, LOOSELY = range(3)  # ways of correcting

# messages


class Opening(Record):
    """Before the first round: the method's own message, and how much softer than stated the rates begin."""

    softening: jax.Array
    message: Any


class CountAt(Record):
    """Count at this answer; the stand-ins that are compared with the counts are softer than stated by a factor."""

    answer: Answer
    softening: jax.Array


class CountSums(Record):
    """A holder's part of the pooled constraints."""

    counted: jax.Array
    smooth: jax.Array


class CountMaxima(Record):
    """Of the counted constraints of one party."""

    violation: jax.Array
    inside: jax.Array  # how far those that bind are met, relative to what is close enough
    pooled_jumps: jax.Array  # what one row counts in each pooled constraint, at most


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
    best_violation: jax.Array  # counted
    correct: jax.Array  # what follows from a count, see `Settlement`
    keep: jax.Array
    restore: jax.Array
    aim: jax.Array  # the method is to aim at the goal from now on
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


class Count(Record):
    """Constraints of one holder, counted at a point.

    - `correction`, `too_loose`: as before. `counted`, `smooth`: C, and g without its correction.
    - `jumps`: what one row counts in each, at most.
    - `unit`: the largest factor of a rate in each; 0 where there is none.
    """

    correction: jax.Array
    too_loose: jax.Array
    counted: jax.Array
    smooth: jax.Array
    jumps: jax.Array
    unit: Any

    @property
    def broken(self) -> jax.Array:
        return (self.unit > 0) & (self.counted > EXACT * self.unit)

    @property
    def enough(self) -> jax.Array:
        """How far inside its bound a constraint is met closely."""
        return xp.maximum(INSIDE * self.unit, ROWS * self.jumps)

    @property
    def loose(self) -> jax.Array:
        """Whether a constraint binds, and yet is met by more than need be."""
        binds = self.smooth + self.correction > -BINDS * self.unit
        return (self.unit > 0) & binds & (-self.counted > self.enough)

    def proposals(self) -> tuple[jax.Array, jax.Array]:
        """δ in either way of correcting, and the largest one that was too small."""
        aim, now = AIM * self.unit, self.correction
        through = self.counted - self.smooth + aim
        tighter = xp.maximum(now, through) + PUSH * xp.maximum(self.counted, 0.0)
        too_loose = xp.where(self.broken, xp.maximum(self.too_loose, now), self.too_loose)
        known = xp.isfinite(too_loose) & (too_loose < now)
        looser = xp.where(known, xp.maximum(through, 0.5 * (now + xp.where(known, too_loose, 0.0))), through)
        ways = xp.stack([through, xp.where(self.broken, tighter, now), xp.where(self.loose, looser, now)])
        return xp.where(self.unit > 0, ways, 0.0), too_loose

    def maxima(self, pooled_jumps: jax.Array) -> CountMaxima:
        rates, unit = self.unit > 0, xp.where(self.unit > 0, self.unit, 1.0)
        enough = xp.where(rates, self.enough, 1.0)
        violation = xp.max(xp.where(rates, self.counted / unit, -xp.inf), initial=0.0)
        inside = xp.max(xp.where(self.loose, -self.counted / enough, 0.0), initial=0.0)
        return CountMaxima(violation, inside, pooled_jumps)


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

    def __call__(self, own: ServerData, carry: Begin | ServerState) -> Opening:
        state = begun(carry, own)
        return Opening(state.softening, self.wrapped(without_rates(own), state.inner))


@dataclasses.dataclass(frozen=True)
class StepFirst:
    wrapped: Step

    def __call__(self, own: Any, state: PartyState | None, message: Opening) -> tuple[PartyState, Reply]:
        none = xp.zeros(_correctable(own))
        ways, never = xp.zeros((3, none.size)), xp.full(none.size, -xp.inf)
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
    softening = xp.maximum(FIRST / own.coldest_rate, 1.0)
    program = own.functions.program
    m, p = len(program.constraints), len(program.pooled)
    none, zero = Corrections(xp.zeros(m), xp.zeros(p)), xp.zeros((), int)
    return ServerState(
        inner=dataclasses.replace(carry, goal=rough),
        goal=goal,
        softening=softening,
        corrections=none,
        proposed=Corrections(xp.zeros((3, m)), xp.zeros((3, p))),
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
        correct=no,
        keep=no,
        restore=no,
        aim=no,
        status=Status.running.as_array(),
    )


def mapped(phases: Phases, one: Callable[[Phase], Phase]) -> Phases:
    return tuple(tuple(map(one, entry)) if isinstance(entry, tuple) else one(entry) for entry in phases)


class CountedRates(Method[ServerState]):
    """A method given smooth stand-ins for counted rates.

    - `method`: the method that solves the smooth problems.
    - `columns`: whether parties hold columns, so that the label holder counts by itself.
    """

    method: Method
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
            ask, step, hear = AskFirst(phase.ask), StepFirst(phase.step), HearFirst(phase.hear)
            return dataclasses.replace(phase, ask=ask, step=step, hear=hear)

        return mapped(self.method.opening, first)

    @property
    def round(self) -> Phases:
        count = self.embed if self.columns else self.count
        return (
            *self._corrected(self.method.round),
            Phase(self.ask_count, count, self.hear_count, only_if=self.has_ended),
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

    def count(self, own: Oracle, state: PartyState, message: CountAt) -> tuple[PartyState, Reply]:
        w, unit = message.answer.parameters, rate_factors(own.program)[1]
        counted, smooth, jumps = own.counted(w), own.softened(message.softening)(w), own.jumps()
        mine = Count(
            state.correction,
            state.too_loose,
            counted.constraints,
            smooth.constraints,
            jumps.constraints,
            xp.asarray(unit),
        )
        proposed, too_loose = mine.proposals()
        sums = CountSums(counted.pooled, smooth.pooled)
        after = dataclasses.replace(state, proposed=proposed, too_loose=too_loose)
        return after, Reply(sum=sums, max=mine.maxima(jumps.pooled))

    def embed(self, own: Block, state: PartyState, message: CountAt) -> tuple[PartyState, Reply]:
        """Over columns: what the bottom model gives, from which the label holder counts."""
        return state, contribution(own, own.embed(self.block(own, state, message.answer)))

    def settle(self, own: Any, state: PartyState, message: Settlement) -> tuple[PartyState, Reply]:
        own_correction = message.pooled if isinstance(own, Block) and own.active else state.proposed[message.way]
        best = choose(message.keep, state.inner, state.best)
        best_correction = choose(message.keep, state.correction, state.best_correction)
        correction = choose(message.correct, own_correction, state.correction)
        after = PartyState(
            inner=choose(message.restore, best, state.inner),
            softening=message.softening,
            correction=choose(message.restore, best_correction, correction),
            proposed=state.proposed,
            too_loose=state.too_loose,
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
        """Whether a stage has come to its end in this round."""
        server, _ = self.method.finish(at_server(own, carry), carry.inner)
        return self._ended(carry, self.method.status(server))

    def _ended(self, carry: ServerState, status: jax.Array) -> jax.Array:
        long = carry.rounds + 1 >= PATIENCE[0 if self.few_rounds else 1]
        return (status != int(Status.running)) | (long & (carry.softening > 1.0))

    def ask_count(self, own: ServerData, carry: ServerState) -> CountAt:
        now = at_server(own, carry)
        answer = self.method.answer(now, self.method.finish(now, carry.inner)[0])
        answer = dataclasses.replace(answer, parameters=answer.parameters[: own.functions.program.shape.size])
        return CountAt(answer, _sharper(carry))

    def hear_count(self, own: ServerData, carry: ServerState, reply: Reply) -> ServerState:
        """What the counts say, and what follows from it."""
        before = at_server(own, carry)
        server, info = self.method.finish(before, carry.inner)
        asked, deltas, functions = self.ask_count(own, carry), carry.corrections, own.functions
        w = asked.answer.parameters
        if self.columns:
            functions = dataclasses.replace(functions, rows={**functions.rows, EMBEDDED: combined(reply)})
        mine_counted, mine_smooth = functions.counted(w), functions.softened(asked.softening)(w)
        jumps = functions.jumps()
        if self.columns:
            constants = xp.asarray(self.constants)
            counted, smooth, pooled_jumps = (
                mine_counted.pooled + constants,
                mine_smooth.pooled + constants,
                jumps.pooled,
            )
            told: list[CountMaxima] = []
        else:
            counted, smooth = reply.sum.counted + mine_counted.pooled, reply.sum.smooth + mine_smooth.pooled
            pooled_jumps, told = xp.maximum(reply.max.pooled_jumps, jumps.pooled), [reply.max]
        unit, pooled_unit = xp.asarray(rate_factors(functions.program)[1]), xp.asarray(self.pooled_units)
        constraints = mine_counted.constraints, mine_smooth.constraints, jumps.constraints, unit
        of_server = Count(deltas.server, carry.too_loose.server, *constraints)
        of_all = Count(deltas.pooled, carry.too_loose.pooled, counted, smooth, pooled_jumps, pooled_unit)
        told += [of_server.maxima(pooled_jumps), of_all.maxima(pooled_jumps)]
        violation, inside = (xp.max(xp.stack([getattr(x, name) for x in told])) for name in ("violation", "inside"))
        proposals = zip(of_server.proposals(), of_all.proposals(), strict=True)
        proposed, too_loose = (Corrections(*both) for both in proposals)

        early = carry.softening > 1.0
        solved = early | (self.method.status(server) == int(Status.converged))
        met, seen = violation <= EXACT, carry.best_violation <= EXACT
        close = inside <= 1.0
        good = solved & met & close & ~early
        lower = xp.where(seen, met & (info.objective < carry.best_objective), violation < carry.best_violation)
        keep = solved & carry.strict & lower
        tries = carry.tries < xp.where(carry.strict, CLOSELY, ROUGHLY)
        more = early | (solved & ~good & tries & (~met | (carry.loosened < LOOSER)))
        aim = solved & ~carry.strict & ~more
        ends = ~more & ~aim
        return dataclasses.replace(
            carry,
            proposed=proposed,
            too_loose=too_loose,
            best_objective=xp.where(keep, info.objective, carry.best_objective),
            best_violation=xp.where(keep, violation, carry.best_violation),
            tries=xp.where(aim, 0, carry.tries + xp.where(early, 0, 1)),
            loosened=xp.where(aim, 0, carry.loosened + xp.where(more & met & ~early, 1, 0)),
            way=xp.where(early, WHOLLY, xp.where(met, LOOSELY, TIGHTER)),
            correct=more,
            keep=keep,
            restore=ends & ~good & (seen | (keep & met)),
            aim=aim,
        )

    def send_settlement(self, own: ServerData, carry: ServerState) -> Settlement:
        pooled = carry.proposed.pooled[carry.way]
        return Settlement(_sharper(carry), carry.correct, carry.way, carry.keep, carry.restore, pooled)

    def finish(self, own: ServerData, carry: ServerState) -> tuple[ServerState, Info]:
        server, info = self.method.finish(at_server(own, carry), carry.inner)
        status, no = self.method.status(server), xp.asarray(False)
        ended = self._ended(carry, status)
        best = choose(carry.keep, server, carry.best)
        best_corrections = choose(carry.keep, carry.corrections, carry.best_corrections)
        proposed = jax.tree.map(lambda ways: ways[carry.way], carry.proposed)
        deltas = choose(carry.correct, proposed, carry.corrections)
        after = dataclasses.replace(
            carry,
            softening=xp.where(ended, _sharper(carry), carry.softening),
            rounds=xp.where(ended, 0, carry.rounds + 1),
            corrections=choose(carry.restore, best_corrections, deltas),
            best=best,
            best_corrections=best_corrections,
            strict=carry.strict | carry.aim,
            correct=no,
            keep=no,
            restore=no,
            aim=no,
        )
        aimed = choose(carry.aim, self.method.aim(server, carry.goal), server)
        inner = choose(carry.restore, best, aimed)
        # a method of many rounds would spend them on multipliers from before its rough end
        renews = carry.correct if self.few_rounds else carry.correct | carry.aim
        inner = cond(renews, lambda: self.method.renewed(at_server(own, after), aimed), lambda: inner)
        unmet = (status == int(Status.converged)) & (carry.best_violation > EXACT)
        status = xp.where(unmet, int(Status.stalled), status)
        status = xp.where(carry.restore, int(Status.converged), status)
        goes_on = ~ended | carry.correct | carry.aim
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


def _sharper(carry: ServerState) -> jax.Array:
    """The softening of the next stage."""
    return xp.maximum(SHARPER * carry.softening, 1.0)


def _unchanged(own: ServerData, carry: ServerState, reply: Reply) -> ServerState:
    return carry


def with_counted_rates(method: Method[Any], setting: Setting) -> Method[Any]:
    """The method for problems with counted rates; unchanged where there are none."""
    if not any(program.decides for program in setting.programs):
        return method
    party, server = setting.programs
    units = np.maximum(rate_factors(party)[2], rate_factors(server)[2])
    columns = setting.split == "columns"
    constants = server.pooled.constants if columns else ()
    return CountedRates(method, columns, constants, tuple(units.tolist()))
