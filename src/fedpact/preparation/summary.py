"""What has to be known about a column, and what is known about it over all parties."""

import dataclasses
import math
import warnings
from collections.abc import Mapping
from typing import Literal

import numpy as np

from fedpact.federation.frames import Tag


@dataclasses.dataclass(frozen=True)
class Ask:
    """What every party tells about one column; of any column, also its kind and how many values are missing.

    - `total`: the sum of its values. `squares`: the sum of squares about the mean of all parties.
    - `extremes`: its least and greatest value.
    - `cells`: how many a histogram of it has (default 0: no histogram). `within`: from where to where, if it is stated.
    - `categories`: which values there are; or "declared": those that a pandas column declares, whether rows have them or not.
    - `counts`: in how many rows each of all parties' categories is.
    - `ordered`: in which order an ordered pandas column declares its categories.
    """

    column: str
    total: bool = False
    squares: bool = False
    extremes: bool = False
    cells: int = 0
    within: tuple[float, float] | None = None
    categories: Literal["none", "all", "unless numbers", "declared"] = "none"
    counts: bool = False
    ordered: bool = False

    @property
    def of_numbers(self) -> bool:
        return self.total or self.extremes or self.cells > 0

    @property
    def asks_twice(self) -> bool:
        """Whether something is asked that needs the answers of all parties first."""
        return self.squares or self.cells > 0 or self.categories == "all" or self.counts

    def tells_categories(self, kind: str) -> bool:
        """Whether a party tells the values of a column of this kind."""
        unless = self.categories == "unless numbers" and kind in ("strings", "booleans")
        return self.categories in ("all", "declared") or unless


@dataclasses.dataclass(frozen=True)
class Summary:
    """One column over all parties.

    - `rows`: of all parties, `missing` of which have no value.
    - `mean`: of the values; `squares`: the sum of (value − mean)².
    - `least`, `greatest`: of the values, or the stated range.
    - `histogram`: counts of values in equal cells from `least` to `greatest`.
    - `categories`: of all parties. `counts`: the rows of each, if asked for. `others`: parties with values that they did not
      tell.
    """

    ask: Ask
    kind: str
    rows: int
    missing: int
    mean: float = math.nan
    squares: float = math.nan
    least: float = math.nan
    greatest: float = math.nan
    histogram: np.ndarray | None = None
    categories: tuple[Tag, ...] = ()
    counts: Mapping[Tag, int] = dataclasses.field(default_factory=dict)
    others: int = 0

    @property
    def count(self) -> int:
        """Values that are there."""
        return self.rows - self.missing

    def check_some(self) -> None:
        """Raise ValueError where no party has a value."""
        if not self.count:
            raise ValueError(f"column {self.ask.column!r}: no party has a value, so there is nothing to agree on")

    def filled_with(self, fill: float | None) -> tuple[float, float]:
        """Mean and standard deviation (1 for a constant column) with a number in place of missing values."""
        self.check_some()
        missing = 0 if fill is None else self.missing
        rows = self.count + missing
        value = self.mean if fill is None else fill
        mean = self.mean + missing / rows * (value - self.mean)
        squares = self.squares + self.count * (self.mean - mean) ** 2 + missing * (value - mean) ** 2
        variance, rounding = squares / rows, np.finfo(float).eps
        constant = variance <= rows * rounding * variance + (rows * mean * rounding) ** 2
        return mean, 1.0 if constant else math.sqrt(variance)

    def ends(self, fill: float | None) -> tuple[float, float]:
        """Least and greatest value, with a number in place of missing ones."""
        if self.ask.within is not None:
            return self.ask.within
        self.check_some()
        if fill is None or not self.missing:
            return self.least, self.greatest
        return min(self.least, fill), max(self.greatest, fill)

    @property
    def cell(self) -> float:
        """The width of a cell of the histogram."""
        assert self.histogram is not None
        return (self.greatest - self.least) / len(self.histogram)

    def quantile(self, share: float, fill: float | None = None) -> float:
        """Of the values, with a number in place of missing ones, as `numpy.quantile` defines it, within half the width of a cell;
        without that number, of the values that are there."""
        self.check_some()
        missing = 0 if fill is None else self.missing
        below = 0 if fill is None else self._below(fill)
        place = (self.count + missing - 1) * share

        def at(rank: int) -> float:
            if fill is not None and below <= rank < below + missing:
                return fill
            return self._at(rank if rank < below else rank - missing)

        low, high = at(math.floor(place)), at(math.ceil(place))
        return low + (place - math.floor(place)) * (high - low)

    def _below(self, number: float) -> int:
        """How many values are below a number, by the middles of their cells."""
        assert self.histogram is not None
        if number <= self.least:
            return 0
        if number > self.greatest:
            return self.count
        return int(self.histogram[: math.ceil((number - self.least) / self.cell - 0.5)].sum())

    def _at(self, rank: int) -> float:
        """About the value that stands at this place, from 0 on, when all are sorted: the middle of its cell."""
        assert self.histogram is not None
        if self.ask.within is None and rank in (0, self.count - 1):
            return self.least if rank == 0 else self.greatest
        return self.least + (self._cell_of(rank) + 0.5) * self.cell

    def _cell_of(self, rank: int) -> int:
        assert self.histogram is not None
        return int(np.searchsorted(np.cumsum(self.histogram), rank, side="right"))

    def check_cells(self) -> None:
        """Warn where the cells are too wide to tell a median or a quantile: half of the values share one."""
        self.check_some()
        assert self.histogram is not None
        quarters = self._cell_of((self.count - 1) // 4), self._cell_of(math.ceil((self.count - 1) * 0.75))
        if self.cell > 0 and quarters[0] == quarters[1]:
            warnings.warn(
                f"column {self.ask.column!r}: half of the values lie in one of the {len(self.histogram):,} cells of the "
                f"histogram from {self.least:.6g} to {self.greatest:.6g}, so its median or quantiles are known to ± "
                f"{self.cell / 2:.3g} only; state the range of most values, within=(low, high), or take more cells=",
                UserWarning,
                stacklevel=2,
            )
