"""A certified solve against SciPy's SLSQP on pooled data with exact gradients."""

import itertools
import time
from typing import Any

import numpy as np

import fedpact as fp
from fedpact.reproduce.independent import PooledNeymanPearson
from fedpact.reproduce.prox_al import neyman_pearson_problem, starts

REPEATS = 7
PAUSE = 0.1  # seconds before each call, since threads of BLAS go on waiting for work, and take a core, after the call before it
DRIVERS = ("host", "chunked")  # the default, and the server's part compiled as well


def measure() -> str:
    lines = [
        "## Against SLSQP on pooled data\n",
        "Neyman-Pearson, class-1 loss at most 0.2 at each party. fedpact: the whole warm call of `fp.solve`, "
        "over parties that an earlier call has bound, certified at 1e-6, certificate included. SLSQP: exact gradients, one pass "
        "over the rows per point, `ftol` at the loosest of 1e-8, 1e-10, 1e-12, 1e-14 that reaches a KKT residual of 1e-6. "
        "Best of 7, alternating, with a pause of 0.1 s before each.\n",
        "| data | n | method | driver | SLSQP, ms (residual) | fedpact, ms (certificate) | ratio | rounds | compiling, s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, load, n in (
        ("breast-cancer-wisc", fp.datasets.breast_cancer_wisc, 5),
        ("adult-a", fp.datasets.adult_a, 10),
    ):
        table = load()
        parties = fp.split_rows(table, n, stratify="y", seed=10)
        start = starts(table["x"].shape[1], 1)[0]
        pooled, problem = PooledNeymanPearson(parties), neyman_pearson_problem()
        ftol = next(
            f for f in (1e-8, 1e-10, 1e-12, 1e-14) if pooled.residual(pooled.solve(start, f).x) <= 1e-6 or f == 1e-14
        )
        for method, driver in itertools.product((fp.InteriorPoint(), fp.ProxAL(fp.Newton())), DRIVERS):
            given: Any = {"start": {"w": start}, "tolerance": 1e-6, "driver": driver}
            first = result = fp.solve(problem, parties, method, **given)
            reference = pooled.solve(start, ftol)
            theirs, ours = [], []
            for _ in range(REPEATS):
                time.sleep(PAUSE)
                began = time.perf_counter()
                reference = pooled.solve(start, ftol)
                theirs.append(time.perf_counter() - began)
                time.sleep(PAUSE)
                began = time.perf_counter()
                result = fp.solve(problem, parties, method, **given)
                ours.append(time.perf_counter() - began)
            assert result.converged
            assert np.isclose(result.objective, reference.fun, rtol=1e-4)
            c = result.certificate
            worst = max(c.stationarity, c.feasibility, c.complementarity)
            lines.append(
                f"| {name} | {n} | {result.method} | {driver} | {1e3 * min(theirs):.1f} ({pooled.residual(reference.x):.0e}) "
                f"| {1e3 * min(ours):.1f} ({worst:.0e}) | {min(ours) / min(theirs):.2f} | {result.rounds} "
                f"| {first.compile_seconds:.1f} |"
            )
    return "\n".join(lines) + "\n"
