"""Which method is taken, what is said of it, and pacts."""

import pathlib

import numpy as np
import pytest
from problems import CASES, Case
from typer.testing import CliRunner

import fedpact as fp
from fedpact.cli import app
from fedpact.run.pact import Pact
from fedpact.run.selection import INTERIOR_UP_TO

CASE, POOLED = CASES["local limit"], CASES["pooled"]
EXAMPLE = pathlib.Path(__file__).parents[1] / "examples" / "pact.py"
runner = CliRunner()


def wide(size: int) -> tuple[fp.Problem, fp.Parties]:
    rng = np.random.default_rng(0)
    table = fp.Table(x=rng.normal(size=(8, size)), y=np.arange(8) % 2)
    return fp.minimize(fp.mean(fp.logistic_loss(fp.linear()))), fp.split_rows(table, parties=2)


def test_small_problems_take_the_interior_point_method() -> None:
    assert CASE.solve(None, 1e-6).method == "InteriorPoint"
    told = fp.explain(*wide(INTERIOR_UP_TO))
    assert (told.method, told.size, told.parties) == ("InteriorPoint", INTERIOR_UP_TO, 2)
    assert "Hessian" in str(told)


def test_large_ones_take_limited_memory() -> None:
    told = fp.explain(*wide(INTERIOR_UP_TO + 1))
    assert told.method == "ProxAL with LBFGS"
    assert told.bytes_up < 17 * told.size, "two vectors"


def test_very_many_rows_take_limited_memory() -> None:
    """600 parties of 50 rows and 390 parameters: a round of Hessians takes longer than many rounds of gradients."""
    rng = np.random.default_rng(0)
    tables = [fp.Table(x=rng.normal(size=(50, 390)), y=np.arange(50) % 2, part=np.arange(50) % 2) for _ in range(600)]
    loss = fp.logistic_loss(fp.linear())
    limits = [(fp.mean(loss, where=fp.col("part") == k) <= 0.6).named(f"part {k}") for k in range(2)]
    told = fp.explain(fp.minimize(fp.mean(loss), limits), tables)
    assert told.method == "ProxAL with LBFGS"
    assert "4.7e+09 multiplications a round" in told.reason


@pytest.mark.parametrize("case", [CASE, POOLED], ids=["local", "pooled"])
@pytest.mark.parametrize("method", [fp.InteriorPoint(), fp.ProxAL(fp.Newton()), fp.ProxAL(fp.ADMM())], ids=str)
def test_the_bytes_explained_are_those_sent(case: Case, method: fp.Algorithm) -> None:
    told = fp.explain(case.problem, case.parties, method, server=case.server)
    history = case.solve(method, 1e-3, max_rounds=3).history
    assert history["bytes_up"].min() == told.bytes_up * told.parties
    assert history["bytes_down"].min() == told.bytes_down * told.parties
    assert told.reason == "as requested"
    assert told.rounds is not None


def test_parties_whose_rows_hessians_show_are_named() -> None:
    """Fewer rows than twice the parameters, in the clear, by a method with Hessians."""
    rng, loss = np.random.default_rng(0), fp.logistic_loss(fp.linear(bias=True))
    few = [fp.Table(x=rng.normal(size=(rows, 4)), y=np.arange(rows) % 2) for rows in (9, 10, 9)]
    stated, tables = fp.minimize(fp.mean(loss)), dict(zip(("ada", "bea", "cid"), few, strict=True))
    told = fp.explain(stated, tables)
    assert told.exposed == ("ada", "cid"), "2 * 5 rows are enough"
    assert "rows of ada, cid could be read from two rounds' Hessians" in str(told)
    assert "privacy=fp.SecureAggregation()" in told._repr_html_()
    secure = fp.explain(stated, tables, privacy=fp.SecureAggregation())
    assert not secure.exposed
    assert "Beware" not in str(secure)
    assert secure.bytes_up > told.bytes_up, "16 bytes a number"
    assert not fp.explain(stated, tables, fp.ProxAL(fp.LBFGS())).exposed
    with pytest.raises(ValueError, match="needs at least 3"):
        fp.explain(stated, few[:2], privacy=fp.SecureAggregation())
    with pytest.raises(TypeError, match=r"fp.SecureAggregation\(\), or None"):
        fp.explain(stated, tables, privacy="secure")  # pyright: ignore


# pacts


def test_the_pact_of_the_front_door_runs(tmp_path: pathlib.Path) -> None:
    page = tmp_path / "page.html"
    done = runner.invoke(app, ["run", str(EXAMPLE), "--report", str(page), "--save", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert "converged" in done.output
    assert page.stat().st_size > 10_000
    pact = Pact(EXAMPLE)
    assert fp.verify(tmp_path / "run", pact.problem, pact.tables()).ok


def test_options_on_the_command_line_come_first() -> None:
    done = runner.invoke(app, ["run", str(EXAMPLE), "--max-rounds", "2"])
    assert done.exit_code == 3
    assert "stopped at max_rounds=2;" in done.output


def test_a_pact_can_be_explained() -> None:
    done = runner.invoke(app, ["run", str(EXAMPLE), "--explain"])
    assert done.exit_code == 0
    assert "31 parameters over 3 parties" in done.output


STATED = """
import fedpact as fp
problem = fp.minimize(fp.mean(fp.logistic_loss(fp.linear())))
parties = ["north", "south"]
def load(party):
    return fp.Table(x=[[1.0], [2.0]], y=[0, 1])
"""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("problem =", "stated ="), "a pact has `problem`"),
        (("parties =", "who ="), "a pact has `parties`"),
        (("def load", "def read"), "a pact has `load`"),
        (('["north", "south"]', '["north", "north"]'), "each once"),
        (('["north", "south"]', "7"), "`parties` should be the names"),
        (("return fp.Table", "raise OSError('no disk') # "), "load('north') fails: OSError: no disk"),
        (("def load", "options = {'tolerence': 1}\ndef load"), "options has 'tolerence'"),
    ],
)
def test_a_bad_pact_is_told(tmp_path: pathlib.Path, change: tuple[str, str], words: str) -> None:
    path = tmp_path / "pact.py"
    path.write_text(STATED.replace(*change))
    failed = runner.invoke(app, ["run", str(path)])
    assert failed.exit_code == 1
    assert words in failed.output


def test_a_missing_pact_is_told(tmp_path: pathlib.Path) -> None:
    failed = runner.invoke(app, ["run", str(tmp_path / "pact.py")])
    assert failed.exit_code == 1
    assert "there is no file" in failed.output
