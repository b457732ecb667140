"""Tables: named columns over the same rows."""

import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np


class Table(Mapping[str, np.ndarray]):
    """Columns of equal length: `Table(x=features, y=labels)`. `table["x"]` is a column, `table[10:20]` a table of rows.

    A column has one entry per row: a number, a vector, a matrix or a string. Columns cannot be changed.
    """

    def __init__(self, columns: Mapping[str, Any] | None = None, /, **named: Any):
        self._columns: dict[str, np.ndarray] = {}
        for name, values in {**(columns or {}), **named}.items():
            array = np.array(values)
            if array.dtype == object:
                array = _plain(name, array)
            if array.ndim == 0:
                raise ValueError(f"column {name!r} is a single value; a column has one entry per row")
            array.flags.writeable = False
            self._columns[str(name)] = array
        lengths = {name: len(column) for name, column in self._columns.items()}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{name!r} {length}" for name, length in lengths.items())
            raise ValueError(f"the columns of a table have equally many rows, but these have: {told}")
        if not lengths:
            raise ValueError("a table needs at least one column")

    @classmethod
    def from_frame(cls, frame: Any, x: Iterable[str] | None = None) -> "Table":
        """From a pandas frame. `x` lists the frame's columns that together make the matrix column "x"."""
        return cls(_gathered({str(name): frame[name].to_numpy() for name in frame.columns}, x))

    @classmethod
    def read(cls, path: str | pathlib.Path, x: Iterable[str] | None = None) -> "Table":
        """From a .csv (also .csv.gz) or .parquet file, by pandas (`pip install fedpact[frames]`)."""
        path = pathlib.Path(path)
        if not path.exists():
            raise FileNotFoundError(f"there is no file {path}")
        try:
            import pandas
        except ImportError:
            raise ImportError("reading files needs pandas and pyarrow: pip install 'fedpact[frames]'") from None
        suffixes = "".join(path.suffixes[-2:])
        if suffixes.endswith((".csv", ".csv.gz")):
            return cls.from_frame(pandas.read_csv(path), x)
        if suffixes.endswith((".parquet", ".pq")):
            return cls.from_frame(pandas.read_parquet(path), x)
        raise ValueError(f"{path.name}: fp.Table.read knows .csv, .csv.gz and .parquet")

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._columns)

    @property
    def rows(self) -> int:
        return len(next(iter(self._columns.values())))

    def take(self, which: Any) -> "Table":
        """The rows that a slice, an index array or a boolean array selects."""
        return Table({name: column[which] for name, column in self._columns.items()})

    def with_columns(self, **named: Any) -> "Table":
        """A table with these columns added or replaced."""
        return Table({**self._columns, **named})

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return self.take(key if not isinstance(key, int) else [key])
        if key not in self._columns:
            raise KeyError(f"no column {key!r}; there are {', '.join(self._columns)}")
        return self._columns[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return self.rows

    def __repr__(self) -> str:
        told = ", ".join(f"{n} {c.dtype}{list(c.shape[1:]) or ''}" for n, c in self._columns.items())
        return f"Table({self.rows} rows: {told})"


def as_table(thing: Any) -> Table:
    """A table from what users have: a Table, a mapping of columns, a pandas frame, a path."""
    if isinstance(thing, Table):
        return thing
    if isinstance(thing, str | pathlib.Path):
        return Table.read(thing)
    if hasattr(thing, "columns") and hasattr(thing, "to_numpy"):
        return Table.from_frame(thing)
    if isinstance(thing, Mapping):
        return Table(thing)
    raise TypeError(f"a table is a fp.Table, a mapping of columns, a pandas frame or a file, not {type(thing).__name__}")


def _plain(name: str, array: np.ndarray) -> np.ndarray:
    kinds = {type(v) for v in array.ravel().tolist()}
    if kinds <= {str}:
        return array.astype(str)
    if kinds <= {int, float, bool}:
        return array.astype(float)
    raise ValueError(f"column {name!r} mixes {', '.join(sorted(k.__name__ for k in kinds))}; make it numbers or strings")


def _gathered(columns: dict[str, np.ndarray], x: Iterable[str] | None) -> dict[str, np.ndarray]:
    if x is None:
        return columns
    names = list(x)
    missing = [name for name in names if name not in columns]
    if missing:
        raise ValueError(f"no column {missing[0]!r} to gather into 'x'; there are {', '.join(columns)}")
    matrix = np.stack([np.asarray(columns[name], float) for name in names], axis=1)
    return {"x": matrix, **{name: column for name, column in columns.items() if name not in names}}
