"""The command line teaches, fails with a sentence, and does what it says."""

import inspect
import pathlib
import subprocess
import sys
import textwrap
from importlib import import_module
from typing import Any

import pytest
from typer.testing import CliRunner

import fedpact as fp
from fedpact.cli import app
from fedpact.deploy.engine import ENGINES
from fedpact.deploy.status import Status
from fedpact.deploy.this_machine import progress_in, reasons_in
from fedpact.run.pact import Pact

PACT = pathlib.Path(__file__).parents[1] / "examples" / "pact.py"

runner = CliRunner()


def test_help_teaches() -> None:
    assert "reproduce" in runner.invoke(app, ["--help"]).output
    told = runner.invoke(app, ["reproduce", "--help"]).output
    for word in ("prox-al/np", "prox-al/fairness", "prox-al/lcqp", "--trials", "--data", "--out"):
        assert word in told


def test_help_says_what_arguments_are() -> None:
    """Which it does not with every pair of versions of typer and click."""
    done = CliRunner().invoke(app, ["predict", "--help"])
    assert "New rows: a .csv" in done.output


def test_version() -> None:
    assert runner.invoke(app, ["version"]).output.strip() == fp.__version__


def test_an_unknown_experiment_is_named() -> None:
    failed = runner.invoke(app, ["reproduce", "prox-al/nothing"])
    assert failed.exit_code == 2
    assert "prox-al/lcqp" in failed.output


