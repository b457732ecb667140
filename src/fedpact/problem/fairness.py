"""Gaps between groups, as expressions: `fp.equal_opportunity_gap(loss, group="sex") <= 0.01` is a constraint.

    equal opportunity     max over groups a, b of m(positive, a) - m(positive, b)
    demographic parity    max over groups a, b of m(a) - m(b)
    equalised odds        max over positive and negative labels and groups a, b of m(label, a) - m(label, b)

m(S) is a mean over the rows of S: of a loss, as in Liu, Fan, Zhou, Shi, Pei, Chu and Zhang, "Achieving model fairness in
vertical federated learning" (arXiv:2109.08344), whose DEO is the first line with the training loss; of `fp.decisions`, and then
it is a counted rate; or, for a model in place of a loss, of its smooth positive rate sigmoid(score / temperature). The groups
are all values of a column that the parties have, or those that are chosen. Like every expression a gap is evaluated at each
party, `.pooled()` over all rows, or `.at_server()`; over split columns it is over all rows.

Equal opportunity and equalised odds are of Hardt, Price and Srebro, "Equality of opportunity in supervised learning"
(NIPS 2016), for decisions; Donini and others, "Empirical risk minimization under fairness constraints" (NeurIPS 2018),
take the gap of losses.
"""

import numbers
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from fedpact.problem.atoms import RowFunction
from fedpact.problem.columns import Column, Mask, col
from fedpact.problem.expressions import Expression
from fedpact.problem.functions import largest
from fedpact.problem.gaps import Gap
from fedpact.problem.losses import Loss, positive_rate
from fedpact.problem.models import Model
from fedpact.problem.nonsmooth import Tag

Measured = Loss | Model | RowFunction  # the function whose means are compared


def equal_opportunity_gap(
    loss: Measured,
    *,
    group: str,
    label: str | None = None,
    positive: Tag | None = None,
    groups: Sequence[Tag] | None = None,
    weights: str | None = None,
    temperature: float = 1.0,
) -> Expression:
    """The equal-opportunity gap: the largest less the smallest mean(loss | positive, group) of the groups.

    - `loss`: a loss, `fp.decisions(model)` for counted rates, a row-wise function, or a model for its smooth positive rate
      sigmoid(score / temperature).
    - `group`: the column of group membership.
    - `label`: the column of labels (default: the label column of the loss, else "y").
    - `positive`: the value of a positive label (default: the positive label of the loss, else 1).
    - `groups`: two or more values of the column `group` that are compared (default None: all that it has over all parties, or
      at the server for a gap `.at_server()`).
    - `weights`: the column of the rows' weights in all means, as in `fp.mean` (default None: every row weighs 1).
    - `temperature`: of the smooth positive rate (> 0, default 1; smaller is closer to the rate of hard decisions); only with a
      model.

    Returns an `Expression` in the units of the loss; bounded from above it is k(k - 1) smooth inequalities for k groups, at most
    64. Raises ValueError or TypeError where an argument is not of this form.

        fair = fp.equal_opportunity_gap(fp.logistic_loss(fp.linear()), group="sex") <= 0.01
    """
    function = _function(loss, temperature)
    return _gap(function, group, groups, weights, _positives(function, label, positive))


def demographic_parity_gap(
    loss: Measured,
    *,
    group: str,
    groups: Sequence[Tag] | None = None,
    weights: str | None = None,
    temperature: float = 1.0,
) -> Expression:
    """The demographic-parity gap: the largest less the smallest mean(loss | group) of the groups, over all labels.

    - `loss`: `fp.decisions(model)` for counted rates, or a model for its smooth positive rate sigmoid(score / temperature), the
      usual choices; or a loss or row-wise function.
    - `group`: the column of group membership.
    - `groups`: two or more values of the column `group` that are compared (default None: all that it has over all parties, or
      at the server for a gap `.at_server()`).
    - `weights`: the column of the rows' weights in all means, as in `fp.mean` (default None: every row weighs 1).
    - `temperature`: of the smooth positive rate (> 0, default 1); only with a model.

    Returns an `Expression`; bounded from above it is k(k - 1) smooth inequalities for k groups, at most 64. Raises ValueError or
    TypeError where an argument is not of this form.

        fair = fp.demographic_parity_gap(fp.linear(), group="sex") <= 0.05
    """
    return _gap(_function(loss, temperature), group, groups, weights)


