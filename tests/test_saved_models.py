"""A model that leaves its run: saved, loaded without JAX and without executing anything, and used on new rows."""

import dataclasses
import hashlib
import json
import pathlib
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fedpact as fp
from fedpact.cli import app
from fedpact.prediction.forms import FUNCTIONS
from fedpact.problem.scores import scores_of
from fedpact.run.saved_model import predictor_of

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = (X @ [1.0, -1.0, 0.5] + 0.3 * RNG.normal(size=60) > 0).astype(int)
FRAME = pd.DataFrame({"age": X[:, 0], "bmi": X[:, 1], "pulse": X[:, 2], "y": Y})
MODEL = fp.linear(bias=True)
LOSS = fp.logistic_loss(MODEL)


@pytest.fixture(scope="module")
def result() -> fp.Result:
    table = fp.Table.from_frame(FRAME, x=["age", "bmi", "pulse"])
    parties = fp.split_rows(table, parties=["north", "south"], seed=0)
    limit = (fp.mean(LOSS, where=fp.col("y") == 1) <= 0.5).named("missed")
    return fp.solve(fp.minimize(fp.mean(LOSS), [limit], fp.l2(1e-2)), parties)


def with_model(result: fp.Result, loss: Any, **changes: Any) -> fp.Result:
    """The result of another model, with its initial parameters, in place of one that was trained."""
    params = jax.tree.map(np.asarray, loss.model.init(jax.random.key(1), {"x": X}))
    return dataclasses.replace(result, problem=fp.minimize(fp.mean(loss)), params=params, **changes)


# there and back


def test_a_linear_model_comes_back_to_the_bit(result: fp.Result, tmp_path: pathlib.Path) -> None:
    again = fp.load(result.save(tmp_path / "model"))
    assert result.converged
    assert (again.params["w"] == result.params["w"]).all()
    assert again.params["b"] == result.params["b"]
    for name in ("scores", "predict", "predict_proba"):
        np.testing.assert_array_equal(getattr(again, name)(FRAME), getattr(result, name)(FRAME))
    np.testing.assert_allclose(again.scores(X), scores_of(MODEL, result.params, {"x": X}), rtol=0, atol=1e-14)
    np.testing.assert_allclose(again.predict_proba(X)[:, 1], 1 / (1 + np.exp(-again.scores(X))), rtol=1e-14)
    np.testing.assert_allclose(again.predict_proba(X).sum(axis=1), 1.0, rtol=1e-15)
    assert (again.features, again.labels, again.threshold) == (("age", "bmi", "pulse"), (0, 1), 0.0)
    assert (again.status, again.digest, again.version) == ("converged", result.digest, fp.__version__)
    assert (again.problem, again.message, again.parties) == (str(result.problem), result.message, ("north", "south"))
    (missed,) = again.certificate["constraints"]
    assert missed["values"] == dict(zip(("north", "south"), result.constraint("missed").values, strict=True))
    assert again.certificate["feasibility"] == result.certificate.feasibility
    assert "missed <= 0.5" in str(again)
    again.save(tmp_path / "copy")
    for file in ("model.json", "parameters.safetensors"):
        assert (tmp_path / "copy" / file).read_bytes() == (tmp_path / "model" / file).read_bytes()


def test_a_moved_threshold_goes_along(result: fp.Result, tmp_path: pathlib.Path) -> None:
    moved = dataclasses.replace(result, threshold=0.7)
    again = fp.load(moved.save(tmp_path / "model"))
    assert again.threshold == 0.7
    np.testing.assert_array_equal(again.predict(X), (result.scores(X) > 0.7).astype(int))
    np.testing.assert_array_equal(again.predict_proba(X), result.predict_proba(X))


