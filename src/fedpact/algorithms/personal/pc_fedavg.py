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

    code: step = γ, penalty = ρ, local_steps = H, q = q_i, others = S, drift = B, growth = a, share = α
"""

from typing import ClassVar

import jax
import jax.numpy as jnp

from fedpact.algorithms.averaging.local_steps import (
    LocalSteps,
    LocalTask,
    ServerState,
    check_local,
    history_line,
    local_steps,
    or_diverged,
    penalty_gradient,
    reply_of,
)
from fedpact.algorithms.parts.batches import answering, takes_part
from fedpact.algorithms.parts.schedules import Schedule, StepCount, check_penalty
from fedpact.federation.setting import Setting
from fedpact.problem.oracle import Oracle
from fedpact.protocol.algorithm import Algorithm, Answer, Begin, FirstParameters, Info, OnePhase, Split, Status
from fedpact.protocol.messages import Reply
from fedpact.protocol.options import check_flag
from fedpact.protocol.phases import ServerData
from fedpact.records import Record

LARGEST = 1e12  # parameters from which on a run has diverged

# messages


class BlockUpdate(Record):
    """What ends a round at every party, known only with the next message: sums over the parties that were asked."""

    drift: jax.Array  # ΣB
    share: jax.Array  # Σα


class PersonalTask(Record):
    """Down."""

    task: LocalTask  # its parameters are x̄
    last_update: BlockUpdate  # of the round before


class BlockSums(Record):
    """Up: sums."""

    own_block: jax.Array  # q_i
    update: BlockUpdate  # B_i and α_i
    objective: jax.Array


# states


class PartyState(Record):
    """A party's block before its last steps, and what these have made of it (0 where it was not asked)."""

    x: jax.Array
    q: jax.Array


class PersonalServerState(ServerState):
    """w is x̄."""

    last_update: BlockUpdate


class PersonalAnswer(Answer):
    last_update: BlockUpdate
    diverged: jax.Array  # whether the last round led to nothing finite


# options


class PCFedAvg(Algorithm):
    """Local steps on every party's own model, one exchange a round, of 2n + 3 numbers each way whatever the parties.

    - `step`: γ, a number > 0 or a schedule of the rounds such as fp.Decay(1.0, 0.5).
    - `local_steps`: H, steps of a party in a round (at least 1); or a list of H = T_{r+1} − T_r, one for each round, of which the
      last goes on, or a schedule, rounded.
    - `penalty`: ρ on the squared distance to a party's set, halved; a number > 0 or a schedule such as
      fp.Growth(1.0, 0.25, 10_000).
    - `batch`: rows drawn at each party for each of its steps (at least 1, default: all rows).
    - `participation`: the part of the parties whose steps count in a round (over 0 up to 1, default 1). All hear of every
      round, since all blocks move, so that it saves neither time nor bytes.
    - `corrected`: whether the other parties' blocks follow the gradient (default) or the paper's line 8: `as_printed`.

    A penalty leaves models outside their sets, and local steps drift; so what is handed out is projected, and the result tells
    what the projection moved. fp.PersonalProjected is exact.
    """

    supports: ClassVar[frozenset[Split]] = frozenset({"personal"})
    personal_models: ClassVar[bool] = True

    step: Schedule | float
    local_steps: StepCount
    penalty: Schedule | float
    batch: int | None = None
    participation: float = 1.0
    corrected: bool = True

    @classmethod
    def as_printed(
        cls,
        step: Schedule | float,
        local_steps: StepCount,
        penalty: Schedule | float,
        batch: int | None = None,
        participation: float = 1.0,
    ) -> "PCFedAvg":
        """With line 8 as the paper prints it."""
        return cls(step, local_steps, penalty, batch, participation, corrected=False)

    def __check_init__(self) -> None:
        check_local(self)
        check_penalty("PCFedAvg", self.step, self.penalty)
        check_flag("PCFedAvg", "corrected", self.corrected)

    @property
    def rows_per_mean(self) -> int | None:
        return self.batch

    def bound(self, setting: Setting) -> "PCFedAvgMethod":
        return PCFedAvgMethod(local_steps(self, setting), self.corrected)


