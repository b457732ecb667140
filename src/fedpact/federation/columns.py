"""Vertical federations: parties that hold different columns of the same rows; active parties hold labels and groups."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from fedpact.federation.rows import title
from fedpact.federation.table import INPUTS, Table, TablesByParty, as_table


class ColumnParties(TablesByParty):
    """A vertical federation: an ordered mapping of party names to tables over the same rows. Made by `fp.split_columns`.

    - `tables`: by party name; features are the column "x" (rows, features), and a passive party has no other column.
    - `active`: the names of the parties that also hold labels and groups.

    `parties["shop"]` is that party's table, `parties.labels` the table of labels and groups. Raises ValueError where no party
    holds labels.
    """

    def __init__(self, tables: Mapping[str, Table], active: Sequence[str]):
        super().__init__(tables)
        self.active = tuple(active)
        first = self._tables[self.active[0]]
        labels = {name: first[name] for name in first.columns if name != INPUTS}
        if not labels:
            raise ValueError(f"no party holds labels: {title(self.active[0])} is active but holds features only")
        self.labels = Table(labels)
        own = {name: table.recipe for name, table in self._tables.items() if table.recipe is not None}
        self.recipe = own or None  # by party, where `fp.prepare` made tables of raw frames

    @property
    def rows(self) -> int:
        """The number of rows, the same at every party."""
        return next(iter(self._tables.values())).rows

    @property
    def widths(self) -> tuple[int, ...]:
        """The number of features of each party, in order."""
        return tuple(int(np.prod(t[INPUTS].shape[1:], dtype=int)) for t in self._tables.values())

    @property
    def features(self) -> dict[str, tuple[str, ...] | None] | None:
        """By party the names of the columns of its "x", in order, None where they are not known; None where no party's are."""
        names = {name: table.features for name, table in self._tables.items()}
        return names if any(own is not None for own in names.values()) else None

    def __repr__(self) -> str:
        widths = ", ".join(f"{name}: {width}" for name, width in list(zip(self.names, self.widths, strict=True))[:8])
        return f"ColumnParties({len(self)} over {self.rows} rows with features {{{widths}{', …' if len(self) > 8 else ''}}})"


def split_columns(
    data: Any,
    parties: int | Mapping[str, Any] | None = None,
    *,
    active: Sequence[str] | Literal["all"] | None = None,
    id: str | None = None,
) -> ColumnParties:
    """Assign columns to parties, for a simulated vertical federation or from tables that are separate already.

    - `data`: one table whose features are split: the column "x" (rows, features), or columns by name; or a mapping of party
      names to tables with a column "x", over the same rows in the same order.
    - `parties`: how many (features go to "party 1", "party 2", … in consecutive blocks of nearly equal size); or a mapping of
      party names to features: indices into "x" such as `range(0, 5)`, or names of columns.
    - `active`: the parties that hold labels and groups, that is, all columns that are not features: names, or "all" (default:
      the first party).
    - `id`: a column of row identifiers, checked to be the same in every table and dropped (default: none).

    Returns `fp.ColumnParties`. Raises ValueError where rows or identifiers do not match, a feature is assigned twice, or no
    party holds labels, and TypeError where `parties` is neither a number nor a mapping.

        parties = fp.split_columns(fp.datasets.adult(), {"bank": range(0, 60), "shop": range(60, 104)})
    """
    if (
        isinstance(data, Mapping)
        and not isinstance(data, Table)
        and all(isinstance(v, Table | Mapping) for v in data.values())
    ):
        if parties is not None:
            raise ValueError("the tables are split already, one per party; parties= splits one table")
        tables = {str(name): as_table(table) for name, table in data.items()}
        chosen = _active(active, tuple(tables))
        return _aligned(tables, chosen, id)
    table = as_table(data)
    groups = _groups(table, parties)
    chosen = _active(active, tuple(groups))
    taken = {name for features in groups.values() for name in features if isinstance(name, str)} | {INPUTS}
    labels = {name: table[name] for name in table.columns if name not in taken and name != id}
    tables = {}
    for name, features in groups.items():
        own = Table({INPUTS: _features(table, features), **(labels if name in chosen else {})})
        named = _feature_names(table, features)
        tables[name] = own if named is None else own.with_features(named)
    if id is not None:
        _check_ids({"the table": _column(table, id, "the table")})
    return ColumnParties(tables, chosen)


def _groups(table: Table, parties: int | Mapping[str, Any] | None) -> dict[str, list[Any]]:
    """For each party its features: indices into x, or names of columns."""
    if isinstance(parties, int) and not isinstance(parties, bool):
        width = int(np.prod(_column(table, INPUTS, "the table").shape[1:], dtype=int))
        if not 1 <= parties <= width:
            raise ValueError(
                f"split_columns(parties={parties}): column 'x' has {width} features, at least one for each party"
            )
        return {
            f"party {i + 1}": list(map(int, part)) for i, part in enumerate(np.array_split(np.arange(width), parties))
        }
    if not isinstance(parties, Mapping) or not parties:
        raise TypeError(
            f"split_columns(parties={parties!r}): how many parties, or for each name its features: {{'bank': range(0, 5)}}"
        )
    groups = {
        str(name): [features] if isinstance(features, str) else list(features) for name, features in parties.items()
    }
    owner: dict[Any, str] = {}
    for name, features in groups.items():
        if not features:
            raise ValueError(f"{title(name)} has no columns; leave it out or assign some")
        for feature in features:
            if feature in owner:
                raise ValueError(
                    f"feature {feature!r} is assigned to {title(owner[feature])} and {title(name)}; it can have one holder"
                )
            owner[feature] = name
    return groups


