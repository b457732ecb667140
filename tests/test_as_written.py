"""The commands of README, docs/flare.md and docs/flower.md, typed as they are written, in a new folder that holds pact.py.

One real run of FLARE is here, by the README's lines; one of Flower, by its page's, in test_flower_run.py. The release check types
both engines' pages, and tries once more in the same folder and in one given by its whole path.
"""

import json
import pathlib
import shlex

import click
import pacts
import pytest
import typer.main
from as_written import PAGES, commands, trial, typed_in
from typer.testing import CliRunner

import fedpact as fp
from fedpact.cli import app
from fedpact.run.pact import Pact

runner = CliRunner()
KITS = [line for page in PAGES for line in commands(page) if "--server" in line]


def typed(command: str) -> str:
    """What a command prints, which ends well."""
    done = runner.invoke(app, shlex.split(command)[1:])
    assert done.exit_code == 0, f"{command}\n{done.output}"
    return done.output


@pytest.fixture
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    pacts.written(tmp_path, "front door").rename(tmp_path / "pact.py")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_every_line_is_a_command_with_these_options(page: str) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group)
    lines = commands(page)
    assert len(lines) >= 4
    for line in lines:
        _, name, *words = shlex.split(line)
        group.commands[name].make_context(name, words)  # raises where an option is unknown, or an argument missing


def test_each_page_is_run_by_somebody() -> None:
    """What this file and test_flower_run.py type are all lines of these pages, but for the names of folders."""
    readme = commands("README.md")
    for engine in ("flare", "flower"):
        for line in commands(f"docs/{engine}.md"):
            known = line.replace("flower", "flare").removesuffix(" --out try").replace(" try", " fedpact-kit")
            assert known.replace("--out kit", "--out flare-kit") in readme, line
        assert trial(engine) == f"fedpact deploy {engine} pact.py --poc --out try"


@pytest.mark.parametrize("command", KITS)
def test_kits_are_written_and_left_as_they_are(command: str, here: pathlib.Path) -> None:
    pytest.importorskip({"flare": "nvflare", "flower": "flwr"}[shlex.split(command)[2]])
    first = typed(command)
    assert "README.md" in first
    out = here / shlex.split(command)[-1]
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    assert typed(command) == first
    assert {file: file.read_bytes() for file in out.rglob("*") if file.is_file()} == before
    for owner in ("server", "north", "south", "west"):
        assert {"fedpact.service", "Containerfile"} <= {file.name for file in (out / owner).iterdir()}


@pytest.mark.deploy
@pytest.mark.filterwarnings("ignore:ssl_context is deprecated:DeprecationWarning")  # FLARE's way to call aiohttp
def test_the_readme_from_its_first_line_on(here: pathlib.Path) -> None:
    pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed")
    stated = Pact(here / "pact.py")
    local = stated.run(stated.tables())
    assert isinstance(local, fp.Result)
    for line in commands("README.md"):
        if "--server" in line or "--hosts" in line:  # above; hosts have to be there
            continue
        printed = typed(line)
        if "--poc" in line:
            state = here / "fedpact-kit" / "server" / "fedpact" / "pact"
            assert local.message in printed, "the certificate"
            assert str(state) in printed
            assert "fedpact run report" in (state / "report.html").read_text()
            assert fp.load(state / "model").digest == local.digest
            record = json.loads((state / "run.json").read_text())
            assert record["objective"] == pytest.approx(local.objective, abs=1e-10)
        if "status" in line:
            assert f"round {local.rounds}" in printed
            assert [words.split()[:2] for words in printed.splitlines() if " ended " in words] == [
                [who, "ended"] for who in ("server", *stated.parties)
            ]
        if "verify" in line:
            assert printed.startswith("holds to 1e-06")


@pytest.mark.deploy
@pacts.in_release_checks
@pytest.mark.parametrize("engine", ["flare", "flower"])
def test_a_page_of_an_engine_and_then_its_trial_again_here_and_elsewhere(engine: str, here: pathlib.Path) -> None:
    for line in commands(f"docs/{engine}.md"):
        typed_in(here, line)
    state = {"flare": "server/fedpact/pact", "flower": "server/state"}[engine]
    first = (here / "try" / state / "run.json").read_text()
    again = typed_in(here, trial(engine))
    assert (here / "try-1" / state / "run.json").read_text() == first, "an earlier try is kept"
    whole = here / "elsewhere" / {"flare": "try", "flower": "a try"}[engine]  # FLARE takes no spaces
    elsewhere = typed_in(here, trial(engine).replace("--out try", f"--out '{whole}'"))
    for folder, printed in ((here / "try", again), (whole, elsewhere)):
        assert json.loads(first)["message"] in printed
        assert str(folder / state) in printed
        assert typed_in(here, f"fedpact verify '{folder}'").startswith("holds to 1e-06")
