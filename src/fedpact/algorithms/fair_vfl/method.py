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
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from fedpact.algorithms.fair_vfl import moves
from fedpact.algorithms.fair_vfl import parties as holders
from fedpact.algorithms.fair_vfl.lagrangian import (
    Dual,
    Point,
    Terms,
    numbers,
    row_curvature,
    slopes,
    weights,
)
from fedpact.algorithms.fair_vfl.pace import Clock, Pace, Timing
from fedpact.algorithms.fair_vfl.parties import Encrypted, Held, Move, ToActive, ToPassive, remembered, united
from fedpact.algorithms.parts.batches import folded_key
from fedpact.algorithms.parts.descent import choose
from fedpact.federation.blocks import Block
from fedpact.federation.setting import Setting
from fedpact.privacy import traced_ckks
from fedpact.privacy.residuals import EncryptedResiduals
from fedpact.problem.oracle import Oracle
from fedpact.protocol.algorithm import Answer, ColumnAlgorithm, Goal, Info, Status
from fedpact.protocol.messages import Reply
from fedpact.protocol.network import Ask, Network, PartyStates
from fedpact.protocol.options import check

SLOW, STIFFER, STIFFEST = 0.5, 2.0, 1e8  # when ρ grows, how, and to what


class Server(eqx.Module):
    point: Point
    top_last: jax.Array
    drift: jax.Array  # what the last moves changed in h, for linear bottoms
    dual: Dual
    moves: tuple[Move, Move]  # of active, of passive parties: still to be made
    curvature: jax.Array
    taken: jax.Array  # whether the last move was
    broken: jax.Array  # the violation where λ was last near the best for its ρ
    seconds: jax.Array  # on the simulated clock
    secret: jax.Array | None  # of encrypted residuals
    goal: Goal
    key: jax.Array
    t: jax.Array
    status: jax.Array


class RoundInfo(Info):
    seconds: jax.Array  # simulated, since the beginning
    rho: jax.Array
    pooled_constraints: jax.Array  # c


class ColumnAnswer(Answer):
    moves: tuple[Move, Move]


