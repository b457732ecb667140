"""A method for problems with counted rates of decisions, which have no slope: it is given smooth stand-ins, and corrected.

    g_j(w) + δ_j <= 0     a constraint with its rates smoothed at a temperature T,   C_j(w) <= 0   the same, counted

T falls in stages. Where the problem of a stage is roughly solved every holder counts and sets δ_j = C_j − g_j, with g_j as it
will be in the next stage: what is bounded then passes through what was counted. In the last stage T is as stated. Counts
jump, so δ_j may be too much or too little there. After the next counts it grows where C_j > 0; and once all counted
constraints hold, it shrinks where one binds and holds by more than need be, but stays above every δ_j that was too small. The
rest is solving to the tolerance, and counting again. Two-sided bounds, as of a gap, are moved together where they would come
too close. A point that was solved to the tolerance, whose counted constraints hold and are met closely, is handed out; where
there is none, the one with the lowest objective of those that meet them less closely; where there is none either, the
threshold of decisions is moved a little, if some counts are then all within their limits; failing that, the best of all
points that were counted, the start among them. "infeasible" is said only if no counted point was within all limits, and of
bounds that are missed by more than what counts as met closely, or that are as far apart as they were stated. δ of a party's
constraints stays with it.

A round in which the method itself has come to an end has two exchanges more: counts, and what is made of them. The first round
has one more, of counts at the start.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Self

import jax
import numpy as np

from fedpact.algorithms.parts.corrected import (
    SOFTEST,
    AskCorrected,
    AskFirst,
    CountAt,
    CountShifted,
    CountSums,
    Finished,
    HearCorrected,
    HearFirst,
    HearLast,
    OnlyIfCorrected,
    PartyState,
    ServerState,
    Settlement,
    ShiftedMaxima,
    ShiftedSums,
    StepCorrected,
    StepFirst,
    at_server,
    corrected,
    mapped,
)
from fedpact.algorithms.parts.counting import EXACT, LOOSELY, PLAINLY, TIGHTER, WHOLLY, Count, CountMaxima, Limits
from fedpact.arrays import choose, cond, each, xp
from fedpact.federation.blocks import Block
from fedpact.federation.setting import Setting
from fedpact.problem.oracle import Oracle
from fedpact.problem.program import directions, rate_factors, with_other_terms
from fedpact.problem.split import EMBEDDED
from fedpact.protocol.algorithm import Answer, Corrections, Goal, Info, Method, Status
from fedpact.protocol.embedding import combined, contribution
from fedpact.protocol.messages import Reply
from fedpact.protocol.phases import Phase, Phases, ServerData

SHARPER = 0.5  # its factor from stage to stage
PATIENCE = 12, 200  # rounds in a stage but the last, of methods of few rounds and of others
ROUGHLY = 3  # corrections before the problem is solved to the tolerance,
CLOSELY = 10  # and afterwards,
SHIFTS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)  # of the threshold, up and down, in temperatures
LOOSER = 5  # of which so many may loosen bounds


class CountedRates(Method[ServerState]):
    """A method given smooth stand-ins for counted rates.

    - `method`: the method that solves the smooth problems.
    - `columns`: whether parties hold columns, so that the label holder counts by itself.
    - `shiftable`: whether all decisions have one threshold and one temperature.
    - `constants`: of pooled constraints, where no oracle has them: over columns.
    - `pooled_units`: of pooled constraints, the largest factor of a rate in them.
    - `pooled_directions`: their directions, see `program.directions`.
    - `pooled_endless`: for which of them `Oracle.strictest` is -∞.
    """

    method: Method
    columns: bool
    shiftable: bool
    constants: tuple[float, ...]
    pooled_units: tuple[float, ...]
    pooled_directions: tuple[int, ...]
    pooled_endless: tuple[bool, ...]

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
        count, shifted = (self.embed, self.embed) if self.columns else (self.count, self.count_shifted)
        return (
            *self._finished_at_last(self._corrected(self.method.round)),
            Phase(self.ask_start, self.embed_start if self.columns else count, self.hear_start, only_if=is_first),
            Phase(self.ask_count, count, self.hear_count, only_if=self.has_ended),
            Phase(self.ask_shifted, shifted, self.hear_shifted, only_if=is_shifting),
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

    def _finished_at_last(self, phases: Phases) -> Phases:
        """Phases of a round whose last one finishes it, where that always takes place."""
        *before, last = phases
        *others, phase = last if isinstance(last, tuple) else (last,)
        if phase.only_if is not None:
            return phases
        assert isinstance(phase.hear, HearCorrected)
        finishing = dataclasses.replace(phase, hear=HearLast(phase.hear.wrapped, self.method.finish))
        return (*before, (*others, finishing) if isinstance(last, tuple) else finishing)

    # at a party

    def count(self, own: Oracle, state: PartyState, message: CountAt) -> tuple[PartyState, Reply]:
        w = message.answer.parameters
        counted, smooth = own.counted(w), own.softened(message.softening)(w)
        jumps, strictest = own.jumps(), own.strictest()
        mine = Count.at(
            Limits.of(own.program),
            state.softening <= 1.0,
            correction=state.correction,
            too_loose=state.too_loose,
            counted=counted.constraints,
            smooth=smooth.constraints,
            jumps=jumps.constraints,
            strictest=strictest.constraints,
        )
        proposed, too_loose = mine.proposals()
        finite = xp.where(np.asarray(self.pooled_endless, bool), 0.0, strictest.pooled)  # secure sums cannot hold -∞
        sums = CountSums(counted.objective, counted.pooled, smooth.pooled, finite)
        after = dataclasses.replace(state, proposed=proposed, too_loose=too_loose)
        return after, Reply(sum=sums, max=mine.maxima(jumps.pooled))

    def count_shifted(self, own: Oracle, state: PartyState, message: CountShifted) -> tuple[PartyState, Reply]:
        constraints, pooled = _at_shifts(own, message)
        violation = _violations(constraints, rate_factors(own.program)[1])
        return state, Reply(sum=ShiftedSums(pooled), max=ShiftedMaxima(violation))

    def embed(self, own: Block, state: PartyState, message: CountAt | CountShifted) -> tuple[PartyState, Reply]:
        """Over columns: what the bottom model gives, from which the label holder counts."""
        return state, contribution(own, own.embed(self.block(own, state, message.answer)))

    def embed_start(self, own: Block, state: PartyState, message: CountAt) -> tuple[PartyState, Reply]:
        return state, contribution(own, own.embed(self.method.block(own, state.best, message.answer)))

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

    def correction(self, state: PartyState, answer: Any) -> jax.Array:
        return state.correction

    # at the server

    def _finished(self, own: ServerData, carry: ServerState) -> tuple[Any, Info]:
        """The wrapped method's round, finished."""
        if isinstance(carry.inner, Finished):
            return carry.inner.server, carry.inner.info
        return self.method.finish(at_server(own, carry), carry.inner)

    def has_ended(self, own: ServerData, carry: ServerState) -> jax.Array:
        """Whether a stage has come to its end in this round."""
        server, _ = self._finished(own, carry)
        return self._ended(carry, self.method.status(server))

    def _ended(self, carry: ServerState, status: jax.Array) -> jax.Array:
        long = carry.rounds + 1 >= PATIENCE[0 if self.few_rounds else 1]
        return (status != int(Status.running)) | (long & (carry.softening > 1.0))

    def ask_start(self, own: ServerData, carry: ServerState) -> CountAt:
        return self._count_at(own, carry, carry.best, carry.softening)

    def hear_start(self, own: ServerData, carry: ServerState, reply: Reply) -> ServerState:
        *_, told, objective = self._counts(own, carry, self.ask_start(own, carry), reply)
        return dataclasses.replace(carry, best_violation=_violation(told), best_objective=objective)

    def ask_count(self, own: ServerData, carry: ServerState) -> CountAt:
        return self._count_at(own, carry, self._finished(own, carry)[0], _sharper(carry))

    def _count_at(self, own: ServerData, carry: ServerState, server: Any, softening: jax.Array) -> CountAt:
        answer = self.method.answer(at_server(own, carry), server)
        answer = dataclasses.replace(answer, parameters=answer.parameters[: own.functions.program.shape.size])
        return CountAt(answer, softening)

    def _counts(
        self, own: ServerData, carry: ServerState, asked: CountAt, reply: Reply
    ) -> tuple[Count, Count, list[CountMaxima], jax.Array]:
        """What was counted of the server's own constraints and of pooled ones, the maxima over all holders, and the objective."""
        deltas, functions, w = carry.corrections, own.functions, asked.answer.parameters
        if self.columns:
            functions = dataclasses.replace(functions, rows={**functions.rows, EMBEDDED: combined(reply)})
        mine_counted, mine_smooth = functions.counted(w), functions.softened(asked.softening)(w)
        jumps, strictest = functions.jumps(), functions.strictest()
        if self.columns:
            constants = xp.asarray(self.constants)
            of_labels = mine_counted.pooled, mine_smooth.pooled, strictest.pooled
            counted, smooth, least = (part + constants for part in of_labels)
            pooled_jumps, told = jumps.pooled, []
            objective = self._finished(own, carry)[
                1
            ].objective  # of where the round began: parties keep h of their blocks
        else:
            counted, smooth = reply.sum.counted + mine_counted.pooled, reply.sum.smooth + mine_smooth.pooled
            least = xp.where(np.asarray(self.pooled_endless, bool), -xp.inf, reply.sum.strictest + strictest.pooled)
            pooled_jumps, told = xp.maximum(reply.max.pooled_jumps, jumps.pooled), [reply.max]
            objective = reply.sum.objective + mine_counted.objective + own.regularizer.value(w)
        pooled_limits = Limits(
            np.asarray(self.pooled_units), np.asarray(self.pooled_directions, int), functions.pooled_equality
        )
        sharp = carry.softening <= 1.0
        of_server = Count.at(
            Limits.of(functions.program),
            sharp,
            correction=deltas.server,
            too_loose=carry.too_loose.server,
            counted=mine_counted.constraints,
            smooth=mine_smooth.constraints,
            jumps=jumps.constraints,
            strictest=strictest.constraints,
        )
        of_all = Count.at(
            pooled_limits,
            sharp,
            correction=deltas.pooled,
            too_loose=carry.too_loose.pooled,
            counted=counted,
            smooth=smooth,
            jumps=pooled_jumps,
            strictest=least,
        )
        return of_server, of_all, [*told, of_server.maxima(pooled_jumps), of_all.maxima(pooled_jumps)], objective

    def hear_count(self, own: ServerData, carry: ServerState, reply: Reply) -> ServerState:
        """What the counts say, and what follows from it."""
        server, _ = self._finished(own, carry)
        of_server, of_all, told, objective = self._counts(own, carry, self.ask_count(own, carry), reply)
        violation, inside, missed = (_largest(name, told) for name in ("violation", "inside", "missed"))
        proposals = zip(of_server.proposals(), of_all.proposals(), strict=True)
        proposed, too_loose = (Corrections(*both) for both in proposals)

        early, status = carry.softening > 1.0, self.method.status(server)
        converged, empty = status == int(Status.converged), status == int(Status.infeasible)
        solved, final = early | converged, carry.strict & converged & ~early
        met, met_before = violation <= EXACT, carry.best_violation <= EXACT
        close = inside <= 1.0
        good = solved & met & close & ~early
        lower = xp.where(final == carry.best_solved, objective < carry.best_objective, final)
        overall = xp.where(final, violation, _violation(told))
        keep = xp.where(overall <= EXACT, ~met_before | lower, overall < carry.best_violation)
        nearest = xp.where(keep, overall, carry.best_violation)
        best_solved = xp.where(keep, final, carry.best_solved)
        known = met_before | (overall <= EXACT)
        tries = carry.tries < xp.where(carry.strict, CLOSELY, ROUGHLY)
        nearly = empty & (missed <= 1.0) & (carry.way != PLAINLY)
        more = early | (~good & tries & (nearly | (solved & (~met | (carry.loosened < LOOSER)))))
        aim = solved & ~carry.strict & ~more
        ends = ~more & ~aim
        best_is_answer = (status != int(Status.diverged)) | (known & best_solved)
        return dataclasses.replace(
            carry,
            proposed=proposed,
            too_loose=too_loose,
            best_objective=xp.where(keep, objective, carry.best_objective),
            best_violation=nearest,
            best_solved=best_solved,
            tries=xp.where(aim, 0, carry.tries + xp.where(early, 0, 1)),
            loosened=xp.where(aim, 0, carry.loosened + xp.where(more & met & ~early, 1, 0)),
            way=xp.where(early, WHOLLY, xp.where(nearly, PLAINLY, xp.where(met, LOOSELY, TIGHTER))),
            correct=more,
            keep=keep,
            restore=ends & ~good & best_is_answer & xp.isfinite(nearest),
            aim=aim,
            shifting=ends & solved & ~(known & best_solved) & ~met & self.shiftable,
            shift=xp.asarray(0.0),
        )

    def ask_shifted(self, own: ServerData, carry: ServerState) -> CountShifted:
        steps = np.array(SHIFTS)
        return CountShifted(self.ask_count(own, carry).answer, xp.concatenate([steps, -steps]))

    def hear_shifted(self, own: ServerData, carry: ServerState, reply: Reply) -> ServerState:
        """The smallest shift with which all counts are within their limits, if there is one."""
        asked, functions = self.ask_shifted(own, carry), own.functions
        if self.columns:
            functions = dataclasses.replace(functions, rows={**functions.rows, EMBEDDED: combined(reply)})
        constraints, pooled = _at_shifts(functions, asked)
        pooled = pooled + (xp.asarray(self.constants) if self.columns else reply.sum.pooled)
        broken = [_violations(pooled, np.asarray(self.pooled_units))]
        if not self.columns:
            broken += [_violations(constraints, rate_factors(functions.program)[1]), reply.max.violation]
        met = xp.max(xp.stack(broken), axis=0) <= EXACT
        nearest = xp.argmin(xp.where(met, xp.abs(asked.shifts), xp.inf))
        shift = xp.where(xp.any(met), xp.take(asked.shifts, nearest), 0.0)
        return dataclasses.replace(carry, shift=shift, restore=carry.restore & (shift == 0.0))

    def send_settlement(self, own: ServerData, carry: ServerState) -> Settlement:
        pooled = carry.proposed.pooled[carry.way]
        return Settlement(_sharper(carry), carry.correct, carry.way, carry.keep, carry.restore, pooled)

    def finish(self, own: ServerData, carry: ServerState) -> tuple[ServerState, Info]:
        server, info = self._finished(own, carry)
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
            shifting=no,
        )
        inner = choose(carry.restore, best, choose(carry.aim, self.method.aim(server, carry.goal), server))
        inner = cond(carry.correct, lambda: self.method.renewed(at_server(own, after), server), lambda: inner)
        met = carry.best_violation <= EXACT
        unsolved = xp.where((status == int(Status.infeasible)) & ~met, status, int(Status.stalled))
        status = xp.where(carry.restore, xp.where(met & carry.best_solved, int(Status.converged), unsolved), status)
        goes_on = ~ended | carry.correct | carry.aim
        status = xp.where(goes_on, int(Status.running), status)
        return dataclasses.replace(after, inner=inner, status=status), info

    def promises_more(self, server: ServerState) -> Any:
        return self.method.promises_more(server.inner)

    def answer(self, own: ServerData, carry: ServerState) -> Answer:
        answer = self.method.answer(at_server(own, carry), carry.inner)
        return dataclasses.replace(answer, corrections=carry.corrections, threshold_shift=carry.shift)

    def aim(self, server: ServerState, goal: Goal) -> ServerState:
        strict = server.softening <= 1.0  # earlier stages are solved roughly
        inner = choose(strict, self.method.aim(server.inner, goal), server.inner)
        return dataclasses.replace(server, inner=inner, goal=goal, strict=strict, status=Status.running.as_array())

    def deployed(self, enough: Callable[[], bool]) -> Self:
        return dataclasses.replace(self, method=self.method.deployed(enough))


