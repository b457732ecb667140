"""What a problem's functions read of a holder's table: its columns, labels and masks are there and fit, and weigh its rows."""

import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpact.arrays import key_of
from fedpact.federation.buckets import arrays, in_one
from fedpact.federation.rows import same_features, title
from fedpact.federation.table import INPUTS, Table
from fedpact.problem.atoms import Atom, Scope
from fedpact.problem.columns import Mask, kind
from fedpact.problem.models import Model
from fedpact.problem.program import Compiled, Program
from fedpact.problem.shape import Shape
from fedpact.problem.statement import Problem

SHOWN = 5  # values of a column in an error


@dataclasses.dataclass(frozen=True)
class Holder:
    """Somebody with a table, and the words for errors about it."""

    title: str
    table: Table

    @classmethod
    def of(cls, name: str, table: Table) -> "Holder":
        return cls(title(name), table)


class _Recorder(Mapping[str, Any]):
    """Rows that remember which columns were read; `others` are there, but hold no numbers."""

    def __init__(self, rows: Mapping[str, Any], seen: set[str], others: tuple[str, ...]):
        self.rows, self.seen, self.others = rows, seen, others

    def __contains__(self, name: object) -> bool:
        if name in self.others:
            raise _NoNumbers(name)
        if name in self.rows:
            self.seen.add(str(name))
        return name in self.rows

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise _NoColumn(name)
        return self.rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


jax.tree_util.register_pytree_node(  # so that a loss sees traced rows in it, also where a model has no parameters of its own
    _Recorder, lambda own: ((own.rows,), (own.seen, own.others)), lambda more, rows: _Recorder(*rows, *more)
)


class _NoColumn(KeyError):
    """A function read a column that is not there."""


class _NoNumbers(Exception):
    """A function read a column of something else than numbers."""


@contextlib.contextmanager
def _blaming(function: str, holder: Holder | None) -> Iterator[None]:
    """An error inside a user's function names the function, and whose rows it was given: None for a server without any."""
    try:
        yield
    except (_NoColumn, _NoNumbers) as error:
        (name,) = error.args
        if holder is None:
            raise ValueError(f"{function} reads the server's own rows, but fp.solve got no server=table") from None
        if isinstance(error, _NoNumbers):
            what = f"holds {kind(holder.table[name])}; a model reads numbers"
        else:
            what = f"is missing: it has {', '.join(holder.table.columns)}"
        raise ValueError(f"column {name!r} of {holder.title} {what}") from None
    except Exception as error:
        what = "" if type(error) in (TypeError, ValueError) else f"{type(error).__name__}: "
        why = str(error).partition("\n")[0]
        traced = isinstance(error, jax.errors.JAXTypeError)
        out = "; JAX compiles it, so write jnp for numpy and jnp.where for if" if traced else ""
        place = "at the server" if holder is None else f"on the rows of {holder.title}"
        raise ValueError(f"{function} fails {place}: {what}{why}{out}") from error


def _no_numbers(table: Table) -> tuple[str, ...]:
    return tuple(name for name in table.columns if name not in arrays(table[:1]))


def _specs(table: Table) -> dict[str, jax.ShapeDtypeStruct]:
    rows = table.rows
    return {name: jax.ShapeDtypeStruct((rows, *a.shape[1:]), a.dtype) for name, a in arrays(table[:1]).items()}


def initialised(model: Model, holder: Holder, seed: int) -> Any:
    """What a model's init gives on a holder's first row."""
    with _blaming("the model's init", holder):
        table = holder.table
        return model.init(key_of(seed), _Recorder(arrays(table[:1]), set(), _no_numbers(table)))


def checked_columns(
    problem: Problem, program: Program, holder: Holder, params: Any, more: dict[str, jax.ShapeDtypeStruct]
) -> tuple[str, ...]:
    """The columns of a holder that functions read, checked; `more` stand beside the table's own."""
    columns, _ = columns_read(program, holder, more)
    check_columns(columns, [holder])
    check_labels(problem, [holder], params, ("pooled",), more)
    return columns


