"""Parties who hold rows, whether they share one model or have one each: tables become arrays, parties become buckets."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, Self

import equinox as eqx
import jax
import numpy as np

from fedpact.federation.binding import check_server_rows, server_oracle, starting_point
from fedpact.federation.buckets import buckets, stacked
from fedpact.federation.description import Description
from fedpact.federation.function_checks import alone, check_row_wise, check_slopes, guarded, guarded_server, not_finite
from fedpact.federation.groups import groups_at, with_described_groups, with_groups, with_own_groups
from fedpact.federation.rows import Parties, checked_seed, same_features, split_rows, title
from fedpact.federation.setting import Setting
from fedpact.federation.table import Table, as_table
from fedpact.federation.table_checks import (
    Holder,
    check_columns,
    check_labels,
    columns_read,
    mean_weights,
    row_weights,
    sums_at,
)
from fedpact.problem.oracle import Oracle
from fedpact.problem.personal import Own, kinds, together
from fedpact.problem.program import Compiled, compile_problem
from fedpact.problem.sets import Everywhere
from fedpact.problem.shape import Shape
from fedpact.problem.split import SplitModel
from fedpact.problem.statement import Problem
from fedpact.protocol.phases import ServerData
from fedpact.settings.base import Agreement, Bound

DISCLOSED = 512  # parties times constraints up to which their curves are recorded without being asked


class RowTables(Bound):
    """A problem over rows: one stack of oracles per bucket."""

    whole_table_function: str | None = eqx.field(static=True, default=None)
    ridge: float | None = eqx.field(static=True, default=0.0)

    split: ClassVar[Literal["rows", "personal"]]

    @property
    def setting(self) -> Setting:
        return Setting(
            size=self.shape.size,
            parties=len(self.names),
            split=self.split,
            programs=(self.compiled.party, self.compiled.server),
            rows=dict(zip(self.names, self.rows, strict=True)),
            constraints=tuple((c.name, scope) for c, scope, _ in self.compiled.rows),
            whole_table_function=self.whole_table_function,
            nonsmooth=self.server_data.regularizer.kinks != "none",
            ridge=self.ridge,
        )

    @property
    def discloses(self) -> bool:
        return self.stacks[0].discloses

    def not_finite(self) -> str | None:
        start = self.start.reshape(-1, self.shape.size)[0]
        return not_finite(self.stacks, self.server_data.functions, self.order, self.names, start)

    @classmethod
    def bind(cls, problem: Problem, parties: Any, server: Any, *, start: Any, seed: int, disclose: bool | None) -> Self:
        parties = parties if isinstance(parties, Parties) else split_rows(parties)
        if isinstance(problem.model, SplitModel):
            raise ValueError(
                "the model is split over holders of columns, but the parties hold rows; see fp.split_columns"
            )
        server_table = None if server is None else as_table(server)
        if server_table is not None and not server_table.rows:
            raise ValueError("the server's table holds no rows; give it some, or leave server= out")
        params = starting_point(problem, parties, start, checked_seed(seed))
        check_server_rows(problem, server_table)
        holders = [Holder.of(name, parties[name]) for name in parties]
        problem = with_groups(problem, holders, server_table)
        compiled = compile_problem(problem, Shape.of(params), len(parties))
        columns, whole_table_function = columns_read(compiled.party, holders[0])
        check_columns(columns, holders)
        check_labels(problem, holders, params, ("party", "pooled"))
        weights = mean_weights(compiled, holders)
        disclose = _discloses(disclose, compiled)
        order = buckets([h.table.rows for h in holders], exact=whole_table_function is not None)
        personal = problem.personal
        own_sets = personal and personal.by_party(parties.names, params)
        order = kinds(order, own_sets) if own_sets else order
        w: Any = compiled.party.shape.ravel(params)
        check_row_wise(compiled.party, parties, order, columns, w)
        stacks = tuple(
            _with_sets(
                stacked(
                    compiled.party, [holders[i].table for i in bucket], [weights[i] for i in bucket], columns, bucket, disclose,
                    whole_table_function is not None,
                ),
                own_sets and [own_sets[i] for i in bucket],
            )
            for bucket in order
        )  # fmt: skip
        at_server = server_oracle(problem, compiled.server, server_table, params, columns, holders[0])
        titles = [[holders[i].title for i in bucket] for bucket in order]
        stacks = guarded(stacks, titles, w)
        at_server = guarded_server(at_server, w)
        check_slopes(compiled, stacks, titles, w)
        check_slopes(compiled, [alone(at_server)], [["the server"]], w)
        compiled = dataclasses.replace(compiled, party=stacks[0].program, server=at_server.program)
        own = ServerData(
            at_server, problem.regularizer.flat(params), len(parties), coldest_rate=_coldest_rate(compiled)
        )
        bound = cls(
            stacks,
            own,
            w,
            order,
            parties.names,
            parties.sizes,
            compiled,
            whole_table_function,
            problem.regularizer.even,
        )
        return jax.device_put(bound)

    # deployed

    @classmethod
    def describe(cls, agreement: Agreement, name: str, table: Table) -> tuple[Description, list[tuple[str, int]]]:
        problem, holder = agreement.problem, Holder.of(name, table)
        groups = groups_at(problem, holder)
        own = with_own_groups(problem, groups)
        compiled, columns, _ = _checked_at_party(own, agreement, name, table)
        weights = {atom: row_weights(atom, [holder]) for atom, _ in compiled.party.over_rows}
        totals = {atom.rows_in_words: sums_at(line, np.array([0, len(line)])).item() for atom, line in weights.items()}
        stated = {atom.rows_in_words for atom, _ in problem.atoms()}  # in words that say nothing of this table
        means = [
            (str(atom) if atom.rows_in_words in stated else "a mean over one of its groups", int((line > 0).sum()))
            for atom, line in weights.items()
        ]
        for column, values in groups.items():
            means += [(f"a group in column {column!r}", int((table[column] == value).sum())) for value in values]
        return Description.of(table, columns, totals=totals, groups=groups), means

    @classmethod
    def bind_at_party(cls, agreement: Agreement, name: str, table: Table) -> tuple[Self, Oracle]:
        bound = cls._bind_described(agreement, agreement.server)
        descriptions, problem = agreement.descriptions, agreement.problem
        problem = with_described_groups(problem, agreement.names, descriptions, agreement.server)
        compiled, columns, params = _checked_at_party(problem, agreement, name, table)
        exact = bound.whole_table_function is not None
        holder, index = Holder.of(name, table), agreement.names.index(name)
        rows = [atom.rows_in_words for atom, _ in compiled.party.over_rows]
        totals = tuple(math.fsum(each.totals.get(words, 0) for each in descriptions) for words in rows)
        weights = mean_weights(compiled, [holder], totals)
        stack = stacked(compiled.party, [table], weights, columns, (index,), bound.discloses, exact)
        personal = agreement.problem.personal
        own_set = personal and personal.of_party(name, agreement.names, params)
        stack = _with_sets(stack, own_set and [own_set])
        w: Any = Shape.of(params).ravel(params)
        (stack,) = guarded((stack,), [[holder.title]], w)
        check_slopes(compiled, [stack], [[holder.title]], w)
        # methods that replace a party's program know it from the setting
        bound = dataclasses.replace(bound, compiled=dataclasses.replace(bound.compiled, party=stack.program))
        return bound, jax.device_put(jax.tree.map(lambda leaf: leaf[0], stack))

    @classmethod
    def bind_at_server(
        cls, agreement: Agreement, server: Table | None, load: Callable[[str], Table]
    ) -> tuple[Self, Description | None]:
        bound = cls._bind_described(agreement, server)
        read = tuple(bound.server_data.functions.rows)
        if server is None:
            return bound, None
        groups = groups_at(agreement.problem, Holder("the server", server), server=True)
        return bound, Description.of(server, read, groups=groups)

    @classmethod
    def _bind_described(cls, agreement: Agreement, server: Table | Description | None) -> Self:
        """The problem over tables of zeros in place of the parties', and of the server's where that is described."""
        problem, names, descriptions = agreement.problem, agreement.names, agreement.descriptions
        _check_agreeing(names, descriptions)
        first = descriptions[0].zeros(1)
        params = starting_point(problem, Parties({names[0]: first}), agreement.start, agreement.seed)
        problem = with_described_groups(problem, names, descriptions, server)
        compiled = compile_problem(problem, Shape.of(params), len(names))
        holder = Holder.of(names[0], first)
        columns, whole_table_function = columns_read(compiled.party, holder)
        _check_totals(agreement)
        means, disclose = len(compiled.party.over_rows), _discloses(agreement.disclose, compiled)
        rows = 1 if whole_table_function is None else descriptions[0].rows
        everyone = tuple(range(len(names)))
        tables, weights = [descriptions[0].zeros(rows)] * len(names), [np.zeros((means, rows))] * len(names)
        stack = stacked(compiled.party, tables, weights, columns, everyone, disclose, exact=True)
        any_set = problem.personal and problem.personal.like(Everywhere(), params)
        stack = _with_sets(stack, any_set and [any_set] * len(names))
        w: Any = compiled.party.shape.ravel(params)
        if isinstance(server, Description):
            at_server = _zero_server(compiled, server)
        else:
            at_server = server_oracle(problem, compiled.server, server, params, columns, holder)
            at_server = guarded_server(at_server, w)
            check_slopes(compiled, [alone(at_server)], [["the server"]], w)
            compiled = dataclasses.replace(compiled, server=at_server.program)
        own = ServerData(at_server, problem.regularizer.flat(params), len(names), coldest_rate=_coldest_rate(compiled))
        sizes = tuple(each.rows for each in descriptions)
        bound = cls(
            (stack,), own, w, (everyone,), names, sizes, compiled, whole_table_function, problem.regularizer.even
        )
        return jax.device_put(bound)


def _coldest_rate(compiled: Compiled) -> np.ndarray:
    rates = (*compiled.party.rates, *compiled.server.rates)
    return np.asarray(min((1.0, *(rate.temperature for rate in rates))))


def _with_sets(stack: Oracle, own_sets: Sequence[Own] | None) -> Oracle:
    return stack if not own_sets else dataclasses.replace(stack, personal=together(own_sets))


def _discloses(asked: bool | None, compiled: Compiled) -> bool:
    """Whether parties disclose their curves: as asked, else where there are few."""
    program = compiled.party
    return program.parties * max(1, len(program.constraints)) <= DISCLOSED if asked is None else asked


def _checked_at_party(
    problem: Problem, agreement: Agreement, name: str, table: Table
) -> tuple[Compiled, tuple[str, ...], Any]:
    """A party's part of a problem, checked on its own rows: programs, columns that are read, first parameters."""
    holder = Holder.of(name, table)
    params = starting_point(problem, Parties({name: table}), agreement.start, agreement.seed)
    compiled = compile_problem(problem, Shape.of(params), len(agreement.names))
    columns, _ = columns_read(compiled.party, holder)
    check_columns(columns, [holder])
    check_labels(problem, [holder], params, ("party", "pooled"))
    return compiled, columns, params


