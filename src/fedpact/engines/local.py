"""All parties in this process: one vectorised axis per bucket of like-sized parties."""

import abc
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpact.federation.binding import Bound
from fedpact.federation.blocks import Block, BoundColumns
from fedpact.problem.oracle import Oracle
from fedpact.problem.regularizers import FlatRegularizer
from fedpact.protocol.messages import Reply, combine, merge, size_in_bytes
from fedpact.protocol.network import Ask, Numbers, PartyStates, Role, Step, Tell


class Buckets(eqx.Module):
    """What networks have in common whose parties are all here, in buckets of like-sized ones: everybody is always there."""

    oracles: tuple[Oracle, ...] | tuple[Block, ...]
    server: Oracle
    regularizer: FlatRegularizer
    places: jax.Array
    parties: int = eqx.field(static=True)

    @abc.abstractmethod
    def exchange(
        self, step: Step, parties: PartyStates, message: Any, among: Role | None = None
    ) -> tuple[Reply, PartyStates]: ...

    def partial_exchange(self, step: Step, parties: PartyStates, message: Any) -> tuple[Reply, PartyStates]:
        return self.exchange(step, parties, message)

    def at_once(self, parties: PartyStates, *asks: Ask) -> tuple[list[Reply], PartyStates]:
        replies = []
        for ask in asks:
            reply, parties = self.exchange(ask.step, parties, ask.message, ask.among)
            replies.append(reply)
        return replies, parties

    def count(self, among: Role | None = None) -> int:
        return sum(oracle.index.shape[0] for oracle in self.oracles if has_role(oracle, among))

    def places_of(self, among: Role | None) -> jax.Array:
        """Where each party stands in the buckets' concatenation, of those asked."""
        if among is None:
            return self.places
        asked = jnp.concatenate([oracle.index for oracle in self.oracles if has_role(oracle, among)])
        return jnp.argsort(asked, stable=True)

    def told(self, tell: Tell, parties: PartyStates, message: Any) -> list[jax.Array]:
        """What parties tell one another, by bucket: (parties, parts, …)."""
        at_each: Any = jax.vmap(tell, in_axes=(0, 0, None))
        return [at_each(own, state, message) for own, state in zip(self.oracles, parties, strict=True)]

    def when(self, predicate: jax.Array, branch: Callable[..., Any], *operands: Any) -> Any:
        return lax.cond(predicate, lambda *given: branch(self, *given), lambda *kept: kept, *operands)


