"""Columns of data frames: pandas, anything with the Arrow interface (polars, pyarrow), and mappings of columns."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedpact.extras import install

Tag = str | int | float | bool
KINDS = {"b": "booleans", "i": "numbers", "u": "numbers", "f": "numbers", "U": "strings"}


@dataclasses.dataclass(frozen=True)
class RawColumn:
    """One column of a frame as it is, with places that may be missing.

    - `name`: of the column. `owner`: whose it is, in words for errors ("party 'north'", "the rows").
    - `values`: numbers, booleans or strings, (rows,); what stands at missing places means nothing.
    - `missing`: where nothing is known: None, NaN, or what the frame's library has for it.
    - `declared`: the categories that a pandas column declares, whether rows have them or not (default None: none).
    - `ordered`: whether it declares them in order (default False).
    """

    name: str
    owner: str
    values: np.ndarray
    missing: np.ndarray
    declared: tuple[Tag, ...] | None = None
    ordered: bool = False

    @property
    def title(self) -> str:
        return f"column {self.name!r} of {self.owner}"

    @property
    def kind(self) -> str:
        """ "numbers", "booleans", "strings", or "nothing" where all places are missing."""
        return "nothing" if self.missing.all() else KINDS[self.values.dtype.kind]

    @property
    def missing_count(self) -> int:
        return int(self.missing.sum())

    def present(self) -> np.ndarray:
        """The values that are there."""
        return self.values[~self.missing]

    def numbers(self) -> np.ndarray:
        """The values as float64, NaN where missing. Raises ValueError where they are strings or infinite."""
        if self.kind == "strings":
            raise ValueError(f"{self.title} holds strings where numbers are wanted; see fp.one_hot and fp.ordinal")
        numbers = np.full(len(self.values), np.nan)
        numbers[~self.missing] = self.present()
        if np.isinf(numbers).any():
            raise ValueError(f"{self.title} holds {int(np.isinf(numbers).sum())} infinite values")
        return numbers

    def tags(self) -> list[Tag]:
        """The values that are there as Python's own; whole numbers are integers, however they are stored."""
        present = self.present()
        if present.dtype.kind == "f" and np.all((present == np.round(present)) & (np.abs(present) < 2**53)):
            present = present.astype(np.int64)
        return present.tolist()


def is_pandas(thing: Any) -> bool:
    return hasattr(thing, "iloc") and hasattr(thing, "columns")


def is_frame(thing: Any) -> bool:
    """Whether this is a data frame of pandas, or of a library with the Arrow interface, such as polars."""
    return is_pandas(thing) or (hasattr(thing, "__arrow_c_stream__") and hasattr(thing, "columns"))


def columns_of(frame: Any, owner: str | None = None) -> dict[str, Any]:
    """The columns of a frame or mapping by name, in order.

    - `owner`: whose it is, in words for errors (default None: nobody is named).

    Raises TypeError for anything else, ValueError where two names are equal or a mapping's columns differ in length, and
    ImportError where a frame needs pyarrow.
    """
    whose = "" if owner is None else f"{owner}: "
    if is_pandas(frame):
        names = list(frame.columns)
        columns = [frame.iloc[:, place] for place in range(len(names))]
    elif is_frame(frame):
        table = _arrow(frame)
        names, columns = table.column_names, table.columns
    elif isinstance(frame, Mapping):
        names, columns = list(frame), [frame[name] for name in frame]
    else:
        lazy = "; .collect() makes one of it" if hasattr(frame, "collect") else ""
        raise TypeError(
            f"{whose}a data frame of pandas, polars or Arrow, or a mapping of columns is wanted, not "
            f"{type(frame).__name__}{lazy}"
        )
    if len(set(map(str, names))) < len(names):
        raise ValueError(f"{whose}two columns of the frame have the same name: {', '.join(map(str, names))}")
    lengths = {str(n): len(column) for n, column in zip(names, columns, strict=True) if hasattr(column, "__len__")}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name!r} {length}" for name, length in lengths.items())
        raise ValueError(f"{whose}the columns have different numbers of rows: {counts}")
    return dict(zip(map(str, names), columns, strict=True))


def rows_of(frame: Any, places: np.ndarray) -> Any:
    """Some rows of a frame or mapping of columns, by their places."""
    if is_pandas(frame):
        return frame.iloc[places]
    return {name: _array(column)[places] for name, column in columns_of(frame).items()}


