"""Rows dealt out to parties: every row to exactly one, in the promised proportions, the same for the same seed."""

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedpact as fp

LABELS = np.array(["a", "b", "c"])


@st.composite
def tables(draw: st.DrawFn) -> fp.Table:
    labels = draw(st.lists(st.integers(0, 2), min_size=1, max_size=40))
    return fp.Table(id=np.arange(len(labels)), y=labels, s=LABELS[labels])


def ids(parties: fp.Parties) -> list[int]:
    return np.concatenate([table["id"] for table in parties.values()]).tolist()


def dealt(parties: fp.Parties) -> dict[str, list[int]]:
    return {name: table["id"].tolist() for name, table in parties.items()}


@given(tables(), st.data(), st.integers(0, 2**32))
def test_equal_parties_by_count_or_names(table: fp.Table, data: st.DataObject, seed: int):
    count = data.draw(st.integers(1, table.rows))
    names = [f"bank {i}" for i in range(count)]
    parties, named = fp.split_rows(table, count, seed=seed), fp.split_rows(table, names, seed=seed)
    assert sorted(ids(parties)) == list(range(table.rows))
    assert max(parties.sizes) - min(parties.sizes) <= 1
    assert parties.names == tuple(f"party {i}" for i in range(1, count + 1))
    assert named.names == tuple(names)
    assert list(dealt(named).values()) == list(dealt(parties).values())
    for mine in parties.values():
        assert np.all(np.diff(mine["id"]) > 0)
        np.testing.assert_array_equal(mine["s"], table["s"][mine["id"]])


@given(tables(), st.data(), st.sampled_from(["y", "s"]), st.integers(0, 2**32))
def test_strata_are_dealt_evenly(table: fp.Table, data: st.DataObject, column: str, seed: int):
    parties = fp.split_rows(table, data.draw(st.integers(1, table.rows)), stratify=column, seed=seed)
    assert sorted(ids(parties)) == list(range(table.rows))
    assert max(parties.sizes) - min(parties.sizes) <= 1
    for value in np.unique(table[column]):
        counts = [int((mine[column] == value).sum()) for mine in parties.values()]
        assert max(counts) - min(counts) <= 1


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.integers(0, 30), st.integers(1, 3))
def test_shares_are_kept_to_within_a_row_of_each_stratum(shares: list[int], extra: int, strata: int):
    """A stratum of at least Σ shares rows leaves nobody without."""
    rows = sum(shares) + extra
    table = fp.Table(id=np.arange(strata * rows), y=np.repeat(np.arange(strata), rows))
    parties = fp.split_rows(table, len(shares), shares=shares, stratify="y" if strata > 1 else None)
    assert sorted(ids(parties)) == list(range(table.rows))
    for value in range(strata):
        counts = np.array([(mine["y"] == value).sum() for mine in parties.values()])
        assert np.abs(counts - rows * np.array(shares) / sum(shares)).max() < 1


@given(tables(), st.sampled_from(["y", "s"]))
def test_a_column_names_the_parties(table: fp.Table, column: str):
    parties = fp.split_rows(table, by=column)
    assert sorted(ids(parties)) == list(range(table.rows))
    assert parties.names == tuple(str(v) for v in np.unique(table[column]))
    assert all(set(map(str, mine[column])) == {name} for name, mine in parties.items())