class LocalNetwork(Buckets):
    """The parties' data; pure, hence compiled together with the round that uses it."""

    @classmethod
    def of(cls, bound: Bound | BoundColumns) -> "LocalNetwork":
        places: Any = np.argsort(np.concatenate(bound.order), kind="stable")
        return cls(bound.oracles, bound.server, bound.regularizer, places, len(bound.names))

    def exchange(
        self, step: Step, parties: PartyStates, message: Any, among: Role | None = None
    ) -> tuple[Reply, PartyStates]:
        replies, states = [], []
        given = (None,) * len(self.oracles) if parties is None else parties
        at_each: Any = jax.vmap(step, in_axes=(0, 0, None))
        for oracle, state in zip(self.oracles, given, strict=True):
            if not has_role(oracle, among):
                states.append(state)
                continue
            new, reply = at_each(oracle, state, message)
            states.append(new)
            replies.append(combine(reply))
        if not replies:
            raise ValueError(f"there is no {among} party to ask")
        return merge(replies, self.places_of(among)), tuple(states)

    def gradients(
        self, numbers: Numbers, parties: PartyStates, message: Any, w: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        given = (None,) * len(self.oracles) if parties is None else parties
        return line_gradients(numbers, self.oracles, given, message, w)

    def share(self, tell: Tell, step: Step, parties: PartyStates, message: Any) -> tuple[Reply, PartyStates]:
        first, *others = (part.sum((0, 1)) for part in self.told(tell, parties, message))
        return self.exchange(step, parties, (message, sum(others, first)))

    def collected(self, states: Any) -> Any:
        """States as numpy arrays."""
        return jax.tree.map(np.asarray, states)

    def placed(self, states: Any) -> Any:
        """States of all parties, by bucket, handed to those who hold them: here they are."""
        return states

    def agreed(self, number: int) -> int:
        """The same number wherever the run is computed: here alone."""
        return number

    def scattered(self, per_party: Any) -> PartyStates:
        """Arrays with a leading party axis, handed to their parties: the inverse of a reply's `each`."""
        there = jnp.argsort(self.places)
        states, start = [], 0
        for oracle in self.oracles:
            mine = there[start : start + oracle.index.shape[0]]
            states.append(jax.tree.map(lambda leaf, mine=mine: leaf[mine], per_party))
            start += oracle.index.shape[0]
        return tuple(states)


def has_role(own: Oracle | Block, role: Role | None) -> bool:
    """Whether the parties of a bucket are of this role."""
    return role is None or (isinstance(own, Block) and own.active == (role == "active"))


def line_gradients(
    numbers: Numbers, oracles: Any, states: Any, message: Any, w: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Σ over these parties of `numbers` at w, and the gradient of each of these sums."""

    def total(w: jax.Array) -> jax.Array:
        each = jax.vmap(numbers, in_axes=(0, 0, None, None))
        first, *others = (each(own, state, message, w).sum(0) for own, state in zip(oracles, states, strict=True))
        return sum(others, first)

    values, pull = jax.vjp(total, w)
    if values.size == 1:  # an axis over lines, even of one, keeps XLA from writing the gradient in w's own order
        return values, pull(jnp.ones_like(values))[0][None]
    return values, jax.vmap(lambda e: pull(e)[0])(jnp.eye(values.size, dtype=values.dtype))


class Metered:
    """A network that counts exchanges and bytes: per party what is broadcast and what comes back, times the parties."""

    def __init__(self, net: Any):
        self.net = net
        self.exchanges: Any = 0
        self.bytes_up: Any = 0
        self.bytes_down: Any = 0

    @property
    def parties(self) -> int:
        return self.net.parties

    @property
    def server(self) -> Oracle:
        return self.net.server

    @property
    def regularizer(self) -> FlatRegularizer:
        return self.net.regularizer

    def exchange(
        self, step: Step, parties: PartyStates, message: Any, among: Role | None = None
    ) -> tuple[Reply, PartyStates]:
        reply, states = self.net.exchange(step, parties, message, among)
        self.carried(message, reply, among)
        return reply, states

    def partial_exchange(self, step: Step, parties: PartyStates, message: Any) -> tuple[Reply, PartyStates]:
        reply, states = self.net.partial_exchange(step, parties, message)
        self.carried(message, reply, None)
        return reply, states

    def at_once(self, parties: PartyStates, *asks: Ask) -> tuple[list[Reply], PartyStates]:
        replies, states = self.net.at_once(parties, *asks)
        for reply, ask in zip(replies, asks, strict=True):
            self.carried(ask.message, reply, ask.among)
        return replies, states

    def count(self, among: Role | None = None) -> int:
        return self.net.count(among)

    def gradients(
        self, numbers: Numbers, parties: PartyStates, message: Any, w: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        values, lines = self.net.gradients(numbers, parties, message, w)
        self._count(1, size_in_bytes((values, lines)) * self.parties, size_in_bytes((message, w)) * self.parties)
        return values, lines

    def share(self, tell: Tell, step: Step, parties: PartyStates, message: Any) -> tuple[Reply, PartyStates]:
        told = jax.eval_shape(partial(self.net.told, tell), parties, message)
        reply, states = self.net.share(tell, step, parties, message)
        up = size_in_bytes(reply) * self.parties + (self.parties - 1) * size_in_bytes(told)
        self._count(1, up, size_in_bytes(message) * self.parties)
        return reply, states

    def when(self, predicate: jax.Array, branch: Callable[..., Any], *operands: Any) -> Any:
        def counted(net: Any, *given: Any) -> Any:
            inside = Metered(net)
            out = branch(inside, *given[:-1])
            cost = (inside.exchanges, inside.bytes_up, inside.bytes_down)
            return (*out, tuple(jnp.asarray(x, jnp.int64) for x in cost))

        *out, cost = self.net.when(predicate, counted, *operands, (jnp.zeros((), jnp.int64),) * 3)
        self._count(*cost)
        return tuple(out)

    def carried(self, message: Any, reply: Reply, among: Role | None) -> None:
        """Called for every exchange."""
        asked = self.net.count(among)
        up = size_in_bytes((reply.sum, reply.max)) * asked + size_in_bytes(reply.each)
        self._count(1, up, size_in_bytes(message) * asked)

    def _count(self, exchanges: Any, up: Any, down: Any) -> None:
        self.exchanges += exchanges
        self.bytes_up += up
        self.bytes_down += down
