"""Regularisers by their proximal operator, and sets, for the model that all parties share."""

from typing import Any

import cvxpy as cp
import jax.numpy as jnp
import numpy as np
import pytest

import fedpact as fp

D = 4
rng = np.random.default_rng(0)
X = rng.normal(size=(2, 20, D)) * np.array([1.0, 3.0, 0.3, 1.0])
Y = np.einsum("ind,d->in", X, [1.5, -1.0, 0.5, 0.2]) + 0.3 * rng.normal(size=(2, 20))
TABLES = [fp.Table(x=x, y=y) for x, y in zip(X, Y, strict=True)]
LOSS = fp.mean(fp.squared_loss(fp.linear()))
METHODS = {
    "InteriorPoint": fp.InteriorPoint(),
    "Newton": fp.ProxAL(fp.Newton()),
    "LBFGS": fp.ProxAL(fp.LBFGS()),
    "ADMM": fp.ProxAL(fp.ADMM()),
}


def shrunk(w: Any, step: Any) -> Any:
    """The proximal operator of 0.4 ‖w‖₂."""
    return w * jnp.maximum(1.0 - 0.4 * step / jnp.maximum(jnp.linalg.norm(w), 1e-30), 0.0)


NORM = fp.prox(shrunk, lambda w: 0.4 * jnp.linalg.norm(w), on="w")
A = np.array([[1.0, 1.0, 1.0, 1.0], [1.0, -1.0, 0.0, 0.0]])
CASES: dict[str, tuple[Any, Any]] = {
    "norm": (NORM, lambda w: (0.4 * cp.norm(w), [])),
    "norm and l2": (NORM + fp.l2(0.3), lambda w: (0.4 * cp.norm(w) + 0.3 * cp.sum_squares(w), [])),
    "l1 ball": (fp.sets.l1_ball(1.2), lambda w: (0, [cp.norm1(w) <= 1.2])),
    "l2 ball": (fp.l2(0.1) + fp.sets.l2_ball(0.7), lambda w: (0.1 * cp.sum_squares(w), [cp.norm(w) <= 0.7])),
    "simplex": (fp.sets.simplex(2), lambda w: (0, [w >= 0, cp.sum(w) == 2])),
    "affine": (fp.sets.affine(A, [0.5, 1.0]), lambda w: (0, [A @ w == [0.5, 1.0]])),
    "halfspace": (fp.sets.halfspace([1, 2, 0, 1], -1), lambda w: (0, [w @ [1, 2, 0, 1] <= -1])),
    "ball in cone": (fp.sets.nonnegative() & fp.sets.l2_ball(0.6), lambda w: (0, [w >= 0, cp.norm(w) <= 0.6])),
    "box": (fp.sets.box([-1, -1, 0, 0], 0.8), lambda w: (0, [w >= [-1, -1, 0, 0], w <= 0.8])),
}


def exact(case: str, limit: float | None) -> tuple[np.ndarray, float]:
    w = cp.Variable(D)
    losses = [cp.sum_squares(x @ w - y) / (2 * len(y)) for x, y in zip(X, Y, strict=True)]
    h, within = CASES[case][1](w)
    limits = [] if limit is None else [loss <= limit for loss in losses]
    problem = cp.Problem(cp.Minimize(sum(losses) / 2 + h), within + limits)
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    return np.asarray(w.value), float(problem.value)


@pytest.mark.parametrize("case", list(CASES))
def test_known_solutions(case: str) -> None:
    """By Newton's method, whose server computes on the host."""
    w, least = exact(case, None)
    found = fp.solve(fp.minimize(LOSS, regularizer=CASES[case][0]), TABLES, METHODS["InteriorPoint"], tolerance=1e-8)
    assert found.converged, found.message
    np.testing.assert_allclose(found.params["w"], w, rtol=0, atol=1e-4)  # as accurate as the other solver is
    assert found.objective == pytest.approx(least, abs=1e-7)
    assert found.certificate.feasibility <= 1e-8


