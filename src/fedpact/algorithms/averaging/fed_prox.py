"""FedProx: federated averaging whose parties are held near the server's model.

    at party i, E times:   w_i ← w_i − step_t · m,     m = ∇F̂_i(w_i) + mu (w_i − w) + momentum · m
    at the server:         w ← w + Σ_i p_i (w_i − w) / Σ_i p_i          over the parties that were asked

    T. Li et al., Federated optimization in heterogeneous networks, MLSys 2020; (mu/2)‖w_i − w‖² minimised by E steps.

F_i is party i's mean loss, p_i its part of the objective, `penalty` as in `fed_avg`.
"""

from typing import ClassVar

from fedpact.algorithms.averaging.fed_avg import AveragingMethod
from fedpact.algorithms.averaging.local_steps import check_local, local_steps
from fedpact.algorithms.averaging.robust import RobustAverage, check_average, fitting
from fedpact.algorithms.parts.schedules import Schedule, StepCount, check_momentum
from fedpact.federation.setting import Setting
from fedpact.protocol.algorithm import Algorithm, Split
from fedpact.protocol.options import check


class FedProx(Algorithm):
    """Local steps at every party, held near where they began, then an average.

    - `mu`: the weight of ‖w_i − w‖²/2 (>= 0; with 0 it is fp.FedAvg).
    - `batch`: rows drawn at each party for each of its steps (at least 1, default: all rows).
    - `local_steps`: E, steps of a party in a round (at least 1, default 1); or a list of E, one for each round, of which the last
      goes on, or a schedule, rounded.
    - `step`: the step size, a number > 0 or a schedule of the rounds such as fp.Decay(1.0, 0.5) (default 0.1).
    - `momentum`: of a party's steps within a round (from 0 to below 1, default 0: none).
    - `participation`: the part of the parties that is asked in a round (over 0 up to 1, default 1); the others compute and
      send nothing.
    - `penalty`: ρ on the distance to the parties' own sets, a number > 0 or a schedule (default: none).
    - `average`: fp.TrimmedMean() or fp.MedianOfMeans(), which a few lying parties cannot move far; the server then needs every
      party's reply by itself, and every party counts alike (default None: the plain average).
    """

    supports: ClassVar[frozenset[Split]] = frozenset({"rows", "personal"})

    mu: float
    batch: int | None = None
    local_steps: StepCount = 1
    step: Schedule | float = 0.1
    momentum: float = 0.0
    participation: float = 1.0
    penalty: Schedule | float | None = None
    average: RobustAverage | None = None

    def __check_init__(self) -> None:
        check_local(self)
        check_average("FedProx", self.average)
        check_momentum("FedProx", self.momentum)
        check("FedProx", "mu", self.mu, lambda x: x >= 0, "mu is the weight of the proximal term, 0 or more")

    @property
    def reads_single_replies(self) -> bool:
        return self.average is not None

    @property
    def rows_per_mean(self) -> int | None:
        return self.batch

    def bound(self, setting: Setting) -> AveragingMethod:
        steps = local_steps(self, setting, self.momentum)
        return AveragingMethod(steps, proximal_weight=float(self.mu), average=fitting(self, setting))
