"""A party's part in an evaluation: it counts its own rows, and nothing but counts leaves it.

For every group, by label and decision:   rows, and with weights also Σ w and Σ w²
For every group, by label:                a histogram of 1 / (1 + exp(-score)), of the class's softmax where there are classes

The histogram's bins are equal parts of (0, 1), so that nobody has to say first between which numbers the scores lie.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fedpact.federation.rows import title
from fedpact.federation.table import Table
from fedpact.problem.columns import kind
from fedpact.problem.decision_rule import DecisionRule
from fedpact.problem.statement import Problem
from fedpact.protocol.options import check

Tag = int | float | str  # a label, or the name of a group

BINS = 1000
MOST_BINS = 100_000
MOST_GROUPS = 100  # values of a group's column; more are names of people rather than of groups


@dataclasses.dataclass(frozen=True)
class Question:
    """What every party is asked to count.

    - `label`, `group`, `weights`: columns; no group and no weights where None.
    - `negative`, `positive`: labels; any other than the positive one is negative where `negative` is None.
    - `threshold`: decided positive is score > threshold, in units of the score.
    - `by_class`: rows have one score for each class; decided positive is where that of the class `positive` is the largest.
    - `bins`: of the histograms.
    - `min_rows`: a group with fewer rows of a label than this is withheld, unless it has none of it.
    """

    label: str
    group: str | None
    weights: str | None
    negative: Tag | None
    positive: Tag
    threshold: float
    by_class: bool
    bins: int
    min_rows: int

    @classmethod
    def of(
        cls,
        problem: Problem | None,
        *,
        label: str = "y",
        group: str | None = None,
        positive: Tag | None = None,
        threshold: float | None = None,
        weights: str | None = None,
        bins: int = BINS,
        min_rows: int = 1,
    ) -> "Question":
        """The question about a problem's model (None: a model without one), checked. Arguments are those of `fp.evaluate`."""
        for name, column in (("label", label), ("group", group), ("weights", weights)):
            if not isinstance(column, str) and (column is not None or name == "label"):
                raise TypeError(f"evaluate({name}={column!r}): the name of a column")
        check("evaluate", "bins", bins, lambda x: 2 <= x <= MOST_BINS, f"from 2 to {MOST_BINS}", whole=True)
        check("evaluate", "min_rows", min_rows, lambda x: x >= 1, "a positive whole number", whole=True)
        if threshold is not None:
            check("evaluate", "threshold", threshold, np.isfinite, "a finite number, in units of the score")
        if positive is not None and not isinstance(positive, int | float | str | np.generic):
            raise TypeError(f"evaluate(positive={positive!r}): the value of a label")
        rule = DecisionRule(threshold or 0.0) if problem is None else DecisionRule.of(problem, threshold)
        chosen: Any = positive.item() if isinstance(positive, np.generic) else positive
        negative = None
        if rule.by_class and chosen is None:
            raise ValueError("evaluate needs positive=, the class that is asked about: the model has several")
        if problem is not None and any(loss.classifies == "two labels" for loss in problem.losses):
            negative, own = rule.labels
            if chosen not in (None, own):
                raise ValueError(
                    f"evaluate(positive={positive!r}): the model's positive label is {own!r}; labels=(negative, positive) "
                    "of the loss says which is"
                )
        chosen = rule.labels[1] if chosen is None else chosen
        return cls(label, group, weights, negative, chosen, rule.threshold, rule.by_class, int(bins), int(min_rows))

    def check_columns(self, party: str, table: Table) -> None:
        """Raise ValueError where a table lacks a column, or has one that cannot be counted."""
        for role, name in (("label", self.label), ("group", self.group), ("weights", self.weights)):
            if name is None:
                continue
            if name not in table:
                raise ValueError(
                    f"evaluate({role}={name!r}): {title(party)} has no such column; it has {', '.join(table.columns)}"
                )
            column = table[name]
            if column.ndim != 1 or (column.dtype.kind == "f" and np.isnan(column).any()):
                raise ValueError(
                    f"evaluate({role}={name!r}): that column of {title(party)} should have one value for each row, no NaN"
                )
            if role == "weights" and (
                column.dtype.kind not in "biuf" or not np.all(np.isfinite(column) & (column >= 0))
            ):
                raise ValueError(
                    f"evaluate(weights={name!r}): weights of {title(party)} should be finite and at least 0"
                )
            if role == "group" and len(np.unique(column)) > MOST_GROUPS:
                raise ValueError(
                    f"evaluate(group={name!r}): that column of {title(party)} has more than {MOST_GROUPS} values; put them "
                    "into classes first"
                )
        if self.negative is not None:
            labels = table[self.label]
            strange = labels[(labels != self.negative) & (labels != self.positive)]
            if len(strange):
                raise ValueError(
                    f"column {self.label!r} of {title(party)} holds {kind(labels)} besides {self.negative!r} and "
                    f"{self.positive!r}, the labels of the loss; recode it"
                )


