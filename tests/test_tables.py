"""Tables: from what users have, cut into rows, and what they refuse."""

import pathlib
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import fedpact as fp
from fedpact.federation.table import as_table

FRAME = pd.DataFrame({"age": [30, 40, 50], "pay": [1.5, 2.5, 3.5], "sex": ["f", "m", "f"], "old": [False, False, True]})


@pytest.fixture
def table() -> fp.Table:
    return fp.Table(x=np.arange(12.0).reshape(6, 2), y=[0, 1, 0, 1, 1, 0], s=list("abcdef"))


def same(left: fp.Table, right: fp.Table) -> bool:
    return left.columns == right.columns and all(
        left[name].dtype == right[name].dtype and np.array_equal(left[name], right[name]) for name in left
    )


def test_from_a_mapping_and_by_name(table: fp.Table):
    assert same(fp.Table({"x": table["x"], "y": table["y"]}, s=table["s"]), table)
    assert table.columns == tuple(table) == ("x", "y", "s")
    assert (len(table), table.rows) == (6, 6)
    assert repr(table) == "Table(6 rows: x float64[2], y int64, s <U1)"


def test_columns_may_be_lists_arrays_of_jax_and_arrays_of_objects():
    table = fp.Table(
        a=[1, 2],
        b=jnp.ones(2, jnp.float32),
        c=np.array([1, 2.5], object),
        d=np.array(["p", "qq"], object),
        e=np.array([np.float64(1), np.int8(2)], object),
        f=pd.Series([True, False]),
        g=[["p"], ["q"]],
    )
    kinds = {name: column.dtype.str[1:] for name, column in table.items()}
    assert kinds == {"a": "i8", "b": "f4", "c": "f8", "d": "U2", "e": "f8", "f": "b1", "g": "U1"}


def test_columns_cannot_be_changed_from_inside_or_outside():
    mine = np.zeros(3)
    table = fp.Table(x=mine)
    mine[0] = 7
    assert table["x"][0] == 0
    with pytest.raises(ValueError, match="read-only"):
        table["x"][0] = 7
    with pytest.raises(TypeError):
        table["y"] = mine


@pytest.mark.parametrize(
    "which",
    [slice(1, 3), slice(None, None, -2), [5, 0], np.array([2, 2]), np.arange(6) % 2 == 0, [True] * 6, [], slice(0, 0)],
)
def test_rows_are_chosen_as_in_numpy(table: fp.Table, which: Any):
    chosen = np.arange(6)[which]
    for part in (table[which], table.take(which)):
        assert isinstance(part, fp.Table)
        assert part.columns == table.columns
        for name in table:
            np.testing.assert_array_equal(part[name], table[name][chosen])


@pytest.mark.parametrize("one", [2, -4, np.int64(2)])
def test_one_row_is_a_table(table: fp.Table, one: int):
    assert same(table[one], table[2:3])


@pytest.mark.parametrize(
    "wrong", [6, -7, 1.5, ["x", "y"], fp.col("y") == 1, None, True, [True, False], np.eye(6, dtype=int)]
)
def test_rows_that_are_none(table: fp.Table, wrong: Any):
    with pytest.raises(IndexError, match="by a slice, by places or by one boolean per row"):
        _ = table[wrong]


def test_an_unknown_column_names_the_others(table: fp.Table):
    with pytest.raises(KeyError, match="no column 'z'; there are x, y, s"):
        _ = table["z"]


def test_with_columns_adds_and_replaces(table: fp.Table):
    more = table.with_columns(y=np.ones(6), z=np.zeros(6, bool))
    assert more.columns == ("x", "y", "s", "z")
    assert more["y"].sum() == 6
    assert table["y"].sum() == 3


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({}, "at least one column"),
        ({"a": 3}, "column 'a' is a single value"),
        ({"a": "abc"}, "column 'a' is a single value"),
        ({"a": [1, 2], "b": [1]}, "the same number of rows, but these have: 'a' 2, 'b' 1"),
        ({"a": [[1], [1, 2]]}, "column 'a' is not an array"),
        ({"a": [1, None]}, "column 'a' has 1 missing entries .* in 2; fill them, leave these rows out"),
        ({"a": ["p", np.nan]}, "column 'a' has 1 missing entries .* in 2"),
        ({"a": [1, "p"]}, "column 'a' holds int, str"),
        ({"a": np.array(["p", np.nan], object)}, "column 'a' has 1 missing entries .* in 2"),
        ({"a": {1, 2}}, "column 'a' holds set"),
        ({"a": (i for i in range(2))}, "column 'a' holds generator"),
        ({"a": {"b": [1]}}, "column 'a' is a dict"),
        ({"a": fp.Table(b=[1, 2])}, "column 'a' is a Table"),
    ],
)
def test_columns_that_are_none(columns: dict[str, Any], told: str):
    with pytest.raises(ValueError, match=told):
        fp.Table(columns)


