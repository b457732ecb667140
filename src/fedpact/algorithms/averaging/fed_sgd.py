"""Federated stochastic gradient descent, rows or columns split: the baseline of the SSCA paper, unconstrained.

w ← w − step_t · m_t,     m_t = ∇F̂(w) + momentum · m_{t−1},     F̂ on a mini-batch of every party (or of all rows)
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fedpact.algorithms.averaging.local_steps import ServerState, or_diverged
from fedpact.algorithms.averaging.robust import RobustAverage, check_average, fitting, over_finite
from fedpact.algorithms.parts.batches import (
    asked,
    check_batch,
    check_plain,
    check_sampling,
    drawn_places,
    folded_key,
    on_a_batch,
    takes_part,
)
from fedpact.algorithms.parts.schedules import Schedule, as_schedule, check_momentum, heavy_ball
from fedpact.federation.blocks import Block
from fedpact.federation.setting import Setting
from fedpact.problem.oracle import Oracle
from fedpact.problem.split import EMBEDDED
from fedpact.protocol.algorithm import Algorithm, Answer, Begin, Info, Method, Split, Status
from fedpact.protocol.embedding import combined, contribution, own_share
from fedpact.protocol.messages import Reply
from fedpact.protocol.phases import (
    GradientRequest,
    Gradients,
    GradientStep,
    Phase,
    Phases,
    ServerData,
    values_and_gradients,
)
from fedpact.protocol.sampling import draw
from fedpact.records import Record

# messages


class BatchKey(Record):
    """Down: what rows are drawn by."""

    random_key: jax.Array


class SingleGradient(Record):
    """Up, where the average is a robust one: not added up."""

    gradients: Gradients  # of n times the party's part of F̂
    asked: jax.Array  # 1, or 0 for a party that was not


class EmbeddingGradient(Record):
    """Over columns, exchange 2, down."""

    random_key: jax.Array
    gradient: jax.Array  # of the objective by what the bottom models gave together
    step_size: jax.Array


class BlockNorm(Record):
    """Over columns, exchange 2, up: a sum."""

    squared_norm: jax.Array


class BlockSlope(Record):
    """Over columns, exchange 2, up: a maximum."""

    largest_gradient_entry: jax.Array


# states


class BlockState(Record):
    """Over columns."""

    w: jax.Array  # the party's block
    momentum: Any  # optax's state


class SGDServerState(ServerState):
    momentum: Any  # optax's state


class Evaluation(Record):
    """Over columns, between the exchanges."""

    server: SGDServerState
    objective: jax.Array
    gradient: jax.Array  # by the top model's parameters
    embedding_gradient: jax.Array


# options


class FedSGD(Algorithm):
    """One step down the gradient of a mini-batch per round; over columns, two exchanges.

    - `batch`: rows drawn at each party in a round (rows split), or of all (columns split); at least 1.
    - `step`: the step size, a number > 0 or a schedule such as fp.Decay(1.0, 0.5).
    - `momentum`: of the heavy ball (from 0 to below 1, default 0: none).
    - `participation`: the part of the parties that is asked in a round (rows split; over 0 up to 1, default 1).
    - `average`: fp.TrimmedMean() or fp.MedianOfMeans(), which a few lying parties cannot move far; the server then needs every
      party's reply by itself, and every party counts alike (default None: the plain average).
    """

    supports: ClassVar[frozenset[Split]] = frozenset({"rows", "columns"})

    batch: int
    step: Schedule | float
    momentum: float = 0.0
    participation: float = 1.0
    average: RobustAverage | None = None

    def __check_init__(self) -> None:
        check_average("FedSGD", self.average)
        check_sampling("FedSGD", self.batch, self.participation)
        check_momentum("FedSGD", self.momentum)
        as_schedule("FedSGD", "step", self.step)

    @property
    def reads_single_replies(self) -> bool:
        return self.average is not None

    @property
    def rows_per_mean(self) -> int:
        return self.batch

    def bound(self, setting: Setting) -> "FedSGDMethod":
        check_plain("FedSGD", setting)
        check_batch("FedSGD", self.batch, setting)
        fitting(self, setting)
        schedule = as_schedule("FedSGD", "step", self.step)
        if setting.split == "columns":
            ridge = float(setting.programs[0].norm_shares()[0][0])
            return FedSGDOverColumns(self, schedule, ridge, setting.parties)
        return FedSGDOverRows(self, schedule, float(setting.ridge or 0.0), setting.parties)


class FedSGDMethod(Method[SGDServerState]):
    """FedSGD as it runs; what an exchange is about is left to either way of splitting."""

    options: FedSGD
    schedule: Schedule
    ridge: float  # a where the regulariser is a‖w‖²
    parties: int

    def invite(self, own: ServerData, begin: Begin) -> None:
        """Parties know their own start, or need none."""

    def start(self, own: ServerData, begin: Begin, reply: Reply) -> SGDServerState:
        momentum = heavy_ball(self.options.momentum).init(begin.w)
        return SGDServerState(begin.w, begin.key, jnp.ones((), int), Status.running.as_array(), momentum)

    def batch_key(self, server: SGDServerState) -> jax.Array:
        return folded_key(server.key, server.t)

    def step_size(self, server: SGDServerState) -> jax.Array:
        return self.schedule(server.t.astype(float))

    def descended(
        self, w: jax.Array, momentum: Any, gradient: jax.Array, step_size: jax.Array
    ) -> tuple[jax.Array, Any]:
        """Parameters and momentum after a step."""
        change, momentum = heavy_ball(self.options.momentum).update(gradient, momentum)
        return w + step_size * change, momentum

    def advanced(
        self, server: SGDServerState, objective: jax.Array, gradient: jax.Array, largest_elsewhere: jax.Array
    ) -> tuple[SGDServerState, Info]:
        """The end of a round; `largest_elsewhere`: of the gradient's entries that the parties know."""
        w, momentum = self.descended(server.w, server.momentum, gradient, self.step_size(server))
        after = SGDServerState(w, server.key, server.t + 1, server.status, momentum)
        stationarity = jnp.maximum(largest_elsewhere, jnp.max(jnp.abs(gradient), initial=0.0))
        return or_diverged(after, server, objective), Info(objective, jnp.zeros_like(objective), stationarity)

    def answer(self, own: ServerData, carry: SGDServerState) -> Answer:
        return Answer.without_multipliers(carry.w)


