"""A proximal augmented Lagrangian method for federated learning with global, local and coupled constraints.

    minimise Σ_i f_i(w) + h(w)   s.t.   c_0(w) <= 0 at the server,  c_i(w) <= 0 at party i,  Σ_i c̃_i(w) <= 0      (3), (5)

C. He, L. Peng, J. Sun: Federated Learning with Convex Global and Local Constraints. TMLR 2024. Algorithm 1; the inner
solvers are in `newton.py`, `lbfgs.py` and `admm.py`.

    symbol   here                 meaning
    w^k      ServerState.centre   outer iterate, centre of the prox term
    μ_i      PartyState.mu        multipliers of party i, which stay with it
    μ_0, ν   ServerState.mu, .nu  multipliers of the server's own and of the pooled constraints
    β, τ_k   beta, tau            penalty; accuracy of the k-th subproblem
    P_i      merit.Merit          (13), (14)

Where we leave the paper. The first β and γ are relative to curvature and slopes at the start. β may grow, since a fixed one
stalls at 1e-5 on monks-1. τ_k is geometric by default. And a run
ends as soon as a point with its multipliers μ⁺(w) meets Definition 1, which every round measures, rather than by (11),
which waits for τ_k: `ProxAL.as_printed()` has Algorithm 1 as it stands.
"""

from typing import Any, ClassVar, Literal

from fedpact.algorithms.parts.counted_rates import with_counted_rates
from fedpact.algorithms.parts.in_units import in_units
from fedpact.algorithms.prox_al.admm import ADMM
from fedpact.algorithms.prox_al.inner import Inner
from fedpact.algorithms.prox_al.lbfgs import LBFGS
from fedpact.algorithms.prox_al.newton import Newton
from fedpact.algorithms.prox_al.running import ProxALMethod
from fedpact.algorithms.prox_al.tolerances import Geometric, InverseSquare, Tolerances
from fedpact.federation.setting import Setting
from fedpact.problem.atoms import Scope
from fedpact.protocol.algorithm import Algorithm, Method
from fedpact.protocol.options import check

NEWTON_UP_TO = 300  # parameters; above, a Hessian is too much to send and to factor


