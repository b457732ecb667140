"""A party's functions as they may be told under differential privacy: sums over clipped rows, with noise.

    V_r      what row r adds to the party's functions: one line (value, gradient) for the objective and each pooled constraint
    released number k  =  Σ_r V_r min(1, limit/‖V_r‖)  +  noise_k          ‖·‖ over all entries of V_r together

A row that is left out, or whose contribution is set to zero, moves the sum by at most `limit`, whatever the row holds. There
is no other way to evaluate a `PrivateOracle`: code that asks for an exact value fails.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpact.problem.oracle import Oracle
from fedpact.records import Record

ROWS_AT_ONCE = 256  # whose gradients are in memory at the same time


class PrivateOracle(Record):
    """One party's rows behind noise.

    - `hidden`: the party's exact functions. Nothing but `release` reads them.
    - `limit`: the largest norm of what one row adds, in the units of the party's sums.
    - `noise`: (releases, functions, 1 + parameters), drawn before the run, and each release uses up one; or of one release,
      which the party draws anew for each.
    - `planned`: how many releases there are (default None: as many as there is noise for).
    """

    hidden: Oracle
    limit: jax.Array
    noise: jax.Array
    planned: int | None = eqx.field(static=True, default=None)

    def release(self, number: Any, w: jax.Array) -> jax.Array:
        """Objective and pooled constraints at w, one line (value, gradient) for each: (functions, 1 + parameters).

        `number`: which of the releases it is, from 0. Beyond the last one there is no noise left, and nothing but NaN is told.
        """
        exact = clipped_sum(self.hidden, w, self.limit)
        own = self.noise[jnp.minimum(number, self.noise.shape[-3] - 1)]
        return exact + jnp.where(number < self.releases, own, jnp.nan)

    @property
    def releases(self) -> int:
        """How many there are."""
        return self.noise.shape[-3] if self.planned is None else self.planned

    # what others may read of it

    @property
    def index(self) -> jax.Array:
        return self.hidden.index

    @property
    def equality(self) -> np.ndarray:
        return self.hidden.equality

    @property
    def pooled_equality(self) -> np.ndarray:
        return self.hidden.pooled_equality

    @property
    def parties(self) -> int:
        return self.hidden.parties

    @property
    def discloses(self) -> bool:
        return False

    def disclose(self, values: Any) -> None:
        """Nothing, in any round."""


def clipped_sum(own: Oracle, w: jax.Array, limit: jax.Array) -> jax.Array:
    """Σ_r V_r min(1, limit/‖V_r‖): (functions, 1 + parameters). A row whose contribution is not finite adds nothing."""
    count = own.weights.shape[1]
    size = min(ROWS_AT_ONCE, count)
    places = jnp.arange(-(-count // size) * size).reshape(-1, size)

    def of_row(place: jax.Array) -> jax.Array:
        at = jnp.minimum(place, count - 1)
        line = clipped(contribution(own, at, w), limit)
        return jnp.where(place < count, line, 0.0)

    def add(total: jax.Array, some: jax.Array) -> tuple[jax.Array, None]:
        return total + jax.vmap(of_row)(some).sum(0), None

    nothing = jnp.zeros((1 + len(own.program.pooled), 1 + w.size))
    return lax.scan(add, nothing, places)[0]


def contribution(own: Oracle, place: jax.Array, w: jax.Array) -> jax.Array:
    """V_r of the row at `place`."""
    alone = dataclasses.replace(
        own,
        rows={name: column[place][None] for name, column in own.rows.items()},
        weights=own.weights[:, place][:, None],
    )

    def functions(w: jax.Array) -> jax.Array:
        values = alone(w)
        return jnp.concatenate([values.objective[None], values.pooled])

    values, pull = jax.vjp(functions, w)
    slopes = jax.vmap(lambda e: pull(e)[0])(jnp.eye(values.size, dtype=values.dtype))
    return jnp.concatenate([values[:, None], slopes], axis=1)


def clipped(line: jax.Array, limit: jax.Array) -> jax.Array:
    """The same, no longer than `limit`; zero where it is not finite."""
    norm = jnp.sqrt(jnp.sum(line**2))
    scale = jnp.minimum(1.0, limit / jnp.where(norm > 0, norm, 1.0))
    return jnp.where(jnp.isfinite(norm), scale * line, 0.0)
