"""The steps of a recipe: what is to become of columns, before anything is known about them."""

import abc
import dataclasses
import itertools
import numbers
from collections.abc import Sequence
from typing import Literal

from fedpact.federation.frames import Tag
from fedpact.preparation.encoders import (
    MOST_FREQUENT,
    BinsEncoder,
    Encoder,
    LabelEncoder,
    MissingEncoder,
    NumberEncoder,
    OneHotEncoder,
    OrdinalEncoder,
)
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
from fedpact.preparation.summary import Ask, Summary

CELLS = 1000  # of a histogram
Unknown = Literal["error", "own", "zeros"]
MissingCategory = Literal["error", "own", "zeros", "most_frequent"]


@dataclasses.dataclass(frozen=True)
class Step(abc.ABC):
    """What is to become of some columns. `columns`: their names."""

    columns: tuple[str, ...]

    @abc.abstractmethod
    def ask(self, column: str) -> Ask:
        """What has to be known about a column."""

    @abc.abstractmethod
    def encoders(self, summaries: Sequence[Summary]) -> list[Encoder]:
        """From what is known about each column, over all parties."""

    @abc.abstractmethod
    def outline(self) -> list[tuple[str, str]]:
        """The kinds of these encoders, each with its column."""

    @abc.abstractmethod
    def allows(self, encoder: Encoder) -> bool:
        """Whether an encoder of this kind is as the step states, in all that does not come from rows."""


@dataclasses.dataclass(frozen=True)
class NumberStep(Step):
    """Of columns of numbers: fill what is missing, then shift and scale, or cut into intervals."""

    kind: Literal["standardize", "scale", "impute", "passthrough", "bins"]
    missing: Missing = "error"
    indicator: bool = False
    quantiles: tuple[float, float] | None = None
    edges: tuple[float, ...] | None = None
    count: int = 0
    within: tuple[float, float] | None = None
    cells: int = CELLS

    def ask(self, column: str) -> Ask:
        by_range = (self.kind == "scale" and self.quantiles is None) or (self.kind == "bins" and self.edges is None)
        ordered = self.missing == "median" or (self.kind == "scale" and self.quantiles is not None)
        ordered = ordered or (self.kind == "bins" and self.edges is None)
        return Ask(
            column,
            total=self.missing == "mean" or self.kind == "standardize",
            squares=self.kind == "standardize",
            extremes=(by_range or ordered) and self.within is None,
            cells=self.cells if ordered else 0,
            within=self.within,
        )

    def encoders(self, summaries: Sequence[Summary]) -> list[Encoder]:
        encoders: list[Encoder] = [self._encoder(summary) for summary in summaries]
        return encoders + [MissingEncoder(column) for column in self.columns if self.indicator]

    def _encoder(self, known: Summary) -> Encoder:
        fill = self._fill(known)
        column = known.ask.column
        if self.kind == "standardize":
            mean, deviation = known.filled_with(fill)
            return NumberEncoder(column, self.kind, fill, mean, deviation)
        if self.kind == "scale":
            if self.quantiles is None:
                low, high = known.ends(fill)
            else:
                known.check_cells()
                low, high = (known.quantile(share, fill) for share in self.quantiles)
            return NumberEncoder(column, self.kind, fill, low, high - low if high > low else 1.0)
        if self.kind == "bins":
            edges = self.edges
            if edges is None:
                known.check_cells()
                edges = tuple(known.quantile(k / self.count, fill) for k in range(1, self.count))
            return BinsEncoder(column, tuple(sorted(set(edges))), fill)
        return NumberEncoder(column, self.kind, fill)

    def _fill(self, known: Summary) -> float | None:
        if self.missing == "error":
            return None
        if not isinstance(self.missing, str):
            return float(self.missing)
        known.check_some()
        if self.missing == "mean":
            return known.mean
        known.check_cells()
        return known.quantile(0.5)

    def outline(self) -> list[tuple[str, str]]:
        kind = BinsEncoder.name if self.kind == "bins" else NumberEncoder.name
        indicators = [(MissingEncoder.name, column) for column in self.columns if self.indicator]
        return [(kind, column) for column in self.columns] + indicators

    def allows(self, encoder: Encoder) -> bool:
        if not isinstance(encoder, NumberEncoder | BinsEncoder):
            return True
        filled = (encoder.fill is None) == (self.missing == "error")
        filled = filled and (isinstance(self.missing, str) or encoder.fill == float(self.missing))
        if isinstance(encoder, BinsEncoder):
            stated = None if self.edges is None else tuple(sorted(set(self.edges)))
            return filled and (len(encoder.edges) < self.count if stated is None else encoder.edges == stated)
        as_it_is = self.kind in ("impute", "passthrough")
        return filled and encoder.step == self.kind and (not as_it_is or (encoder.shift, encoder.scale) == (0.0, 1.0))


