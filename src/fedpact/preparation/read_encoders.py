"""Encoders from the words of a JSON file, which may be anybody's: whatever is not as an encoder writes it is refused."""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

from fedpact.preparation import encoders
from fedpact.preparation.encoders import MOST_FREQUENT, Encoder, LabelEncoder

ENCODERS: dict[str, type[Encoder]] = {
    kind.name: kind
    for kind in (
        encoders.NumberEncoder, encoders.MissingEncoder, encoders.BinsEncoder, encoders.OneHotEncoder,
        encoders.OrdinalEncoder,
    )
}  # fmt: skip
STEPS = ("standardize", "scale", "impute", "passthrough")
LARGEST = 1e300  # of numbers; a file may hold integers that no float has room for
UNKNOWN = ("error", "own", "zeros")


def encoder_of(words: Any) -> Encoder:
    """From what `Encoder.to_json` gave; raises ValueError where it is none."""
    kind = ENCODERS.get(str(words.get("encoder"))) if isinstance(words, Mapping) else None
    if kind is None:
        raise ValueError("an encoder of the recipe is of no known kind")
    return _made(kind, {name: value for name, value in words.items() if name != "encoder"})


def label_of(words: Any) -> LabelEncoder:
    """From what `LabelEncoder.to_json` gave; raises ValueError where it is none."""
    if not isinstance(words, Mapping):
        raise ValueError("the label of the recipe is not described")
    return _made(LabelEncoder, words)


def _made(kind: Any, words: Mapping[str, Any]) -> Any:
    stated = {name: tuple(value) if isinstance(value, list) else value for name, value in words.items()}
    for field in dataclasses.fields(kind):
        if field.name not in stated and field.default is dataclasses.MISSING:
            raise ValueError(f"an encoder of the recipe lacks {field.name!r}")
    unknown = sorted(stated.keys() - {field.name for field in dataclasses.fields(kind)})
    if unknown or not isinstance(stated["column"], str):
        raise ValueError(f"an encoder of the recipe has {(unknown or ['column'])[0]!r}, which is not known")
    made = kind(**stated)
    odd = _odd(made)
    if odd is not None:
        raise ValueError(f"an encoder of column {made.column!r} has something else as {odd!r} than a recipe gives")
    return made


def _odd(made: Any) -> str | None:
    """The first field that is not as a fitted recipe has it; None where all are."""
    if isinstance(made, encoders.NumberEncoder):
        fits = {
            "step": made.step in STEPS,
            "fill": made.fill is None or _is_number(made.fill),
            "shift": _is_number(made.shift),
            "scale": _is_number(made.scale) and made.scale > 0,
        }
    elif isinstance(made, encoders.BinsEncoder):
        numbers = isinstance(made.edges, tuple) and len(made.edges) > 0 and all(map(_is_number, made.edges))
        fits = {
            "edges": numbers and all(a < b for a, b in itertools.pairwise(made.edges)),
            "fill": made.fill is None or _is_number(made.fill),
        }
    elif isinstance(made, encoders.CategoryEncoder):
        listed = _are_tags(made.categories) and _are_tags(made.together)
        listed = listed and not set(made.categories) & set(made.together)
        filled = listed and _is_tag(made.fill) and made.fill in (*made.categories, *made.together)
        fits = {
            "categories": listed,
            "unknown": made.unknown in UNKNOWN,
            "missing": made.missing in (*UNKNOWN, MOST_FREQUENT),
            "unnamed": isinstance(made.unnamed, bool),
            "fill": filled if made.missing == MOST_FREQUENT else made.fill is None,
        }
    elif isinstance(made, LabelEncoder):
        known = made.labels is None or _are_tags(made.labels)
        second = made.labels[1] if known and made.labels is not None and len(made.labels) == 2 else None
        fits = {
            "labels": known,
            "positive": made.positive is None or (_is_tag(made.positive) and made.positive == second),
        }
    else:
        fits = {}
    return next((name for name, right in fits.items() if not right), None)


def _is_number(thing: Any) -> bool:
    return isinstance(thing, int | float) and not isinstance(thing, bool) and abs(thing) <= LARGEST


def _is_tag(thing: Any) -> bool:
    return isinstance(thing, str | bool) or _is_number(thing)


def _are_tags(things: Any) -> bool:
    return isinstance(things, tuple) and all(map(_is_tag, things)) and len(set(things)) == len(things)
