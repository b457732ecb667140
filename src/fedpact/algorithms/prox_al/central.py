"""The centralised proximal augmented Lagrangian method: the reference that the federated one is compared with.

    w^{k+1} ≈ argmin f(w) + h(w) + (‖[μ^k + βc(w)]₊‖² − ‖μ^k‖²)/(2β) + ‖w − w^k‖²/(2β),   μ^{k+1} = [μ^k + βc(w^{k+1})]₊

C. He, L. Peng, J. Sun: Federated Learning with Convex Global and Local Constraints. TMLR 2024. Algorithm 3 (where τ_k has to
be nonincreasing; the text says nondecreasing). The centralised solver is Newton's method.

It treats the data as being in one place: every inner iteration reads all rows. Over several parties in this process it
solves the very problem that they have, each one's constraints included, as the paper's comparison does.
"""

import dataclasses
from typing import Any, ClassVar, Literal

import jax

from fedpact.algorithms.parts.descent import Walk
from fedpact.algorithms.prox_al.descent_at_server import Search
from fedpact.algorithms.prox_al.method import ProxAL, check_outer
from fedpact.algorithms.prox_al.newton import Newton
from fedpact.algorithms.prox_al.tolerances import Geometric, InverseSquare, Tolerances
from fedpact.federation.setting import Setting
from fedpact.problem.atoms import Scope
from fedpact.protocol.algorithm import Algorithm, Method
from fedpact.protocol.options import check


class FromLastPoint(Newton):
    """Begins every subproblem where the last one ended, as printed."""

    def reopen(self, state: Search, w: jax.Array, growth: jax.Array) -> Search:
        return dataclasses.replace(super().reopen(state, w, growth), walk=Walk.at(w))


class CentralProxAL(Algorithm):
    """Algorithm 3. Options as in ProxAL; `CentralProxAL.as_printed()` has the paper's.

    - `beta`, `growth`, `prox_growth`, `tolerances`, `stop`: see `fp.ProxAL` (defaults 10, 5, 30, Geometric(), "measured").
    """

    beta: float = 10.0
    growth: float = 5.0
    prox_growth: float = 30.0
    tolerances: Tolerances = Geometric()
    stop: Literal["measured", "printed"] = "measured"

    keeps: ClassVar[frozenset[Scope]] = ProxAL.keeps
    begins_with_multipliers: ClassVar[bool] = True
    counts_rates: ClassVar[bool] = True
    from_several_starts: ClassVar[bool] = True

    def __check_init__(self) -> None:
        for option in ("beta", "growth", "prox_growth"):  # there is no inner solver that None could be left to
            check("CentralProxAL", option, getattr(self, option), lambda _: True, "a number")
        check_outer(self, self.beta, self.growth, self.prox_growth, self.tolerances, self.stop)

    @classmethod
    def as_printed(cls, beta: float = 300.0, s: float = 0.001) -> "CentralProxAL":
        """With fixed β, τ_k = s/(k+1)² and the printed stopping rule."""
        return cls(beta, 1.0, 1.0, InverseSquare(s), "printed")

    @property
    def _outer(self) -> ProxAL:
        most = max(self.beta, ProxAL.most_beta)
        inner = FromLastPoint() if self.stop == "printed" else Newton()
        return ProxAL(inner, self.beta, self.growth, most, self.prox_growth, self.tolerances, "direct", self.stop)

    def sends_hessians(self, setting: Setting) -> bool:
        return True

    def usual_rounds(self, setting: Setting) -> tuple[int, int] | None:
        return self._outer.usual_rounds(setting)

    def bound(self, setting: Setting) -> Method[Any]:
        return self._outer.bound(setting)
