"""Secure sums beside sums in the clear: rounds, objectives and bytes on the problems of `fedpact reproduce rounds`; sealing."""

import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor

import jax
import numpy as np

import fedpact as fp
from fedpact.engines.sealing import added, opened, sealed, sealed_layout
from fedpact.engines.serialization import Layout
from fedpact.precision import in_double
from fedpact.privacy.masks import Masks, SessionKey, transcript_of
from fedpact.protocol import Reply
from fedpact.reproduce.rounds import settings

PROBLEMS = ("breast-cancer-wisc", "adult-a", "monks-1", "adult-b", "lcqp")
SIZES = (5, 10, 20)
CONTENDERS = (
    ("InteriorPoint", fp.InteriorPoint(), 1e-6),
    ("InteriorPoint", fp.InteriorPoint(), 1e-8),
    ("ProxAL, Newton", fp.ProxAL(fp.Newton()), 1e-6),
)
SEALED = ((31, 5), (400, 5), (400, 20), (400, 100))  # parameters, parties
REPEATS = 5


def measure() -> str:
    lines = [
        "## Secure sums\n",
        "`python -m benchmarks secure`: the problems of `fedpact reproduce rounds`, one start each; objective: relative "
        "difference; scores: the largest difference of a row's score (of a parameter, where the problem has no rows), relative "
        "to the largest; bytes: up from a party in the whole run, relative to sums in the clear.\n",
        "| problem | parties | method | tolerance | rounds, clear | secure | objective | scores | bytes up |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    cases = [(name, n) for name in PROBLEMS for n in SIZES if name != "lcqp" or n <= 10]
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        lines += [line for told in pool.map(_compared, cases) for line in told]
    lines += [
        "\nOne party's reply of a Hessian, a gradient and a few numbers, sealed, and all of them added up and opened: "
        f"milliseconds, best of {REPEATS}.\n",
        "| parameters | parties | seal, at a party | add up, at the server | bytes up | in the clear |",
        "|---|---|---|---|---|---|",
        *(_sealing(d, n) for d, n in SEALED),
    ]
    return "\n".join(lines) + "\n"


@in_double
def _compared(case: tuple[str, int]) -> list[str]:
    name, n = case
    lines = []
    for _, (data, parties, problem, federation, server, starts) in settings(1, [name], [n]):
        for title, method, tolerance in CONTENDERS:
            given = {
                "server": server,
                "start": starts[0],
                "tolerance": tolerance,
                "max_rounds": 1000,
                "progress": False,
            }
            clear = fp.solve(problem, federation, method, **given)
            secure = fp.solve(problem, federation, method, privacy=fp.SecureAggregation(), **given)
            off = abs(secure.objective - clear.objective) / max(abs(clear.objective), 1e-300)
            ended = [f"{r.rounds}{'' if r.converged else ' ' + r.status}" for r in (clear, secure)]
            lines.append(
                f"| {data} | {parties} | {title} | {tolerance:g} | {ended[0]} | {ended[1]} | {off:.0e} | "
                f"{_apart(federation, clear, secure):.0e} | {secure.bytes_up / clear.bytes_up:.2f} |"
            )
    return lines


def _apart(federation: fp.Parties, clear: fp.Result, secure: fp.Result) -> float:
    """How far two answers are apart where rows can tell: columns that depend on each other leave parameters open."""
    mine, theirs = (np.concatenate([np.ravel(w) for w in jax.tree.leaves(r.params)]) for r in (clear, secure))
    tables = [federation[name] for name in federation.names]
    if all("x" in table for table in tables):
        rows = np.concatenate([np.asarray(table["x"]) for table in tables])
        mine, theirs = rows @ mine, rows @ theirs
    return float(np.max(np.abs(mine - theirs)) / np.max(np.abs(mine)))


def _sealing(d: int, n: int) -> str:
    rng = np.random.default_rng(0)
    numbers = Reply(sum={"hessian": rng.normal(size=d * (d + 1) // 2), "rest": rng.normal(size=5 * d + 17)},
                    max={"largest": rng.uniform(size=5)})  # fmt: skip
    layout = Layout.of(numbers)
    arrays = layout.by_name(numbers)
    names = [f"party {k}" for k in range(n)]
    keys = {name: SessionKey("run", "session", name) for name in names}
    told = {name: key.signed(None, "") for name, key in keys.items()}
    masks = {name: Masks(name, keys[name].pairs(told, transcript_of(told))) for name in names}
    best = np.inf
    for _ in range(REPEATS):
        began = time.perf_counter()
        sealed(layout, arrays, masks[names[0]], names, 1, b"")
        best = min(best, time.perf_counter() - began)
    replies = [sealed(layout, arrays, masks[name], names, 1, b"") for name in names]
    began = time.perf_counter()
    _, finite = opened(layout, added(replies))
    server = time.perf_counter() - began
    assert finite
    up = sealed_layout(layout).size
    return (
        f"| {d} | {n} | {1e3 * best:.1f} | {1e3 * server:.1f} | {up:,} ({up / layout.size:.2f} x) | {layout.size:,} |"
    )


if __name__ == "__main__":
    print(measure())
