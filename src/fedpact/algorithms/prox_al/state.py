"""What ProxAL sends, and what its parties and its server keep from round to round."""

from typing import Any

import jax

from fedpact.protocol.algorithm import Disclosed, Goal, Info
from fedpact.records import Record

# messages


class StartSums(Record):
    """From a party before the first round: they set the first β and γ."""

    curvature: jax.Array  # of the party's objective along its gradient
    pooled_jacobian: jax.Array
    squared_slope: jax.Array  # ‖∇c‖², the largest of the party's constraints


class Evaluate(Record):
    """From the server to every party, every round."""

    parameters: jax.Array  # what to evaluate
    centre: jax.Array  # w^k
    penalty: jax.Array  # β
    prox_length: jax.Array  # γ
    new_subproblem: jax.Array  # the last subproblem was closed at the point evaluated last: update μ first (line 4)
    tolerance: jax.Array  # of violations
    inner: Any


class PartyMaxima(Record):
    complementarity: (
        jax.Array
    )  # Definition 1's second number for this party, and its violation, relative to the tolerance
    violation: jax.Array
    multiplier_change: jax.Array  # ‖μ⁺ − μ‖∞, for (11)


class AnswerParameters(Record):
    parameters: jax.Array


class PooledConstraints(Record):
    pooled_constraints: jax.Array


# states


class PartyState(Record):
    mu: jax.Array
    beta: jax.Array
    constraints: jax.Array  # at the point evaluated last
    inner: Any


class ServerState(Record):
    inner: Any
    centre: jax.Array
    beta: jax.Array
    gamma: jax.Array
    mu: jax.Array
    nu: jax.Array
    k: jax.Array
    fresh: jax.Array
    point: jax.Array  # the last settled point, and the server's μ⁺ and ν⁺ there
    point_mu: jax.Array
    point_nu: jax.Array
    closed_violation: jax.Array  # at the end of the last subproblem
    radius: jax.Array
    reach: jax.Array
    goal: Goal
    status: jax.Array


class RoundInfo(Info):
    outer: jax.Array
    beta: jax.Array
    residual: jax.Array
    tau: jax.Array
    disclosed: Disclosed | None
    server_multipliers: jax.Array
    pooled_multipliers: jax.Array


class Evaluated(Record):
    """The server within a round: what the evaluation showed, before a solved subproblem is closed."""

    server: ServerState
    info: RoundInfo
    broken: jax.Array  # the largest violation, up to a power of two times the tolerance
    closing: jax.Array  # the subproblem is solved
    held_up: jax.Array  # and has left the violation as it was: is there a feasible point at all?


class AtAnswer(Record):
    """The server after the last round in form (4), with Σ pooled_i at the answer."""

    server: ServerState
    pooled: jax.Array
