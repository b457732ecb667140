"""Rates of decisions from counts, with intervals.

a rate k/n          Clopper and Pearson: the exact binomial interval, never too short; n is the effective size (Σw)²/Σw² of
                    weighted rows
AUC θ               Newcombe (Statistics in Medicine 25, 2006, 559-573), method 5: all θ with |θ̂ - θ| <= z √V(θ), where V is
                    Hanley and McNeil's variance with both numbers of rows replaced by their mean in its numerator
its histogram       pairs in one bin count one half; so θ̂ is off by at most half the share of such pairs, by which the
                    interval is made wider
"""

import dataclasses
import functools
from typing import Any, Literal, get_args

import numpy as np

Measure = Literal["accuracy", "selection_rate", "true_positive_rate", "false_positive_rate", "precision", "auc"]
MEASURES: tuple[Measure, ...] = get_args(Measure)

# by label and decision, negative first: what is counted, and among what
CELLS: dict[str, tuple[list[list[int]], list[list[int]]]] = {
    "accuracy": ([[1, 0], [0, 1]], [[1, 1], [1, 1]]),
    "selection_rate": ([[0, 1], [0, 1]], [[1, 1], [1, 1]]),
    "true_positive_rate": ([[0, 0], [0, 1]], [[0, 0], [1, 1]]),
    "false_positive_rate": ([[0, 1], [0, 0]], [[1, 1], [0, 0]]),
    "precision": ([[0, 0], [0, 1]], [[0, 1], [0, 1]]),
}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Rates:
    """Rates of one group at one party, or over several of them. Made by `fp.Evaluation.at`.

    - `cells`: (2, 2), rows by label and decision, the negative ones first. `sums`, `squares`: Σ w and Σ w² of their weights.
    - `histogram`: (2, bins), by label.
    - `confidence`: of intervals, from 0 to 1.

    A rate without rows to be taken over is NaN.
    """

    cells: np.ndarray
    sums: np.ndarray
    squares: np.ndarray
    histogram: np.ndarray
    confidence: float

    @property
    def rows(self) -> int:
        """How many rows, whatever their weights."""
        return int(self.cells.sum())

    @property
    def positives(self) -> int:
        """How many of them have the positive label."""
        return int(self.cells[1].sum())

    @property
    def accuracy(self) -> float:
        """The share of rows that are decided as labelled."""
        return self._rate("accuracy")

    @property
    def selection_rate(self) -> float:
        """The share of rows that are decided positive."""
        return self._rate("selection_rate")

    @property
    def true_positive_rate(self) -> float:
        """The share of positive rows that are decided positive."""
        return self._rate("true_positive_rate")

    @property
    def false_positive_rate(self) -> float:
        """The share of negative rows that are decided positive."""
        return self._rate("false_positive_rate")

    @property
    def precision(self) -> float:
        """The share of rows decided positive that are positive."""
        return self._rate("precision")

    @property
    def auc(self) -> float:
        """The share of pairs of a positive and a negative row whose scores are in that order, equal bins counting one half."""
        return self._ordered_pairs[0]

    @property
    def auc_error(self) -> float:
        """By how much `auc` may differ from that of the scores themselves: half the share of pairs in one bin."""
        return self._ordered_pairs[1]

    def interval(self, measure: Measure) -> tuple[float, float]:
        """The confidence interval of a rate or of the AUC, by its name; (0, 1) where it is taken over nothing.

        Raises ValueError for another name.
        """
        if measure not in MEASURES:
            raise ValueError(f"interval({measure!r}): one of {', '.join(MEASURES)}")
        if measure == "auc":
            negatives, positives = (_effective(self.sums[label], self.squares[label]) for label in (0, 1))
            return _newcombe(self.auc, self.auc_error, negatives, positives, self.confidence)
        rate = self._rate(measure)
        among = np.array(CELLS[measure][1], bool)
        return _clopper_pearson(rate, _effective(self.sums[among], self.squares[among]), self.confidence)

    def _rate(self, measure: str) -> float:
        counted, among = (float((self.sums * np.array(cells)).sum()) for cells in CELLS[measure])
        return counted / among if among else float("nan")

    @functools.cached_property
    def _ordered_pairs(self) -> tuple[float, float]:
        """The AUC, and its error."""
        negative, positive = np.asarray(self.histogram, float)
        pairs = negative.sum() * positive.sum()
        if not pairs:
            return float("nan"), float("nan")
        tied = float(positive @ negative) / 2
        below = np.cumsum(negative) - negative
        return (float(positive @ below) + tied) / pairs, tied / pairs

    def __repr__(self) -> str:
        words = []
        for measure in MEASURES:
            low, high = self.interval(measure)
            words.append(f"{measure} {getattr(self, measure):.4f} [{low:.4f}, {high:.4f}]")
        return f"{self.rows} rows, {self.positives} positive: {', '.join(words)}"


def _effective(sums: np.ndarray, squares: np.ndarray) -> float:
    """How many rows of equal weight tell as much (Kish)."""
    return float(sums.sum() ** 2 / squares.sum()) if squares.sum() else 0.0


def _clopper_pearson(rate: float, rows: float, confidence: float) -> tuple[float, float]:
    from scipy.special import betaincinv

    if not rows:
        return 0.0, 1.0
    tail, hits, misses = (1 - confidence) / 2, rate * rows, (1 - rate) * rows
    low = float(betaincinv(hits, misses + 1, tail)) if hits > 0 else 0.0
    high = float(betaincinv(hits + 1, misses, 1 - tail)) if misses > 0 else 1.0
    return low, high


def _newcombe(auc: float, error: float, negatives: float, positives: float, confidence: float) -> tuple[float, float]:
    from scipy.optimize import brentq
    from scipy.special import ndtri

    if not (negatives and positives):
        return 0.0, 1.0
    z, mean = float(ndtri((1 + confidence) / 2)), (negatives + positives) / 2

    def beyond(theta: float) -> float:
        pairs = 1 + (mean - 1) * ((1 - theta) / (2 - theta) + theta / (1 + theta))
        return abs(auc - theta) - z * np.sqrt(theta * (1 - theta) * pairs / (negatives * positives))

    inside = min(max(auc, 1e-12), 1 - 1e-12)  # at 0 and at 1 itself V is 0
    low: Any = 0.0 if auc <= 0 else brentq(beyond, 0.0, inside)
    high: Any = 1.0 if auc >= 1 else brentq(beyond, inside, 1.0)
    return max(0.0, float(low) - error), min(1.0, float(high) + error)
