"""A federated primal-dual interior-point method: certified in a dozen rounds.

    minimise Σ_i f_i(w) + h(w)   s.t.   c_i(w) + s_i = 0, s_i > 0 at party i, and the same for the server's and pooled ones

Newton's step on the optimality conditions with s_i μ_i = κ reduces to one d x d system that is a sum over parties. With
W_i = diag(1/(s_i/μ_i + δ)), or 1/δ for an equality:

    A   = Σ_i ∇²f_i + Σ_m μ_im ∇²c_im + J_iᵀ W_i J_i
    A Δw = −Σ_i ∇f_i + J_iᵀ(μ_i − W_i s_i + κ W_i/μ_i + θ W_i (c_i + s_i))
    at the party:   Δμ_i = W_i (θ(c_i + s_i) − s_i + κ/μ_i + J_i Δw),        Δs_i = (κ − s_i μ_i − s_i Δμ_i)/μ_i

    symbol   here                 meaning
    s, μ     Barrier.s, .mu       slacks and multipliers, which stay with their holder
    κ        ServerState.kappa    what every product s μ is driven to
    δ        barrier.py           1e-7 of the largest ‖∇c‖² so far: bounds W, which would else drown f's curvature in rounding;
                                  less where the objective has become steep, since multipliers then have far to go
    ρ        ServerState.rho      the weight of c + s in the merit function
    θ        Step.residual_share  the part of c + s that a step closes: 1, less in a small ball

One exchange per round: w moves by the whole step, and each party keeps its own s and μ positive. What is tried is judged by

    Φ = f(w) + h(w) − κ Σ log s + ρ Σ|c(w) + s|

and taken back when it is not lower. With its sums every holder says where along the step a slack would have ended, so a
step that left the region is tried again up to its edge, as in a textbook, but only when it has failed; Δs and Δμ shrink with
it. Any other failure, or a model that is not convex, is answered by a smaller ball around w, in which the model is minimised
at the server. h enters exactly, by proximal Newton steps, so that zeros of an l1 term are zeros.
"""

from typing import Any, ClassVar

from fedpact.algorithms.interior_point.running import InteriorPointMethod
from fedpact.algorithms.parts.counted_rates import with_counted_rates
from fedpact.algorithms.parts.in_units import in_units
from fedpact.federation.setting import Setting
from fedpact.problem.atoms import Scope
from fedpact.protocol.algorithm import (
    Algorithm,
    Method,
)
from fedpact.protocol.options import check


class InteriorPoint(Algorithm):
    """The primal-dual interior-point method, for up to a few hundred parameters: d(d+1)/2 + 5d + 17 numbers up per party.

    - `mu`: the multipliers' first value (> 0, default 0.03), less where a constraint has much room.
    - `centering`: κ is at most this part (between 0 and 1, default 0.1) of the mean product s μ, and falls faster near the end.
    """

    mu: float = 0.03
    centering: float = 0.1

    keeps: ClassVar[frozenset[Scope]] = frozenset({"party", "pooled", "server"})
    counts_rates: ClassVar[bool] = True
    from_several_starts: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check("InteriorPoint", "mu", self.mu, lambda x: x > 0, "the first multipliers μ must be > 0")
        words = "a number between 0 and 1: κ's part of the mean product s μ"
        check("InteriorPoint", "centering", self.centering, lambda x: 0 < x < 1, words)

    def usual_rounds(self, setting: Setting) -> tuple[int, int] | None:
        return 8, 48

    def sends_hessians(self, setting: Setting) -> bool:
        return True

    def bound(self, setting: Setting) -> Method[Any]:
        rates = any(program.rates for program in setting.programs)
        return with_counted_rates(in_units(InteriorPointMethod(self, rates), setting), setting)
