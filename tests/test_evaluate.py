"""Evaluations against numpy, scipy and scikit-learn; intervals that cover; what is refused."""

import dataclasses
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.metrics import accuracy_score, precision_score, recall_score, roc_auc_score

import fedpact as fp
from fedpact.evaluation.counts import Question, count_rows
from fedpact.evaluation.rates import MEASURES, Rates
from fedpact.problem.scores import scores_of

MODEL = fp.linear(bias=True)
PARAMS = {"w": np.array([1.0, -1.0, 0.5]), "b": -0.4}


def patients(rows: int = 900, seed: int = 0) -> fp.Table:
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], rows)
    x = rng.normal(size=(rows, 3)) + 0.5 * (sex == "m")[:, None]
    y = (x @ PARAMS["w"] + rng.normal(size=rows) > 0.4).astype(int)
    return fp.Table(x=x, y=y, sex=sex, w=rng.integers(0, 4, rows).astype(float))


TABLE = patients()
HOSPITALS = fp.split_rows(TABLE, parties=["north", "south", "west"], stratify="y", seed=0)
SCORES = {name: rows["x"] @ PARAMS["w"] + PARAMS["b"] for name, rows in HOSPITALS.items()}


def rows_of(party: str | None, group: str | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, labels and weights of a cell."""
    names = list(HOSPITALS) if party is None else [party]
    parts = [(SCORES[n], HOSPITALS[n]["y"], HOSPITALS[n]["w"], HOSPITALS[n]["sex"]) for n in names]
    scores, labels, weights, sexes = (np.concatenate(column) for column in zip(*parts, strict=True))
    which = np.ones(len(sexes), bool) if group is None else sexes == group
    return scores[which], labels[which], weights[which]


def assert_rates(rates: Rates, scores: np.ndarray, y: np.ndarray, w: np.ndarray, threshold: float = 0.0) -> None:
    told = (scores > threshold).astype(int)
    assert rates.rows == len(y)
    assert rates.accuracy == pytest.approx(accuracy_score(y, told, sample_weight=w), abs=1e-12)
    assert rates.selection_rate == pytest.approx(np.average(told, weights=w), abs=1e-12)
    assert rates.true_positive_rate == pytest.approx(recall_score(y, told, sample_weight=w), abs=1e-12)
    assert rates.false_positive_rate == pytest.approx(np.average(told[y == 0], weights=w[y == 0]), abs=1e-12)
    assert rates.precision == pytest.approx(precision_score(y, told, sample_weight=w), abs=1e-12)
    exact = roc_auc_score(y, scores, sample_weight=w)
    assert abs(rates.auc - exact) <= rates.auc_error + 1e-12
    assert rates.auc_error < 0.002


CELLS = [(None, None), (None, "f"), ("north", None), ("south", "m")]


@pytest.mark.parametrize(("party", "group"), CELLS)
@pytest.mark.parametrize("weights", [None, "w"])
def test_rates_are_those_of_scikit_learn(party: str | None, group: str | None, weights: str | None) -> None:
    table = fp.evaluate(MODEL, HOSPITALS, params=PARAMS, group="sex", weights=weights)
    scores, y, w = rows_of(party, group)
    assert_rates(table.at(party, group), scores, y, np.ones(len(w)) if weights is None else w)


def test_another_threshold_moves_decisions_and_not_the_auc() -> None:
    moved = fp.evaluate(MODEL, HOSPITALS, params=PARAMS, threshold=0.7)
    scores, y, w = rows_of(None, None)
    assert_rates(moved.at(), scores, y, np.ones(len(w)), 0.7)
    assert moved.at().auc == fp.evaluate(MODEL, HOSPITALS, params=PARAMS).at("all", "all").auc


def test_intervals_of_rates_are_scipys_exact_ones() -> None:
    rates = fp.evaluate(MODEL, HOSPITALS, params=PARAMS, confidence=0.9).at("west")
    scores, y, _ = rows_of("west", None)
    told = scores > 0
    for measure, hits, of in (
        ("accuracy", told == y, np.ones_like(told)),
        ("selection_rate", told, np.ones_like(told)),
        ("true_positive_rate", told, y == 1),
        ("false_positive_rate", told, y == 0),
        ("precision", y == 1, told),
    ):
        wanted = binomtest(int(hits[of].sum()), int(of.sum())).proportion_ci(0.9, "exact")
        assert rates.interval(measure) == pytest.approx((wanted.low, wanted.high), abs=1e-9)


def test_equal_weights_count_as_none_and_doubled_rows_do_not_narrow() -> None:
    plain = fp.evaluate(MODEL, TABLE, params=PARAMS).at()
    doubled = fp.evaluate(MODEL, TABLE.with_columns(w=np.full(len(TABLE), 2.0)), params=PARAMS, weights="w").at()
    for measure in MEASURES:
        assert doubled.interval(measure) == pytest.approx(plain.interval(measure), abs=1e-9)
    uneven = fp.evaluate(MODEL, TABLE, params=PARAMS, weights="w").at()
    low, high = uneven.interval("accuracy")
    assert high - low > np.subtract(*plain.interval("accuracy")[::-1]), "rows of uneven weight tell less"


def test_the_aucs_interval_covers() -> None:
    """Normal scores one standard deviation apart: the AUC is Φ(1/√2)."""
    from scipy.stats import norm

    rng, truth, covered = np.random.default_rng(1), norm.cdf(1 / np.sqrt(2)), 0
    for _ in range(400):
        y = np.repeat([0, 1], [60, 25])
        table = fp.Table(x=(rng.normal(size=85) + y)[:, None], y=y)
        low, high = fp.evaluate(fp.linear(), table, params={"w": np.ones(1)}, confidence=0.9).at().interval("auc")
        covered += low <= truth <= high
    assert 0.86 <= covered / 400 <= 0.96  # 0.9 up to three standard errors, and Newcombe's is on the wide side


def test_a_perfect_order_of_few_rows_is_not_certain() -> None:
    table = fp.Table(x=np.array([-2.0, -1.0, 1.0, 2.0])[:, None], y=[0, 0, 1, 1])
    rates = fp.evaluate(fp.linear(), table, params={"w": np.ones(1)}).at()
    assert (rates.auc, rates.auc_error) == (1.0, 0.0)
    low, high = rates.interval("auc")
    assert high == 1.0
    assert low < 0.7


@given(
    st.lists(st.tuples(st.floats(-60, 60), st.booleans()), min_size=2, max_size=40), st.sampled_from([2, 3, 10, 1000])
)
def test_the_bins_error_holds_whatever_the_scores(data: list[tuple[float, bool]], bins: int) -> None:
    scores, y = np.array([score for score, _ in data]), np.array([int(label) for _, label in data])
    y[:2] = 0, 1
    counts = count_rows("north", fp.Table(y=y), scores, Question.of(None, bins=bins))
    rates = fp.Evaluation({"north": counts}, Question.of(None, bins=bins)).at()
    assert abs(rates.auc - roc_auc_score(y, scores)) <= rates.auc_error + 1e-12
    low, high = rates.interval("auc")
    assert 0 <= low <= rates.auc <= high <= 1


def test_only_counts_leave_a_party() -> None:
    asked = Question.of(None, group="sex", bins=20, min_rows=5)
    counts = count_rows("north", HOSPITALS["north"], SCORES["north"], asked)
    assert {name: (a.dtype, a.shape) for name, a in counts.arrays().items()} == {
        "rows": (np.int64, (2, 2, 2)),
        "histogram": (np.int64, (2, 2, 20)),
    }
    assert counts.words() == {"groups": ["f", "m"], "withheld": []}
    np.testing.assert_array_equal(counts.histogram.sum(2), counts.rows.sum(2))


def test_small_groups_are_withheld_and_in_no_number() -> None:
    rare = HOSPITALS["north"].with_columns(sex=np.where(np.arange(300) < 6, "x", HOSPITALS["north"]["sex"]))
    parties = {"north": rare, "south": HOSPITALS["south"]}
    table = fp.evaluate(MODEL, parties, params=PARAMS, group="sex", min_rows=10)
    assert table.withheld == (("north", "x"),)
    assert table.groups == ("f", "m")
    assert table.at("north").rows == 294
    assert table.at().rows == 594
    assert "x at north" in str(table)
    with pytest.raises(KeyError, match="'x' of north was withheld"):
        table.at("north", "x")
    everything = fp.evaluate(MODEL, parties, params=PARAMS, group="sex", min_rows=10_000)
    assert everything.at().rows == 0
    assert everything.at().interval("accuracy") == everything.at().interval("auc") == (0.0, 1.0)
    assert np.isnan(everything.at().accuracy)
    assert "-" in str(everything)


# results


def solved(**more: Any) -> fp.Result:
    problem = fp.minimize(fp.mean(fp.logistic_loss(MODEL, **more)), regularizer=fp.l2(1e-2))
    return fp.solve(problem, HOSPITALS, max_rounds=4)


@pytest.fixture(scope="module")
def result() -> fp.Result:
    return solved()


def test_a_result_is_evaluated_as_it_predicts(result: fp.Result, tmp_path: pathlib.Path) -> None:
    table = fp.evaluate(result, HOSPITALS, label="y", group="sex")
    for name, rows in HOSPITALS.items():
        women = rows["sex"] == "f"
        found = (result.predict(rows)[women & (rows["y"] == 1)] == 1).mean()
        assert table.at(party=name, group="f").true_positive_rate == pytest.approx(found, abs=1e-12)
    shifted = fp.evaluate(dataclasses.replace(result, threshold=0.3), HOSPITALS)
    assert shifted.at().selection_rate == pytest.approx((result.scores(TABLE) > 0.3).mean(), abs=1e-12)
    again = fp.Evaluation.read(table.save(tmp_path / "evaluation.json"))
    assert str(again) == str(table)
    (tmp_path / "broken.json").write_text('{"format": 1}')
    with pytest.raises(ValueError, match="holds no evaluation"):
        fp.Evaluation.read(tmp_path / "broken.json")


def test_it_prints_well(result: fp.Result) -> None:
    table = fp.evaluate(result, HOSPITALS, group="sex")
    lines = str(table).splitlines()
    assert len(lines) == 1 + 1 + 4 * 3 + 1
    assert lines[1].split() == ["party", "group", "rows", "accuracy", "selected", "TPR", "FPR", "precision", "AUC"]
    assert all(line.startswith(f"  {who}") for line, who in zip(lines[2:5], ["all", "all", "all"], strict=True))
    assert max(map(len, lines)) <= 140
    assert "<td>north</td>" in table._repr_html_()
    evil = {"<b>": HOSPITALS["north"], "south": HOSPITALS["south"]}
    assert "<b>" not in fp.evaluate(result, evil)._repr_html_()
    many = fp.evaluate(result, fp.split_rows(TABLE, parties=60), group="sex")
    assert "more lines; .to_frame() has all of them" in str(many)
    assert "true_positive_rate" in repr(many.at("party 7"))


def test_a_frame_has_every_line(result: fp.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    table = fp.evaluate(result, HOSPITALS, group="sex")
    frame = table.to_frame().set_index(["party", "group"])
    assert len(frame) == 12
    assert frame.loc[("south", "m"), "precision"] == table.at("south", "m").precision
    assert frame.loc[("all", "all"), "auc_low"] == table.at().interval("auc")[0]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="needs pandas: pip install"):
        table.to_frame()


def test_tables_come_in_every_form(result: fp.Result) -> None:
    whole = fp.evaluate(result, HOSPITALS, group="sex").at()
    for data in (dict(HOSPITALS), list(HOSPITALS.values()), TABLE, dict(TABLE)):
        again = fp.evaluate(result, data, group="sex").at()
        np.testing.assert_array_equal(again.cells, whole.cells)
        np.testing.assert_array_equal(again.histogram, whole.histogram)


def test_columns_come_together_at_the_label_holder() -> None:
    rng = np.random.default_rng(3)
    x, sex = rng.normal(size=(150, 4)), rng.integers(0, 2, 150)
    y = np.where(x.sum(1) + rng.normal(size=150) > 0, 1, -1)
    parties = fp.split_columns(fp.Table(x=x, y=y, sex=sex), {"bank": range(2), "shop": range(2, 4)})
    model = fp.split_model(lambda width: fp.linear())
    loss = fp.mean(fp.logistic_loss(model, labels=(-1, 1)))
    result = fp.solve(fp.minimize(loss), parties, fp.FedSGD(batch=150, step=0.5), max_rounds=3)
    table = fp.evaluate(result, parties, group="sex")
    assert table.parties == ("bank",)
    scores = x @ np.concatenate([result.params["bank"]["w"], result.params["shop"]["w"]])
    told = np.where(scores > 0, 1, -1)
    np.testing.assert_array_equal(result.predict(parties), told)
    assert table.at(group=1).accuracy == pytest.approx((told == y)[sex == 1].mean(), abs=1e-12)
    bare = fp.evaluate(model, parties, params=result.params, group="sex")
    np.testing.assert_array_equal(bare.at().cells, table.at().cells)
    with pytest.raises(ValueError, match="these parties hold columns"):
        fp.evaluate(MODEL, parties, params=PARAMS)


def test_classes_are_compared_with_all_others() -> None:
    rng = np.random.default_rng(4)
    table, model = fp.Table(x=rng.normal(size=(200, 2)), y=rng.integers(0, 3, 200)), fp.linear(outputs=3)
    problem = fp.minimize(fp.mean(fp.softmax_loss(model)), regularizer=fp.l2(0.1))
    result = fp.solve(problem, fp.split_rows(table, parties=2), max_rounds=3)
    rates = fp.evaluate(result, table, positive=2).at()
    told, chances = result.predict(table), np.exp(result.scores(table))
    assert rates.true_positive_rate == pytest.approx((told[table["y"] == 2] == 2).mean(), abs=1e-12)
    assert rates.accuracy == pytest.approx(((told == 2) == (table["y"] == 2)).mean(), abs=1e-12)
    exact = roc_auc_score(table["y"] == 2, chances[:, 2] / chances.sum(1))
    assert abs(rates.auc - exact) <= rates.auc_error + 1e-12
    with pytest.raises(ValueError, match="needs positive="):
        fp.evaluate(result, table)
    with pytest.raises(ValueError, match="no class of the model"):
        fp.evaluate(result, table, positive=3)


def test_own_models_are_evaluated_at_their_party() -> None:
    problem = fp.minimize(
        fp.mean(fp.logistic_loss(MODEL)), personal=fp.Personal([fp.l1_ball(0.1), fp.l1_ball(1), fp.l1_ball(9)], 0.1)
    )
    result = fp.solve(problem, HOSPITALS, max_rounds=5)
    table = fp.evaluate(result, HOSPITALS)
    for name, rows in HOSPITALS.items():
        scores = scores_of(MODEL, result.params[name], rows)
        assert table.at(name).selection_rate == pytest.approx((scores > 0).mean(), abs=1e-12)


REFUSED: dict[str, tuple[Callable[[fp.Result], Any], type[Exception], str]] = {
    "no label": (lambda r: fp.evaluate(r, HOSPITALS, label="z"), ValueError, r"party 'north' has no such column"),
    "no group": (lambda r: fp.evaluate(r, HOSPITALS, group="age"), ValueError, r"group='age'.*it has x, y, sex, w"),
    "a matrix of groups": (lambda r: fp.evaluate(r, HOSPITALS, group="x"), ValueError, "one value for each row"),
    "groups of one": (lambda r: fp.evaluate(r, patients(5000).with_columns(g=np.arange(5000)), group="g"), ValueError, "100"),
    "negative weights": (
        lambda r: fp.evaluate(r, TABLE.with_columns(w=-TABLE["w"]), weights="w"), ValueError, "at least 0",
    ),
    "another label": (lambda r: fp.evaluate(r, HOSPITALS, positive=0), ValueError, "positive label is 1"),
    "labels in between": (lambda r: fp.evaluate(r, TABLE.with_columns(y=TABLE["y"] + 1)), ValueError, "besides 0 and 1"),
    "nobody": (lambda r: fp.evaluate(r, TABLE.with_columns(y=0 * TABLE["y"])), ValueError, "no row has 1"),
    "words for bins": (lambda r: fp.evaluate(r, TABLE, bins="many"), ValueError, "bins='many'"),
    "one bin": (lambda r: fp.evaluate(r, TABLE, bins=1), ValueError, "from 2 to"),
    "certainty": (lambda r: fp.evaluate(r, TABLE, confidence=1.0), ValueError, "between 0 and 1"),
    "no rows": (lambda r: fp.evaluate(r, TABLE, min_rows=0), ValueError, "a positive whole number"),
    "nan": (lambda r: fp.evaluate(r, TABLE, threshold=float("nan")), ValueError, "a finite number"),
    "params twice": (lambda r: fp.evaluate(r, TABLE, params=PARAMS), ValueError, "of its own"),
    "no params": (lambda r: fp.evaluate(MODEL, TABLE), ValueError, "needs params="),
    "no model": (lambda r: fp.evaluate("model", TABLE), TypeError, "a result, or a model"),
    "wild scores": (
        lambda r: fp.evaluate(MODEL, TABLE, params={**PARAMS, "b": np.inf}), ValueError, "900 scores of party 'table'",
    ),
    "many scores": (
        lambda r: fp.evaluate(fp.linear(outputs=2), TABLE, params={"w": np.zeros((3, 2))}), ValueError, "take one",
    ),
    "party": (lambda r: fp.evaluate(r, HOSPITALS).at("east"), KeyError, "there are north, south, west"),
    "group": (lambda r: fp.evaluate(r, HOSPITALS).at(group="f"), KeyError, "group= was not given"),
    "measure": (lambda r: fp.evaluate(r, TABLE).at().interval("recall"), ValueError, "one of accuracy"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_counted_is_said(name: str, result: fp.Result) -> None:
    ask, kind, words = REFUSED[name]
    with pytest.raises(kind, match=words):
        ask(result)
