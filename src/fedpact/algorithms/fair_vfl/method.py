"""FairVFL: fair vertical learning with a server, active and passive parties.

    minimise F(θ)   s.t.   c_j(θ) <= 0 (or = 0),      F and c_j means over all rows of functions of h(θ) = Σ_k h_k(θ_k)

    C. Liu, Z. Fan et al., Achieving model fairness in vertical federated learning.

The server holds multipliers and sends passive parties the slope ν of the Lagrangian in h, from which each computes its own
gradient; active parties, who know labels and groups, take several steps of their own between two rounds.

    symbol    here                meaning
    λ         Dual.multipliers
    ρ         rho                 of the augmented Lagrangian; 0 in the paper
    β         dual_step           λ ← [λ + β(c − decay λ)]₊
    c_t       decay               the paper's pull on λ; 0 by default, as it leaves the constraint broken by c_t λ
    1/η_t     step                None: from the curvature
    Q         local_steps         most steps of an active party in a round

Where we leave the paper (`FairVFL.as_printed()` does not): the Lagrangian is augmented, which costs no message and keeps λ
from turning; and no step size is to be chosen. Where bottoms are linear, h is linear in the blocks, so the server finds by
itself how much of the active parties' move, of the passive ones' and of the last one is best (the products of blocks that N
needs are nine numbers). Where they are not, it takes a move that lowers the merit and has shorter ones made after one that
does not.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fedpact.algorithms.fair_vfl.lagrangian import Dual, Point, Terms, gradient, merit, row_curvature, values, weights
from fedpact.algorithms.fair_vfl.moves import Iterate, MoveRule, Proposal
from fedpact.algorithms.fair_vfl.pace import Clock, Pace, Timing
from fedpact.algorithms.fair_vfl.parties import (
    Ciphertext,
    EncryptedGradient,
    FairVFLParty,
    LabelView,
    MaskedGradients,
    PartyState,
    PublicKey,
    Residuals,
    combined_embedding,
    combined_proposal,
)
from fedpact.algorithms.fair_vfl.state import ColumnAnswer, Evaluation, RoundInfo, RoundState, ServerState
from fedpact.algorithms.parts.batches import folded_key
from fedpact.algorithms.parts.counted_rates import with_counted_rates
from fedpact.algorithms.parts.multipliers import violation
from fedpact.algorithms.parts.schedules import Schedule, as_schedule
from fedpact.arrays import choose
from fedpact.federation.blocks import Block
from fedpact.federation.setting import Setting
from fedpact.privacy import traced_ckks
from fedpact.privacy.residuals import EncryptedResiduals
from fedpact.problem.atoms import Scope
from fedpact.protocol.algorithm import Algorithm, Begin, Method, Split, Status
from fedpact.protocol.messages import Reply
from fedpact.protocol.options import check
from fedpact.protocol.phases import Phase, Phases, Role, ServerData

ROLES: tuple[Role, ...] = ("active", "passive")
SLOW, STIFFER, STIFFEST = 0.5, 2.0, 1e8  # when ρ grows, how, and to what


class FairVFL(Algorithm):
    """Fair vertical learning: constraints over labels and groups, columns split over active and passive parties.

    - `local_steps`: Q, the most steps that an active party takes in a round (at least 1, default 5).
    - `pace`: "fixed" (default): Q steps; "random": from 1 to Q, drawn for each party and round; "clock": as many as `clock`
      leaves time for while a passive party takes its one; on NVIDIA FLARE, as many as there is time for until the passive
      parties have replied.
    - `clock`: simulated speeds (fp.Clock; default: a step takes 1 s, a round 1 s more); the history has `seconds`.
    - `rho`: ρ of the augmented Lagrangian to begin with (>= 0, default 1, in objective per squared constraint; 0: the plain
      one, with `step` only); it grows where violations do not fall.
    - `dual_step`: β, how far multipliers go in a round, as a part of ρ (> 0, default 0.5; by itself where ρ = 0).
    - `decay`: c_t, a pull of multipliers to 0 (>= 0, default 0; it leaves constraints broken by c_t λ), or a schedule of it such
      as fp.Decay(0.1, 0.5).
    - `step`: 1/η_t, a step (> 0) or a schedule of it (default None: from the curvature).
    - `momentum`: part of the last move that other than linear bottoms make again (from 0 to below 1, default 0.9).
    - `memory`: how many last moves the server's search takes in, where bottoms are linear (at least 1, default 6).
    - `privacy`: fp.EncryptedResiduals(), or None (default): then ν shows passive parties the labels. See docs/fair_vfl.md.
    """

    local_steps: int = 5
    pace: Pace = "fixed"
    clock: Clock = Clock()
    rho: float = 1.0
    dual_step: float = 0.5
    decay: Schedule | float = 0.0
    step: Schedule | float | None = None
    momentum: float = 0.9
    memory: int = 6
    privacy: EncryptedResiduals | None = None

    supports: ClassVar[frozenset[Split]] = frozenset({"columns"})
    keeps: ClassVar[frozenset[Scope]] = frozenset({"pooled"})
    begins_with_multipliers: ClassVar[bool] = True
    counts_rates: ClassVar[bool] = True
    sends_residuals: ClassVar[bool] = True

    @classmethod
    def as_printed(cls, local_steps: int = 1) -> "FairVFL":
        """Algorithms 1 to 3 with the paper's settings: c_t = 1e-3, η_t = 100, β = 0.1."""
        return cls(local_steps=local_steps, rho=0.0, dual_step=0.1, decay=1e-3, step=0.01)

    def __check_init__(self) -> None:
        check("FairVFL", "local_steps", self.local_steps, lambda x: x >= 1, "Q, at least one step a round", whole=True)
        if self.pace not in ("fixed", "random", "clock"):
            raise ValueError(f"FairVFL(pace={self.pace!r}): 'fixed', 'random' or 'clock'")
        if not isinstance(self.clock, Clock):
            raise TypeError(f"FairVFL(clock={self.clock!r}): an fp.Clock(step=..., latency=...)")
        check("FairVFL", "rho", self.rho, lambda x: x >= 0, "rho of the augmented Lagrangian is not negative")
        check("FairVFL", "dual_step", self.dual_step, lambda x: x > 0, "β, the multipliers' step, is positive")
        if not isinstance(self.decay, Schedule):
            words = "c_t, the pull on multipliers, is not negative; or a schedule such as fp.Decay(0.1, 0.5)"
            check("FairVFL", "decay", self.decay, lambda x: x >= 0, words)
        check("FairVFL", "momentum", self.momentum, lambda x: 0 <= x < 1, "momentum is from 0 to below 1")
        if self.step is not None:
            as_schedule("FairVFL", "step", self.step)
        check("FairVFL", "memory", self.memory, lambda x: x >= 1, "at least one last move", whole=True)
        if self.privacy is not None and not isinstance(self.privacy, EncryptedResiduals):
            raise TypeError(f"FairVFL(privacy={self.privacy!r}): fp.EncryptedResiduals(), or None")
        if self.step is None and self.rho == 0:
            raise ValueError("FairVFL(rho=0): without the augmented term give a step=, such as 0.01; or rho=1.0")

    def bound(self, setting: Setting) -> Method[Any]:
        return with_counted_rates(FairVFLMethod.of(self, setting), setting)


