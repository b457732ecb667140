"""The seam between ProxAL and whatever minimises its subproblem ℓ_k(w) = Σ_{i=0..n} P_i(w) + h(w).

Theorem 4(a) needs of an inner solver only that it ends at a w with dist∞(0, ∂ℓ_k(w)) <= τ_k, condition (10). So it is a
part: one call of `propose`, `answer`, `learn` is one round of communication.
"""

import abc
from typing import Any, ClassVar

import jax

from fedpact.algorithms.prox_al.merit import Merit, ServerMerit
from fedpact.problem.oracle import Values
from fedpact.protocol.options import Options
from fedpact.records import Record


class Progress(Record):
    """What one round taught the server about the point that the parties evaluated."""

    settled: jax.Array  # the point is the solver's iterate, so the subproblem may be closed there
    exhausted: jax.Array  # float64 shows no descent any more: close the subproblem as it is
    residual: jax.Array  # dist∞(0, ∂ℓ_k(point)), or a bound on it
    stationarity: jax.Array  # the same for the Lagrangian with the multipliers μ⁺(point): Definition 1's first number
    objective: jax.Array  # Σ f_i + h at the point
    pooled: jax.Array  # Σ pooled_i at the point
    constraints: jax.Array  # the server's own c_0 at the point


class Inner(Options):
    """An inner solver.

    - `needs_slacks`: it cannot couple parties, so pooled constraints take form (4).
    - `prox_growth`: how fast the prox term may fade from one subproblem to the next before this solver suffers.
    - `usual_rounds`: of ProxAL with this solver on like problems, least median and worst (`fedpact reproduce rounds`).
    """

    needs_slacks: ClassVar[bool]
    prox_growth: ClassVar[float]
    usual_rounds: ClassVar[tuple[int, int] | None] = None
    few_rounds: ClassVar[bool] = False  # as of a `Method`

    def sized(self, size: int, parties: int) -> "Inner":
        """The same solver for so many parameters and parties; raises ValueError where its options do not fit them."""
        return self

    def penalty(self, size: int) -> tuple[float, float]:
        """The first β that suits this solver for so many parameters, relative to the objective's curvature, and how fast β may
        grow before this solver suffers."""
        return 10.0, 3.0

    @abc.abstractmethod
    def start(self, w: jax.Array, pooled: int) -> Any:
        """The server's state before the first subproblem."""

    @abc.abstractmethod
    def join(self, w: jax.Array) -> Any:
        """A party's state before the first subproblem."""

    @abc.abstractmethod
    def propose(self, state: Any, own: ServerMerit, tau: jax.Array) -> tuple[Any, jax.Array, Any]:
        """At the server: the new state, the point that the parties will evaluate, and what else they need to know."""

    @abc.abstractmethod
    def answer(
        self, merit: Merit, state: Any, point: jax.Array, message: Any, fresh: jax.Array
    ) -> tuple[Any, Values, Any]:
        """At a party: its state, its functions at `point`, and what the server gets the sum of.

        `fresh`: a subproblem begins with this round.
        """

    @abc.abstractmethod
    def learn(
        self, state: Any, own: ServerMerit, point: jax.Array, sums: Any, fresh: jax.Array
    ) -> tuple[Any, Progress]:
        """At the server: make use of the sums."""

    @abc.abstractmethod
    def reopen(self, state: Any, w: jax.Array, growth: jax.Array) -> Any:
        """At the server: the next subproblem begins at w, with a penalty β `growth` times as large."""