def _features(table: Table, features: list[Any]) -> np.ndarray:
    """The features as one matrix (rows, features)."""
    if all(isinstance(f, str) for f in features):
        columns = [np.asarray(_column(table, f, "the table")) for f in features]
        return np.concatenate([c.reshape(len(c), -1) for c in columns], axis=1)
    x = _column(table, INPUTS, "the table")
    x = x.reshape(len(x), -1)
    wrong = [
        f
        for f in features
        if isinstance(f, bool | str) or not isinstance(f, int | np.integer) or not 0 <= f < x.shape[1]
    ]
    if wrong:
        raise ValueError(f"there is no feature {wrong[0]!r}: column 'x' has features 0 to {x.shape[1] - 1}")
    return x[:, [int(f) for f in features]]


def _feature_names(table: Table, features: list[Any]) -> list[str] | None:
    """What these features are called; None where that is not known."""
    if all(isinstance(f, str) for f in features):
        return features if all(table[f].ndim == 1 for f in features) else None
    return None if table.features is None else [table.features[int(f)] for f in features]


def _active(active: Sequence[str] | str | None, names: tuple[str, ...]) -> tuple[str, ...]:
    if active is None:
        return names[:1]
    if isinstance(active, str):
        if active == "all":
            return names
        active = [active]
    unknown = [name for name in active if name not in names]
    if unknown:
        raise ValueError(f"split_columns(active=...): no party {unknown[0]!r}; there are {', '.join(names)}")
    if not active:
        raise ValueError("no party holds labels: name at least one in active=, or write active='all'")
    return tuple(name for name in names if name in active)


def _aligned(tables: dict[str, Table], active: tuple[str, ...], id: str | None) -> ColumnParties:
    """Separate tables, checked to be over the same rows."""
    if not tables:
        raise ValueError("a federation needs at least one party")
    sizes = {name: table.rows for name, table in tables.items()}
    if id is not None:
        _check_ids({title(name): _column(table, id, title(name)) for name, table in tables.items()})
    elif len(set(sizes.values())) > 1:
        counts = ", ".join(f"{name}: {rows}" for name, rows in sizes.items())
        raise ValueError(f"all parties need the same rows, but they hold {counts}; identify rows by a column, id=")
    labels: dict[str, np.ndarray] = {}
    for name in active:
        for column in tables[name].columns:
            if column in (INPUTS, id):
                continue
            values = tables[name][column]
            if column in labels and not np.array_equal(labels[column], values):
                wrong = int(np.sum(labels[column] != values))
                raise ValueError(
                    f"column {column!r} of {title(name)} differs from that of {title(active[0])} in {wrong} rows"
                )
            labels.setdefault(column, values)
    out = {}
    for name, table in tables.items():
        features = _column(table, INPUTS, title(name))
        if not np.prod(features.shape[1:], dtype=int):
            raise ValueError(f"{title(name)} holds no features: its column 'x' has width 0")
        extra = [c for c in table.columns if c not in (INPUTS, id)]
        if name not in active and extra:
            raise ValueError(
                f"{title(name)} is passive, but its table holds {', '.join(map(repr, extra))}: take it out, or name the party "
                "in active="
            )
        own = Table({INPUTS: features, **(labels if name in active else {})})
        own = own if table.features is None else own.with_features(table.features)
        out[name] = own if table.recipe is None else own.prepared_by(table.recipe)
    return ColumnParties(out, active)


def _check_ids(ids: dict[str, np.ndarray]) -> None:
    """Raise ValueError where identifiers are not unique or not the same in the same order, with the counts at every party."""
    (first, reference), *_ = ids.items()
    problems = []
    for name, values in ids.items():
        twice = len(values) - len(np.unique(values))
        if twice:
            problems.append(f"{name} has {twice} duplicate ids")
    known = set(reference.tolist())
    for name, values in ids.items():
        here = set(values.tolist())
        missing, more = len(known - here), len(here - known)
        if missing or more:
            problems.append(f"{name} lacks {missing} of the ids of {first} and has {more} others")
        elif len(values) == len(reference) and not np.array_equal(values, reference):
            problems.append(
                f"{name} has {int(np.sum(values != reference))} ids in other places than {first}: sort both by id"
            )
    if problems:
        raise ValueError(f"rows do not match: {'; '.join(problems)}")


def _column(table: Table, name: str, holder: str) -> np.ndarray:
    if name not in table.columns:
        raise ValueError(f"column {name!r} of {holder} is missing: it has {', '.join(table.columns)}")
    return table[name]
