"""Decisions made fair after training: by hand, against brute force on random scores, and what is refused."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedpact as fp
from fedpact.postprocess import calibrated_equal_opportunity, equal_opportunity

SOLVED = 1e-6  # HiGHS keeps equations to 1e-7


@st.composite
def judged(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores with ties, labels and two groups; every label is in every group."""
    more = draw(st.lists(st.tuples(st.sampled_from([-1, 1]), st.integers(0, 1)), max_size=10))
    labels, groups = np.array([(-1, 0), (1, 0), (-1, 1), (1, 1), *more]).T
    scores = draw(st.lists(st.integers(-4, 4), min_size=len(labels), max_size=len(labels)))
    return np.array(scores) / 2, labels, groups


def rates(chances: np.ndarray, labels: np.ndarray, groups: np.ndarray, label: int) -> list[float]:
    return [float(chances[(labels == label) & (groups == g)].mean()) for g in np.unique(groups)]


def fewest_errors(scores: np.ndarray, positive: np.ndarray, tpr: float) -> float:
    """Of all ways to draw between two thresholds that find this part of the positives."""
    points = []
    for threshold in [np.inf, *np.unique(scores)]:
        told = scores >= threshold
        points.append((told[positive].mean(), told[~positive].sum()))
    least = np.inf
    for (t1, f1), (t2, f2) in itertools.combinations_with_replacement(points, 2):
        low, high = sorted([(t1, f1), (t2, f2)])
        if low[0] - 1e-12 <= tpr <= high[0] + 1e-12:
            part = 0.0 if high[0] == low[0] else (tpr - low[0]) / (high[0] - low[0])
            least = min(least, low[1] + part * (high[1] - low[1]))
    return positive.sum() * (1 - tpr) + least


# equal opportunity


def test_two_small_groups_by_hand():
    scores = np.array([3, 2, 1, 0, 3, 2, 1, 0])
    labels = np.array([1, 1, 0, 0, 1, 0, 1, 0])  # the first group is ranked perfectly, the second has one pair swapped
    groups = np.repeat(["a", "b"], 4)
    fitted = fp.postprocess.equal_opportunity(scores, labels, groups)
    assert fitted.thresholds == {"a": ((2.0, 1.0),), "b": ((1.0, 1.0),)}
    assert fitted.accuracy == pytest.approx(7 / 8)
    assert fitted.true_positive_rates == {"a": 1.0, "b": 1.0}
    assert fitted.false_positive_rates == {"a": 0.0, "b": 0.5}
    np.testing.assert_array_equal(fitted.predict(scores, groups), [1, 1, 0, 0, 1, 1, 1, 0])
    assert str(fitted).splitlines() == [
        "DrawnThresholds: accuracy 0.8750 expected on the 8 rows of the fit",
        "  group 'a': TPR 1.0000, FPR 0.0000; 1 where score >= 2",
        "  group 'b': TPR 1.0000, FPR 0.5000; 1 where score >= 1",
    ]
    odds = equal_opportunity(scores, labels, groups, odds=True)
    assert odds.accuracy == pytest.approx(6 / 8)
    assert odds.true_positive_rates["a"] == pytest.approx(odds.true_positive_rates["b"])
    assert odds.false_positive_rates["a"] == pytest.approx(odds.false_positive_rates["b"])
    assert "probability" in str(odds)


def test_another_positive_turns_the_question_round():
    scores, labels, groups = np.array([3, 2, 1, 0] * 2), np.array([0, 0, 1, 1] * 2), np.repeat([0, 1], 4)
    fitted = equal_opportunity(scores, labels, groups, positive=0)
    np.testing.assert_array_equal(fitted.predict(scores, groups), labels)
    assert fitted.labels == (1, 0)
    assert equal_opportunity(scores, labels, groups).accuracy == 0.5