def _sharper(carry: ServerState) -> jax.Array:
    """The softening of the next stage."""
    return xp.maximum(SHARPER * carry.softening, 1.0)


def _largest(name: str, told: list[CountMaxima]) -> jax.Array:
    return xp.max(xp.stack([getattr(maxima, name) for maxima in told]))


def _violation(told: list[CountMaxima]) -> jax.Array:
    """How far counted constraints are broken where the others hold; ∞ where these do not."""
    return xp.where(_largest("others", told) <= EXACT, _largest("violation", told), xp.inf)


def is_first(own: ServerData, carry: ServerState) -> jax.Array:
    """Whether this is the first round, when the best point so far is the start."""
    return (carry.rounds == 0) & (carry.softening == SOFTEST)


def is_shifting(own: ServerData, carry: ServerState) -> jax.Array:
    return carry.shifting


def _at_shifts(own: Oracle, asked: CountShifted) -> tuple[jax.Array, jax.Array]:
    """A holder's own and its pooled constraints, counted with each of the thresholds."""

    def both(shift: jax.Array) -> jax.Array:
        counted = own.shifted(shift).counted(asked.answer.parameters)
        return xp.concatenate([counted.constraints, counted.pooled])

    every, constraints = each(both, asked.shifts), len(own.program.constraints)
    return every[:, :constraints], every[:, constraints:]


def _violations(counted: jax.Array, unit: np.ndarray) -> jax.Array:
    """For each shift the largest violation of a counted constraint, in units of a rate."""
    rates = unit > 0
    return xp.max(xp.where(rates, counted / np.where(rates, unit, 1.0), -xp.inf), axis=1, initial=0.0)


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
    decided = [rate for rate in (*party.rates, *server.rates) if rate.is_decision]
    alike = len({(rate.threshold, rate.temperature) for rate in decided}) == 1
    shiftable = alike and all(rate.label is None for rate in decided)
    pooled = directions(*(program.pooled.matrix(len(program.atoms)) for program in setting.programs))
    endless = np.any([with_other_terms(program, program.pooled) for program in setting.programs], axis=0)
    of_pooled = (tuple(each.tolist()) for each in (units, pooled, endless))
    return CountedRates(method, columns, shiftable, constants, *of_pooled)
