"""The paper's splits of Adult, Compas and Crime: sizes, who holds what, and that nothing is lost or doubled."""

import pathlib

import numpy as np
import pytest

import fedpact as fp
from fedpact.reproduce.fair_vfl_data import ACTIVE, PASSIVE, STUDIES, column_groups, fair_split

WIDTHS = {"adult": (104, 17), "compas": (26, 2), "crime": (99, 10)}  # all features, and those of a passive party


@pytest.mark.parametrize("name", list(STUDIES))
def test_features_are_dealt_as_in_the_paper(name: str):
    study, (width, each) = STUDIES[name], WIDTHS[name]
    groups = column_groups(study, width)
    assert [len(places) for places in groups.values()] == [study.at_active, *[each] * 5]
    assert sorted(place for places in groups.values() for place in places) == list(range(width))
    assert set(study.telling) <= set(groups[ACTIVE])


@pytest.mark.parametrize(
    ("name", "rows"), [("adult", (40_000, 5_222)), ("compas", (4_800, 478)), ("crime", (1_200, 794))]
)
def test_rows_are_drawn_by_seed(name: str, rows: tuple[int, int], data_folder: pathlib.Path):
    if not (data_folder / f"{name}.npz").is_file():
        pytest.skip(f"needs {name}.npz")
    table = getattr(fp.datasets, name)()
    split = fair_split(name, seed=3)
    assert (split.train.rows, split.test.rows) == rows
    for parties in (split.train, split.test):
        assert parties.names == (ACTIVE, *PASSIVE)
        assert parties.active == (ACTIVE,)
        assert parties[PASSIVE[0]].columns == ("x",)
        assert set(parties.labels.columns) == {"y", "group"}
    both = {c: np.concatenate([split.train[ACTIVE][c], split.test[ACTIVE][c]]) for c in ("y", "group")}
    for column, values in both.items():
        np.testing.assert_array_equal(np.bincount(values + 1), np.bincount(table[column] + 1))
    whole = np.concatenate([np.concatenate([p[n]["x"] for n in p], axis=1) for p in (split.train, split.test)])
    np.testing.assert_allclose(np.sort(whole.sum(axis=1)), np.sort(table["x"].sum(axis=1)), atol=1e-9)
    again, other = fair_split(name, seed=3), fair_split(name, seed=4)
    np.testing.assert_array_equal(again.test[ACTIVE]["x"], split.test[ACTIVE]["x"])
    assert not np.array_equal(other.test[ACTIVE]["x"], split.test[ACTIVE]["x"])


def test_the_active_party_holds_what_tells_the_group(data_folder: pathlib.Path):
    names = {}
    for name, study in STUDIES.items():
        if not (data_folder / f"{name}.npz").is_file():
            pytest.skip(f"needs {name}.npz")
        with np.load(data_folder / f"{name}.npz") as file:
            names[name] = file["feature_names"][list(study.telling)].tolist()
    assert names == {"adult": ["sex_Female", "sex_Male"], "compas": ["race=Caucasian"], "crime": ["racepctblack"]}


def test_what_is_refused(tmp_path: pathlib.Path):
    with pytest.raises(ValueError, match=r"fair_split\('mnist'\): the data sets are adult, compas, crime"):
        fair_split("mnist")
    np.savez(tmp_path / "crime.npz", X=np.zeros((3, 99)), y=np.ones(3), sensitive=np.zeros(3))
    with pytest.raises(ValueError, match="crime has 3 rows; the paper's split is of 1200 \\+ 794"):
        fair_split("crime", folder=tmp_path)
