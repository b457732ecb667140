"""Rows of an experiment: printed as a table, and kept as JSON after every one, so that an interrupted run goes on from there."""

import json
import math
import os
import pathlib
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table as Grid

from fedpact.reproduce.provenance import this_run
from fedpact.run.progress import ProgressLine

DIGITS = 6  # significant ones of a curve's numbers


class Rows:
    """Rows of one experiment. With `out` they are in that file: `{"name": ..., "runs": [...], "rows": [{...}]}`.

    A row's "run" is the place in `runs` of the command, commit, day and machine that it was computed by. Where the file holds
    rows of this experiment already, they stay, and `has` says which need not be computed again.

    - `trials`, `only`: as they were asked for; `only` empty: everything.
    """

    def __init__(self, name: str, out: pathlib.Path | None, trials: int | None = None, only: Sequence[str] = ()):
        self.name, self.out = name, out
        self.rows: list[dict[str, Any]] = []
        self.runs: list[dict[str, str]] = []
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            self._resume(out)
            self.runs.append(this_run(name, trials, only))
        self._write()

    def _resume(self, out: pathlib.Path) -> None:
        if not out.exists():
            return
        try:
            kept = json.loads(out.read_text())
            name = kept["name"]
        except (ValueError, TypeError, KeyError):
            raise ValueError(f"{out} holds something else than rows of an experiment; choose another --out") from None
        if name != self.name:
            raise ValueError(f"{out} holds rows of {name}; choose another --out, or delete it")
        self.rows, self.runs = kept["rows"], kept["runs"]

    def has(self, **fields: Any) -> bool:
        """Whether a row with these entries is there."""
        return bool(self.where(**fields))

    def where(self, **fields: Any) -> list[dict[str, Any]]:
        """The rows with these entries."""
        wanted = {name: _plain(value) for name, value in fields.items()}
        return [row for row in self.rows if all(row.get(name) == value for name, value in wanted.items())]

    def drop(self, **fields: Any) -> None:
        """Forget the rows with these entries, of a part that was not finished."""
        gone = self.where(**fields)
        self.rows = [row for row in self.rows if row not in gone]

    def add(self, **row: Any) -> None:
        self.rows.append({name: _plain(value) for name, value in row.items()} | {"run": max(len(self.runs) - 1, 0)})
        self._write()

    def show(self, columns: dict[str, str], note: str) -> None:
        """Print the columns (key: heading) of all rows, and a note below."""
        grid = Grid(title=self.name, header_style="bold", row_styles=["", "dim"])
        for heading in columns.values():
            grid.add_column(heading, justify="right", overflow="fold")
        for row in self.rows:
            grid.add_row(*(_short(row.get(key)) for key in columns))
        console = Console(width=None if os.isatty(1) else 160)
        console.print(grid)
        console.print(note, highlight=False)
        if self.out is not None:
            console.print(f"written to {self.out}", highlight=False)

    def _write(self) -> None:
        if self.out is None:
            return
        used = sorted({row["run"] for row in self.rows} | {len(self.runs) - 1})
        self.runs = [self.runs[place] for place in used]
        for row in self.rows:
            row["run"] = used.index(row["run"])
        head = f'{{"name": {json.dumps(self.name)},\n"runs": {json.dumps(self.runs, indent=1)},\n"rows": [\n'
        lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in self.rows)
        beside = self.out.with_name(f".{self.out.name}.part")
        beside.write_text(f"{head}{lines}\n]}}\n", "utf-8")
        os.replace(beside, self.out)


class Bar(ProgressLine):
    """A progress line with how much of the work is done: `[####......] 12 of 30, 3 min left  what is being computed`."""

    def __init__(self, shown: bool | None, total: int):
        super().__init__(shown)
        self.total, self.done, self.began = total, 0, time.monotonic()
        self.computed = 0

    def __enter__(self) -> "Bar":
        return self

    def step(self, computed: bool = True) -> None:
        """One more part is done; `computed`: not one that the file had already."""
        self.done += 1
        self.computed += computed

    def say(self, text: str, now: bool = False) -> None:
        filled = round(10 * self.done / max(self.total, 1))
        left = ""
        if self.computed:
            seconds = (time.monotonic() - self.began) / self.computed * (self.total - self.done)
            left = f", {math.ceil(seconds / 60)} min left" if seconds > 90 else f", {seconds:.0f} s left"
        super().say(f"[{'#' * filled}{'.' * (10 - filled)}] {self.done} of {self.total}{left}  {text}", now)


def moments(name: str, values: Sequence[float]) -> dict[str, float | None]:
    """The mean over trials, and the standard deviation as `name_spread` (None for a single one)."""
    spread = statistics.stdev(values) if len(values) > 1 else None
    return {name: statistics.fmean(values), f"{name}_spread": spread}


def thinned(values: Any, most: int = 200) -> tuple[list[int], list[float]]:
    """A curve by at most so many places, denser at the beginning, and its numbers there to six digits."""
    count = len(values)
    if count <= most:
        places = list(range(count))
    else:
        places = sorted({round(count ** (k / (most - 1))) - 1 for k in range(most)} | {0, count - 1})
    return places, [float(f"{float(values[place]):.{DIGITS}g}") for place in places]


def _plain(value: Any) -> Any:
    """As JSON has it: numbers of NumPy as Python's, None for what is not a number."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _short(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.2e}" if value != 0 and (abs(value) < 1e-2 or abs(value) >= 1e4) else f"{value:.4g}"
    return str(value)
