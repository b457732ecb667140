"""The proximal augmented Lagrangian method as it runs, at parties and server; symbols and the paper are in `method.py`."""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax

from fedpact.algorithms.parts.multipliers import complementarity, updated, violation
from fedpact.algorithms.prox_al.first_lengths import at_start, first_lengths
from fedpact.algorithms.prox_al.infeasibility import Probe, increase, verdict, violation_sums
from fedpact.algorithms.prox_al.inner import Inner
from fedpact.algorithms.prox_al.merit import Merit, ServerMerit
from fedpact.algorithms.prox_al.state import (
    AnswerParameters,
    AtAnswer,
    Evaluate,
    Evaluated,
    PartyMaxima,
    PartyState,
    PooledConstraints,
    RoundInfo,
    ServerState,
)
from fedpact.arrays import choose, linalg, xp
from fedpact.problem.flat_regularizer import FlatRegularizer
from fedpact.problem.oracle import Oracle, SlackOracle
from fedpact.protocol import ring
from fedpact.protocol.algorithm import Answer, Begin, Disclosed, FirstParameters, Method, Status
from fedpact.protocol.messages import Reply
from fedpact.protocol.phases import Phase, Phases, ServerData

if TYPE_CHECKING:
    from fedpact.algorithms.prox_al.method import ProxAL

LONGEST = 1e12  # γ beyond which the prox term is lost in rounding
FARTHEST = 1e10  # iterates this large, relative to the start, mean that the objective has no minimum
EMPTY = 1e3  # declare infeasibility when no feasible point lies within this many times 1 + ‖w‖
ENDLESS = 1e12  # times 1 + ‖w‖: so far that it need not grow any more
INACTIVE = 1e-3  # a multiplier that is less than this part of its constraint's room is rounding
LITTLE = 0.25  # β grows where a subproblem leaves more than this part of the violation
HELD_UP = 0.5  # a closing that leaves more than this part of the violation makes us look for infeasibility


