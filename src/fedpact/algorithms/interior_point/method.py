"""A federated primal-dual interior-point method: certified in a dozen rounds.

    minimise Σ_i f_i(w) + h(w)   s.t.   c_i(w) + s_i = 0, s_i > 0 at party i, and the same for the server's and pooled ones

Newton's step on the optimality conditions with s_i μ_i = κ reduces to one d x d system that is a sum over parties. With
W_i = diag(1/(s_i/μ_i + δ)), or 1/δ for an equality:

    A   = Σ_i ∇²f_i + Σ_m μ_im ∇²c_im + J_iᵀ W_i J_i
    A Δw = −Σ_i ∇f_i + J_iᵀ(μ_i − W_i s_i + κ W_i/μ_i + θ W_i (c_i + s_i))
    at the party:   Δμ_i = W_i (θ(c_i + s_i) − s_i + κ/μ_i + J_i Δw),        Δs_i = (κ − s_i μ_i − s_i Δμ_i)/μ_i

    symbol   here                 meaning
    s, μ     Barrier.s, .mu       slacks and multipliers, which stay with their holder
    κ        Server.kappa         what every product s μ is driven to
    δ        barrier.py           1e-7 max(1, ‖∇c‖²): bounds W, which would else drown the curvature of f in rounding
    ρ        Server.rho           the weight of c + s in the merit function
    θ        Step.closing         the part of c + s that a step closes: 1, less in a small ball

One exchange per round: w moves by the whole step, and each party keeps its own s and μ positive. What is tried is judged by

    Φ = f(w) + h(w) − κ Σ log s + ρ Σ|c(w) + s|

and taken back when it is not lower. With its sums every holder says where along the step a slack would have ended, so a
step that left the region is tried again up to its edge, as in a textbook, but only when it has failed; Δs and Δμ shrink with
it. Any other failure, or a model that is not convex, is answered by a smaller ball around w, in which the model is minimised
at the server. h enters exactly, by proximal Newton steps, so that zeros of an l1 term are zeros.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpact.algorithms.interior_point.barrier import (
    TINY,
    Ahead,
    Barrier,
    Call,
    Maxima,
    Sums,
    go,
    look,
    maxima,
    settle,
    stiffness,
    summed,
)
from fedpact.algorithms.parts.descent import choose, newton_target, within
from fedpact.algorithms.prox_al.merit import unpacked
from fedpact.problem.oracle import Oracle
from fedpact.problem.regularizers import FlatRegularizer
from fedpact.protocol.algorithm import Algorithm, Answer, Goal, Info, Status, Told
from fedpact.protocol.messages import Reply
from fedpact.protocol.network import Network, PartyStates
from fedpact.protocol.options import check

SINGULAR = 1e-14  # of its own diagonal is added to A: rounding makes a singular matrix indefinite
SPEED = 1.3  # κ falls at least to this power of the mean product
LEAST = 1e-20  # κ
ARMIJO = 1e-4
ROUNDING = 1e-12  # relative noise in the merit
CREDIT = 20  # steps that may be taken because they lower the augmented Lagrangian, though not the merit
EDGE = 0.995  # of the way to where a slack ends
INWARD = 0.8  # of a ball's radius may go into closing c + s
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


class Model(eqx.Module):
    """What the server knows at w: the objective, and the quadratic model that Newton's step minimises."""

    objective: jax.Array
    slope: jax.Array  # ∇f
    gradient: jax.Array  # without the part that θ multiplies, and that part
    gap: jax.Array
    hessian: jax.Array
    convex: jax.Array


class Step(eqx.Module):
    """Where to go from w."""

    direction: jax.Array  # Δw
    target: jax.Array  # w + Δw, as it was found
    length: jax.Array  # the trial is w + length·Δw
    closing: jax.Array  # θ
    radius: jax.Array  # of the ball that Δw is in


class Server(eqx.Module):
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
    told: Told | None
    server_multipliers: jax.Array
    pooled_multipliers: jax.Array


