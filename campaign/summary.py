"""The table of a campaign, for a terminal and as markdown."""

import statistics
from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.table import Table

from campaign.runner import Record

COLUMNS = ("solved", "infeasible", "unbounded", "loose", "not solved", "false", "error", "out of time", "unjudged")
# "infeasible" and "unbounded" are right verdicts. "loose": converged, and true to the absolute tolerance, but above the
# reference by more than 1e-5 or outside a bound by more than 1e-5 of it.
TITLES = {"infeasible": "rightly infeasible", "unbounded": "rightly no minimum"}
WIDTH = 130
BAD = ("false", "error", "out of time", "not solved", "loose", "unjudged")
SETTLED = ("solved", "infeasible", "unbounded")


def rows(records: Iterable[Record], families: Iterable[str]) -> list[list[str]]:
    """A row per family and one for all: counts by outcome, then rounds of settled runs (median / most)."""
    listed = list(records)
    found = []
    for family in [*families, "all"]:
        mine = [r for r in listed if family in ("all", r.family)]
        if not mine:
            continue
        counts = [sum(r.outcome == c for r in mine) for c in COLUMNS]
        rounds = [r.rounds for r in mine if r.outcome in SETTLED]
        middle = f"{statistics.median(rounds):g} / {max(rounds)}" if rounds else ""
        found.append([family, str(len(mine)), *(str(c) if c else "" for c in counts), middle])
    return found


def heads() -> list[str]:
    return ["family", "problems", *(TITLES.get(c, c) for c in COLUMNS), "rounds, median / most"]


def to_terminal(records: list[Record], families: list[str], console: Console) -> None:
    console = Console(width=max(console.width, WIDTH))
    table = Table(*heads(), box=box.SIMPLE)
    for row in rows(records, families):
        table.add_row(*row)
    console.print(table)
    for outcome in BAD:
        for r in records:
            if r.outcome == outcome:
                console.print(
                    f"{outcome}: {r.name}: {r.status} after {r.rounds} rounds: {_first_line(r.message)} [{r.why}]",
                    markup=False,
                    soft_wrap=True,
                )


def to_markdown(records: list[Record], families: list[str]) -> str:
    lines = [f"| {' | '.join(heads())} |", "|" + "---|" * len(heads())]
    lines += [f"| {' | '.join(row)} |" for row in rows(records, families)]
    lines += [""]
    for outcome in BAD:
        for r in records:
            if r.outcome == outcome:
                lines.append(
                    f"- {outcome}: `{r.name}`: {r.status} after {r.rounds} rounds: {_first_line(r.message)} ({r.why})"
                )
    return "\n".join(lines) + "\n"


def _first_line(text: str) -> str:
    return text.splitlines()[0][:200] if text else ""
