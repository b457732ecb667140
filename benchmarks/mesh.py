"""Very many parties on two processes against one: a round of ProxAL with LBFGS.

Each process is what a host is in `fedpact run pact.py --hosts ...`. Apart, as it needs the machine for itself.
"""

import json
import os
import socket
import statistics
import subprocess
import sys

PARTIES, D, ROWS, ROUNDS = 100_000, 20, 50, 5
PROGRAM = """
import json, sys
import numpy as np
import fedpact as fp
from fedpact.run.hosts import join_hosts

hosts, place, parties, d, rows, rounds = json.loads(sys.argv[1])
if hosts:
    join_hosts(hosts, place)
rng = np.random.default_rng(0)
x = rng.normal(size=(parties, rows, d))
y = (x @ rng.normal(size=d) / np.sqrt(d) + 0.5 * rng.normal(size=(parties, rows)) > 0).astype(int)
loss = fp.logistic_loss(fp.linear())
limit = (fp.mean(loss, where=fp.col("y") == 1).pooled() <= 0.5).named("class 1")
problem = fp.minimize(fp.mean(loss), [limit], fp.l2(1e-3))
tables = fp.split_rows([fp.Table(x=a, y=b) for a, b in zip(x, y)])
engine = {"engine": fp.Mesh()} if hosts else {}
taken = []
for _ in range(3):
    result = fp.solve(problem, tables, fp.ProxAL(fp.LBFGS()), tolerance=1e-12, max_rounds=rounds, **engine)
    taken.append(1e3 * result.seconds / result.rounds)
print(json.dumps([taken[1:], result.objective]))
"""


def _milliseconds(processes: int) -> tuple[float, float]:
    """Of a round, and the objective after the last."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    hosts = ",".join([f"127.0.0.1:{port}", *["127.0.0.1"] * (processes - 1)]) if processes > 1 else ""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps([hosts, place, PARTIES, D, ROWS, ROUNDS])],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for place in range(processes)
    ]
    told = [json.loads(process.communicate()[0].splitlines()[-1]) for process in running]
    return statistics.median(told[0][0]), told[0][1]


def measure() -> str:
    one, alone = _milliseconds(1)
    two, spread = _milliseconds(2)
    assert abs(alone - spread) < 1e-10
    return (
        "## Very many parties on two processes\n\n"
        f"{PARTIES:,} parties of {ROWS} rows, d = {D}, float64: `fp.ProxAL(fp.LBFGS())`, a round on average of {ROUNDS}. The two "
        "processes are joined as hosts are; objectives agree to 1e-10. `python -m benchmarks mesh`.\n\n"
        "| processes | ms a round | against one |\n|---|---|---|\n"
        f"| 1 | {one:,.0f} | 1 |\n| 2 | {two:,.0f} | {one / two:.2f} times as fast |\n"
    )
