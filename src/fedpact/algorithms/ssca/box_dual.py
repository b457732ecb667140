"""The server's problem in SSCA under constraints: isotropic quadratics with slacks, solved by its dual on a box.

    minimise over w and s >= 0   a_0·w + q_0‖w‖² + c Σ s_m   s.t.   F_m(w) = A_m + a_m·w + q_m‖w‖² <= s_m,   m = 1 … M

In the mini-batch SSCA paper M = 1, a_0 = 0, q_0 = 1, and Lemma 1 has the solution. For any M the multipliers of the
constraints are where the concave g is highest in the box 0 <= ν_m <= c:

    g(ν) = ν·A − ‖a_0 + Σ ν_m a_m‖²/(4 q(ν)),     q(ν) = q_0 + Σ ν_m q_m,     w(ν) = −(a_0 + Σ ν_m a_m)/(2 q(ν))

with ∂g/∂ν_m = F_m(w(ν)) and Hessian −VVᵀ/(2q), where v_m = a_m + 2 q_m w is the slope of F_m. As L(w, ν) is a quadratic in w
of curvature q(ν), a step δ raises g by exactly

    g(ν + δ) − g(ν) = δ·F(w) − ‖Vᵀδ‖²/(4 q(ν + δ))

and along a line g peaks where Lemma 1 says. All this needs of the a's is their Gram matrix, a sum over parties who hold
columns; each of them then forms its own block of w from its own a's and `Quadratics.combination`.

    symbol    here                      meaning
    A         Quadratics.constants      (M,)
    a_i·a_j   Quadratics.gram           (M+1, M+1), summed in float64: `gram_matrix`
    q         Quadratics.curvatures     (M+1,), none negative
    c         penalty                   the price of slack
    ν         Solution.nu               multipliers, (M,)
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax

from fedpact.algorithms.parts.descent import positive_solve
from fedpact.arrays import choose

FLOOR = 1e-12  # of the largest curvature, for q_0
RIDGE = 1e-12  # of the diagonal: dependent constraints make VVᵀ singular
GAP = 1e-12  # relative duality gap at which ν is good enough
ROUNDING = 1e-14  # relative rise of g that cannot be seen
PATIENCE = 4  # steps without progress
LENGTHS = 12  # points tried between the end of a step and where it meets the box
MOST = 100  # steps


def gram_matrix(slopes: jax.Array) -> jax.Array:
    """The products of a_0 … a_M, the rows of `slopes`, in float64: a float32 sum over 1e6 columns loses constraints."""
    rows = _double(slopes)
    return rows @ rows.T


def _double(x: Any) -> jax.Array:
    return jnp.asarray(x, jnp.float64)


class Quadratics(eqx.Module):
    """The problem, as far as its dual needs it.

    Where q_0 = 0 the objective may not say which w is best. It then gets the curvature FLOOR · max q, which picks about the
    shortest w of them, and costs FLOOR · max q · ‖w‖².
    """

    constants: jax.Array = eqx.field(converter=_double)
    gram: jax.Array = eqx.field(converter=_double)
    curvatures: jax.Array = eqx.field(converter=_double)

    def curvature(self, nu: jax.Array) -> jax.Array:
        """q(ν)."""
        top = jnp.max(self.curvatures)
        floor = FLOOR * jnp.where(top > 0, top, 1.0)
        return jnp.maximum(self.curvatures[0], floor) + self.curvatures[1:] @ nu

    def combination(self, nu: jax.Array) -> jax.Array:
        """The coefficients of a_0 … a_M in w(ν), (M+1,)."""
        return -_weights(nu) / (2.0 * self.curvature(nu))

    def dual(self, nu: jax.Array) -> jax.Array:
        """g(ν)."""
        weights = _weights(nu)
        return nu @ self.constants - weights @ self.gram @ weights / (4.0 * self.curvature(nu))

    def point(self, nu: jax.Array) -> "DualPoint":
        combination = self.combination(nu)
        products = self.gram @ combination
        square = jnp.maximum(combination @ products, 0.0)
        curved, own = self.curvatures[1:], products[1:]
        crossed = 2.0 * curved[:, None] * own[None, :]
        return DualPoint(
            nu=nu,
            curvature=self.curvature(nu),
            values=self.constants + own + curved * square,
            slopes=self.gram[1:, 1:] + crossed + crossed.T + 4.0 * square * jnp.outer(curved, curved),
            parts=jnp.diag(self.gram)[1:] + 4.0 * square * curved**2,
            size=jnp.abs(products[0]) + self.curvatures[0] * square,
        )


class DualPoint(eqx.Module):
    """A point ν in the box, and what is known at w(ν) without w itself."""

    nu: jax.Array
    curvature: jax.Array  # q(ν)
    values: jax.Array  # F_m
    slopes: jax.Array  # VVᵀ
    parts: jax.Array  # ‖a_m‖² + ‖2 q_m w‖²: what ‖v_m‖² is computed from, so what its rounding is relative to
    size: jax.Array  # |a_0·w| + q_0‖w‖²

    def slack(self) -> jax.Array:
        return jnp.maximum(self.values, 0.0)

    def gap(self, penalty: jax.Array) -> jax.Array:
        """How far the objective is above g: Σ (c − ν_m)[F_m]₊ + ν_m[−F_m]₊."""
        return jnp.sum((penalty - self.nu) * self.slack() + self.nu * (self.slack() - self.values))

    def terms(self, penalty: jax.Array) -> jax.Array:
        """The size of the objective's terms."""
        return self.size + penalty * jnp.sum(self.slack())


