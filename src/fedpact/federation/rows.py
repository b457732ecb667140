"""Horizontal federations: parties that hold different rows of the same columns."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedpact.federation.frames import is_frame
from fedpact.federation.table import Table, TablesByParty, as_table


class Parties(TablesByParty):
    """A horizontal federation: an ordered mapping of party names to tables of their own rows. See also `fp.split_rows`.

    - `tables`: by party name: tables, mappings of columns, data frames or files, each with at least one row.

    `parties["north"]` is that party's table, `parties.recipe` how all were made from raw frames, where `fp.prepare` did. Raises
    ValueError without parties, for a party without rows, for equal names, and where tables were made by different recipes.
    """

    def __init__(self, tables: Mapping[str, Any]):
        if not isinstance(tables, Mapping):
            raise TypeError(
                f"fp.Parties takes a mapping of names to tables, not {type(tables).__name__}; see fp.split_rows"
            )
        if not tables:
            raise ValueError("a federation needs at least one party")
        super().__init__({str(name): as_table(table) for name, table in tables.items()})
        if len(self._tables) < len(tables):
            raise ValueError(f"two parties have the same name: {', '.join(map(repr, tables))}")
        for name, table in self._tables.items():
            if table.rows == 0:
                raise ValueError(f"party {name!r} holds no rows; leave it out or give it some")
        self.recipe = same_recipe({title(name): table.recipe for name, table in self._tables.items()})

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of rows at each party, in order."""
        return tuple(table.rows for table in self._tables.values())

    @property
    def features(self) -> tuple[str, ...] | None:
        """The names of the columns of "x", in order, the same at every party; None where no table knows them.

        Raises ValueError where they differ, with party and feature.
        """
        return same_features({title(name): table.features for name, table in self._tables.items()})

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}: {table.rows}" for name, table in list(self._tables.items())[:8])
        return f"Parties({len(self)} with rows {{{sizes}{', …' if len(self) > 8 else ''}}})"


def split_rows(
    data: Any,
    parties: int | Sequence[str] | None = None,
    *,
    by: str | None = None,
    stratify: str | None = None,
    shares: Sequence[float] | None = None,
    seed: int = 0,
) -> Parties:
    """Assign rows to parties, for a simulated horizontal federation or from tables that are separate already.

    - `data`: one table (`fp.Table`, mapping of columns, pandas data frame or file) to be split; or a list or mapping of tables,
      one per party.
    - `parties`: how many (>= 1), or their names; a number of parties are called "party 1", "party 2", …
    - `by`: a column whose values are the names of the parties, instead of `parties`.
    - `stratify`: a column whose values are distributed in the same proportions to every party (default: none).
    - `shares`: relative sizes of the parties, one number > 0 each (default: equal; sizes differ by at most one row, in each
      stratum if stratified).
    - `seed`: of the random permutation of rows, an integer from 0 to 2**63 − 1 (default 0).

    Returns `fp.Parties`. Raises ValueError where a column is missing or has NaN, a party would have no rows, or options
    contradict each other.

        parties = fp.split_rows(fp.datasets.breast_cancer(), parties=5, stratify="y")
    """
    if is_split(data):
        if by is not None or stratify is not None or shares is not None:
            raise ValueError("the tables are split already, one per party; by=, stratify= and shares= split one table")
        return _already_split(data, parties)
    table = as_table(data)
    if by is not None:
        if parties is not None or stratify is not None or shares is not None:
            raise ValueError("by= names the parties by a column; it goes with neither parties=, stratify= nor shares=")
        values = _column(table, by, "by")
        return Parties({str(v): table.take(values == v) for v in np.unique(values)})
    names = _names(parties)
    order = np.random.default_rng(checked_seed(seed)).permutation(table.rows)
    strata = [order]
    if stratify is not None:
        values = _column(table, stratify, "stratify")[order]
        strata = [order[values == v] for v in np.unique(values)]
    owner = np.empty(table.rows, int)
    spare = 0
    for stratum in strata:
        counts, spare = _counts(len(stratum), _shares(shares, len(names)), spare)
        owner[stratum] = np.repeat(np.arange(len(names)), counts)
    sizes = np.bincount(owner, minlength=len(names))
    if not sizes.all():
        empty = names[int(np.argmin(sizes))]
        raise ValueError(f"{table.rows} rows are too few for {len(names)} parties: {empty!r} would get none")
    dealt = table.take(np.argsort(owner, kind="stable"))
    return Parties(dict(zip(names, dealt.cut(sizes.tolist()), strict=True)))


def checked_seed(seed: int) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**63:
        raise ValueError(f"seed={seed!r}: a whole number, at least 0 and below 2**63")
    return int(seed)


