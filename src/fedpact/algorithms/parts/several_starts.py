"""A method from several starts at once, for problems with several local optima: one exchange serves all starts, the best wins.

Every state, message and reply has a leading axis over starts; a holder's own data have none. A start that has ended is left
as it is, at the server and at the parties, until all have ended. Where to start:

    w_1    the given or usual one
    w_k    the model's own initial parameters with seed + k − 1, where these are random: `Begin.w` has one row for each start
           else w_1 ± S z (1 + |w_1/S|), z standard normal from the run's key, one z for two starts on either side; S are
           the units learnt at w_1 (1 where none are), since a spread in a column's own units would say nothing

The best is, by the method's own measures of each start's last round, a converged one with the lowest objective; where none has
converged, the least violated one, and among those within the goal the one with the lowest objective.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, Self

import jax
import jax.numpy as jnp

from fedpact.algorithms.parts.corrected import ServerState
from fedpact.algorithms.parts.counted_rates import CountedRates
from fedpact.algorithms.parts.in_units import InUnits, InUnitsState
from fedpact.algorithms.parts.starts import (
    BestAnswer,
    ForStarts,
    OnlyIf,
    Starts,
    StartsInfo,
    blank_unless,
    entered,
    first_of,
    repeated,
    spread,
    where,
)
from fedpact.problem.oracle import Oracle
from fedpact.protocol.algorithm import Begin, Goal, Method, Status
from fedpact.protocol.messages import Reply, alone
from fedpact.protocol.phases import Phase, Phases, ServerData, Step

Ask = Callable[[ServerData, Any], Any]
Hear = Callable[[ServerData, Any, Reply], Any]

# phases before the first and after the last round


@dataclasses.dataclass(frozen=True)
class AskEach:
    wrapped: Ask

    def __call__(self, own: ServerData, carry: Starts) -> Any:
        return jax.vmap(partial(self.wrapped, own))(carry.inner)


@dataclasses.dataclass(frozen=True)
class StepEach:
    wrapped: Step

    def __call__(self, own: Oracle, state: Any, message: Any) -> tuple[Any, Reply]:
        def step(state: Any, message: Any) -> tuple[Any, Reply]:
            state, reply = self.wrapped(own, state, message)
            return state, alone(reply)

        return jax.vmap(step)(state, message)


@dataclasses.dataclass(frozen=True)
class HearEach:
    wrapped: Hear

    def __call__(self, own: ServerData, carry: Starts, reply: Reply) -> Starts:
        return dataclasses.replace(carry, inner=self.heard(own, carry, reply))

    def heard(self, own: ServerData, carry: Starts, reply: Reply) -> Any:
        over: Any = Reply(sum=0, max=0, per_party=1)  # the first axis of `per_party` is over parties
        return jax.vmap(partial(self.wrapped, own), in_axes=(0, over))(carry.inner, reply)


@dataclasses.dataclass(frozen=True)
class AskFirst:
    """Of a method that begins in the problem's own units."""

    wrapped: Ask
    starts: int

    def __call__(self, own: ServerData, carry: Begin) -> Any:
        return AskEach(self.wrapped)(own, entered(spread(carry, self.starts), carry.goal, self.starts))


@dataclasses.dataclass(frozen=True)
class HearFirst:
    wrapped: Hear
    starts: int

    def __call__(self, own: ServerData, carry: Begin, reply: Reply) -> Starts:
        return HearEach(self.wrapped)(own, entered(spread(carry, self.starts), carry.goal, self.starts), reply)


@dataclasses.dataclass(frozen=True)
class AskForUnits:
    """Units are learnt once, at the first start."""

    wrapped: Ask

    def __call__(self, own: ServerData, carry: Begin) -> Any:
        return self.wrapped(own, first_of(carry))


@dataclasses.dataclass(frozen=True)
class HearUnits:
    """Starts are spread in the units just learnt."""

    wrapped: Hear
    starts: int

    def __call__(self, own: ServerData, carry: Begin, reply: Reply) -> Starts:
        learnt = self.wrapped(own, first_of(carry), reply)
        return entered(spread_within(learnt, carry.w, self.starts), carry.goal, self.starts)


def spread_within(learnt: Any, w: jax.Array, starts: int) -> Any:
    """The state of a method that has just learnt units, for each start; `w`: a row for each of them, or one to draw around."""
    if isinstance(learnt, ServerState):
        each_inner = spread_within(learnt.inner, w, starts)
        without = dataclasses.replace(learnt, inner=None, best=None)
        return dataclasses.replace(repeated(without, starts), inner=each_inner, best=each_inner)
    begin = learnt.inner
    if w.ndim == 2:
        begin = dataclasses.replace(begin, w=w / learnt.units.parameters)
    return InUnitsState(repeated(learnt.units, starts), spread(begin, starts))


@dataclasses.dataclass(frozen=True)
class StepForAll:
    """A party's step before starts are spread, whose state is every start's."""

    wrapped: Step
    starts: int

    def __call__(self, own: Oracle, state: None, message: Any) -> tuple[Any, Reply]:
        after, reply = self.wrapped(own, state, message)
        return repeated(after, self.starts), reply


# phases of a round


@dataclasses.dataclass(frozen=True)
class AskRunning(AskEach):
    only_if: OnlyIf | None

    def __call__(self, own: ServerData, carry: Starts) -> ForStarts:
        taking_part = carry.taking_part(own, self.only_if)
        return ForStarts(taking_part, blank_unless(taking_part, super().__call__(own, carry)))


