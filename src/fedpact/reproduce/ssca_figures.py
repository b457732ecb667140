"""Figures 2 to 4 of Ye and Cui.

    ssca/rows       Figure 2: Algorithms 1 and 2 over rows, against federated SGD: cost on all 60,000 rows and test accuracy
    ssca/columns    Figure 3: Algorithms 3 and 4 over columns, against vertical SGD
    ssca/tradeoff   Figure 4: cost against ‖ω‖², for λ and for U varied

All seeds of a line run at once, as one program. How steps were tuned: every method and batch gets the same budget, nine settings
of TRIED rounds each from the first seed, and the one with the least cost on all rows is run in full. For SSCA the grid holds the
paper's setting.
"""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedpact.problem.statement import Problem
from fedpact.protocol.algorithm import Algorithm
from fedpact.reproduce.figures import Curve, Panel, drawn
from fedpact.reproduce.ssca import BATCHES, LIMIT, MARGIN, SplitMNIST, sgd_grid, ssca_grid, twice_grid
from fedpact.reproduce.stepping import Reached, Seeds
from fedpact.reproduce.table import Bar, Rows, moments

MARKS = (1, 10, 30, 100, 200, 300, 600, 1000)  # rounds at which all rows are measured
LATER = (2000, 3000)  # and under a limit, with the largest batch
TRIED = 200
MOST_SEEDS = 20
FREE, TUNED, SGD, TWICE, LIMITED, OURS = "free", "free, tuned", "SGD", "SGD, E=2", "limited", "limited, ours"
LINES = (FREE, TUNED, SGD, TWICE, LIMITED, OURS)
WEIGHTS, LIMITS = (1e-2, 1e-3, 1e-4, 1e-5), (0.5, 0.3, 0.2, 0.13)


def title(kind: str, line: str) -> str:
    """A line as the paper numbers its algorithms."""
    first, second = ("Algorithm 1", "Algorithm 2") if kind == "rows" else ("Algorithm 3", "Algorithm 4")
    return {
        FREE: first,
        TUNED: f"{first}, tuned",
        SGD: "SGD, tuned",
        TWICE: "SGD, tuned, E=2",
        LIMITED: second,
        OURS: f"{second}, ours",
    }[line]


def lines_of(kind: str, batch: int) -> tuple[str, ...]:
    """Two local steps need rows that are split, and two rows; our settings are for the largest batch."""
    left_out = {TWICE} if kind == "columns" or batch == 1 else set()
    return tuple(line for line in LINES if line not in left_out | (set() if batch == 100 else {OURS}))


def _compared(
    kind: str, trials: int, out: pathlib.Path | None, progress: bool | None, names: Sequence[str]
) -> list[dict[str, Any]]:
    rows, mnist = Rows(f"ssca/{kind}", out, trials, names), SplitMNIST(kind)
    batches = [int(name) for name in names if name in BATCHES] or [int(name) for name in BATCHES]
    chosen = [name for name in names if name in LINES] or LINES
    work = [(batch, line) for batch in batches for line in lines_of(kind, batch) if line in chosen]
    bound: dict[bool, Seeds] = {}
    with Bar(progress, len(work)) as bar:
        for batch, line in work:
            per_step = batch * mnist.scale // (2 if line == TWICE else 1)
            about = {"method": title(kind, line), "batch": per_step, "seeds": trials}
            limited = line in (LIMITED, OURS)
            marks = (*MARKS, *LATER) if limited and batch == 100 else MARKS
            if rows.has(**about, iterations=marks[-1]):
                bar.step(False)
                continue
            rows.drop(**about)
            bar.say(f"{kind}, B = {about['batch']}: {about['method']}", now=True)
            if limited not in bound:
                problem = mnist.limited() if limited else mnist.free()
                bound[limited] = Seeds(problem, mnist.parties, range(trials))
            method = _method(mnist, bound[limited], batch, line, bar)
            for reached in bound[limited].run(method, marks):
                bar.say(f"{kind}, B = {about['batch']}: {about['method']}, round {reached.rounds}", now=True)
                _measure(rows, mnist, reached, {**about, "setting": _words(method), "limited": limited})
            bar.step()
    rows.show(
        {
            "method": "method",
            "batch": "B",
            "iterations": "T",
            "cost": "cost, all rows",
            "cost_spread": "±",
            "accuracy": "test accuracy",
            "accuracy_spread": "±",
            "norm": "‖ω‖²",
            "bytes_per_round": "bytes a round",
        },
        f"cost: on all 60,000 training rows, {trials} seeds. Limit U = {LIMIT}; 'ours' keeps a margin of {MARGIN} inside "
        f"it. Tuned: the best of nine settings by the cost after {TRIED} rounds, for SGD and for SSCA alike.",
    )
    if out is not None:
        draw(out, kind, rows.rows)
    return rows.rows


def _method(mnist: SplitMNIST, seeds: Seeds, batch: int, line: str, bar: Bar) -> Algorithm:
    if line in (FREE, LIMITED):
        return mnist.printed(batch)
    if line == OURS:
        return mnist.ours(batch)
    grid = {SGD: sgd_grid, TUNED: ssca_grid, TWICE: twice_grid}[line](mnist, batch)
    one, costs = seeds.only_first(), []
    for place, method in enumerate(grid):
        bar.say(f"{mnist.name}, B = {batch * mnist.scale}: tuning {line}, {place + 1} of {len(grid)}", now=True)
        (reached,) = one.run(method, (TRIED,))
        cost = mnist.measured(reached.parameters[0])["cost"]
        costs.append(cost if np.isfinite(cost) else np.inf)
    return grid[int(np.argmin(costs))]