class InteriorPoint(Algorithm[Server]):
    """The primal-dual interior-point method, for up to a few hundred parameters: d(d+1)/2 + 5d + 17 numbers up per party.

    mu: the multipliers' first value (> 0, default 0.1).
    centering: κ is at most this part (between 0 and 1, default 0.1) of the mean product s μ, and falls faster near the end.
    """

    mu: float = 0.1
    centering: float = 0.1

    def __check_init__(self) -> None:
        check("InteriorPoint", "mu", self.mu, lambda x: x > 0, "the first multipliers μ must be > 0")
        words = "a number between 0 and 1: κ's part of the mean product s μ"
        check("InteriorPoint", "centering", self.centering, lambda x: 0 < x < 1, words)

    # party steps

    def join(self, own: Oracle, state: None, message: jax.Array) -> tuple[PartyState, Reply]:
        """Before the first round: s = 1, which the first evaluation widens to the room that there is."""
        del state
        fresh = Barrier.fresh(own.equality, message.size, self.mu)
        return PartyState(fresh, fresh, message), Reply()

    def step(self, own: Oracle, state: PartyState, message: Call) -> tuple[PartyState, Reply]:
        here = choose(message.accepted, state.there, state.here)
        there, sums, largest = look(own, here, message)
        told = own.disclose(Told(there.c, there.active))
        return PartyState(here, there, message.point), Reply(sums, largest, told)

    def multipliers(self, own: Oracle, state: PartyState, answer: Answer) -> jax.Array:
        del own
        return jnp.where(jnp.all(state.trial == answer.w), state.there.active, state.here.active)

    # server steps

    def init(self, net: Network, w: jax.Array, goal: Goal, key: jax.Array) -> tuple[Server, PartyStates]:
        del key
        w = net.regularizer.prox(w, 0.0)
        _, parties = net.exchange(self.join, None, w)
        own = Barrier.fresh(net.server.equality, w.size, self.mu)
        pooled = Barrier.fresh(net.server.pooled_equality, w.size, self.mu)
        nothing, endless, flat = jnp.asarray(0.0), jnp.asarray(jnp.inf), jnp.zeros_like(w)
        server = Server(
            w=w,
            step=_whole_step(w, w),
            model=Model(endless, flat, flat, flat, jnp.zeros((w.size, w.size)), jnp.asarray(True)),
            kappa=nothing,
            rho=nothing,
            accepted=jnp.asarray(True),
            own=(own, own),
            pooled=(pooled, pooled),
            point=w,
            point_mu=own.active,
            point_nu=pooled.active,
            empty_radius=nothing,
            reach=FARTHEST * (1.0 + jnp.max(jnp.abs(w))),
            k=jnp.zeros((), int),
            credit=jnp.asarray(CREDIT),
            goal=goal,
            status=jnp.asarray(int(Status.running)),
        )
        return server, parties

    def round(self, server: Server, parties: PartyStates, net: Network) -> tuple[Server, PartyStates, RoundInfo]:
        h, first, step = net.regularizer, server.k == 0, server.step
        own, pooled = (choose(server.accepted, *reversed(side)) for side in (server.own, server.pooled))
        equality = net.server.pooled_equality
        point = jnp.where(step.length == 1.0, step.target, server.w + step.length * step.direction)
        call = Call(
            point=point,
            direction=step.direction,
            length=step.length,
            closing=step.closing,
            kappa=server.kappa,
            rho=server.rho,
            nu=pooled.mu,
            moving=~first,
            accepted=server.accepted,
            near=server.goal.feasibility,
        )
        ahead = go(pooled, equality, call)
        call = eqx.tree_at(lambda x: x.nu, call, ahead.mu)

        reply, parties = net.exchange(self.step, parties, call)

        own_there, mine, own_largest = look(net.server, own, call)
        pooled_there, sums, hessian = _whole(jax.tree.map(jnp.add, reply.sum, mine), pooled, ahead, equality, call, h)
        every = (reply.max, own_largest, maxima(ahead, pooled_there, equality))
        largest: Maxima = jax.tree.map(lambda *x: jnp.max(jnp.stack(x)), *every)

        # what the trial is worth
        stationarity = h.distance(point, sums.gradient + sums.pull)
        done = (stationarity <= server.goal.stationarity) & (largest.distance <= server.goal.feasibility)
        empty_radius, empty = _emptiness(server, sums, largest, point, h)
        sound = jnp.isfinite(
            sums.objective + jnp.sum(sums.gradient + sums.fixed + sums.barrier + sums.gap) + jnp.sum(hessian)
        )
        lost = first & ~sound | (jnp.max(jnp.abs(point)) > server.reach)

        # is it better than where the step began?
        objective, model = sums.objective + h.bend(point), server.model
        rho = jnp.maximum(server.rho, 2.0 * largest.full)
        before, after = model.objective + sums.before(rho), objective + sums.after(rho)
        tilt = step.length * model.slope @ step.direction + h.bend(point) - h.bend(server.w)
        slope = jnp.minimum(tilt + step.length * sums.slope(rho), 0.0)
        enough = after <= before + ARMIJO * slope + ROUNDING * (1.0 + jnp.abs(before))
        trusted = ~enough & (server.credit > 0) & (objective + sums.lifted < model.objective)
        better = first | (sound & (enough | trusted))

        def onward() -> tuple[jax.Array, Step, Model, jax.Array, jax.Array]:
            kappa = self._next_kappa(server, sums, largest)
            gradient = sums.gradient + sums.fixed + kappa * sums.barrier
            convex = jnp.isfinite(jnp.linalg.cholesky(hessian)[-1, -1])
            fresh = Model(objective, sums.gradient, gradient, sums.gap, hessian, convex)
            less = jnp.maximum(0.5 * rho, 2.0 * largest.multiplier)
            there = _newton_step(point, fresh, WIDER * step.radius, h)
            nowhere = first & (largest.violation > server.goal.feasibility) & (jnp.max(jnp.abs(sums.gap)) <= TINY)
            aside = h.prox(point + NUDGE * (1.0 + jnp.abs(point)) * jnp.cos(jnp.arange(1.0, 1.0 + point.size)), 0.0)
            return point, choose(nowhere, _whole_step(point, aside), there), fresh, kappa, less

        def back() -> tuple[jax.Array, Step, Model, jax.Array, jax.Array]:
            rise = after - before - slope
            factor = jnp.clip(-0.5 * slope / jnp.where(rise > 0, rise, jnp.inf), 0.1, 0.5)
            factor = jnp.where(jnp.isfinite(after), factor, 0.1)
            return server.w, _nearer(server, factor, largest.blocked, h), model, server.kappa, rho

        w, step, model, kappa, weight = lax.cond(better, onward, back)
        short = step.length * jnp.linalg.norm(step.direction) < NARROWEST * (1.0 + jnp.linalg.norm(server.w))
        stuck = ~better & short
        status = jnp.where(stuck, Status.stalled, Status.running)
        status = jnp.where(lost, Status.diverged, jnp.where(empty, Status.infeasible, status))
        keep = better | done
        info = RoundInfo(
            objective=objective,
            violation=largest.violation,
            stationarity=stationarity,
            kappa=server.kappa,
            length=server.step.length,
            accepted=better,
            told=reply.each,
            server_multipliers=own_there.active,
            pooled_multipliers=pooled_there.active,
        )
        server = Server(
            w=w,
            step=step,
            model=model,
            kappa=kappa,
            rho=weight,
            accepted=better,
            own=(own, own_there),
            pooled=(pooled, pooled_there),
            point=jnp.where(keep, point, server.point),
            point_mu=jnp.where(keep, own_there.active, server.point_mu),
            point_nu=jnp.where(keep, pooled_there.active, server.point_nu),
            empty_radius=empty_radius,
            reach=server.reach,
            k=server.k + 1,
            credit=server.credit - jnp.where(better & trusted, 1, 0),
            goal=server.goal,
            status=jnp.where(done, Status.converged, status),
        )
        return server, parties, info

    def _next_kappa(self, server: Server, sums: Sums, largest: Maxima) -> jax.Array:
        """A part of the mean product, superlinearly less near the end; not far below what the goal needs once that is met.

        Where constraints are still broken it does not run ahead of w.
        """
        mean = sums.products / jnp.maximum(sums.rows, 1.0)
        kappa = jnp.minimum(self.centering * mean, mean**SPEED)
        kappa = jnp.maximum(kappa, jnp.minimum(UNFIT * jnp.minimum(largest.violation, 1.0) ** 2, server.kappa))
        enough = jnp.where(largest.distance > server.goal.feasibility, LEAST, 0.01 * server.goal.feasibility**2)
        return jnp.maximum(kappa, jnp.maximum(enough, LEAST))

    # status and answers

    def status(self, server: Server) -> jax.Array:
        return server.status

    def answer(self, server: Server, net: Network) -> Answer:
        del net
        return Answer(server.point, server.point_mu, server.point_nu, server.empty_radius)

    def aim(self, server: Server, goal: Goal) -> Server:
        return eqx.tree_at(lambda s: (s.goal, s.status), server, (goal, jnp.full((), int(Status.running))))