ACTIVATIONS = [
    jax.nn.tanh, jax.nn.relu, jax.nn.sigmoid, jax.nn.softplus, jax.nn.swish, jax.nn.gelu, jax.nn.elu, jax.nn.leaky_relu,
]  # fmt: skip
MODELS = {
    **{f"mlp {name}": fp.mlp([3, 5, 4, 2], f) for name, f in zip(FUNCTIONS, ACTIVATIONS, strict=True)},
    "mlp without biases": fp.mlp([3, 4, 2], bias=False),
    "mlp of one score": fp.mlp([3, 4, 1]),
    "linear of several scores": fp.linear(bias=True, outputs=4),
    "chain": fp.chain(jax.nn.swish, fp.mlp([3, 4]), jax.nn.relu, fp.linear(bias=True, outputs=2)),
    "chain of one model": fp.chain(jax.nn.tanh, fp.linear()),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_without_own_code_need_no_jax(name: str, result: fp.Result, tmp_path: pathlib.Path) -> None:
    model = MODELS[name]
    loss = fp.squared_loss(model) if "one" in name else fp.softmax_loss(model)
    stated = with_model(result, loss)
    again = fp.load(stated.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.scores(X), stated.scores(X))
    np.testing.assert_allclose(again.scores(X), scores_of(model, stated.params, {"x": X}), rtol=1e-12, atol=1e-14)
    if "one" in name:
        with pytest.raises(ValueError, match="nothing says how to decide"):
            again.predict(X)
        return
    np.testing.assert_array_equal(again.predict(X), np.argmax(again.scores(X), axis=1))
    np.testing.assert_allclose(again.predict_proba(X), jax.nn.softmax(again.scores(X), axis=1), rtol=1e-12)


def test_hinge_scores_are_no_probabilities(result: fp.Result) -> None:
    stated = with_model(result, fp.smoothed_hinge_loss(MODEL, labels=(-1, 1)))
    assert set(stated.predict(X + 1)) <= {-1, 1}
    with pytest.raises(ValueError, match="only a logistic or softmax loss"):
        stated.predict_proba(X)


OWN = {
    "functions": fp.model(
        lambda key, features: {"w": jax.random.normal(key, (features, 2)), "deep": [jnp.ones(2)]},
        lambda params, x: jnp.sin(x @ params["w"]) @ params["deep"][0],
    ),
    "equinox": fp.equinox_model(lambda key: eqx.nn.MLP(3, "scalar", 4, 1, key=key)),
    "activation": fp.mlp([3, 4, 1], lambda x: jnp.sin(x)),
}


@pytest.mark.parametrize("name", OWN)
def test_own_code_is_given_again(name: str, result: fp.Result, tmp_path: pathlib.Path) -> None:
    stated = with_model(result, fp.logistic_loss(OWN[name]), features=None)
    folder = stated.save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"fp\.load\(folder, model=model\)"):
        fp.load(folder).predict(X)
    again = fp.load(folder, model=OWN[name])
    np.testing.assert_array_equal(again.scores(X), stated.scores(X))
    np.testing.assert_array_equal(again.predict({"x": X}), stated.predict({"x": X}))
    with pytest.raises(ValueError, match="has parameters"):
        fp.load(folder, model=fp.linear()).scores(X)


def test_own_code_reads_features_by_name_too(result: fp.Result) -> None:
    stated = with_model(result, fp.logistic_loss(OWN["functions"]))
    assert stated.features == ("age", "bmi", "pulse")
    np.testing.assert_array_equal(stated.scores(FRAME[["bmi", "pulse", "age"]]), stated.scores(X))
    with pytest.raises(ValueError, match="in another order: 'age' at place 2"):
        stated.scores(fp.Table.from_frame(FRAME, x=["bmi", "age", "pulse"]))


def test_code_that_nobody_needs_is_refused(result: fp.Result, tmp_path: pathlib.Path) -> None:
    folder = result.save(tmp_path / "model")
    with pytest.raises(ValueError, match="leave model= out"):
        fp.load(folder, model=MODEL)


def test_a_problem_without_a_model_keeps_its_parameters(result: fp.Result, tmp_path: pathlib.Path) -> None:
    plain = dataclasses.replace(result, problem=fp.minimize(fp.value(fp.squared_norm)), params=np.arange(3.0))
    again = fp.load(plain.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.params["parameters"], np.arange(3.0))
    with pytest.raises(ValueError, match="without a model"):
        again.scores(X)


