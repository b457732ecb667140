"""A party's part of a promise: which of its rows it sets aside, and what it counts on them. Nothing else leaves it.

The draw is keyed by the seed, the party's name and the rows themselves. So it can be repeated by the party, and by nobody who
does not have its rows.
"""

import dataclasses
import functools
import hashlib
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpact.federation.fingerprint import digest_of_data
from fedpact.federation.rows import title
from fedpact.federation.table import Table
from fedpact.precision import in_double
from fedpact.problem.atoms import Mean
from fedpact.problem.columns import numeric

Range = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class TestedMean:
    """A mean that a promise is about.

    - `mean`: the rows and the function of each.
    - `range`: the least and the largest value that the function may have; None for a decision, which is counted.
    """

    mean: Mean
    range: Range | None

    @property
    def is_rate(self) -> bool:
        return self.range is None

    @property
    def ends(self) -> Range:
        """The least and the largest value that the mean may have."""
        return self.range or (0.0, 1.0)


@dataclasses.dataclass(frozen=True)
class Tally:
    """What a party counts for one mean.

    - `rows`: over how many held-out rows it is taken.
    - `total`: the sum of the function on these; of a rate, how many are decided so.
    - `outside`: on how many of them the function is outside its range.
    """

    rows: int
    total: float = 0.0
    outside: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.rows + other.rows, self.total + other.total, self.outside + other.outside)


def drawn(table: Table, party: str, held_out: float, seed: int) -> tuple[Table, Table]:
    """A party's rows for training, and those that it holds out, each in the table's order.

    - `held_out`: the share of the rows that is held out, rounded to whole rows, at least one, and not all.
    - `seed`: the promise's.

    Raises ValueError where the party has fewer than two rows.
    """
    if table.rows < 2:
        raise ValueError(f"{title(party)} has {table.rows} row; a promise needs two at least, to train and to test")
    count = min(max(round(held_out * table.rows), 1), table.rows - 1)
    words = f"{seed} {party} {digest_of_data({party: table}, None)}"
    key = int.from_bytes(hashlib.sha256(words.encode()).digest())
    out = np.zeros(table.rows, bool)
    out[np.random.default_rng(key).permutation(table.rows)[:count]] = True
    return table.take(~out), table.take(out)


def rows_of(means: Sequence[TestedMean], table: Table) -> tuple[Tally, ...]:
    """Over how many of a party's held-out rows each mean is taken: all that it tells before the test."""
    return tuple(Tally(int(_selected(tested, table).sum())) for tested in means)


@in_double
def counted(
    means: Sequence[TestedMean], party: str, table: Table, params: Any, threshold_shift: float = 0.0
) -> tuple[Tally, ...]:
    """What a party counts on its held-out rows at the candidate's parameters: all that it tells in the test.

    threshold_shift: by which the candidate's threshold of decisions differs from the problem's.

    Raises ValueError where a function gives something else than one finite number a row.
    """
    rows = {name: jnp.asarray(column) for name, column in numeric(table).items()}
    values: dict[Any, np.ndarray] = {}
    tallies = []
    for tested in means:
        mean, rate = tested.mean, tested.mean.rate
        if rate is not None and rate.is_decision:
            mean = mean.with_rate(rate.counted(rate.threshold + threshold_shift))
        function = mean.function
        if function not in values:
            own = jax.tree.map(jnp.asarray, params)
            values[function] = np.asarray(function(own, rows), float)
        chosen = _selected(tested, table)
        if values[function].shape != chosen.shape or not np.isfinite(values[function][chosen]).all():
            raise ValueError(
                f"{tested.mean} does not give one finite number a row on the held-out rows of {title(party)}"
            )
        seen, (least, largest) = values[function][chosen], tested.ends
        outside = int(np.sum((seen < least) | (seen > largest)))
        tallies.append(Tally(len(seen), float(seen.sum()), outside))
    return tuple(tallies)


def with_all(tallies: Mapping[str, tuple[Tally, ...]]) -> dict[str | None, tuple[Tally, ...]]:
    """The parties' tallies, and for None their sums, in the parties' order."""
    together = tuple(functools.reduce(operator.add, own) for own in zip(*tallies.values(), strict=True))
    return {**tallies, None: together}


def _selected(tested: TestedMean, table: Table) -> np.ndarray:
    where = tested.mean.where
    return np.ones(table.rows, bool) if where is None else np.asarray(where(table), bool)
