"""Newton's method at the server on the summed Hessians of P_i: the fewest rounds, d(d+1)/2 + d numbers up per party.

With l1, box or group regularisers a proximal Newton step; with nonconvex constraints the Hessian is shifted until it is
positive definite. The server sees Σ P_i, Σ ∇P_i and Σ ∇²P_i.
"""

from typing import ClassVar

import jax

from fedpact.algorithms.parts.descent import newton_target
from fedpact.algorithms.prox_al.descent_at_server import AtServer
from fedpact.problem.regularizers import FlatRegularizer


class Newton(AtServer):
    """`ProxAL(inner=Newton())`: for up to a few hundred parameters."""

    uses_hessian: ClassVar[bool] = True

    def remember(self, w: jax.Array) -> None:
        del w

    def forget(self, memory: None) -> None:
        del memory

    def renew(self, memory: None) -> None:
        del memory

    def aim(
        self, memory: None, w: jax.Array, gradient: jax.Array, hessian: jax.Array | None, h: FlatRegularizer
    ) -> tuple[None, jax.Array, jax.Array]:
        assert hessian is not None
        return (memory, *newton_target(w, gradient, hessian, h))
