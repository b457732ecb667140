"""To what a result has to hold: one number, or one for stationarity and another for the constraints."""

import math
import numbers
from typing import Any, NamedTuple


class Tolerance(NamedTuple):
    """ε₁ and ε₂ of Definition 1 of He, Peng and Sun (2024), both > 0.

    - `stationarity`: on the gradient of the Lagrangian.
    - `feasibility`: on violations and complementarity.
    """

    stationarity: float
    feasibility: float

    @classmethod
    def of(cls, given: Any, owner: str = "solve") -> "Tolerance":
        """From what a user gave or a file holds. Raises ValueError unless it is one positive number or two."""
        both = tuple(given) if isinstance(given, tuple | list) else (given, given)
        if len(both) != 2 or not all(_is_positive(number) for number in both):
            raise ValueError(
                f"{owner}(tolerance={given!r}): a positive number, such as 1e-4, or two: (on stationarity, on feasibility and "
                "complementarity)"
            )
        return cls(float(both[0]), float(both[1]))

    @property
    def given(self) -> float | tuple[float, float]:
        """One number where both are equal, else both."""
        return self.stationarity if self.stationarity == self.feasibility else (self.stationarity, self.feasibility)

    def __str__(self) -> str:
        if self.stationarity == self.feasibility:
            return f"{self.stationarity:g}"
        return f"{self.stationarity:g} (stationarity) and {self.feasibility:g} (feasibility, complementarity)"


def _is_positive(number: Any) -> bool:
    is_number = isinstance(number, numbers.Real) and not isinstance(number, bool)
    return is_number and 0 < float(number) < math.inf
