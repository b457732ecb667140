"""A round with ten thousand parties on an accelerator, against this machine's processor. Run where there is one."""

import jax
import numpy as np

import fedpact as fp

PARTIES, ROWS, D, TOLERANCE = 10_000, 100, 100, 1e-4


def measure() -> str:
    lines = [
        "## Ten thousand parties on a GPU\n",
        f"Logistic regression, {PARTIES:,} parties of {ROWS} rows, d = {D}, `fp.l2(1e-3)`, float64: `fp.ProxAL(fp.LBFGS())` to "
        f"{TOLERANCE:g}, with a loss of class 1 of at most 0.5 over all rows. `python -m benchmarks gpu` on each machine, "
        "the second of two runs.\n",
        "| device | rounds | s | ms a round | compiling, s | certificate |",
        "|---|---|---|---|---|---|",
    ]
    rng = np.random.default_rng(0)
    truth = rng.normal(size=D) / np.sqrt(D)
    tables = []
    for _ in range(PARTIES):
        x = rng.normal(size=(ROWS, D))
        tables.append(fp.Table(x=x, y=(x @ truth + 0.5 * rng.normal(size=ROWS) > 0).astype(int)))
    loss = fp.logistic_loss(fp.linear())
    limit = fp.mean(loss, where=fp.col("y") == 1).pooled() <= 0.5
    problem = fp.minimize(fp.mean(loss), [limit.named("class 1")], fp.l2(1e-3))
    parties, method = fp.split_rows(tables), fp.ProxAL(fp.LBFGS())
    first = fp.solve(problem, parties, method, tolerance=TOLERANCE)
    result = fp.solve(problem, parties, method, tolerance=TOLERANCE)
    device = jax.devices()[0]
    lines.append(
        f"| {device.device_kind} | {result.rounds} | {result.seconds:.3f} | {1e3 * result.seconds / result.rounds:.2f} | "
        f"{first.compile_seconds:.1f} | {result.certificate.stationarity:.1e} |"
    )
    return "\n".join(lines) + "\n"