def _measure(rows: Rows, mnist: SplitMNIST, reached: Reached, about: dict[str, Any]) -> None:
    found = [mnist.measured(each) for each in reached.parameters]
    columns = {name: [each[name] for each in found] for name in found[0]}
    several: dict[str, Any] = {}
    for name, values in columns.items():
        several |= moments(name, values)
    rows.add(
        **about,
        iterations=reached.rounds,
        **several,
        bytes_per_round=reached.bytes_per_round,
        seconds=reached.seconds,
    )


def _words(method: Algorithm) -> str:
    return " ".join(repr(method).split())


def ssca_rows(
    trials: int, out: pathlib.Path | None, progress: bool | None = None, names: Sequence[str] = ()
) -> list[dict[str, Any]]:
    return _compared("rows", trials, out, progress, names)


def ssca_columns(
    trials: int, out: pathlib.Path | None, progress: bool | None = None, names: Sequence[str] = ()
) -> list[dict[str, Any]]:
    return _compared("columns", trials, out, progress, names)


def tradeoff(
    trials: int, out: pathlib.Path | None, progress: bool | None = None, names: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Figure 4: each point is runs of 1,000 rounds with 100 rows a party; `names`: rows, columns; empty: both."""
    rows, kinds = Rows("ssca/tradeoff", out, trials, names), list(names) or ["rows", "columns"]
    with Bar(progress, len(kinds) * (len(WEIGHTS) + len(LIMITS))) as bar:
        for kind in kinds:
            mnist = SplitMNIST(kind)
            points: list[tuple[str, float, Problem, Algorithm]] = [
                *(("weight", weight, mnist.free(weight), mnist.printed(100)) for weight in WEIGHTS),
                *(("limit", limit, mnist.limited(limit), mnist.ours(100)) for limit in LIMITS),
            ]
            for quantity, amount, problem, method in points:
                about = {"split": kind, quantity: amount, "seeds": trials}
                if rows.has(**about):
                    bar.step(False)
                    continue
                bar.say(f"{kind}: {quantity} {amount:g}", now=True)
                (reached,) = Seeds(problem, mnist.parties, range(trials)).run(method, (MARKS[-1],))
                _measure(rows, mnist, reached, about)
                bar.step()
    rows.show(
        {
            "split": "split",
            "weight": "λ",
            "limit": "U",
            "cost": "cost, all rows",
            "cost_spread": "±",
            "norm": "‖ω‖²",
            "accuracy": "test accuracy",
        },
        "Algorithms 1 and 3 for λ, 2 and 4 for U; 1,000 rounds, 100 rows a party (1,000 over columns).",
    )
    if out is not None:
        draw_tradeoff(out, rows.rows)
    return rows.rows


def draw(out: pathlib.Path, kind: str, rows: Sequence[dict[str, Any]]) -> None:
    """Cost and accuracy without and with the limit, a line for each method and batch; bands of one standard deviation."""
    panels = []
    for quantity, label, scale in (("cost", "training cost", "log"), ("accuracy", "test accuracy", "linear")):
        for limited in (False, True):
            mine = [row for row in rows if row["limited"] == limited]
            names = dict.fromkeys((row["method"], row["batch"]) for row in mine)
            curves = [
                _curve([r for r in mine if (r["method"], r["batch"]) == name], quantity, f"{name[0]}, B = {name[1]}")
                for name in names
            ]
            limit = LIMIT if quantity == "cost" and limited else None
            words = "under the limit" if limited else "without a limit"
            span = None if quantity == "cost" else (0.6, 1.0)
            panels.append(Panel(f"{label}, {words}", curves, "round", label, scale, "log", limit=limit, y_range=span))
    drawn(out, f"MNIST, {kind} split over ten parties", panels)


def _curve(rows: Sequence[dict[str, Any]], quantity: str, name: str) -> Curve:
    rows = sorted(rows, key=lambda row: row["iterations"])
    x, y = [row["iterations"] for row in rows], np.array([row[quantity] for row in rows], float)
    spread = np.array([row[f"{quantity}_spread"] or 0.0 for row in rows], float)
    if not spread.any():
        return Curve(name, x, y.tolist())
    return Curve(name, x, y.tolist(), np.maximum(y - spread, 1e-3).tolist(), (y + spread).tolist())


def draw_tradeoff(out: pathlib.Path, rows: Sequence[dict[str, Any]]) -> None:
    panels = []
    for kind in dict.fromkeys(row["split"] for row in rows):
        mine = sorted((row for row in rows if row["split"] == kind), key=lambda row: row["norm"])
        free, limited = ([row for row in mine if row.get(of)] for of in ("weight", "limit"))
        numbers = ("1", "2") if kind == "rows" else ("3", "4")
        curves = [
            Curve(f"Algorithm {number}, {what} varied", [r["norm"] for r in part], [r["cost"] for r in part])
            for number, what, part in zip(numbers, ("λ", "U"), (free, limited), strict=True)
        ]
        panels.append(Panel(f"{kind} split", curves, "‖ω‖²", "training cost", x_scale="log"))
    drawn(out, "MNIST: cost against the size of the network's weights", panels)
