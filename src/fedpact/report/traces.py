"""From the columns of a history to what is drawn: a constraint's own value at each party, round by round.

A history has scalar rows g <= 0. A constraint is one row, two for a range, 2, 4, ... with absolute values; which rows
belong to which constraint is found from the certificate, which has both the rows' multipliers and the constraints'.
"""

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fedpact.certificate import ConstraintReport
from fedpact.report.plots import COLOURS, Band, Limit, Line

MOST_LINES = len(COLOURS)  # more holders than this are drawn as a band with its extremes
MEDIAN_ROUNDS = 400
NUMBER = r"([-+.\w]+)"


@dataclasses.dataclass(frozen=True)
class Bound:
    """What the words of a bound say: lower <= value <= upper, None where there is none."""

    lower: float | None
    upper: float | None

    @classmethod
    def read(cls, words: str) -> "Bound | None":
        """From "<= 0.2", ">= 1", "== 0" or "in [0, 1]"; None where the words are none of these."""
        found = re.fullmatch(rf"(<=|>=|==) {NUMBER}|in \[{NUMBER}, {NUMBER}\]", words.strip())
        if not found:
            return None
        try:
            numbers = [None if n is None else float(n) for n in found.groups()[1:]]
        except ValueError:
            return None
        one, lower, upper = numbers
        return {"<=": cls(None, one), ">=": cls(one, None), "==": cls(one, one)}.get(found[1]) or cls(lower, upper)

    def values(self, rows: np.ndarray) -> np.ndarray:
        """The expression's value from its rows g <= 0 along the last axis."""
        if self.upper is None:
            assert self.lower is not None
            return self.lower - rows.max(axis=-1)
        return self.upper + (rows.max(axis=-1) if self.lower is None else rows[..., 0])

    def limits(self) -> tuple[Limit, ...]:
        if self.lower is not None and self.lower == self.upper:
            return (Limit(self.lower, "limit", forbidden="both"),)
        above = () if self.upper is None else (Limit(self.upper, "limit", forbidden="above"),)
        below = () if self.lower is None else (Limit(self.lower, "limit", forbidden="below"),)
        return above + below


def rows_of_each(
    reports: Sequence[ConstraintReport], multipliers: np.ndarray, constraints: np.ndarray | None = None
) -> list[slice] | None:
    """Which scalar rows belong to which constraint, or None where that cannot be said for certain.

    multipliers: (holders, rows) of the certificate. constraints: (holders, rows) of the last round.
    """
    rows = multipliers.shape[-1]
    least = [2 if r.bound.startswith("in ") else 1 for r in reports]
    if sum(least) == rows:
        return _slices(least)

    def by_multipliers(report: ConstraintReport, mine: slice) -> bool:
        return np.allclose(multipliers[:, mine].sum(axis=1), report.multipliers, 1e-6, 1e-12, equal_nan=True)

    def by_both(report: ConstraintReport, mine: slice) -> bool:
        assert constraints is not None
        room = -constraints[:, mine].max(axis=1)
        return by_multipliers(report, mine) and np.allclose(room, report.margins, 1e-3, 1e-6, equal_nan=True)

    ways = _ways(reports, rows, by_multipliers)
    if len(ways) > 1 and constraints is not None and constraints.shape == multipliers.shape:
        ways = _ways(reports, rows, by_both)
    return _slices(ways[0]) if len(ways) == 1 else None


def _ways(
    reports: Sequence[ConstraintReport], rows: int, fits: Callable[[ConstraintReport, slice], bool]
) -> list[tuple[int, ...]]:
    """Up to two ways to hand out all rows in order; two are enough to know that the answer is not certain."""

    @functools.cache
    def from_here(report: int, row: int) -> list[tuple[int, ...]]:
        if report == len(reports):
            return [()] if row == rows else []
        words = reports[report].bound
        sizes = (1,) if words.startswith("==") else (2,) if words.startswith("in ") else (1, 2, 4, 8, 16, 32)
        found: list[tuple[int, ...]] = []
        for size in sizes:
            if row + size <= rows and fits(reports[report], slice(row, row + size)):
                found += [(size, *rest) for rest in from_here(report + 1, row + size)]
        return found[:2]

    return from_here(0, 0)


def _slices(sizes: Sequence[int]) -> list[slice]:
    return [slice(a, b) for a, b in itertools.pairwise(itertools.accumulate(sizes, initial=0))]


@dataclasses.dataclass(frozen=True)
class Trajectory:
    """A constraint over the rounds at its holders; None where the history has no such column."""

    name: str
    bound: str
    values: np.ndarray | None  # (rounds, holders)
    multipliers: np.ndarray | None
    limits: tuple[Limit, ...]
    room: float  # at the worst holder in the end, to draw the tightest first


