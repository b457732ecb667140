"""Estimators for scikit-learn: pipelines, cross-validation and grid search over rows that several parties hold.

    FederatedClassifier     min over w, b of mean(loss) + l1 ‖w‖₁ + l2 ‖w‖²  subject to constraints, with the logistic loss for
                            two classes and the softmax loss for more
    FederatedRegressor      the same with ½ (x·w + b − y)²

The mean is over the rows of all parties, so the model does not depend on how they are dealt out. Constraints whose losses name no
model, `fp.mean(fp.decisions()) <= 0.3`, are on the estimator's own.
"""

import abc
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d, validate_data

from fedpact.federation.rows import Parties, split_rows
from fedpact.federation.table import Table, as_table
from fedpact.problem.decision_rule import DecisionRule
from fedpact.problem.expressions import Constraint
from fedpact.problem.functions import mean
from fedpact.problem.losses import Loss, logistic_loss, softmax_loss, squared_loss
from fedpact.problem.models import Linear
from fedpact.problem.regularizers import l1, l2
from fedpact.problem.statement import Problem, minimize
from fedpact.protocol.algorithm import Algorithm
from fedpact.run.result import Result
from fedpact.run.solve import solve

WEIGHTS, PARTIES = "sample_weight", "parties"
OWN = ("x", "y", WEIGHTS, PARTIES)  # columns that the estimator makes


