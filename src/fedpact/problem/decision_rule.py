"""What is decided by scores. Used by loaded models too, so that nothing here imports JAX."""

import dataclasses
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from fedpact.problem.statement import Problem


@dataclasses.dataclass(frozen=True)
class DecisionRule:
    """From scores to labels: `rule(scores)`.

    - `threshold`: in units of the score; decided positive is score > threshold (default 0).
    - `labels`: (negative, positive) (default (0, 1)).
    - `by_class`: whether a row has one score for each class and is decided for the largest; there is then no threshold (default
      False). `classes`: their labels (default (): their places).
    - `probabilities`: how scores were trained to give them: "logistic", 1/(1 + exp(−score)) for the positive label; "softmax";
      or None (default), where the loss gives none.
    """

    threshold: float = 0.0
    labels: tuple[Any, Any] = (0, 1)
    by_class: bool = False
    classes: tuple[Any, ...] = ()
    probabilities: Literal["logistic", "softmax"] | None = None

    @classmethod
    def of(cls, problem: "Problem", threshold: float | None = None) -> "DecisionRule":
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
                return cls(at, (loss.labels[0], loss.labels[1]), probabilities="logistic" if loss.is_logistic else None)
            if loss.classifies == "classes":
                return cls(by_class=True, probabilities="softmax")
        if not decided:
            raise ValueError(
                "the problem has neither a logistic, hinge or softmax loss nor fp.decisions, so nothing says how to decide: "
                "use result.scores(rows)"
            )
        return cls(at) if any(rate.label is None for rate in decided) else cls(by_class=True)

    def __call__(self, scores: Any) -> np.ndarray:
        scores = np.asarray(scores)
        if self.by_class:
            places = np.argmax(scores, axis=1)
            return np.asarray(self.classes)[places] if self.classes else places
        negative, positive = self.labels
        return np.where(scores > self.threshold, np.asarray(positive), np.asarray(negative))

    def chances(self, scores: Any) -> np.ndarray:
        """Probabilities (rows, labels) as the loss reads them from scores, in the order of `labels`.

        Raises ValueError where it reads none.
        """
        scores = np.asarray(scores)
        if self.probabilities is None:
            raise ValueError(
                "only a logistic or softmax loss says what probability a score stands for; use scores(rows), or predict(rows)"
            )
        if self.probabilities == "softmax":
            shares = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
            return shares / shares.sum(axis=1, keepdims=True)
        small = np.exp(-np.abs(scores))  # of the less likely label, without overflow
        unlikely, likely = small / (1.0 + small), 1.0 / (1.0 + small)
        positive = scores >= 0
        return np.stack([np.where(positive, unlikely, likely), np.where(positive, likely, unlikely)], axis=1)
