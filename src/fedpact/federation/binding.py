"""A problem meets its parties: columns, labels and masks are checked, rows become arrays, parties become buckets."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedpact.federation.buckets import arrays, buckets, stacked
from fedpact.federation.function_checks import check_row_wise, guarded, guarded_server
from fedpact.federation.rows import Parties, checked_seed, split_rows
from fedpact.federation.setting import Setting
from fedpact.federation.table import Table, as_table
from fedpact.federation.table_checks import (
    Holder,
    check_columns,
    check_labels,
    check_without_rows,
    columns_read,
    initialised,
    mean_weights,
    nobody_has,
    selected,
)
from fedpact.problem.columns import kind
from fedpact.problem.expressions import Mean
from fedpact.problem.oracle import Compiled, Oracle, Program, Shape, compile_problem
from fedpact.problem.personal import kinds, together
from fedpact.problem.regularizers import FlatRegularizer
from fedpact.problem.split import SplitModel
from fedpact.problem.statement import Problem

DISCLOSED = 512  # parties times constraints up to which their curves are recorded without being asked


class Bound(eqx.Module):
    """A problem with its data: one stack of oracles per bucket, the server's oracle, h, and the starting point."""

    oracles: tuple[Oracle, ...]
    server: Oracle
    regularizer: FlatRegularizer
    start: jax.Array
    order: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    rows: tuple[int, ...] = eqx.field(static=True)
    compiled: Compiled = eqx.field(static=True)

    whole: str | None = eqx.field(static=True, default=None)
    ridge: float | None = eqx.field(static=True, default=0.0)

    @property
    def shape(self) -> Shape:
        return self.compiled.party.shape

    @property
    def setting(self) -> Setting:
        """What a method is told before it begins."""
        return Setting(
            size=self.shape.size,
            parties=len(self.names),
            pooled=len(self.compiled.party.pooled),
            at_each=tuple(c.name for c, scope, _ in self.compiled.rows if scope == "party"),
            rows=dict(zip(self.names, self.rows, strict=True)),
            whole=self.whole,
            bent=self.regularizer.bent != "none",
            ridge=self.ridge,
            constraints=tuple(c.name for c, _, _ in self.compiled.rows),
            personal=self.oracles[0].personal is not None,
            programs=(self.compiled.party, self.compiled.server),
        )

    def by_name(self, states: Any) -> dict[str, Any]:
        """States, stacked as the parties are, by the parties' names and in their order."""
        found = {
            place: jax.tree.map(lambda leaf, at=at: np.asarray(leaf[at]), stack)
            for stack, bucket in zip(states, self.order, strict=True)
            for at, place in enumerate(bucket)
        }
        return {name: found[place] for place, name in enumerate(self.names)}


def bind(
    problem: Problem,
    parties: Parties | Any,
    server: Table | Any | None = None,
    *,
    start: Any = None,
    seed: int = 0,
    disclose: bool | None = None,
) -> Bound:
    """Check everything that can be wrong between a problem and its data, and turn rows into arrays."""
    if not isinstance(problem, Problem):
        raise TypeError(f"a problem is made by fp.minimize(...), not {type(problem).__name__}")
    if not isinstance(parties, Parties):
        parties = split_rows(parties)
    if isinstance(problem.model, SplitModel):
        raise ValueError("the model is split over holders of columns, but the parties hold rows; see fp.split_columns")
    own = None if server is None else as_table(server)
    if own is not None and not own.rows:
        raise ValueError("the server's table holds no rows; give it some, or leave server= out")
    params = starting_point(problem, parties, start, checked_seed(seed))
    shape = Shape.of(params)
    compiled = compile_problem(problem, shape, len(parties))
    _no_server_rows(problem, own)
    holders = [Holder.of(name, parties[name]) for name in parties]
    columns, whole = columns_read(compiled.party, holders[0])
    check_columns(columns, holders)
    check_labels(problem, holders, params, ("party", "pooled"))
    weights = mean_weights(compiled, holders)
    if disclose is None:
        disclose = len(parties) * max(1, len(compiled.party.constraints)) <= DISCLOSED
    order = buckets([h.table.rows for h in holders], exact=whole is not None)
    owned = problem.personal and problem.personal.by_party(parties.names, params)
    order = kinds(order, owned) if owned else order
    w: Any = shape.ravel(params)
    check_row_wise(compiled.party, parties, order, columns, w)
    oracles = tuple(
        stacked(
            compiled.party, [holders[i].table for i in bucket], [weights[i] for i in bucket], columns, bucket, disclose
        )
        for bucket in order
    )
    if owned:
        stacks = (together([owned[i] for i in bucket]) for bucket in order)
        oracles = tuple(dataclasses.replace(o, personal=own) for o, own in zip(oracles, stacks, strict=True))
    at_server = server_oracle(problem, compiled.server, own, params, columns, holders[0])
    oracles = guarded(oracles, [[holders[i].title for i in bucket] for bucket in order], w)
    at_server = guarded_server(at_server, w)
    compiled = dataclasses.replace(compiled, party=oracles[0].program, server=at_server.program)
    bound = Bound(
        oracles, at_server, problem.regularizer.flat(params), w, order, parties.names, parties.sizes, compiled, whole,
        problem.regularizer.even,
    )  # fmt: skip
    return jax.device_put(bound)


