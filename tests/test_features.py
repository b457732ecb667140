"""Names of features, raw columns that masks read, and the options for reading files and frames."""

import pathlib
from typing import Any

import numpy as np
import pandas as pd
import polars
import pyarrow
import pytest
import scipy.sparse

import fedpact as fp
from fedpact.federation.description import Description

FRAME = pd.DataFrame(
    {
        "age": [30, 40, 50, -9],
        "pay": [1.5, 2.5, None, 4.5],
        "sex": ["f", "m", None, "f"],
        "old": [False, False, True, True],
        "when": pd.to_datetime(["2020-01-01"] * 4),
    }
)
X = ["pay", "age"]


def test_features_have_names_and_keep_them() -> None:
    table = fp.Table.from_frame(FRAME, x=X, columns=["old"])
    assert table.columns == ("x", "old")
    for same in (table, table[1:3], table.take([0]), table.cut([1, 3])[1], table.with_columns(z=[1, 2, 3, 4])):
        assert same.features == ("pay", "age")
    assert table.with_columns(x=np.zeros((4, 3))).features is None
    assert fp.Table(x=np.zeros((2, 1))).features is None
    assert fp.Table(x=FRAME[["age", "old"]]).features == ("age", "old")
    parties = fp.split_rows(table, parties=2)
    assert parties.features == ("pay", "age")
    assert fp.Parties({"north": table, "south": fp.Table(x=np.zeros((2, 2)))}).features == ("pay", "age")
    split = fp.split_columns(table.with_columns(y=[0, 1, 0, 1]), {"bank": [0], "shop": [1]})
    assert [split[name].features for name in split] == [("pay",), ("age",)]


def test_names_that_do_not_fit() -> None:
    table = fp.Table(x=np.zeros((2, 3)), y=[0, 1])
    assert table.with_features("abc").features == ("a", "b", "c")
    for names in (["a"], ["a", "b", "b"]):
        with pytest.raises(ValueError, match="names, each once, for the columns of the matrix 'x', which has 3"):
            table.with_features(names)
    with pytest.raises(ValueError, match="which has none"):
        fp.Table(y=[0, 1]).with_features(["a"])


def test_masks_and_groups_read_columns_of_x_by_name() -> None:
    table = fp.Table.from_frame(FRAME, x=["age", "old"], columns=[])
    assert table.columns == ("x",)
    assert "age" in table
    assert (fp.col("age") > 35)(table).tolist() == [False, True, True, False]
    assert (fp.col("age") > 35)(table[1:]).tolist() == [True, True, False]
    rows = fp.Table(x=np.zeros((4, 1)), y=[0, 1, 0, 1])
    loss = fp.logistic_loss(fp.linear())
    problem = fp.minimize(fp.mean(loss, where=fp.col("age") > 35))
    told = "reads column 'age', which is missing at party 1: it has x, y"
    with pytest.raises(ValueError, match=told):
        fp.solve(problem, fp.split_rows(rows, parties=1))
    with pytest.raises(ValueError, match=rf"{told}.*name it in the recipe's keep="):
        fp.solve(problem, fp.split_rows(rows.with_features(["age"]), parties=1))


def test_parties_whose_features_differ() -> None:
    north, south = (fp.Table(x=np.zeros((2, 2))).with_features(names) for names in (["a", "b"], ["b", "a"]))
    with pytest.raises(ValueError, match="feature 1 of 'x' is 'b' at party 'south' and 'a' at party 'north'"):
        _ = fp.Parties({"north": north, "south": south}).features
    less = fp.Table(x=np.zeros((2, 1))).with_features(["a"])
    with pytest.raises(ValueError, match="party 'south' lacks the feature 'b' in 'x' that party 'north' has"):
        _ = fp.Parties({"north": north, "south": less}).features


def test_a_description_has_them() -> None:
    table = fp.Table(x=np.zeros((2, 2)), y=[0, 1]).with_features(["a", "b"])
    told = Description.of(table, ["x"])
    assert told.features == ("a", "b")
    assert Description.read(told.as_words()) == told
    assert told.zeros().features == ("a", "b")
    assert Description.of(table, ["y"]).features is None
    with pytest.raises(ValueError, match="another number of names"):
        Description.read({**told.as_words(), "features": ["a"]})


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_only_what_is_wanted_is_read(suffix: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / f"rows{suffix}"
    FRAME.to_csv(path, index=False) if suffix == ".csv" else FRAME.to_parquet(path)
    with pytest.raises(
        ValueError, match=r"column 'sex' holds .* leave it out with columns=, or prepare it with fp.Recipe"
    ):
        fp.Table.read(path)
    table = fp.Table.read(path, x=X, columns=["old"], na_values={"age": [-9]}, dtype={"old": "int"})
    assert table.columns == ("x", "old")
    np.testing.assert_array_equal(table["x"], [[1.5, 30], [2.5, 40], [np.nan, 50], [4.5, np.nan]])
    assert table["old"].dtype == int
    assert fp.Table.read(path, columns="age", dtype="str")["age"].tolist() == ["30", "40", "50", "-9"]
    with pytest.raises(ValueError, match=r"'weight'|weight"):
        fp.Table.read(path, columns=["weight"])


def test_missing_marks_and_types() -> None:
    frame = pd.DataFrame({"a": ["1", "?", "3"], "b": [1, 2, 3]})
    assert np.isnan(fp.Table.from_frame(frame, na_values="?", dtype={"a": "float"})["a"]).tolist() == [
        False,
        True,
        False,
    ]
    with pytest.raises(ValueError, match="column 'a' cannot be read as 'float'"):
        fp.Table.from_frame(frame, dtype={"a": "float"})
    with pytest.raises(ValueError, match="column 'a' holds strings and 1 missing values in 3 rows"):
        fp.Table.from_frame(frame, na_values=["?"])
    with pytest.raises(ValueError, match="no column 'c' in the frame; there are a, b"):
        fp.Table.from_frame(frame, columns=["c"])
    with pytest.raises(TypeError, match="columns= lists the names of the columns that are wanted"):
        fp.Table.from_frame(frame, columns=[1])


@pytest.mark.parametrize("make", [polars.from_pandas, pyarrow.Table.from_pandas])
def test_frames_with_the_arrow_interface(make: Any) -> None:
    frame = FRAME[["age", "pay", "old"]].assign(sex=pd.Categorical(["f", "m", "f", "m"]))
    table, wanted = fp.Table.from_frame(make(frame), x=X), fp.Table.from_frame(frame, x=X)
    assert (table.columns, table.features) == (wanted.columns, wanted.features)
    for name in table:
        np.testing.assert_array_equal(table[name], wanted[name])
    assert fp.split_rows({"north": make(frame)})["north"].rows == 4


def test_sparse_matrices_become_dense() -> None:
    dense = np.eye(3)
    for sparse in (scipy.sparse.csr_matrix(dense), scipy.sparse.coo_array(dense)):
        np.testing.assert_array_equal(fp.Table(x=sparse)["x"], dense)
