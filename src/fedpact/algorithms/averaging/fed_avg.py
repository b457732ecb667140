"""Federated averaging: every party takes some steps of its own, the server averages where they lead.

    at party i, E times:   w_i ← w_i − step_t · m,     m = ∇F̂_i(w_i) + momentum · m
    at the server:         w ← w + Σ_i p_i (w_i − w) / Σ_i p_i          over the parties that were asked

    B. McMahan et al., Communication-efficient learning of deep networks from decentralized data, AISTATS 2017.

F_i is party i's mean loss, p_i its part of the objective: its part of all rows where the objective is pooled, else 1/n.
Where parties have sets of their own, `penalty` ρ adds (ρ/2) dist(w, X_i)² to F_i: a baseline for personal models.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp

from fedpact.algorithms.averaging.local_steps import (
    LocalMethod,
    LocalTask,
    ServerState,
    check_local,
    history_line,
    local_steps,
    or_diverged,
    part_of,
    reply_of,
)
from fedpact.algorithms.averaging.robust import RobustAverage, check_average, fitting, over_finite
from fedpact.algorithms.parts.batches import asked, takes_part
from fedpact.algorithms.parts.schedules import Schedule, StepCount, check_momentum
from fedpact.federation.setting import Setting
from fedpact.problem.oracle import Oracle
from fedpact.protocol.algorithm import Algorithm, Begin, Info, Split, Status
from fedpact.protocol.messages import Reply
from fedpact.protocol.phases import ServerData
from fedpact.records import Record

# messages


class WeightedChange(Record):
    """Up: sums."""

    parameter_change: jax.Array  # p_i (w_i − w)
    weight: jax.Array  # p_i
    objective: jax.Array  # p_i F̂_i(w)


class SingleChange(Record):
    """Up, where the average is a robust one: not added up."""

    parameter_change: jax.Array  # w_i − w
    asked: jax.Array  # 1, or 0 for a party that was not
    objective: jax.Array  # F̂_i(w)


# options


class FedAvg(Algorithm):
    """Local steps at every party, then an average.

    - `batch`: rows drawn at each party for each of its steps (at least 1, default: all rows).
    - `local_steps`: E, steps of a party in a round (at least 1, default 1); or a list of E, one for each round, of which the last
      goes on, or a schedule, rounded.
    - `step`: the step size, a number > 0 or a schedule of the rounds such as fp.Decay(1.0, 0.5) (default 0.1).
    - `momentum`: of a party's steps within a round (from 0 to below 1, default 0: none).
    - `participation`: the part of the parties that is asked in a round (over 0 up to 1, default 1); the others compute and
      send nothing.
    - `penalty`: ρ on the distance to the parties' own sets, a number > 0 or a schedule (default: none).
    - `average`: fp.TrimmedMean() or fp.MedianOfMeans(), which a few lying parties cannot move far; the server then needs every
      party's reply by itself, and every party counts alike (default None: the plain average).
    """

    supports: ClassVar[frozenset[Split]] = frozenset({"rows", "personal"})

    batch: int | None = None
    local_steps: StepCount = 1
    step: Schedule | float = 0.1
    momentum: float = 0.0
    participation: float = 1.0
    penalty: Schedule | float | None = None
    average: RobustAverage | None = None

    def __check_init__(self) -> None:
        check_local(self)
        check_average("FedAvg", self.average)
        check_momentum("FedAvg", self.momentum)

    @property
    def reads_single_replies(self) -> bool:
        return self.average is not None

    @property
    def rows_per_mean(self) -> int | None:
        return self.batch

    def bound(self, setting: Setting) -> "AveragingMethod":
        return AveragingMethod(local_steps(self, setting, self.momentum), average=fitting(self, setting))


class AveragingMethod(LocalMethod[ServerState]):
    """FedAvg as it runs, and FedProx.

    - `proximal_weight`: mu of FedProx (default 0: FedAvg).
    - `average`: a robust one (default None: the plain one).
    """

    proximal_weight: float = 0.0
    average: RobustAverage | None = None

    # party steps

    def step(self, own: Oracle, state: tuple[()], message: LocalTask) -> tuple[tuple[()], Reply]:
        """Procedure "ClientUpdate" of Algorithm 1."""
        part, mu, start = part_of(own), self.proximal_weight, message.parameters
        w, value = self.steps.walk(own, message, part, (lambda w: mu * (w - start)) if mu else None)
        if self.average is not None:
            there = takes_part(own, message.random_key, self.steps.participation)
            return state, Reply(per_party=SingleChange(w - start, there, value))
        weight = asked(own, message.random_key, self.steps.participation) * part
        sums = WeightedChange(weight * (w - start), weight, weight * value)
        return state, reply_of(own, start, sums)

    # server steps

    def invite(self, own: ServerData, begin: Begin) -> None:
        """Parties have no state to begin with."""

    def start(self, own: ServerData, begin: Begin, reply: Reply) -> ServerState:
        return ServerState(begin.w, begin.key, jnp.ones((), int), Status.running.as_array())

    def ask(self, own: ServerData, server: ServerState) -> LocalTask:
        return self.steps.task(server)

    def hear(self, own: ServerData, server: ServerState, reply: Reply) -> tuple[ServerState, Info]:
        if self.average is not None:
            each: SingleChange = reply.per_party
            change = over_finite(self.average, each.parameter_change, each.asked)
            value = over_finite(self.average, each.objective, each.asked)
        else:
            sums: WeightedChange = reply.sum
            weight = jnp.where(sums.weight > 0, sums.weight, 1.0)  # 0 where all that were to answer stayed away
            change, value = sums.parameter_change / weight, sums.objective / weight
        after = ServerState(server.w + change, server.key, server.t + 1, server.status)
        line = history_line(value, self.steps.slope(server, change), reply)
        return or_diverged(after, server, value), line