def starting_point(problem: Problem, parties: Parties, start: Any, seed: int) -> Any:
    model = problem.model
    name = parties.names[0]
    params = None if start is None else _numbers(start, "start=")
    if model is None:
        if params is None:
            raise ValueError(
                "the problem has no loss of a model, such as fp.logistic_loss(fp.linear()), so the parameters' shape "
                "is unknown: give fp.solve(..., start=...)"
            )
        return params
    fresh = _numbers(initialised(model, Holder.of(name, parties[name]), seed), "the model's init")
    if params is None:
        return fresh
    if Shape.of(params) != Shape.of(fresh):
        raise ValueError(f"start= has shapes {_shapes(params)}, the model {_shapes(fresh)}")
    return params


def _numbers(params: Any, source: str) -> Any:
    arrays = jax.tree.map(np.asarray, params)
    leaves = jax.tree.leaves(arrays)
    if not leaves:
        raise ValueError(f"{source} holds no parameters")
    for leaf in leaves:
        if not (jnp.issubdtype(leaf.dtype, jnp.floating) or leaf.dtype.kind in "biu"):
            raise TypeError(f"{source} holds {kind(leaf)} where parameters, a tree of real numbers, are wanted")
        if not np.isfinite(leaf).all():
            raise ValueError(f"{source} holds NaN or infinite parameters")
    return jax.tree.map(lambda leaf: np.asarray(leaf, float), arrays)


def _shapes(params: Any) -> str:
    return str(jax.tree.map(lambda leaf: tuple(leaf.shape), params))


def _no_server_rows(problem: Problem, own: Table | None) -> None:
    for constraint in problem.constraints:
        means = any(isinstance(t.atom, Mean) for part in constraint.inequalities() for t in part.terms)
        if constraint.scope == "server" and own is None and means:
            raise ValueError(
                f"constraint {constraint.name!r} holds on the server's own rows, but there are none: "
                "give fp.solve(..., server=table)"
            )
    if own is None and any(t.scope == "server" and isinstance(t.atom, Mean) for t in problem.objective.terms):
        raise ValueError("the objective is taken on the server's own rows, but fp.solve got no server=table")


def server_oracle(
    problem: Problem, program: Program, own: Table | None, params: Any, shared: tuple[str, ...], party: Holder
) -> Oracle:
    weights: Any = np.zeros((0, 1))
    rows: Any = {}
    if own is not None and program.atoms:
        holder = Holder("the server", own)
        check_columns(tuple(name for name in shared if name in own.columns), [party, holder])
        columns, _ = columns_read(program, holder)
        check_columns(columns, [holder])
        check_labels(problem, [holder], params, ("server",))
        rows = arrays(own, columns)
        lines = []
        for atom, _ in program.atoms:
            if isinstance(atom, Mean):
                mask = selected(atom, holder)
                if not mask.any():
                    raise ValueError(
                        f"{atom}: the mask {atom.where} selects none of the server's {own.rows} rows"
                        f"{nobody_has(atom.where, [holder])}"
                    )
                lines.append(mask / mask.sum())
        weights = np.stack(lines) if lines else np.zeros((0, own.rows))
    else:
        check_without_rows(program)
    index: Any = np.asarray(-1)
    count: Any = np.asarray(0 if own is None else own.rows)
    return Oracle(rows, weights, index, count, program)
