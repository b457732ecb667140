"""The usual rates of a model's decisions by their names, as expressions: `fp.true_positive_rate(model) >= 0.95`.

    selection         share of rows with score > threshold
    true positive     share of positive rows with score > threshold;     false negative    1 less it
    false positive    share of the other rows with score > threshold;    true negative     1 less it
    error             share of rows where the decision is not the label

All are counted, see `fp.decisions`. Like every expression they are evaluated at each party, `.pooled()` or `.at_server()`.
"""

import dataclasses
import math
import numbers
from typing import Any

from fedpact.problem.columns import Mask, col
from fedpact.problem.expressions import Expression
from fedpact.problem.functions import mean
from fedpact.problem.losses import Loss, decisions
from fedpact.problem.models import Model
from fedpact.problem.nonsmooth import Tag


def selection_rate(
    model: Model | None = None, threshold: float = 0.0, *, weights: str | None = None, temperature: float | None = None
) -> Expression:
    """The share of rows that are decided positive, that is with score > threshold.

    - `model`: one score a row (default: an estimator's own, in `fedpact.sklearn`).
    - `threshold`: in units of the score (default 0).
    - `weights`: the column of the rows' weights, as in `fp.mean` (default None: every row weighs 1).
    - `temperature`: of the smooth stand-in that a run works with, see `fp.decisions` (> 0, default 0.1).

    Returns an `Expression` from 0 to 1. Raises ValueError or TypeError where an argument is not of this form.

        few = fp.selection_rate(fp.linear()).pooled() <= 0.2
    """
    return mean(decisions(model, threshold, temperature=temperature), weights=weights)


def true_positive_rate(
    model: Model | None = None,
    label: str = "y",
    positive: Tag = 1,
    threshold: float = 0.0,
    *,
    weights: str | None = None,
    temperature: float | None = None,
) -> Expression:
    """The share of positive rows that are decided positive (recall, sensitivity).

    - `model`: one score a row (default: an estimator's own, in `fedpact.sklearn`).
    - `label`: the column of labels (default "y").
    - `positive`: the value of a positive label, a number or a string (default 1).
    - `threshold`: a decision is positive where score > threshold, in units of the score (default 0).
    - `weights`: the column of the rows' weights, as in `fp.mean` (default None: every row weighs 1).
    - `temperature`: of the smooth stand-in that a run works with, see `fp.decisions` (> 0, default 0.1).

    Returns an `Expression` from 0 to 1. Raises ValueError or TypeError where an argument is not of this form.

        found = fp.true_positive_rate(fp.linear(), label="ill") >= 0.95
    """
    return mean(decisions(model, threshold, temperature=temperature), _positives(label, positive), weights)


def false_negative_rate(
    model: Model | None = None,
    label: str = "y",
    positive: Tag = 1,
    threshold: float = 0.0,
    *,
    weights: str | None = None,
    temperature: float | None = None,
) -> Expression:
    """The share of positive rows that are decided negative: 1 less `fp.true_positive_rate`, with the same arguments."""
    return 1.0 - true_positive_rate(model, label, positive, threshold, weights=weights, temperature=temperature)


def false_positive_rate(
    model: Model | None = None,
    label: str = "y",
    positive: Tag = 1,
    threshold: float = 0.0,
    *,
    weights: str | None = None,
    temperature: float | None = None,
) -> Expression:
    """The share of rows whose label is not positive that are decided positive; arguments as of `fp.true_positive_rate`."""
    return mean(decisions(model, threshold, temperature=temperature), ~_positives(label, positive), weights)


def true_negative_rate(
    model: Model | None = None,
    label: str = "y",
    positive: Tag = 1,
    threshold: float = 0.0,
    *,
    weights: str | None = None,
    temperature: float | None = None,
) -> Expression:
    """The share of rows whose label is not positive that are decided negative (specificity): 1 less
    `fp.false_positive_rate`, with the same arguments."""
    return 1.0 - false_positive_rate(model, label, positive, threshold, weights=weights, temperature=temperature)


def error_rate(
    model: Model | None = None,
    label: str = "y",
    positive: float = 1,
    threshold: float = 0.0,
    *,
    weights: str | None = None,
    temperature: float | None = None,
) -> Expression:
    """The share of rows that are decided wrongly: positive where the label is not, or the other way round.

    Arguments as of `fp.true_positive_rate`, but `positive` is a number, since the labels are read as numbers here.

    Returns an `Expression` from 0 to 1. Raises ValueError or TypeError where an argument is not of this form.

        right = 1 - fp.error_rate(fp.linear()) >= 0.8
    """
    if isinstance(positive, bool) or not isinstance(positive, numbers.Real) or not math.isfinite(positive):
        raise ValueError(
            f"error_rate(positive={positive!r}): the number of a positive label; recode strings to 0 and 1"
        )
    if not isinstance(label, str):
        raise TypeError(f"error_rate(label={label!r}): the name of a column")
    decided = decisions(model, threshold, temperature=temperature)
    assert decided.rate is not None
    wrong = dataclasses.replace(decided.rate, positive=float(positive))
    return mean(Loss("wrong_decisions", decided.model, label, wrong), weights=weights)


def _positives(label: Any, positive: Any) -> Mask:
    if not isinstance(label, str):
        raise TypeError(f"label={label!r}: the name of a column")
    return col(label) == positive
