"""What the experiments of fair vertical learning run on: rows drawn for training, columns dealt to six parties.

Liu and others (arXiv:2109.08344), Section 5.1: K = 6 parties, one of them active. The paper gives sizes, not which rows and which
columns. Here rows are drawn by a seed; the active party, which holds labels and groups, also holds the columns that the group is
computed from, so that a passive party cannot read it off its own; then columns go out in the order of the table.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from fedpact import datasets
from fedpact.datasets.store import Folder
from fedpact.federation.columns import ColumnParties, split_columns
from fedpact.federation.rows import checked_seed
from fedpact.federation.table import Table

ACTIVE = "active"
PASSIVE = tuple(f"passive {k}" for k in range(1, 6))


@dataclasses.dataclass(frozen=True)
class Study:
    """A data set as the paper uses it.

    train, test: rows of each part.
    at_active: features of the active party; the rest goes evenly to the passive ones.
    telling: places of the features that the group is computed from.
    protected: the label of the protected class, `positive=` of the equal-opportunity gap.
    """

    load: Callable[[Folder], Table]
    train: int
    test: int
    at_active: int
    telling: tuple[int, ...]
    protected: int


STUDIES = {
    "adult": Study(datasets.adult, 40_000, 5_222, 19, telling=(61, 62), protected=1),
    "compas": Study(datasets.compas, 4_800, 478, 16, telling=(1,), protected=1),
    "crime": Study(datasets.crime, 1_200, 794, 49, telling=(2,), protected=-1),
}


@dataclasses.dataclass(frozen=True)
class FairSplit:
    """Training and test rows over the same six parties, and the label of the protected class."""

    train: ColumnParties
    test: ColumnParties
    protected: int


def fair_split(name: str, seed: int = 0, folder: Folder = None) -> FairSplit:
    """One draw of the data set `name`: "adult", "compas" or "crime". `folder`: as of the data set."""
    if name not in STUDIES:
        raise ValueError(f"fair_split({name!r}): the data sets are {', '.join(STUDIES)}")
    study = STUDIES[name]
    table = study.load(folder)
    if table.rows != study.train + study.test:
        raise ValueError(f"{name} has {table.rows} rows; the paper's split is of {study.train} + {study.test}")
    order = np.random.default_rng(checked_seed(seed)).permutation(table.rows)
    groups = column_groups(study, table["x"].shape[1])
    train, test = (
        split_columns(table.take(np.sort(rows)), groups, active=[ACTIVE]) for rows in np.split(order, [study.train])
    )
    return FairSplit(train, test, study.protected)


def column_groups(study: Study, width: int) -> dict[str, list[int]]:
    """Which features each party holds."""
    others = [place for place in range(width) if place not in study.telling]
    spare = study.at_active - len(study.telling)
    dealt = np.array_split(others[spare:], len(PASSIVE))
    passive = {name: [int(place) for place in places] for name, places in zip(PASSIVE, dealt, strict=True)}
    return {ACTIVE: sorted([*study.telling, *others[:spare]]), **passive}
