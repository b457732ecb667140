"""A problem meets its parties: columns, labels and masks are checked, rows become arrays, parties become buckets."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedpact.federation.buckets import arrays, buckets, stacked
from fedpact.federation.rows import Parties, checked_seed, split_rows, title
from fedpact.federation.setting import Setting
from fedpact.federation.table import Table, as_table
from fedpact.federation.trials import check_row_wise, guarded, guarded_server
from fedpact.problem.columns import kind
from fedpact.problem.expressions import Mean, Scope, Value
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
    params = _starting_point(problem, parties, start, checked_seed(seed))
    shape = Shape.of(params)
    compiled = compile_problem(problem, shape, len(parties))
    _no_server_rows(problem, own)
    holders = [_Holder.of(name, parties[name]) for name in parties]
    columns, whole = _columns_read(compiled.party, holders[0])
    _check_columns(columns, holders)
    _check_labels(problem, holders, params, ("party", "pooled"))
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
    at_server = _server_oracle(problem, compiled.server, own, params, columns, holders[0])
    oracles = guarded(oracles, [[holders[i].title for i in bucket] for bucket in order], w)
    at_server = guarded_server(at_server, w)
    compiled = dataclasses.replace(compiled, party=oracles[0].program, server=at_server.program)
    bound = Bound(
        oracles, at_server, problem.regularizer.flat(params), w, order, parties.names, parties.sizes, compiled, whole,
        problem.regularizer.even,
    )  # fmt: skip
    return jax.device_put(bound)


@dataclasses.dataclass(frozen=True)
class _Holder:
    """Somebody with a table, and the words for errors about it."""

    title: str
    table: Table

    @classmethod
    def of(cls, name: str, table: Table) -> "_Holder":
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


class _NoColumn(KeyError):
    """A function read a column that is not there."""


class _NoNumbers(Exception):
    """A function read a column of something else than numbers."""


@contextlib.contextmanager
def _blaming(function: str, holder: "_Holder | None") -> Iterator[None]:
    """An error inside a user's function names the function, and whose rows it was given: None for a server without any."""
    try:
        yield
    except (_NoColumn, _NoNumbers) as error:
        (name,) = error.args
        if holder is None:
            raise ValueError(f"{function} reads the server's own rows, but fp.solve got no server=table") from None
        if isinstance(error, _NoNumbers):
            told = f"holds {kind(holder.table[name])}; a model reads numbers"
        else:
            told = f"is missing: it has {', '.join(holder.table.columns)}"
        raise ValueError(f"column {name!r} of {holder.title} {told}") from None
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


def _starting_point(problem: Problem, parties: Parties, start: Any, seed: int) -> Any:
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
    with _blaming("the model's init", _Holder.of(name, parties[name])):
        table = parties[name]
        fresh = model.init(jax.random.key(seed), _Recorder(arrays(table[:1]), set(), _no_numbers(table)))
    fresh = _numbers(fresh, "the model's init")
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


def holder_of(name: str, table: Table) -> _Holder:
    """A party as a holder of this table."""
    return _Holder.of(name, table)


def checked_columns(
    problem: Problem, program: Program, holder: _Holder, params: Any, more: dict[str, jax.ShapeDtypeStruct]
) -> tuple[str, ...]:
    """The columns of a holder that functions read, checked; `more` stand beside the table's own."""
    columns, _ = _columns_read(program, holder, more)
    _check_columns(columns, [holder])
    _check_labels(problem, [holder], params, ("pooled",), more)
    return columns


def _columns_read(
    program: Program, holder: _Holder, more: dict[str, jax.ShapeDtypeStruct] | None = None
) -> tuple[tuple[str, ...], str | None]:
    """Which columns the functions read, which of them reads a table as a whole, and that they give numbers."""
    seen: set[str] = set()
    whole = None
    more = more or {}
    columns = tuple((name, spec.shape, spec.dtype) for name, spec in (_specs(holder.table) | more).items())
    others = tuple(name for name in holder.table.columns if name not in {name for name, _, _ in columns})
    for (atom, scope), held in zip(program.atoms, program.held, strict=True):
        with _blaming(str(atom), holder):
            read, given = _traced(atom, held, program.shape, columns, others)
        seen |= read
        if isinstance(atom, Value) and read:
            whole = str(atom)
            if scope == "pooled":
                raise ValueError(
                    f"{atom} reads rows, so it has no value over all parties' rows together; write it as the mean of a "
                    "row-wise function: fp.mean(fn).pooled()"
                )
        _check_number(atom, given, holder.table.rows)
    return tuple(sorted(seen - set(more))), whole


def _check_number(atom: Mean | Value, given: Any, rows: int) -> None:
    wanted = (rows,) if isinstance(atom, Mean) else ()
    found, should = f"a {type(given).__name__}", "one number per row"
    if isinstance(given, jax.ShapeDtypeStruct):
        real = jnp.issubdtype(given.dtype, jnp.floating) or jnp.issubdtype(given.dtype, jnp.integer)
        if given.shape == wanted and real:
            return
        found = f"an array of shape {given.shape}" if given.shape != wanted else f"{given.dtype}, which has no slope,"
    if isinstance(atom, Value):
        should = "one real number: take a sum or a mean, or state a constraint for each entry"
    raise ValueError(f"{atom} gives {found} on {rows} rows; it should give {should}")


@functools.lru_cache(maxsize=256)
def _traced(
    atom: Mean | Value, held: str, shape: Shape, columns: tuple[Any, ...], others: tuple[str, ...]
) -> tuple[frozenset[str], Any]:
    """The columns that a function reads, and what it gives. `held` tells it from itself before its constants changed."""
    del held
    seen: set[str] = set()
    rows = {name: jax.ShapeDtypeStruct(size, dtype) for name, size, dtype in columns}
    given = jax.eval_shape(lambda p, r: atom.function(p, _Recorder(r, seen, others)), shape.specs(), rows)
    return frozenset(seen), given