@given(judged())
def test_positives_are_found_alike_with_the_fewest_errors(data: tuple[np.ndarray, np.ndarray, np.ndarray]):
    scores, labels, groups = data
    fitted = equal_opportunity(scores, labels, groups)
    chances = fitted.chances(scores, groups)
    first, second = rates(chances, labels, groups, 1)
    assert abs(first - second) <= SOLVED
    assert list(fitted.true_positive_rates.values()) == pytest.approx([first, second], abs=1e-12)
    assert list(fitted.false_positive_rates.values()) == pytest.approx(rates(chances, labels, groups, -1), abs=1e-12)
    accuracy = np.where(labels == 1, chances, 1 - chances).mean()
    assert fitted.accuracy == pytest.approx(accuracy, abs=1e-12)
    assert accuracy >= max((labels == 1).mean(), (labels == -1).mean()) - SOLVED
    sides = [(scores[groups == g], (labels == 1)[groups == g]) for g in (0, 1)]
    steps = {k / positive.sum() for _, positive in sides for k in range(positive.sum() + 1)}
    best = min(sum(fewest_errors(s, positive, tpr) for s, positive in sides) for tpr in steps)
    assert accuracy == pytest.approx(1 - best / len(scores), abs=SOLVED)


@given(judged())
def test_equalised_odds_have_both_rates_alike_and_cost_more(data: tuple[np.ndarray, np.ndarray, np.ndarray]):
    scores, labels, groups = data
    fitted, looser = equal_opportunity(scores, labels, groups, odds=True), equal_opportunity(scores, labels, groups)
    chances = fitted.chances(scores, groups)
    for label in (1, -1):
        first, second = rates(chances, labels, groups, label)
        assert abs(first - second) <= SOLVED
    majority = max((labels == 1).mean(), (labels == -1).mean())
    assert majority - SOLVED <= fitted.accuracy <= looser.accuracy + SOLVED


def test_three_groups_and_fresh_rows():
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 3, 30_000)
    labels = np.where(rng.random(30_000) < 0.2 + 0.2 * groups, "yes", "no")
    scores = rng.normal(size=30_000) + np.where(labels == "yes", 1.0 + 0.5 * groups, 0.0)
    train, test = slice(0, 15_000), slice(15_000, None)
    fitted = equal_opportunity(scores[train], labels[train], groups[train], positive="yes")
    told = fitted.predict(scores[test], groups[test], seed=1)
    assert set(told) == {"yes", "no"}
    found = rates((told == "yes").astype(float), np.where(labels[test] == "yes", 1, -1), groups[test], 1)
    assert max(found) - min(found) < 0.06, "three standard errors of a difference"
    plain = rates((scores[test] > 0.5).astype(float), np.where(labels[test] == "yes", 1, -1), groups[test], 1)
    assert max(plain) - min(plain) > 0.2
    assert np.mean(told == labels[test]) == pytest.approx(fitted.accuracy, abs=0.015)
    np.testing.assert_array_equal(told, fitted.predict(scores[test], groups[test], seed=1))
    assert (told != fitted.predict(scores[test], groups[test], seed=2)).any()


# calibrated


def test_mixing_by_hand():
    scores = np.array([0.8, 0.6, 0.4, 0.2, 0.9, 0.7, 0.3, 0.1])
    labels, groups = np.array([1, 1, -1, -1] * 2), np.repeat([0, 1], 4)
    fitted = fp.postprocess.calibrated_equal_opportunity(scores, labels, groups)
    assert fitted.costs == pytest.approx({0: 0.3, 1: 0.2})
    assert (fitted.group, fitted.base_rate) == (1, 0.5)
    assert fitted.share == pytest.approx((0.3 - 0.2) / (0.5 - 0.2))
    assert fitted.mixed_costs == pytest.approx({0: 0.3, 1: 0.3})
    assert str(fitted).splitlines() == [
        "MixedScores: fnr cost 0.3000 -> 0.3000 in group 0, 0.2000 -> 0.3000 in group 1",
        "  group 1: the base rate 0.5000 for a share 0.3333 of its rows",
    ]
    np.testing.assert_array_equal(fitted.predict(scores[:4], groups[:4]), labels[:4])
    many = np.tile(scores, 2000)
    mixed = fitted.mixed(many, np.tile(groups, 2000), seed=3)
    changed = mixed != many
    assert not changed[np.tile(groups, 2000) == 0].any()
    assert changed[np.tile(groups, 2000) == 1].mean() == pytest.approx(1 / 3, abs=0.02)
    assert set(mixed[changed]) == {0.5}


