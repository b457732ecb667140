"""A holder's part in the interior-point method: its constraints with slacks and multipliers, and what it sends.

The formulas are in `method.py`. A holder is a party, the server with its own rows, or the server for pooled
constraints; the arithmetic is the same.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedpact.algorithms.parts.multipliers import complementarity, updated, violation
from fedpact.algorithms.parts.symmetric import packed
from fedpact.problem.oracle import Oracle, Values, derivatives

REGULARIZATION = 1e-7  # δ, of max(1, ‖∇c‖²)
FLAT = 1e-20  # ‖∇c‖² of a constraint that no step can mend; δ = 1 keeps its multiplier from running away
FRACTION = 0.995  # a multiplier may lose this part of itself in a round
HALF = 0.5  # a slack that Newton's step would make negative keeps this part of itself, or what is left to κ/μ
WIDEST = 1e10  # s μ stays within this factor of κ
TINY = 1e-300  # in place of a zero that is divided by

# messages


class Trial(eqx.Module):
    """From the server to every party, every round."""

    parameters: jax.Array  # the trial point
    direction: jax.Array  # Δw
    step_length: jax.Array  # the trial is w + step_length·Δw
    residual_share: jax.Array  # θ: the part of c + s that the step is to close
    barrier_parameter: jax.Array  # κ
    merit_weight: jax.Array  # ρ
    pooled_multipliers: jax.Array  # at the trial; they weigh the curvature of pooled constraints
    moving: jax.Array  # False in the first round, before there is a step
    accepted: jax.Array  # whether the last trial is where this step begins
    activity_threshold: jax.Array  # a constraint with less room than this counts as active


class MeritTerms(eqx.Module):
    """What constraints add to the merit, in two parts so that the server may still choose ρ: −κ Σ log s and Σ|c + s|."""

    log_barrier: jax.Array
    residual: jax.Array

    def __call__(self, rho: jax.Array) -> jax.Array:
        return self.log_barrier + rho * self.residual


class HolderSums(eqx.Module):
    """A holder's part of the Newton system and of the measurement, at the trial; every leaf is summed over holders."""

    objective: jax.Array
    gradient: jax.Array  # ∇f
    constraint_gradient: jax.Array  # Jᵀμ, of active constraints
    right_hand_side: jax.Array  # Jᵀ(μ − Ws), JᵀW/μ and JᵀW(c + s): added with factors 1, κ and θ
    right_hand_side_barrier: jax.Array
    right_hand_side_residual: jax.Array
    hessian: jax.Array  # A, upper triangle
    weighted_violation: jax.Array  # μᵀc and ‖μ‖₁, of active constraints: is there a feasible point at all?
    multiplier_sum: jax.Array
    merit_before: MeritTerms  # where the step began, its slope along the step, and at the trial
    merit_slope: MeritTerms
    merit_after: MeritTerms
    augmented_increase: jax.Array  # by how much the augmented Lagrangian's terms have grown on the way
    slack_products: jax.Array  # Σ s μ, over this many inequalities
    inequalities: jax.Array
    pooled_constraints: jax.Array
    pooled_jacobian: jax.Array


class HolderMaxima(eqx.Module):
    complementarity: jax.Array  # Definition 1's second number
    violation: jax.Array
    multiplier: jax.Array  # |μ| and |μ + Δμ|, which ρ has to exceed
    multiplier_after_full_step: jax.Array
    slack_decrease: jax.Array  # −Δs/s: a step longer than its inverse leaves the region where s > 0


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


def merit_terms(s: jax.Array, c: jax.Array, equality: np.ndarray, kappa: jax.Array) -> MeritTerms:
    logs = jnp.where(equality, 0.0, -kappa * jnp.log(jnp.where(equality, 1.0, s)))
    return MeritTerms(jnp.sum(logs), jnp.sum(jnp.abs(c + s)))


def merit_slope(held: Barrier, ahead: Ahead, trial: Trial) -> MeritTerms:
    """The directional derivative of the merit's terms along the step."""
    gaps = jnp.sign(held.c + held.s) * (held.jacobian @ trial.direction + ahead.room)
    return MeritTerms(-trial.barrier_parameter * jnp.sum(ahead.relative), jnp.sum(gaps))


def augmented(c: jax.Array, mu: jax.Array, equality: np.ndarray, rho: jax.Array) -> jax.Array:
    """The augmented Lagrangian's term of each constraint."""
    beta = 10.0 * jnp.maximum(rho, TINY)
    return (updated(mu, beta, c, equality) ** 2 - mu**2) / (2.0 * beta)


