"""How κ falls: with the mean product s μ, but not ahead of w, and not to nothing while rates are soft."""

import jax

from fedpact.algorithms.interior_point.barrier import HolderMaxima, HolderSums
from fedpact.algorithms.interior_point.standing import LEAST_OBJECTIVE
from fedpact.algorithms.interior_point.state import ServerState
from fedpact.arrays import xp

SPEED = 1.5  # κ falls at least to this power of the mean product
LEAST = 1e-20  # κ
SOLVED = 0.01  # of what all κ are worth: where the last step promised less, the problem with that κ is solved
CUT_SHORT = 30.0  # times what all κ are worth: where a step that the ball cut short promised more, κ stays as it is
UNFIT = 0.01  # κ is held up at this times the square of the violation
ROUGH = 0.005  # of the objective: what all κ together are worth, at least, while rates are softened


def next_kappa(
    centering: float,
    server: ServerState,
    sums: HolderSums,
    largest: HolderMaxima,
    stationarity: jax.Array,
    gained: jax.Array,
) -> jax.Array:
    """A part of the mean product, superlinearly less near the end; not far below what the goal needs once that is met.

    Where constraints are still broken or w is not stationary, it does not run ahead of w, unless the step to w, which `gained`
    is the promise of, shows that the problem with the last κ is solved; nor where that step was cut short and there is far more
    to gain than κ: at the edge of the region every later step would be short. A problem with softened rates is solved for a κ
    above zero only: from the middle of its region the sharper one is reached in a few steps, from its edge hardly at all.
    """
    soft = 1.0 if server.sharpening is None else server.sharpening.softening
    mean = sums.slack_products / xp.maximum(sums.inequalities, 1.0)
    kappa = xp.minimum(centering * mean, mean**SPEED)
    left = xp.minimum(xp.maximum(soft * largest.violation, stationarity), 1.0)
    unsolved = (server.sharpening is not None) | (gained > SOLVED * server.kappa * sums.inequalities)
    kappa = xp.where(unsolved, xp.maximum(kappa, xp.minimum(UNFIT * left**2, server.kappa)), kappa)
    if server.sharpening is None:
        hold = xp.isfinite(server.step.radius) & (gained > CUT_SHORT * server.kappa * sums.inequalities)
        kappa = xp.where(hold, xp.maximum(kappa, server.kappa), kappa)
    else:
        rough = ROUGH * xp.maximum(xp.abs(sums.objective), LEAST_OBJECTIVE) / xp.maximum(sums.inequalities, 1.0)
        kappa = xp.where(soft > 1.0, xp.maximum(kappa, rough), kappa)
    enough = xp.where(largest.complementarity > server.goal.feasibility, LEAST, 0.01 * server.goal.feasibility**2)
    return xp.maximum(kappa, xp.maximum(enough, LEAST))


def held_kappa(kappa: jax.Array, server: ServerState, gain: jax.Array, sums: HolderSums) -> jax.Array:
    """κ, not below the last one where a step that keeps the last one still promises more than all of it is worth.

    With a small κ too soon, steps towards a sharper problem are cut short at the edge of the region. A problem whose rates are
    as they were stated from the beginning does not need this.
    """
    now = server.sharpening
    assert now is not None  # there are rates
    changes = (now.softening > 1.0) | now.has_anchor
    hold = changes & (gain > sums.inequalities * server.kappa)
    return xp.where(hold, xp.maximum(kappa, server.kappa), kappa)
