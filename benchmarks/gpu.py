"""A round with ten thousand parties on an accelerator, against this machine's processor. Run where there is one."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fedpact as fp

PARTIES, ROWS, D, TOLERANCE = 10_000, 100, 100, 1e-4


def measure() -> str:
    lines = [
        "## Ten thousand parties on a GPU\n",
        f"Logistic regression, {PARTIES:,} parties of {ROWS} rows, d = {D}, `fp.l2(1e-3)`, float64, to {TOLERANCE:g}, with a "
        "loss of class 1 of at most 0.5 over all rows. Bare: every party's value and gradient at a point (for the interior-point "
        "method its Hessian, too) and nothing else, in plain JAX. `python -m benchmarks gpu` on each machine, the best of three "
        "warm calls.\n",
        "| device | method | rounds | ms a round | bare, ms | ratio | whole call, s | compiling, s | certificate |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    rng = np.random.default_rng(0)
    truth = rng.normal(size=D) / np.sqrt(D)
    x = rng.normal(size=(PARTIES * ROWS, D))
    y = (x @ truth + 0.5 * rng.normal(size=len(x)) > 0).astype(int)
    loss = fp.logistic_loss(fp.linear())
    limit = fp.mean(loss, where=fp.col("y") == 1).pooled() <= 0.5
    problem = fp.minimize(fp.mean(loss), [limit.named("class 1")], fp.l2(1e-3))
    parties = fp.split_rows(fp.Table(x=x, y=y), parties=PARTIES, seed=0)
    for method, bare in ((fp.ProxAL(fp.LBFGS()), _gradients), (fp.InteriorPoint(), _hessians)):
        first = result = fp.solve(problem, parties, method, tolerance=TOLERANCE)
        calls, rounds = [], []
        for _ in range(3):
            began = time.perf_counter()
            result = fp.solve(problem, parties, method, tolerance=TOLERANCE)
            calls.append(time.perf_counter() - began)
            rounds.append(result.seconds / result.rounds)
        arithmetic = _seconds(bare, x, y)
        lines.append(
            f"| {jax.devices()[0].device_kind} | {result.method} | {result.rounds} | {1e3 * min(rounds):.2f} | "
            f"{1e3 * arithmetic:.2f} | {min(rounds) / arithmetic:.1f} | {min(calls):.2f} | {first.compile_seconds:.1f} | "
            f"{result.certificate.stationarity:.1e} |"
        )
    return "\n".join(lines) + "\n"


def _gradients(w: jax.Array, x: jax.Array, y: jax.Array) -> Any:
    def loss(w: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.mean(jax.nn.softplus((1 - 2 * y) * (x @ w)))

    return jax.vmap(jax.value_and_grad(loss), in_axes=(None, 0, 0))(w, x, y)


def _hessians(w: jax.Array, x: jax.Array, y: jax.Array) -> Any:
    def hessian(x: jax.Array) -> jax.Array:
        rate = jax.nn.sigmoid(x @ w)
        return x.T @ ((rate * (1 - rate))[:, None] * x)

    return _gradients(w, x, y), jax.vmap(hessian)(x).sum(0)


def _seconds(bare: Callable[..., Any], x: np.ndarray, y: np.ndarray) -> float:
    with jax.enable_x64(True):
        given = jax.device_put((np.full(D, 0.01), x.reshape(PARTIES, ROWS, D), y.reshape(PARTIES, ROWS)))
        compiled = jax.jit(bare)
        jax.block_until_ready(compiled(*given))
        times = []
        for _ in range(5):
            began = time.perf_counter()
            jax.block_until_ready(compiled(*given))
            times.append(time.perf_counter() - began)
    return min(times)