class FairVFL(ColumnAlgorithm[Server]):
    """Fair vertical learning: constraints over labels and groups, columns split over active and passive parties.

    local_steps: Q, the most steps that an active party takes in a round (default 5).
    pace: "fixed" (default): Q steps; "random": from 1 to Q, drawn for each party and round; "clock": as many as `clock`
        leaves time for while a passive party takes its one; on NVIDIA FLARE, as many as there is time for until the
        passive parties have answered.
    clock: simulated speeds (fp.Clock; default: a step takes 1 s, a round 1 s more); the history has `seconds`.
    rho: ρ of the augmented Lagrangian to begin with (default 1, in objective per squared constraint; 0: the plain one, with
        `step` only); it grows where violations do not fall.
    dual_step: β, how far multipliers go in a round, as a part of ρ (default 0.5; by itself where ρ = 0).
    decay: c_t, a pull of multipliers to 0 (default 0; it leaves constraints broken by c_t λ).
    step: 1/η_t, a fixed step (default None: from the curvature).
    memory: how many last moves the server's search takes in, where bottoms are linear (default 6).
    momentum: part of the last move that other bottoms make again (from 0 to below 1, default 0.9).
    privacy: fp.EncryptedResiduals(), or None (default): then ν shows passive parties the labels. See docs/fair_vfl.md.
    """

    local_steps: int = 5
    pace: Pace = "fixed"
    clock: Clock = Clock()
    rho: float = 1.0
    dual_step: float = 0.5
    decay: float = 0.0
    step: float | None = None
    momentum: float = 0.9
    memory: int = 6
    privacy: EncryptedResiduals | None = eqx.field(static=True, default=None)
    widest: int = eqx.field(static=True, default=0, repr=False)  # parameters of the largest passive block
    passive_steps: int = eqx.field(static=True, default=1, repr=False)
    terms: Terms | None = eqx.field(static=True, default=None, repr=False)
    timing: Timing | None = eqx.field(default=None, repr=False)
    linear: bool = eqx.field(static=True, default=False, repr=False)

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
        check("FairVFL", "decay", self.decay, lambda x: x >= 0, "c_t, the pull on multipliers, is not negative")
        check("FairVFL", "momentum", self.momentum, lambda x: 0 <= x < 1, "momentum is from 0 to below 1")
        if self.step is not None:
            check("FairVFL", "step", self.step, lambda x: x > 0, "a step size is positive, or None for the curvature's")
        check("FairVFL", "memory", self.memory, lambda x: x >= 1, "at least one last move", whole=True)
        if self.privacy is not None and not isinstance(self.privacy, EncryptedResiduals):
            raise TypeError(f"FairVFL(privacy={self.privacy!r}): fp.EncryptedResiduals(), or None")
        if self.step is None and self.rho == 0:
            raise ValueError("FairVFL(rho=0): without the augmented term give a step=, such as 0.01; or rho=1.0")

    def prepared(self, setting: Setting) -> "FairVFL":
        if not setting.columns:
            raise ValueError(
                "FairVFL is for parties who hold columns: fp.split_columns; over rows use fp.InteriorPoint()"
            )
        assert setting.programs is not None
        names = tuple(setting.rows)
        timing = Timing(self.pace, self.local_steps, self.clock.by_party(names), setting.active, self.clock.latency)
        if self.privacy is not None and setting.combine != "sum":
            raise ValueError("encrypted residuals are one for all parties; state the model with combine='sum'")
        widest = max(
            (size for size, active in zip(setting.blocks, setting.active, strict=True) if not active), default=0
        )
        terms = Terms.of(*setting.programs)
        # `timing` has the clock's seconds by place: compiled programs are kept by method, and no mapping can be looked up
        told = dataclasses.replace(self, clock=Clock(), terms=terms, timing=timing)
        return dataclasses.replace(told, linear=setting.linear, widest=widest)

    def deployed(self, enough: Callable[[], bool]) -> "FairVFL":
        return dataclasses.replace(self, timing=dataclasses.replace(self.paced, enough=enough))

    @property
    def known(self) -> Terms:
        assert self.terms is not None  # `prepared` has made them
        return self.terms

    @property
    def paced(self) -> Timing:
        assert self.timing is not None  # `prepared` has made it
        return self.timing

    @property
    def searches(self) -> bool:
        """Whether the server finds the best of all moves: bottoms are linear, and no step was given."""
        return self.linear and self.step is None

    # party steps

    def join(self, own: Block, state: None, message: None) -> tuple[Held, Reply]:
        return holders.join(self, own, state, message)

    def active(self, own: Block, state: Held, message: ToActive) -> tuple[Held, Reply]:
        return holders.active(self, own, state, message)

    def passive(self, own: Block, state: Held, message: ToPassive) -> tuple[Held, Reply]:
        return holders.passive(self, own, state, message)

    def keep_key(self, own: Block, state: Held, message: jax.Array) -> tuple[Held, Reply]:
        return holders.keep_key(self, own, state, message)

    def multiply(self, own: Block, state: Held, message: Encrypted) -> tuple[Held, Reply]:
        return holders.multiply(self, own, state, message)

    def multipliers(self, own: Oracle, state: Any, answer: Answer) -> jax.Array:
        del state, answer
        return jnp.zeros(own.equality.size)

    def block(self, own: Block, state: Held, answer: Any) -> jax.Array:
        return holders.block(own, state, answer.moves)

    # server steps

    def init(self, net: Network, w: jax.Array, goal: Goal, key: jax.Array) -> tuple[Server, PartyStates]:
        reply, parties = net.exchange(self.join, None, None)
        embedded, none = united(reply, net.parties), jnp.asarray(0.0)
        secret = None
        if self.privacy is not None and net.count("passive"):
            secret = traced_ckks.fresh_seed(none)
            _, parties = net.exchange(self.keep_key, parties, traced_ckks.public_key(secret), "passive")
        stay = Move(none, jnp.zeros(self.memory))
        return Server(
            point=Point(w, embedded, reply.sum[1]),
            top_last=jnp.zeros((self.memory, w.size)),
            drift=jnp.zeros((self.memory, *embedded.shape)) if self.searches else jnp.zeros(0),
            dual=Dual(jnp.zeros(len(self.known.equality)), jnp.asarray(float(self.rho))),
            moves=(stay, stay),
            curvature=jnp.asarray(1.0),
            taken=jnp.asarray(True),
            broken=jnp.asarray(jnp.inf),
            seconds=none,
            secret=secret,
            goal=goal,
            key=key,
            t=jnp.ones((), int),
            status=jnp.asarray(int(Status.running)),
        ), parties

    def round(self, server: Server, parties: PartyStates, net: Network) -> tuple[Server, PartyStates, RoundInfo]:
        terms, point = self.known, server.point
        key = folded_key(server.key, server.t) if self.pace == "random" else server.key  # else nothing is drawn
        objective, c = numbers(terms, net.server, point)
        dual = choose(server.taken, self._ascended(server.dual, c), server.dual)  # Algorithm 1, lines 2 and 3
        pi = weights(terms, dual, c)
        slope = slopes(terms, net.server, point, pi)
        bent = row_curvature(terms, net.server, point, pi) if self.searches else server.curvature

        to_active = Ask(self.active, ToActive(server.moves[0], point, dual, bent, key), "active", self.pace == "clock")
        replies, parties = self._answers(server, parties, net, to_active, slope, bent)  # lines 5 and 6
        residual = jnp.max(jnp.stack([jnp.max(jnp.abs(slope.top), initial=0.0), *(r.max for r in replies if r)]))

        violation = self._violation(c)
        slack = jnp.max(jnp.where(self._equal, 0.0, jnp.where(pi > 0, jnp.abs(c), 0.0)), initial=0.0)
        done = (residual <= server.goal.stationarity) & (jnp.maximum(violation, slack) <= server.goal.feasibility)
        moved = moves.made(self, server, net, dual, slope.top, replies)
        sound = jnp.isfinite(objective) & jnp.isfinite(residual)
        rho, broken = self._stiffened(server, dual.rho, residual, violation)
        after = dataclasses.replace(
            choose(done, self._still(server), moved),
            dual=Dual(dual.multipliers, rho),
            broken=broken,
            seconds=server.seconds + self.paced.seconds(key),
            t=server.t + 1,
            status=jnp.where(done, int(Status.converged), server.status),
        )
        lost = dataclasses.replace(self._still(server), status=jnp.asarray(int(Status.diverged)))
        info = RoundInfo(objective, violation, residual, seconds=after.seconds, rho=dual.rho, pooled_constraints=c)
        return choose(sound, after, lost), parties, info

    def _answers(
        self, server: Server, parties: PartyStates, net: Network, to_active: Ask, slope: Point, bent: jax.Array
    ) -> tuple[list[Reply | None], PartyStates]:
        """Of active and of passive parties, who are asked at the same time; under encryption the latter twice."""
        active = [to_active] if net.count("active") else []
        replies: list[Reply]
        if not net.count("passive"):
            replies, parties = net.at_once(parties, *active)
            return [*replies, None], parties
        move, secret = server.moves[1], server.secret
        if secret is None:
            down = ToPassive(move, slope.embedded, slope.norm, bent)
            replies, parties = net.at_once(parties, *active, Ask(self.passive, down, "passive"))
            return [*(replies[:-1] or [None]), replies[-1]], parties
        down = Encrypted(move, traced_ckks.encrypt(secret, slope.embedded.ravel()))
        replies, parties = net.at_once(parties, *active, Ask(self.multiply, down, "passive"))
        index, products = replies[-1].each
        size = slope.embedded.size
        opened = jax.vmap(lambda product: traced_ckks.decrypt(secret, product, size, self.widest))(products)
        masked = jnp.zeros((net.parties, self.widest)).at[index].set(opened)
        last, parties = net.exchange(self.passive, parties, ToPassive(move, masked, slope.norm, bent), "passive")
        return [*(replies[:-1] or [None]), last], parties

    def _ascended(self, dual: Dual, c: jax.Array) -> Dual:
        """(10)."""
        beta = self.dual_step * jnp.where(dual.rho > 0, dual.rho, 1.0)
        moved = dual.multipliers + beta * (c - self.decay * dual.multipliers)
        return Dual(jnp.where(self._equal, moved, jnp.maximum(moved, 0.0)), dual.rho)

    def _stiffened(
        self, server: Server, rho: jax.Array, residual: jax.Array, violation: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """ρ grows where a point that is stationary for λ is not much less violated than the last such point was."""
        settled = (residual <= jnp.maximum(server.goal.stationarity, 0.1 * violation)) & (
            violation > server.goal.feasibility
        )
        slow = settled & (violation > SLOW * server.broken)
        return jnp.where(slow, jnp.minimum(STIFFER * rho, STIFFEST), rho), jnp.where(settled, violation, server.broken)

    def _still(self, server: Server) -> Server:
        """No move is to be made: the parties are where the server knows them to be, and will remember that they stayed."""
        return dataclasses.replace(
            server,
            top_last=remembered(server.top_last, jnp.zeros_like(server.top_last[0])),
            drift=remembered(server.drift, jnp.zeros_like(server.drift[0])) if self.searches else server.drift,
            moves=jax.tree.map(jnp.zeros_like, server.moves),
        )

    @property
    def _equal(self) -> jax.Array:
        return jnp.asarray(self.known.equality, bool)

    def _violation(self, c: jax.Array) -> jax.Array:
        return jnp.max(jnp.where(self._equal, jnp.abs(c), c), initial=0.0)

    # status and answers

    def status(self, server: Server) -> jax.Array:
        return server.status

    def answer(self, server: Server, net: Network) -> ColumnAnswer:
        pi = weights(self.known, server.dual, numbers(self.known, net.server, server.point)[1])
        none = jnp.zeros(len(net.server.program.constraints))
        return ColumnAnswer(server.point.top, none, pi, jnp.asarray(0.0), server.moves)

    def aim(self, server: Server, goal: Goal) -> Server:
        return dataclasses.replace(server, goal=goal, status=jnp.asarray(int(Status.running), server.status.dtype))
