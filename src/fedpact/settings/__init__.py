"""The ways in which parties may hold a problem's data, one file each, behind the interface of `base`."""

from typing import Any

from fedpact.federation.columns import ColumnParties
from fedpact.problem.split import SplitModel
from fedpact.problem.statement import Problem
from fedpact.settings.base import Bound
from fedpact.settings.columns import ColumnsBound
from fedpact.settings.personal import PersonalBound
from fedpact.settings.remembered import bound_once
from fedpact.settings.rows import RowsBound


def setting_of(problem: Problem, parties: Any = None) -> type[Bound]:
    """The setting of a problem over these parties; without parties, the one that the problem is stated for."""
    if isinstance(parties, ColumnParties) or (parties is None and isinstance(problem.model, SplitModel)):
        return ColumnsBound
    return RowsBound if problem.personal is None else PersonalBound


def bind(
    problem: Problem,
    parties: Any,
    server: Any = None,
    *,
    start: Any = None,
    seed: int = 0,
    disclose: bool | None = None,
) -> Bound:
    """A problem bound to its parties' data. Arguments as in `fp.solve`."""
    if not isinstance(problem, Problem):
        raise TypeError(f"a problem is made by fp.minimize(...), not {type(problem).__name__}")
    kind = setting_of(problem, parties)
    tables = (parties,) if server is None else (parties, server)

    def bound() -> Bound:
        return kind.bind(problem, parties, server, start=start, seed=seed, disclose=disclose)

    return bound_once(problem, tables, start, (seed, disclose), bound)
