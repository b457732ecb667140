"""Minimising at home."""

import numpy as np

from fedpact.algorithms.parts.descent import minimise
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
