"""Minimising at home."""

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np

from fedpact.algorithms.parts.descent import FLAT, Walk, absolute, forward, minimise, positive_solve, shortened
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


def test_a_matrix_that_is_singular_but_for_rounding_has_a_finite_step() -> None:
    """A sharp penalty on one limit: eigenvalues of 0.9, 16 and 3e17, which a Cholesky factor takes for positive."""
    slope = np.array([421583735603.94055, -332073075145953.9, 148912797663050.1])
    hessian = np.array(
        [
            slope,
            [-332073075145953.8, 2.615673184809813e17, -1.1729563185785293e17],
            [148912797663050.1, -1.1729563185785291e17, 5.259932828318279e16],
        ]
    )
    gradient = np.array([-3.48716852e05, 2.74677350e08, -1.23174613e08])
    with host_arithmetic():
        step = positive_solve(hessian, -gradient)
    assert np.all(np.isfinite(step))
    assert gradient @ step < 0


def test_a_positive_definite_matrix_stays_as_it_is() -> None:
    hessian = np.array([[2.0, 1.0], [1.0, 3.0]])
    with host_arithmetic():
        assert absolute(hessian) is hessian


@hypothesis.given(st.floats(0.02, 0.9), st.floats(1e-3, 1e3))
def test_a_step_too_long_is_cut_to_the_least_value_of_a_quartic(least: float, weight: float) -> None:
    """φ(s) = weight (s² − least²)², which falls from its start to `least`: both ends and the far one's curvature tell all."""
    point = np.zeros(1)

    def phi(s: float) -> tuple[float, float, float]:
        return (
            weight * (s**2 - least**2) ** 2 - s,
            4 * weight * s * (s**2 - least**2) - 1,
            weight * (12 * s**2 - 4 * least**2),
        )

    walk = forward(point, np.array(phi(0.0)[0]), np.array(1.0), point + 1.0, np.array(phi(0.0)[1]))
    value, slope, curvature = phi(1.0)
    with host_arithmetic():
        cut: Walk = shortened(walk, np.array(value), np.array(slope), np.array(curvature))
    lengths = 0.95 ** np.arange(1.0, 80.0)
    best = lengths[np.argmin([phi(s)[0] for s in lengths])]
    np.testing.assert_allclose(cut.step, best, rtol=0.06)
    np.testing.assert_allclose(cut.trial, point + cut.step, rtol=1e-12)
