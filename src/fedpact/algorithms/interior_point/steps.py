"""Where to go from w: to the minimum of the quadratic model, up to the edge of the region, or within a ball."""

import dataclasses

import jax

from fedpact.algorithms.interior_point.barrier import TINY
from fedpact.algorithms.parts.descent import newton_target, positive_solver, within
from fedpact.arrays import cond, linalg, while_loop, xp
from fedpact.problem.flat_regularizer import FlatRegularizer
from fedpact.records import Record

FIRST = 5.0  # the first ball's radius, relative to 1 + ‖w‖
EDGE = 0.995  # of the way to where a slack ends
INWARD = 0.8  # of a ball's radius may go into closing c + s
SINGULAR = 1e-14  # of its own diagonal is added to A where it is factored: rounding makes a singular matrix indefinite
REFINED = 1e-5  # what that takes from a step is made up for while it may be worth this part of the step, by the model,
FAINT = 1e-9  # unless the whole step is worth less than this part of the objective,
REFINEMENTS = 30  # and at most so often


class Model(Record):
    """What the server knows at w: the objective, and the quadratic model that Newton's step minimises."""

    objective: jax.Array
    slope: jax.Array  # ∇f
    gradient: jax.Array  # without the part that θ multiplies, and that part
    residual: jax.Array
    hessian: jax.Array
    convex: jax.Array


class Step(Record):
    """Where to go from w."""

    direction: jax.Array  # Δw
    target: jax.Array  # w + Δw, as it was found
    length: jax.Array  # the trial is w + length·Δw
    residual_share: jax.Array  # θ
    radius: jax.Array  # of the ball that Δw is in


def whole_step(w: jax.Array, target: jax.Array) -> Step:
    one = xp.asarray(1.0)
    return Step(target - w, target, one, one, xp.asarray(xp.inf))


def first_step(w: jax.Array) -> Step:
    """To w itself, which is evaluated before there is a model."""
    return dataclasses.replace(whole_step(w, w), radius=FIRST * (1.0 + linalg.norm(w)))


def standstill(w: jax.Array) -> Step:
    """To w itself, which is evaluated again with slacks and multipliers as they are."""
    return dataclasses.replace(first_step(w), length=xp.asarray(0.0))


def newton_step(w: jax.Array, model: Model, radius: jax.Array, h: FlatRegularizer) -> Step:
    """To the model's minimum, if that is within the ball."""
    gradient, hessian = model.gradient + model.residual, _convexified(model)
    if h.kinks == "none":
        # not the difference of two points: multipliers move by 1/δ times it, which would amplify their rounding
        direction = _refined(model, hessian, -gradient)
        whole = dataclasses.replace(whole_step(w, w + direction), direction=direction)
    else:
        whole = whole_step(w, newton_target(w, gradient, hessian, h)[0])
    length = linalg.norm(whole.direction)
    if h.kinks != "none":
        part = xp.minimum(radius / xp.maximum(length, TINY), 1.0)
        return dataclasses.replace(whole, length=part, radius=xp.where(part < 1.0, radius, whole.radius))
    saddle = ~model.convex & (linalg.norm(gradient) <= TINY)
    return cond(~(length <= radius) | saddle, lambda: _step_within(radius, w, model, h), lambda: whole)


def nearer(
    w: jax.Array,
    step: Step,
    model: Model,
    factor: jax.Array,
    slack_decrease: jax.Array,
    searching: jax.Array,
    h: FlatRegularizer,
) -> Step:
    """After a trial that was no better: the same step up to the edge of the region, or another in a smaller ball.

    While searching there are no slacks, and so no edge.
    """
    edge = EDGE / xp.maximum(slack_decrease, TINY)
    outside = (edge < step.length) & ~searching
    length = xp.where(outside, xp.maximum(edge, 0.1 * step.length), factor * step.length)
    line = dataclasses.replace(step, length=length)
    if h.kinks != "none":
        return line
    radius = factor * step.length * linalg.norm(step.direction)
    return cond(outside & model.convex, lambda: line, lambda: _step_within(radius, w, model, h))


def promised(w: jax.Array, step: Step, model: Model, h: FlatRegularizer) -> jax.Array:
    """By how much the whole step lowers the model."""
    slope = model.gradient + step.residual_share * model.residual
    rise = slope @ step.direction + 0.5 * step.direction @ model.hessian @ step.direction
    return h.nonsmooth(w) - h.nonsmooth(step.target) - rise


def _step_within(radius: jax.Array, w: jax.Array, model: Model, h: FlatRegularizer) -> Step:
    """To where the model is least in a ball; when c + s could not be closed within it, only a part of it is asked for."""
    inward = newton_target(w, model.residual, _convexified(model), h)[0] - w
    share = xp.minimum(INWARD * radius / xp.maximum(linalg.norm(inward), TINY), 1.0)
    target = within(radius, w, model.gradient + share * model.residual, model.hessian, h)
    return Step(target - w, target, xp.asarray(1.0), share, radius)


def _refined(model: Model, hessian: jax.Array, right: jax.Array) -> jax.Array:
    """A⁻¹ right, with the matrix that has `SINGULAR` on its diagonal. Along columns that nearly repeat each other, or a bias,
    that is all the curvature there is; so what is left of the right-hand side is solved for again, while it may be worth it."""
    solve, added = positive_solver(hessian), SINGULAR * xp.diag(model.hessian)

    def left_of(solution: jax.Array) -> jax.Array:
        return right - model.hessian @ solution

    def unfinished(carry: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        solution, left, turn = carry
        worth, most = right @ solution, left @ (left / xp.maximum(added, TINY))  # at most so much is to be gained
        some = (most > REFINED * worth) & (worth > FAINT * xp.abs(model.objective))
        return model.convex & some & (turn < REFINEMENTS)

    def again(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        solution, left, turn = carry
        better = solution + solve(left)
        return better, left_of(better), turn + 1

    first = solve(right)
    return while_loop(unfinished, again, (first, left_of(first), xp.zeros((), int)))[0]


def _convexified(model: Model) -> jax.Array:
    """A; where it is not positive definite, shifted until its lowest eigenvalue is as far above zero as it was below."""

    def shifted() -> jax.Array:
        lowest = linalg.eigvalsh(model.hessian)[0]
        return model.hessian + 2.0 * xp.maximum(-lowest, 0.0) * xp.eye(model.residual.size)

    hessian = cond(model.convex, lambda: model.hessian, shifted)
    return hessian + SINGULAR * xp.diag(xp.diag(hessian))
