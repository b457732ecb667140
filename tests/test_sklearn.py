"""The estimators of fedpact.sklearn, in scikit-learn's own tools. examples/scikit_learn.py has the suite of the classifier."""

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import fedpact as fp
from fedpact.run import drivers
from fedpact.sklearn import FederatedClassifier, FederatedRegressor
from tests.test_compilation import compilations  # noqa: F401

RNG = np.random.default_rng(0)
N = 300
ROWS = pd.DataFrame({"sex": RNG.choice(["f", "m"], N), "bank": RNG.choice(["north", "south", "west"], N)})
X = RNG.normal(size=(N, 4)) + 0.8 * (ROWS["sex"] == "m").to_numpy()[:, None]
SCORE = X @ np.array([1.0, -1.0, 0.5, 0.8]) + RNG.normal(size=N)
Y = np.where(SCORE > 0.5, "grant", "refuse")
MALE = (ROWS["sex"] == "m").to_numpy()
GAP = (fp.demographic_parity_gap(fp.decisions(), group="sex").pooled() <= 0.1).named("gap")
THIRDS = np.digitize(SCORE, [-0.5, 1.0])


def gap_of(decided: np.ndarray) -> float:
    return abs(decided[MALE].mean() - decided[~MALE].mean())


@pytest.fixture(scope="module")
def fair() -> FederatedClassifier:
    return FederatedClassifier([GAP], positive="grant").fit(X, Y, parties=ROWS["bank"], columns=ROWS[["sex"]])


def test_scikit_learns_own_suite_of_the_regressor() -> None:
    check_estimator(FederatedRegressor(), on_skip=None)  # its check of array libraries wants a setting of SciPy


def test_the_constraint_is_on_the_estimators_own_model(fair: FederatedClassifier) -> None:
    assert fair.result_.converged
    assert fair.result_.parties == ("north", "south", "west")
    granted = fair.predict(X) == "grant"
    assert gap_of(granted) == pytest.approx(fair.result_.constraint("gap").values[0], abs=1e-12)
    assert gap_of(granted) <= 0.1 < gap_of(FederatedClassifier().fit(X, Y).predict(X) == "grant")


def test_signs_are_scikit_learns_whatever_is_positive(fair: FederatedClassifier) -> None:
    scores = fair.decision_function(X)
    assert fair.classes_.tolist() == ["grant", "refuse"]
    np.testing.assert_allclose(scores, X @ fair.coef_[0] + fair.intercept_[0])
    np.testing.assert_array_equal(fair.predict(X), fair.classes_[(scores > 0).astype(int)])
    np.testing.assert_array_equal(fair.result_.predict({"x": X}) == 1, fair.predict(X) == "grant")
    np.testing.assert_allclose(fair.predict_proba(X)[:, 0], 1 / (1 + np.exp(-fair.result_.scores({"x": X}))))


def test_a_threshold_moves_decisions_and_not_probabilities() -> None:
    few = (fp.mean(fp.decisions(threshold=0.5)).pooled() <= 0.9).named("few")
    for positive in ("grant", "refuse"):
        own = FederatedClassifier([few], positive=positive).fit(X, Y)
        scores = own.result_.scores({"x": X})
        np.testing.assert_array_equal(own.predict(X) == positive, scores > 0.5)
        place = own.classes_.tolist().index(positive)
        np.testing.assert_allclose(own.predict_proba(X)[:, place], 1 / (1 + np.exp(-scores)))
        np.testing.assert_allclose(own.decision_function(X), (1 if place else -1) * (scores - 0.5))


