"""A party that follows the server: from the sums that all parties made it computes every message itself, and refuses another.

The server's part of a method is a pure function of the sums. Where points are checked, a message brings the sums of the
exchange before it, with the tag that shows that they are the parties' own (`fedpact.engines.tags`). From them the party
knows what the server must ask next: the next phase, or at the end of a round another one or the answer, or after a
certificate that did not hold a round with a stricter goal. So a server cannot choose points that tell more than the method's.
"""

import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Self

import jax
import numpy as np

from fedpact.arrays import host_arithmetic
from fedpact.engines.exchanges import ExchangePlan, name_of
from fedpact.engines.sealing import TOLD, Masks, is_own, is_sealed, opened, totals_layout
from fedpact.engines.serialization import Layout, Refused
from fedpact.protocol.algorithm import Begin, Goal, Method
from fedpact.protocol.messages import Reply
from fedpact.protocol.phases import Phase, Phases
from fedpact.run import drivers
from fedpact.run.loop import stricter
from fedpact.settings.base import Bound

WITHIN = 1e-6  # messages may differ by this part of an array's largest number: machines round differently


@dataclasses.dataclass
class _Part:
    """A part of a run on its way: phases, what the server carries, how often its goal was made stricter, the next phase."""

    name: str
    phases: Phases
    carry: Any
    sharpened: int = 0
    at: int = 0


