"""One run of fedpact, judged by NumPy against the reference. fedpact's own certificate has no say."""

import dataclasses
from typing import Any, Literal

import numpy as np
import scipy.optimize

from campaign.formulas import Formulas
from campaign.referee import BROKEN, Reference
from campaign.statement import TOLERANCE

Outcome = Literal[
    "solved",
    "loose",
    "infeasible",
    "unbounded",
    "not solved",
    "beyond float64",
    "false",
    "unjudged",
    "error",
    "out of time",
]
GAP = 1e-5  # of the objective, relative to the reference's
KKT = 1e-4  # relative residual of the optimality conditions, in scaled parameters
BEYOND = (
    10 * TOLERANCE
)  # what rounding the parameters may change of these conditions, relative to the objective's slope


@dataclasses.dataclass(frozen=True)
class Judged:
    outcome: Outcome
    why: str


def judge(f: Formulas, reference: Reference, status: str, w: np.ndarray) -> Judged:
    """What a status with its parameters is worth."""
    if status == "converged":
        return _converged(f, reference, w)
    if status == "infeasible":
        if reference.verdict == "infeasible":
            return Judged("infeasible", reference.said)
        if reference.verdict == "unsure":
            return Judged("unjudged", f"the least violation is {reference.violation:.2g}: {reference.said}")
        return Judged("false", f"a feasible point is known: {reference.said}")
    if status in ("diverged", "unbounded"):
        if reference.verdict in ("unbounded", "not attained"):
            return Judged("unbounded", reference.said)
        if reference.verdict == "infeasible":
            return Judged("false", f"said to have no minimum, but nothing is feasible: {reference.said}")
        if reference.verdict == "optimal":
            return Judged("false", f"a minimum exists: {reference.said}")
        return Judged("unjudged", reference.said)
    noise = rounding(f, reference)
    if noise > BEYOND:
        return Judged("beyond float64", f"one unit in the last place of the parameters is {noise:.1e} of the slope")
    return Judged("not solved", f"the reference: {reference.verdict}")


def rounding(f: Formulas, reference: Reference) -> float:
    """By how much the slope of the Lagrangian changes if the reference's parameters change in their last place.

    Relative to the objective's slope, with columns of size 1; the median of ten draws. 0 where the reference has no multipliers.
    Of parameters that float64 can hold, the best ones are about this far from stationary.
    """
    w, mu = reference.w, reference.multipliers
    if w is None or mu is None or not np.any(mu):
        return 0.0
    terms = [*f.objective, *(term for row in f.rows for term in row.terms)]
    if terms[0].hidden:
        return 0.0
    sizes = np.sqrt(np.mean([np.mean(term.A**2, axis=0) for term in terms], axis=0))
    unit = 1.0 / np.where(sizes > 0, sizes, 1.0)

    def slope(w: np.ndarray) -> np.ndarray:
        return unit * sum((m * row.gradient(w) for m, row in zip(mu, f.rows, strict=True)), f.smooth_gradient(w))

    rng, here = np.random.default_rng(0), slope(w)
    ends = [slope(w * (1.0 + np.finfo(float).eps * rng.choice([-1.0, 1.0], size=w.size))) for _ in range(10)]
    changes = [float(np.max(np.abs(end - here))) for end in ends]
    return float(np.median(changes)) / max(float(np.max(np.abs(unit * f.smooth_gradient(w)))), 1e-300)


def _converged(f: Formulas, reference: Reference, w: np.ndarray) -> Judged:
    if not np.all(np.isfinite(w)):
        return Judged("false", "the parameters are not finite")
    excess, relative = f.violation(w), f.relative_violation(w)
    rounding = 1e-12 * max([row.unit for row in f.rows], default=0.0)
    if excess > 2 * TOLERANCE + rounding and relative > 2 * TOLERANCE:
        return Judged("false", f"a constraint is violated by {excess:.3g} ({relative:.3g} of its unit)")
    if reference.verdict == "infeasible" or relative > BROKEN:
        how = f"a violation of {excess:.2g} is within the tolerance, but it is {relative:.2g} of the bound"
        if relative > BROKEN:
            return Judged("loose", how)
        return Judged("unjudged", "feasible by NumPy, though the reference found no feasible point")
    if reference.verdict == "unbounded":
        return Judged("false", "the objective has no lower bound")
    value = f.value(w)
    if reference.verdict == "not attained":
        if value - reference.objective <= GAP:
            return Judged("solved", f"{value - reference.objective:.2g} above the infimum")
        return Judged("loose", f"{value - reference.objective:.2g} above the infimum, which is not attained")
    if f.convex and reference.w is not None:
        return _against(f, reference, w, value)
    return _stationary(f, w)