class _Federated(BaseEstimator, abc.ABC):
    """A linear model, fitted by `fp.solve` over rows that are dealt out to parties or theirs already."""

    subject_to: Sequence[Constraint]
    parties: int
    l1: float
    l2: float
    tolerance: float
    algorithm: Algorithm | None
    max_rounds: int
    seed: int

    result_: Result
    coef_: np.ndarray
    intercept_: Any
    n_features_in_: int

    def _solved(self, loss: Loss, table: Table, stratify: str | None) -> Result:
        """The result of a run, with a warning where it did not converge."""
        result = solve(
            self._problem(loss, WEIGHTS in table.columns),
            self._dealt(table, stratify),
            self.algorithm,
            tolerance=self.tolerance,
            max_rounds=self.max_rounds,
            seed=self.seed,
            progress=False,
        )
        if not result.converged:
            warnings.warn(f"{result.status}: {result.message}", ConvergenceWarning, stacklevel=3)
        return result

    def _problem(self, loss: Loss, weighted: bool) -> Problem:
        stated = [self.subject_to] if isinstance(self.subject_to, Constraint) else self.subject_to
        own = [c.with_model(loss.model) if isinstance(c, Constraint) else c for c in stated]
        penalty = l2(self.l2, on="w")
        if self.l1:
            penalty += l1(self.l1, on="w")
        return minimize(mean(loss, weights=WEIGHTS if weighted else None).pooled(), own, penalty)

    def _dealt(self, table: Table, stratify: str | None) -> Parties:
        if PARTIES in table.columns:
            return split_rows(table, by=PARTIES)
        return split_rows(table, parties=self.parties, stratify=stratify, seed=self.seed)

    def _table(self, x: np.ndarray, y: np.ndarray, sample_weight: Any, parties: Any, columns: Any) -> Table:
        """All rows, with the columns that masks and groups may read."""
        made: dict[str, Any] = {"x": x, "y": y}
        if sample_weight is not None:
            made[WEIGHTS] = _check_sample_weight(sample_weight, x)
        if parties is not None:
            made[PARTIES] = column_or_1d(parties)
        given = {} if columns is None else dict(as_table(columns))
        for name in given:
            if name in OWN:
                raise ValueError(f"columns= has {name!r}, a name that the estimator uses itself; rename the column")
        for name, column in {**given, **made}.items():
            if len(column) != len(x):
                raise ValueError(f"column {name!r} has {len(column)} entries for {len(x)} rows of X")
        table, names = Table({**given, **made}), getattr(self, "feature_names_in_", None)
        return table if names is None else table.with_features(names, readable=names)

    def _scores(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        x: Any = validate_data(self, X, reset=False, dtype=np.float64)
        return x @ self.coef_.T + self.intercept_


class FederatedClassifier(ClassifierMixin, _Federated):
    """A linear classifier over rows of several parties, under constraints: logistic for two classes, softmax for more.

    - `subject_to`: constraints, of the estimator's own model where losses name none (default: none). They may read the columns
      "x", "y", "sample_weight" and "parties" of `fit`, those of its `columns`, and the features of a frame by their names. "y" is
      1 for the positive class and 0 for the other; of more than two classes it is the place in `classes_`.
    - `positive`: the class that decisions are for, of two (default None: the second one of `classes_`).
    - `parties`: how many parties the rows are dealt out to where `fit` is not told who holds them, at random and with the same
      shares of classes (>= 1, default 1).
    - `l1`, `l2`: weights of ‖w‖₁ and ‖w‖² beside the mean loss, without the intercept (>= 0, defaults 0 and 1e-3).
    - `tolerance`: of the certificate (> 0, default 1e-6).
    - `algorithm`: the method (default None: as `fp.solve` chooses).
    - `max_rounds`: of communication (>= 1, default 10,000).
    - `seed`: of everything random, dealing out rows included (default 0).

    After `fit`: `result_` (the `fp.Result` with its certificate), `classes_`, `coef_` (1, features) or (classes, features),
    `intercept_` (1,) or (classes,), `n_features_in_`, and `feature_names_in_` where X has names. The sign of x·coef_ + intercept_
    decides: as everywhere in scikit-learn it is positive for `classes_[1]`, whatever `positive` is, and `intercept_` includes the
    threshold of `fp.decisions` where that is not 0. Intercepts of more than two classes add up to 0.

        gap = fp.demographic_parity_gap(fp.decisions(), group="sex").pooled()
        fair = FederatedClassifier(subject_to=[gap <= 0.05], positive="grant")
        fair.fit(X, y, parties=rows["bank"], columns=rows[["sex"]])
    """

    classes_: np.ndarray
    _rule: DecisionRule

    def __init__(
        self,
        subject_to: Sequence[Constraint] = (),
        *,
        positive: Any = None,
        parties: int = 1,
        l1: float = 0.0,
        l2: float = 1e-3,
        tolerance: float = 1e-6,
        algorithm: Algorithm | None = None,
        max_rounds: int = 10_000,
        seed: int = 0,
    ) -> None:
        self.subject_to = subject_to
        self.positive = positive
        self.parties = parties
        self.l1 = l1
        self.l2 = l2
        self.tolerance = tolerance
        self.algorithm = algorithm
        self.max_rounds = max_rounds
        self.seed = seed

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        parties: Any = None,
        columns: Mapping[str, Any] | Any = None,
    ) -> Self:
        """Train on rows.

        - `X`: features (rows, features), an array or a frame.
        - `y`: labels (rows,), numbers or strings.
        - `sample_weight`: of rows in the objective, from 0 on (rows,); constraints use it where they say
          `weights="sample_weight"` (default None: all weigh 1).
        - `parties`: who holds each row (rows,), names or numbers (default None: rows are dealt out, see the class).
        - `columns`: a frame, `fp.Table` or mapping of columns that constraints read and the model does not (default None).

        Returns the estimator. Raises ValueError where an argument is not of this form. Warns (`ConvergenceWarning`) where the run
        did not converge, for instance since the constraints are infeasible.
        """
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, place = np.unique(y, return_inverse=True)
        many = len(self.classes_)
        if many < 2:
            raise ValueError(f"y holds one class only, {self.classes_[0]!r}; a classifier needs at least two")
        if many == 2:
            model, target = Linear(bias=True), (place == self._positive_place()).astype(int)
            loss = logistic_loss(model)
        else:
            if self.positive is not None:
                raise ValueError(
                    f"positive={self.positive!r}: y holds {many} classes and decisions are for one of two; constraints name the "
                    "class by its place in classes_: fp.decisions(label=0)"
                )
            model, target = Linear(bias=True, outputs=many), place
            loss = softmax_loss(model)
        self.result_ = self._solved(loss, self._table(X, target, sample_weight, parties, columns), "y")
        params = self.result_.params
        self._rule = DecisionRule.of(self.result_.problem, self.result_.threshold)
        if many == 2:
            sign = 1.0 if self._positive_place() == 1 else -1.0
            self.coef_ = sign * params["w"][None, :]
            self.intercept_ = sign * np.atleast_1d(params["b"] - self._rule.threshold)
        else:
            self.coef_, self.intercept_ = (
                params["w"].T,
                params["b"] - params["b"].mean(),
            )  # a common shift decides nothing
        return self

    def _positive_place(self) -> int:
        if self.positive is None:
            return 1
        places = np.flatnonzero(self.classes_ == self.positive)
        if not len(places):
            there = ", ".join(repr(value) for value in self.classes_.tolist())
            raise ValueError(f"positive={self.positive!r}: the classes of y are {there}")
        return int(places[0])

    def decision_function(self, X: Any) -> np.ndarray:
        """x·coef_ + intercept_ of rows: (rows,), positive where `classes_[1]` is decided; (rows, classes) of more than two."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> np.ndarray:
        """Decided classes of rows (rows,), by the threshold that the constraints on decisions were counted with."""
        scores = self.decision_function(X)
        if scores.ndim == 2:
            return self.classes_[np.argmax(scores, axis=1)]
        if self._positive_place() == 1:
            return self.classes_[(scores > 0).astype(int)]
        return self.classes_[(scores >= 0).astype(int)]  # a positive decision is a score above the threshold, not at it

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes (rows, classes), in the order of `classes_`.

        They are those of the logistic or softmax model and do not depend on the threshold of `fp.decisions`: where that is not 0,
        `predict` is not the class of the larger one.
        """
        scores = self._scores(X)
        if scores.shape[1] == 1:
            sign = 1.0 if self._positive_place() == 1 else -1.0
            scores = np.hstack([np.zeros_like(scores), scores + sign * self._rule.threshold])
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)


