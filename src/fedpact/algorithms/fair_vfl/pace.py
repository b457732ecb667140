"""How many local steps active parties take between two rounds, and what a simulated clock says meanwhile."""

import math
from collections.abc import Callable, Mapping
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpact.algorithms.parts.batches import folded_key
from fedpact.protocol.options import Options

Pace = Literal["fixed", "random", "clock"]


class Clock(Options):
    """Simulated speeds: a local step takes a party so many seconds, and a round so many more on the way.

    - `step`: seconds of one local step, for all parties (> 0, default 1) or by party; who is not named takes 1.
    - `latency`: seconds that messages are on their way in a round (>= 0, default 1).
    """

    step: float | Mapping[str, float] = 1.0
    latency: float = 1.0

    def __check_init__(self) -> None:
        steps = self.step.values() if isinstance(self.step, Mapping) else [self.step]
        if not all(_seconds(x) and x > 0 for x in steps):
            raise ValueError(f"Clock(step={self.step!r}): seconds of a local step, a positive number for each party")
        if not _seconds(self.latency) or self.latency < 0:
            raise ValueError(f"Clock(latency={self.latency!r}): seconds, not negative")

    def by_party(self, names: tuple[str, ...]) -> tuple[float, ...]:
        if not isinstance(self.step, Mapping):
            return (float(self.step),) * len(names)
        unknown = [name for name in self.step if name not in names]
        if unknown:
            raise ValueError(f"Clock(step=...): no party {unknown[0]!r}; there are {', '.join(names)}")
        return tuple(float(self.step.get(name, 1.0)) for name in names)


def _seconds(x: object) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x)


class Timing(eqx.Module):
    """A clock for these parties, with the pace of the active ones."""

    pace: Pace = eqx.field(static=True)
    most: int = eqx.field(static=True)  # Q
    step: tuple[float, ...] = eqx.field(static=True)  # seconds, by party
    active: tuple[bool, ...] = eqx.field(static=True)
    latency: float = eqx.field(static=True)
    enough: Callable[[], bool] | None = eqx.field(static=True, default=None)  # on a machine of its own: the real clock

    def repeated(
        self, once: Callable[[jax.Array, jax.Array], jax.Array], start: jax.Array, index: jax.Array, key: jax.Array
    ) -> jax.Array:
        """The local steps of active party `index` in the round with this key."""
        if self.pace != "clock" or self.enough is None:
            return lax.fori_loop(0, self.steps(index, key), once, start)
        return _until(self.enough, self.most, once, start)

    def steps(self, index: jax.Array, key: jax.Array) -> jax.Array:
        """Of active party `index` in the round with this key: from 1 to Q."""
        if self.pace == "random":
            return jax.random.randint(jax.random.wrap_key_data(folded_key(key, index)), (), 1, self.most + 1)
        if self.pace == "fixed":
            return jnp.asarray(self.most)
        others = [s for s, active in zip(self.step, self.active, strict=True) if not active]
        waits = max(others, default=max(self.step)) + self.latency  # until a passive party's step has come and gone
        return jnp.clip(jnp.floor(waits / jnp.asarray(self.step)[index] + 1e-9), 1, self.most).astype(int)

    def seconds(self, key: jax.Array) -> jax.Array:
        """Of the round with this key: the slowest party's steps, and the way. On the clock's pace nobody waits for more
        than one step of an active party: its further steps fall into time that it would have waited."""
        taken = []
        for place, (step, active) in enumerate(zip(self.step, self.active, strict=True)):
            counted = self.steps(jnp.asarray(place), key) if active and self.pace != "clock" else jnp.asarray(1)
            taken.append(step * counted.astype(float))
        return jnp.max(jnp.stack(taken)) + self.latency


def _until(
    enough: Callable[[], bool], most: int, once: Callable[[jax.Array, jax.Array], jax.Array], start: jax.Array
) -> jax.Array:
    """One step, and further ones until it is enough, at most so many."""

    def asked(_: np.ndarray) -> np.ndarray:
        return np.asarray(enough())

    def further(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        count, z, _ = carry
        z = once(count, z)
        read = lax.bitcast_convert_type(z, jnp.uint8)  # so that it is asked once z is there
        # "pure", as shapes are traced for all parties
        stop = jax.pure_callback(asked, jax.ShapeDtypeStruct((), bool), read, vmap_method="sequential")
        return count + 1, z, stop | (count + 1 >= most)

    first = (jnp.zeros((), int), start, jnp.asarray(False))
    return lax.while_loop(lambda carry: ~carry[2], further, first)[1]
