"""FedBCD: vertical learning without constraints, every party with several steps of its own between two rounds.

    Y. Liu et al., FedBCD: A communication-efficient collaborative learning framework for distributed features, IEEE
    Transactions on Signal Processing 70 (2022).

It is FairVFL of a problem without constraints in which passive parties, too, take their steps, with ν as it was.
"""

from typing import ClassVar

from fedpact.algorithms.fair_vfl.method import FairVFL, FairVFLMethod
from fedpact.algorithms.fair_vfl.pace import Clock, Pace
from fedpact.algorithms.parts.schedules import Schedule
from fedpact.federation.setting import Setting
from fedpact.privacy.residuals import EncryptedResiduals
from fedpact.protocol.algorithm import Algorithm, Split


class FedBCD(Algorithm):
    """Block coordinate descent over split columns, without constraints.

    - `local_steps`: Q, steps of a party in a round (at least 1, default 5); active parties' as `pace` says.
    - `step`: a step (> 0) or a schedule of it (default None: from the curvature, as FairVFL does; passive
      parties then take one step).
    - `pace`, `clock`, `momentum`, `privacy`: as of fp.FairVFL.
    """

    local_steps: int = 5
    step: Schedule | float | None = None
    pace: Pace = "fixed"
    clock: Clock = Clock()
    momentum: float = 0.9
    privacy: EncryptedResiduals | None = None

    supports: ClassVar[frozenset[Split]] = frozenset({"columns"})
    sends_residuals: ClassVar[bool] = True

    def __check_init__(self) -> None:
        try:
            self._as_fair_vfl()
        except (TypeError, ValueError) as error:
            raise type(error)(str(error).replace("FairVFL", "FedBCD")) from None

    def bound(self, setting: Setting) -> FairVFLMethod:
        passive_steps = self.local_steps if self.step is not None else 1
        return FairVFLMethod.of(self._as_fair_vfl(), setting, passive_steps, "FedBCD")

    def _as_fair_vfl(self) -> FairVFL:
        return FairVFL(
            local_steps=self.local_steps,
            pace=self.pace,
            clock=self.clock,
            step=self.step,
            momentum=self.momentum,
            privacy=self.privacy,
        )