class FederatedRegressor(RegressorMixin, _Federated):
    """A linear regression over rows of several parties, under constraints: mean ½ (x·w + b − y)² with weights on ‖w‖₁ and ‖w‖².

    - `subject_to`: constraints, of the estimator's own model where losses name none (default: none), such as
      `fp.mean(fp.squared_loss()) <= 0.5`, at each party. They may read the columns "x", "y", "sample_weight" and "parties" of
      `fit`, those of its `columns`, and the features of a frame by their names.
    - `parties`: how many parties the rows are dealt out to, at random (>= 1, default 1), where `fit` is not told who holds them.
    - `l1`, `l2`, `tolerance`, `algorithm`, `max_rounds`, `seed`: as of `FederatedClassifier`.

    After `fit`: `result_` (the `fp.Result` with its certificate), `coef_` (features,), `intercept_` (a number), `n_features_in_`,
    and `feature_names_in_` where X has names.
    """

    def __init__(
        self,
        subject_to: Sequence[Constraint] = (),
        *,
        parties: int = 1,
        l1: float = 0.0,
        l2: float = 1e-3,
        tolerance: float = 1e-6,
        algorithm: Algorithm | None = None,
        max_rounds: int = 10_000,
        seed: int = 0,
    ) -> None:
        self.subject_to = subject_to
        self.parties = parties
        self.l1 = l1
        self.l2 = l2
        self.tolerance = tolerance
        self.algorithm = algorithm
        self.max_rounds = max_rounds
        self.seed = seed

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        parties: Any = None,
        columns: Mapping[str, Any] | Any = None,
    ) -> Self:
        """Train on rows; `y` holds numbers (rows,), the other arguments are those of `FederatedClassifier.fit`."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        y = np.asarray(y, float)
        table = self._table(X, y, sample_weight, parties, columns)
        self.result_ = self._solved(squared_loss(Linear(bias=True)), table, None)
        self.coef_, self.intercept_ = self.result_.params["w"], float(self.result_.params["b"])
        return self

    def predict(self, X: Any) -> np.ndarray:
        """x·coef_ + intercept_ of rows (rows,)."""
        return self._scores(X)
