"""A party's block of a split model: its features, its bottom model and its parameters.

The label holder evaluates objective and constraints as functions of what the bottom models give. So its oracle is an ordinary
one whose rows are labels and groups, and whose parameters are those of the top model; everything is taken over all rows.
"""

import dataclasses
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedpact.federation.columns import INPUTS, ColumnParties
from fedpact.federation.rows import title
from fedpact.problem.expressions import Expression
from fedpact.problem.flat_regularizer import FlatRegularizer
from fedpact.problem.functions import value
from fedpact.problem.models import Model, squared_norm
from fedpact.problem.oracle import Oracle
from fedpact.problem.parameter_names import leaf_names
from fedpact.problem.regularizers import Regularizer
from fedpact.problem.shape import Shape
from fedpact.problem.split import EMBEDDED, TOP, SplitModel
from fedpact.problem.statement import Problem


class Block(eqx.Module):
    """One party's features, its bottom model, and where its block of parameters begins.

    labels: of an active party, the functions of labels and groups that the server has too; a passive one has none.
    regularizer: h of the block beside ‖w‖², which stands in the objective; None where there is no other.
    """

    x: jax.Array
    start: jax.Array
    index: jax.Array
    labels: Oracle | None
    model: Model = eqx.field(static=True)
    shape: Shape = eqx.field(static=True)
    combine: Literal["sum", "concat"] = eqx.field(static=True)
    parties: int = eqx.field(static=True)
    regularizer: FlatRegularizer | None = None

    @property
    def active(self) -> bool:
        return self.labels is not None

    def embed(self, w: jax.Array, places: jax.Array | None = None) -> jax.Array:
        """What the bottom gives on these rows (default: all)."""
        x = self.x if places is None else self.x[places]
        return self.model.apply(self.shape.unravel(w), {INPUTS: x})


def over_all_rows(problem: Problem) -> Problem:
    """The same problem with every mean over all rows, and fp.l2 as a part of the objective."""
    squares = [part for part in problem.regularizer.parts if part.kind == "l2"]
    factor = Regularizer(tuple(squares)).even
    if factor is None:
        raise ValueError("over columns fp.l2(a) is on all parameters; leave on= out")
    objective: Expression = problem.objective.scoped("pooled")
    if factor:
        objective = objective + factor * value(squared_norm).pooled()
    constraints = tuple(dataclasses.replace(c, expression=c.expression.scoped("pooled")) for c in problem.constraints)
    return Problem(objective, constraints, Regularizer())


def of_blocks(problem: Problem) -> Regularizer:
    """What the regulariser has beside fp.l2, which every block has by itself. Raises ValueError where it joins several blocks."""
    parts = tuple(part for part in problem.regularizer.parts if part.kind != "l2")
    for part in parts:
        if part.kind in ("set", "prox"):
            raise ValueError(
                f"over columns {part} would join the parameters of several parties; fp.l1, fp.l2, fp.box and fp.group can be "
                "evaluated by each party alone"
            )
        if part.groups is not None:
            raise ValueError("over columns fp.group takes each feature as a group; leave groups= out")
    return Regularizer(parts)


def flat_of_block(h: Regularizer, params: Any) -> FlatRegularizer:
    """On one block, or the top: of terms on certain parameters those that it has."""
    names = {name for name, _ in leaf_names(params)}
    parts = [
        part if part.on is None else dataclasses.replace(part, on=(*names.intersection(part.on),)) for part in h.parts
    ]
    return Regularizer(tuple(part for part in parts if part.on != ())).flat(params)


