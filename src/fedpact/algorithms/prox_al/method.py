"""A proximal augmented Lagrangian method for federated learning with global, local and coupled constraints.

    minimise Σ_i f_i(w) + h(w)   s.t.   c_0(w) <= 0 at the server,  c_i(w) <= 0 at party i,  Σ_i c̃_i(w) <= 0      (3), (5)

C. He, L. Peng, J. Sun: Federated Learning with Convex Global and Local Constraints. TMLR 2024. Algorithm 1; the inner
solvers are in `inner/`.

    symbol   here                  meaning
    w^k      Server.centre         outer iterate, centre of the prox term
    μ_i      PartyState.mu         multipliers of party i, which stay with it
    μ_0, ν   Server.mu, Server.nu  multipliers of the server's own and of the pooled constraints
    β, τ_k   Server.beta, tau      penalty; accuracy of the k-th subproblem
    P_i      merit.Merit           (13), (14)

Where we leave the paper. β may grow, since a fixed one stalls at 1e-5 on monks-1. τ_k is geometric by default. And a run
ends as soon as a point with its multipliers μ⁺(w) meets Definition 1, which every round measures, rather than by (11),
which waits for τ_k: `ProxAL.as_printed()` has Algorithm 1 as it stands.
"""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from fedpact.algorithms.parts.descent import choose
from fedpact.algorithms.prox_al.admm import ADMM
from fedpact.algorithms.prox_al.infeasibility import Probe, pull, rise, verdict
from fedpact.algorithms.prox_al.inner import Inner
from fedpact.algorithms.prox_al.lbfgs import LBFGS
from fedpact.algorithms.prox_al.merit import Merit, ServerMerit, normal_distance, updated, violation
from fedpact.algorithms.prox_al.newton import Newton
from fedpact.algorithms.prox_al.tolerances import Geometric, InverseSquare, Tolerances
from fedpact.federation.setting import Setting
from fedpact.problem.oracle import Oracle, SlackOracle
from fedpact.problem.regularizers import FlatRegularizer
from fedpact.protocol.algorithm import Algorithm, Answer, Goal, Info, Status, Told
from fedpact.protocol.messages import Reply
from fedpact.protocol.network import Network, PartyStates
from fedpact.protocol.options import check

NEWTON_UP_TO = 300  # parameters; above, a Hessian is too much to send and to factor
LONGEST = 1e12  # γ beyond which the prox term is lost in rounding
FARTHEST = 1e10  # iterates this large, relative to the start, mean that the objective has no minimum
EMPTY = 1e3  # declare infeasibility when no feasible point lies within this many times 1 + ‖w‖
ENDLESS = 1e12  # times 1 + ‖w‖: so far that it need not grow any more
INACTIVE = 1e-3  # a multiplier that is less than this part of its constraint's room is rounding
HELD_UP = 0.5  # a closing that leaves more than this part of the violation makes us look for infeasibility

# messages


class Call(eqx.Module):
    """From the server, every round."""

    point: jax.Array  # what to evaluate
    centre: jax.Array  # w^k
    beta: jax.Array
    gamma: jax.Array
    fresh: jax.Array  # the last subproblem was closed at the point evaluated last: update μ first (line 4)
    inner: Any


class Maxima(eqx.Module):
    distance: jax.Array  # Definition 1's second number for this party
    violation: jax.Array
    change: jax.Array  # ‖μ⁺ − μ‖∞, for (11)


# states


class PartyState(eqx.Module):
    mu: jax.Array
    beta: jax.Array
    constraints: jax.Array  # at the point evaluated last
    inner: Any


class Server(eqx.Module):
    inner: Any
    centre: jax.Array
    beta: jax.Array
    gamma: jax.Array
    mu: jax.Array
    nu: jax.Array
    k: jax.Array
    fresh: jax.Array
    point: jax.Array  # the last settled point, and the server's μ⁺ and ν⁺ there
    point_mu: jax.Array
    point_nu: jax.Array
    closed_violation: jax.Array  # at the end of the last subproblem
    radius: jax.Array
    reach: jax.Array
    goal: Goal
    status: jax.Array


class RoundInfo(Info):
    outer: jax.Array
    beta: jax.Array
    residual: jax.Array
    tau: jax.Array
    told: Told | None
    server_multipliers: jax.Array
    pooled_multipliers: jax.Array


# options


