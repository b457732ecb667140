"""All parties in this process: one vectorised axis for each bucket of like-sized parties."""

import abc
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpact.protocol.engine import HostNetwork
from fedpact.protocol.messages import Reply, combine, merge
from fedpact.protocol.phases import (
    Ask,
    AsSent,
    Functions,
    Gradients,
    GradientStep,
    PartyStates,
    Role,
    values_and_gradients,
)
from fedpact.records import Record
from fedpact.settings.base import Bound


class Buckets(Record, abc.ABC):
    """A network whose parties are all here, stacked in buckets of like-sized ones; nobody is ever missing or waited for."""

    stacks: tuple[Any, ...]
    places: jax.Array  # where each party stands in the concatenation of the buckets

    traced: ClassVar[bool] = True

    def exchange(self, asks: Sequence[Ask], states: PartyStates) -> tuple[list[Reply], PartyStates]:
        states = (None,) * len(self.stacks) if states is None else states
        replies = []
        for ask in asks:
            asked = [has_role(stack, ask.among) for stack in self.stacks]
            if not any(asked):
                raise ValueError(f"there is no {ask.among} party to ask")
            if isinstance(ask.step, GradientStep) and all(asked):
                context, w = ask.message
                replies.append(Reply(sum=self.gradients(ask.step.functions, states, context, w, ask.drawn)))
                continue
            states, combined = self.stepped(ask, asked, states)
            replies.append(merge(combined, self._places_of(ask.among)))
        return replies, states

    @abc.abstractmethod
    def stepped(self, ask: Ask, asked: list[bool], states: PartyStates) -> tuple[PartyStates, list[Reply]]:
        """The states of all buckets after a step of those asked, whose replies are combined by bucket."""

    @abc.abstractmethod
    def gradients(self, functions: Functions, states: PartyStates, context: Any, w: jax.Array, drawn: Any) -> Gradients:
        """The sum over the parties that are `drawn` (None: all) of `functions` at w, and the gradient of each: differentiated
        once, not party by party."""

    def _places_of(self, among: Role | None) -> jax.Array:
        if among is None:
            return self.places
        asked = jnp.concatenate([stack.index for stack in self.stacks if has_role(stack, among)])
        return jnp.argsort(asked, stable=True)


class LocalNetwork(Buckets, HostNetwork):
    """All parties on one device."""

    @classmethod
    def of(cls, bound: Bound) -> "LocalNetwork":
        places: Any = np.argsort(np.concatenate(bound.order), kind="stable")
        return cls(bound.stacks, places)

    def stepped(self, ask: Ask, asked: list[bool], states: PartyStates) -> tuple[PartyStates, list[Reply]]:
        return run_step(ask, self.stacks, asked, states)

    def gradients(self, functions: Functions, states: PartyStates, context: Any, w: jax.Array, drawn: Any) -> Gradients:
        return summed_gradients(functions, self.stacks, states, context, w, drawn)


class Local:
    """The default engine of `fp.solve`: all parties in this process, vectorised."""

    def connect(self, bound: Bound) -> tuple[Bound, LocalNetwork]:
        return bound, LocalNetwork.of(bound)


def has_role(stack: Any, role: Role | None) -> bool:
    """Whether the parties of a bucket are of this role."""
    return role is None or getattr(stack, "active", None) == (role == "active")


class Members(NamedTuple):
    """Parties of one bucket, as many as may be drawn from it: those who were come first, others fill up."""

    own: Any
    axes: Any  # of `own`, for vmap
    states: Any
    at: jax.Array  # their places in the bucket
    were_drawn: jax.Array

    @classmethod
    def of(cls, stack: Any, states: Any, drawn: jax.Array) -> "Members":
        was_drawn = jnp.isin(stack.index, drawn)
        at = jnp.argsort(~was_drawn, stable=True)[: drawn.shape[0]]
        own, axes = stack.picked(at)
        return cls(own, axes, jax.tree.map(lambda leaf: leaf[at], states), at, was_drawn[at])

    def only(self, leaf: jax.Array, otherwise: Any) -> jax.Array:
        """A leaf with an entry for each, and `otherwise` for who was not drawn."""
        return jnp.where(self.were_drawn.reshape(-1, *(1,) * (leaf.ndim - 1)), leaf, otherwise)


def run_step(
    ask: Ask, stacks: Sequence[Any], asked: Sequence[bool], states: PartyStates
) -> tuple[PartyStates, list[Reply]]:
    """A step at the parties of the buckets that are asked: all states, and the combined reply of each of these buckets."""
    after, replies = [], []
    for stack, state, chosen in zip(stacks, states, asked, strict=True):
        if not chosen:
            after.append(state)
            continue
        new, reply = _at_all(ask, stack, state) if ask.drawn is None else _at_drawn(ask, stack, state)
        after.append(new)
        replies.append(reply)
    return tuple(after), replies


def _at_all(ask: Ask, stack: Any, state: Any) -> tuple[Any, Reply]:
    step = ask.step.wrapped if isinstance(ask.step, AsSent) else ask.step
    at_each: Any = jax.vmap(step, in_axes=(0, 0, None))
    state, replies = at_each(stack, state, ask.message)
    return state, combine(replies)


def _at_drawn(ask: Ask, stack: Any, state: Any) -> tuple[Any, Reply]:
    some = Members.of(stack, state, ask.drawn)
    at_each: Any = jax.vmap(ask.step, in_axes=(some.axes, 0, None))
    new, reply = at_each(some.own, some.states, ask.message)
    new = jax.tree.map(some.only, new, some.states)
    after = jax.tree.map(lambda every, own: every.at[some.at].set(own), state, new)
    parties = stack.index.shape[0]

    def spread(leaf: jax.Array) -> jax.Array:
        nothing = jnp.nan if jnp.issubdtype(leaf.dtype, jnp.floating) else 0
        empty = jnp.full((parties, *leaf.shape[1:]), nothing, leaf.dtype)
        return empty.at[some.at].set(some.only(leaf, nothing))

    return after, Reply(
        sum=jax.tree.map(lambda leaf: some.only(leaf, 0).sum(0), reply.sum),
        max=jax.tree.map(lambda leaf: some.only(leaf, -jnp.inf).max(0), reply.max),
        per_party=jax.tree.map(spread, reply.per_party),
    )


def summed_gradients(
    functions: Functions, stacks: Sequence[Any], states: Sequence[Any], context: Any, w: jax.Array, drawn: Any = None
) -> Gradients:
    """The sum over these parties, or over those of them that are `drawn`, of `functions` at w, and the gradient of each sum."""

    def values(own: Any, state: Any, w: jax.Array) -> jax.Array:
        if drawn is None:
            return jax.vmap(functions, in_axes=(0, 0, None, None))(own, state, context, w).sum(0)
        some = Members.of(own, state, drawn)
        each = jax.vmap(functions, in_axes=(some.axes, 0, None, None))(some.own, some.states, context, w)
        return some.only(each, 0).sum(0)

    def total(w: jax.Array) -> jax.Array:
        first, *others = (values(own, state, w) for own, state in zip(stacks, states, strict=True))
        return sum(others, first)

    return values_and_gradients(total, w)
