"""Proofs that there is no feasible point.

For convex constraints: multipliers whose weighted violation does not fall. For others: the ranges of rates and losses.
"""

from typing import Any

import jax

from fedpact.arrays import linalg, xp
from fedpact.problem.expressions import Constraint, Expression
from fedpact.problem.flat_regularizer import FlatRegularizer

TINY = 1e-300  # in place of a zero that is divided by


def empty_radius(weighted_violation: Any, pull: jax.Array, w: jax.Array, h: FlatRegularizer) -> jax.Array:
    """r = μᵀc/‖Jᵀμ‖ for multipliers μ >= 0 (of either sign for equalities): no feasible point is nearer than r; else 0.

    μᵀc is a convex function that is positive at w, not positive at a feasible point, and falls at most at the rate ‖Jᵀμ‖, of
    which what only leads out of the box of h does not count. Nothing is proved where μᵀc is not positive.

    - `weighted_violation`, `pull`: μᵀc and Jᵀμ, summed over all holders.
    """
    radius = weighted_violation / xp.maximum(linalg.norm(h.inside(w, pull)), TINY)
    return xp.where(weighted_violation > 0, radius, 0.0)


def least_violation(constraint: Constraint) -> float:
    """By how much it is violated at least, whatever the parameters, by the ranges of rates and losses; 0 if that is unknown.

    Bounds of a rate above 1, for instance: 95 in place of 0.95.
    """
    parts = constraint.inequalities()
    sides = (*parts, *(-part for part in parts)) if constraint.kind == "==" else parts
    return max(0.0, *map(_least, sides))


def _least(expression: Expression) -> float:
    """A number that a smooth expression is not below, whatever the parameters."""
    known = expression.constant
    for term in expression.terms:
        if term.coefficient:
            known += min(term.coefficient * end for end in term.evaluated[0].range)
    return known
