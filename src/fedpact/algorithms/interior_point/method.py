"""A federated primal-dual interior-point method: certified in a dozen rounds.

    minimise Σ_i f_i(w) + h(w)   s.t.   c_i(w) + s_i = 0, s_i > 0 at party i, and the same for the server's and pooled ones

Newton's step on the optimality conditions with s_i μ_i = κ reduces to one d x d system that is a sum over parties. With
W_i = diag(1/(s_i/μ_i + δ)), or 1/δ for an equality:

    A   = Σ_i ∇²f_i + Σ_m μ_im ∇²c_im + J_iᵀ W_i J_i
    A Δw = −Σ_i ∇f_i + J_iᵀ(μ_i − W_i s_i + κ W_i/μ_i + θ W_i (c_i + s_i))
    at the party:   Δμ_i = W_i (θ(c_i + s_i) − s_i + κ/μ_i + J_i Δw),        Δs_i = (κ − s_i μ_i − s_i Δμ_i)/μ_i

    symbol   here                 meaning
    s, μ     Barrier.s, .mu       slacks and multipliers, which stay with their holder
    κ        ServerState.kappa    what every product s μ is driven to
    δ        barrier.py           1e-7 max(1, ‖∇c‖²): bounds W, which would else drown the curvature of f in rounding
    ρ        ServerState.rho      the weight of c + s in the merit function
    θ        Step.residual_share  the part of c + s that a step closes: 1, less in a small ball

One exchange per round: w moves by the whole step, and each party keeps its own s and μ positive. What is tried is judged by

    Φ = f(w) + h(w) − κ Σ log s + ρ Σ|c(w) + s|

and taken back when it is not lower. With its sums every holder says where along the step a slack would have ended, so a
step that left the region is tried again up to its edge, as in a textbook, but only when it has failed; Δs and Δμ shrink with
it. Any other failure, or a model that is not convex, is answered by a smaller ball around w, in which the model is minimised
at the server. h enters exactly, by proximal Newton steps, so that zeros of an l1 term are zeros.
"""

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpact.algorithms.interior_point.barrier import (
    TINY,
    Ahead,
    Barrier,
    HolderMaxima,
    HolderSums,
    Trial,
    advance,
    evaluate,
    maxima,
    settle,
    stiffness,
    summed,
)
from fedpact.algorithms.interior_point.steps import Model, Step, nearer, newton_step, whole_step
from fedpact.algorithms.parts.descent import choose
from fedpact.algorithms.parts.symmetric import unpacked
from fedpact.federation.setting import Setting
from fedpact.problem.atoms import Scope
from fedpact.problem.oracle import Oracle
from fedpact.problem.regularizers import FlatRegularizer
from fedpact.protocol.algorithm import (
    Algorithm,
    Answer,
    Begin,
    Disclosed,
    FirstParameters,
    Goal,
    Info,
    OnePhase,
    Status,
)
from fedpact.protocol.messages import Reply
from fedpact.protocol.options import check
from fedpact.protocol.phases import ServerData

SINGULAR = 1e-14  # of its own diagonal is added to A: rounding makes a singular matrix indefinite
SPEED = 1.3  # κ falls at least to this power of the mean product
LEAST = 1e-20  # κ
ARMIJO = 1e-4
ROUNDING = 1e-12  # relative noise in the merit
CREDIT = 20  # steps that may be taken because they lower the augmented Lagrangian, though not the merit
UNFIT = 0.01  # κ is held up at this times the square of the violation
NARROWEST = 1e-10  # a step this short, relative to 1 + ‖w‖, means that float64 shows no descent any more
FARTHEST = 1e8  # iterates this large, relative to the start, mean that the objective has no minimum
NUDGE = 1e-2  # a start where broken constraints have no slope is left by this, relative to 1 + |w|
EMPTY = 1e3  # declare infeasibility when no feasible point lies within this many times 1 + ‖w‖
WIDER = 4.0  # the ball grows by this after an accepted step
GROWN = 4.0  # times the first such radius; or at once when it is
ENDLESS = 1e9  # times 1 + ‖w‖

# states


class PartyState(eqx.Module):
    here: Barrier  # where the last accepted step ended
    there: Barrier  # at the trial evaluated last
    trial: jax.Array


