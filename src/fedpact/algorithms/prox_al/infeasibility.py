"""Is there a feasible point at all?

With y = [Δμ]₊ (signed for equalities), the last change of the multipliers, and r = yᵀc(w)/‖J(w)ᵀy‖: for convex constraints
no feasible point lies within r of w, since yᵀc is a convex function that is positive at w and falls at most at the rate
‖Jᵀy‖, of which what only leads out of the box of h does not count. Every party adds its share of yᵀc and Jᵀy, so two sums
tell. The size of the multipliers alone would mislead.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedpact.algorithms.parts.multipliers import updated
from fedpact.problem.oracle import Oracle, SlackOracle, Values
from fedpact.problem.regularizers import FlatRegularizer


class Probe(eqx.Module):
    """From the server, when a subproblem has left the violation as it was."""

    parameters: jax.Array
    pooled_multiplier_changes: jax.Array  # y of the pooled constraints: [ν⁺ − ν]₊


class ViolationSums(eqx.Module):
    """A holder's share of yᵀc, Jᵀy and ‖y‖₁."""

    weighted_violation: jax.Array
    gradient: jax.Array
    weight: jax.Array


def increase(change: jax.Array, equality: np.ndarray) -> jax.Array:
    return jnp.where(equality, change, jnp.maximum(change, 0.0))


def violation_sums(holder: Oracle | SlackOracle, mu: jax.Array, beta: jax.Array, probe: Probe) -> ViolationSums:
    values, back = jax.vjp(holder, probe.parameters)
    y = increase(updated(mu, beta, values.constraints, holder.equality) - mu, holder.equality)
    slope = back(Values(jnp.zeros_like(values.objective), y, probe.pooled_multiplier_changes))[0]
    return ViolationSums(
        y @ values.constraints + probe.pooled_multiplier_changes @ values.pooled, slope, jnp.sum(jnp.abs(y))
    )


def verdict(total: ViolationSums, probe: Probe, h: FlatRegularizer) -> tuple[jax.Array, jax.Array]:
    """yᵀc with ‖y‖₁ = 1, and the radius r (0 where y proves nothing)."""
    tiny = jnp.finfo(total.weighted_violation.dtype).tiny
    level = total.weighted_violation / jnp.maximum(
        total.weight + jnp.sum(jnp.abs(probe.pooled_multiplier_changes)), tiny
    )
    radius = total.weighted_violation / jnp.maximum(jnp.linalg.norm(h.inside(probe.parameters, total.gradient)), tiny)
    return level, jnp.where(total.weighted_violation > 0, radius, 0.0)