def columns_read(
    program: Program, holder: Holder, more: dict[str, jax.ShapeDtypeStruct] | None = None
) -> tuple[tuple[str, ...], str | None]:
    """Which columns the functions read, which of them reads a table as a whole, and that they give numbers."""
    seen: set[str] = set()
    whole_table_function = None
    more = more or {}
    columns = tuple((name, spec.shape, spec.dtype) for name, spec in (_specs(holder.table) | more).items())
    others = tuple(name for name in holder.table.columns if name not in {name for name, _, _ in columns})
    for (atom, scope), digest in zip(program.atoms, program.digests, strict=True):
        with _blaming(str(atom), holder):
            read, result = _traced(atom, digest, program.shape, columns, others)
        seen |= read
        if read and not atom.over_rows:
            whole_table_function = str(atom)
            if scope == "pooled":
                raise ValueError(
                    f"{atom} reads rows, so it has no value over all parties' rows together; write it as the mean of a "
                    "row-wise function: fp.mean(fn).pooled()"
                )
        _check_number(atom, result, holder.table.rows)
    return tuple(sorted(seen - set(more))), whole_table_function


def check_without_rows(program: Program) -> None:
    """At a server that has no rows: no function reads any, and each gives a number."""
    for (atom, _), digest in zip(program.atoms, program.digests, strict=True):
        with _blaming(str(atom), None):
            _, result = _traced(atom, digest, program.shape, (), ())
        _check_number(atom, result, 0)


def _check_number(atom: Atom, result: Any, rows: int) -> None:
    shape = atom.result_shape(rows)
    what = f"a {type(result).__name__}"
    if isinstance(result, jax.ShapeDtypeStruct):
        real = jnp.issubdtype(result.dtype, jnp.floating) or jnp.issubdtype(result.dtype, jnp.integer)
        if result.shape == shape and real:
            return
        what = f"an array of shape {result.shape}" if result.shape != shape else f"{result.dtype}, which has no slope,"
    raise ValueError(f"{atom} gives {what} on {rows} rows; it should give {atom.wanted}")


@functools.lru_cache(maxsize=256)
def _traced(
    atom: Atom, digest: str, shape: Shape, columns: tuple[Any, ...], others: tuple[str, ...]
) -> tuple[frozenset[str], Any]:
    """The columns that a function reads, and what it gives. `digest` tells it from itself before its constants changed."""
    seen: set[str] = set()
    rows = {name: jax.ShapeDtypeStruct(size, dtype) for name, size, dtype in columns}
    result = jax.eval_shape(lambda p, r: atom.function(p, _Recorder(r, seen, others)), shape.specs(), rows)
    return frozenset(seen), result


def check_columns(columns: tuple[str, ...], holders: list[Holder]) -> None:
    """Every holder has these columns, of the kind and width that they have at the first, with the same features, without NaN or
    infinity."""
    first = holders[0]
    if INPUTS in columns:
        same_features({holder.title: holder.table.features for holder in holders})
    own = {name: [holder.table[name] for holder in holders if name in holder.table] for name in columns}
    alike = {
        name: len(own[name]) == len(holders) and len({(c.dtype, c.shape[1:]) for c in own[name]}) == 1 for name in own
    }
    for holder in holders if not all(alike.values()) else ():
        for name in columns:
            if name not in holder.table:
                raise ValueError(
                    f"column {name!r} of {holder.title} is missing: it has {', '.join(holder.table.columns)}"
                )
            here, at_first = holder.table[name], first.table[name]
            if here.shape[1:] != at_first.shape[1:]:
                raise ValueError(
                    f"column {name!r} has {_width(here)} at {holder.title} and {_width(at_first)} at {first.title}; "
                    "all parties need the same"
                )
            if (here.dtype.kind in "biuf") != (at_first.dtype.kind in "biuf"):
                raise ValueError(
                    f"column {name!r} is {here.dtype} at {holder.title} and {at_first.dtype} at {first.title}"
                )
    for name in columns:
        everybody = in_one(own[name])
        if everybody is None or not _is_finite(everybody):
            for holder in holders:
                check_finite(name, holder)


