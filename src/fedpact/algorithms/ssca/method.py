"""Mini-batch stochastic successive convex approximation (SSCA), Algorithms 1 to 4 of Ye and Cui.

    minimise F_0(w)   s.t.   F_m(w) <= 0,   m = 1 … M,      F_m means over all rows, convex or not

    C. Ye and Y. Cui, Sample-based and feature-based federated learning for unconstrained and constrained nonconvex
    optimization via mini-batch SSCA, IEEE Transactions on Signal Processing 70 (2022).

Every round estimates values and gradients on a mini-batch, folds them into quadratic surrogates F̄ (recipe.py), solves

    minimise over w and s >= 0   F̄_0(w) + c Σ s_m   s.t.   F̄_m(w) + margin <= s_m

exactly, by a dual of M variables (box_dual.py), and moves w there by a part γ.

    symbol   here            meaning
    ρ_t, γ_t rho, gamma      how much of a new estimate is taken, and of the way to the minimiser
    τ        tau             the curvature of surrogates
    c        penalty         the price of slack; it grows while the slack does not vanish
    ν        Server.nu       multipliers

Where we leave the paper: ‖w‖² in a number is kept exactly instead of sampled; F̄ of round 0 is τ‖w‖², not 0; slack 0 says
nothing about the rows that were not drawn, so all of them are measured, every `measure` rounds and at the end.
"""

import dataclasses
import math
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from fedpact.algorithms.parts.batches import check_batch
from fedpact.algorithms.parts.schedules import Decay, Schedule, as_schedule
from fedpact.algorithms.ssca import columns, rows
from fedpact.algorithms.ssca.surrogates import Recipe, recipe
from fedpact.federation.blocks import Block
from fedpact.federation.setting import Setting
from fedpact.problem.oracle import Oracle
from fedpact.protocol.algorithm import Answer, ColumnAlgorithm, Goal
from fedpact.protocol.messages import Reply
from fedpact.protocol.network import Network, PartyStates
from fedpact.protocol.options import check

PARTIES = 10  # of the paper: over columns its batches are that many times as large
PAPER = {1: (0.4, 0.4, 0.4), 10: (0.6, 0.9, 0.3), 100: (0.9, 0.9, 0.3)}  # rows a party: scale of ρ, of γ, and α