def advance(held: Barrier, equality: np.ndarray, trial: Trial) -> Ahead:
    """The holder's own part of Newton's step, kept positive by itself."""
    inverse, kappa = held.inverse(equality), trial.barrier_parameter
    wanted = trial.residual_share * (held.c + held.s) - held.s + kappa * inverse
    change = held.weights(equality) * (wanted + held.jacobian @ trial.direction)
    room = (kappa - held.s * held.mu - held.s * change) * inverse
    moved = held.mu + trial.step_length * change
    mu = jnp.where(equality, moved, jnp.maximum(moved, (1.0 - FRACTION) * held.mu))
    least = jnp.minimum(kappa / jnp.where(equality, 1.0, mu), HALF * held.s)
    s = jnp.where(equality, 0.0, jnp.maximum(held.s + trial.step_length * room, least))
    relative = jnp.where(equality, 0.0, room / jnp.where(equality, 1.0, held.s))
    s, mu = jnp.where(trial.moving, s, held.s), jnp.where(trial.moving, mu, held.mu)
    return Ahead(s, mu, held.mu + change, room, relative)


def settle(ahead: Ahead, equality: np.ndarray, c: jax.Array, jacobian: jax.Array, trial: Trial) -> Barrier:
    """At the trial: slacks at least as large as the room that is there, products within bounds of κ."""
    s = jnp.where(equality, 0.0, jnp.maximum(ahead.s, -c))
    centred = trial.barrier_parameter / jnp.where(equality, 1.0, s)
    mu = jnp.where(equality | ~trial.moving, ahead.mu, jnp.clip(ahead.mu, centred / WIDEST, centred * WIDEST))
    square = jnp.sum(jacobian**2, axis=1)
    active = equality | (c >= -trial.activity_threshold) | (mu * square > s)
    return Barrier(c, jacobian, s, mu, jnp.where(active, mu, 0.0))


def evaluate(own: Oracle, held: Barrier, trial: Trial) -> tuple[Barrier, HolderSums, HolderMaxima]:
    """A holder's whole part in a round: go ahead, evaluate, sum up."""
    equality = own.equality
    ahead = advance(held, equality, trial)
    values, slopes = derivatives(own, trial.parameters)
    there = settle(ahead, equality, values.constraints, slopes.constraints, trial)
    curvature = own.curvature(
        trial.parameters, Values(jnp.ones_like(values.objective), there.mu, trial.pooled_multipliers)
    )
    sums = HolderSums(
        values.objective,
        slopes.objective,
        hessian=packed(curvature + stiffness(there, equality)),
        pooled_constraints=values.pooled,
        pooled_jacobian=slopes.pooled,
        **summed(held, ahead, there, equality, trial),
    )
    return there, sums, maxima(ahead, there, equality)


def stiffness(there: Barrier, equality: np.ndarray) -> jax.Array:
    """JᵀWJ."""
    return there.jacobian.T @ (there.weights(equality)[:, None] * there.jacobian)


def summed(here: Barrier, ahead: Ahead, there: Barrier, equality: np.ndarray, trial: Trial) -> dict[str, Any]:
    """What constraints add to the sums, whoever holds them."""
    weights = there.weights(equality)
    now, then = (augmented(c, ahead.full, equality, trial.merit_weight) for c in (there.c, here.c))
    return {
        "constraint_gradient": there.active @ there.jacobian,
        "right_hand_side": (there.mu - weights * there.s) @ there.jacobian,
        "right_hand_side_barrier": (weights * there.inverse(equality)) @ there.jacobian,
        "right_hand_side_residual": (weights * (there.c + there.s)) @ there.jacobian,
        "weighted_violation": there.active @ there.c,
        "multiplier_sum": jnp.sum(jnp.abs(there.active)),
        "merit_before": merit_terms(here.s, here.c, equality, trial.barrier_parameter),
        "merit_slope": merit_slope(here, ahead, trial),
        "merit_after": merit_terms(there.s, there.c, equality, trial.barrier_parameter),
        "augmented_increase": jnp.sum(now - then),
        "slack_products": there.s @ there.mu,
        "inequalities": jnp.asarray(np.sum(~equality), there.c.dtype),
    }


def maxima(ahead: Ahead, there: Barrier, equality: np.ndarray) -> HolderMaxima:
    return HolderMaxima(
        complementarity=complementarity(there.active, there.c, equality),
        violation=violation(there.c, equality),
        multiplier=jnp.max(jnp.abs(there.mu), initial=0.0),
        multiplier_after_full_step=jnp.max(jnp.abs(ahead.full), initial=0.0),
        slack_decrease=jnp.max(-ahead.relative, initial=0.0),
    )
