"""A problem meets parties whose tables stay where they are: each describes its own, and what it does not have is stood in for.

A description tells how many rows there are, which columns the problem reads, and how many rows each mean is taken over; no
value of any row. With the descriptions of all, everybody can trace the same method on the same shapes.
"""

import dataclasses
import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fedpact.federation.binding import Bound, server_oracle, starting_point
from fedpact.federation.blocks import Block, BoundColumns, bind_columns
from fedpact.federation.buckets import stacked
from fedpact.federation.columns import INPUTS, ColumnParties
from fedpact.federation.function_checks import guarded
from fedpact.federation.rows import Parties, title
from fedpact.federation.table import Table
from fedpact.federation.table_checks import Holder, check_columns, check_labels, columns_read, mean_weights, selected
from fedpact.problem.expressions import Mean
from fedpact.problem.oracle import Compiled, Oracle, Shape, compile_problem
from fedpact.problem.personal import together
from fedpact.problem.sets import everywhere
from fedpact.problem.statement import Problem

LARGEST = 1 << 40  # bytes of a table that somebody may describe


@dataclasses.dataclass(frozen=True)
class Description:
    """What a holder tells about its table before the first round.

    columns: by name, the dtype and the shape of one entry, of those that are read. counts: for each mean, its rows here.
    labels: at an active holder of columns, those that are no features. ids: a digest of the column that names the rows.
    """

    rows: int
    columns: Mapping[str, tuple[str, tuple[int, ...]]]
    counts: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    ids: str = ""

    def as_words(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def read(cls, words: Any) -> "Description":
        """From what came in a message; raises ValueError where it is none."""
        try:
            columns = {str(n): (str(np.dtype(d)), tuple(map(int, shape))) for n, (d, shape) in words["columns"].items()}
            counts, labels = tuple(map(int, words["counts"])), tuple(map(str, words["labels"]))
            told = cls(int(words["rows"]), columns, counts, labels, str(words["ids"]))
            sizes = [np.dtype(dtype).itemsize * math.prod(shape) for dtype, shape in columns.values()]
            if told.rows < 0 or not all(0 <= count <= told.rows for count in counts) or min(sizes, default=0) < 0:
                raise ValueError("numbers of rows that cannot be")
            if told.rows * sum(sizes) > LARGEST:
                raise ValueError(f"more than {LARGEST} bytes")
            return told
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise ValueError(f"that is no description of a table: {error!r}") from None

    def zeros(self, rows: int | None = None) -> Table:
        """A table of this kind without anything in it (default: of as many rows)."""
        count = self.rows if rows is None else rows
        return Table({name: np.zeros((count, *shape), dtype) for name, (dtype, shape) in self.columns.items()})


def described(table: Table, names: Sequence[str], **more: Any) -> Description:
    columns = {name: (str(table[name].dtype), tuple(table[name].shape[1:])) for name in names}
    return Description(table.rows, columns, **more)


# rows


@dataclasses.dataclass(frozen=True)
class OwnRows:
    """One party's part of a problem, checked on its own rows."""

    problem: Problem
    name: str
    names: tuple[str, ...]
    table: Table
    compiled: Compiled
    columns: tuple[str, ...]
    params: Any

    @classmethod
    def of(cls, problem: Problem, name: str, names: tuple[str, ...], table: Table, start: Any, seed: int) -> "OwnRows":
        holder = Holder.of(name, table)
        params = starting_point(problem, Parties({name: table}), start, seed)
        compiled = compile_problem(problem, Shape.of(params), len(names))
        columns, _ = columns_read(compiled.party, holder)
        check_columns(columns, [holder])
        check_labels(problem, [holder], params, ("party", "pooled"))
        return cls(problem, name, names, table, compiled, columns, params)

    @property
    def description(self) -> Description:
        holder = Holder.of(self.name, self.table)
        means = [atom for atom, _ in self.compiled.party.atoms if isinstance(atom, Mean)]
        counts = tuple(int(selected(atom, holder).sum()) for atom in means)
        return described(self.table, self.columns, counts=counts)

    def means(self) -> list[str]:
        """The means that the party evaluates, in words, as `description.counts` counts their rows."""
        return [str(atom) for atom, _ in self.compiled.party.atoms if isinstance(atom, Mean)]

    def oracle(self, everybody: Sequence[Description], disclose: bool) -> Oracle:
        """The party's functions on its rows; pooled means are over the rows of everybody."""
        holder, index = Holder.of(self.name, self.table), self.names.index(self.name)
        totals = tuple(np.sum([told.counts for told in everybody], axis=0).astype(int).tolist())
        weights = mean_weights(self.compiled, [holder], totals)
        stack = stacked(self.compiled.party, [self.table], weights, self.columns, (index,), disclose)
        if self.problem.personal is not None:
            own = self.problem.personal.of_party(self.name, self.names, self.params)
            stack = dataclasses.replace(stack, personal=together([own]))
        w: Any = Shape.of(self.params).ravel(self.params)
        (stack,) = guarded((stack,), [[holder.title]], w)
        return jax.device_put(jax.tree.map(lambda leaf: leaf[0], stack))


def bind_described(
    problem: Problem,
    names: tuple[str, ...],
    told: Sequence[Description],
    server: Table | Description | None,
    *,
    start: Any = None,
    seed: int = 0,
    disclose: bool = False,
) -> Bound:
    """The problem over tables of zeros in place of the parties'; the server's own table, or one of zeros in its place."""
    _agree(names, told)
    first = told[0].zeros(1)
    params = starting_point(problem, Parties({names[0]: first}), start, seed)
    shape = Shape.of(params)
    compiled = compile_problem(problem, shape, len(names))
    holder = Holder.of(names[0], first)
    columns, whole = columns_read(compiled.party, holder)
    means = sum(isinstance(atom, Mean) for atom, _ in compiled.party.atoms)
    for name, each in zip(names, told, strict=True):
        if len(each.counts) != means:
            raise ValueError(f"{title(name)} describes {len(each.counts)} means, and the problem has {means}")
    rows = 1 if whole is None else told[0].rows
    everyone = tuple(range(len(names)))
    tables = [told[0].zeros(rows)] * len(names)
    stack = stacked(compiled.party, tables, [np.zeros((means, rows))] * len(names), columns, everyone, disclose)
    if problem.personal is not None:
        anywhere = problem.personal.like(everywhere(), params)
        stack = dataclasses.replace(stack, personal=together([anywhere] * len(names)))
    if isinstance(server, Description):
        at_server = _like_server(compiled, server)
    else:
        at_server = server_oracle(problem, compiled.server, server, params, columns, holder)
    w: Any = shape.ravel(params)
    bound = Bound(
        (stack,), at_server, problem.regularizer.flat(params), w, (everyone,), names, tuple(d.rows for d in told), compiled,
        whole, problem.regularizer.even,
    )  # fmt: skip
    return jax.device_put(bound)


def _agree(names: tuple[str, ...], told: Sequence[Description]) -> None:
    """All parties have the columns that are read, of one kind and width."""
    for name, mine in zip(names, told, strict=True):
        for column in sorted(mine.columns.keys() | told[0].columns.keys()):
            ours, theirs = mine.columns.get(column), told[0].columns.get(column)
            if ours is None or theirs is None:
                raise ValueError(
                    f"column {column!r} is read at {title(names[0] if ours is None else name)}, but not at "
                    f"{title(name if ours is None else names[0])}"
                )
            numbers = [np.dtype(dtype).kind in "biuf" for dtype, _ in (ours, theirs)]
            if ours[1] != theirs[1] or numbers[0] != numbers[1]:
                raise ValueError(
                    f"column {column!r} has {ours[0]}{list(ours[1])} a row at {title(name)} and {theirs[0]}{list(theirs[1])} at "
                    f"{title(names[0])}; all parties need the same"
                )


def _like_server(compiled: Compiled, told: Description) -> Oracle:
    means = sum(isinstance(atom, Mean) for atom, _ in compiled.server.atoms)
    rows: Any = dict(told.zeros().items())
    index: Any = np.asarray(-1)
    count: Any = np.asarray(told.rows)
    weights: Any = np.zeros((means, max(told.rows, 1)))
    return Oracle(rows, weights, index, count, compiled.server)


# columns


def describe_columns(name: str, table: Table, active: bool, id: str | None) -> Description:
    """Of a holder of columns: its features, and which labels and groups it has if it is active."""
    if INPUTS not in table.columns:
        raise ValueError(f"column {INPUTS!r} of {title(name)} is missing: it has {', '.join(table.columns)}")
    labels = tuple(column for column in table.columns if column not in (INPUTS, id))
    if labels and not active:
        raise ValueError(
            f"{title(name)} is passive, but its table holds {', '.join(map(repr, labels))}: take it out, or name the party in "
            "`active`"
        )
    ids = "" if id is None else _digest_of_ids(name, table, id)
    return described(table, (INPUTS, *labels), labels=labels, ids=ids)


def _digest_of_ids(name: str, table: Table, id: str) -> str:
    if id not in table.columns:
        raise ValueError(f"column {id!r} of {title(name)} is missing: it has {', '.join(table.columns)}")
    twice = table.rows - len(np.unique(table[id]))
    if twice:
        raise ValueError(f"rows do not match: {title(name)} has {twice} duplicate ids")
    return hashlib.sha256(repr(table[id].tolist()).encode()).hexdigest()[:16]


def bind_columns_described(
    problem: Problem,
    names: tuple[str, ...],
    active: tuple[str, ...],
    told: Sequence[Description],
    mine: Mapping[str, Table],
    labels: Table | None,
    *,
    start: Any = None,
    seed: int = 0,
) -> BoundColumns:
    """The problem over tables of zeros in place of those that are elsewhere.

    mine: the tables that are here. labels: labels and groups, where they are known; None at a passive party.
    """
    for name, their in zip(names, told, strict=True):
        if (their.rows, their.ids) != (told[0].rows, told[0].ids):
            what = "other rows, or the same in another order" if their.rows == told[0].rows else f"{their.rows} rows"
            raise ValueError(
                f"rows do not match: {title(name)} holds {what}, {title(names[0])} {told[0].rows} rows; align them by their ids"
            )
    first = told[names.index(active[0])]
    known = labels
    if known is None:
        known = Table({name: column for name, column in first.zeros().items() if name in first.labels})
    tables = {}
    for name, their in zip(names, told, strict=True):
        features = (mine[name] if name in mine else their.zeros())[INPUTS]
        tables[name] = Table({INPUTS: features, **(dict(known.items()) if name in active else {})})
    return bind_columns(problem, ColumnParties(tables, active), start=start, seed=seed, blind=labels is None)


def own_block(bound: BoundColumns, name: str) -> Block:
    """One party's part of a bound problem."""
    index = bound.names.index(name)
    for block, places in zip(bound.oracles, bound.order, strict=True):
        if index in places:
            at = places.index(index)
            return jax.tree.map(lambda leaf, at=at: leaf[at], block)
    raise KeyError(name)