@dataclasses.dataclass(frozen=True, eq=False)
class Counts:
    """What a party tells.

    - `groups`: the groups that are counted; (None,) where the question has no group. `withheld`: those with too few rows.
    - `rows`: (groups, 2, 2), by label and decision, the negative ones first.
    - `sums`, `squares`: of the same shape, Σ w and Σ w² of the rows' weights; None where rows have none.
    - `histogram`: (groups, 2, bins), by label: rows, or sums of weights.
    """

    groups: tuple[Tag | None, ...]
    withheld: tuple[Tag | None, ...]
    rows: np.ndarray
    histogram: np.ndarray
    sums: np.ndarray | None = None
    squares: np.ndarray | None = None

    def arrays(self) -> dict[str, np.ndarray]:
        """By name, as they are sent."""
        weighted = {} if self.sums is None or self.squares is None else {"sums": self.sums, "squares": self.squares}
        return {"rows": self.rows, "histogram": self.histogram, **weighted}

    def words(self) -> dict[str, Any]:
        """Names of groups, as they are sent."""
        return {"groups": list(self.groups), "withheld": list(self.withheld)}

    def over(self, groups: Sequence[Tag | None]) -> "Counts":
        """The same counts in the order of these groups, zeros for those that it has none of.

        Raises ValueError where they leave out one of its own, or name one twice.
        """
        if len(set(groups)) < len(groups) or not set(self.groups) <= set(groups):
            raise ValueError("the groups leave out one that it counts, or name one twice")
        places = [groups.index(group) for group in self.groups]

        def spread(array: np.ndarray) -> np.ndarray:
            out = np.zeros((len(groups), *array.shape[1:]), array.dtype)
            out[places] = array
            return out

        return Counts(tuple(groups), self.withheld, **{name: spread(a) for name, a in self.arrays().items()})

    @staticmethod
    def specs(groups: int, question: Question) -> dict[str, tuple[tuple[int, ...], str]]:
        """By name the shape and the kind ("i" or "f") of the arrays of an answer with so many groups."""
        unit, cells = "i" if question.weights is None else "f", (groups, 2, 2)
        weighted = {} if question.weights is None else {"sums": (cells, "f"), "squares": (cells, "f")}
        return {"rows": (cells, "i"), "histogram": ((groups, 2, question.bins), unit), **weighted}

    @classmethod
    def read(cls, words: Mapping[str, Any], arrays: Mapping[str, np.ndarray], question: Question) -> "Counts":
        """From what a party sent; raises ValueError where it does not answer the question."""
        groups, withheld = read_groups(words, question)
        wanted = cls.specs(len(groups), question)
        if {name: (a.shape, a.dtype.kind) for name, a in arrays.items()} != wanted or any(
            a.dtype.itemsize != 8 for a in arrays.values()
        ):
            raise ValueError("its counts are of another shape than asked for")
        if not all(np.isfinite(a).all() and (a >= 0).all() for a in arrays.values()):
            raise ValueError("its counts are negative or not finite")
        return cls(groups, withheld, **arrays)


