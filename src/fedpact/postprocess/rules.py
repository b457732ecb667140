"""Decision rules that know the group of a row: drawn thresholds, and scores mixed with the base rate."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from fedpact.evaluation.counts import Tag
from fedpact.postprocess.tallies import check_numbers, some

Cost = Literal["fnr", "fpr", "weighted"]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class DrawnThresholds:
    """A randomised threshold rule: positive where score >= threshold, which is drawn for each row from its group's thresholds.

    Made by `equal_opportunity`.

    - `labels`: (negative, positive).
    - `thresholds`: by group, pairs (threshold, probability); a threshold of ∞ decides negative for every row.
    - `true_positive_rates`, `false_positive_rates`: by group, expected on the rows of the fit.
    - `accuracy`: expected on the rows of the fit.
    - `rows`: how many there were.
    """

    labels: tuple[Tag, Tag]
    thresholds: Mapping[Tag, tuple[tuple[float, float], ...]]
    true_positive_rates: Mapping[Tag, float]
    false_positive_rates: Mapping[Tag, float]
    accuracy: float
    rows: int

    def chances(self, scores: Any, groups: Any) -> np.ndarray:
        """The probability of a positive decision for each row.

        - `scores`: (rows,), of the same model as in the fit.
        - `groups`: (rows,), each a group of the fit.

        Returns probabilities (rows,). Raises ValueError where shapes differ, scores are not finite, or a group is unknown.
        """
        scores, of_row = _rows_of(scores, groups, tuple(self.thresholds))
        chances = np.zeros(len(scores))
        for group, rule in self.thresholds.items():
            for threshold, chance in rule:
                chances += np.where((of_row == group) & (scores >= threshold), chance, 0.0)
        return chances

    def predict(self, scores: Any, groups: Any, seed: int = 0) -> np.ndarray:
        """Decisions as labels.

        - `scores`: (rows,), of the same model as in the fit.
        - `groups`: (rows,), each a group of the fit.
        - `seed`: of the draw of thresholds (default 0).

        Returns labels (rows,). Raises ValueError as `chances` does.
        """
        probabilities = self.chances(scores, groups)
        return _as_labels(np.random.default_rng(seed).random(len(probabilities)) < probabilities, self.labels)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__}: accuracy {self.accuracy:.4f} expected on the {self.rows} rows of the fit"]
        for group, rule in self.thresholds.items():
            rules = ", ".join(
                f"score >= {t:.4g} (probability {p:.3g})" if p < 1 else f"score >= {t:.4g}" for t, p in rule
            )
            rates = f"TPR {self.true_positive_rates[group]:.4f}, FPR {self.false_positive_rates[group]:.4f}"
            lines.append(f"  group {group!r}: {rates}; {self.labels[1]!r} where {rules}")
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class MixedScores:
    """A rule that replaces the score by the base rate in a random share of one group's rows; positive where the result >= 0.5.

    Made by `calibrated_equal_opportunity`.

    - `labels`: (negative, positive).
    - `group`: the group whose scores are replaced.
    - `share`: the probability of that for a row of this group (0 to 1).
    - `base_rate`: the share of positives in this group, which is the new score.
    - `cost`: "fnr", "fpr" or "weighted", which of the generalised costs is made equal.
    - `costs`, `mixed_costs`: by group, the generalised cost on the rows of the fit, before and (expected) after.
    """

    labels: tuple[Tag, Tag]
    group: Tag
    share: float
    base_rate: float
    cost: Cost
    costs: Mapping[Tag, float]
    mixed_costs: Mapping[Tag, float]

    def mixed(self, scores: Any, groups: Any, seed: int = 0) -> np.ndarray:
        """Scores with the base rate in place of some of them.

        - `scores`: probabilities (rows,).
        - `groups`: (rows,), each a group of the fit.
        - `seed`: of the random selection of rows (default 0).

        Returns probabilities (rows,). Raises ValueError where scores are not probabilities or a group is unknown.
        """
        scores, of_row = _rows_of(scores, groups, tuple(self.costs))
        check_probabilities(scores)
        drawn = np.random.default_rng(seed).random(len(scores)) < self.share
        return np.where((of_row == self.group) & drawn, self.base_rate, scores)

    def predict(self, scores: Any, groups: Any, seed: int = 0) -> np.ndarray:
        """Decisions as labels.

        - `scores`: probabilities (rows,).
        - `groups`: (rows,), each a group of the fit.
        - `seed`: of the random selection of rows (default 0).

        Returns labels (rows,). Raises ValueError as `mixed` does.
        """
        return _as_labels(self.mixed(scores, groups, seed) >= 0.5, self.labels)

    def __repr__(self) -> str:
        changes = ", ".join(
            f"{before:.4f} -> {self.mixed_costs[group]:.4f} in group {group!r}" for group, before in self.costs.items()
        )
        return (
            f"{type(self).__name__}: {self.cost} cost {changes}\n"
            f"  group {self.group!r}: the base rate {self.base_rate:.4f} for a share {self.share:.4f} of its rows"
        )


def _rows_of(scores: Any, groups: Any, known: tuple[Tag, ...]) -> tuple[np.ndarray, np.ndarray]:
    scores, groups = np.asarray(scores), np.asarray(groups)
    if scores.ndim != 1 or scores.shape != groups.shape:
        raise ValueError(
            f"scores and groups must have one entry per row each, but have shapes {scores.shape} and {groups.shape}"
        )
    check_numbers(scores)
    strange = groups[~np.isin(groups, known)]
    if len(strange):
        raise ValueError(f"groups holds {strange[0].item()!r}, which is not a group of the fit: {some(list(known))}")
    return scores.astype(float), groups


def check_probabilities(scores: np.ndarray) -> None:
    if len(scores) and not (scores.min() >= 0 and scores.max() <= 1):
        raise ValueError(
            f"scores go from {scores.min():.4g} to {scores.max():.4g}, but probabilities are required; for a logistic model "
            "take 1 / (1 + exp(-score))"
        )


def _as_labels(positive: np.ndarray, labels: tuple[Tag, Tag]) -> np.ndarray:
    negative, other = labels
    return np.where(positive, np.asarray(other), np.asarray(negative))
