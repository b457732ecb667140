"""A recipe after it was fitted: what all parties agreed on, and how it turns raw frames into arrays. NumPy alone."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedpact.federation.frames import Tag, columns_of, read_column
from fedpact.preparation.encoders import Encoder, LabelEncoder
from fedpact.preparation.read_encoders import encoder_of, label_of

FORMAT = 1


@dataclasses.dataclass(frozen=True)
class AgreedRecipe:
    """A fitted recipe: `fp.prepare(recipe, frames).recipe`. It imports no JAX.

    - `encoders`: what becomes of each column of x, in order.
    - `label`: what becomes y, or None.
    - `keep`: columns that stay as they are, by name, with their kind ("numbers", "booleans" or "strings").
    - `rows`: of all parties together.
    - `told`: in words, what each party told while it was fitted, by party; not part of `to_json`, and empty after `from_json`.
    """

    encoders: tuple[Encoder, ...]
    label: LabelEncoder | None
    keep: Mapping[str, str]
    rows: int
    told: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the columns of x, in order."""
        return tuple(feature for encoder in self.encoders for feature in encoder.features)

    @property
    def columns(self) -> tuple[str, ...]:
        """The raw columns that x is made of, in order."""
        return tuple(dict.fromkeys(encoder.column for encoder in self.encoders))

    @property
    def labels(self) -> tuple[Tag, ...] | None:
        """What y stands for: (negative, positive), or all classes in the order of y = 0, 1, 2, …; None where y holds numbers."""
        return None if self.label is None else self.label.labels

    @property
    def positive(self) -> Tag | None:
        """The positive one of two labels; None for classes and numbers."""
        return None if self.label is None else self.label.positive

    def transform(
        self,
        frame: Any,
        owner: str = "the rows",
        complete: bool = False,
        features_only: bool = False,
        min_count: int = 1,
    ) -> dict[str, np.ndarray]:
        """Raw rows as arrays.

        - `frame`: a data frame of pandas, polars or Arrow, or a mapping of columns; others than the recipe's are ignored.
        - `owner`: whose rows they are, in words for errors (default "the rows").
        - `complete`: whether label and kept columns must be there too (default: they may be missing, as in new rows).
        - `features_only`: whether label and kept columns are left alone, whatever they hold (default: no).
        - `min_count`: where categories stayed with their parties, those that fewer of these rows have count as others, whoever
          else told them (>= 1, default 1: none do).

        Returns "x" (rows, features), and where they are there "y" and the kept columns. Raises ValueError with the column where
        one is missing, of another type, or holds a value that has no place, such as NaN where the recipe has no `missing=`.
        """
        columns = columns_of(frame, owner)
        raw = {name: read_column(columns, name, owner) for name in self.columns}
        parts = [encoder.encode(raw[encoder.column], min_count) for encoder in self.encoders]
        out = {"x": np.concatenate(parts, axis=1)}
        if features_only:
            return out
        if self.label is not None and (complete or self.label.column in columns):
            out["y"] = self.label.encode(read_column(columns, self.label.column, owner))
        for name, kind in self.keep.items():
            if complete or name in columns:
                out[name] = self._kept(read_column(columns, name, owner), kind)
        return out

    @staticmethod
    def _kept(raw: Any, kind: str) -> np.ndarray:
        if raw.missing.any():
            raise ValueError(
                f"{raw.title} holds {raw.missing_count} missing values in {len(raw.values)} rows, and is kept as it is; fill "
                "them or drop those rows"
            )
        if (raw.kind == "strings") != (kind == "strings"):
            raise ValueError(f"{raw.title} holds {raw.kind}; when the recipe was agreed on it held {kind}")
        return raw.values

    def to_json(self) -> dict[str, Any]:
        """As a tree of dicts, lists, strings and numbers; without what single parties told."""
        words = {
            "format": FORMAT,
            "x": [encoder.to_json() for encoder in self.encoders],
            "y": None if self.label is None else self.label.to_json(),
            "keep": dict(self.keep),
            "rows": self.rows,
        }
        return json.loads(json.dumps(words))

    @classmethod
    def from_json(cls, words: Any) -> "AgreedRecipe":
        """From what `to_json` gave. Raises ValueError where it is none."""
        try:
            if words["format"] != FORMAT:
                raise ValueError(f"its format is {words['format']!r}, and this version reads {FORMAT}")
            encoders = tuple(map(encoder_of, words["x"]))
            label = None if words["y"] is None else label_of(words["y"])
            keep = {str(k): str(v) for k, v in words["keep"].items()}
            if not encoders or not set(keep.values()) <= {"numbers", "booleans", "strings", "nothing"}:
                raise ValueError("it makes no features, or keeps columns of no known kind")
            return cls(encoders, label, keep, int(words["rows"]))
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise ValueError(f"that is no recipe: {error}") from None

    def __str__(self) -> str:
        lines = [f"recipe agreed on over {self.rows:,} rows: {len(self.features)} features"]
        lines += [f"  {encoder.column}: {encoder.in_words()}" for encoder in self.encoders]
        lines += [] if self.label is None else [f"  y: {self.label.in_words()}"]
        lines += [f"  kept as they are: {', '.join(self.keep)}"] if self.keep else []
        lines += ["what each party told of its rows:"] if self.told else []
        lines += [f"  {party}: {words}" for party, words in self.told.items()]
        return "\n".join(lines)

    __repr__ = __str__
