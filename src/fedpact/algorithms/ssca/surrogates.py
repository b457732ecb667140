"""Which functions of a problem are sampled, which are known exactly, and how they become the surrogate problem.

The functions of a problem are its objective, its pooled constraints and the server's own, in this order. ‖params‖² in a
function is kept exactly. Where it has other terms that depend on the parameters, these have a surrogate:

    F̄(w) = A + a·w + τ‖w‖²,     a ← (1 − ρ) a + ρ (∇F̂ − 2τw),     A ← (1 − ρ) A + ρ (F̂ − ∇F̂·w + τ‖w‖²)

with F̂ the estimate from a mini-batch at the current w.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from fedpact.algorithms.ssca.box_dual import Quadratics, gram_matrix
from fedpact.problem.program import Program


@dataclasses.dataclass(frozen=True)
class Surrogates:
    """The functions that have surrogates, and what is known exactly of all.

    - `party`, `server`: the programs without what is kept exactly.
    - `norms`: the exact factor of ‖params‖² in each function.
    - `constants`: the constant of each function.
    - `functions`: the functions that have a surrogate, by their places in the order above.
    """

    party: Program
    server: Program
    norms: tuple[float, ...]
    constants: tuple[float, ...]
    functions: tuple[int, ...]

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
        offsets = jnp.where(self.exists, self.to_functions(constants), jnp.asarray(self.constants))[1:] + margin
        curvatures = jnp.asarray(np.where(self.exists, tau, 0.0) + np.asarray(self.norms))
        return Quadratics(offsets, gram, curvatures.at[0].add(ridge))

    def values(self, estimates: jax.Array, squared_norm: jax.Array) -> jax.Array:
        """Every function's value, from the estimates behind the surrogates and ‖w‖²."""
        known = jnp.where(self.exists, self.to_functions(estimates), jnp.asarray(self.constants))
        return known + jnp.asarray(self.norms) * squared_norm

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


def surrogates_of(party: Program, server: Program) -> Surrogates:
    """Of a problem, from the programs of a party and of the server."""
    pooled = len(party.pooled)
    of_parties, of_server = party.norm_shares(), server.norm_shares()
    shares = np.concatenate(
        [party.parties * of_parties[0] + of_server[0], party.parties * of_parties[2] + of_server[2], of_server[1]]
    )
    exact = tuple(bool(share >= 0) for share in shares)
    stripped = (
        party.without_norm(exact[0], (False,) * len(party.constraints), exact[1 : 1 + pooled]),
        server.without_norm(exact[0], exact[1 + pooled :], exact[1 : 1 + pooled]),
    )
    (f, _, c), (f0, c0, p0) = (program.moving() for program in stripped)
    return Surrogates(
        *stripped,
        norms=tuple(float(share) if kept else 0.0 for share, kept in zip(shares, exact, strict=True)),
        constants=(*server.objective.constants, *server.pooled.constants, *server.constraints.constants),
        functions=tuple(np.flatnonzero(np.concatenate([f | f0, c | p0, c0])).tolist()),
    )


def folded(slopes: jax.Array, rho: jax.Array, gradients: jax.Array, w: jax.Array, tau: float) -> jax.Array:
    """a of (8), (12), (24)."""
    return (1.0 - rho) * slopes + rho * (gradients - 2.0 * tau * w)


def folded_constants(
    constants: jax.Array, rho: jax.Array, values: jax.Array, along: jax.Array, squared_norm: jax.Array, tau: float
) -> jax.Array:
    """A of (12); `along` is ∇F̂·w."""
    return (1.0 - rho) * constants + rho * (values - along + tau * squared_norm)
