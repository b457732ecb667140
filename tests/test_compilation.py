"""What is data is an argument: problems that differ in numbers alone compile nothing."""

import fcntl
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import jax
import jax.monitoring
import numpy as np
import pytest

import fedpact as fp
from fedpact import precision
from fedpact.compiling import Jitted
from fedpact.run import drivers

DATA = fp.datasets.breast_cancer()
COMPILED = "/jax/core/compile/backend_compile_duration"


def parties(rows: Any = slice(None), seed: int = 0) -> fp.Parties:
    return fp.split_rows(DATA[rows], parties=5, stratify="y", seed=seed)


def counted(bound: float, threshold: float = 0.0, temperature: float = 0.1) -> fp.Problem:
    """With a rate of decisions, which is counted."""
    model = fp.linear(bias=True)
    found = fp.mean(fp.decisions(model, threshold, temperature=temperature), where=fp.col("y") == 1)
    return fp.minimize(fp.mean(fp.logistic_loss(model)), [(found.pooled() >= bound).named("found")], fp.l2(1e-3))


def problem(bound: float = 0.2, weight: float = 1e-3, temperature: float | None = None) -> fp.Problem:
    model = fp.linear(bias=True)
    loss, missed = fp.logistic_loss(model), fp.col("y") == 1
    limit = (fp.mean(loss, where=missed) <= bound).named("missed")
    if temperature is not None:
        limit = (fp.mean(fp.positive_rate(model, temperature), where=missed) >= 0.9).named("found")
    return fp.minimize(fp.mean(loss, where=~missed), [limit], fp.l2(weight))


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A line for every program that is compiled meanwhile; none of an earlier process is read."""
    monkeypatch.setenv("FEDPACT_CACHE", "")
    lines: list[str] = []

    def note(event: str, _: float, **details: Any) -> None:
        if event == COMPILED:
            lines.append(str(details.get("fun_name")))

    jax.monitoring.register_event_duration_secs_listener(note)
    yield lines
    jax.monitoring.unregister_event_duration_listener(note)


RNG = np.random.default_rng(0)
FOLDS = np.array_split(RNG.permutation(DATA.rows), 5)
SERIES = {
    "bounds": [lambda b=b: fp.solve(problem(bound=b), parties()) for b in np.linspace(0.1, 0.3, 10)],
    "l2 weights": [lambda a=a: fp.solve(problem(weight=a), parties()) for a in np.geomspace(1e-4, 1e-1, 10)],
    "temperatures": [lambda t=t: fp.solve(problem(temperature=t), parties()) for t in (1.0, 0.7, 0.5)],
    "decisions": [
        lambda given=given: fp.solve(counted(*given), parties())
        for given in ((0.97,), (0.98,), (0.97, 0.5), (0.97, 0.0, 0.2))
    ],
    "tolerances": [lambda t=t: fp.solve(problem(), parties(), tolerance=t) for t in (1e-3, 1e-5, 1e-7)],
    "folds": [lambda f=f: fp.solve(problem(), parties(np.setdiff1d(np.arange(DATA.rows), f))) for f in FOLDS],
    "seeds": [lambda s=s: fp.solve(problem(), parties(), seed=s) for s in range(10)],
    "federations": [lambda s=s: fp.solve(problem(), parties(seed=s)) for s in range(2)],
    "few rows": [lambda n=n: fp.solve(problem(), fp.split_rows(DATA[slice(n)], 2, stratify="y")) for n in (35, 50, 64)],
}


@pytest.mark.parametrize("series", SERIES)
def test_a_series_of_problems_compiles_once(series: str, compilations: list[str]) -> None:
    first, *others = SERIES[series]
    assert first().converged
    compilations.clear()
    for solve in others:
        assert solve().converged
    assert compilations == []


def test_a_sweep_compiles_what_its_first_solve_does(compilations: list[str]) -> None:
    fp.tradeoff(problem(), parties(), constraint="missed", bounds=[0.3])
    compilations.clear()
    swept = fp.tradeoff(problem(), parties(), constraint="missed", bounds=[0.1, 0.2, 0.3])
    assert [entry.status for entry in swept.entries] == 3 * ["converged"]
    assert compilations == []


def test_a_new_problem_compiles_one_program(compilations: list[str]) -> None:
    """Of what parties do before the first round, in a round, at the end and for the certificate."""
    drivers.forget()
    assert fp.solve(problem(), parties()).converged
    assert compilations == ["jit(_together)"]


def test_compiling_is_said_with_its_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDPACT_CACHE", "")  # programs of earlier tests are read too fast to be mentioned
    drivers.forget()
    result = fp.solve(problem(), parties(), progress=True)
    said = capsys.readouterr().err
    assert "compiling ... " in said
    assert said.index("compiling ... ") < said.index("round ")
    assert result.compile_seconds > result.seconds


def test_bounds_of_ssca_over_columns_are_those_of_the_problem() -> None:
    """Programs are shared by problems with other bounds, so what a method keeps of them must not be."""
    table = fp.Table(x=DATA["x"][:80, :4], y=DATA["y"][:80])
    parties = fp.split_columns(table, {"a": [0, 1], "b": [2, 3]}, active=["a"])
    loss = fp.logistic_loss(fp.split_model(bottom=lambda width: fp.linear()))
    found = []
    for bound in (0.3, 0.6):
        stated = fp.minimize(fp.value(fp.squared_norm), [(fp.mean(loss) <= bound).named("loss")])
        result = fp.solve(stated, parties, fp.SSCA(batch=40), max_rounds=150, tolerance=1e-9)
        found.append(result.constraint("loss").values[0])
    assert found[0] < 0.45 < found[1]


def test_processes_of_one_machine_compile_one_after_the_other(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDPACT_CACHE", str(tmp_path))
    monkeypatch.setattr(precision, "LOCK_SECONDS", 0.2)
    with precision.kept_programs(), precision.compiled_by_one():
        lock = tmp_path / "programs" / "compiling.lock"
        with lock.open() as another, pytest.raises(BlockingIOError):
            fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with precision.compiled_by_one():  # as another process would: it waits for a while, and goes on
            pass
    with lock.open() as another:
        fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_first_answer_waits_for_no_import_of_scipy() -> None:
    program = """
import sys
import fedpact as fp
rows = fp.Table(x=[[1.0], [2.0], [0.5], [3.0]] * 6, y=[0, 1, 0, 1] * 6)
loss = fp.logistic_loss(fp.linear(bias=True))
result = fp.solve(fp.minimize(fp.mean(loss), regularizer=fp.l2(1e-2)), fp.split_rows(rows, parties=3))
assert result.status == "converged"
sys.exit(", ".join({"scipy.special", "scipy.optimize", "scipy.stats", "sklearn", "pandas", "optax"} & set(sys.modules)) or 0)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_fault_of_the_compiler_on_one_processor_is_told() -> None:
    def fails(x: Any) -> Any:
        raise jax.errors.JaxRuntimeError("NOT_FOUND: No registered implementation for untyped custom call to lapack")

    with pytest.raises(RuntimeError, match="one processor only: let it use two"):
        Jitted(fails)(np.zeros(1))
