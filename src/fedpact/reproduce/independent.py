"""An independent solver on pooled data: SciPy's SLSQP with exact gradients, as a careful user would write it."""

from typing import Any

import numpy as np
from scipy.optimize import minimize, nnls

from fedpact.federation.rows import Parties


class PooledNeymanPearson:
    """The same problem with all rows in one place: one pass over the rows gives values and Jacobian, kept per point."""

    def __init__(self, parties: Parties, limit: float = 0.2):
        tables = [parties[name] for name in parties]
        self.x = np.concatenate([t["x"] for t in tables])
        sign = np.concatenate([np.where(t["y"] == 1, -1.0, 1.0) for t in tables])
        self.x = self.x * sign[:, None]
        n = len(tables)
        weights = np.zeros((n + 1, len(self.x)))
        first = 0
        for i, t in enumerate(tables):
            rows = slice(first, first + len(t))
            weights[0, rows] = (t["y"] == 0) / (t["y"] == 0).sum() / n
            weights[i + 1, rows] = (t["y"] == 1) / (t["y"] == 1).sum()
            first += len(t)
        self.weights, self.limit = weights, limit
        self.point: np.ndarray | None = None

    def at(self, w: np.ndarray) -> "PooledNeymanPearson":
        if self.point is None or not np.array_equal(w, self.point):
            scores = self.x @ w
            self.values = self.weights @ np.logaddexp(0.0, scores)
            self.jacobian = (self.weights / (1.0 + np.exp(-scores))) @ self.x
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
