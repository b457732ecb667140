"""A proximal augmented Lagrangian method for federated learning with global, local and coupled constraints.

    minimise Σ_i f_i(w) + h(w)   s.t.   c_0(w) <= 0 at the server,  c_i(w) <= 0 at party i,  Σ_i c̃_i(w) <= 0      (3), (5)

C. He, L. Peng, J. Sun: Federated Learning with Convex Global and Local Constraints. TMLR 2024. Algorithm 1; the inner
solvers are in `newton.py`, `lbfgs.py` and `admm.py`.

    symbol   here                 meaning
    w^k      ServerState.centre   outer iterate, centre of the prox term
    μ_i      PartyState.mu        multipliers of party i, which stay with it
    μ_0, ν   ServerState.mu, .nu  multipliers of the server's own and of the pooled constraints
    β, τ_k   beta, tau            penalty; accuracy of the k-th subproblem
    P_i      merit.Merit          (13), (14)

Where we leave the paper. The first β and γ are relative to curvature and slopes at the start. β may grow, since a fixed one
stalls at 1e-5 on monks-1. τ_k is geometric by default. And a run
ends as soon as a point with its multipliers μ⁺(w) meets Definition 1, which every round measures, rather than by (11),
which waits for τ_k: `ProxAL.as_printed()` has Algorithm 1 as it stands.
"""

import dataclasses
from typing import Any, ClassVar, Literal

import jax

from fedpact.algorithms.parts.counted_rates import with_counted_rates
from fedpact.algorithms.parts.in_units import in_units
from fedpact.algorithms.parts.multipliers import complementarity, updated, violation
from fedpact.algorithms.prox_al.admm import ADMM
from fedpact.algorithms.prox_al.first_lengths import at_start, first_lengths
from fedpact.algorithms.prox_al.infeasibility import Probe, increase, verdict, violation_sums
from fedpact.algorithms.prox_al.inner import Inner
from fedpact.algorithms.prox_al.lbfgs import LBFGS
from fedpact.algorithms.prox_al.merit import Merit, ServerMerit
from fedpact.algorithms.prox_al.newton import Newton
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
from fedpact.algorithms.prox_al.tolerances import Geometric, InverseSquare, Tolerances
from fedpact.arrays import choose, linalg, xp
from fedpact.federation.setting import Setting
from fedpact.problem.atoms import Scope
from fedpact.problem.flat_regularizer import FlatRegularizer
from fedpact.problem.oracle import Oracle, SlackOracle
from fedpact.protocol import ring
from fedpact.protocol.algorithm import Algorithm, Answer, Begin, Disclosed, FirstParameters, Method, Status
from fedpact.protocol.messages import Reply
from fedpact.protocol.options import check
from fedpact.protocol.phases import Phase, Phases, ServerData

NEWTON_UP_TO = 300  # parameters; above, a Hessian is too much to send and to factor
LONGEST = 1e12  # γ beyond which the prox term is lost in rounding
FARTHEST = 1e10  # iterates this large, relative to the start, mean that the objective has no minimum
EMPTY = 1e3  # declare infeasibility when no feasible point lies within this many times 1 + ‖w‖
ENDLESS = 1e12  # times 1 + ‖w‖: so far that it need not grow any more
INACTIVE = 1e-3  # a multiplier that is less than this part of its constraint's room is rounding
LITTLE = 0.25  # β grows where a subproblem leaves more than this part of the violation
HELD_UP = 0.5  # a closing that leaves more than this part of the violation makes us look for infeasibility

# options


