"""A bank with labels and groups, two partners with other columns; and the same for SciPy, with all columns in one place."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

import fedpact as fp

FEATURES = {"bank": [0], "shop": [1, 2], "network": [3, 4]}
RIDGE = 0.01


def customers(n: int = 80, seed: int = 5) -> fp.Table:
    """Labels −1 (about two thirds) and 1; group 1 has higher features, and is the larger one among the positives."""
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, 2, n)
    x = rng.normal(size=(n, 5)) + 0.6 * sex[:, None]
    y = np.where(x @ np.array([1.0, -0.5, 0.8, 0.3, 0.6]) + rng.normal(size=n) > 1.3, 1, -1)
    return fp.Table(x=x, y=y, sex=sex)


TABLE = customers()
PARTIES = fp.split_columns(TABLE, FEATURES, active=["bank"])
MODEL = fp.split_model(bottom=lambda width: fp.linear(bias=False))
LOSS = fp.logistic_loss(MODEL, labels=(-1, 1))


def fair(bound: float = 0.01, loss: Any = LOSS) -> fp.Problem:
    """Logistic regression with a bounded gap between the losses of the two groups' positives."""
    gap = fp.equal_opportunity_gap(loss, group="sex")
    return fp.minimize(fp.mean(loss), [(gap <= bound).named("gap")], fp.l2(RIDGE))


def flat(result: fp.Result) -> np.ndarray:
    """The parameters of linear bottoms, in the order of the table's features."""
    w = np.zeros(5)
    for name, places in FEATURES.items():
        if name in result.params:
            w[places] = result.params[name]["w"]
    return w


# the second statement: functions of the scores, by hand

X, Y, SEX = (jnp.asarray(np.asarray(TABLE[name], float)) for name in ("x", "y", "sex"))


def losses(scores: jax.Array) -> jax.Array:
    return jnp.logaddexp(0.0, -Y * scores)


def between(values: jax.Array, among: jax.Array | None = None) -> jax.Array:
    """The mean over group 0 less that over group 1."""
    rows = jnp.ones_like(Y) if among is None else among.astype(float)
    a, b = rows * (1.0 - SEX), rows * SEX
    return a @ values / a.sum() - b @ values / b.sum()


def regularised(w: jax.Array) -> jax.Array:
    return losses(X @ w).mean() + RIDGE * w @ w


def both_sides(gap: Callable[[jax.Array], jax.Array], bound: float) -> list[Callable[[jax.Array], jax.Array]]:
    return [lambda w: gap(w) - bound, lambda w: -gap(w) - bound]


@dataclasses.dataclass(frozen=True)
class Optimum:
    w: np.ndarray
    objective: float
    multipliers: np.ndarray  # of inequalities g <= 0, then of equalities


def optimum(
    objective: Callable[[jax.Array], jax.Array],
    inequalities: Sequence[Callable[[jax.Array], jax.Array]] = (),
    equalities: Sequence[Callable[[jax.Array], jax.Array]] = (),
    start: np.ndarray | None = None,
) -> Optimum:
    """SLSQP, and then Newton's method on the optimality conditions with the active constraints that it found."""
    start, held = np.zeros(5) if start is None else start, [*inequalities, *equalities]

    def every(w: jax.Array) -> jax.Array:
        return jnp.stack([objective(w), *(g(w) for g in held)])

    values, lines = jax.jit(every), jax.jit(jax.jacfwd(every))
    rows = {"ineq": slice(1, 1 + len(inequalities)), "eq": slice(1 + len(inequalities), None)}
    signs = {"ineq": -1.0, "eq": 1.0}  # SciPy's inequalities are >= 0
    found = scipy.optimize.minimize(
        lambda w: float(values(w)[0]),
        start,
        jac=lambda w: np.asarray(lines(w)[0]),
        method="SLSQP",
        constraints=[
            {
                "type": kind,
                "fun": lambda w, kind=kind: signs[kind] * np.asarray(values(w)[rows[kind]]),
                "jac": lambda w, kind=kind: signs[kind] * np.asarray(lines(w)[rows[kind]]),
            }
            for kind in rows
            if {"ineq": inequalities, "eq": equalities}[kind]
        ],
        options={"ftol": 1e-14, "maxiter": 500},
    )
    there, slopes = np.asarray(values(found.x)), np.asarray(lines(found.x))
    active = [k for k in range(len(held)) if k >= len(inequalities) or abs(there[1 + k]) < 1e-5]
    touching = jnp.asarray([1 + k for k in active], int)

    @jax.jit
    def conditions(z: jax.Array) -> jax.Array:
        w, mu = z[: start.size], z[start.size :]
        slope = jax.grad(lambda w: every(w)[0] + mu @ every(w)[touching])(w)
        return jnp.concatenate([slope, every(w)[touching]])

    guess = np.linalg.lstsq(slopes[touching].T, -slopes[0], rcond=None)[0]
    first = np.concatenate([found.x, guess])
    exact = scipy.optimize.root(conditions, first, jac=jax.jit(jax.jacfwd(conditions)), tol=1e-13)
    assert np.abs(conditions(exact.x)).max() < 1e-10, exact.message
    assert np.abs(exact.x - first).max() < 1e-2, "polishing has left SLSQP's point"
    mu = np.zeros(len(held))
    mu[active] = exact.x[start.size :]
    assert (mu[: len(inequalities)] >= 0).all()
    w = exact.x[: start.size]
    return Optimum(w, float(values(w)[0]), mu)
