"""The second process that solves a problem traces nothing, and what it answers is the same to the bit."""

import pathlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

import fedpact as fp
from fedpact import precision
from fedpact.problem import fingerprint
from fedpact.run import drivers, kept_plans

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3))
TABLE = fp.Table(x=X, y=(X[:, 0] + 0.5 * RNG.normal(size=80) > 0).astype(int))
LOSS = fp.logistic_loss(fp.linear(bias=True))


def problem(bound: float = 0.5, loss: Any = LOSS) -> fp.Problem:
    return fp.minimize(fp.mean(loss), [(fp.mean(loss, where=fp.col("y") == 1) <= bound).named("missed")], fp.l2(1e-2))


def parties(rows: int = 80) -> fp.Parties:
    return fp.split_rows(TABLE[:rows], parties=3, seed=0)


@pytest.fixture
def plans(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    monkeypatch.setenv("FEDPACT_CACHE", str(tmp_path))
    drivers.forget()
    yield tmp_path / "plans"
    drivers.forget()


@pytest.fixture
def traced() -> Iterator[list[str]]:
    """A line for every function of an exchange that is traced meanwhile."""
    lines: list[str] = []

    def note(event: str, duration_secs: float, **details: Any) -> None:
        if event.endswith("jaxpr_trace_duration"):
            lines.append(str(details.get("fun_name")))

    jax.monitoring.register_event_duration_secs_listener(note)
    yield lines
    jax.monitoring.unregister_event_duration_listener(note)


def as_another_process(lines: list[str]) -> None:
    drivers.forget()
    lines.clear()


@pytest.mark.parametrize("method", [fp.InteriorPoint(), fp.ProxAL(fp.Newton())], ids=["InteriorPoint", "ProxAL Newton"])
def test_the_second_time_nothing_is_traced(method: fp.Algorithm, plans: pathlib.Path, traced: list[str]) -> None:
    first = fp.solve(problem(), parties(), method)
    assert "_together" in traced
    as_another_process(traced)
    second = fp.solve(problem(), parties(), method)
    assert not {"_together", "_exchanged", "_alone"} & set(traced)
    np.testing.assert_array_equal(first.params["w"], second.params["w"])
    assert first.certificate.stationarity == second.certificate.stationarity
    assert first.rounds == second.rounds


def test_what_is_data_has_the_same_program(plans: pathlib.Path, traced: list[str]) -> None:
    fp.solve(problem(), parties())
    for bound, rows in ((0.6, 80), (0.55, 79)):  # rows are padded to a few sizes
        as_another_process(traced)
        assert fp.solve(problem(bound), parties(rows)).converged
        assert "_together" not in traced
    assert len(list(plans.iterdir())) == 1


@pytest.mark.parametrize("other", ["problem", "method", "columns", "setting", "sources"])
def test_another_program_is_not_mistaken_for_it(
    other: str, plans: pathlib.Path, traced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fp.solve(problem(), parties())
    as_another_process(traced)
    stated, shared, method = problem(), parties(), fp.InteriorPoint()
    if other == "problem":
        stated = problem(loss=fp.smoothed_hinge_loss(fp.linear(bias=True)))
    elif other == "method":
        method = fp.InteriorPoint(mu=0.5)
    elif other == "columns":
        shared = fp.split_rows(fp.Table(x=X[:, :2], y=TABLE["y"]), parties=3, seed=0)
    elif other == "setting":
        monkeypatch.setenv("XLA_FLAGS", "--another")  # which this process has read already
    else:
        monkeypatch.setattr(kept_plans, "_machine", lambda: ("another version",))
    assert fp.solve(stated, shared, method).converged
    assert "_together" in traced
    assert len(list(plans.iterdir())) == 2


def test_functions_of_the_users_own_are_not_kept(plans: pathlib.Path) -> None:
    own = fp.loss(lambda scores, labels: (scores - labels.astype(scores.dtype)) ** 2, fp.linear(bias=True))
    assert fp.solve(problem(loss=own), parties()).converged
    assert not plans.exists()


def test_methods_of_the_users_own_are_not_kept(plans: pathlib.Path) -> None:
    """Their code is read for digests as far as it can be: the rules of a `jax.custom_vjp`, for instance, cannot."""

    class Mine(fp.InteriorPoint):
        pass

    with pytest.raises(fingerprint.Foreign):
        fingerprint.digest(Mine(), compiled=True)
    assert fp.solve(problem(), parties(), Mine()).converged
    assert not plans.exists()


def test_threads_leave_the_users_settings(plans: pathlib.Path) -> None:
    """One thread may leave while another one compiles past the cache."""
    first, second = precision.kept_programs(), precision.kept_programs()
    first.__enter__()
    second.__enter__()
    past = precision.without_kept_programs()
    past.__enter__()
    assert not precision.keeps_programs()
    first.__exit__(None, None, None)
    past.__exit__(None, None, None)
    assert precision.keeps_programs()
    second.__exit__(None, None, None)
    assert getattr(jax.config, precision.FOLDER) is None

    found: list[fp.Result] = []
    threads = [
        threading.Thread(target=lambda b=b: found.append(fp.solve(problem(b), parties()))) for b in (0.5, 0.6, 0.7)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.converged for result in found] == [True] * 3
    assert getattr(jax.config, precision.FOLDER) is None


def test_where_the_user_keeps_programs_nothing_is_added(plans: pathlib.Path, tmp_path: pathlib.Path) -> None:
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "mine"))
    try:
        assert fp.solve(problem(), parties()).converged
    finally:
        jax.config.update("jax_compilation_cache_dir", None)
    assert not plans.exists()


