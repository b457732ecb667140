"""Scores of a model on new rows, and what is decided by them."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpact.problem.columns import numeric
from fedpact.problem.models import Model
from fedpact.problem.statement import Problem


@dataclasses.dataclass(frozen=True)
class DecisionRule:
    """From scores to labels: `rule(scores)`.

    - `threshold`: in units of the score; decided positive is score > threshold (default 0).
    - `labels`: (negative, positive) (default (0, 1)).
    - `by_class`: whether a row has one score for each class and is decided for the largest, its place being the label; there is
      then no threshold (default False).
    """

    threshold: float = 0.0
    labels: tuple[Any, Any] = (0, 1)
    by_class: bool = False

    @classmethod
    def of(cls, problem: Problem, threshold: float | None = None) -> "DecisionRule":
        """The rule of a problem's model.

        - `threshold`: in place of the problem's own (default), which is that of its `fp.decisions` where they agree on one,
          else 0.

        Labels are those of the first logistic or hinge loss; the arg max where there is a softmax loss; 0 and 1 where there are
        `fp.decisions` alone. Raises ValueError where the problem has none of these.
        """
        decided = [loss.rate for loss in problem.losses if loss.rate is not None and loss.rate.is_decision]
        thresholds = {rate.threshold for rate in decided if rate.label is None}
        own = thresholds.pop() if len(thresholds) == 1 else 0.0
        at = float(own if threshold is None else threshold)
        for loss in problem.losses:
            if loss.classifies == "two labels":
                assert loss.labels is not None
                return cls(at, (loss.labels[0], loss.labels[1]))
            if loss.classifies == "classes":
                return cls(by_class=True)
        if not decided:
            raise ValueError(
                "the problem has neither a logistic, hinge or softmax loss nor fp.decisions, so nothing says how to decide: "
                "use result.scores(rows)"
            )
        return cls(at) if any(rate.label is None for rate in decided) else cls(by_class=True)

    def __call__(self, scores: Any) -> np.ndarray:
        scores = np.asarray(scores)
        if self.by_class:
            return np.argmax(scores, axis=1)
        negative, positive = self.labels
        return np.where(scores > self.threshold, np.asarray(positive), np.asarray(negative))


def scores_of(model: Model, params: Any, rows: Mapping[str, Any]) -> np.ndarray:
    """A model's scores on rows of a table, (rows,) or (rows, outputs).

    Raises TypeError where `rows` are no mapping of columns, and ValueError where they do not fit model and parameters.
    """
    if not isinstance(rows, Mapping):
        raise TypeError(f"scores need a table or a mapping of columns such as {{'x': x}}, not a {type(rows).__name__}")
    arrays = {name: jnp.asarray(column) for name, column in numeric(rows).items()}
    params, wanted = jax.tree.map(jnp.asarray, params), getattr(model, "inputs", None)
    if wanted is not None and wanted not in arrays:
        raise ValueError(f"scores need the column {wanted!r} of numbers; there is {', '.join(map(str, rows))}")
    try:
        return np.asarray(model.apply(params, arrays))
    except TypeError as error:
        width, shapes = arrays[wanted].shape[1:] if wanted else "", jax.tree.map(jnp.shape, params)
        raise ValueError(
            f"column {wanted!r} has the width {width}, which the parameters {shapes} do not fit ({error})"
        ) from None
