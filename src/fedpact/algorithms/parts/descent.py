"""Minimising smooth + nonsmooth with one evaluation at a time: the walk that Newton and L-BFGS share.

A walk proposes a `trial`; somebody evaluates the smooth part there (a round of communication, or this party alone); the
walk judges the trial and proposes the next. So the same arithmetic serves the server across a network and a party at home.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.scipy.linalg import cho_solve

from fedpact.algorithms.parts.groups import group_minimiser
from fedpact.algorithms.parts.proximal_newton import proximal_minimiser
from fedpact.arrays import choose, cond, each, linalg, on_host, put, repeat, while_loop, xp
from fedpact.problem.flat_regularizer import FlatRegularizer
from fedpact.records import Record

ARMIJO = 1e-4
ROUNDING = 1e-12  # relative noise in a function value, below which a decrease cannot be seen
SINGULAR = 1e-14  # of the largest eigenvalue: an eigenvalue this small is rounding
IDLE = 5  # turns in a row in which rounding hides what happens to the value, and the residual does not halve: no more is reached
FLAT = 1e-8  # the least curvature, relative to the largest, that a step along a direction of negative curvature reckons with
SHORTEST = 1e-9  # a step this short means that float64 shows no descent any more


class Walk(Record):
    """Where a descent stands: the last accepted point with its total value, and the trial on the way from it."""

    w: jax.Array
    value: jax.Array
    residual: jax.Array
    direction: jax.Array
    slope: jax.Array
    step: jax.Array
    trial: jax.Array

    @classmethod
    def at(cls, w: jax.Array) -> "Walk":
        nothing = xp.asarray(xp.inf, w.dtype)
        return cls(w, nothing, nothing, xp.zeros_like(w), xp.zeros((), w.dtype), xp.ones((), w.dtype), w)

    @property
    def stuck(self) -> jax.Array:
        return self.step < SHORTEST


def accepts(walk: Walk, value: jax.Array, slope: jax.Array, residual: jax.Array) -> jax.Array:
    """Armijo's rule; where the change is lost in the rounding of values, a slope or a residual that has fallen."""
    enough = value <= walk.value + ARMIJO * walk.step * walk.slope
    unseen = xp.abs(value - walk.value) <= ROUNDING * (1.0 + xp.abs(walk.value))
    flatter = xp.abs(slope) <= 0.9 * xp.abs(walk.slope)
    return xp.isfinite(value) & (enough | (unseen & (flatter | (residual <= walk.residual))))


def forward(w: jax.Array, value: jax.Array, residual: jax.Array, target: jax.Array, slope: jax.Array) -> Walk:
    """A new walk from an accepted point towards `target`."""
    return Walk(w, value, residual, target - w, slope, xp.ones_like(value), target)


def shortened(walk: Walk, value: jax.Array, slope: jax.Array, curvature: jax.Array | None = None) -> Walk:
    """Back up along the direction, by what is known at the trial: φ, φ' and, with a Hessian, φ''.

    To the least value of the polynomial that both ends determine: with φ'' a quartic, as φ itself is where a quadratic
    constraint is penalised.
    """
    step, start = walk.step, walk.slope
    if curvature is None:
        bend = start + slope - 3.0 * (value - walk.value) / step
        root = xp.sqrt(xp.maximum(bend**2 - start * slope, 0.0))
        across = slope - start + 2.0 * root
        guess = step * (1.0 - (slope + root - bend) / xp.where(across > 0, across, xp.inf))
        guess = xp.clip(guess, 0.05 * step, 0.8 * step)
    else:
        rise, turn, bend = value - walk.value - start * step, (slope - start) * step, curvature * step**2
        fourth = (bend - 4.0 * turn + 6.0 * rise) / 2.0
        third = turn - 2.0 * rise - 2.0 * fourth
        second = rise - third - fourth
        parts = 0.95 ** xp.arange(1.0, 80.0)
        heights = parts * (start * step + parts * (second + parts * (third + parts * fourth)))
        guess = step * xp.take(parts, xp.argmin(heights))
    guess = xp.where(xp.isfinite(value) & xp.isfinite(guess), guess, 0.1 * step)
    return dataclasses.replace(walk, step=guess, trial=walk.w + guess * walk.direction)


