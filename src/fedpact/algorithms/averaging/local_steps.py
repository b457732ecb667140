"""Steps that a party takes by itself on a model for all: what FedAvg, FedProx and SCAFFOLD have in common.

At party i, in a round:

    w ← w − step · m,     m = ∇F̂_i(w) + ρ(w − Π_i(w)) + more(w) + momentum · m

F_i is party i's mean loss. ρ > 0 adds (ρ/2) dist(w, X_i)² where parties have sets of their own.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, Generic, Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpact.algorithms.parts.batches import asked, check_batch, check_free, folded_key, heavy_ball, rows_of
from fedpact.algorithms.parts.descent import choose
from fedpact.algorithms.parts.schedules import Schedule, as_schedule, check_penalty
from fedpact.federation.setting import Setting
from fedpact.problem.expressions import Mean
from fedpact.problem.oracle import Oracle
from fedpact.protocol.algorithm import Answer, Goal, Info, PersonalAlgorithm, PersonalInfo, Status
from fedpact.protocol.messages import Reply
from fedpact.protocol.network import Network, PartyStates
from fedpact.protocol.options import check


class Server(eqx.Module):
    w: jax.Array
    key: jax.Array
    t: jax.Array
    status: jax.Array

    @classmethod
    def at_start(cls, w: jax.Array, key: jax.Array) -> "Server":
        return cls(w, key, jnp.ones((), int), jnp.asarray(int(Status.running)))


Held = TypeVar("Held", bound=Server)


class OneModel(PersonalAlgorithm[Held], Generic[Held]):
    """A method whose server holds one model for all; its options, and how it answers. Rounds are left to each method."""

    models: ClassVar[Literal["one", "each"]] = "one"

    batch: eqx.AbstractVar[int | None]
    local_steps: eqx.AbstractVar[int]
    step: eqx.AbstractVar[Schedule | float]
    momentum: eqx.AbstractVar[float]
    participation: eqx.AbstractVar[float]
    penalty: eqx.AbstractVar[Schedule | float | None]
    ridge: eqx.AbstractVar[float]

    def block(self, own: Oracle, state: Any, answer: Answer) -> jax.Array:
        del own, state
        return answer.w

    def multipliers(self, own: Oracle, state: Any, answer: Answer) -> jax.Array:
        del state, answer
        return jnp.zeros(own.equality.size)

    def status(self, server: Held) -> jax.Array:
        return server.status

    def answer(self, server: Held, net: Network) -> Answer:
        program = net.server.program
        pooled = jnp.zeros(len(program.pooled))
        return Answer(server.w, jnp.zeros(len(program.constraints)), pooled, jnp.asarray(0.0))

    def aim(self, server: Held, goal: Goal) -> Held:
        del goal
        return server


class Call(eqx.Module):
    w: jax.Array
    key: jax.Array
    step: jax.Array
    penalty: jax.Array | None


class Sums(eqx.Module):
    change: jax.Array  # p_i (w_i − w)
    part: jax.Array  # p_i
    objective: jax.Array


class Averaging(OneModel[Server]):
    """A method whose server averages where the parties' steps lead; the steps are left to each method."""

    @abc.abstractmethod
    def led(self, own: Oracle, message: Call) -> tuple[jax.Array, jax.Array]:
        """A party's steps: where they lead from the message's w, and F̂_i there."""

    def join(self, own: Oracle, state: None, message: None) -> tuple[Any, Reply]:
        del own, state, message
        return (), Reply()

    def local(self, own: Oracle, state: Any, message: Call) -> tuple[Any, Reply]:
        w, value = self.led(own, message)
        weight = asked(own, message.key, self.participation) * part_of(own)
        return state, answered(own, message.w, Sums(weight * (w - message.w), weight, weight * value))

    def init(self, net: Network, w: jax.Array, goal: Goal, key: jax.Array) -> tuple[Server, PartyStates]:
        del goal
        _, parties = net.exchange(self.join, None, None)
        return Server.at_start(w, key), parties

    def round(self, server: Server, parties: PartyStates, net: Network) -> tuple[Server, PartyStates, Info]:
        step, penalty = at(self.step, server.t), at(self.penalty, server.t)
        assert step is not None  # `prepared` has made it a schedule
        call = Call(server.w, folded_key(server.key, server.t), step, penalty)
        reply, parties = exchange_of(self, net)(self.local, parties, call)
        part = jnp.where(reply.sum.part > 0, reply.sum.part, 1.0)  # 0 where all that were to answer stayed away
        change, value = reply.sum.change / part, reply.sum.objective / part
        slope = jnp.max(jnp.abs(change)) / (step * self.local_steps)
        after = Server(server.w + change, server.key, server.t + 1, server.status)
        return sound_or_broken(after, server, value), parties, line(value, slope, reply)


