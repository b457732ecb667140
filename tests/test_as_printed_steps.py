"""PC-FedAvg as printed and FedBCD, held to transcriptions of their pseudo-code in NumPy; and local steps by round."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from columns import FEATURES, LOSS, RIDGE, TABLE, flat

import fedpact as fp

ROUNDS, M, D = 50, 3, 4
PULLS, BOUNDS = (0.1, 0.4, 0.7), (0.3, 0.6, 0.9)
GAMMA, PENALTY = 0.05, 5.0
rng = np.random.default_rng(0)
X = rng.normal(size=(M, 10, D))
Y = np.einsum("ind,id->in", X, rng.normal(1.0, 1.0, size=(M, D)))
TABLES = [fp.Table(x=x, y=y) for x, y in zip(X, Y, strict=True)]
LOSS_HERE = fp.mean(fp.squared_loss(fp.linear()))
PERSONAL = fp.minimize(LOSS_HERE, personal=fp.Personal([fp.sets.box(-b, b) for b in BOUNDS], list(PULLS)))


def gradient(i: int, w: np.ndarray) -> np.ndarray:
    """∇f_i, of the mean of (x·w − y)²/2."""
    return X[i].T @ (X[i] @ w - Y[i]) / len(Y[i])


def pc_fedavg(steps: Callable[[int], int]) -> np.ndarray:
    """Algorithm 1 with T_{r+1} − T_r steps in round r + 1, every agent with a copy of every block: (blocks, D)."""
    server = np.zeros((M, D))
    for r in range(ROUNDS):
        copies = np.repeat(server[None], M, axis=0)  # line 3: copies[i, j]
        for i in range(M):
            for _ in range(steps(r + 1)):  # line 4
                x = copies[i].copy()
                mean = x.mean(0)  # line 6
                g = gradient(i, mean)  # line 7
                for j in range(M):  # line 8
                    if j == i:
                        outside = x[i] - np.clip(x[i], -BOUNDS[i], BOUNDS[i])
                        down = g / M + PENALTY * outside + PULLS[i] * (M - 1) / M * (x[i] - mean)
                    else:
                        down = g / M - PULLS[i] / M * (x[j] - mean)
                    copies[i, j] = x[j] - GAMMA * down
        server = copies.mean(0)  # line 10
    return server


@pytest.mark.parametrize(
    ("local_steps", "steps"),
    [
        (4, lambda t: 4),
        ([5, 1, 3], lambda t: (5, 1, 3)[min(t, 3) - 1]),
        (fp.Decay(6, 0.5), lambda t: max(round(6 / t**0.5), 1)),
    ],
    ids=["constant", "listed", "schedule"],
)
def test_pc_fedavg(local_steps: Any, steps: Callable[[int], int]) -> None:
    method = fp.PCFedAvg.as_printed(GAMMA, local_steps, PENALTY)
    found = fp.solve(PERSONAL, TABLES, method, max_rounds=ROUNDS).unprojected
    assert found is not None
    blocks = np.stack([found[f"party {i + 1}"]["w"] for i in range(M)])
    np.testing.assert_allclose(blocks, pc_fedavg(steps), rtol=0, atol=1e-12)
    assert np.abs(blocks).max() > 0.3


def averaged(mu: float, steps: Callable[[int], int]) -> np.ndarray:
    """FedProx, with mu = 0 FedAvg."""
    w = np.zeros(D)
    for t in range(1, ROUNDS + 1):
        ends = []
        for i in range(M):
            v = w
            for _ in range(steps(t)):
                v = v - GAMMA * (gradient(i, v) + mu * (v - w))
            ends.append(v)
        w = np.mean(ends, axis=0)
    return w


@pytest.mark.parametrize("mu", [0, 0.3], ids=["FedAvg", "FedProx"])
def test_local_steps_by_round(mu: float) -> None:
    listed: Any = {"local_steps": [7, 1, 4], "step": GAMMA}
    method = fp.FedProx(mu=mu, **listed) if mu else fp.FedAvg(**listed)
    found = fp.solve(fp.minimize(LOSS_HERE), TABLES, method, max_rounds=ROUNDS)
    expected = averaged(mu, lambda t: (7, 1, 4)[min(t, 3) - 1])
    np.testing.assert_allclose(found.params["w"], expected, rtol=0, atol=1e-12)


def test_local_steps_that_are_none() -> None:
    for wrong, words in (([3, 0], r"FedAvg\(local_steps=0\)"), ([], r"FedAvg\(local_steps=\[\]\)")):
        with pytest.raises(ValueError, match=words):
            fp.FedAvg(local_steps=wrong)


def fed_bcd(active: tuple[str, ...], steps: int, step: float) -> tuple[np.ndarray, list[float]]:
    """FedBCD-p with full batches: between two exchanges every party takes Q steps on its block, the others' outputs as they were.

    A party with labels computes the loss anew in every step; one without has ∂L/∂scores as of the exchange.
    """
    x, y = np.asarray(TABLE["x"], float), np.asarray(TABLE["y"], float)
    theta, told = np.zeros(5), []

    def slopes(scores: np.ndarray) -> np.ndarray:
        return -y / (1 + np.exp(y * scores)) / len(y)

    for _ in range(ROUNDS):
        outputs = x @ theta
        told.append(np.logaddexp(0.0, -y * outputs).mean() + RIDGE * theta @ theta)
        moved = theta.copy()
        for name, places in FEATURES.items():
            block, others = theta[places], outputs - x[:, places] @ theta[places]
            for _ in range(steps):
                scores = others + x[:, places] @ block if name in active else outputs
                block = block - step * (x[:, places].T @ slopes(scores) + 2 * RIDGE * block)
            moved[places] = block
        theta = moved
    return theta, told


def test_fed_bcd() -> None:
    active = ("bank", "shop")
    parties = fp.split_columns(TABLE, FEATURES, active=list(active))
    problem = fp.minimize(fp.mean(LOSS), regularizer=fp.l2(RIDGE))
    found = fp.solve(problem, parties, fp.FedBCD(local_steps=3, step=0.1), max_rounds=ROUNDS, tolerance=1e-12)
    theta, told = fed_bcd(active, 3, 0.1)
    np.testing.assert_allclose(flat(found), theta, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.history["objective"], told, rtol=0, atol=1e-12)
