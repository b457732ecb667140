"""Figures 1 and 2 of He, Peng and Sun: objective and constraint of the single clients over the outer iterations of Algorithm 1.

    prox-al/figures   one trial of Algorithms 1 and 2 on the data of Tables 1 and 2, mean and band over the clients

Lines are means over clients, bands go from the least to the largest client. A party tells its constraint values where it
discloses them, but never its objective: both are computed here from the outer iterates w^k and the parties' rows, all of which
are in this process.
"""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedpact import datasets
from fedpact.algorithms.prox_al.method import ProxAL
from fedpact.federation.rows import split_rows
from fedpact.federation.table import Table
from fedpact.reproduce.figures import Curve, Panel, drawn
from fedpact.reproduce.prox_al import (
    DISPARITY,
    LIMIT,
    NP_DATA,
    PARTITION,
    fairness_problem,
    load,
    neyman_pearson_problem,
    sizes_in,
    starts,
)
from fedpact.reproduce.prox_al_tables import AUTHORS, PRINTED_CAP
from fedpact.reproduce.stepping import iterates
from fedpact.reproduce.table import Bar, Rows, thinned

DATA = (*NP_DATA, "adult-b")
SIZES = (5, 10, 20)


def losses(w: np.ndarray, table: Table) -> np.ndarray:
    """The logistic loss of every row."""
    return np.logaddexp(0.0, np.where(table["y"] == 1, -1.0, 1.0) * (table["x"] @ w))


def by_class(w: np.ndarray, table: Table) -> tuple[float, float]:
    """Of (30): the class-0 loss, and the class-1 loss that is limited."""
    each = losses(w, table)
    return float(each[table["y"] == 0].mean()), float(each[table["y"] == 1].mean())


def by_group(w: np.ndarray, table: Table) -> tuple[float, float]:
    """Of (32): the loss, and its disparity."""
    each = losses(w, table)
    return float(each.mean()), abs(float(each[table["sex"] == 0].mean() - each[table["sex"] == 1].mean()))


def outer_points(states: Any, said: Callable[[int, int], None]) -> tuple[list[np.ndarray], int]:
    """The outer iterates w^0, w^1, … with the point that the run ended at, and the rounds."""
    points, last, rounds, state = [], -1, -1, None
    for state in states:
        rounds += 1
        if int(state.k) != last:
            last = int(state.k)
            points.append(np.asarray(state.centre))
            said(last, rounds)
    assert state is not None
    return [*points, np.asarray(state.point)], rounds


def convergence(
    trials: int, out: pathlib.Path | None, progress: bool | None = None, names: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """`fedpact reproduce prox-al/figures`; `names`: of data sets, and n=5, say; empty: all. One trial, as in the paper."""
    del trials
    rows = Rows("prox-al/figures", out, None, names)
    chosen, sizes = sizes_in(names, SIZES)
    chosen = chosen or list(DATA)
    with Bar(progress, len(chosen) * len(sizes)) as bar:
        for data in chosen:
            fair = data == "adult-b"
            table, server = datasets.adult_b() if fair else (load(data), None)
            problem = fairness_problem() if fair else neyman_pearson_problem()
            method = AUTHORS if fair else ProxAL.as_printed()
            measured = by_group if fair else by_class
            for n in sizes:
                if rows.has(data=data, n=n):
                    bar.step(False)
                    continue
                parties = split_rows(table, n, stratify=None if fair else "y", seed=PARTITION)
                start = {"w": starts(table["x"].shape[1], 1)[0]}
                run = iterates(
                    problem, parties, method, server=server, start=start, tolerance=1e-3, max_rounds=PRINTED_CAP
                )

                def said(outer: int, rounds: int, where: str = f"{data} n={n}") -> None:
                    bar.say(f"{where}: outer iteration {outer}, {rounds} rounds")

                bar.say(f"{data} n={n}", now=True)
                points, rounds = outer_points(run, said)
                values = np.array([[measured(w, parties[name]) for name in parties] for w in points])  # (k, party, 2)
                of_server = None if server is None else [measured(w, server)[1] for w in points]
                rows.add(
                    data=data,
                    n=n,
                    rounds=rounds,
                    ended=rounds < PRINTED_CAP,
                    limit=DISPARITY if fair else LIMIT,
                    **_bands("objective", values[:, :, 0]),
                    **_bands("constraint", values[:, :, 1]),
                    server=None if of_server is None else thinned(of_server)[1],
                )
                bar.step()
    rows.show(
        {"data": "data", "n": "n", "rounds": "rounds", "ended": "ended by (11)"},
        "The file has the mean, least and largest client's objective and constraint at every outer iteration.",
    )
    if out is not None:
        draw(out, rows.rows)
    return rows.rows


def _bands(name: str, values: np.ndarray) -> dict[str, Any]:
    """Over clients: mean, least and largest at each outer iteration; at most 200 of them."""
    kinds = (("", values.mean(1)), ("_low", values.min(1)), ("_high", values.max(1)))
    return {f"{name}{ending}": thinned(column)[1] for ending, column in kinds} | {
        f"{name}_at": thinned(values.mean(1))[0]
    }


def draw(out: pathlib.Path, rows: Sequence[dict[str, Any]]) -> None:
    """A panel for each data set and number of parties."""
    panels = []
    for row in rows:
        at = row["objective_at"]
        curves = [
            Curve("objective", at, row["objective"], row["objective_low"], row["objective_high"], colour=0),
            Curve("constraint", at, row["constraint"], row["constraint_low"], row["constraint_high"], colour=1),
        ]
        if row["server"] is not None:
            curves.append(Curve("constraint, server", at, row["server"], style="-.", colour=5))
        title = f"{row['data']}, n = {row['n']}" + ("" if row["ended"] else f" (cut off at {row['rounds']} rounds)")
        panels.append(Panel(title, curves, "outer iteration", "loss", limit=row["limit"]))
    drawn(out, "Algorithm 1 as printed: mean and range over the clients", panels, across=3)
