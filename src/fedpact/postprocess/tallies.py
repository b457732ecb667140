"""What rules are fitted on: by group, how many rows of either label have each score. From rows in one place, or counted."""

import dataclasses
from typing import Any

import numpy as np
from scipy.special import logit

from fedpact.evaluation.counts import Tag
from fedpact.evaluation.table import Evaluation


@dataclasses.dataclass(frozen=True)
class Tally:
    """One group's rows: different scores in ascending order, and how many rows of either label have each (or their weights)."""

    values: np.ndarray
    positive: np.ndarray
    negative: np.ndarray

    @property
    def total(self) -> float:
        return float(self.positive.sum() + self.negative.sum())


def tallied(
    scores: Any, labels: Any, groups: Any, positive: Tag | None, at_edges: bool
) -> tuple[dict[Tag, Tally], tuple[Tag, Tag], int]:
    """Counts by group, the labels (negative, positive), and the number of rows, all checked.

    `at_edges`: whether a bin of an evaluation stands for its lower edge, as a score, or for its middle, as a probability.
    """
    if isinstance(scores, Evaluation):
        if labels is not None or groups is not None or positive is not None:
            raise ValueError("an evaluation has labels and groups of its own: leave labels, groups and positive= out")
        return _counted(scores, at_edges)
    if labels is None or groups is None:
        raise ValueError("labels and groups are needed beside scores; or give an fp.Evaluation in place of all three")
    scores, labels, groups = np.asarray(scores), np.asarray(labels), np.asarray(groups)
    shapes = {name: array.shape for name, array in (("scores", scores), ("labels", labels), ("groups", groups))}
    if len(set(shapes.values())) > 1 or scores.ndim != 1 or not len(scores):
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"scores, labels and groups must have one entry per row each, but their shapes are {listed}")
    check_numbers(scores)
    values = [value.item() for value in np.unique(labels)]
    if len(values) != 2:
        raise ValueError(f"labels holds {some(values)}; two different labels are required")
    chosen: Tag = values[1] if positive is None else positive
    if chosen not in values:
        raise ValueError(f"positive={positive!r}: labels holds {some(values)}")
    names = [name.item() for name in np.unique(groups)]
    if len(names) < 2:
        raise ValueError(f"groups holds {some(names)} only; at least two groups are required")
    for name in names:
        for label in values:
            if not ((groups == name) & (labels == label)).any():
                raise ValueError(
                    f"group {name!r} has no row with the label {label!r}, so it has no rates to make equal"
                )
    (negative,) = (label for label in values if label != chosen)
    tallies = {}
    for name in names:
        own, places = np.unique(scores[groups == name].astype(float), return_inverse=True)
        counts = [
            np.bincount(places[(labels[groups == name] == chosen) == side], minlength=len(own))
            for side in (True, False)
        ]
        tallies[name] = Tally(own, *counts)
    return tallies, (negative, chosen), len(scores)


def _counted(evaluation: Evaluation, at_edges: bool) -> tuple[dict[Tag, Tally], tuple[Tag, Tag], int]:
    """The same from histograms, added up over parties."""
    question = evaluation.question
    if question.by_class or len(evaluation.groups) < 2:
        raise ValueError(
            "fairness after training takes an evaluation of a model with one score, by two groups or more: fp.evaluate(result, "
            "parties, group='sex')"
        )
    tallies: dict[Tag, Tally] = {}
    for group in evaluation.groups:
        negative, positive = evaluation.at(group=group).histogram
        for label, counts in (("negative", negative), ("positive", positive)):
            if not counts.any():
                raise ValueError(f"group {group!r} has no row with a {label} label, so it has no rates to make equal")
        bins = np.flatnonzero(negative + positive)
        values = logit(bins / question.bins) if at_edges else (bins + 0.5) / question.bins
        tallies[group] = Tally(values, positive[bins], negative[bins])
    known = question.negative is not None
    other: Any = question.negative if known else 0 if question.positive == 1 else f"not {question.positive}"
    return tallies, (other, question.positive), sum(evaluation.at(group=group).rows for group in evaluation.groups)


def check_numbers(scores: np.ndarray) -> None:
    if scores.dtype.kind not in "iuf":
        raise TypeError(f"scores holds {scores.dtype}; numbers are required")
    wrong = int((~np.isfinite(scores)).sum())
    if wrong:
        raise ValueError(f"scores holds {wrong} values that are NaN or infinite in {len(scores)} rows")


def some(values: list[Any]) -> str:
    return ", ".join(map(repr, values[:5])) + (", …" if len(values) > 5 else "")
