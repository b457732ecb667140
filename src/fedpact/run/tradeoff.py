"""fp.tradeoff: what the bound of one constraint costs, from a sweep over bounds that starts each solve at the last answer."""

import dataclasses
import math
import numbers
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fedpact.certificate import ConstraintReport
from fedpact.evaluation.table import Evaluation
from fedpact.extras import install
from fedpact.federation.columns import ColumnParties
from fedpact.federation.groups import with_groups
from fedpact.federation.rows import Parties, split_rows
from fedpact.federation.table_checks import Holder
from fedpact.privacy.differential import DifferentialPrivacy
from fedpact.problem.expressions import Constraint
from fedpact.problem.statement import Problem
from fedpact.promises.held_out import counted, with_all
from fedpact.promises.statements import Side, Statements
from fedpact.protocol.algorithm import Algorithm
from fedpact.report import markup
from fedpact.report.promised import COUNTED, SMOOTH, place_of, smooth_rates
from fedpact.report.sweep import drawn, table, write_sweep
from fedpact.run.evaluate import checked_confidence, evaluate
from fedpact.run.result import Result
from fedpact.run.solve import solve

Interval = tuple[float, float]
TITLES = ("bound", "value", "at", "accuracy", "objective", "rounds", "status")


@dataclasses.dataclass(frozen=True)
class TradeoffEntry:
    """One bound of a sweep.

    - `bound`: of the constraint, in its own units. `result`: of the problem with it, an `fp.Result`.
    - `report`: the constraint there, an `fp.ConstraintReport`.
    - `interval`: of a counted value at the holder with the least room; None where nothing is counted.
    - `evaluation`: an `fp.Evaluation`; None where no column of labels is known.
    """

    bound: float
    result: Result
    report: ConstraintReport
    interval: Interval | None
    evaluation: Evaluation | None

    @property
    def status(self) -> str:
        """Of the result; numbers of one that is not "converged" say how near it came, and no more."""
        return self.result.status

    @property
    def rounds(self) -> int:
        return self.result.rounds

    @property
    def objective(self) -> float:
        """With the regulariser."""
        return self.result.objective

    @property
    def value(self) -> float:
        """Of the constraint, counted where it has decisions, at the holder with the least room."""
        return self.report.values[self.report.worst]

    @property
    def holder(self) -> str:
        """Who that is: a party, "server" or "all rows"."""
        return self.report.holders[self.report.worst]

    @property
    def accuracy(self) -> float:
        """Over all rows; NaN where no column of labels is known."""
        return math.nan if self.evaluation is None else self.evaluation.at().accuracy

    @property
    def accuracy_interval(self) -> Interval:
        """By Clopper and Pearson; NaN where no column of labels is known."""
        return (math.nan, math.nan) if self.evaluation is None else self.evaluation.at().interval("accuracy")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Tradeoff:
    """What the bound of one constraint costs. Made by `fp.tradeoff`; `print(tradeoff)` has the table.

    - `name`: of the constraint. `side`: "upper" or "lower", of its bound.
    - `is_smooth_rate`: whether its values are smooth stand-ins for a rate, which is not counted.
    - `confidence`: of each interval by itself.
    - `entries`: one for each bound, in ascending order.

        tradeoff.at(0.05).accuracy
        tradeoff.plot("tradeoff.html")
    """

    name: str
    side: Side
    is_smooth_rate: bool
    confidence: float
    entries: tuple[TradeoffEntry, ...]

    def at(self, bound: float) -> TradeoffEntry:
        """The entry of a bound. Raises KeyError where it was not asked for."""
        for entry in self.entries:
            if math.isclose(entry.bound, bound, rel_tol=1e-9, abs_tol=1e-12):
                return entry
        raise KeyError(f"no bound {bound!r} in this sweep; there are {', '.join(f'{e.bound:g}' for e in self.entries)}")

    def to_frame(self) -> Any:
        """A pandas frame with a line for each bound. Raises ImportError without pandas."""
        try:
            import pandas
        except ImportError:
            raise ImportError(f"a frame needs pandas: {install('frames')}") from None
        return pandas.DataFrame(
            [
                {
                    "bound": e.bound,
                    "status": e.status,
                    "value": e.value,
                    "value_low": math.nan if e.interval is None else e.interval[0],
                    "value_high": math.nan if e.interval is None else e.interval[1],
                    "holder": e.holder,
                    "accuracy": e.accuracy,
                    "accuracy_low": e.accuracy_interval[0],
                    "accuracy_high": e.accuracy_interval[1],
                    "objective": e.objective,
                    "rounds": e.rounds,
                }
                for e in self.entries
            ]
        )

    def plot(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Write one self-contained HTML page: objective, accuracy and the constraint's value against the bound, with intervals.

        Only converged results are drawn; the table on the page has all of them. Returns the path.
        """
        if not isinstance(path, str | os.PathLike) or not os.fspath(path):
            raise TypeError(f"plot takes the path of the page to write, such as 'tradeoff.html', not {path!r}")
        if pathlib.Path(path).is_dir():
            raise ValueError(
                f"plot({str(path)!r}): that is a folder; name the page to write in it, such as tradeoff.html"
            )
        shown = [e for e in self.entries if e.result.converged]
        figures = []
        if shown:
            bounds = np.array([e.bound for e in shown])
            share = f"{100 * self.confidence:g} % interval"
            ends = None
            if all(e.interval is not None for e in shown):
                ends = np.array([e.interval for e in shown], float)
            values = np.array([e.value for e in shown])
            objective = np.array([e.objective for e in shown])
            figures = [
                drawn("Objective", "with its regulariser", "objective", bounds, (objective, None), share),
                drawn(self.name, self._kind(), self._value(), bounds, (values, ends), share, limit=True),
            ]
            if not math.isnan(shown[0].accuracy):
                accuracy = np.array([e.accuracy for e in shown]), np.array([e.accuracy_interval for e in shown])
                figures.insert(1, drawn("Accuracy", "counted over all rows", "accuracy", bounds, accuracy, share))
        return write_sweep(pathlib.Path(path), self._heading(), self._notes(), figures, table(TITLES, self._cells()))

    # in words

    def _value(self) -> str:
        return "counted value" if self.entries[0].report.is_counted else "value"

    def _kind(self) -> str:
        report = self.entries[0].report
        kind = COUNTED if report.is_counted else SMOOTH if self.is_smooth_rate else "value"
        worst = ", where there is least room" if len(report.holders) > 1 else ""
        return f"{kind}, {place_of(report)}{worst}"

    def _heading(self) -> str:
        return f"{self.name} {'<=' if self.side == 'upper' else '>='} bound: {self._kind()}"

    def _notes(self) -> list[str]:
        notes = []
        if any(e.interval is not None or e.evaluation is not None for e in self.entries):
            notes.append(
                f"{100 * self.confidence:g} % intervals from Clopper and Pearson's, each by itself; they are about rows drawn "
                "like these, and too optimistic where these were trained on"
            )
        notes += [f"bound {e.bound:g}: {e.result.message}" for e in self.entries if not e.result.converged]
        return notes

    def _cells(self) -> list[list[str]]:
        def with_interval(value: float, ends: Interval | None) -> str:
            if math.isnan(value):
                return "-"
            return f"{value:.4f}" if ends is None else f"{value:.4f} {ends[0]:.3f}-{ends[1]:.3f}"

        return [
            [
                f"{e.bound:g}",
                with_interval(e.value, e.interval) if e.report.is_counted else f"{e.value:.6g}",
                e.holder,
                with_interval(e.accuracy, e.accuracy_interval),
                f"{e.objective:.6g}",
                str(e.rounds),
                e.status,
            ]
            for e in self.entries
        ]

    def __str__(self) -> str:
        rows = [list(TITLES), *self._cells()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([self._heading(), *(f"  {line}" for line in (*lines, *self._notes()))])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        below = "".join(f"<p>{markup.text(note)}</p>" for note in self._notes())
        return f"<p><b>{markup.text(self._heading())}</b></p>{table(TITLES, self._cells())}{below}"


def tradeoff(
    problem: Problem,
    parties: Parties | Any,
    algorithm: Algorithm | None = None,
    *,
    constraint: str,
    bounds: Iterable[float],
    side: Side | None = None,
    label: str | None = None,
    group: str | None = None,
    confidence: float = 0.95,
    **options: Any,
) -> Tradeoff:
    """What the bound of one constraint costs: solve the problem with one bound after the other, from the loosest on.

    Each solve starts at the last converged answer. Bounds are data of the compiled programs, so nothing is compiled anew.

    - `problem`, `parties`, `algorithm`: as in `fp.solve`.
    - `constraint`: the name of the constraint whose bound is swept; an equality has none.
    - `bounds`: the bounds, finite numbers in the units of the constraint, each once.
    - `side`: "upper" or "lower", of a constraint with both.
    - `label`: the column of labels, for the accuracy (default: that of the problem's logistic or hinge loss; without one no
      accuracy is counted).
    - `group`: a column that evaluations are also counted by (default: none).
    - `confidence`: of each interval by itself (between 0 and 1, default 0.95).
    - `options`: of `fp.solve`, such as `tolerance`; runs of a sweep are not saved.

    Returns an `fp.Tradeoff` with an entry for each bound, whatever its status: an infeasible bound is an entry. Raises ValueError
    or TypeError where the constraint, a bound or an option does not fit, and as `fp.solve` and `fp.evaluate` do.

        tradeoff = fp.tradeoff(problem, banks, constraint="gap", bounds=[0.02, 0.05, 0.1])
        print(tradeoff)
        tradeoff.plot("tradeoff.html")
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"fp.tradeoff takes a problem from fp.minimize, not {problem!r}")
    confidence = checked_confidence(confidence)
    for name in ("save", "resume"):
        if options.get(name):
            raise ValueError(f"{name}=: the runs of a sweep are not saved; save one by fp.solve(..., {name}=...)")
    if isinstance(options.get("privacy"), DifferentialPrivacy):
        raise ValueError("privacy=: every run of a sweep would spend its own ε; solve with one bound by fp.solve")
    place, swept, side = _swept(problem, constraint, side)
    tried = _checked_bounds(bounds, swept, side)
    rows = parties if isinstance(parties, Parties | ColumnParties) else split_rows(parties)
    label = label if label is not None else _label(problem)
    start = options.pop("start", None)
    entries = []
    for bound in sorted(tried, reverse=side == "upper"):
        one = dataclasses.replace(swept, **{side: bound})
        stated = dataclasses.replace(
            problem, constraints=(*problem.constraints[:place], one, *problem.constraints[place + 1 :])
        )
        result = solve(stated, rows, algorithm, start=start, **options)
        start = result if result.converged else start
        report = result.constraint(one.name)
        told = None if label is None else evaluate(result, rows, label=label, group=group, confidence=confidence)
        interval = None
        if report.is_counted and isinstance(rows, Parties):
            interval = _interval(one, side, rows, result, report, confidence)
        entries.append(TradeoffEntry(bound, result, report, interval, told))
    entries.sort(key=lambda entry: entry.bound)
    return Tradeoff(swept.name, side, constraint in smooth_rates(problem), confidence, tuple(entries))


