"""Mini-batch stochastic successive convex approximation (SSCA), Algorithms 1 to 4 of Ye and Cui.

    minimise F_0(w)   s.t.   F_m(w) <= 0,   m = 1 … M,      F_m means over all rows, convex or not

    C. Ye and Y. Cui, Sample-based and feature-based federated learning for unconstrained and constrained nonconvex
    optimization via mini-batch SSCA, IEEE Transactions on Signal Processing 70 (2022).

Every round estimates values and gradients on a mini-batch, folds them into quadratic surrogates F̄ (surrogates.py), solves

    minimise over w and s >= 0   F̄_0(w) + c Σ s_m   s.t.   F̄_m(w) + margin <= s_m

exactly, by a dual of M variables (box_dual.py), and moves w there by a part γ.

    symbol   here            meaning
    ρ_t, γ_t rho, gamma      how much of a new estimate is taken, and of the way to the minimiser
    τ        tau             the curvature of surrogates
    c        penalty         the price of slack; it grows while the slack does not vanish
    ν        ServerState.nu  multipliers

Where we leave the paper: ‖w‖² beside other terms is kept exactly instead of linearised and averaged with them, (28) to (36);
bounds are averaged as in (10), and not kept apart as in (38) and (39); c grows; and slack 0 says nothing about the rows that
were not drawn, so all of them are measured, every `measure` rounds and at the end. `SSCA.as_printed()` has none of that. Both
take F̄ of round 0 as τ‖w‖², as (8) and (12) do and (3) does not, and −y log Q in (32), whose sign is wrong.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from fedpact.algorithms.parts.batches import check_batch, check_sampling
from fedpact.algorithms.parts.schedules import Decay, Schedule, as_schedule
from fedpact.algorithms.ssca.columns import ColumnsMethod
from fedpact.algorithms.ssca.general import GeneralRowsMethod, Surrogate, given_surrogates
from fedpact.algorithms.ssca.rows import RowsMethod
from fedpact.algorithms.ssca.shared import PenaltyRule
from fedpact.algorithms.ssca.surrogates import surrogates_of
from fedpact.federation.setting import Setting
from fedpact.problem.atoms import Scope
from fedpact.protocol.algorithm import Algorithm, Split
from fedpact.protocol.options import check, check_flag

PARTIES = 10  # of the paper: over columns its batches are that many times as large
PAPER = {1: (0.4, 0.4, 0.4), 10: (0.6, 0.9, 0.3), 100: (0.9, 0.9, 0.3)}  # rows a party: scale of ρ, of γ, and α


class SSCA(Algorithm):
    """Mini-batch SSCA for objectives and constraints that are means over very many rows, of networks for instance.

    - `batch`: rows drawn at each party in a round (rows split), or of all (columns split); at least 1.
    - `margin`: constraints are kept this much inside their bounds (>= 0, in the units of the constraint, default 0), so that
      they hold on the rows that were not drawn.
    - `rho`, `gamma`: schedules ρ_t and γ_t, or constants > 0 (default: the paper's a/t^α and a/t^(α + 0.05) for the nearest of
      its batches); values over 1 count as 1.
    - `tau`: curvature τ of the surrogates (> 0, default 0.1).
    - `penalty`: the first price c of slack (> 0, default 1e5).
    - `growth`: c grows by this factor (>= 1, default 10) where the slack has not vanished within `patience` rounds.
    - `most_penalty`: c grows up to this (at least `penalty`, default 1e9).
    - `patience`: rounds after which c may grow (at least 1, default 1000).
    - `participation`: over rows, the part of the parties that is asked in a round (over 0 up to 1, default 1).
    - `measure`: all rows are measured every so many rounds, and the best of these points is handed out (at least 1, default
      100; None: never, the last point is handed out). Over columns that takes the outputs of bottom models on all rows.
    - `wire`: the precision in which parameters, gradients and outputs of bottom models are sent ("float64" or "float32",
      default "float64").
    - `surrogates`: over rows, `fp.Surrogate`s of your own by name of constraint, and "objective" (default None: the paper's
      quadratics, (7) and (11)). The last point is then handed out; `tau`, `measure` and `wire` have no part in it.
    - `corrected`: whether what is known exactly is kept so (default), or treated as the paper's Section V does: `as_printed`.
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
    corrected: bool = True
    surrogates: Mapping[str, Surrogate] | None = None

    supports: ClassVar[frozenset[Split]] = frozenset({"rows", "columns"})
    keeps: ClassVar[frozenset[Scope]] = frozenset({"pooled", "server"})

    @classmethod
    def as_printed(
        cls,
        batch: int,
        rho: Schedule | float | None = None,
        gamma: Schedule | float | None = None,
        tau: float = 0.1,
        penalty: float = 1e5,
    ) -> "SSCA":
        """Algorithms 1 to 4 as the paper prints them, with the settings of its experiments: the last point is handed out.

        λ‖ω‖² beside other terms is averaged as in (28) to (36), ‖ω‖² alone is kept and bounds are not averaged as in (38) and
        (39), c stays as it is, and nothing is measured on all rows before the end.
        """
        most = max(penalty, cls.most_penalty)
        return cls(batch, 0.0, rho, gamma, tau, penalty, 1.0, most, measure=None, corrected=False)

    def __check_init__(self) -> None:
        check_flag("SSCA", "corrected", self.corrected)
        check_sampling("SSCA", self.batch, self.participation)
        check("SSCA", "margin", self.margin, lambda x: x >= 0, "a margin inside the bounds is not negative")
        check("SSCA", "tau", self.tau, lambda x: x > 0, "tau must be > 0; it is the curvature τ of the surrogates")
        check("SSCA", "penalty", self.penalty, lambda x: x > 0, "penalty must be > 0; it is the price c of slack")
        check("SSCA", "growth", self.growth, lambda x: x >= 1, "growth of the penalty c is at least 1")
        check("SSCA", "most_penalty", self.most_penalty, lambda x: x >= self.penalty, "at least penalty")
        check("SSCA", "patience", self.patience, lambda x: x >= 1, "a number of rounds", whole=True)
        if self.measure is not None:
            check("SSCA", "measure", self.measure, lambda x: x >= 1, "a number of rounds, or None", whole=True)
        if self.wire not in ("float64", "float32"):
            raise ValueError(f"SSCA(wire={self.wire!r}): 'float64' or 'float32'")
        if not isinstance(self.surrogates, Mapping | None):
            raise TypeError(
                f"SSCA(surrogates={self.surrogates!r}): fp.Surrogates by name, such as {{'objective': …}}, or None"
            )
        for name, surrogate in (self.surrogates or {}).items():
            if not isinstance(surrogate, Surrogate):
                raise TypeError(f"SSCA(surrogates={{{name!r}: {surrogate!r}}}): an fp.Surrogate(q, p)")
        for name in ("rho", "gamma"):
            if getattr(self, name) is not None:
                as_schedule("SSCA", name, getattr(self, name))

    def bound(self, setting: Setting) -> RowsMethod | ColumnsMethod | GeneralRowsMethod:
        self._check(setting)
        over_columns = setting.split == "columns"
        surrogates = surrogates_of(*setting.programs, setting.ridge is None, self.corrected)
        scale = PARTIES if over_columns else 1
        rho, gamma, power = PAPER[min(PAPER, key=lambda rows: abs(math.log(rows * scale / self.batch)))]
        shared: Any = {
            "batch": self.batch,
            "margin": self.margin,
            "rho": as_schedule("SSCA", "rho", self.rho or Decay(rho, power)),
            "gamma": as_schedule("SSCA", "gamma", self.gamma or Decay(gamma, power + 0.05)),
            "penalty": PenaltyRule(self.penalty, self.growth, self.most_penalty, self.patience),
            "participation": self.participation,
            "surrogates": surrogates,
        }
        if self.surrogates is not None:
            return GeneralRowsMethod(**shared, own=given_surrogates(self.surrogates, setting, surrogates))
        return (ColumnsMethod if over_columns else RowsMethod)(
            **shared,
            tau=self.tau,
            parties=setting.parties,
            measure=self.measure,
            wire=self.wire,
            nonsmooth=setting.nonsmooth,
        )

    def _check(self, setting: Setting) -> None:
        party, server = setting.programs
        if any((*party.pooled_equality, *server.equality)):
            raise ValueError(
                "SSCA keeps inequalities: its surrogates of an equality leave no room to move; write abs(e) <= 0.01, say"
            )
        if setting.whole_table_function is not None:
            raise ValueError(
                f"{setting.whole_table_function} reads tables whole, but SSCA draws rows; write it as fp.mean of a row-wise "
                "function"
            )
        if setting.nonsmooth and setting.pooled:
            raise ValueError(
                "SSCA under constraints takes no regulariser but fp.l2; l1, box and group have no closed step here"
            )
        check_batch("SSCA", self.batch, setting)

    @property
    def rows_per_mean(self) -> int:
        return self.batch
