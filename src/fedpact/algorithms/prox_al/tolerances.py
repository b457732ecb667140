"""Tolerances τ_k of the subproblems; they must be summable (and β_k τ_k too where β grows)."""

import abc

import jax

from fedpact.arrays import xp
from fedpact.protocol.options import Options, check


class Tolerances(Options):
    """The tolerance τ_k of subproblem k = 0, 1, … of `fp.ProxAL`."""

    @abc.abstractmethod
    def __call__(self, k: jax.Array, goal: jax.Array) -> jax.Array:
        """τ_k, where `goal` is the run's tolerance on stationarity."""


class Geometric(Tolerances):
    """Geometrically decreasing tolerances of the subproblems of `fp.ProxAL`, τ_k = max(first · ratio^k, floor · tolerance).

    - `first`: τ_0, in the units of stationarity (> 0, default 0.1).
    - `ratio`: of successive tolerances (between 0 and 1, default 0.3).
    - `floor`: the least τ_k relative to the `tolerance` of `fp.solve` (> 0, at most 1, default 0.3): smaller ones would not bring
      the run closer to its end.
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
        return xp.maximum(self.first * self.ratio**k, self.floor * goal)


class InverseSquare(Tolerances):
    """Quadratically decreasing tolerances of the subproblems, τ_k = s / (k + 1)², as in Algorithm 1 of He, Peng and Sun (2024).

    - `s`: τ_0, s̄ of the paper, in the units of stationarity (> 0, default 0.001).
    """

    s: float = 0.001

    def __check_init__(self) -> None:
        check("InverseSquare", "s", self.s, lambda x: x > 0, "s must be > 0; it is s̄ of Algorithm 1")

    def __call__(self, k: jax.Array, goal: jax.Array) -> jax.Array:
        return self.s / (k + 1.0) ** 2
