"""A primal-dual gradient method for pooled constraints: the linearised augmented Lagrangian method with steps that it finds.

    minimise f(w) + h(w)   s.t.   c(w) <= 0 (or == 0),      f and c sums over the parties, h with a proximal operator

    μ⁺ = [μ + β c(w)]₊                                      (unprojected for equalities)
    g  = ∇f(w) + ∇c(w)ᵀ μ⁺
    w⁺ = prox_{τh}(w − τ g),     τ = step / √(Σ ‖g − g of the round before‖²),   the first of these ‖g‖²

    Y. Xu, First-order methods for constrained convex programming based on linearized augmented Lagrangian function, INFORMS
    Journal on Optimization 3(1), 2021; the steps as in A. Rakhlin and K. Sridharan, Online learning with predictable
    sequences, COLT 2013.

    symbol   here      meaning
    β        penalty   of the augmented Lagrangian
    τ        length    of a step; it falls while gradients change, and stays where they settle
    μ        mu        multipliers

One exchange a round asks every party for values and gradients of its functions on all of its rows, and for nothing else. That
is what makes it fit for differential privacy: what one row adds to the answer can be clipped, noise on it can be accounted,
and everything else is computed from noisy answers. The mean of the points then has less noise than the last of them:

    w̄⁺ = w̄ + 4/(t + 3) (w⁺ − w̄)  in round t: weights of about t³      (Shamir and Zhang, ICML 2013)
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedpact.algorithms.parts.multipliers import complementarity, updated, violation
from fedpact.arrays import choose
from fedpact.federation.setting import Setting
from fedpact.problem.atoms import Scope
from fedpact.problem.oracle import Oracle, derivatives
from fedpact.problem.private_oracle import PrivateOracle
from fedpact.protocol.algorithm import Algorithm, Answer, Begin, Goal, Info, Method, Status
from fedpact.protocol.messages import Reply
from fedpact.protocol.options import check, check_flag
from fedpact.protocol.phases import GradientRequest, Gradients, GradientStep, Phase, Phases, ServerData
from fedpact.records import Record

LATE = 3.0  # the power of t that the points are weighted by where they are averaged

# states


class Released(Record):
    """At a party behind noise: how many releases it has made. It counts for itself, whatever the server says."""

    count: jax.Array


class ServerState(Record):
    w: jax.Array
    mu: jax.Array
    mean_w: jax.Array
    mean_mu: jax.Array
    direction: jax.Array  # g of the round before
    changes: jax.Array  # Σ ‖g − g of the round before‖²
    goal: Goal
    t: jax.Array
    status: jax.Array


class RoundInfo(Info):
    """With the length τ of the step."""

    step_length: jax.Array


# options


class PrimalDual(Algorithm):
    """A primal-dual gradient method for limits over all rows: values and gradients go up, and nothing else.

    It needs many more rounds than `fp.InteriorPoint` and comes less near; it is meant for `fp.DifferentialPrivacy`, and for
    models whose Hessians are too large. Numbers that a party sends in a round: (1 + d)(1 + constraints).

    - `rounds`: of a run with `fp.DifferentialPrivacy`, which has to know beforehand how often rows are asked (>= 1, default 50;
      more rounds need more noise in each). Without it a run ends at its tolerance, or at `max_rounds`.
    - `step`: how far the first step goes, in the units of the parameters (> 0, default 3.0): about as far as the solution is.
    - `penalty`: β, the price of violations (> 0, default 1.0), in units of the objective per squared unit of a constraint.
    - `average`: whether the mean of the points is handed out, late ones weighted more, and not the last one (default None: with
      `fp.DifferentialPrivacy`, as it has less noise). With True and without noise a run goes on to `max_rounds`.
    """

    rounds: int = 50
    step: float = 3.0
    penalty: float = 1.0
    average: bool | None = None

    keeps: ClassVar[frozenset[Scope]] = frozenset({"pooled"})
    begins_with_multipliers: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check("PrimalDual", "rounds", self.rounds, lambda x: x >= 1, "a number of rounds", whole=True)
        check("PrimalDual", "step", self.step, lambda x: x > 0, "the first step's length is > 0")
        check("PrimalDual", "penalty", self.penalty, lambda x: x > 0, "penalty must be > 0; it is the price β")
        if self.average is not None:
            check_flag("PrimalDual", "average", self.average)

    @property
    def noisy_rounds(self) -> int:
        return self.rounds

    def bound(self, setting: Setting) -> "PrimalDualMethod":
        average = setting.private if self.average is None else self.average
        return PrimalDualMethod(self.rounds, self.step, self.penalty, average, setting.private)


class PrimalDualMethod(Method[ServerState]):
    """The method as it runs; `private`: behind noise, for exactly `rounds` rounds."""

    rounds: int
    step: float
    penalty: float
    average: bool
    private: bool

    @property
    def round(self) -> Phases:
        at_party = self.release if self.private else GradientStep(self.functions)
        return (Phase(self.ask, at_party, self.hear),)

    # party steps

    def join(self, own: Oracle | PrivateOracle, state: None, message: None) -> tuple[Any, Reply]:
        return Released(jnp.zeros((), int)) if self.private else (), Reply()

    def functions(self, own: Oracle, state: tuple[()], context: None, w: jax.Array) -> jax.Array:
        """Objective and pooled constraints, whose gradients are asked for, too."""
        values = own(w)
        return jnp.concatenate([values.objective[None], values.pooled])

    def release(self, own: PrivateOracle, state: Released, message: GradientRequest) -> tuple[Released, Reply]:
        """The same with clipped rows and noise. The last release is the certificate's."""
        number = jnp.where(state.count < own.releases - 1, state.count, own.releases)
        lines = own.release(number, message.parameters)
        return Released(state.count + 1), Reply(sum=Gradients(lines[:, 0], lines[:, 1:]))

    # server steps

    def invite(self, own: ServerData, begin: Begin) -> None:
        """Parties need nothing before the first round."""

    def start(self, own: ServerData, begin: Begin, reply: Reply) -> ServerState:
        w, mu = own.regularizer.prox(begin.w, 0.0), own.functions.first_multipliers().pooled
        first = jnp.zeros_like(w), jnp.zeros(())
        return ServerState(w, mu, w, mu, *first, begin.goal, jnp.ones((), int), Status.running.as_array())

    def ask(self, own: ServerData, server: ServerState) -> GradientRequest:
        return GradientRequest(None, server.w)

    def hear(self, own: ServerData, server: ServerState, reply: Reply) -> tuple[ServerState, RoundInfo]:
        (values, gradients), h, w = reply.sum, own.regularizer, server.w
        mine, my_slopes = derivatives(own.functions, w)
        objective = values[0] + mine.objective + h.value(w)
        c, equality = values[1:] + mine.pooled, own.functions.pooled_equality
        mu = updated(server.mu, jnp.asarray(self.penalty), c, equality)
        direction = gradients[0] + my_slopes.objective + 2.0 * h.ridge * w + mu @ (gradients[1:] + my_slopes.pooled)
        info = Info(objective, violation(c, equality), h.distance(w, direction))
        done = self.met(server.goal, info, complementarity(mu, c, equality))
        changes = server.changes + jnp.sum((direction - server.direction) ** 2)
        length = self.step / jnp.sqrt(jnp.where(changes > 0, changes, 1.0))
        moved = jnp.where(done, w, h.prox(w - length * direction, length))
        part = (1.0 + LATE) / (server.t.astype(float) + LATE)  # 1 in the first round
        after = ServerState(
            w=moved,
            mu=mu,
            mean_w=server.mean_w + part * (moved - server.mean_w),
            mean_mu=server.mean_mu + part * (mu - server.mean_mu),
            direction=direction,
            changes=changes,
            goal=server.goal,
            t=server.t + 1,
            status=self.verdict(server.t, done),
        )
        line = RoundInfo(info.objective, info.violation, info.stationarity, length)
        sound = jnp.isfinite(objective + jnp.sum(moved))
        return choose(sound, after, eqx.tree_at(lambda s: s.status, server, Status.diverged.as_array())), line

    def met(self, goal: Goal, info: Info, slack: jax.Array) -> jax.Array:
        """Whether the point meets the goal. Behind noise nothing shows that, and the mean of points is another point."""
        near = (info.stationarity <= goal.stationarity) & (jnp.maximum(info.violation, slack) <= goal.feasibility)
        return near & np.asarray(not (self.private or self.average))

    def verdict(self, t: jax.Array, done: jax.Array) -> jax.Array:
        ended = np.asarray(self.private) & (t >= self.rounds)
        going = jnp.where(ended, int(Status.max_rounds), int(Status.running))
        return jnp.where(done, int(Status.converged), going)

    def answer(self, own: ServerData, carry: ServerState) -> Answer:
        w, mu = (carry.mean_w, carry.mean_mu) if self.average else (carry.w, carry.mu)
        return Answer(w, jnp.zeros(0), mu, jnp.zeros(()))
