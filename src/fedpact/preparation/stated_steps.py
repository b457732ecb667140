"""How the steps of a recipe are stated: functions of column names and options, which are checked here."""

import itertools
import numbers
from collections.abc import Sequence
from typing import Literal

from fedpact.federation.frames import Tag
from fedpact.preparation.encoders import MOST_FREQUENT
from fedpact.preparation.step_options import (
    Missing,
    cell_count,
    check_choice,
    column_names,
    fill_options,
    number,
    pair,
    tag_list,
    value_range,
)
from fedpact.preparation.steps import CELLS, CategoryStep, Label, MissingCategory, NumberStep, Unknown


def standardize(
    *columns: str,
    missing: Missing = "error",
    indicator: bool = False,
    within: tuple[float, float] | None = None,
    cells: int = CELLS,
) -> NumberStep:
    """Columns of numbers with mean 0 and standard deviation 1 over all parties' rows: (value − mean) / deviation.

    - `columns`: their names.
    - `missing`: what is done with missing values: "error" (default: they are refused), "mean", "median", or a number to put in
      their place. They are filled first, so mean and deviation are those of the filled columns.
    - `indicator`: whether each column gets another one, "age missing", 1 where the value is missing (default False).
    - `within`: for a median, the range that values lie in, so that no party tells its least and greatest one (default: told).
    - `cells`: of a median's histogram (2 to 100,000, default 1000); the median is within half a cell's width.

    A constant column keeps its deviation of 1. Parties tell the sum and the sum of squares of each column.
    """
    return NumberStep(
        column_names("standardize", columns), "standardize", *fill_options("standardize", missing, indicator),
        within=value_range("standardize", within), cells=cell_count("standardize", cells),
    )  # fmt: skip


def scale(
    *columns: str,
    quantiles: tuple[float, float] | None = None,
    missing: Missing = "error",
    indicator: bool = False,
    within: tuple[float, float] | None = None,
    cells: int = CELLS,
) -> NumberStep:
    """Columns of numbers from 0 to 1: (value − low) / (high − low).

    - `columns`: their names.
    - `quantiles`: which quantiles are low and high, such as (0.05, 0.95); values beyond them are below 0 or above 1. They come
      from histograms, within half a cell's width (default: the least and the greatest value of all parties' rows).
    - `missing`, `indicator`: as in `fp.standardize`.
    - `within`: the range that values lie in, so that no party tells its least and greatest one; without quantiles it is low and
      high (default: they are told).
    - `cells`: of a histogram, equal parts of that range (2 to 100,000, default 1000).
    """
    if quantiles is not None:
        ends = pair("scale", "quantiles", quantiles)
        if not 0 <= ends[0] < ends[1] <= 1:
            raise ValueError(f"fp.scale(quantiles={quantiles!r}): two numbers from 0 to 1, such as (0.05, 0.95)")
        quantiles = ends
    return NumberStep(
        column_names("scale", columns), "scale", *fill_options("scale", missing, indicator), quantiles,
        within=value_range("scale", within), cells=cell_count("scale", cells),
    )  # fmt: skip


def impute(
    *columns: str,
    by: Literal["mean", "median"] | float = "mean",
    indicator: bool = False,
    within: tuple[float, float] | None = None,
    cells: int = CELLS,
) -> NumberStep:
    """Columns of numbers as they are, with missing values filled.

    - `columns`: their names.
    - `by`: "mean" (default) or "median" over all parties' rows, or a number.
    - `indicator`, `within`, `cells`: as in `fp.standardize`. Indicators come after all columns of the step.
    """
    if by == MOST_FREQUENT:
        raise ValueError(
            "fp.impute(by='most_frequent') is for categories: fp.one_hot(..., missing='most_frequent'), or fp.ordinal; numbers "
            "have by='median'"
        )
    if by == "error":
        raise ValueError("fp.impute(by='error'): 'mean', 'median' or a number; fp.passthrough refuses missing values")
    return NumberStep(
        column_names("impute", columns), "impute", *fill_options("impute", by, indicator, "by"),
        within=value_range("impute", within), cells=cell_count("impute", cells),
    )  # fmt: skip


def bins(
    *columns: str,
    edges: Sequence[float] | None = None,
    count: int | None = None,
    missing: Missing = "error",
    indicator: bool = False,
    within: tuple[float, float] | None = None,
    cells: int = CELLS,
) -> NumberStep:
    """Intervals of columns of numbers: one column of 0 and 1 for each interval, such as "age<40", "40<=age<60", "age>=60".

    - `columns`: their names.
    - `edges`: where one interval ends and the next begins; then nothing is told. Or
    - `count`: how many intervals, with about equally many rows of all parties in each; their edges are quantiles from
      histograms, within half a cell's width.
    - `missing`, `indicator`, `within`, `cells`: as in `fp.scale`.
    """
    if (edges is None) == (count is None):
        raise ValueError("fp.bins needs edges= (numbers in rising order) or count= (how many intervals)")
    stated = None
    if edges is not None:
        stated = tuple(number("bins", "edges", edge) for edge in edges)
        if not stated or any(b <= a for a, b in itertools.pairwise(stated)):
            raise ValueError(f"fp.bins(edges={edges!r}): at least one number, in rising order")
    elif isinstance(count, bool) or not isinstance(count, numbers.Integral) or count < 2:
        raise ValueError(f"fp.bins(count={count!r}): a whole number, at least 2")
    return NumberStep(
        column_names("bins", columns), "bins", *fill_options("bins", missing, indicator), None, stated, int(count or 0),
        value_range("bins", within), cell_count("bins", cells),
    )  # fmt: skip


