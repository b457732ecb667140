"""What a first call costs beside its arithmetic, in fresh processes: processor seconds of compiling, memory of binding."""

import os
import subprocess
import sys
import tempfile

METHODS = {
    "InteriorPoint": "fp.InteriorPoint()",
    "ProxAL with L-BFGS": "fp.ProxAL(fp.LBFGS())",
    "ProxAL with ADMM": "fp.ProxAL()",
}
FIRST_CALL = """
import sys, time
from fedpact import compiling
if sys.argv[1] == "present": compiling.EARLIER_EMITTERS = {}
import fedpact as fp
loss = fp.logistic_loss(fp.linear(bias=True))
missed = fp.mean(loss, where=fp.col("y") == 1) <= 0.2
problem = fp.minimize(fp.mean(loss, where=fp.col("y") == 0), [missed.named("missed")], fp.l2(1e-3))
parties = fp.split_rows(fp.datasets.breast_cancer(), parties=5, stratify="y", seed=0)
method, seconds = eval(sys.argv[2]), []
for _ in range(2):
    began = time.process_time()
    result = fp.solve(problem, parties, method, progress=False)
    seconds.append(time.process_time() - began)
print(*seconds, result.rounds)
"""
BINDING = """
import resource, sys
import numpy as np
import fedpact as fp
from fedpact.federation import buckets
from fedpact.settings import bind
if sys.argv[1] == "padded": buckets.MUCH = 1e99
x = np.random.default_rng(0).normal(size=(400_000, 100))
parties = fp.split_rows(fp.Table(x=x, y=(x[:, 0] > 0).astype(int)), parties=4_000, seed=0)
problem = fp.minimize(fp.mean(fp.logistic_loss(fp.linear())))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
bound = bind(problem, parties, None, start=None, seed=0, disclose=None)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3)
"""


def measure() -> str:
    lines = [
        "## What a first call costs\n",
        "Processor seconds of `fp.solve` on the README's problem with an empty cache, its arithmetic included (a second call "
        "takes what stands in brackets): as fedpact compiles, by XLA's earlier emitters of code, and by its present ones.\n",
        "| method | rounds | earlier emitters | present ones |",
        "|---|---|---|---|",
    ]
    for name, method in METHODS.items():
        cells = []
        for emitters in ("earlier", "present"):
            first, again, rounds = _printed(FIRST_CALL, emitters, method)
            cells.append(f"{first:.1f} ({again:.2f})")
        lines.append(f"| {name} | {rounds:.0f} | {' | '.join(cells)} |")
    (viewed,), (padded,) = (_printed(BINDING, how) for how in ("viewed", "padded"))
    lines.append(
        f"\n320 MB of rows over 4,000 parties of equal size take {viewed:.0f} MB more when they are bound, and {padded:.0f} "
        "where they are padded to one of a few sizes."
    )
    return "\n".join(lines) + "\n"


def _printed(code: str, *arguments: str) -> list[float]:
    with tempfile.TemporaryDirectory() as cache:
        run = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env={**os.environ, "FEDPACT_CACHE": cache},
            capture_output=True,
            text=True,
            check=True,
        )
    return [float(number) for number in run.stdout.split()]