def test_jax_is_not_imported(result: fp.Result, tmp_path: pathlib.Path) -> None:
    result.save(tmp_path / "linear")
    with_model(result, fp.softmax_loss(MODELS["mlp gelu"])).save(tmp_path / "mlp")
    program = (
        "import sys, numpy as np, fedpact as fp\n"
        "for name in ('linear', 'mlp'):\n"
        "    fp.load(f'{sys.argv[1]}/{name}').predict({'age': [1, 2], 'bmi': [1, 2], 'pulse': [1, 2]})\n"
        "heavy = ('jax', 'jaxlib', 'equinox', 'pandas', 'sklearn', 'scipy')\n"
        "print([name for name in sys.modules if name.split('.')[0] in heavy])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


# folders that are not whole


def test_nothing_else_is_overwritten(result: fp.Result, tmp_path: pathlib.Path) -> None:
    result.save(tmp_path / "model")
    with_model(result, fp.softmax_loss(MODELS["chain"])).save(tmp_path / "model")
    assert fp.load(tmp_path / "model").form.kind == "chain"
    (tmp_path / "model" / "model.json").unlink()  # as a write that was interrupted leaves it
    assert fp.load(result.save(tmp_path / "model")).form.kind == "linear"
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "final.tex").write_text("…")
    (tmp_path / "trees").mkdir()
    (tmp_path / "trees" / "model.json").write_text('{"learner": {}}')  # of another program
    for folder in (tmp_path / "thesis", tmp_path / "thesis" / "final.tex", tmp_path / "trees"):
        with pytest.raises(ValueError, match="a folder of its own"):
            result.save(folder)
    with pytest.raises(TypeError, match="takes the folder"):
        result.save("")


def edited(change: Callable[[dict[str, Any]], Any]) -> Callable[[pathlib.Path], None]:
    def edit(folder: pathlib.Path) -> None:
        words = json.loads((folder / "model.json").read_text())
        change(words)
        (folder / "model.json").write_text(json.dumps(words))

    return edit


def cut(folder: pathlib.Path) -> None:
    file = folder / "parameters.safetensors"
    file.write_bytes(file.read_bytes()[:-4])