@given(judged(), st.sampled_from(["fnr", "fpr", "weighted"]))
def test_costs_are_equal_after_mixing_or_refused(data: tuple[np.ndarray, np.ndarray, np.ndarray], cost: Any):
    scores, labels, groups = data
    scores = (scores + 2) / 4  # in [0, 1]

    def generalised(s: np.ndarray, which: int) -> float:
        mine, y = s[groups == which], labels[groups == which]
        missed, alarmed, base = (1 - mine[y == 1]).mean(), mine[y == -1].mean(), (y == 1).mean()
        return {"fnr": missed, "fpr": alarmed, "weighted": base * missed + (1 - base) * alarmed}[cost]

    nearest = calibrated_equal_opportunity(scores, labels, groups, cost, strict=False)
    flat = np.where(groups == nearest.group, nearest.base_rate, scores)
    expected = {g: (1 - nearest.share) * generalised(scores, g) + nearest.share * generalised(flat, g) for g in (0, 1)}
    assert nearest.mixed_costs == pytest.approx(expected, abs=1e-12)
    assert 0 <= nearest.share <= 1
    assert nearest.base_rate == pytest.approx((labels[groups == nearest.group] == 1).mean())
    before, after = (abs(costs[0] - costs[1]) for costs in (nearest.costs, nearest.mixed_costs))
    assert after <= before + 1e-12
    if after <= 1e-12:
        assert calibrated_equal_opportunity(scores, labels, groups, cost).share == pytest.approx(nearest.share)
    else:
        with pytest.raises(ValueError, match="no mixture makes them equal"):
            calibrated_equal_opportunity(scores, labels, groups, cost)
        assert nearest.share in (0.0, 1.0)


# bad input


GOOD: dict[str, Any] = {"scores": [0.9, 0.4, 0.6, 0.1], "labels": [1, -1, 1, -1], "groups": [0, 0, 1, 1]}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"groups": [0, 0, 0, 0]}, "groups holds 0 only; at least two groups"),
        (
            {"groups": [0, 0, 1]},
            r"one entry per row each, but their shapes are scores \(4,\), labels \(4,\), groups \(3,\)",
        ),
        ({"scores": [0.9, np.nan, 0.6, np.inf]}, "scores holds 2 values that are NaN or infinite in 4 rows"),
        ({"scores": ["a", "b", "c", "d"]}, "numbers are required"),
        ({"labels": [1, 1, 1, 1]}, "labels holds 1; two different labels"),
        ({"labels": [0, 1, 2, 1]}, "labels holds 0, 1, 2; two different labels"),
        ({"labels": [1, -1, -1, -1]}, "group 1 has no row with the label 1"),
        ({"positive": 0}, "positive=0: labels holds -1, 1"),
        ({"scores": [], "labels": [], "groups": []}, "one entry per row"),
    ],
)
@pytest.mark.parametrize("fit", [equal_opportunity, calibrated_equal_opportunity])
def test_what_cannot_be_fitted_is_refused(fit: Any, change: dict[str, Any], told: str):
    with pytest.raises((ValueError, TypeError), match=told):
        fit(**(GOOD | change))


def test_what_only_mixing_refuses():
    fit: Any = calibrated_equal_opportunity
    with pytest.raises(ValueError, match=r"go from -2 to 0\.9, but probabilities are required"):
        fit(**(GOOD | {"scores": [0.9, 0.4, 0.6, -2]}))
    with pytest.raises(ValueError, match="cost='tpr'"):
        fit(**GOOD, cost="tpr")
    three = {"scores": [0.5] * 6, "labels": [1, -1] * 3, "groups": [0, 0, 1, 1, 2, 2]}
    with pytest.raises(ValueError, match="groups holds 0, 1, 2; calibrated_equal_opportunity takes two"):
        fit(**three)


