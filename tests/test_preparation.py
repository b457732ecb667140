"""Recipes: what scikit-learn makes of pooled rows, from what parties tell of theirs; what is refused; what is told."""

import itertools
import json
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import polars
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, MinMaxScaler, OneHotEncoder, OrdinalEncoder, StandardScaler

import fedpact as fp
from fedpact.preparation.answers import measure, survey
from fedpact.preparation.fit import question


def rows(count: int = 240, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(60, 12, count).round(),
            "bmi": rng.normal(27, 4, count),
            "pay": 1e6 + rng.normal(size=count),
            "smoker": rng.choice(["never", "former", "daily"], count, p=[0.6, 0.35, 0.05]),
            "grade": rng.integers(1, 5, count),
            "died": rng.choice(["no", "yes"], count),
        }
    )
    frame.loc[rng.random(count) < 0.1, "bmi"] = np.nan
    return frame


def split(frame: pd.DataFrame, parties: int, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Parties of unequal sizes, each with at least one row; by age, so that they differ."""
    rng = np.random.default_rng(seed)
    cuts = np.sort(rng.choice(np.arange(1, len(frame)), parties - 1, replace=False))
    frame = frame.sort_values("age", kind="stable")
    ends = [0, *cuts, len(frame)]
    return {f"p{i}": frame.iloc[a:b] for i, (a, b) in enumerate(itertools.pairwise(ends))}


def together(parties: fp.Parties, frames: dict[str, pd.DataFrame]) -> tuple[np.ndarray, pd.DataFrame]:
    return np.concatenate([parties[name]["x"] for name in parties]), pd.concat(frames.values())


STEPS: dict[str, tuple[list[Any], list[tuple[str, Any, list[str]]]]] = {
    "standardize": ([fp.standardize("age", "pay")], [("s", StandardScaler(), ["age", "pay"])]),
    "standardize, mean": (
        [fp.standardize("bmi", missing="mean")],
        [("s", make_pipeline(SimpleImputer(), StandardScaler()), ["bmi"])],
    ),
    "standardize, constant": (
        [fp.standardize("bmi", missing=20.0)],
        [("s", make_pipeline(SimpleImputer(strategy="constant", fill_value=20.0), StandardScaler()), ["bmi"])],
    ),
    "scale": ([fp.scale("age", "pay")], [("s", MinMaxScaler(), ["age", "pay"])]),
    "scale, constant": (
        [fp.scale("bmi", missing=-5)],
        [("s", make_pipeline(SimpleImputer(strategy="constant", fill_value=-5.0), MinMaxScaler()), ["bmi"])],
    ),
    "one_hot": ([fp.one_hot("smoker", "grade")], [("s", OneHotEncoder(sparse_output=False), ["smoker", "grade"])]),
    "one_hot, rare": (
        [fp.one_hot("smoker", rare=40)],
        [("s", OneHotEncoder(sparse_output=False, min_frequency=40), ["smoker"])],
    ),
    "ordinal": ([fp.ordinal("smoker", "grade")], [("s", OrdinalEncoder(), ["smoker", "grade"])]),
    "impute": ([fp.impute("bmi", "age")], [("s", SimpleImputer(), ["bmi", "age"])]),
    "impute, indicator": ([fp.impute("bmi", indicator=True)], [("s", SimpleImputer(add_indicator=True), ["bmi"])]),
    "impute, constant": (
        [fp.impute("bmi", by=0)],
        [("s", SimpleImputer(strategy="constant", fill_value=0.0), ["bmi"])],
    ),
    "passthrough": ([fp.passthrough("grade")], [("s", "passthrough", ["grade"])]),
    "bins": (
        [fp.bins("age", edges=[50, 70])],
        [("s", KBinsDiscretizer(3, encode="onehot-dense", strategy="uniform"), ["age"])],
    ),
    "together": (
        [fp.standardize("age"), fp.one_hot("smoker"), fp.impute("bmi"), fp.ordinal("grade")],
        [
            ("a", StandardScaler(), ["age"]),
            ("b", OneHotEncoder(sparse_output=False), ["smoker"]),
            ("c", SimpleImputer(), ["bmi"]),
            ("d", OrdinalEncoder(), ["grade"]),
        ],
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_as_scikit_learn_on_pooled_rows(name: str) -> None:
    steps, transformers = STEPS[name]
    frame = rows()
    if name == "bins":
        frame["age"] = frame["age"].clip(30, 90)
        frame.loc[frame.index[:2], "age"] = [30, 90]
    frames = split(frame, 4)
    x, pooled = together(fp.prepare(fp.Recipe(steps), frames), frames)
    wanted = np.asarray(ColumnTransformer(transformers).fit_transform(pooled), float)
    # "pay" is 1e6 deviations away from zero, and so is the rounding of scikit-learn's mean
    np.testing.assert_allclose(x, wanted, rtol=0, atol=1e-9 if "pay" in transformers[0][2] else 1e-12)


def test_columns_far_from_zero_keep_their_digits() -> None:
    frames = split(rows(), 4)
    x, pooled = together(fp.prepare(fp.Recipe([fp.standardize("pay")]), frames), frames)
    exact = pooled["pay"].to_numpy().astype(np.longdouble)
    wanted = (exact - exact.mean()) / exact.std()
    np.testing.assert_allclose(
        x[:, 0], wanted.astype(float), rtol=0, atol=3e-10
    )  # half the spacing of numbers near 1e6


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(-1e3, 1e3) | st.none(), st.sampled_from("abcd"), st.integers(-3, 3), st.floats(-1e3, 1e3)),
        min_size=6,
        max_size=40,
    ),
    st.integers(1, 5),
    st.integers(0, 100),
)
def test_as_scikit_learn_however_rows_are_split(values: list[Any], parties: int, seed: int) -> None:
    frame = pd.DataFrame(values, columns=["bmi", "smoker", "grade", "age"]).astype({"bmi": float})
    frame["age"] /= 1000
    frame.loc[frame.index[0], "bmi"] = 1.0  # some value is there
    frames = split(frame, parties, seed)
    recipe = fp.Recipe([fp.standardize("age"), fp.scale("age"), fp.impute("bmi"), fp.one_hot("smoker")])
    with pytest.raises(ValueError, match="two steps of the recipe make a feature called 'age'"):
        fp.prepare(recipe, frames)
    recipe = fp.Recipe([fp.standardize("age"), fp.impute("bmi"), fp.one_hot("smoker"), fp.scale("grade")])
    x, pooled = together(fp.prepare(recipe, frames), frames)
    wanted = ColumnTransformer(
        [
            ("a", StandardScaler(), ["age"]),
            ("b", SimpleImputer(), ["bmi"]),
            ("c", OneHotEncoder(sparse_output=False), ["smoker"]),
            ("d", MinMaxScaler(), ["grade"]),
        ]
    ).fit_transform(pooled)
    spread = float(np.std(pooled["age"]))
    rounding = (
        np.finfo(float).eps * np.abs(pooled["age"]).max() / spread if spread else 0.0
    )  # of the mean, in deviations
    np.testing.assert_allclose(x, np.asarray(wanted, float), rtol=1e-12, atol=max(1e-12, 20 * rounding))


@pytest.mark.filterwarnings("ignore:column 'v'. half of the values lie in one")
@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-50, 50), min_size=2, max_size=60), st.integers(1, 2), st.floats(0, 0.5))
def test_quantiles_are_within_half_a_cell(values: list[float], parties: int, share: float) -> None:
    frames = {
        name: pd.DataFrame({"v": part}) for name, part in zip("ab", np.array_split(values, parties), strict=False)
    }
    frames = {name: frame for name, frame in frames.items() if len(frame)}
    width = (max(values) - min(values)) / 100
    imputed = fp.prepare(fp.Recipe([fp.impute("v", by="median", cells=100)]), frames).recipe
    assert imputed.encoders[0].fill == pytest.approx(np.median(values), abs=width / 2 + 1e-9)
    scaled = fp.prepare(fp.Recipe([fp.scale("v", quantiles=(share, 1 - share / 2), cells=100)]), frames).recipe
    low, high = np.quantile(values, [share, 1 - share / 2])
    assert scaled.encoders[0].shift == pytest.approx(low, abs=width / 2 + 1e-9)
    if high - low > 2 * width:
        assert scaled.encoders[0].scale == pytest.approx(high - low, abs=width + 1e-9)


def test_a_stated_range_is_not_asked_for() -> None:
    frames = split(rows(), 3)
    recipe = fp.Recipe([fp.impute("bmi", by="median", within=(10, 60), cells=500), fp.scale("age", within=(0, 120))])
    told = survey(recipe, frames["p0"], "party 'p0'", 1)
    assert np.isinf(told.least).all()
    assert np.isinf(told.greatest).all()
    agreed = fp.prepare(recipe, frames).recipe
    assert agreed.encoders[0].fill == pytest.approx(np.nanmedian(pd.concat(frames.values())["bmi"]), abs=0.05)
    assert (agreed.encoders[1].shift, agreed.encoders[1].scale) == (0, 120)


def test_bins_of_equal_size_have_names() -> None:
    frame = pd.DataFrame({"age": np.arange(300.0)})
    parties = fp.prepare(fp.Recipe([fp.bins("age", count=3)]), frame, parties=3)
    low, high = parties.recipe.encoders[0].edges
    assert (low, high) == pytest.approx(np.quantile(frame["age"], [1 / 3, 2 / 3]), abs=0.15)
    assert parties.features == (f"age<{low:.6g}", f"{low:.6g}<=age<{high:.6g}", f"age>={high:.6g}")
    counts = sum(parties[name]["x"].sum(0) for name in parties)
    assert counts.tolist() == [100, 100, 100]


# categories


def test_rare_and_unknown_categories() -> None:
    frames = {
        "north": pd.DataFrame({"c": ["a"] * 6 + ["b"] * 3 + ["z"]}),
        "south": pd.DataFrame({"c": ["a"] * 4 + ["q"] * 2}),
    }
    parties = fp.prepare(fp.Recipe([fp.one_hot("c")], min_count=2), frames)
    assert parties.features == ("c=a", "c=b", "c=q", "c=(other)")  # z stays in the north
    assert parties["north"]["x"][:, 3].tolist() == [0] * 9 + [1]
    assert "z" not in str(parties.recipe).replace("zero", "")
    assert parties.recipe.transform({"c": ["z", "new"]})["x"][:, 3].tolist() == [1, 1]

    grouped = fp.prepare(fp.Recipe([fp.one_hot("c", rare=4)]), frames)
    assert grouped.features == ("c=a", "c=(other)")
    with pytest.raises(ValueError, match=r"column 'c' of the rows holds 'new', which no party had .* it knows a"):
        grouped.recipe.transform({"c": ["z", "new"]})

    own = fp.prepare(fp.Recipe([fp.one_hot("c", unknown="own", missing="own")]), frames)
    assert own.features == ("c=a", "c=b", "c=q", "c=z", "c=(other)", "c=(missing)")
    assert own.recipe.transform({"c": ["new", None, "a"]})["x"].argmax(1).tolist() == [4, 5, 0]
    zeros = fp.prepare(fp.Recipe([fp.one_hot("c", unknown="zeros", missing="zeros")]), frames).recipe
    assert zeros.transform({"c": ["new", None, "a"]})["x"].sum(1).tolist() == [0, 0, 1]
    places = fp.prepare(fp.Recipe([fp.ordinal("c", order=["q", "b", "a", "z"], unknown="own")]), frames).recipe
    assert places.transform({"c": ["q", "z", "new"]})["x"][:, 0].tolist() == [0, 3, 4]


def test_what_few_rows_have_stays_at_home() -> None:
    frame = pd.DataFrame({"c": ["a"] * 5 + ["b"] * 5 + ["z"], "v": np.arange(11.0)})
    recipe = fp.Recipe([fp.one_hot("c", rare=3), fp.standardize("v")], min_count=3)
    told = survey(recipe, frame, "north", 3)
    assert told.sets[0].categories == ("a", "b")
    # another party told z: still nobody learns that one row here has it
    other = survey(recipe, pd.DataFrame({"c": ["z"] * 4, "v": np.arange(4.0)}), "south", 3)
    asked = question(recipe, {"north": told, "south": other})
    assert asked.categories[0] == ("a", "b", "z")
    assert measure(recipe, frame, "north", asked, 3)["counts 0"].tolist() == [5, 5, 0]


def test_categories_in_an_order() -> None:
    grade = pd.CategoricalDtype(["low", "mid", "high"], ordered=True)
    frames = {
        name: pd.DataFrame({"g": pd.Series(values, dtype=grade)})
        for name, values in {"north": ["low", "high"], "south": ["mid", "mid"]}.items()
    }
    assert fp.prepare(fp.Recipe([fp.ordinal("g")]), frames)["north"]["x"][:, 0].tolist() == [0, 2]
    frames["south"]["g"] = frames["south"]["g"].cat.reorder_categories(["high", "mid", "low"])
    with pytest.raises(
        ValueError, match="party 'north' and party 'south' have the categories of column 'g' in different orders"
    ):
        fp.prepare(fp.Recipe([fp.ordinal("g")]), frames)


def test_orders_tell_no_rare_category() -> None:
    grade = pd.CategoricalDtype(["low", "mid", "high"], ordered=True)
    frame = pd.DataFrame({"g": pd.Series(["low", "mid", "mid", "high", "high"], dtype=grade)})
    (told,) = survey(fp.Recipe([fp.ordinal("g")]), frame, "north", 2).sets
    assert (told.categories, told.order) == (("high", "mid"), ("mid", "high"))
    (told,) = survey(fp.Recipe([fp.one_hot("g")]), frame, "north", 1).sets
    assert told.order is None, "one column for each category needs none"
    with pytest.raises(ValueError, match=r"column 'g': some categories stay at home.*order="):
        fp.prepare(fp.Recipe([fp.ordinal("g")], min_count=2), {"north": frame})


def test_orders_of_parties_are_merged() -> None:
    def frames(*orders: list[str]) -> dict[str, pd.DataFrame]:
        kinds = [pd.CategoricalDtype(order, ordered=True) for order in orders]
        return {
            f"p{k}": pd.DataFrame({"g": pd.Series(list(kind.categories), dtype=kind)}) for k, kind in enumerate(kinds)
        }

    agreed = fp.prepare(fp.Recipe([fp.ordinal("g")]), frames(["low", "mid"], ["mid", "high"]))
    assert agreed["p1"]["x"][:, 0].tolist() == [1, 2]
    with pytest.raises(ValueError, match="no party says which comes first in column 'g', high or low"):
        fp.prepare(fp.Recipe([fp.ordinal("g")]), frames(["low"], ["high"]))


def test_identifiers_are_not_told() -> None:
    frame = pd.DataFrame({"id": [f"patient {i}" for i in range(1200)]})
    with pytest.raises(ValueError, match="column 'id' of party 'north' has 1200 different values, more than the 1000"):
        fp.prepare(fp.Recipe([fp.one_hot("id")]), {"north": frame})


# labels, kept columns


def test_labels() -> None:
    frames = split(rows(), 2)
    agreed = fp.prepare(fp.Recipe([fp.passthrough("age")], fp.label("died", positive="no")), frames).recipe
    assert (agreed.labels, agreed.positive) == (("yes", "no"), "no")
    assert agreed.transform({"age": [1], "died": ["no"]})["y"].tolist() == [1]
    classes = fp.prepare(fp.Recipe([fp.passthrough("age")], fp.label("smoker")), frames).recipe
    assert (classes.labels, classes.positive) == (("daily", "former", "never"), None)
    numbers = fp.prepare(fp.Recipe([fp.passthrough("age")], fp.label("bmi")), {"p": rows().dropna()})
    assert numbers.recipe.labels is None
    assert numbers["p"]["y"].dtype == float
    with pytest.raises(ValueError, match="two labels are wanted, and the parties have 'daily', 'former', 'never'"):
        fp.prepare(fp.Recipe([fp.passthrough("age")], fp.label("smoker", positive="never")), frames)
    with pytest.raises(ValueError, match=r"column 'died' of party 'p0' holds the label 'yes'; the labels .* are y, n"):
        fp.prepare(fp.Recipe([fp.passthrough("age")], fp.label("died", positive="n", negative="y")), frames)


def test_kept_columns_and_raw_features_are_there_for_masks() -> None:
    recipe = fp.Recipe([fp.standardize("age"), fp.passthrough("grade")], fp.label("died", positive="yes"), ["smoker"])
    table = fp.prepare(recipe, split(rows(), 2))["p0"]
    assert table.columns == ("x", "y", "smoker")
    assert (fp.col("grade") == 2)(table).any()
    with pytest.raises(KeyError, match=r"'age' is a prepared feature in 'x'.* keep="):
        table["age"]
    kept = fp.prepare(fp.Recipe([fp.standardize("age")], keep=["age"]), split(rows(), 2))["p0"]
    assert (fp.col("age") > 20)(kept).all()


def test_new_rows_need_neither_label_nor_kept_columns() -> None:
    recipe = fp.Recipe([fp.standardize("age")], fp.label("died", positive="yes"), ["smoker"])
    agreed = fp.prepare(recipe, split(rows(), 2)).recipe
    new = rows(5, seed=3)
    assert list(agreed.transform(new)) == ["x", "y", "smoker"]
    assert list(agreed.transform(new[["age"]])) == ["x"]
    with pytest.raises(ValueError, match="column 'age' of the rows is missing: there are bmi, pay"):
        agreed.transform(new.drop(columns="age"))
    with pytest.raises(ValueError, match="column 'age' of the rows holds 1 missing values in 5 rows"):
        agreed.transform(new.assign(age=[1, 2, None, 4, 5]))
    with pytest.raises(ValueError, match="column 'age' of the rows holds strings where numbers are wanted"):
        agreed.transform(new.assign(age="old"))
    applied = fp.prepare(agreed, {"east": new})
    assert applied.recipe == agreed
    assert not applied.recipe.told


def test_saved_and_read() -> None:
    steps = [step for name, (steps, _) in STEPS.items() if name not in ("together", "scale") for step in steps[:1]]
    for step in steps:
        recipe = fp.Recipe([step], fp.label("died", positive="yes"), ["smoker"])
        agreed = fp.prepare(recipe, split(rows(), 3)).recipe
        again = fp.AgreedRecipe.from_json(json.loads(json.dumps(agreed.to_json())))
        assert again == agreed
        assert (again.features, again.labels, again.positive) == (agreed.features, agreed.labels, "yes")
        assert "p0" not in json.dumps(agreed.to_json())
        np.testing.assert_array_equal(again.transform(rows())["x"], agreed.transform(rows())["x"])
    flat = {"encoder": "number", "column": "age", "step": "scale", "scale": 0}
    for damaged in (None, {}, {**agreed.to_json(), "format": 2}, *({**agreed.to_json(), "x": [x]} for x in ({}, flat))):
        with pytest.raises(ValueError, match="that is no recipe"):
            fp.AgreedRecipe.from_json(damaged)


def test_a_fitted_recipe_needs_no_jax() -> None:
    program = "import sys, fedpact.preparation.prepare, fedpact.preparation.agreed; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


# frames of all kinds


@pytest.mark.parametrize(
    "make", [lambda f: f, polars.from_pandas, pyarrow.Table.from_pandas, lambda f: f.to_dict("list")]
)
def test_frames_of_all_kinds(make: Any) -> None:
    frame = rows(60)
    frame.loc[3, "smoker"] = None
    recipe = fp.Recipe(
        [fp.standardize("age", "bmi", missing="mean"), fp.one_hot("smoker", missing="own")],
        fp.label("died", positive="yes"),
        keep=["grade"],
    )
    frames = {"north": make(frame[:40]), "south": make(frame[40:])}
    parties, wanted = fp.prepare(recipe, frames), fp.prepare(recipe, {"north": frame[:40], "south": frame[40:]})
    for name in parties:
        for column in ("x", "y", "grade"):
            np.testing.assert_array_equal(parties[name][column], wanted[name][column])


def test_one_frame_or_file_is_dealt_to_parties(tmp_path: Any) -> None:
    recipe = fp.Recipe([fp.standardize("age")], fp.label("died", positive="yes"), ["grade"])
    rows(90).to_csv(tmp_path / "rows.csv", index=False)
    for source in (tmp_path / "rows.csv", polars.from_pandas(rows(90))):
        parties = fp.prepare(recipe, source, parties=3, stratify="died", seed=1)
        assert parties.sizes == (30, 30, 30)
    assert fp.prepare(recipe, rows(90), by="grade").names == ("1", "2", "3", "4")
    with pytest.raises(ValueError, match="the frames are split already"):
        fp.prepare(recipe, {"north": rows()}, parties=2)


# what is refused


NORTH = pd.DataFrame({"age": [1.0, 2.0], "sex": ["f", "m"]})


@pytest.mark.parametrize(
    ("south", "steps", "told"),
    [
        (NORTH.drop(columns="age"), [fp.standardize("age")], "column 'age' of party 'south' is missing: there are sex"),
        (NORTH.assign(age=["?", "3"]), [fp.standardize("age")], "column 'age' of party 'south' holds strings where numbers"),
        (NORTH.assign(sex=[0, 1]), [fp.one_hot("sex")], "column 'sex' holds numbers at party 'south' and strings at party"),
        (NORTH.assign(age=[1, None]), [fp.scale("age")], "column 'age' of party 'south' holds 1 missing values in 2 rows"),
        (NORTH.assign(age=[1, np.inf]), [fp.scale("age")], "column 'age' of party 'south' holds 1 infinite values"),
        (NORTH.assign(sex=["f", None]), [fp.one_hot("sex")], "column 'sex' of party 'south' holds 1 missing values"),
        (NORTH.assign(sex=["f", 3]), [fp.one_hot("sex")], "column 'sex' of party 'south' holds int, str"),
        (NORTH.assign(age=pd.Timestamp(0)), [fp.scale("age")], "column 'age' of party 'south' holds dates"),
    ],
)  # fmt: skip
def test_columns_that_do_not_fit_are_named_with_their_party(south: pd.DataFrame, steps: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        fp.prepare(fp.Recipe(steps), {"north": NORTH, "south": south})


def test_a_column_without_any_value() -> None:
    empty = {"north": NORTH.assign(age=np.nan)}
    with pytest.raises(ValueError, match="column 'age': no party has a value"):
        fp.prepare(fp.Recipe([fp.impute("age")]), empty)
    assert fp.prepare(fp.Recipe([fp.impute("age", by=3)]), empty)["north"]["x"].tolist() == [[3], [3]]
    some = fp.prepare(fp.Recipe([fp.impute("age"), fp.one_hot("sex")]), {**empty, "south": NORTH})
    assert some["north"]["x"][:, 0].tolist() == [1.5, 1.5]


def test_constant_columns_stay_finite() -> None:
    frames = {"north": pd.DataFrame({"a": [0.1] * 3, "b": [7.0] * 3}), "south": pd.DataFrame({"a": [0.1], "b": [7.0]})}
    x = fp.prepare(fp.Recipe([fp.standardize("a"), fp.scale("b")]), frames)["north"]["x"]
    np.testing.assert_allclose(x, 0, atol=1e-15)


@pytest.mark.parametrize(
    ("make", "kind", "told"),
    [
        (lambda: fp.standardize(), TypeError, "takes the names of columns"),
        (lambda: fp.standardize(["age"]), TypeError, "takes the names of columns"),
        (lambda: fp.standardize("age", "age"), ValueError, "named twice"),
        (lambda: fp.standardize("age", missing="mode"), ValueError, "one of 'error', 'mean', 'median', or a number"),
        (lambda: fp.standardize("age", indicator=True), ValueError, "say too what is put in place"),
        (lambda: fp.scale("age", quantiles=(0.9, 0.1)), ValueError, "two numbers from 0 to 1"),
        (lambda: fp.scale("age", within=(3, 3)), ValueError, "the first number is to be below"),
        (lambda: fp.scale("age", cells=1), ValueError, "from 2 to 100,000"),
        (lambda: fp.impute("age", by="error"), ValueError, "fp.passthrough refuses missing values"),
        (lambda: fp.bins("age"), ValueError, "needs edges= .* or count="),
        (lambda: fp.bins("age", edges=[2, 1]), ValueError, "in rising order"),
        (lambda: fp.bins("age", count=1), ValueError, "at least 2"),
        (lambda: fp.one_hot("c", unknown="drop"), ValueError, "one of 'error', 'own', 'zeros'"),
        (lambda: fp.one_hot("c", rare=-1), ValueError, "at least 0"),
        (lambda: fp.ordinal("c", order="abc"), TypeError, "a list of values"),
        (lambda: fp.ordinal("c", order=["a", "a"]), ValueError, "each once"),
        (lambda: fp.label("c", negative="n"), ValueError, "together with another one, positive="),
        (lambda: fp.Recipe([]), TypeError, "a list of steps"),
        (lambda: fp.Recipe(["age"]), TypeError, "a list of steps"),
        (lambda: fp.Recipe([fp.scale("age")], "y"), TypeError, "fp.label"),
        (lambda: fp.Recipe([fp.scale("age")], keep="sex"), TypeError, "a list of names"),
        (lambda: fp.Recipe([fp.scale("age")], keep=["x"]), ValueError, "rename that column"),
        (lambda: fp.Recipe([fp.scale("age")], min_count=0), ValueError, "at least 1"),
        (lambda: fp.prepare([fp.scale("age")], {}), TypeError, "takes an fp.Recipe"),
        (lambda: fp.prepare(fp.Recipe([fp.scale("age")]), [NORTH]), TypeError, "by the names of their parties"),
        (lambda: fp.prepare(fp.Recipe([fp.scale("age")]), {}), ValueError, "at least one party"),
    ],
)
def test_what_is_stated_wrongly(make: Any, kind: type[Exception], told: str) -> None:
    with pytest.raises(kind, match=told):
        make()


def test_print_says_what_was_agreed_and_told() -> None:
    recipe = fp.Recipe(
        [fp.standardize("age", "bmi", missing="mean"), fp.one_hot("smoker"), fp.scale("pay")],
        fp.label("died", positive="yes"),
        keep=["grade"],
    )
    text = str(fp.prepare(recipe, split(rows(), 2)).recipe)
    for words in (
        "over 240 rows: 6 features",
        "smoker: one column for each of daily, former, never",
        "y: died: no becomes 0, yes becomes 1",
        "kept as they are: grade",
        "what each party told of its rows:",
        "missing, sum ",
        "smoker daily, former, never",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        (
            {"age": [1.0, 2.0], "sex": ["f"]},
            "party 'south': the columns have different numbers of rows: 'age' 2, 'sex' 1",
        ),
        (
            None,
            "party 'south': a data frame of pandas, polars or Arrow, or a mapping of columns is wanted, not NoneType",
        ),
        (polars.LazyFrame({"age": [1.0]}), r"party 'south': .* not LazyFrame; \.collect\(\) makes one of it"),
        (
            pd.DataFrame([[1.0, 2.0]], columns=["age", "age"]),
            "party 'south': two columns of the frame have the same name",
        ),
    ],
    ids=["lengths", "none", "lazy", "twice"],
)
def test_what_is_no_frame_is_named_with_its_party(frame: Any, told: str) -> None:
    with pytest.raises((TypeError, ValueError), match=told):
        fp.prepare(fp.Recipe([fp.standardize("age")]), {"north": {"age": [1.0, 2.0]}, "south": frame})
