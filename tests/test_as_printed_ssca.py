"""`SSCA.as_printed` held to Section V of the paper in NumPy: Algorithms 1 to 4 with (28) to (41)."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedpact as fp
from fedpact.algorithms.parts.batches import folded_key
from fedpact.protocol.sampling import draw

ROUNDS, BATCH, LAMBDA, LIMIT = 50, 6, 0.02, 0.9
K, J, L = 4, 3, 3  # cells of the input, the hidden and the output layer
ROWS = (14, 10)  # of two parties
RHO, GAMMA, TAU, PRICE = (0.9, 0.3), (0.9, 0.35), 0.1, 1e5

rng = np.random.default_rng(0)
Y = rng.integers(0, L, sum(ROWS))
X = rng.normal(size=(L, K))[Y] + 0.5 * rng.normal(size=(sum(ROWS), K))
W1, W2 = 0.5 * rng.normal(size=(K, J)), 0.5 * rng.normal(size=(J, L))
TABLE = fp.Table(x=X, y=Y)
NET = fp.mlp([K, J, L], activation=jax.nn.swish, bias=False)
SPLIT = fp.split_model(
    lambda width: fp.mlp([width, J], bias=False), "sum", fp.chain(jax.nn.swish, fp.mlp([J, L], bias=False))
)
METHOD = fp.SSCA.as_printed(BATCH, fp.Decay(*RHO), fp.Decay(*GAMMA), tau=TAU, penalty=PRICE)


def stated(model: Any, constrained: bool) -> fp.Problem:
    cost = fp.mean(fp.softmax_loss(model)).pooled()
    if constrained:  # (37)
        return fp.minimize(fp.value(fp.squared_norm), [(cost <= LIMIT).named("cost")])
    return fp.minimize(cost, regularizer=fp.l2(LAMBDA))  # (27)


def batches(by_columns: bool) -> list[list[np.ndarray]]:
    """The rows of every round, of each party that draws some of its own."""
    key, firsts = jax.random.key_data(jax.random.key(0)), np.concatenate([[0], np.cumsum(ROWS)])
    counts = (sum(ROWS),) if by_columns else ROWS
    return [
        [
            firsts[i] + np.asarray(draw(folded_key(folded_key(key, t), i), jnp.asarray(n), BATCH))
            for i, n in enumerate(counts)
        ]
        for t in range(1, ROUNDS + 1)
    ]


def weighted_sums(w1: np.ndarray, w2: np.ndarray, drawn: list[np.ndarray]) -> tuple[float, np.ndarray, np.ndarray]:
    """−Σ y log Q of (32), whose printed sign is wrong, B̄ of (33) and C̄ of (34): over rows with N_i/(BN), else with 1/B."""
    cost, first, second = 0.0, np.zeros_like(w1), np.zeros_like(w2)
    for i, rows in enumerate(drawn):
        share = 1.0 / BATCH if len(drawn) == 1 else ROWS[i] / (BATCH * sum(ROWS))
        x, y = X[rows], np.eye(L)[Y[rows]]
        z = x @ w1
        sigmoid = 1.0 / (1.0 + np.exp(-z))
        hidden, slope = z * sigmoid, sigmoid * (1.0 + z * (1.0 - sigmoid))  # S and S′
        scores = hidden @ w2
        odds = np.exp(scores - scores.max(1, keepdims=True))
        Q = odds / odds.sum(1, keepdims=True)  # (26)
        cost -= share * (y * np.log(Q)).sum()
        first += share * x.T @ ((Q - y) @ w2.T * slope)
        second += share * hidden.T @ (Q - y)
    return cost, first, second


def algorithm(constrained: bool, by_columns: bool) -> tuple[np.ndarray, np.ndarray, list[float], float]:
    """ω after the rounds, the slack of each round, and the last ν."""
    w1, w2 = W1, W2
    B, C, A = np.zeros_like(w1), np.zeros_like(w2), 0.0
    beta1, beta2 = np.zeros_like(w1), np.zeros_like(w2)
    slacks, nu = [], 0.0
    for t, drawn in enumerate(batches(by_columns), start=1):
        rho, gamma = RHO[0] / t ** RHO[1], GAMMA[0] / t ** GAMMA[1]
        cost, first, second = weighted_sums(w1, w2, drawn)
        B = (1 - rho) * B + rho * (first - 2 * TAU * w1)  # (30)
        C = (1 - rho) * C + rho * (second - 2 * TAU * w2)  # (31)
        if constrained:
            norm = (w1**2).sum() + (w2**2).sum()
            A = (1 - rho) * A + rho * (cost + TAU * norm - (first * w1).sum() - (second * w2).sum())  # (39)
            b = (B**2).sum() + (C**2).sum()
            inside = b + 4 * TAU * (LIMIT - A)
            nu = np.clip((np.sqrt(b / inside) - 1) / TAU, 0, PRICE) if inside > 0 else PRICE  # Lemma 1
            to1, to2 = -nu * B / (2 * (1 + nu * TAU)), -nu * C / (2 * (1 + nu * TAU))  # (40), (41)
            value = (B * to1).sum() + (C * to2).sum() + TAU * ((to1**2).sum() + (to2**2).sum()) + A - LIMIT
            slacks.append(max(value, 0.0))
        else:
            beta1, beta2 = (1 - rho) * beta1 + rho * w1, (1 - rho) * beta2 + rho * w2
            to1, to2 = -(B + 2 * LAMBDA * beta1) / (2 * TAU), -(C + 2 * LAMBDA * beta2) / (2 * TAU)  # (35), (36)
        w1, w2 = (1 - gamma) * w1 + gamma * to1, (1 - gamma) * w2 + gamma * to2  # (5)
    return w1, w2, slacks, nu


@pytest.mark.parametrize("constrained", [False, True], ids=["unconstrained", "constrained"])
@pytest.mark.parametrize("by_columns", [False, True], ids=["rows", "columns"])
def test_algorithms_1_to_4(by_columns: bool, constrained: bool) -> None:
    if by_columns:
        start: Any = {"party 1": {"w1": W1[:2]}, "party 2": {"w1": W1[2:]}, "top": {"w1": W2}}
        found = fp.solve(
            stated(SPLIT, constrained), fp.split_columns(TABLE, parties=2), METHOD, start=start, max_rounds=ROUNDS
        )
        ours = np.concatenate([found.params["party 1"]["w1"], found.params["party 2"]["w1"]]), found.params["top"]["w1"]
    else:
        tables = [TABLE.take(np.arange(ROWS[0])), TABLE.take(np.arange(ROWS[0], sum(ROWS)))]
        found = fp.solve(stated(NET, constrained), tables, METHOD, start={"w1": W1, "w2": W2}, max_rounds=ROUNDS)
        ours = found.params["w1"], found.params["w2"]
    w1, w2, slacks, nu = algorithm(constrained, by_columns)
    np.testing.assert_allclose(ours[0], w1, rtol=0, atol=1e-12)
    np.testing.assert_allclose(ours[1], w2, rtol=0, atol=1e-12)
    if constrained:
        assert 0 < nu < PRICE
        np.testing.assert_allclose(found.history["slack"], slacks, rtol=0, atol=1e-11)
        np.testing.assert_allclose(found.certificate.pooled_multipliers, [nu], rtol=1e-11)
