"""Symmetric matrices: as they travel, and as sums of outer products that stay apart until all parties' are added up."""

import dataclasses
import functools

import jax
import numpy as np

from fedpact.arrays import xp
from fedpact.records import Addend, Record

TALL = 5_000  # rows of a matrix that a GPU multiplies in one piece


def packed(matrix: jax.Array) -> jax.Array:
    """The upper triangle of a symmetric matrix, row by row: what travels is d(d+1)/2 numbers."""
    return matrix[_triangle(matrix.shape[0])]


def unpacked(triangle: jax.Array, size: int) -> jax.Array:
    """The symmetric matrix behind its upper triangle."""
    return triangle[_places(size)]


@functools.lru_cache(maxsize=8)
def _triangle(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the entries of an upper triangle."""
    return np.triu_indices(size)


@functools.lru_cache(maxsize=8)
def _places(size: int) -> np.ndarray:
    """Where each entry of a symmetric matrix stands in its upper triangle."""
    places = np.zeros((size, size), int)
    places[_triangle(size)] = np.arange(size * (size + 1) // 2)
    return np.maximum(places, places.T)


def _pieces(rows: int) -> int:
    """In how many pieces of equal size a GPU multiplies so many rows: XLA copies a tall matrix before it multiplies it."""
    return next((rows // size for size in range(TALL, TALL // 8, -1) if rows % size == 0), 1) if rows > TALL else 1


class OuterProducts(Record):
    """Σ_r weights_r (scale · rows_r)(scale · rows_r)ᵀ."""

    rows: jax.Array  # (rows, d)
    weights: jax.Array  # (rows,)
    scale: jax.Array | None = None  # (d,), the same at all parties

    def matrix(self) -> jax.Array:
        pieces = _pieces(len(self.rows)) if jax.default_backend() == "gpu" else 1
        if pieces == 1:
            inside = self.rows.T @ (self.weights[:, None] * self.rows)
        else:
            rows = self.rows.reshape(pieces, -1, self.rows.shape[1])
            inside = (rows.swapaxes(1, 2) @ (self.weights.reshape(pieces, -1, 1) * rows)).sum(0)
        return inside if self.scale is None else self.scale[:, None] * inside * self.scale

    def diagonal(self) -> jax.Array:
        inside = self.weights @ self.rows**2
        return inside if self.scale is None else self.scale**2 * inside

    def in_units(self, scale: jax.Array) -> "OuterProducts":
        return dataclasses.replace(self, scale=scale if self.scale is None else scale * self.scale)

    def of_all(self) -> "OuterProducts":
        """From products stacked along a leading party axis to their sum."""
        scale = None if self.scale is None else self.scale[0]
        return OuterProducts(self.rows.reshape(-1, self.rows.shape[-1]), self.weights.reshape(-1), scale)


class SymmetricSum(Addend):
    """A symmetric matrix in parts. What a party sends is its upper triangle; parties of one process need one product for all."""

    products: tuple[OuterProducts, ...]
    rest: jax.Array | None  # (d, d)

    def plus(self, rows: jax.Array, weights: jax.Array) -> "SymmetricSum":
        """With Σ_r weights_r rows_r rows_rᵀ."""
        return dataclasses.replace(self, products=(*self.products, OuterProducts(rows, weights)))

    def in_units(self, scale: jax.Array) -> "SymmetricSum":
        """SMS with S = diag(scale)."""
        rest = None if self.rest is None else scale[:, None] * self.rest * scale
        return SymmetricSum(tuple(part.in_units(scale) for part in self.products), rest)

    def matrix(self) -> jax.Array:
        parts = [part.matrix() for part in self.products] + ([] if self.rest is None else [self.rest])
        return sum(parts[1:], parts[0])

    def diagonal(self) -> jax.Array:
        parts = [part.diagonal() for part in self.products] + ([] if self.rest is None else [xp.diag(self.rest)])
        return sum(parts[1:], parts[0])

    def alone(self) -> jax.Array:
        return packed(self.matrix())

    def of_all(self) -> jax.Array:
        rest = None if self.rest is None else self.rest.sum(0)
        return SymmetricSum(tuple(part.of_all() for part in self.products), rest).alone()
