"""Is there a feasible point at all?

With y = [Δμ]₊ (signed for equalities), the last change of the multipliers, and r = yᵀc(w)/‖J(w)ᵀy‖: for convex constraints
no feasible point lies within r of w, since yᵀc is a convex function that is positive at w and falls at most at the rate
‖Jᵀy‖, of which what only leads out of the box of h does not count. Every party adds its share of yᵀc and Jᵀy, so two sums
tell. The size of the multipliers alone would mislead.
"""

import jax
import numpy as np

from fedpact.algorithms.parts.multipliers import updated
from fedpact.arrays import xp
from fedpact.problem.flat_regularizer import FlatRegularizer
from fedpact.problem.infeasibility import empty_radius
from fedpact.problem.oracle import Oracle, SlackOracle, Values, weighted_gradients
from fedpact.records import Record


class Probe(Record):
    """From the server, when a subproblem has left the violation as it was."""

    parameters: jax.Array
    pooled_multiplier_changes: jax.Array  # y of the pooled constraints: [ν⁺ − ν]₊


class ViolationSums(Record):
    """A holder's share of yᵀc, Jᵀy and ‖y‖₁."""

    weighted_violation: jax.Array
    gradient: jax.Array
    weight: jax.Array


def increase(change: jax.Array, equality: np.ndarray) -> jax.Array:
    return xp.where(equality, change, xp.maximum(change, 0.0))


def violation_sums(holder: Oracle | SlackOracle, mu: jax.Array, beta: jax.Array, probe: Probe) -> ViolationSums:
    def changes(at: Values) -> Values:
        y = increase(updated(mu, beta, at.constraints, holder.equality) - mu, holder.equality)
        return Values(xp.zeros_like(at.objective), y, probe.pooled_multiplier_changes)

    values, (slope,) = weighted_gradients(holder, probe.parameters, changes)
    y = changes(values).constraints
    return ViolationSums(
        y @ values.constraints + probe.pooled_multiplier_changes @ values.pooled, slope, xp.sum(xp.abs(y))
    )


def verdict(total: ViolationSums, probe: Probe, h: FlatRegularizer) -> tuple[jax.Array, jax.Array]:
    """yᵀc with ‖y‖₁ = 1, and the radius r (0 where y proves nothing)."""
    tiny = xp.finfo(total.weighted_violation.dtype).tiny
    level = total.weighted_violation / xp.maximum(total.weight + xp.sum(xp.abs(probe.pooled_multiplier_changes)), tiny)
    return level, empty_radius(total.weighted_violation, total.gradient, probe.parameters, h)