def check_finite(name: str, holder: Holder) -> None:
    """Raise ValueError where a column of a holder has NaN or infinite values."""
    column = holder.table[name]
    if not _is_finite(column):
        nan, inf = int(np.isnan(column).sum()), int(np.isinf(column).sum())
        raise ValueError(
            f"column {name!r} of {holder.title} holds {nan} NaN and {inf} infinite values in {len(column)} rows; "
            "fill them or drop those rows"
        )


def _is_finite(column: np.ndarray) -> bool:
    if column.dtype.kind != "f":
        return True
    flat = column.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        total = flat @ flat  # faster than to look at each number; large finite ones may add up to infinity
    return bool(np.isfinite(total) or np.isfinite(column).all())


def _width(column: np.ndarray) -> str:
    return "one number a row" if column.ndim == 1 else f"width {'x'.join(map(str, column.shape[1:]))}"


def check_labels(
    problem: Problem,
    holders: list[Holder],
    params: Any,
    scopes: tuple[Scope, ...],
    more: dict[str, jax.ShapeDtypeStruct] | None = None,
) -> None:
    """Labels are what the losses that are read in these scopes expect; `more` columns stand beside the tables' own."""
    read = {atom.loss for atom, scope in problem.atoms() if scope in scopes}
    for loss in problem.losses:
        if loss not in read or loss.label is None:
            continue
        specs = _specs(holders[0].table) | (more or {})
        scores = None if loss.labels is not None else jax.eval_shape(loss.model.apply, params, specs)
        everybody = of_all(loss.label, holders)
        if everybody is not None and not loss.unexpected_labels(everybody, scores)[0]:
            continue
        for holder in holders:
            bad, expected = loss.unexpected_labels(holder.table[loss.label], scores)
            if bad:
                count = int(np.isin(holder.table[loss.label], bad).sum())
                values = ", ".join(map(str, bad[:5]))
                raise ValueError(
                    f"{holder.title}: column {loss.label!r} holds {values} in {count} rows, "
                    f"but {loss.name} expects {expected}"
                )


def selected(atom: Atom, holder: Holder) -> np.ndarray:
    """Which of a holder's rows an atom is taken over."""
    if atom.where is None:
        return np.ones(holder.table.rows, bool)
    for name in atom.where.columns:
        check_there(name, f"the mask {atom.where}", holder)
        check_finite(name, holder)
    try:
        return atom.where(holder.table)
    except ValueError as error:
        raise ValueError(f"the mask {atom.where} at {holder.title}: {error}") from None


def row_weights(atom: Atom, holders: list[Holder]) -> np.ndarray:
    """The weights of all holders' rows, one after the other, before they are divided by their sum: 0 where the mask leaves a row
    out, else 1 or what the column of weights says."""
    mask = _selected_by_all(atom, holders)
    if atom.weights is None:
        return mask.astype(int)
    return mask * np.concatenate([_checked_weights(atom.weights, holder) for holder in holders])


def _checked_weights(name: str, holder: Holder) -> np.ndarray:
    check_there(name, "weights=", holder)
    column, wanted = holder.table[name], "weights are finite numbers from 0 on, one a row"
    if column.dtype.kind not in "biuf" or column.ndim != 1:
        what = "arrays" if column.ndim != 1 else kind(column)
        raise ValueError(f"column {name!r} of {holder.title} holds {what}; {wanted}")
    check_finite(name, holder)
    below = int((column < 0).sum())
    if below:
        raise ValueError(f"column {name!r} of {holder.title} holds {below} negative values; {wanted}")
    weights = column.astype(float)
    with np.errstate(over="ignore"):
        if not np.isfinite(weights.sum()):
            raise ValueError(f"column {name!r} of {holder.title}: its sum is too large; divide the weights by a number")
    return weights