class FedSGDOverRows(FedSGDMethod):
    """One exchange: the parties' gradients on their batches."""

    @property
    def round(self) -> Phases:
        step = GradientStep(self.estimate) if self.options.average is None else self.single_estimate
        drawn = self.drawn if self.options.participation < 1 else None
        return (Phase(self.ask, step, self.hear, drawn=drawn),)

    def drawn(self, message: GradientRequest) -> jax.Array:
        """The places of the parties that are asked in a round."""
        return drawn_places(message.context.random_key, self.parties, self.options.participation)

    def single_estimate(self, own: Oracle, state: tuple[()], message: GradientRequest) -> tuple[tuple[()], Reply]:
        """At a party, where the average is a robust one: n times its part of F̂, so that the mean over parties is their sum."""
        key, batch = message.context.random_key, self.options.batch
        part = values_and_gradients(
            lambda w: own.parties * on_a_batch(own, key, batch)(w).objective[None], message.parameters
        )
        return state, Reply(per_party=SingleGradient(part, takes_part(own, key, self.options.participation)))

    def estimate(self, own: Oracle, state: tuple[()], message: BatchKey, w: jax.Array) -> jax.Array:
        """At a party: its part of F̂."""
        weight = asked(own, message.random_key, self.options.participation)
        return (weight * on_a_batch(own, message.random_key, self.options.batch)(w).objective)[None]

    def ask(self, own: ServerData, server: SGDServerState) -> GradientRequest:
        return GradientRequest(BatchKey(self.batch_key(server)), server.w)

    def hear(self, own: ServerData, server: SGDServerState, reply: Reply) -> tuple[SGDServerState, Info]:
        (values, gradients), w = self._combined(reply), server.w
        at_server, server_gradient = jax.value_and_grad(lambda w: own.functions(w).objective)(w)
        gradient = gradients[0] + server_gradient + 2.0 * self.ridge * w
        objective = values[0] + at_server + self.ridge * (w @ w)
        return self.advanced(server, objective, gradient, jnp.asarray(0.0))

    def _combined(self, reply: Reply) -> Gradients:
        average = self.options.average
        if average is None:
            return reply.sum
        each: SingleGradient = reply.per_party
        return Gradients(*(over_finite(average, part, each.asked) for part in each.gradients))


