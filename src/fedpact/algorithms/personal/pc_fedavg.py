"""PC-FedAvg: personal models by local steps, a penalty for the distance to each party's own set, and messages of size O(n).

    minimise over x_j ∈ X_j     (1/m) Σ_i [ f_i(x̄) + (σ_i/2) ‖x_i − x̄‖² ],      x̄ = (1/m) Σ_i x_i

    Personalized constrained federated averaging, Algorithm 1: party i holds a copy x_i^(j) of every party's block, takes H steps
    on all of them with ∇ of f_i(x̄) + (σ_i/2)‖x_i − x̄‖² + (ρ/2) dist(x_i, X_i)², and the server averages each block.

The copies j ≠ i all move alike, x^(j) ← a_i x^(j) + b_k, so party i needs its own block y, S = Σ_{j≠i} x^(j) and B = what the b_k
have added up to, and not the copies themselves. With α_i = a_i^H and x the own block before the round,

    up      q_i = y_i − α_i x_i − B_i,     B_i,     α_i                     the server adds them
    down    x̄,    ΣB,    Σα                of the round before:             x_i ← (q_i + Σα x_i + ΣB)/m
            x̄ ← (Σq + mΣα x̄ + mΣB)/m²

which is Algorithm 1 to rounding, whatever m. Where p of m parties are asked, the sums run over those and one m of each divisor
is p; a party that is not asked moves its block with ΣB and Σα as everybody does, so it has to hear of every round.

    line 8, j ≠ i, corrected:       a_i = 1,             b = −γ(g/m − (σ_i/m)(y − x̄))
    as printed, with x^(j) for y:   a_i = 1 + γσ_i/m,    b = −γ(g/m + (σ_i/m) x̄)

The printed line is not the gradient: with equal σ it pulls nothing to the mean, with unequal ones some blocks away from it.

    code: step = γ, penalty = ρ, local_steps = H, q = q_i, others = S, drift = B, share = α
"""

import dataclasses
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax

from fedpact.algorithms.parts.batches import answering, check_batch, check_free, folded_key, rows_of
from fedpact.algorithms.parts.descent import choose
from fedpact.algorithms.parts.schedules import Schedule, as_schedule, check_penalty
from fedpact.federation.setting import Setting
from fedpact.problem.oracle import Oracle
from fedpact.protocol.algorithm import Answer, Goal, PersonalAlgorithm, PersonalInfo, Status
from fedpact.protocol.messages import Reply
from fedpact.protocol.network import Network, PartyStates
from fedpact.protocol.options import check
from fedpact.protocol.sampling import chosen

LARGEST = 1e12  # parameters from which on a run has diverged


class Closing(eqx.Module):
    """What closes a round at every party: sums over those that were asked."""

    drift: jax.Array  # ΣB
    share: jax.Array  # Σα


class Call(eqx.Module):
    """Down."""

    mean: jax.Array  # x̄
    closing: Closing  # of the round before
    key: jax.Array
    step: jax.Array
    penalty: jax.Array


class Sums(eqx.Module):
    """Up."""

    q: jax.Array
    drift: jax.Array
    share: jax.Array
    objective: jax.Array


class State(eqx.Module):
    """A party's: its block before its last steps, and what these have made of it (0 where it was not asked)."""

    x: jax.Array
    q: jax.Array


class Server(eqx.Module):
    mean: jax.Array
    closing: Closing
    key: jax.Array
    t: jax.Array
    status: jax.Array


class PersonalAnswer(Answer):
    closing: Closing
    broken: jax.Array  # whether the last round led to nothing finite