class Follower:
    """What a party knows of the server's state. A message makes another one of it, which takes its place once the party has
    answered: what is refused, or fails, leaves nothing behind.

    - `method`, `bound`: of the run. `plan`: its exchanges.
    - `goal`, `seed`: what the run begins with, as the pact says.
    - `masks`: the party's, which know the secret of all parties.
    """

    def __init__(self, method: Method, bound: Bound, plan: ExchangePlan, goal: Goal, seed: int, masks: Masks) -> None:
        self.method, self.bound, self.plan, self.goal, self.masks = method, bound, plan, goal, masks
        self.on_host = method.few_rounds
        self.own = drivers.server_data_on_host(bound) if self.on_host else bound.server_data
        key = np.asarray(jax.random.key_data(jax.random.key(seed)))
        first: Any = np.asarray(bound.start), goal, key
        self.part = _Part("begin", tuple(method.opening), Begin(*first))
        self.server: Any = None  # after the opening, or the last round
        self.saved: list[np.ndarray] | None = None  # leaves of the server's state that the party saved before
        self.answer: Any = None  # the last that was certified
        self.answered: tuple[str, int, bytes] | None = (
            None  # the exchange whose sums come next, its number, the message
        )

    # messages

    def follow(self, exchange: str, arrays: dict[str, np.ndarray]) -> tuple[Self, dict[str, np.ndarray]]:
        """What is known after a message, and the message without the sums that it brings. Refuses sums that are not the
        parties', and what does not follow."""
        (ahead, message), nearest = self.after(arrays), None
        for part in ahead._next():
            phase = _one(part.phases[part.at])
            expected = self._call(phase.ask, self.own, part.carry)
            layout = Layout.of(jax.tree.map(np.asarray, expected))
            if name_of(phase.step, None, layout) != exchange:
                continue
            away = _difference(layout.by_name(expected), message)
            nearest = away if nearest is None else min(nearest, away)
            if away <= WITHIN:
                ahead._enter(part)
                return ahead, message
        if nearest is None:
            raise Refused(f"the sums of all parties do not lead to {exchange!r}: the server asks for something else")
        much = "in whole numbers" if nearest == np.inf else f"by {nearest:.1e} of their size"
        raise Refused(f"the sums of all parties lead to another point than the server's: the messages differ {much}")

    def after(self, arrays: dict[str, np.ndarray]) -> tuple[Self, dict[str, np.ndarray]]:
        """What is known after the sums of the last exchange, which a message brings, and what else is in it."""
        told = {name.removeprefix(TOLD): array for name, array in arrays.items() if name.startswith(TOLD)}
        ahead = copy.copy(self)
        ahead.part = dataclasses.replace(self.part)
        if ahead.answered is not None:
            ahead._hear(told)
        return ahead, {name: array for name, array in arrays.items() if not name.startswith(TOLD)}

    def answers(self, exchange: str, number: int, message: bytes) -> None:
        """The party answers: the next message brings the sums of this exchange."""
        self.answered = exchange, number, message

    def check_answer(self, parameters: np.ndarray, threshold_shift: float | None) -> None:
        """Refuse to decide about its rows with another model than the answer.

        threshold_shift: of the threshold of decisions, in units of the score; None where the pact states it.
        """
        if self.answer is None:
            raise Refused("there is no answer yet that it could decide with")
        own, moved = np.asarray(self.answer.parameters), self.moved_threshold
        away = _difference({"w": own}, {"w": parameters})
        shift = moved if threshold_shift is None else threshold_shift
        if away > WITHIN or abs(shift - moved) > WITHIN * (1.0 + abs(moved)):
            raise Refused("it is asked to decide with another model than the one that the sums of all parties lead to")

    @property
    def moved_threshold(self) -> float:
        """By which the answer moves the threshold of counted decisions, in units of the score."""
        rates = [rate for program in self.bound.setting.programs for rate in program.rates if rate.is_decision]
        return float(self.answer.threshold_shift) * rates[0].temperature if rates else 0.0

    # what the server does

    def _hear(self, told: dict[str, np.ndarray]) -> None:
        assert self.answered is not None
        name, number, digest = self.answered
        reply = self.plan[name].reply
        sums: dict[str, np.ndarray] = {}
        if is_sealed(reply):
            totals_layout(reply).check(told)
            if not is_own(told, self.masks, number, digest):
                raise Refused("the sums that it brings are not those of the parties' replies")
            sums = opened(reply, told)[0]
        elif told:
            raise Refused("it brings sums of an exchange that has none")
        self.answered = None
        combined = self.plan[name].combined
        sums |= {leaf.name: np.zeros(leaf.shape, leaf.dtype) for leaf in combined.leaves if not leaf.size}  # by party
        part = self.part
        phase: Any = part.phases[part.at]
        part.carry = self._call(phase.hear, self.own, part.carry, combined.as_tree(sums) if sums else Reply())
        part.at += 1
        self._settle(part)

    def _settle(self, part: _Part) -> None:
        """Pass over phases that do not take place, and end a part that is over."""
        while part.at < len(part.phases):
            only_if = _one(part.phases[part.at]).only_if
            if only_if is None or bool(self._call(only_if, self.own, part.carry)):
                return
            part.at += 1
        if part.name == "begin":
            self.server = part.carry
        elif part.name == "round":
            self.server, _ = self._call(self.method.finish, self.own, part.carry)
        elif part.name == "end":
            self.answer = part.carry

    def _next(self) -> Iterator[_Part]:
        """Where the server may go on."""
        part = self.part
        if part.at < len(part.phases):
            yield part
            return
        if part.name == "end":
            yield self._began(_Part("certificate", tuple(self.bound.measurement), self.answer, part.sharpened))
            return
        if part.name == "certificate":
            more = part.sharpened + 1
            server = self.method.aim(self.server, stricter(self.goal, more))
            yield self._began(_Part("round", tuple(self.method.round), server, more))
        for server, sharpened in ((self.server, part.sharpened), *self._loaded()):
            yield self._began(_Part("round", tuple(self.method.round), server, sharpened))
            yield self._began(_Part("end", tuple(self.bound.conclusion(self.method)), server, sharpened))

    def _began(self, part: _Part) -> _Part:
        while part.at < len(part.phases):
            only_if = _one(part.phases[part.at]).only_if
            if only_if is None or bool(self._call(only_if, self.own, part.carry)):
                break
            part.at += 1
        return part

    def _enter(self, part: _Part) -> None:
        if part.name in ("round", "end") and part is not self.part:
            self.server, self.saved = part.carry, None
        self.part = part

    # on the party's disk

    def leaves(self) -> list[np.ndarray]:
        """The server's state, to be saved beside the party's own."""
        return [np.asarray(self.part.sharpened), *(np.asarray(leaf) for leaf in jax.tree.leaves(self.server))]

    def _loaded(self) -> Iterator[tuple[Any, int]]:
        """The state that the party saved, where the run is resumed, and how often its goal was made stricter."""
        if self.saved is None or self.part.name != "begin":
            return
        count, *leaves = self.saved
        structure = jax.tree.structure(self.server)
        if structure.num_leaves != len(leaves):
            raise Refused("what it saved of the server's state is of another run; begin a new run")
        yield jax.tree.unflatten(structure, leaves), int(count)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if self.on_host:
            with host_arithmetic():
                return drivers.settled(function(*arguments))
        return drivers.compiled(function)(*arguments)


def _one(entry: Phase | tuple[Phase, ...]) -> Phase:
    return entry[0] if isinstance(entry, tuple) else entry


def _difference(expected: dict[str, np.ndarray], got: dict[str, np.ndarray]) -> float:
    """The largest difference, relative to the largest number of its array; infinite where whole numbers or shapes differ."""
    if expected.keys() != got.keys():
        return np.inf
    worst = 0.0
    for name, mine in expected.items():
        theirs = got[name]
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            return np.inf
        if mine.dtype.kind != "f":
            worst = worst if np.array_equal(mine, theirs) else np.inf
            continue
        known = np.isfinite(mine)
        if not np.array_equal(mine[~known], theirs[~known], equal_nan=True):
            return np.inf
        if known.any():
            size = max(float(np.abs(mine[known]).max()), np.finfo(float).tiny)
            worst = max(worst, float(np.abs(mine[known] - theirs[known]).max()) / size)
    return worst
