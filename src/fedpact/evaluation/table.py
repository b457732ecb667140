"""An evaluation: the parties' counts, the rates of every party and group, and how they are printed."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedpact.evaluation.counts import Counts, Question, Tag, all_groups
from fedpact.evaluation.rates import MEASURES, Rates
from fedpact.extras import install
from fedpact.files import write
from fedpact.report.markup import text
from fedpact.sums import exact_sum

ALL = "all"
FORMAT = 1
MOST_LINES = 60
TITLES = ("rows", "accuracy", "selected", "TPR", "FPR", "precision", "AUC")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """How a model decides, by party and group. Made by `fp.evaluate`; `print(evaluation)` has the table.

    - `counts`: by party, what it told (`rows` and `histogram` by group); over columns the label holder alone; under "all" alone
      where sums are secure, over all parties.
    - `question`: what was asked: columns, threshold, bins.
    - `confidence`: of intervals (default 0.95).

        evaluation.at(party="north", group="f").true_positive_rate
        evaluation.at(group="f").interval("auc")
    """

    counts: Mapping[str, Counts]
    question: Question
    confidence: float = 0.95

    @property
    def parties(self) -> tuple[str, ...]:
        """The names of the parties, in order."""
        return tuple(self.counts)

    @property
    def groups(self) -> tuple[Tag, ...]:
        """The groups that some party has counted, sorted; none where the question has no group."""
        found = all_groups(counts.groups for counts in self.counts.values())
        return tuple(group for group in found if group is not None)

    @property
    def is_summed(self) -> bool:
        """Whether counts are known over all parties only, since sums were secure."""
        return tuple(self.counts) == (ALL,)

    def summed(self) -> "Evaluation":
        """The same of all parties together, as it is where sums are secure: nothing of single parties."""
        groups = all_groups(counts.groups for counts in self.counts.values())
        spread = [counts.over(groups) for counts in self.counts.values()]
        arrays = {name: exact_sum([each.arrays()[name] for each in spread]) for name in spread[0].arrays()}
        few = all_groups(counts.withheld for counts in spread)
        return dataclasses.replace(self, counts={ALL: Counts(tuple(groups), tuple(few), **arrays)})

    @property
    def withheld(self) -> tuple[tuple[str, Tag | None], ...]:
        """Pairs (party, group) with too few rows to be told; they are in no count."""
        return tuple((party, group) for party, counts in self.counts.items() for group in counts.withheld)

    def at(self, party: str | None = None, group: Tag | None = None) -> Rates:
        """The rates of a party and a group.

        - `party`: its name (default None, or "all": all together).
        - `group`: a value of the group's column (default None, or "all": all together).

        Returns `fp.Rates`: `.rows`, `.accuracy`, `.true_positive_rate`, … and `.interval("accuracy")`. Raises KeyError for an
        unknown party or group, and for a group that was withheld there.
        """
        groups = self.groups
        party = None if party == ALL and ALL not in self.counts else party
        group = None if group == ALL and ALL not in groups else group
        if party is not None and party not in self.counts:
            there = f"there are {', '.join(self.counts)}"
            hidden = "sums are secure, so rates of single parties are not known"
            raise KeyError(f"no party {party!r}; {hidden if self.is_summed else there}")
        among = list(self.counts) if party is None else [party]
        told = any(group in self.counts[name].groups for name in among)
        if group is not None and not told and all(group in self.counts[name].withheld for name in among):
            raise KeyError(f"group {group!r} of {', '.join(among)} was withheld: it has too few rows")
        if group is not None and group not in groups:
            raise KeyError(
                f"no group {group!r}; there are {', '.join(map(repr, groups)) or 'none, since group= was not given'}"
            )
        chosen = [
            (self.counts[name], np.array([group is None or tag == group for tag in self.counts[name].groups], bool))
            for name in among
        ]
        cells = sum((counts.rows[which].sum(0) for counts, which in chosen), np.zeros((2, 2), np.int64))
        histogram = sum(
            (counts.histogram[which].sum(0) for counts, which in chosen), np.zeros((2, self.question.bins), int)
        )
        sums = squares = cells
        if self.question.weights is not None:
            sums = sum((c.sums[which].sum(0) for c, which in chosen if c.sums is not None), np.zeros((2, 2)))
            squares = sum((c.squares[which].sum(0) for c, which in chosen if c.squares is not None), np.zeros((2, 2)))
        return Rates(cells, sums, squares, histogram, self.confidence)

    def lines(self) -> list[tuple[str | None, Tag | None, Rates]]:
        """Every party and group with its rates, those of all together first (None); as they are printed."""
        parties = [None, *(self.counts if len(self.counts) > 1 else ())]
        pairs = [(party, group) for party in parties for group in (None, *self.groups)]
        told = {party: set(counts.groups) for party, counts in self.counts.items()}
        return [
            (party, group, self.at(party, group))
            for party, group in pairs
            if party is None or group is None or group in told[party]
        ]

    def to_frame(self) -> Any:
        """A pandas frame with a line for each party and group, and each rate with its interval ("auc", "auc_low", "auc_high").

        Raises ImportError without pandas.
        """
        try:
            import pandas
        except ImportError:
            raise ImportError(f"a frame needs pandas: {install('frames')}") from None
        return pandas.DataFrame([self._line(*line) for line in self.lines()])

    def save(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Write counts and rates to a JSON file, for people and for `fp.Evaluation.read`."""
        words = {
            "format": FORMAT,
            "question": dataclasses.asdict(self.question),
            "confidence": self.confidence,
            "rates": [
                {name: None if value != value else value for name, value in self._line(*line).items()}
                for line in self.lines()
            ],
            "counts": {
                party: {**counts.words(), **{name: a.tolist() for name, a in counts.arrays().items()}}
                for party, counts in self.counts.items()
            },
        }
        file = pathlib.Path(path)
        write(file, json.dumps(words).encode())
        return file

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Evaluation":
        """An evaluation that was saved. Raises FileNotFoundError, and ValueError where the file holds none."""
        try:
            words = json.loads(pathlib.Path(path).read_text())
            question = Question(**words["question"])
            unit = np.int64 if question.weights is None else np.float64
            kinds = {"rows": np.int64, "histogram": unit, "sums": np.float64, "squares": np.float64}
            sizes = {"histogram": (2, question.bins)}
            counts = {}
            for party, told in words["counts"].items():
                shapes = {name: (len(told["groups"]), *sizes.get(name, (2, 2))) for name in kinds if name in told}
                arrays = {name: np.asarray(told[name], kinds[name]).reshape(shape) for name, shape in shapes.items()}
                counts[party] = Counts.read(told, arrays, question)
            return cls(counts, question, float(words["confidence"]))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"{path} holds no evaluation that fedpact saved: {error}") from None

    def _line(self, party: str | None, group: Tag | None, rates: Rates) -> dict[str, Any]:
        line: dict[str, Any] = {"party": party or ALL, "group": ALL if group is None else group, "rows": rates.rows}
        for measure in MEASURES:
            low, high = rates.interval(measure)
            line |= {measure: getattr(rates, measure), f"{measure}_low": low, f"{measure}_high": high}
        return line

    # in print

    def __str__(self) -> str:
        head, notes = titled(self)
        table = cells(self)
        left = 2 if self.groups else 1
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(w) if i < left or i > left else cell.rjust(w)
                for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            )
            for row in table
        ]
        more = len(lines) - 1 - MOST_LINES
        if more > 0:
            lines = [*lines[: MOST_LINES + 1], f"… and {more} more lines; .to_frame() has all of them"]
        return "\n".join([head, *(f"  {line.rstrip()}" for line in lines), *notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, notes = titled(self)
        titles, *rows = cells(self)
        top = "".join(f"<th>{text(cell)}</th>" for cell in titles)
        body = "".join(f"<tr>{''.join(f'<td>{text(cell)}</td>' for cell in row)}</tr>" for row in rows)
        below = "<br>".join(map(text, notes))
        return f"<table><caption>{text(head)}</caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table><p>{below}</p>"


def titled(evaluation: Evaluation) -> tuple[str, list[str]]:
    """What stands above and below the table."""
    q = evaluation.question
    decided = f"the class {q.positive!r} is the largest score" if q.by_class else f"score > {q.threshold:g}"
    head = f"decisions ({decided}) against {q.label!r}, {q.positive!r} being positive"
    head += f", by {q.group!r}" if q.group is not None else ""
    head += f", rows weighted by {q.weights!r}" if q.weights is not None else ""
    error = max((rates.auc_error for *_, rates in evaluation.lines() if rates.auc == rates.auc), default=0.0)
    notes = [
        f"{100 * evaluation.confidence:g} % intervals: rates by Clopper and Pearson, AUC by Newcombe; AUC from histograms of "
        f"{q.bins} bins, within {error:.1g} of that of the scores",
    ]
    if evaluation.is_summed:
        notes.append("counts of all parties were added up in secret: those of single parties are not known")
    if evaluation.withheld:
        pairs = [("some party" if evaluation.is_summed else party, group) for party, group in evaluation.withheld]
        names = ", ".join(party if group is None else f"{group} at {party}" for party, group in pairs)
        notes.append(f"withheld for having too few rows, and in no number here: {names}")
    return head, notes


def cells(evaluation: Evaluation) -> list[list[str]]:
    """The table as text, its titles first."""
    grouped = bool(evaluation.groups)
    table = [["party", *(["group"] if grouped else []), *TITLES]]
    for party, group, rates in evaluation.lines():
        names = [party or ALL, *([ALL if group is None else str(group)] if grouped else [])]
        table.append([*names, f"{rates.rows:,}", *(_with_interval(rates, measure) for measure in MEASURES)])
    return table


def _with_interval(rates: Rates, measure: Any) -> str:
    """0.912 .898-.924."""
    value = getattr(rates, measure)
    if value != value:
        return "-"
    low, high = (f"{bound:.3f}".removeprefix("0") for bound in rates.interval(measure))
    return f"{value:.3f} {low}-{high}"
