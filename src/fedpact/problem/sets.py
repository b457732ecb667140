"""Convex sets with a projection Π(x) = argmin_{z ∈ X} ‖z − x‖, for the models of `fp.Personal`.

    l1_ball(r)     ‖x‖₁ <= r      nonnegative()  x >= 0           affine(A, b)     Ax = b
    l2_ball(r)     ‖x‖₂ <= r      simplex(s)     x >= 0, Σx = s   halfspace(a, b)  a·x <= b
    linf_ball(r)   max |x| <= r   box(lo, hi)    lo <= x <= hi    projection(fn)   the set that fn projects onto
    everywhere()   all x          A & B          the intersection, where its projection is known in closed form

They are in `fp.sets`; `fp.l1_ball` is also at the top level.

x are all of a party's parameters as one vector, or those named by `on`. (`fp.box` is a regulariser, for the one model of a
problem without `fp.Personal`.) Numbers such as a radius are arrays, so that parties whose sets differ in them alone run
vectorised.
"""

import abc
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpact.problem.parameter_names import leaf_names
from fedpact.problem.shape import Shape

TRIED = 12  # points that a projection function is tested on
ROUNDING = 1e-6  # the relative error allowed there


class ConvexSet(eqx.Module):
    """A convex set of parameter vectors x with a projection. Made by the functions of `fp.sets`.

    - `on`: the names of the parameters that x consists of (default None: all of them).

    `a & b` is the intersection; it raises ValueError where its projection is not known in closed form.
    """

    on: tuple[str, ...] | None = eqx.field(static=True, default=None, kw_only=True)

    @abc.abstractmethod
    def project(self, x: jax.Array) -> jax.Array:
        """The nearest point of the set to x, a vector."""

    def fitted(self, shape: Shape) -> "ConvexSet":
        """The same set for parameters of this shape. Raises ValueError where it does not fit them."""
        return self

    def __and__(self, other: "ConvexSet | Both") -> "ConvexSet | Both":
        if isinstance(other, Both):
            return other & self
        if not isinstance(other, ConvexSet):
            raise TypeError(f"a set is intersected with another one, such as fp.sets.nonnegative(), not with {other!r}")
        if self.on is not None and other.on is not None and not set(self.on) & set(other.on):
            return Both((self, other))
        if self.on == other.on:
            for one, two in ((self, other), (other, self)):
                met = _meet(one, two)
                if met is not None:
                    return met
        raise ValueError(
            f"the projection onto {in_words(self)} and {in_words(other)} together is not known in closed form; supply it as "
            "fp.sets.projection(fn), or put the two on different parameters with on="
        )


class Both(eqx.Module):
    """The intersection of sets of different parameters."""

    parts: tuple[ConvexSet, ...]

    def __and__(self, other: "ConvexSet | Both") -> "ConvexSet | Both":
        parts = list(self.parts)
        for more in other.parts if isinstance(other, Both) else (other,):
            same = [part for part in parts if part.on is None or more.on is None or set(part.on) & set(more.on)]
            if not same:
                parts.append(more)
                continue
            met = same[0] & more
            if len(same) > 1 or isinstance(met, Both):
                raise ValueError(f"{in_words(more)} overlaps two other sets; state one set for each parameter")
            parts[next(i for i, part in enumerate(parts) if part is same[0])] = met
        return Both(tuple(parts))


AnySet = ConvexSet | Both


class L1Ball(ConvexSet):
    radius: Any

    def project(self, x: jax.Array) -> jax.Array:
        size = jnp.abs(x)
        return jnp.sign(x) * jnp.maximum(size - _threshold(size, self.radius, jnp.zeros((), x.dtype)), 0.0)


class L2Ball(ConvexSet):
    radius: Any

    def project(self, x: jax.Array) -> jax.Array:
        return _optax().projection_l2_ball(x, self.radius)


class Box(ConvexSet):
    """lower <= x <= upper; also the l∞ ball and x >= 0."""

    lower: Any
    upper: Any

    def project(self, x: jax.Array) -> jax.Array:
        return _optax().projection_box(x, jnp.broadcast_to(self.lower, x.shape), jnp.broadcast_to(self.upper, x.shape))

    def fitted(self, shape: Shape) -> "Box":
        size = _size(self, shape)
        for bound in (self.lower, self.upper):
            if bound.ndim and bound.size != size:
                raise ValueError(f"fp.sets.box has bounds of {bound.size} entries, but it is on {size} parameters")
        lower, upper = (np.ravel(bound) if bound.ndim else bound for bound in (self.lower, self.upper))
        return Box(lower, upper, on=self.on)