def check_there(name: str, reader: str, holder: Holder) -> None:
    """Raise ValueError where a holder lacks a column that something reads."""
    if name not in holder.table:
        prepared = name in (holder.table.features or ())
        raise ValueError(
            f"{reader} reads column {name!r}, which is missing at {holder.title}: "
            f"it has {', '.join(holder.table.columns)}"
            + (
                f"; a feature of 'x' comes from {name!r}: name it in the recipe's keep= to have it as it is"
                if prepared
                else ""
            )
        )


def _selected_by_all(atom: Atom, holders: list[Holder]) -> np.ndarray:
    """`selected` of every holder, one after the other."""
    if atom.where is None:
        return np.ones(sum(holder.table.rows for holder in holders), bool)
    rows = {name: of_all(name, holders) for name in atom.where.columns}
    known = {name: column for name, column in rows.items() if column is not None and _is_finite(column)}
    if len(known) == len(rows):
        with contextlib.suppress(ValueError):  # which below says whose rows are at fault
            return atom.where(known)
    return np.concatenate([selected(atom, holder) for holder in holders])


def of_all(name: str, holders: list[Holder]) -> np.ndarray | None:
    """A column with one entry a row, of all holders one after the other; None where somebody has no such column."""
    columns = [holder.table[name] for holder in holders if name in holder.table]
    kinds = {column.dtype.kind for column in columns}
    alike = len(columns) == len(holders) and (kinds == {"U"} or kinds <= set("biuf"))
    return np.concatenate(columns) if alike and all(column.ndim == 1 for column in columns) else None


def nobody_has(mask: Mask | None, holders: list[Holder]) -> str:
    """Which part of a mask no row meets, and what its column holds instead; nothing where each part is met by some row."""
    for demand in mask.demands() if mask is not None else ():
        if demand.symbol in ("==", "in") and not any(demand(holder.table).any() for holder in holders):
            (name,) = demand.columns
            values = np.unique(np.concatenate([holder.table[name] for holder in holders])).tolist()
            shown = ", ".join(map(repr, values[:SHOWN])) + (", …" if len(values) > SHOWN else "")
            return f" (no row has {demand}: column {name!r} holds {shown})"
    return ""


def mean_weights(
    compiled: Compiled, holders: list[Holder], totals: tuple[float, ...] | None = None
) -> list[np.ndarray]:
    """The weights of every atom over rows, divided by their sum at the party, or by that over all parties where pooled.

    totals: for each of these atoms, the sum over all parties, where others than these holders have some.
    """
    sizes = np.array([holder.table.rows for holder in holders])
    starts = np.concatenate([[0], np.cumsum(sizes)])
    lines = np.zeros((len(compiled.party.over_rows), starts[-1]))
    for place, (atom, scope) in enumerate(compiled.party.over_rows):
        weights = row_weights(atom, holders)
        sums = sums_at(weights, starts)
        if scope == "pooled":
            total = math.fsum(sums) if totals is None else totals[place]
            if not total:
                raise ValueError(f"{atom}: {taker(atom)} selects no row at any party{nobody_has(atom.where, holders)}")
            sums = np.full(len(holders), total)
        if not sums.all():
            holder = holders[int(np.argmin(sums))]
            raise ValueError(
                f"{atom}: {taker(atom)} selects none of the {holder.table.rows} rows of "
                f"{holder.title}{nobody_has(atom.where, [holder])}, so its mean does not exist there; pool the "
                "expression with .pooled() or leave that party out"
            )
        lines[place] = weights / np.repeat(sums, sizes)
    return [lines[:, start:end] for start, end in itertools.pairwise(starts.tolist())]


def sums_at(weights: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The sums of rows' weights between these places; to the bit the same whether others' rows stand beside them or not."""
    if weights.dtype.kind == "i":
        return np.add.reduceat(weights, starts[:-1])
    return np.array([math.fsum(weights[start:end]) for start, end in itertools.pairwise(starts.tolist())])


def taker(atom: Atom) -> str:
    """What selects an atom's rows, in words for errors where it selects none."""
    parts = [] if atom.where is None else [f"the mask {atom.where}"]
    if atom.weights is not None:
        parts.append(f"the condition {atom.weights} > 0 on weights")
    return " and ".join(parts)
