"""The history of a run: columns with one entry per round."""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np


class History(Mapping[str, np.ndarray]):
    """The history of a run, a mapping of column names to arrays with one entry per round: `result.history["objective"]`.

    - `round`: 1, 2, …
    - `objective`: in the units of the problem. `violation`, `stationarity`: as the method compares them with its goal, in the
      units that it has learnt (docs/units.md).
    - `exchanges`: messages to all parties and back in this round.
    - `bytes_up`, `bytes_down`: sent by and to all parties in this round, without headers.
    - Further columns depend on the method: for `fp.ProxAL` outer, beta, residual and tau. With several starts there are
      `start` (the best so far, which the line is of, from 1) and `running` (how many starts have not ended) instead.
    - `constraints`, `multipliers` (rounds, parties, scalar constraints) and `party_objective` (rounds, parties), each party's
      part of the objective: where parties disclose them (`fp.solve(disclose=...)`).

    `len(history)` is the number of rounds. `history[name]` raises KeyError for an unknown column.
    """

    def __init__(self, columns: Mapping[str, np.ndarray]):
        self._columns = dict(columns)

    @classmethod
    def empty(cls) -> "History":
        """A history without rounds."""
        return cls({"round": np.zeros(0, int)})

    def extended(self, lines: Any, count: int, rounds: int) -> "History":
        """A history with rounds appended.

        - `lines`: a tree of arrays whose leading axis is rounds; fields name the columns.
        - `count`: how many of these rounds to append, from the first.
        - `rounds`: how many rounds were run before them.

        Raises ValueError where the columns differ from those of the rounds before.
        """
        new = {name: np.asarray(leaf[:count]) for name, leaf in _named(lines)}
        new["round"] = np.arange(rounds + 1, rounds + count + 1)
        if not len(self):
            return History(new)
        odd = sorted(set(self._columns) ^ set(new))
        if odd:
            raise ValueError(f"a part of the run's history has no {', '.join(odd)}; resume with the same disclose=")
        return History({name: np.concatenate([old, new[name]]) for name, old in self._columns.items()})

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self._columns)

    def total(self, column: str) -> int:
        """The sum of a column over all rounds, such as `history.total("bytes_up")`; 0 where it is missing."""
        return int(self._columns[column].sum()) if column in self._columns else 0

    def last(self, column: str) -> float:
        """The entry of a column in the last round; NaN without rounds."""
        return float(self._columns[column][-1]) if len(self) else float("nan")

    def to_frame(self) -> Any:
        """The columns with one number per round as a pandas data frame. Raises ImportError without pandas."""
        import pandas

        return pandas.DataFrame({name: c for name, c in self._columns.items() if c.ndim == 1})

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._columns:
            raise KeyError(f"the history has no column {name!r}; there are {', '.join(self._columns)}")
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns["round"])


def _named(lines: Any) -> list[tuple[str, Any]]:
    """Leaves by the last field of their path: info.disclosed.multipliers is the column multipliers."""
    leaves = jax.tree_util.tree_flatten_with_path(lines)[0]
    return [(str(getattr(path[-1], "name", path[-1])), leaf) for path, leaf in leaves]
