"""Federated averaging: every party takes some steps of its own, the server averages where they lead.

    at party i, E times:   w_i ← w_i − step_t · m,     m = ∇F̂_i(w_i) + momentum · m
    at the server:         w ← w + Σ_i p_i (w_i − w) / Σ_i p_i          over the parties that were asked

    B. McMahan et al., Communication-efficient learning of deep networks from decentralized data, AISTATS 2017.

F_i is party i's mean loss, p_i its part of the objective: its part of all rows where the objective is pooled, else 1/n.
Where parties have sets of their own, `penalty` ρ adds (ρ/2) dist(w, X_i)² to F_i: a baseline for personal models.
"""

import dataclasses

import equinox as eqx
import jax

from fedpact.algorithms.averaging.local_steps import Averaging, Call, check_local, part_of, settled, walk
from fedpact.algorithms.parts.schedules import Schedule
from fedpact.federation.setting import Setting
from fedpact.problem.oracle import Oracle


class FedAvg(Averaging):
    """Local steps at every party, then an average.

    batch: rows drawn at each party for each of its steps (default: all rows).
    local_steps: E, steps of a party in a round (default 1).
    step: the step size, a number or a schedule of the rounds such as fp.Decay(1.0, 0.5).
    momentum: of a party's steps within a round, from 0 (default, none) to below 1.
    participation: the part of the parties that is asked in a round (over 0 up to 1, default 1).
    penalty: ρ on the distance to the parties' own sets, a number or a schedule; None (default) for none.
    """

    batch: int | None = None
    local_steps: int = 1
    step: Schedule | float = 0.1
    momentum: float = 0.0
    participation: float = 1.0
    penalty: Schedule | float | None = None
    ridge: float = eqx.field(static=True, default=0.0, repr=False)

    def __check_init__(self) -> None:
        check_local("FedAvg", self)

    def prepared(self, setting: Setting) -> "FedAvg":
        return dataclasses.replace(self, **settled("FedAvg", self, setting))

    def led(self, own: Oracle, message: Call) -> tuple[jax.Array, jax.Array]:
        """Lines "ClientUpdate" of Algorithm 1."""
        return walk(own, message.w, message.key, message.step, self, message.penalty, part_of(own))
