"""Which of a problem's numbers are sampled, which are known exactly, and how they become the surrogate problem.

The numbers of a problem are its objective, its pooled constraints and the server's own, in this order. ‖params‖² in a
number is kept exactly. What else a number holds has a surrogate with a line of its own:

    F̄(w) = A + a·w + τ‖w‖²,     a ← (1 − ρ) a + ρ (∇F̂ − 2τw),     A ← (1 − ρ) A + ρ (F̂ − ∇F̂·w + τ‖w‖²)

with F̂ the estimate from a mini-batch at the current w.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from fedpact.algorithms.ssca.box_dual import Quadratics, gram_matrix
from fedpact.problem.oracle import Program


@dataclasses.dataclass(frozen=True)
class Recipe:
    """`party` and `server` are the programs without what is kept exactly."""

    party: Program
    server: Program
    norms: tuple[float, ...]  # the exact factor of ‖params‖² in each number
    constants: tuple[float, ...]  # of each number
    lines: tuple[int, ...]  # the numbers that have a surrogate

    @property
    def sampled(self) -> tuple[int, ...]:
        """Numbers with a surrogate that parties have a part in: the objective and pooled ones."""
        return tuple(number for number in self.lines if number <= len(self.party.pooled))

    @property
    def moving(self) -> np.ndarray:
        """Whether a number has a line."""
        return np.isin(np.arange(len(self.norms)), self.lines)

    def stacked(self, lines: jax.Array) -> jax.Array:
        """What lines have, by number; zero for a number without a line."""
        return _picked(lines, self.lines, tuple(range(len(self.norms))))

    def of_lines(self, per_number: jax.Array, numbers: tuple[int, ...]) -> jax.Array:
        """From values or gradients of these numbers to those of the lines; a number not among them counts zero."""
        return _picked(per_number, numbers, self.lines)

    def gram(self, lines: jax.Array) -> jax.Array:
        """The products of the numbers' slopes, from the lines' slopes."""
        return self.stacked(self.stacked(gram_matrix(lines)).T)

    def combined(self, weights: jax.Array, lines: jax.Array) -> jax.Array:
        """The sum of the numbers' slopes with these weights, from the lines' slopes."""
        return weights[np.asarray(self.lines, int)] @ lines

    def quadratics(
        self, constants: jax.Array, gram: jax.Array, tau: float, ridge: jax.Array, margin: float
    ) -> Quadratics:
        """The surrogate problem, from the Gram matrix of the numbers' slopes and the lines' constants."""
        offsets = jnp.where(self.moving, self.stacked(constants), jnp.asarray(self.constants))[1:] + margin
        curvatures = jnp.asarray(np.where(self.moving, tau, 0.0) + np.asarray(self.norms))
        return Quadratics(offsets, gram, curvatures.at[0].add(ridge))

    def numbers(self, values: jax.Array, norm: jax.Array) -> jax.Array:
        """Every number, from the values of the lines and ‖w‖²."""
        return (
            jnp.where(self.moving, self.stacked(values), jnp.asarray(self.constants)) + jnp.asarray(self.norms) * norm
        )

    def multipliers(self, nu: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Of the server's own and of the pooled constraints."""
        pooled = len(self.party.pooled)
        return nu[pooled:], nu[:pooled]


def _picked(given: jax.Array, have: tuple[int, ...], want: tuple[int, ...]) -> jax.Array:
    """Out of what these numbers have, what those want, zero where there is nothing: slices, which XLA sees through."""
    place = {number: place for place, number in enumerate(have)}
    nothing = jnp.zeros((1, *given.shape[1:]), given.dtype)
    parts = [given[place[number] : place[number] + 1] if number in place else nothing for number in want]
    return jnp.concatenate([given[:0], *parts])


def violation(numbers: jax.Array) -> jax.Array:
    """The largest violation, from the numbers' values."""
    return jnp.max(numbers[1:], initial=0.0)


@functools.lru_cache(maxsize=64)
def recipe(party: Program, server: Program) -> Recipe:
    pooled = len(party.pooled)
    theirs, mine = party.norm_shares(), server.norm_shares()
    shares = np.concatenate([party.parties * theirs[0] + mine[0], party.parties * theirs[2] + mine[2], mine[1]])
    exact = tuple(bool(share >= 0) for share in shares)
    stripped = (
        party.without_norm(exact[0], (False,) * len(party.constraints), exact[1 : 1 + pooled]),
        server.without_norm(exact[0], exact[1 + pooled :], exact[1 : 1 + pooled]),
    )
    (f, _, c), (f0, c0, p0) = (program.moving() for program in stripped)
    return Recipe(
        *stripped,
        norms=tuple(float(share) if kept else 0.0 for share, kept in zip(shares, exact, strict=True)),
        constants=(*server.objective.constants, *server.pooled.constants, *server.constraints.constants),
        lines=tuple(np.flatnonzero(np.concatenate([f | f0, c | p0, c0])).tolist()),
    )


def folded(slopes: jax.Array, rho: jax.Array, gradients: jax.Array, w: jax.Array, tau: float) -> jax.Array:
    """a of (8), (12), (24)."""
    return (1.0 - rho) * slopes + rho * (gradients - 2.0 * tau * w)


def folded_constants(
    constants: jax.Array, rho: jax.Array, values: jax.Array, along: jax.Array, norm: jax.Array, tau: float
) -> jax.Array:
    """A of (12); `along` is ∇F̂·w and `norm` ‖w‖²."""
    return (1.0 - rho) * constants + rho * (values - along + tau * norm)
