"""Minimising at home."""

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np

from fedpact.algorithms.parts.descent import FLAT, absolute, minimise
from fedpact.arrays import host_arithmetic


def test_a_tolerance_below_rounding_does_not_cost_a_hundred_turns() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(5, 5))
    hessian, pull = 1e6 * (root @ root.T + np.eye(5)), 1e9 * rng.normal(size=5)
    evaluated = []

    def evaluate(v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        evaluated.append(v)
        return 0.5 * v @ hessian @ v - pull @ v, hessian @ v - pull

    def target(v: np.ndarray, gradient: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        step = np.linalg.solve(hessian, -gradient)
        return v + step, gradient @ step

    with host_arithmetic():
        found, residual = minimise(evaluate, target, None, np.zeros(5), np.array(1e-12))
    np.testing.assert_allclose(found, np.linalg.solve(hessian, pull), rtol=1e-12)
    assert 1e-12 < residual < 1e-5
    assert len(evaluated) <= 10


@hypothesis.given(st.integers(0, 10_000), st.integers(1, 6), st.floats(-1.0, 1.0))
def test_curvature_of_either_sign_counts_as_much(seed: int, size: int, shift: float) -> None:
    """By its definition: |H| is positive and |H|² = H²."""
    root = np.random.default_rng(seed).normal(size=(size, size))
    hessian = 0.5 * (root + root.T) + shift * np.eye(size)
    with host_arithmetic():
        turned = absolute(hessian)
    largest = np.linalg.norm(hessian, 2)
    np.testing.assert_allclose(turned, turned.T, atol=1e-12 * largest)
    np.testing.assert_allclose(turned @ turned, hessian @ hessian, atol=2 * FLAT * largest**2)
    assert np.linalg.eigvalsh(turned)[0] > 0
    with jax.enable_x64(True):
        np.testing.assert_allclose(jax.jit(absolute)(hessian), turned, atol=1e-10 * largest)


def test_a_positive_definite_matrix_stays_as_it_is() -> None:
    hessian = np.array([[2.0, 1.0], [1.0, 3.0]])
    with host_arithmetic():
        assert absolute(hessian) is hessian