@given(tables(), st.integers(0, 2**32), st.sampled_from([None, "y"]))
def test_the_same_seed_is_the_same_split(table: fp.Table, seed: int, stratify: str | None):
    count = max(1, table.rows // 2)
    first, again = (fp.split_rows(table, count, stratify=stratify, seed=seed) for _ in range(2))
    assert dealt(first) == dealt(again)


def test_another_seed_is_another_split():
    table = fp.Table(id=np.arange(60), y=np.arange(60) % 2)
    for stratify in (None, "y"):
        splits = {str(dealt(fp.split_rows(table, 3, stratify=stratify, seed=seed))) for seed in range(5)}
        assert len(splits) == 5


def test_rows_left_over_go_round():
    """Three strata of four rows over three parties: nobody gets the odd row twice."""
    table = fp.Table(id=np.arange(12), y=np.repeat([0, 1, 2], 4))
    parties = fp.split_rows(table, 3, stratify="y")
    assert parties.sizes == (4, 4, 4)
    odd = [collections.Counter(mine["y"].tolist()).most_common(1)[0][0] for mine in parties.values()]
    assert sorted(odd) == [0, 1, 2]


def test_tables_given_one_per_party_stay_as_they_are():
    one, two = fp.Table(id=[1, 2]), fp.Table(id=[3])
    frame = pd.DataFrame({"id": [1, 2]})
    for given_ in ([one, two], (frame, {"id": [3]})):
        assert dealt(fp.split_rows(given_)) == {"party 1": [1, 2], "party 2": [3]}
        assert dealt(fp.split_rows(given_, ["n", "s"])) == {"n": [1, 2], "s": [3]}
    for given_ in ({"n": one, "s": two}, {"n": frame, "s": {"id": [3]}}, fp.Parties({"n": one, "s": two})):
        assert dealt(fp.split_rows(given_)) == {"n": [1, 2], "s": [3]}


def test_a_frame_a_mapping_and_files_are_split_too(tmp_path: Any):
    frame = pd.DataFrame({"id": np.arange(5)})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    expected = dealt(fp.split_rows(fp.Table(id=np.arange(5)), 2, seed=1))
    for data in (frame, {"id": np.arange(5)}, tmp_path / "rows.csv", str(tmp_path / "rows.csv")):
        assert dealt(fp.split_rows(data, 2, seed=1)) == expected
    by_party = fp.split_rows({"n": tmp_path / "rows.csv", "s": str(tmp_path / "rows.csv")})
    assert dealt(by_party) == {"n": [0, 1, 2, 3, 4], "s": [0, 1, 2, 3, 4]}


def test_parties_are_a_mapping_of_tables():
    parties = fp.Parties({"n": {"id": [1, 2]}, 7: fp.Table(id=[3])})
    assert parties.names == tuple(parties) == ("n", "7")
    assert (len(parties), parties.sizes) == (2, (2, 1))
    assert parties["7"]["id"].tolist() == [3]
    assert repr(parties) == "Parties(2 with rows {n: 2, 7: 1})"
    assert repr(fp.split_rows(fp.Table(id=np.arange(9)), 9)).endswith("…})")
    with pytest.raises(KeyError, match="no party 'w'; there are n, 7"):
        _ = parties["w"]


ROWS = fp.Table(id=np.arange(6), y=[0, 1, 0, 1, 0, 1], x=np.zeros((6, 2)), hole=[1, np.nan, 1, 2, np.nan, np.nan])
WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no parties": (lambda: fp.split_rows(ROWS), ValueError, r"parties= \(a number or names\) or by="),
    "zero parties": (lambda: fp.split_rows(ROWS, 0), ValueError, "parties=0: a federation needs at least one party"),
    "fewer than none": (lambda: fp.split_rows(ROWS, -2), ValueError, "parties=-2"),
    "half a party": (lambda: fp.split_rows(ROWS, 2.5), TypeError, r"parties=2\.5: a number, or a list of names"),
    "a truth value": (lambda: fp.split_rows(ROWS, True), TypeError, "parties=True"),
    "a set": (lambda: fp.split_rows(ROWS, {"a"}), TypeError, "a list of names"),
    "a string": (lambda: fp.split_rows(ROWS, "y"), ValueError, "by='y' for a column"),
    "no names": (lambda: fp.split_rows(ROWS, []), ValueError, "at least one name"),
    "a name twice": (lambda: fp.split_rows(ROWS, ["n", "n"]), ValueError, "no name twice"),
    "too many": (lambda: fp.split_rows(ROWS, 7), ValueError, "6 rows are too few for 7 parties: 'party 7' would"),
    "a small share": (lambda: fp.split_rows(ROWS, ["n", "s"], shares=[99, 1]), ValueError, "'s' would get none"),
    "by and parties": (lambda: fp.split_rows(ROWS, 2, by="y"), ValueError, "by= .* neither parties="),
    "by and stratify": (lambda: fp.split_rows(ROWS, by="y", stratify="y"), ValueError, "stratify= nor shares="),
    "by nothing": (lambda: fp.split_rows(ROWS, by="z"), ValueError, "by='z': no such column; there are id, y, x, hole"),
    "by arrays": (lambda: fp.split_rows(ROWS, by="x"), ValueError, "by='x': that column holds arrays"),
    "by holes": (lambda: fp.split_rows(ROWS, by="hole"), ValueError, "by='hole': 3 rows have NaN there; fill them"),
    "strata of nothing": (lambda: fp.split_rows(ROWS, 2, stratify="z"), ValueError, "stratify='z': no such column"),
    "strata of arrays": (lambda: fp.split_rows(ROWS, 2, stratify="x"), ValueError, "stratify='x': that column holds"),
    "strata with holes": (lambda: fp.split_rows(ROWS, 2, stratify="hole"), ValueError, "stratify='hole': 3 rows"),
    "shares of others": (lambda: fp.split_rows(ROWS, 2, shares=[1]), ValueError, r"shares=\[1\]: one positive number"),
    "no share": (lambda: fp.split_rows(ROWS, 2, shares=[1, 0]), ValueError, "for each of the 2 parties"),
    "a NaN share": (lambda: fp.split_rows(ROWS, 2, shares=[1, np.nan]), ValueError, "one positive number"),
    "an endless share": (lambda: fp.split_rows(ROWS, 2, shares=[1, np.inf]), ValueError, "one positive number"),
    "a word for a share": (lambda: fp.split_rows(ROWS, 2, shares=["a", "b"]), ValueError, "one positive number"),
    "one number": (lambda: fp.split_rows(ROWS, 2, shares=3), ValueError, "one positive number"),
    "seed of words": (lambda: fp.split_rows(ROWS, 2, seed="a"), ValueError, "seed='a': a whole number, at least 0"),
    "seed below zero": (lambda: fp.split_rows(ROWS, 2, seed=-1), ValueError, "seed=-1"),
    "no seed": (lambda: fp.split_rows(ROWS, 2, seed=None), ValueError, "seed=None"),
    "no tables": (lambda: fp.split_rows([]), ValueError, "needs at least one party"),
    "an empty mapping": (lambda: fp.split_rows({}), ValueError, "needs at least one party"),
    "no rows": (lambda: fp.split_rows(ROWS[:0], 2), ValueError, "0 rows are too few for 2 parties"),
    "no rows by column": (lambda: fp.split_rows(ROWS[:0], by="y"), ValueError, "at least one party"),
    "one party of none": (lambda: fp.split_rows([ROWS, ROWS[:0]]), ValueError, "party 'party 2' holds no rows; leave"),
    "fewer names": (lambda: fp.split_rows([ROWS, ROWS], ["n"]), ValueError, "there are 2 tables for 1 parties"),
    "more names": (lambda: fp.split_rows([ROWS], ["n", "s"]), ValueError, "there are 1 tables for 2 parties"),
    "names twice": (lambda: fp.split_rows({"n": ROWS}, ["s"]), ValueError, "names its parties; leave parties= out"),
    "split already": (lambda: fp.split_rows([ROWS, ROWS], by="y"), ValueError, "the tables are split already"),
    "stratified already": (lambda: fp.split_rows({"n": ROWS}, stratify="y"), ValueError, "the tables are split"),
    "one name for two": (
        lambda: fp.split_rows({"1": ROWS, 1: ROWS}),
        ValueError,
        "two parties have the same name: '1', 1",
    ),
    "numbers": (lambda: fp.split_rows([1, 2]), TypeError, "a table is a fp.Table"),
    "nothing": (lambda: fp.split_rows(None, 2), TypeError, "not NoneType"),
    "parties of a list": (lambda: fp.Parties([ROWS]), TypeError, "mapping of names to tables, not list; see fp.split"),
    "parties of none": (lambda: fp.Parties({}), ValueError, "needs at least one party"),
}


@pytest.mark.parametrize("case", WRONG)
def test_splits_that_are_refused(case: str):
    call, kind, told = WRONG[case]
    with pytest.raises(kind, match=told):
        call()
