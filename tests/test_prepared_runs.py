"""Runs over prepared tables: hospitals whose categories differ, and recipes that are fitted across organisations."""

import json
import pathlib
from typing import Any

import numpy as np
import pandas as pd
import pytest
from test_deploy import Loopback, with_policy

import fedpact as fp
from fedpact.deploy.message_list import wire
from fedpact.deploy.server import serve
from fedpact.deploy.wire_text import messages
from fedpact.engines.remote import PartyLost
from fedpact.engines.serialization import pack, unpack
from fedpact.run.pact import Pact

LOSS = fp.logistic_loss(fp.linear(bias=True))
RISK = {"none": -2.5, "pills": 2.5, "surgery": -2.5, "watch": 2.5}


def hospital(count: int, seed: int, treatments: list[str]) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    treatment, age = rng.choice(treatments, count), rng.normal(50, 15, count)
    score = np.array([RISK[t] for t in treatment]) + (age - 50) / 10 + 0.5 * rng.logistic(size=count)
    return pd.DataFrame({"treatment": treatment, "age": age, "outcome": np.where(score > 0, "ill", "well")})


# the same number of treatments at both, but others
HOSPITALS = {"north": hospital(400, 0, ["none", "pills"]), "south": hospital(400, 1, ["surgery", "watch", "pills"])}
HOSPITALS["south"] = HOSPITALS["south"][HOSPITALS["south"]["treatment"] != "pills"]


def dummies(frame: pd.DataFrame) -> fp.Table:
    encoded = pd.get_dummies(frame[["age", "treatment"]]).astype(float)
    encoded["y"] = frame["outcome"] == "ill"
    return fp.Table.from_frame(encoded, x=[name for name in encoded.columns if name != "y"])


def test_two_hospitals_whose_columns_mean_different_things() -> None:
    problem = fp.minimize(fp.mean(LOSS).pooled(), regularizer=fp.l2(1e-3))
    tables = {name: dummies(frame) for name, frame in HOSPITALS.items()}
    assert tables["north"]["x"].shape[1] == tables["south"]["x"].shape[1]
    told = "party 'south' has a feature 'treatment_surgery' in 'x', and party 'north' has none"
    with pytest.raises(ValueError, match=told):
        fp.solve(problem, tables)
    swapped = {"north": tables["north"], "south": dummies(HOSPITALS["north"])}
    swapped["south"] = swapped["south"].with_columns(x=swapped["south"]["x"][:, [1, 0, 2]])
    swapped["south"] = swapped["south"].with_features([tables["north"].features[i] for i in (1, 0, 2)])
    with pytest.raises(ValueError, match="feature 1 of 'x' is 'treatment_none' at party 'south' and 'age' at party 'n"):
        fp.solve(problem, swapped)

    recipe = fp.Recipe([fp.standardize("age"), fp.one_hot("treatment")], fp.label("outcome", positive="ill"))
    hospitals = fp.prepare(recipe, HOSPITALS)
    assert hospitals.features == ("age", *(f"treatment={name}" for name in sorted(RISK)))
    result = fp.solve(problem, hospitals)
    assert result.converged
    right = [np.mean(result.predict(frame) == frame["outcome"]) for frame in HOSPITALS.values()]
    assert min(right) >= 0.88


def test_parts_of_prepared_tables_know_their_recipe() -> None:
    recipe = fp.Recipe([fp.standardize("age"), fp.one_hot("treatment")], fp.label("outcome", positive="ill"))
    clinics = fp.prepare(recipe, HOSPITALS)
    half = fp.Parties({name: table[:200].with_columns(w=np.ones(200)) for name, table in clinics.items()})
    assert half.recipe is clinics.recipe
    raw = fp.Table(x=np.zeros((5, len(clinics.features))), y=np.zeros(5)).with_features(clinics.features)
    with pytest.raises(ValueError, match="party 'north' and party 'south' were not made by the same recipe"):
        fp.Parties({"north": clinics["north"], "south": raw})


def test_a_promise_on_rows_that_the_recipe_has_seen() -> None:
    hospitals = fp.prepare(fp.Recipe([fp.standardize("age")], fp.label("outcome", positive="ill")), HOSPITALS)
    problem = fp.minimize(fp.mean(LOSS), [fp.mean(LOSS) <= 0.9], fp.l2(1e-2))
    with pytest.warns(UserWarning, match="fitted on all their rows"), pytest.raises(ValueError, match="confidence"):
        fp.promise(problem, hospitals, confidence=2)


