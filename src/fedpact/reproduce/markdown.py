"""The tables of docs/reproduce.md, as Markdown, from the rows of the experiments."""

from collections.abc import Callable, Sequence
from typing import Any

from fedpact.reproduce import pc_fedavg, prox_al_figures
from fedpact.reproduce.fair_vfl import DATA as FAIR_DATA
from fedpact.reproduce.prox_al import NP_DATA
from fedpact.reproduce.prox_al_tables import PRINTED
from fedpact.reproduce.table import moments

Row = dict[str, Any]
Column = tuple[str, Callable[[Row], str]]

# numbers


def short(value: float | None, digits: int = 4) -> str:
    if not value:
        return "–" if value is None else "0"
    if digits == 0:
        return f"{value:,.0f}"
    small = value != 0 and (abs(value) < 1e-2 or abs(value) >= 1e5)
    return f"{value:.1e}" if small else f"{value:.{digits}f}"


def spread(name: str, digits: int = 4, factor: float = 1.0) -> Callable[[Row], str]:
    """Mean ± standard deviation over trials."""

    def told(row: Row) -> str:
        mean, deviation = row.get(name), row.get(f"{name}_spread")
        if mean is None:
            return "–"
        return short(factor * mean, digits) + ("" if deviation is None else f" ± {short(factor * deviation, digits)}")

    return told


def plain(name: str, digits: int = 4) -> Callable[[Row], str]:
    def told(row: Row) -> str:
        value = row.get(name)
        return short(value, digits) if isinstance(value, float) else "–" if value is None else str(value)

    return told


def tolerance(row: Row) -> str:
    given = row["tolerance"]
    return f"{given:g}" if isinstance(given, float) else f"({given[0]:g}, {given[1]:g})"


def size(number: float | None) -> str:
    if number is None:
        return "–"
    for unit, of in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= of:
            return f"{number / of:.3g} {unit}"
    return f"{number:.0f} B"


def rounds(row: Row) -> str:
    median = row.get("median_rounds")
    return f"{row['rounds']:,}" + ("" if median in (None, row["rounds"]) else f" ({median:g})")


# tables


