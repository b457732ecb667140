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

from fedpact.algorithms.prox_al.merit import updated
from fedpact.problem.oracle import Oracle, SlackOracle, Values
from fedpact.problem.regularizers import FlatRegularizer


class Probe(eqx.Module):
    """From the server, when a subproblem has left the violation as it was."""

    point: jax.Array
    y: jax.Array  # [ν⁺ − ν]₊ of the pooled constraints


class Pull(eqx.Module):
    """A holder's share of yᵀc, Jᵀy and ‖y‖₁."""

    height: jax.Array
    slope: jax.Array
    norm: jax.Array


def rise(change: jax.Array, equality: np.ndarray) -> jax.Array:
    return jnp.where(equality, change, jnp.maximum(change, 0.0))


def pull(holder: Oracle | SlackOracle, mu: jax.Array, beta: jax.Array, probe: Probe) -> Pull:
    values, back = jax.vjp(holder, probe.point)
    y = rise(updated(mu, beta, values.constraints, holder.equality) - mu, holder.equality)
    slope = back(Values(jnp.zeros_like(values.objective), y, probe.y))[0]
    return Pull(y @ values.constraints + probe.y @ values.pooled, slope, jnp.sum(jnp.abs(y)))


def verdict(total: Pull, probe: Probe, h: FlatRegularizer) -> tuple[jax.Array, jax.Array]:
    """yᵀc with ‖y‖₁ = 1, and the radius r (0 where y proves nothing)."""
    tiny = jnp.finfo(total.height.dtype).tiny
    height = total.height / jnp.maximum(total.norm + jnp.sum(jnp.abs(probe.y)), tiny)
    radius = total.height / jnp.maximum(jnp.linalg.norm(h.inside(probe.point, total.slope)), tiny)
    return height, jnp.where(total.height > 0, radius, 0.0)
