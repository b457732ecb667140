"""Tables: named columns of equal length."""

import abc
import pathlib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fedpact.extras import install
from fedpact.problem.columns import kind


class Table(Mapping[str, np.ndarray]):
    """An immutable table of named columns of equal length, as numpy arrays.

    - `columns`: a mapping of names to columns (default: none).
    - `named`: further columns by keyword: `fp.Table(x=features, y=labels)`.

    A column has one entry per row: a number, an array of numbers such as (rows, features), or a string. `table["x"]` is a
    column, `table[10:20]` or `table[mask]` a table of rows, `len(table)` the number of rows.

    Raises ValueError where lengths differ, two columns have the same name, or a column mixes types or has missing entries.
    """

    def __init__(self, columns: Mapping[str, Any] | None = None, /, **named: Any):
        self._columns: dict[str, np.ndarray] = {}
        if columns is not None and not isinstance(columns, Mapping):
            raise TypeError(
                f"fp.Table takes a mapping of columns, or columns by name: Table(x=..., y=...), not {columns!r}"
            )
        stated = {**(columns or {}), **named}
        if len({str(name) for name in stated}) < len(stated):
            raise ValueError(f"two columns of the table have the same name: {', '.join(map(repr, stated))}")
        for name, values in stated.items():
            array = _plain(name, values)
            array.flags.writeable = False
            self._columns[str(name)] = array
        lengths = {name: len(column) for name, column in self._columns.items()}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{name!r} {length}" for name, length in lengths.items())
            raise ValueError(f"the columns of a table must have the same number of rows, but these have: {counts}")
        if not lengths:
            raise ValueError("a table needs at least one column")
        self._rows = next(iter(lengths.values()))

    @classmethod
    def from_frame(cls, frame: Any, x: Iterable[str] | None = None) -> "Table":
        """A table from a pandas data frame.

        - `frame`: its columns become the columns of the table.
        - `x`: names of numeric columns to be stacked into one matrix column "x" (rows, len(x)) (default: none).

        Raises TypeError for anything but a data frame, and ValueError where a column of `x` is missing or not numeric.
        """
        if not is_frame(frame):
            raise TypeError(f"fp.Table.from_frame takes a pandas frame, not {type(frame).__name__}")
        names = [str(name) for name in frame.columns]
        if len(set(names)) < len(names):
            raise ValueError(f"two columns of the frame have the same name: {', '.join(names)}")
        return cls(_gathered({str(name): frame[name].to_numpy() for name in frame.columns}, x))

    @classmethod
    def read(cls, path: str | pathlib.Path, x: Iterable[str] | None = None) -> "Table":
        """A table from a file, read by pandas (the extra `frames`).

        - `path`: a .csv, .csv.gz, .parquet or .pq file.
        - `x`: names of numeric columns to be stacked into one matrix column "x" (rows, len(x)) (default: none).

        Raises FileNotFoundError, ImportError without pandas, and ValueError where the file cannot be read as a table.

            table = fp.Table.read("patients.csv", x=["age", "weight"])
        """
        path = pathlib.Path(path)
        if not path.exists():
            raise FileNotFoundError(f"there is no file {path}")
        try:
            import pandas
        except ImportError:
            raise ImportError(f"reading files needs pandas and pyarrow: {install('frames')}") from None
        if not path.name.lower().endswith((".csv", ".csv.gz", ".parquet", ".pq")):
            raise ValueError(f"{path.name}: fp.Table.read knows .csv, .csv.gz and .parquet")
        reader = pandas.read_parquet if path.suffix.lower() in (".parquet", ".pq") else pandas.read_csv
        try:
            frame = reader(path)
        except (ValueError, OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path} cannot be read: {error}") from error
        return cls.from_frame(frame, x)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(self._columns)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self._rows

    def take(self, which: Any) -> "Table":
        """A table of selected rows; `table[which]` is the same.

        - `which`: a slice, an array of row indices, or a boolean array (rows,).

        Raises IndexError where an index is out of range or `which` has another form.
        """
        try:
            chosen = np.atleast_1d(np.arange(self.rows)[which])
        except IndexError as error:
            raise IndexError(f"rows are chosen by a slice, by places or by one boolean per row: {error}") from None
        if chosen.ndim > 1:
            raise IndexError(f"rows are chosen by a slice, by places or by one boolean per row, not by {which!r}")
        return Table({name: column[chosen] for name, column in self._columns.items()})

    def cut(self, sizes: Sequence[int]) -> list["Table"]:
        """Consecutive tables of these numbers of rows, without copying them."""
        ends = np.cumsum(sizes).tolist()
        return [
            self._of({name: column[end - size : end] for name, column in self._columns.items()}, size)
            for size, end in zip(sizes, ends, strict=True)
        ]

    @classmethod
    def _of(cls, columns: dict[str, np.ndarray], rows: int) -> "Table":
        """A table of columns that come from one."""
        table = cls.__new__(cls)
        table._columns, table._rows = columns, rows
        return table

    def with_columns(self, **named: Any) -> "Table":
        """A table with these columns added or replaced: `table.with_columns(y=labels)`."""
        return Table({**self._columns, **named})

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return self.take(key)
        if key not in self._columns:
            raise KeyError(f"no column {key!r}; there are {', '.join(self._columns)}")
        return self._columns[key]

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return self.rows

    def __repr__(self) -> str:
        kinds = ", ".join(f"{n} {c.dtype}{list(c.shape[1:]) or ''}" for n, c in self._columns.items())
        return f"Table({self.rows} rows: {kinds})"


