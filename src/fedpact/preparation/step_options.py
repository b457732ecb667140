"""Options of a recipe's steps are checked where a step is made; the error names step, option and range."""

import math
import numbers
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from fedpact.federation.frames import Tag

Fill = Literal["error", "mean", "median"]
Missing = Fill | float
FILLS: tuple[Fill, ...] = ("error", "mean", "median")


def column_names(step: str, columns: Sequence[Any]) -> tuple[str, ...]:
    wrong = [column for column in columns if not isinstance(column, str)]
    if wrong or not columns:
        raise TypeError(f"fp.{step} takes the names of columns: fp.{step}('age', 'bmi'), not {wrong or 'none'}")
    if len(set(columns)) < len(columns):
        raise ValueError(f"fp.{step}: a column is named twice: {', '.join(columns)}")
    return tuple(columns)


def fill_options(step: str, missing: Any, indicator: Any, option: str = "missing") -> tuple[Missing, bool]:
    if not isinstance(indicator, bool):
        raise TypeError(f"fp.{step}(indicator={indicator!r}): True or False")
    if indicator and missing == "error":
        raise ValueError(f"fp.{step}(indicator=True): say too what is put in place of missing values, by missing=")
    if isinstance(missing, str):
        check_choice(step, option, missing, FILLS, ", or a number")
        return next(fill for fill in FILLS if fill == missing), indicator
    return number(step, option, missing), indicator


def check_choice(step: str, option: str, given: Any, allowed: tuple[str, ...], more: str = "") -> None:
    if given not in allowed:
        raise ValueError(f"fp.{step}({option}={given!r}): one of {', '.join(map(repr, allowed))}{more}")


def number(step: str, option: str, given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, numbers.Real) or not math.isfinite(given):
        raise ValueError(f"fp.{step}({option}=...): {given!r} is no finite number")
    return float(given)


def pair(step: str, option: str, given: Any) -> tuple[float, float]:
    if not isinstance(given, Sequence) or len(given) != 2:
        raise ValueError(f"fp.{step}({option}={given!r}): two numbers")
    return number(step, option, given[0]), number(step, option, given[1])


def value_range(step: str, given: Any) -> tuple[float, float] | None:
    if given is None:
        return None
    low, high = pair(step, "within", given)
    if not low < high:
        raise ValueError(f"fp.{step}(within={given!r}): the first number is to be below the second")
    return low, high


def cell_count(step: str, given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int | np.integer) or not 2 <= given <= 100_000:
        raise ValueError(f"fp.{step}(cells={given!r}): a whole number from 2 to 100,000")
    return int(given)


def tag_list(step: str, option: str, given: Any) -> tuple[Tag, ...] | None:
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray) or not len(given):
        raise TypeError(f"fp.{step}({option}={given!r}): a list of values")
    tags = tuple(tag.item() if isinstance(tag, np.generic) else tag for tag in given)
    if not all(isinstance(tag, str | int | float | bool) and tag == tag for tag in tags) or len(set(tags)) < len(tags):
        raise ValueError(f"fp.{step}({option}={given!r}): strings or numbers, each once")
    return tags
