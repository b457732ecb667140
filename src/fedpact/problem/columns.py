"""Columns and masks: which rows an expression averages over.

A mask depends on the data alone, never on the model, so it is evaluated once per party, in numpy, before a run.
"""

import dataclasses
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

SHOWN = 4  # values of a column in an error


@dataclasses.dataclass(frozen=True)
class Mask:
    """A condition on the columns of a row. Made by comparing `fp.col(name)`; combine masks with `&`, `|` and `~`.

    `mask(rows)` evaluates it on a table or mapping of columns and returns a boolean array (rows,). It raises ValueError where a
    column holds arrays, or strings that are compared with a number.
    """

    symbol: str
    parts: tuple[Any, ...]

    def __call__(self, rows: Mapping[str, Any]) -> np.ndarray:
        if self.symbol in COMPARISONS:
            column, bound = self.parts
            return COMPARISONS[self.symbol](_comparable(rows, column, (bound,)), bound)
        if self.symbol == "in":
            column, members = self.parts
            return np.isin(_comparable(rows, column, members), members)
        if self.symbol == "not":
            return ~self.parts[0](rows)
        left, right = self.parts
        return left(rows) & right(rows) if self.symbol == "and" else left(rows) | right(rows)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns this mask reads."""
        if self.symbol in COMPARISONS or self.symbol == "in":
            return (self.parts[0],)
        return tuple(dict.fromkeys(name for part in self.parts for name in part.columns))

    def demands(self) -> tuple["Mask", ...]:
        """The conditions that this mask joins by `&`, in order; the mask itself where it joins none."""
        if self.symbol != "and":
            return (self,)
        return tuple(demand for part in self.parts for demand in part.demands())

    def __and__(self, other: "Mask") -> "Mask":
        return Mask("and", (self, _mask(other)))

    def __or__(self, other: "Mask") -> "Mask":
        return Mask("or", (self, _mask(other)))

    def __invert__(self) -> "Mask":
        return Mask("not", (self,))

    def __bool__(self) -> bool:
        raise TypeError(f"the mask {self} has no truth value; combine masks with &, | and ~, not with and, or, not")

    def __str__(self) -> str:
        if self.symbol in COMPARISONS or self.symbol == "in":
            column, bound = self.parts
            return f"{column} {self.symbol} {bound!r}"
        if self.symbol == "not":
            return f"not ({self.parts[0]})"
        return f"({self.parts[0]}) {self.symbol} ({self.parts[1]})"


COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Column:
    """A named column. Comparing it with a number or string by ==, !=, <, <=, > or >= gives a `Mask`."""

    def __init__(self, name: str):
        self.name = name

    __hash__ = None  # type: ignore[assignment]  # == makes a mask, so a column cannot be a key

    def __eq__(self, bound: Any) -> Mask:  # type: ignore[override]  # comparison builds a mask, as in numpy
        return self._compare("==", bound)

    def __ne__(self, bound: Any) -> Mask:  # type: ignore[override]  # builds a mask too
        return self._compare("!=", bound)

    def __lt__(self, bound: Any) -> Mask:
        return self._compare("<", bound)

    def __le__(self, bound: Any) -> Mask:
        return self._compare("<=", bound)

    def __gt__(self, bound: Any) -> Mask:
        return self._compare(">", bound)

    def __ge__(self, bound: Any) -> Mask:
        return self._compare(">=", bound)

    def isin(self, members: Iterable[Any]) -> Mask:
        """A mask of the rows whose value is in a list.

        - `members`: numbers or strings, such as `fp.col("country").isin(["FR", "DE"])`.

        Raises TypeError for a single string in place of a list.
        """
        if isinstance(members, str) or not isinstance(members, Iterable):
            raise TypeError(f"isin takes a list of values, such as [{members!r}], not {members!r}")
        return Mask("in", (self.name, tuple(_scalar(m) for m in members)))

    def _compare(self, symbol: str, bound: Any) -> Mask:
        return Mask(symbol, (self.name, _scalar(bound)))

    def __repr__(self) -> str:
        return f"fp.col({self.name!r})"


def col(name: str) -> Column:
    """A column by name, to select rows by comparison.

    - `name`: of a column with one number or string per row, in every table that the expression is evaluated on.

    Returns a `Column`; comparing it gives a mask for `where=`: `fp.mean(loss, where=(fp.col("y") == 1) & (fp.col("age") > 60))`.
    """
    if not isinstance(name, str):
        raise TypeError(f"fp.col takes a column's name, not {name!r}")
    return Column(name)


def _scalar(bound: Any) -> Any:
    bound = bound.item() if isinstance(bound, np.generic) else bound
    if not isinstance(bound, str | int | float | bool):
        raise TypeError(
            f"a column is compared with one number or one string, not with {bound!r}; see also .isin([...])"
        )
    if bound != bound:
        raise ValueError("a column is compared with NaN, which equals nothing; fill missing values first")
    return bound


def numeric(rows: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The numeric columns of a table: floats and matrices in float64, integers and booleans unchanged."""
    arrays = {name: np.asarray(rows[name]) for name in rows}
    return {
        name: a.astype(np.float64) if a.dtype.kind == "f" or a.ndim > 1 else a
        for name, a in arrays.items()
        if a.dtype.kind in "biuf"
    }


def _comparable(rows: Mapping[str, Any], name: str, bounds: tuple[Any, ...]) -> np.ndarray:
    values = np.asarray(rows[name])
    if values.ndim != 1:
        raise ValueError(f"column {name!r} holds arrays; a mask compares one value per row")
    for bound in bounds:
        if values.size and values.dtype.kind not in ("U" if isinstance(bound, str) else "biuf"):
            shown = ", ".join(map(repr, np.unique(values)[:SHOWN].tolist()))
            raise ValueError(
                f"column {name!r} holds {kind(values)}, which cannot be compared with {bound!r}; it has {shown}: compare with "
                "these, or in a gap by groups=(...)"
            )
    return values


def kind(column: np.ndarray) -> str:
    """The type of a column in words: "numbers" or "strings"."""
    return {"U": "strings", **dict.fromkeys("biuf", "numbers")}.get(column.dtype.kind, str(column.dtype))


def _mask(other: Any) -> Mask:
    if not isinstance(other, Mask):
        raise TypeError(f"a mask is combined with another mask, not with {other!r}")
    return other
