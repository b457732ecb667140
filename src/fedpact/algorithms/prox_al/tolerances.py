"""How accurately the k-th subproblem is solved: τ_k, which has to be summable (and β_k τ_k too where β grows)."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp

from fedpact.protocol.options import check


class Tolerances(eqx.Module):
    """τ_k for k = 0, 1, …; `goal` is the tolerance on stationarity that the run aims at."""

    @abc.abstractmethod
    def __call__(self, k: jax.Array, goal: jax.Array) -> jax.Array: ...


class Geometric(Tolerances):
    """τ_k = first · ratio^k, not below `floor` times the run's goal (defaults 0.1, 0.3, 0.3).

    The floor is where a run ends: at stationarity below its goal there is nothing left for a smaller τ to buy.
    """

    first: float = 0.1
    ratio: float = 0.3
    floor: float = 0.3

    def __check_init__(self) -> None:
        words = "τ_k = first · ratio^k with first > 0, 0 < ratio < 1 and 0 < floor <= 1"
        check("Geometric", "first", self.first, lambda x: x > 0, words)
        check("Geometric", "ratio", self.ratio, lambda x: 0 < x < 1, words)
        check("Geometric", "floor", self.floor, lambda x: 0 < x <= 1, words)

    def __call__(self, k: jax.Array, goal: jax.Array) -> jax.Array:
        return jnp.maximum(self.first * self.ratio**k, self.floor * goal)


class InverseSquare(Tolerances):
    """τ_k = s / (k + 1)², as Algorithm 1 prints it (s = s̄ > 0)."""

    s: float = 0.001

    def __check_init__(self) -> None:
        check("InverseSquare", "s", self.s, lambda x: x > 0, "s must be > 0; it is s̄ of Algorithm 1")

    def __call__(self, k: jax.Array, goal: jax.Array) -> jax.Array:
        del goal
        return self.s / (k + 1.0) ** 2
