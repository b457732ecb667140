"""Scores and decided labels: which rule a problem has, and that results follow it."""

import dataclasses
from typing import Any

import numpy as np
import pytest

import fedpact as fp
from fedpact.problem.decision_rule import DecisionRule

LINEAR = fp.linear()
COUNTED = fp.mean(fp.decisions(LINEAR, threshold=0.5))
LOGISTIC = DecisionRule(0.0, (0, 1), probabilities="logistic")
RULES: dict[str, tuple[fp.Problem, DecisionRule]] = {
    "logistic": (fp.minimize(fp.mean(fp.logistic_loss(LINEAR))), LOGISTIC),
    "labels": (fp.minimize(fp.mean(fp.smoothed_hinge_loss(LINEAR, labels=(-1, 1)))), DecisionRule(0.0, (-1, 1))),
    "one threshold": (
        fp.minimize(fp.mean(fp.logistic_loss(LINEAR)), [COUNTED <= 0.3]),
        DecisionRule(0.5, (0, 1), probabilities="logistic"),
    ),
    "two thresholds": (
        fp.minimize(fp.mean(fp.logistic_loss(LINEAR)), [COUNTED <= 0.3, fp.mean(fp.decisions(LINEAR, 1.0)) <= 0.2]),
        LOGISTIC,
    ),
    "smooth rates decide nothing": (
        fp.minimize(fp.mean(fp.logistic_loss(LINEAR)), [fp.mean(fp.positive_rate(LINEAR)) <= 0.3]),
        LOGISTIC,
    ),
    "decisions alone": (fp.minimize(fp.mean(fp.squared_loss(LINEAR)), [COUNTED <= 0.3]), DecisionRule(0.5, (0, 1))),
    "softmax": (
        fp.minimize(fp.mean(fp.softmax_loss(fp.linear(outputs=3)))),
        DecisionRule(by_class=True, probabilities="softmax"),
    ),
    "decisions for a class": (
        fp.minimize(fp.value(fp.squared_norm), [fp.mean(fp.decisions(fp.linear(outputs=3), label=2)) <= 0.3]),
        DecisionRule(by_class=True),
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_the_rule_of_a_problem(name: str) -> None:
    problem, wanted = RULES[name]
    assert DecisionRule.of(problem) == wanted
    if not wanted.by_class:
        assert DecisionRule.of(problem, -0.25) == dataclasses.replace(wanted, threshold=-0.25)


def test_labels_keep_their_type_and_the_threshold_itself_is_negative() -> None:
    decided = DecisionRule(0.5, (-1, 1))(np.array([0.5, 0.6, -3.0]))
    assert decided.dtype.kind == "i"
    assert decided.tolist() == [-1, 1, -1]
    classes = DecisionRule(by_class=True)(np.array([[0.1, 0.3, 0.2], [5.0, 1.0, 5.0]]))
    assert classes.tolist() == [1, 0]


def test_regression_decides_nothing() -> None:
    with pytest.raises(ValueError, match=r"use result\.scores"):
        DecisionRule.of(fp.minimize(fp.mean(fp.squared_loss(LINEAR))))


def test_results_predict_labels() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    rows = fp.Table(x=x, y=np.where(x[:, 0] + rng.normal(size=60) > 0, 2, 1))
    loss = fp.logistic_loss(fp.linear(bias=True), labels=(1, 2))
    parties: Any = fp.split_rows(rows, parties=2)
    result = fp.solve(fp.minimize(fp.mean(loss), regularizer=fp.l2(0.1)), parties, max_rounds=5)
    scores = x @ result.params["w"] + result.params["b"]
    np.testing.assert_allclose(result.scores(rows), scores, atol=1e-12)
    np.testing.assert_array_equal(result.predict(rows), np.where(scores > 0, 2, 1))
    shifted = dataclasses.replace(result, threshold=0.4)
    np.testing.assert_array_equal(shifted.predict(rows), np.where(scores > 0.4, 2, 1))
    with pytest.raises(ValueError, match="leave party= out"):
        result.predict(rows, party="party 1")
