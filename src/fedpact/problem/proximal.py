"""Regularisers that are known by their proximal operator: any convex h, and the indicator functions of `fp.sets`.

prox(x, t) = argmin_v  t h(v) + ‖v − x‖²/2;      for a set, the projection, whatever t
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedpact.arrays import on_host
from fedpact.problem.parameter_names import leaf_names
from fedpact.problem.sets import Both, ConvexSet
from fedpact.problem.shape import Shape
from fedpact.records import Record

TRIED = 8  # points that a proximal operator is tested on
ROUNDING = 1e-6  # the relative error allowed there


class Operator(eqx.Module):
    """h by two functions of the parameters named by `on`, or of all of them: its proximal operator and its value."""

    function: Callable[[Any, Any], Any] = eqx.field(static=True)
    height: Callable[[Any], Any] = eqx.field(static=True)
    on: tuple[str, ...] | None = eqx.field(static=True)
    shape: Shape | None = eqx.field(static=True, default=None)

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", "fn")

    def prox(self, x: jax.Array, step: jax.Array) -> jax.Array:
        assert self.shape is not None  # `fitted` has set it
        moved = self.function(self.shape.unravel(x), step)
        return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(moved)])

    def value(self, x: jax.Array) -> jax.Array:
        assert self.shape is not None
        return jnp.asarray(self.height(self.shape.unravel(x)), x.dtype)

    def fitted(self, shape: Shape) -> "Operator":
        params = shape.specs()
        if self.on is not None:
            chosen = {name: spec for name, spec in leaf_names(params) if name in self.on}
            params = chosen[self.on[0]] if len(self.on) == 1 else chosen
        fitted = Operator(self.function, self.height, self.on, Shape.of(params))
        _try_out(fitted, params)
        return fitted


class FlatProximal(Record):
    """h on the entries `spans` of a flat vector, which share a unit.

    - `operator`: a ConvexSet or an Operator. `unit`: of these entries. `price`: the factor of h, 1 over the objective's unit.
    """

    operator: Any
    unit: Any
    price: Any
    spans: tuple[tuple[int, int], ...] = eqx.field(static=True)

    def prox(self, w: jax.Array, step: Any) -> jax.Array:
        step = jnp.max(self.taken(jnp.broadcast_to(step, w.shape)))  # alike on these entries
        x = self.unit * self.taken(w)
        if isinstance(self.operator, ConvexSet):
            moved = self.operator.project(x)
        else:
            moved = self.operator.prox(x, step * self.unit**2 * self.price)
        return self.put(w, moved / self.unit)

    def value(self, w: jax.Array) -> jax.Array:
        if isinstance(self.operator, ConvexSet):
            return jnp.zeros((), w.dtype)
        return self.price * self.operator.value(self.unit * self.taken(w))

    def taken(self, w: jax.Array) -> jax.Array:
        return jnp.concatenate([w[start:stop] for start, stop in self.spans])

    def put(self, w: jax.Array, x: jax.Array) -> jax.Array:
        done = 0
        for start, stop in self.spans:
            w = w.at[start:stop].set(x[done : done + stop - start])
            done += stop - start
        return w


@jax.jit
def _prox(terms: tuple[FlatProximal, ...], w: jax.Array, step: Any) -> jax.Array:
    for term in terms:
        w = term.prox(w, step)
    return w


@jax.jit
def _value(terms: tuple[FlatProximal, ...], w: jax.Array) -> jax.Array:
    return sum((term.value(w) for term in terms), jnp.zeros((), w.dtype))


def prox_of(terms: tuple[FlatProximal, ...], w: Any, step: Any) -> Any:
    """The proximal operator of a sum of terms of different entries; on the host where w is."""
    return np.asarray(_prox(terms, w, step)) if on_host(w, step) else _prox(terms, w, step)


def value_of(terms: tuple[FlatProximal, ...], w: Any) -> Any:
    return np.asarray(_value(terms, w)) if on_host(w) else _value(terms, w)


def places_of(spans: tuple[tuple[int, int], ...]) -> np.ndarray:
    """The entries of the flat vector."""
    return np.concatenate([np.arange(start, stop) for start, stop in spans])


def flat_terms(operator: Any, params: Any) -> list[tuple[Any, tuple[tuple[int, int], ...]]]:
    """The sets of an intersection, one set or one operator, with the spans of the flat vector that they are on."""
    shape, leaves = Shape.of(params), leaf_names(params)
    ends = np.cumsum([0, *(math.prod(s) for s in shape.shapes)])
    found = []
    for each in operator.parts if isinstance(operator, Both) else (operator,):
        for name in each.on or ():
            if name not in [known for known, _ in leaves]:
                known = ", ".join(known for known, _ in leaves)
                raise ValueError(f"a regulariser is on {name!r}, but the parameters are {known}")
        spans = tuple(
            (int(ends[i]), int(ends[i + 1])) for i, (name, _) in enumerate(leaves) if each.on is None or name in each.on
        )
        found.append((each.fitted(shape), spans))
    return found


def _try_out(candidate: Operator, params: Any) -> None:
    """p = prox(x, t) is the minimiser of h(v) + ‖v − x‖²/2t only if that is ‖v − p‖²/2t higher at any v."""
    name, shape = f"fp.prox({candidate.name})", candidate.shape
    assert shape is not None
    try:
        back = jax.eval_shape(candidate.function, params, jax.ShapeDtypeStruct((), jnp.float64))
        height = jax.eval_shape(candidate.height, params)
    except Exception as error:
        why = str(error).partition("\n")[0]
        raise ValueError(f"{name} fails on the parameters: {type(error).__name__}: {why}") from error
    shapes = [jax.tree.map(lambda leaf: tuple(np.shape(leaf)), tree) for tree in (params, back)]
    if shapes[0] != shapes[1] or np.shape(height) != ():
        raise ValueError(
            f"{name} gives shapes {shapes[1]} for parameters {shapes[0]}, and a value of {np.shape(height)}"
        )
    points = np.random.default_rng(0).normal(size=(TRIED, shape.size)) * np.logspace(-1, 1, TRIED)[:, None]

    @jax.jit
    def tried(points: jax.Array, step: jax.Array) -> tuple[jax.Array, jax.Array]:
        to = jax.vmap(lambda x: candidate.prox(x, step))(points)
        return to, jax.vmap(candidate.value)(to)

    for step in (0.1, 1.0):
        to, values = (np.asarray(part) for part in tried(points, np.asarray(step)))
        if not (np.isfinite(to).all() and np.isfinite(values).all()):
            raise ValueError(f"{name} gives NaN or infinite numbers")
        squares = ((to[None] - points[:, None]) ** 2).sum(2) / (2 * step)  # [x, v]
        heights = values[None] + squares
        apart = ((to[None] - to[:, None]) ** 2).sum(2) / (2 * step)
        below = np.diag(heights)[:, None] + apart - heights
        if np.any(below > ROUNDING * (1.0 + np.abs(heights) + apart)):
            raise ValueError(
                f"{name} is not the proximal operator of the value beside it, or that is not convex: it does not minimise "
                "step · h(v) + ‖v − params‖²/2"
            )
