"""Row-wise losses: `loss(params, rows) -> (rows,)`, to be averaged by `fp.mean`.

A loss that names no model, `fp.decisions()`, is of the model of the estimator in `fedpact.sklearn` whose constraint it is in.
"""

import dataclasses
import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fedpact.problem.columns import numeric
from fedpact.problem.models import Linear, Mlp, Model, UnnamedModel
from fedpact.problem.rates import OF_THRESHOLD, TEMPERATURE, Rate
from fedpact.problem.symmetric import OuterProducts


@dataclasses.dataclass(frozen=True)
class Loss:
    """A row-wise loss formula(scores, labels) of a model. Made by `fp.logistic_loss`, `fp.loss` and the like.

    - `name`: for messages.
    - `model`: gives the scores.
    - `label`: the column of labels; None where the formula reads no label.
    - `formula`: `(scores, labels) -> (rows,)` in JAX.
    - `labels`: the values that the label column may hold (default None: any).

    `loss(params, rows)` returns the loss of each row (rows,), in float64 outside a run. It raises KeyError for a missing column
    and ValueError where parameters and columns do not fit.
    """

    name: str
    model: Model
    label: str | None
    formula: Callable[[jax.Array, Any], jax.Array]
    labels: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.model, Model):
            raise TypeError(f"{self.name} takes a model such as fp.linear(), not a {type(self.model).__name__}")
        if not isinstance(self.label, str | None):
            raise TypeError(f"{self.name}(label={self.label!r}): the name of a column")

    def __call__(self, params: Any, rows: Mapping[str, Any]) -> jax.Array:
        if _traced(params, rows):
            return self._per_row(params, rows)
        with jax.enable_x64(True):  # outside a run: in the precision of the certificate
            arrays = {name: jnp.asarray(column) for name, column in numeric(rows).items()}
            try:
                return self._per_row(jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), params), arrays)
            except KeyError as error:
                there = f"the columns of numbers are {', '.join(map(str, arrays))}"
                columns = (self.label, getattr(self.model, "inputs", None))
                if isinstance(params, Mapping) and error.args[0] not in columns:
                    there = f"the parameters are {', '.join(map(str, params))}, and {there}"
                raise KeyError(f"{self.name} reads {error}, but {there}") from None
            except TypeError as error:
                shapes, there = (jax.tree.map(np.shape, tree) for tree in (params, arrays))
                raise ValueError(
                    f"{self.name}: parameters of shapes {shapes} do not fit columns of shapes {there} ({error})"
                ) from None

    def _per_row(self, params: Any, rows: Mapping[str, Any]) -> jax.Array:
        scores, labels = self.model.apply(params, rows), self._labels(rows)
        if labels is not None and scores.shape[:1] != labels.shape[:1]:
            raise ValueError(
                f"{self.name}: the model gives scores of shape {scores.shape} on {len(labels)} rows, not one per row"
            )
        return self.formula(scores, labels)

    def _labels(self, rows: Mapping[str, Any]) -> jax.Array | None:
        return None if self.label is None else jnp.asarray(rows[self.label])

    def curvature(self, params: Any, rows: Mapping[str, Any], weights: jax.Array) -> OuterProducts | None:
        """∇² Σ_r weights_r loss_r over flat parameters; None where scores are not linear.

        A general Hessian takes d directional derivatives instead.
        """
        slopes = self.model.score_slopes(rows)
        if slopes is None:
            return None

        def slope(scores: jax.Array) -> jax.Array:
            return jax.grad(lambda s: self.formula(s, self._labels(rows)).sum())(scores)

        scores = self.model.apply(params, rows)
        second = jax.jvp(slope, (scores,), (jnp.ones_like(scores),))[1]
        return OuterProducts(slopes, weights * second)

    def with_model(self, model: Model) -> "Loss":
        """The same of this model where it names none; else itself."""
        return dataclasses.replace(self, model=model) if isinstance(self.model, UnnamedModel) else self

    @property
    def rate(self) -> Rate | None:
        """Its formula, where it is a rate of decisions or the smooth stand-in of one; None for other losses."""
        return self.formula if isinstance(self.formula, Rate) else None

    @property
    def classifies(self) -> Literal["two labels", "classes"] | None:
        """What it says of labels: two of them (`labels`), one for each score of a row, or nothing (None)."""
        if isinstance(self.formula, _Logistic | _Hinge):
            return "two labels"
        return "classes" if self.formula is _softmax else None

    @property
    def is_logistic(self) -> bool:
        """Whether it is the logistic loss, which reads a score as the logarithm of the odds."""
        return isinstance(self.formula, _Logistic)

    @property
    def range(self) -> tuple[float, float]:
        """Between which numbers it is, whatever the scores: rates between 0 and 1, fedpact's own losses not below 0."""
        if self.rate is not None:
            return 0.0, 1.0
        return (0.0 if self._is_own else -math.inf), math.inf

    @property
    def convex(self) -> bool:
        """Whether it is known to be convex in the parameters: one of fedpact's convex losses of a linear model."""
        return self._is_own and type(self.model) is Linear

    @property
    def known(self) -> bool:
        """Whether formula and model are fedpact's own, which are row-wise and finite on finite rows."""
        model, own = self.model, self._is_own or self.rate is not None
        return own and (type(model) is Linear or (type(model) is Mlp and model.activation is jax.nn.tanh))

    @property
    def _is_own(self) -> bool:
        """Whether the formula is one of fedpact's losses, which are convex in the scores and not below 0."""
        return isinstance(self.formula, _Logistic | _Hinge) or self.formula in (_softmax, _squared)

    def unexpected_labels(self, labels: np.ndarray, scores: Any) -> tuple[list[Any], str]:
        """The label values that this loss does not accept, and what it expects, in words."""
        if self.labels is not None:
            one_of = ", ".join(map(str, self.labels))
            known, expected = self.labels, f"one of {one_of}; recode the column or give labels=(negative, positive)"
        elif self.formula is _softmax:
            known = range(scores.shape[-1])
            expected = f"a whole number from 0 to {len(known) - 1}; recode the column or give the model more outputs"
        else:
            return [], "a number"
        others = labels[~np.isin(labels, known)]
        return np.unique(others).tolist(), expected


