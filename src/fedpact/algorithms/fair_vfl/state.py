"""What the server of FairVFL keeps between rounds and within one, and what it tells of them."""

import jax

from fedpact.algorithms.fair_vfl.lagrangian import Dual, Point
from fedpact.algorithms.fair_vfl.moves import Iterate, Moves, Proposal
from fedpact.protocol.algorithm import Answer, Goal, Info
from fedpact.records import Record


class Evaluation(Record):
    """The Lagrangian at the server's point, with the multipliers of the round to come."""

    objective: jax.Array
    constraints: jax.Array  # c
    dual: Dual
    weights: jax.Array  # π
    slope: Point
    curvature: jax.Array


class ServerState(Record):
    iterate: Iterate
    dual: Dual  # of the last round
    evaluation: Evaluation
    settled_violation: jax.Array  # where λ was last near the best for its ρ
    seconds: jax.Array  # on the simulated clock
    secret: jax.Array | None  # of encrypted residuals
    goal: Goal
    key: jax.Array
    t: jax.Array
    status: jax.Array


class RoundState(Record):
    """The server's state within a round: with what the parties have replied so far."""

    server: ServerState
    active: Proposal | None = None
    passive: Proposal | None = None
    masked_gradients: jax.Array | None = None


class RoundInfo(Info):
    seconds: jax.Array  # simulated, since the beginning
    rho: jax.Array
    pooled_constraints: jax.Array  # c


class ColumnAnswer(Answer):
    moves: Moves
