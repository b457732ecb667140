"""A holder's part in the interior-point method: its constraints with slacks and multipliers, and what it sends.

The formulas are in `interior_point.py`. A holder is a party, the server with its own rows, or the server for pooled
constraints; the arithmetic is the same.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedpact.algorithms.prox_al.merit import normal_distance, packed, updated, violation
from fedpact.problem.oracle import Oracle, Values, derivatives

REGULARIZATION = 1e-7  # δ, of max(1, ‖∇c‖²)
FLAT = 1e-20  # ‖∇c‖² of a constraint that no step can mend; δ = 1 keeps its multiplier from running away
FRACTION = 0.995  # a multiplier may lose this part of itself in a round
HALF = 0.5  # a slack that Newton's step would make negative keeps this part of itself, or what is left to κ/μ
WIDEST = 1e10  # s μ stays within this factor of κ
TINY = 1e-300  # in place of a zero that is divided by

# messages


class Call(eqx.Module):
    """From the server, every round."""

    point: jax.Array  # the trial
    direction: jax.Array  # Δw
    length: jax.Array  # the trial is w + length·Δw
    closing: jax.Array  # θ: the part of c + s that the step is to close
    kappa: jax.Array
    rho: jax.Array
    nu: jax.Array  # multipliers of the pooled constraints at the trial, which weigh their curvature
    moving: jax.Array  # False in the first round, before there is a step
    accepted: jax.Array  # whether the last trial is where this step begins
    near: jax.Array  # a constraint with less room than this counts as active


class Wall(eqx.Module):
    """What constraints add to the merit, in two parts so that the server may still choose ρ: −κ Σ log s and Σ|c + s|."""

    barrier: jax.Array
    gap: jax.Array

    def __call__(self, rho: jax.Array) -> jax.Array:
        return self.barrier + rho * self.gap


class Sums(eqx.Module):
    """A holder's part of the Newton system and of the measurement, at the trial; every leaf is summed over holders."""

    objective: jax.Array
    gradient: jax.Array  # ∇f
    pull: jax.Array  # Jᵀμ, of active constraints
    fixed: jax.Array  # Jᵀ(μ − Ws), JᵀW/μ and JᵀW(c + s): with factors 1, κ and θ the right-hand side
    barrier: jax.Array
    gap: jax.Array
    hessian: jax.Array  # A, upper triangle
    height: jax.Array  # μᵀc and ‖μ‖₁, of active constraints: is there a feasible point at all?
    weight: jax.Array
    before: Wall  # where the step began, its slope along the step, and at the trial
    slope: Wall
    after: Wall
    lifted: jax.Array  # by how much the augmented Lagrangian's terms have grown on the way
    products: jax.Array  # Σ s μ, over this many inequalities
    rows: jax.Array
    pooled: jax.Array
    pooled_jacobian: jax.Array


class Maxima(eqx.Module):
    distance: jax.Array  # Definition 1's second number
    violation: jax.Array
    multiplier: jax.Array  # |μ| and |μ + Δμ|, which ρ has to exceed
    full: jax.Array
    blocked: jax.Array  # −Δs/s: a step longer than its inverse leaves the region where s > 0


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
        square = jnp.sum(self.jacobian**2, axis=1)
        delta = jnp.where(square > FLAT, REGULARIZATION * jnp.maximum(square, 1.0), 1.0)
        return 1.0 / (self.s * self.inverse(equality) + delta)

    def inverse(self, equality: np.ndarray) -> jax.Array:
        """1/μ, 0 for equalities, which have no κ."""
        return jnp.where(equality, 0.0, 1.0 / jnp.where(equality, 1.0, self.mu))


class Ahead(eqx.Module):
    """A holder's slacks and multipliers on the way to a trial, before its constraints are known there."""

    s: jax.Array
    mu: jax.Array
    full: jax.Array  # μ + Δμ
    room: jax.Array  # Δs, and Δs/s
    relative: jax.Array


