"""Accelerated projected gradient for personal models: exact, feasible in every round, with messages of the parameters' size.

    minimise over x_j ∈ X_j     F(x) = (1/m) Σ_i [ f_i(x̄) + (σ_i/2) ‖x_i − x̄‖² ],      x̄ = (1/m) Σ_i x_i

    y_j ← x_j + β(x_j − x_j⁻)                                   Nesterov's momentum, restarted where it leads uphill
    x_j ← Π_j(y_j − (1/L)(Ḡ + σ_j(y_j − ȳ))),                   Ḡ = (1/m) Σ_i [∇f_i(ȳ) − σ_i(y_i − ȳ)]

    A. Beck, M. Teboulle, A fast iterative shrinkage-thresholding algorithm, SIAM J. Imaging Sciences 2 (2009).
    B. O'Donoghue, E. Candès, Adaptive restart for accelerated gradient schemes, Found. Comput. Math. 15 (2015).

    code: trial = x_j⁺ (not judged yet), curvature = L, momentum = β, turns = k of the momentum, gradient = Ḡ

L is found on the way: a trial is judged in the round after, when F at its mean has come with the next gradient. Where
F(x⁺) > F(y) + ∇F(y)·(x⁺ − y) + (L/2m) Σ‖x_j⁺ − y_j‖², the parties go back to y and take a shorter step.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from fedpact.arrays import choose
from fedpact.federation.setting import Setting
from fedpact.problem.oracle import Oracle
from fedpact.protocol.algorithm import (
    Algorithm,
    Answer,
    Begin,
    FirstParameters,
    Goal,
    Method,
    PersonalInfo,
    Split,
    Status,
)
from fedpact.protocol.messages import Reply
from fedpact.protocol.options import check
from fedpact.protocol.phases import Phase, Phases, ServerData
from fedpact.records import Record

ROUNDING = 1e-13  # relative noise in a value, below which it cannot judge a step
STEEPEST = 1e18  # curvature at which no step can be told from none
CLOSER = 0.5  # the residual is estimated from y; at x it is at most twice that

# messages


class FirstModel(Record):
    """Before the first round, up: a sum."""

    parameters: jax.Array


class TrialMeans(Record):
    """Exchange 1, down."""

    trial_mean: jax.Array  # of the x⁺
    next_mean: jax.Array  # of the next y
    momentum: jax.Array


class TrialValues(Record):
    """Exchange 1, up: sums."""

    objective: jax.Array  # F at the trials
    next_objective: jax.Array  # F at the next y
    gradient: jax.Array  # Ḡ there


class ProjectedStep(Record):
    """Exchange 2, down."""

    accepted: jax.Array  # whether the trials stand
    momentum: jax.Array
    mean: jax.Array  # ȳ
    gradient: jax.Array
    curvature: jax.Array


class StepSums(Record):
    """Exchange 2, up: sums."""

    trial: jax.Array
    slope_along_step: jax.Array  # Σ (Ḡ + σ_j(y_j − ȳ))·(x_j⁺ − y_j)
    squared_length: jax.Array  # Σ ‖x_j⁺ − y_j‖²
    uphill: jax.Array  # Σ (y_j − x_j⁺)·(x_j⁺ − x_j): over 0, the momentum leads uphill


class StepMaxima(Record):
    """Exchange 2, up: maxima."""

    largest_step_entry: jax.Array


# states


class PartyState(Record):
    """A party's last judged model, where the step began, and the model that waits to be judged."""

    x: jax.Array
    y: jax.Array
    trial: jax.Array


class Point(Record):
    """What the server knows of y."""

    mean: jax.Array
    objective: jax.Array
    gradient: jax.Array


class ServerState(Record):
    x: jax.Array  # the mean of the judged models
    objective: jax.Array
    y: Point
    steps: StepSums  # to the trials
    residual: jax.Array  # of the trials
    curvature: jax.Array
    turns: jax.Array
    stationarity: jax.Array  # the goal
    status: jax.Array


