"""The flat vector of a tree of parameters, and back."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class Shape:
    """The tree structure and array shapes of parameters, to flatten and restore them."""

    tree: Any
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, params: Any) -> "Shape":
        leaves, tree = jax.tree.flatten(params)
        return cls(tree, tuple(np.shape(leaf) for leaf in leaves))

    @property
    def size(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes)

    def specs(self) -> Any:
        """The tree with `jax.ShapeDtypeStruct` in place of arrays."""
        return jax.tree.unflatten(self.tree, [jax.ShapeDtypeStruct(shape, jnp.float64) for shape in self.shapes])

    def ravel(self, params: Any) -> np.ndarray:
        return np.concatenate([np.zeros(0), *(np.ravel(np.asarray(leaf, float)) for leaf in jax.tree.leaves(params))])

    def unravel(self, w: Any) -> Any:
        leaves, start = [], 0
        for shape in self.shapes:
            stop = start + math.prod(shape)
            leaves.append(w[start:stop].reshape(shape))
            start = stop
        return jax.tree.unflatten(self.tree, leaves)
