"""SCAFFOLD: federated averaging whose local steps are corrected for how a party differs from the others.

    at party i, E times:   w_i ← w_i − step_t (∇F̂_i(w_i) − c_i + c)
                           c_i⁺ = c_i − c + (w − w_i) / (E step_t)                                          option II
    at the server:         w ← w + server_step · mean(w_i − w),      c ← c + (1/n) Σ(c_i⁺ − c_i)            over the parties asked

    S. P. Karimireddy et al., SCAFFOLD: stochastic controlled averaging for federated learning, ICML 2020, Algorithm 1.

Here F_i is n times party i's part of the objective, so that the objective is their plain average; `penalty` as in `fed_avg`.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp

from fedpact.algorithms.averaging.local_steps import (
    Call,
    OneModel,
    Server,
    answered,
    at,
    check_local,
    exchange_of,
    line,
    settled,
    sound_or_broken,
    walk,
)
from fedpact.algorithms.parts.batches import answering, asked, folded_key
from fedpact.algorithms.parts.schedules import Schedule
from fedpact.federation.setting import Setting
from fedpact.problem.oracle import Oracle
from fedpact.protocol.algorithm import Goal, Info
from fedpact.protocol.messages import Reply
from fedpact.protocol.network import Network, PartyStates
from fedpact.protocol.options import check


class ControlledCall(Call):
    control: jax.Array  # c


class Sums(eqx.Module):
    change: jax.Array  # w_i − w
    control: jax.Array  # c_i⁺ − c_i
    objective: jax.Array


class ControlledServer(Server):
    control: jax.Array


class SCAFFOLD(OneModel[ControlledServer]):
    """Local steps at every party, corrected by control variates, then an average.

    batch: rows drawn at each party for each of its steps (default: all rows).
    local_steps: E, steps of a party in a round (default 1).
    step: the parties' step size, a number or a schedule of the rounds. server_step: the server's (default 1).
    participation: the part of the parties that is asked in a round (over 0 up to 1, default 1).
    penalty: ρ on the distance to the parties' own sets, a number or a schedule; None (default) for none.
    """

    batch: int | None = None
    local_steps: int = 1
    step: Schedule | float = 0.1
    server_step: float = 1.0
    participation: float = 1.0
    penalty: Schedule | float | None = None
    momentum: float = eqx.field(static=True, default=0.0, repr=False)  # none: control variates assume plain steps
    ridge: float = eqx.field(static=True, default=0.0, repr=False)

    def __check_init__(self) -> None:
        check_local("SCAFFOLD", self)
        check("SCAFFOLD", "server_step", self.server_step, lambda x: x > 0, "the server's step size, over 0")
        check("SCAFFOLD", "momentum", self.momentum, lambda x: x == 0, "SCAFFOLD takes plain steps")

    def prepared(self, setting: Setting) -> "SCAFFOLD":
        return dataclasses.replace(self, **settled("SCAFFOLD", self, setting))

    # party steps

    def join(self, own: Oracle, state: None, w: jax.Array) -> tuple[jax.Array, Reply]:
        del own, state
        return jnp.zeros_like(w), Reply()

    def local(self, own: Oracle, state: jax.Array, message: ControlledCall) -> tuple[jax.Array, Reply]:
        """Lines 6 to 14; `state` is c_i."""

        def corrected(w: jax.Array) -> jax.Array:
            del w
            return message.control - state

        w, value = walk(own, message.w, message.key, message.step, self, message.penalty, 1.0 / own.parties, corrected)
        weight = self.is_asked(own, message.key)
        control = weight * ((message.w - w) / (self.local_steps * message.step) - message.control)
        sums = Sums(weight * (w - message.w), control, weight * value)
        return state + control, answered(own, message.w, sums)

    def is_asked(self, own: Oracle, key: jax.Array) -> jax.Array:
        """1 or 0."""
        return asked(own, key, self.participation) * answering(own.parties, self.participation) / own.parties

    # server steps

    def init(self, net: Network, w: jax.Array, goal: Goal, key: jax.Array) -> tuple[ControlledServer, PartyStates]:
        del goal
        _, parties = net.exchange(self.join, None, w)
        start = Server.at_start(w, key)
        return ControlledServer(start.w, start.key, start.t, start.status, jnp.zeros_like(w)), parties

    def round(
        self, server: ControlledServer, parties: PartyStates, net: Network
    ) -> tuple[ControlledServer, PartyStates, Info]:
        step, penalty = at(self.step, server.t), at(self.penalty, server.t)
        assert step is not None  # `prepared` has made it a schedule
        call = ControlledCall(server.w, folded_key(server.key, server.t), step, penalty, server.control)
        reply, parties = exchange_of(self, net)(self.local, parties, call)
        count = answering(net.parties, self.participation)
        change, value = reply.sum.change / count, reply.sum.objective / count
        slope = jnp.max(jnp.abs(change)) / (step * self.local_steps)
        w, control = server.w + self.server_step * change, server.control + reply.sum.control / net.parties
        after = ControlledServer(w, server.key, server.t + 1, server.status, control)
        return sound_or_broken(after, server, value), parties, line(value, slope, reply)