@pytest.mark.parametrize("parties", [1, 3])
def test_it_is_the_model_of_pooled_rows(parties: int) -> None:
    own = FederatedClassifier(parties=parties, l2=1e-2).fit(X, Y)
    theirs = LogisticRegression(C=1 / (2e-2 * N), tol=1e-10, max_iter=1000).fit(X, Y)
    np.testing.assert_allclose(own.coef_, theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(own.intercept_, theirs.intercept_, atol=1e-5)
    assert own.result_.parties == tuple(f"party {i + 1}" for i in range(parties))


def test_more_than_two_classes() -> None:
    weights = RNG.integers(0, 3, N)
    own = FederatedClassifier(parties=3, l2=1e-2).fit(X, THIRDS, sample_weight=weights)
    theirs = LogisticRegression(C=1 / (2e-2 * weights.sum()), tol=1e-10, max_iter=1000)
    theirs.fit(X, THIRDS, sample_weight=weights)
    np.testing.assert_allclose(own.predict_proba(X), theirs.predict_proba(X), atol=1e-5)
    np.testing.assert_allclose(own.coef_, theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(own.intercept_, theirs.intercept_, atol=1e-4)
    assert own.decision_function(X).shape == (N, 3)
    with pytest.raises(ValueError, match=r"3 classes .* fp.decisions\(label=0\)"):
        FederatedClassifier(positive=2).fit(X, THIRDS)


def test_a_regression_with_a_limit_at_each_party() -> None:
    y = SCORE + np.where(ROWS["bank"] == "west", 2.0, 0.0)
    plain = FederatedRegressor(l2=1e-2).fit(X, y, parties=ROWS["bank"])
    theirs = Ridge(alpha=2e-2 * N).fit(X, y)
    np.testing.assert_allclose(plain.coef_, theirs.coef_, atol=1e-6)
    assert plain.intercept_ == pytest.approx(theirs.intercept_, abs=1e-6)
    limited = FederatedRegressor([(fp.mean(fp.squared_loss()) <= 1.25).named("loss")], l2=1e-2)
    limited.fit(X, y, parties=ROWS["bank"])
    for bank in ("north", "south", "west"):
        at = (ROWS["bank"] == bank).to_numpy()
        assert 0.5 * np.mean((limited.predict(X[at]) - y[at]) ** 2) <= 1.25 + 1e-5
    assert 0.5 * np.mean((plain.predict(X) - y)[(ROWS["bank"] == "west").to_numpy()] ** 2) > 1.3


def test_features_of_a_frame_are_columns_by_their_names() -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c", "y"])
    high = (fp.mean(fp.decisions(), where=fp.col("a") > 1).pooled() <= 0.6).named("high")
    own = FederatedClassifier([high], positive="grant").fit(frame, Y)
    assert own.feature_names_in_.tolist() == ["a", "b", "c", "y"]
    assert (own.predict(frame[frame["a"] > 1]) == "grant").mean() <= 0.6
    with pytest.raises(ValueError, match="feature names"):
        own.predict(frame.rename(columns={"a": "z"}))


def test_l1_leaves_features_out() -> None:
    assert (FederatedClassifier(l1=0.2).fit(X, Y).coef_ == 0).any()


@pytest.mark.parametrize(("times", "programs"), [(1, 1), (8, 2)])
def test_a_grid_search_compiles_for_folds_and_for_the_refit_alone(
    times: int,
    programs: int,
    compilations: list[str],  # noqa: F811
) -> None:
    """Nine fits of two thirds of the rows share a program; the last fit has more rows, which takes another if they are many."""
    drivers.forget()
    many, labels = np.tile(X, (times, 1)), np.tile(Y, times)
    search = GridSearchCV(FederatedClassifier(parties=3), {"l2": [1e-4, 1e-3, 1e-2]}, cv=3).fit(many, labels)
    assert len(compilations) == programs
    assert search.best_params_["l2"] in (1e-4, 1e-3, 1e-2)


def test_bounds_are_searched_like_any_parameter() -> None:
    share = fp.mean(fp.positive_rate()).pooled()
    bounds = [[(share <= bound).named("share")] for bound in (0.05, 0.9)]
    search = GridSearchCV(FederatedClassifier(positive="grant"), {"subject_to": bounds}, cv=2).fit(X, Y)
    assert search.best_params_["subject_to"][0].upper == 0.9
    assert search.best_estimator_.result_.constraint("share").values[0] <= 0.9


def test_parties_and_columns_are_routed() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        own = FederatedClassifier([GAP], positive="grant", tolerance=1e-4).set_fit_request(parties=True, columns=True)
        pipeline = make_pipeline(StandardScaler(), own)
        meta = {"parties": ROWS["bank"], "columns": ROWS[["sex"]]}
        found: Any = cross_validate(pipeline, X, Y, cv=2, params=meta, return_estimator=True)
    fitted = [step[-1] for step in found["estimator"]]
    assert all(step.result_.parties == ("north", "south", "west") and step.result_.converged for step in fitted)
    assert min(found["test_score"]) > 0.6


def test_clones_and_pickles(fair: FederatedClassifier) -> None:
    again = pickle.loads(pickle.dumps(fair))
    np.testing.assert_array_equal(again.predict_proba(X), fair.predict_proba(X))
    assert str(again.result_) == str(fair.result_)
    assert not hasattr(clone(fair), "coef_")
    assert str(clone(fair).subject_to) == str(fair.subject_to)
    assert "positive='grant'" in repr(fair)


def test_a_run_that_does_not_converge_warns() -> None:
    with pytest.warns(ConvergenceWarning, match="max_rounds=1"):
        FederatedClassifier(max_rounds=1).fit(X, Y)


@pytest.mark.parametrize(
    ("constraints", "given", "words"),
    [
        ((), {"positive": "yes"}, "positive='yes': the classes of y are 'grant', 'refuse'"),
        ([GAP], {}, "constraint 'gap'.*'sex'"),
        ([0.1], {}, r"subject_to\[0\] is 0.1"),
        ((), {"parties": 301}, "300 rows are too few for 301 parties"),
        ((), {"l2": -1}, "the weight must be"),
    ],
)
def test_what_is_wrong_is_said(constraints: Any, given: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        FederatedClassifier(constraints, **given).fit(X, Y)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"columns": {"y": np.zeros(N)}}, "columns= has 'y'"),
        ({"columns": {"sex": np.zeros(7)}}, "column 'sex' has 7 entries for 300 rows"),
        ({"parties": ["north"]}, "column 'parties' has 1 entries for 300 rows"),
        ({"sample_weight": -np.ones(N)}, "sample_weight"),
    ],
)
def test_what_is_wrong_with_columns_is_said(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        FederatedClassifier().fit(X, Y, **given)


def test_a_problem_names_its_model() -> None:
    loss = fp.mean(fp.logistic_loss(fp.linear()))
    for expression in (
        fp.mean(fp.decisions()),
        abs(fp.true_positive_rate() - 0.5),
        fp.largest(fp.error_rate(), fp.mean(fp.softmax_loss())),
        fp.equal_opportunity_gap(fp.positive_rate(), group="sex"),
        fp.mean(fp.loss(lambda scores, y: scores - y)),
    ):
        with pytest.raises(ValueError, match=r"constraint 'it': in .*\(\) no model is named.*fp.linear\(\)"):
            fp.minimize(loss, [(expression <= 0.1).named("it")])
    with pytest.raises(ValueError, match="the objective: in smoothed_hinge_loss"):
        fp.minimize(fp.mean(fp.smoothed_hinge_loss()))
    with pytest.raises(ValueError, match="no model is named"):
        fp.squared_loss()({}, {"x": X, "y": SCORE})


def test_fedpact_does_not_import_scikit_learn() -> None:
    code = "import fedpact as fp, sys; fp.solve; fp.decisions; assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_features_may_be_called_as_the_estimators_own_columns() -> None:
    frame = pd.DataFrame(np.abs(X), columns=["age", "sample_weight", "parties", "y"])
    named, plain = FederatedClassifier().fit(frame, Y), FederatedClassifier().fit(frame.to_numpy(), Y)
    np.testing.assert_array_equal(named.coef_, plain.coef_)
