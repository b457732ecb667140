"""A table that is printed, and written as JSON after every row, so that an interrupted run keeps what it has."""

import json
import os
import pathlib
from typing import Any

from rich.console import Console
from rich.table import Table as Grid


class Rows:
    """Rows of one experiment: `{"name": ..., "rows": [{...}]}` in `out`, if given."""

    def __init__(self, name: str, out: pathlib.Path | None):
        self.name, self.out = name, out
        self.rows: list[dict[str, Any]] = []
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
        self._write()

    def add(self, **row: Any) -> None:
        self.rows.append(row)
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
        beside = self.out.with_name(f".{self.out.name}.part")
        beside.write_text(json.dumps({"name": self.name, "rows": self.rows}, indent=1))
        os.replace(beside, self.out)


def _short(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.2e}" if value != 0 and (abs(value) < 1e-2 or abs(value) >= 1e4) else f"{value:.4g}"
    return str(value)
