"""L-BFGS at the server on the sum of the parties' gradients of P_i: 2d + 2 numbers up per party and round.

    B = θI − W M⁻¹ Wᵀ,   W = [θS, Y],   M = [[θSᵀS, L], [Lᵀ, −D]]     (Byrd, Nocedal and Schnabel 1994, Theorem 2.3)

Where h is smooth, the step is −B⁻¹g; with one, the minimiser of gᵀp + ½pᵀBp + nonsmooth(w + p), by accelerated proximal
gradient at the server.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import solve_triangular

from fedpact.algorithms.prox_al.descent_at_server import DescentAtServer
from fedpact.problem.flat_regularizer import FlatRegularizer
from fedpact.protocol.options import check
from fedpact.records import Record

SPANNED = 5  # parameters for each pair: up to so many an ill-conditioned sum costs few rounds


class Pairs(Record):
    """The last steps s and gradient changes y, newest last; unused places are zero."""

    s: jax.Array
    y: jax.Array
    w: jax.Array
    gradient: jax.Array
    linked: jax.Array  # the last gradient belongs to the present subproblem


class LBFGS(DescentAtServer):
    """`ProxAL(inner=LBFGS())`: for thousands of parameters.

    - `memory`: pairs of steps and gradient changes that are kept (>= 1, default 20).
    """

    memory: int = eqx.field(default=20, static=True)
    uses_hessian: ClassVar[bool] = False
    usual_rounds: ClassVar[tuple[int, int] | None] = (34, 184)  # to 1e-3

    def __check_init__(self) -> None:
        check("LBFGS", "memory", self.memory, lambda x: x >= 1, "at least one pair has to be kept", whole=True)

    def penalty(self, size: int) -> tuple[float, float]:
        """A large one makes the sum ill-conditioned, which is felt where the pairs span a small part of the parameters only."""
        return (5.0, 4.0) if size <= SPANNED * self.memory else (0.05, 3.0)

    def empty_memory(self, w: jax.Array) -> Pairs:
        nothing = jnp.zeros((self.memory, w.size), w.dtype)
        return Pairs(nothing, nothing, w, jnp.zeros_like(w), jnp.asarray(False))

    def reset(self, memory: Pairs) -> Pairs:
        nothing = jnp.zeros_like(memory.s)
        return Pairs(nothing, nothing, memory.w, memory.gradient, jnp.asarray(False))

    def reopened(self, memory: Pairs) -> Pairs:
        return eqx.tree_at(lambda m: m.linked, memory, jnp.asarray(False))

    def extended(self, memory: Pairs, w: jax.Array, gradient: jax.Array) -> Pairs:
        s, y = w - memory.w, gradient - memory.gradient
        good = memory.linked & (s @ y > 1e-10 * jnp.linalg.norm(s) * jnp.linalg.norm(y))
        kept_s = jnp.where(good, jnp.concatenate([memory.s[1:], s[None]]), memory.s)
        kept_y = jnp.where(good, jnp.concatenate([memory.y[1:], y[None]]), memory.y)
        return Pairs(kept_s, kept_y, w, gradient, jnp.asarray(True))

    def target(
        self, memory: Pairs, w: jax.Array, gradient: jax.Array, hessian: jax.Array | None, h: FlatRegularizer
    ) -> tuple[jax.Array, jax.Array]:
        if h.kinks == "none":
            direction = -_inverse_times(memory, gradient)
            return w + direction, gradient @ direction
        target = _proximal_target(memory, w, gradient, h)
        return target, gradient @ (target - w) + h.nonsmooth(target) - h.nonsmooth(w)


def _scale(memory: Pairs) -> jax.Array:
    """θ = yᵀy / sᵀy of the newest pair, 0 without one."""
    s, y = memory.s[-1], memory.y[-1]
    return jnp.where(s @ y > 0, y @ y / jnp.where(s @ y > 0, s @ y, 1.0), 0.0)


def _inverse_times(memory: Pairs, gradient: jax.Array) -> jax.Array:
    """B⁻¹ g in compact form (Theorem 2.2), a few small products; without pairs a step of length at most one."""
    s, y, theta = memory.s, memory.y, _scale(memory)
    some = theta > 0
    inverse = jnp.where(some, 1.0 / jnp.where(some, theta, 1.0), 0.0)
    turned = inverse * y
    plain = gradient * jnp.where(some, inverse, 1.0 / jnp.maximum(1.0, jnp.linalg.norm(gradient)))
    products = s @ y.T
    used = jnp.any(s != 0, axis=1)
    upper = jnp.triu(products) + jnp.diag(jnp.where(used, 0.0, 1.0))
    along = solve_triangular(upper, s @ gradient)
    middle = jnp.diag(jnp.diag(products)) + y @ turned.T
    return plain + solve_triangular(upper, middle @ along - y @ plain, trans=1) @ s - along @ turned


def _proximal_target(memory: Pairs, w: jax.Array, gradient: jax.Array, h: FlatRegularizer) -> jax.Array:
    """argmin_v gᵀ(v − w) + ½ (v − w)ᵀB(v − w) + nonsmooth(v), by accelerated proximal gradient with restarts."""
    theta = _scale(memory)
    theta = jnp.where(theta > 0, theta, jnp.maximum(1.0, jnp.linalg.norm(gradient)))
    used = jnp.any(memory.s != 0, axis=1)
    sy = memory.s @ memory.y.T
    lower, diagonal = jnp.tril(sy, -1), jnp.diag(jnp.where(used, jnp.diag(sy), 1.0))
    gram = theta * memory.s @ memory.s.T + jnp.diag(jnp.where(used, 0.0, 1.0))
    middle = jnp.block([[gram, lower], [lower.T, -diagonal]])
    wide = jnp.concatenate([theta * memory.s, memory.y])
    inverse = jnp.linalg.inv(middle)

    def curved(v: jax.Array) -> jax.Array:
        return theta * v - (inverse @ (wide @ v)) @ wide

    def power(v: jax.Array, _: None) -> tuple[jax.Array, None]:
        v = curved(v)
        return v / jnp.maximum(jnp.linalg.norm(v), 1e-30), None

    v, _ = lax.scan(power, jnp.ones_like(w) / jnp.sqrt(1.0 * w.size), length=20)
    step = 1.0 / jnp.maximum(2.0 * v @ curved(v), theta)
    first = h.distance(w, gradient)

    def unfinished(carry: tuple[jax.Array, ...]) -> jax.Array:
        v, bent, *_, turn = carry
        return (h.distance(v, gradient + bent) > 1e-3 * first) & (turn < 500)

    def improve(carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        v, bent, ahead, bent_ahead, t, turn = carry  # bent: B(v − w), which is linear in v
        new = h.prox(ahead - step * (gradient + bent_ahead), step)
        bent_new = curved(new - w)
        faster = (1.0 + jnp.sqrt(1.0 + 4.0 * t**2)) / 2.0
        uphill = (ahead - new) @ (new - v) > 0
        further = jnp.where(uphill, 0.0, (t - 1.0) / faster)
        ahead, bent_ahead = new + further * (new - v), bent_new + further * (bent_new - bent)
        return new, bent_new, ahead, bent_ahead, jnp.where(uphill, 1.0, faster), turn + 1

    start = h.prox(w, 0.0)
    bent = curved(start - w)
    return lax.while_loop(unfinished, improve, (start, bent, start, bent, jnp.ones(()), jnp.zeros((), int)))[0]
