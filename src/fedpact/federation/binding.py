"""Where a problem meets tables of rows: the first parameters, and the server's own functions."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpact.federation.buckets import arrays
from fedpact.federation.rows import Parties
from fedpact.federation.table import Table
from fedpact.federation.table_checks import (
    Holder,
    check_columns,
    check_labels,
    check_without_rows,
    columns_read,
    initialised,
    nobody_has,
    row_weights,
    taker,
)
from fedpact.problem.columns import kind
from fedpact.problem.oracle import Oracle
from fedpact.problem.program import Program
from fedpact.problem.shape import Shape
from fedpact.problem.statement import Problem


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


def drawn_starts(problem: Problem, parties: Parties, seed: int, count: int) -> list[Any] | None:
    """The model's own initial parameters with the `count` seeds after this one; None where all seeds give the same."""
    if problem.model is None:
        return None
    holder = Holder.of(parties.names[0], parties[parties.names[0]])
    seeds = [(seed + k) % 2**63 for k in range(count + 1)]
    usual, *others = (_numbers(initialised(problem.model, holder, s), "the model's init") for s in seeds)
    same = all(jax.tree.all(jax.tree.map(np.array_equal, usual, other)) for other in others)
    return None if same else others


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


def check_server_rows(problem: Problem, own: Table | None) -> None:
    for constraint in problem.constraints:
        reads_rows = any(atom.over_rows for atom, _ in constraint.expression.atoms())
        if constraint.scope == "server" and own is None and reads_rows:
            raise ValueError(
                f"constraint {constraint.name!r} holds on the server's own rows, but there are none: "
                "give fp.solve(..., server=table)"
            )
    if own is None and any(scope == "server" and atom.over_rows for atom, scope in problem.objective.atoms()):
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
        for atom, _ in program.over_rows:
            weights = row_weights(atom, [holder])
            if not weights.any():
                raise ValueError(
                    f"{atom}: {taker(atom)} selects none of the server's {own.rows} rows{nobody_has(atom.where, [holder])}"
                )
            lines.append(weights / weights.sum())
        weights = np.stack(lines) if lines else np.zeros((0, own.rows))
    else:
        check_without_rows(program)
    index: Any = np.asarray(-1)
    count: Any = np.asarray(0 if own is None else own.rows)
    return Oracle.of(program, rows, weights, index, count)
