"""Steps that a party takes by itself: what FedAvg, FedProx, SCAFFOLD and PC-FedAvg have in common.

At party i, E times in a round, from the server's w:

    w ← w − step · m,     m = ∇F̂_i(w) + ρ(w − Π_i(w)) + correction(w) + momentum · m

F_i is party i's mean loss. ρ > 0 adds (ρ/2) dist(w, X_i)² where parties have sets of their own.
"""

import math
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax

from fedpact.algorithms.parts.batches import (
    check_batch,
    check_plain,
    check_sampling,
    drawn_places,
    folded_key,
    rows_of,
)
from fedpact.algorithms.parts.schedules import (
    Schedule,
    StepCount,
    as_count,
    as_schedule,
    check_count,
    check_penalty,
    heavy_ball,
)
from fedpact.arrays import choose
from fedpact.federation.setting import Setting
from fedpact.problem.oracle import Oracle
from fedpact.protocol.algorithm import Answer, Info, OnePhase, PersonalInfo, Status
from fedpact.protocol.messages import Reply
from fedpact.protocol.phases import Phase, Phases, ServerData
from fedpact.records import Record

# messages


class LocalTask(Record):
    """Down: where a party's steps begin, and how long they are."""

    parameters: jax.Array  # w
    random_key: jax.Array
    step_size: jax.Array
    penalty: jax.Array | None  # ρ
    local_steps: jax.Array | None = None  # E, where it varies from round to round


class SetDistance(Record):
    """Up, where parties have sets of their own."""

    distance_to_set: jax.Array


# states


class ServerState(Record):
    w: jax.Array
    key: jax.Array
    t: jax.Array  # the round, from 1 on
    status: jax.Array


State = TypeVar("State", bound=ServerState)

# options


class LocalOptions(Protocol):
    """Options that all methods of local steps have."""

    @property
    def batch(self) -> int | None: ...
    @property
    def local_steps(self) -> StepCount: ...
    @property
    def step(self) -> Schedule | float: ...
    @property
    def participation(self) -> float: ...
    @property
    def penalty(self) -> Schedule | float | None: ...


def check_local(options: LocalOptions) -> None:
    owner = type(options).__name__
    check_sampling(owner, 1 if options.batch is None else options.batch, options.participation)
    check_count(owner, options.local_steps)
    as_schedule(owner, "step", options.step)
    if options.penalty is not None:
        check_penalty(owner, options.step, options.penalty)


def local_steps(options: LocalOptions, setting: Setting, momentum: float = 0.0) -> "LocalSteps":
    """A party's steps in this setting; raises ValueError where they do not fit it."""
    owner = type(options).__name__
    check_plain(owner, setting, draws=options.batch is not None)
    check_batch(owner, options.batch, setting)
    if options.penalty is not None and setting.split != "personal":
        raise ValueError(
            f"{owner}(penalty=...) is on the distance to the parties' own sets, and the problem has none; state them by "
            "fp.minimize(..., personal=fp.Personal(sets, pull)), or leave penalty= out"
        )
    return LocalSteps(
        count=as_count(options.local_steps),
        batch=options.batch,
        step=as_schedule(owner, "step", options.step),
        penalty=None if options.penalty is None else as_schedule(owner, "penalty", options.penalty),
        momentum=momentum,
        participation=options.participation,
        parties=setting.parties,
        ridge=float(setting.ridge or 0.0),
    )


# party steps


