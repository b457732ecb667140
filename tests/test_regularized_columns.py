"""l1, box and group over columns: every party evaluates its own part."""

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from columns import FEATURES, LOSS, PARTIES, TABLE, fair, flat

import fedpact as fp

X, Y = np.asarray(TABLE["x"], float), np.asarray(TABLE["y"], float)
POSITIVE = [(Y > 0) & (np.asarray(TABLE["sex"]) == group) for group in (0, 1)]
CASES: dict[str, tuple[Any, Any]] = {
    "l1": (fp.l1(0.05) + fp.l2(0.01), lambda w: (0.05 * cp.norm1(w) + 0.01 * cp.sum_squares(w), [])),
    "box": (fp.box(-0.1, 0.4), lambda w: (0, [w >= -0.1, w <= 0.4])),
    "group": (fp.group(0.05), lambda w: (0.05 * cp.norm1(w), [])),  # linear bottoms: one number for each feature
}
METHODS: dict[str, fp.Algorithm] = {
    "SSCA": fp.SSCA(batch=80, rho=1, gamma=1, tau=0.6, measure=None),
    "FedBCD": fp.FedBCD(local_steps=1, step=0.7),
}


def exact(case: str) -> tuple[np.ndarray, float]:
    w = cp.Variable(5)
    h, within = CASES[case][1](w)
    problem = cp.Problem(cp.Minimize(cp.sum(cp.logistic(cp.multiply(-Y, X @ w))) / len(Y) + h), within)
    problem.solve(solver=cp.CLARABEL)
    return np.asarray(w.value), float(problem.value)


@pytest.mark.parametrize(("case", "name"), [("l1", "SSCA"), ("box", "FedBCD"), ("group", "SSCA")])
def test_known_solutions(case: str, name: str) -> None:
    w, least = exact(case)
    problem = fp.minimize(fp.mean(LOSS), regularizer=CASES[case][0])
    found = fp.solve(problem, PARTIES, METHODS[name], tolerance=1e-7, max_rounds=2000)
    assert found.converged, found.message
    np.testing.assert_allclose(flat(found), w, rtol=0, atol=1e-4)
    assert found.objective == pytest.approx(least, abs=1e-6)
    assert found.history["objective"][-1] == pytest.approx(found.objective, abs=1e-6)
    assert (found.certificate.stationarity, found.certificate.feasibility) <= (1e-7, 1e-12)


def test_under_a_constraint() -> None:
    """FairVFL with a step of its own, against the optimality conditions by hand."""
    problem = fp.minimize(fp.mean(LOSS), list(fair(0.05).constraints), fp.l1(0.02))
    method = fp.FairVFL(step=0.3, rho=1, dual_step=0.5, local_steps=1)
    found = fp.solve(problem, PARTIES, method, tolerance=1e-5, max_rounds=5000)
    assert found.converged, found.message
    w, (above, below) = flat(found), found.certificate.pooled_multipliers
    a, b = POSITIVE
    weight = 1 / len(Y) + (above - below) * (a / a.sum() - b / b.sum())
    slope = X.T @ (weight * -Y / (1 + np.exp(Y * (X @ w))))
    left = np.where(w != 0, np.abs(slope + 0.02 * np.sign(w)), np.maximum(np.abs(slope) - 0.02, 0))
    assert left.max() <= 2e-5
    assert found.certificate.stationarity == pytest.approx(left.max(), rel=1e-6)
    assert max(above, below) > 1e-2


def test_the_start_is_brought_into_the_box() -> None:
    start: Any = {name: {"w": np.full(len(places), 3.0)} for name, places in FEATURES.items()}
    problem = fp.minimize(fp.mean(LOSS), regularizer=fp.box(-1, 0.5))
    found = fp.solve(problem, PARTIES, fp.FedBCD(step=1e-9), start=start, max_rounds=1)
    np.testing.assert_allclose(flat(found), 0.5, atol=1e-6)


@pytest.mark.parametrize(
    ("method", "regularizer", "words"),
    [
        (
            fp.FairVFL(),
            fp.l1(0.1),
            r"FairVFL takes fp.l1, fp.box and fp.group with a step of its own only: FairVFL\(step",
        ),
        (fp.FedBCD(), fp.l1(0.1), "FedBCD takes fp.l1, fp.box and fp.group with a step"),
        (fp.FedSGD(batch=8, step=0.1), fp.l1(0.1), "FedSGD takes no regulariser but"),
        (None, fp.l1(0.1), "FairVFL takes fp.l1"),
        (METHODS["SSCA"], fp.sets.l1_ball(1), "would join the parameters of several parties"),
        (METHODS["SSCA"], fp.l2(0.1, on="w"), "leave on= out"),
        (METHODS["SSCA"], fp.group(0.1, [[0, 1]]), "leave groups= out"),
        (METHODS["SSCA"], fp.l1(0.1, on="v"), "on 'v', but the parameters are w"),
    ],
)
def test_what_is_refused(method: Any, regularizer: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fp.solve(fp.minimize(fp.mean(LOSS), regularizer=regularizer), PARTIES, method)


def test_ssca_under_constraints_takes_none() -> None:
    with pytest.raises(ValueError, match="SSCA under constraints takes no regulariser but"):
        fp.solve(fp.minimize(fp.mean(LOSS), list(fair().constraints), fp.l1(0.1)), PARTIES, METHODS["SSCA"])
