"""Sets that a party's own model must lie in: `fp.Personal(sets=[fp.sets.l1_ball(20), fp.sets.box(-1, 1)], pull=0.01)`.

Two sets of the same parameters are intersected by `&`, where the projection is known.
"""

import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedpact.problem.parameter_names import parameter_names
from fedpact.problem.sets import Affine, Box, ConvexSet, Everywhere, Halfspace, L1Ball, L2Ball, Projection, Simplex

__all__ = [
    "ConvexSet",
    "affine",
    "box",
    "everywhere",
    "halfspace",
    "l1_ball",
    "l2_ball",
    "linf_ball",
    "nonnegative",
    "projection",
    "simplex",
]


def l1_ball(radius: float, on: str | Sequence[str] | None = None) -> ConvexSet:
    """The l1 ball ‖x‖₁ <= radius, which favours sparse parameters.

    - `radius`: > 0 and finite, in units of the parameters.
    - `on`: the name or names of the parameters x (default None: all of them, as one vector).

    Returns a `fp.sets.ConvexSet`. Raises ValueError for an invalid radius.
    """
    return L1Ball(_positive("l1_ball", radius, "the radius"), on=parameter_names(on))


def l2_ball(radius: float, on: str | Sequence[str] | None = None) -> ConvexSet:
    """The Euclidean ball ‖x‖₂ <= radius.

    - `radius`: > 0 and finite, in units of the parameters.
    - `on`: the name or names of the parameters x (default None: all of them, as one vector).

    Returns a `fp.sets.ConvexSet`. Raises ValueError for an invalid radius.
    """
    return L2Ball(_positive("l2_ball", radius, "the radius"), on=parameter_names(on))


def linf_ball(radius: float, on: str | Sequence[str] | None = None) -> ConvexSet:
    """The l∞ ball |x_k| <= radius for every entry k.

    - `radius`: > 0 and finite, in units of the parameters.
    - `on`: the name or names of the parameters x (default None: all of them, as one vector).

    Returns a `fp.sets.ConvexSet`. Raises ValueError for an invalid radius.
    """
    most = _positive("linf_ball", radius, "the radius")
    return Box(-most, most, on=parameter_names(on))


def box(lower: Any = -math.inf, upper: Any = math.inf, on: str | Sequence[str] | None = None) -> ConvexSet:
    """The box lower <= x <= upper for every entry.

    - `lower`, `upper`: numbers, or arrays with one bound for each entry of x in the order of the flat parameters; lower <= upper
      (defaults −∞ and ∞).
    - `on`: the name or names of the parameters x (default None: all of them, as one vector).

    Returns a `fp.sets.ConvexSet`. Raises ValueError where a lower bound is above its upper bound.
    """
    try:
        low, high = np.asarray(lower, float), np.asarray(upper, float)
        sound = bool(np.all(low <= high))
    except (TypeError, ValueError):
        sound, low, high = False, np.zeros(()), np.zeros(())
    if not sound:
        raise ValueError(f"fp.sets.box({lower!r}, {upper!r}): numbers or arrays, no lower bound above the upper one")
    return Box(low, high, on=parameter_names(on))


def nonnegative(on: str | Sequence[str] | None = None) -> ConvexSet:
    """The nonnegative orthant x >= 0.

    - `on`: the name or names of the parameters x (default None: all of them).

    Returns a `fp.sets.ConvexSet`; `fp.sets.l1_ball(1.0) & fp.sets.nonnegative()` is an intersection.
    """
    return Box(np.asarray(0.0), np.asarray(math.inf), on=parameter_names(on))


def simplex(total: float = 1.0, on: str | Sequence[str] | None = None) -> ConvexSet:
    """The simplex x >= 0, Σx = total.

    - `total`: > 0 and finite (default 1: the probability simplex).
    - `on`: the name or names of the parameters x (default None: all of them, as one vector).

    Returns a `fp.sets.ConvexSet`. Raises ValueError for an invalid total.
    """
    return Simplex(_positive("simplex", total, "the total"), on=parameter_names(on))


def affine(matrix: Any, right: Any, on: str | Sequence[str] | None = None) -> ConvexSet:
    """The affine subspace matrix @ x = right.

    - `matrix`: (equations, parameters), or (parameters,) for one equation, with columns in the order of the flat parameters.
    - `right`: the right-hand side (equations,).
    - `on`: the name or names of the parameters x (default None: all of them, as one vector).

    Returns a `fp.sets.ConvexSet`. Raises TypeError where the two are not arrays of numbers, and ValueError where their shapes do
    not match, they are not finite, or the equations have no solution.

        sums_to_one = fp.sets.affine(np.ones((1, 4)), [1.0])
    """
    return Affine.of(matrix, right, parameter_names(on))


def halfspace(normal: Any, bound: float, on: str | Sequence[str] | None = None) -> ConvexSet:
    """The half-space normal · x <= bound.

    - `normal`: one entry for each entry of x, in the order of the flat parameters (parameters,); finite, not all 0.
    - `bound`: a finite number.
    - `on`: the name or names of the parameters x (default None: all of them, as one vector).

    Returns a `fp.sets.ConvexSet`. Raises ValueError where an argument is not of this form.
    """
    a = np.ravel(np.asarray(normal, float))
    if not np.isfinite(a).all() or not a.any() or not _real(bound):
        raise ValueError("fp.sets.halfspace(normal, bound): a vector of finite numbers, not all 0, and a number")
    return Halfspace(a, np.asarray(float(bound)), on=parameter_names(on))


def everywhere() -> ConvexSet:
    """The whole space, for a party whose model is not constrained."""
    return Everywhere()


def projection(function: Callable[[Any], Any], on: str | Sequence[str] | None = None) -> ConvexSet:
    """The convex set that a function projects onto.

    - `function`: in JAX, from the parameters to the nearest point of the set, of the same shape. It receives the tree of all
      parameters; with one name in `on` that array, with several a dictionary of them.
    - `on`: the name or names of the parameters (default None: all of them).

    Returns a `fp.sets.ConvexSet`. Before a run the function is tested at random points: `fp.solve` raises ValueError where it
    changes shapes or is not the projection onto a convex set.

        unit_columns = fp.sets.projection(lambda w: w / jnp.maximum(jnp.linalg.norm(w, axis=0), 1.0), on="w")
    """
    if not callable(function):
        raise TypeError(f"fp.sets.projection takes a function of the parameters, not {function!r}")
    return Projection(function, on=parameter_names(on))


def _real(number: Any) -> bool:
    return isinstance(number, numbers.Real) and not isinstance(number, bool) and math.isfinite(number)


def _positive(name: str, number: Any, words: str) -> Any:
    if not _real(number) or number <= 0:
        raise ValueError(f"fp.{name}({number!r}): {words} must be a finite number > 0")
    return np.asarray(float(number))
