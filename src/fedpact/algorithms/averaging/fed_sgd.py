"""Federated stochastic gradient descent, rows or columns split: the baseline of the SSCA paper, unconstrained.

w ← w − step_t · m_t,     m_t = ∇F̂(w) + momentum · m_{t−1},     F̂ on a mini-batch of every party (or of all rows)
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from fedpact.algorithms.parts.batches import asked, check_batch, check_free, folded_key, heavy_ball, on_a_batch
from fedpact.algorithms.parts.descent import choose
from fedpact.algorithms.parts.schedules import Schedule, as_schedule
from fedpact.federation.blocks import Block
from fedpact.federation.setting import Setting
from fedpact.problem.oracle import Oracle
from fedpact.problem.split import EMBEDDED
from fedpact.protocol.algorithm import Answer, ColumnAlgorithm, Goal, Info, Status
from fedpact.protocol.embedding import joined, share, shown
from fedpact.protocol.messages import Reply
from fedpact.protocol.network import Network, PartyStates
from fedpact.protocol.options import check
from fedpact.protocol.sampling import draw


class Held(eqx.Module):
    """A holder's parameters on their way."""

    w: jax.Array
    momentum: Any  # optax's state

    def stepped(self, method: "FedSGD", gradient: jax.Array, step: jax.Array) -> "Held":
        change, momentum = method.optimizer.update(gradient, self.momentum)
        return Held(self.w + step * change, momentum)


class Server(eqx.Module):
    held: Held
    key: jax.Array
    t: jax.Array
    status: jax.Array


class Slope(eqx.Module):
    """Over columns, exchange 2, down."""

    key: jax.Array
    slope: jax.Array
    step: jax.Array