class ServerState(eqx.Module):
    w: jax.Array
    step: Step
    model: Model
    kappa: jax.Array
    rho: jax.Array
    accepted: jax.Array
    own: tuple[Barrier, Barrier]  # the server's own constraints: here, and at the trial
    pooled: tuple[Barrier, Barrier]
    point: jax.Array  # what would be handed out: the last accepted point, or the one that met the goal
    point_mu: jax.Array
    point_nu: jax.Array
    empty_radius: jax.Array
    reach: jax.Array
    k: jax.Array
    credit: jax.Array  # steps that may still be taken for the augmented Lagrangian's sake
    goal: Goal
    status: jax.Array


class RoundInfo(Info):
    kappa: jax.Array
    length: jax.Array  # of Δw
    accepted: jax.Array
    disclosed: Disclosed | None
    server_multipliers: jax.Array
    pooled_multipliers: jax.Array


# options


class InteriorPoint(Algorithm):
    """The primal-dual interior-point method, for up to a few hundred parameters: d(d+1)/2 + 5d + 17 numbers up per party.

    - `mu`: the multipliers' first value (> 0, default 0.1).
    - `centering`: κ is at most this part (between 0 and 1, default 0.1) of the mean product s μ, and falls faster near the end.
    """

    mu: float = 0.1
    centering: float = 0.1

    keeps: ClassVar[frozenset[Scope]] = frozenset({"party", "pooled", "server"})

    def __check_init__(self) -> None:
        check("InteriorPoint", "mu", self.mu, lambda x: x > 0, "the first multipliers μ must be > 0")
        words = "a number between 0 and 1: κ's part of the mean product s μ"
        check("InteriorPoint", "centering", self.centering, lambda x: 0 < x < 1, words)

    def usual_rounds(self, setting: Setting) -> tuple[int, int] | None:
        return 8, 48

    def bound(self, setting: Setting) -> "InteriorPointMethod":
        return InteriorPointMethod(self)