DAMAGE = {
    "json": (lambda folder: (folder / "model.json").write_text("{"), "model.json is damaged"),
    "not ours": (lambda folder: (folder / "model.json").write_text("[]"), "not that of a fedpact model"),
    "version": (edited(lambda w: w.update(format=9, fedpact="7.0")), "format 9, saved by fedpact 7.0"),
    "field": (edited(lambda w: w.pop("status")), "status is invalid"),
    "cut arrays": (cut, "parameters.safetensors is damaged"),
    "kind": (edited(lambda w: w["model"].update(kind="pickle")), "kind 'pickle'"),
    "outputs": (edited(lambda w: w["model"].update(outputs=2)), "do not fit its model"),
    "bias": (edited(lambda w: w["model"].update(bias=False)), "do not fit its model"),
    "option": (edited(lambda w: w["model"].update(code="os.system")), "'code', which this version does not know"),
    "labels": (edited(lambda w: w["decision"].update(labels=[1])), "decision is invalid"),
    "threshold": (edited(lambda w: w["decision"].update(threshold=float("nan"))), "decision is invalid"),
    "recipe": (edited(lambda w: w.update(recipe={"format": 1})), "no recipe"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_folders_are_refused(name: str, result: fp.Result, tmp_path: pathlib.Path) -> None:
    damage, words = DAMAGE[name]
    damage(result.save(tmp_path / "model"))
    with pytest.raises(ValueError, match=words):
        fp.load(tmp_path / "model")


def test_parameters_that_are_not_finite_are_refused(result: fp.Result, tmp_path: pathlib.Path) -> None:
    diverged = dataclasses.replace(result, status="diverged", params={**result.params, "b": np.array(np.nan)})
    with pytest.raises(ValueError, match="the parameters 'b' are not all finite"):
        fp.load(diverged.save(tmp_path / "model"))


def test_a_folder_without_a_model_says_where_one_is(result: fp.Result, tmp_path: pathlib.Path) -> None:
    result.save(tmp_path / "run" / "model")
    with pytest.raises(FileNotFoundError, match=r"there is one in .*model"):
        fp.load(tmp_path / "run")
    with pytest.raises(FileNotFoundError, match=r"model\.json is a file; fp\.load takes the folder that it is in"):
        fp.load(tmp_path / "run" / "model" / "model.json")
    (tmp_path / "run" / "model" / "parameters.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"holds no parameters\.safetensors"):
        fp.load(tmp_path / "run" / "model")


# rows


def test_rows_in_every_form_give_the_same(result: fp.Result) -> None:
    import pyarrow

    expected = result.scores(X)
    shuffled = FRAME[["y", "pulse", "age", "bmi"]]
    columns = {name: FRAME[name].to_list() for name in shuffled}
    for rows in (
        fp.Table(x=X),
        {"x": X},
        FRAME,
        shuffled,
        columns,
        pyarrow.table(shuffled),
        fp.Table.from_frame(FRAME),
    ):
        np.testing.assert_array_equal(result.scores(rows), expected)
    assert result.predict(X[:0]).shape == (0,)
    assert result.predict_proba(X[:0]).shape == (0, 2)


WRONG = {
    "missing": (FRAME.drop(columns="bmi"), "column 'bmi' .*missing"),
    "NaN": (FRAME.assign(pulse=np.where(np.arange(60) == 7, np.nan, 1.0)), "column 'pulse' has NaN in row 7"),
    "NaN in the matrix": ({"x": np.where(np.eye(60, 3, -4) > 0, np.nan, X)}, "column 'age' has NaN in row 4"),
    "infinite": (np.where(np.eye(60, 3) > 0, np.inf, X), "column 'age' has an infinite number in row 0"),
    "strings": (FRAME.assign(age="old"), "column 'age' .*strings"),
    "order": (fp.Table.from_frame(FRAME, x=["bmi", "age", "pulse"]), "'age' at place 2.* at place 1"),
    "other": (fp.Table.from_frame(FRAME.assign(a=1.0), x=["age", "bmi", "a"]), "lacks the feature 'pulse'"),
    "more": (fp.Table.from_frame(FRAME, x=["age", "bmi", "pulse", "y"]), "'y', which the model was not trained on"),
    "width": ({"x": X[:, :2]}, "has 2 features, and the model was trained on 3: age, bmi, pulse"),
    "one row": (X[0], r"shape \(rows, features\)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_rows_that_do_not_fit_are_refused_by_name(name: str, result: fp.Result, tmp_path: pathlib.Path) -> None:
    rows, words = WRONG[name]
    for model in (result, fp.load(result.save(tmp_path / "model"))):
        with pytest.raises(ValueError, match=words):
            model.predict(rows)


@pytest.mark.parametrize("status", ["infeasible", "stopped", "diverged"])
def test_models_of_failed_runs_predict_with_a_warning(status: str, result: fp.Result, tmp_path: pathlib.Path) -> None:
    failed = dataclasses.replace(result, status=status)
    for model in (failed, fp.load(failed.save(tmp_path / "model"))):
        for ask in (model.scores, model.predict, model.predict_proba):
            with pytest.warns(UserWarning, match=f"ended '{status}'") as told:
                ask(X)
            assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataclasses.replace(result, status="max_rounds").predict(X)  # certified or not, it breaks no constraint


def test_models_that_break_a_constraint_predict_with_a_warning(result: fp.Result) -> None:
    (report,) = result.certificate.constraints
    broken = dataclasses.replace(report, violations=(0.0, 0.1))
    certificate = dataclasses.replace(result.certificate, constraints=(broken,))
    with pytest.warns(UserWarning, match="breaks the constraint 'missed'"):
        dataclasses.replace(result, status="max_rounds", certificate=certificate).predict(X)


# recipes


@pytest.fixture(scope="module")
def prepared() -> fp.Result:
    """Raw frames with categories, missing values and labels that are words."""
    words = FRAME.assign(
        y=np.where(Y == 1, "died", "alive"), ward=np.where(X[:, 1] > 0, "a", "b"), bmi=FRAME["bmi"].where(X[:, 2] < 1)
    )
    recipe = fp.Recipe(
        x=[fp.standardize("age", "bmi", missing="mean"), fp.one_hot("ward")], y=fp.label("y", positive="died")
    )
    parties = fp.prepare(recipe, {"north": words[:30], "south": words[30:]})
    limit = (fp.mean(LOSS, where=fp.col("y") == 1) <= 0.9).named("missed")
    return fp.solve(fp.minimize(fp.mean(LOSS), [limit], fp.l2(1e-2)), parties)


NEW = pd.DataFrame({"age": [0.5, -1.0, 2.0], "bmi": [0.1, None, -0.4], "ward": ["a", "b", "a"], "id": ["p", "q", "r"]})


def test_raw_frames_go_through_the_recipe(prepared: fp.Result, tmp_path: pathlib.Path) -> None:
    again = fp.load(prepared.save(tmp_path / "model"))
    assert again.features == ("age", "bmi", "ward=a", "ward=b")
    assert again.labels == ("alive", "died")
    assert again.recipe == prepared.recipe
    expected = prepared.recipe.transform(NEW)["x"] @ prepared.params["w"] + prepared.params["b"]
    np.testing.assert_allclose(again.scores(NEW), expected, rtol=1e-14)
    np.testing.assert_array_equal(again.predict(NEW), np.where(expected > 0, "died", "alive"))
    np.testing.assert_array_equal(again.scores({"x": prepared.recipe.transform(NEW)["x"]}), again.scores(NEW))
    assert (prepared.predict(NEW) == again.predict(NEW)).all()
    np.testing.assert_array_equal(again.predict({"x": prepared.recipe.transform(NEW)["x"]}), again.predict(NEW))
    with pytest.raises(ValueError, match=r"'ward' .*missing"):
        again.predict(NEW.drop(columns="ward"))
    with pytest.raises(ValueError, match="an array has no names"):
        again.predict(X)


def test_raw_values_do_not_pass_for_prepared_ones(prepared: fp.Result) -> None:
    """Standardised features have the names of the raw columns."""
    raw = NEW.assign(bmi=1.0, **{"ward=a": 1.0, "ward=b": 0.0})
    with pytest.raises(ValueError, match="no recipe made this table"):
        prepared.predict(fp.Table.from_frame(raw, x=["age", "bmi", "ward=a", "ward=b"], columns=[]))
    other = fp.prepare(fp.Recipe([fp.standardize("age")]), {"north": NEW})
    with pytest.raises(ValueError, match="another recipe than the model's"):
        prepared.predict(other["north"])
    later = fp.prepare(prepared.recipe, {"north": NEW.assign(y="alive")})
    np.testing.assert_array_equal(prepared.scores(later["north"]), prepared.scores(NEW))


def test_new_rows_need_no_outcome(prepared: fp.Result) -> None:
    np.testing.assert_array_equal(prepared.predict(NEW.assign(y=np.nan)), prepared.predict(NEW))


def test_an_extra_column_is_not_the_matrix() -> None:
    table = fp.Table.from_frame(FRAME, x=["age"])
    one = fp.solve(fp.minimize(fp.mean(LOSS), regularizer=fp.l2(1e-2)), {"north": table}, max_rounds=3)
    rows = {"age": X[:, 0], "x": X[:, 1]}
    np.testing.assert_array_equal(one.scores(rows), one.scores({"age": X[:, 0]}))


def test_a_party_is_warned_of_broken_constraints_too(result: fp.Result) -> None:
    model = predictor_of(result)
    part = dataclasses.replace(model, party="north", certificate={"tolerance": 1e-4, "feasibility": 0.1})
    with pytest.warns(UserWarning, match="breaks a constraint"):
        part.predict(X)


# the command line


def test_rows_of_a_file_are_predicted(prepared: fp.Result, tmp_path: pathlib.Path) -> None:
    prepared.save(tmp_path / "model")
    NEW.to_csv(tmp_path / "rows.csv", index=False)
    command = ["predict", str(tmp_path / "model"), str(tmp_path / "rows.csv")]
    done = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "out.csv"), "--keep", "id"])
    assert done.exit_code == 0, done.output
    assert "3 rows" in done.output
    told = pd.read_csv(tmp_path / "out.csv")
    assert list(told.columns) == ["id", "score", "label", "probability of alive", "probability of died"]
    np.testing.assert_array_equal(told["score"], prepared.scores(NEW))
    np.testing.assert_array_equal(told["label"], prepared.predict(NEW))
    assert told["id"].tolist() == ["p", "q", "r"]
    NEW.assign(label="alive").to_csv(tmp_path / "rows.csv", index=False)
    taken = CliRunner().invoke(app, [*command, "--keep", "label"])
    assert taken.exit_code == 1
    assert "'label' cannot be kept" in taken.output
    printed = CliRunner().invoke(app, command)
    assert printed.output.splitlines()[0] == "score,label,probability of alive,probability of died"
    assert len(printed.output.splitlines()) == 4


def test_the_command_line_fails_with_a_sentence_and_warns(prepared: fp.Result, tmp_path: pathlib.Path) -> None:
    dataclasses.replace(prepared, status="stopped").save(tmp_path / "model")
    NEW.drop(columns="age").to_csv(tmp_path / "rows.csv", index=False)
    failed = CliRunner().invoke(app, ["predict", str(tmp_path / "model"), str(tmp_path / "rows.csv")])
    assert failed.exit_code == 1
    assert "'age'" in failed.output
    NEW.to_csv(tmp_path / "rows.csv", index=False)
    warned = CliRunner().invoke(app, ["predict", str(tmp_path / "model"), str(tmp_path / "rows.csv")])
    assert warned.exit_code == 0
    assert warned.output.count("ended 'stopped'") == 1
    nowhere = CliRunner().invoke(app, ["predict", str(tmp_path), str(tmp_path / "rows.csv")])
    assert nowhere.exit_code == 1
    assert "there is one in" in nowhere.output


# ONNX


ONNX = {name: model for name, model in MODELS.items() if name != "mlp of one score"}


@pytest.mark.parametrize("name", ["linear", *ONNX])
def test_onnx_files_compute_the_same(name: str, result: fp.Result, prepared: fp.Result, tmp_path: pathlib.Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    if name == "linear":
        stated, x = dataclasses.replace(prepared, threshold=0.2), RNG.normal(size=(20, 4))
    else:
        loss = fp.logistic_loss(ONNX[name]) if "one model" in name else fp.softmax_loss(ONNX[name])
        stated, x = with_model(result, loss), 3 * X
    predictor = fp.load(stated.save(tmp_path / "model"))
    session = runtime.InferenceSession(str(predictor.to_onnx(tmp_path / "model.onnx")))
    out = dict(zip([each.name for each in session.get_outputs()], session.run(None, {"x": x}), strict=True))
    np.testing.assert_allclose(out["scores"], predictor.scores({"x": x}), rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(out["labels"], predictor.predict({"x": x}))
    np.testing.assert_allclose(out["probabilities"], predictor.predict_proba({"x": x}), rtol=1e-12, atol=1e-15)
    assert session.get_modelmeta().custom_metadata_map["features"] == json.dumps(predictor.features)


def test_own_code_is_no_onnx_file(result: fp.Result, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("onnx")
    folder = with_model(result, fp.logistic_loss(OWN["functions"])).save(tmp_path / "model")
    with pytest.raises(ValueError, match="only linear models and networks"):
        fp.load(folder).to_onnx(tmp_path / "model.onnx")


# what others wrote


def places(words: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a tree of dicts and lists."""
    inside = words.items() if isinstance(words, dict) else enumerate(words) if isinstance(words, list) else ()
    return [path, *(place for key, part in inside for place in places(part, (*path, key)))]


def changed(words: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    (key, *rest), copy = path, words.copy()
    copy[key] = changed(words[key], tuple(rest), value)
    return copy


def test_whatever_stands_in_a_models_file_ends_in_words(tmp_path: pathlib.Path) -> None:
    """Each value of model.json in turn is something else: the model is refused, or predicts."""
    frame = FRAME.assign(ward=["a", "b"] * 30, outcome=np.where(Y, "ill", "well"))
    steps = [fp.standardize("age", missing="mean", indicator=True), fp.one_hot("ward"), fp.bins("bmi", edges=[0.0])]
    recipe = fp.Recipe(steps, fp.label("outcome", positive="ill"), keep=["ward"])
    problem = fp.minimize(fp.mean(LOSS), [(fp.mean(LOSS) <= 0.9).named("loss")], fp.l2(1e-2))
    folder = fp.solve(problem, fp.prepare(recipe, frame, parties=2), max_rounds=30).save(tmp_path / "model")
    words, refused = json.loads((folder / "model.json").read_text()), 0
    for path in places(words):
        for odd in (None, True, -1, 3.5, 10**400, "../..", [], [None], ["a", "a"], {}):
            (folder / "model.json").write_text(json.dumps(changed(words, path, odd)))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of what the status may say
                try:
                    model = fp.load(folder)
                    assert str(model)
                    assert len(model.predict_proba(frame)) == len(model.predict(frame)) == 60
                except ValueError:
                    refused += 1
    assert refused > 300
    (folder / "model.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="is damaged"):
        fp.load(folder)
    (folder / "model.json").write_text(json.dumps(words))
    arrays = folder / "parameters.safetensors"
    arrays.write_bytes(b"no arrays")
    words["parameters"]["sha256"] = hashlib.sha256(b"no arrays").hexdigest()
    (folder / "model.json").write_text(json.dumps(words))
    with pytest.raises(ValueError, match=r"parameters.safetensors is damaged: SafetensorError"):
        fp.load(folder)


def test_names_of_parties_may_be_long(tmp_path: pathlib.Path) -> None:
    names = [f"{'a long name, ' * 30}{end}" for end in ("north", "south")]
    tables = {
        name: fp.Table(x=X[part], y=Y[part]) for name, part in zip(names, (slice(30), slice(30, 60)), strict=True)
    }
    personal = fp.Personal(sets=[fp.l1_ball(2.0)] * 2, pull=0.1)
    result = fp.solve(fp.minimize(fp.mean(fp.logistic_loss(fp.linear())), personal=personal), tables, max_rounds=300)
    model = fp.load(result.save(tmp_path / "model"))
    for name in names:
        np.testing.assert_array_equal(model.parts[name].params["w"], result.params[name]["w"])


def test_codes_stay_codes(tmp_path: pathlib.Path) -> None:
    """A file with 007 in a column that the recipe knows as strings, and in one that is copied."""
    frame = pd.DataFrame({"id": ["001", "002", "003", "010"], "zip": ["007", "010", "007", "010"], "y": [0, 1, 0, 1]})
    recipe = fp.Recipe([fp.one_hot("zip")], fp.label("y", positive=1))
    problem = fp.minimize(fp.mean(fp.logistic_loss(fp.linear())), regularizer=fp.l2(0.1))
    fp.solve(problem, fp.prepare(recipe, {"north": frame})).save(tmp_path / "model")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    done = CliRunner().invoke(app, ["predict", str(tmp_path / "model"), str(tmp_path / "rows.csv"), "--keep", "id,y"])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[0].startswith("id,y,score,label")
    assert [line.partition(",")[0] for line in lines[1:]] == ["001", "002", "003", "010"]
    assert [line.split(",")[3] for line in lines[1:]] == ["0", "1", "0", "1"]
