"""The table of a campaign, for a terminal and as markdown."""

import statistics
from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.table import Table

from campaign.levels import LEVELS
from campaign.runner import Record

COLUMNS = (
    "solved",
    "infeasible",
    "unbounded",
    "loose",
    "not solved",
    "beyond float64",
    "false",
    "error",
    "out of time",
    "unjudged",
)
# "infeasible" and "unbounded" are right verdicts. "loose": converged, and true to the absolute tolerance, but above the
# reference by more than 1e-5 or outside a bound by more than 1e-5 of it. "beyond float64": not solved, and no parameters that
# float64 can hold meet the optimality conditions to ten times the tolerance.
TITLES = {"infeasible": "rightly infeasible", "unbounded": "rightly no minimum"}
WIDTH = 130
BAD = ("false", "error", "out of time", "not solved", "loose", "beyond float64", "unjudged")
SETTLED = ("solved", "infeasible", "unbounded")
NOT_COUNTED = ("unjudged", "beyond float64")
# families of a first, smaller campaign, whose bounds were not as close as these
FIRST = (
    *("np", "np-l1-box", "gap", "regression", "many-caps", "rates-1", "polyhedra", "linear-polyhedra", "linear-balls"),
    *("hinge", "one-parameter", "real"),
)
CLOSE = ("just", "barely out")


def by_family(records: list[Record], families: Iterable[str]) -> list[list[str]]:
    """A row per family and one for all: counts by outcome, then rounds of settled runs (median / most)."""
    mine = {family: [r for r in records if r.family == family] for family in families}
    return [_row(title, some) for title, some in {**mine, "all": records}.items() if some]


def by_level(records: list[Record]) -> list[list[str]]:
    """The same by how tight the bounds are; a name ends with its level, such as `np/raw/3-barely-out`."""
    left, lines = list(records), []
    for level in sorted(LEVELS, key=len, reverse=True):
        ending = "-" + level.replace(" ", "-")
        some = [r for r in left if r.name.endswith(ending)]
        left = [r for r in left if not r.name.endswith(ending)]
        lines.append((LEVELS.index(level), level, some))
    return [_row(level, some) for _, level, some in sorted(lines) if some] + ([_row("others", left)] if left else [])


def _row(title: str, records: list[Record]) -> list[str]:
    counts = [sum(r.outcome == c for r in records) for c in COLUMNS]
    rounds = [r.rounds for r in records if r.outcome in SETTLED]
    middle = f"{statistics.median(rounds):g} / {max(rounds)}" if rounds else ""
    return [title, str(len(records)), *(str(c) if c else "" for c in counts), middle]


def figures(records: list[Record]) -> list[str]:
    """How many are settled, and how fast: of all, and of the first campaign's families and bounds."""
    close = tuple("-" + level.replace(" ", "-") for level in CLOSE)
    first = [r for r in records if r.family in FIRST and not r.name.endswith(close)]
    return [f"{title}: {_figures(some)}" for title, some in (("all", records), ("first families", first)) if some]


def _figures(records: list[Record]) -> str:
    judged = [r for r in records if r.outcome not in NOT_COUNTED]
    rounds = {outcome: [r.rounds for r in judged if r.outcome == outcome] for outcome in SETTLED}
    settled = [n for mine in rounds.values() for n in mine]
    within = sum(n <= 100 for n in settled)
    middle, of_solved = (f"{statistics.median(mine):g}" if mine else "-" for mine in (settled, rounds["solved"]))
    return (
        f"{len(settled):,} of {len(judged):,} settled, {within:,} of them within 100 rounds ({within / max(len(judged), 1):.1%}; "
        f"median {middle}, of the solved ones {of_solved}); of {len(rounds['infeasible']):,} infeasible ones "
        f"{sum(n <= 60 for n in rounds['infeasible']):,} within 60"
    )


def heads(first: str) -> list[str]:
    return [first, "problems", *(TITLES.get(c, c) for c in COLUMNS), "rounds, median / most"]


def to_terminal(records: list[Record], families: list[str], console: Console) -> None:
    console = Console(width=max(console.width, WIDTH))
    for first, rows in (("family", by_family(records, families)), ("bounds", by_level(records))):
        table = Table(*heads(first), box=box.SIMPLE)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    console.print("\n".join(figures(records)), markup=False, soft_wrap=True)
    for outcome in BAD:
        for r in records:
            if r.outcome == outcome:
                console.print(
                    f"{outcome}: {r.name}: {r.status} after {r.rounds} rounds: {_first_line(r.message)} [{r.why}]",
                    markup=False,
                    soft_wrap=True,
                )


def to_markdown(records: list[Record], families: list[str]) -> str:
    lines = []
    for first, rows in (("family", by_family(records, families)), ("bounds", by_level(records))):
        lines += [f"| {' | '.join(heads(first))} |", "|" + "---|" * len(heads(first))]
        lines += [*(f"| {' | '.join(row)} |" for row in rows), ""]
    lines += [*figures(records), ""]
    for outcome in BAD:
        for r in records:
            if r.outcome == outcome:
                lines.append(f"- {outcome}: `{r.name}`, {r.status} after {r.rounds} rounds ({r.why})")
    return "\n".join(lines) + "\n"


def _first_line(text: str) -> str:
    return text.splitlines()[0][:200] if text else ""