class FairVFLMethod(Method[ServerState]):
    """FairVFL, or FedBCD, as it runs.

    - `party`: the parties' steps, with what depends on the setting.
    - `roles`: those that parties have.
    - `rho`, `dual_step`, `decay`: as of FairVFL.
    - `encrypted`: whether passive parties get ciphertext.
    """

    party: FairVFLParty
    roles: tuple[Role, ...]
    rho: float
    dual_step: float
    decay: Schedule | float
    encrypted: bool

    @classmethod
    def of(cls, options: FairVFL, setting: Setting, passive_steps: int = 1, name: str = "FairVFL") -> "FairVFLMethod":
        if setting.nonsmooth and options.step is None:
            raise ValueError(
                f"{name} takes fp.l1, fp.box and fp.group with a step of its own only: {name}(step=0.1), say"
            )
        if options.privacy is not None and setting.combine != "sum":
            raise ValueError("encrypted residuals are one for all parties; state the model with combine='sum'")
        clock, names = options.clock, tuple(setting.rows)
        passive_blocks = [size for size, active in zip(setting.blocks, setting.active, strict=True) if not active]
        search = setting.linear_bottoms and options.step is None
        step = None if options.step is None else as_schedule("FairVFL", "step", options.step)
        party = FairVFLParty(
            terms=Terms.of(*setting.programs),
            timing=Timing(options.pace, options.local_steps, clock.by_party(names), setting.active, clock.latency),
            rule=MoveRule(search, step, options.momentum, options.memory),
            passive_steps=passive_steps,
            widest=max(passive_blocks, default=0),
        )
        roles: tuple[Role, ...] = tuple(role for role in ROLES if (role == "active") in setting.active)
        encrypted = options.privacy is not None and "passive" in roles
        return cls(party, roles, options.rho, options.dual_step, options.decay, encrypted)

    def deployed(self, enough: Callable[[], bool]) -> "FairVFLMethod":
        # where it is not asked, the parties' methods stay equal, and so do their programs
        if self.party.timing.pace != "clock":
            return self
        timing = dataclasses.replace(self.party.timing, enough=enough)
        return dataclasses.replace(self, party=dataclasses.replace(self.party, timing=timing))

    # the phases

    @property
    def opening(self) -> Phases:
        join = Phase(self.invite, self.party.join, self.start)
        hand_out = Phase(self.public_key, self.party.keep_key, _unchanged, "passive")
        return (join, hand_out) if self.encrypted else (join,)

    @property
    def round(self) -> Phases:
        """Active and passive parties are asked at the same time, under encryption the latter twice."""
        patient = self.party.timing.pace == "clock"
        active = Phase(self.label_view, self.party.active, self.hear_active, "active", patient=patient)
        passive = Phase(self.residuals, self.party.passive, self.hear_passive, "passive")
        if self.encrypted:
            passive = Phase(self.ciphertext, self.party.multiply, self.decrypt, "passive")
        unmask = Phase(self.masked_gradients, self.party.passive_unmasked, self.hear_passive, "passive")
        at_once = tuple(phase for phase in (active, passive) if phase.among in self.roles)
        return (at_once, unmask) if self.encrypted else (at_once,)

    # at the server, before the first round

    def invite(self, own: ServerData, begin: Begin) -> None:
        del own, begin

    def start(self, own: ServerData, begin: Begin, reply: Reply) -> ServerState:
        point = Point(begin.w, combined_embedding(reply, own.parties), reply.sum.squared_norm)
        iterate, none = self.party.rule.first(point), jnp.asarray(0.0)
        dual = Dual(own.functions.first_multipliers().pooled, jnp.asarray(float(self.rho)))
        return ServerState(
            iterate=iterate,
            dual=dual,
            evaluation=self._evaluated(own, iterate, dual, jnp.ones((), int)),
            settled_violation=jnp.asarray(jnp.inf),
            seconds=none,
            secret=traced_ckks.fresh_seed(none) if self.encrypted else None,
            goal=begin.goal,
            key=begin.key,
            t=jnp.ones((), int),
            status=Status.running.as_array(),
        )

    def public_key(self, own: ServerData, server: ServerState) -> PublicKey:
        return PublicKey(traced_ckks.public_key(_secret(server)))

    # at the server, in a round: Algorithm 1, lines 5 and 6

    def label_view(self, own: ServerData, server: ServerState) -> LabelView:
        iterate, now = server.iterate, server.evaluation
        return LabelView(iterate.moves.active, iterate.point, now.dual, now.curvature, self._round_key(server))

    def residuals(self, own: ServerData, server: ServerState) -> Residuals:
        now = server.evaluation
        return Residuals(server.iterate.moves.passive, now.slope.embedding, now.slope.squared_norm, now.curvature)

    def ciphertext(self, own: ServerData, server: ServerState) -> Ciphertext:
        encrypted = traced_ckks.encrypt(_secret(server), server.evaluation.slope.embedding.ravel())
        return Ciphertext(server.iterate.moves.passive, encrypted)

    def hear_active(self, own: ServerData, carry: ServerState | RoundState, reply: Reply) -> RoundState:
        return dataclasses.replace(_round_state(carry), active=combined_proposal(reply, own.parties))

    def hear_passive(self, own: ServerData, carry: ServerState | RoundState, reply: Reply) -> RoundState:
        return dataclasses.replace(_round_state(carry), passive=combined_proposal(reply, own.parties))

    def decrypt(self, own: ServerData, carry: ServerState | RoundState, reply: Reply) -> RoundState:
        """The masked gradients, each in its party's line."""
        carry, replies = _round_state(carry), reply.per_party
        assert isinstance(replies, EncryptedGradient)
        secret, length, width = _secret(carry.server), carry.server.evaluation.slope.embedding.size, self.party.widest
        opened = jax.vmap(lambda product: traced_ckks.decrypt(secret, product, length, width))(
            replies.encrypted_masked_gradient
        )
        masked = jnp.zeros((own.parties, width)).at[replies.party].set(opened)
        return dataclasses.replace(carry, masked_gradients=masked)

    def masked_gradients(self, own: ServerData, carry: RoundState) -> MaskedGradients:
        assert carry.masked_gradients is not None
        now, move = carry.server.evaluation, carry.server.iterate.moves.passive
        return MaskedGradients(move, carry.masked_gradients, now.slope.squared_norm, now.curvature)

    def finish(self, own: ServerData, carry: RoundState) -> tuple[ServerState, RoundInfo]:
        server, rule, terms = carry.server, self.party.rule, self.party.terms
        now, c = server.evaluation, server.evaluation.constraints
        proposals = [carry.active or self._nothing(server), carry.passive or self._nothing(server)]
        h, top = own.regularizer, server.iterate.point.top_parameters
        top_slope = h.distance(top, now.slope.top_parameters)
        objective = sum(
            (p.regularizer for p in proposals if p.regularizer is not None), now.objective + h.nonsmooth(top)
        )
        residual = jnp.max(jnp.stack([top_slope, *(p.largest_slope for p in proposals)]))

        broken = violation(c, terms.equality)
        slack = jnp.max(jnp.where(terms.equality, 0.0, jnp.where(now.weights > 0, jnp.abs(c), 0.0)), initial=0.0)
        done = (residual <= server.goal.stationarity) & (jnp.maximum(broken, slack) <= server.goal.feasibility)
        sound = jnp.isfinite(now.objective) & jnp.isfinite(residual)
        merit_at = partial(merit, terms, own.functions, now.dual)
        moved = rule.moved(server.iterate, now.slope.top_parameters, proposals, merit_at, server.t, h)
        stayed = rule.stayed(server.iterate)
        rho, settled_violation = self._stiffened(server, now.dual.penalty, residual, broken)
        after = dataclasses.replace(
            server,
            iterate=choose(done, stayed, moved),
            dual=Dual(now.dual.multipliers, rho),
            settled_violation=settled_violation,
            seconds=server.seconds + self.party.timing.seconds(self._round_key(server)),
            t=server.t + 1,
            status=jnp.where(done, int(Status.converged), server.status),
        )
        lost = dataclasses.replace(server, iterate=stayed, status=Status.diverged.as_array())
        info = RoundInfo(objective, broken, residual, after.seconds, now.dual.penalty, c)
        after = choose(sound, after, lost)
        return dataclasses.replace(after, evaluation=self._evaluated(own, after.iterate, after.dual, after.t)), info

    def _evaluated(self, own: ServerData, iterate: Iterate, dual: Dual, t: jax.Array) -> Evaluation:
        """Algorithm 1, lines 2 and 3: at the end of a round, for all that is sent in the next one, t."""
        terms, functions, point = self.party.terms, own.functions, iterate.point
        objective, c = values(terms, functions, point)
        dual = choose(iterate.accepted, self._ascended(dual, c, t), dual)
        pi = weights(terms, dual, c)
        slope = gradient(terms, functions, point, pi)
        search = self.party.rule.search
        curvature = row_curvature(terms, functions, point, pi) if search else iterate.curvature
        return Evaluation(objective, c, dual, pi, slope, curvature)

    def _ascended(self, dual: Dual, c: jax.Array, t: jax.Array) -> Dual:
        """(10)."""
        pull = self.decay(t.astype(c.dtype)) if isinstance(self.decay, Schedule) else self.decay
        beta = self.dual_step * jnp.where(dual.penalty > 0, dual.penalty, 1.0)
        moved = dual.multipliers + beta * (c - pull * dual.multipliers)
        return Dual(jnp.where(self.party.terms.equality, moved, jnp.maximum(moved, 0.0)), dual.penalty)

    def _stiffened(
        self, server: ServerState, rho: jax.Array, residual: jax.Array, broken: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """ρ grows where a point that is stationary for λ is not much less violated than the last such point was."""
        stationary = residual <= jnp.maximum(server.goal.stationarity, 0.1 * broken)
        settled = stationary & (broken > server.goal.feasibility)
        slow = settled & (broken > SLOW * server.settled_violation)
        stiffer = jnp.where(slow, jnp.minimum(STIFFER * rho, STIFFEST), rho)
        return stiffer, jnp.where(settled, broken, server.settled_violation)

    def _round_key(self, server: ServerState) -> jax.Array:
        """Another one in every round where something is drawn."""
        return folded_key(server.key, server.t) if self.party.timing.pace == "random" else server.key

    def _nothing(self, server: ServerState) -> Proposal:
        """Of a role that no party has."""
        products = jnp.zeros((2 + self.party.rule.memory,) * 2)
        return Proposal(jnp.zeros_like(server.iterate.point.embedding), products, jnp.asarray(0.0))

    def renewed(self, own: ServerData, server: ServerState) -> ServerState:
        now = self._evaluated(own, server.iterate, server.dual, server.t)
        endless, running = jnp.asarray(jnp.inf), Status.running.as_array()
        return dataclasses.replace(server, evaluation=now, settled_violation=endless, status=running)

    # the answer

    def answer(self, own: ServerData, carry: ServerState) -> ColumnAnswer:
        pi = weights(self.party.terms, carry.dual, carry.evaluation.constraints)
        none = jnp.zeros(len(own.functions.program.constraints))
        return ColumnAnswer(carry.iterate.point.top_parameters, none, pi, jnp.asarray(0.0), carry.iterate.moves)

    def block(self, own: Block, state: PartyState, answer: ColumnAnswer) -> jax.Array:
        return state.moved(answer.moves.active if own.active else answer.moves.passive).w


def _round_state(carry: ServerState | RoundState) -> RoundState:
    """Of the first reply in a round, begun from the server's state."""
    return carry if isinstance(carry, RoundState) else RoundState(carry)


def _secret(server: ServerState) -> jax.Array:
    assert server.secret is not None  # drawn before the first round, where residuals are encrypted
    return server.secret


def _unchanged(own: ServerData, carry: Any, reply: Reply) -> Any:
    return carry
