"""The independent solvers: Clarabel through cvxpy for convex problems, IPOPT through CasADi for all.

Both see the problem in scaled parameters v, w = T v, with every row divided by its unit and the objective by its own. Answers
are handed back in w; whoever uses them measures them again with NumPy.
"""

import dataclasses
import importlib.util
import warnings
from typing import Any

import numpy as np

from campaign.formulas import Formulas, casadi

FAR = 1e19  # IPOPT's infinity


@dataclasses.dataclass(frozen=True, eq=False)
class Found:
    """A solver's point with multipliers of the rows, in the problem's own numbers; its own word for how it ended."""

    w: np.ndarray
    multipliers: np.ndarray
    word: str


def objective_unit(f: Formulas) -> float:
    """The magnitude of the objective's slope in scaled parameters."""
    zero = np.zeros(f.size)
    slope = f.scaling.T @ sum((term.gradient(zero) for term in f.objective), zero)
    return max(float(np.max(np.abs(slope))), 1e-3 * abs(sum(term.value(zero) for term in f.objective)), 1e-12)


# Clarabel


def _stated(f: Formulas, v: Any) -> tuple[Any, list[Any], list[Any]]:
    """Objective, rows (each divided by its unit) and box in cvxpy."""
    import cvxpy as cp

    T, unit = f.scaling, objective_unit(f)
    w = T @ v
    goal: Any = sum(term.through(T).cvxpy(v) for term in f.objective) / unit
    if np.any(f.full(f.l2)):
        goal = goal + cp.sum_squares(cp.multiply(np.sqrt(f.full(f.l2) / unit), w))
    if np.any(f.full(f.l1)):
        goal = goal + cp.sum(cp.multiply(f.full(f.l1) / unit, cp.abs(w)))
    for group in f.groups:
        goal = goal + f.weight / unit * cp.norm2(w[list(group)])
    lines = [(sum(term.through(T).cvxpy(v) for term in row.terms) + row.constant) / row.unit for row in f.rows]
    lower, upper = f.full(f.lower), f.full(f.upper)
    box: list[Any] = []
    if np.isfinite(lower).any():
        k = np.flatnonzero(np.isfinite(lower))
        box.append(v[k] >= lower[k] / np.diag(T)[k])
    if np.isfinite(upper).any():
        k = np.flatnonzero(np.isfinite(upper))
        box.append(v[k] <= upper[k] / np.diag(T)[k])
    return goal, lines, box


