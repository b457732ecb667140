"""A problem meets parties who hold columns: each gets a bottom model and its block of parameters, the label holder the rest.

The label holder evaluates objective and constraints as functions of what the bottoms gave. So its oracle is an ordinary one
whose rows are labels and groups, and whose parameters are those of the top model; everything is taken over all rows.
"""

import dataclasses
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedpact.federation.binding import Bound, bind
from fedpact.federation.columns import INPUTS, ColumnParties
from fedpact.federation.rows import Parties, checked_seed, title
from fedpact.federation.setting import Setting
from fedpact.federation.table_checks import Holder, checked_columns, columns_read, mean_weights
from fedpact.problem.expressions import Expression, Mean, Value, value
from fedpact.problem.models import Model, squared_norm
from fedpact.problem.oracle import Compiled, Oracle, Shape, compile_problem
from fedpact.problem.regularizers import FlatRegularizer, Regularizer
from fedpact.problem.split import EMBEDDED, TOP, SplitModel
from fedpact.problem.statement import Problem


class Block(eqx.Module):
    """One party's features, its bottom model, and where its block of parameters begins.

    labels: of an active party, the functions of labels and groups that the server has too; a passive one has none.
    """

    x: jax.Array
    start: jax.Array
    index: jax.Array
    labels: Oracle | None
    model: Model = eqx.field(static=True)
    shape: Shape = eqx.field(static=True)
    combine: Literal["sum", "concat"] = eqx.field(static=True)
    parties: int = eqx.field(static=True)

    @property
    def active(self) -> bool:
        return self.labels is not None

    def embed(self, w: jax.Array, places: jax.Array | None = None) -> jax.Array:
        """What the bottom gives on these rows (default: all)."""
        x = self.x if places is None else self.x[places]
        return self.model.apply(self.shape.unravel(w), {INPUTS: x})


class BoundColumns(eqx.Module):
    """A problem with its data: one stack of blocks per bucket of like parties, the label holder's oracle and the top's start."""

    oracles: tuple[Block, ...]
    server: Oracle
    regularizer: FlatRegularizer  # none: what the problem had of it stands in the objective
    start: jax.Array
    order: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    rows: tuple[int, ...] = eqx.field(static=True)
    compiled: Compiled = eqx.field(static=True)

    @property
    def shape(self) -> Shape:
        return self.compiled.party.shape

    @property
    def setting(self) -> Setting:
        buckets = list(zip(self.oracles, self.order, strict=True))
        sizes = {i: bucket.shape.size for bucket, mine in buckets for i in mine}
        active = {i for bucket, mine in buckets for i in mine if bucket.active}
        return Setting(
            size=self.shape.size + sum(sizes.values()),
            parties=len(self.names),
            pooled=len(self.compiled.party.pooled),
            rows=dict(zip(self.names, self.rows, strict=True)),
            columns=True,
            active=tuple(i in active for i in range(len(self.names))),
            blocks=tuple(sizes[i] for i in range(len(self.names))),
            combine=self.oracles[0].combine,
            linear=all(bucket.model.is_linear for bucket in self.oracles),
            constraints=tuple(c.name for c, _, _ in self.compiled.rows),
            programs=(self.compiled.party, self.compiled.server),
        )

    def params(self, w: np.ndarray, blocks: Any) -> dict[str, Any]:
        """The tree of parameters: by party, and the top's where there are any."""
        shapes = {
            self.names[i]: bucket.shape for bucket, mine in zip(self.oracles, self.order, strict=True) for i in mine
        }
        out = {name: shapes[name].unravel(block) for name, block in self.by_name(blocks).items()}
        return out | ({TOP: self.shape.unravel(w)} if self.shape.size else {})

    def by_name(self, blocks: Any) -> dict[str, np.ndarray]:
        """Blocks, stacked as the parties are, by the parties' names and in their order."""
        places = {
            i: block
            for stack, mine in zip(blocks, self.order, strict=True)
            for i, block in zip(mine, stack, strict=True)
        }
        return {name: np.asarray(places[i]) for i, name in enumerate(self.names)}


def bind_any(
    problem: Problem,
    parties: Parties | ColumnParties | Any,
    server: Any = None,
    *,
    start: Any = None,
    seed: int = 0,
    **more: Any,
) -> "Bound | BoundColumns":
    """Rows or columns, whichever the parties hold; `more` is for rows."""
    if not isinstance(parties, ColumnParties):
        return bind(problem, parties, server, start=start, seed=seed, **more)
    if server is not None:
        raise ValueError("server= is for parties who hold rows; over columns the active parties hold labels and groups")
    return bind_columns(problem, parties, start=start, seed=seed)


