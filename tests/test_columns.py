"""Columns and masks: against NumPy on random rows, and what they refuse."""

import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedpact as fp
from fedpact.problem.columns import Mask, numeric

COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
WHOLE, NUMBER, WORD = st.integers(-2, 2), st.sampled_from([-1.5, -0.5, 0.0, 0.5, 2.0]), st.sampled_from(["a", "b", "c"])


@st.composite
def tables(draw: st.DrawFn) -> dict[str, np.ndarray]:
    rows = draw(st.integers(1, 12))
    of = {"whole": (WHOLE, int), "number": (NUMBER, float), "word": (WORD, "<U1"), "flag": (st.booleans(), bool)}
    return {
        name: np.array(draw(st.lists(values, min_size=rows, max_size=rows)), dtype)
        for name, (values, dtype) in of.items()
    }


@st.composite
def comparisons(draw: st.DrawFn) -> tuple[Mask, Any]:
    """A mask on one column, and the same in NumPy."""
    name = draw(st.sampled_from(["whole", "number", "word", "flag"]))
    values = {"whole": WHOLE, "number": NUMBER, "word": WORD, "flag": st.booleans()}[name]
    if draw(st.booleans()):
        members = draw(st.lists(values, max_size=3))
        return fp.col(name).isin(members), lambda rows: np.array([v in members for v in rows[name].tolist()])
    compare, bound = draw(st.sampled_from(COMPARISONS)), draw(values)
    return compare(fp.col(name), bound), lambda rows: np.array([compare(v, bound) for v in rows[name].tolist()])


def combined(parts: st.SearchStrategy[tuple[Mask, Any]]) -> st.SearchStrategy[tuple[Mask, Any]]:
    return st.one_of(
        parts.map(lambda p: (~p[0], lambda rows: ~p[1](rows))),
        st.tuples(parts, parts).map(lambda p: (p[0][0] & p[1][0], lambda rows: p[0][1](rows) & p[1][1](rows))),
        st.tuples(parts, parts).map(lambda p: (p[0][0] | p[1][0], lambda rows: p[0][1](rows) | p[1][1](rows))),
    )


@given(tables(), st.recursive(comparisons(), combined, max_leaves=5))
def test_masks_select_what_numpy_does(rows: dict[str, np.ndarray], pair: tuple[Mask, Any]):
    mask, plain = pair
    selected = mask(rows)
    assert selected.dtype == bool
    np.testing.assert_array_equal(selected, plain(rows))
    np.testing.assert_array_equal(mask(fp.Table(rows)), selected)


@given(st.recursive(comparisons(), combined, max_leaves=5))
def test_equal_masks_are_one_key(pair: tuple[Mask, Any]):
    mask, _ = pair
    assert {mask: 1}[Mask(mask.symbol, mask.parts)] == 1
    assert mask != ~mask


@pytest.mark.parametrize("one", [1, np.int64(1)])
def test_a_number_may_stand_on_either_side(one: Any):
    column = fp.col("a")
    swapped = [column == 1, column != 1, column > 1, column >= 1, column < 1, column <= 1]
    assert [compare(one, column) for compare in COMPARISONS] == swapped


def test_numpy_numbers_become_plain_ones():
    assert str((fp.col("a") == np.float64(0.5)) | fp.col("b").isin(np.arange(2))) == "(a == 0.5) or (b in (0, 1))"


def test_a_mask_tells_the_columns_it_reads_once_and_in_order():
    mask = (fp.col("b") == 1) & ~(fp.col("a").isin([0]) | (fp.col("b") > 2))
    assert mask.columns == ("b", "a")


def test_a_mask_reads_like_what_was_written():
    mask = ~(fp.col("sex") == "f") & fp.col("age").isin([1, 2])
    assert str(mask) == "(not (sex == 'f')) and (age in (1, 2))"
    assert repr(fp.col("sex")) == "fp.col('sex')"


def test_masks_have_no_truth_value():
    young, old = fp.col("age") < 30, fp.col("age") > 60
    with pytest.raises(TypeError, match="no truth value; combine masks with &"):
        _ = young and old
    with pytest.raises(TypeError, match="no truth value"):
        _ = not young
    with pytest.raises(TypeError, match="no truth value"):
        _ = 30 < fp.col("age") < 60


@pytest.mark.parametrize("other", [True, 1, "age", None, np.ones(2, bool), fp.col("age")])
def test_masks_combine_with_masks_only(other: Any):
    with pytest.raises(TypeError, match="another mask, not with"):
        _ = (fp.col("age") < 30) & other
    with pytest.raises(TypeError, match="another mask, not with"):
        _ = (fp.col("age") < 30) | other


@pytest.mark.parametrize("bound", [None, [1, 2], (1,), {1}, np.ones(2), 1j, fp.col("b")])
def test_columns_compare_with_one_value_only(bound: Any):
    with pytest.raises(TypeError, match=r"one number or one string.*\.isin"):
        _ = fp.col("a") == bound


def test_columns_do_not_compare_with_nan():
    with pytest.raises(ValueError, match="NaN, which equals nothing; fill missing values"):
        _ = fp.col("a") == np.nan


@pytest.mark.parametrize("members", ["male", 3, None])
def test_isin_takes_a_list(members: Any):
    with pytest.raises(TypeError, match="isin takes a list of values"):
        fp.col("sex").isin(members)


@pytest.mark.parametrize("name", [1, None, ["a"], fp.col("a")])
def test_a_column_has_a_name(name: Any):
    with pytest.raises(TypeError, match="a column's name"):
        fp.col(name)


def test_a_column_is_no_key():
    with pytest.raises(TypeError, match="unhashable"):
        hash(fp.col("a"))


@pytest.mark.parametrize("compare", COMPARISONS)
def test_strings_and_numbers_do_not_compare(compare: Any):
    rows = {"word": np.array(["a", "b"]), "number": np.array([1, 2]), "day": np.array(["2026-01-01"], "M8[D]")}
    with pytest.raises(ValueError, match="column 'word' holds strings, which cannot be compared with 1"):
        compare(fp.col("word"), 1)(rows)
    with pytest.raises(ValueError, match="column 'number' holds numbers, which cannot be compared with '1'"):
        compare(fp.col("number"), "1")(rows)
    with pytest.raises(ValueError, match="column 'day' holds datetime64"):
        compare(fp.col("day"), "2026-01-01")(rows)


def test_isin_does_not_mix_strings_and_numbers():
    with pytest.raises(ValueError, match="column 'a' holds numbers, which cannot be compared with 'b'"):
        fp.col("a").isin([1, "b"])({"a": np.array([1, 2])})


def test_a_mask_reads_one_value_per_row():
    with pytest.raises(ValueError, match="column 'x' holds arrays; a mask compares one value per row"):
        (fp.col("x") > 0)({"x": np.zeros((3, 2))})


def test_numeric_columns_come_in_double_or_as_they_are():
    rows = {
        "single": np.ones(2, np.float32),
        "whole": np.array([1, 2], np.int8),
        "flag": np.array([True, False]),
        "pixels": np.zeros((2, 3), np.uint8),
        "word": np.array(["a", "b"]),
        "complex": np.ones(2) * 1j,
        "list": [0.5, 1.5],
    }
    found = {name: column.dtype.name for name, column in numeric(rows).items()}
    assert found == {"single": "float64", "whole": "int8", "flag": "bool", "pixels": "float64", "list": "float64"}