@pytest.mark.parametrize("how", ["cut off", "empty", "does not run"])
def test_a_spoilt_file_is_made_again(
    how: str, plans: pathlib.Path, traced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = fp.solve(problem(), parties())
    (file,) = plans.iterdir()
    content = file.read_bytes()
    if how == "does not run":
        from jax.experimental import serialize_executable

        def refuses(*_: Any) -> Any:
            raise jax.errors.JaxRuntimeError("NOT_FOUND: a kernel")

        monkeypatch.setattr(serialize_executable, "deserialize_and_load", lambda *_: refuses)
    else:
        file.write_bytes(content[: len(content) // 2] if how == "cut off" else b"")
    as_another_process(traced)
    second = fp.solve(problem(), parties())
    assert "_together" in traced
    np.testing.assert_array_equal(first.params["w"], second.params["w"])
    if how != "does not run":
        assert len(file.read_bytes()) > len(content) // 2


def test_only_so_many_are_kept(plans: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_plans, "MOST", 1)
    for columns in (1, 2):
        fp.solve(problem(), fp.split_rows(fp.Table(x=X[:, :columns], y=TABLE["y"]), parties=3, seed=0))
    assert len(list(plans.iterdir())) == 1


def test_a_second_process_gives_the_same_bits(tmp_path: pathlib.Path) -> None:
    program = """
import sys
import jax
traced = []
jax.monitoring.register_event_duration_secs_listener(lambda event, _, **more: traced.append(more.get("fun_name")))
import fedpact as fp
rows = fp.Table(x=[[1.0], [2.0], [0.5], [3.0]] * 6, y=[0, 1, 0, 1] * 6)
loss = fp.logistic_loss(fp.linear(bias=True))
limit = (fp.mean(loss, where=fp.col("y") == 1) <= 0.6).named("missed")
result = fp.solve(fp.minimize(fp.mean(loss), [limit], regularizer=fp.l2(1e-2)), fp.split_rows(rows, parties=3))
print(result.params["w"].tolist(), result.certificate.stationarity, "_together" in traced)
"""
    environment = {"FEDPACT_CACHE": str(tmp_path), "PATH": "", "JAX_PLATFORMS": "cpu"}
    said = [
        subprocess.run(
            [sys.executable, "-c", program], check=True, env=environment, capture_output=True, text=True
        ).stdout.split()
        for _ in range(2)
    ]
    assert [line[-1] for line in said] == ["True", "False"]
    assert said[0][:-1] == said[1][:-1]