@pytest.mark.parametrize("fit", [equal_opportunity, calibrated_equal_opportunity])
def test_rows_to_decide_about_are_checked(fit: Any):
    fitted = fit(**GOOD)
    with pytest.raises(ValueError, match="groups holds 2, which is not a group of the fit: 0, 1"):
        fitted.predict([0.5, 0.5], [0, 2])
    with pytest.raises(ValueError, match=r"shapes \(2,\) and \(1,\)"):
        fitted.predict([0.5, 0.5], [0])
    with pytest.raises(ValueError, match="scores holds 1 values that are NaN"):
        fitted.predict([0.5, np.nan], [0, 1])
    assert fitted.predict([], []).shape == (0,)


# over parties: from histograms


def counted(bins: int = 1000) -> tuple[np.ndarray, fp.Table, fp.Evaluation]:
    """Scores and rows in one place, and the counts of three parties who hold them."""
    rng = np.random.default_rng(7)
    group = rng.choice(["a", "b"], 6000)
    y = (rng.random(6000) < np.where(group == "a", 0.3, 0.5)).astype(int)
    x = (rng.normal(size=6000) + y * np.where(group == "a", 1.0, 1.8))[:, None]
    table, params = fp.Table(x=x, y=y, group=group), {"w": np.ones(1)}
    parties = fp.split_rows(table, parties=3, seed=0)
    return x[:, 0], table, fp.evaluate(fp.linear(), parties, params=params, group="group", bins=bins)


@pytest.mark.parametrize("odds", [False, True])
@pytest.mark.parametrize("bins", [100, 1000])
def test_thresholds_from_counts_are_those_of_pooled_scores_up_to_a_bin(odds: bool, bins: int) -> None:
    scores, table, evaluation = counted(bins)
    pooled = equal_opportunity(scores, table["y"], table["group"], odds=odds)
    federated = equal_opportunity(evaluation, odds=odds)
    assert (federated.labels, federated.rows) == (pooled.labels, pooled.rows)
    assert federated.accuracy <= pooled.accuracy + SOLVED, "edges of bins are fewer thresholds"
    assert federated.accuracy == pytest.approx(pooled.accuracy, abs=2 / bins)
    chances = federated.chances(scores, table["group"])
    assert rates(chances, table["y"], table["group"], 1) == pytest.approx(
        list(federated.true_positive_rates.values()), abs=1e-9
    ), "what is promised is counted on the rows themselves"
    if odds:
        assert rates(chances, table["y"], table["group"], 0) == pytest.approx(
            list(federated.false_positive_rates.values()), abs=1e-9
        )


def test_mixing_from_counts_is_that_of_pooled_scores_up_to_half_a_bin() -> None:
    scores, table, evaluation = counted()
    pooled = calibrated_equal_opportunity(1 / (1 + np.exp(-scores)), table["y"], table["group"], strict=False)
    federated = calibrated_equal_opportunity(evaluation, strict=False)
    assert (federated.group, federated.base_rate) == (pooled.group, pooled.base_rate)
    for group, cost in pooled.costs.items():
        assert federated.costs[group] == pytest.approx(cost, abs=0.5 / 1000)
    assert federated.share == pytest.approx(pooled.share, abs=0.01)


def test_an_evaluation_that_does_not_fit_is_refused() -> None:
    _, table, evaluation = counted(10)
    with pytest.raises(ValueError, match="leave labels, groups"):
        equal_opportunity(evaluation, table["y"])
    with pytest.raises(ValueError, match=r"in place of all three"):
        equal_opportunity(table["x"][:, 0])
    with pytest.raises(ValueError, match="by two groups or more"):
        equal_opportunity(fp.evaluate(fp.linear(), table, params={"w": np.ones(1)}))
    alike = table.with_columns(y=np.where(table["group"] == "a", 0, table["y"]))
    with pytest.raises(ValueError, match="group 'a' has no row with a positive label"):
        equal_opportunity(fp.evaluate(fp.linear(), alike, params={"w": np.ones(1)}, group="group"))
