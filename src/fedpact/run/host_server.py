"""A server that computes on the host, with NumPy, while what its parties do is compiled.

Compiling takes longer than all rounds of a method of few rounds, and much of it is spent anew for every program. So on few rows
all exchanges of a run are one program that is told which of them takes place. Their messages, replies and states are known
beforehand from a rehearsal (`rehearsed`): the run's exchanges, one after the other, with parties that only say what their replies
would look like.
"""

import collections
import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, ClassVar, TypeGuard

import equinox as eqx
import jax
import numpy as np
from jax import lax

from fedpact.arrays import xp
from fedpact.compiling import Jitted
from fedpact.engines.secure import SecureNetwork, added
from fedpact.problem.fingerprint import digest
from fedpact.protocol.engine import RunNetwork
from fedpact.protocol.messages import Reply
from fedpact.protocol.phases import Ask, PartyStates
from fedpact.records import Record

FEW_NUMBERS = 200_000  # of all parties' data


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a tree of arrays stands in one vector for each type: a program takes and gives one array faster than thirty."""

    tree: Any
    leaves: tuple[tuple[tuple[int, ...], str], ...]  # shape and type

    @classmethod
    def of(cls, tree: Any) -> "Layout":
        leaves, structure = jax.tree.flatten(tree)
        return cls(structure, tuple((tuple(leaf.shape), np.dtype(leaf.dtype).name) for leaf in leaves))

    @functools.cached_property
    def lengths(self) -> dict[str, int]:
        """Of the vectors, by type."""
        lengths: dict[str, int] = collections.Counter()
        for shape, dtype in self.leaves:
            lengths[dtype] += math.prod(shape)
        return lengths

    def packed(self, tree: Any, lengths: dict[str, int]) -> dict[str, Any]:
        """One vector for each type, filled up to these lengths."""
        parts: dict[str, list[Any]] = {dtype: [] for dtype in lengths}
        for leaf, (_, dtype) in zip(jax.tree.leaves(tree), self.leaves, strict=True):
            parts[dtype].append(leaf.reshape(-1))
        for dtype, length in lengths.items():
            parts[dtype].append(np.zeros(length - self.lengths.get(dtype, 0), dtype))
        return {dtype: xp.concatenate(part) for dtype, part in parts.items()}

    def unpacked(self, vectors: dict[str, Any]) -> Any:
        ends: dict[str, int] = collections.Counter()
        leaves = []
        for shape, dtype in self.leaves:
            begin = ends[dtype]
            ends[dtype] += math.prod(shape)
            leaves.append(vectors[dtype][begin : ends[dtype]].reshape(shape))
        return jax.tree.unflatten(self.tree, leaves)


class Packed(Record):
    """A packed tree that knows its layout."""

    vectors: dict[str, Any]
    layout: Layout = eqx.field(static=True)

    @classmethod
    def of(cls, tree: Any) -> "Packed":
        layout = Layout.of(tree)
        return cls(layout.packed(tree, layout.lengths), layout)

    def unpacked(self) -> Any:
        return self.layout.unpacked(self.vectors)


@dataclasses.dataclass(frozen=True)
class Exchange:
    """One exchange of a run: what parties are asked to do, and what is sent, answered and kept.

    - `steps`: or their digest, in a plan of an earlier process.
    """

    steps: tuple[Ask, ...] | str
    messages: Layout
    before: Layout
    replies: Layout
    after: Layout


@dataclasses.dataclass(frozen=True)
class Plan:
    """Exchanges that are compiled together."""

    exchanges: tuple[Exchange, ...]

    def place(self, steps: tuple[Ask, ...], messages: Layout, before: Layout) -> int | None:
        """Of an exchange; None where it is not among them."""
        return self._places.get((_digest(steps) if self._is_named else steps, messages, before))

    def named(self) -> "Plan":
        """The same with digests, for other processes."""
        return Plan(tuple(dataclasses.replace(e, steps=_digest(e.steps)) for e in self.exchanges))

    @functools.cached_property
    def _is_named(self) -> bool:
        return isinstance(self.exchanges[0].steps, str)

    @functools.cached_property
    def _places(self) -> dict[Any, int]:
        return {(e.steps, e.messages, e.before): place for place, e in enumerate(self.exchanges)}

    @functools.cached_property
    def lengths(self) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
        """Of the vectors that messages, replies and states have room in."""
        return (
            _longest([e.messages for e in self.exchanges]),
            _longest([e.replies for e in self.exchanges]),
            _longest([layout for e in self.exchanges for layout in (e.before, e.after)]),
        )


@functools.lru_cache(maxsize=256)
def _digest(steps: Any) -> str:
    return digest(steps, compiled=True)


def _longest(layouts: Sequence[Layout]) -> dict[str, int]:
    types = sorted({dtype for layout in layouts for dtype in layout.lengths})
    return {dtype: max(layout.lengths.get(dtype, 0) for layout in layouts) for dtype in types}


def _exchanged(steps: tuple[Ask, ...], network: RunNetwork, messages: list[Any], states: Any) -> tuple[Any, Any]:
    told = zip(steps, messages, strict=True)
    full = [ask._replace(message=message, drawn=drawn) for ask, (message, drawn) in told]
    if adds_up_here(network):
        return typed(network.asked(full, states))
    return typed(network.exchange(full, states))


def typed(tree: Any) -> Any:
    """Every number of a definite type, so that a state that went through a round fits the same program again."""
    return jax.tree.map(lambda leaf: lax.convert_element_type(leaf, leaf.dtype), tree)


_traced: Any = jax.jit(_exchanged, static_argnums=0)  # once for the rehearsal and the program


def _alone(steps: tuple[Ask, ...], network: RunNetwork, messages: Packed, states: Any) -> tuple[Packed, PartyStates]:
    replies, states = _traced(steps, network, messages.unpacked(), states)
    return Packed.of(replies), states


def _together(plan: Plan, place: Any, network: RunNetwork, message: Any, state: Any) -> tuple[Any, Any]:
    """One of the plan's exchanges, from packed messages and states to packed replies and states."""
    _, of_replies, of_states = plan.lengths

    def one(exchange: Exchange) -> Any:
        def run(network: RunNetwork, message: Any, state: Any) -> tuple[Any, Any]:
            messages, states = exchange.messages.unpacked(message), exchange.before.unpacked(state)
            replies, states = _traced(exchange.steps, network, messages, states)
            return exchange.replies.packed(replies, of_replies), exchange.after.packed(states, of_states)

        return run

    return lax.switch(place, [one(exchange) for exchange in plan.exchanges], network, message, state)