class FedSGD(ColumnAlgorithm[Server]):
    """One step down the gradient of a mini-batch per round; over columns, two exchanges.

    batch: rows drawn at each party in a round (rows split), or of all (columns split).
    step: the step size, a number or a schedule such as fp.Decay(1.0, 0.5).
    momentum: of the heavy ball, from 0 (default, none) to below 1.
    participation: the part of the parties that is asked in a round (rows split; over 0 up to 1, default 1).
    """

    batch: int
    step: Schedule | float
    momentum: float = 0.0
    participation: float = 1.0
    ridge: float = eqx.field(static=True, default=0.0, repr=False)
    over_columns: bool = eqx.field(static=True, default=False, repr=False)

    def __check_init__(self) -> None:
        check_steps("FedSGD", self)

    def prepared(self, setting: Setting) -> "FedSGD":
        check_free("FedSGD", setting)
        check_batch("FedSGD", self.batch, setting)
        assert setting.programs is not None
        ridge = float(setting.programs[0].norm_shares()[0][0]) if setting.columns else float(setting.ridge or 0.0)
        step = as_schedule("FedSGD", "step", self.step)
        return dataclasses.replace(self, step=step, ridge=ridge, over_columns=setting.columns)

    @property
    def optimizer(self) -> Any:
        """Without the step size, which falls."""
        return heavy_ball(self.momentum)

    # party steps

    def join(self, own: Oracle | Block, state: None, message: None) -> tuple[Any, Reply]:
        del state, message
        return (Held(own.start, self.optimizer.init(own.start)) if isinstance(own, Block) else ()), Reply()

    def estimate(self, own: Oracle, state: Any, key: jax.Array, w: jax.Array) -> jax.Array:
        del state
        return (asked(own, key, self.participation) * on_a_batch(own, key, self.batch)(w).objective)[None]

    def embed(self, own: Block, state: Held, key: jax.Array) -> tuple[Held, Reply]:
        return state, shown(own, own.embed(state.w, draw(key, jnp.asarray(own.x.shape[0]), self.batch)))

    def descend(self, own: Block, state: Held, message: Slope) -> tuple[Held, Reply]:
        places = draw(message.key, jnp.asarray(own.x.shape[0]), self.batch)
        _, pull = jax.vjp(lambda w: own.embed(w, places), state.w)
        gradient = pull(share(own, message.slope))[0] + 2.0 * self.ridge * state.w
        norm = state.w @ state.w
        return state.stepped(self, gradient, message.step), Reply(sum=norm, max=jnp.max(jnp.abs(gradient)))

    def multipliers(self, own: Oracle, state: Any, answer: Answer) -> jax.Array:
        del state, answer
        return jnp.zeros(own.equality.size)

    def block(self, own: Block, state: Held, answer: Answer) -> jax.Array:
        del own, answer
        return state.w

    # server steps

    def init(self, net: Network, w: jax.Array, goal: Goal, key: jax.Array) -> tuple[Server, PartyStates]:
        del goal
        _, parties = net.exchange(self.join, None, None)
        running = jnp.asarray(int(Status.running))
        return Server(Held(w, self.optimizer.init(w)), key, jnp.ones((), int), running), parties

    def round(self, server: Server, parties: PartyStates, net: Network) -> tuple[Server, PartyStates, Info]:
        key, step = folded_key(server.key, server.t), self.step_size(server.t)
        if self.over_columns:
            value, gradient, parties, others = self._over_columns(server.held.w, parties, net, key, step)
        else:
            value, gradient, others = self._over_rows(server.held.w, parties, net, key)
        held = server.held.stepped(self, gradient, step)
        sound = jnp.all(jnp.isfinite(held.w)) & jnp.isfinite(value)
        after = Server(held, server.key, server.t + 1, server.status)
        broken = eqx.tree_at(lambda s: s.status, server, jnp.asarray(int(Status.diverged)))
        residual = jnp.maximum(others, jnp.max(jnp.abs(gradient), initial=0.0))
        return choose(sound, after, broken), parties, Info(value, jnp.zeros_like(value), residual)

    def _over_rows(
        self, w: jax.Array, parties: PartyStates, net: Network, key: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        values, gradients = net.gradients(self.estimate, parties, key, w)
        own, pull = jax.vjp(lambda w: net.server(w).objective, w)
        gradient = gradients[0] + pull(jnp.ones_like(own))[0] + 2.0 * self.ridge * w
        return values[0] + own + self.ridge * (w @ w), gradient, jnp.asarray(0.0)

    def _over_columns(
        self, w: jax.Array, parties: PartyStates, net: Network, key: jax.Array, step: jax.Array
    ) -> tuple[jax.Array, jax.Array, PartyStates, jax.Array]:
        key = folded_key(key, 0)  # as one party with all rows would draw
        reply, parties = net.exchange(self.embed, parties, key)
        batch = net.server.sample(draw(key, net.server.count, self.batch), net.server.count / self.batch)

        def objective(w: jax.Array, embedded: jax.Array) -> jax.Array:
            return dataclasses.replace(batch, rows={**batch.rows, EMBEDDED: embedded})(w).objective

        value, (gradient, slope) = jax.value_and_grad(objective, argnums=(0, 1))(w, joined(reply))
        reply, parties = net.exchange(self.descend, parties, Slope(key, slope, step))
        return value + self.ridge * reply.sum, gradient, parties, reply.max

    def step_size(self, t: jax.Array) -> jax.Array:
        assert isinstance(self.step, Schedule)  # `prepared` has made it one
        return self.step(t.astype(float))

    # status and answers

    def status(self, server: Server) -> jax.Array:
        return server.status

    def answer(self, server: Server, net: Network) -> Answer:
        program = net.server.program
        pooled = jnp.zeros(len(program.pooled))
        return Answer(server.held.w, jnp.zeros(len(program.constraints)), pooled, jnp.asarray(0.0))

    def aim(self, server: Server, goal: Goal) -> Server:
        del goal
        return server


def check_steps(owner: str, method: Any) -> None:
    """The options that methods of gradient steps share."""
    check(owner, "batch", method.batch, lambda x: x >= 1, "a mini-batch has at least one row", whole=True)
    check(owner, "momentum", method.momentum, lambda x: 0 <= x < 1, "momentum is from 0 to below 1")
    words = "the part of the parties that is asked in a round, over 0 and up to 1"
    check(owner, "participation", method.participation, lambda x: 0 < x <= 1, words)
    as_schedule(owner, "step", method.step)
