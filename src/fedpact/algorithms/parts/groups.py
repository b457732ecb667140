"""The minimiser of a quadratic plus norms of groups, however ill-conditioned the quadratic is.

    minimise gᵀ(v − w) + ½ (v − w)ᵀH(v − w) + Σ_g a_g ‖v_g‖

A norm has a kink at zero. It is smoothed, √(‖v_g‖² + ε²), and ε falls to zero on the way. Newton's method follows in primal and
dual variables: the dual z_g = a_g v_g/√(‖v_g‖² + ε²) is linearised as √(‖v_g‖² + ε²) z_g = a_g v_g, which stays a good model
where ε is small and a Newton step in v alone would not. At the end, a group whose dual is inside the ball ‖z_g‖ < a_g is set to
zero, and the rest is a smooth problem.
"""

from typing import Any

import jax

from fedpact.arrays import each, linalg, segment_sum, while_loop, xp
from fedpact.problem.flat_regularizer import FlatRegularizer

FALL = 0.2  # of ε, in a step
LEAST = 1e-12  # ε, of its first value
STEPS = 60  # at most, and as many on the piece
INSIDE = 1e-6  # a dual this far inside its ball, relatively, belongs to a group that is zero,
SMALL = 1e-9  # and so does a norm this small, relative to the first ε
LENGTHS = 0.5 ** xp.arange(12.0)
ROUNDING = 1e-9  # relative: the point with exact zeros is no higher, to this
SHIFT = 1e-15  # of every entry of a diagonal, added to it


def group_minimiser(w: jax.Array, gradient: jax.Array, hessian: jax.Array, h: FlatRegularizer) -> jax.Array:
    """`hessian`: positive semidefinite. h: norms of groups alone, `h.kinks == "groups"`."""
    of_group, grouped = h.weight[h.group], h.group >= 0
    weight = xp.where(grouped, of_group, 0.0)
    together = (h.group[:, None] == h.group) & grouped[:, None]
    eye = xp.eye(w.size, dtype=w.dtype)

    def slope(v: jax.Array) -> jax.Array:
        return gradient + hessian @ (v - w)

    def norms(v: jax.Array, epsilon: Any) -> jax.Array:
        """√(‖v_g‖² + ε²) for every entry; 1 where it is in no group."""
        squares = segment_sum(xp.where(grouped, v**2, 0.0), h.group, h.groups)[h.group]
        return xp.where(grouped, xp.sqrt(squares + epsilon**2), 1.0)

    def height(v: jax.Array, epsilon: Any) -> jax.Array:
        groups = xp.sqrt(segment_sum(xp.where(grouped, v**2, 0.0), h.group, h.groups) + epsilon**2)
        return 0.5 * (gradient + slope(v)) @ (v - w) + xp.sum(h.weight * groups)

    def lowest(v: jax.Array, direction: jax.Array, epsilon: Any) -> tuple[jax.Array, jax.Array]:
        """The lowest point along a direction, and whether it is at its end."""
        points = v + LENGTHS[:, None] * direction
        heights = each(lambda point: height(point, epsilon), points)
        place = xp.argmin(xp.where(xp.isfinite(heights), heights, xp.inf))
        better = heights[place] <= height(v, epsilon)
        return xp.where(better, points[place], v), better & (place == 0)

    def solved(matrix: jax.Array, right: jax.Array) -> jax.Array:
        diagonal = xp.abs(xp.diag(matrix))
        scale = 1.0 / xp.sqrt(xp.where(diagonal > 0, diagonal, 1.0))
        step = scale * linalg.solve(scale[:, None] * matrix * scale + SHIFT * eye, scale * right)
        return xp.where(xp.all(xp.isfinite(step)), step, 0.0)

    # smoothed

    first = xp.maximum(xp.max(norms(w, 0.0), where=grouped, initial=0.0), 1e-3)

    def follow(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        v, z, epsilon, turn = carry
        rho = norms(v, epsilon)
        bend = 0.5 * (z[:, None] * v + v[:, None] * z) / (rho * rho[:, None])
        matrix = hessian + xp.diag(weight / rho) - xp.where(together, bend, 0.0)
        direction = solved(matrix, -(slope(v) + weight * v / rho))
        moved, whole = lowest(v, direction, epsilon)
        # the dual goes the whole way, and back into its ball
        along = segment_sum(xp.where(grouped, v * direction, 0.0), h.group, h.groups)[h.group]
        dual = xp.where(grouped, (weight * (v + direction) - z * along / rho) / rho, 0.0)
        size = norms(dual, 0.0)
        dual = dual * xp.minimum(1.0, weight / xp.where(size > 0, size, 1.0))
        return moved, dual, xp.where(whole, FALL, 0.7) * epsilon, turn + 1

    def above(carry: tuple[Any, ...]) -> jax.Array:
        return (carry[2] > LEAST * first) & (carry[3] < STEPS)

    dual = weight * w / norms(w, first)
    v, z, _, _ = while_loop(above, follow, (w, dual, first, xp.zeros((), int)))

    # on the piece

    size = norms(z, 0.0)
    moving = ~grouped | ((size >= (1.0 - INSIDE) * weight) & (norms(v, 0.0) > SMALL * first))
    on_piece = xp.where(moving, v, 0.0)
    tolerance = 1e-12 * (1e-3 + h.distance(w, gradient))

    def polish(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        v, turn = carry
        rho = xp.maximum(norms(v, 0.0), 1e-300)
        unit = xp.where(grouped, v / rho, 0.0)
        bend = xp.where(together, (xp.diag(xp.where(grouped, 1.0, 0.0)) - unit[:, None] * unit), 0.0) * (weight / rho)
        free = moving & (~grouped | (norms(v, 0.0) > 0))
        both = free[:, None] & free
        matrix = xp.where(both, hessian + bend, 0.0) + xp.diag(xp.where(free, 0.0, 1.0))
        right = xp.where(free, -(slope(v) + weight * unit), 0.0)
        direction = solved(matrix, right)
        there = v + direction
        nearer = h.distance(there, slope(there)) < 0.5 * h.distance(
            v, slope(v)
        )  # heights show no more than half the digits
        return xp.where(nearer, there, lowest(v, direction, 0.0)[0]), turn + 1

    def rough(carry: tuple[Any, ...]) -> jax.Array:
        v, turn = carry
        return (h.distance(v, slope(v)) > tolerance) & (turn < 20)

    polished, _ = while_loop(rough, polish, (on_piece, xp.zeros((), int)))
    least = height(v, 0.0)
    no_higher = height(polished, 0.0) <= least + ROUNDING * (1e-3 + xp.abs(least))
    return xp.where(no_higher & (h.distance(polished, slope(polished)) <= h.distance(v, slope(v))), polished, v)
