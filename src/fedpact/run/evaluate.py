"""fp.evaluate: what a model decides at every party and in every group, from counts alone."""

from typing import Any

import numpy as np

from fedpact.evaluation.counts import BINS, Question, Tag, count_rows
from fedpact.evaluation.table import Evaluation
from fedpact.federation.columns import ColumnParties, split_columns
from fedpact.federation.rows import Parties, is_split, split_rows
from fedpact.federation.table import Table, as_table
from fedpact.precision import in_double
from fedpact.problem.models import Model
from fedpact.problem.scores import scores_of
from fedpact.problem.split import SplitModel
from fedpact.protocol.options import check
from fedpact.run.result import Result
from fedpact.run.saved_model import predictor_of


@in_double
def evaluate(
    model: Result | Model,
    parties: Parties | ColumnParties | Any,
    *,
    label: str = "y",
    group: str | None = None,
    params: Any = None,
    positive: Tag | None = None,
    threshold: float | None = None,
    weights: str | None = None,
    bins: int = BINS,
    confidence: float = 0.95,
    min_rows: int = 1,
) -> Evaluation:
    """Rows, accuracy, selection rate, true and false positive rate, precision and AUC, by party and group, with intervals.

    Every party scores its own rows and counts them, by group, label and decision; counts and histograms of scores are all that
    leaves it. A decision is what `result.predict` gives. Where every party has a model of its own, it is evaluated with that.

    - `model`: a result, or a model with `params`.
    - `parties`: `fp.Parties`, `fp.ColumnParties`, a list or mapping of tables, or one table. Rows that were not trained on say
      more.
    - `label`: the column of labels (default "y").
    - `group`: a column of at most 100 different values (default: no groups).
    - `params`: of a model that comes without a result.
    - `positive`: the label that decisions are about (default: that of the loss, else 1); of a model with several classes, the
      class that is compared with all others together, which has to be named.
    - `threshold`: decided positive is score > threshold, in units of the score (default: that of the result).
    - `weights`: a column of row weights >= 0 (default: rows count alike). Intervals then use the effective number of rows.
    - `bins`: of the histograms of 1 / (1 + exp(-score)), equal parts of 0 to 1 (2 to 100,000, default 1000).
      `fp.Rates.auc_error` says how far that may take the AUC from that of the scores.
    - `confidence`: of each interval by itself (between 0 and 1, default 0.95).
    - `min_rows`: a group with fewer rows of a label than this at a party, but not none, is withheld there (default 1).

    Returns an `fp.Evaluation`. Raises ValueError or TypeError where columns are missing or do not fit, with party and column.

        table = fp.evaluate(result, hospitals, label="y", group="sex")
        table.at(party="north", group="f").true_positive_rate
    """
    confidence = checked_confidence(confidence)
    if isinstance(model, Result):
        if params is not None:
            raise ValueError("evaluate(params=...): a result has parameters of its own")
        if model.privacy is not None:
            raise ValueError(
                "the result was made with fp.DifferentialPrivacy, and an evaluation counts rows without noise: on the rows of "
                "the run that would tell more than its ε. For rows of other people, whose counts may be told, use "
                "fp.evaluate(result.problem.model, parties, params=result.params)"
            )
        threshold = model.threshold if threshold is None else threshold
    elif not isinstance(model, Model):
        raise TypeError(f"evaluate takes a result, or a model with params=, not a {type(model).__name__}")
    elif params is None:
        raise ValueError("evaluate(model, ...) needs params=, the model's parameters")
    asked = Question.of(
        model.problem if isinstance(model, Result) else None,
        label=label, group=group, positive=positive, threshold=threshold, weights=weights, bins=bins, min_rows=min_rows,
    )  # fmt: skip
    counts = {}
    for party, table, scores in _scored(model, params, parties):
        counts[party] = count_rows(party, table, scores, asked)
    return checked(Evaluation(counts, asked, confidence))


def checked_confidence(confidence: Any) -> float:
    """As a user gave it."""
    check("evaluate", "confidence", confidence, lambda x: 0 < x < 1, "between 0 and 1")
    return float(confidence)


def checked(evaluation: Evaluation) -> Evaluation:
    """Raise ValueError where no row is positive: then another label is meant."""
    question = evaluation.question
    if not evaluation.at().positives and not evaluation.withheld:
        raise ValueError(
            f"no row has {question.positive!r} in column {question.label!r}, so there is nothing to find; say which label is "
            "positive by positive="
        )
    return evaluation


def _scored(model: Result | Model, params: Any, data: Any) -> list[tuple[str, Table, np.ndarray]]:
    """For each party its name, its table and the scores of its rows; over columns, where scores come together."""
    stated = model.problem.model if isinstance(model, Result) else model
    if isinstance(stated, SplitModel):
        together = data if isinstance(data, ColumnParties) else split_columns(data)
        if isinstance(model, Result):
            scores = predictor_of(model).raw_scores(together)
        else:
            scores = np.asarray(stated.predict(params, together, together.names))
        return [(together.active[0], together.labels, scores)]
    if isinstance(data, ColumnParties):
        raise ValueError(
            "these parties hold columns, and the model is over rows: fp.split_model makes one over columns"
        )
    if not isinstance(data, Parties):
        data = split_rows(data) if is_split(data) else Parties({"table": as_table(data)})
    if isinstance(model, Model):
        return [(name, table, scores_of(model, params, table)) for name, table in data.items()]
    predictor = predictor_of(model)
    return [
        (name, table, predictor.raw_scores(table, name if name in predictor.parts else None))
        for name, table in data.items()
    ]
