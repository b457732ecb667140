"""A run behind noise: `fp.solve(..., privacy=fp.DifferentialPrivacy(...))`, and what its result says."""

import dataclasses
from typing import Any

import numpy as np

from fedpact.privacy.differential import DifferentialPrivacy
from fedpact.protocol.algorithm import Algorithm
from fedpact.run.result import Result
from fedpact.settings.base import Bound
from fedpact.settings.private_rows import PrivateRowsBound
from fedpact.settings.rows import RowsBound


@dataclasses.dataclass(frozen=True)
class PrivateRun:
    """What the noise of a run is drawn and accounted by: the option, and the rounds that the run may have."""

    privacy: DifferentialPrivacy
    rounds: int

    @classmethod
    def of(cls, privacy: DifferentialPrivacy, algorithm: Algorithm, bound: Bound, save: Any) -> "PrivateRun":
        """Raises ValueError where the noise of this method on this problem cannot be accounted."""
        privacy.check(algorithm, bound.setting)
        if save is not None:
            raise ValueError(
                "save=: a run's folder would hold the noise, which could then be subtracted; run without save= and keep the "
                "model by result.save(folder)"
            )
        rounds = algorithm.noisy_rounds
        assert rounds is not None
        return cls(privacy, rounds)

    def behind_noise(self, bound: Bound) -> PrivateRowsBound:
        """The bound problem, of which parties tell releases only."""
        assert isinstance(bound, RowsBound)
        setting, rows = bound.setting, sum(bound.rows)
        noise = self.privacy.drawn(self.rounds, rows, setting.parties, (1 + setting.pooled, 1 + setting.size))
        return PrivateRowsBound.of(bound, self.privacy.limit(rows), noise)

    def traced(self, bound: Bound) -> PrivateRowsBound:
        """The same where every party draws its own noise elsewhere: messages and replies are as in `behind_noise`."""
        assert isinstance(bound, RowsBound)
        setting, rows = bound.setting, sum(bound.rows)
        nothing = np.full((1, 1 + setting.pooled, 1 + setting.size), np.nan)
        return PrivateRowsBound.of(bound, self.privacy.limit(rows), [nothing] * setting.parties, self.rounds + 1)

    def told(self, result: Result) -> Result:
        """The result with what was spent. Noisy values show no convergence, so it is never called converged."""
        spent = self.privacy.spent(result.rounds, self.rounds, sum(result.rows), len(result.parties))
        status = "max_rounds" if result.status == "converged" else result.status
        message = result.message
        if status == "max_rounds":
            message = (
                f"ended after {result.rounds} rounds, as many as its noise was drawn for; with noise in every value no "
                "convergence can be shown"
            )
            if result.rounds < self.rounds:
                message = f"stopped at max_rounds={result.rounds} of the {self.rounds} that its noise was drawn for"
        return dataclasses.replace(result, status=status, message=message, privacy=spent)