@dataclasses.dataclass(frozen=True)
class StepRunning(StepEach):
    def __call__(self, own: Oracle, state: Any, message: ForStarts) -> tuple[Any, Reply]:
        after, reply = super().__call__(own, state, message.message)
        return where(message.taking_part, after, state), blank_unless(message.taking_part, reply)


@dataclasses.dataclass(frozen=True)
class HearRunning(HearEach):
    """Starts that have ended are put back to `begun` by `finish`, since a carry may be no state; others that do not want the
    phase are left out here."""

    only_if: OnlyIf | None

    def __call__(self, own: ServerData, carry: Starts, reply: Reply) -> Starts:
        inner = self.heard(own, carry, reply)
        if self.only_if is not None:
            inner = where(carry.taking_part(own, self.only_if), inner, carry.inner)
        begun = carry.inner if carry.begun is None else carry.begun  # a round's first phase has no `only_if`
        return dataclasses.replace(carry, inner=inner, begun=begun)


@dataclasses.dataclass(frozen=True)
class AnyStart:
    """A phase takes place if a running start wants it."""

    wrapped: OnlyIf

    def __call__(self, own: ServerData, carry: Starts) -> jax.Array:
        return jnp.any(carry.taking_part(own, self.wrapped))


def each(phase: Phase) -> Phase:
    assert phase.only_if is None, "only phases of rounds may depend on the start"
    return dataclasses.replace(phase, ask=AskEach(phase.ask), step=StepEach(phase.step), hear=HearEach(phase.hear))


def running(phase: Phase) -> Phase:
    return dataclasses.replace(
        phase,
        ask=AskRunning(phase.ask, phase.only_if),
        step=StepRunning(phase.step),
        hear=HearRunning(phase.hear, phase.only_if),
        only_if=None if phase.only_if is None else AnyStart(phase.only_if),
    )


def wrapped(phases: Phases, by: Callable[[Phase], Phase]) -> Phases:
    return tuple(tuple(map(by, entry)) if isinstance(entry, tuple) else by(entry) for entry in phases)


class SeveralStarts(Method[Starts]):
    """A method from several starts at once. What it hands out is the best start's.

    - `method`: one over rows with one model for all; its opening begins with a single phase.
    - `starts`: how many (>= 2).

    The history has objective, violation and stationarity of the best start so far, how many starts still run and which the
    best one is, and none of the method's own columns; parties should disclose nothing in rounds.
    """

    method: Method
    starts: int

    @property
    def opening(self) -> Phases:
        first, *others = self.method.opening
        assert isinstance(first, Phase)
        counted = self.method.method if isinstance(self.method, CountedRates) else self.method
        if isinstance(counted, InUnits):
            ask, hear = AskForUnits(first.ask), HearUnits(first.hear, self.starts)
            begin = dataclasses.replace(first, ask=ask, step=StepForAll(first.step, self.starts), hear=hear)
        else:
            ask, hear = AskFirst(first.ask, self.starts), HearFirst(first.hear, self.starts)
            begin = dataclasses.replace(first, ask=ask, step=StepEach(first.step), hear=hear)
        return begin, *wrapped(others, each)

    @property
    def round(self) -> Phases:
        return wrapped(self.method.round, running)

    @property
    def closing(self) -> Phases:
        return wrapped(self.method.closing, each)

    def finish(self, own: ServerData, carry: Starts) -> tuple[Starts, StartsInfo]:
        inner, info = jax.vmap(partial(self.method.finish, own))(carry.inner)
        inner = where(carry.running, inner, carry.begun)
        objective, violation, stationarity = (
            jnp.where(carry.running, getattr(info, name), getattr(carry, name))
            for name in ("objective", "violation", "stationarity")
        )
        after = Starts(inner, None, self._status(inner), objective, violation, stationarity, carry.goal)
        best = after.best
        line = objective[best], violation[best], stationarity[best]
        return after, StartsInfo(*line, jnp.sum(after.running), best + 1)

    def status(self, server: Starts) -> jax.Array:
        return server.overall

    def promises_more(self, server: Starts) -> Any:
        return self.method.promises_more(_of(server.best, server.inner))

    def answer(self, own: ServerData, carry: Starts) -> BestAnswer:
        best = carry.best
        answer = self.method.answer(own, _of(best, carry.inner))
        return BestAnswer(**{f.name: getattr(answer, f.name) for f in dataclasses.fields(answer)}, start=best)

    def aim(self, server: Starts, goal: Goal) -> Starts:
        """Go on from all starts that run or have converged; from all of them where none has converged."""
        goal = jax.tree.map(jnp.asarray, goal)
        converged = server.status == int(Status.converged)
        again = server.running | converged | ~jnp.any(converged)
        inner = where(again, jax.vmap(lambda inner: self.method.aim(inner, goal))(server.inner), server.inner)
        return dataclasses.replace(server, inner=inner, status=self._status(inner), goal=goal)

    def multipliers(self, own: Oracle, state: Any, answer: BestAnswer) -> jax.Array:
        return self.method.multipliers(own, _of(answer.start, state), answer)

    def correction(self, state: Any, answer: BestAnswer) -> jax.Array | None:
        return self.method.correction(_of(answer.start, state), answer)

    def deployed(self, enough: Callable[[], bool]) -> Self:
        return dataclasses.replace(self, method=self.method.deployed(enough))

    def _status(self, inner: Any) -> jax.Array:
        return jax.vmap(self.method.status)(inner).astype(int)


def _of(start: jax.Array, tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[start], tree)
