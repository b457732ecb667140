"""Columns of frames as arrays of tables, and frames from files."""

import pathlib
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fedpact.extras import install
from fedpact.federation.frames import Tag, converted, read_column


def frame_column(columns: Mapping[str, Any], name: str, na_values: Any = None, dtype: Any = None) -> np.ndarray:
    """A column of a frame as an array of numbers, booleans or strings; NaN where a number is missing."""
    column = columns[name]
    if getattr(getattr(column, "dtype", None), "kind", "") in ("M", "m"):
        return np.asarray(column)  # dates; nothing reads them but the user
    raw = read_column(columns, name, "the frame")
    values, missing = raw.values, raw.missing.copy()
    for mark in [] if na_values is None else [na_values] if isinstance(na_values, Tag) else list(na_values):
        if isinstance(mark, str) == (values.dtype.kind == "U"):
            missing |= values == mark
    try:
        if dtype is not None:
            known = converted(values[~missing], dtype)
            values = np.zeros(len(values), known.dtype)
            values[~missing] = known
    except (TypeError, ValueError) as error:
        raise ValueError(f"column {name!r} cannot be read as {dtype!r}: {error}") from None
    if not missing.any():
        return values
    if values.dtype.kind not in "iuf":
        what = "strings" if values.dtype.kind == "U" else "yes or no"
        raise ValueError(
            f"column {name!r} holds {what} and {int(missing.sum())} missing values in {len(values)} rows; make it {what} with no "
            "entry missing, leave it out with columns=, or prepare it with fp.Recipe"
        )
    return np.where(missing, np.nan, values)


def read_frame(
    path: str | pathlib.Path, columns: list[str] | None = None, na_values: Any = None, dtype: Any = None
) -> Any:
    """A pandas frame from a file; arguments and errors as in `Table.read`."""
    path = pathlib.Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        import pandas
    except ImportError:
        raise ImportError(f"reading files needs pandas and pyarrow: {install('frames')}") from None
    if not path.name.lower().endswith((".csv", ".csv.gz", ".parquet", ".pq")):
        raise ValueError(f"{path.name}: fp.Table.read knows .csv, .csv.gz and .parquet")
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            return pandas.read_parquet(path, columns=columns)
        strings: Any = "str" if dtype == "str" else None
        if isinstance(dtype, Mapping):
            strings = {name: kind for name, kind in dtype.items() if kind == "str"}
        return pandas.read_csv(path, usecols=columns, na_values=na_values, dtype=strings)
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def column_names(option: str, given: Any) -> list[str]:
    """The names of columns that an option lists."""
    names = [given] if isinstance(given, str) else list(given) if isinstance(given, Iterable) else [given]
    if not all(isinstance(name, str) for name in names):
        what = "make the matrix 'x'" if option == "x" else "are wanted"
        raise TypeError(f"{option}= lists the names of the columns that {what}, not {given!r}")
    return names
