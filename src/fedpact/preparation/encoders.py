"""What was agreed about one column: from raw values to features, with NumPy alone."""

import abc
import dataclasses
import itertools
from collections import Counter
from typing import Any, ClassVar

import numpy as np

from fedpact.federation.frames import RawColumn, Tag

SHOWN = 5  # values of a column in an error
OTHER, MISSING = "(other)", "(missing)"
MOST_FREQUENT = "most_frequent"


@dataclasses.dataclass(frozen=True)
class Encoder(abc.ABC):
    """From one raw column to one or more features. `column`: its name."""

    name: ClassVar[str]
    column: str

    @property
    @abc.abstractmethod
    def features(self) -> tuple[str, ...]:
        """Names of the features, in order."""

    @abc.abstractmethod
    def encode(self, raw: RawColumn, min_count: int = 1) -> np.ndarray:
        """(rows, features) in float64. Raises ValueError with owner and column where a value has no place.

        - `min_count`: categories in fewer of these rows may count as others (default 1: none).
        """

    @abc.abstractmethod
    def in_words(self) -> str:
        """What was agreed."""

    def to_json(self) -> dict[str, Any]:
        return {"encoder": self.name, **dataclasses.asdict(self)}


@dataclasses.dataclass(frozen=True)
class NumberEncoder(Encoder):
    """(value − shift) / scale, with `fill` in place of a missing value; without it, missing values are refused.

    - `step`: which of the recipe's steps it comes from, for print.
    """

    name: ClassVar[str] = "number"
    step: str
    fill: float | None = None
    shift: float = 0.0
    scale: float = 1.0

    @property
    def features(self) -> tuple[str, ...]:
        return (self.column,)

    def encode(self, raw: RawColumn, min_count: int = 1) -> np.ndarray:
        return ((_filled(raw, self.fill) - self.shift) / self.scale)[:, None]

    def in_words(self) -> str:
        words = {
            "standardize": f"mean {self.shift:.6g} becomes 0, a standard deviation of {self.scale:.6g} becomes 1",
            "scale": f"{self.shift:.6g} becomes 0, {self.shift + self.scale:.6g} becomes 1",
        }
        return f"{words.get(self.step, 'as it is')}{_fill_in_words(self.fill)}"


@dataclasses.dataclass(frozen=True)
class MissingEncoder(Encoder):
    """1 where the value is missing, else 0."""

    name: ClassVar[str] = "missing"

    @property
    def features(self) -> tuple[str, ...]:
        return (f"{self.column} missing",)

    def encode(self, raw: RawColumn, min_count: int = 1) -> np.ndarray:
        return raw.missing.astype(float)[:, None]

    def in_words(self) -> str:
        return "1 where the value is missing, else 0"


@dataclasses.dataclass(frozen=True)
class BinsEncoder(Encoder):
    """One column for each interval between edges; a value at an edge is in the interval above it."""

    name: ClassVar[str] = "bins"
    edges: tuple[float, ...]
    fill: float | None = None

    @property
    def features(self) -> tuple[str, ...]:
        edges = [f"{edge:.6g}" for edge in self.edges]
        between = [f"{low}<={self.column}<{high}" for low, high in itertools.pairwise(edges)]
        return (f"{self.column}<{edges[0]}", *between, f"{self.column}>={edges[-1]}")

    def encode(self, raw: RawColumn, min_count: int = 1) -> np.ndarray:
        places = np.searchsorted(np.asarray(self.edges), _filled(raw, self.fill), side="right")
        return np.eye(len(self.edges) + 1)[places]

    def in_words(self) -> str:
        edges = ", ".join(f"{edge:.6g}" for edge in self.edges)
        return f"{len(self.edges) + 1} intervals with the edges {edges}{_fill_in_words(self.fill)}"