class Verdict(Record):
    """Between the exchanges."""

    server: ServerState
    momentum: jax.Array
    turns: jax.Array
    trial: jax.Array
    objective: jax.Array  # F at the trials
    accepted: jax.Array
    curvature: jax.Array
    y: Point


# options


class PersonalProjected(Algorithm):
    """Every party's own model, to tolerance; two exchanges a round.

    - `curvature`: L to begin with (> 0, default 1); it is raised where a step was too long.
    - `relax`: the factor of L after a good step (over 0 up to 1, default 0.9), so that L may follow the objective down.
    """

    supports: ClassVar[frozenset[Split]] = frozenset({"personal"})
    personal_models: ClassVar[bool] = True

    curvature: float = 1.0
    relax: float = 0.9

    def __check_init__(self) -> None:
        check("PersonalProjected", "curvature", self.curvature, lambda x: x > 0, "L to begin with, over 0")
        check("PersonalProjected", "relax", self.relax, lambda x: 0 < x <= 1, "over 0 up to 1; 1 lets L only grow")

    def bound(self, setting: Setting) -> "PersonalProjectedMethod":
        return PersonalProjectedMethod(self)


class PersonalProjectedMethod(Method[ServerState]):
    """PersonalProjected as it runs."""

    personal_models: ClassVar[bool] = True

    options: PersonalProjected

    @property
    def round(self) -> Phases:
        return (
            Phase(self.ask_values, self.evaluate, self.hear_values),
            Phase(self.ask_step, self.project, self.hear_step),
        )

    # party steps

    def join(self, own: Oracle, state: None, message: FirstParameters) -> tuple[PartyState, Reply]:
        x = own.own_set.project(message.parameters)
        return PartyState(x, x, x), Reply(sum=FirstModel(x))

    def evaluate(self, own: Oracle, state: PartyState, message: TrialMeans) -> tuple[PartyState, Reply]:
        y = state.trial + message.momentum * (state.trial - state.x)
        value = _part(own, state.trial, message.trial_mean)
        ahead, gradient = jax.value_and_grad(lambda mean: _part(own, y, mean))(message.next_mean)
        return state, Reply(sum=TrialValues(value, ahead, gradient))

    def project(self, own: Oracle, state: PartyState, message: ProjectedStep) -> tuple[PartyState, Reply]:
        personal = own.own_set
        x = jnp.where(message.accepted, state.trial, state.x)
        y = jnp.where(message.accepted, state.trial + message.momentum * (state.trial - state.x), state.y)
        gradient = message.gradient + personal.pull * (y - message.mean)
        trial = personal.project(y - gradient / message.curvature)
        step = trial - y
        sums = StepSums(trial, gradient @ step, step @ step, -step @ (trial - x))
        return PartyState(x, y, trial), Reply(sum=sums, max=StepMaxima(jnp.max(jnp.abs(step))))

    def block(self, own: Oracle, state: PartyState, answer: Answer) -> jax.Array:
        return state.x

    # server steps

    def start(self, own: ServerData, begin: Begin, reply: Reply) -> ServerState:
        total, nothing, unknown = reply.sum.parameters, jnp.zeros(()), jnp.asarray(jnp.inf)
        mean = total / own.parties
        return ServerState(
            x=mean,
            objective=unknown,
            y=Point(mean, unknown, jnp.zeros_like(mean)),
            steps=StepSums(total, nothing, nothing, nothing),
            residual=unknown,
            curvature=jnp.asarray(self.options.curvature),
            turns=jnp.ones(()),
            stationarity=begin.goal.stationarity,
            status=Status.running.as_array(),
        )

    def ask_values(self, own: ServerData, server: ServerState) -> TrialMeans:
        trial = server.steps.trial / own.parties
        momentum, _ = _momentum(server)
        return TrialMeans(trial, trial + momentum * (trial - server.x), momentum)

    def hear_values(self, own: ServerData, server: ServerState, reply: Reply) -> Verdict:
        values: TrialValues = reply.sum
        means, (momentum, turns) = self.ask_values(own, server), _momentum(server)
        objective = _total(own, values.objective, means.trial_mean)
        gradient = values.gradient + 2.0 * own.regularizer.ridge * means.next_mean
        accepted, curvature = self.judged(server, objective, own.parties)
        ahead = Point(means.next_mean, _total(own, values.next_objective, means.next_mean), gradient)
        y = choose(accepted, ahead, server.y)
        return Verdict(server, momentum, turns, means.trial_mean, objective, accepted, curvature, y)

    def ask_step(self, own: ServerData, carry: Verdict) -> ProjectedStep:
        return ProjectedStep(carry.accepted, carry.momentum, carry.y.mean, carry.y.gradient, carry.curvature)

    def hear_step(self, own: ServerData, carry: Verdict, reply: Reply) -> tuple[ServerState, PersonalInfo]:
        server, accepted, curvature = carry.server, carry.accepted, carry.curvature
        stays = server.x, server.objective, server.turns
        x, objective, turns = choose(accepted, (carry.trial, carry.objective, carry.turns), stays)
        done = accepted & (server.residual <= CLOSER * server.stationarity)
        status = jnp.where(done, Status.converged, server.status)
        hopeless = jnp.where(jnp.isfinite(objective), Status.stalled, Status.diverged)
        status = jnp.where(curvature > STEEPEST, hopeless, status)
        after = ServerState(
            x=x,
            objective=objective,
            y=carry.y,
            steps=reply.sum,
            residual=curvature * reply.max.largest_step_entry,
            curvature=curvature,
            turns=turns,
            stationarity=server.stationarity,
            status=status.astype(int),
        )
        return after, PersonalInfo(objective, jnp.zeros_like(objective), after.residual)

    def judged(self, server: ServerState, objective: jax.Array, parties: int) -> tuple[jax.Array, jax.Array]:
        """Whether the trials stand, and L from here on: what the trials showed of it where they do not."""
        steps = server.steps
        bend = objective - server.y.objective - steps.slope_along_step / parties
        noise = ROUNDING * (1.0 + jnp.abs(objective))
        room = 0.5 * server.curvature * steps.squared_length / parties
        first = ~jnp.isfinite(server.y.objective)
        accepted = first & jnp.isfinite(objective) | (bend <= room + noise)
        measured = 2.0 * parties * bend / jnp.where(steps.squared_length > 0, steps.squared_length, 1.0)
        steeper = jnp.clip(measured, 2.0 * server.curvature, 100.0 * server.curvature)
        steeper = jnp.where(jnp.isfinite(steeper), steeper, 10.0 * server.curvature)
        seen = room > 100.0 * noise  # below that, a good step says nothing about L
        gentler = jnp.where(seen & ~first, self.options.relax * server.curvature, server.curvature)
        return accepted, jnp.where(accepted, gentler, steeper)

    def answer(self, own: ServerData, carry: ServerState) -> Answer:
        return Answer.without_multipliers(carry.x)

    def aim(self, server: ServerState, goal: Goal) -> ServerState:
        running = Status.running.as_array().astype(server.status.dtype)
        return dataclasses.replace(server, stationarity=goal.stationarity, status=running)


def _momentum(server: ServerState) -> tuple[jax.Array, jax.Array]:
    """β and the next k: none, and 1, where the momentum led uphill."""
    uphill = server.steps.uphill > 0
    turns = jnp.where(uphill, 1.0, 0.5 * (1.0 + jnp.sqrt(1.0 + 4.0 * server.turns**2)))
    return jnp.where(uphill, 0.0, (server.turns - 1.0) / turns), turns


def _part(own: Oracle, x: jax.Array, mean: jax.Array) -> jax.Array:
    """A party's part of F."""
    return own(mean).objective + own.own_set.cost(x, mean) / own.parties


def _total(own: ServerData, parts: jax.Array, mean: jax.Array) -> jax.Array:
    return parts + own.functions(mean).objective + own.regularizer.smooth(mean)
