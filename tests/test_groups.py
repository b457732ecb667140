"""The minimiser of a quadratic plus norms of groups, against an independent solver of second-order cones."""

from typing import Any

import cvxpy
import jax
import numpy as np
import pytest

import fedpact as fp
from fedpact.algorithms.parts.descent import positive_shift
from fedpact.algorithms.parts.groups import group_minimiser
from fedpact.problem.flat_regularizer import FlatRegularizer

KINDS = ("even", "twice", "nearly twice", "stiff")


def case(kind: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, FlatRegularizer]:
    """w, gradient and Hessian of eight parameters in groups, the last one in none."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(60, 8))
    if kind in ("twice", "nearly twice"):
        x[:, 4:] = x[:, :4] + (1e-4 * x[:, 4:] if kind == "nearly twice" else 0.0)
    hessian = 0.2 * x.T @ x / 60
    if kind != "even":
        row = rng.normal(size=60) @ x / 60
        hessian += 10.0 ** rng.uniform(1, 5) * np.outer(row, row)
    gradient = x.T @ rng.normal(size=60) / 60
    start = rng.choice([0.0, 1.0]) * rng.normal(size=8)
    groups = [[0, 1], [2, 3], [4], [5, 6]] if seed % 2 else [[0, 1, 2, 3], [4, 5, 6]]
    h = fp.group(float(10.0 ** rng.uniform(-2.5, -0.7)), groups).flat({"w": np.zeros(8)})
    return start, gradient, np.asarray(positive_shift(hessian)), h


def height(v: Any, w: np.ndarray, gradient: np.ndarray, hessian: np.ndarray, h: FlatRegularizer) -> float:
    return float(gradient @ (v - w) + 0.5 * (v - w) @ hessian @ (v - w) + h.nonsmooth(np.asarray(v)))


def reference(w: np.ndarray, gradient: np.ndarray, hessian: np.ndarray, h: FlatRegularizer) -> np.ndarray:
    values, vectors = np.linalg.eigh(hessian)
    root = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    v = cvxpy.Variable(w.size)
    norms = sum(float(a) * cvxpy.norm(v[np.flatnonzero(np.asarray(h.group) == g)]) for g, a in enumerate(h.weight))
    quadratic = 0.5 * cvxpy.sum_squares(root @ (v - w)) + gradient @ (v - w)
    cvxpy.Problem(cvxpy.Minimize(quadratic + norms)).solve(solver=cvxpy.CLARABEL)
    return np.asarray(v.value)


@pytest.mark.parametrize("seed", range(6))
def test_units_of_a_parameter_in_no_group_do_not_matter(seed: int) -> None:
    w, gradient, hessian, h = case("stiff", seed)
    unit = np.array([1.0] * 7 + [1e-9])
    plain = group_minimiser(w, gradient, hessian, h)
    found = unit * group_minimiser(w / unit, unit * gradient, unit[:, None] * hessian * unit, h)
    np.testing.assert_allclose(found, plain, rtol=1e-4, atol=1e-4 * np.max(np.abs(plain)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_the_minimiser_is_that_of_clarabel(kind: str, seed: int) -> None:
    w, gradient, hessian, h = case(kind, seed)
    found = group_minimiser(w, gradient, hessian, h)
    expected = reference(w, gradient, hessian, h)
    scale = 1.0 + abs(height(expected, w, gradient, hessian, h))
    assert height(found, w, gradient, hessian, h) <= height(expected, w, gradient, hessian, h) + 1e-7 * scale
    assert h.distance(found, gradient + hessian @ (found - w)) <= 1e-7 * (1e-3 + h.distance(w, gradient))


@pytest.mark.parametrize("kind", KINDS)
def test_the_minimiser_is_the_same_compiled(kind: str) -> None:
    w, gradient, hessian, h = case(kind, 3)
    with jax.enable_x64(True):
        compiled = jax.jit(group_minimiser)(w, gradient, hessian, h)
    a, b = (
        height(v, w, gradient, hessian, h) for v in (np.asarray(compiled), group_minimiser(w, gradient, hessian, h))
    )
    assert abs(a - b) <= 1e-9 * (1.0 + abs(b))


def test_groups_that_can_be_dropped_are_zero() -> None:
    """With a weight above every slope nothing is worth its norm."""
    w, gradient, hessian, _ = case("even", 0)
    h = fp.group(10.0, [[0, 1, 2, 3], [4, 5, 6]]).flat({"w": np.zeros(8)})
    found = group_minimiser(w, gradient, hessian, h)
    assert np.all(found[:7] == 0.0)
    assert found[7] != 0.0


@pytest.mark.parametrize("groups", [[[0, 1], [2, 3], [4, 5], [6, 7]], [[0, 1, 2, 3], [4, 5, 6, 7]], [[0, 4], [1, 5]]])
@pytest.mark.parametrize("weight", [0.01, 0.05])
def test_columns_that_occur_twice_are_solved_to_the_eighth_digit(groups: list[list[int]], weight: float) -> None:
    rng = np.random.default_rng(1)
    tables = []
    for _ in range(3):
        z = rng.normal(size=(60, 4))
        y = (z @ [1.0, -1.0, 0.5, 0.0] + rng.normal(size=60) > 0).astype(int)
        tables.append(fp.Table({"x": np.hstack([z, z, np.ones((60, 1))]), "y": y}))
    loss = fp.logistic_loss(fp.linear())
    limit = fp.mean(loss, where=fp.col("y") == 1) <= 0.5
    result = fp.solve(
        fp.minimize(fp.mean(loss), [limit], fp.group(weight, groups)),
        tables,
        tolerance=1e-8,
        max_rounds=40,
        progress=False,
    )
    assert result.converged, result.message
