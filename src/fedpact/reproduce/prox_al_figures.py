"""Figures 1 and 2 of He, Peng and Sun: objective and constraint of the single clients over the outer iterations of Algorithm 1.

    prox-al/figures   one trial of Algorithms 1 and 2 on the data of Tables 1 and 2, mean and band over the clients

Lines are means over clients, bands go from the least to the largest client: of what the clients disclose in the first round of
each subproblem, which begins at the outer iterate w^k, and in the last round.
"""

import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from fedpact import datasets
from fedpact.algorithms.prox_al.method import ProxAL
from fedpact.federation.rows import split_rows
from fedpact.federation.table import Table
from fedpact.protocol.algorithm import Disclosed
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
from fedpact.reproduce.stepping import Round, iterates
from fedpact.reproduce.table import Bar, Rows, thinned

DATA = (*NP_DATA, "adult-b")
SIZES = (5, 10, 20)


class Told(NamedTuple):
    """What was told at the outer iterates w^0, w^1, … and at the end, each with one row per iterate, and the rounds in all.

    - `objectives`, `constraints`: of each client.
    - `points`: the iterates, for the server's own rows.
    """

    objectives: np.ndarray
    constraints: np.ndarray
    points: list[np.ndarray]
    rounds: int


def outer_iterates(run: Iterable[Round], limit: float, said: Callable[[int, int], None]) -> Told:
    """A client's objective is its part, times how many there are; its constraint the larger side, plus the limit."""

    def at(point: jax.Array, disclosed: Disclosed) -> tuple[np.ndarray, ...]:
        parts = np.asarray(disclosed.party_objective)
        return len(parts) * parts, np.asarray(disclosed.constraints).max(axis=1) + limit, np.asarray(point)

    found, last, rounds, done = [], -1, 0, None
    for rounds, done in enumerate(run, 1):
        outer = int(done.before.k)
        if outer != last:
            last = outer
            found.append(at(done.before.centre, done.info.disclosed))
            said(outer, rounds)
    assert done is not None
    found.append(at(done.after.point, done.info.disclosed))
    objectives, constraints, points = zip(*found, strict=True)
    return Told(np.array(objectives), np.array(constraints), list(points), rounds)


def disparity(w: np.ndarray, table: Table) -> float:
    """Of (32): between the groups' logistic losses."""
    each = np.logaddexp(0.0, np.where(table["y"] == 1, -1.0, 1.0) * (table["x"] @ w))
    return abs(float(each[table["sex"] == 0].mean() - each[table["sex"] == 1].mean()))


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
            limit = DISPARITY if fair else LIMIT
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
                told = outer_iterates(run, limit, said)
                of_server = None if server is None else [disparity(w, server) for w in told.points]
                rows.add(
                    data=data,
                    n=n,
                    rounds=told.rounds,
                    ended=told.rounds < PRINTED_CAP,
                    limit=limit,
                    **_bands("objective", told.objectives),
                    **_bands("constraint", told.constraints),
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
