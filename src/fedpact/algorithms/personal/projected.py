"""Accelerated projected gradient for personal models: exact, feasible in every round, with messages of the parameters' size.

    minimise over x_j ∈ X_j     F(x) = (1/m) Σ_i [ f_i(x̄) + (σ_i/2) ‖x_i − x̄‖² ],      x̄ = (1/m) Σ_i x_i

    y_j ← x_j + β(x_j − x_j⁻)                                   Nesterov's momentum, restarted where it leads uphill
    x_j ← Π_j(y_j − (1/L)(Ḡ + σ_j(y_j − ȳ))),                   Ḡ = (1/m) Σ_i [∇f_i(ȳ) − σ_i(y_i − ȳ)]

    A. Beck, M. Teboulle, A fast iterative shrinkage-thresholding algorithm, SIAM J. Imaging Sciences 2 (2009).
    B. O'Donoghue, E. Candès, Adaptive restart for accelerated gradient schemes, Found. Comput. Math. 15 (2015).

    code: trial = x_j⁺ (not judged yet), curvature = L, turns = k of the momentum, slope = Ḡ

L is found on the way: a trial is judged in the round after, when F at its mean has come with the next gradient. Where
F(x⁺) > F(y) + ∇F(y)·(x⁺ − y) + (L/2m) Σ‖x_j⁺ − y_j‖², the parties go back to y and take a shorter step.
"""

from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from fedpact.algorithms.parts.descent import choose
from fedpact.federation.setting import Setting
from fedpact.problem.oracle import Oracle
from fedpact.problem.personal import Own
from fedpact.protocol.algorithm import Answer, Goal, PersonalAlgorithm, PersonalInfo, Status
from fedpact.protocol.messages import Reply
from fedpact.protocol.network import Network, PartyStates
from fedpact.protocol.options import check

ROUNDING = 1e-13  # relative noise in a value, below which it cannot judge a step
STEEPEST = 1e18  # curvature at which no step can be told from none
CLOSER = 0.5  # the residual is estimated from y; at x it is at most twice that


class Look(eqx.Module):
    """Exchange 1, down."""

    trial: jax.Array  # the trials' mean
    ahead: jax.Array  # the mean of the next y
    momentum: jax.Array


class Seen(eqx.Module):
    """Exchange 1, up: sums."""

    value: jax.Array  # F at the trials
    ahead: jax.Array  # F at the next y
    slope: jax.Array  # Ḡ there


class Move(eqx.Module):
    """Exchange 2, down."""

    accepted: jax.Array
    momentum: jax.Array
    mean: jax.Array  # ȳ
    slope: jax.Array
    curvature: jax.Array


class Moved(eqx.Module):
    """Exchange 2, up: sums."""

    trial: jax.Array
    along: jax.Array  # Σ (Ḡ + σ_j(y_j − ȳ))·(x_j⁺ − y_j)
    square: jax.Array  # Σ ‖x_j⁺ − y_j‖²
    uphill: jax.Array  # Σ (y_j − x_j⁺)·(x_j⁺ − x_j): over 0, the momentum leads uphill


class State(eqx.Module):
    """A party's: its last judged model, where the step began, and the model that waits to be judged."""

    x: jax.Array
    y: jax.Array
    trial: jax.Array


class Point(eqx.Module):
    """What the server knows of y."""

    mean: jax.Array
    value: jax.Array
    slope: jax.Array


class Server(eqx.Module):
    x: jax.Array  # the mean of the judged models
    value: jax.Array
    y: Point
    moved: Moved
    residual: jax.Array  # of the trial
    curvature: jax.Array
    turns: jax.Array
    stationarity: jax.Array  # the goal
    status: jax.Array


