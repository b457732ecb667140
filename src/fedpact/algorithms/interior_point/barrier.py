"""A holder's part in the interior-point method: its constraints with slacks and multipliers, and what it sends.

The formulas are in `method.py`. A holder is a party, the server with its own rows, or the server for pooled
constraints; the arithmetic is the same.
"""

import dataclasses
from typing import Any

import jax
import numpy as np

from fedpact.algorithms.parts.multipliers import complementarity, updated, violation
from fedpact.arrays import xp
from fedpact.problem.flat_regularizer import FlatRegularizer
from fedpact.problem.oracle import Oracle, Values, derivatives
from fedpact.problem.symmetric import unpacked
from fedpact.records import Record

REGULARIZATION = 1e-7  # δ, of the largest ‖∇c‖² so far, divided by how steep the objective has become
FLAT = 1e-20  # ‖∇c‖² of a constraint that no step can mend; where it is broken, δ = 1 keeps its multiplier from running away
FRACTION = 0.995  # a multiplier may lose this part of itself in a round
HALF = 0.5  # a slack that Newton's step would make negative keeps this part of itself, or what is left to κ/μ
CLOSED = 1e-3  # of the goal: a constraint met to this, with a slack as small, is not closed further: W would amplify rounding
ROOMY = 10.0  # a first multiplier is smaller where there is more room than this, so that s μ is not large
WIDEST = 1e10  # s μ stays within this factor of κ
TINY = 1e-300  # in place of a zero that is divided by

# messages


class RateSharpness(Record):
    """How sharp the smooth rates are in this round."""

    softening: jax.Array  # their temperatures are multiplied by this
    anchored: jax.Array  # whether the last trial is where the run may come back to
    returning: jax.Array  # whether this step begins there
    relaxation: jax.Array  # inequalities are g <= this, a part of what they may be violated by


class Trial(Record):
    """From the server to every party, every round."""

    parameters: jax.Array  # the trial point
    direction: jax.Array  # Δw
    step_length: jax.Array  # the trial is w + step_length·Δw
    residual_share: jax.Array  # θ: the part of c + s that the step is to close
    barrier_parameter: jax.Array  # κ
    merit_weight: jax.Array  # ρ
    pooled_multipliers: jax.Array  # at the trial; they weigh the curvature of pooled constraints
    first_slack: jax.Array  # the slacks that a phase begins with, at least
    steepness: jax.Array  # how many times as steep the objective has become, and multipliers as large
    moving: jax.Array  # False in the first round of either phase, before there is a step
    searching: jax.Array  # whether this is the search for a feasible point
    accepted: jax.Array  # whether the last trial is where this step begins
    best: jax.Array  # whether the last trial is what would be handed out
    rates: RateSharpness | None  # None where there are no smooth rates
    activity_threshold: jax.Array  # a constraint with less room than this counts as active


class MeritTerms(Record):
    """What constraints add to the merit, in two parts so that the server may still choose ρ: −κ Σ log s and Σ|c + s|."""

    log_barrier: jax.Array
    residual: jax.Array

    def __call__(self, rho: jax.Array) -> jax.Array:
        return self.log_barrier + rho * self.residual


class HolderSums(Record):
    """A holder's part of the Newton system and of the measurement, at the trial; every leaf is summed over holders."""

    objective: jax.Array
    gradient: jax.Array  # ∇f
    constraint_gradient: jax.Array  # Jᵀμ, of active constraints
    right_hand_side: jax.Array  # Jᵀ(μ − Ws), JᵀW/μ and JᵀW(c + s): added with factors 1, κ and θ
    right_hand_side_barrier: jax.Array
    right_hand_side_residual: jax.Array
    hessian: Any  # A, upper triangle; in parts at its holder
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


class HolderMaxima(Record):
    complementarity: jax.Array  # Definition 1's second number, and the violation, both relative to the tolerance
    violation: jax.Array
    multiplier: jax.Array  # |μ| and |μ + Δμ|, which ρ has to exceed
    multiplier_after_full_step: jax.Array
    slack_decrease: jax.Array  # −Δs/s: a step longer than its inverse leaves the region where s > 0

    def times(self, tolerance: jax.Array) -> "HolderMaxima":
        """With violations as they are."""
        found = tolerance * self.complementarity, tolerance * self.violation
        return dataclasses.replace(self, complementarity=found[0], violation=found[1])


# a holder's part