class ProxAL(Algorithm):
    """Algorithm 1 with any inner solver.

    - `inner`: Newton(), LBFGS(), ADMM() or another `Inner` (default by size: Newton up to 300 parameters, L-BFGS above).
    - `beta`: the penalty β > 0, the same for all constraints, relative to the problem: 1 makes β‖∇c‖² at the start as large as
      the objective's curvature there (default: the inner solver's own, 0.05 for L-BFGS, else 10); as printed, β itself.
    - `growth`: β is multiplied by this when a subproblem left more than a quarter of the violation (>= 1, default: the inner
      solver's own, 5 for Newton, else 3).
    - `most_beta`: β grows up to this (>= beta, default 1e7).
    - `prox_growth`: the length γ of the prox term is multiplied by this with every subproblem (>= 1, default: the inner solver's
      own). The paper keeps γ = β, which makes a small β creep and a large one ill-conditioned.
    - `tolerances`: τ_k, Geometric() (default) or InverseSquare(s).
    - `coupling`: how pooled constraints are kept: "direct" (their sum, at the server) or "slack" (form (4)); default: the first
      that the inner solver can.
    - `stop`: "measured" (Definition 1 at any evaluated point, default) or "printed" (criterion (11)).
    """

    inner: Inner | None = None
    beta: float | None = None
    growth: float | None = None
    most_beta: float = 1e7
    prox_growth: float | None = None
    tolerances: Tolerances = Geometric()
    coupling: Literal["direct", "slack"] | None = None
    stop: Literal["measured", "printed"] = "measured"

    keeps: ClassVar[frozenset[Scope]] = frozenset({"party", "pooled", "server"})
    begins_with_multipliers: ClassVar[bool] = True
    counts_rates: ClassVar[bool] = True
    from_several_starts: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_outer(self, self.beta, self.growth, self.prox_growth, self.tolerances, self.stop)
        words = "most_beta must be at least beta, and > 0"
        check("ProxAL", "most_beta", self.most_beta, lambda x: x > 0 and x >= (self.beta or 0.0), words)
        if self.inner is not None and not isinstance(self.inner, Inner):
            raise TypeError(f"ProxAL(inner={self.inner!r}): an inner solver is Newton(), LBFGS() or ADMM()")
        if self.coupling not in (None, "direct", "slack"):
            raise ValueError(f"ProxAL(coupling={self.coupling!r}): 'direct' or 'slack', or None for the solver's own")
        if self.inner is not None and self.inner.needs_slacks and self.coupling == "direct":
            raise ValueError(f"{type(self.inner).__name__} cannot couple parties directly; use coupling='slack'")

    @classmethod
    def as_printed(
        cls,
        beta: float = 300.0,
        s: float = 0.001,
        rho: float | tuple[float, ...] = 0.01,
        q: float = 0.5,
        exact: bool = False,
    ) -> "ProxAL":
        """Algorithms 1 and 2 as the paper prints them, with the settings of its Neyman-Pearson experiment.

        - `exact`: whether (18) and (19) are solved as accurately as float64 can, as in the paper's section E.2 (default: no).
        """
        return cls(
            ADMM.as_printed(rho=rho, q=q, exact=exact), beta, 1.0, beta, 1.0, InverseSquare(s), "slack", "printed"
        )

    def solver(self, setting: Setting) -> Inner:
        """The inner solver: the given one, or the one for this many parameters."""
        return self.inner or (Newton() if setting.size <= NEWTON_UP_TO else LBFGS())

    def sends_hessians(self, setting: Setting) -> bool:
        return getattr(self.solver(setting), "uses_hessian", False)

    def title(self, setting: Setting) -> str:
        return f"ProxAL with {type(self.solver(setting)).__name__}"

    def usual_rounds(self, setting: Setting) -> tuple[int, int] | None:
        return self.solver(setting).usual_rounds

    def bound(self, setting: Setting) -> Method[Any]:
        inner = self.solver(setting)
        slack = (self.coupling or ("slack" if inner.needs_slacks else "direct")) == "slack" and setting.pooled > 0
        slacks = setting.parties * setting.pooled if slack else 0
        inner = inner.sized(setting.size + slacks, setting.parties)
        beta = inner.penalty if self.beta is None else self.beta
        growth, prox_growth = self.growth or inner.growth, self.prox_growth or inner.prox_growth
        method = ProxALMethod(self, inner, beta, growth, prox_growth, slack)
        in_its_units = in_units(method, setting) if self.stop == "measured" else method  # as printed: the problem's own
        return with_counted_rates(in_its_units, setting)


def check_outer(
    options: Algorithm,
    beta: float | None,
    growth: float | None,
    prox_growth: float | None,
    tolerances: Tolerances,
    stop: str,
) -> None:
    """The options of the outer iteration; None is left to the inner solver."""
    owner = type(options).__name__
    if beta is not None:
        check(owner, "beta", beta, lambda x: x > 0, "beta must be > 0; it is the penalty β of Algorithm 1")
    if growth is not None:
        check(owner, "growth", growth, lambda x: x >= 1, "growth must be >= 1; β is multiplied by it")
    if prox_growth is not None:
        check(owner, "prox_growth", prox_growth, lambda x: x >= 1, "prox_growth must be >= 1; γ is multiplied by it")
    if not isinstance(tolerances, Tolerances):
        raise TypeError(f"{owner}(tolerances={tolerances!r}): a schedule of τ_k, Geometric() or InverseSquare()")
    if stop not in ("measured", "printed"):
        raise ValueError(f"{owner}(stop={stop!r}): 'measured' or 'printed'")


class ProxALMethod(Method[ServerState]):
    """ProxAL as it runs."""

    options: ProxAL
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
        disclosed = own.disclose(Disclosed(c[:m], ahead[:m]))
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
        lost = ~xp.isfinite(progress.residual) & server.fresh | (xp.max(xp.abs(point)) > server.reach)
        closing, keep = solved & ~done & ~lost, progress.settled | done
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
            inner=self.inner.reopen(server.inner, server.point, beta != server.beta),
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
            inner=self.inner.reopen(server.inner, server.point, xp.asarray(True)),
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
        if isinstance(carry, ServerState):
            return Answer(carry.point, carry.point_mu, carry.point_nu, carry.radius)
        # the server's rows for Σ s_i carry the pooled multipliers, s follows w
        server, program = carry.server, own.functions.program
        w, (mu, nu) = server.point[: program.shape.size], xp.split(server.point_mu, [len(program.constraints)])
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
