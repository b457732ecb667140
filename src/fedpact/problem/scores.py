"""Scores of a model on new rows."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpact.problem.columns import numeric
from fedpact.problem.models import Model


def scores_of(model: Model, params: Any, rows: Mapping[str, Any]) -> np.ndarray:
    """A model's scores on rows of a table, (rows,) or (rows, outputs).

    Raises TypeError where `rows` are no mapping of columns, and ValueError where they do not fit model and parameters.
    """
    if not isinstance(rows, Mapping):
        raise TypeError(f"scores need a table or a mapping of columns such as {{'x': x}}, not a {type(rows).__name__}")
    arrays = {name: jnp.asarray(column) for name, column in numeric(rows).items()}
    params, wanted = jax.tree.map(jnp.asarray, params), getattr(model, "inputs", None)
    if wanted is not None and wanted not in arrays:
        raise ValueError(f"scores need the column {wanted!r} of numbers; there is {', '.join(map(str, rows))}")
    try:
        return np.asarray(model.apply(params, arrays))
    except TypeError as error:
        width, shapes = arrays[wanted].shape[1:] if wanted else "", jax.tree.map(jnp.shape, params)
        raise ValueError(
            f"column {wanted!r} has the width {width}, which the parameters {shapes} do not fit ({error})"
        ) from None
