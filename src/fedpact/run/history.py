"""The history of a run: one line per round, as columns."""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np


class History(Mapping[str, np.ndarray]):
    """Columns with one entry per round: round, objective, violation, stationarity, exchanges, bytes_up, bytes_down (both
    summed over parties), and what the method adds: for ProxAL outer, beta, residual, tau, and, where the parties agreed to
    tell, constraints and multipliers (rounds, parties, scalar constraints)."""

    def __init__(self, columns: Mapping[str, np.ndarray]):
        self._columns = dict(columns)

    @classmethod
    def empty(cls) -> "History":
        return cls({"round": np.zeros(0, int)})

    def extended(self, lines: Any, count: int, rounds: int) -> "History":
        """With the first `count` of these lines appended, after `rounds` rounds."""
        new = {name: np.asarray(leaf[:count]) for name, leaf in _named(lines)}
        new["round"] = np.arange(rounds + 1, rounds + count + 1)
        if not len(self):
            return History(new)
        odd = sorted(set(self._columns) ^ set(new))
        if odd:
            raise ValueError(f"only a part of the run's history has {', '.join(odd)}; go on with the same disclose=")
        return History({name: np.concatenate([old, new[name]]) for name, old in self._columns.items()})

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._columns)

    def total(self, column: str) -> int:
        return int(self._columns[column].sum()) if column in self._columns else 0

    def last(self, column: str) -> float:
        return float(self._columns[column][-1]) if len(self) else float("nan")

    def to_frame(self) -> Any:
        """The one-number-per-round columns as a pandas frame."""
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
    """Leaves by their own field name: info.told.multipliers is the column multipliers."""
    leaves = jax.tree_util.tree_flatten_with_path(lines)[0]
    return [(str(getattr(path[-1], "name", path[-1])), leaf) for path, leaf in leaves]
