"""What `as_printed` runs, held to transcriptions of the papers' pseudo-code in NumPy."""

from typing import Any

import numpy as np
import pytest

import fedpact as fp
from fedpact.reproduce.prox_al import lcqp_problem

D, N, M = 12, 3, 2


def quadratic() -> tuple[fp.datasets.Lcqp, fp.Problem, fp.Parties, fp.Table]:
    instance = fp.datasets.lcqp(D, N, M, trial=0)
    tables = [
        fp.Table(A=instance.A[None, i], b=instance.b[None, i], C=instance.C[None, i + 1], d=instance.d[None, i + 1])
        for i in range(N)
    ]
    server = fp.Table(A=np.zeros((1, D, D)), b=np.zeros((1, D)), C=instance.C[None, 0], d=instance.d[None, 0])
    return instance, lcqp_problem(N, M), fp.split_rows(tables), server


class Line(dict[str, Any]):
    """What Algorithms 1 and 2 know after a round."""


def algorithms_1_and_2(
    instance: fp.datasets.Lcqp, goal: tuple[float, float], beta: float, s: float, rho: np.ndarray, q: float, exact: bool
) -> tuple[list[Line], np.ndarray, list[np.ndarray]]:
    """He, Peng and Sun (2024), of (84): subproblems are quadratic, so that one Newton step solves them where it is needed."""
    n, d = N, D
    w, mu = instance.w0, [np.zeros(M) for _ in range(n + 1)]
    lines: list[Line] = []
    for k in range(10_000):
        tau, centre = s / (k + 1) ** 2, w

        def bend(i: int) -> np.ndarray:
            own = instance.A[i - 1] if i else np.zeros((d, d))
            return own + beta * instance.C[i].T @ instance.C[i] + np.eye(d) / ((n + 1) * beta)

        def slope(i: int, at: np.ndarray, mu: Any = mu, centre: np.ndarray = centre) -> np.ndarray:
            own = instance.A[i - 1] @ at + instance.b[i - 1] if i else np.zeros(d)
            pushed = mu[i] + beta * (instance.C[i] @ at + instance.d[i])
            return own + instance.C[i].T @ pushed + (at - centre) / ((n + 1) * beta)

        def objective(at: np.ndarray) -> float:
            return sum(0.5 * at @ A @ at + b @ at for A, b in zip(instance.A, instance.b, strict=True))

        u, lam = [w] * n, [-slope(i + 1, w) for i in range(n)]
        lines.append(Line(objective=objective(w), outer=k))  # the first ũ_i are sent
        for t in range(10_000):
            eps = 1e-12 if exact else max(q**t, 1e-12)
            # (18): the server's quadratic, Newton from w^t where that is not accurate enough
            z, weight = sum(r * x + y for r, x, y in zip(rho, u, lam, strict=True)), rho.sum()
            gradient = slope(0, w) + weight * w - z
            if np.abs(gradient).max() > max(0.1 * eps, 1e-12):
                w = w - np.linalg.solve(bend(0) + weight * np.eye(d), gradient)
            tilde = []
            for i in range(n):
                tilde.append(np.abs(slope(i + 1, w) + lam[i] - rho[i] * (w - u[i])).max())  # (22)
                gradient = slope(i + 1, u[i]) + lam[i] + rho[i] * (u[i] - w)
                if np.abs(gradient).max() > eps:  # (19)
                    u[i] = u[i] - np.linalg.solve(bend(i + 1) + rho[i] * np.eye(d), gradient)
                lam[i] = lam[i] + rho[i] * (u[i] - w)  # (20)
            measured = sum(tilde) + (0.0 if exact else q**t)
            lines.append(Line(objective=objective(w), outer=k, residual=measured))
            if measured <= tau:  # (23)
                break
        new = [mu[i] + beta * (instance.C[i] @ w + instance.d[i]) for i in range(n + 1)]
        change = max(np.abs(a - b).max() for a, b in zip(new, mu, strict=True))
        moved = np.abs(w - centre).max() + beta * tau
        mu = new
        if moved <= beta * goal[0] and change <= beta * goal[1]:  # (11)
            return lines, w, mu
    raise AssertionError("no end")


