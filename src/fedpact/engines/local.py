"""All parties in this process: one vectorised axis for each bucket of like-sized parties."""

import abc
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
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
from fedpact.settings.base import Bound


class Buckets(eqx.Module):
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
                replies.append(Reply(sum=self.gradients(ask.step.functions, states, context, w)))
                continue
            states, combined = self.stepped(ask, asked, states)
            replies.append(merge(combined, self._places_of(ask.among)))
        return replies, states

    @abc.abstractmethod
    def stepped(self, ask: Ask, asked: list[bool], states: PartyStates) -> tuple[PartyStates, list[Reply]]:
        """The states of all buckets after a step of those asked, whose replies are combined by bucket."""

    @abc.abstractmethod
    def gradients(self, functions: Functions, states: PartyStates, context: Any, w: jax.Array) -> Gradients:
        """The sum over parties of `functions` at w, and the gradient of each: differentiated once, not party by party."""

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

    def gradients(self, functions: Functions, states: PartyStates, context: Any, w: jax.Array) -> Gradients:
        return summed_gradients(functions, self.stacks, states, context, w)


class Local:
    """The default engine of `fp.solve`: all parties in this process, vectorised."""

    def connect(self, bound: Bound) -> tuple[Bound, LocalNetwork]:
        return bound, LocalNetwork.of(bound)


def has_role(stack: Any, role: Role | None) -> bool:
    """Whether the parties of a bucket are of this role."""
    return role is None or getattr(stack, "active", None) == (role == "active")


def run_step(
    ask: Ask, stacks: Sequence[Any], asked: Sequence[bool], states: PartyStates
) -> tuple[PartyStates, list[Reply]]:
    """A step at the parties of the buckets that are asked: all states, and the combined reply of each of these buckets."""
    step = ask.step.wrapped if isinstance(ask.step, AsSent) else ask.step
    at_each: Any = jax.vmap(step, in_axes=(0, 0, None))
    after, replies = [], []
    for stack, state, chosen in zip(stacks, states, asked, strict=True):
        if not chosen:
            after.append(state)
            continue
        new, reply = at_each(stack, state, ask.message)
        after.append(new)
        replies.append(combine(reply))
    return tuple(after), replies


def summed_gradients(
    functions: Functions, stacks: Sequence[Any], states: Sequence[Any], context: Any, w: jax.Array
) -> Gradients:
    """The sum over these parties of `functions` at w, and the gradient of each of these sums."""

    def total(w: jax.Array) -> jax.Array:
        each = jax.vmap(functions, in_axes=(0, 0, None, None))
        first, *others = (each(own, state, context, w).sum(0) for own, state in zip(stacks, states, strict=True))
        return sum(others, first)

    return values_and_gradients(total, w)
