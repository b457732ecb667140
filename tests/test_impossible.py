"""Constraints that no parameters meet, by the ranges of rates and losses: said at once, and confirmed by `fp.verify`."""

import pathlib

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import fedpact as fp
from fedpact.problem.infeasibility import least_violation

SCORES = fp.linear(bias=True)
LOSS, SMOOTH, COUNTED = fp.logistic_loss(SCORES), fp.positive_rate(SCORES), fp.decisions(SCORES)
OF_NETWORK = fp.logistic_loss(fp.mlp([2, 3, 1]))
FOUND, ALARMS = fp.col("y") == 1, fp.col("y") == 0


def parties(seed: int = 0) -> fp.Parties:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(60, 2))
    return fp.split_rows(fp.Table(x=x, y=(x[:, 0] + 0.5 * rng.normal(size=60) > 0).astype(int)), parties=3, seed=0)


@pytest.mark.parametrize(
    ("model", "constraint"),
    [
        ("linear", fp.mean(SMOOTH, where=FOUND) >= 95),  # in per cent
        ("linear", fp.mean(COUNTED, where=FOUND).pooled() >= 1.01),
        ("linear", 1e-6 * fp.mean(SMOOTH, where=ALARMS) <= -1e-7),
        ("linear", fp.mean(SMOOTH) == 1.2),
        ("linear", fp.mean(SMOOTH, where=FOUND) - fp.mean(SMOOTH, where=ALARMS) >= 1.1),
        ("network", fp.mean(OF_NETWORK) <= -0.1),
    ],
    ids=str,
)
def test_what_no_parameters_meet_is_said_at_once(model: str, constraint: fp.Constraint, tmp_path: pathlib.Path) -> None:
    objective = fp.mean(LOSS if model == "linear" else OF_NETWORK)
    problem = fp.minimize(objective, [(objective <= 5.0).named("met"), constraint.named("never")], fp.l2(1e-3))
    result = fp.solve(problem, parties(), save=tmp_path)
    assert (result.status, result.rounds) == ("infeasible", 0)
    assert "'never' (wanted" in result.message
    assert "'met'" not in result.message
    assert not result.certificate.holds(1e-4)
    check = fp.verify(tmp_path, problem, parties())
    assert check.infeasible
    assert check.impossible == ("never",)
    assert "no parameters meet 'never'" in str(check)


@pytest.mark.parametrize("method", [fp.ProxAL(), fp.InteriorPoint()], ids=["ProxAL", "InteriorPoint"])
def test_convex_ones_keep_their_proof(method: fp.Algorithm) -> None:
    """A loss of a linear model below zero: the method finds the least violated parameters and a proof."""
    problem = fp.minimize(fp.mean(LOSS), [(fp.mean(LOSS) <= -0.1).named("never")], fp.l2(1e-3))
    result = fp.solve(problem, parties(), method)
    assert result.status == "infeasible"
    assert result.rounds > 0


@pytest.mark.parametrize(
    "constraint",
    [
        fp.mean(SMOOTH, where=FOUND) >= 1,
        fp.mean(COUNTED) >= 0,
        fp.mean(SMOOTH) >= 0.9,
        fp.value(lambda p, r: p.sum()) <= -9,
    ],
    ids=str,
)
def test_what_may_be_met_is_left_to_the_method(constraint: fp.Constraint) -> None:
    assert least_violation(constraint) == 0.0


@hypothesis.given(
    st.lists(st.floats(-5, 5), min_size=3, max_size=3),
    st.lists(st.floats(-2, 2), min_size=3, max_size=3),
    st.floats(-2, 2),
    st.sampled_from(["<=", ">=", "=="]),
)
def test_no_parameters_violate_less(w: list[float], factors: list[float], bound: float, kind: str) -> None:
    functions = (SMOOTH, LOSS, fp.squared_loss(SCORES))
    expression = fp.mean(SMOOTH) + sum(f * fp.mean(g) for f, g in zip(factors, functions, strict=True))
    constraint = {"<=": expression <= bound, ">=": expression >= bound, "==": expression == bound}[kind]
    params = {"w": np.array(w[:2]), "b": np.array(w[2])}
    rows = {"x": np.array([[1.0, -2.0], [0.3, 0.1]]), "y": np.array([0, 1])}
    means = [float(np.mean(g(params, rows))) for g in functions]
    excess = means[0] + float(np.dot(factors, means)) - bound
    violation = {"<=": max(excess, 0.0), ">=": max(-excess, 0.0), "==": abs(excess)}[kind]
    assert violation >= least_violation(constraint) - 1e-9