class Barrier(Record):
    """Constraints of one holder at a point. For equalities s = 0."""

    c: jax.Array
    jacobian: jax.Array
    s: jax.Array
    mu: jax.Array
    active: jax.Array  # what is measured and handed out: μ of active constraints, 0 elsewhere; [c]₊ while searching
    steepest: jax.Array  # the largest ‖∇c‖² so far
    steepness: jax.Array  # of the objective

    @classmethod
    def fresh(cls, equality: np.ndarray, size: int, mu: Any, slack: Any = 1.0, steepness: Any = 1.0) -> "Barrier":
        one = xp.where(equality, 0.0, 1.0)
        mu, flat = steepness * mu * one, xp.zeros((one.size, size))
        return cls(0.0 * one, flat, slack * one, mu, mu, 0.0 * one, xp.asarray(steepness))

    def weights(self, equality: np.ndarray) -> jax.Array:
        """W."""
        stuck = (xp.sum(self.jacobian**2, axis=1) <= FLAT) & (equality | (self.c >= 0))
        delta = xp.where(~stuck, REGULARIZATION * self.steepest / self.steepness, 1.0)
        return 1.0 / (self.s * self.inverse(equality) + delta)

    def inverse(self, equality: np.ndarray) -> jax.Array:
        """1/μ, 0 for equalities, which have no κ."""
        return xp.where(equality, 0.0, 1.0 / xp.where(equality, 1.0, self.mu))


class Ahead(Record):
    """A holder's slacks and multipliers on the way to a trial, before its constraints are known there."""

    s: jax.Array
    mu: jax.Array
    full: jax.Array  # μ + Δμ
    room: jax.Array  # Δs, and Δs/s
    relative: jax.Array
    steepest: jax.Array  # the largest ‖∇c‖² so far


def merit_terms(s: jax.Array, c: jax.Array, equality: np.ndarray, kappa: jax.Array) -> MeritTerms:
    logs = xp.where(equality, 0.0, -kappa * xp.log(xp.where(equality, 1.0, s)))
    return MeritTerms(xp.sum(logs), xp.sum(xp.abs(c + s)))


def merit_slope(held: Barrier, ahead: Ahead, trial: Trial) -> MeritTerms:
    """The directional derivative of the merit's terms along the step."""
    gaps = xp.sign(held.c + held.s) * (held.jacobian @ trial.direction + ahead.room)
    return MeritTerms(-trial.barrier_parameter * xp.sum(ahead.relative), xp.sum(gaps))


def augmented(c: jax.Array, mu: jax.Array, equality: np.ndarray, rho: jax.Array) -> jax.Array:
    """The augmented Lagrangian's term of each constraint."""
    beta = 10.0 * xp.maximum(rho, TINY)
    return (updated(mu, beta, c, equality) ** 2 - mu**2) / (2.0 * beta)


def residual(held: Barrier, trial: Trial) -> tuple[jax.Array, jax.Array]:
    """c + s and s, both 0 where they are closed."""
    nearly = CLOSED * trial.activity_threshold
    closed = (xp.abs(held.c) <= nearly) & (held.s <= nearly)
    return xp.where(closed, 0.0, held.c + held.s), xp.where(closed, 0.0, held.s)


def advance(held: Barrier, equality: np.ndarray, trial: Trial) -> Ahead:
    """The holder's own part of Newton's step, kept positive by itself."""
    inverse, kappa = held.inverse(equality), trial.barrier_parameter
    gap, slack = residual(held, trial)
    wanted = trial.residual_share * gap - slack + kappa * inverse
    change = held.weights(equality) * (wanted + held.jacobian @ trial.direction)
    room = (kappa - held.s * held.mu - held.s * change) * inverse
    moved = held.mu + trial.step_length * change
    mu = xp.where(equality, moved, xp.maximum(moved, (1.0 - FRACTION) * held.mu))
    least = xp.minimum(kappa / xp.where(equality, 1.0, mu), HALF * held.s)
    s = xp.where(equality, 0.0, xp.maximum(held.s + trial.step_length * room, least))
    relative = xp.where(equality, 0.0, room / xp.where(equality, 1.0, held.s))
    moves = trial.moving & ~trial.searching
    s, mu = xp.where(moves, s, held.s), xp.where(moves, mu, held.mu)
    return Ahead(s, mu, held.mu + change, room, relative, held.steepest)


def settle(ahead: Ahead, equality: np.ndarray, c: jax.Array, jacobian: jax.Array, trial: Trial) -> Barrier:
    """At the trial: slacks at least as large as the room that is there, products within bounds of κ."""
    if trial.rates is not None:
        c = c - xp.where(equality, 0.0, trial.rates.relaxation)
    s = xp.where(equality, 0.0, xp.maximum(ahead.s, -c))
    centred = trial.barrier_parameter / xp.where(equality, 1.0, s)
    held = equality | ~trial.moving | trial.searching
    begun = xp.where(trial.moving | equality, ahead.mu, ahead.mu * xp.minimum(1.0, ROOMY / xp.where(equality, 1.0, s)))
    mu = xp.where(held, begun, xp.clip(ahead.mu, centred / WIDEST, centred * WIDEST))
    square = xp.sum(jacobian**2, axis=1)
    active = equality | (c >= -trial.activity_threshold) | (mu * square > s)
    handed = xp.where(trial.searching, broken(c, equality), xp.where(active, mu, 0.0))
    return Barrier(c, jacobian, s, mu, handed, xp.maximum(ahead.steepest, square), trial.steepness)


