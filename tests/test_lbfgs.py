"""The steps of L-BFGS, against the BFGS formula with a dense matrix."""

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpact.algorithms.prox_al.lbfgs import LBFGS, Pairs
from fedpact.problem.flat_regularizer import FlatRegularizer, Kinks

SIZE, MEMORY = 12, 5
target = jax.jit(LBFGS(MEMORY).target)  # of (memory, w, gradient, hessian, h)


def remembered(rng: np.random.Generator, count: int) -> tuple[Pairs, np.ndarray]:
    """Pairs of a quadratic with curvature from 0.1 to 10, and the matrix that BFGS makes of them."""
    steps = rng.normal(size=(count, SIZE))
    turned, _ = np.linalg.qr(rng.normal(size=(SIZE, SIZE)))
    changes = steps @ (turned * np.geomspace(0.1, 10.0, SIZE)) @ turned.T
    s, y = (np.concatenate([np.zeros((MEMORY - count, SIZE)), lines]) for lines in (steps, changes))
    nothing = jnp.zeros(SIZE)
    matrix = np.eye(SIZE)
    if count:
        matrix *= changes[-1] @ changes[-1] / (steps[-1] @ changes[-1])
    for step, change in zip(steps, changes, strict=True):
        bent = matrix @ step
        matrix = matrix - np.outer(bent, bent) / (step @ bent) + np.outer(change, change) / (change @ step)
    return Pairs(jnp.asarray(s), jnp.asarray(y), nothing, nothing, jnp.asarray(True)), matrix


def regularizer(kinks: Kinks, l1: float = 0.0, bound: float = np.inf) -> FlatRegularizer:
    line = jnp.ones(SIZE)
    group = jnp.full(SIZE, -1)
    return FlatRegularizer(0.0 * line, l1 * line, -bound * line, bound * line, group, jnp.zeros(0), 0, kinks)


@hypothesis.given(st.integers(0, 10_000), st.integers(1, MEMORY))
def test_a_smooth_step_is_that_of_the_dense_matrix(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    memory, matrix = remembered(rng, count)
    w, gradient = rng.normal(size=(2, SIZE))
    found, slope = target(memory, w, gradient, None, regularizer("none"))
    step = np.linalg.solve(matrix, -gradient)
    np.testing.assert_allclose(found, w + step, atol=1e-8 * np.abs(step).max())
    assert slope == pytest.approx(gradient @ step)


@hypothesis.given(st.integers(0, 10_000), st.integers(0, MEMORY), st.floats(0.01, 2.0), st.floats(0.1, 3.0))
def test_with_kinks_it_is_the_minimiser_of_the_model(seed: int, count: int, l1: float, bound: float) -> None:
    """dist∞(0, g + B(v − w) + ∂h(v)), with the dense B: what is asked is a thousandth of that at w."""
    rng = np.random.default_rng(seed)
    memory, matrix = remembered(rng, count)
    w, gradient = np.clip(rng.normal(size=SIZE), -bound, bound), rng.normal(size=SIZE)
    h = regularizer("coordinates", l1, bound)
    found = np.asarray(target(memory, w, gradient, None, h)[0])
    assert np.all(np.abs(found) <= bound)
    if not count:
        matrix = matrix * max(1.0, np.linalg.norm(gradient))
    left = h.distance(found, gradient + matrix @ (found - w))
    assert left <= 1.1e-3 * h.distance(w, gradient) + 1e-12
