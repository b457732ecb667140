"""Cost of a round from 10 to 10,000 parties."""

import time

import jax
import jax.numpy as jnp
import numpy as np

import fedpact as fp
from fedpact.engines.local import LocalNetwork
from fedpact.protocol.algorithm import Goal
from fedpact.run import drivers
from fedpact.settings import bind

D, ROWS, ROUNDS = 20, 50, 20


def measure() -> str:
    lines = [
        "## Cost of a round against the number of parties\n",
        f"Logistic loss with a limit at each party, {ROWS} rows each, d = {D}; {ROUNDS} rounds, after compilation.\n",
        "| parties | L-BFGS, ms a round | µs a party | Newton, ms a round | µs a party | binding, s |",
        "|---|---|---|---|---|---|",
    ]
    loss = fp.logistic_loss(fp.linear())
    limited = fp.mean(loss, where=fp.col("y") == 1) <= 0.3
    problem = fp.minimize(fp.mean(loss, where=fp.col("y") == 0), subject_to=[limited])
    for n in (10, 100, 1000, 10_000):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(n * ROWS, D))
        y = (x[:, 0] + rng.normal(size=n * ROWS) > 0).astype(int)
        parties = fp.split_rows(fp.Table(x=x, y=y), parties=n, stratify="y")
        with jax.enable_x64(True):
            began = time.perf_counter()
            bound = bind(problem, parties)
            binding = time.perf_counter() - began
            network, own = LocalNetwork.of(bound), bound.server_data
            figures = []
            for inner in (fp.LBFGS(), fp.Newton()):
                method = fp.ProxAL(inner).bind(bound.setting)
                goal = Goal(jnp.asarray(1e-30), jnp.asarray(1e-30))
                server, states = drivers.begin(method, network, own, bound.start, goal, 0)
                times = []
                for _ in range(3):
                    began = time.perf_counter()
                    jax.block_until_ready(drivers.rounds(method, network, own, server, states, jnp.asarray(ROUNDS)))
                    times.append(time.perf_counter() - began)
                figures.append(min(times[1:]) / ROUNDS)
        a, b = figures
        lines.append(
            f"| {n:,} | {1e3 * a:.3f} | {1e6 * a / n:.2f} | {1e3 * b:.3f} | {1e6 * b / n:.2f} | {binding:.2f} |"
        )
    return "\n".join([*lines, "", _hessians(), "", _very_many()]) + "\n"


def _hessians() -> str:
    """A round of the interior-point method against the one product that it cannot do without."""
    n, rows, d = 2000, 100, 100
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n * rows, d))
    y = (x[:, 0] + rng.normal(size=n * rows) > 0).astype(int)
    loss = fp.logistic_loss(fp.linear())
    limited = fp.mean(loss, where=fp.col("y") == 1) <= 0.6
    problem = fp.minimize(fp.mean(loss), subject_to=[limited], regularizer=fp.l2(1e-3))
    parties = fp.split_rows(fp.Table(x=x, y=y), parties=n)
    runs = [fp.solve(problem, parties, fp.InteriorPoint()) for _ in range(2)]
    a_round = min(run.seconds / run.rounds for run in runs)
    with jax.enable_x64(True):
        product = jax.jit(lambda x, weights: x.T @ (weights[:, None] * x))
        given = jax.device_put((x, rng.uniform(size=n * rows)))
        times = []
        for _ in range(4):
            began = time.perf_counter()
            product(*given).block_until_ready()
            times.append(time.perf_counter() - began)
    return (
        f"{n:,} parties with {rows} rows each, d = {d}: a round of `fp.InteriorPoint` takes {1e3 * a_round:.0f} ms, and XᵀDX "
        f"over all rows as one product {1e3 * min(times):.0f} ms: {a_round / min(times):.2f} times."
    )


def _very_many() -> str:
    """Binding a hundred thousand parties."""
    n = 100_000
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n * ROWS, D))
    parties = fp.split_rows(fp.Table(x=x, y=(x[:, 0] + rng.normal(size=n * ROWS) > 0).astype(int)), parties=n)
    del x
    loss = fp.logistic_loss(fp.linear())
    problem = fp.minimize(fp.mean(loss), subject_to=[fp.mean(loss, where=fp.col("y") == 1) <= 0.7])
    with jax.enable_x64(True):
        began = time.perf_counter()
        bound = bind(problem, parties)
        seconds = time.perf_counter() - began
        held = sum(leaf.nbytes for leaf in jax.tree.leaves(bound.stacks))
    rows = n * ROWS * (D + 1) * 8
    return f"{n:,} parties: bound in {seconds:.1f} s, to arrays of {held / rows:.2f} times the size of the rows."