class TablesByParty(Mapping[str, Table]):
    """An ordered mapping of party names to tables."""

    def __init__(self, tables: Mapping[str, Table]):
        self._tables = dict(tables)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parties, in order."""
        return tuple(self._tables)

    def __getitem__(self, name: str) -> Table:
        if name not in self._tables:
            raise KeyError(f"no party {name!r}; there are {', '.join(self._tables)}")
        return self._tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    @abc.abstractmethod
    def __repr__(self) -> str:
        """The number of parties, and the rows or features of each."""


def as_table(thing: Any) -> Table:
    """A table from a Table, a mapping of columns, a pandas data frame or the path of a file."""
    if isinstance(thing, Table):
        return thing
    if isinstance(thing, str | pathlib.Path):
        return Table.read(thing)
    if is_frame(thing):
        return Table.from_frame(thing)
    if isinstance(thing, Mapping):
        return Table(thing)
    raise TypeError(
        f"a table is a fp.Table, a mapping of columns, a pandas frame or a file, not {type(thing).__name__}"
    )


def is_frame(thing: Any) -> bool:
    return hasattr(thing, "columns") and hasattr(thing, "to_numpy")


def _plain(name: str, values: Any) -> np.ndarray:
    """A column as an array of numbers or strings with one entry per row."""
    if isinstance(values, Mapping):
        raise ValueError(f"column {name!r} is a {type(values).__name__}; a column is an array with one entry per row")
    try:
        array = np.array(values)
    except ValueError as error:
        raise ValueError(f"column {name!r} is not an array: {error}") from None
    if array.dtype.kind == "U" and not isinstance(values, np.ndarray):
        array = np.array(values, object)  # numpy would convert the numbers of a mixed list to strings
    if array.dtype == object:
        kinds = {type(v.item() if isinstance(v, np.generic) else v) for v in array.ravel().tolist()}
        if not (kinds <= {str} or kinds <= {int, float, bool}):
            type_names = ", ".join(sorted(k.__name__ for k in kinds))
            raise ValueError(f"column {name!r} holds {type_names}; make it numbers or strings, with no entry missing")
        array = array.astype(str if kinds <= {str} else float)
    if array.ndim == 0:
        raise ValueError(f"column {name!r} is a single value; a column has one entry per row")
    return array


def _gathered(columns: dict[str, np.ndarray], x: Iterable[str] | None) -> dict[str, np.ndarray]:
    if x is None:
        return columns
    names = [x] if isinstance(x, str) else list(x) if isinstance(x, Iterable) else [x]
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"x= lists the names of the columns that make the matrix 'x', not {x!r}")
    missing = [name for name in names if name not in columns]
    if missing:
        raise ValueError(f"no column {missing[0]!r} to stack into 'x'; there are {', '.join(columns)}")
    if not names or ("x" in columns and "x" not in names):
        raise ValueError(
            "x= lists the columns that make the matrix 'x': at least one, and the column 'x' if there is one"
        )
    parts = {name: _plain(name, columns[name]) for name in names}
    for name, part in parts.items():
        if part.dtype.kind not in "biuf":
            raise ValueError(f"column {name!r} holds {kind(part)}, which cannot be stacked into the matrix 'x'")
    matrix = np.stack([np.asarray(part, float) for part in parts.values()], axis=1)
    return {"x": matrix, **{name: column for name, column in columns.items() if name not in names}}
