"""Columns and masks: which rows an expression looks at.

A mask depends on the data alone, never on the model, so it is evaluated once per party, on the host, before a run.
"""

import dataclasses
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Mask:
    """A choice of rows. Combine masks with `&`, `|`, `~`; `mask(rows)` gives a boolean array."""

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
        """The masks that this one joins by `and`; itself where it joins none."""
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
    """A named column; comparing it with a value gives a `Mask`."""

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
        """Rows whose value is one of `members`."""
        if isinstance(members, str) or not isinstance(members, Iterable):
            raise TypeError(f"isin takes a list of values, such as [{members!r}], not {members!r}")
        return Mask("in", (self.name, tuple(_scalar(m) for m in members)))

    def _compare(self, symbol: str, bound: Any) -> Mask:
        return Mask(symbol, (self.name, _scalar(bound)))

    def __repr__(self) -> str:
        return f"fp.col({self.name!r})"


def col(name: str) -> Column:
    """The column `name` of whatever table an expression is evaluated on: `fp.col("y") == 1` is a mask."""
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
    """The columns a model can read: floats and matrices in float64, whole numbers and booleans as they are."""
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
            raise ValueError(f"column {name!r} holds {kind(values)}, which cannot be compared with {bound!r}")
    return values


def kind(column: np.ndarray) -> str:
    """What a column holds, in words."""
    return {"U": "strings", **dict.fromkeys("biuf", "numbers")}.get(column.dtype.kind, str(column.dtype))


def _mask(other: Any) -> Mask:
    if not isinstance(other, Mask):
        raise TypeError(f"a mask is combined with another mask, not with {other!r}")
    return other