def equalized_odds_gap(
    loss: Measured,
    *,
    group: str,
    label: str | None = None,
    positive: Tag | None = None,
    groups: Sequence[Tag] | None = None,
    weights: str | None = None,
    temperature: float = 1.0,
) -> Expression:
    """The equalised-odds gap: the larger of the gap among positive labels and the gap among the others.

    - `loss`: a loss, `fp.decisions(model)` for counted rates, a row-wise function, or a model for its smooth positive rate
      sigmoid(score / temperature).
    - `group`: the column of group membership.
    - `label`: the column of labels (default: the label column of the loss, else "y").
    - `positive`: the value of a positive label (default: the positive label of the loss, else 1).
    - `groups`: two or more values of the column `group` that are compared (default None: all that it has over all parties, or
      at the server for a gap `.at_server()`).
    - `weights`: the column of the rows' weights in all means, as in `fp.mean` (default None: every row weighs 1).
    - `temperature`: of the smooth positive rate (> 0, default 1); only with a model.

    Returns an `Expression`; bounded from above it is 2k(k - 1) smooth inequalities for k groups, at most 64. Raises ValueError or
    TypeError where an argument is not of this form.
    """
    function = _function(loss, temperature)
    positives = _positives(function, label, positive)
    return largest(*(_gap(function, group, groups, weights, among) for among in (positives, ~positives)))


def _gap(function: RowFunction, group: Any, groups: Any, weights: Any, among: Mask | None = None) -> Expression:
    column = _column(group, "group").name
    if groups is not None:
        chosen = tuple(groups) if isinstance(groups, Iterable) and not isinstance(groups, str) else ()
        if len(chosen) < 2 or not all(map(_is_tag, chosen)) or len(set(chosen)) < len(chosen):
            raise ValueError(
                f"groups={groups!r}: two or more different values of column {group!r}, numbers or strings, such as (0, 1) or "
                "('F', 'M'); left out, all values of the column are compared"
            )
        groups = tuple(value.item() if isinstance(value, np.generic) else value for value in chosen)
    return Gap(function, column, groups, among, weights).expression


def _function(measured: Any, temperature: float) -> RowFunction:
    if isinstance(measured, Model):
        return positive_rate(measured, temperature)
    if temperature != 1.0:
        raise ValueError(
            f"temperature={temperature!r} belongs to the smooth rate of a model, but the gap is taken of "
            f"{getattr(measured, 'name', measured)}; give the model in its place, or leave temperature= out"
        )
    if not isinstance(measured, Callable):
        raise TypeError(f"a gap is taken of a loss such as fp.logistic_loss(model), or of a model, not of {measured!r}")
    return measured


def _positives(function: RowFunction, label: Any, positive: Any) -> Mask:
    own, known = (function.label, function.labels) if isinstance(function, Loss) else (None, None)
    name = label if label is not None else own or "y"
    column = _column(name, "label")
    if positive is None:
        positive = known[1] if known is not None and name == own else 1
    if not _is_tag(positive):
        raise ValueError(f"positive={positive!r}: the value of column {name!r} that counts as positive")
    if known is not None and name == own and positive not in known:
        labels = ", ".join(map(str, known))
        raise ValueError(f"positive={positive!r}: the loss knows the labels {labels} in column {name!r}")
    return column == positive


def _column(name: Any, role: str) -> Column:
    if not isinstance(name, str):
        raise TypeError(f"{role}={name!r}: the name of a column")
    return col(name)


def _is_tag(value: Any) -> bool:
    return isinstance(value, numbers.Real | str) and value == value
