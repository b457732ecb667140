"""The pieces of the proximal augmented Lagrangian: P_i of (13) and (14), and what every method measures at a point.

With multipliers mu = μ, penalty beta = β, prox centre w^k, prox length gamma = γ (the paper's is β) and share = 1/(n+1):

    P(w) = f(w) + (‖μ⁺(w)‖² − ‖μ‖²) / (2β) + share ‖w − w^k‖² / (2γ),     μ⁺(w) = [μ + β c(w)]₊

An equality keeps its μ⁺ = μ + β c(w) unprojected; the same formula for P holds.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax

from fedpact.algorithms.parts.multipliers import updated
from fedpact.arrays import xp
from fedpact.problem.flat_regularizer import FlatRegularizer
from fedpact.problem.oracle import Oracle, SlackOracle, Values, derivatives, weighted_gradients
from fedpact.problem.symmetric import SymmetricSum, unpacked
from fedpact.records import Record


class Evaluation(Record):
    """A holder's P at a point, as much of it as an inner solver asks for; every leaf may be summed over holders.

    - `gradient_change`: of the gradient, if the subproblem is closed here and the multipliers are updated with β.
    """

    objective: jax.Array
    value: jax.Array
    value_gradient: jax.Array
    hessian: Any  # but for the prox term: upper triangle, row by row; in parts at its holder; None where not asked for
    pooled: jax.Array
    pooled_jacobian: jax.Array
    gradient_change: jax.Array


class Merit(Record):
    """P of one holder."""

    own: Oracle | SlackOracle
    mu: jax.Array
    beta: jax.Array
    gamma: jax.Array
    centre: jax.Array
    share: float = eqx.field(static=True)

    def multipliers(self, c: jax.Array) -> jax.Array:
        return updated(self.mu, self.beta, c, self.own.equality)

    def value(self, w: jax.Array) -> jax.Array:
        return self._value(self.own(w), w)

    def gradient(self, w: jax.Array) -> tuple[Values, jax.Array]:
        """The holder's functions at w, and ∇P(w)."""

        values, (slope,) = weighted_gradients(self.own, w, self._weights)
        return values, slope + self._prox_slope(w)

    def _weights(self, at: Values) -> Values:
        return Values(xp.ones_like(at.objective), self.multipliers(at.constraints), xp.zeros_like(at.pooled))

    def _weight_changes(self, at: Values) -> Values:
        mu = self.multipliers(at.constraints)
        return Values(xp.zeros_like(at.objective), self._next(mu, at.constraints) - mu, xp.zeros_like(at.pooled))

    def _next(self, mu: jax.Array, c: jax.Array) -> jax.Array:
        """The multipliers μ⁺ of a subproblem that begins with `mu`, where it begins."""
        return updated(mu, self.beta, c, self.own.equality)

    def _prox_slope(self, w: jax.Array) -> jax.Array:
        return self.share / self.gamma * (w - self.centre)

    def hessian(self, w: jax.Array) -> jax.Array:
        """A generalised ∇²P(w)."""
        values, slopes = derivatives(self.own, w)
        mu = self.multipliers(values.constraints)
        without = self._without_prox(w, mu, xp.zeros_like(values.pooled), slopes.constraints)
        return without.matrix() + self.share / self.gamma * xp.eye(w.size, dtype=w.dtype)

    def _without_prox(self, w: jax.Array, mu: jax.Array, nu: jax.Array, jacobian: jax.Array) -> SymmetricSum:
        """∇²P(w) but for the prox term, from μ⁺(w) and the constraints' Jacobian; ν weighs pooled contributions."""
        curvature = self.own.curvature(w, Values(xp.ones((), w.dtype), mu, nu))
        if not mu.size:
            return curvature
        return curvature.plus(jacobian, xp.where(self.own.equality | (mu > 0), self.beta, 0.0))

    def evaluate(self, w: jax.Array, nu: jax.Array, hessian: bool) -> tuple[Values, Evaluation]:
        """Everything that a solver at the server asks of a holder."""
        if hessian:
            values, slopes = derivatives(self.own, w)
            mu = self.multipliers(values.constraints)
            gradient = slopes.objective + mu @ slopes.constraints + self._prox_slope(w)
            change = (self._next(mu, values.constraints) - mu) @ slopes.constraints
            matrix, pooled_jacobian = self._without_prox(w, mu, nu, slopes.constraints), slopes.pooled
        else:
            values, (slope, change) = weighted_gradients(self.own, w, self._weights, self._weight_changes)
            gradient = slope + self._prox_slope(w)
            pooled = values.pooled.size
            pooled_jacobian = jax.jacrev(lambda v: self.own(v).pooled)(w) if pooled else xp.zeros((0, w.size))
            matrix = None
        value = self._value(values, w)
        return values, Evaluation(values.objective, value, gradient, matrix, values.pooled, pooled_jacobian, change)

    def _value(self, values: Values, w: jax.Array) -> jax.Array:
        mu = self.multipliers(values.constraints)
        penalty = (xp.sum(mu**2) - xp.sum(self.mu**2)) / (2 * self.beta)
        return values.objective + penalty + self.share / (2 * self.gamma) * xp.sum((w - self.centre) ** 2)


class ServerMerit(Record):
    """P_0 with the smooth part of h and with the pooled constraints, which the server keeps for all."""

    merit: Merit
    nu: jax.Array
    regularizer: FlatRegularizer

    def pooled_multipliers(self, pooled: jax.Array) -> jax.Array:
        return updated(self.nu, self.merit.beta, pooled, self.merit.own.pooled_equality)

    def total(self, w: jax.Array, sums: Evaluation) -> tuple[Values, Evaluation]:
        """The server's own values, and the whole of ℓ_k's smooth part at w from the parties' sums."""
        own, mine = self.merit.evaluate(w, self.nu, sums.hessian is not None)
        if sums.hessian is not None:
            mine = dataclasses.replace(mine, hessian=mine.hessian.alone())
        whole = jax.tree.map(xp.add, sums, mine)
        h, beta = self.regularizer, self.merit.beta
        nu = self.pooled_multipliers(whole.pooled)
        value = whole.value + h.smooth(w) + (xp.sum(nu**2) - xp.sum(self.nu**2)) / (2 * beta)
        gradient = whole.value_gradient + 2 * h.ridge * w + nu @ whole.pooled_jacobian
        later = updated(nu, beta, whole.pooled, self.merit.own.pooled_equality)
        change = whole.gradient_change + (later - nu) @ whole.pooled_jacobian
        hessian = None
        if whole.hessian is not None:
            hessian = unpacked(whole.hessian, w.size) + xp.diag(2 * h.ridge + 1.0 / self.merit.gamma)
            if nu.size:
                active = xp.where(self.merit.own.pooled_equality | (nu > 0), beta, 0.0)
                hessian += whole.pooled_jacobian.T @ (active[:, None] * whole.pooled_jacobian)
        objective = whole.objective + h.smooth(w)
        return own, Evaluation(objective, value, gradient, hessian, whole.pooled, whole.pooled_jacobian, change)

    @property
    def is_plain(self) -> bool:
        """No functions of the server's own: P_0 is the prox term and h alone."""
        own: Any = self.merit.own
        return isinstance(own, Oracle) and not own.program.atoms and not len(own.program.constraints)
