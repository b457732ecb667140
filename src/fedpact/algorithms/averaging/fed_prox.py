"""FedProx: federated averaging whose parties are held near the server's model.

    at party i, E times:   w_i ← w_i − step_t · m,     m = ∇F̂_i(w_i) + mu (w_i − w) + momentum · m
    at the server:         w ← w + Σ_i p_i (w_i − w) / Σ_i p_i          over the parties that were asked

    T. Li et al., Federated optimization in heterogeneous networks, MLSys 2020; (mu/2)‖w_i − w‖² minimised by E steps.

F_i is party i's mean loss, p_i its part of the objective, `penalty` as in `fed_avg`.
"""

import dataclasses

import equinox as eqx
import jax

from fedpact.algorithms.averaging.local_steps import Averaging, Call, check_local, part_of, settled, walk
from fedpact.algorithms.parts.schedules import Schedule
from fedpact.federation.setting import Setting
from fedpact.problem.oracle import Oracle
from fedpact.protocol.options import check


class FedProx(Averaging):
    """Local steps at every party, held near where they began, then an average.

    mu: μ >= 0, the weight of ‖w_i − w‖²/2; with 0 it is fp.FedAvg.
    batch: rows drawn at each party for each of its steps (default: all rows).
    local_steps: E, steps of a party in a round (default 1).
    step: the step size, a number or a schedule of the rounds such as fp.Decay(1.0, 0.5).
    momentum: of a party's steps within a round, from 0 (default, none) to below 1.
    participation: the part of the parties that is asked in a round (over 0 up to 1, default 1).
    penalty: ρ on the distance to the parties' own sets, a number or a schedule; None (default) for none.
    """

    mu: float
    batch: int | None = None
    local_steps: int = 1
    step: Schedule | float = 0.1
    momentum: float = 0.0
    participation: float = 1.0
    penalty: Schedule | float | None = None
    ridge: float = eqx.field(static=True, default=0.0, repr=False)

    def __check_init__(self) -> None:
        check_local("FedProx", self)
        check("FedProx", "mu", self.mu, lambda x: x >= 0, "mu is the weight of the proximal term, 0 or more")

    def prepared(self, setting: Setting) -> "FedProx":
        return dataclasses.replace(self, **settled("FedProx", self, setting))

    def led(self, own: Oracle, message: Call) -> tuple[jax.Array, jax.Array]:
        def held(w: jax.Array) -> jax.Array:
            return self.mu * (w - message.w)

        return walk(own, message.w, message.key, message.step, self, message.penalty, part_of(own), held)