def bind_columns(
    problem: Problem, parties: ColumnParties, *, start: Any = None, seed: int = 0, blind: bool = False
) -> BoundColumns:
    """Check everything that can be wrong between a problem and its data, and turn columns into arrays.

    blind: labels and groups are zeros in place of those that others know; nothing is checked on them.
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"a problem is made by fp.minimize(...), not {type(problem).__name__}")
    if problem.personal is not None:
        raise ValueError("personal= is for parties who hold rows: where columns are split, all share one model's parts")
    model = problem.model
    if not isinstance(model, SplitModel):
        raise ValueError(
            "the parties hold columns, so every loss takes one fp.split_model(bottom=..., combine=..., top=...)"
        )
    if TOP in parties.names:
        raise ValueError(f"a party is called {TOP!r}, which names the parameters of the top model; call it otherwise")
    stated = over_all_rows(problem)
    blocks, embedded = _blocks(model, parties, start, checked_seed(seed))
    top = _top(model, embedded, start, checked_seed(seed))
    shape = Shape.of(top)
    compiled = compile_problem(stated, shape, 1)
    labels = Holder.of(parties.active[0], parties.labels)
    embedding = {EMBEDDED: embedded}
    weights: Any
    if blind:
        columns, _ = columns_read(compiled.party, labels, embedding)
        weights = np.zeros((sum(isinstance(atom, Mean) for atom, _ in compiled.party.atoms), parties.rows))
    else:
        columns = checked_columns(stated, compiled.party, labels, top, embedding)
        weights = mean_weights(compiled, [labels])[0]
    for atom, _ in compiled.party.atoms:
        if isinstance(atom, Value) and atom.function is not squared_norm:
            raise ValueError(
                f"{atom} reads parameters of several parties at once; over columns fp.value takes fp.squared_norm only"
            )
    rows: Any = {name: np.asarray(parties.labels[name]) for name in columns}
    index: Any = np.asarray(-1)
    count: Any = np.asarray(parties.rows)
    oracle = Oracle(rows, weights, index, count, compiled.party)
    w: Any = shape.ravel(top)
    order = tuple(mine for mine, _ in blocks)
    held = tuple(_with_labels(block, mine, oracle, parties) for mine, block in blocks)
    rows_of = (parties.rows,) * len(parties)
    bound = BoundColumns(held, oracle, Regularizer().flat(top), w, order, parties.names, rows_of, compiled)
    return jax.device_put(bound)


def _with_labels(block: Block, mine: tuple[int, ...], oracle: Oracle, parties: ColumnParties) -> Block:
    """The bucket of active parties gets what it may know, once for each of them."""
    if parties.names[mine[0]] not in parties.active:
        return block
    return dataclasses.replace(block, labels=jax.tree.map(lambda leaf: np.stack([leaf] * len(mine)), oracle))


def over_all_rows(problem: Problem) -> Problem:
    """The same problem with every mean over all rows, and the regulariser as a part of the objective."""
    wrong = [part.kind for part in problem.regularizer.parts if part.kind != "l2" or part.on is not None]
    if wrong:
        raise ValueError(
            f"over columns the regulariser is fp.l2(a) on all parameters; fp.{wrong[0]} is not supported there"
        )
    factor = problem.regularizer.even or 0.0
    objective: Expression = problem.objective.scoped("pooled")
    if factor:
        objective = objective + factor * value(squared_norm).pooled()
    constraints = tuple(dataclasses.replace(c, expression=c.expression.scoped("pooled")) for c in problem.constraints)
    return Problem(objective, constraints, Regularizer())


def _blocks(
    model: SplitModel, parties: ColumnParties, start: Any, seed: int
) -> tuple[list[tuple[tuple[int, ...], Block]], jax.ShapeDtypeStruct]:
    """Parties of equal width and role share a bucket; and the shape of what the bottoms give together on all rows."""
    key = jax.random.key(seed)
    bottoms, blocks, shapes = [], [], []
    for place, name in enumerate(parties.names):
        x = np.asarray(parties[name][INPUTS])
        if x.dtype.kind not in "biuf" or (x.dtype.kind == "f" and not np.isfinite(x).all()):
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
        x: Any = np.stack([np.asarray(parties[parties.names[i]][INPUTS]) for i in mine])
        begin: Any = np.stack([shape.ravel(blocks[i]) for i in mine])
        index: Any = np.asarray(mine)
        out.append((tuple(mine), Block(x, begin, index, None, bottom, shape, model.combine, len(parties))))
    whole = shapes[0] if model.combine == "sum" else (shapes[0][0], len(parties), *shapes[0][1:])
    return out, jax.ShapeDtypeStruct(whole, jnp.float64)


def _top(model: SplitModel, embedded: jax.ShapeDtypeStruct, start: Any, seed: int) -> Any:
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
