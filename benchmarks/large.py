"""Large problems of second order: compiling, seconds and memory of the interior-point method beside L-BFGS."""

import json
import os
import resource
import subprocess
import sys
import time

import numpy as np

import fedpact as fp

CASES = ((400, 10, 200, 1), (20, 300, 50, 1), (20, 5, 400, 50), (20, 300, 100, 50), (390, 300, 50, 50))
METHODS = {"InteriorPoint": fp.InteriorPoint(), "ProxAL with L-BFGS": fp.ProxAL(fp.LBFGS())}


def measure() -> str:
    lines = [
        "## Many parameters, parties and constraints\n",
        "Logistic loss of random rows, `fp.l2(1e-3)`, each party with a limit of 0.6 on the loss of its rows, or of each of 50 "
        "parts of them; certified at 1e-4, or found to be infeasible. Every line is a process of its own that compiles "
        "everything: seconds of the first call, how many of them it compiled, of a second call, and the process's largest "
        "memory. The automatic choice is marked with *.\n",
        "| parameters | parties | rows of each | constraints of each | method | rounds | status | first, s | compiling, s | "
        "again, s | MB |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for case in CASES:
        for name in METHODS:
            command = [sys.executable, "-m", "benchmarks.large", *map(str, case), name]
            nothing_kept = {**os.environ, "FEDPACT_CACHE": ""}
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=nothing_kept)
            found = json.loads(done.stdout)
            cells = [*case, name + ("*" if found["chosen"] else ""), found["rounds"], found["status"]]
            cells += [f"{found[key]:.1f}" for key in ("first", "compiling", "again")]
            lines.append(f"| {' | '.join(map(str, cells))} | {found['memory']} |")
    return "\n".join(lines) + "\n"


def _one(sizes: list[int], name: str) -> None:
    d, parties, rows, limits = sizes
    rng = np.random.default_rng(0)
    truth = rng.normal(size=d) / np.sqrt(d)
    tables = []
    for _ in range(parties):
        x = rng.normal(size=(rows, d))
        y = (x @ truth + 0.5 * rng.normal(size=rows) > 0).astype(int)
        tables.append(fp.Table({"x": x, "y": y, "part": np.arange(rows) % limits}))
    loss = fp.logistic_loss(fp.linear())
    bounds = [(fp.mean(loss, where=fp.col("part") == k) <= 0.6).named(f"part {k}") for k in range(limits)]
    problem = fp.minimize(fp.mean(loss), bounds, fp.l2(1e-3))
    chosen = fp.explain(problem, tables).method.startswith(name.split()[0])

    def solved() -> tuple[float, fp.Result]:
        began = time.perf_counter()
        result = fp.solve(problem, tables, METHODS[name], max_rounds=1000, progress=False)
        return time.perf_counter() - began, result

    (first, result), (again, _) = solved(), solved()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    told = {"first": first, "again": again, "compiling": result.compile_seconds, "memory": memory, "chosen": chosen}
    print(json.dumps({**told, "rounds": result.rounds, "status": result.status}))


if __name__ == "__main__":
    _one([int(size) for size in sys.argv[1:5]], sys.argv[5])