def exchange_of(method: "OneModel[Any]", net: Network) -> Callable[..., tuple[Reply, PartyStates]]:
    """How a round asks: where not all parties take part anyway, one that stays away is one that takes none."""
    return net.partial_exchange if method.participation < 1 else net.exchange


def sound_or_broken(after: Held, before: Held, value: jax.Array) -> Held:
    """The new state, or the old one with the verdict that the steps lead to nothing finite."""
    sound = jnp.all(jnp.isfinite(after.w)) & jnp.isfinite(value)
    broken = eqx.tree_at(lambda s: s.status, before, jnp.asarray(int(Status.diverged)))
    return choose(sound, after, broken)


def walk(
    own: Oracle,
    w: jax.Array,
    key: jax.Array,
    step: jax.Array,
    method: "OneModel[Any]",
    penalty: jax.Array | None,
    part: jax.Array | float,
    more: Callable[[jax.Array], jax.Array] | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Where the steps lead from w, and F̂_i at w: the party's objective divided by its `part`."""
    optimizer, personal = heavy_ball(method.momentum), own.personal

    def once(carry: tuple[jax.Array, Any], turn: jax.Array) -> tuple[tuple[jax.Array, Any], jax.Array]:
        w, memory = carry
        batch = rows_of(own, folded_key(key, turn), method.batch)
        value, gradient = jax.value_and_grad(lambda v: batch(v).objective / part + method.ridge * (v @ v))(w)
        if penalty is not None and personal is not None:
            gradient = gradient + penalty * personal.outside(w)
        if more is not None:
            gradient = gradient + more(w)
        change, memory = optimizer.update(gradient, memory)
        return (w + step * change, memory), value

    (w, _), values = lax.scan(once, (w, optimizer.init(w)), jnp.arange(1, method.local_steps + 1))
    return w, values[0]


def part_of(own: Oracle) -> jax.Array:
    """p_i: the sum of the weights that the objective gives to this party's rows; 1/n where it reads none."""
    program = own.program
    means = [place for place, (atom, _) in enumerate(program.atoms) if isinstance(atom, Mean)]
    coefficients = np.asarray(program.objective.coefficients[0])[means]
    part = jnp.asarray(coefficients) @ own.weights.sum(1)
    return jnp.where(part > 0, part, 1.0 / own.parties)


def answered(own: Oracle, w: jax.Array, sums: Any) -> Reply:
    """A party's reply: sums, and where it has a set of its own, how far w is outside."""
    if own.personal is None:
        return Reply(sum=sums)
    distance = own.personal.distance(w)
    return Reply(sum=sums, max=distance, each=own.disclose(distance))


def line(value: jax.Array, slope: jax.Array, reply: Reply) -> Info:
    """The round in the history."""
    if reply.max is None:
        return Info(value, jnp.zeros_like(value), slope)
    return PersonalInfo(value, reply.max, slope, reply.each)


def check_local(owner: str, method: Any) -> None:
    """The options that these methods share."""
    if method.batch is not None:
        check(owner, "batch", method.batch, lambda x: x >= 1, "a mini-batch has at least one row", whole=True)
    check(owner, "local_steps", method.local_steps, lambda x: x >= 1, "at least one step a round", whole=True)
    check(owner, "momentum", method.momentum, lambda x: 0 <= x < 1, "momentum is from 0 to below 1")
    words = "the part of the parties that is asked in a round, over 0 and up to 1"
    check(owner, "participation", method.participation, lambda x: 0 < x <= 1, words)
    as_schedule(owner, "step", method.step)
    if method.penalty is not None:
        check_penalty(owner, method.step, method.penalty)


def settled(owner: str, method: Any, setting: Setting) -> dict[str, Any]:
    """The fields that depend on the problem; refused where the method does not fit it."""
    check_free(owner, setting, draws=method.batch is not None)
    check_batch(owner, method.batch, setting)
    if method.penalty is not None and not setting.personal:
        raise ValueError(
            f"{owner}(penalty=...) is on the distance to the parties' own sets, and the problem has none; state them by "
            "fp.minimize(..., personal=fp.Personal(sets, pull)), or leave penalty= out"
        )
    penalty = None if method.penalty is None else as_schedule(owner, "penalty", method.penalty)
    return {"step": as_schedule(owner, "step", method.step), "penalty": penalty, "ridge": float(setting.ridge or 0.0)}


def at(schedule: Schedule | float | None, t: jax.Array) -> jax.Array | None:
    """A schedule's number for round t, None where there is none."""
    return schedule(t.astype(float)) if isinstance(schedule, Schedule) else None