class InteriorPointMethod(OnePhase[ServerState]):
    """InteriorPoint as it runs."""

    options: InteriorPoint

    # at a party

    def join(self, own: Oracle, state: None, message: FirstParameters) -> tuple[PartyState, Reply]:
        """Before the first round: s = 1, which the first evaluation widens to the room that there is."""
        fresh = Barrier.fresh(own.equality, message.parameters.size, self.options.mu)
        return PartyState(fresh, fresh, message.parameters), Reply()

    def step(self, own: Oracle, state: PartyState, message: Trial) -> tuple[PartyState, Reply]:
        here = choose(message.accepted, state.there, state.here)
        there, sums, largest = evaluate(own, here, message)
        disclosed = own.disclose(Disclosed(there.c, there.active))
        return PartyState(here, there, message.parameters), Reply(sums, largest, disclosed)

    def multipliers(self, own: Oracle, state: PartyState, answer: Answer) -> jax.Array:
        return jnp.where(jnp.all(state.trial == answer.parameters), state.there.active, state.here.active)

    # at the server

    def invite(self, own: ServerData, begin: Begin) -> FirstParameters:
        return FirstParameters(own.regularizer.prox(begin.w, 0.0))

    def start(self, own: ServerData, begin: Begin, reply: Reply) -> ServerState:
        w = self.invite(own, begin).parameters
        mine = Barrier.fresh(own.functions.equality, w.size, self.options.mu)
        pooled = Barrier.fresh(own.functions.pooled_equality, w.size, self.options.mu)
        nothing, endless, flat = jnp.asarray(0.0), jnp.asarray(jnp.inf), jnp.zeros_like(w)
        return ServerState(
            w=w,
            step=whole_step(w, w),
            model=Model(endless, flat, flat, flat, jnp.zeros((w.size, w.size)), jnp.asarray(True)),
            kappa=nothing,
            rho=nothing,
            accepted=jnp.asarray(True),
            own=(mine, mine),
            pooled=(pooled, pooled),
            point=w,
            point_mu=mine.active,
            point_nu=pooled.active,
            empty_radius=nothing,
            reach=FARTHEST * (1.0 + jnp.max(jnp.abs(w))),
            k=jnp.zeros((), int),
            credit=jnp.asarray(CREDIT),
            goal=begin.goal,
            status=Status.running.as_array(),
        )

    def ask(self, own: ServerData, server: ServerState) -> Trial:
        return self._trial(own, server)[0]

    def _trial(self, own: ServerData, server: ServerState) -> tuple[Trial, Barrier, Ahead]:
        """The message, and the pooled constraints where the step begins and on the way to the trial."""
        step, pooled = server.step, choose(server.accepted, *reversed(server.pooled))
        trial = Trial(
            parameters=jnp.where(step.length == 1.0, step.target, server.w + step.length * step.direction),
            direction=step.direction,
            step_length=step.length,
            residual_share=step.residual_share,
            barrier_parameter=server.kappa,
            merit_weight=server.rho,
            pooled_multipliers=pooled.mu,
            moving=server.k > 0,
            accepted=server.accepted,
            activity_threshold=server.goal.feasibility,
        )
        ahead = advance(pooled, own.functions.pooled_equality, trial)
        return dataclasses.replace(trial, pooled_multipliers=ahead.mu), pooled, ahead

    def hear(self, own: ServerData, server: ServerState, reply: Reply) -> tuple[ServerState, RoundInfo]:
        h, first, step = own.regularizer, server.k == 0, server.step
        trial, pooled, ahead = self._trial(own, server)
        point, equality = trial.parameters, own.functions.pooled_equality
        here = choose(server.accepted, *reversed(server.own))
        there, mine, own_largest = evaluate(own.functions, here, trial)
        total = jax.tree.map(jnp.add, reply.sum, mine)
        pooled_there, sums, hessian = _with_pooled(total, pooled, ahead, equality, trial, h)
        every = (reply.max, own_largest, maxima(ahead, pooled_there, equality))
        largest: HolderMaxima = jax.tree.map(lambda *x: jnp.max(jnp.stack(x)), *every)

        # what the trial is worth
        stationarity = h.distance(point, sums.gradient + sums.constraint_gradient)
        done = (stationarity <= server.goal.stationarity) & (largest.complementarity <= server.goal.feasibility)
        empty_radius, empty = _emptiness(server, sums, largest, point, h)
        right = sums.right_hand_side + sums.right_hand_side_barrier + sums.right_hand_side_residual
        sound = jnp.isfinite(sums.objective + jnp.sum(sums.gradient + right) + jnp.sum(hessian))
        lost = first & ~sound | (jnp.max(jnp.abs(point)) > server.reach)

        # is it better than where the step began?
        objective, model = sums.objective + h.nonsmooth(point), server.model
        rho = jnp.maximum(server.rho, 2.0 * largest.multiplier_after_full_step)
        before, after = model.objective + sums.merit_before(rho), objective + sums.merit_after(rho)
        slope = step.length * model.slope @ step.direction + h.nonsmooth(point) - h.nonsmooth(server.w)
        slope = jnp.minimum(slope + step.length * sums.merit_slope(rho), 0.0)
        enough = after <= before + ARMIJO * slope + ROUNDING * (1.0 + jnp.abs(before))
        trusted = ~enough & (server.credit > 0) & (objective + sums.augmented_increase < model.objective)
        better = first | (sound & (enough | trusted))

        def onward() -> tuple[jax.Array, Step, Model, jax.Array, jax.Array]:
            kappa = self._next_kappa(server, sums, largest)
            gradient = sums.gradient + sums.right_hand_side + kappa * sums.right_hand_side_barrier
            residual = sums.right_hand_side_residual
            convex = jnp.isfinite(jnp.linalg.cholesky(hessian)[-1, -1])
            fresh = Model(objective, sums.gradient, gradient, residual, hessian, convex)
            less = jnp.maximum(0.5 * rho, 2.0 * largest.multiplier)
            ahead = newton_step(point, fresh, WIDER * step.radius, h)
            flat = first & (largest.violation > server.goal.feasibility) & (jnp.max(jnp.abs(residual)) <= TINY)
            aside = h.prox(point + NUDGE * (1.0 + jnp.abs(point)) * jnp.cos(jnp.arange(1.0, 1.0 + point.size)), 0.0)
            return point, choose(flat, whole_step(point, aside), ahead), fresh, kappa, less

        def back() -> tuple[jax.Array, Step, Model, jax.Array, jax.Array]:
            rise = after - before - slope
            factor = jnp.clip(-0.5 * slope / jnp.where(rise > 0, rise, jnp.inf), 0.1, 0.5)
            factor = jnp.where(jnp.isfinite(after), factor, 0.1)
            return (
                server.w,
                nearer(server.w, server.step, model, factor, largest.slack_decrease, h),
                model,
                server.kappa,
                rho,
            )

        w, step, model, kappa, weight = lax.cond(better, onward, back)
        short = step.length * jnp.linalg.norm(step.direction) < NARROWEST * (1.0 + jnp.linalg.norm(server.w))
        status = jnp.where(~better & short, Status.stalled, Status.running)
        status = jnp.where(lost, Status.diverged, jnp.where(empty, Status.infeasible, status))
        keep = better | done
        info = RoundInfo(
            objective=objective,
            violation=largest.violation,
            stationarity=stationarity,
            kappa=server.kappa,
            length=server.step.length,
            accepted=better,
            disclosed=reply.per_party,
            server_multipliers=there.active,
            pooled_multipliers=pooled_there.active,
        )
        return ServerState(
            w=w,
            step=step,
            model=model,
            kappa=kappa,
            rho=weight,
            accepted=better,
            own=(here, there),
            pooled=(pooled, pooled_there),
            point=jnp.where(keep, point, server.point),
            point_mu=jnp.where(keep, there.active, server.point_mu),
            point_nu=jnp.where(keep, pooled_there.active, server.point_nu),
            empty_radius=empty_radius,
            reach=server.reach,
            k=server.k + 1,
            credit=server.credit - jnp.where(better & trusted, 1, 0),
            goal=server.goal,
            status=jnp.where(done, Status.converged, status),
        ), info

    def _next_kappa(self, server: ServerState, sums: HolderSums, largest: HolderMaxima) -> jax.Array:
        """A part of the mean product, superlinearly less near the end; not far below what the goal needs once that is met.

        Where constraints are still broken it does not run ahead of w.
        """
        mean = sums.slack_products / jnp.maximum(sums.inequalities, 1.0)
        kappa = jnp.minimum(self.options.centering * mean, mean**SPEED)
        kappa = jnp.maximum(kappa, jnp.minimum(UNFIT * jnp.minimum(largest.violation, 1.0) ** 2, server.kappa))
        enough = jnp.where(largest.complementarity > server.goal.feasibility, LEAST, 0.01 * server.goal.feasibility**2)
        return jnp.maximum(kappa, jnp.maximum(enough, LEAST))

    def answer(self, own: ServerData, carry: ServerState) -> Answer:
        return Answer(carry.point, carry.point_mu, carry.point_nu, carry.empty_radius)


