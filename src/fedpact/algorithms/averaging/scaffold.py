"""SCAFFOLD: federated averaging whose local steps are corrected for how a party differs from the others.

    at party i, E times:   w_i ← w_i − step_t (∇F̂_i(w_i) − c_i + c)
                           c_i⁺ = c_i − c + (w − w_i) / (E step_t)                                          option II
    at the server:         w ← w + server_step · mean(w_i − w),      c ← c + (1/n) Σ(c_i⁺ − c_i)            over the parties asked

    S. P. Karimireddy et al., SCAFFOLD: stochastic controlled averaging for federated learning, ICML 2020, Algorithm 1.

Here F_i is n times party i's part of the objective, so that the objective is their plain average; `penalty` as in `fed_avg`.
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
    reply_of,
)
from fedpact.algorithms.averaging.robust import RobustAverage, check_average, fitting, over_finite
from fedpact.algorithms.parts.batches import answering, takes_part
from fedpact.algorithms.parts.schedules import Schedule, StepCount
from fedpact.federation.setting import Setting
from fedpact.problem.oracle import Oracle
from fedpact.protocol.algorithm import Algorithm, Begin, FirstParameters, Info, Split, Status
from fedpact.protocol.messages import Reply
from fedpact.protocol.options import check
from fedpact.protocol.phases import ServerData
from fedpact.records import Record

# messages


class ControlledTask(Record):
    """Down."""

    task: LocalTask
    control_variate: jax.Array  # c


class ControlledChange(Record):
    """Up: sums."""

    parameter_change: jax.Array  # w_i − w
    control_variate_change: jax.Array  # c_i⁺ − c_i
    objective: jax.Array


class SingleControlledChange(ControlledChange):
    """Up, where the average is a robust one: not added up."""

    asked: jax.Array  # 1, or 0 for a party that was not


# states


class ControlState(Record):
    control: jax.Array  # c_i


class ControlledServerState(ServerState):
    control: jax.Array  # c


# options


class SCAFFOLD(Algorithm):
    """Local steps at every party, corrected by control variates, then an average.

    - `batch`: rows drawn at each party for each of its steps (at least 1, default: all rows).
    - `local_steps`: E, steps of a party in a round (at least 1, default 1); or a list of E, one for each round, of which the last
      goes on, or a schedule, rounded.
    - `step`: the parties' step size, a number > 0 or a schedule of the rounds (default 0.1).
    - `server_step`: the server's step size (> 0, default 1).
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
    server_step: float = 1.0
    participation: float = 1.0
    penalty: Schedule | float | None = None
    average: RobustAverage | None = None

    def __check_init__(self) -> None:
        check_local(self)
        check_average("SCAFFOLD", self.average)
        check("SCAFFOLD", "server_step", self.server_step, lambda x: x > 0, "the server's step size, over 0")

    @property
    def reads_single_replies(self) -> bool:
        return self.average is not None

    @property
    def rows_per_mean(self) -> int | None:
        return self.batch

    def bound(self, setting: Setting) -> "SCAFFOLDMethod":
        return SCAFFOLDMethod(local_steps(self, setting), self.server_step, fitting(self, setting))


class SCAFFOLDMethod(LocalMethod[ControlledServerState]):
    """SCAFFOLD as it runs."""

    server_step: float
    average: RobustAverage | None = None  # a robust one, of both changes

    # party steps

    def join(self, own: Oracle, state: None, message: FirstParameters) -> tuple[ControlState, Reply]:
        return ControlState(jnp.zeros_like(message.parameters)), Reply()

    def step(self, own: Oracle, state: ControlState, message: ControlledTask) -> tuple[ControlState, Reply]:
        """Lines 6 to 14."""
        task, correction = message.task, message.control_variate - state.control
        w, value = self.steps.walk(own, task, 1.0 / own.parties, lambda w: correction)
        weight = takes_part(own, task.random_key, self.steps.participation)
        control = (task.parameters - w) / (self.steps.count_in(task) * task.step_size) - message.control_variate
        if self.average is not None:
            each = SingleControlledChange(w - task.parameters, control, value, weight)
            return ControlState(state.control + weight * control), Reply(per_party=each)
        sums = ControlledChange(weight * (w - task.parameters), weight * control, weight * value)
        return ControlState(state.control + weight * control), reply_of(own, task.parameters, sums)

    # server steps

    def drawn(self, message: ControlledTask) -> jax.Array:
        return self.steps.drawn(message.task)

    def start(self, own: ServerData, begin: Begin, reply: Reply) -> ControlledServerState:
        running = Status.running.as_array()
        return ControlledServerState(begin.w, begin.key, jnp.ones((), int), running, jnp.zeros_like(begin.w))

    def ask(self, own: ServerData, server: ControlledServerState) -> ControlledTask:
        return ControlledTask(self.steps.task(server), server.control)

    def hear(self, own: ServerData, server: ControlledServerState, reply: Reply) -> tuple[ControlledServerState, Info]:
        count = answering(own.parties, self.steps.participation)
        if self.average is not None:
            each: SingleControlledChange = reply.per_party
            change = over_finite(self.average, each.parameter_change, each.asked)
            value = over_finite(self.average, each.objective, each.asked)
            control_change = over_finite(self.average, each.control_variate_change, each.asked) * (count / own.parties)
        else:
            sums: ControlledChange = reply.sum
            change, value = sums.parameter_change / count, sums.objective / count
            control_change = sums.control_variate_change / own.parties
        w = server.w + self.server_step * change
        control = server.control + control_change
        after = ControlledServerState(w, server.key, server.t + 1, server.status, control)
        line = history_line(value, self.steps.slope(server, change), reply)
        return or_diverged(after, server, value), line