def _clarabel(goal: Any, constraints: list[Any]) -> str:
    import cvxpy as cp

    problem = cp.Problem(cp.Minimize(goal), constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            problem.solve(cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10, max_iter=400)
            if problem.status == cp.OPTIMAL_INACCURATE:
                problem.solve(cp.CLARABEL, max_iter=400)
        except cp.SolverError:
            return "error"
    return str(problem.status)


def clarabel(f: Formulas) -> Found | None:
    """The optimum of a convex problem; None where Clarabel has none to offer."""
    import cvxpy as cp

    v = cp.Variable(f.size)
    goal, lines, box = _stated(f, v)
    held = [line == 0 if row.equality else line <= 0 for line, row in zip(lines, f.rows, strict=True)]
    word = _clarabel(goal, [*held, *box])
    if v.value is None or not np.all(np.isfinite(v.value)):
        return None
    units = np.array([row.unit for row in f.rows])
    duals = np.array([float(np.sum(c.dual_value)) if c.dual_value is not None else 0.0 for c in held])
    return Found(_inside(f, f.scaling @ v.value), duals * objective_unit(f) / units, word)


def clarabel_least_violation(f: Formulas) -> Found | None:
    """A point with the least of the largest relative violation (down to -0.01 of the units)."""
    import cvxpy as cp

    v, t = cp.Variable(f.size), cp.Variable()
    _, lines, box = _stated(f, v)
    held = [cp.abs(line) <= t if row.equality else line <= t for line, row in zip(lines, f.rows, strict=True)]
    word = _clarabel(t, [*held, *box, t >= -0.01])
    if v.value is None or not np.all(np.isfinite(v.value)):
        return None
    return Found(_inside(f, f.scaling @ v.value), np.zeros(len(f.rows)), word)


# IPOPT


def has_ipopt() -> bool:
    return importlib.util.find_spec("casadi") is not None


class Ipopt:
    """The problem and its phase of least violation, compiled once for several starts."""

    def __init__(self, f: Formulas, seconds: float = 60.0) -> None:
        ca = casadi()
        self.f, self.T, self.unit = f, f.scaling, objective_unit(f)
        self.split = bool(np.any(f.full(f.l1)))  # |v| as the sum of two positive parts
        k, size = len(f.rows), f.size
        x = ca.MX.sym("x", 2 * size if self.split else size)
        v = x[:size] - x[size:] if self.split else x
        terms = [term.through(self.T) for term in f.objective]
        w = ca.mtimes(ca.DM(self.T), v)
        at = w if f.objective[0].hidden else v
        goal = sum(term.casadi(at) for term in terms) + ca.dot(ca.DM(f.full(f.l2)), w**2)
        if self.split:
            goal = goal + ca.dot(ca.DM(f.full(f.l1) * np.diag(self.T)), x[:size] + x[size:])
        lines = [
            (sum(term.through(self.T).casadi(at) for term in row.terms) + row.constant) / row.unit for row in f.rows
        ]
        line = ca.vertcat(*lines) if lines else ca.MX(0, 1)
        options = {
            "ipopt.tol": 1e-10,
            "ipopt.constr_viol_tol": 1e-11,
            "ipopt.bound_relax_factor": 0.0,
            "ipopt.max_iter": 400,
            "ipopt.max_cpu_time": seconds,
            "ipopt.print_level": 0,
            "ipopt.sb": "yes",
            "print_time": False,
            "error_on_fail": False,
            "show_eval_warnings": False,
        }
        box: list[Any] = []  # on v, where it is split into two parts
        lower, upper = (np.clip(f.full(b), -FAR, FAR) for b in (f.lower, f.upper))
        diagonal = np.diag(self.T)
        self.lower, self.upper = (
            np.where(np.abs(b) < FAR, b / np.where(diagonal == 0, 1.0, diagonal), b) for b in (lower, upper)
        )
        if self.split:
            box = [v]
        self.equal = np.array([row.equality for row in f.rows], bool)
        self.main = None
        if self.equal.sum() <= size:  # IPOPT takes no more equalities than parameters
            stated = {"x": x, "f": goal / self.unit, "g": ca.vertcat(line, *box)}
            self.main = ca.nlpsol("main", "ipopt", stated, options)
        t = ca.MX.sym("t")
        self.phase = None
        if k:
            other = [-lines[i] - t for i in np.flatnonzero(self.equal)]
            both = ca.vertcat(line - t, *other, *box)
            self.phase = ca.nlpsol("phase", "ipopt", {"x": ca.vertcat(x, t), "f": t, "g": both}, options)

    def solve(self, start: np.ndarray) -> Found | None:
        if self.main is None:
            return None
        x0, lbx, ubx, lbg, ubg = self._bounds(start)
        k = len(self.f.rows)
        low, high = np.where(self.equal, 0.0, -FAR), np.zeros(k)
        out = self.main(x0=x0, lbx=lbx, ubx=ubx, lbg=np.concatenate([low, lbg]), ubg=np.concatenate([high, ubg]))
        duals = np.asarray(out["lam_g"]).ravel()[:k]
        units = np.array([row.unit for row in self.f.rows])
        word = self.main.stats()["return_status"]
        return Found(self._point(np.asarray(out["x"]).ravel()), duals * self.unit / units, word)

    def least_violation(self, start: np.ndarray) -> Found:
        assert self.phase is not None
        x0, lbx, ubx, lbg, ubg = self._bounds(start)
        rows = len(self.f.rows) + int(self.equal.sum())
        first = min(max(self.f.relative_violation(start), 0.0), 1e6)
        out = self.phase(
            x0=np.append(x0, first),
            lbx=np.append(lbx, -0.01),
            ubx=np.append(ubx, FAR),
            lbg=np.concatenate([np.full(rows, -FAR), lbg]),
            ubg=np.concatenate([np.zeros(rows), ubg]),
        )
        word = self.phase.stats()["return_status"]
        return Found(self._point(np.asarray(out["x"]).ravel()[:-1]), np.zeros(len(self.f.rows)), word)

    def _bounds(self, start: np.ndarray) -> tuple[np.ndarray, ...]:
        v = np.linalg.solve(self.T, start)
        if not self.split:
            return v, self.lower, self.upper, np.zeros(0), np.zeros(0)
        parts = np.concatenate([np.maximum(v, 0.0), np.maximum(-v, 0.0)]) + 1e-3
        return parts, np.zeros(len(parts)), np.full(len(parts), FAR), self.lower, self.upper

    def _point(self, x: np.ndarray) -> np.ndarray:
        size = self.f.size
        v = x[:size] - x[size:] if self.split else x
        return _inside(self.f, self.T @ v)


def _inside(f: Formulas, w: np.ndarray) -> np.ndarray:
    return np.clip(w, f.full(f.lower), f.full(f.upper))
