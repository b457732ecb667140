"""Newton's method at the server on the summed Hessians of P_i: the fewest rounds, d(d+1)/2 + 2d numbers up per party.

With l1, box or group regularisers a proximal Newton step. With nonconvex constraints the Hessian may be indefinite; then its
eigenvalues count with their absolute values (Dauphin et al.: Identifying and attacking the saddle point problem, NeurIPS 2014).
"""

from typing import ClassVar

import jax

from fedpact.algorithms.parts.descent import absolute, newton_target
from fedpact.algorithms.prox_al.descent_at_server import DescentAtServer
from fedpact.problem.flat_regularizer import FlatRegularizer


class Newton(DescentAtServer):
    """`ProxAL(inner=Newton())`: for up to a few hundred parameters."""

    uses_hessian: ClassVar[bool] = True
    few_rounds: ClassVar[bool] = True
    usual_rounds: ClassVar[tuple[int, int] | None] = (16, 80)  # to 1e-6

    def penalty(self, size: int) -> tuple[float, float]:
        return 4.0, 6.0

    def empty_memory(self, w: jax.Array) -> None:
        del w

    def reset(self, memory: None) -> None:
        del memory

    def reopened(self, memory: None) -> None:
        del memory

    def extended(self, memory: None, w: jax.Array, gradient: jax.Array) -> None:
        del memory, w, gradient

    def target(
        self, memory: None, w: jax.Array, gradient: jax.Array, hessian: jax.Array | None, h: FlatRegularizer
    ) -> tuple[jax.Array, jax.Array]:
        assert hessian is not None
        return newton_target(w, gradient, absolute(hessian), h)
