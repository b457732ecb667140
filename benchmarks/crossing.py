"""Where the interior-point method stops paying: rounds, bytes and seconds against L-BFGS as parameters grow; and MNIST."""

import numpy as np

import fedpact as fp

SIZES = (30, 100, 200, 400, 800)
PARTIES, ROWS = 10, 200
DIGITS = 6000


def measure() -> str:
    lines = [
        "## Where the automatic choice changes\n",
        f"Neyman-Pearson on {PARTIES} parties with {ROWS} random rows each, limit 0.5, `fp.l2(1e-3)`, certified at 1e-4. Bytes "
        "are per party, both ways; seconds are of the run after compiling, best of two.\n",
        "| parameters | interior point: rounds | MB | s | ProxAL with L-BFGS: rounds | MB | s |",
        "|---|---|---|---|---|---|---|",
    ]
    for size in SIZES:
        problem, parties = _stated(size)
        cells = []
        for method in (fp.InteriorPoint(), fp.ProxAL(fp.LBFGS())):
            runs = [fp.solve(problem, parties, method, tolerance=1e-4, max_rounds=3000) for _ in range(2)]
            assert all(run.converged for run in runs), runs[0].message
            sent = (runs[0].bytes_up + runs[0].bytes_down) / PARTIES / 1e6
            cells += [f"{runs[0].exchanges}", f"{sent:.2f}", f"{min(run.seconds for run in runs):.2f}"]
        lines.append(f"| {size} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *_mnist()]) + "\n"


def _mnist() -> list[str]:
    """Softmax regression, where a Hessian would be 31 million numbers."""
    problem, parties = _digits()
    run = fp.solve(problem, parties, tolerance=1e-4, max_rounds=3000)
    assert run.converged, run.message
    sent = (run.bytes_up + run.bytes_down) / PARTIES / 1e6
    return [
        f"MNIST ({DIGITS:,} rows), softmax regression with 7,850 parameters, {PARTIES} parties, cross-entropy of "
        f"the eights at most 0.3 at each party, `fp.l2(1e-3)`, certified at 1e-4 by ProxAL with L-BFGS: {run.exchanges} rounds, "
        f"{sent:.1f} MB a party, {run.seconds:.1f} s after compiling.",
    ]


def _digits() -> tuple[fp.Problem, fp.Parties]:
    train, _ = fp.datasets.mnist()
    rows = train[np.random.default_rng(0).permutation(train.rows)[:DIGITS]]
    loss = fp.softmax_loss(fp.linear(bias=True, outputs=10))
    limited = (fp.mean(loss, where=fp.col("y") == 8) <= 0.3).named("eights")
    problem = fp.minimize(fp.mean(loss), subject_to=[limited], regularizer=fp.l2(1e-3))
    return problem, fp.split_rows(rows, parties=PARTIES, stratify="y", seed=0)


def _stated(size: int) -> tuple[fp.Problem, fp.Parties]:
    rng = np.random.default_rng(size)
    direction = rng.normal(size=size) / np.sqrt(size)
    x = rng.normal(size=(PARTIES * ROWS, size))
    y = (x @ direction + 0.5 * rng.normal(size=len(x)) > 0).astype(int)
    loss = fp.logistic_loss(fp.linear())
    limited = fp.mean(loss, where=fp.col("y") == 1) <= 0.5
    problem = fp.minimize(fp.mean(loss, where=fp.col("y") == 0), subject_to=[limited], regularizer=fp.l2(1e-3))
    return problem, fp.split_rows(fp.Table(x=x, y=y), parties=PARTIES, seed=0)
