"""Recipes: most frequent categories, declared ones, quantiles of filled columns, what a party checks, and split columns."""

import pathlib
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

import fedpact as fp
from fedpact.preparation.answers import measure, survey
from fedpact.preparation.fit import question
from fedpact.preparation.own_check import check_own

RNG = np.random.default_rng(0)


def clinic(count: int, smoking: list[str]) -> pd.DataFrame:
    smoker = RNG.choice(np.array([*smoking, None], object), count)
    bmi = np.where(RNG.random(count) < 0.2, np.nan, RNG.normal(27, 4, count))
    age, weight = RNG.normal(60, 12, count), RNG.normal(80, 9, count)
    return pd.DataFrame({"age": age, "weight": weight, "bmi": bmi, "smoker": smoker})


CLINICS = {"north": clinic(80, ["daily", "never", "never"]), "south": clinic(60, ["former", "never"])}
POOLED = pd.concat(CLINICS.values())


# missing categories


def test_missing_categories_become_the_most_frequent_one() -> None:
    made = fp.prepare(fp.Recipe([fp.one_hot("smoker", missing="most_frequent")]), CLINICS)
    filled = SimpleImputer(strategy="most_frequent").fit_transform(
        POOLED[["smoker"]].astype(object).where(POOLED[["smoker"]].notna(), np.nan)
    )
    wanted = OneHotEncoder(sparse_output=False).fit_transform(filled)
    np.testing.assert_array_equal(np.concatenate([table["x"] for table in made.values()]), wanted)
    assert "missing ones become never" in str(made.recipe)
    again = fp.AgreedRecipe.from_json(made.recipe.to_json())
    np.testing.assert_array_equal(again.transform({"smoker": [None, "never"]})["x"], [[0, 0, 1], [0, 0, 1]])
    places = fp.prepare(fp.Recipe([fp.ordinal("smoker", missing="most_frequent")]), CLINICS)
    assert set(np.unique(places["north"]["x"])) == {0.0, 2.0}


def test_of_equally_frequent_ones_the_first() -> None:
    frame = pd.DataFrame({"c": ["b", "a", "b", "a", None]})
    made = fp.prepare(fp.Recipe([fp.one_hot("c", missing="most_frequent")]), {"north": frame})
    np.testing.assert_array_equal(made["north"]["x"][-1], [1, 0])


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: fp.impute("smoker", by="most_frequent"), "is for categories: fp.one_hot"),
        (lambda: fp.one_hot("c", categories=["a", "b"], missing="most_frequent"), "categories that are learnt"),
        (lambda: fp.ordinal("c", order=["a", "b"], missing="most_frequent"), "categories that are learnt"),
    ],
)
def test_most_frequent_where_nothing_is_counted(make: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        make()


# declared categories


def declared(values: list[str], categories: list[str]) -> pd.DataFrame:
    return pd.DataFrame({"grade": pd.Categorical(values, categories=categories)})


def test_declared_categories_have_columns_though_no_row_has_them() -> None:
    frames = {"north": declared(["b"], ["b", "a", "c"]), "south": declared(["a", "b"], ["b", "a", "c"])}
    made = fp.prepare(fp.Recipe([fp.one_hot("grade", categories="declared")]), frames)
    assert made.features == ("grade=b", "grade=a", "grade=c")
    assert fp.prepare(fp.Recipe([fp.one_hot("grade")]), frames).features == ("grade=a", "grade=b")
    other = {**frames, "west": declared(["a"], ["b", "a"])}
    with pytest.raises(
        ValueError, match="'grade' declares other categories at party 'west' than at party 'north': 'c' is"
    ):
        fp.prepare(fp.Recipe([fp.one_hot("grade", categories="declared")]), other)
    plain = {"north": pd.DataFrame({"grade": ["a"]})}
    with pytest.raises(ValueError, match="column 'grade' of party 'north' declares no categories"):
        fp.prepare(fp.Recipe([fp.one_hot("grade", categories="declared")]), plain)


# quantiles


@pytest.mark.parametrize("fill", ["mean", "median", 20.0, 0.0, 100.0])
def test_quantiles_are_those_of_filled_columns(fill: Any) -> None:
    """As in a pipeline that fills first."""
    step = fp.scale("bmi", quantiles=(0.1, 0.8), missing=fill, cells=20_000)
    encoder: Any = fp.prepare(fp.Recipe([step]), CLINICS).recipe.encoders[0]
    filled = POOLED["bmi"].fillna(encoder.fill)
    low, high = np.quantile(filled, [0.1, 0.8])
    assert (encoder.shift, encoder.scale) == pytest.approx((low, high - low), abs=4e-3)


def test_one_far_value_is_told_of() -> None:
    frame = pd.DataFrame({"income": [*RNG.normal(50_000, 10_000, 100), 1e9, np.nan]})
    with pytest.warns(
        UserWarning, match="'income': half of the values lie in one of the 1,000 cells .* known to ± 5e\\+05"
    ):
        fp.prepare(fp.Recipe([fp.impute("income", by="median")]), {"north": frame})
    within = fp.prepare(fp.Recipe([fp.impute("income", by="median", within=(0, 1e5))]), {"north": frame}).recipe
    encoder: Any = within.encoders[0]
    assert encoder.fill == pytest.approx(frame["income"].median(), abs=50)


# what stays at home


def test_a_rare_category_cannot_be_found_by_guessing() -> None:
    """Whatever the server asks or lists, what a party answers and what its rows become says that there is one, not which."""
    recipe = fp.Recipe([fp.one_hot("c", rare=1)], min_count=3)
    frames = {"north": pd.DataFrame({"c": ["a"] * 5 + ["rare"]}), "south": pd.DataFrame({"c": ["a"] * 4 + ["b"] * 4})}
    surveys = {name: survey(recipe, frame, name, 3) for name, frame in frames.items()}
    asked = question(recipe, surveys)
    answers = []
    for guess in ("rare", "other"):
        guessed = type(asked)(asked.centre, asked.low, asked.high, (("a", "b", guess),))
        answers.append(measure(recipe, frames["north"], "north", guessed, 3))
    assert answers[0].keys() == answers[1].keys()
    assert all(np.array_equal(answers[0][name], answers[1][name]) for name in answers[0])
    frames["south"] = pd.DataFrame({"c": ["a"] * 4 + ["rare"] * 4})  # now somebody else tells it
    made = fp.prepare(recipe, frames)
    assert made.features == ("c=a", "c=rare", "c=(other)")
    np.testing.assert_array_equal(made["north"]["x"][-1], [0, 0, 1])
    np.testing.assert_array_equal(made["south"]["x"][-1], [0, 1, 0])


RECIPE = fp.Recipe(
    [
        fp.standardize("age"),
        fp.scale("weight"),
        fp.one_hot("smoker", missing="own"),
        fp.bins("bmi", count=3, missing="median"),
    ],
    min_count=2,
)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda words: words.update(rows=10), "on 10 rows, and this party alone has 80"),
        (lambda words: words["x"][0].update(scale=1e-6), "'age' .* squared deviations are more than those of all"),
        (lambda words: words["x"][0].update(shift=59.0), "'age' .* its mean is not that of the question"),
        (lambda words: words["x"][1].update(scale=1e-6), "'weight' .* values are beyond the least and the greatest"),
        (lambda words: words["x"][2].update(categories=["former", "never"]), "'smoker' .* leaves out a category"),
        (
            lambda words: words["x"][2].update(categories=["daily", "former", "guess", "never"]),
            "'smoker' .* not those of the question",
        ),
        (lambda words: words["x"][3].update(edges=[25.0, 1e6]), "'bmi' .* outside of the histogram"),
        (lambda words: words["x"][3].update(fill=-1e6), "'bmi' .* outside of the histogram"),
    ],
)
def test_a_party_compares_the_fit_with_its_own_rows(change: Any, told: str) -> None:
    own = survey(RECIPE, CLINICS["north"], "north", 2)
    surveys = {name: survey(RECIPE, frame, name, 2) for name, frame in CLINICS.items()}
    asked = question(RECIPE, surveys)
    words = fp.prepare(RECIPE, CLINICS).recipe.to_json()
    check = (CLINICS["north"], "north", own, asked, 2)
    check_own(RECIPE, fp.AgreedRecipe.from_json(words), *check)
    change(words)
    with pytest.raises(ValueError, match=told):
        check_own(RECIPE, fp.AgreedRecipe.from_json(words), *check)