def logistic_loss(model: Model | None = None, label: str = "y", labels: tuple[float, float] = (0, 1)) -> Loss:
    """The logistic loss log(1 + exp(-s·score)) of each row, s = -1 for a negative label and +1 for a positive one.

    - `model`: one score per row, such as `fp.linear()` (default: an estimator's own, in `fedpact.sklearn`).
    - `label`: the column of labels (default "y").
    - `labels`: its two values, (negative, positive) (default (0, 1)).

    Returns a `Loss`, to be averaged: `fp.mean(fp.logistic_loss(fp.linear()))`. Raises ValueError where `labels` are not two
    different numbers.
    """
    negative, positive = _pair(labels)
    return Loss("logistic_loss", _named(model), label, _Logistic(positive), (negative, positive))


def smoothed_hinge_loss(
    model: Model | None = None, label: str = "y", labels: tuple[float, float] = (0, 1), width: float = 1.0
) -> Loss:
    """The hinge loss max(0, 1 - s·score) of each row, made smooth around its corner; s = ±1 as in `fp.logistic_loss`.

    With u = 1 - s·score it is 0 for u <= 0, u²/(2 width) up to u = width, and u - width/2 above.

    - `model`: one score per row, such as `fp.linear()` (default: an estimator's own, in `fedpact.sklearn`).
    - `label`: the column of labels (default "y").
    - `labels`: its two values, (negative, positive) (default (0, 1)).
    - `width`: of the quadratic part, in units of the score (> 0, default 1).

    Returns a `Loss`, to be averaged by `fp.mean`. Raises ValueError where `labels` or `width` is not of this form.
    """
    if not (isinstance(width, numbers.Real) and 0 < width < math.inf):
        raise ValueError(f"smoothed_hinge_loss(width={width!r}): the rounding has a positive width")
    negative, positive = _pair(labels)
    return Loss("smoothed_hinge_loss", _named(model), label, _Hinge(positive, float(width)), (negative, positive))


