"""A party's part in fitting a recipe: two questions, answered from its own frame.

survey   the kinds of its columns, which categories it has, sums of values, least and greatest ones
measure  with what all parties told: sums of squares about the common mean, histograms in common cells, counts by category

Sums, extremes and sets are apart: sums may be added up in secret, extremes and sets cannot. Nothing else leaves the party.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedpact.federation.frames import RawColumn, Tag, columns_of, read_column
from fedpact.preparation.recipe import Recipe
from fedpact.preparation.summary import Ask

SUMS = {"missing": "i", "total": "f"}  # of a survey, with their kinds
EXTREMES = {"least": "f", "greatest": "f"}
MOST_CATEGORIES = 1000  # of a column: what has more is an identifier or a text
Arrays = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class ColumnSets:
    """What a party tells of a column in words: its kind, its categories where asked, and their order where that is asked too."""

    kind: str
    categories: tuple[Tag, ...] | None = None
    order: tuple[Tag, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Survey:
    """The answer to the first question; arrays have one entry for each of `Recipe.asks`.

    - `rows`: of the party.
    - `sets`: one for each of the asks.
    - `least`, `greatest`: inf and -inf where they are not asked for, or no value is there.
    - `missing`, `total`: sums over rows; None where they are known over all parties only.
    """

    rows: int
    sets: tuple[ColumnSets, ...]
    least: np.ndarray
    greatest: np.ndarray
    missing: np.ndarray | None = None
    total: np.ndarray | None = None

    @property
    def words(self) -> dict[str, Any]:
        return {"rows": self.rows, "sets": [dataclasses.asdict(each) for each in self.sets]}

    @property
    def sums(self) -> dict[str, np.ndarray]:
        """What is added up over parties."""
        return {name: getattr(self, name) for name in SUMS}

    @property
    def extremes(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, name) for name in EXTREMES}

    @classmethod
    def read(cls, words: Any, arrays: Arrays, recipe: Recipe) -> "Survey":
        """From a message, with sums or, where these are added up in secret, without.

        Raises ValueError where it is no answer to the recipe's question.
        """
        asks, kinds = recipe.asks, EXTREMES | (SUMS if SUMS.keys() & arrays.keys() else {})
        try:
            sets = tuple(
                ColumnSets(str(each["kind"]), _tags(each["categories"]), _tags(each["order"])) for each in words["sets"]
            )
            rows = words["rows"]
            if not isinstance(rows, int) or rows < 0 or len(sets) != len(asks):
                raise ValueError("numbers of rows or columns that cannot be")
            check_arrays(arrays, {name: ((len(asks),), kind) for name, kind in kinds.items()}, finite=("total",))
            if "missing" in arrays and np.any((arrays["missing"] < 0) | (arrays["missing"] > rows)):
                raise ValueError("numbers of missing values that cannot be")
            for ask, each, least, greatest in zip(asks, sets, arrays["least"], arrays["greatest"], strict=True):
                if any(isinstance(tag, str) != (each.kind == "strings") for tag in each.categories or ()):
                    raise ValueError(f"categories of column {ask.column!r} that are not of its kind")
                if (least, greatest) != (np.inf, -np.inf) and not -np.inf < least <= greatest < np.inf:
                    raise ValueError(f"least and greatest values of column {ask.column!r} that cannot be")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"that is no answer about a recipe: {error}") from None
        return cls(rows, sets, **{name: arrays[name] for name in kinds})


@dataclasses.dataclass(frozen=True)
class Question:
    """The second question: what the answers to the first gave, with one entry for each of `Recipe.asks`.

    - `centre`: the mean of all parties' values. `low`, `high`: where histograms begin and end.
    - `categories`: of all parties.
    """

    centre: np.ndarray
    low: np.ndarray
    high: np.ndarray
    categories: tuple[tuple[Tag, ...], ...]

    @property
    def words(self) -> dict[str, Any]:
        return {"categories": self.categories}

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {"centre": self.centre, "low": self.low, "high": self.high}

    @classmethod
    def read(cls, words: Any, arrays: Arrays, recipe: Recipe) -> "Question":
        """From a message; raises ValueError where it is no question about the recipe."""
        asks = recipe.asks
        names = "centre", "low", "high"
        check_arrays(arrays, {name: ((len(asks),), "f") for name in names}, finite=names)
        categories = tuple(_tags(each) or () for each in words["categories"])
        if len(categories) != len(asks):
            raise ValueError(f"it has categories for {len(categories)} columns, and the recipe has {len(asks)}")
        for place, ask in enumerate(asks):
            if ask.within is not None and ask.cells and ask.within != (arrays["low"][place], arrays["high"][place]):
                raise ValueError(f"the histogram of column {ask.column!r} has another range than the recipe states")
        return cls(arrays["centre"], arrays["low"], arrays["high"], categories)

    def check_covers(self, recipe: Recipe, own: Survey) -> None:
        """Raise ValueError where this cannot be what all parties told, since it leaves out what this one did."""
        for place, ask in enumerate(recipe.asks):
            below, above = own.least[place] < self.low[place], own.greatest[place] > self.high[place]
            if ask.cells and ask.extremes and (below or above):
                raise ValueError(f"the histogram of column {ask.column!r} does not reach its least and greatest value")
            if not set(own.sets[place].categories or ()) <= set(self.categories[place]):
                raise ValueError(f"the categories of column {ask.column!r} leave out what it told")


def survey(recipe: Recipe, frame: Any, owner: str, min_count: int) -> Survey:
    """A party's answer to the first question.

    - `owner`: the party in words for errors. `min_count`: a category in fewer of its rows than this is not told.

    Raises ValueError with party and column where a column is missing or of another type.
    """
    columns, asks = columns_of(frame, owner), recipe.asks
    raw = [read_column(columns, ask.column, owner) for ask in asks]
    count = len(asks)
    total, least, greatest = np.zeros(count), np.full(count, np.inf), np.full(count, -np.inf)
    for place, (ask, column) in enumerate(zip(asks, raw, strict=True)):
        if not ask.of_numbers:
            continue
        values = column.numbers()[~column.missing]
        if ask.total:
            total[place] = values.sum()
        if ask.extremes and values.size:
            least[place], greatest[place] = values.min(), values.max()
    sets = tuple(_sets(ask, column, min_count) for ask, column in zip(asks, raw, strict=True))
    missing = np.array([column.missing_count for column in raw], np.int64)
    return Survey(len(raw[0].values), sets, least, greatest, missing, total)


def _sets(ask: Ask, column: RawColumn, min_count: int) -> ColumnSets:
    if not ask.tells_categories(column.kind):
        return ColumnSets(column.kind)
    if ask.categories == "declared":
        if column.declared is None:
            raise ValueError(
                f"{column.title} declares no categories: make it pandas.Categorical(values, categories=[...]), or list them in "
                "the recipe's step"
            )
        return ColumnSets(column.kind, column.declared)
    counts = Counter(column.tags())
    if len(counts) > MOST_CATEGORIES:
        raise ValueError(
            f"{column.title} has {len(counts)} different values, more than the {MOST_CATEGORIES} that a party tells as "
            "categories; it may identify rows: leave it out, or make fewer categories of it"
        )
    told = _sorted(tag for tag, rows in counts.items() if rows >= min_count)
    order = column.declared if ask.ordered and column.ordered else None
    if order is not None and min_count > 1:
        # what is declared may be what rows have: rare categories are left out here too
        order = tuple(tag for tag in order if tag in told)
    return ColumnSets(column.kind, told, order)


def measure(recipe: Recipe, frame: Any, owner: str, question: Question, min_count: int) -> dict[str, np.ndarray]:
    """A party's answer to the second question: sums, by name as in `measure_layout`.

    - `min_count`: of a category that fewer of its rows have than this, no rows are counted. Whether it has such ones does not
      depend on the question's list, so that nobody can find out which by guessing.
    """
    columns, asks = columns_of(frame, owner), recipe.asks
    deviation, squares, others = np.zeros(len(asks)), np.zeros(len(asks)), np.zeros(len(asks), np.int64)
    sums: dict[str, np.ndarray] = {}
    for place, ask in enumerate(asks):
        if not ask.asks_twice:
            continue
        column = read_column(columns, ask.column, owner)
        if ask.of_numbers:
            values = column.numbers()[~column.missing]
            if ask.squares:
                from_centre = values - question.centre[place]
                deviation[place], squares[place] = from_centre.sum(), np.square(from_centre).sum()
            if ask.cells:
                ends = question.low[place], question.high[place]
                sums[f"histogram {place}"] = _histogram(values, ask.cells, *ends)
        else:
            counts, known = Counter(column.tags()), question.categories[place]
            others[place] = int(ask.categories == "all" and any(rows < min_count for rows in counts.values()))
            if ask.counts:
                rows = [counts[tag] if counts[tag] >= min_count else 0 for tag in known]
                sums[f"counts {place}"] = np.array(rows, np.int64)
    return {"deviation": deviation, "squares": squares, "others": others, **sums}


def measure_layout(recipe: Recipe, question: Question) -> dict[str, tuple[tuple[int, ...], str]]:
    """The shapes and kinds of the arrays of `measure`, by name."""
    asks = recipe.asks
    one_each = (len(asks),)
    layout = {"deviation": (one_each, "f"), "squares": (one_each, "f"), "others": (one_each, "i")}
    layout |= {f"histogram {place}": ((ask.cells,), "i") for place, ask in enumerate(asks) if ask.cells}
    sizes = [len(known) for known in question.categories]
    return layout | {f"counts {place}": ((sizes[place],), "i") for place, ask in enumerate(asks) if ask.counts}


def check_arrays(
    arrays: Arrays, layout: Mapping[str, tuple[tuple[int, ...], str]], finite: tuple[str, ...] | None = None
) -> None:
    """Raise ValueError where arrays have other names, shapes or kinds; `finite`: names of those without NaN and infinity
    (default: all)."""
    odd = sorted(layout.keys() ^ arrays.keys())
    if odd:
        raise ValueError(f"{odd[0]!r} is {'missing' if odd[0] in layout else 'in it, which nobody asked for'}")
    for name, (shape, kind) in layout.items():
        array = arrays[name]
        if array.shape != shape or array.dtype != (np.int64 if kind == "i" else np.float64):
            raise ValueError(f"{name!r} is {array.dtype}{list(array.shape)}, not {kind}8{list(shape)}")
        wanted = finite is None or name in finite
        if np.isnan(array).any() or (wanted and not np.isfinite(array).all()):
            raise ValueError(f"{name!r} holds NaN or infinite numbers")


def _histogram(values: np.ndarray, cells: int, low: float, high: float) -> np.ndarray:
    """Counts in equal cells; what lies outside counts in the first or the last."""
    places = np.zeros(len(values), np.int64)
    if high > low:
        places = np.clip(np.floor((values - low) / (high - low) * cells), 0, cells - 1).astype(np.int64)
    return np.bincount(places, minlength=cells).astype(np.int64)


def _sorted(tags: Any) -> tuple[Tag, ...]:
    return tuple(sorted(tags))


def _tags(words: Any) -> tuple[Tag, ...] | None:
    if words is None:
        return None
    tags = tuple(words)
    if not all(isinstance(tag, str | int | float | bool) and tag == tag for tag in tags) or len(set(tags)) < len(tags):
        raise ValueError("its categories are not strings or numbers, each once")
    return tags