def read_groups(words: Any, question: Question) -> tuple[tuple[Tag | None, ...], tuple[Tag | None, ...]]:
    """The groups that a party counts and those that it withholds; raises ValueError where its words have none."""
    try:
        groups, withheld = tuple(words["groups"]), tuple(words["withheld"])
        named = all(isinstance(name, int | float | str) for name in (*groups, *withheld))
        if len(groups) + len(withheld) > MOST_GROUPS or not (named or question.group is None):
            raise ValueError("its groups are none")
    except (KeyError, TypeError) as error:
        raise ValueError(f"its groups are missing: {error!r}") from None
    return groups, withheld


def all_groups(of_parties: Iterable[Sequence[Tag | None]]) -> list[Tag | None]:
    """The groups that some party has, sorted; [None] where the question has no group."""
    found = {group for groups in of_parties for group in groups}
    return sorted(found, key=lambda group: (isinstance(group, str), group))  # pyright: ignore


def groups_of(table: Table, question: Question) -> tuple[dict[Tag | None, np.ndarray], tuple[Tag | None, ...]]:
    """A party's groups with the places of their rows, and the groups that it withholds; the same for all models."""
    members: dict[Tag | None, np.ndarray] = {None: np.arange(table.rows)}
    if question.group is not None:
        values = table[question.group]
        members = {value.item(): np.flatnonzero(values == value) for value in np.unique(values)}
    positive = (table[question.label] == question.positive).astype(int)
    counts = {group: np.bincount(positive[at], minlength=2) for group, at in members.items()}
    few = tuple(g for g, of_label in counts.items() if ((of_label > 0) & (of_label < question.min_rows)).any())
    return {group: at for group, at in members.items() if group not in few}, few


def count_rows(party: str, table: Table, scores: np.ndarray, question: Question) -> Counts:
    """At a party: its rows, counted.

    - `scores`: of the model on these rows, (rows,) or (rows, classes).

    Raises ValueError where columns are missing, or scores are not finite or not of the question's kind.
    """
    question.check_columns(party, table)
    decided, chances = _decisions(party, scores, question)
    positive = table[question.label] == question.positive
    weights = None if question.weights is None else np.asarray(table[question.weights], float)
    bins = np.minimum((chances * question.bins).astype(np.int64), question.bins - 1)
    cells = 2 * positive + decided
    (groups, withheld), counted = groups_of(table, question), []
    for at in groups.values():
        own = None if weights is None else weights[at]
        places = bins[at] + question.bins * positive[at]
        parts = [np.bincount(cells[at], minlength=4), np.bincount(places, own, 2 * question.bins)]
        if own is not None:
            parts += [np.bincount(cells[at], own, 4), np.bincount(cells[at], own**2, 4)]
        counted.append(parts)
    shapes = [(2, 2), (2, question.bins), (2, 2), (2, 2)][: 2 if weights is None else 4]
    kinds = [np.int64, np.int64 if weights is None else np.float64, np.float64, np.float64]
    arrays = [
        np.asarray([parts[i] for parts in counted], kinds[i]).reshape(len(groups), *shape)
        for i, shape in enumerate(shapes)
    ]
    return Counts(tuple(groups), withheld, *arrays)


def _decisions(party: str, scores: np.ndarray, question: Question) -> tuple[np.ndarray, np.ndarray]:
    """Which rows are decided positive, and for each a number from 0 to 1 that grows with its score."""
    from scipy.special import expit, softmax  # importing SciPy takes a third of a second, and a run needs none of it

    wrong = int((~np.isfinite(scores)).sum())
    if wrong:
        raise ValueError(
            f"{wrong} scores of {title(party)} are NaN or infinite; look at its columns and the parameters"
        )
    if not question.by_class:
        if scores.ndim != 1:
            raise ValueError(
                f"the model gives {scores.shape[1:]} scores a row, and decisions by a threshold take one: state the problem "
                "with a softmax loss, or choose a model with one score"
            )
        return scores > question.threshold, expit(scores)
    if scores.ndim != 2 or question.positive not in range(scores.shape[1]):
        raise ValueError(
            f"evaluate(positive={question.positive!r}): no class of the model, whose scores are {scores.shape}"
        )
    place = int(question.positive)
    return np.argmax(scores, axis=1) == place, softmax(scores, axis=1)[:, place]