def _whole_step(w: jax.Array, target: jax.Array) -> Step:
    one = jnp.asarray(1.0)
    return Step(target - w, target, one, one, jnp.asarray(jnp.inf))


def _newton_step(w: jax.Array, model: Model, radius: jax.Array, h: FlatRegularizer) -> Step:
    """To the model's minimum, if that is within the ball."""
    target, _ = newton_target(w, model.gradient + model.gap, _lifted(model), h)
    whole = _whole_step(w, target)
    if h.bent != "none":
        return whole
    far = jnp.linalg.norm(target - w) > radius
    return lax.cond(far, lambda: _step_within(radius, w, model, h), lambda: whole)


def _nearer(server: Server, factor: jax.Array, blocked: jax.Array, h: FlatRegularizer) -> Step:
    """After a trial that was no better: the same step up to the edge of the region, or another in a smaller ball."""
    step, model = server.step, server.model
    edge = EDGE / jnp.maximum(blocked, TINY)
    outside = edge < step.length
    length = jnp.where(outside, jnp.maximum(edge, 0.1 * step.length), factor * step.length)
    line = eqx.tree_at(lambda s: s.length, step, length)
    if h.bent != "none":
        return line
    radius = factor * step.length * jnp.linalg.norm(step.direction)
    return lax.cond(outside & model.convex, lambda: line, lambda: _step_within(radius, server.w, model, h))


