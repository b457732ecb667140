"""A round of PC-FedAvg with very many parties, against the gradients that it has to compute in any case."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import fedpact as fp
from fedpact.engines.local import LocalNetwork
from fedpact.problem.oracle import Oracle
from fedpact.protocol.algorithm import Goal
from fedpact.run import drivers
from fedpact.settings import bind

STEPS, SIZES, REPEATS = 20, (250, 1000), 3


def measure() -> str:
    lines = [
        "## A round of PC-FedAvg with very many parties\n",
        "Softmax regression on MNIST, 60 rows a party, 7,840 parameters, ℓ1 budgets of 50 to 188, from a model outside all of "
        f"them, H = {STEPS} steps on all rows of a party. Bare: the same gradients at a model for each party and nothing else. "
        f"Best of {REPEATS}, alternating, after compilation. Memory: arguments and temporaries of a compiled round, data "
        "included.\n",
        "| parties | bare gradients, s a round | PC-FedAvg, s a round | ratio | memory, GB |",
        "|---|---|---|---|---|",
    ]
    table, _ = fp.datasets.mnist()
    for m in SIZES:
        radii = np.linspace(50, 188, m)
        problem = fp.minimize(
            fp.mean(fp.softmax_loss(fp.linear(outputs=10))),
            personal=fp.Personal([fp.l1_ball(radius) for radius in radii], 0.02),
        )
        parties = fp.split_rows(table.take(np.arange(60 * m)), parties=m)
        with jax.enable_x64(True):
            bound = bind(problem, parties)
            network, own = LocalNetwork.of(bound), bound.server_data
            method = fp.PCFedAvg(step=0.03, local_steps=STEPS, penalty=10.0).bind(bound.setting)
            goal = Goal(jnp.asarray(1e-30), jnp.asarray(1e-30))
            far = np.random.default_rng(0).normal(
                size=bound.start.size
            )  # outside every set, so that projections have work
            server, states = drivers.begin(method, network, own, jnp.asarray(0.1 * far), goal, 0)
            one_round = jax.jit(drivers.traced_round, static_argnums=0)
            memory = one_round.lower(method, network, own, server, states).compile().memory_analysis()
            assert memory is not None
            models = jnp.tile(jnp.asarray(0.1 * far), (m, 1))
            bare, whole = [], []
            for _ in range(REPEATS + 1):
                bare.append(_seconds(_gradients, bound.stacks[0], models))
                whole.append(_seconds(drivers.step, method, network, own, server, states))
        a, b = min(bare[1:]), min(whole[1:])
        room = (memory.argument_size_in_bytes + memory.temp_size_in_bytes) / 1e9
        lines.append(f"| {m:,} | {a:.2f} | {b:.2f} | {b / a:.2f} | {room:.2f} |")
    return "\n".join(lines) + "\n"


@jax.jit
def _gradients(oracles: Oracle, models: jax.Array) -> jax.Array:
    def once(w: jax.Array, _: None) -> tuple[jax.Array, None]:
        slopes = jax.vmap(jax.grad(lambda w, own: own.parties * own(w).objective))(w, oracles)
        return w - 0.03 * slopes, None

    return lax.scan(once, models, None, STEPS)[0]


def _seconds(function: Any, *given: Any) -> float:
    began = time.perf_counter()
    jax.block_until_ready(function(*given))
    return time.perf_counter() - began