class Solution(eqx.Module):
    nu: jax.Array
    values: jax.Array  # F_m(w(ν))
    slack: jax.Array  # s_m
    gap: jax.Array  # duality gap, relative to the size of the objective's terms; where they are all 0, judge by `slack`
    iterations: jax.Array  # Newton's steps


def solve_box_dual(problem: Quadratics, penalty: Any) -> Solution:
    """The multipliers: in closed form for M <= 1, else by projected Newton."""
    penalty = _double(penalty)
    if problem.constants.size > 1:
        return projected_newton(problem, penalty)
    return _solution(problem.point(_diagonal_peak(problem, penalty)), penalty, jnp.zeros((), int))


def peak(problem: Quadratics, nu: jax.Array, direction: jax.Array, most: Any) -> jax.Array:
    """The t in [0, most] where g(ν + t·direction) is highest.

    On the line the problem has a single constraint; A, a_0, a_1, q_0, q_1 are now those of the line, and D = ‖a_1‖² − 4 q_1 A.
    g is level where q = ‖q_1 a_0 − q_0 a_1‖/√D, which is Lemma 1; its t = (q − q_0)/q_1 is, without the difference,

        t = 4 q_0² F(w(0)) / (√D (√D q_0 + ‖q_1 a_0 − q_0 a_1‖))

    Where F(w(0)) <= 0 the peak is at 0; else, where D <= 0, F is positive everywhere and g rises up to `most`.
    """
    weights = jnp.stack([_weights(nu), jnp.append(0.0, direction)])
    (a00, a01), (_, a11) = weights @ problem.gram @ weights.T
    q0, q1 = problem.curvature(nu), problem.curvatures[1:] @ direction
    constant = problem.constants @ direction
    start = 4.0 * q0**2 * constant - 2.0 * q0 * a01 + q1 * a00
    apart = jnp.sqrt(jnp.maximum(q1**2 * a00 - 2.0 * q0 * q1 * a01 + q0**2 * a11, 0.0))
    root = jnp.sqrt(jnp.maximum(a11 - 4.0 * q1 * constant, 0.0))
    below = root * (root * q0 + apart)
    level = jnp.where(below > 0, jnp.minimum(start / jnp.where(below > 0, below, 1.0), most), most)
    return jnp.where(start > 0, level, 0.0)