def _step_within(radius: jax.Array, w: jax.Array, model: Model, h: FlatRegularizer) -> Step:
    """To where the model is least in a ball; when c + s could not be closed within it, only a part of it is asked for."""
    inward = newton_target(w, model.gap, _lifted(model), h)[0] - w
    closing = jnp.minimum(INWARD * radius / jnp.maximum(jnp.linalg.norm(inward), TINY), 1.0)
    target = within(radius, w, model.gradient + closing * model.gap, model.hessian, h)
    return Step(target - w, target, jnp.asarray(1.0), closing, radius)


def _lifted(model: Model) -> jax.Array:
    """A; where it is not positive definite, shifted until its lowest eigenvalue is as far above zero as it was below."""

    def lift() -> jax.Array:
        lowest = jnp.linalg.eigvalsh(model.hessian)[0]
        return model.hessian + 2.0 * jnp.maximum(-lowest, 0.0) * jnp.eye(model.gap.size)

    return lax.cond(model.convex, lambda: model.hessian, lift)


def _whole(
    sums: Sums, here: Barrier, ahead: Ahead, equality: np.ndarray, call: Call, h: FlatRegularizer
) -> tuple[Barrier, Sums, jax.Array]:
    """The pooled constraints at the trial, all sums with what they and h add, and the whole matrix A."""
    point = call.point
    there = settle(ahead, equality, sums.pooled, sums.pooled_jacobian, call)
    hessian = unpacked(sums.hessian, point.size) + jnp.diag(2 * h.ridge) + stiffness(there, equality)
    hessian = hessian + SINGULAR * jnp.diag(jnp.diag(hessian))
    mine = summed(here, ahead, there, equality, call)
    more = {name: jax.tree.map(jnp.add, getattr(sums, name), part) for name, part in mine.items()}
    more |= {"objective": sums.objective + h.smooth(point), "gradient": sums.gradient + 2 * h.ridge * point}
    return there, dataclasses.replace(sums, **more), hessian


def _emptiness(
    server: Server, sums: Sums, largest: Maxima, point: jax.Array, h: FlatRegularizer
) -> tuple[jax.Array, jax.Array]:
    """For convex constraints no feasible point lies within r = μᵀc/‖Jᵀμ‖ of here.

    A feasible set that is merely far away keeps its distance; where there is none, r grows with the multipliers.
    """
    slope = jnp.linalg.norm(h.inside(point, sums.pull))
    radius = jnp.where(sums.height > 0, sums.height / jnp.maximum(slope, TINY), 0.0)
    height, size = sums.height / jnp.maximum(sums.weight, TINY), 1.0 + jnp.linalg.norm(point)
    before = server.empty_radius
    broken = (height > server.goal.feasibility) & (largest.violation > server.goal.feasibility)
    far = broken & (radius > EMPTY * size) & (server.k > 0)  # at a start constraints may have no slope
    grows = (before > 0) & (radius > GROWN * before) | (radius > ENDLESS * size)
    return jnp.where((before == 0) & far | (far & grows), radius, before), far & grows
