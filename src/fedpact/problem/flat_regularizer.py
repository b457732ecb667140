"""A regulariser h on the flat vector of parameters: its value, its proximal operator, and how far a point is from stationary."""

import dataclasses
from typing import Any, Literal

import equinox as eqx
import jax
import numpy as np

from fedpact.arrays import repeat, segment_max, segment_sum, xp
from fedpact.problem.proximal import FlatProximal, places_of, prox_of, value_of
from fedpact.problem.units import Units
from fedpact.records import Record

FAR, STILL, TINY = 1e8, 1e-9, 1e-300  # how far to look along a direction, and what does not count as a change there

Kinks = Literal["none", "coordinates", "groups", "proximal"]


class FlatRegularizer(Record):
    """h on a flat vector w: Σ ridge·w² (smooth) plus a nonsmooth part with a known proximal operator."""

    ridge: jax.Array
    l1: jax.Array
    lower: jax.Array
    upper: jax.Array
    group: jax.Array
    weight: jax.Array
    groups: int = eqx.field(static=True)
    kinks: Kinks = eqx.field(static=True)
    proximal: tuple[FlatProximal, ...] = ()  # terms that are known by their proximal operator only

    def smooth(self, w: jax.Array) -> jax.Array:
        """Σ ridge·w²; its gradient is 2 ridge·w."""
        return xp.sum(self.ridge * w**2)

    def nonsmooth(self, w: jax.Array) -> jax.Array:
        """The nonsmooth part; the indicator of a box counts as 0, since the proximal operator keeps iterates inside."""
        if self.kinks == "none":
            return xp.zeros((), w.dtype)
        if self.kinks in ("coordinates", "proximal"):
            return xp.sum(self.l1 * xp.abs(w)) + self._proximal_value(w)
        return xp.sum(self.weight * self._norms(w))

    def value(self, w: jax.Array) -> jax.Array:
        return self.smooth(w) + self.nonsmooth(w)

    def prox(self, w: jax.Array, step: jax.Array | float) -> jax.Array:
        """argmin_v ‖v − w‖²/2 + step · nonsmooth(v) inside the box; `step`: a scalar, or without groups one per entry."""
        if self.kinks == "none":
            return w
        if self.kinks in ("coordinates", "proximal"):
            shrunk = xp.sign(w) * xp.maximum(xp.abs(w) - step * self.l1, 0.0)
            clipped = xp.clip(shrunk, self.lower, self.upper)
            return self._proximal(clipped, step)
        norms = self._norms(w)
        steps = segment_max(xp.broadcast_to(step, w.shape), self.group, self.groups)
        scale = xp.maximum(1.0 - steps * self.weight / xp.where(norms > 0, norms, 1.0), 0.0)
        return xp.where(self.group >= 0, w * scale[self.group], w)

    def distance(self, w: jax.Array, gradient: jax.Array) -> jax.Array:
        """dist∞(0, gradient + ∂nonsmooth(w)), with `gradient` that of the smooth part of the objective.

        Of terms that are known by their proximal operator only, the step that proximal gradient descent of length 1 would take,
        r = w − prox(w − gradient, 1): gradient + ∂nonsmooth(w − r) has an element as small as r.
        """
        if self.kinks == "proximal":
            return xp.max(xp.abs(w - self.prox(w - gradient, 1.0)), initial=0.0)
        if self.kinks == "none":
            return xp.max(xp.abs(gradient), initial=0.0)
        if self.kinks == "coordinates":
            least = gradient + xp.where(w > 0, self.l1, -self.l1)
            most = gradient + xp.where(w < 0, -self.l1, self.l1)
            least = xp.where(w <= self.lower, -xp.inf, least)
            most = xp.where(w >= self.upper, xp.inf, most)
            return xp.max(xp.maximum(xp.maximum(least, -most), 0.0), initial=0.0)
        norms = self._norms(w)
        away = gradient + (self.weight / xp.where(norms > 0, norms, 1.0))[self.group] * w
        moving = (self.group < 0) | (norms[self.group] > 0)
        smooth = xp.where(self.group >= 0, away, gradient)
        at_zero = xp.where(norms > 0, 0.0, self._distance_to_balls(gradient))
        return xp.maximum(xp.max(xp.abs(xp.where(moving, smooth, 0.0)), initial=0.0), xp.max(at_zero, initial=0.0))

    def _distance_to_balls(self, gradient: jax.Array) -> jax.Array:
        """For each group dist∞ of its gradient from the ball ‖z‖₂ <= weight: the t with ‖[|gradient| − t]₊‖₂ = weight."""
        size = xp.where(self.group >= 0, xp.abs(gradient), 0.0)

        def halve(bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            low, high = bounds
            middle = 0.5 * (low + high)
            left = segment_sum(xp.maximum(size - middle[self.group], 0.0) ** 2, self.group, self.groups)
            outside = left > self.weight**2
            return xp.where(outside, middle, low), xp.where(outside, high, middle)

        largest = segment_max(size, self.group, self.groups)
        inside = segment_sum(size**2, self.group, self.groups) <= self.weight**2
        return xp.where(inside, 0.0, repeat(60, halve, (0.0 * largest, largest))[1])

    def box_only(self) -> "FlatRegularizer":
        """The box of h alone, and its sets."""
        none: dict[str, Any] = {name: 0.0 * getattr(self, name) for name in ("ridge", "l1", "weight")}
        none["proximal"] = tuple(dataclasses.replace(term, price=0.0 * term.price) for term in self.proximal)
        return dataclasses.replace(self, **none)

    def is_flat_along(self, w: jax.Array, direction: jax.Array) -> jax.Array:
        """Whether h stays as it is, and the box allows it, however far one goes from w in a direction."""
        ends = xp.where(direction > 0, xp.isfinite(self.upper), xp.isfinite(self.lower)) & (direction != 0)
        flat = (self.smooth(direction) == 0.0) & ~xp.any(ends)
        if not self.proximal:
            return flat & (self.nonsmooth(direction) == 0.0)
        far = w + FAR * (1.0 + xp.max(xp.abs(w))) * direction / xp.maximum(xp.max(xp.abs(direction)), TINY)
        level = xp.abs(self.nonsmooth(far) - self.nonsmooth(w)) <= STILL * (1.0 + xp.abs(self.nonsmooth(w)))
        return flat & level & (self.outside(far) <= STILL * xp.max(xp.abs(far)))

    def inside(self, w: jax.Array, slope: jax.Array) -> jax.Array:
        """`slope` with the components set to 0 whose descent direction leaves the box."""
        walled = ((w <= self.lower) & (slope > 0)) | ((w >= self.upper) & (slope < 0))
        return xp.where(walled, 0.0, slope)

    def outside(self, w: jax.Array) -> jax.Array:
        """The largest distance of an entry of w from the box, or from the nearest point of the sets."""
        outside = xp.max(xp.maximum(xp.maximum(self.lower - w, w - self.upper), 0.0), initial=0.0)
        if not self.proximal:
            return outside
        return xp.maximum(outside, xp.max(xp.abs(w - self._proximal(w, 0.0))))

    def in_units(self, units: Units) -> "FlatRegularizer":
        """h with w in other units, and its value in those of the objective; parameters of a group share a unit."""
        s, phi = units.parameters, units.objective
        changed: dict[str, Any] = {
            "ridge": self.ridge * s**2 / phi,
            "l1": self.l1 * s / phi,
            "lower": self.lower / s,
            "upper": self.upper / s,
        }
        if self.groups:
            changed["weight"] = self.weight * segment_max(s, self.group, self.groups) / phi
        if self.proximal:
            changed["proximal"] = tuple(
                dataclasses.replace(term, unit=s[term.spans[0][0]] * term.unit, price=term.price / phi)
                for term in self.proximal
            )
        return dataclasses.replace(self, **changed)

    def alike_in_groups(self, x: jax.Array) -> jax.Array:
        """The largest entry of its group, or set, for every entry of x; entries in none stay as they are."""
        for term in self.proximal:
            chosen = np.isin(np.arange(x.size), places_of(term.spans))
            x = xp.where(chosen, xp.max(xp.where(chosen, x, -xp.inf)), x)
        if not self.groups:
            return x
        return xp.where(self.group >= 0, segment_max(x, self.group, self.groups)[self.group], x)

    def padded(self, extra: int) -> "FlatRegularizer":
        """The same h on a longer vector whose last `extra` entries are not regularised."""
        fill = {"ridge": 0.0, "l1": 0.0, "lower": -xp.inf, "upper": xp.inf, "group": -1}
        longer = {name: xp.pad(getattr(self, name), (0, extra), constant_values=v) for name, v in fill.items()}
        return dataclasses.replace(self, **longer)

    def _proximal(self, w: jax.Array, step: Any) -> jax.Array:
        if not self.proximal:
            return w
        return prox_of(self.proximal, w, step)

    def _proximal_value(self, w: jax.Array) -> jax.Array | float:
        if not self.proximal:
            return 0.0
        return value_of(self.proximal, w)

    def _norms(self, w: jax.Array) -> jax.Array:
        squares = segment_sum(xp.where(self.group >= 0, w**2, 0.0), self.group, self.groups)
        return xp.where(squares > 0, xp.sqrt(xp.where(squares > 0, squares, 1.0)), 0.0)
