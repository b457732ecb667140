"""Rounds and bytes of every method on the problems of He, Peng and Sun: `fedpact reproduce rounds`."""

import pathlib
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from fedpact import datasets
from fedpact.algorithms.interior_point.method import InteriorPoint
from fedpact.algorithms.prox_al.admm import ADMM
from fedpact.algorithms.prox_al.lbfgs import LBFGS
from fedpact.algorithms.prox_al.method import ProxAL
from fedpact.algorithms.prox_al.newton import Newton
from fedpact.federation.rows import Parties, split_rows
from fedpact.federation.table import Table
from fedpact.problem.statement import Problem
from fedpact.protocol.algorithm import Algorithm
from fedpact.reproduce.prox_al import (
    NP_DATA,
    PARTIES,
    PARTITION,
    fairness_problem,
    lcqp_federation,
    load,
    neyman_pearson_problem,
    starts,
)
from fedpact.reproduce.table import Rows
from fedpact.run.progress import ProgressLine
from fedpact.run.solve import solve

Setting = tuple[str, int, Problem, Parties, Table | None, Sequence[Any]]  # data, n, problem, parties, server, starts
CAP = 3000  # rounds

Contender = tuple[str, Algorithm, float, int | None]  # name, method, tolerance, starts if not all
INTERIOR: tuple[Contender, ...] = tuple(("interior point", InteriorPoint(), to, None) for to in (1e-3, 1e-6, 1e-8))
NEWTON: tuple[Contender, ...] = tuple(("ProxAL, Newton", ProxAL(Newton()), to, None) for to in (1e-3, 1e-6))
LIMITED: Contender = ("ProxAL, L-BFGS", ProxAL(LBFGS()), 1e-3, None)
SPLIT: Contender = ("ProxAL, ADMM", ProxAL(ADMM()), 1e-3, None)
PRINTED: Contender = ("ProxAL as printed", ProxAL.as_printed(), 1e-3, 1)  # thousands of rounds
UNSCALED = ", own units"  # a tolerance in the problem's own numbers, as the paper's is
OWN_UNITS: tuple[Contender, ...] = tuple(
    (name + UNSCALED, method, to, most) for name, method, to, most in (*NEWTON, LIMITED)
)
CONTENDERS: dict[str, tuple[Contender, ...]] = {
    "np": (*INTERIOR, *NEWTON, LIMITED, SPLIT, PRINTED),
    "adult-b": (*INTERIOR, *NEWTON, LIMITED, *OWN_UNITS),
    "lcqp": (*INTERIOR, ("ProxAL, Newton", ProxAL(Newton(), beta=1e6), 1e-6, None)),
}


def settings(trials: int, names: Sequence[str], sizes: Sequence[int]) -> Iterator[tuple[str, Setting]]:
    """Every problem with its federation and starting points, and which contenders it is for."""
    for name in names:
        if name == "lcqp":
            for n in (n for n in sizes if n <= 10):
                for d in (100, 300, 500):
                    instance, problem, parties, server = lcqp_federation(d, n)
                    yield "lcqp", (f"lcqp d={d}", n, problem, parties, server, list(instance.w0[:trials]))
            continue
        if name == "adult-b":
            table, server = datasets.adult_b()
            problem, kind, stratify = fairness_problem(), "adult-b", None
        else:
            table, server = load(name), None
            problem, kind, stratify = neyman_pearson_problem(), "np", "y"
        points = [{"w": point} for point in starts(table["x"].shape[1], trials)]
        for n in sizes:
            parties = split_rows(table, n, stratify=stratify, seed=PARTITION)
            yield kind, (name, n, problem, parties, server, points)


def rounds(
    trials: int,
    out: pathlib.Path | None,
    progress: bool | None = None,
    names: Sequence[str] = (),
    sizes: Sequence[int] = PARTIES,
) -> list[dict[str, Any]]:
    """Median and worst of the starts, every exchange counted."""
    rows, chosen = Rows("rounds", out, trials, names), list(names) or [*NP_DATA, "adult-b", "lcqp"]
    with ProgressLine(progress) as line:
        for kind, (data, n, problem, parties, server, points) in settings(trials, chosen, sizes):
            for name, method, tolerance, most in CONTENDERS[kind]:
                if rows.has(data=data, n=n, method=name, tolerance=tolerance):
                    continue
                results = []
                for trial, start in enumerate(points[:most]):
                    line.say(f"{data} n={n}: {name} at {tolerance:g}, trial {trial + 1}", now=True)
                    given: dict[str, Any] = {"server": server, "start": start, "tolerance": tolerance}
                    given["scale"] = not name.endswith(UNSCALED)
                    results.append(solve(problem, parties, method, max_rounds=CAP, progress=False, **given))
                exchanges = [r.exchanges for r in results]
                rows.add(
                    data=data,
                    n=n,
                    method=name,
                    tolerance=tolerance,
                    certified=f"{sum(r.converged for r in results)}/{len(results)}",
                    median_rounds=statistics.median(exchanges),
                    rounds=max(exchanges),
                    median_bytes=statistics.median(r.bytes_up + r.bytes_down for r in results) / n,
                    bytes=max(r.bytes_up + r.bytes_down for r in results) / n,
                    objective=statistics.fmean(r.objective for r in results),
                    worst_objective=max(r.objective for r in results),
                    seconds=statistics.fmean(r.seconds for r in results),
                )
    rows.show(
        {
            "data": "data",
            "n": "n",
            "method": "method",
            "tolerance": "tol",
            "certified": "certified",
            "median_rounds": "rounds, median",
            "rounds": "worst",
            "median_bytes": "bytes per party, median",
            "bytes": "worst",
            "objective": "objective",
            "seconds": "s",
        },
        "rounds: every exchange counted, trials that were taken back among them. bytes: both ways, over the whole run.",
    )
    return rows.rows
