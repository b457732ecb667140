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
                    jax.block_until_ready(drivers.chunk(method, network, own, server, states, jnp.asarray(ROUNDS)))
                    times.append(time.perf_counter() - began)
                figures.append(min(times[1:]) / ROUNDS)
        a, b = figures
        lines.append(
            f"| {n:,} | {1e3 * a:.3f} | {1e6 * a / n:.2f} | {1e3 * b:.3f} | {1e6 * b / n:.2f} | {binding:.2f} |"
        )
    return "\n".join(lines) + "\n"