def blocks_of(
    model: SplitModel, parties: ColumnParties, start: Any, seed: int, h: Regularizer
) -> tuple[list[tuple[tuple[int, ...], Block]], jax.ShapeDtypeStruct]:
    """Parties of equal width and role share a bucket; and the shape of what the bottoms give together on all rows."""
    key = jax.random.key(seed)
    bottoms, blocks, shapes = [], [], []
    for place, name in enumerate(parties.names):
        x = np.asarray(parties[name][INPUTS])
        known = x[:1] if _is_one_number(x) else x
        if x.dtype.kind not in "biuf" or (x.dtype.kind == "f" and not np.isfinite(known).all()):
            raise ValueError(f"column 'x' of {title(name)} holds something else than finite numbers")
        bottom = model.bottom_for(parties.widths[place])
        params = (
            _given(start, name) if start is not None else bottom.init(jax.random.fold_in(key, place), {INPUTS: x[:1]})
        )
        params = jax.tree.map(lambda leaf: np.asarray(leaf, float), params)
        given = jax.eval_shape(bottom.apply, params, {INPUTS: jax.ShapeDtypeStruct(x.shape, x.dtype)})
        if given.shape[:1] != (parties.rows,):
            raise ValueError(
                f"the bottom of {title(name)} gives shape {given.shape} on {parties.rows} rows, not one entry a row"
            )
        bottoms.append(bottom)
        blocks.append(params)
        shapes.append(given.shape)
    odd = [i for i, shape in enumerate(shapes) if shape != shapes[0]]
    if odd:
        raise ValueError(
            f"the bottom of {title(parties.names[odd[0]])} gives {shapes[odd[0]][1:]} numbers a row and that of "
            f"{title(parties.names[0])} {shapes[0][1:]}; all bottoms need one width"
        )
    kinds: dict[Any, list[int]] = {}
    for place, bottom in enumerate(bottoms):
        name = parties.names[place]
        kind = bottom, Shape.of(blocks[place]), parties[name][INPUTS].shape, name in parties.active
        kinds.setdefault(kind, []).append(place)
    out = []
    for (bottom, shape, *_), mine in kinds.items():
        x: Any = _stacked([np.asarray(parties[parties.names[i]][INPUTS]) for i in mine])
        begin: Any = np.stack([shape.ravel(blocks[i]) for i in mine])
        index: Any = np.asarray(mine)
        flat = None
        if h.parts:
            one = flat_of_block(h, blocks[mine[0]])
            begin = np.stack([one.prox(each, 0.0) for each in begin])
            flat = jax.tree.map(lambda leaf, many=len(mine): np.stack([leaf] * many), one)
        block = Block(x, begin, index, None, bottom, shape, model.combine, len(parties), flat)
        out.append((tuple(mine), block))
    whole = shapes[0] if model.combine == "sum" else (shapes[0][0], len(parties), *shapes[0][1:])
    return out, jax.ShapeDtypeStruct(whole, jnp.float64)


def _is_one_number(x: np.ndarray) -> bool:
    """Whether an array stands for what is elsewhere: one number that is read as many."""
    return x.size > 1 and not any(x.strides)


def _stacked(arrays: list[np.ndarray]) -> np.ndarray:
    """One upon the other; what stands for arrays elsewhere takes no room."""
    if all(map(_is_one_number, arrays)):
        return np.broadcast_to(arrays[0].flat[0], (len(arrays), *arrays[0].shape))
    return np.stack(arrays)


def top_parameters(model: SplitModel, embedded: jax.ShapeDtypeStruct, start: Any, seed: int) -> Any:
    if model.top is None:
        return {}
    one = {EMBEDDED: np.zeros((1, *embedded.shape[1:]))}
    try:
        fresh = model.init(jax.random.fold_in(jax.random.key(seed), 2**31 - 1), one)  # no party has that number
        jax.eval_shape(model.apply, fresh, one)
    except (ValueError, TypeError) as error:
        raise ValueError(f"the top model does not fit what the bottoms give, shape {embedded.shape}: {error}") from None
    given = fresh if start is None else _given(start, TOP)
    return jax.tree.map(lambda leaf: np.asarray(leaf, float), given)


def _given(start: Any, name: str) -> Any:
    if not isinstance(start, dict) or name not in start:
        raise ValueError(f"start= has no parameters for {name!r}; it is keyed by party, with {TOP!r} for the top model")
    return start[name]