@dataclasses.dataclass(frozen=True)
class CategoryEncoder(Encoder):
    """What one-hot columns and ordinal numbers have in common: from values to places in a list of categories.

    - `categories`: that have a place of their own, in order. `together`: rarer ones that share the place of others.
    - `unknown`: what is done with any other value: "error", "own" (it goes to the place of others) or "zeros".
    - `missing`: what is done with a missing one: "error", "own" (a place of their own), "zeros" or "most_frequent".
    - `unnamed`: some values stayed with their parties, since too few rows have them; so others cannot be told from them.
    - `fill`: what a missing value becomes where that is the most frequent one.
    """

    categories: tuple[Tag, ...]
    together: tuple[Tag, ...] = ()
    unknown: str = "error"
    missing: str = "error"
    unnamed: bool = False
    fill: Tag | None = None

    @property
    def has_others(self) -> bool:
        """Whether there is a place for others."""
        return bool(self.together) or self.unnamed or self.unknown == "own"

    def places(self, raw: RawColumn, min_count: int = 1) -> np.ndarray:
        """For each row the place of its category; after these come others, then missing; -1 for none.

        - `min_count`: categories in fewer of these rows count as others, where some stayed with their parties (default 1: none).
        """
        others = len(self.categories) if self.has_others else -1
        missing = len(self.categories) + self.has_others if self.missing == "own" else -1
        if raw.missing.any() and self.missing == "error":
            raise ValueError(_missing_in_words(raw))
        known: dict[Tag, int] = {tag: place for place, tag in enumerate(self.categories)}
        known |= dict.fromkeys(self.together, others)
        if self.fill is not None:
            missing = known[self.fill]
        self._check_kind(raw)
        tags = raw.tags()
        if self.unnamed and min_count > 1:
            known |= {tag: others for tag, rows in Counter(tags).items() if rows < min_count}
        different = list(dict.fromkeys(tags))
        unknown = [tag for tag in different if tag not in known]
        if unknown and self.unknown == "error" and not self.unnamed:
            shown = ", ".join(map(repr, unknown[:SHOWN])) + (", …" if len(unknown) > SHOWN else "")
            raise ValueError(
                f"{raw.title} holds {shown}, which no party had when the recipe was agreed on; it knows "
                f"{_listed(self.categories)}. With unknown='own' such values have a place of their own"
            )
        places = np.full(len(raw.values), missing)
        places[~raw.missing] = [known.get(tag, others) for tag in tags]
        return places

    def _check_kind(self, raw: RawColumn) -> None:
        mine = {isinstance(tag, str) for tag in (*self.categories, *self.together)}
        if raw.kind != "nothing" and mine and (raw.kind == "strings") not in mine:
            held = "strings" if mine == {True} else "numbers"
            raise ValueError(f"{raw.title} holds {raw.kind}, and the recipe knows {held}: {_listed(self.categories)}")

    def _categories_in_words(self) -> str:
        together = f"; {_listed(self.together)} together" if self.together else ""
        home = "; some that few rows have stayed with their parties and count as others" if self.unnamed else ""
        unknown = {"error": "", "own": "; unknown ones count as others", "zeros": "; unknown ones have zeros"}
        missing = {"error": "", "own": "; missing ones have a place of their own", "zeros": "; missing ones have zeros"}
        missing[MOST_FREQUENT] = f"; missing ones become {self.fill}"
        return f"{_listed(self.categories)}{together}{home}{unknown[self.unknown]}{missing[self.missing]}"


@dataclasses.dataclass(frozen=True)
class OneHotEncoder(CategoryEncoder):
    """One column for each category, 1 where a row has it, else 0; then one for others and one for missing ones, if stated."""

    name: ClassVar[str] = "one_hot"

    @property
    def features(self) -> tuple[str, ...]:
        tags = [*self.categories, *([OTHER] * self.has_others), *([MISSING] * (self.missing == "own"))]
        return tuple(f"{self.column}={tag}" for tag in tags)

    def encode(self, raw: RawColumn, min_count: int = 1) -> np.ndarray:
        places = self.places(raw, min_count)
        encoded = np.zeros((len(places), len(self.features)))
        known = np.flatnonzero(places >= 0)
        encoded[known, places[known]] = 1.0
        return encoded

    def in_words(self) -> str:
        return f"one column for each of {self._categories_in_words()}"


@dataclasses.dataclass(frozen=True)
class OrdinalEncoder(CategoryEncoder):
    """The place of a category in the list, from 0 on, as one number."""

    name: ClassVar[str] = "ordinal"

    @property
    def features(self) -> tuple[str, ...]:
        return (self.column,)

    def encode(self, raw: RawColumn, min_count: int = 1) -> np.ndarray:
        return self.places(raw, min_count).astype(float)[:, None]

    def in_words(self) -> str:
        return f"from 0 on in the order {self._categories_in_words()}"


@dataclasses.dataclass(frozen=True)
class LabelEncoder:
    """From labels to y.

    - `column`: its name.
    - `labels`: (negative, positive), which become 0 and 1; or all classes, which become 0, 1, 2, …; or None: numbers that stay.
    - `positive`: the positive one of two; None for classes and numbers.
    """

    column: str
    labels: tuple[Tag, ...] | None = None
    positive: Tag | None = None

    def encode(self, raw: RawColumn) -> np.ndarray:
        if raw.missing.any():
            raise ValueError(
                f"{raw.title} holds {raw.missing_count} missing labels in {len(raw.values)} rows; drop these rows"
            )
        if self.labels is None:
            raw.numbers()
            return raw.values
        places = {tag: place for place, tag in enumerate(self.labels)}
        tags = raw.tags()
        unknown = [tag for tag in dict.fromkeys(tags) if tag not in places]
        if unknown:
            raise ValueError(
                f"{raw.title} holds the label {unknown[0]!r}; the labels of the recipe are {_listed(self.labels)}"
            )
        return np.array([places[tag] for tag in tags], np.int64)

    def in_words(self) -> str:
        if self.labels is None:
            return f"{self.column}, as it is"
        return f"{self.column}: " + ", ".join(f"{tag} becomes {place}" for place, tag in enumerate(self.labels))

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def _filled(raw: RawColumn, fill: float | None) -> np.ndarray:
    numbers = raw.numbers()
    if fill is None and raw.missing.any():
        raise ValueError(_missing_in_words(raw))
    return numbers if fill is None else np.where(raw.missing, fill, numbers)


def _missing_in_words(raw: RawColumn) -> str:
    return (
        f"{raw.title} holds {raw.missing_count} missing values in {len(raw.values)} rows; fill them, drop those rows, or say "
        "missing= in the recipe's step"
    )


def _fill_in_words(fill: float | None) -> str:
    return "" if fill is None else f"; missing values become {fill:.6g} before that"


def _listed(tags: tuple[Tag, ...]) -> str:
    return ", ".join(map(str, tags)) or "nothing"