class Simplex(ConvexSet):
    """x >= 0, Σx = total."""

    total: Any

    def project(self, x: jax.Array) -> jax.Array:
        return jnp.maximum(x - _threshold(x, self.total, (jnp.sum(x) - self.total) / x.size), 0.0)


class BallInCone(ConvexSet):
    """x >= 0 in a ball around 0: the projection onto x >= 0, then the one onto the ball."""

    ball: L1Ball | L2Ball

    def project(self, x: jax.Array) -> jax.Array:
        return self.ball.project(jnp.maximum(x, 0.0))


class Affine(ConvexSet):
    """Ax = b; `across` is the pseudo-inverse of A."""

    matrix: Any
    right: Any
    across: Any

    @classmethod
    def of(cls, matrix: Any, right: Any, on: tuple[str, ...] | None) -> "Affine":
        try:
            a, b = np.atleast_2d(np.asarray(matrix, float)), np.atleast_1d(np.asarray(right, float))
        except (TypeError, ValueError):
            raise TypeError("fp.sets.affine(matrix, right): two arrays of numbers") from None
        if a.ndim != 2 or b.shape != a.shape[:1] or not (np.isfinite(a).all() and np.isfinite(b).all()):
            raise ValueError(
                f"fp.sets.affine: a matrix of shape {a.shape} and a right-hand side of shape {b.shape} do not match, or are "
                "not finite"
            )
        across = np.linalg.pinv(a)
        if not np.allclose(a @ (across @ b), b, rtol=1e-9, atol=1e-12):
            raise ValueError("fp.sets.affine: the equations have no solution, so the set is empty")
        return cls(a, b, across, on=on)

    def project(self, x: jax.Array) -> jax.Array:
        return x - self.across @ (self.matrix @ x - self.right)

    def fitted(self, shape: Shape) -> "Affine":
        if self.matrix.shape[1] != _size(self, shape):
            raise ValueError(
                f"fp.sets.affine has a matrix of {self.matrix.shape[1]} columns, but it is on {_size(self, shape)} parameters"
            )
        return self


class Halfspace(ConvexSet):
    """normal · x <= bound."""

    normal: Any
    bound: Any

    def project(self, x: jax.Array) -> jax.Array:
        return _optax().projection_halfspace(x, self.normal, self.bound)

    def fitted(self, shape: Shape) -> "Halfspace":
        if self.normal.size != _size(self, shape):
            raise ValueError(
                f"fp.sets.halfspace has a normal of {self.normal.size} entries, but it is on {_size(self, shape)} parameters"
            )
        return self


class Everywhere(ConvexSet):
    def project(self, x: jax.Array) -> jax.Array:
        return x


class Projection(ConvexSet):
    """The set that a function of the parameters (or of those named `on`) projects onto."""

    function: Callable[[Any], Any] = eqx.field(static=True)
    shape: Shape | None = eqx.field(static=True, default=None)

    def project(self, x: jax.Array) -> jax.Array:
        assert self.shape is not None  # `fitted` has set it
        projected = self.function(self.shape.unravel(x))
        return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(projected)])

    def fitted(self, shape: Shape) -> "Projection":
        params = shape.specs()
        if self.on is not None:
            named = [(name, spec) for name, spec in leaf_names(params) if name in self.on]
            if len(named) > len(self.on):
                raise ValueError(
                    f"fp.sets.projection is on {', '.join(self.on)}, of which the parameters have several; leave on= out"
                )
            chosen = dict(named)
            params = chosen[self.on[0]] if len(self.on) == 1 else chosen
        fitted = Projection(self.function, Shape.of(params), on=self.on)
        name = f"fp.sets.projection({getattr(self.function, '__name__', 'fn')})"
        try:
            back = jax.eval_shape(self.function, params)
        except Exception as error:
            why = str(error).partition("\n")[0]
            raise ValueError(f"{name} fails on the parameters: {type(error).__name__}: {why}") from error
        shapes = [jax.tree.map(lambda leaf: tuple(np.shape(leaf)), tree) for tree in (params, back)]
        if shapes[0] != shapes[1]:
            raise ValueError(f"{name} gives shapes {shapes[1]} for parameters {shapes[0]}; it should keep them")
        _try_out(fitted, name)
        return fitted