@pytest.mark.parametrize(
    ("case", "name"), [("norm", "InteriorPoint"), ("norm", "ADMM"), ("l1 ball", "Newton"), ("l1 ball", "LBFGS")]
)
def test_under_a_constraint(case: str, name: str) -> None:
    """A bound that the party with the larger loss meets at the cost of the other's."""
    free = np.einsum("ind,d->in", X, exact(case, None)[0]) - Y
    limit = {"norm": 0.97, "l1 ball": 0.999}[case] * float((free**2).mean(1).max()) / 2
    w, least = exact(case, limit)
    limits = [(LOSS <= limit).named("loss")]  # noqa: SIM300
    problem = fp.minimize(LOSS, limits, regularizer=CASES[case][0])
    found = fp.solve(problem, TABLES, METHODS[name], tolerance=1e-6)
    assert found.converged, found.message
    assert max(found.constraint("loss").multipliers) > 1e-3
    np.testing.assert_allclose(found.params["w"], w, rtol=0, atol=1e-3)
    assert found.objective == pytest.approx(least, abs=1e-5)


def test_first_order_methods() -> None:
    """With all rows in a batch, SSCA and PrimalDual find the same point."""
    w, least = exact("l1 ball", None)
    problem = fp.minimize(LOSS, regularizer=CASES["l1 ball"][0])
    for method in (fp.SSCA(batch=20, rho=1, gamma=1, tau=5, measure=None), fp.PrimalDual(rounds=500, average=False)):
        found = fp.solve(problem, TABLES, method, tolerance=1e-5, max_rounds=500)
        np.testing.assert_allclose(found.params["w"], w, rtol=0, atol=1e-3)
        assert found.certificate.feasibility <= 1e-12
        assert found.objective == pytest.approx(least, abs=1e-4)


def test_the_certificate_is_of_its_own() -> None:
    """r = w − prox(w − g) at a point that is not optimal, and the distance from the set of one outside it."""
    problem, start = fp.minimize(LOSS, regularizer=fp.sets.l2_ball(1)), {"w": np.array([3.0, 0, 0, 0])}
    found = fp.solve(problem, TABLES, fp.ProxAL.as_printed(), start=start, max_rounds=1, scale=False)
    w = found.params["w"]
    np.testing.assert_allclose(w, [1, 0, 0, 0], atol=1e-12)  # w⁰ is brought into the set
    g = np.mean([x.T @ (x @ w - y) / len(y) for x, y in zip(X, Y, strict=True)], axis=0)
    onward = (w - g) / max(np.linalg.norm(w - g), 1)
    assert found.certificate.stationarity == pytest.approx(np.abs(w - onward).max(), rel=1e-9)
    flat: Any = problem.regularizer.flat({"w": np.zeros(D)})
    assert float(flat.outside(np.array([0.0, 5.0, 0, 0]))) == pytest.approx(4)


def test_it_is_printed() -> None:
    text = str(fp.minimize(LOSS, regularizer=NORM + fp.sets.l1_ball(2, on="b")))
    assert "h(params[w]) of shrunk" in text
    assert "s.t. params[b] in L1Ball" in text


def _kinked(w: Any, step: Any) -> Any:
    return jnp.where(jnp.abs(w) > 2 * step, w, 0.0)  # of a multiple of ‖w‖₀, which is not convex


@pytest.mark.parametrize(
    ("regularizer", "words"),
    [
        (lambda: fp.prox(lambda w, step: w / (1 + step), lambda w: jnp.sum(w**2), "w"), "not the proximal operator"),
        (lambda: fp.prox(_kinked, lambda w: jnp.sum(w != 0, dtype=float), "w"), "not convex"),
        (lambda: fp.prox(lambda p, step: p["w"], lambda p: 0.0), "gives shapes"),
        (lambda: fp.prox(lambda w, step: w["v"], lambda w: 0.0), "fails on the parameters"),
        (lambda: fp.prox(shrunk, lambda w: 0.0, on="v"), "on 'v', but the parameters are w"),
        (lambda: NORM + fp.l1(0.1), "overlaps another term"),
        (lambda: fp.sets.l1_ball(1) + fp.box(0, 1), "overlaps another term"),
        (lambda: fp.l2(1) + fp.sets.box(0, 1) + fp.sets.box(2, 3), "no point in common"),
        (lambda: fp.l2(1) + 3, "not to 3"),
        (lambda: fp.prox(shrunk, value=3), "two functions"),
    ],
)
def test_what_is_refused(regularizer: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        fp.solve(fp.minimize(LOSS, regularizer=regularizer()), TABLES)


def test_other_methods_say_that_they_take_none() -> None:
    for method in (fp.FedAvg(), fp.FedSGD(batch=4, step=0.1), fp.SCAFFOLD()):
        with pytest.raises(ValueError, match=f"{type(method).__name__} takes no regulariser but"):
            fp.solve(fp.minimize(LOSS, regularizer=fp.sets.simplex(1)), TABLES, method)
