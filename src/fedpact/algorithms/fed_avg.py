"""Federated averaging: every party takes some steps of its own, the server averages where they lead.

    at party i, E times:   w_i ← w_i − step_t · m,     m = ∇F̂_i(w_i) + momentum · m
    at the server:         w ← w + Σ_i p_i (w_i − w) / Σ_i p_i          over the parties that were asked

    B. McMahan et al., Communication-efficient learning of deep networks from decentralized data, AISTATS 2017.

F_i is party i's mean loss, p_i its part of the objective: its part of all rows where the objective is pooled, else 1/n.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpact.algorithms.batches import asked, check_batch, check_free, folded_key, heavy_ball, on_a_batch
from fedpact.algorithms.descent import choose
from fedpact.algorithms.fed_sgd import check_steps
from fedpact.algorithms.schedules import Schedule, as_schedule
from fedpact.federation.setting import Setting
from fedpact.problem.expressions import Mean
from fedpact.problem.oracle import Oracle
from fedpact.protocol.algorithm import Algorithm, Answer, Goal, Info, Status
from fedpact.protocol.messages import Reply
from fedpact.protocol.network import Network, PartyStates
from fedpact.protocol.options import check


class Call(eqx.Module):
    w: jax.Array
    key: jax.Array
    step: jax.Array


class Sums(eqx.Module):
    change: jax.Array  # p_i (w_i − w)
    part: jax.Array  # p_i
    objective: jax.Array


class Server(eqx.Module):
    w: jax.Array
    key: jax.Array
    t: jax.Array
    status: jax.Array


class FedAvg(Algorithm[Server]):
    """Local steps at every party, then an average.

    batch: rows drawn at each party for each of its steps.
    local_steps: E, steps of a party in a round (default 1).
    step: the step size, a number or a schedule of the rounds such as fp.Decay(1.0, 0.5).
    momentum: of a party's steps within a round, from 0 (default, none) to below 1.
    participation: the part of the parties that is asked in a round (over 0 up to 1, default 1).
    """

    batch: int
    local_steps: int = 1
    step: Schedule | float = 0.1
    momentum: float = 0.0
    participation: float = 1.0
    ridge: float = eqx.field(static=True, default=0.0, repr=False)

    def __check_init__(self) -> None:
        check_steps("FedAvg", self)
        check("FedAvg", "local_steps", self.local_steps, lambda x: x >= 1, "at least one step a round", whole=True)

    def prepared(self, setting: Setting) -> "FedAvg":
        check_free("FedAvg", setting)
        check_batch("FedAvg", self.batch, setting)
        return dataclasses.replace(
            self, step=as_schedule("FedAvg", "step", self.step), ridge=float(setting.ridge or 0.0)
        )

    # party steps

    def join(self, own: Oracle, state: None, message: None) -> tuple[tuple[()], Reply]:
        del own, state, message
        return (), Reply()

    def local(self, own: Oracle, state: Any, message: Call) -> tuple[Any, Reply]:
        """Lines "ClientUpdate" of Algorithm 1."""
        part, optimizer = _part(own), heavy_ball(self.momentum)

        def once(carry: tuple[jax.Array, Any], turn: jax.Array) -> tuple[tuple[jax.Array, Any], jax.Array]:
            w, memory = carry
            batch = on_a_batch(own, folded_key(message.key, turn), self.batch)
            value, gradient = jax.value_and_grad(lambda v: batch(v).objective / part + self.ridge * (v @ v))(w)
            change, memory = optimizer.update(gradient, memory)
            return (w + message.step * change, memory), value

        first = (message.w, optimizer.init(message.w))
        (w, _), values = lax.scan(once, first, jnp.arange(1, self.local_steps + 1))
        weight = asked(own, message.key, self.participation) * part
        return state, Reply(sum=Sums(weight * (w - message.w), weight, weight * values[0]))

    def multipliers(self, own: Oracle, state: Any, answer: Answer) -> jax.Array:
        del state, answer
        return jnp.zeros(own.equality.size)

    # server steps

    def init(self, net: Network, w: jax.Array, goal: Goal, key: jax.Array) -> tuple[Server, PartyStates]:
        del goal
        _, parties = net.exchange(self.join, None, None)
        return Server(w, key, jnp.ones((), int), jnp.asarray(int(Status.running))), parties

    def round(self, server: Server, parties: PartyStates, net: Network) -> tuple[Server, PartyStates, Info]:
        assert isinstance(self.step, Schedule)  # `prepared` has made it one
        step = self.step(server.t.astype(float))
        call = Call(server.w, folded_key(server.key, server.t), step)
        reply, parties = net.exchange(self.local, parties, call)
        change, value = reply.sum.change / reply.sum.part, reply.sum.objective / reply.sum.part
        sound = jnp.all(jnp.isfinite(change)) & jnp.isfinite(value)
        after = Server(server.w + change, server.key, server.t + 1, server.status)
        broken = eqx.tree_at(lambda s: s.status, server, jnp.asarray(int(Status.diverged)))
        slope = jnp.max(jnp.abs(change)) / (step * self.local_steps)
        return choose(sound, after, broken), parties, Info(value, jnp.zeros_like(value), slope)

    # status and answers

    def status(self, server: Server) -> jax.Array:
        return server.status

    def answer(self, server: Server, net: Network) -> Answer:
        program = net.server.program
        pooled = jnp.zeros(len(program.pooled))
        return Answer(server.w, jnp.zeros(len(program.constraints)), pooled, jnp.asarray(0.0))

    def aim(self, server: Server, goal: Goal) -> Server:
        del goal
        return server


def _part(own: Oracle) -> jax.Array:
    """p_i: the sum of the weights that the objective gives to this party's rows; 1/n where it reads none."""
    program = own.program
    means = [place for place, (atom, _) in enumerate(program.atoms) if isinstance(atom, Mean)]
    coefficients = np.asarray(program.objective.coefficients[0])[means]
    part = jnp.asarray(coefficients) @ own.weights.sum(1)
    return jnp.where(part > 0, part, 1.0 / own.parties)