def wall(s: jax.Array, c: jax.Array, equality: np.ndarray, kappa: jax.Array) -> Wall:
    logs = jnp.where(equality, 0.0, -kappa * jnp.log(jnp.where(equality, 1.0, s)))
    return Wall(jnp.sum(logs), jnp.sum(jnp.abs(c + s)))


def tilt(held: Barrier, ahead: Ahead, call: Call) -> Wall:
    """The slope of the wall along the step."""
    gaps = jnp.sign(held.c + held.s) * (held.jacobian @ call.direction + ahead.room)
    return Wall(-call.kappa * jnp.sum(ahead.relative), jnp.sum(gaps))


def augmented(c: jax.Array, mu: jax.Array, equality: np.ndarray, rho: jax.Array) -> jax.Array:
    """The augmented Lagrangian's term of each constraint."""
    beta = 10.0 * jnp.maximum(rho, TINY)
    return (updated(mu, beta, c, equality) ** 2 - mu**2) / (2.0 * beta)


def go(held: Barrier, equality: np.ndarray, call: Call) -> Ahead:
    """The holder's own part of Newton's step, kept positive by itself."""
    inverse, kappa = held.inverse(equality), call.kappa
    wanted = call.closing * (held.c + held.s) - held.s + kappa * inverse
    change = held.weights(equality) * (wanted + held.jacobian @ call.direction)
    room = (kappa - held.s * held.mu - held.s * change) * inverse
    moved = held.mu + call.length * change
    mu = jnp.where(equality, moved, jnp.maximum(moved, (1.0 - FRACTION) * held.mu))
    least = jnp.minimum(kappa / jnp.where(equality, 1.0, mu), HALF * held.s)
    s = jnp.where(equality, 0.0, jnp.maximum(held.s + call.length * room, least))
    relative = jnp.where(equality, 0.0, room / jnp.where(equality, 1.0, held.s))
    s, mu = jnp.where(call.moving, s, held.s), jnp.where(call.moving, mu, held.mu)
    return Ahead(s, mu, held.mu + change, room, relative)


def settle(ahead: Ahead, equality: np.ndarray, c: jax.Array, jacobian: jax.Array, call: Call) -> Barrier:
    """At the trial: slacks at least as large as the room that is there, products within bounds of κ."""
    s = jnp.where(equality, 0.0, jnp.maximum(ahead.s, -c))
    centred = call.kappa / jnp.where(equality, 1.0, s)
    mu = jnp.where(equality | ~call.moving, ahead.mu, jnp.clip(ahead.mu, centred / WIDEST, centred * WIDEST))
    square = jnp.sum(jacobian**2, axis=1)
    active = equality | (c >= -call.near) | (mu * square > s)
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
    now, then = (augmented(c, ahead.full, equality, call.rho) for c in (there.c, here.c))
    return {
        "pull": there.active @ there.jacobian,
        "fixed": (there.mu - weights * there.s) @ there.jacobian,
        "barrier": (weights * there.inverse(equality)) @ there.jacobian,
        "gap": (weights * (there.c + there.s)) @ there.jacobian,
        "height": there.active @ there.c,
        "weight": jnp.sum(jnp.abs(there.active)),
        "before": wall(here.s, here.c, equality, call.kappa),
        "slope": tilt(here, ahead, call),
        "after": wall(there.s, there.c, equality, call.kappa),
        "lifted": jnp.sum(now - then),
        "products": there.s @ there.mu,
        "rows": jnp.asarray(np.sum(~equality), there.c.dtype),
    }


def maxima(ahead: Ahead, there: Barrier, equality: np.ndarray) -> Maxima:
    return Maxima(
        distance=normal_distance(there.active, there.c, equality),
        violation=violation(there.c, equality),
        multiplier=jnp.max(jnp.abs(there.mu), initial=0.0),
        full=jnp.max(jnp.abs(ahead.full), initial=0.0),
        blocked=jnp.max(-ahead.relative, initial=0.0),
    )
