"""The tutorials are programs that run as they stand. docs/write_a_method.md is in test_extending.py."""

import pathlib
import re
import shlex
from typing import Any

import numpy as np
import pandas as pd
import pytest
from test_deploy import with_policy
from typer.testing import CliRunner

import fedpact as fp
from fedpact.cli import app
from fedpact.deploy.server import serve

pytestmark = pytest.mark.usefixtures("compiled_quickly")
ROOT = pathlib.Path(__file__).parents[1]


def text_of(page: str) -> str:
    return (ROOT / "docs" / f"{page}.md").read_text()


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text_of(page), re.DOTALL | re.MULTILINE)


def outputs(page: str) -> list[str]:
    """What the page says that its programs print."""
    return re.findall(r"^```\n```\n(.*?)^```$", text_of(page), re.DOTALL | re.MULTILINE)


def words(line: str) -> str:
    """A line without its numbers, whose last digits depend on the machine."""
    return re.sub(r"[\d.,e+−-]+", "#", line).strip()


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Programs run there."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(program: str, names: dict[str, Any], page: str) -> None:
    exec(compile(program, page, "exec"), names)


def test_from_a_raw_frame_to_a_kept_promise(
    data_folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(data_folder)
    names: dict[str, Any] = {}
    *programs, in_a_pact = blocks("tutorial", "python")
    for program in programs:
        run(program, names, "tutorial")
    assert names["result"].converged
    assert names["promise"].kept
    assert 0.03 < names["result"].constraint("gap between sexes").values[0] <= 0.05
    printed = capsys.readouterr().out
    told = [
        line for output in outputs("tutorial") for line in output.splitlines() if line.startswith(("kept", "converged"))
    ]
    assert len(told) == 3
    for line in told:
        assert words(line) in [words(said) for said in printed.splitlines()]
    run(in_a_pact, names, "tutorial")


def test_three_clinics_deployed(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = {
        program.partition("\n")[0].removeprefix("# "): program for program in blocks("tutorial_clinics", "python")
    }
    assert set(programs) == {"clinics.py", "pact.py", "judge.py"}
    run(programs["clinics.py"], {}, "clinics.py")
    (folder / "pact.py").write_text(programs["pact.py"])
    monkeypatch.setenv("CLINIC_FOLDER", str(folder))
    commands = [
        shlex.split(line, comments=True) for block in blocks("tutorial_clinics", "bash") for line in block.splitlines()
    ]
    said = {}
    for command in commands:
        assert command[0] in ("fedpact", "export")
        if command[0] == "fedpact" and command[1] != "deploy":  # `fedpact deploy` is in test_flare.py
            done = CliRunner().invoke(app, command[1:])
            assert done.exit_code == 0, done.output
            said[command[1]] = done.output
    assert set(said) == {"run", "wire", "predict"}
    assert said["run"].startswith("converged: all counted rates are within their limits")
    (digest,) = re.findall(r"the pact's digest is (\w+)", said["wire"])
    (policy,) = blocks("tutorial_clinics", "toml")
    run(programs["judge.py"], {}, "judge.py")

    (folder / "sites").mkdir()
    agreed = re.sub(r'digests = \["\w+"\]', f'digests = ["{digest}"]', policy)
    channel = with_policy(folder / "pact.py", folder / "sites", agreed)
    deployed = serve(folder / "pact.py", channel, folder / "server")
    assert isinstance(deployed, fp.Result)
    assert deployed.converged
    assert np.min(deployed.constraint("at risk and found").values) >= 0.7
    tried, left = fp.load(folder / "runs/try/model"), fp.load(folder / "server" / "model")
    new = pd.read_csv("new.csv")
    np.testing.assert_allclose(left.scores(new), tried.scores(new), rtol=0, atol=1e-8)
    np.testing.assert_allclose(pd.read_csv("scores.csv")["score"], tried.scores(new), rtol=0, atol=1e-12)


def test_fairness_at_every_bank(folder: pathlib.Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install matplotlib").use("agg")
    names: dict[str, Any] = {}
    for program in blocks("tutorial_banks", "python"):
        run(program, names, "tutorial_banks")
    names["plt"].close("all")
    over_all, fair, tradeoff = names["gaps"](names["result"]), names["gaps"](names["fair"]), names["tradeoff"]
    assert names["result"].converged
    assert over_all["north"] > 0.1  # the banks' gaps cancel each other, as the page says
    assert over_all["west"] < -0.1
    assert names["fair"].converged
    assert max(map(abs, fair.values())) <= 0.05
    assert all(entry.status == "converged" for entry in tradeoff.entries)
    assert (folder / "tradeoff.svg").read_text().count("<path") > 5


@pytest.mark.parametrize(
    ("page", "program"),
    [("tutorial_budgets", "personal_budgets.py"), ("tutorial_columns", "vertical_fair_credit.py")],
)
def test_the_page_is_the_example(page: str, program: str) -> None:
    """test_front_door.py runs it."""

    def lines(text: str) -> list[str]:
        return [line for line in text.splitlines() if line.strip()]

    _docstring, *code = lines((ROOT / "examples" / program).read_text())
    assert lines("\n".join(blocks(page, "python"))) == code
    assert f"(../examples/{program})" in text_of(page)
