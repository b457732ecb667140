"""Where to go from w: to the minimum of the quadratic model, up to the edge of the region, or within a ball."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax

from fedpact.algorithms.interior_point.barrier import TINY
from fedpact.algorithms.parts.descent import newton_target, within
from fedpact.problem.regularizers import FlatRegularizer

EDGE = 0.995  # of the way to where a slack ends
INWARD = 0.8  # of a ball's radius may go into closing c + s


class Model(eqx.Module):
    """What the server knows at w: the objective, and the quadratic model that Newton's step minimises."""

    objective: jax.Array
    slope: jax.Array  # ∇f
    gradient: jax.Array  # without the part that θ multiplies, and that part
    residual: jax.Array
    hessian: jax.Array
    convex: jax.Array


class Step(eqx.Module):
    """Where to go from w."""

    direction: jax.Array  # Δw
    target: jax.Array  # w + Δw, as it was found
    length: jax.Array  # the trial is w + length·Δw
    residual_share: jax.Array  # θ
    radius: jax.Array  # of the ball that Δw is in


def whole_step(w: jax.Array, target: jax.Array) -> Step:
    one = jnp.asarray(1.0)
    return Step(target - w, target, one, one, jnp.asarray(jnp.inf))


def newton_step(w: jax.Array, model: Model, radius: jax.Array, h: FlatRegularizer) -> Step:
    """To the model's minimum, if that is within the ball."""
    target, _ = newton_target(w, model.gradient + model.residual, _convexified(model), h)
    whole = whole_step(w, target)
    if h.kinks != "none":
        return whole
    far = jnp.linalg.norm(target - w) > radius
    return lax.cond(far, lambda: _step_within(radius, w, model, h), lambda: whole)


def nearer(
    w: jax.Array, step: Step, model: Model, factor: jax.Array, slack_decrease: jax.Array, h: FlatRegularizer
) -> Step:
    """After a trial that was no better: the same step up to the edge of the region, or another in a smaller ball."""
    edge = EDGE / jnp.maximum(slack_decrease, TINY)
    outside = edge < step.length
    length = jnp.where(outside, jnp.maximum(edge, 0.1 * step.length), factor * step.length)
    line = eqx.tree_at(lambda s: s.length, step, length)
    if h.kinks != "none":
        return line
    radius = factor * step.length * jnp.linalg.norm(step.direction)
    return lax.cond(outside & model.convex, lambda: line, lambda: _step_within(radius, w, model, h))


def _step_within(radius: jax.Array, w: jax.Array, model: Model, h: FlatRegularizer) -> Step:
    """To where the model is least in a ball; when c + s could not be closed within it, only a part of it is asked for."""
    inward = newton_target(w, model.residual, _convexified(model), h)[0] - w
    share = jnp.minimum(INWARD * radius / jnp.maximum(jnp.linalg.norm(inward), TINY), 1.0)
    target = within(radius, w, model.gradient + share * model.residual, model.hessian, h)
    return Step(target - w, target, jnp.asarray(1.0), share, radius)


def _convexified(model: Model) -> jax.Array:
    """A; where it is not positive definite, shifted until its lowest eigenvalue is as far above zero as it was below."""

    def shifted() -> jax.Array:
        lowest = jnp.linalg.eigvalsh(model.hessian)[0]
        return model.hessian + 2.0 * jnp.maximum(-lowest, 0.0) * jnp.eye(model.residual.size)

    return lax.cond(model.convex, lambda: model.hessian, shifted)
