"""The values of columns of groups: those that gaps leave open are found where a problem meets its tables."""

import warnings
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fedpact.federation.description import Description
from fedpact.federation.rows import title
from fedpact.federation.table import Table
from fedpact.federation.table_checks import Holder, check_finite, check_there, of_all
from fedpact.problem.atoms import Scope
from fedpact.problem.columns import kind
from fedpact.problem.nonsmooth import Tag
from fedpact.problem.statement import Problem

SERVER = "the server"
SHOWN = 4  # values of a column in a warning
FEW_PARTIES = 1000  # with more, their values are not compared one by one


def with_groups(problem: Problem, parties: Sequence[Holder], server: Table | None = None) -> Problem:
    """The problem with all values of groups that its gaps leave open: those at these parties, or those of the server's table.

    Raises ValueError where a column has one value only or is missing.
    """

    def values(column: str, scope: Scope) -> tuple[Tag, ...]:
        if scope == "server":
            return _at_server(column, server)
        together = _several(column, values_at(column, parties), "over all parties")
        if isinstance(together[0], str) and len(parties) <= FEW_PARTIES:
            _check_alike(column, {holder.title: values_at(column, [holder]) for holder in parties})
        return together

    return problem.with_groups(values)


def with_described_groups(
    problem: Problem, names: Sequence[str], descriptions: Sequence[Description], server: Description | Table | None
) -> Problem:
    """The same from what the parties have described, and the server where its table is not here."""

    def values(column: str, scope: Scope) -> tuple[Tag, ...]:
        if scope == "server":
            return _at_server(column, server)
        told = [_told(column, title(name), each) for name, each in zip(names, descriptions, strict=True)]
        if len({isinstance(value, str) for own in told for value in own}) > 1:
            raise ValueError(f"column {column!r} holds strings at some parties and numbers at others; make them alike")
        together = _several(column, _united(told), "over all parties")
        if isinstance(together[0], str):
            _check_alike(column, dict(zip(map(title, names), told, strict=True)))
        return together

    return problem.with_groups(values)


def groups_at(problem: Problem, holder: Holder, server: bool = False) -> dict[str, tuple[Tag, ...]]:
    """The values of columns of groups that a problem leaves open, at one party or at the server."""
    columns = (column for column, scope in problem.open_groups() if (scope == "server") == server)
    return {column: values_at(column, [holder]) for column in columns}


def with_own_groups(problem: Problem, own: Mapping[str, tuple[Tag, ...]]) -> Problem:
    """The parties' part of a problem with one party's own values of groups in place of those of all."""
    at_parties = tuple(constraint for constraint in problem.constraints if constraint.scope != "server")
    stated = Problem(problem.objective, at_parties, problem.regularizer, problem.personal)
    return stated.with_groups(lambda column, scope: own[column])


def values_at(column: str, holders: Sequence[Holder]) -> tuple[Tag, ...]:
    """The values of a column at these holders, each once and in order; whole numbers are integers, whatever their dtype."""
    together = of_all(column, list(holders))
    if together is not None and (together.dtype.kind != "f" or np.isfinite(together).all()):
        return _united([_plain(together)])
    for holder in holders:
        check_there(column, "a gap between groups", holder)
        own = holder.table[column]
        if own.ndim != 1:
            raise ValueError(f"column {column!r} of {holder.title} holds arrays; a group is one value a row")
        check_finite(column, holder)
    first, *others = holders
    odd = next(h for h in others if kind(h.table[column]) != kind(first.table[column]))
    raise ValueError(
        f"column {column!r} holds {kind(odd.table[column])} at {odd.title} and {kind(first.table[column])} at {first.title}; "
        "make them alike"
    )


def _check_alike(column: str, by_party: Mapping[str, tuple[Tag, ...]]) -> None:
    """Warn where a party has several groups, none of which another party has: they may be the same under other names."""
    for party, own in by_party.items():
        others = {value for other, values in by_party.items() if other != party for value in values}
        if len(own) > 1 and len(others) > 1 and not others & set(own):
            listed, theirs = (", ".join(map(repr, sorted(map(str, each))[:SHOWN])) for each in (own, others))
            warnings.warn(
                f"column {column!r} of {party} holds {listed}, and that of the others {theirs}: if these are the same groups by "
                "other names, make them alike; if not, name those to compare, groups=(...)",
                UserWarning,
                stacklevel=2,
            )
            return


def _plain(column: np.ndarray) -> list[Tag]:
    values = np.unique(column).tolist()
    return [int(value) if not isinstance(value, str) and value == int(value) else value for value in values]


def _united(parts: Iterable[Iterable[Tag]]) -> tuple[Tag, ...]:
    together = {value for part in parts for value in part}
    return tuple(sorted(together))  # pyright: ignore[reportArgumentType]  # all strings or all numbers


def _at_server(column: str, server: Description | Table | None) -> tuple[Tag, ...]:
    if server is None:
        raise ValueError(f"the groups of column {column!r} are those of the server's own rows, but there are none")
    known = isinstance(server, Table)
    own = values_at(column, [Holder(SERVER, server)]) if known else _told(column, SERVER, server)
    return _several(column, own, "at the server")


def _told(column: str, holder: str, description: Description) -> tuple[Tag, ...]:
    if column not in description.groups:
        raise ValueError(f"{holder} does not describe the groups in column {column!r}")
    return description.groups[column]


def _several(column: str, values: tuple[Tag, ...], where: str) -> tuple[Tag, ...]:
    if len(values) < 2:
        has = f"holds {values[0]!r} alone" if values else "holds no value"
        raise ValueError(
            f"column {column!r} {has} {where}, so there is no gap between groups; compare the groups of another column, or "
            "leave the constraint out"
        )
    return values