def test_without_a_place_for_what_stays_here_the_fit_is_refused() -> None:
    recipe = fp.Recipe([fp.one_hot("c")], min_count=3)
    frame = pd.DataFrame({"c": ["a"] * 5 + ["rare"]})
    words = fp.prepare(recipe, {"north": frame}).recipe.to_json()
    words["x"][0].update(unnamed=False, categories=["a", "rare"])
    own = survey(recipe, frame, "north", 3)
    with pytest.raises(ValueError, match="no place for categories that stay here"):
        check_own(recipe, fp.AgreedRecipe.from_json(words), frame, "north", own, None, 3)


# columns

BANK = pd.DataFrame({"customer": range(60), "income": RNG.normal(40, 9, 60), "paid": ["yes", "no", "yes"] * 20})
SHOP = pd.DataFrame({"customer": range(60), "visits": RNG.integers(0, 9, 60), "club": RNG.choice(["gold", "none"], 60)})
BY_PARTY = {
    "bank": fp.Recipe([fp.standardize("income")], fp.label("paid", positive="yes")),
    "shop": fp.Recipe([fp.standardize("visits"), fp.one_hot("club")]),
}
PROBLEM = fp.minimize(
    fp.mean(fp.logistic_loss(fp.split_model(bottom=lambda width: fp.linear(), combine="sum"))), regularizer=fp.l2(1e-2)
)


def test_over_columns_each_party_has_a_recipe_of_its_own(tmp_path: pathlib.Path) -> None:
    parties = fp.prepare(BY_PARTY, {"bank": BANK, "shop": SHOP}, active=["bank"], id="customer")
    assert parties.features == {"bank": ("income",), "shop": ("visits", "club=gold", "club=none")}
    assert parties.labels.columns == ("y",)
    result = fp.solve(PROBLEM, parties, fp.FedBCD(), max_rounds=5)
    raw = {"bank": BANK[:7], "shop": SHOP[:7]}
    expected = result.scores({name: table[:7] for name, table in parties.items()})
    np.testing.assert_allclose(result.scores(raw), expected)
    assert set(result.predict(raw)) <= {"yes", "no"}
    result.save(tmp_path / "model")
    model = fp.load(tmp_path / "model")
    np.testing.assert_allclose(model.raw_scores(raw), expected)
    assert model.labels == ("no", "yes")
    assert model.parts["shop"].recipe == parties["shop"].recipe
