"""The steps of a recipe: what is to become of columns, before anything is known about them."""

import abc
import dataclasses
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
from fedpact.preparation.step_options import Missing
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
