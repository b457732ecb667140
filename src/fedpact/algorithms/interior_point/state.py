"""What a party and the server know between two rounds of the interior-point method, and the line of the history."""

import jax

from fedpact.algorithms.interior_point.barrier import Barrier, RateSharpness
from fedpact.algorithms.interior_point.sharpening import Best, Sharpening
from fedpact.algorithms.interior_point.steps import Model, Step
from fedpact.arrays import xp
from fedpact.protocol.algorithm import Disclosed, Goal, Info
from fedpact.records import Record

AFTER_SEARCH = 0.003  # slacks at a feasible point that was searched for; they are 1 at the start


class PartyState(Record):
    here: Barrier  # where the last accepted step ended
    there: Barrier  # at the trial evaluated last
    anchor: Barrier | None  # where the problem with softer rates was solved
    trial: jax.Array
    best: jax.Array  # multipliers at the best trial before the last


class ServerState(Record):
    w: jax.Array
    step: Step
    model: Model
    kappa: jax.Array
    rho: jax.Array
    accepted: jax.Array
    own: tuple[Barrier, Barrier]  # the server's own constraints: here, and at the trial
    pooled: tuple[Barrier, Barrier]
    best: Best
    best_is_trial: jax.Array  # whether it is the last trial
    searching: jax.Array  # for a feasible point
    phases: jax.Array  # how many there were before this one
    fresh: jax.Array  # whether the next round is the first, or the first of a search, or the first after one
    steepness: jax.Array  # how many times as steep as at the start the objective is, 1 at least
    origin: jax.Array  # the first parameters
    first_violation: jax.Array  # there
    from_start: jax.Array  # whether a search has begun at the first parameters
    repeated: jax.Array  # whether that was the second search
    indefinite: jax.Array  # whether the squared violation was seen to be not convex in this search
    idle: jax.Array  # rounds since the least violation was last lowered: halved, or in a search its square by 4 %
    least_violation: jax.Array  # in a search the weighted one, μᵀc
    phase_rounds: jax.Array  # since this phase began
    first_search: jax.Array  # μᵀc that the first search ended with, where a second one began
    sharpening: Sharpening | None  # None where there are no smooth rates
    empty_radius: jax.Array
    promising: jax.Array  # whether steps from the last accepted trial gain more than the goal is worth
    shrinkage: jax.Array  # a mean of how many times as long as the one before it each step was, by what they promise
    descent: jax.Array  # the direction in which the objective falls without end, zero where it does not
    reach: jax.Array
    credit: jax.Array  # steps that may still be taken for the augmented Lagrangian's sake
    goal: Goal
    status: jax.Array

    @property
    def first_slack(self) -> jax.Array:
        """The slacks that a phase begins with, at least."""
        return xp.where(self.phases > 0, AFTER_SEARCH, 1.0)

    @property
    def rate_sharpness(self) -> RateSharpness | None:
        """For the message of the round."""
        now = self.sharpening
        return None if now is None else RateSharpness(now.softening, now.anchored, now.returning, now.relaxation)


class RoundInfo(Info):
    kappa: jax.Array
    length: jax.Array  # of Δw
    accepted: jax.Array
    softening: jax.Array
    disclosed: Disclosed | None
    server_multipliers: jax.Array
    pooled_multipliers: jax.Array
