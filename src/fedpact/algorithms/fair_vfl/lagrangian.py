"""Objective and constraints as functions of what the bottoms gave, and their augmented Lagrangian.

    c_j(h, N) <= 0 or = 0,     π_j = [λ_j + ρ c_j]₊  (without [·]₊ for equalities)
    Λ(h, N) = F(h, N) + Σ_j (π_j² − λ_j²)/2ρ,          ∇Λ = ∇F + Σ_j π_j ∇c_j

h is what the bottoms gave on all rows, combined; N the squared norm of all blocks, which a regulariser reads.
"""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpact.problem.oracle import Oracle, Program
from fedpact.problem.split import EMBEDDED

NEWTON = 3  # steps of a search in a few dimensions
HALVINGS = 12
LONGEST = 10.0  # times a direction
FAINT = 1e-6  # of the largest curvature: a direction below it is rounding, and a long way along it would be too


@dataclasses.dataclass(frozen=True)
class Terms:
    """What everybody knows of a problem's numbers: factors of N, constants, and which constraints are equalities."""

    norms: tuple[float, ...]  # of the objective, then of each constraint
    constants: tuple[float, ...]  # likewise
    equality: tuple[bool, ...]

    @classmethod
    def of(cls, party: Program, server: Program) -> "Terms":
        objective, _, pooled = party.norm_shares()
        return cls(
            (*objective.tolist(), *pooled.tolist()),
            (*server.objective.constants, *server.pooled.constants),
            party.pooled_equality,
        )


class Point(eqx.Module):
    """Where a run stands, as the label holder knows it."""

    top: jax.Array
    embedded: jax.Array
    norm: jax.Array


class Dual(eqx.Module):
    multipliers: jax.Array  # λ
    rho: jax.Array  # ρ, 0 for the plain Lagrangian


def numbers(terms: Terms, own: Oracle, at: Point) -> tuple[jax.Array, jax.Array]:
    """Objective and constraints."""
    found = dataclasses.replace(own, rows={**own.rows, EMBEDDED: at.embedded})(at.top)
    every = jnp.concatenate([found.objective[None], found.pooled])
    every = every + jnp.asarray(terms.constants) + at.norm * jnp.asarray(terms.norms)
    return every[0], every[1:]


def weights(terms: Terms, dual: Dual, c: jax.Array) -> jax.Array:
    """π."""
    moved = dual.multipliers + dual.rho * c
    return jnp.where(np.asarray(terms.equality, bool), moved, jnp.maximum(moved, 0.0))


def merit(terms: Terms, own: Oracle, dual: Dual, at: Point) -> jax.Array:
    """Λ, for ρ > 0."""
    objective, c = numbers(terms, own, at)
    pi = weights(terms, dual, c)
    return objective + jnp.sum(pi**2 - dual.multipliers**2) / (2.0 * dual.rho)


def slopes(terms: Terms, own: Oracle, at: Point, pi: jax.Array) -> Point:
    """∇(F + πᵀc): for the top, for what the bottoms gave (ν of the paper), and for N."""

    def weighted(at: Point) -> jax.Array:
        objective, c = numbers(terms, own, at)
        return objective + pi @ c

    return jax.grad(weighted)(at)


def row_curvature(terms: Terms, own: Oracle, at: Point, pi: jax.Array) -> jax.Array:
    """The mean over rows of n ∂²(F + πᵀc)/∂h², by one product with the Hessian."""
    ones = jnp.ones_like(at.embedded)

    def slope(embedded: jax.Array) -> jax.Array:
        return slopes(terms, own, eqx.tree_at(lambda p: p.embedded, at, embedded), pi).embedded

    _, bent = jax.jvp(slope, (at.embedded,), (ones,))
    return jnp.maximum(jnp.sum(jnp.abs(bent)) / (at.embedded.size / at.embedded.shape[0]), 1e-6)


def least(function: Callable[[jax.Array], jax.Array], start: jax.Array) -> jax.Array:
    """Where a function of a few numbers is lower than at `start`: a few Newton steps, each halved until it goes down."""

    def differentiated(a: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        here, slope = jax.value_and_grad(function)(a)
        return slope, (here, slope)

    def once(_: jax.Array, a: jax.Array) -> jax.Array:
        bent, (here, slope) = jax.jacfwd(differentiated, has_aux=True)(a)  # one linearisation for all three
        scale = 1.0 / jnp.sqrt(jnp.maximum(jnp.abs(jnp.diag(bent)), 1e-30))
        values, vectors = jnp.linalg.eigh(bent * scale * scale[:, None])
        size = jnp.abs(values)  # a direction of negative curvature is gone down all the same
        told = size > FAINT * jnp.max(size)
        step = -scale * (vectors @ jnp.where(told, vectors.T @ (scale * slope) / jnp.where(told, size, 1.0), 0.0))
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


def newton_along(function: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """How far from 0 a function of one number falls by its second-order model; 1 where that has no minimum."""
    slope, bent = jax.jvp(jax.grad(function), (jnp.zeros(()),), (jnp.ones(()),))
    return jnp.where(bent > 0, jnp.clip(-slope / jnp.where(bent > 0, bent, 1.0), 0.0, LONGEST), 1.0)
