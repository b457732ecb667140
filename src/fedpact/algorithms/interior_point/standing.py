"""How a run of the interior-point method stands after a trial: does it go on, turn to a search, or end, and with which word?"""

import jax

from fedpact.algorithms.interior_point.barrier import TINY, HolderMaxima, HolderSums
from fedpact.algorithms.interior_point.state import ServerState
from fedpact.algorithms.interior_point.steps import Model, Step, promised
from fedpact.arrays import linalg, xp
from fedpact.problem.flat_regularizer import FlatRegularizer
from fedpact.problem.infeasibility import empty_radius
from fedpact.protocol.algorithm import Status
from fedpact.records import Record

NARROWEST = 1e-10  # a step this short, relative to 1 + ‖w‖, means that float64 shows no descent any more
FAR = 10.0  # no feasible point within this many times 1 + ‖w‖, where a search for one rests: there is none
EMPTY = 1e3  # such a search begins where none is within this many times, or within FAR and the violation does not halve
IDLE = 4  # for so many rounds,
PATIENCE = 15  # or for so many, wherever a feasible point may be
MOST_PHASES = 6  # searches, and new beginnings at the best point where no step leads on
LOWER = 0.96  # a search has ended, too, where the squared violation does not fall to this part of itself
SEARCH_PATIENCE = 6, 4  # within so many rounds; fewer in a search that is repeated from the start,
AGAIN = 14  # which ends, too, where it has not got below
BELOW = 0.9  # this part of what the first search left of the squared violation, within so many rounds
NEARLY = 1e-4  # of a unit: a search that has come this near to a feasible point is not given up
RESTING = 1e-6  # a search has ended where the next step promises less than this part of the violation
WORTH = 10.0  # what a next step may still promise is this times the goal's part of the objective,
LEAST_OBJECTIVE = 1e-4  # or of this
SHRINKS = 0.25  # a next step that is shorter than this part of the last one, as Newton's are near a minimum, is taken
STILL = 1e-4  # if it is longer than this, or than the goal, relative to the way from the start,
WELL = 0.125, 0.02  # or if the violation is within the goal, but not within this part of it (at that tolerance; below);
HALVES = 0.5  # below it, for this, also one that is shorter than this part, as where regions touch in a point;
SMALL = 1.0 / 30.0  # of a unit: where the first violation was less than this, the last one has to be as much smaller
SLOW = 0.7  # steps shrink slowly if each is more than this part of the last one, now or in the mean,
SLOWEST = 0.995  # which counts up to this;
MEMORY = 0.75  # the power with which the mean so far enters the next: one short step among long ones is chance
LOOSE = 1e-4  # a tolerance above this holds for complementarity as a whole;
WHOLE = 4.0  # else, and for violations always, the goal is a quarter of it (`Method.caution`)
DRIFT = 0.03  # a whole Newton step this long, relative to 1 + ‖w‖, where the goal is met: no minimum is near,
FAINT = 1e-3  # if it promises more than this part of the goal, so that it is no rounding,
FLAT_BEND = 1e-3  # and the curvature along it is less than this;
ALL_OF_IT = 0.1  # a promise of this part of the objective means that the objective itself is vanishing


class Trialled(Record):
    """What a round has shown: the trial, and the next step that was made of it."""

    point: jax.Array
    objective: jax.Array
    stationarity: jax.Array
    noise: jax.Array  # in the merit
    better: jax.Array  # whether the trial was accepted
    sound: jax.Array  # whether all its numbers are finite
    w: jax.Array  # where the next step begins
    step: Step
    model: Model


class Standing(Record):
    """All scalars.

    - `feasible`: the trial is, to the goal. `seen`: an earlier one was.
    - `done`, `empty`, `endless`: the run ends: certified, without a feasible point, without a minimum.
    - `promising`: next steps gain more than the goal is worth, whatever its numbers are.
    - `shrinkage`: of the promises of steps, see `ServerState`.
    - `drifts`: it is done, and yet the objective falls for ever, ever less.
    - `give_up`: a search for a feasible point begins. `found`: it has found one. `elsewhere`: it begins again at the start.
    - `retry`: the step begins again, at the best point; `lost`: as it is feasible, and none is near the trial.
    - `radius`: for convex constraints no feasible point is nearer. `least_violation`, `idle`: see `ServerState`.
    """

    feasible: jax.Array
    seen: jax.Array
    done: jax.Array
    promising: jax.Array
    shrinkage: jax.Array
    empty: jax.Array
    endless: jax.Array
    drifts: jax.Array
    give_up: jax.Array
    found: jax.Array
    elsewhere: jax.Array
    retry: jax.Array
    lost: jax.Array
    radius: jax.Array
    least_violation: jax.Array
    idle: jax.Array
    status: jax.Array


def steepness(objective: jax.Array, point: jax.Array) -> jax.Array:
    """How steep the objective is on the way from 0 to a point; 1 is what the units make of it at the start."""
    return objective / xp.maximum(xp.max(xp.abs(point), initial=0.0), 1.0)


