"""Moves of the parties' blocks: what parties propose, and what the server has them make.

A party proposes a displacement z of its block and sends what its bottom model gives there. The server decides how much of it
is made, and how much of the last moves m_i again: w ← w + a z + Σ_i b_i m_i.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

from fedpact.algorithms.fair_vfl.lagrangian import Point, newton_search
from fedpact.algorithms.parts.schedules import Schedule
from fedpact.arrays import choose
from fedpact.problem.flat_regularizer import FlatRegularizer
from fedpact.records import Record

Merit = Callable[[Point], jax.Array]  # Λ
SHORTER, LONGER = 2.0, 1.15  # how curvature estimates grow after a refused move and fall after a taken one


class Move(Record):
    """a and b; the last moves are counted from the latest."""

    proposal_weight: jax.Array
    last_move_weights: jax.Array


class Moves(Record):
    active: Move
    passive: Move


class Proposal(Record):
    """What the parties of one role propose, together."""

    embedding: jax.Array  # of z where bottoms are linear, else of w + z
    inner_products: jax.Array  # of w, z and the last moves
    largest_slope: jax.Array  # max |∂Λ/∂w|
    regularizer: jax.Array | None = None  # h of the blocks beside ‖w‖²


class Iterate(Record):
    """Where the parties will be after the moves that they are still to make."""

    point: Point
    top_moves: jax.Array  # the last moves of the top's parameters
    embedding_moves: jax.Array  # what the last moves changed in h, where the server searches
    moves: Moves
    curvature: jax.Array  # where the server does not search: estimated, or one over the step that was set
    accepted: jax.Array  # whether the last move was


def remembered(last: jax.Array, move: jax.Array) -> jax.Array:
    """The latest first; the oldest is forgotten."""
    return jnp.concatenate([move[None], last[:-1]])


@dataclasses.dataclass(frozen=True)
class MoveRule:
    """How moves are made.

    - `search`: whether the server finds the best of all moves: bottoms are linear, and no step size was set.
    - `step`, `momentum`, `memory`: as of FairVFL.
    """

    search: bool
    step: Schedule | None
    momentum: float
    memory: int

    def first(self, point: Point) -> Iterate:
        none = Move(jnp.asarray(0.0), jnp.zeros(self.memory))
        return Iterate(
            point=point,
            top_moves=jnp.zeros((self.memory, point.top_parameters.size)),
            embedding_moves=jnp.zeros((self.memory, *point.embedding.shape)) if self.search else jnp.zeros(0),
            moves=Moves(none, none),
            curvature=jnp.asarray(1.0) if self.step is None else 1.0 / self.step(jnp.ones(())),
            accepted=jnp.asarray(True),
        )

    def stayed(self, last: Iterate) -> Iterate:
        """No move is to be made: the parties are where the server knows them to be, and will remember that they stayed."""
        still = last.embedding_moves
        return dataclasses.replace(
            last,
            top_moves=remembered(last.top_moves, jnp.zeros_like(last.top_moves[0])),
            embedding_moves=remembered(still, jnp.zeros_like(still[0])) if self.search else still,
            moves=jax.tree.map(jnp.zeros_like, last.moves),
        )

    def moved(
        self,
        last: Iterate,
        top_slope: jax.Array,
        proposals: list[Proposal],
        merit: Merit,
        t: jax.Array,
        h: FlatRegularizer,
    ) -> Iterate:
        """After the moves that active and passive parties proposed in round t = 1, 2, …; h: of the top's parameters."""
        if self.search:
            return self._best_move(last, top_slope, proposals, merit)
        moved = self._proposed_move(last, top_slope, proposals, merit, h)
        if self.step is None:
            return moved
        return dataclasses.replace(moved, curvature=1.0 / self.step(t.astype(moved.curvature.dtype) + 1.0))

    def _best_move(self, last: Iterate, top_slope: jax.Array, proposals: list[Proposal], merit: Merit) -> Iterate:
        """The best of active moves, passive ones, the last ones and a move of the top, in h alone."""
        active, passive = proposals

        def change(a: jax.Array) -> jax.Array:
            return a[0] * active.embedding + a[1] * passive.embedding + jnp.tensordot(a[3:], last.embedding_moves, 1)

        def there(a: jax.Array) -> Point:
            one, again = jnp.ones(1), a[3:]
            mixed = [jnp.concatenate([one, along[None], again]) for along in (a[0], a[1])]
            norms = [v @ p.inner_products @ v for v, p in zip(mixed, proposals, strict=True)]
            return Point(
                last.point.top_parameters - a[2] * top_slope + again @ last.top_moves,
                last.point.embedding + change(a),
                norms[0] + norms[1],
            )

        a = newton_search(lambda a: merit(there(a)), jnp.zeros(3 + self.memory))
        point = there(a)
        return dataclasses.replace(
            last,
            point=point,
            top_moves=remembered(last.top_moves, point.top_parameters - last.point.top_parameters),
            embedding_moves=remembered(last.embedding_moves, change(a)),
            moves=Moves(Move(a[0], a[3:]), Move(a[1], a[3:])),
        )

    def _proposed_move(
        self, last: Iterate, top_slope: jax.Array, proposals: list[Proposal], merit: Merit, h: FlatRegularizer
    ) -> Iterate:
        """The proposed move where it lowers the merit (with a step that was set, always), else none, and a shorter one next."""
        active, passive = proposals
        momentum = self.momentum if self.step is None else 0.0
        top_move = momentum * last.top_moves[0] - top_slope / last.curvature
        if h.kinks != "none":
            top = last.point.top_parameters
            top_move = h.prox(top + top_move, 1.0 / last.curvature) - top
        ones = jnp.ones(2)
        norm = ones @ (active.inner_products + passive.inner_products)[:2, :2] @ ones
        point = Point(last.point.top_parameters + top_move, active.embedding + passive.embedding, norm)
        accepted = jnp.asarray(True) if self.step is not None else merit(point) <= merit(last.point)
        move = Move(jnp.where(accepted, 1.0, 0.0), jnp.zeros(self.memory))
        return dataclasses.replace(
            last,
            point=choose(accepted, point, last.point),
            top_moves=remembered(last.top_moves, jnp.where(accepted, top_move, jnp.zeros_like(top_move))),
            moves=Moves(move, move),
            accepted=accepted,
            curvature=jnp.where(accepted, last.curvature / LONGER, SHORTER * last.curvature),
        )