class ProxAL(Algorithm[Server]):
    """Algorithm 1 with any inner solver.

    inner: Newton(), LBFGS(), ADMM() or another `Inner`; default by size: Newton up to 300 parameters, L-BFGS above.
    beta: the penalty β > 0 (default 10), the same for all constraints.
    growth: β is multiplied by this (>= 1, default 3) when a subproblem left more than a quarter of the violation, up to
        `most_beta` (default 1e7).
    prox_growth: the length γ of the prox term starts at β and is multiplied by this (>= 1) with every subproblem. The
        paper keeps γ = β, which makes a small β creep and a large one ill-conditioned. Default: the inner solver's own.
    tolerances: τ_k, Geometric() or InverseSquare(s).
    coupling: how pooled constraints are kept: "direct" (their sum, at the server), "slack" (form (4)), default the first
        that the inner solver can.
    stop: "measured" (Definition 1 at any evaluated point) or "printed" (criterion (11)).
    """

    inner: Inner | None = None
    beta: float = 10.0
    growth: float = 3.0
    most_beta: float = 1e7
    prox_growth: float | None = None
    tolerances: Tolerances = Geometric()
    coupling: Literal["direct", "slack"] | None = None
    stop: Literal["measured", "printed"] = "measured"

    def __check_init__(self) -> None:
        beta, growth = self.beta, self.growth
        check("ProxAL", "beta", beta, lambda x: x > 0, "beta must be > 0; it is the penalty β of Algorithm 1")
        check("ProxAL", "growth", growth, lambda x: x >= 1, "growth must be >= 1; β is multiplied by it")
        check("ProxAL", "most_beta", self.most_beta, lambda x: x >= beta, "most_beta must be at least beta")
        if self.prox_growth is not None:
            words = "prox_growth must be >= 1; γ is multiplied by it"
            check("ProxAL", "prox_growth", self.prox_growth, lambda x: x >= 1, words)
        if not isinstance(self.tolerances, Tolerances):
            raise TypeError(
                f"ProxAL(tolerances={self.tolerances!r}): a schedule of τ_k, Geometric() or InverseSquare()"
            )
        if self.inner is not None and not isinstance(self.inner, Inner):
            raise TypeError(f"ProxAL(inner={self.inner!r}): an inner solver is Newton(), LBFGS() or ADMM()")
        if self.coupling not in (None, "direct", "slack"):
            raise ValueError(f"ProxAL(coupling={self.coupling!r}): 'direct' or 'slack', or None for the solver's own")
        if self.inner is not None and self.inner.needs_slacks and self.coupling == "direct":
            raise ValueError(f"{type(self.inner).__name__} cannot couple parties directly; use coupling='slack'")
        if self.stop not in ("measured", "printed"):
            raise ValueError(f"ProxAL(stop={self.stop!r}): 'measured' or 'printed'")

    @classmethod
    def as_printed(cls, beta: float = 300.0, s: float = 0.001, rho: float = 0.01, q: float = 0.5) -> "ProxAL":
        """Algorithms 1 and 2 as the paper prints them, with the settings of its Neyman-Pearson experiment."""
        return cls(ADMM.as_printed(rho=rho, q=q), beta, 1.0, beta, 1.0, InverseSquare(s), "slack", "printed")

    def prepared(self, setting: Setting) -> "ProxAL":
        inner = self.inner or (Newton() if setting.size <= NEWTON_UP_TO else LBFGS())
        coupling = self.coupling or ("slack" if inner.needs_slacks else "direct")
        slacks = setting.parties * setting.pooled if coupling == "slack" else 0
        inner = inner.prepared(setting.size + slacks)
        gamma = self.prox_growth or inner.prox_growth
        return ProxAL(inner, self.beta, self.growth, self.most_beta, gamma, self.tolerances, coupling, self.stop)

    @property
    def solver(self) -> Inner:
        assert self.inner is not None  # `prepared` has chosen one
        return self.inner

    # party steps

    def join(self, own: Oracle, state: None, message: jax.Array) -> tuple[PartyState, Reply]:
        """Before the first round: μ_i = 0."""
        del state
        nothing = jnp.zeros(self._holder(own).equality.size)
        return PartyState(nothing, jnp.asarray(self.beta), nothing, self.solver.join(message)), Reply()

    def step(self, own: Oracle, state: PartyState, message: Call) -> tuple[PartyState, Reply]:
        """Algorithm 1, client update (once a subproblem is closed), and the party's part of an inner iteration."""
        holder = self._holder(own)
        equality = holder.equality
        closed = updated(state.mu, state.beta, state.constraints, equality)
        mu = jnp.where(message.fresh, closed, state.mu)
        merit = Merit(holder, mu, message.beta, message.gamma, message.centre, 1.0 / (own.parties + 1))
        inner, values, sums = self.solver.answer(merit, state.inner, message.point, message.inner, message.fresh)
        c = values.constraints
        ahead = merit.multipliers(c)
        change = jnp.max(jnp.abs(ahead - mu), initial=0.0)
        maxima = Maxima(normal_distance(ahead, c, equality), violation(c, equality), change)
        m = len(own.program.constraints)
        told = own.disclose(Told(c[:m], ahead[:m]))
        return PartyState(mu, message.beta, c, inner), Reply(sums, maxima, told)

    def pull(self, own: Oracle, state: PartyState, message: Probe) -> tuple[PartyState, Reply]:
        """The infeasibility test's sums at the point just evaluated."""
        return state, Reply(pull(self._holder(own), state.mu, state.beta, message))

    def multipliers(self, own: Oracle, state: PartyState, answer: Answer) -> jax.Array:
        mu = state.mu[: own.equality.size]  # form (4) appends multipliers of its slacks
        return updated(mu, state.beta, own(answer.w).constraints, own.equality)

    # server steps

    def init(self, net: Network, w: jax.Array, goal: Goal, key: jax.Array) -> tuple[Server, PartyStates]:
        del key
        pooled = len(net.server.program.pooled)
        if self.coupling == "slack":
            w = jnp.concatenate([w, jnp.zeros(net.parties * pooled)])
            pooled = 0
        w = self._regularizer(net).prox(w, 0.0)  # w^0 in dom(h)
        _, parties = net.exchange(self.join, None, w)
        mu, nu = jnp.zeros(self._holder(net.server, at_server=True).equality.size), jnp.zeros(pooled)
        server = Server(
            inner=self.solver.start(w, net.parties, pooled),
            centre=w,
            beta=jnp.asarray(self.beta),
            gamma=jnp.asarray(self.beta),
            mu=mu,
            nu=nu,
            k=jnp.zeros((), int),
            fresh=jnp.asarray(True),
            point=w,
            point_mu=mu,
            point_nu=nu,
            closed_violation=jnp.asarray(jnp.inf),
            radius=jnp.asarray(0.0),
            reach=FARTHEST * (1.0 + jnp.max(jnp.abs(w))),
            goal=goal,
            status=jnp.asarray(int(Status.running)),
        )
        return server, parties

    def round(self, server: Server, parties: PartyStates, net: Network) -> tuple[Server, PartyStates, RoundInfo]:
        own = self._own(server, net)
        tau = self._tau(server)
        inner, point, message = self.solver.ask(server.inner, own, tau)
        call = Call(point, server.centre, server.beta, server.gamma, server.fresh, message)
        reply, parties = net.exchange(self.step, parties, call)
        inner, progress = self.solver.learn(inner, own, point, reply.sum, server.fresh)

        # what this point is worth, with the multipliers that it implies
        mu = own.merit.multipliers(progress.constraints)
        nu = own.pooled_multipliers(progress.pooled)
        equality, pooled_equality = own.merit.own.equality, own.merit.own.pooled_equality
        distance = jnp.maximum(
            jnp.maximum(reply.max.distance, normal_distance(mu, progress.constraints, equality)),
            normal_distance(nu, progress.pooled, pooled_equality),
        )
        broken = jnp.maximum(
            jnp.maximum(reply.max.violation, violation(progress.constraints, equality)),
            violation(progress.pooled, pooled_equality),
        )
        solved = progress.settled & ((progress.residual <= tau) | progress.exhausted)  # (10)
        if self.stop == "measured":
            done = (progress.stationarity <= server.goal.stationarity) & (distance <= server.goal.feasibility)
        else:  # (11)
            change = jnp.max(jnp.abs(jnp.concatenate([mu - server.mu, nu - server.nu])), initial=0.0)
            change = jnp.maximum(reply.max.change, change)
            moved = jnp.max(jnp.abs(point - server.centre)) / server.beta + tau
            done = solved & (moved <= server.goal.stationarity) & (change <= server.beta * server.goal.feasibility)
        lost = ~jnp.isfinite(progress.residual) & server.fresh | (jnp.max(jnp.abs(point)) > server.reach)
        keep = progress.settled | done
        server = eqx.tree_at(
            lambda s: (s.inner, s.point, s.point_mu, s.point_nu, s.fresh, s.status),
            server,
            (
                inner,
                jnp.where(keep, point, server.point),
                jnp.where(keep, mu, server.point_mu),
                jnp.where(keep, nu, server.point_nu),
                jnp.asarray(False),
                jnp.where(done, Status.converged, jnp.where(lost, Status.diverged, Status.running)),
            ),
        )
        info = RoundInfo(
            objective=progress.objective,
            violation=broken,
            stationarity=progress.stationarity,
            outer=server.k,
            beta=server.beta,
            residual=progress.residual,
            tau=tau,
            told=reply.each,
            server_multipliers=mu,
            pooled_multipliers=nu,
        )
        closing = solved & ~done & ~lost
        held_up = closing & (broken > jnp.maximum(server.goal.feasibility, HELD_UP * server.closed_violation))
        server, parties = net.when(held_up, self._look_for_emptiness, server, parties)
        server = choose(closing, self._close(server, broken), server)
        return server, parties, info

    def _close(self, server: Server, broken: jax.Array) -> Server:
        """Algorithm 1, server update: μ_0 and ν; the parties update theirs at the beginning of the next round."""
        slow = broken > 0.25 * server.closed_violation
        beta = jnp.where(slow, jnp.minimum(self.growth * server.beta, self.most_beta), server.beta)
        return eqx.tree_at(
            lambda s: (s.inner, s.centre, s.beta, s.gamma, s.mu, s.nu, s.k, s.fresh, s.closed_violation),
            server,
            (
                self.solver.reopen(server.inner, server.point, beta != server.beta),
                server.point,
                beta,
                jnp.minimum((self.prox_growth or 1.0) * server.gamma, LONGEST),
                server.point_mu,
                server.point_nu,
                server.k + 1,
                jnp.asarray(True),
                broken,
            ),
        )

    def _look_for_emptiness(self, net: Network, server: Server, parties: PartyStates) -> tuple[Server, PartyStates]:
        """Ask for the sums that tell how far away a feasible point must be."""
        holder = self._holder(net.server, at_server=True)
        probe = Probe(server.point, rise(server.point_nu - server.nu, holder.pooled_equality))
        reply, parties = net.exchange(self.pull, parties, probe)
        mine = pull(holder, server.mu, server.beta, probe)
        height, radius = verdict(jax.tree.map(jnp.add, reply.sum, mine), probe, self._regularizer(net))
        # A feasible set that is merely far away keeps its distance; where there is none the radius grows with β.
        size = 1.0 + jnp.linalg.norm(server.point)
        grows = (server.radius > 0) & (radius > 2.0 * server.radius) | (radius > ENDLESS * size)
        far = radius > EMPTY * size
        empty = (height > server.goal.feasibility) & far & grows
        status = jnp.where(empty, int(Status.infeasible), server.status)
        return eqx.tree_at(lambda s: (s.radius, s.status), server, (radius, status)), parties

    # status and answers

    def status(self, server: Server) -> jax.Array:
        return server.status

    def answer(self, server: Server, net: Network) -> Answer:
        w, mu, nu = server.point, server.point_mu, server.point_nu
        if self.coupling == "slack":  # the server's rows for Σ s_i carry the pooled multipliers, s follows w
            own = net.server.program
            held = len(own.constraints)
            w, mu, nu = w[: own.shape.size], mu[:held], mu[held:]
            # slacks may touch where the sum itself has room: no multiplier there
            reply, _ = net.exchange(_contribution, None, w)
            room = -(reply.sum + net.server(w).pooled)
            inactive = (room > server.goal.feasibility) & (nu < INACTIVE * room)
            nu = jnp.where(~net.server.pooled_equality & inactive, 0.0, nu)
        return Answer(w, mu, nu, server.radius)

    def aim(self, server: Server, goal: Goal) -> Server:
        return eqx.tree_at(lambda s: (s.goal, s.status), server, (goal, jnp.asarray(int(Status.running))))

    # small pieces

    def _holder(self, own: Oracle, at_server: bool = False) -> Oracle | SlackOracle:
        return SlackOracle(own, at_server) if self.coupling == "slack" and len(own.program.pooled) else own

    def _regularizer(self, net: Network) -> FlatRegularizer:
        if self.coupling == "slack" and len(net.server.program.pooled):
            return net.regularizer.padded(net.parties * len(net.server.program.pooled))
        return net.regularizer

    def _own(self, server: Server, net: Network) -> ServerMerit:
        holder = self._holder(net.server, at_server=True)
        merit = Merit(holder, server.mu, server.beta, server.gamma, server.centre, 1.0 / (net.parties + 1))
        return ServerMerit(merit, server.nu, self._regularizer(net))

    def _tau(self, server: Server) -> jax.Array:
        return self.tolerances(server.k.astype(server.beta.dtype), server.goal.stationarity)


def _contribution(own: Oracle, state: None, message: jax.Array) -> tuple[None, Reply]:
    """A party's step: its part of the pooled constraints at the answer."""
    return state, Reply(sum=own(message).pooled)
