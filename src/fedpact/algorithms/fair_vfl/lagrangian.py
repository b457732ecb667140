"""Objective and constraints as functions of the embedding, and their augmented Lagrangian.

    c_j(h, N) <= 0 or = 0,     π_j = [λ_j + ρ c_j]₊  (without [·]₊ for equalities)
    Λ(h, N) = F(h, N) + Σ_j (π_j² − λ_j²)/2ρ,          ∇Λ = ∇F + Σ_j π_j ∇c_j

h is the embedding: what the bottom models give on all rows, combined; N the squared norm of all blocks, which a regulariser
reads.
"""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpact.algorithms.parts.multipliers import updated
from fedpact.problem.oracle import Oracle
from fedpact.problem.program import Program
from fedpact.problem.split import EMBEDDED
from fedpact.records import Record

NEWTON = 3  # steps of a search in a few dimensions
HALVINGS = 12
LONGEST = 10.0  # times a direction
FAINT = 1e-6  # of the largest curvature: a direction below it is rounding, and a long way along it would be too


@dataclasses.dataclass(frozen=True)
class Terms:
    """What everybody knows of a problem's functions: factors of N, constants, and which constraints are equalities."""

    norms: tuple[float, ...]  # of the objective, then of each constraint
    constants: tuple[float, ...]  # likewise
    equalities: tuple[bool, ...]

    @classmethod
    def of(cls, party: Program, server: Program) -> "Terms":
        objective, _, pooled = party.norm_shares()
        return cls(
            (*objective.tolist(), *pooled.tolist()),
            (*server.objective.constants, *server.pooled.constants),
            party.pooled_equality,
        )

    @property
    def equality(self) -> np.ndarray:
        return np.asarray(self.equalities, bool)


class Point(Record):
    """Where a run stands, as the label holder knows it."""

    top_parameters: jax.Array
    embedding: jax.Array  # h
    squared_norm: jax.Array  # N


class Dual(Record):
    multipliers: jax.Array  # λ
    penalty: jax.Array  # ρ, 0 for the plain Lagrangian


def values(terms: Terms, own: Oracle, point: Point) -> tuple[jax.Array, jax.Array]:
    """Objective and constraints."""
    of_rows = dataclasses.replace(own, rows={**own.rows, EMBEDDED: point.embedding})(point.top_parameters)
    every = jnp.concatenate([of_rows.objective[None], of_rows.pooled])
    every = every + jnp.asarray(terms.constants) + point.squared_norm * jnp.asarray(terms.norms)
    return every[0], every[1:]


def weights(terms: Terms, dual: Dual, c: jax.Array) -> jax.Array:
    """π."""
    return updated(dual.multipliers, dual.penalty, c, terms.equality)


def merit(terms: Terms, own: Oracle, dual: Dual, point: Point) -> jax.Array:
    """Λ, for ρ > 0."""
    objective, c = values(terms, own, point)
    pi = weights(terms, dual, c)
    return objective + jnp.sum(pi**2 - dual.multipliers**2) / (2.0 * dual.penalty)


def gradient(terms: Terms, own: Oracle, point: Point, pi: jax.Array) -> Point:
    """∇(F + πᵀc): in the top's parameters, in the embedding (ν of the paper), and in N."""

    def weighted(point: Point) -> jax.Array:
        objective, c = values(terms, own, point)
        return objective + pi @ c

    return jax.grad(weighted)(point)


def row_curvature(terms: Terms, own: Oracle, point: Point, pi: jax.Array) -> jax.Array:
    """The mean over rows of n ∂²(F + πᵀc)/∂h², by one product with the Hessian."""
    h = point.embedding

    def slope(h: jax.Array) -> jax.Array:
        return gradient(terms, own, eqx.tree_at(lambda p: p.embedding, point, h), pi).embedding

    _, product = jax.jvp(slope, (h,), (jnp.ones_like(h),))
    return jnp.maximum(jnp.sum(jnp.abs(product)) / (h.size / h.shape[0]), 1e-6)


def newton_search(function: Callable[[jax.Array], jax.Array], start: jax.Array) -> jax.Array:
    """Where a function of a few numbers is lower than at `start`: a few Newton steps, each halved until it goes down."""

    def differentiated(a: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        here, slope = jax.value_and_grad(function)(a)
        return slope, (here, slope)

    def once(_: jax.Array, a: jax.Array) -> jax.Array:
        hessian, (here, slope) = jax.jacfwd(differentiated, has_aux=True)(a)  # one linearisation for all three
        scale = 1.0 / jnp.sqrt(jnp.maximum(jnp.abs(jnp.diag(hessian)), 1e-30))
        eigenvalues, vectors = jnp.linalg.eigh(hessian * scale * scale[:, None])
        size = jnp.abs(eigenvalues)  # a direction of negative curvature is gone down all the same
        kept = size > FAINT * jnp.max(size)
        step = -scale * (vectors @ jnp.where(kept, vectors.T @ (scale * slope) / jnp.where(kept, size, 1.0), 0.0))
        along = slope @ step

        # Whether a part is too long stands in the carry: a vectorised loop asks twice, and rounds the two answers apart.
        def halved(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
            part, count = 0.5 * carry[0], carry[1] + 1
            there = function(a + part * step)
            return part, count, ~(there <= here + 1e-4 * part * along) & (count < HALVINGS)

        first = (jnp.asarray(2.0), jnp.asarray(-1), jnp.asarray(True))
        part, count, _ = lax.while_loop(lambda carry: carry[2], halved, first)
        return jnp.where(count < HALVINGS, a + part * step, a)

    return lax.fori_loop(0, NEWTON, once, start)


def newton_length(function: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """How far from 0 a function of one number falls by its second-order model; 1 where that has no minimum."""
    slope, curvature = jax.jvp(jax.grad(function), (jnp.zeros(()),), (jnp.ones(()),))
    return jnp.where(curvature > 0, jnp.clip(-slope / jnp.where(curvature > 0, curvature, 1.0), 0.0, LONGEST), 1.0)