class ProxALMethod(Method[ServerState]):
    """ProxAL as it runs."""

    options: "ProxAL"
    inner: Inner
    beta: float  # relative to the problem, but where it runs as printed
    growth: float
    prox_growth: float
    slack: bool  # whether pooled constraints take form (4)

    @property
    def few_rounds(self) -> bool:
        return self.inner.few_rounds

    @property
    def caution(self) -> float:
        return 1.0 if self.options.stop == "printed" else super().caution

    @property
    def round(self) -> Phases:
        return (
            Phase(self.ask, self.step, self.hear),
            Phase(self.probe, self.pull, self.judge, only_if=is_held_up),
        )

    @property
    def closing(self) -> Phases:
        return (Phase(send_answer, pooled_at_answer, self.with_pooled),) if self.slack else ()

    # at a party

    def join(self, own: Oracle, state: None, message: FirstParameters) -> tuple[PartyState, Reply]:
        """Before the first round: μ_i^0."""
        holder, w = self._holder(own), message.parameters
        first = holder.first_multipliers().constraints
        joined = PartyState(first, xp.zeros(()), xp.zeros_like(first), self.inner.join(w))
        if self.options.stop == "printed":
            return joined, Reply()
        return joined, at_start(holder, w)

    def step(self, own: Oracle, state: PartyState, message: Evaluate) -> tuple[PartyState, Reply]:
        """Algorithm 1, client update (once a subproblem is closed), and the party's part of an inner iteration."""
        holder = self._holder(own)
        equality = holder.equality
        closed = updated(state.mu, state.beta, state.constraints, equality)
        mu = xp.where(message.new_subproblem, closed, state.mu)
        merit = Merit(holder, mu, message.penalty, message.prox_length, message.centre, 1.0 / (own.parties + 1))
        inner, values, sums = self.inner.answer(
            merit, state.inner, message.parameters, message.inner, message.new_subproblem
        )
        c = values.constraints
        ahead = merit.multipliers(c)
        change, tolerance = xp.max(xp.abs(ahead - mu), initial=0.0), message.tolerance
        distance, broken = complementarity(ahead, c, equality), violation(c, equality)
        maxima = PartyMaxima(distance / tolerance, broken / tolerance, change)
        m = len(own.program.constraints)
        disclosed = own.disclose(Disclosed(c[:m], ahead[:m], values.objective))
        return PartyState(mu, message.penalty, c, inner), Reply(sums, maxima, disclosed)

    def pull(self, own: Oracle, state: PartyState, message: Probe) -> tuple[PartyState, Reply]:
        """The infeasibility test's sums at the point just evaluated."""
        return state, Reply(violation_sums(self._holder(own), state.mu, state.beta, message))

    def multipliers(self, own: Oracle, state: PartyState, answer: Answer) -> jax.Array:
        mu = state.mu[: own.equality.size]  # form (4) appends multipliers of its slacks
        return updated(mu, state.beta, own(answer.parameters).constraints, own.equality)

    # at the server

    def invite(self, own: ServerData, begin: Begin) -> FirstParameters:
        w = begin.w
        if self.slack:
            w = xp.concatenate([w, xp.zeros(own.parties * len(own.functions.program.pooled))])
        return FirstParameters(self._regularizer(own).prox(w, 0.0))  # w^0 in dom(h)

    def start(self, own: ServerData, begin: Begin, reply: Reply) -> ServerState:
        w = self.invite(own, begin).parameters
        beta, gamma = xp.asarray(self.beta), xp.asarray(self.beta)
        if self.options.stop == "measured":
            holder, ridge = self._holder(own.functions, at_server=True), self._regularizer(own).ridge
            beta, gamma = first_lengths(holder, ridge, w, reply, own.parties, self.beta)
            beta = xp.minimum(beta, self.options.most_beta)
        first = self._holder(own.functions, at_server=True).first_multipliers()
        mu, nu = first.constraints, first.pooled
        return ServerState(
            inner=self.inner.start(w, nu.size),
            centre=w,
            beta=beta,
            gamma=gamma,
            mu=mu,
            nu=nu,
            k=xp.zeros((), int),
            fresh=xp.asarray(True),
            point=w,
            point_mu=mu,
            point_nu=nu,
            closed_violation=xp.asarray(xp.inf),
            radius=xp.asarray(0.0),
            reach=FARTHEST * (1.0 + xp.max(xp.abs(w))),
            goal=begin.goal,
            status=Status.running.as_array(),
        )

    def ask(self, own: ServerData, server: ServerState) -> Evaluate:
        _, point, message = self.inner.propose(server.inner, self._merit(own, server), self._tau(server))
        return Evaluate(point, server.centre, server.beta, server.gamma, server.fresh, server.goal.feasibility, message)

    def hear(self, own: ServerData, server: ServerState, reply: Reply) -> Evaluated:
        merit, tau, goal = self._merit(own, server), self._tau(server), server.goal
        inner, point, _ = self.inner.propose(server.inner, merit, tau)
        inner, progress = self.inner.learn(inner, merit, point, reply.sum, server.fresh)

        # what this point is worth, with the multipliers that it implies
        c, pooled = progress.constraints, progress.pooled
        mu, nu = merit.merit.multipliers(c), merit.pooled_multipliers(pooled)
        equality, pooled_equality = merit.merit.own.equality, merit.merit.own.pooled_equality
        mine = xp.maximum(complementarity(mu, c, equality), complementarity(nu, pooled, pooled_equality))
        distance = xp.maximum(reply.max.complementarity, mine / goal.feasibility)
        mine = xp.maximum(violation(c, equality), violation(pooled, pooled_equality))
        worst = xp.maximum(reply.max.violation, mine / goal.feasibility)
        # all that secure sums tell: so the path is the same without them
        broken = goal.feasibility * ring.power_above(worst)
        solved = progress.settled & ((progress.residual <= tau) | progress.exhausted)  # (10)
        if self.options.stop == "measured":
            w = point[: own.functions.program.shape.size]  # without the slacks of form (4)
            largest = xp.maximum(xp.max(xp.abs(w), initial=0.0), 1.0)
            close = goal.stationarity * xp.maximum(progress.objective / largest, 1.0)  # as the certificate measures
            stationary = progress.stationarity <= close
            done = stationary & (distance <= 1.0)
            # where multipliers alone are too large, a more accurate subproblem would not help
            solved = solved | (progress.settled & stationary & (broken <= goal.feasibility))
        else:  # (11)
            change = xp.max(xp.abs(xp.concatenate([mu - server.mu, nu - server.nu])), initial=0.0)
            change = xp.maximum(reply.max.multiplier_change, change)
            moved = xp.max(xp.abs(point - server.centre)) / server.beta + tau
            done = solved & (moved <= goal.stationarity) & (change <= server.beta * goal.feasibility)
        ahead = server.fresh & xp.any(point != server.centre)  # a first trial that need not be any good
        lost = ~ahead & (~xp.isfinite(progress.residual) & server.fresh | (xp.max(xp.abs(point)) > server.reach))
        closing, keep = solved & ~done & ~lost, (progress.settled | done) & xp.isfinite(progress.residual)
        info = RoundInfo(
            objective=progress.objective,
            violation=goal.feasibility * worst,
            stationarity=progress.stationarity,
            outer=server.k,
            beta=server.beta,
            residual=progress.residual,
            tau=tau,
            disclosed=reply.per_party,
            server_multipliers=mu,
            pooled_multipliers=nu,
        )
        after = dataclasses.replace(
            server,
            inner=inner,
            point=xp.where(keep, point, server.point),
            point_mu=xp.where(keep, mu, server.point_mu),
            point_nu=xp.where(keep, nu, server.point_nu),
            fresh=xp.asarray(False),
            status=xp.where(done, Status.converged, xp.where(lost, Status.diverged, Status.running)),
        )
        held_up = closing & (broken > xp.maximum(goal.feasibility, HELD_UP * server.closed_violation))
        return Evaluated(after, info, broken, closing, held_up)

    def probe(self, own: ServerData, carry: Evaluated) -> Probe:
        """Ask for the sums that tell how far away a feasible point must be."""
        server, holder = carry.server, self._holder(own.functions, at_server=True)
        return Probe(server.point, increase(server.point_nu - server.nu, holder.pooled_equality))

    def judge(self, own: ServerData, carry: Evaluated, reply: Reply) -> Evaluated:
        server, probe = carry.server, self.probe(own, carry)
        own_sums = violation_sums(self._holder(own.functions, at_server=True), server.mu, server.beta, probe)
        level, radius = verdict(jax.tree.map(xp.add, reply.sum, own_sums), probe, self._regularizer(own))
        # A feasible set that is merely far away keeps its distance; where there is none the radius grows with β.
        size = 1.0 + linalg.norm(server.point)
        grows = (server.radius > 0) & (radius > 2.0 * server.radius) | (radius > ENDLESS * size)
        empty = (level > server.goal.feasibility) & (radius > EMPTY * size) & grows
        status = xp.where(empty, Status.infeasible, server.status)
        return dataclasses.replace(carry, server=dataclasses.replace(server, radius=radius, status=status))

    def finish(self, own: ServerData, carry: Evaluated) -> tuple[ServerState, RoundInfo]:
        closed = self._closed(carry.server, carry.broken)
        return choose(carry.closing, closed, carry.server), carry.info

    def _closed(self, server: ServerState, broken: jax.Array) -> ServerState:
        """Algorithm 1, server update: μ_0 and ν; the parties update theirs at the beginning of the next round."""
        slow = broken > LITTLE * server.closed_violation
        grown = xp.minimum(self.growth * server.beta, self.options.most_beta)
        beta = xp.where(slow, grown, server.beta)
        return dataclasses.replace(
            server,
            inner=self.inner.reopen(server.inner, server.point, beta / server.beta),
            centre=server.point,
            beta=beta,
            gamma=xp.minimum(self.prox_growth * server.gamma, LONGEST),
            mu=server.point_mu,
            nu=server.point_nu,
            k=server.k + 1,
            fresh=xp.asarray(True),
            closed_violation=broken,
        )

    def renewed(self, own: ServerData, server: ServerState) -> ServerState:
        """A new subproblem around the last settled point, with its multipliers."""
        return dataclasses.replace(
            server,
            inner=self.inner.reopen(server.inner, server.point, xp.ones(())),
            centre=server.point,
            mu=server.point_mu,
            nu=server.point_nu,
            fresh=xp.asarray(True),
            closed_violation=xp.asarray(xp.inf),
            radius=xp.asarray(0.0),
            status=Status.running.as_array(),
        )

    def with_pooled(self, own: ServerData, server: ServerState, reply: Reply) -> AtAnswer:
        w = server.point[: own.functions.program.shape.size]
        return AtAnswer(server, reply.sum.pooled_constraints + own.functions(w).pooled)

    def answer(self, own: ServerData, carry: ServerState | AtAnswer) -> Answer:
        server = carry if isinstance(carry, ServerState) else carry.server
        if not self.slack:
            return Answer(server.point, server.point_mu, server.point_nu, server.radius)
        # the server's rows for Σ s_i carry the pooled multipliers, s follows w
        program = own.functions.program
        w, (mu, nu) = server.point[: program.shape.size], xp.split(server.point_mu, [len(program.constraints)])
        if isinstance(carry, ServerState):
            return Answer(w, mu, nu, server.radius)
        # slacks may touch where the sum itself has room: no multiplier there
        room = -carry.pooled
        inactive = (room > server.goal.feasibility) & (nu < INACTIVE * room)
        nu = xp.where(~own.functions.pooled_equality & inactive, 0.0, nu)
        return Answer(w, mu, nu, server.radius)

    # small pieces

    def _holder(self, own: Oracle, at_server: bool = False) -> Oracle | SlackOracle:
        return SlackOracle(own, at_server) if self.slack else own

    def _regularizer(self, own: ServerData) -> FlatRegularizer:
        return (
            own.regularizer.padded(own.parties * len(own.functions.program.pooled)) if self.slack else own.regularizer
        )

    def _merit(self, own: ServerData, server: ServerState) -> ServerMerit:
        holder = self._holder(own.functions, at_server=True)
        merit = Merit(holder, server.mu, server.beta, server.gamma, server.centre, 1.0 / (own.parties + 1))
        return ServerMerit(merit, server.nu, self._regularizer(own))

    def _tau(self, server: ServerState) -> jax.Array:
        return self.options.tolerances(server.k.astype(server.beta.dtype), server.goal.stationarity)


def is_held_up(own: ServerData, carry: Evaluated) -> jax.Array:
    return carry.held_up


def send_answer(own: ServerData, server: ServerState) -> AnswerParameters:
    return AnswerParameters(server.point[: own.functions.program.shape.size])


def pooled_at_answer(own: Oracle, state: Any, message: AnswerParameters) -> tuple[Any, Reply]:
    """A party's part of the pooled constraints at the answer."""
    return state, Reply(sum=PooledConstraints(own(message.parameters).pooled))
