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


def test_the_readme_goes_from_a_raw_file_to_a_saved_model_in_15_lines(
    data_folder: pathlib.Path, folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    section = (ROOT / "README.md").read_text().partition("\n## From raw frames\n")[2].partition("\n## ")[0]
    found = re.search(r"^```python\n(.*?)^```\n```\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert found is not None
    program, output = found.groups()
    assert len([line for line in program.splitlines() if line.strip()]) <= 15
    file = "compas_two_years_raw.csv.gz"
    assert f'"{file}"' in program
    (folder / file).symlink_to(data_folder / file)
    names: dict[str, Any] = {}
    run(program, names, "README")
    result, courts = names["result"], names["courts"]
    assert result.converged
    assert len(courts) == 5
    for name, limit in (("false alarms", 0.2), ("gap between sexes", 0.05)):
        assert max(result.constraint(name).values) <= limit
    frame = pd.read_csv(folder / file)
    right = np.mean(fp.load("model").predict(frame) == frame["two_year_recid"])
    assert right == pytest.approx(0.67, abs=0.01)
    printed = [words(line) for line in capsys.readouterr().out.splitlines()]
    told = [line for line in output.splitlines() if line.startswith(("converged", "  all"))]
    assert len(told) == 3
    assert all(words(line) in printed for line in told)


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
    found = deployed.constraint("at risk and found")
    assert found.hidden, "sums are secure"
    assert found.violations == (0.0,)
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
    [
        ("tutorial_budgets", "personal_budgets.py"),
        ("tutorial_columns", "vertical_fair_credit.py"),
        ("tutorial_matching", "private_matching.py"),
    ],
)
def test_the_page_is_the_example(page: str, program: str) -> None:
    """test_front_door.py runs it."""

    def lines(text: str) -> list[str]:
        return [line for line in text.splitlines() if line.strip()]

    _docstring, *code = lines((ROOT / "examples" / program).read_text())
    assert lines("\n".join(blocks(page, "python"))) == code
    assert f"(../examples/{program})" in text_of(page)