def _check_columns(columns: tuple[str, ...], holders: list[_Holder]) -> None:
    first = holders[0]
    for holder in holders:
        for name in columns:
            if name not in holder.table.columns:
                raise ValueError(
                    f"column {name!r} of {holder.title} is missing: it has {', '.join(holder.table.columns)}"
                )
            mine, theirs = holder.table[name], first.table[name]
            if mine.shape[1:] != theirs.shape[1:]:
                raise ValueError(
                    f"column {name!r} has {_width(mine)} at {holder.title} and {_width(theirs)} at {first.title}; "
                    "all parties need the same"
                )
            if (mine.dtype.kind in "biuf") != (theirs.dtype.kind in "biuf"):
                raise ValueError(
                    f"column {name!r} is {mine.dtype} at {holder.title} and {theirs.dtype} at {first.title}"
                )
            _check_finite(name, holder)


def _check_finite(name: str, holder: _Holder) -> None:
    column = holder.table[name]
    if column.dtype.kind == "f" and not np.isfinite(column).all():
        nan, inf = int(np.isnan(column).sum()), int(np.isinf(column).sum())
        raise ValueError(
            f"column {name!r} of {holder.title} holds {nan} NaN and {inf} infinite values in {len(column)} rows; "
            "fill them or drop those rows"
        )


def _width(column: np.ndarray) -> str:
    return "one number a row" if column.ndim == 1 else f"width {'x'.join(map(str, column.shape[1:]))}"


def _check_labels(
    problem: Problem,
    holders: list[_Holder],
    params: Any,
    scopes: tuple[Scope, ...],
    more: dict[str, jax.ShapeDtypeStruct] | None = None,
) -> None:
    read = {t.atom.function for t in problem.terms() if isinstance(t.atom, Mean) and t.scope in scopes}
    for loss in problem.losses:
        if loss not in read:
            continue
        specs = _specs(holders[0].table) | (more or {})
        scores = None if loss.labels is not None else jax.eval_shape(loss.model.apply, params, specs)
        for holder in holders:
            bad, expected = loss.unexpected_labels(holder.table[loss.label], scores)
            if bad:
                count = int(np.isin(holder.table[loss.label], bad).sum())
                told = ", ".join(map(str, bad[:5]))
                raise ValueError(
                    f"{holder.title}: column {loss.label!r} holds {told} in {count} rows, "
                    f"but {loss.name} expects {expected}"
                )


def _selected(atom: Mean, holder: _Holder) -> np.ndarray:
    if atom.where is None:
        return np.ones(holder.table.rows, bool)
    for name in atom.where.columns:
        if name not in holder.table.columns:
            raise ValueError(
                f"the mask {atom.where} reads column {name!r}, which is missing at {holder.title}: "
                f"it has {', '.join(holder.table.columns)}"
            )
        _check_finite(name, holder)
    try:
        return atom.where(holder.table)
    except ValueError as error:
        raise ValueError(f"the mask {atom.where} at {holder.title}: {error}") from None


def mean_weights(compiled: Compiled, holders: list[_Holder]) -> list[np.ndarray]:
    """Each mean's weights on each party's rows: 1/count on the selected ones, the count over all rows where pooled."""
    means = [(atom, scope) for atom, scope in compiled.party.atoms if isinstance(atom, Mean)]
    lines: list[list[np.ndarray]] = [[] for _ in holders]
    for atom, scope in means:
        masks = [_selected(atom, holder) for holder in holders]
        counts = [int(mask.sum()) for mask in masks]
        if scope == "pooled":
            if not sum(counts):
                raise ValueError(f"{atom}: the mask {atom.where} selects no row at any party")
            counts = [sum(counts)] * len(holders)
        for line, mask, count, holder in zip(lines, masks, counts, holders, strict=True):
            if not count:
                raise ValueError(
                    f"{atom}: the mask {atom.where} selects none of the {holder.table.rows} rows of {holder.title}, so "
                    "its mean does not exist there; pool the expression with .pooled() or leave that party out"
                )
            line.append(mask / count)
    return [np.stack(mine) if mine else np.zeros((0, h.table.rows)) for mine, h in zip(lines, holders, strict=True)]


def _server_oracle(
    problem: Problem, program: Program, own: Table | None, params: Any, shared: tuple[str, ...], party: _Holder
) -> Oracle:
    weights: Any = np.zeros((0, 1))
    rows: Any = {}
    if own is not None and program.atoms:
        holder = _Holder("the server", own)
        _check_columns(tuple(name for name in shared if name in own.columns), [party, holder])
        columns, _ = _columns_read(program, holder)
        _check_columns(columns, [holder])
        _check_labels(problem, [holder], params, ("server",))
        rows = arrays(own, columns)
        lines = []
        for atom, _ in program.atoms:
            if isinstance(atom, Mean):
                mask = _selected(atom, holder)
                if not mask.any():
                    raise ValueError(f"{atom}: the mask {atom.where} selects none of the server's {own.rows} rows")
                lines.append(mask / mask.sum())
        weights = np.stack(lines) if lines else np.zeros((0, own.rows))
    else:
        for (atom, _), held in zip(program.atoms, program.held, strict=True):
            with _blaming(str(atom), None):
                _, given = _traced(atom, held, program.shape, (), ())
            _check_number(atom, given, 0)
    index: Any = np.asarray(-1)
    count: Any = np.asarray(0 if own is None else own.rows)
    return Oracle(rows, weights, index, count, program)
