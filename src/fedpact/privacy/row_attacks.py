"""Rows of a linear model from Hessians of several rounds, or from gradients of a single row.

Two Hessians are Xᵀ D₁ X and Xᵀ D₂ X with the same rows X and different weights D. Where X has no more rows than columns, the
generalised eigenproblem of the two gives the rows up to a factor each; the bias, whose column is 1, gives the factor. Where it
has more, that holds only of a row that is no combination of the others. The eigenproblem also gives v with v·x = 1 for one row x
and 0 for the others, so Hv is a multiple of x for the Hessian H of every round: by this an attacker, who knows none of the
rows, sorts out most vectors that are none. Some pass (decision 102), and `fp.audit` counts them.
"""

import itertools
from collections.abc import Sequence

import numpy as np

MOST_HESSIANS = 8  # that are paired with each other
RANK = 1e-12  # of the largest eigenvalue: what is below is rounding
SAME = 1e-5  # relative distance of two vectors that are one row
PARALLEL = 1e-4  # relative distance of a vector from the line that it should be on
NOISE = 1e-10  # of ‖H‖‖v‖ is rounding; chosen of six values by looking at true rows, see decision 102
NEAR = 1e-4  # relative distance up to which a row counts as recovered


def from_hessians(hessians: Sequence[np.ndarray], bias: int | None, rows: int) -> np.ndarray:
    """Rows behind Hessians of at least three rounds: (found, d), with a bias of 1; without a bias of length 1, up to sign.

    - `hessians`: (d, d) each.
    - `bias`: the place of the bias among the parameters (None: the model has none).
    - `rows`: how many there are, as the description says: the search ends when that many are found.
    """
    matrices = _spread(hessians, MOST_HESSIANS)
    kept: list[np.ndarray] = []
    for first, second in itertools.combinations(range(len(matrices)), 2):
        if len(kept) >= rows or len(matrices) < 3:
            break
        others = [matrix for place, matrix in enumerate(matrices) if place not in (first, second)]
        vectors = _confirmed(*_pencil(matrices[first], matrices[second]), others)
        for vector in _normalised(vectors, bias):
            if not _known(vector, kept):
                kept.append(vector)
    return np.array(kept)


def _confirmed(vectors: np.ndarray, duals: np.ndarray, others: Sequence[np.ndarray]) -> np.ndarray:
    """Those vectors x whose dual v has Hv parallel to x for the Hessians of all other rounds."""
    good = np.ones(len(vectors), bool)
    for matrix in others:
        scale = np.sqrt(np.maximum(np.diag(matrix), 0.0))
        scale = np.where(scale > 0, scale, 1.0)
        x, image = vectors / scale, duals @ matrix / scale
        along = np.sum(x * image, axis=1) / np.maximum(np.sum(x * x, axis=1), 1e-300)
        off = np.linalg.norm(image - along[:, None] * x, axis=1)
        noise = NOISE * np.linalg.norm(duals * scale, axis=1) * len(matrix)
        good &= off <= PARALLEL * np.linalg.norm(image, axis=1) + noise
    return vectors[good]


def from_gradients(gradients: Sequence[np.ndarray], bias: int | None) -> np.ndarray:
    """The row behind gradients of one function of one row, of at least two rounds: all are multiples of it."""
    moving = [gradient for gradient in gradients if np.linalg.norm(gradient) > 0]
    vectors = _normalised(np.array(moving).reshape(len(moving), -1), bias) if moving else np.zeros((0, 0))
    if len(vectors) < 2 or not all(_near(vector, vectors[0], SAME) for vector in vectors):
        return vectors[:0]
    return vectors[:1]


def joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """All rows that were found, each once."""
    kept: list[np.ndarray] = []
    for row in itertools.chain(*parts):
        if not _known(row, kept):
            kept.append(row)
    return np.array(kept)


def matched(found: np.ndarray, truth: np.ndarray, bias: int | None) -> np.ndarray:
    """For each true row, the place of a found one within NEAR of it; −1 where there is none. Without a bias: up to a factor."""
    places = np.full(len(truth), -1)
    truth = truth if bias is not None else _normalised(truth, None)
    for place, row in enumerate(truth):
        distances = np.linalg.norm(found - row, axis=1) if len(found) else np.zeros(0)
        if bias is None and len(found):
            distances = np.minimum(distances, np.linalg.norm(found + row, axis=1))
        if distances.size and distances.min() <= NEAR * np.linalg.norm(row):
            places[place] = int(np.argmin(distances))
    return places


def _pencil(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vectors z_r with first + second = Σ z_r z_rᵀ and second = Σ λ_r z_r z_rᵀ, and their duals v_r with v_r·z_s = 0 for others;
    none where these are no sums of squares."""
    both = first + second
    scale = np.sqrt(np.maximum(np.diag(both), 0.0))
    scale = np.where(scale > 0, scale, 1.0)
    both, second = (matrix / scale[:, None] / scale for matrix in (both, second))
    sizes, basis = np.linalg.eigh(both)
    kept = sizes > RANK * sizes[-1]
    if sizes[-1] <= 0 or sizes[0] < -1e-9 * sizes[-1] or not kept.any():
        return np.zeros((0, len(first))), np.zeros((0, len(first)))
    root = basis[:, kept] * np.sqrt(sizes[kept])  # both = root rootᵀ
    inverse = basis[:, kept] / np.sqrt(sizes[kept])
    _, turned = np.linalg.eigh(inverse.T @ second @ inverse)
    return (root @ turned).T * scale, (inverse @ turned).T / scale


def _normalised(vectors: np.ndarray, bias: int | None) -> np.ndarray:
    """With a bias of 1; without one of length 1. Vectors that have no part of it are left out."""
    if not len(vectors):
        return vectors
    length = np.linalg.norm(vectors, axis=1)
    if bias is None:
        return vectors[length > 0] / length[length > 0, None]
    there = np.abs(vectors[:, bias]) > 1e-9 * length
    return vectors[there] / vectors[there, bias][:, None]


def _near(a: np.ndarray, b: np.ndarray, within: float) -> bool:
    return bool(min(np.linalg.norm(a - b), np.linalg.norm(a + b)) <= within * np.linalg.norm(b))


def _known(vector: np.ndarray, others: Sequence[np.ndarray]) -> bool:
    if not len(others):
        return False
    stack = np.asarray(others)
    distance = np.minimum(np.linalg.norm(stack - vector, axis=1), np.linalg.norm(stack + vector, axis=1))
    return bool((distance <= SAME * np.linalg.norm(vector)).any())


def _spread(matrices: Sequence[np.ndarray], most: int) -> list[np.ndarray]:
    """At most so many, from the first to the last."""
    places = np.unique(np.linspace(0, len(matrices) - 1, min(most, len(matrices))).round().astype(int))
    return [matrices[place] for place in places] if len(matrices) else []