def softmax_loss(model: Model | None = None, label: str = "y") -> Loss:
    """The softmax cross-entropy log Σ_k exp(score_k) - score_y of each row.

    - `model`: one score per class (rows, K), such as `fp.linear(outputs=10)` or `fp.mlp([64, 32, 10])` (default: an estimator's
      own, in `fedpact.sklearn`).
    - `label`: the column of labels, integers from 0 to K-1 (default "y").

    Returns a `Loss`, to be averaged by `fp.mean`.
    """
    return Loss("softmax_loss", _named(model), label, _softmax)


def squared_loss(model: Model | None = None, label: str = "y") -> Loss:
    """The squared loss ½ (score - y)² of each row, summed over outputs where there are several.

    - `model`: scores of the shape of the labels, (rows,) or (rows, outputs) (default: an estimator's own, in `fedpact.sklearn`).
    - `label`: the column of labels y (default "y").

    Returns a `Loss`, to be averaged by `fp.mean`.
    """
    return Loss("squared_loss", _named(model), label, _squared)


def positive_rate(model: Model | None = None, temperature: float = 1.0) -> Loss:
    """The smooth positive rate sigmoid(score / temperature) of each row; its mean approximates the share of positive decisions.

    - `model`: one score per row, positive where the decision is (default: an estimator's own, in `fedpact.sklearn`).
    - `temperature`: in units of the score (> 0, default 1). As it falls the mean tends to the share of rows with score > 0 and
      the gradient vanishes almost everywhere.

    Returns a `Loss` that reads no label, to be averaged by `fp.mean`. Raises ValueError where `temperature` is not > 0.

        at_most_a_third = fp.mean(fp.positive_rate(fp.linear())) <= 1 / 3
    """
    _check_temperature("positive_rate", temperature, "1 is the logistic model's own")
    return Loss("positive_rate", _named(model), None, Rate(float(temperature)))


def decisions(
    model: Model | None = None,
    threshold: float = 0.0,
    *,
    label: int | None = None,
    temperature: float | None = None,
) -> Loss:
    """The decision on each row: 1 where score > threshold, else 0; its mean is a counted rate, not a smooth stand-in.

    - `model`: one score a row, or one for each class (default: an estimator's own, in `fedpact.sklearn`).
    - `threshold`: in units of the score (default 0).
    - `label`: for models with one score for each class: 1 where the score at this place is the largest, else 0 (default: the
      model has one score a row).
    - `temperature`: since a count has no slope, a run minimises with sigmoid((score - threshold) / temperature) in its place
      (softmax(scores / temperature) with `label`) and corrects the bounds by what is counted (> 0, in units of the score,
      default 0.1, or 0.02 times the threshold where that is more, as for scores in dollars).

    Returns a `Loss` that reads no label, to be averaged by `fp.mean`, bounded, and compared between groups. Raises ValueError
    where an argument is not of this form.

        found = fp.mean(fp.decisions(fp.linear()), where=fp.col("y") == 1) >= 0.95
    """
    if temperature is not None:
        _check_temperature("decisions", temperature, "0.1 is the default")
    if isinstance(threshold, bool) or not isinstance(threshold, numbers.Real) or not math.isfinite(threshold):
        raise ValueError(f"decisions(threshold={threshold!r}): a finite number, in units of the score")
    if label is not None:
        if isinstance(label, bool) or not isinstance(label, numbers.Integral) or label < 0:
            raise ValueError(f"decisions(label={label!r}): the place of a class among the scores, from 0")
        if threshold:
            raise ValueError(f"decisions(threshold={threshold!r}, label={label!r}): the largest score has no threshold")
        label = int(label)
    last = max(TEMPERATURE, OF_THRESHOLD * abs(threshold)) if temperature is None else float(temperature)
    return Loss("decisions", _named(model), None, Rate(last, float(threshold), label, True, True))