class SSCA(ColumnAlgorithm[Any]):
    """Mini-batch SSCA for objectives and constraints that are means over very many rows, of networks for instance.

    batch: rows drawn at each party in a round (rows split), or of all (columns split).
    margin: constraints are kept this much inside their bounds (default 0, in the units of the constraint), so that they
        hold on the rows that were not drawn.
    rho, gamma: schedules ρ_t and γ_t (default: the paper's a/t^α and a/t^(α + 0.05) for the nearest of its batches).
    tau: curvature τ of the surrogates (> 0, default 0.1).
    penalty, growth, most_penalty, patience: c begins at `penalty` (default 1e5) and grows `growth`-fold (default 10) up to
        `most_penalty` (default 1e9) whenever the slack has not vanished within `patience` rounds (default 1000).
    participation: the part of the parties that is asked in a round (over 0 up to 1, default 1).
    measure: all rows are measured every so many rounds, and the best of these points is handed out (default 100; None:
        never, the last point is). Over columns that takes what the bottoms give on all rows.
    wire: the precision in which parameters, gradients and what bottoms give are sent (default "float64").
    relay: over columns, whether the label holder puts together what bottoms give (default). False: the protocol of the
        paper's Section V, in which parties, all of them with labels, tell one another ω·x feature by feature. The same path
        for hundreds of times the bytes, and it shows features; it is here to be compared with.
    """

    batch: int
    margin: float = 0.0
    rho: Schedule | float | None = None
    gamma: Schedule | float | None = None
    tau: float = 0.1
    penalty: float = 1e5
    growth: float = 10.0
    most_penalty: float = 1e9
    patience: int = 1000
    participation: float = 1.0
    measure: int | None = 100
    wire: Literal["float64", "float32"] = "float64"
    relay: bool = True
    over_columns: bool = eqx.field(static=True, default=False, repr=False)
    recipe: Recipe | None = eqx.field(static=True, default=None, repr=False)

    def __check_init__(self) -> None:
        check("SSCA", "batch", self.batch, lambda x: x >= 1, "a mini-batch has at least one row", whole=True)
        check("SSCA", "margin", self.margin, lambda x: x >= 0, "a margin inside the bounds is not negative")
        check("SSCA", "tau", self.tau, lambda x: x > 0, "tau must be > 0; it is the curvature τ of the surrogates")
        check("SSCA", "penalty", self.penalty, lambda x: x > 0, "penalty must be > 0; it is the price c of slack")
        check("SSCA", "growth", self.growth, lambda x: x >= 1, "growth of the penalty c is at least 1")
        check("SSCA", "most_penalty", self.most_penalty, lambda x: x >= self.penalty, "at least penalty")
        check("SSCA", "patience", self.patience, lambda x: x >= 1, "a number of rounds", whole=True)
        words = "the part of the parties that is asked in a round, over 0 and up to 1"
        check("SSCA", "participation", self.participation, lambda x: 0 < x <= 1, words)
        if self.measure is not None:
            check("SSCA", "measure", self.measure, lambda x: x >= 1, "a number of rounds, or None", whole=True)
        if self.wire not in ("float64", "float32"):
            raise ValueError(f"SSCA(wire={self.wire!r}): 'float64' or 'float32'")
        for name in ("rho", "gamma"):
            if getattr(self, name) is not None:
                as_schedule("SSCA", name, getattr(self, name))

    def prepared(self, setting: Setting) -> "SSCA":
        if setting.at_each:
            raise ValueError(
                f"constraint {setting.at_each[0]!r} holds at each party, but SSCA keeps constraints over all rows: state it "
                "with .pooled(), or solve with fp.InteriorPoint() or fp.ProxAL()"
            )
        assert setting.programs is not None
        party, server = setting.programs
        if any((*party.pooled_equality, *server.equality)):
            raise ValueError(
                "SSCA keeps inequalities: its surrogates of an equality leave no room to move; write abs(e) <= 0.01, say"
            )
        if setting.whole is not None:
            raise ValueError(
                f"{setting.whole} reads tables whole, but SSCA draws rows; write it as fp.mean of a row-wise function"
            )
        if setting.bent and setting.pooled:
            raise ValueError(
                "SSCA under constraints takes no regulariser but fp.l2; l1, box and group have no closed step here"
            )
        check_batch("SSCA", self.batch, setting)
        if not self.relay:
            _check_peers(setting)
        scale = PARTIES if setting.columns else 1
        rho, gamma, power = PAPER[min(PAPER, key=lambda rows: abs(math.log(rows * scale / self.batch)))]
        return dataclasses.replace(
            self,
            rho=as_schedule("SSCA", "rho", self.rho or Decay(rho, power)),
            gamma=as_schedule("SSCA", "gamma", self.gamma or Decay(gamma, power + 0.05)),
            recipe=recipe(party, server),
            over_columns=setting.columns,
        )

    @property
    def made(self) -> Recipe:
        assert self.recipe is not None  # `prepared` has made one
        return self.recipe

    def steps(self, t: jax.Array) -> tuple[jax.Array, jax.Array]:
        """ρ_t and γ_t, which `prepared` has made schedules."""
        now = t.astype(float)
        assert isinstance(self.rho, Schedule)
        assert isinstance(self.gamma, Schedule)
        return jnp.minimum(self.rho(now), 1.0), jnp.minimum(self.gamma(now), 1.0)

    def on_the_wire(self, array: jax.Array) -> jax.Array:
        """As it is sent."""
        return array.astype(self.wire)

    # party steps

    def estimates(self, own: Oracle, state: Any, key: jax.Array, w: jax.Array) -> jax.Array:
        return rows.estimates(self, own, state, key, w)

    def multipliers(self, own: Oracle, state: Any, answer: Answer) -> jax.Array:
        del state, answer
        return jnp.zeros(own.equality.size)

    def begin(self, own: Block, state: None, message: None) -> tuple[columns.Held, Reply]:
        return columns.begin(self, own, state, message)

    def embed(self, own: Block, state: columns.Held, message: columns.Batch) -> tuple[columns.Held, Reply]:
        return columns.embed(self, own, state, message)

    def differentiate(self, own: Block, state: columns.Held, message: columns.Slope) -> tuple[columns.Held, Reply]:
        return columns.differentiate(self, own, state, message)

    def tell_peers(self, own: Block, state: columns.Held, message: columns.ToPeers) -> jax.Array:
        return columns.tell_peers(self, own, state, message)

    def hear_peers(
        self, own: Block, state: columns.Held, message: tuple[columns.ToPeers, jax.Array]
    ) -> tuple[columns.Held, Reply]:
        return columns.hear_peers(self, own, state, message)

    def block(self, own: Block, state: columns.Held, answer: Any) -> jax.Array:
        return columns.block(self, own, state, answer)

    # server steps

    def init(self, net: Network, w: jax.Array, goal: Goal, key: jax.Array) -> tuple[Any, PartyStates]:
        del goal
        return (columns if self.over_columns else rows).init(self, net, w, key)

    def round(self, server: Any, parties: PartyStates, net: Network) -> tuple[Any, PartyStates, rows.RoundInfo]:
        return (columns if self.over_columns else rows).round(self, server, parties, net)

    # status and answers

    def status(self, server: Any) -> jax.Array:
        return server.status

    def answer(self, server: Any, net: Network) -> Answer:
        del net
        return (columns if self.over_columns else rows).answer(self, server)

    def aim(self, server: Any, goal: Goal) -> Any:
        del goal
        return server


def _check_peers(setting: Setting) -> None:
    if not setting.columns:
        raise ValueError("SSCA(relay=False) is for parties who hold columns; over rows there is nothing to relay")
    if not all(setting.active):
        raise ValueError(
            "SSCA(relay=False): every party computes the loss, so all need labels: split_columns(active='all')"
        )
    if not setting.linear or setting.combine != "sum":
        raise ValueError("SSCA(relay=False) sends ω·x by feature, so bottoms are linear, with combine='sum'")