def read_column(columns: Mapping[str, Any], name: str, owner: str = "the rows") -> RawColumn:
    """One column of what `columns_of` gives. Raises ValueError where it is not there, or holds something else than numbers,
    booleans or strings."""
    if name not in columns:
        raise ValueError(f"column {name!r} of {owner} is missing: there are {', '.join(columns) or 'none'}")
    kind: Any = getattr(columns[name], "dtype", None)
    declared = tuple(kind.categories.tolist()) if hasattr(kind, "categories") and hasattr(kind, "ordered") else None
    values, missing = _plain(_array(columns[name]), name, owner)
    return RawColumn(name, owner, values, missing, declared, declared is not None and bool(kind.ordered))


YES_OR_NO = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def converted(values: np.ndarray, dtype: Any) -> np.ndarray:
    """Values as another type, "float", "int", "bool" or "str", where that loses nothing.

    Strings are True or False where they are one of true, yes, 1, false, no and 0, in upper or lower case; numbers where they are
    1 or 0. Raises TypeError or ValueError where a value has no place in the type.
    """
    kind = np.dtype(str) if dtype == "str" else np.dtype(dtype)
    if kind.kind == "b" and values.dtype.kind != "b":
        words = [str(int(v) if isinstance(v, float) and v == int(v) else v).strip().lower() for v in values.tolist()]
        odd = [word for word in words if word not in YES_OR_NO]
        if odd:
            raise ValueError(f"{odd[0]!r} is neither true nor false; these are true, yes, 1 and false, no, 0")
        return np.array([YES_OR_NO[word] for word in words], bool)
    if kind.kind in "iu" and values.dtype.kind == "f" and not (values == np.round(values)).all():
        raise ValueError(f"{values[values != np.round(values)][0]} is no whole number")
    return values.astype(str if kind.kind == "U" else kind)


def _array(column: Any) -> np.ndarray:
    """A column of `columns_of` as an array, of objects where values may be missing that are no numbers."""
    if hasattr(column, "iloc"):  # a pandas series
        plain = isinstance(column.dtype, np.dtype)
        return column.to_numpy() if plain else column.astype(object).where(column.notna(), None).to_numpy()
    if type(column).__module__.startswith("pyarrow"):
        categories = hasattr(column.type, "value_type")  # which not every version of Arrow can decode
        return np.array(column.to_pylist(), object) if categories else column.to_numpy(zero_copy_only=False)
    return column if isinstance(column, np.ndarray) else np.array(list(column), object)


def _plain(array: np.ndarray, name: str, owner: str) -> tuple[np.ndarray, np.ndarray]:
    """Values of one type, and where they are missing."""
    if array.ndim != 1:
        raise ValueError(f"column {name!r} of {owner} holds arrays; a frame's column has one entry per row")
    if array.dtype.kind in "biuU":
        return array, np.zeros(len(array), bool)
    if array.dtype.kind == "f":
        return array, np.isnan(array)
    if array.dtype.kind != "O":
        what = "dates" if array.dtype.kind in "Mm" else str(array.dtype)
        raise ValueError(f"column {name!r} of {owner} holds {what}; make numbers or strings of them")
    if set(map(type, array.tolist())) == {str}:  # most columns, and quick
        return array.astype(str), np.zeros(len(array), bool)
    missing = np.array([is_missing(value) for value in array.tolist()], bool)
    present = [v.item() if isinstance(v, np.generic) else v for v in array[~missing].tolist()]
    types = {type(value) for value in present}
    kind = str if types == {str} else bool if types == {bool} else float if types <= {int, float} else None
    if kind is None:
        mixed = ", ".join(sorted(t.__name__ for t in types))
        raise ValueError(f"column {name!r} of {owner} holds {mixed}; make all of it numbers or all of it strings")
    kept = np.array(present, int if types == {int} else kind)
    values = np.zeros(len(array), kept.dtype)
    values[~missing] = kept
    return values, missing


def is_missing(value: Any) -> bool:
    """Whether this says that nothing is known: None, NaN, or pandas' NA and NaT."""
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def _arrow(frame: Any) -> Any:
    try:
        import pyarrow
    except ImportError:
        raise ImportError(f"polars and Arrow tables are read by pyarrow: {install('frames')}") from None
    return pyarrow.table(frame)
