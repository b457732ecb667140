"""Tables: named columns of equal length."""

import abc
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fedpact.federation.frame_files import column_names, frame_column, read_frame
from fedpact.federation.frames import columns_of, is_frame, is_missing
from fedpact.problem.columns import kind

INPUTS = "x"  # the matrix of features


class Table(Mapping[str, np.ndarray]):
    """An immutable table of named columns of equal length, as numpy arrays.

    - `columns`: a mapping of names to columns (default: none).
    - `named`: further columns by keyword: `fp.Table(x=features, y=labels)`.

    A column has one entry per row: a number, an array of numbers such as (rows, features), or a string; a matrix may be a data
    frame, whose names are kept for the column "x", or a sparse matrix of scipy, which is made dense. `table["x"]` is a
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
        self._features: tuple[str, ...] | None = None
        self._readable: Mapping[str, int] = {}
        self._recipe: Any = None
        if is_frame(stated.get(INPUTS)):
            self._name_features(tuple(columns_of(stated[INPUTS])), ())

    @classmethod
    def of_arrays(cls, columns: Mapping[str, np.ndarray]) -> "Table":
        """A table of arrays as they are, which nobody writes: nothing is copied or checked."""
        table = cls({name: array[:0] for name, array in columns.items()})
        table._columns, table._rows = dict(columns), len(next(iter(columns.values())))
        return table

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        x: Iterable[str] | None = None,
        *,
        columns: Iterable[str] | None = None,
        na_values: Any = None,
        dtype: Any = None,
    ) -> "Table":
        """A table from a data frame.

        - `frame`: of pandas, polars or Arrow; its columns become the columns of the table.
        - `x`: names of numeric columns to be stacked into one matrix column "x" (rows, len(x)) (default: none). They are the
          table's `features`, and masks and groups can still read them by name: `fp.col("age") > 60`.
        - `columns`: which other columns are wanted (default: all).
        - `na_values`: values that mean that nothing is known, such as "?" or -9; or a mapping of columns to such values. Numbers
          become NaN there; strings cannot be missing in a table: prepare such columns with `fp.Recipe` (default: none).
        - `dtype`: "float", "int", "bool" or "str" for all columns, or a mapping of columns to these (default: as they are).
          What would lose something is refused: of "bool" all but true, yes, 1, false, no, 0; of "int" fractions.

        Raises TypeError for anything but a data frame, and ValueError where a column of `x` is missing or not numeric, or
        another one cannot be a column of a table, with its name.
        """
        if not is_frame(frame):
            raise TypeError(
                f"fp.Table.from_frame takes a data frame of pandas, polars or Arrow, not {type(frame).__name__}"
            )
        every = columns_of(frame)
        marks, types = (option if isinstance(option, Mapping) else None for option in (na_values, dtype))
        for option, by_name in (("na_values", marks), ("dtype", types)):
            unknown = [name for name in by_name or () if name not in every]
            if unknown:
                raise ValueError(f"{option}= names {unknown[0]!r}, and the columns are {', '.join(every)}")
        gathered = None if x is None else column_names("x", x)
        if columns is not None:
            wanted = [*(gathered or []), *column_names("columns", columns)]
            missing = [name for name in wanted if name not in every]
            if missing:
                raise ValueError(f"no column {missing[0]!r} in the frame; there are {', '.join(every)}")
            every = {name: column for name, column in every.items() if name in wanted}
        plain = {
            name: frame_column(
                every,
                name,
                na_values if marks is None else marks.get(name),
                dtype if types is None else types.get(name),
            )
            for name in every
        }
        table = cls(_gathered(plain, gathered))
        return table if gathered is None else table.with_features(gathered, readable=gathered)

    @classmethod
    def read(
        cls,
        path: str | pathlib.Path,
        x: Iterable[str] | None = None,
        *,
        columns: Iterable[str] | None = None,
        na_values: Any = None,
        dtype: Any = None,
    ) -> "Table":
        """A table from a file, read by pandas (the extra `frames`).

        - `path`: a .csv, .csv.gz, .parquet or .pq file.
        - `x`, `columns`, `na_values`, `dtype`: as in `from_frame`. Only the columns that are wanted are read.

        Raises FileNotFoundError, ImportError without pandas, and ValueError where the file cannot be read as a table.

            table = fp.Table.read("patients.csv", x=["age", "weight"], columns=["sex", "died"], na_values="?")
        """
        names = None
        if columns is not None:
            names = sorted({*column_names("columns", columns), *(column_names("x", x) if x is not None else ())})
        frame = read_frame(path, names, na_values, dtype)
        return cls.from_frame(frame, x, columns=columns, na_values=na_values, dtype=dtype)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(self._columns)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self._rows

    @property
    def features(self) -> tuple[str, ...] | None:
        """The names of the columns of the matrix "x", in order; None where they are not known."""
        return self._features

    @property
    def recipe(self) -> Any:
        """What made the matrix "x" of raw columns, an `fp.AgreedRecipe`; None where `fp.prepare` did not make it."""
        return self._recipe

    def prepared_by(self, recipe: Any) -> "Table":
        """The same table, with the recipe that made it of raw columns."""
        table = self._of(self._columns, self._rows)
        table._recipe = recipe
        return table

    def with_features(self, names: Iterable[str], readable: Iterable[str] = ()) -> "Table":
        """The same table with names for the columns of its matrix "x".

        - `names`: one for each, in order.
        - `readable`: those that masks and groups may read by name, `fp.col("age")`, since they hold the raw values (default:
          none).

        Raises ValueError where there is no such matrix, or it has another width.
        """
        table = self._of(self._columns, self._rows)
        table._name_features(tuple(map(str, names)), tuple(readable))
        return table

    def _name_features(self, names: tuple[str, ...], readable: tuple[str, ...]) -> None:
        shape = self._columns[INPUTS].shape[1:] if INPUTS in self._columns else ()
        if shape != (len(names),) or len(set(names)) < len(names):
            raise ValueError(
                f"with_features: {len(names)} names, each once, for the columns of the matrix 'x', which has "
                f"{'x'.join(map(str, shape)) if shape else 'none'}"
            )
        self._features = names
        places = {name: place for place, name in enumerate(names)}
        self._readable = {name: places[name] for name in readable if name not in self._columns}

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
        rows = {name: column[chosen] for name, column in self._columns.items()}
        for column in rows.values():
            column.flags.writeable = False
        return self._of(rows, len(chosen))

    def cut(self, sizes: Sequence[int]) -> list["Table"]:
        """Consecutive tables of these numbers of rows, without copying them."""
        ends = np.cumsum(sizes).tolist()
        return [
            self._of({name: column[end - size : end] for name, column in self._columns.items()}, size)
            for size, end in zip(sizes, ends, strict=True)
        ]

    def _of(self, columns: dict[str, np.ndarray], rows: int) -> "Table":
        """A table of columns that come from this one."""
        table = type(self).__new__(type(self))
        table._columns, table._rows = columns, rows
        table._features, table._readable, table._recipe = self._features, self._readable, self._recipe
        return table

    def with_columns(self, **named: Any) -> "Table":
        """A table with these columns added or replaced: `table.with_columns(y=labels)`."""
        table = Table({**self._columns, **named})
        if INPUTS not in named and self._features is not None:
            table._name_features(self._features, tuple(self._readable))
            table._recipe = self._recipe
        return table

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return self.take(key)
        if key in self._columns:
            return self._columns[key]
        if key in self._readable:
            return self._columns[INPUTS][:, self._readable[key]]
        if key in (self._features or ()):
            raise KeyError(
                f"{key!r} is a prepared feature in 'x'; to read its raw values, name it in the recipe's keep="
            )
        raise KeyError(f"no column {key!r}; there are {', '.join(self._columns)}")

    def __contains__(self, name: object) -> bool:
        return name in self._columns or name in self._readable

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return self.rows

    def __repr__(self) -> str:
        kinds = ", ".join(f"{n} {c.dtype}{list(c.shape[1:]) or ''}" for n, c in self._columns.items())
        return f"Table({self.rows} rows: {kinds})"


class TablesByParty(Mapping[str, Table]):
    """An ordered mapping of party names to tables."""

    recipe: Any = None  # how they were made of raw frames, if `fp.prepare` made them

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
    """A table from a Table, a mapping of columns, a data frame of pandas, polars or Arrow, or the path of a file."""
    if isinstance(thing, Table):
        return thing
    if isinstance(thing, str | pathlib.Path):
        return Table.read(thing)
    if is_frame(thing):
        return Table.from_frame(thing)
    if isinstance(thing, Mapping):
        return Table(thing)
    raise TypeError(f"a table is a fp.Table, a mapping of columns, a data frame or a file, not {type(thing).__name__}")


def _plain(name: str, values: Any) -> np.ndarray:
    """A column as an array of numbers or strings with one entry per row."""
    if isinstance(values, Mapping):
        raise ValueError(f"column {name!r} is a {type(values).__name__}; a column is an array with one entry per row")
    if is_frame(values):
        values = np.stack([_number_column(values, each) for each in columns_of(values)], axis=1)
    elif hasattr(values, "toarray") and hasattr(values, "nnz"):  # a sparse matrix of scipy
        values = values.toarray()
    try:
        array = np.array(values)
    except ValueError as error:
        raise ValueError(f"column {name!r} is not an array: {error}") from None
    if array.dtype.kind == "U" and not isinstance(values, np.ndarray):
        array = np.array(values, object)  # numpy would convert the numbers of a mixed list to strings
    if array.dtype == object:
        entries = array.ravel().tolist()
        gaps = sum(map(is_missing, entries))
        if gaps and not all(isinstance(v, float) or type(v) is int for v in entries):
            raise ValueError(
                f"column {name!r} has {gaps} missing entries (None, NaN or NA) in {len(entries)}; fill them, leave these rows "
                "out, or prepare the column with fp.Recipe"
            )
        kinds = {type(v.item() if isinstance(v, np.generic) else v) for v in entries}
        if not (kinds <= {str} or kinds <= {int, float, bool}):
            type_names = ", ".join(sorted(k.__name__ for k in kinds))
            raise ValueError(f"column {name!r} holds {type_names}; make it numbers or strings, with no entry missing")
        array = array.astype(str if kinds <= {str} else float)
    if array.ndim == 0:
        raise ValueError(f"column {name!r} is a single value; a column has one entry per row")
    return array


def _number_column(frame: Any, name: str) -> np.ndarray:
    column = frame_column(columns_of(frame), name)
    if column.dtype.kind not in "biuf":
        raise ValueError(f"column {name!r} holds {kind(column)}, which cannot be a part of a matrix")
    return np.asarray(column, float)


def _gathered(columns: dict[str, np.ndarray], names: list[str] | None) -> dict[str, np.ndarray]:
    if names is None:
        return columns
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
            raise ValueError(
                f"column {name!r} holds {kind(part)}, which cannot be stacked into the matrix 'x'; see fp.Recipe"
            )
    matrix = np.stack([np.asarray(part, float) for part in parts.values()], axis=1)
    return {"x": matrix, **{name: column for name, column in columns.items() if name not in names}}
