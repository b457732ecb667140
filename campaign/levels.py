"""Bounds from slack to impossible, with a proof: caps around the values at the point that minimises their weighted sum.

At that point w_c no other one lowers the sum Σ_j v_j / v_j(w_c). So caps v_j(w_c) (1 + m) are met by w_c where m >= 0, and by no
point at all where m < 0, if all values are convex.
"""

import dataclasses

import numpy as np

from campaign.formulas import Term, lowest
from campaign.statement import Known

LEVELS = ("slack", "tight", "just", "barely out", "out")
MARGIN = {"slack": 2.0, "tight": 0.1, "just": 1e-3, "barely out": -2e-3, "out": -0.2}
LEAST = 1e-3  # a cap below this part of the value at w = 0 is raised to it: separable rows can be fitted exactly


@dataclasses.dataclass(frozen=True, eq=False)
class Caps:
    """One cap per term, and what is known about all of them together."""

    values: np.ndarray
    known: Known | None
    point: np.ndarray | None
    why: str


def caps(terms: list[Term], T: np.ndarray, level: str) -> Caps:
    """Caps on these convex terms with values >= 0, by level."""
    margin = MARGIN[level]
    zero = np.array([term.value(np.zeros(T.shape[0])) for term in terms])
    point = lowest(terms, T, ridge=1e-4 * float(zero.mean()))
    weights = 1.0 / np.maximum([term.value(point) for term in terms], LEAST * zero)
    weighted = [_times(term, weight) for term, weight in zip(terms, weights, strict=True)]
    point = lowest(weighted, T)
    at = np.array([term.value(point) for term in terms])
    least = LEAST * zero
    if margin >= 0:
        return Caps(np.maximum(at, least) * (1 + margin), "feasible", point, "the caps are met at a known point")
    if np.any(at < least):
        return Caps(-0.01 * zero, "infeasible", None, "values >= 0 are to be negative")
    limit = at * (1 + margin)
    # Σ weights·caps lies below the least weighted sum by |margin| of it, unless the point is not the least one
    slope = T.T @ sum((term.gradient(point) for term in weighted), np.zeros(len(point)))
    reach = 10.0 * (1.0 + float(np.linalg.norm(np.linalg.solve(T, point))))
    if float(np.linalg.norm(slope)) * reach > -0.1 * margin * sum(term.value(point) for term in weighted):
        return Caps(limit, None, None, "")
    return Caps(
        limit, "infeasible", None, f"the caps add up to {-margin:g} less than the least weighted sum of the values"
    )


def _times(term: Term, factor: float) -> Term:
    return dataclasses.replace(term, coefficient=term.coefficient * float(factor))