class PersonalProjected(PersonalAlgorithm[Server]):
    """Every party's own model, to tolerance; two exchanges a round.

    curvature: L to begin with (> 0, default 1); it is raised where a step was too long.
    relax: by what L falls after a good step, over 0 up to 1 (default 0.9), so that L may follow the objective down.
    """

    models: ClassVar[Literal["one", "each"]] = "each"

    curvature: float = 1.0
    relax: float = 0.9

    def __check_init__(self) -> None:
        check("PersonalProjected", "curvature", self.curvature, lambda x: x > 0, "L to begin with, over 0")
        check("PersonalProjected", "relax", self.relax, lambda x: 0 < x <= 1, "over 0 up to 1; 1 lets L only grow")

    def prepared(self, setting: Setting) -> "PersonalProjected":
        del setting
        return self

    # party steps

    def join(self, own: Oracle, state: None, w: jax.Array) -> tuple[State, Reply]:
        del state
        x = _kept(own).project(w)
        return State(x, x, x), Reply(sum=x)

    def look(self, own: Oracle, state: State, message: Look) -> tuple[State, Reply]:
        y = state.trial + message.momentum * (state.trial - state.x)
        value = _part(own, state.trial, message.trial)
        ahead, slope = jax.value_and_grad(lambda mean: _part(own, y, mean))(message.ahead)
        return state, Reply(sum=Seen(value, ahead, slope))

    def move(self, own: Oracle, state: State, message: Move) -> tuple[State, Reply]:
        personal = _kept(own)
        x = jnp.where(message.accepted, state.trial, state.x)
        y = jnp.where(message.accepted, state.trial + message.momentum * (state.trial - state.x), state.y)
        gradient = message.slope + personal.pull * (y - message.mean)
        trial = personal.project(y - gradient / message.curvature)
        step = trial - y
        sums = Moved(trial, gradient @ step, step @ step, -step @ (trial - x))
        return State(x, y, trial), Reply(sum=sums, max=jnp.max(jnp.abs(step)))

    def block(self, own: Oracle, state: State, answer: Answer) -> jax.Array:
        del own, answer
        return state.x

    def multipliers(self, own: Oracle, state: State, answer: Answer) -> jax.Array:
        del state, answer
        return jnp.zeros(own.equality.size)

    # server steps

    def init(self, net: Network, w: jax.Array, goal: Goal, key: jax.Array) -> tuple[Server, PartyStates]:
        del key
        reply, parties = net.exchange(self.join, None, w)
        mean, nothing, unknown = reply.sum / net.parties, jnp.zeros(()), jnp.asarray(jnp.inf)
        moved = Moved(reply.sum, nothing, nothing, nothing)
        y = Point(mean, unknown, jnp.zeros_like(w))
        running = jnp.asarray(int(Status.running))
        start = Server(
            mean, unknown, y, moved, unknown, jnp.asarray(self.curvature), jnp.ones(()), goal.stationarity, running
        )
        return start, parties

    def round(self, server: Server, parties: PartyStates, net: Network) -> tuple[Server, PartyStates, PersonalInfo]:
        trial, uphill = server.moved.trial / net.parties, server.moved.uphill > 0
        turns = jnp.where(uphill, 1.0, 0.5 * (1.0 + jnp.sqrt(1.0 + 4.0 * server.turns**2)))
        momentum = jnp.where(uphill, 0.0, (server.turns - 1.0) / turns)
        ahead = trial + momentum * (trial - server.x)
        reply, parties = net.exchange(self.look, parties, Look(trial, ahead, momentum))
        value = _whole(net, reply.sum.value, trial)
        slope = reply.sum.slope + 2.0 * net.regularizer.ridge * ahead
        accepted, curvature = self.judged(server, value, net.parties)
        there = Point(ahead, _whole(net, reply.sum.ahead, ahead), slope)
        y = choose(accepted, there, server.y)
        reply, parties = net.exchange(self.move, parties, Move(accepted, momentum, y.mean, y.slope, curvature))
        stays = server.x, server.value, server.turns
        x, value, turns = choose(accepted, (trial, value, turns), stays)
        status = jnp.where(
            accepted & (server.residual <= CLOSER * server.stationarity), Status.converged, server.status
        )
        status = jnp.where(
            curvature > STEEPEST, jnp.where(jnp.isfinite(value), Status.stalled, Status.diverged), status
        )
        after = Server(
            x, value, y, reply.sum, curvature * reply.max, curvature, turns, server.stationarity, status.astype(int)
        )
        return after, parties, PersonalInfo(value, jnp.zeros_like(value), after.residual)

    def judged(self, server: Server, value: jax.Array, parties: int) -> tuple[jax.Array, jax.Array]:
        """Whether the trial stands, and L from here on: what the trial showed of it where it does not."""
        moved = server.moved
        bend = value - server.y.value - moved.along / parties
        noise = ROUNDING * (1.0 + jnp.abs(value))
        room = 0.5 * server.curvature * moved.square / parties
        first = ~jnp.isfinite(server.y.value)
        accepted = first & jnp.isfinite(value) | (bend <= room + noise)
        measured = 2.0 * parties * bend / jnp.where(moved.square > 0, moved.square, 1.0)
        steeper = jnp.clip(measured, 2.0 * server.curvature, 100.0 * server.curvature)
        steeper = jnp.where(jnp.isfinite(steeper), steeper, 10.0 * server.curvature)
        seen = room > 100.0 * noise  # below that, a good step says nothing about L
        gentler = jnp.where(seen & ~first, self.relax * server.curvature, server.curvature)
        return accepted, jnp.where(accepted, gentler, steeper)

    # status and answers

    def status(self, server: Server) -> jax.Array:
        return server.status

    def answer(self, server: Server, net: Network) -> Answer:
        del net
        return Answer(server.x, jnp.zeros(0), jnp.zeros(0), jnp.asarray(0.0))

    def aim(self, server: Server, goal: Goal) -> Server:
        running = jnp.asarray(int(Status.running), server.status.dtype)
        return eqx.tree_at(lambda s: (s.stationarity, s.status), server, (goal.stationarity, running))


def _kept(own: Oracle) -> Own:
    assert own.personal is not None  # `chosen` has seen to it
    return own.personal


def _part(own: Oracle, x: jax.Array, mean: jax.Array) -> jax.Array:
    """A party's part of F."""
    return own(mean).objective + _kept(own).cost(x, mean) / own.parties


def _whole(net: Network, parts: jax.Array, mean: jax.Array) -> jax.Array:
    return parts + net.server(mean).objective + net.regularizer.smooth(mean)
