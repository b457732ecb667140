"""Multipliers of constraints c <= 0 (or = 0) at a point, and how far both are from optimal."""

import jax
import numpy as np

from fedpact.arrays import xp


def updated(mu: jax.Array, beta: jax.Array, c: jax.Array, equality: np.ndarray) -> jax.Array:
    """μ⁺ of Algorithm 1: [μ + βc]₊, unprojected for equalities."""
    raw = mu + beta * c
    return xp.where(equality, raw, xp.maximum(raw, 0.0))


def violation(c: jax.Array, equality: np.ndarray) -> jax.Array:
    """The largest violation: |c| for equalities, [c]₊ for inequalities."""
    return xp.max(xp.where(equality, xp.abs(c), xp.maximum(c, 0.0)), initial=0.0)


def complementarity(mu: jax.Array, c: jax.Array, equality: np.ndarray) -> jax.Array:
    """dist∞(c, N(μ)) of Definition 1: |c| where μ > 0 or for equalities, [c]₊ where μ = 0."""
    return xp.max(xp.where(equality | (mu > 0), xp.abs(c), xp.maximum(c, 0.0)), initial=0.0)
