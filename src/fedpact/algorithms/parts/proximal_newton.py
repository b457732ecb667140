"""Quadratics with a regulariser that is known by its proximal operator only: semismooth Newton steps on its fixed point.

    v = prox(v − t(g + H(v − w)), t)

With P the Jacobian of prox there, which JAX finds from the operator itself, the residual's is I − P(I − tH). Every iteration
looks at the end of a Newton step, brought back to where h is finite by a proximal-gradient step, and at the proximal-gradient
step from v, and takes the lower: so it descends always, and is fast once the pieces of h that v is on are found.

    X. Xiao, Y. Li, Z. Wen, L. Zhang: A regularized semi-smooth Newton method with projection steps for composite convex
    programs. J. Scientific Computing 76 (2018).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpact.arrays import on_host
from fedpact.problem.flat_regularizer import FlatRegularizer

ACCURACY = 1e-10  # of the residual, relative to the one at the start
MOST = 100  # iterations
LENGTHS = (1.0, 0.5, 0.1)  # of a Newton step


def proximal_minimiser(w: jax.Array, gradient: jax.Array, hessian: jax.Array, h: FlatRegularizer) -> Any:
    """argmin_v gᵀ(v − w) + ½ (v − w)ᵀH(v − w) + nonsmooth(v); H is positive semidefinite."""
    if on_host(w, gradient, hessian):
        return np.asarray(_minimiser(w, gradient, hessian, h))
    return _minimiser(w, gradient, hessian, h)


@jax.jit
def _minimiser(w: jax.Array, gradient: jax.Array, hessian: jax.Array, h: FlatRegularizer) -> jax.Array:
    step, eye = 1.0 / jnp.max(jnp.sum(jnp.abs(hessian), axis=1)), jnp.eye(w.size)

    def slope(v: jax.Array) -> jax.Array:
        return gradient + hessian @ (v - w)

    def height(v: jax.Array) -> jax.Array:
        return 0.5 * (gradient + slope(v)) @ (v - w) + h.nonsmooth(v)

    def descended(v: jax.Array) -> jax.Array:
        return h.prox(v - step * slope(v), step)

    def unfinished(carry: tuple[jax.Array, jax.Array]) -> jax.Array:
        v, turn = carry
        return (h.distance(v, slope(v)) > ACCURACY * (1e-3 + h.distance(w, gradient))) & (turn < MOST)

    def improve(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        v, turn = carry
        there, plain = v - step * slope(v), descended(v)
        pieces = jax.jacfwd(lambda u: h.prox(u, step))(there)
        matrix = eye - pieces @ (eye - step * hessian)
        newton = jnp.linalg.solve(matrix, plain - v)
        points = jnp.stack([plain, *(descended(v + length * newton) for length in LENGTHS)])
        heights = jax.vmap(height)(points)
        # at the end rounding hides what lowers the height, and residuals tell the points apart
        residuals = jax.vmap(lambda v: h.distance(v, slope(v)))(points)
        lowest = jnp.min(jnp.where(jnp.isfinite(heights), heights, jnp.inf))
        low = heights <= lowest + 1e-14 * (1.0 + jnp.abs(lowest))
        return points[jnp.argmin(jnp.where(low, residuals, jnp.inf))], turn + 1

    return lax.while_loop(unfinished, improve, (h.prox(w, 0.0), jnp.zeros((), int)))[0]