def trajectories(
    history: Mapping[str, np.ndarray], reports: Sequence[ConstraintReport], certified: np.ndarray, parties: int
) -> list[Trajectory]:
    """The parties' constraints, those with the least room first. `certified`: the certificate's multipliers."""
    c, mu = (_told(history, column, parties) for column in ("constraints", "multipliers"))
    told = c if c is not None else mu
    if told is None or not told.shape[2]:
        return []
    rows = None
    if certified.shape == told.shape[1:]:
        rows = rows_of_each(reports, certified, None if c is None else c[-1])
    if rows is None:  # each row for itself
        cut = [slice(k, k + 1) for k in range(told.shape[2])]
        parts = [(f"scalar row {k + 1}", "<= 0", mine, 0.0) for k, mine in enumerate(cut)]
    else:
        parts = [(r.name, r.bound, mine, _least(r.margins)) for r, mine in zip(reports, rows, strict=True)]
    out = []
    for label, words, mine, room in parts:
        limits = Bound.read(words)
        out.append(
            Trajectory(
                name=label,
                bound=words,
                values=None if c is None else (limits or Bound(None, 0.0)).values(c[:, :, mine]),
                multipliers=None if mu is None else mu[:, :, mine].sum(axis=2),
                limits=(limits or Bound(None, 0.0)).limits(),
                room=room,
            )
        )
    return sorted(out, key=lambda t: t.room)


def shared_multipliers(
    history: Mapping[str, np.ndarray],
    at_server: tuple[Sequence[ConstraintReport], np.ndarray],
    pooled: tuple[Sequence[ConstraintReport], np.ndarray],
) -> tuple[list[str], np.ndarray] | None:
    """Names and (rounds, constraints) of what the server holds: multipliers of its own constraints and the pooled ones.

    Each scope comes with the multipliers of its scalar rows in the certificate. Where a method keeps pooled constraints
    by slacks, their rows follow the server's own.
    """
    columns = [np.asarray(history[c], float) for c in ("server_multipliers", "pooled_multipliers") if c in history]
    columns = [c for c in columns if c.ndim == 2 and c.shape[1]]
    if not columns:
        return None
    mu = np.concatenate(columns, axis=1)
    if not len(mu) or mu.shape[1] != at_server[1].size + pooled[1].size:
        return [f"scalar row {k + 1}" for k in range(mu.shape[1])], mu
    names, lines, start = [], [], 0
    for (reports, certified), place in ((at_server, "at the server"), (pooled, "over all rows")):
        mine = mu[:, start : start + certified.size]
        start += certified.size
        cut = rows_of_each(reports, certified.reshape(1, -1))
        if cut is None and reports and not mine.any():  # whichever way they are handed out, nothing is added to nothing
            cut = [slice(0, 1)] * len(reports)
        if cut is None:
            names += [f"scalar row {k + 1}, {place}" for k in range(certified.size)]
            lines.append(mine)
        else:
            names += [f"{r.name}, {place}" for r in reports]
            lines += [mine[:, part].sum(axis=1, keepdims=True) for part in cut]
    return names, np.concatenate(lines, axis=1)


def drawn(values: np.ndarray, names: Sequence[str]) -> tuple[tuple[Line, ...], tuple[Band, ...]]:
    """A line for each of a few holders; a band, the median and the two extremes of many."""
    if values.shape[1] <= MOST_LINES:
        return tuple(Line(n, values[:, k], k) for k, n in enumerate(names)), ()
    finite = np.isfinite(values)
    low = np.where(finite, values, np.inf).min(axis=1)
    high = np.where(finite, values, -np.inf).max(axis=1)
    some = np.flatnonzero(finite.any(axis=1))
    if not some.size:
        return (Line("nothing finite", low, 0),), ()
    last, whole = values[some[-1]], finite[some[-1]]
    highest = int(np.where(whole, last, -np.inf).argmax())
    lowest = int(np.where(whole, last, np.inf).argmin())
    few = some[np.unique(np.linspace(0, some.size - 1, min(some.size, MEDIAN_ROUNDS)).astype(int))]
    median = np.nanmedian(np.where(finite[few], values[few], np.nan), axis=1)
    lines = [Line("median", median, None, few), Line(f"highest at the end: {names[highest]}", values[:, highest], 1)]
    if lowest != highest:
        lines.append(Line(f"lowest at the end: {names[lowest]}", values[:, lowest], 0))
    return tuple(lines), (Band(f"from least to greatest of {len(names)}", low, high),)


def _told(history: Mapping[str, np.ndarray], column: str, parties: int) -> np.ndarray | None:
    """A column (rounds, parties, rows) if it is there and has that shape."""
    if column not in history:
        return None
    found = np.asarray(history[column], float)
    return found if found.ndim == 3 and found.shape[0] and found.shape[1] == parties else None


def _least(margins: Sequence[float]) -> float:
    finite = [m for m in margins if np.isfinite(m)]
    return min(finite) if len(finite) == len(margins) and finite else -np.inf
