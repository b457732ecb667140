"""The command line teaches, fails with a sentence, and does what it says."""

import pathlib

import pytest
from typer.testing import CliRunner

import fedpact as fp
from fedpact.cli import app

runner = CliRunner()


def test_help_teaches() -> None:
    assert "reproduce" in runner.invoke(app, ["--help"]).output
    told = runner.invoke(app, ["reproduce", "--help"]).output
    for word in ("prox-al/np", "prox-al/fairness", "prox-al/lcqp", "--trials", "--data", "--out"):
        assert word in told


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