# projections and intersections


def _optax() -> Any:
    import optax.projections  # takes long to import

    return optax.projections


def _threshold(x: jax.Array, total: jax.Array, first: jax.Array) -> jax.Array:
    """λ with Σ max(x − λ, 0) = total, or `first` where that is larger: λ ← (Σ_{x > λ} x − total) / #{x > λ} from below.

    The iteration is monotone and ends after a few passes. Sorting, as in optax, took eight times as long on 1,000 vectors of
    7,840 entries.
    """

    def once(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        level, _ = carry  # λ, and λ of the pass before
        above = x > level
        next_level = (jnp.sum(jnp.where(above, x, 0.0)) - total) / jnp.maximum(jnp.sum(above, dtype=x.dtype), 1.0)
        return jnp.maximum(next_level, level), level

    return lax.while_loop(lambda carry: carry[0] > carry[1], once, (first, first - 1.0 - jnp.abs(first)))[0]


def _meet(one: ConvexSet, two: ConvexSet) -> ConvexSet | None:
    """The intersection of two sets of the same parameters, or None where its projection is not known."""
    if isinstance(one, Everywhere):
        return two
    if isinstance(one, Box) and isinstance(two, Box):
        lower, upper = np.maximum(one.lower, two.lower), np.minimum(one.upper, two.upper)
        if np.any(lower > upper):
            raise ValueError("the two boxes have no point in common")
        return Box(lower, upper, on=one.on)
    if isinstance(one, Affine) and isinstance(two, Affine):
        if one.matrix.shape[1] != two.matrix.shape[1]:
            raise ValueError("the two fp.sets.affine sets are on different numbers of parameters")
        return Affine.of(np.vstack([one.matrix, two.matrix]), np.concatenate([one.right, two.right]), one.on)
    nonnegative = isinstance(two, Box) and two.lower.ndim == 0 and two.lower == 0 and np.all(two.upper == math.inf)
    if nonnegative and isinstance(one, L1Ball | L2Ball):
        return BallInCone(one, on=one.on)
    if nonnegative and isinstance(one, Simplex | BallInCone):
        return one
    return None


def _try_out(candidate: Projection, name: str) -> None:
    """Π is the projection onto a convex set only if Π(Πu) = Πu and (u − Πu)·(Πv − Πu) <= 0 for all u and v."""
    assert candidate.shape is not None
    rng = np.random.default_rng(0)
    points = rng.normal(size=(TRIED, candidate.shape.size)) * np.logspace(-2, 2, TRIED)[:, None]
    to = np.asarray(jax.jit(jax.vmap(candidate.project))(points))
    again = np.asarray(jax.jit(jax.vmap(candidate.project))(to))
    if not np.isfinite(to).all():
        raise ValueError(f"{name} gives NaN or infinite parameters")
    sizes = 1.0 + np.abs(to).max()
    if np.abs(again - to).max() > ROUNDING * sizes:
        raise ValueError(f"{name} moves points that it has projected already; a projection is idempotent")
    away = points - to
    angles = np.einsum("ud,uvd->uv", away, to[None] - to[:, None])
    lengths = np.linalg.norm(away, axis=1)[:, None] * np.linalg.norm(to[None] - to[:, None], axis=2)
    if np.any(angles > ROUNDING * (lengths + sizes)):
        raise ValueError(
            f"{name} is not the projection onto a convex set: it does not return the nearest point of the set, or the set "
            "is not convex"
        )


def _size(region: ConvexSet, shape: Shape) -> int:
    leaves = leaf_names(shape.specs())
    return sum(math.prod(leaf.shape) for name, leaf in leaves if region.on is None or name in region.on)


def in_words(region: AnySet) -> str:
    kinds = region.parts if isinstance(region, Both) else (region,)
    return " and ".join(type(kind).__name__ for kind in kinds)
