"""What a holder tells about its table before the first round of a deployed run: no value of a row, but which groups there are."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedpact.federation.table import INPUTS, Table
from fedpact.problem.nonsmooth import Tag

LARGEST = (
    1 << 32
)  # bytes of a table that somebody may describe, which are not set aside for it but where tables are read whole


@dataclasses.dataclass(frozen=True)
class Description:
    """A table without its values. With the descriptions of all, every site can trace the same method on the same shapes.

    - `columns`: by name, the dtype and the shape of one entry, of those that are read.
    - `totals`: by the rows that a mean is over (`Atom.rows_in_words`), how many of them there are, or the sum of their weights.
    - `groups`: by name, the values of columns whose groups a gap compares, all of them, where the problem does not choose some.
    - `features`: the names of the columns of the matrix "x", where it is read and they are known.
    - `labels`: at an active holder of columns, the columns that are no features.
    - `ids`: a digest of the column that names the rows.
    """

    rows: int
    columns: Mapping[str, tuple[str, tuple[int, ...]]]
    totals: Mapping[str, float] = dataclasses.field(default_factory=dict)
    groups: Mapping[str, tuple[Tag, ...]] = dataclasses.field(default_factory=dict)
    labels: tuple[str, ...] = ()
    ids: str = ""
    features: tuple[str, ...] | None = None

    @classmethod
    def of(cls, table: Table, names: Sequence[str], **more: Any) -> "Description":
        columns = {name: (str(table[name].dtype), tuple(table[name].shape[1:])) for name in names}
        features = table.features if INPUTS in columns else None
        return cls(table.rows, columns, features=features, **more)

    def as_words(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def read(cls, words: Any) -> "Description":
        """From what came in a message; raises ValueError where it is none."""
        try:
            columns = {str(n): (str(np.dtype(d)), tuple(map(int, shape))) for n, (d, shape) in words["columns"].items()}
            totals = {str(rows): _number(total) for rows, total in words["totals"].items()}
            groups = {str(name): tuple(map(_tag, values)) for name, values in words["groups"].items()}
            labels = tuple(map(str, words["labels"]))
            features = None if words["features"] is None else tuple(map(str, words["features"]))
            if features is not None and columns[INPUTS][1] != (len(features),):
                raise ValueError("another number of names than features")
            description = cls(int(words["rows"]), columns, totals, groups, labels, str(words["ids"]), features)
            sizes = [np.dtype(dtype).itemsize * math.prod(shape) for dtype, shape in columns.values()]
            rows = description.rows
            if rows < 0 or min(totals.values(), default=0) < 0 or min(sizes, default=0) < 0:
                raise ValueError("numbers of rows that cannot be")
            if rows * sum(sizes) > LARGEST:
                raise ValueError(f"more than {LARGEST} bytes")
            return description
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise ValueError(f"that is no description of a table: {error!r}") from None

    def zeros_to_read(self, name: str) -> np.ndarray:
        """A column of zeros that takes the room of one number, whatever somebody describes."""
        dtype, shape = self.columns[name]
        return np.broadcast_to(np.zeros((), dtype), (self.rows, *shape))

    def zeros(self, rows: int | None = None) -> Table:
        """A table of this kind, filled with zeros (default: of as many rows)."""
        count = self.rows if rows is None else rows
        table = Table({name: np.zeros((count, *shape), dtype) for name, (dtype, shape) in self.columns.items()})
        return table if self.features is None else table.with_features(self.features)


def _number(thing: Any) -> float:
    if isinstance(thing, bool) or not isinstance(thing, int | float) or not math.isfinite(thing):
        raise ValueError(f"{thing!r} is no number of rows")
    return thing


def _tag(thing: Any) -> Tag:
    return thing if isinstance(thing, str) else _number(thing)