class LocalSteps(eqx.Module):
    """The steps of a party in a round."""

    count: int | Schedule  # E
    batch: int | None
    step: Schedule
    penalty: Schedule | None
    momentum: float
    participation: float
    parties: int
    ridge: float  # a where the regulariser is a‖w‖²

    def task(self, server: ServerState) -> LocalTask:
        """The message of a round."""
        t = server.t.astype(float)
        penalty = None if self.penalty is None else self.penalty(t)
        count = None if isinstance(self.count, int) else self.count(t)
        return LocalTask(server.w, folded_key(server.key, server.t), self.step(t), penalty, count)

    def count_in(self, task: LocalTask) -> Any:
        """E in a round."""
        return self.count if task.local_steps is None else task.local_steps

    def drawn(self, task: LocalTask) -> jax.Array:
        """The places of the parties that are asked."""
        return drawn_places(task.random_key, self.parties, self.participation)

    def slope(self, server: ServerState, change: jax.Array) -> jax.Array:
        """The largest entry of the mean gradient, as a round's change of the parameters shows it."""
        task = self.task(server)
        return jnp.max(jnp.abs(change)) / (task.step_size * self.count_in(task))

    def batch_of(self, own: Oracle, task: LocalTask, turn: jax.Array) -> Oracle:
        """A party's functions on the rows of one of its steps; turn = 1, …, E."""
        return rows_of(own, folded_key(task.random_key, turn), self.batch)

    def walk(
        self,
        own: Oracle,
        task: LocalTask,
        weight: jax.Array | float,
        correction: Callable[[jax.Array], jax.Array] | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        """Where a party's steps lead, and F̂_i where they begin: its part of the objective, divided by `weight`."""
        optimizer = heavy_ball(self.momentum)
        own = own.with_own_rows() if self.batch is None else own

        def once(carry: tuple[jax.Array, Any], turn: jax.Array) -> tuple[tuple[jax.Array, Any], jax.Array]:
            w, memory = carry
            batch = self.batch_of(own, task, turn)
            value, gradient = jax.value_and_grad(lambda v: batch(v).objective / weight + self.ridge * (v @ v))(w)
            gradient = gradient + penalty_gradient(own, task, w)
            if correction is not None:
                gradient = gradient + correction(w)
            change, memory = optimizer.update(gradient, memory)
            return (w + task.step_size * change, memory), value

        first = task.parameters, optimizer.init(task.parameters)
        (w, _), value = self.repeat(task, once, first)
        return w, value

    def repeat(self, task: LocalTask, once: Callable[[Any, jax.Array], tuple[Any, jax.Array]], first: Any) -> Any:
        """Where E steps lead, and what the first of them told; turn = 1, …, E."""
        if task.local_steps is None:
            assert isinstance(self.count, int)
            carry, values = lax.scan(once, first, jnp.arange(1, self.count + 1))
            return carry, values[0]
        begun = once(first, jnp.asarray(1))
        last = task.local_steps.astype(int)
        carry = lax.fori_loop(jnp.asarray(2), last + 1, lambda turn, carry: once(carry, turn)[0], begun[0])
        return carry, begun[1]


def penalty_gradient(own: Oracle, task: LocalTask, w: jax.Array) -> jax.Array | float:
    """ρ(w − Π_i(w)); 0 without a penalty."""
    if task.penalty is None or own.personal is None:
        return 0.0
    return task.penalty * own.personal.outside(w)


def part_of(own: Oracle) -> jax.Array:
    """p_i: the sum of the weights that the objective gives to this party's rows; 1/n where it reads none."""
    weight = own.objective_weight()
    return jnp.where(weight > 0, weight, 1.0 / own.parties)


def reply_of(own: Oracle, w: jax.Array, sums: Any) -> Reply:
    """A party's reply: sums, and where it has a set of its own, how far w is outside."""
    if own.personal is None:
        return Reply(sum=sums)
    distance = SetDistance(own.personal.distance(w))
    return Reply(sum=sums, max=distance, per_party=own.disclose(distance))


# server steps


class LocalMethod(OnePhase[State]):
    """A method whose parties take local steps and whose server averages; asking, stepping and hearing are left to each."""

    steps: LocalSteps

    @property
    def round(self) -> Phases:
        """Where not all parties take part anyway, one that stays away is one that takes none."""
        some = self.steps.participation < 1
        return (Phase(self.ask, self.step, self.hear, optional=some, drawn=self.drawn if some else None),)

    def drawn(self, message: Any) -> jax.Array:
        """The places of the parties that are asked in a round, from its message (default: a `LocalTask`)."""
        return self.steps.drawn(message)

    def answer(self, own: ServerData, carry: State) -> Answer:
        return Answer.without_multipliers(carry.w)


def or_diverged(after: State, before: State, objective: jax.Array, largest: float = math.inf) -> State:
    """The new state; the old one with the verdict "diverged" where the objective is not finite or parameters reach `largest`."""
    sound = jnp.all(jnp.abs(after.w) < largest) & jnp.isfinite(objective)
    return choose(sound, after, eqx.tree_at(lambda s: s.status, before, Status.diverged.as_array()))


def history_line(objective: jax.Array, slope: jax.Array, reply: Reply) -> Info:
    """The round in the history."""
    if reply.max is None:
        return Info(objective, jnp.zeros_like(objective), slope)
    disclosed: SetDistance | None = reply.per_party
    distances = None if disclosed is None else disclosed.distance_to_set
    return PersonalInfo(objective, reply.max.distance_to_set, slope, distances)
