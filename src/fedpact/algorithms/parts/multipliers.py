"""Multipliers of constraints c <= 0 (or = 0) at a point, and how far both are from optimal."""

import jax
import jax.numpy as jnp
import numpy as np


def updated(mu: jax.Array, beta: jax.Array, c: jax.Array, equality: np.ndarray) -> jax.Array:
    """μ⁺ of Algorithm 1: [μ + βc]₊, unprojected for equalities."""
    raw = mu + beta * c
    return jnp.where(equality, raw, jnp.maximum(raw, 0.0))


def violation(c: jax.Array, equality: np.ndarray) -> jax.Array:
    """The largest violation: |c| for equalities, [c]₊ for inequalities."""
    return jnp.max(jnp.where(equality, jnp.abs(c), jnp.maximum(c, 0.0)), initial=0.0)


def complementarity(mu: jax.Array, c: jax.Array, equality: np.ndarray) -> jax.Array:
    """dist∞(c, N(μ)) of Definition 1: |c| where μ > 0 or for equalities, [c]₊ where μ = 0."""
    return jnp.max(jnp.where(equality | (mu > 0), jnp.abs(c), jnp.maximum(c, 0.0)), initial=0.0)
