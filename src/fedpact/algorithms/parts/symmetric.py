"""Symmetric matrices as they travel: the upper triangle, row by row."""

import jax
import numpy as np


def packed(matrix: jax.Array) -> jax.Array:
    """The upper triangle of a symmetric matrix: what travels is d(d+1)/2 numbers."""
    rows, columns = np.triu_indices(matrix.shape[0])
    return matrix[rows, columns]


def unpacked(triangle: jax.Array, size: int) -> jax.Array:
    """The symmetric matrix behind its upper triangle."""
    place = np.zeros((size, size), int)
    place[np.triu_indices(size)] = np.arange(triangle.size)
    place = np.maximum(place, place.T)
    return triangle[place]