def projected_newton(problem: Quadratics, penalty: jax.Array) -> Solution:
    """Newton's steps on the free multipliers, each followed, and bent by the box, to where g is highest.

    Ends on the duality gap, or where rounding lets neither g rise nor the gap fall; the least gap seen is what counts.
    """

    def unfinished(search: _Search) -> jax.Array:
        gap, terms = search.best.gap(penalty), search.best.terms(penalty)
        return (gap > GAP * terms) & (search.idle < PATIENCE) & (search.turn < MOST)

    def improve(search: _Search) -> _Search:
        here, best = search.here, search.best.gap(penalty)
        nu, rise = _highest_along(problem, here, _newton_step(here, penalty), penalty)
        there = problem.point(nu)
        gap = there.gap(penalty)
        rising = rise > ROUNDING * (here.size + here.nu @ jnp.abs(here.values))
        return _Search(
            here=there,
            best=choose(gap < best, there, search.best),
            idle=jnp.where(rising | (gap < 0.5 * best), 0, search.idle + 1),
            turn=search.turn + 1,
        )

    start, none = problem.point(_diagonal_peak(problem, penalty)), jnp.zeros((), int)
    end = lax.while_loop(unfinished, improve, _Search(start, start, none, none))
    return _solution(end.best, penalty, end.turn)


class _Search(eqx.Module):
    here: DualPoint
    best: DualPoint
    idle: jax.Array
    turn: jax.Array


def _newton_step(here: DualPoint, penalty: jax.Array) -> jax.Array:
    """(VVᵀ/2q)⁻¹F over the free multipliers.

    A multiplier at a bound is held if F, or else the step, would push it out. It is not enough to cut such a step: the others
    counted on it, and where constraints are dependent they would zigzag.
    """
    scale = jnp.sqrt(jnp.where(here.parts > 0, here.parts, 1.0))
    matrix = here.slopes / jnp.outer(scale, scale)
    right = 2.0 * here.curvature * here.values / scale

    def pushed_out(step: jax.Array) -> jax.Array:
        return ((here.nu <= 0) & (step < 0)) | ((here.nu >= penalty) & (step > 0))

    def hold(carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        free, step, _ = carry
        free = free & ~pushed_out(step)
        among = jnp.where(free[:, None] & free[None, :], matrix, 0.0) + jnp.diag(jnp.where(free, RIDGE, 1.0))
        step = positive_solve(among, jnp.where(free, right, 0.0))
        return free, step, jnp.any(pushed_out(step))

    begin = (jnp.ones_like(right, bool), right, jnp.asarray(True))
    _, step, _ = lax.while_loop(lambda carry: carry[2], hold, begin)
    return step / scale


def _highest_along(
    problem: Quadratics, here: DualPoint, step: jax.Array, penalty: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The highest of the points tried along a step, and its rise of g.

    Tried are the peak before the step first meets the box, and points from there to the step's end, projected.
    """
    nu = here.nu
    bound = jnp.where(step > 0, penalty, 0.0)
    reach = jnp.where(step != 0, (bound - nu) / jnp.where(step != 0, step, 1.0), jnp.inf)
    first = jnp.minimum(jnp.min(reach), 1.0)
    inside = first * peak(problem, nu, first * step, 1.0)
    lengths = jnp.append(first ** jnp.linspace(0.0, 1.0, LENGTHS), inside)[:, None]
    points = jnp.where(lengths >= reach, bound, jnp.clip(nu + lengths * step, 0.0, penalty))
    moves = points - nu
    bends = jnp.sum(moves @ here.slopes * moves, axis=1) / (4.0 * jax.vmap(problem.curvature)(points))
    rises = moves @ here.values - bends
    best = jnp.argmax(rises)
    return points[best], rises[best]


def _diagonal_peak(problem: Quadratics, penalty: jax.Array) -> jax.Array:
    """Where g is highest with all ν_m alike."""
    ones = jnp.ones_like(problem.constants)
    return peak(problem, 0.0 * ones, ones, penalty) * ones


def _weights(nu: jax.Array) -> jax.Array:
    """Of a_0 … a_M in the Lagrangian."""
    return jnp.append(1.0, nu)


def _solution(point: DualPoint, penalty: jax.Array, iterations: jax.Array) -> Solution:
    terms = point.terms(penalty)
    gap = point.gap(penalty) / jnp.maximum(terms, jnp.finfo(terms.dtype).tiny)
    return Solution(point.nu, point.values, point.slack(), gap, iterations)
