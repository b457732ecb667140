"""The server's message of a round of the interior-point method, and where the step of a holder at the server begins."""

import dataclasses
from typing import Any

import numpy as np

from fedpact.algorithms.interior_point.barrier import Barrier, Trial, advance, broken
from fedpact.algorithms.interior_point.state import ServerState
from fedpact.arrays import choose, xp
from fedpact.protocol.phases import ServerData


def trial_of(mu: float, own: ServerData, server: ServerState) -> tuple[Trial, Barrier, Any]:
    """The message, and the pooled constraints where the step begins and on the way to the trial."""
    step, equality = server.step, own.functions.pooled_equality
    pooled = held(mu, server, server.pooled, equality, server.sharpening and server.sharpening.anchor.pooled)
    trial = Trial(
        parameters=xp.where(step.length == 1.0, step.target, server.w + step.length * step.direction),
        direction=step.direction,
        step_length=step.length,
        residual_share=step.residual_share,
        barrier_parameter=server.kappa,
        merit_weight=server.rho,
        pooled_multipliers=pooled.mu,
        first_slack=server.first_slack,
        steepness=server.steepness,
        moving=~server.fresh,
        searching=server.searching,
        accepted=server.accepted,
        best=server.best_is_trial,
        rates=server.rate_sharpness,
        activity_threshold=server.goal.feasibility,
    )
    if not equality.size:
        return trial, pooled, None
    ahead = advance(pooled, equality, trial)
    # a search that begins knows the violations of the last trial only; with no curvature at all its first step would be wild
    known = choose(server.fresh, broken(server.pooled[1].c, equality), pooled.active)
    weights = xp.where(server.searching, known, ahead.mu)
    return dataclasses.replace(trial, pooled_multipliers=weights), pooled, ahead


def held(
    mu: float,
    server: ServerState,
    barriers: tuple[Barrier, Barrier],
    equality: np.ndarray,
    anchor: Barrier | None,
) -> Barrier:
    """Where the step begins."""
    soft = 1.0 if server.sharpening is None else server.sharpening.softening
    fresh = Barrier.fresh(equality, server.w.size, soft * mu, server.first_slack / soft, server.steepness)
    held_now = choose(server.fresh, fresh, choose(server.accepted, *reversed(barriers)))
    return held_now if server.sharpening is None else choose(server.sharpening.returning, anchor, held_now)
