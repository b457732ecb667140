"""Newton's step where what keeps rounding out of a matrix is as large as the curvature along some directions."""

import jax
import numpy as np
import pytest

import fedpact as fp
from fedpact.algorithms.interior_point.steps import SINGULAR, Model, newton_step
from fedpact.arrays import host_arithmetic


def model_of(hessian: np.ndarray, gradient: np.ndarray, objective: float = 1.0, convex: bool = True) -> Model:
    return Model(np.asarray(objective), gradient, gradient, 0.0 * gradient, hessian, np.asarray(convex))


def stiff(flat: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A matrix with entries of 1e7, as of a limit that is met; curvature `flat` along a direction; and the direction."""
    turn, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))
    sizes = np.array([4e7, 1.0, 1.0, flat])
    hessian = turn @ np.diag(sizes) @ turn.T
    return 0.5 * (hessian + hessian.T), turn, sizes


@pytest.mark.parametrize("compiled", [False, True])
def test_a_flat_direction_is_gone_along_to_the_end(compiled: bool) -> None:
    hessian, turn, sizes = stiff(2e-7)
    gradient = turn @ np.array([0.0, 1e-4, 1e-4, 1e-5])
    added = SINGULAR * float(np.diag(hessian).mean())
    assert added > 0.3 * sizes[-1]  # so a plain step falls short by a third
    h = fp.l2(0.0).flat(np.zeros(4))
    with host_arithmetic(), jax.enable_x64(True):
        step = (jax.jit(newton_step) if compiled else newton_step)(np.zeros(4), model_of(hessian, gradient), np.inf, h)
    wanted = -(turn.T @ gradient) / sizes
    found = turn.T @ np.asarray(step.direction)
    np.testing.assert_allclose(found[1:], wanted[1:], rtol=0.05)