@pytest.mark.parametrize("thing", [5, "data", [1, 2], np.zeros((2, 2))])
def test_a_table_is_made_of_columns(thing: Any):
    with pytest.raises(TypeError, match=r"columns by name: Table\(x=\.\.\., y=\.\.\.\)"):
        fp.Table(thing)


def test_consecutive_tables_share_their_columns():
    table = fp.Table(x=np.arange(12.0).reshape(6, 2), y=np.arange(6))
    first, none, last = table.cut([2, 0, 4])
    assert (first.rows, none.rows, last.rows) == (2, 0, 4)
    np.testing.assert_array_equal(last["x"], table["x"][2:])
    assert np.shares_memory(last["y"], table["y"])


def test_from_a_frame():
    table = fp.Table.from_frame(FRAME)
    kinds = {name: column.dtype.str[1:] for name, column in table.items()}
    assert kinds == {"age": "i8", "pay": "f8", "sex": "U1", "old": "b1"}
    assert table["sex"].tolist() == ["f", "m", "f"]
    assert same(as_table(FRAME), table)


def test_a_frame_with_categories_whole_numbers_of_pandas_and_odd_names():
    frame = pd.DataFrame({0: pd.Categorical(["p", "q"]), "n": pd.array([1, 2], "Int64")}, index=[9, 7])
    table = fp.Table.from_frame(frame)
    assert table.columns == ("0", "n")
    assert table["0"].tolist() == ["p", "q"]
    assert table["n"].tolist() == [1, 2]


def test_gathering_columns_into_x():
    table = fp.Table.from_frame(FRAME, x=["pay", "age", "old"])
    assert table.columns == ("x", "sex")
    np.testing.assert_array_equal(table["x"], [[1.5, 30, 0], [2.5, 40, 0], [3.5, 50, 1]])
    assert fp.Table.from_frame(FRAME, x="pay")["x"].shape == (3, 1)
    renamed = FRAME.rename(columns={"pay": "x"})
    assert fp.Table.from_frame(renamed, x=["x", "age"])["x"].shape == (3, 2)


@pytest.mark.parametrize(
    ("frame", "x", "told"),
    [
        (FRAME, ["pay", "weight"], "no column 'weight' to stack into 'x'; there are age, pay, sex, old"),
        (FRAME, ["sex"], "column 'sex' holds strings, which cannot be stacked"),
        (FRAME, [], "at least one"),
        (FRAME.rename(columns={"pay": "x"}), ["age"], "the column 'x' if there is one"),
        (pd.concat([FRAME, FRAME[["age"]]], axis=1), None, "two columns of the frame have the same name: age, pay"),
        (pd.DataFrame({1: [0], "1": [1]}), None, "two columns of the frame have the same name: 1, 1"),
        (pd.DataFrame({"s": ["p", None]}), None, "column 's' holds .*with no entry missing"),
    ],
)
def test_frames_that_do_not_fit(frame: pd.DataFrame, x: Any, told: str):
    with pytest.raises(ValueError, match=told):
        fp.Table.from_frame(frame, x)


@pytest.mark.parametrize("option", [{"dtype": {"agee": "str"}}, {"na_values": {"agee": "?"}}])
def test_options_by_column_name_columns_that_are_there(option: dict[str, Any], tmp_path: pathlib.Path):
    frame = pd.DataFrame({"age": [30.0, 40.0], "note": ["a", "b"]})
    told = f"{next(iter(option))}= names 'agee', and the columns are age"
    with pytest.raises(ValueError, match=told):
        fp.Table.from_frame(frame, **option)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(ValueError, match=told):
        fp.Table.read(tmp_path / "rows.csv", columns=["age"], **option)


def test_from_frame_wants_a_frame():
    with pytest.raises(TypeError, match="takes a data frame of pandas, polars or Arrow, not dict"):
        fp.Table.from_frame({"a": [1]})


