"""Models whose code is the user's: the parameters of a folder, in the tree that the code makes."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from fedpact.precision import in_double
from fedpact.prediction.describe import describe, named
from fedpact.prediction.forms import OwnForm, SplitForm
from fedpact.prediction.predictor import Predictor
from fedpact.problem.columns import numeric
from fedpact.problem.models import Model
from fedpact.problem.scores import scores_of
from fedpact.problem.split import SplitModel

Scores = Callable[[Mapping[str, Any]], np.ndarray]


def with_code(predictor: Predictor, model: Any) -> Predictor:
    """The predictor with its model's code. Raises TypeError or ValueError where the code is not that of the folder."""
    if not isinstance(model, Model):
        raise TypeError(f"fp.load(model=...) takes a model such as fp.model(init, apply), not a {type(model).__name__}")
    over_columns = predictor.split == "columns"
    if over_columns and predictor.party is None and not isinstance(model, SplitModel):
        raise ValueError(f"the folder's model is over columns, and the given one is not: it is {describe(model).kind}")
    own = None
    if isinstance(predictor.form, OwnForm):
        own = scored_by(model, predictor.params)
    elif isinstance(predictor.form, SplitForm) and isinstance(predictor.form.top, OwnForm):
        assert isinstance(model, SplitModel)
        if model.top is None:
            raise ValueError("the folder's model has a top model, and the given one has none")
        own = scored_by(model.top, predictor.params)
    parts = {name: with_code(part, model) for name, part in predictor.parts.items()}
    return dataclasses.replace(predictor, own=own, parts=parts)


def scored_by(model: Model, params: Mapping[str, np.ndarray]) -> Scores:
    """Scores of columns by a model with these parameters; over columns by the bottom model for their width."""

    @in_double
    def scores(columns: Mapping[str, Any]) -> np.ndarray:
        rows = {name: np.asarray(column) for name, column in columns.items()}
        mine = model.bottom_for(math.prod(rows["x"].shape[1:])) if isinstance(model, SplitModel) else model
        return scores_of(mine, _tree(mine, params, rows), rows)

    return scores


def scored_with(model: Model, params: Any) -> Scores:
    """The same, for parameters that are a tree already."""

    @in_double
    def scores(columns: Mapping[str, Any]) -> np.ndarray:
        return scores_of(model, params, {name: np.asarray(column) for name, column in columns.items()})

    return scores


def _tree(model: Model, params: Mapping[str, np.ndarray], rows: Mapping[str, Any]) -> Any:
    """The parameters in the tree that the model's `init` makes for such rows."""
    first = {name: column[:1] for name, column in numeric(rows).items()}
    like = jax.eval_shape(lambda key: model.init(key, first), jax.random.key(0))
    leaves, structure = jax.tree.flatten(like)
    wanted = dict(zip(_names(like), (leaf.shape for leaf in leaves), strict=True))
    saved = {name: array.shape for name, array in params.items()}
    if wanted != saved:
        raise ValueError(f"the given model has parameters {_listed(wanted)}, and the folder {_listed(saved)}")
    return jax.tree.unflatten(structure, [params[name] for name in wanted])


def _names(like: Any) -> list[str]:
    return list(named(jax.tree.map(lambda leaf: np.zeros(()), like)))


def _listed(shapes: dict[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name}{list(shape)}" for name, shape in shapes.items()) or "none"