def test_missing_data_is_said_plainly(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDPACT_DATA", "")  # restored afterwards: the command sets it
    failed = runner.invoke(app, ["reproduce", "prox-al/np", "--data", str(tmp_path / "nowhere")])
    assert failed.exit_code == 1
    assert "nowhere" in failed.output


def test_demo_solves_and_writes_the_page(tmp_path: pathlib.Path) -> None:
    done = runner.invoke(app, ["demo", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "converged" in done.output
    assert "missed cancers" in done.output
    assert (tmp_path / "report.html").stat().st_size > 10_000


# pacts on engines


def nameless(folder: pathlib.Path) -> pathlib.Path:
    """A pact with `problem`, `algorithm` and `load` alone."""
    lines = [line for line in PACT.read_text().splitlines() if not line.startswith("parties = ")]
    text = "\n".join(lines).replace("parties=parties", "parties=['north', 'south', 'west']")
    file = folder / "nameless.py"
    file.write_text(text)
    return file


@pytest.mark.parametrize("command", [["wire"], ["run", "--max-rounds", "1"], ["deploy", "flare"], ["deploy", "flower"]])
@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "there is no file"),
        ("problem = (", "SyntaxError"),
        ("import nothing_like_this", "line 1: ModuleNotFoundError: No module named 'nothing_like_this'"),
        ("x = 1\ny = x / 0", "line 2: ZeroDivisionError"),
        ("problem = 3", "`problem` should be what fp.minimize(...) gives, not a int"),
        ("import fedpact as fp\nproblem = fp.minimize(fp.mean(fp.logistic_loss(fp.linear())))", "a pact has `parties`"),
    ],
)
def test_a_pact_that_is_none_is_refused_in_words(
    command: list[str], text: str | None, told: str, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "pact.py"
    if text is not None:
        file.write_text(text)
    out = ["--out", str(tmp_path / "kit")] if command[0] == "deploy" else []
    failed = runner.invoke(app, [*command, str(file), *out])
    assert failed.exit_code == 1
    assert told in failed.output.replace("\n", " ")
    assert "pact.py" in failed.output
    assert not (tmp_path / "kit").exists()


def test_an_engine_that_is_none_and_parties_that_are_not_the_pacts(tmp_path: pathlib.Path) -> None:
    out = ["--out", str(tmp_path / "kit")]
    failed = runner.invoke(app, ["deploy", "kubernetes", str(PACT), *out])
    assert failed.exit_code == 1
    assert "unknown engine 'kubernetes'; known engines are flare, flower" in failed.output
    for engine in ("flare", "flower"):
        failed = runner.invoke(app, ["deploy", engine, str(PACT), "--parties", "north,east", *out])
        assert failed.exit_code == 1
        assert "the parties are north, east, but those of" in failed.output
        failed = runner.invoke(app, ["deploy", engine, str(PACT), "--port", "99999", *out])
        assert failed.exit_code == 1
        assert "65535" in failed.output
        (tmp_path / "taken").mkdir(exist_ok=True)
        (tmp_path / "taken" / "file").touch()
        failed = runner.invoke(app, ["deploy", engine, str(PACT), "--out", str(tmp_path / "taken")])
        assert failed.exit_code == 1
        assert "is not empty" in failed.output


def test_help_of_deploy_describes_every_engine() -> None:
    output = " ".join(runner.invoke(app, ["deploy", "--help"]).output.replace("│", " ").split())
    for name, engine in ENGINES.items():
        assert f"{name}: {engine.description}" in output
        assert f"{engine.default_port} for {name}" in output


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize(("module", "function"), [("kit", "write_kit"), ("local_run", "try_here")])
def test_an_engine_has_the_functions_of_the_interface(name: str, module: str, function: str) -> None:
    implemented = inspect.signature(getattr(import_module(f"{ENGINES[name].package}.{module}"), function))
    interface = inspect.signature(getattr(ENGINES[name], function))
    assert implemented.return_annotation == interface.return_annotation
    for parameter in interface.parameters.values():
        assert implemented.parameters[parameter.name].kind == parameter.kind
        if parameter.name != "port":
            assert implemented.parameters[parameter.name] == parameter
    if function == "write_kit":
        assert implemented.parameters["port"].default == ENGINES[name].default_port


def test_the_command_line_needs_no_engine_installed() -> None:
    modules = [f"{engine.package}.{module}" for engine in ENGINES.values() for module in ("kit", "local_run")]
    program = "import sys; sys.modules.update(nvflare=None, flwr=None); import " + ", ".join(["fedpact.cli", *modules])
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(("engine", "copy"), [("flare", "south/local/nameless.py"), ("flower", "south/pact.py")])
def test_a_pact_without_names_gets_those_of_the_command(engine: str, copy: str, tmp_path: pathlib.Path) -> None:
    pact = nameless(tmp_path)
    out = tmp_path / engine
    done = runner.invoke(app, ["deploy", engine, str(pact), "--parties", "north,south,west", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "README.md" in done.output
    assert Pact(out / copy).parties == ("north", "south", "west")
    assert Pact(out / copy).digest == Pact(pact, ["north", "south", "west"]).digest


@pytest.mark.parametrize("engine", ENGINES)
def test_a_folder_is_meant_from_here(engine: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FLARE changes folders on its way: it gets whole paths."""
    seen: dict[str, pathlib.Path] = {}

    def try_here(pact: pathlib.Path, parties: Any, out: pathlib.Path, wait: float | None, retry: int, tell: Any) -> str:
        seen["out"] = out
        return "done"

    monkeypatch.setattr(type(ENGINES[engine]), "try_here", staticmethod(try_here))
    monkeypatch.chdir(tmp_path)
    for folder in ([], ["--out", "kit"]):
        done = runner.invoke(app, ["deploy", engine, str(PACT), "--poc", *folder])
        assert done.exit_code == 0, done.output
        assert seen["out"] == tmp_path / (folder[-1] if folder else "fedpact-kit")


def test_what_a_trial_on_this_machine_tells(tmp_path: pathlib.Path) -> None:
    assert progress_in(tmp_path) == ""
    state = tmp_path / "server" / "fedpact" / "pact"
    state.mkdir(parents=True)
    Status(state, "server", "d").say(round=7, objective=0.5, phase="rounds", awaited=["south"])
    assert "server  rounds    round 7  objective 0.5  awaits south" in progress_in(tmp_path)
    (tmp_path / "south").mkdir()
    log = tmp_path / "south" / "log.txt"
    log.write_text("Traceback:\nKeyError: 'a'\nOSError: the disk is full\nand so on\n")
    assert reasons_in(tmp_path, ["north", "south"]) == f"south: {log}: OSError: the disk is full"


def test_wire_lists_messages_and_the_digest(tmp_path: pathlib.Path) -> None:
    done = runner.invoke(app, ["wire", str(nameless(tmp_path)), "--parties", "north,south,west", "--markdown"])
    assert done.exit_code == 0, done.output
    assert "hessian (496 numbers)" in done.output
    assert Pact(nameless(tmp_path), ["north", "south", "west"]).digest in done.output


# evaluate


def test_evaluate_prints_the_table_of_a_saved_run(tmp_path: pathlib.Path) -> None:
    run = tmp_path / "run"
    failed = runner.invoke(app, ["evaluate", str(PACT), "--run", str(run)])
    assert failed.exit_code == 1
    assert "holds no run" in failed.output
    assert runner.invoke(app, ["run", str(PACT), "--save", str(run)]).exit_code == 0
    out = tmp_path / "evaluation.json"
    done = runner.invoke(app, ["evaluate", str(PACT), "--run", str(run), "--confidence", "0.9", "--out", str(out)])
    assert done.exit_code == 0, done.output
    stated = Pact(PACT)
    wanted = fp.evaluate(stated.run(stated.tables()), stated.tables(), confidence=0.9)
    assert done.output.strip() == str(wanted)
    assert str(fp.Evaluation.read(out)) == str(wanted)
    assert not (run / "evaluation.json").exists(), "the pact itself asks for none"
    failed = runner.invoke(app, ["evaluate", str(PACT), "--run", str(run), "--group", "sex"])
    assert failed.exit_code == 1
    assert "group='sex'" in failed.output


def test_a_pact_that_evaluates_is_evaluated_by_run(tmp_path: pathlib.Path) -> None:
    pact = tmp_path / "pact.py"
    pact.write_text(f"{PACT.read_text()}\nevaluate = {{'bins': 50}}\n")
    done = runner.invoke(app, ["run", str(pact), "--save", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert done.output.count("AUC from histograms of 50 bins") == 1
    assert textwrap.indent(str(fp.Evaluation.read(tmp_path / "run" / "evaluation.json")), "  ") in done.output
    for wrong, told in (
        ("3", "`evaluate` should be a dict"),
        ("{'labels': 'y'}", "evaluate has 'labels'; it may have label"),
    ):
        pact.write_text(f"{PACT.read_text()}\nevaluate = {wrong}\n")
        failed = runner.invoke(app, ["evaluate", str(pact)])
        assert failed.exit_code == 1
        assert told in failed.output
