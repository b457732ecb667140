"""An independent solver on pooled data: SciPy's SLSQP with exact gradients, as a careful user would write it."""

from typing import Any, Self

import numpy as np
from scipy.optimize import minimize, nnls

from fedpact.federation.columns import ColumnParties
from fedpact.federation.rows import Parties
from fedpact.federation.table import Table


class Pooled:
    """Weighted sums of the logistic losses log(1 + exp(x_iᵀw)), the first the objective, the others at most `limit`.

    One pass over the rows gives values and Jacobian, kept per point. ridge: a of a‖w‖² in the objective.
    """

    def __init__(self, x: np.ndarray, weights: np.ndarray, limit: float, ridge: float = 0.0):
        self.x, self.weights, self.limit, self.ridge = x, weights, limit, ridge
        self.point: np.ndarray | None = None

    def at(self, w: np.ndarray) -> Self:
        if self.point is None or not np.array_equal(w, self.point):
            scores = self.x @ w
            self.values = self.weights @ np.logaddexp(0.0, scores)
            self.jacobian = (self.weights * np.exp(-np.logaddexp(0.0, -scores))) @ self.x
            self.values[0] += self.ridge * w @ w
            self.jacobian[0] += 2.0 * self.ridge * w
            self.point = w.copy()
        return self

    def solve(self, start: np.ndarray, tolerance: float = 1e-12) -> Any:
        """SLSQP to (about) the accuracy that its `ftol` allows."""
        self.point = None
        return minimize(
            lambda w: self.at(w).values[0],
            start,
            jac=lambda w: self.at(w).jacobian[0],
            method="SLSQP",
            constraints={
                "type": "ineq",
                "fun": lambda w: self.limit - self.at(w).values[1:],
                "jac": lambda w: -self.at(w).jacobian[1:],
            },
            options={"ftol": tolerance, "maxiter": 1000},
        )

    def residual(self, w: np.ndarray) -> float:
        """The KKT residual at w with the best multipliers (nonnegative least squares on the nearly active rows)."""
        self.at(w)
        active = self.values[1:] > self.limit - 1e-5
        jacobian = self.jacobian[1:][active]
        mu = nnls(jacobian.T, -self.jacobian[0])[0] if active.any() else np.zeros(0)
        stationarity = np.abs(self.jacobian[0] + mu @ jacobian).max()
        return float(max(stationarity, (self.values[1:] - self.limit).max()))


class PooledNeymanPearson(Pooled):
    """The class-0 losses of all parties averaged, the class-1 loss of each at most `limit`: all rows in one place."""

    def __init__(self, parties: Parties, limit: float = 0.2):
        tables = [parties[name] for name in parties]
        sign = np.concatenate([np.where(t["y"] == 1, -1.0, 1.0) for t in tables])
        x = np.concatenate([t["x"] for t in tables]) * sign[:, None]
        n = len(tables)
        weights = np.zeros((n + 1, len(x)))
        first = 0
        for i, t in enumerate(tables):
            rows = slice(first, first + len(t))
            weights[0, rows] = (t["y"] == 0) / (t["y"] == 0).sum() / n
            weights[i + 1, rows] = (t["y"] == 1) / (t["y"] == 1).sum()
            first += len(t)
        super().__init__(x, weights, limit)


class PooledFairness(Pooled):
    """The losses of all parties averaged, the gap between the groups' losses of each of them, and of the server's own rows, at
    most `limit` either way: all rows in one place."""

    def __init__(self, parties: Parties, server: Table, limit: float):
        tables = [*(parties[name] for name in parties), server]
        x = np.concatenate([t["x"] * np.where(t["y"] == 1, -1.0, 1.0)[:, None] for t in tables])
        objective, gaps, first = np.zeros(len(x)), np.zeros((len(tables), len(x))), 0
        for i, t in enumerate(tables):
            rows = slice(first, first + len(t))
            if t is not server:
                objective[rows] = 1 / len(t) / (len(tables) - 1)
            gaps[i, rows] = (t["sex"] == 0) / (t["sex"] == 0).sum() - (t["sex"] == 1) / (t["sex"] == 1).sum()
            first += len(t)
        super().__init__(x, np.concatenate([objective[None], gaps, -gaps]), limit)


class PooledFairLogistic(Pooled):
    """mean loss + ‖w‖²/n with |DEO| at most `limit`, DEO over the rows of the class `protected`: all columns in one place."""

    def __init__(self, parties: ColumnParties, protected: int, limit: float):
        labels, n = parties.labels, parties.rows
        x = np.concatenate([parties[name]["x"] for name in parties], axis=1) * -labels["y"][:, None]
        a, b = ((labels["y"] == protected) & (labels["group"] == group) for group in (0, 1))
        gap = a / a.sum() - b / b.sum()
        super().__init__(x, np.stack([np.full(n, 1 / n), gap, -gap]), limit, ridge=1 / n)