def broken(c: jax.Array, equality: np.ndarray) -> jax.Array:
    """By how much each constraint is broken: [c]₊, and c for equalities."""
    return xp.where(equality, c, xp.maximum(c, 0.0))


def evaluate(own: Oracle, held: Barrier, trial: Trial) -> tuple[Barrier, HolderSums, HolderMaxima]:
    """A holder's whole part in a round: go ahead, evaluate, sum up."""
    equality = own.equality
    own = own if trial.rates is None else own.softened(trial.rates.softening)
    ahead = advance(held, equality, trial)
    values, slopes = derivatives(own, trial.parameters)
    there = settle(ahead, equality, values.constraints, slopes.constraints, trial)
    mu = xp.where(trial.searching, there.active, there.mu)
    share = xp.where(trial.searching, 0.0, xp.ones_like(values.objective))
    curvature = own.curvature(trial.parameters, Values(share, mu, trial.pooled_multipliers))
    sums = HolderSums(
        values.objective,
        slopes.objective,
        hessian=curvature.plus(there.jacobian, stiffness(there, equality, trial)),
        pooled_constraints=values.pooled,
        pooled_jacobian=slopes.pooled,
        **summed(held, ahead, there, equality, trial),
    )
    return there, sums, maxima(ahead, there, equality, trial)


def stiffness(there: Barrier, equality: np.ndarray, trial: Trial) -> jax.Array:
    """W of JᵀWJ; while searching, 1 for broken constraints and 0 for others."""
    return xp.where(trial.searching, xp.where(there.active != 0, 1.0, 0.0), there.weights(equality))


def summed(here: Barrier, ahead: Ahead, there: Barrier, equality: np.ndarray, trial: Trial) -> dict[str, Any]:
    """What constraints add to the sums, whoever holds them."""
    weights, (gap, slack) = there.weights(equality), residual(there, trial)
    now, then = (augmented(c, ahead.full, equality, trial.merit_weight) for c in (there.c, here.c))
    return {
        "constraint_gradient": there.active @ there.jacobian,
        "right_hand_side": (there.mu - weights * slack) @ there.jacobian,
        "right_hand_side_barrier": (weights * there.inverse(equality)) @ there.jacobian,
        "right_hand_side_residual": (weights * gap) @ there.jacobian,
        "weighted_violation": there.active @ there.c,
        "multiplier_sum": xp.sum(xp.abs(there.active)),
        "merit_before": merit_terms(here.s, here.c, equality, trial.barrier_parameter),
        "merit_slope": merit_slope(here, ahead, trial),
        "merit_after": merit_terms(there.s, there.c, equality, trial.barrier_parameter),
        "augmented_increase": xp.sum(now - then),
        "slack_products": there.s @ there.mu,
        "inequalities": xp.asarray(np.sum(~equality), there.c.dtype),
    }


def maxima(ahead: Ahead, there: Barrier, equality: np.ndarray, trial: Trial) -> HolderMaxima:
    return HolderMaxima(
        complementarity=complementarity(there.active, there.c, equality) / trial.activity_threshold,
        violation=violation(there.c, equality) / trial.activity_threshold,
        multiplier=xp.max(xp.abs(there.mu), initial=0.0),
        multiplier_after_full_step=xp.max(xp.abs(ahead.full), initial=0.0),
        slack_decrease=xp.max(-ahead.relative, initial=0.0),
    )


def with_pooled(
    sums: HolderSums,
    here: Barrier,
    ahead: Ahead,
    equality: np.ndarray,
    trial: Trial,
    h: FlatRegularizer,
    of_phase: FlatRegularizer,
) -> tuple[Barrier, HolderSums, jax.Array]:
    """The pooled constraints at the trial, all sums with what they and h add, and the whole matrix A, with the h of the
    phase."""
    point = trial.parameters
    hessian, there = unpacked(sums.hessian, point.size) + xp.diag(2 * of_phase.ridge), here
    if equality.size:
        there = settle(ahead, equality, sums.pooled_constraints, sums.pooled_jacobian, trial)
        weights = stiffness(there, equality, trial)
        hessian = hessian + there.jacobian.T @ (weights[:, None] * there.jacobian)
    mine = summed(here, ahead, there, equality, trial) if equality.size else {}
    more = {name: jax.tree.map(xp.add, getattr(sums, name), part) for name, part in mine.items()}
    more |= {"objective": sums.objective + h.smooth(point), "gradient": sums.gradient + 2 * h.ridge * point}
    return there, dataclasses.replace(sums, **more), hessian