def _with_pooled(
    sums: HolderSums, here: Barrier, ahead: Ahead, equality: np.ndarray, trial: Trial, h: FlatRegularizer
) -> tuple[Barrier, HolderSums, jax.Array]:
    """The pooled constraints at the trial, all sums with what they and h add, and the whole matrix A."""
    point = trial.parameters
    there = settle(ahead, equality, sums.pooled_constraints, sums.pooled_jacobian, trial)
    hessian = unpacked(sums.hessian, point.size) + jnp.diag(2 * h.ridge) + stiffness(there, equality)
    hessian = hessian + SINGULAR * jnp.diag(jnp.diag(hessian))
    mine = summed(here, ahead, there, equality, trial)
    more = {name: jax.tree.map(jnp.add, getattr(sums, name), part) for name, part in mine.items()}
    more |= {"objective": sums.objective + h.smooth(point), "gradient": sums.gradient + 2 * h.ridge * point}
    return there, dataclasses.replace(sums, **more), hessian


def _emptiness(
    server: ServerState, sums: HolderSums, largest: HolderMaxima, point: jax.Array, h: FlatRegularizer
) -> tuple[jax.Array, jax.Array]:
    """For convex constraints no feasible point lies within r = μᵀc/‖Jᵀμ‖ of here.

    A feasible set that is merely far away keeps its distance; where there is none, r grows with the multipliers.
    """
    slope = jnp.linalg.norm(h.inside(point, sums.constraint_gradient))
    radius = jnp.where(sums.weighted_violation > 0, sums.weighted_violation / jnp.maximum(slope, TINY), 0.0)
    height, size = sums.weighted_violation / jnp.maximum(sums.multiplier_sum, TINY), 1.0 + jnp.linalg.norm(point)
    before = server.empty_radius
    broken = (height > server.goal.feasibility) & (largest.violation > server.goal.feasibility)
    far = broken & (radius > EMPTY * size) & (server.k > 0)  # at a start constraints may have no slope
    grows = (before > 0) & (radius > GROWN * before) | (radius > ENDLESS * size)
    return jnp.where((before == 0) & far | (far & grows), radius, before), far & grows