class FedSGDOverColumns(FedSGDMethod):
    """Two exchanges: what the bottom models give on a batch goes up, its gradient comes down."""

    @property
    def round(self) -> Phases:
        return (
            Phase(self.ask_embedding, self.embed, self.evaluate),
            Phase(self.ask_descent, self.descend, self.hear_descent),
        )

    # party steps

    def join(self, own: Block, state: None, message: None) -> tuple[BlockState, Reply]:
        return BlockState(own.start, heavy_ball(self.options.momentum).init(own.start)), Reply()

    def embed(self, own: Block, state: BlockState, message: BatchKey) -> tuple[BlockState, Reply]:
        return state, contribution(own, own.embed(state.w, self._places(own, message.random_key)))

    def descend(self, own: Block, state: BlockState, message: EmbeddingGradient) -> tuple[BlockState, Reply]:
        places = self._places(own, message.random_key)
        _, pull = jax.vjp(lambda w: own.embed(w, places), state.w)
        gradient = pull(own_share(own, message.gradient))[0] + 2.0 * self.ridge * state.w
        after = BlockState(*self.descended(state.w, state.momentum, gradient, message.step_size))
        return after, Reply(sum=BlockNorm(state.w @ state.w), max=BlockSlope(jnp.max(jnp.abs(gradient))))

    def _places(self, own: Block, key: jax.Array) -> jax.Array:
        return draw(key, jnp.asarray(own.x.shape[0]), self.options.batch)

    def block(self, own: Block, state: BlockState, answer: Answer) -> jax.Array:
        return state.w

    # server steps

    def batch_key(self, server: SGDServerState) -> jax.Array:
        return folded_key(super().batch_key(server), 0)  # as one party with all rows would draw

    def ask_embedding(self, own: ServerData, server: SGDServerState) -> BatchKey:
        return BatchKey(self.batch_key(server))

    def evaluate(self, own: ServerData, server: SGDServerState, reply: Reply) -> Evaluation:
        labels, size = own.functions, self.options.batch
        batch = labels.sample(draw(self.batch_key(server), labels.count, size), labels.count / size)

        def objective(w: jax.Array, embedded: jax.Array) -> jax.Array:
            return dataclasses.replace(batch, rows={**batch.rows, EMBEDDED: embedded})(w).objective

        value, gradients = jax.value_and_grad(objective, argnums=(0, 1))(server.w, combined(reply))
        return Evaluation(server, value, *gradients)

    def ask_descent(self, own: ServerData, carry: Evaluation) -> EmbeddingGradient:
        return EmbeddingGradient(self.batch_key(carry.server), carry.embedding_gradient, self.step_size(carry.server))

    def hear_descent(self, own: ServerData, carry: Evaluation, reply: Reply) -> tuple[SGDServerState, Info]:
        objective = carry.objective + self.ridge * reply.sum.squared_norm
        return self.advanced(carry.server, objective, carry.gradient, reply.max.largest_gradient_entry)
