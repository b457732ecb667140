"""Regularisers h(w), added to the objective: smooth ones by their gradient, the others by their proximal operator.

    fp.l2(a)   a ‖w‖²        fp.l1(a)   a ‖w‖₁       fp.box(lo, hi)   lo <= w <= hi       fp.group(a)   a Σ_g ‖w_g‖₂

`on` names the parameters w that are regularised (default: all of them). Sums of regularisers are regularisers.
"""

import dataclasses
import math
import numbers
import operator
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import numpy as np

from fedpact.arrays import repeat, segment_max, segment_sum, xp
from fedpact.problem.units import Units
from fedpact.records import Record


@dataclasses.dataclass(frozen=True)
class Part:
    """One term: `numbers` are (weight,) for l1, l2 and group, and (lower, upper) for box."""

    kind: Literal["l1", "l2", "box", "group"]
    numbers: tuple[float, ...]
    on: tuple[str, ...] | None
    groups: tuple[tuple[int, ...], ...] | None = None

    def __str__(self) -> str:
        """As a formula, where w are all parameters: 0.1 ‖w‖², 0.1 ‖params[b]‖₁, -1 <= w <= 1."""
        of = "w" if self.on is None else f"params[{', '.join(self.on)}]"
        if self.kind == "box":
            lower, upper = self.numbers
            below = f"{lower:g} <= " if math.isfinite(lower) else ""
            return f"{below}{of}" + (f" <= {upper:g}" if math.isfinite(upper) else "")
        norm = {"l1": f"‖{of}‖₁", "l2": f"‖{of}‖²", "group": f"Σ_g ‖{of}_g‖"}[self.kind]
        return f"{self.numbers[0]:g} {norm}"


@dataclasses.dataclass(frozen=True)
class Regularizer:
    """A sum of terms `fp.l1`, `fp.l2`, `fp.box` and `fp.group`; a group term may be added to l2 terms only."""

    parts: tuple[Part, ...] = ()

    def __add__(self, other: "Regularizer") -> "Regularizer":
        if not isinstance(other, Regularizer):
            raise TypeError(f"a regulariser is added to another one, not to {other!r}")
        parts = self.parts + other.parts
        if any(p.kind == "group" for p in parts) and sum(p.kind != "l2" for p in parts) > 1:
            raise ValueError("fp.group has no closed-form proximal operator together with l1, box or another group")
        return Regularizer(parts)

    def __radd__(self, other: Any) -> "Regularizer":
        if not (isinstance(other, int) and other == 0):  # where sum([...]) begins
            raise TypeError(f"a regulariser is added to another one, not to {other!r}")
        return self

    @property
    def even(self) -> float | None:
        """The weight a where this is a‖w‖² over all parameters, else None."""
        if any(part.kind != "l2" or part.on is not None for part in self.parts):
            return None
        return float(sum(part.numbers[0] for part in self.parts))

    def flat(self, params: Any) -> "FlatRegularizer":
        """The same regulariser on the flat vector of these parameters. Raises ValueError where it does not fit them."""
        size = sum(np.size(leaf) for leaf in jax.tree.leaves(params))
        ridge, l1 = np.zeros(size), np.zeros(size)
        lower, upper = np.full(size, -math.inf), np.full(size, math.inf)
        group, groups, weight = np.full(size, -1), 0, np.zeros(0)
        for part in self.parts:
            chosen = _selection(params, part.on)
            if part.kind == "l2":
                ridge += part.numbers[0] * chosen
            elif part.kind == "l1":
                l1 += part.numbers[0] * chosen
            elif part.kind == "box":
                lower = np.where(chosen, np.maximum(lower, part.numbers[0]), lower)
                upper = np.where(chosen, np.minimum(upper, part.numbers[1]), upper)
            else:
                group, groups = _group_numbers(params, part)
                weight = np.full(groups, part.numbers[0])
        if np.any(lower > upper):
            raise ValueError("the boxes of the regulariser have no point in common; widen one or leave it out")
        kinks: Literal["none", "coordinates", "groups"] = "none"
        if groups:
            kinks = "groups"
        elif l1.any() or np.isfinite(lower).any() or np.isfinite(upper).any():
            kinks = "coordinates"
        flat: Any = {
            "ridge": ridge,
            "l1": l1,
            "lower": lower,
            "upper": upper,
            "group": group,
            "weight": weight,
        }
        return FlatRegularizer(**flat, groups=groups, kinks=kinks)