class Planned:
    """A plan with its program: an earlier process has compiled it, or it is compiled when it is first used."""

    def __init__(self, plan: Plan, program: Any = None) -> None:
        self.plan, self._program = plan, program

    def __call__(self, place: int, network: RunNetwork, message: Any, state: Any) -> tuple[Any, Any]:
        at = np.int32(place)
        if self._program is None:
            self._program = self.compiled(at, network, message, state)
        return self._program(at, network, message, state)

    def compiled(self, place: Any, network: RunNetwork, message: Any, state: Any) -> Any:
        return together.ahead(self.plan, place, network, message, state)


alone_quickly = Jitted(_alone, static=1, quickly=True)
alone_well = Jitted(_alone, static=1)
together = Jitted(_together, static=1, quickly=True)
PROGRAMS = (alone_quickly, alone_well, together, _traced)


class ServerOnHost:
    """A network whose server computes on the host; of a network of one process only the parties' steps are compiled.

    - `planned`: the exchanges that are one program (default None: each is compiled by itself).
    """

    traced: ClassVar[bool] = False

    def __init__(self, network: RunNetwork, planned: Planned | None = None) -> None:
        self.network, self.planned, self.agree = network, planned, network.agree
        self.alone = alone_quickly if is_small(network) else alone_well

    def exchange(self, asks: Sequence[Ask], states: PartyStates) -> tuple[list[Reply], PartyStates]:
        if not self.network.traced:
            asks = [ask._replace(message=jax.tree.map(np.asarray, ask.message)) for ask in asks]
            replies, states = self.network.exchange(asks, states)
            return jax.device_get(replies), states
        steps, messages = _taken_apart(asks)
        if self.planned is not None:
            layouts, plan = (Layout.of(messages), Layout.of(states)), self.planned.plan
            place = plan.place(steps, *layouts)
            if place is not None:
                of_messages, _, of_states = plan.lengths
                packed = layouts[0].packed(messages, of_messages), layouts[1].packed(_on_host(states), of_states)
                exchange = plan.exchanges[place]
                replies, after = jax.device_get(self.planned(place, self.network, *packed))
                return self._combined(exchange.replies.unpacked(replies)), exchange.after.unpacked(after)
        replies, states = self.alone(steps, self.network, Packed.of(messages), states)
        return self._combined(jax.device_get(replies).unpacked()), states

    def _combined(self, replies: list[Any]) -> list[Reply]:
        return [added(*apart) for apart in replies] if adds_up_here(self.network) else replies

    def collect(self, states: PartyStates) -> Any:
        return self.network.collect(states)

    def place(self, states: Any) -> PartyStates:
        return self.network.place(states)


def _on_host(tree: Any) -> Any:
    return jax.tree.map(np.asarray, tree)


def _taken_apart(asks: Sequence[Ask]) -> tuple[tuple[Ask, ...], list[Any]]:
    """What is compiled of asks, and what is sent: messages, and whom they are for."""
    return tuple(ask._replace(message=None, drawn=None) for ask in asks), _on_host([(a.message, a.drawn) for a in asks])


def adds_up_here(network: RunNetwork) -> TypeGuard[SecureNetwork]:
    """Whether the arithmetic of secure sums is done on the host: on few rows it takes longer to compile than to do."""
    return isinstance(network, SecureNetwork) and is_small(network)


def is_small(network: RunNetwork) -> bool:
    """Whether steps take no time worth optimising for."""
    return network.traced and sum(leaf.size for leaf in jax.tree.leaves(network)) <= FEW_NUMBERS


def on_one_device(network: RunNetwork) -> bool:
    """Whether the host has all states at hand."""
    leaves = jax.tree.leaves(network)
    return len({device for leaf in leaves if isinstance(leaf, jax.Array) for device in leaf.devices()}) <= 1


class Rehearsal:
    """A network that notes exchanges and answers with zeros."""

    traced: ClassVar[bool] = False

    def __init__(self, network: RunNetwork) -> None:
        self.network = network
        self.noted: dict[Exchange, None] = {}
        self.notes = True  # whether exchanges are noted now

    def exchange(self, asks: Sequence[Ask], states: PartyStates) -> tuple[list[Reply], PartyStates]:
        steps, messages = _taken_apart(asks)
        replies, after = _traced.eval_shape(steps, self.network, messages, states)
        layouts = (Layout.of(tree) for tree in (messages, states, replies, after))
        if self.notes:
            self.noted[Exchange(steps, *layouts)] = None
        nothing = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), replies)
        return [added(*apart) for apart in nothing] if adds_up_here(self.network) else nothing, after
