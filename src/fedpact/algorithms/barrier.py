"""A holder's part in the interior-point method: its constraints with slacks and multipliers, and what it sends.

The formulas are in `interior_point.py`. A holder is a party, the server with its own rows, or the server for pooled
constraints; the arithmetic is the same.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedpact.algorithms.merit import normal_distance, packed, updated, violation
from fedpact.problem.oracle import Oracle, Values, derivatives

REGULARIZATION = 1e-7  # δ
FRACTION = 0.995  # a multiplier may lose this part of itself in a round
WIDEST = 1e10  # s μ stays within this factor of κ
TINY = 1e-300  # in place of a zero that is divided by

# messages


class Call(eqx.Module):
    """From the server, every round."""

    point: jax.Array  # the trial, w + Δw
    direction: jax.Array  # Δw
    kappa: jax.Array
    rho: jax.Array
    nu: jax.Array  # multipliers of the pooled constraints at the trial, which weigh their curvature
    moving: jax.Array  # False in the first round, before there is a step
    accepted: jax.Array  # whether the last trial is where this step begins
    near: jax.Array  # a constraint with less room than this counts as active


class Wall(eqx.Module):
    """ψ in two parts, so that the server may still choose ρ: −κ log s, and c + s, with s = max(−c, θ)."""

    barrier: jax.Array
    gap: jax.Array

    def __call__(self, rho: jax.Array) -> jax.Array:
        return self.barrier + rho * self.gap


class Sums(eqx.Module):
    """A holder's part of the Newton system and of the measurement, at the trial; every leaf is summed over holders."""

    objective: jax.Array
    gradient: jax.Array  # ∇f
    pull: jax.Array  # Jᵀμ, of active constraints
    fixed: jax.Array  # Jᵀ(μ + Wc)
    barrier: jax.Array  # JᵀW/μ: the part of the right-hand side that κ multiplies
    hessian: jax.Array  # A, upper triangle
    height: jax.Array  # μᵀc and ‖μ‖₁, of active constraints: is there a feasible point at all?
    weight: jax.Array
    before: "Wall"  # Σ ψ(c) where the step began, its slope along the step, and Σ ψ(c) at the trial
    slope: "Wall"
    after: "Wall"
    lifted: jax.Array  # by how much the augmented Lagrangian's terms have grown on the way
    ascent: jax.Array  # Σ ψ'(c)∇c where the step began
    products: jax.Array  # Σ s μ, over this many inequalities
    rows: jax.Array
    pooled: jax.Array
    pooled_jacobian: jax.Array


class Maxima(eqx.Module):
    distance: jax.Array  # Definition 1's second number
    violation: jax.Array
    multiplier: jax.Array  # |μ| and |μ + Δμ|, which ρ has to exceed
    full: jax.Array


# a holder's part


class Barrier(eqx.Module):
    """Constraints of one holder at a point. For equalities s = 0."""

    c: jax.Array
    jacobian: jax.Array
    s: jax.Array
    mu: jax.Array
    active: jax.Array  # μ of active constraints, 0 elsewhere: what is measured and handed out

    @classmethod
    def fresh(cls, equality: np.ndarray, size: int, mu: float) -> "Barrier":
        s = jnp.where(equality, 0.0, 1.0)
        return cls(0.0 * s, jnp.zeros((s.size, size)), s, mu * s, mu * s)

    def weights(self, equality: np.ndarray) -> jax.Array:
        """W."""
        delta = REGULARIZATION * jnp.maximum(jnp.sum(self.jacobian**2, axis=1), 1.0)
        return 1.0 / (self.s * self.inverse(equality) + delta)

    def inverse(self, equality: np.ndarray) -> jax.Array:
        """1/μ, 0 for equalities, which have no κ."""
        return jnp.where(equality, 0.0, 1.0 / jnp.where(equality, 1.0, self.mu))


class Ahead(eqx.Module):
    """A holder's slacks and multipliers on the way to a trial, before its constraints are known there."""

    s: jax.Array
    mu: jax.Array
    full: jax.Array  # μ + Δμ


def walls(held: Barrier, equality: np.ndarray, call: Call) -> tuple[Wall, Wall, jax.Array]:
    """Σ ψ(c), its slope along the step, and its gradient."""
    c, along = held.c, held.jacobian @ call.direction
    least = jnp.maximum(call.kappa / jnp.maximum(call.rho, TINY), TINY)  # the room at which the barrier ends
    s = jnp.maximum(-c, least)
    inside = -c > least
    logs = jnp.where(equality, 0.0, -call.kappa * jnp.log(s))
    falls = jnp.where(equality | ~inside, 0.0, call.kappa / s)
    gaps = jnp.where(equality, jnp.abs(c), c + s)
    rises = jnp.where(equality, jnp.sign(c), jnp.where(inside, 0.0, 1.0))
    ascent = (falls + call.rho * rises) @ held.jacobian
    return Wall(jnp.sum(logs), jnp.sum(gaps)), Wall(falls @ along, rises @ along), ascent


