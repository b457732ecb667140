"""Rates of decisions, and their smooth stand-ins: row-wise formulas of a model's scores.

    counted      1 where score > threshold, else 0;                       for label k: 1 where score_k is the largest
    smooth       sigmoid((score - threshold) / temperature);              for label k: softmax(scores / temperature)_k

They read no label, but for the rate of wrong decisions: 1 less these on rows whose label is positive.

A counted rate has no slope. So a method works with the smooth one, and what is promised is counted.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

TEMPERATURE = 0.1  # that stand-ins end at, in units of the score,
OF_THRESHOLD = 0.02  # or this part of the threshold, where that is more


@dataclasses.dataclass(frozen=True)
class Rate:
    """The share of rows that are decided positive, or for `label`; or of those that are decided wrongly.

    - `temperature`: of the stand-in, in units of the score; may be an array.
    - `threshold`: in units of the score; may be an array. Only where `label` is None.
    - `label`: the place of a score, of models with several (default None: a model with one score a row).
    - `is_decision`: whether what is meant is counted (default: no, the smooth rate is what is meant).
    - `counts`: whether the formula counts rather than smooths (default: no).
    - `positive`: the value of a positive label, for the share of wrong decisions (default None: labels are not read). Only where
      `label` is None.
    """

    temperature: Any
    threshold: Any = 0.0
    label: int | None = None
    is_decision: bool = False
    counts: bool = False
    positive: float | None = None

    def __call__(self, scores: jax.Array, labels: jax.Array | None) -> jax.Array:
        if self.label is None:
            if scores.ndim != 1:
                raise ValueError(f"{self._name}: the scores have shape {scores.shape}; {self._way_out(scores)}")
            above = scores - self.threshold
            if self.positive is None or labels is None:
                return (above > 0).astype(scores.dtype) if self.counts else jax.nn.sigmoid(above / self.temperature)
            wanted = labels.astype(scores.dtype) == self.positive
            if self.counts:
                return ((above > 0) != wanted).astype(scores.dtype)
            return jax.nn.sigmoid(jnp.where(wanted, -above, above) / self.temperature)
        if scores.ndim != 2 or self.label >= scores.shape[1]:
            raise ValueError(
                f"{self._name}(label={self.label}): the scores have shape {scores.shape}; a row should have one score per "
                "class: use a model with outputs="
            )
        if self.counts:
            return (jnp.argmax(scores, axis=1) == self.label).astype(scores.dtype)
        return jax.nn.softmax(scores / self.temperature, axis=1)[:, self.label]

    def at(self, temperature: Any, threshold: Any) -> "Rate":
        """The smooth rate at another temperature and threshold."""
        return dataclasses.replace(self, temperature=temperature, threshold=threshold, counts=False)

    def counted(self, threshold: Any) -> "Rate":
        """The counted rate at another threshold."""
        return dataclasses.replace(self, threshold=threshold, counts=True)

    @property
    def _name(self) -> str:
        if self.positive is not None:
            return "wrong_decisions"
        return "decisions" if self.is_decision else "positive_rate"

    def _way_out(self, scores: jax.Array) -> str:
        if self.is_decision and self.positive is None and scores.ndim == 2:
            return f"say which class is meant: fp.decisions(model, label=0), up to {scores.shape[1] - 1}"
        return "use a model with one score a row"