@dataclasses.dataclass(frozen=True)
class CategoryStep(Step):
    """Of columns of categories: one column for each of them, or their places in a list."""

    kind: Literal["one_hot", "ordinal"]
    categories: tuple[Tag, ...] | Literal["declared"] | None = None
    rare: int = 0
    unknown: Unknown = "error"
    missing: MissingCategory = "error"

    def ask(self, column: str) -> Ask:
        told = "all" if self.categories is None else "declared" if self.categories == "declared" else "none"
        counts = self.rare > 0 or self.missing == MOST_FREQUENT
        return Ask(column, categories=told, counts=counts, ordered=self.kind == "ordinal")

    def encoders(self, summaries: Sequence[Summary]) -> list[Encoder]:
        return [self._encoder(summary) for summary in summaries]

    def _encoder(self, known: Summary) -> Encoder:
        kind = OneHotEncoder if self.kind == "one_hot" else OrdinalEncoder
        column = known.ask.column
        if isinstance(self.categories, tuple):
            return kind(column, self.categories, (), self.unknown, self.missing)
        own = tuple(tag for tag in known.categories if known.counts.get(tag, self.rare) >= self.rare)
        together = tuple(tag for tag in known.categories if tag not in own)
        if not known.categories:
            known.check_some()
        fill = None
        if self.missing == MOST_FREQUENT:
            known.check_some()
            if not any(known.counts.values()):
                raise ValueError(
                    f"column {column!r}: no category is in enough rows of a party to be told, so none is frequent"
                )
            fill = max(sorted(known.counts), key=lambda tag: known.counts[tag])  # of equals the first, as scikit-learn
        if self.kind == "ordinal" and known.others > 0 and self.unknown == "error":
            raise ValueError(
                f"column {column!r}: some categories stay at home, since fewer rows than min_count have them, and so "
                "have no place among the others: state all in fp.ordinal(..., order=[...])"
            )
        return kind(column, own, together, self.unknown, self.missing, known.others > 0, fill)

    def outline(self) -> list[tuple[str, str]]:
        return [(self.kind, column) for column in self.columns]

    def allows(self, encoder: Encoder) -> bool:
        if not isinstance(encoder, OneHotEncoder | OrdinalEncoder):
            return True
        stated = isinstance(self.categories, tuple)
        listed = not stated or (encoder.categories, encoder.together) == (self.categories, ())
        filled = (encoder.fill is not None) == (self.missing == MOST_FREQUENT)
        return listed and filled and (encoder.unknown, encoder.missing) == (self.unknown, self.missing)


@dataclasses.dataclass(frozen=True)
class Label:
    """What becomes y. Made by `fp.label`."""

    column: str
    positive: Tag | None = None
    negative: Tag | None = None

    def ask(self) -> Ask:
        if self.positive is None:
            return Ask(self.column, categories="unless numbers")
        return Ask(self.column, categories="none" if self.negative is not None else "all")

    def allows(self, encoder: LabelEncoder) -> bool:
        """Whether it is as stated, in all that does not come from rows."""
        if encoder.positive != self.positive:
            return False
        if self.positive is None:
            return True
        labels = encoder.labels or ()
        return len(labels) == 2 and labels[1] == self.positive and self.negative in (None, labels[0])

    def encoder(self, known: Summary) -> LabelEncoder:
        if self.positive is None:
            return LabelEncoder(self.column, None if known.kind == "numbers" else known.categories)
        if self.negative is not None:
            return LabelEncoder(self.column, (self.negative, self.positive), self.positive)
        others = [tag for tag in known.categories if tag != self.positive]
        if self.positive not in known.categories or len(others) != 1:
            found = ", ".join(map(repr, known.categories)) or "nothing"
            raise ValueError(
                f"fp.label({self.column!r}, positive={self.positive!r}): two labels are wanted, and the parties have {found}; "
                "name both with negative=, or leave positive= out for classes"
            )
        return LabelEncoder(self.column, (others[0], self.positive), self.positive)


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
