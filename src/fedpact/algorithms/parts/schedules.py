"""Schedules of step sizes and penalties over the rounds, and momentum."""

import abc
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fedpact.protocol.options import Options, check


class Schedule(Options):
    """A step size or penalty as a function of the round t = 1, 2, …

    `fp.Decay` and `fp.Growth` are schedules; another one is a subclass with `__call__`, written in JAX.
    """

    @abc.abstractmethod
    def __call__(self, t: jax.Array) -> jax.Array:
        """The value in round `t`, a scalar >= 1; returns a scalar > 0."""


class Decay(Schedule):
    """The decreasing step size scale / t^power in round t = 1, 2, …: `fp.FedAvg(step=fp.Decay(0.5, 0.5))`.

    - `scale`: the step size in the first round (> 0).
    - `power`: the exponent (>= 0, default 0: a constant step).
    """

    scale: float
    power: float = 0.0

    def __check_init__(self) -> None:
        check("Decay", "scale", self.scale, lambda x: x > 0, "a step size scale/t^power has scale > 0")
        check("Decay", "power", self.power, lambda x: x >= 0, "a step size scale/t^power has power >= 0")

    def __call__(self, t: jax.Array) -> jax.Array:
        return self.scale / t**self.power


class Growth(Schedule):
    """The increasing penalty scale · (offset + t)^power in round t = 1, 2, …: `fp.Growth(1.0, 0.25)`.

    - `scale`: the factor (> 0).
    - `power`: the exponent (>= 0).
    - `offset`: added to the round number (>= 0, default 0).
    """

    scale: float
    power: float
    offset: float = 0.0

    def __check_init__(self) -> None:
        check("Growth", "scale", self.scale, lambda x: x > 0, "a penalty scale·(offset + t)^power has scale > 0")
        check("Growth", "power", self.power, lambda x: x >= 0, "a penalty scale·(offset + t)^power has power >= 0")
        check("Growth", "offset", self.offset, lambda x: x >= 0, "a penalty scale·(offset + t)^power has offset >= 0")

    def __call__(self, t: jax.Array) -> jax.Array:
        return self.scale * (self.offset + t) ** self.power


StepCount = int | Sequence[int] | Schedule  # of a party's steps in a round


class Listed(Schedule):
    """A whole number for each round t = 1, 2, …, of which the last goes on."""

    counts: tuple[int, ...]

    def __call__(self, t: jax.Array) -> jax.Array:
        counts = jnp.asarray(self.counts, float)
        return counts[jnp.clip(t.astype(int) - 1, 0, len(self.counts) - 1)]


class Rounded(Schedule):
    """Another schedule in whole numbers, at least 1."""

    of: Schedule

    def __call__(self, t: jax.Array) -> jax.Array:
        return jnp.maximum(jnp.round(self.of(t)), 1.0)


def check_count(owner: str, count: StepCount) -> None:
    """Raise unless `count` is a whole number >= 1, several of them or a schedule."""
    if isinstance(count, Schedule):
        return
    if count == ():
        raise ValueError(
            f"{owner}(local_steps=[]): one number of steps for each round, and the last for all further ones"
        )
    for each in count if isinstance(count, Sequence) else (count,):
        check(owner, "local_steps", each, lambda x: x >= 1, "at least one step a round", whole=True)


def as_count(count: StepCount) -> int | Schedule:
    """A number of steps, or its schedule."""
    if isinstance(count, Sequence):
        return Listed(tuple(int(each) for each in count))
    return Rounded(count) if isinstance(count, Schedule) else int(count)


def as_schedule(owner: str, name: str, step: Schedule | float) -> Schedule:
    """A schedule unchanged, and a number as a constant step size or penalty. Raises ValueError for numbers <= 0."""
    if isinstance(step, Schedule):
        return step
    words = "a positive number, or a schedule such as fp.Decay(1.0, 0.5)"
    check(owner, name, step, lambda x: x > 0, f"a {'penalty' if name == 'penalty' else 'step size'} is {words}")
    return Decay(float(step))


def check_penalty(owner: str, step: Schedule | float, penalty: Schedule | float) -> None:
    """Raise ValueError where step · ρ >= 2, since gradient steps on (ρ/2) dist² then diverge."""
    first = jnp.ones(())
    product = float(as_schedule(owner, "step", step)(first) * as_schedule(owner, "penalty", penalty)(first))
    if product >= 2:
        raise ValueError(
            f"{owner}: step · penalty is {product:g} in the first round; at 2 or more the iterates diverge from the set"
        )


def check_momentum(owner: str, momentum: float) -> None:
    check(owner, "momentum", momentum, lambda x: 0 <= x < 1, "momentum is from 0 to below 1")


def heavy_ball(momentum: float) -> Any:
    """Gradient descent with momentum from optax, with step size 1."""
    import optax  # slow to import

    return optax.sgd(1.0, momentum=momentum or None)