def passthrough(*columns: str) -> NumberStep:
    """Columns of numbers as they are; missing values are refused."""
    return NumberStep(column_names("passthrough", columns), "passthrough")


def one_hot(
    *columns: str,
    categories: Sequence[Tag] | Literal["declared"] | None = None,
    rare: int = 0,
    unknown: Unknown = "error",
    missing: MissingCategory = "error",
) -> CategoryStep:
    """One column of 0 and 1 for each category that some party has: "smoker=daily", "smoker=former", "smoker=never".

    - `columns`: their names; they hold strings, booleans or numbers.
    - `categories`: which there are, in order; then nothing is told. Or "declared": those that the pandas columns declare,
      whether rows have them or not; parties that declare others are an error (default: all parties' together, sorted).
    - `rare`: categories in fewer rows than this, over all parties, share the column "smoker=(other)" (default 0: none do). What
      fewer rows of a party have than the recipe's `min_count` is not told by it; where no other party tells it either, it is in
      that column too.
    - `unknown`: what is done with a category that nobody had when the recipe was fitted: "error" (default), "own" (it is in the
      column "smoker=(other)", which is there in any case) or "zeros" (all columns are 0). Where categories stayed with their
      parties, unknown ones cannot be told from these and are in "smoker=(other)".
    - `missing`: what is done with missing ones: "error" (default), "own" (a column "smoker=(missing)"), "zeros", or
      "most_frequent": they get the category that most rows of all parties have.
    """
    check_choice("one_hot", "unknown", unknown, ("error", "own", "zeros"))
    check_choice("one_hot", "missing", missing, ("error", "own", "zeros", MOST_FREQUENT))
    if isinstance(rare, bool) or not isinstance(rare, numbers.Integral) or rare < 0:
        raise ValueError(f"fp.one_hot(rare={rare!r}): a number of rows, at least 0")
    stated = "declared" if isinstance(categories, str) and categories == "declared" else None
    if stated is None:
        stated = tag_list("one_hot", "categories", categories)
    if isinstance(stated, tuple) and (rare or missing == MOST_FREQUENT):
        option = "rare=" if rare else "missing='most_frequent'"
        raise ValueError(
            f"fp.one_hot: {option} is for categories that are learnt; leave it out where categories= has them"
        )
    return CategoryStep(column_names("one_hot", columns), "one_hot", stated, int(rare), unknown, missing)


def ordinal(
    *columns: str,
    order: Sequence[Tag] | None = None,
    unknown: Literal["error", "own"] = "error",
    missing: Literal["error", "own", "most_frequent"] = "error",
) -> CategoryStep:
    """The place of each category in a list, 0, 1, 2, …, as one number.

    - `columns`: their names; they hold strings, booleans or numbers.
    - `order`: all categories from the lowest to the highest; then nothing is told (default: that of ordered pandas categories,
      which have to be the same at all parties; else sorted).
    - `unknown`: what is done with a category that nobody had: "error" (default), or "own": it gets the number after the last.
    - `missing`: what is done with missing ones: "error" (default); "own": they get a number after all others; or
      "most_frequent", without `order`: they get the category that most rows of all parties have.
    """
    check_choice("ordinal", "unknown", unknown, ("error", "own"))
    check_choice("ordinal", "missing", missing, ("error", "own", MOST_FREQUENT))
    stated = tag_list("ordinal", "order", order)
    if stated is not None and missing == MOST_FREQUENT:
        raise ValueError(
            "fp.ordinal: missing='most_frequent' is for categories that are learnt; leave it out where order= is"
        )
    return CategoryStep(column_names("ordinal", columns), "ordinal", stated, 0, unknown, missing)


def label(column: str, positive: Tag | None = None, negative: Tag | None = None) -> Label:
    """What becomes the column "y": 1 for the positive label and 0 for the negative one.

    - `column`: its name.
    - `positive`: the label that decisions are about. Without it strings and booleans are classes, sorted, with y = 0, 1, 2, …,
      and numbers stay as they are.
    - `negative`: the other label (default: the only other one that the parties have).
    """
    (name,) = column_names("label", (column,))
    for option, tag in (("positive", positive), ("negative", negative)):
        if tag is not None:
            tag_list("label", option, [tag])
    if negative is not None and (positive is None or negative == positive):
        raise ValueError(f"fp.label(negative={negative!r}): together with another one, positive=")
    return Label(name, positive, negative)