def title(name: str) -> str:
    """A party's name in a sentence: party 3, party 'north'."""
    return name if name.startswith("party ") else f"party {name!r}"


def same_recipe(by_owner: Mapping[str, Any]) -> Any:
    """The recipe that made all tables, or None; raises ValueError where they differ, with the owners."""
    (first, recipe), *others = by_owner.items()
    for owner, other in others:
        if other is not recipe and (other is None or recipe is None or other.to_json() != recipe.to_json()):
            raise ValueError(
                f"the tables of {first} and {owner} were not made by the same recipe: give all frames to one fp.prepare(...), or "
                "later ones to fp.prepare(parties.recipe, frames)"
            )
    return recipe


def same_features(by_owner: Mapping[str, tuple[str, ...] | None]) -> tuple[str, ...] | None:
    """The names of features that all have who know any; raises ValueError where they differ, with owner and feature."""
    known = {owner: names for owner, names in by_owner.items() if names is not None}
    if not known:
        return None
    (first, names), *others = known.items()
    for owner, own in others:
        if own == names:
            continue
        more, less = [name for name in own if name not in names], [name for name in names if name not in own]
        if more or less:
            what = f"{owner} has a feature {more[0]!r} in 'x', and {first} has none" if more else ""
            what = what or f"{owner} lacks the feature {less[0]!r} in 'x' that {first} has"
        else:
            place = next(place for place, (a, b) in enumerate(zip(own, names, strict=True)) if a != b)
            what = f"feature {place + 1} of 'x' is {own[place]!r} at {owner} and {names[place]!r} at {first}"
        raise ValueError(
            f"{what}; all parties need the same features in the same order: fp.prepare with an fp.Recipe agrees on them"
        )
    return names


def _names(parties: int | Sequence[str] | None) -> list[str]:
    if parties is None:
        raise ValueError("split_rows needs parties= (a number or names) or by= (a column)")
    if isinstance(parties, str):
        raise ValueError(f"parties={parties!r}: a list of names, a number, or by={parties!r} for a column")
    if isinstance(parties, bool) or not isinstance(parties, int | np.integer | Sequence | np.ndarray):
        raise TypeError(f"parties={parties!r}: a number, or a list of names")
    if isinstance(parties, int | np.integer):
        if parties < 1:
            raise ValueError(f"parties={parties}: a federation needs at least one party")
        return [f"party {i}" for i in range(1, int(parties) + 1)]
    names = [str(name) for name in parties]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"parties={list(parties)!r}: at least one name, and no name twice")
    return names


def _already_split(data: Any, parties: int | Sequence[str] | None) -> Parties:
    if isinstance(data, Mapping):
        if parties is not None:
            raise ValueError("a mapping of tables names its parties; leave parties= out")
        return Parties(data)
    if not data:
        return Parties({})
    names = _names(len(data) if parties is None else parties)
    if len(names) != len(data):
        raise ValueError(f"there are {len(data)} tables for {len(names)} parties")
    return Parties(dict(zip(names, data, strict=True)))


def is_split(data: Any) -> bool:
    """Whether this is a list or mapping of tables, one per party, and not one table."""
    if isinstance(data, Mapping) and not isinstance(data, Table):
        return all(isinstance(v, Mapping | str | pathlib.Path) or is_frame(v) for v in data.values())
    return isinstance(data, list | tuple)


def _column(table: Table, name: str, role: str) -> np.ndarray:
    if not isinstance(name, str) or name not in table.columns:
        raise ValueError(f"{role}={name!r}: no such column; there are {', '.join(table.columns)}")
    if table[name].ndim != 1:
        raise ValueError(f"{role}={name!r}: that column holds arrays, not one value per row")
    missing = int(np.sum(table[name] != table[name]))
    if missing:
        raise ValueError(f"{role}={name!r}: {missing} rows have NaN there; fill them or drop those rows")
    return table[name]


def _shares(shares: Sequence[float] | None, parties: int) -> np.ndarray:
    weights = np.ones(parties) if shares is None else np.asarray(shares)
    if (
        weights.dtype.kind not in "iuf"
        or weights.shape != (parties,)
        or not np.all((weights > 0) & np.isfinite(weights))
    ):
        raise ValueError(f"shares={shares!r}: one positive number for each of the {parties} parties")
    return weights / weights.sum()


def _counts(rows: int, shares: np.ndarray, first: int) -> tuple[np.ndarray, int]:
    """Integers in these proportions that add up to `rows`; remainders are assigned in turn from party `first` on."""
    exact = rows * shares
    counts = np.floor(exact + 1e-9).astype(int)
    left = rows - counts.sum()
    turn = np.lexsort(((np.arange(len(shares)) - first) % len(shares), -np.round(exact - counts, 9)))
    counts[turn[:left]] += 1
    return counts, (first + left) % len(shares)