def loss(formula: Callable[[jax.Array, jax.Array], jax.Array], model: Model | None = None, label: str = "y") -> Loss:
    """Any row-wise loss of a model's scores and the labels.

    - `formula`: `(scores, labels) -> (rows,)` in JAX, hashable; row r of the result depends on row r of the scores and labels.
    - `model`: gives the scores (default: an estimator's own, in `fedpact.sklearn`).
    - `label`: the column of labels (default "y").

    Returns a `Loss`, to be averaged by `fp.mean`. Raises TypeError where `formula` is not a function.

        huber = fp.loss(lambda scores, y: optax.losses.huber_loss(scores, y), fp.linear())
    """
    if not callable(formula):
        raise TypeError(f"fp.loss takes a function (scores, labels) -> (rows,), not {formula!r}")
    return Loss(getattr(formula, "__name__", "loss"), _named(model), label, formula)


@dataclasses.dataclass(frozen=True)
class _Logistic:
    positive: float

    def __call__(self, scores: jax.Array, labels: jax.Array) -> jax.Array:
        return jax.nn.softplus(-_margins(scores, labels, self.positive))


@dataclasses.dataclass(frozen=True)
class _Hinge:
    positive: float
    width: float

    def __call__(self, scores: jax.Array, labels: jax.Array) -> jax.Array:
        short = 1.0 - _margins(scores, labels, self.positive)
        rounded = jnp.clip(short, 0.0, self.width) ** 2 / (2 * self.width)
        return rounded + jnp.maximum(short - self.width, 0.0)


def _named(model: Model | None) -> Model:
    return UnnamedModel() if model is None else model


def _check_temperature(owner: str, temperature: float, words: str) -> None:
    if isinstance(temperature, bool) or not (isinstance(temperature, numbers.Real) and 0 < temperature < math.inf):
        raise ValueError(f"{owner}(temperature={temperature!r}): a positive number; {words}")


def _margins(scores: jax.Array, labels: jax.Array, positive: float) -> jax.Array:
    """s·score, s = ±1."""
    if scores.shape != labels.shape:
        raise ValueError(f"{_shapes(scores, labels)}; both should have one entry a row: use a model without outputs=")
    return jnp.where(labels.astype(scores.dtype) == float(positive), scores, -scores)


def _softmax(scores: jax.Array, labels: jax.Array) -> jax.Array:
    if scores.ndim != 2 or labels.ndim != 1:
        raise ValueError(f"{_shapes(scores, labels)}; a row should have one score per class: use a model with outputs=")
    picked = jnp.take_along_axis(scores, labels.astype(jnp.int32)[:, None], axis=1)[:, 0]
    return jax.nn.logsumexp(scores, axis=1) - picked


def _squared(scores: jax.Array, labels: jax.Array) -> jax.Array:
    if scores.shape != labels.shape:
        raise ValueError(f"{_shapes(scores, labels)}; they should be alike: choose the model's outputs= to fit")
    gap = (scores - labels.astype(scores.dtype)) ** 2
    return 0.5 * (gap if gap.ndim == 1 else gap.reshape(gap.shape[0], -1).sum(1))


def _shapes(scores: jax.Array, labels: jax.Array) -> str:
    return f"the scores have shape {scores.shape}, the labels {labels.shape}"


def _pair(labels: tuple[float, float]) -> tuple[float, float]:
    pair = tuple(labels) if isinstance(labels, Iterable) else ()
    if len(pair) != 2 or not all(isinstance(v, numbers.Real) for v in pair) or pair[0] == pair[1]:
        raise ValueError(f"labels={labels!r}: two different numbers, the negative one first; recode strings to 0 and 1")
    return pair


def _traced(*trees: Any) -> bool:
    return any(isinstance(leaf, Tracer) for tree in trees for leaf in jax.tree.leaves(tree))
