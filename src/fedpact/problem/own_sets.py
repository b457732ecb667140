"""A party's convex set on the flat vector of its parameters."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedpact.problem.parameter_names import leaf_names
from fedpact.problem.sets import AnySet, Both, ConvexSet, in_words
from fedpact.problem.shape import Shape


class OwnSet(eqx.Module):
    """The intersection of sets of disjoint parameters, on the flat vector."""

    parts: tuple[ConvexSet, ...]
    spans: tuple[tuple[tuple[int, int], ...] | None, ...] = eqx.field(static=True)  # of the flat vector

    def project(self, w: jax.Array) -> jax.Array:
        for part, spans in zip(self.parts, self.spans, strict=True):
            if spans is None:
                w = part.project(w)
                continue
            moved = part.project(jnp.concatenate([w[start:stop] for start, stop in spans]))
            taken = 0
            for start, stop in spans:
                w = w.at[start:stop].set(moved[taken : taken + stop - start])
                taken += stop - start
        return w


def on_flat(region: AnySet, params: Any) -> OwnSet:
    """A set on the flat vector of these parameters. Raises ValueError where it does not fit them."""
    shape = Shape.of(params)
    parts = region.parts if isinstance(region, Both) else (region,)
    spans: list[tuple[tuple[int, int], ...] | None] = []
    for part in parts:
        if part.on is None:
            spans.append(None)
            continue
        ends = np.cumsum([0, *(math.prod(s) for s in shape.shapes)])
        named = [name for name, _ in leaf_names(params)]
        for name in part.on:
            if name not in named:
                raise ValueError(f"{in_words(part)} is on {name!r}, but the parameters are {', '.join(named)}")
        spans.append(tuple((int(ends[i]), int(ends[i + 1])) for i, name in enumerate(named) if name in part.on))
    return OwnSet(tuple(part.fitted(shape) for part in parts), tuple(spans))
