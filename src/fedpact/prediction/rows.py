"""New rows as a model reads them: from arrays, tables, mappings of columns and data frames, checked by name."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedpact.federation.frames import columns_of, read_column


def matrix(rows: Any, inputs: str, features: Sequence[str] | None, width: int | None) -> np.ndarray:
    """The features of rows, (rows, features) of finite numbers in float64.

    - `rows`: an array (rows, features); or columns by name, of which `inputs` is the matrix, or which have every feature.
    - `features`: their names, in order, where they have some. `width`: how many there are, where that is known.

    Raises TypeError and ValueError that name the column.
    """
    if isinstance(rows, np.ndarray):
        if rows.ndim < 2 and width != 1:
            raise ValueError(f"an array of rows has the shape (rows, features), not {rows.shape}")
        return _checked(rows, inputs, features, width)
    columns = columns_of(rows)
    if inputs in columns and (features is None or np.ndim(columns[inputs]) > 1):
        named = getattr(rows, "features", None)
        if features is not None and named is not None and tuple(named) != tuple(features):
            raise ValueError(_other_features(inputs, tuple(named), tuple(features)))
        return _checked(_numbers(inputs, columns[inputs]), inputs, features, width)
    if features is None:
        raise ValueError(
            f"scores need the column {inputs!r} of numbers, as the model's features have no names; there is {', '.join(columns)}"
        )
    parts = [read_column(columns, name).numbers() for name in features]
    return _checked(np.stack(parts, axis=1), inputs, features, width)


def _numbers(name: str, column: Any) -> np.ndarray:
    array = np.asarray(column)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"column {name!r} holds something else than numbers")
    return array


def _checked(x: np.ndarray, inputs: str, features: Sequence[str] | None, width: int | None) -> np.ndarray:
    x = np.asarray(_numbers(inputs, x), np.float64)
    x = x.reshape(len(x), int(np.prod(x.shape[1:])))
    if width is not None and x.shape[1] != width:
        named = "" if features is None else f": {', '.join(features)}"
        raise ValueError(f"column {inputs!r} has {x.shape[1]} features, and the model was trained on {width}{named}")
    finite = np.isfinite(x)
    if not finite.all():
        row, place = map(int, np.argwhere(~finite)[0])
        name = f"{inputs}[{place}]" if features is None else features[place]
        rows = int((~finite[:, place]).sum())
        what = "NaN" if np.isnan(x[row, place]) else "an infinite number"
        more = "" if rows == 1 else f", and {rows - 1} more rows there have no finite number either"
        raise ValueError(f"column {name!r} has {what} in row {row}{more}; fill it, or leave the rows out")
    return x


def _other_features(inputs: str, given: tuple[str, ...], wanted: tuple[str, ...]) -> str:
    for place, name in enumerate(wanted):
        if name not in given:
            return f"column {inputs!r} lacks the feature {name!r}; it has {', '.join(given)}"
        if place >= len(given) or given[place] != name:
            at = given.index(name)
            return (
                f"column {inputs!r} has its features in another order: {name!r} at place {at + 1}, and the model was trained "
                f"with it at place {place + 1}"
            )
    extra = [name for name in given if name not in wanted]
    return f"column {inputs!r} has the feature {extra[0]!r}, which the model was not trained on"
