"""Row-wise losses: `loss(params, rows) -> (rows,)`, to be averaged by `fp.mean`."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpact.problem.models import Model


@dataclasses.dataclass(frozen=True)
class Loss:
    """formula(scores, labels) on the scores of a model. `labels` lists what the label column may hold, None: anything."""

    name: str
    model: Model
    label: str
    formula: Callable[[jax.Array, jax.Array], jax.Array]
    labels: tuple[float, ...] | None = None

    def __call__(self, params: Any, rows: Mapping[str, Any]) -> jax.Array:
        if _traced(params, rows):
            return self.formula(self.model.apply(params, rows), rows[self.label])
        with jax.enable_x64(True):  # outside a run: the user's own numbers, in the precision they were certified in
            rows = {name: jnp.asarray(rows[name]) for name in rows if np.asarray(rows[name]).dtype.kind in "biuf"}
            return self.formula(self.model.apply(jax.tree.map(jnp.asarray, params), rows), rows[self.label])

    def curvature(self, params: Any, rows: Mapping[str, Any], weights: jax.Array) -> jax.Array | None:
        """∇² Σ_r weights_r loss_r over flat parameters by one product of matrices; None where scores are not linear.

        It saves the d directional derivatives that a general Hessian takes.
        """
        if self.model.score_gram(rows, weights) is None:
            return None

        def slope(scores: jax.Array) -> jax.Array:
            return jax.grad(lambda s: self.formula(s, rows[self.label]).sum())(scores)

        scores = self.model.apply(params, rows)
        bend = jax.jvp(slope, (scores,), (jnp.ones_like(scores),))[1]
        return self.model.score_gram(rows, weights * bend)

    def unexpected_labels(self, labels: np.ndarray, scores: Any) -> tuple[list[Any], str]:
        """Labels that this loss has no meaning for, and in words what it expects."""
        found = np.unique(labels)
        if self.labels is not None:
            return [v for v in found.tolist() if v not in self.labels], f"one of {', '.join(map(str, self.labels))}"
        if self.name == "softmax_loss":
            classes = scores.shape[-1]
            bad = [v for v in found.tolist() if v not in range(classes)]
            return bad, f"a whole number from 0 to {classes - 1}"
        return [], "a number"


def logistic_loss(model: Model, label: str = "y", labels: tuple[float, float] = (0, 1)) -> Loss:
    """log(1 + exp(-s·score)) with s = -1 for the first of `labels` and +1 for the second."""
    negative, positive = _pair(labels)
    return Loss("logistic_loss", model, label, _Logistic(positive), (negative, positive))


def smoothed_hinge_loss(
    model: Model, label: str = "y", labels: tuple[float, float] = (0, 1), width: float = 1.0
) -> Loss:
    """The hinge max(0, 1 - s·score) with its corner rounded over a margin of `width` (> 0)."""
    if not width > 0:
        raise ValueError(f"smoothed_hinge_loss(width={width}): the rounding has a positive width")
    negative, positive = _pair(labels)
    return Loss("smoothed_hinge_loss", model, label, _Hinge(positive, float(width)), (negative, positive))


def softmax_loss(model: Model, label: str = "y") -> Loss:
    """log Σ_k exp(score_k) - score_y for labels y in 0 .. K-1, K the model's outputs."""
    return Loss("softmax_loss", model, label, _softmax)


def squared_loss(model: Model, label: str = "y") -> Loss:
    """½ (score - y)², summed over outputs where there are several."""
    return Loss("squared_loss", model, label, _squared)


def loss(formula: Callable[[jax.Array, jax.Array], jax.Array], model: Model, label: str = "y") -> Loss:
    """Any loss: `formula(scores, labels) -> (rows,)` on the scores of `model`."""
    if not callable(formula):
        raise TypeError(f"fp.loss takes a function (scores, labels) -> (rows,), not {formula!r}")
    return Loss(getattr(formula, "__name__", "loss"), model, label, formula)


@dataclasses.dataclass(frozen=True)
class _Logistic:
    positive: float

    def __call__(self, scores: jax.Array, labels: jax.Array) -> jax.Array:
        return jax.nn.softplus(jnp.where(labels == self.positive, -scores, scores))


@dataclasses.dataclass(frozen=True)
class _Hinge:
    positive: float
    width: float

    def __call__(self, scores: jax.Array, labels: jax.Array) -> jax.Array:
        short = 1.0 - jnp.where(labels == self.positive, scores, -scores)
        rounded = jnp.clip(short, 0.0, self.width) ** 2 / (2 * self.width)
        return rounded + jnp.maximum(short - self.width, 0.0)


def _softmax(scores: jax.Array, labels: jax.Array) -> jax.Array:
    picked = jnp.take_along_axis(scores, labels.astype(jnp.int32)[:, None], axis=1)[:, 0]
    return jax.nn.logsumexp(scores, axis=1) - picked


def _squared(scores: jax.Array, labels: jax.Array) -> jax.Array:
    gap = (scores - labels) ** 2
    return 0.5 * (gap if gap.ndim == 1 else gap.reshape(gap.shape[0], -1).sum(1))


def _pair(labels: tuple[float, float]) -> tuple[float, float]:
    if len(labels) != 2 or labels[0] == labels[1]:
        raise ValueError(f"labels={labels!r}: two different values, the negative one first")
    return labels


def _traced(*trees: Any) -> bool:
    return any(isinstance(leaf, jax.core.Tracer) for tree in trees for leaf in jax.tree.leaves(tree))