def _check_agreeing(names: tuple[str, ...], descriptions: Sequence[Description]) -> None:
    """All parties have the columns that are read, of one kind and width, with the same features."""
    same_features({title(name): each.features for name, each in zip(names, descriptions, strict=True)})
    for name, each in zip(names, descriptions, strict=True):
        for column in sorted(each.columns.keys() | descriptions[0].columns.keys()):
            here, at_first = each.columns.get(column), descriptions[0].columns.get(column)
            if here is None or at_first is None:
                raise ValueError(
                    f"column {column!r} is read at {title(names[0] if here is None else name)}, but not at "
                    f"{title(name if here is None else names[0])}"
                )
            numbers = [np.dtype(dtype).kind in "biuf" for dtype, _ in (here, at_first)]
            if here[1] != at_first[1] or numbers[0] != numbers[1]:
                raise ValueError(
                    f"column {column!r} has {here[0]}{list(here[1])} a row at {title(name)} and "
                    f"{at_first[0]}{list(at_first[1])} at {title(names[0])}; all parties need the same"
                )


def _check_totals(agreement: Agreement) -> None:
    """Every party describes the means that the problem has over its rows and groups, over no more rows than it has."""
    for name, each in zip(agreement.names, agreement.descriptions, strict=True):
        own = with_own_groups(agreement.problem, each.groups)
        means = {atom.rows_in_words: atom for atom, scope in own.atoms() if atom.over_rows and scope != "server"}
        if each.totals.keys() != means.keys():
            raise ValueError(
                f"{title(name)} describes {len(each.totals)} means, and the problem has {len(means)} others"
            )
        for words, atom in means.items():
            if atom.weights is None and each.totals[words] > each.rows:
                raise ValueError(
                    f"{title(name)} describes {each.rows} rows, and a mean over {each.totals[words]:g} of them"
                )


def _zero_server(compiled: Compiled, description: Description) -> Oracle:
    rows: Any = dict(description.zeros().items())
    index: Any = np.asarray(-1)
    count: Any = np.asarray(description.rows)
    weights: Any = np.zeros((len(compiled.server.over_rows), max(description.rows, 1)))
    return Oracle.of(compiled.server, rows, weights, index, count)