WRITERS: dict[str, Callable[[pathlib.Path], None]] = {
    "rows.csv": lambda path: FRAME.to_csv(path, index=False),
    "rows.v2.CSV": lambda path: FRAME.to_csv(path, index=False),
    "rows.csv.gz": lambda path: FRAME.to_csv(path, index=False),
    "rows.parquet": lambda path: FRAME.to_parquet(path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_files_give_the_frame_they_were_written_from(tmp_path: pathlib.Path, name: str):
    WRITERS[name](tmp_path / name)
    assert same(fp.Table.read(tmp_path / name), fp.Table.from_frame(FRAME))
    assert same(as_table(str(tmp_path / name)), fp.Table.from_frame(FRAME))
    assert same(fp.Table.read(str(tmp_path / name), x=["pay"]), fp.Table.from_frame(FRAME, x=["pay"]))


def test_files_that_are_none(tmp_path: pathlib.Path):
    with pytest.raises(FileNotFoundError, match=r"no file .*rows\.csv"):
        fp.Table.read(tmp_path / "rows.csv")
    (tmp_path / "rows.txt").write_text("a\n1\n")
    with pytest.raises(ValueError, match=r"rows\.txt: fp\.Table\.read knows \.csv, \.csv\.gz and \.parquet"):
        fp.Table.read(tmp_path / "rows.txt")
    with pytest.raises(ValueError, match=r"knows \.csv"):
        fp.Table.read(tmp_path)


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.parquet"])
@pytest.mark.parametrize("content", [b"", b"\x00\xff\xfe nothing of the kind"])
def test_damaged_files_are_named(tmp_path: pathlib.Path, name: str, content: bytes):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name} cannot be read"):
        fp.Table.read(tmp_path / name)


def test_a_truncated_file_is_named(tmp_path: pathlib.Path):
    for name in ("rows.csv.gz", "rows.parquet"):
        WRITERS[name](tmp_path / name)
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(ValueError, match=f"{name} cannot be read"):
            fp.Table.read(tmp_path / name)


@pytest.mark.parametrize("thing", [None, 3, [1, 2], np.zeros(3)])
def test_only_tables_are_tables(thing: Any):
    with pytest.raises(TypeError, match=r"a table is a fp\.Table, a mapping of columns, a data frame or a file"):
        as_table(thing)


# types that are asked for, and what is missing


@pytest.mark.parametrize(
    ("values", "dtype", "wanted"),
    [
        (["True", "no", "1"], "bool", [True, False, True]),
        ([1.0, 0.0, 1.0], "bool", [True, False, True]),
        ([1.0, 2.0, 3.0], "int", [1, 2, 3]),
        (["1", "2", "3"], "float", [1.0, 2.0, 3.0]),
        ([1, 2, 3], "str", ["1", "2", "3"]),
    ],
)
def test_types_that_are_asked_for(values: list[Any], dtype: str, wanted: list[Any]) -> None:
    read = fp.Table.from_frame(pd.DataFrame({"a": values}), dtype=dtype)["a"]
    assert read.tolist() == wanted
    assert read.dtype.kind == np.dtype("U1" if dtype == "str" else dtype).kind


@pytest.mark.parametrize(
    ("values", "dtype", "told"),
    [
        (["x", "yes"], "bool", "column 'a' cannot be read as 'bool': 'x' is neither true nor false"),
        ([2, 1], "bool", "'2' is neither true nor false"),
        ([1.5, 2.0], "int", "1.5 is no whole number"),
        (["x", "2"], "int", "cannot be read as 'int'"),
    ],
)
def test_types_that_would_change_values(values: list[Any], dtype: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        fp.Table.from_frame(pd.DataFrame({"a": values}), dtype=dtype)


def test_missing_values_of_pandas_and_empty_frames() -> None:
    frame = pd.DataFrame({"age": np.array([pd.NA, 1.0, 2.0], object), "y": [0, 1, 0]})
    recipe = fp.Recipe([fp.standardize("age", missing="mean")], fp.label("y", positive=1))
    np.testing.assert_allclose(fp.prepare(recipe, {"north": frame})["north"]["x"][0], 0)
    with pytest.raises(ValueError, match="column 'age' of party 'north' holds 1 missing values in 3 rows"):
        fp.prepare(fp.Recipe([fp.standardize("age")]), {"north": frame})
    with pytest.raises(ValueError, match="column 'y' has 1 missing entries"):
        fp.Table(y=[pd.NA, 1])
    with pytest.raises(ValueError, match="party 'south' holds no rows; leave it out"):
        fp.prepare(recipe, {"north": frame, "south": frame[:0]})
    with pytest.raises(ValueError, match="the frame has no columns"):
        fp.prepare(recipe, pd.DataFrame(), parties=2)
