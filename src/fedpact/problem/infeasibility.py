"""A proof that there is no feasible point, for convex constraints: multipliers whose weighted violation does not fall."""

from typing import Any

import jax

from fedpact.arrays import linalg, xp
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
