"""The first penalty β and the first length γ of the prox term, from curvature and slopes at the start.

    β = κ b / max ‖∇c‖²,   γ = 10 / b,   b: the curvature of the objective along its gradient, summed over holders.

κ = 1 makes the penalty of the steepest constraint as curved as the objective, in whatever units both are stated.
"""

import jax

from fedpact.algorithms.prox_al.state import StartSums
from fedpact.arrays import xp
from fedpact.problem.oracle import Oracle, SlackOracle, derivatives
from fedpact.protocol.messages import Reply

FIRST_LENGTH = 10.0  # the first γ, relative to the curvature of the objective
ABOVE_MEAN = 1.5  # times the parties' mean of squared slopes is near the largest
STEEP = 1e-3  # curvature per unit of the parameters, below which an objective counts as straight


def at_start(own: Oracle | SlackOracle, w: jax.Array) -> Reply:
    """What a party tells about the start, once."""
    slopes = derivatives(own, w)[1]
    return Reply(StartSums(_curvature_along(own, w, slopes.objective), slopes.pooled, _steepest(slopes.constraints)))


def first_lengths(
    own: Oracle | SlackOracle, ridge: jax.Array, w: jax.Array, reply: Reply, parties: int, relative: float
) -> tuple[jax.Array, jax.Array]:
    """β and γ, from the server's own functions and what so many parties told. relative: κ."""
    slopes = derivatives(own, w)[1]
    steepest = xp.maximum(_steepest(slopes.constraints), _steepest(slopes.pooled + reply.sum.pooled_jacobian))
    # not the largest over parties, which secure sums tell up to a power of two
    steepest = xp.maximum(steepest, ABOVE_MEAN / parties * reply.sum.squared_slope)
    curvature = reply.sum.curvature + xp.mean(2 * ridge)
    curvature = xp.where(curvature > STEEP, curvature, 1.0)
    return relative * curvature / xp.where(steepest > 0, steepest, 1.0), FIRST_LENGTH / curvature


def _steepest(jacobian: jax.Array) -> jax.Array:
    """The largest squared length of a constraint's gradient."""
    return xp.max(xp.sum(jacobian**2, axis=1), initial=0.0)


def _curvature_along(own: Oracle | SlackOracle, w: jax.Array, slope: jax.Array) -> jax.Array:
    """The curvature of a holder's objective along its gradient there."""
    length = xp.sum(slope**2)
    _, change = jax.jvp(jax.grad(lambda v: own(v).objective), (w,), (slope,))
    return xp.where(length > 0, slope @ change / xp.where(length > 0, length, 1.0), 0.0)