class ProxAL(Algorithm):
    """Algorithm 1 with any inner solver.

    - `inner`: Newton(), LBFGS(), ADMM() or another `Inner` (default by size: Newton up to 300 parameters, L-BFGS above).
    - `beta`: the penalty β > 0, the same for all constraints, relative to the problem: 1 makes β‖∇c‖² at the start as large as
      the objective's curvature there (default: the inner solver's own, 3 for Newton, 100 for ADMM,
      for L-BFGS 5 with up to five parameters for each pair that it keeps and 0.05 with more); as printed, β itself.
    - `growth`: β is multiplied by this when a subproblem left more than a quarter of the violation (>= 1, default: the inner
      solver's own, 6 for Newton, 3 for ADMM, for L-BFGS likewise 4 and 3).
    - `most_beta`: β grows up to this (>= beta, default 1e7).
    - `prox_growth`: the length γ of the prox term is multiplied by this with every subproblem (>= 1, default: the inner solver's
      own). The paper keeps γ = β, which makes a small β creep and a large one ill-conditioned.
    - `tolerances`: τ_k, Geometric() (default) or InverseSquare(s).
    - `coupling`: how pooled constraints are kept: "direct" (their sum, at the server) or "slack" (form (4)); default: the first
      that the inner solver can.
    - `stop`: "measured" (Definition 1 at any evaluated point, default) or "printed" (criterion (11)).
    """

    inner: Inner | None = None
    beta: float | None = None
    growth: float | None = None
    most_beta: float = 1e7
    prox_growth: float | None = None
    tolerances: Tolerances = Geometric()
    coupling: Literal["direct", "slack"] | None = None
    stop: Literal["measured", "printed"] = "measured"

    keeps: ClassVar[frozenset[Scope]] = frozenset({"party", "pooled", "server"})
    begins_with_multipliers: ClassVar[bool] = True
    counts_rates: ClassVar[bool] = True
    from_several_starts: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_outer(self, self.beta, self.growth, self.prox_growth, self.tolerances, self.stop)
        words = "most_beta must be at least beta, and > 0"
        check("ProxAL", "most_beta", self.most_beta, lambda x: x > 0 and x >= (self.beta or 0.0), words)
        if self.inner is not None and not isinstance(self.inner, Inner):
            raise TypeError(f"ProxAL(inner={self.inner!r}): an inner solver is Newton(), LBFGS() or ADMM()")
        if self.coupling not in (None, "direct", "slack"):
            raise ValueError(f"ProxAL(coupling={self.coupling!r}): 'direct' or 'slack', or None for the solver's own")
        if self.inner is not None and self.inner.needs_slacks and self.coupling == "direct":
            raise ValueError(f"{type(self.inner).__name__} cannot couple parties directly; use coupling='slack'")

    @classmethod
    def as_printed(
        cls,
        beta: float = 300.0,
        s: float = 0.001,
        rho: float | tuple[float, ...] = 0.01,
        q: float = 0.5,
        exact: bool = False,
    ) -> "ProxAL":
        """Algorithms 1 and 2 as the paper prints them, with the settings of its Neyman-Pearson experiment.

        - `exact`: whether (18) and (19) are solved as accurately as float64 can, as in the paper's section E.2 (default: no).
        """
        return cls(
            ADMM.as_printed(rho=rho, q=q, exact=exact), beta, 1.0, beta, 1.0, InverseSquare(s), "slack", "printed"
        )

    def solver(self, setting: Setting) -> Inner:
        """The inner solver: the given one, or the one for this many parameters."""
        return self.inner or (Newton() if setting.size <= NEWTON_UP_TO else LBFGS())

    def sends_hessians(self, setting: Setting) -> bool:
        return getattr(self.solver(setting), "uses_hessian", False)

    def title(self, setting: Setting) -> str:
        return f"ProxAL with {type(self.solver(setting)).__name__}"

    def usual_rounds(self, setting: Setting) -> tuple[int, int] | None:
        return self.solver(setting).usual_rounds

    def bound(self, setting: Setting) -> Method[Any]:
        inner = self.solver(setting)
        slack = (self.coupling or ("slack" if inner.needs_slacks else "direct")) == "slack" and setting.pooled > 0
        slacks = setting.parties * setting.pooled if slack else 0
        inner = inner.sized(setting.size + slacks, setting.parties)
        first, growth = inner.penalty(setting.size + slacks)
        beta = first if self.beta is None else self.beta
        growth, prox_growth = self.growth or growth, self.prox_growth or inner.prox_growth
        method = ProxALMethod(self, inner, beta, growth, prox_growth, slack)
        in_its_units = in_units(method, setting) if self.stop == "measured" else method  # as printed: the problem's own
        return with_counted_rates(in_its_units, setting)


def check_outer(
    options: Algorithm,
    beta: float | None,
    growth: float | None,
    prox_growth: float | None,
    tolerances: Tolerances,
    stop: str,
) -> None:
    """The options of the outer iteration; None is left to the inner solver."""
    owner = type(options).__name__
    if beta is not None:
        check(owner, "beta", beta, lambda x: x > 0, "beta must be > 0; it is the penalty β of Algorithm 1")
    if growth is not None:
        check(owner, "growth", growth, lambda x: x >= 1, "growth must be >= 1; β is multiplied by it")
    if prox_growth is not None:
        check(owner, "prox_growth", prox_growth, lambda x: x >= 1, "prox_growth must be >= 1; γ is multiplied by it")
    if not isinstance(tolerances, Tolerances):
        raise TypeError(f"{owner}(tolerances={tolerances!r}): a schedule of τ_k, Geometric() or InverseSquare()")
    if stop not in ("measured", "printed"):
        raise ValueError(f"{owner}(stop={stop!r}): 'measured' or 'printed'")