def newton_target(
    w: jax.Array, gradient: jax.Array, hessian: jax.Array, h: FlatRegularizer
) -> tuple[jax.Array, jax.Array]:
    """The minimiser of gᵀp + ½ pᵀHp + nonsmooth(w + p), and its predicted slope; H is shifted until it is positive definite."""
    if h.kinks == "none":
        direction = positive_solve(hessian, -gradient)
        return w + direction, gradient @ direction
    target = composite_minimiser(w, gradient, positive_shift(hessian), h)
    return target, gradient @ (target - w) + h.nonsmooth(target) - h.nonsmooth(w)


def within(radius: jax.Array, w: jax.Array, gradient: jax.Array, hessian: jax.Array, h: FlatRegularizer) -> jax.Array:
    """Where the model is least within a ball around w: (H + λI)Δw = −g with the λ that makes Δw as long as the radius.

    Where h is nonsmooth, on the way to where the model is least.
    """
    if h.kinks != "none":
        target, _ = newton_target(w, gradient, hessian, h)
        part = radius / xp.maximum(linalg.norm(target - w), xp.finfo(w.dtype).tiny)
        return xp.where(part >= 1.0, target, w + part * (target - w))
    values, vectors = linalg.eigh(hessian)
    turned = gradient @ vectors
    low = xp.maximum(-values[0], 0.0) + SINGULAR * xp.abs(values[-1])
    high = low + linalg.norm(gradient) / radius

    def halve(bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bounds
        middle = xp.sqrt(low * high)
        long = linalg.norm(turned / (values + middle)) > radius
        return xp.where(long, middle, low), xp.where(long, high, middle)

    _, shift = repeat(40, halve, (low, high))
    target = newton_target(w, gradient, hessian + shift * xp.eye(w.size), h)[0]
    # a gradient with no part along the lowest curvature says nothing of that direction, which leads down all the same
    left = xp.sqrt(xp.maximum(radius**2 - xp.sum((target - w) ** 2), 0.0))
    away = xp.where((values[0] < 0) & (left > 0.5 * radius), left, 0.0) * xp.where(turned[0] > 0, -1.0, 1.0)
    return target + away * vectors[:, 0]


def _factor(hessian: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A Cholesky factor of hessian + shift·I, with the first shift of 0, 1e-14, 1e-12, … (relative) that has one."""
    scale = xp.maximum(xp.max(xp.abs(xp.diag(hessian))), xp.finfo(hessian.dtype).tiny)
    eye = xp.eye(hessian.shape[0], dtype=hessian.dtype)

    def failed(carry: tuple[jax.Array, jax.Array]) -> jax.Array:
        shift, factor = carry
        return ~xp.isfinite(factor[-1, -1]) & (shift < 1e4)

    def again(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        shift = xp.maximum(100 * carry[0], 1e-14)
        return shift, linalg.cholesky(hessian + shift * scale * eye)

    shift, factor = while_loop(failed, again, (xp.zeros_like(scale), linalg.cholesky(hessian)))
    return shift * scale, factor


def positive_solve(hessian: jax.Array, right: jax.Array) -> jax.Array:
    """(H + shift·I)⁻¹ right with the smallest shift tried that makes the matrix positive definite."""
    return positive_solver(hessian)(right)


def positive_solver(hessian: jax.Array) -> Callable[[jax.Array], jax.Array]:
    """The same for several right-hand sides, one after the other."""
    shift, factor = _factor(hessian)

    def solve(right: jax.Array) -> jax.Array:
        if not on_host(hessian, right):
            return cho_solve((factor, True), right)
        eye = xp.eye(right.size)
        solution = linalg.solve(hessian + shift * eye, right)
        if not np.all(np.isfinite(solution)):  # singular but for the rounding that the factor saw
            solution = linalg.solve(hessian + SINGULAR * xp.max(xp.abs(hessian)) * eye, right)
        return solution

    return solve


def positive_shift(hessian: jax.Array) -> jax.Array:
    return hessian + _factor(hessian)[0] * xp.eye(hessian.shape[0], dtype=hessian.dtype)


def absolute(hessian: jax.Array) -> jax.Array:
    """|H|, with the absolute values of H's eigenvalues; H itself where it is positive definite.

    A shift that just makes H positive definite leaves a direction that is nearly flat, and a step that is far too long along it.
    """

    def turned(hessian: jax.Array) -> jax.Array:
        values, vectors = linalg.eigh(hessian)
        sizes = xp.abs(values)
        least = xp.where(values > 0, SINGULAR, FLAT) * xp.max(sizes)
        return (vectors * xp.maximum(sizes, least)) @ vectors.T

    definite = xp.isfinite(linalg.cholesky(hessian)[-1, -1])
    return cond(definite, lambda same: same, turned, hessian)


def composite_minimiser(w: jax.Array, gradient: jax.Array, hessian: jax.Array, h: FlatRegularizer) -> jax.Array:
    """argmin_v gᵀ(v − w) + ½ (v − w)ᵀH(v − w) + nonsmooth(v); H is positive semidefinite."""
    if h.kinks == "groups":
        return group_minimiser(w, gradient, hessian, h)
    if h.kinks == "proximal":
        return proximal_minimiser(w, gradient, hessian, h)
    return _coordinate_minimiser(w, gradient, hessian, h)


def _coordinate_minimiser(w: jax.Array, gradient: jax.Array, hessian: jax.Array, h: FlatRegularizer) -> jax.Array:
    """By Newton steps on the piece that v is on.

    Every iteration looks at points along a Newton step, cut where it would leave the piece, and at the proximal-gradient
    point, and takes the lowest: so it descends always, and ends once it has found which coordinates are at a kink.
    """
    step = 1.0 / xp.max(xp.sum(xp.abs(hessian), axis=1))
    lengths = 0.5 ** xp.arange(12.0)

    def slope(v: jax.Array) -> jax.Array:
        return gradient + hessian @ (v - w)

    def height(v: jax.Array) -> jax.Array:
        return 0.5 * (gradient + slope(v)) @ (v - w) + h.nonsmooth(v)

    first = h.distance(w, gradient)

    def unfinished(carry: tuple[jax.Array, jax.Array]) -> jax.Array:
        v, turn = carry
        return (h.distance(v, slope(v)) > 1e-10 * (1e-3 + first)) & (turn < 30)

    def improve(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        v, turn = carry
        plain = h.prox(v - step * slope(v), step)
        points = xp.concatenate([_along_piece(v, slope(v), hessian, h, lengths), plain[None]])
        heights = each(height, points)
        return points[xp.argmin(xp.where(xp.isfinite(heights), heights, xp.inf))], turn + 1

    found = while_loop(unfinished, improve, (h.prox(w, 0.0), xp.zeros((), int)))[0]
    return _active_set(found, slope, hessian, h, 1e-10 * (1e-3 + first))


def _active_set(
    v: jax.Array, slope: Callable[[jax.Array], jax.Array], hessian: jax.Array, h: FlatRegularizer, tolerance: jax.Array
) -> jax.Array:
    """From a point near the minimum to it: Newton steps up to the first kink, which then holds its coordinate.

    The coordinate that most wants to leave its kink is let go, one at a time: exact however ill-conditioned H is.
    """
    kinked = h.l1 > 0

    def steepest(v: jax.Array, g: jax.Array) -> jax.Array:
        """The slope that a coordinate at a kink would follow if it were let go."""
        rise = xp.where(v == 0, xp.sign(g) * xp.maximum(xp.abs(g) - h.l1, 0.0), g + xp.sign(v) * h.l1)
        walled = ((v <= h.lower) & (rise > 0)) | ((v >= h.upper) & (rise < 0))
        return xp.where(walled, 0.0, rise)

    def unfinished(carry: tuple[Any, ...]) -> jax.Array:
        return ~carry[3] & (carry[4] < 50 + 4 * v.size)

    def improve(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        v, free, side, _, turn = carry
        g = slope(v) + side * h.l1
        matrix = xp.where(free[:, None] & free[None, :], hessian, 0.0) + xp.diag(xp.where(free, 0.0, 1.0))
        p = linalg.solve(matrix, xp.where(free, -g, 0.0))
        end = xp.where(p > 0, h.upper, h.lower)
        end = xp.where(kinked & (side * p < 0), xp.where(p > 0, xp.minimum(end, 0.0), xp.maximum(end, 0.0)), end)
        lengths = xp.where(free & (p != 0), (end - v) / xp.where(p != 0, p, 1.0), xp.inf)
        held = xp.argmin(lengths)
        length = xp.minimum(lengths[held], 1.0)
        whole = length >= 1.0
        moved = v + length * p
        moved = xp.where(whole, moved, put(moved, held, end[held]))
        wants = xp.where(free, 0.0, steepest(moved, slope(moved)))
        leaving = xp.argmax(xp.abs(wants))
        done = whole & (xp.abs(wants[leaving]) <= tolerance)
        side = xp.where(whole, put(side, leaving, -xp.sign(wants[leaving])), side)
        free = xp.where(whole & ~done, put(free, leaving, True), xp.where(whole, free, put(free, held, False)))
        return moved, free, side, done, turn + 1

    free = ((v != 0) | ~kinked) & (v > h.lower) & (v < h.upper)
    carry = (v, free, xp.sign(v), xp.asarray(False), xp.zeros((), int))
    return while_loop(unfinished, improve, carry)[0]


def _along_piece(
    v: jax.Array, slope: jax.Array, hessian: jax.Array, h: FlatRegularizer, lengths: jax.Array
) -> jax.Array:
    """Points along the Newton step on v's orthant and box; a coordinate that would change sign stops at zero."""
    away = slope + xp.sign(v) * h.l1
    steepest = xp.where(v != 0, away, xp.sign(slope) * xp.maximum(xp.abs(slope) - h.l1, 0.0))
    walled = ((v <= h.lower) & (steepest > 0)) | ((v >= h.upper) & (steepest < 0))
    free = (steepest != 0) & ~walled
    matrix = xp.where(free[:, None] & free[None, :], hessian, 0.0) + xp.diag(xp.where(free, 0.0, 1.0))
    direction = linalg.solve(matrix, xp.where(free, -steepest, 0.0))
    orthant = xp.where(h.l1 > 0, xp.where(v != 0, xp.sign(v), -xp.sign(steepest)), 0.0)
    points = v + lengths[:, None] * direction
    return xp.clip(xp.where(points * orthant >= 0, points, 0.0), h.lower, h.upper)


def minimise(
    evaluate: Callable[[jax.Array], tuple[jax.Array, jax.Array]],
    target: Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]],
    h: FlatRegularizer | None,
    start: jax.Array,
    tolerance: jax.Array,
    most: int = 100,
) -> tuple[jax.Array, jax.Array]:
    """Minimise at home: walk until dist∞(0, ∂) <= tolerance, or is as small as rounding allows. `target(w, gradient)` proposes
    where to go.

    Returns the point and its residual.
    """

    def measure(w: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        value, gradient = evaluate(w)
        if h is None:
            return value, gradient, xp.max(xp.abs(gradient))
        return value + h.nonsmooth(w), gradient, h.distance(w, gradient)

    def unfinished(carry: tuple[Walk, jax.Array, jax.Array, jax.Array]) -> jax.Array:
        walk, _, idle, turn = carry
        return (walk.residual > tolerance) & (idle < IDLE) & (turn < most) & ~walk.stuck

    def improve(carry: tuple[Walk, jax.Array, jax.Array, jax.Array]) -> tuple[Walk, jax.Array, jax.Array, jax.Array]:
        walk, least, idle, turn = carry
        value, gradient, residual = measure(walk.trial)
        slope = gradient @ walk.direction
        ok = accepts(walk, value, slope, residual) | (turn == 0)
        onward = forward(walk.trial, value, residual, *target(walk.trial, gradient))
        unseen = xp.abs(value - walk.value) <= ROUNDING * (1.0 + xp.abs(walk.value))
        idle = xp.where(unseen & (residual > 0.5 * least), idle + 1, 0)
        return choose(ok, onward, shortened(walk, value, slope)), xp.minimum(least, residual), idle, turn + 1

    first = Walk.at(start)
    none = xp.zeros((), int)
    walk, *_ = while_loop(unfinished, improve, (first, first.residual, none, none))
    return walk.w, walk.residual