class FlatRegularizer(Record):
    """h on a flat vector w: Σ ridge·w² (smooth) plus a nonsmooth part with a closed-form proximal operator."""

    ridge: jax.Array
    l1: jax.Array
    lower: jax.Array
    upper: jax.Array
    group: jax.Array
    weight: jax.Array
    groups: int = eqx.field(static=True)
    kinks: Literal["none", "coordinates", "groups"] = eqx.field(static=True)

    def smooth(self, w: jax.Array) -> jax.Array:
        """Σ ridge·w²; its gradient is 2 ridge·w."""
        return xp.sum(self.ridge * w**2)

    def nonsmooth(self, w: jax.Array) -> jax.Array:
        """The nonsmooth part; the indicator of a box counts as 0, since the proximal operator keeps iterates inside."""
        if self.kinks == "none":
            return xp.zeros((), w.dtype)
        if self.kinks == "coordinates":
            return xp.sum(self.l1 * xp.abs(w))
        return xp.sum(self.weight * self._norms(w))

    def value(self, w: jax.Array) -> jax.Array:
        return self.smooth(w) + self.nonsmooth(w)

    def prox(self, w: jax.Array, step: jax.Array | float) -> jax.Array:
        """argmin_v ‖v − w‖²/2 + step · nonsmooth(v) inside the box; `step`: a scalar, or without groups one per entry."""
        if self.kinks == "none":
            return w
        if self.kinks == "coordinates":
            shrunk = xp.sign(w) * xp.maximum(xp.abs(w) - step * self.l1, 0.0)
            return xp.clip(shrunk, self.lower, self.upper)
        norms = self._norms(w)
        steps = segment_max(xp.broadcast_to(step, w.shape), self.group, self.groups)
        scale = xp.maximum(1.0 - steps * self.weight / xp.where(norms > 0, norms, 1.0), 0.0)
        return xp.where(self.group >= 0, w * scale[self.group], w)

    def distance(self, w: jax.Array, gradient: jax.Array) -> jax.Array:
        """dist∞(0, gradient + ∂nonsmooth(w)), with `gradient` that of the smooth part of the objective."""
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
        """The box of h alone."""
        none: dict[str, Any] = {name: 0.0 * getattr(self, name) for name in ("ridge", "l1", "weight")}
        return dataclasses.replace(self, **none)

    def is_flat_along(self, w: jax.Array, direction: jax.Array) -> jax.Array:
        """Whether h stays as it is, and the box allows it, however far one goes from w in a direction."""
        ends = xp.where(direction > 0, xp.isfinite(self.upper), xp.isfinite(self.lower)) & (direction != 0)
        return (self.value(direction) == 0.0) & ~xp.any(ends)

    def inside(self, w: jax.Array, slope: jax.Array) -> jax.Array:
        """`slope` with the components set to 0 whose descent direction leaves the box."""
        walled = ((w <= self.lower) & (slope > 0)) | ((w >= self.upper) & (slope < 0))
        return xp.where(walled, 0.0, slope)

    def outside(self, w: jax.Array) -> jax.Array:
        """The largest distance of an entry of w from the box."""
        return xp.max(xp.maximum(xp.maximum(self.lower - w, w - self.upper), 0.0), initial=0.0)

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
        return dataclasses.replace(self, **changed)

    def alike_in_groups(self, x: jax.Array) -> jax.Array:
        """The largest entry of its group for every entry of x; entries in no group stay as they are."""
        if not self.groups:
            return x
        return xp.where(self.group >= 0, segment_max(x, self.group, self.groups)[self.group], x)

    def padded(self, extra: int) -> "FlatRegularizer":
        """The same h on a longer vector whose last `extra` entries are not regularised."""
        fill = {"ridge": 0.0, "l1": 0.0, "lower": -xp.inf, "upper": xp.inf, "group": -1}
        longer = {name: xp.pad(getattr(self, name), (0, extra), constant_values=v) for name, v in fill.items()}
        return FlatRegularizer(**longer, weight=self.weight, groups=self.groups, kinks=self.kinks)

    def _norms(self, w: jax.Array) -> jax.Array:
        squares = segment_sum(xp.where(self.group >= 0, w**2, 0.0), self.group, self.groups)
        return xp.where(squares > 0, xp.sqrt(xp.where(squares > 0, squares, 1.0)), 0.0)


def l2(weight: float, on: str | Sequence[str] | None = None) -> Regularizer:
    """The squared Euclidean norm weight · ‖w‖² (without a factor ½), as a regulariser.

    - `weight`: >= 0 and finite, in units of the objective per squared parameter.
    - `on`: the name or names of the parameters w (default None: all of them).

    Returns a `Regularizer`; add several: `fp.l2(0.01) + fp.box(-1, 1, on="w")`. Raises ValueError for an invalid weight.
    """
    return Regularizer((Part("l2", (_weight(weight, "l2"),), parameter_names(on)),))