def _swept(problem: Problem, name: str, side: Side | None) -> tuple[int, Constraint, Side]:
    """The constraint, its place and the side of its bound, as a user gave them; one without a name is called by its formula."""
    names = [constraint.name for constraint in problem.constraints]
    if name not in names:
        known = ", ".join(map(repr, names)) or "none: add one to subject_to="
        raise ValueError(f"constraint={name!r}: the problem has no such constraint; there are {known}")
    place = names.index(name)
    found = problem.constraints[place]
    if side not in (None, "upper", "lower"):
        raise ValueError(f"side={side!r}: 'upper' or 'lower'")
    if found.kind == "==":
        raise ValueError(
            f"constraint {name!r} is an equality, which has no bound to loosen; state it by .between(lower, upper)"
        )
    if found.kind == "between" and side is None:
        raise ValueError(f"constraint {name!r} has two bounds: say side='lower' or side='upper'")
    own: dict[str, Side] = {"<=": "upper", ">=": "lower"}
    if found.kind != "between":
        if side not in (None, own[found.kind]):
            raise ValueError(f"constraint {name!r} has no {side} bound; leave side= out")
        side = own[found.kind]
    assert side is not None
    return place, dataclasses.replace(found, given_name=found.given_name or str(found.expression)), side


def _checked_bounds(bounds: Any, swept: Constraint, side: Side) -> list[float]:
    listed = list(bounds) if isinstance(bounds, Iterable) and not isinstance(bounds, str | Mapping) else []
    fit = all(isinstance(b, numbers.Real) and not isinstance(b, bool) and math.isfinite(b) for b in listed)
    if not listed or not fit or len(set(listed)) < len(listed):
        raise ValueError(f"bounds={bounds!r}: a list of different finite numbers, such as [0.02, 0.05, 0.1]")
    for bound in listed:
        lower, upper = (swept.lower, bound) if side == "upper" else (bound, swept.upper)
        if lower >= upper:
            raise ValueError(f"bounds= has {bound:g}, which leaves no room in constraint {swept.name!r} {swept.bound}")
    return [float(b) for b in listed]


def _label(problem: Problem) -> str | None:
    """The column of labels of the first loss with two labels."""
    return next((loss.label for loss in problem.losses if loss.classifies == "two labels"), None)


def _interval(
    swept: Constraint, side: Side, rows: Parties, result: Result, report: ConstraintReport, confidence: float
) -> Interval | None:
    """Of the counted value at the holder with the least room; None where it is not made of unweighted counts alone."""
    if report.hidden:
        return None
    alone = dataclasses.replace(result.problem, constraints=(swept,))
    stated = with_groups(alone, [Holder.of(name, rows[name]) for name in rows])
    try:
        statements = Statements.of(stated, rows.names, {})
    except ValueError:  # weighted rows, the server's rows, or a loss beside the counts
        return None
    party = report.holders[report.worst] if report.scope == "party" else None
    chosen = next(one for one in statements.each if one.side == side and one.party == party)
    tallies = with_all({name: counted(statements.means, name, rows[name], result.params) for name in rows.names})
    return statements.interval(chosen, tallies[party], 1 - confidence)