def grid(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    head = " | ".join(title for title, _ in columns)
    lines = [" | ".join(told(row) for _, told in columns) for row in rows]
    return "\n".join([f"| {head} |", "|" + "---|" * len(columns), *(f"| {line} |" for line in lines)])


def of_paper(told: Callable[[Row], str]) -> Callable[[Row], str]:
    """A cell on the rows of the paper's own method as the paper ran it, to 1e-3."""
    return lambda row: told(row) if row["solver"] == PRINTED and row["tolerance"] == 1e-3 else "–"


COST: tuple[Column, ...] = (
    ("rounds (median)", rounds),
    ("bytes per party", lambda row: size(row.get("bytes"))),
    ("s", plain("seconds", 2)),
)
AGAINST: tuple[Column, ...] = (
    ("n", plain("n")),
    ("method", plain("solver")),
    ("tolerance", tolerance),
    ("certified", plain("certified")),
    ("objective", spread("objective", 5)),
    ("independent", plain("independent", 5)),
    ("rel. diff.", spread("difference", 5)),
    ("paper's", of_paper(spread("paper_difference", 5))),
)


def over_data(rows: Sequence[Row], names: Sequence[str], column: str = "data") -> list[Row]:
    """In the order of the data sets and, within one, as computed, smaller n first."""
    return sorted(rows, key=lambda row: (names.index(row[column]), row.get("n", 0)))


def neyman_pearson(rows: list[Row]) -> str:
    held: tuple[Column, ...] = (
        ("class-1 loss, mean", spread("mean")),
        ("largest", spread("largest", 5)),
    )
    return grid(over_data(rows, NP_DATA), (("data", plain("data")), *AGAINST, *held, *COST))


def fairness(rows: list[Row]) -> str:
    held: tuple[Column, ...] = (
        ("disparity, mean", spread("mean")),
        ("paper's", of_paper(plain("paper_mean", 2))),
        ("largest", spread("largest", 5)),
    )
    return grid(sorted(rows, key=lambda row: row["n"]), (*AGAINST, *held, *COST))


def lcqp(rows: list[Row]) -> str:
    columns: tuple[Column, ...] = (
        ("n", plain("n")),
        ("d", plain("d")),
        ("method", plain("solver")),
        ("tolerance", tolerance),
        ("certified", plain("certified")),
        ("objective", spread("objective")),
        ("exact", plain("exact")),
        ("paper's", plain("paper_objective", 2)),
        ("rel. diff. to cProx-AL", spread("to_central")),
        ("paper's", plain("paper_to_central")),
        ("violation", spread("violation")),
        ("paper's", plain("paper_violation")),
        *COST,
    )
    return grid(sorted(rows, key=lambda row: (row["d"], row["n"])), columns)


def clients(rows: list[Row]) -> str:
    ended = ("ended by (11)", lambda row: "yes" if row["ended"] else "no, cut off")
    outer = ("outer iterations", lambda row: str(row["objective_at"][-1]))
    return grid(
        over_data(rows, prox_al_figures.DATA),
        (("data", plain("data")), ("n", plain("n")), rounds_column(), outer, ended),
    )


def rounds_column() -> Column:
    return "rounds", lambda row: f"{row['rounds']:,}"


def line_place(row: Row) -> tuple[Any, ...]:
    """Without the limit first; by the rows that are drawn in a round; the paper's lines before the others."""
    drawn = row["batch"] * (2 if "E=2" in row["method"] else 1)
    return row["limited"], drawn, "SGD" in row["method"], len(row["method"])


def images(rows: list[Row]) -> str:
    """One line for each method and batch, the cost at some rounds beside one another."""
    marks = [mark for mark in (100, 300, 1000, 2000, 3000) if any(row["iterations"] == mark for row in rows)]
    lines: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        line = lines.setdefault((row["method"], row["batch"]), {})
        if row["iterations"] >= line.get("iterations", 0):
            line |= row
        line |= {
            f"at {row['iterations']}": row["cost"],
            f"at {row['iterations']}_spread": row["cost_spread"],
        }
    ordered = sorted(lines.values(), key=line_place)
    return grid(
        ordered,
        (
            ("method", plain("method")),
            ("B", plain("batch")),
            ("seeds", plain("seeds")),
            *((f"{'cost at T = ' if mark == marks[0] else ''}{mark:,}", spread(f"at {mark}")) for mark in marks),
            ("accuracy at the end, %", spread("accuracy", 2, 100.0)),
            ("‖ω‖²", spread("norm", 0)),
            ("bytes a round", lambda row: size(row["bytes_per_round"])),
            ("s a seed", plain("seconds", 1)),
        ),
    )


def tradeoff(rows: list[Row]) -> str:
    columns: tuple[Column, ...] = (
        ("split", plain("split")),
        ("λ", lambda row: f"{row['weight']:g}" if row.get("weight") else ""),
        ("U", lambda row: f"{row['limit']:g}" if row.get("limit") else ""),
        ("seeds", plain("seeds")),
        ("cost, all rows", spread("cost")),
        ("‖ω‖²", spread("norm", 0)),
        ("test accuracy, %", spread("accuracy", 2, 100.0)),
    )
    return grid(sorted(rows, key=lambda row: row["split"], reverse=True), columns)


def fair(rows: list[Row]) -> str:
    measures = (("ACC %", "accuracy", 2), ("DFP", "dfp", 3), ("DFN", "dfn", 3))
    compared = [
        column
        for title, name, digits in measures
        for column in ((title, spread(name, digits)), ("paper's", plain(f"paper_{name}", 2)))
    ]

    def after(told: Callable[[Row], str]) -> Callable[[Row], str]:
        """Of training alone; not of what is done to its scores afterwards."""
        return lambda row: "–" if "+" in row["method"] else told(row)

    near: tuple[Column, ...] = (("to L*, worst", plain("rounds_near")), ("as printed", plain("rounds_near_printed")))
    columns: tuple[Column, ...] = (
        ("data", plain("dataset")),
        ("method", plain("method")),
        ("splits", plain("splits")),
        *compared,
        ("DEO", spread("deo")),
        ("rounds", after(lambda row: f"{row['rounds']:,}")),
        ("certified", after(plain("certified"))),
        *(near if any(row.get("rounds_near") for row in rows) else ()),
    )
    return grid(over_data(rows, FAIR_DATA, "dataset"), columns)


def paces(rows: list[Row]) -> str:
    columns: tuple[Column, ...] = (
        ("method", plain("method")),
        ("active party's steps", plain("pace")),
        ("rounds to L*", plain("rounds_near")),
        ("simulated s", plain("seconds_near", 0)),
    )
    return grid(rows, columns)


def audit(rows: list[Row]) -> str:
    columns: tuple[Column, ...] = (
        ("data", plain("dataset")),
        ("residuals", plain("protocol")),
        ("labels, sign attack", plain("labels")),
        ("majority", plain("label_majority", 3)),
        ("groups, clustering", plain("groups")),
        ("majority", plain("group_majority", 3)),
        ("labels, own gradient", plain("labels_by_gradient", 3)),
        ("objective", plain("objective", 6)),
        rounds_column(),
        ("CPU s a round", plain("cpu_seconds", 2)),
        ("up / down a round", lambda row: f"{size(row['bytes_up'])} / {size(row['bytes_down'])}"),
    )
    return grid(over_data(rows, FAIR_DATA, "dataset"), columns)


def budgets(rows: list[Row]) -> str:
    every = [row for row in rows if row["iterations"] in (10, 50, 100) or row["method"] == pc_fedavg.EXACT]
    by_seed: dict[tuple[Any, ...], list[Row]] = {}
    for row in every:
        by_seed.setdefault((row["data"], row["method"], row["iterations"]), []).append(row)
    kept = []
    for (data, method, at), mine in by_seed.items():
        line: Row = {"data": data, "method": method, "iterations": at, "seeds": len(mine)}
        for name in ("loss", "infeasibility", "loss_handed_out", "infeasibility_handed_out", "accuracy"):
            line |= moments(name, [row[name] for row in mine])
        kept.append(line)
    columns: tuple[Column, ...] = (
        ("data", plain("data")),
        ("method", plain("method")),
        ("round", plain("iterations")),
        ("seeds", plain("seeds")),
        ("loss at the mean", spread("loss")),
        ("infeasibility, worst", spread("infeasibility")),
        ("loss, handed out", spread("loss_handed_out")),
        ("infeasibility, handed out", spread("infeasibility_handed_out")),
        ("test accuracy, %", spread("accuracy", 2, 100.0)),
    )
    return grid(sorted(kept, key=lambda row: (row["data"] != "mnist", row["method"] == pc_fedavg.EXACT)), columns)


TABLES: dict[str, Callable[[list[Row]], str]] = {
    "prox-al/np": neyman_pearson,
    "prox-al/fairness": fairness,
    "prox-al/lcqp": lcqp,
    "prox-al/figures": clients,
    "ssca/rows": images,
    "ssca/columns": images,
    "ssca/tradeoff": tradeoff,
    "fair-vfl/linear": fair,
    "fair-vfl/mlp": fair,
    "fair-vfl/paces": paces,
    "fair-vfl/audit": audit,
    "pc-fedavg/mnist": budgets,
    "pc-fedavg/cifar10": budgets,
    "pc-fedavg/local-steps": budgets,
}