def augmented(c: jax.Array, mu: jax.Array, equality: np.ndarray, rho: jax.Array) -> jax.Array:
    """The augmented Lagrangian's term of each constraint."""
    beta = 10.0 * jnp.maximum(rho, TINY)
    return (updated(mu, beta, c, equality) ** 2 - mu**2) / (2.0 * beta)


def go(held: Barrier, equality: np.ndarray, call: Call) -> Ahead:
    """The holder's own part of Newton's step, kept positive by itself: s at least on the central path at κ/μ."""
    inverse, kappa = held.inverse(equality), call.kappa
    change = held.weights(equality) * (held.c + kappa * inverse + held.jacobian @ call.direction)
    room = (kappa - held.s * held.mu - held.s * change) * inverse
    full = held.mu + change
    mu = jnp.where(equality, full, jnp.maximum(full, (1.0 - FRACTION) * held.mu))
    on_path = kappa / jnp.where(equality, 1.0, mu)
    s = jnp.where(equality, 0.0, jnp.maximum(held.s + room, jnp.minimum(on_path, held.s)))
    return Ahead(jnp.where(call.moving, s, held.s), jnp.where(call.moving, mu, held.mu), full)


def settle(ahead: Ahead, equality: np.ndarray, c: jax.Array, jacobian: jax.Array, call: Call) -> Barrier:
    """At the trial: slacks at least as large as the room that is there, products within bounds of κ."""
    s = jnp.where(equality, 0.0, jnp.maximum(ahead.s, -c))
    centred = call.kappa / jnp.where(equality, 1.0, s)
    mu = jnp.where(equality | ~call.moving, ahead.mu, jnp.clip(ahead.mu, centred / WIDEST, centred * WIDEST))
    active = equality | (c >= -call.near) | (mu > s)
    return Barrier(c, jacobian, s, mu, jnp.where(active, mu, 0.0))


def look(own: Oracle, held: Barrier, call: Call) -> tuple[Barrier, Sums, Maxima]:
    """A holder's whole part in a round: go ahead, evaluate, sum up."""
    equality = own.equality
    ahead = go(held, equality, call)
    values, slopes = derivatives(own, call.point)
    there = settle(ahead, equality, values.constraints, slopes.constraints, call)
    curvature = own.curvature(call.point, Values(jnp.ones_like(values.objective), there.mu, call.nu))
    sums = Sums(
        values.objective,
        slopes.objective,
        hessian=packed(curvature + stiffness(there, equality)),
        pooled=values.pooled,
        pooled_jacobian=slopes.pooled,
        **summed(held, ahead, there, equality, call),
    )
    return there, sums, maxima(ahead, there, equality)


def stiffness(there: Barrier, equality: np.ndarray) -> jax.Array:
    """JᵀWJ."""
    return there.jacobian.T @ (there.weights(equality)[:, None] * there.jacobian)


def summed(here: Barrier, ahead: Ahead, there: Barrier, equality: np.ndarray, call: Call) -> dict[str, Any]:
    """What constraints add to the sums, whoever holds them."""
    weights = there.weights(equality)
    before, slope, ascent = walls(here, equality, call)
    now, then = (augmented(c, ahead.full, equality, call.rho) for c in (there.c, here.c))
    return {
        "pull": there.active @ there.jacobian,
        "fixed": (there.mu + weights * there.c) @ there.jacobian,
        "barrier": (weights * there.inverse(equality)) @ there.jacobian,
        "height": there.active @ there.c,
        "weight": jnp.sum(jnp.abs(there.active)),
        "before": before,
        "slope": slope,
        "after": walls(there, equality, call)[0],
        "lifted": jnp.sum(now - then),
        "ascent": ascent,
        "products": there.s @ there.mu,
        "rows": jnp.asarray(np.sum(~equality), there.c.dtype),
    }


def maxima(ahead: Ahead, there: Barrier, equality: np.ndarray) -> Maxima:
    largest = (jnp.max(jnp.abs(mu), initial=0.0) for mu in (there.mu, ahead.full))
    return Maxima(normal_distance(there.active, there.c, equality), violation(there.c, equality), *largest)