def standing(
    server: ServerState,
    now: Trialled,
    sums: HolderSums,
    largest: HolderMaxima,
    h: FlatRegularizer,
    of_phase: FlatRegularizer,
) -> Standing:
    """From the server's state before the round, what the round has shown, and h: the problem's own, and that of the phase."""
    goal, searching, better, violation = server.goal, server.searching, now.better, largest.violation
    size = 1.0 + linalg.norm(now.point)
    feasible, seen = violation <= goal.feasibility, server.best.violation <= goal.feasibility
    gain, moved = promised(now.w, now.step, now.model, of_phase), linalg.norm(now.step.direction)
    stuck = ~better & (now.step.length * moved < NARROWEST * (1.0 + linalg.norm(server.w)))

    # converged?
    close = goal.stationarity * xp.maximum(steepness(now.objective, now.point), 1.0)  # as the certificate will measure
    share = xp.where(WHOLE * goal.feasibility > LOOSE, WHOLE, 1.0)
    complementary = largest.complementarity <= share * goal.feasibility
    met = ~searching & (now.stationarity <= close) & feasible & complementary
    near = WORTH * goal.stationarity * xp.maximum(xp.abs(now.objective), LEAST_OBJECTIVE) + now.noise
    last = server.step.length * linalg.norm(server.step.direction)
    # steps that each are r times the last one, since the model is too steep, promise r² times as much, and gain 1/(1 − r)
    # times the promise all together, which counts four times as it is a guess; a gain within what all κ are worth says nothing
    fine = goal.stationarity < STILL
    promise_before = promised(server.w, server.step, server.model, of_phase)
    ratio = xp.sqrt(xp.maximum(gain, 0.0) / xp.maximum(promise_before, TINY))
    shrinkage = server.shrinkage**MEMORY * xp.clip(ratio, SHRINKS, 1.0 / SHRINKS) ** (1.0 - MEMORY)
    lately = xp.where(fine, xp.maximum(ratio, shrinkage), xp.where(ratio < 1.0, ratio, 0.0))
    slow = (lately > SLOW) & (gain > sums.inequalities * server.kappa)
    all_gains = xp.where(slow, 4.0 * gain / (1.0 - xp.minimum(lately, SLOWEST)), gain)
    worth = xp.maximum(all_gains, xp.abs(sums.weighted_violation))  # of next steps and of violations, in the objective
    broken = server.first_violation > goal.feasibility
    small = xp.where(broken, xp.minimum(server.first_violation / SMALL, 1.0), 1.0)
    barely = violation > xp.where(fine, *reversed(WELL)) * small * goal.feasibility
    still = xp.maximum(STILL, goal.stationarity) * linalg.norm(now.point - server.origin)
    shrinks = (moved < SHRINKS * last) | (fine & (ratio < SHRINKS) & (moved > still))
    halves = fine & (moved < HALVES * last)
    unfinished = (shrinks & (moved > still)) | ((shrinks | halves) & barely)
    promising = worth > near
    done = met & (~better | ~(promising | unfinished))

    # is there a feasible point?
    radius = empty_radius(sums.weighted_violation, sums.constraint_gradient, now.point, of_phase)
    shortfall = xp.where(searching, sums.weighted_violation, violation)
    fallen = shortfall < xp.where(searching, LOWER, 0.5) * server.least_violation
    least_violation = xp.where(fallen, shortfall, server.least_violation)
    idle = xp.where(fallen | feasible | server.fresh, 0, server.idle + 1)
    no_point_near = (radius > EMPTY * size) | ((radius > FAR * size) & (idle >= IDLE))
    hopeless = stuck | no_point_near | (idle >= PATIENCE)
    phases_left = ~searching & ~server.fresh & (server.phases < MOST_PHASES)
    give_up = phases_left & ~feasible & ~seen & hopeless
    lost = ~searching & seen & (radius > EMPTY * size) & (idle >= PATIENCE)  # where constraints are not convex
    retry = phases_left & seen & (stuck | lost)
    found = searching & now.sound & feasible
    violation_squared = 0.5 * sums.weighted_violation
    whole = xp.isinf(now.step.radius)  # within a ball a step promises little wherever it is
    resting = (better & whole & (gain <= RESTING * violation_squared)) | (stuck & (radius > FAR * size))
    # the least violation may be reached at infinity only; convex constraints need the proof all the same
    curved = server.indefinite | (server.sharpening is not None) | (whole & (radius > FAR * size))
    late = server.repeated & (server.phase_rounds >= AGAIN) & (least_violation > BELOW * server.first_search)
    reached = server.repeated & (least_violation <= server.first_search)  # what the first search had reached
    tired = (better | reached) & (idle >= xp.where(server.repeated, *reversed(SEARCH_PATIENCE)))
    resting = resting | (curved & (tired | late) & (violation > NEARLY))
    rests = searching & ~feasible & ~seen & resting
    # what is not convex, as rates are, may have a feasible point elsewhere: look for it once more, from the start
    elsewhere = rests & (server.indefinite | (server.sharpening is not None)) & ~server.from_start
    empty = rests & ~elsewhere

    # is there a minimum?
    falls = (sums.gradient @ now.point < 0) & (now.objective < server.model.objective)
    endless = ~searching & better & feasible & falls & (xp.max(xp.abs(now.point)) > server.reach)
    drifts = (moved > DRIFT * size) & (gain > FAINT * goal.stationarity) & (gain < FLAT_BEND * moved**2)
    drifts = done & better & drifts & h.is_flat_along(now.point, now.step.direction)
    endless = endless | (drifts & (gain > ALL_OF_IT * xp.abs(now.objective)))
    nowhere = xp.isinf(server.best.violation) & ~now.sound

    status = xp.where((stuck | lost) & ~give_up & ~retry & ~elsewhere, Status.stalled, Status.running)
    status = xp.where(done, Status.converged, xp.where(empty, Status.infeasible, status))
    status = xp.where(endless | nowhere, Status.diverged, status)
    return Standing(
        feasible,
        seen,
        done,
        xp.where(better, promising, server.promising),
        xp.where(better, shrinkage, server.shrinkage),
        empty,
        endless,
        drifts,
        give_up,
        found,
        elsewhere,
        retry,
        lost,
        radius,
        least_violation,
        idle,
        status,
    )