# deployed

PACT = """
import numpy as np
import pandas as pd
import fedpact as fp

parties = ["north", "south", "west"]
SMOKING = {"north": ["never", "daily"], "south": ["daily", "former", "never"], "west": ["never", "former"]}
loss = fp.logistic_loss(fp.linear(bias=True))


def load(party):
    rng = np.random.default_rng(parties.index(party))
    count = 60 + 20 * parties.index(party)
    age, smoker = rng.normal(60, 12, count), rng.choice(SMOKING[party], count)
    died = 0.06 * (age - 60) + 0.9 * (smoker == "daily") + rng.normal(size=count) > 0.5
    frame = pd.DataFrame({"age": age, "smoker": smoker, "outcome": np.where(died, "died", "alive"), "note": None})
    frame.loc[0, "smoker"] = "once" if party == "west" else "never"
    frame.loc[:3, "age"] = np.nan
    return frame


recipe = fp.Recipe(
    [fp.standardize("age", missing="median", indicator=True), fp.one_hot("smoker", rare=5)],
    fp.label("outcome", positive="died"),
    keep=["smoker"],
)
problem = fp.minimize(fp.mean(loss), regularizer=fp.l2(1e-2))
algorithm = fp.FedAvg(local_steps=3, step=0.1)
options = {"tolerance": 1e-9, "max_rounds": 6}
"""
CLEAR = PACT + "options['privacy'] = None\n"
SUMS_ONLY = PACT.replace('missing="median"', 'missing="mean"')


def written(folder: pathlib.Path, source: str) -> pathlib.Path:
    folder.mkdir(exist_ok=True)
    file = folder / "pact.py"
    file.write_text(source)
    return file


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pact, fp.Parties, fp.Result]:
    pact = Pact(written(tmp_path_factory.mktemp("pact"), PACT))
    tables = pact.tables()
    assert isinstance(tables, fp.Parties)
    result = pact.run(tables)
    assert isinstance(result, fp.Result)
    return pact, tables, result