def _against(f: Formulas, reference: Reference, w: np.ndarray, value: float) -> Judged:
    """A convex problem: the objective beside the reference's."""
    assert reference.w is not None
    mu = np.zeros(len(f.rows)) if reference.multipliers is None else np.abs(reference.multipliers)
    slack = float(mu @ [row.excess(reference.w) for row in f.rows])  # what the reference gained by its own violation
    gap = value - reference.objective - slack
    scale = max(abs(reference.objective), 1e-12)
    words = f"objective {value:.9g}, reference {reference.objective:.9g} ({gap / scale:.1e} above)"
    if gap <= GAP * scale:
        if reference.verdict == "optimal" or gap >= -10 * GAP * scale:
            return Judged("solved", words)
        judged = _stationary(f, w)
        return judged if judged.outcome == "solved" else Judged("unjudged", f"{words}; {judged.why}")
    # f(w) - f(w*) <= stationarity ‖w - w*‖₁ + Σ μ (violation): what the tolerance itself leaves open
    leaves = 2 * TOLERANCE * (float(np.sum(np.abs(w - reference.w))) + float(mu.sum()))
    if gap <= leaves:
        return Judged("loose", f"{words}; the absolute tolerance leaves {leaves:.1e} open")
    return Judged("false", words)


def _stationary(f: Formulas, w: np.ndarray) -> Judged:
    """Any problem: are there multipliers that make this a stationary point?"""
    if f.groups:
        return Judged("unjudged", "no check of optimality conditions with groups")
    relative = residual(f, w, f.scaling)
    if relative[1] <= KKT:
        return Judged("solved", f"stationary to {relative[1]:.1e}, relative")
    own = residual(f, w, np.eye(f.size))
    if own[0] <= 10 * TOLERANCE:
        return Judged("loose", f"stationary to {own[0]:.1e}, but {relative[1]:.1e} relative in scaled parameters")
    return Judged("false", f"not stationary: {own[0]:.2e}, and {relative[1]:.1e} relative in scaled parameters")


def residual(f: Formulas, w: np.ndarray, T: np.ndarray) -> tuple[float, float]:
    """The least ‖Tᵀ(∇f + ∂h + Σ μ ∇c)‖∞ by least squares over multipliers of active rows; and relative to its parts."""
    goal = T.T @ f.smooth_gradient(w)
    columns: list[np.ndarray] = []
    low: list[float] = []
    high: list[float] = []

    def part(column: np.ndarray, lower: float, upper: float) -> None:
        columns.append(column)
        low.append(lower)
        high.append(upper)

    for row in f.rows:
        if row.equality or row.value(w) >= -max(10 * TOLERANCE, 1e-5 * row.unit):
            part(T.T @ row.gradient(w), -np.inf if row.equality else 0.0, np.inf)
    l1, lower, upper = f.full(f.l1), f.full(f.lower), f.full(f.upper)
    for k in range(f.size):
        axis = T[k]
        if l1[k] and w[k] != 0:
            goal = goal + l1[k] * np.sign(w[k]) * axis
        elif l1[k]:
            part(axis, -l1[k], l1[k])
        if w[k] <= lower[k]:
            part(axis, -np.inf, 0.0)
        if w[k] >= upper[k]:
            part(axis, 0.0, np.inf)
    size = float(np.max(np.abs(goal), initial=0.0))
    if not columns:
        return size, size / max(size, _scale(f, T))
    sizes = np.array([max(float(np.linalg.norm(c)), 1e-300) for c in columns])
    M = np.stack(columns, axis=1) / sizes
    fitted: Any = scipy.optimize.lsq_linear(M, -goal, bounds=(np.array(low) * sizes, np.array(high) * sizes), tol=1e-14)
    left = float(np.max(np.abs(goal + M @ fitted.x)))
    parts = max(size, float(np.max(np.abs(M * fitted.x), initial=0.0)), _scale(f, T))
    return left, left / parts


def _scale(f: Formulas, T: np.ndarray) -> float:
    """The magnitude of the objective's gradient away from the optimum."""
    zero = np.zeros(f.size)
    sizes = [float(np.max(np.abs(T.T @ term.gradient(zero)), initial=0.0)) for term in f.objective]
    return max([*sizes, 1e-12])
