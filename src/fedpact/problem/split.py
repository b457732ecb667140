"""Split models for vertical federated learning: each party has a bottom model, the label holder also the top model.

scores = top(Σ_i bottom_i(x_i))   or   top((bottom_1(x_1), …, bottom_n(x_n)))
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp

from fedpact.problem.columns import numeric
from fedpact.problem.models import Model, Rows

TOP = "top"  # the name of the top model's parameters beside the parties' blocks
EMBEDDED = "what the bottoms gave"  # the column of embeddings that the label holder reads in place of features


@dataclasses.dataclass(frozen=True)
class SplitModel(Model):
    """A model split over parties. Made by `fp.split_model`. Its parameters are those of the top; `apply` reads the embeddings."""

    bottom: Callable[[int], Model]
    combine: Literal["sum", "concat"]
    top: Model | None

    def bottom_for(self, width: int) -> Model:
        """The bottom model of a party with this many features."""
        bottom = self.bottom(width)
        if not isinstance(bottom, Model):
            raise TypeError(
                f"split_model(bottom=...): bottom({width}) gives a {type(bottom).__name__}, not a model such as fp.linear()"
            )
        return bottom

    def init(self, key: jax.Array, rows: Rows) -> Any:
        return {} if self.top is None else self.top.init(key, {"x": self._joined(rows)})

    def apply(self, params: Any, rows: Rows) -> jax.Array:
        joined = self._joined(rows)
        return joined if self.top is None else self.top.apply(params, {"x": joined})

    def predict(self, params: Mapping[str, Any], tables: Mapping[str, Any], parties: Sequence[str]) -> jax.Array:
        """Scores from all parties' parameters and tables.

        - `params`: by party name, and "top" for the top model.
        - `tables`: by party name, each with a column "x", over the same rows in the same order.
        - `parties`: their names, in order.

        Returns scores (rows,) or (rows, outputs). Raises ValueError where a table is missing or does not fit.
        """
        outputs = []
        for name in parties:
            if not isinstance(tables, Mapping) or name not in tables:
                raise ValueError(f"scores need the table of every party by name; there is none of {name!r}")
            x = jnp.asarray(numeric(tables[name])["x"])
            bottom, block = self.bottom_for(math.prod(x.shape[1:])), jax.tree.map(jnp.asarray, params[name])
            try:
                outputs.append(bottom.apply(block, {"x": x}))
            except TypeError as error:
                raise ValueError(f"column 'x' of party {name!r} does not fit its parameters ({error})") from None
        if len({len(part) for part in outputs}) > 1:
            raise ValueError("scores need the same rows of every party, but their tables have different lengths")
        embedded = sum(outputs[1:], outputs[0]) if self.combine == "sum" else jnp.stack(outputs, axis=1)
        return self.apply(jax.tree.map(jnp.asarray, params.get(TOP, {})), {EMBEDDED: embedded})

    def _joined(self, rows: Rows) -> jax.Array:
        embedded = rows[EMBEDDED]
        if self.combine == "sum":
            return embedded
        return embedded.reshape(embedded.shape[0], -1)  # (rows, parties, width) to (rows, parties · width)


@dataclasses.dataclass(frozen=True)
class Chain(Model):
    """A composition of functions and models. Made by `fp.chain`."""

    parts: tuple[Any, ...]

    def init(self, key: jax.Array, rows: Rows) -> Any:
        params, signal = {}, rows["x"]
        for place, part in enumerate(self.parts):
            if isinstance(part, Model):
                of_part = params[str(place)] = part.init(jax.random.fold_in(key, place), {"x": signal})
                signal = jax.eval_shape(part.apply, of_part, {"x": signal})
            else:
                signal = jax.eval_shape(part, signal)
            signal = jax.ShapeDtypeStruct(signal.shape, signal.dtype)
        return next(iter(params.values())) if len(params) == 1 else params

    def apply(self, params: Any, rows: Rows) -> jax.Array:
        signal, alone = rows["x"], sum(isinstance(part, Model) for part in self.parts) == 1
        for place, part in enumerate(self.parts):
            if isinstance(part, Model):
                signal = part.apply(params if alone else params[str(place)], {"x": signal})
            else:
                signal = part(signal)
        return signal


def split_model(
    bottom: Callable[[int], Model], combine: Literal["sum", "concat"] = "sum", top: Model | None = None
) -> SplitModel:
    """A model over parties that hold different columns of the same rows: scores = top(combine(bottom_1(x_1), …, bottom_n(x_n))).

    - `bottom`: `features -> model`, from a party's number of features to its bottom model: `lambda width: fp.mlp([width, 32])`.
    - `combine`: "sum" (default) adds the outputs of the bottom models, so that no single party's output is seen alone;
      "concat" concatenates them.
    - `top`: a model of the combined outputs at the label holder, such as `fp.chain(jax.nn.swish, fp.mlp([32, 10]))` (default
      None: the combined outputs are the scores).

    Returns a `Model` for data from `fp.split_columns`. Raises TypeError or ValueError where an argument is not of this form.

        linear = fp.split_model(lambda width: fp.linear())
    """
    if not callable(bottom) or isinstance(bottom, Model):
        raise TypeError(f"split_model(bottom={bottom!r}): a function of the number of features that gives a model")
    if combine not in ("sum", "concat"):
        raise ValueError(f"split_model(combine={combine!r}): 'sum' or 'concat'")
    if top is not None and not isinstance(top, Model):
        raise TypeError(
            f"split_model(top={top!r}): a model such as fp.mlp([32, 10]) or fp.chain(jax.nn.swish, ...), or None"
        )
    return SplitModel(bottom, combine, top)


def chain(*parts: Model | Callable[[jax.Array], jax.Array]) -> Chain:
    """A composition of models and functions, applied from left to right: `fp.chain(jax.nn.swish, fp.mlp([32, 10]))`.

    - `parts`: models, and functions of an array with one entry per row; at least one model.

    Returns a `Model` that reads the column "x". Its parameters are those of its only model, or a dictionary by the position of
    each model: "0", "2", …. Raises ValueError without a model and TypeError for other parts.
    """
    for part in parts:
        if not callable(part) and not isinstance(part, Model):
            raise TypeError(f"fp.chain takes models and functions of arrays, not {part!r}")
    if not any(isinstance(part, Model) for part in parts):
        raise ValueError(
            "fp.chain needs at least one model such as fp.mlp([32, 10]); functions alone have no parameters"
        )
    return Chain(parts)