class PCFedAvgMethod(OnePhase[PersonalServerState]):
    """PCFedAvg as it runs."""

    personal_models: ClassVar[bool] = True

    steps: LocalSteps
    corrected: bool

    # party steps

    def join(self, own: Oracle, state: None, message: FirstParameters) -> tuple[PartyState, Reply]:
        return PartyState(message.parameters, jnp.zeros_like(message.parameters)), Reply()

    def step(self, own: Oracle, state: PartyState, message: PersonalTask) -> tuple[PartyState, Reply]:
        """Lines 3 to 9 for all blocks at once."""
        personal, task, m = own.own_set, message.task, own.parties
        asked = takes_part(own, task.random_key, self.steps.participation)
        x = self.updated_block(state, message.last_update, m)
        pull, step = personal.pull, task.step_size
        growth = 1.0 if self.corrected else 1.0 + step * pull / m

        def once(
            carry: tuple[jax.Array, jax.Array, jax.Array], turn: jax.Array
        ) -> tuple[tuple[jax.Array, jax.Array, jax.Array], jax.Array]:
            y, others, drift = carry
            mean = (y + others) / m
            batch = self.steps.batch_of(own, task, turn)
            value, g = jax.value_and_grad(lambda w: m * batch(w).objective + self.steps.ridge * (w @ w))(mean)
            cross = -(y - mean) if self.corrected else mean
            b = -step * (g + pull * cross) / m
            down = g / m + penalty_gradient(own, task, y) + pull * (m - 1) / m * (y - mean)
            return (y - step * down, growth * others + (m - 1) * b, growth * drift + b), value

        first = (x, m * task.parameters - x, jnp.zeros_like(x))
        (y, _, drift), value = self.steps.repeat(task, once, first)
        share = asked * growth ** self.steps.count_in(task)
        q = asked * y - share * x - asked * drift
        objective = (value + personal.cost(x, task.parameters)) / m
        return PartyState(x, q), reply_of(own, x, BlockSums(q, BlockUpdate(asked * drift, share), objective))

    def updated_block(self, state: PartyState, update: BlockUpdate, parties: int) -> jax.Array:
        """A party's block after a round: line 10."""
        return (state.q + update.share * state.x + update.drift) / answering(parties, self.steps.participation)

    def block(self, own: Oracle, state: PartyState, answer: PersonalAnswer) -> jax.Array:
        return jnp.where(answer.diverged, state.x, self.updated_block(state, answer.last_update, own.parties))

    # server steps

    def start(self, own: ServerData, begin: Begin, reply: Reply) -> PersonalServerState:
        asked = answering(own.parties, self.steps.participation)
        nothing = BlockUpdate(jnp.zeros_like(begin.w), jnp.asarray(float(asked)))
        return PersonalServerState(begin.w, begin.key, jnp.ones((), int), Status.running.as_array(), nothing)

    def ask(self, own: ServerData, server: PersonalServerState) -> PersonalTask:
        return PersonalTask(self.steps.task(server), server.last_update)

    def hear(self, own: ServerData, server: PersonalServerState, reply: Reply) -> tuple[PersonalServerState, Info]:
        sums: BlockSums = reply.sum
        m, asked, update = own.parties, answering(own.parties, self.steps.participation), sums.update
        mean = (sums.own_block + m * (update.share * server.w + update.drift)) / (asked * m)
        objective = sums.objective + own.functions(server.w).objective
        after = PersonalServerState(mean, server.key, server.t + 1, server.status, update)
        line = history_line(objective, self.steps.slope(server, m * (mean - server.w)), reply)
        return or_diverged(after, server, objective, LARGEST), line

    def answer(self, own: ServerData, carry: PersonalServerState) -> PersonalAnswer:
        diverged = carry.status == int(Status.diverged)
        return PersonalAnswer.without_multipliers(carry.w, carry.last_update, diverged)
