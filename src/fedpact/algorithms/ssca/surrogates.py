"""Which functions of a problem are sampled, which are known exactly, and how they become the surrogate problem.

The functions of a problem are its objective, its pooled constraints and the server's own, in this order. ‖params‖² in a
function is kept exactly. Where it has other terms that depend on the parameters, these have a surrogate:

    F̄(w) = A + a·w + τ‖w‖²,     a ← (1 − ρ) a + ρ (∇F̂ − 2τw),     A ← (1 − ρ) A + ρ (F̂ − ∇F̂·w + τ‖w‖²)

with F̂ the estimate from a mini-batch at the current w. Where n‖w‖² is averaged with the others, as the paper does it in (28)
and as a negative n needs it, F̂ + n‖w‖² stands for F̂, which is τ − n for τ in a and A.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from fedpact.algorithms.ssca.box_dual import Quadratics, gram_matrix
from fedpact.problem.flat_regularizer import FlatRegularizer
from fedpact.problem.program import Program


@dataclasses.dataclass(frozen=True)
class Surrogates:
    """The functions that have surrogates, and what is known exactly of all.

    - `party`, `server`: the programs without ‖params‖².
    - `norms`: the factor of ‖params‖² in each function that is kept exactly. `averaged`: the one that its surrogate averages.
    - `constants`: the constant of each function.
    - `functions`: the functions that have a surrogate, by their places in the order above.
    - `corrected`: whether ‖params‖² is kept and constants are averaged; as printed it is the other way round.
    """

    party: Program
    server: Program
    norms: tuple[float, ...]
    averaged: tuple[float, ...]
    constants: tuple[float, ...]
    functions: tuple[int, ...]
    corrected: bool = True

    @property
    def sampled(self) -> tuple[int, ...]:
        """Functions with a surrogate that parties have a part in: the objective and pooled ones."""
        return tuple(place for place in self.functions if place <= len(self.party.pooled))

    @property
    def constraints(self) -> int:
        return len(self.norms) - 1

    @property
    def exists(self) -> np.ndarray:
        """Whether each function has a surrogate."""
        return np.isin(np.arange(len(self.norms)), self.functions)

    @property
    def kept_constants(self) -> np.ndarray:
        """Of each surrogate, the constant that is not averaged: U of (38) and (39)."""
        return np.asarray(self.constants)[list(self.functions)] * (0.0 if self.corrected else 1.0)

    def kept_ridge(self, h: FlatRegularizer) -> jax.Array:
        """The a in a‖w‖² that h has for all parameters alike, and that is not averaged."""
        return jnp.min(h.ridge) * (1.0 if self.corrected or 0 not in self.functions else 0.0)

    def folded(self, slopes: jax.Array, rho: jax.Array, gradients: jax.Array, w: jax.Array, tau: float) -> jax.Array:
        """a of (8), (12), (24)."""
        return (1.0 - rho) * slopes + rho * (gradients - 2.0 * self._curvatures(tau)[:, None] * w)

    def folded_constants(
        self, constants: jax.Array, rho: jax.Array, values: jax.Array, along: jax.Array, norm: jax.Array, tau: float
    ) -> jax.Array:
        """A of (12); `along` is ∇F̂·w, `norm` is ‖w‖²."""
        values = values - self.kept_constants
        return (1.0 - rho) * constants + rho * (values - along + self._curvatures(tau) * norm)

    def _curvatures(self, tau: float) -> np.ndarray:
        return tau - np.asarray(self.averaged)[list(self.functions)]

    def to_functions(self, per_surrogate: jax.Array) -> jax.Array:
        """From one entry per surrogate to one per function; zero for a function without."""
        return _reordered(per_surrogate, self.functions, tuple(range(len(self.norms))))

    def to_surrogates(self, per_function: jax.Array, functions: tuple[int, ...]) -> jax.Array:
        """From values or gradients of these functions to one entry per surrogate; zero for a function not among them."""
        return _reordered(per_function, functions, self.functions)

    def gram(self, slopes: jax.Array) -> jax.Array:
        """The inner products of all functions' slopes, from those of the surrogates."""
        return self.to_functions(self.to_functions(gram_matrix(slopes)).T)

    def weighted_sum(self, weights: jax.Array, slopes: jax.Array) -> jax.Array:
        """The sum of slopes with these weights, one per function."""
        return weights[np.asarray(self.functions, int)] @ slopes

    def quadratics(
        self, constants: jax.Array, gram: jax.Array, tau: float, ridge: jax.Array, margin: float
    ) -> Quadratics:
        """The surrogate problem, from the surrogates' constants and the inner products of all functions' slopes."""
        constants = self.to_functions(constants + self.kept_constants)
        offsets = jnp.where(self.exists, constants, jnp.asarray(self.constants))[1:] + margin
        curvatures = jnp.asarray(np.where(self.exists, tau, 0.0) + np.asarray(self.norms))
        return Quadratics(offsets, gram, curvatures.at[0].add(ridge))

    def values(self, estimates: jax.Array, squared_norm: jax.Array) -> jax.Array:
        """Every function's value, from the estimates behind the surrogates and ‖w‖²."""
        known = jnp.where(self.exists, self.to_functions(estimates), jnp.asarray(self.constants))
        return known + self.all_norms * squared_norm

    @property
    def all_norms(self) -> np.ndarray:
        """The factor of ‖params‖² in each function."""
        return np.add(self.norms, self.averaged)

    def multipliers(self, nu: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Of the server's own and of the pooled constraints."""
        pooled = len(self.party.pooled)
        return nu[pooled:], nu[:pooled]


def _reordered(entries: jax.Array, have: tuple[int, ...], want: tuple[int, ...]) -> jax.Array:
    """From entries of the functions `have` to those of `want`, zero where there is none: slices, which XLA sees through."""
    place = {function: place for place, function in enumerate(have)}
    nothing = jnp.zeros((1, *entries.shape[1:]), entries.dtype)
    parts = [entries[place[f] : place[f] + 1] if f in place else nothing for f in want]
    return jnp.concatenate([entries[:0], *parts])


def violation(values: jax.Array) -> jax.Array:
    """The largest violation, from every function's value."""
    return jnp.max(values[1:], initial=0.0)


def surrogates_of(party: Program, server: Program, uneven: bool = False, corrected: bool = True) -> Surrogates:
    """Of a problem, from the programs of a party and of the server.

    - `uneven`: whether the regulariser has terms other than ‖params‖², for which the objective needs a surrogate (default: no).
    - `corrected`: as of `Surrogates`.
    """
    pooled = len(party.pooled)
    of_parties, of_server = party.norm_shares(), server.norm_shares()
    shares = np.concatenate(
        [party.parties * of_parties[0] + of_server[0], party.parties * of_parties[2] + of_server[2], of_server[1]]
    )
    every = (True,) * pooled
    stripped = (
        party.without_norm(True, (False,) * len(party.constraints), every),
        server.without_norm(True, (True,) * len(server.constraints), every),
    )
    (f, _, c), (f0, c0, p0) = (program.moving() for program in stripped)
    moving = np.concatenate([f | f0, c | p0, c0])
    moving[0] |= uneven
    kept = (shares >= 0) & (corrected | ~moving)
    return Surrogates(
        *stripped,
        norms=tuple(np.where(kept, shares, 0.0).tolist()),
        averaged=tuple(np.where(kept, 0.0, shares).tolist()),
        constants=(*server.objective.constants, *server.pooled.constants, *server.constraints.constants),
        functions=tuple(np.flatnonzero(moving | (shares < 0)).tolist()),
        corrected=corrected,
    )