@pytest.mark.parametrize(
    ("rho", "exact"), [(1, True), (1.0, False), ((0.5, 1, 2.0), False)], ids=["exact", "inexact", "a penalty each"]
)
def test_algorithms_1_and_2(rho: Any, exact: bool) -> None:
    instance, problem, parties, server = quadratic()
    goal = (1e-3, 1e-4)
    method = fp.ProxAL.as_printed(beta=10, s=0.1, rho=rho, q=0.5, exact=exact)
    found = fp.solve(problem, parties, method, server=server, start=instance.w0, tolerance=goal)
    weights = np.broadcast_to(np.asarray(rho, float), N)
    lines, w, mu = algorithms_1_and_2(instance, goal, 10.0, 0.1, weights, 0.5, exact)
    assert found.converged
    assert found.rounds == len(lines) > 50
    np.testing.assert_allclose(found.history["objective"], [line["objective"] for line in lines], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(found.history["outer"], [line["outer"] for line in lines])
    told = [k for k, line in enumerate(lines) if "residual" in line]
    np.testing.assert_allclose(
        found.history["residual"][told], [lines[k]["residual"] for k in told], rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(found.params, w, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.certificate.party_multipliers, mu[1:], rtol=0, atol=1e-11)
    np.testing.assert_allclose(found.certificate.server_multipliers, mu[0], rtol=0, atol=1e-11)


def algorithm_3(
    instance: fp.datasets.Lcqp, goal: tuple[float, float], beta: float, s: float
) -> tuple[list[float], np.ndarray, np.ndarray]:
    """The centralised method on (84): objective at each point that Newton's method reads, then w and μ.

    τ_k = s/(k+1)² is nonincreasing (the text says nondecreasing). The subproblem's solver is left open: Newton's method.
    """
    A, b = instance.A.sum(0), instance.b.sum(0)
    C, d = instance.C.reshape(-1, D), instance.d.reshape(-1)
    w, mu, told = instance.w0, np.zeros(len(d)), []
    for k in range(10_000):
        tau, centre = s / (k + 1) ** 2, w
        bend = A + beta * C.T @ C + np.eye(D) / beta
        while True:
            told.append(0.5 * w @ A @ w + b @ w)
            slope = A @ w + b + C.T @ (mu + beta * (C @ w + d)) + (w - centre) / beta
            if np.abs(slope).max() <= tau:
                break
            w = w - np.linalg.solve(bend, slope)
        new = mu + beta * (C @ w + d)
        change, mu = np.abs(new - mu).max(), new
        if np.abs(w - centre).max() + beta * tau <= beta * goal[0] and change <= beta * goal[1]:
            return told, w, mu
    raise AssertionError("no end")


def test_algorithm_3() -> None:
    instance, problem, parties, server = quadratic()
    goal = (1e-3, 1e-4)
    method = fp.CentralProxAL.as_printed(beta=10, s=3)
    found = fp.solve(problem, parties, method, server=server, start=instance.w0, tolerance=goal)
    told, w, mu = algorithm_3(instance, goal, 10.0, 3.0)
    assert found.converged
    assert found.rounds == len(told) > 50
    np.testing.assert_allclose(found.history["objective"], told, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.params, w, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.certificate.server_multipliers, mu[:M], rtol=0, atol=1e-11)
    np.testing.assert_allclose(np.ravel(found.certificate.party_multipliers), mu[M:], rtol=0, atol=1e-11)


def test_a_penalty_for_each_party_needs_as_many() -> None:
    _, problem, parties, server = quadratic()
    with pytest.raises(ValueError, match="2 penalties for 3 parties"):
        fp.solve(problem, parties, fp.ProxAL(fp.ADMM(rho=(1, 2))), server=server, start=np.zeros(D))
    with pytest.raises(ValueError, match=r"ADMM\(rho=-2"):
        fp.ADMM(rho=(1, -2, 3))