class PCFedAvg(PersonalAlgorithm[Server]):
    """Local steps on every party's own model, one exchange a round, of 2n + 3 numbers each way whatever the parties.

    step: γ, a number or a schedule of the rounds such as fp.Decay(1.0, 0.5).
    local_steps: H, steps of a party in a round.
    penalty: ρ on the squared distance to a party's set, halved; a number or a schedule such as fp.Growth(1.0, 0.25, 10_000).
    batch: rows drawn at each party for each of its steps (default: all rows).
    participation: the part of the parties that is asked in a round (over 0 up to 1, default 1).
    corrected: whether the other parties' blocks follow the gradient (default) or the paper's line 8: `as_printed`.

    A penalty leaves models outside their sets, and local steps drift; so what is handed out is projected, and the result tells
    what the projection moved. fp.PersonalProjected is exact.
    """

    models: ClassVar[Literal["one", "each"]] = "each"

    step: Schedule | float
    local_steps: int
    penalty: Schedule | float
    batch: int | None = None
    participation: float = 1.0
    corrected: bool = True
    ridge: float = eqx.field(static=True, default=0.0, repr=False)

    @classmethod
    def as_printed(
        cls,
        step: Schedule | float,
        local_steps: int,
        penalty: Schedule | float,
        batch: int | None = None,
        participation: float = 1.0,
    ) -> "PCFedAvg":
        """With line 8 as the paper prints it."""
        return cls(step, local_steps, penalty, batch, participation, corrected=False)

    def __check_init__(self) -> None:
        as_schedule("PCFedAvg", "step", self.step)
        as_schedule("PCFedAvg", "penalty", self.penalty)
        check("PCFedAvg", "local_steps", self.local_steps, lambda x: x >= 1, "H, at least one step a round", whole=True)
        if self.batch is not None:
            check("PCFedAvg", "batch", self.batch, lambda x: x >= 1, "a mini-batch has at least one row", whole=True)
        words = "the part of the parties that is asked in a round, over 0 and up to 1"
        check("PCFedAvg", "participation", self.participation, lambda x: 0 < x <= 1, words)
        check_penalty("PCFedAvg", self.step, self.penalty)

    def prepared(self, setting: Setting) -> "PCFedAvg":
        check_free("PCFedAvg", setting, draws=self.batch is not None)
        check_batch("PCFedAvg", self.batch, setting)
        step, penalty = as_schedule("PCFedAvg", "step", self.step), as_schedule("PCFedAvg", "penalty", self.penalty)
        return dataclasses.replace(self, step=step, penalty=penalty, ridge=float(setting.ridge or 0.0))

    # party steps

    def join(self, own: Oracle, state: None, w: jax.Array) -> tuple[State, Reply]:
        del own, state
        return State(w, jnp.zeros_like(w)), Reply()

    def local(self, own: Oracle, state: State, message: Call) -> tuple[State, Reply]:
        """Lines 3 to 9 for all blocks at once."""
        personal = own.personal
        assert personal is not None
        m, asked = own.parties, self.is_asked(own, message.key)
        x = self.closed(state, message.closing, m)
        pull, step = personal.pull, message.step
        growth = 1.0 if self.corrected else 1.0 + step * pull / m

        def once(
            carry: tuple[jax.Array, jax.Array, jax.Array], turn: jax.Array
        ) -> tuple[tuple[jax.Array, jax.Array, jax.Array], jax.Array]:
            y, others, drift = carry
            mean = (y + others) / m
            batch = rows_of(own, folded_key(message.key, turn), self.batch)
            value, g = jax.value_and_grad(lambda w: m * batch(w).objective + self.ridge * (w @ w))(mean)
            cross = -(y - mean) if self.corrected else mean
            b = -step * (g + pull * cross) / m
            down = g / m + message.penalty * personal.outside(y) + pull * (m - 1) / m * (y - mean)
            return (y - step * down, growth * others + (m - 1) * b, growth * drift + b), value

        first = (x, m * message.mean - x, jnp.zeros_like(x))
        (y, _, drift), values = lax.scan(once, first, jnp.arange(1, self.local_steps + 1))
        share = asked * growth**self.local_steps
        q, drift = asked * y - share * x - asked * drift, asked * drift
        distance = personal.distance(x)
        sums = Sums(q, drift, share, (values[0] + personal.cost(x, message.mean)) / m)
        return State(x, q), Reply(sum=sums, max=distance, each=own.disclose(distance))

    def closed(self, state: State, closing: Closing, parties: int) -> jax.Array:
        """A party's block after the round that `closing` closes: line 10."""
        return (state.q + closing.share * state.x + closing.drift) / answering(parties, self.participation)

    def is_asked(self, own: Oracle, key: jax.Array) -> jax.Array:
        count = answering(own.parties, self.participation)
        if count == own.parties:
            return jnp.asarray(1.0)
        return jnp.where(chosen(key, own.index, own.parties, count), 1.0, 0.0)

    def block(self, own: Oracle, state: State, answer: Answer) -> jax.Array:
        assert isinstance(answer, PersonalAnswer)
        return jnp.where(answer.broken, state.x, self.closed(state, answer.closing, own.parties))

    def multipliers(self, own: Oracle, state: State, answer: Answer) -> jax.Array:
        del state, answer
        return jnp.zeros(own.equality.size)

    # server steps

    def init(self, net: Network, w: jax.Array, goal: Goal, key: jax.Array) -> tuple[Server, PartyStates]:
        del goal
        _, parties = net.exchange(self.join, None, w)
        asked = answering(net.parties, self.participation)
        nothing = Closing(jnp.zeros_like(w), jnp.asarray(float(asked)))
        return Server(w, nothing, key, jnp.ones((), int), jnp.asarray(int(Status.running))), parties

    def round(self, server: Server, parties: PartyStates, net: Network) -> tuple[Server, PartyStates, PersonalInfo]:
        assert isinstance(self.step, Schedule)  # `prepared` has made them schedules
        assert isinstance(self.penalty, Schedule)
        t, m, asked = server.t.astype(float), net.parties, answering(net.parties, self.participation)
        step = self.step(t)
        call = Call(server.mean, server.closing, folded_key(server.key, server.t), step, self.penalty(t))
        reply, parties = net.exchange(self.local, parties, call)
        sums = reply.sum
        mean = (sums.q + m * (sums.share * server.mean + sums.drift)) / (asked * m)
        value = sums.objective + net.server(server.mean).objective
        sound = jnp.all(jnp.abs(mean) < LARGEST) & jnp.isfinite(value)
        after = Server(mean, Closing(sums.drift, sums.share), server.key, server.t + 1, server.status)
        broken = eqx.tree_at(lambda s: s.status, server, jnp.asarray(int(Status.diverged)))
        slope = m * jnp.max(jnp.abs(mean - server.mean)) / (step * self.local_steps)
        return choose(sound, after, broken), parties, PersonalInfo(value, reply.max, slope, reply.each)

    # status and answers

    def status(self, server: Server) -> jax.Array:
        return server.status

    def answer(self, server: Server, net: Network) -> PersonalAnswer:
        del net
        broken = server.status == int(Status.diverged)
        return PersonalAnswer(server.mean, jnp.zeros(0), jnp.zeros(0), jnp.asarray(0.0), server.closing, broken)

    def aim(self, server: Server, goal: Goal) -> Server:
        del goal
        return server
