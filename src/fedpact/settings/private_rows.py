"""Rows split over parties, and told with noise only: the certificate is the last of the run's noisy releases.

Everything that a party tells of its rows is a `PrivateOracle.release`: those of the rounds, counted by the method's state, and
the last one, which the certificate is made of. So all numbers of a result are computed from releases.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import jax
import numpy as np

from fedpact.arrays import xp
from fedpact.federation.setting import Setting
from fedpact.problem.private_oracle import PrivateOracle
from fedpact.protocol.algorithm import Answer
from fedpact.protocol.messages import Reply
from fedpact.protocol.phases import Phase, Phases, send_carry
from fedpact.settings.rows import Kept, LagrangianSums, OwnConstraints, RowsBound, measure_at_server


def measure_privately(own: PrivateOracle, kept: Kept, answer: Answer) -> tuple[Kept, Reply]:
    """At a party: its share of the Lagrangian from one release, the run's last."""
    lines = own.release(own.releases - 1, answer.parameters)
    values, slopes = lines[:, 0], lines[:, 1:]
    multipliers = xp.asarray(answer.pooled_multipliers)
    pull = multipliers @ slopes[1:]
    sums = LagrangianSums(values[0], slopes[0] + pull, pull, multipliers @ values[1:], values[1:], None)
    return kept, Reply(sum=sums, per_party=OwnConstraints(kept.multipliers, kept.multipliers, None, None))


class PrivateRowsBound(RowsBound):
    """A problem over rows with one model for all parties, who tell releases with noise and nothing else."""

    measured_once: ClassVar[bool] = True

    @property
    def measurement(self) -> Phases:
        return (Phase(send_carry, measure_privately, measure_at_server),)

    @classmethod
    def of(cls, bound: RowsBound, limit: float, noise: Sequence[np.ndarray], planned: int | None = None) -> Self:
        """The same problem behind noise.

        - `limit`: the largest norm of what a row adds. `noise`: of each party, in their order.
        - `planned`: as of `PrivateOracle` (default: as many releases as there is noise for).
        """

        def behind(stack: Any, places: Sequence[int]) -> PrivateOracle:
            limits, drawn = np.full(len(places), limit), np.stack([noise[place] for place in places])
            limits, drawn = jax.device_put((limits, drawn))
            return PrivateOracle(stack, limits, drawn, planned)

        fields = {field.name: getattr(bound, field.name) for field in dataclasses.fields(bound)}
        stacks = tuple(behind(stack, places) for stack, places in zip(bound.stacks, bound.order, strict=True))
        return cls(**{**fields, "stacks": stacks})

    @property
    def setting(self) -> Setting:
        return dataclasses.replace(super().setting, private=True)

    def not_finite(self) -> str | None:
        """Not looked for: the answer would be exact."""
        return None