def l1(weight: float, on: str | Sequence[str] | None = None) -> Regularizer:
    """The l1 norm weight · ‖w‖₁ as a regulariser, for sparse parameters.

    - `weight`: >= 0 and finite, in units of the objective per parameter.
    - `on`: the name or names of the parameters w (default None: all of them).

    Returns a `Regularizer`. Raises ValueError for an invalid weight.
    """
    return Regularizer((Part("l1", (_weight(weight, "l1"),), parameter_names(on)),))


def box(lower: float = -math.inf, upper: float = math.inf, on: str | Sequence[str] | None = None) -> Regularizer:
    """Bounds lower <= w <= upper on every entry of the parameters, as a regulariser (its indicator function).

    - `lower`, `upper`: numbers with lower < upper (defaults −∞ and ∞).
    - `on`: the name or names of the parameters w (default None: all of them).

    Returns a `Regularizer`. Raises ValueError where lower >= upper. For bounds on each party's own model see `fp.sets.box`.
    """
    if not (_real(lower) and _real(upper) and lower < upper):
        raise ValueError(f"fp.box({lower!r}, {upper!r}): two numbers, the lower bound below the upper one")
    return Regularizer((Part("box", (float(lower), float(upper)), parameter_names(on)),))


def group(weight: float, groups: Sequence[Sequence[int]] | None = None, on: str = "w") -> Regularizer:
    """The group-lasso norm weight · Σ_g ‖w_g‖₂ as a regulariser, which selects or drops groups of features together.

    - `weight`: >= 0 and finite, in units of the objective per parameter.
    - `groups`: lists of features, that is, of rows of the parameter `on`, counted from 0 and disjoint: `[[0, 1], [2]]`;
      features in no group are not regularised (default None: each feature is a group).
    - `on`: the name of one parameter, (features,) or (features, outputs) (default "w").

    Returns a `Regularizer`, which may be added to `fp.l2` only. Raises ValueError or TypeError where an argument is not of this
    form.
    """
    listed = None
    if groups is not None:
        try:
            listed = tuple(tuple(operator.index(i) for i in g) for g in groups)
        except TypeError:
            raise TypeError(f"fp.group(groups={groups!r}): lists of features, such as [[0, 1], [2]]") from None
        members = [i for g in listed for i in g]
        if not members or len(members) != len(set(members)) or not all(listed):
            raise ValueError("fp.group: every group has at least one feature, and no feature is in two groups")
    if not isinstance(on, str):
        raise TypeError(f"fp.group(on={on!r}): the name of one parameter")
    return Regularizer((Part("group", (_weight(weight, "group"),), (on,), listed),))


def _real(number: Any) -> bool:
    return isinstance(number, numbers.Real) and not isinstance(number, bool)


def _weight(weight: float, name: str) -> float:
    if not (_real(weight) and 0 <= weight < math.inf):
        raise ValueError(f"fp.{name}({weight!r}): the weight must be a finite number >= 0")
    return float(weight)


def parameter_names(on: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if on is None or isinstance(on, str):
        return None if on is None else (on,)
    names = tuple(on) if isinstance(on, Iterable) else ()
    if not names or not all(isinstance(name, str) for name in names):
        raise TypeError(f"on={on!r}: names of parameters, such as 'w' or ['w', 'b']; None for all")
    return names


def leaf_names(params: Any) -> list[tuple[str, Any]]:
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    return [("".join(str(getattr(k, "key", getattr(k, "name", k))) for k in path[-1:]), leaf) for path, leaf in leaves]


def _selection(params: Any, on: tuple[str, ...] | None) -> np.ndarray:
    leaves = leaf_names(params)
    known = [name for name, _ in leaves]
    for name in on or ():
        if name not in known:
            raise ValueError(f"a regulariser is on {name!r}, but the parameters are {', '.join(known)}")
    return np.concatenate([np.full(np.size(leaf), on is None or name in on) for name, leaf in leaves])


def _group_numbers(params: Any, part: Part) -> tuple[np.ndarray, int]:
    chosen = _selection(params, part.on)
    (on,) = part.on or ("",)
    leaf, *others = [leaf for name, leaf in leaf_names(params) if name == on]
    if others or not np.ndim(leaf):
        actual = f"{1 + len(others)} parameters" if others else "a single number"
        raise ValueError(f"fp.group is on {on!r}, which is {actual}; it takes one array, with a row for each feature")
    features = np.shape(leaf)[0]
    listed = part.groups or tuple((i,) for i in range(features))
    of_feature = np.full(features, -1)
    for number, members in enumerate(listed):
        for feature in members:
            if not 0 <= feature < features:
                raise ValueError(f"fp.group names feature {feature}, but {on!r} has {features}")
            of_feature[feature] = number
    numbers = np.full(chosen.size, -1)
    numbers[chosen] = np.repeat(of_feature, np.size(leaf) // features)
    return numbers, len(listed)