def test_fitted_elsewhere_as_in_one_process(local: tuple[Pact, fp.Parties, fp.Result], tmp_path: pathlib.Path) -> None:
    pact, tables, result = local
    heard: list[tuple[str, str, dict[str, Any], dict[str, np.ndarray]]] = []

    def listen(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        heard.append((unpack(message)[0]["kind"], party, *unpack(answer)))
        return answer

    deployed = serve(pact.path, Loopback.of(pact.path, tmp_path, meddle=listen), tmp_path / "server")
    assert isinstance(deployed, fp.Result)
    np.testing.assert_allclose(deployed.params["w"], result.params["w"], rtol=0, atol=1e-12)
    saved = fp.AgreedRecipe.from_json(json.loads((tmp_path / "server" / "recipe.json").read_text()))
    assert saved == tables.recipe
    assert saved.features == ("age", "age missing", *(f"smoker={c}" for c in ("daily", "former", "never", "(other)")))
    kinds = [kind for kind, party, *_ in heard if party == "north"]
    assert kinds[:6] == ["keys", "survey", "keys", "measure", "hello", "meet"]
    (_, _, words, arrays), *_ = [each for each in heard if each[0] == "survey"]
    assert set(words) == {"run", "session", "party", "survey"}
    # sealed: 4 counts of missing values, 3 words for each of 4 totals, and one that shows whether all are finite
    assert {name: a.shape for name, a in arrays.items()} == {"sums": (17, 2), "least": (4,), "greatest": (4,)}
    assert [each["categories"] for each in words["survey"]["sets"]] == [
        None,
        ["daily", "never"],
        ["alive", "died"],
        None,
    ]
    (_, _, words, arrays), *_ = [each for each in heard if each[0] == "measure"]
    assert set(words) == {"run", "session", "party"}
    assert {name: a.shape for name, a in arrays.items()} == {"sums": (12 + 12 + 4 + 1000 + 4 + 1, 2)}
    share = np.unpackbits(arrays["sums"].view(np.uint8)).mean()
    assert abs(share - 0.5) < 6 * 0.5 / np.sqrt(1033 * 128), "masked: most cells of a histogram are empty"


def test_in_the_clear_every_party_tells_its_own_sums(
    local: tuple[Pact, fp.Parties, fp.Result], tmp_path: pathlib.Path
) -> None:
    pact = written(tmp_path, CLEAR.replace('"max_rounds": 6', '"max_rounds": 1'))
    told: dict[str, dict[str, np.ndarray]] = {}

    def listen(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        told.setdefault(unpack(message)[0]["kind"], unpack(answer)[1])
        return answer

    serve(pact, Loopback.of(pact, tmp_path, meddle=listen), tmp_path / "server")
    assert set(told["survey"]) == {"missing", "total", "least", "greatest"}
    assert set(told["measure"]) == {"deviation", "squares", "others", "histogram 0", "counts 1"}
    saved = fp.AgreedRecipe.from_json(json.loads((tmp_path / "server" / "recipe.json").read_text()))
    assert saved == local[1].recipe


def test_a_survey_without_the_parties_own_keys_is_refused(tmp_path: pathlib.Path) -> None:
    from fedpact.deploy.party import VERSIONS
    from fedpact.privacy.masks import SessionKey

    pact = written(tmp_path, PACT)
    site = Loopback.of(pact, tmp_path).sites["north"]
    words = {"run": "0" * 16, "session": "1" * 16, "digest": Pact(pact).digest, "versions": VERSIONS}

    def says(kind: str, **more: Any) -> dict[str, Any]:
        return unpack(site.answer(pack({**words, "kind": kind, **more})))[0]

    assert "that comes first" in says("survey")["refused"]
    own = says("keys")["session_key"]
    keys = {name: SessionKey("0" * 16, "1" * 16, name).signed(None, "") for name in Pact(pact).parties}
    assert "its own key for this session was replaced" in says("survey", keys=keys)["refused"]
    assert "not those of the pact's parties" in says("survey")["refused"]
    assert "refused" not in says("survey", keys={**keys, "north": own})


def test_a_run_is_resumed_with_the_recipe_that_it_began_with(
    local: tuple[Pact, fp.Parties, fp.Result], tmp_path: pathlib.Path
) -> None:
    pact = written(tmp_path, PACT.replace('"max_rounds": 6', '"max_rounds": 3'))
    serve(pact, Loopback.of(pact, tmp_path), tmp_path / "server")
    other = written(tmp_path / "other", SUMS_ONLY)
    with pytest.raises(ValueError, match="holds a run of another recipe"):
        serve(other, Loopback.of(other, tmp_path), tmp_path / "server", resume=True)
    kinds: list[str] = []

    def listen(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        kinds.append(unpack(message)[0]["kind"])
        return answer

    again = serve(pact, Loopback.of(pact, tmp_path, meddle=listen), tmp_path / "server", resume=True)
    assert isinstance(again, fp.Result)
    assert "survey" not in kinds
    assert again.rounds == 3


def test_a_policy_holds_single_values_back(tmp_path: pathlib.Path) -> None:
    pact = written(tmp_path, PACT)
    with pytest.raises(
        PartyLost, match="demands 10 rows behind a number, and the recipe asks for the least and greatest"
    ):
        serve(pact, with_policy(pact, tmp_path, "min_rows = 10"), tmp_path / "server")
    pact = written(tmp_path, SUMS_ONLY)
    channel = with_policy(pact, tmp_path, "min_rows = 10")
    told: dict[str, Any] = {}

    def listen(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        if unpack(message)[0]["kind"] == "survey":
            told[party] = unpack(answer)[0]["survey"]["sets"][1]["categories"]
        return answer

    channel.meddle = listen
    serve(pact, channel, tmp_path / "sums")
    policies = {name: site.policy.min_rows for name, site in channel.sites.items()}
    assert max(policies.values()) == 10
    assert all("once" not in categories for name, categories in told.items() if policies[name] == 10)


@pytest.mark.parametrize(
    ("units", "told"),
    [
        ("1e10 * age", "the sum over column 'age' is too large to be added up in secret"),
        ("1e-9 * age", "the squares of column 'age' are too small to be added up in secret"),
    ],
)
def test_sums_that_secrecy_would_spoil_are_refused(units: str, told: str, tmp_path: pathlib.Path) -> None:
    pact = written(tmp_path, SUMS_ONLY.replace('{"age": age,', f'{{"age": {units},'))
    with pytest.raises(PartyLost, match=told):
        serve(pact, Loopback.of(pact, tmp_path), tmp_path / "server")


def test_one_question_in_a_run(tmp_path: pathlib.Path) -> None:
    pact = written(tmp_path, CLEAR)
    channel = Loopback.of(pact, tmp_path)
    asked: list[bytes] = []

    def keep(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        if unpack(message)[0]["kind"] == "measure":
            asked.append(message)
        return answer

    channel.meddle = keep
    serve(pact, channel, tmp_path / "server")
    north = channel.sites["north"]
    assert "refused" not in unpack(north.answer(asked[0]))[0]
    words, arrays = unpack(asked[0])
    wider = north.answer(pack(words, {**arrays, "high": arrays["high"] * 2}))
    assert "asked about its columns in this run already" in unpack(wider)[0]["refused"]
    narrower = north.answer(pack(words, {**arrays, "high": arrays["high"] / 2}))
    assert "'age' does not reach its least and greatest value" in unpack(narrower)[0]["refused"]
    fewer = [categories[1:] for categories in words["categories"]]
    left_out = north.answer(pack({**words, "categories": fewer}, arrays))
    assert "the categories of column 'smoker' leave out what it told" in unpack(left_out)[0]["refused"]
    odd = north.answer(pack(words, {**arrays, "high": np.zeros(2)}))
    assert "no question about the pact's recipe" in unpack(odd)[0]["refused"]
    other = north.answer(pack({**words, "run": "0" * 16}, arrays))
    assert "the first message of a run is a survey" in unpack(other)[0]["refused"]


@pytest.mark.parametrize(
    ("kind", "change", "told"),
    [
        ("survey", {"total": np.full(4, np.nan)}, "'total' holds NaN"),
        ("survey", {"missing": np.full(4, -1)}, "numbers of missing values that cannot be"),
        ("survey", {"least": np.full(4, -np.inf)}, "least and greatest values of column 'age' that cannot be"),
        ("measure", {"counts 1": np.zeros(1, np.int64)}, "'counts 1' is int64"),
        ("measure", {"squares": np.full(4, -1.0)}, "sums of squares or counts are negative"),
    ],
)
def test_answers_that_are_none(kind: str, change: Any, told: str, tmp_path: pathlib.Path) -> None:
    pact = written(tmp_path, CLEAR)

    def lie(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        if unpack(message)[0]["kind"] == kind and party == "west":
            words, arrays = unpack(answer)
            return pack(words, {**arrays, **change})
        return answer

    with pytest.raises(PartyLost, match=f"party 'west': its answer about its columns is refused: .*{told}"):
        serve(pact, Loopback.of(pact, tmp_path, meddle=lie), tmp_path / "server")


def test_a_recipe_that_is_no_fit_of_the_pacts_is_refused(tmp_path: pathlib.Path) -> None:
    pact = written(tmp_path, PACT)
    site = Loopback.of(pact, tmp_path).sites["north"]
    other = fp.prepare(fp.Recipe([fp.scale("age")]), HOSPITALS).recipe.to_json()
    hello = {"kind": "hello", "run": "0" * 16, "session": "1" * 16, "digest": Pact(pact).digest, "recipe": other}
    from fedpact.deploy.party import VERSIONS

    answer = unpack(site.answer(pack({**hello, "versions": VERSIONS})))[0]
    assert "no fit of this recipe" in answer["refused"]
    without = unpack(site.answer(pack({**hello, "versions": VERSIONS, "recipe": None})))[0]
    assert "that is no recipe" in without["refused"]


STATED = fp.Recipe(
    [
        fp.bins("age", edges=[40, 60]),
        fp.one_hot("treatment", categories=["none", "pills", "surgery", "watch"]),
        fp.impute("weight", by=70.0),
    ],
    fp.label("outcome", positive="ill", negative="well"),
)


@pytest.mark.parametrize(
    ("column", "change"),
    [
        ("age", lambda words: words["x"][0].update(edges=[40.0, 41.0, 60.0])),
        ("treatment", lambda words: words["x"][1].update(categories=["watch", "none", "pills", "surgery"])),
        ("treatment", lambda words: words["x"][1].update(unknown="zeros")),
        ("weight", lambda words: words["x"][2].update(fill=1e9)),
        ("weight", lambda words: words["x"][2].update(scale=1e-9)),
        ("outcome", lambda words: words["y"].update(labels=["ill", "well"], positive="well")),
    ],
    ids=["edges", "categories", "unknown", "fill", "scale", "labels"],
)
def test_a_server_cannot_change_what_the_recipe_states(column: str, change: Any) -> None:
    frames = {name: frame.assign(weight=75.0) for name, frame in HOSPITALS.items()}
    words = fp.prepare(STATED, frames).recipe.to_json()
    STATED.check_fit(fp.AgreedRecipe.from_json(words))
    change(words)
    with pytest.raises(ValueError, match=f"agreed on for column '{column}' is not what this recipe states"):
        STATED.check_fit(fp.AgreedRecipe.from_json(words))


def test_kinds_that_differ_are_named_with_party_and_column(tmp_path: pathlib.Path) -> None:
    wrong = "    if party == 'south':\n        frame['smoker'] = np.arange(len(frame)) % 2\n    return frame\n"
    pact = written(tmp_path, PACT.replace("    return frame\n", wrong))
    with pytest.raises(ValueError, match="column 'smoker' holds numbers at party 'south' and strings at party 'north'"):
        serve(pact, Loopback.of(pact, tmp_path), tmp_path / "server")


def test_features_that_differ_are_named_where_parties_meet_elsewhere(tmp_path: pathlib.Path) -> None:
    tables = """
    encoded = pd.get_dummies(frame[["smoker"]]).astype(float).iloc[:, :2]
    return fp.Table.from_frame(encoded.assign(y=frame["outcome"] == "died"), x=list(encoded.columns))
"""
    source = PACT.replace("    return frame\n", tables).replace("recipe = fp.Recipe", "unused = fp.Recipe")
    pact = written(tmp_path, source)
    with pytest.raises(ValueError, match="party 'south' has a feature 'smoker_former' in 'x', and party 'north' has n"):
        serve(pact, Loopback.of(pact, tmp_path), tmp_path / "server")


def test_pacts_with_recipes(local: tuple[Pact, fp.Parties, fp.Result], tmp_path: pathlib.Path) -> None:
    pact, tables, _ = local
    assert pact.digest != Pact(written(tmp_path, SUMS_ONLY)).digest
    rows = wire(pact).rows()
    assert [row[1] for row in rows[:2]] == ["tell of its columns", "measure its columns"]
    summed = "the server learns the sum over all who are asked of: "
    assert rows[0][6].startswith(f"{summed}missing values of age, smoker, outcome, sums of age; the server keeps apart")
    assert rows[0][5:6] == ("336 and the categories",)  # 17 numbers of 16 bytes, and 8 of 8
    assert rows[1][6].startswith(summed)
    assert "histogram of age (1,000 integers)" in rows[1][6]
    told = {message.title: message for message in messages(wire(pact))}
    assert {field.reveals for field in told["measure its columns"].up.fields} == {"a sum over 3 parties"}
    kinds = [field.reveals for field in told["tell of its columns"].up.fields]
    assert kinds == ["a sum over 3 parties", "one party"], "which categories, and least and greatest values"
    clear = wire(Pact(written(tmp_path, CLEAR))).rows()
    assert [row[1] for row in clear[:2]] == ["tell of its columns", "measure its columns"]
    assert clear[0][6].startswith("the server adds up: missing values of")
    assert "the names of the 6 features in x" in wire(pact).description
    with pytest.raises(TypeError, match=r"`recipe` should be an fp\.Recipe"):
        Pact(written(tmp_path, PACT + "\nrecipe = 'standardize'\n"))
    bounded = PACT.replace(
        "fp.minimize(fp.mean(loss),", "fp.minimize(fp.mean(loss), [fp.error_rate(fp.linear(bias=True)) <= 0.9],"
    )
    with pytest.raises(ValueError, match="sees the rows that a promise holds out"):
        Pact(written(tmp_path, bounded + "\npromise = {}\n"))
    (tmp_path / "recipe.json").write_text(json.dumps(tables.recipe.to_json()))
    agreed = "\nimport json, pathlib\nrecipe = fp.AgreedRecipe.from_json(json.loads(pathlib.Path({!r}).read_text()))\n"
    fitted = Pact(written(tmp_path, bounded + agreed.format(str(tmp_path / "recipe.json")) + "\npromise = {}\n"))
    assert fitted.tables().recipe == tables.recipe
    assert wire(pact).rows()[0][0] == "once, before all others"


OVER_COLUMNS = """
import numpy as np
import pandas as pd
import fedpact as fp

parties = ["bank", "shop"]
id = "customer"
algorithm = fp.FedBCD()
options = {"max_rounds": 4}
problem = fp.minimize(
    fp.mean(fp.logistic_loss(fp.split_model(bottom=lambda width: fp.linear(), combine="sum"))), regularizer=fp.l2(1e-2)
)
recipe = {
    "bank": fp.Recipe([fp.standardize("income", missing="median")], fp.label("paid", positive="yes")),
    "shop": fp.Recipe([fp.one_hot("club", missing="most_frequent")]),
}


def load(party):
    rng = np.random.default_rng(0)
    frame = {"customer": np.arange(40), "income": rng.normal(40, 9, 40), "club": rng.choice(["gold", "none"], 40)}
    frame = pd.DataFrame(frame).assign(paid=["yes", "no"] * 20)
    frame.loc[0, "income"], frame.loc[1, "club"] = np.nan, None
    return frame[["customer", "income", "paid"] if party == "bank" else ["customer", "club"]]
"""


def test_over_columns_recipes_are_fitted_at_home(tmp_path: pathlib.Path) -> None:
    pact = written(tmp_path, OVER_COLUMNS)
    kinds: list[str] = []

    def listen(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        kinds.append(unpack(message)[0]["kind"])
        return answer

    stated = Pact(pact)
    tables = stated.tables()
    local = stated.run(tables)
    deployed = serve(pact, Loopback.of(pact, tmp_path, meddle=listen), tmp_path / "server")
    assert isinstance(local, fp.Result)
    assert isinstance(deployed, fp.Result)
    assert "survey" not in kinds
    assert deployed.objective == pytest.approx(local.objective, abs=1e-10)
    parts = {}
    for name in stated.parties:
        (folder,) = (tmp_path / name).glob("*/model")
        part = fp.load(folder)
        assert part.recipe == tables[name].recipe
        parts[name] = part.raw_scores(stated.frame(name))
    model = fp.load(tmp_path / "server" / "model")
    np.testing.assert_allclose(model.combine(parts), local.scores({n: stated.frame(n) for n in parts}), atol=1e-9)
    assert model.labels == ("no", "yes")
    assert "survey" not in str(wire(stated).rows())


@pytest.mark.parametrize(
    ("change", "kind", "told"),
    [
        (
            (' "shop": fp.Recipe([fp.one_hot("club", missing="most_frequent")]),', ""),
            ValueError,
            "'shop' has no recipe",
        ),
        (('"shop": fp.Recipe', '"shop": list'), TypeError, "recipe of party 'shop' should be an fp.Recipe, not a list"),
        (
            ("recipe = {", "recipe = fp.Recipe([fp.scale('income')])\nunused = {"),
            ValueError,
            "recipe = {'bank': fp.Recipe",
        ),
    ],
)
def test_recipes_over_columns_that_are_none(
    change: tuple[str, str], kind: Any, told: str, tmp_path: pathlib.Path
) -> None:
    assert change[0] in OVER_COLUMNS
    with pytest.raises(kind, match=told):
        Pact(written(tmp_path, OVER_COLUMNS.replace(*change)))


def test_a_server_that_changes_the_fit_is_refused(tmp_path: pathlib.Path) -> None:
    """A scale that would blow a party's features up, in the very message."""
    pact = written(tmp_path, SUMS_ONLY)
    channel = Loopback.of(pact, tmp_path)
    site = channel.sites["north"]
    honest = site.answer

    def meddled(message: bytes) -> bytes:
        words, arrays = unpack(message)
        if words["kind"] == "hello":
            words["recipe"]["x"][0]["scale"] = 1e-9
        return honest(pack(words, arrays))

    site.answer = meddled
    with pytest.raises(PartyLost, match=r"party 'north': .*'age' does not fit what this party told: its own squared"):
        serve(pact, channel, tmp_path / "server")
