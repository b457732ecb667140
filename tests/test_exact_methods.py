"""What holds for exact methods beyond the contract: who the parties are does not matter; and runs of them, however they end."""

import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import CASES

import fedpact as fp
from fedpact.algorithms.prox_al import descent_at_server
from fedpact.protocol import Method
from fedpact.run import drivers

METHODS: dict[str, fp.Algorithm] = {
    "Newton": fp.ProxAL(fp.Newton()),
    "LBFGS": fp.ProxAL(fp.LBFGS()),
    "ADMM": fp.ProxAL(fp.ADMM()),
    "ADMM as printed": fp.ProxAL(fp.ADMM.as_printed(rho=3.0)),
    "central": fp.CentralProxAL(),
    "interior point": fp.InteriorPoint(),
}
every_method = pytest.mark.parametrize("method", METHODS)

CASE, POOLED, SINGLE = CASES["local limit"], CASES["pooled"], CASES["single party"]
TOLERANCE, TIGHT = 1e-6, 1e-10


@functools.cache
def whole(method: str) -> tuple[pathlib.Path, fp.Result]:
    """The uninterrupted run, and where it is saved."""
    folder = pathlib.Path(tempfile.mkdtemp()) / "run"
    result = CASE.solve(METHODS[method], TOLERANCE, save=folder)
    assert result.converged, result.message
    return folder, result


def assert_same_run(one: fp.Result, other: fp.Result) -> None:
    """Equal to the bit."""
    assert (one.status, one.message, one.rounds) == (other.status, other.message, other.rounds)
    assert one.history.columns == other.history.columns
    for name in one.history:
        np.testing.assert_array_equal(one.history[name], other.history[name], err_msg=name)
    assert jax.tree.all(jax.tree.map(np.array_equal, one.params, other.params))
    assert_same_certificate(one.certificate, other.certificate)


def assert_same_certificate(one: fp.Certificate, other: fp.Certificate) -> None:
    for name in ("stationarity", "feasibility", "complementarity", "objective", "constraints"):
        assert getattr(one, name) == getattr(other, name), name
    for name in ("party_multipliers", "server_multipliers", "pooled_multipliers"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


# programs and drivers


def test_programs_of_very_many_problems_are_not_all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedpact.run.drivers.KEPT", 2)
    monkeypatch.setattr("fedpact.run.drivers._met", set())
    drivers.rounds.clear_cache()
    for bound in (0.1, 0.2, 0.3, 0.4, 0.5):
        x = fp.value(lambda w, rows: w["x"])
        problem = fp.minimize(fp.value(lambda w, rows: w["x"] ** 2), [x >= bound])
        result = fp.solve(problem, fp.split_rows([fp.Table(y=[0.0])]), fp.InteriorPoint(), start={"x": 1.0})
        assert result.params["x"] == pytest.approx(bound, abs=1e-4)
        assert drivers.rounds.program._cache_size() <= 3


def test_a_run_that_changes_its_driver_counts_on(tmp_path: pathlib.Path) -> None:
    _, uninterrupted = whole("Newton")
    for rounds, driver in ((3, "fused"), (6, "chunked"), (8, "fused"), (10_000, "chunked")):
        last = CASE.solve(
            METHODS["Newton"], TOLERANCE, save=tmp_path, resume=True, max_rounds=rounds, driver=cast(Any, driver)
        )
    assert last.history["round"].tolist() == [4, 5, 6, *range(9, uninterrupted.rounds + 1)]
    for cost in ("exchanges", "bytes_up", "bytes_down"):
        assert getattr(last, cost) == getattr(uninterrupted, cost)


# stopping and going on


RESUME = """
import sys
from problems import CASES
import fedpact as fp
result = CASES["local limit"].solve(fp.ProxAL(fp.Newton()), float(sys.argv[2]), save=sys.argv[1], resume=True)
assert result.converged
"""


def test_resumed_in_another_process(tmp_path: pathlib.Path) -> None:
    folder, uninterrupted = whole("Newton")
    CASE.solve(METHODS["Newton"], TOLERANCE, save=tmp_path, max_rounds=9)
    paths = [str(pathlib.Path(__file__).parent), str(pathlib.Path(fp.__file__).parents[1])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    subprocess.run([sys.executable, "-c", RESUME, tmp_path, str(TOLERANCE)], env=environment, check=True, timeout=300)
    with np.load(folder / "answer.npz") as one, np.load(tmp_path / "answer.npz") as other:
        assert one.files == other.files
        assert all(np.array_equal(one[name], other[name]) for name in one.files)
    claims = [json.loads((path / "run.json").read_text()) for path in (folder, tmp_path)]
    assert claims[0] == claims[1]
    assert claims[0]["rounds"] == uninterrupted.rounds


def test_resumed_after_the_certificate_sent_the_method_on(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A method that aims too low is sent on with stricter goals; how often is part of the run."""
    monkeypatch.setattr(Method, "caution", 100.0)
    uninterrupted = CASE.solve(METHODS["Newton"], TOLERANCE)
    for cut in range(4, uninterrupted.rounds):
        part = CASE.solve(METHODS["Newton"], TOLERANCE, save=tmp_path, resume=True, max_rounds=cut)
        assert part.rounds == cut
    assert_same_run(CASE.solve(METHODS["Newton"], TOLERANCE, save=tmp_path, resume=True), uninterrupted)


def test_ctrl_c_in_every_round(tmp_path: pathlib.Path) -> None:
    def interrupt(history: fp.History) -> None:
        raise KeyboardInterrupt

    def solve(**options: Any) -> fp.Result:
        return CASE.solve(METHODS["Newton"], TOLERANCE, driver="stepwise", **options)

    for _ in range(100):
        result = solve(save=tmp_path, resume=True, watch=interrupt)
        if result.status != "stopped":
            break
    assert_same_run(solve(save=tmp_path, resume=True), solve())


# who the parties are


def tight(case: Any, method: str, parties: fp.Parties, **options: Any) -> fp.Result:
    given: dict[str, Any] = {"tolerance": TIGHT, "max_rounds": 20_000, "scale": False, **options}
    result = fp.solve(case.problem, parties, METHODS[method], **given)
    assert result.converged, result.message
    return result


@every_method
@pytest.mark.parametrize("case", [CASE, POOLED], ids=lambda case: case.name)
def test_the_order_of_parties_does_not_matter(method: str, case: Any) -> None:
    straight = tight(case, method, case.parties)
    names = [case.parties.names[i] for i in (2, 0, 1)]
    turned = tight(case, method, fp.Parties({name: case.parties[name] for name in names}))
    np.testing.assert_allclose(turned.params["w"], straight.params["w"], rtol=0, atol=1e-9)
    assert turned.objective == pytest.approx(straight.objective, abs=1e-9)
    for constraint in straight.certificate.constraints:
        other = turned.constraint(constraint.name)
        mu = dict(zip(other.holders, other.multipliers, strict=True))
        expected = dict(zip(constraint.holders, constraint.multipliers, strict=True))
        assert mu == pytest.approx(expected, abs=1e-7)


@every_method
def test_names_do_not_matter(method: str) -> None:
    _, plain = whole(method)
    named = fp.split_rows(list(CASE.parties.values()), parties=["z", "a", "party 1"])
    renamed = fp.solve(CASE.problem, named, METHODS[method], tolerance=TOLERANCE)
    assert renamed.parties == ("z", "a", "party 1")
    np.testing.assert_array_equal(renamed.params["w"], plain.params["w"])
    assert renamed.constraint("limit").multipliers == plain.constraint("limit").multipliers


@every_method
def test_one_party_with_all_rows_is_the_pooled_problem(method: str) -> None:
    pooled, single = tight(POOLED, method, POOLED.parties), tight(SINGLE, method, SINGLE.parties)
    np.testing.assert_allclose(single.params["w"], pooled.params["w"], rtol=0, atol=1e-8)
    assert single.objective == pytest.approx(pooled.objective, abs=1e-9)
    for name in ("limit", "balance"):
        assert single.constraint(name).multipliers == pytest.approx(pooled.constraint(name).multipliers, abs=1e-6)


@every_method
def test_a_duplicated_party_is_a_doubled_weight(method: str) -> None:
    """The objective is the parties' average. Over P, P, Q it is (2f_P + f_Q)/3; and so it is over 2P, Q and a party without
    a loss. The point is the same, and the copies' multipliers add up to that of the one."""
    q, p, _ = CASE.parties.values()
    heavy = p.with_columns(x=np.sqrt(2) * p["x"], y=np.sqrt(2) * p["y"])  # a squared loss, so this doubles it
    nothing = p.with_columns(x=0 * p["x"], y=0 * p["y"], limit=p["limit"] + 100)
    double, single = (
        tight(CASE, method, fp.split_rows([p, p, q])),
        tight(CASE, method, fp.split_rows([heavy, q, nothing])),
    )
    np.testing.assert_allclose(single.params["w"], double.params["w"], rtol=0, atol=1e-9)
    assert single.objective == pytest.approx(double.objective, abs=1e-9)
    first, second, third = double.constraint("limit").multipliers
    assert max(first, second, third) > 0.01
    assert single.constraint("limit").multipliers == pytest.approx([first + second, third, 0.0], abs=1e-7)


# where subproblems begin


def closings(result: fp.Result) -> np.ndarray:
    """The rounds with which a subproblem of ProxAL begins, but for the first."""
    return np.flatnonzero(np.diff(result.history["outer"])) + 1


@pytest.mark.parametrize("inner", [fp.Newton(), fp.LBFGS()], ids=str)
def test_a_subproblem_begins_one_step_further(inner: fp.Inner) -> None:
    result = CASE.solve(fp.ProxAL(inner), TOLERANCE)
    first, values = closings(result), result.history["objective"]
    assert len(first) >= 3
    assert np.all(values[first] != values[first - 1])
    residual = result.history["residual"]
    assert np.median(residual[first] / residual[first - 1]) < 100, "it is a step, not the new multipliers alone"


def test_a_first_step_astray_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every first step counts as one: the next round is where the last subproblem ended."""
    _, straight = whole("Newton")
    monkeypatch.setattr(descent_at_server, "LARGER", 0.0)
    result = CASE.solve(METHODS["Newton"], TOLERANCE)
    values = result.history["objective"]
    first = closings(result)[closings(result) < result.rounds - 1]  # the run may end with such a step
    assert result.converged
    assert len(first) >= 3
    np.testing.assert_array_equal(values[first + 1], values[first - 1])
    np.testing.assert_allclose(result.params["w"], straight.params["w"], rtol=0, atol=1e-5)


# what is recorded


N, D, M, FLOAT, BOOL = 3, 5, 1, 8, 1  # parties, parameters, constraints of each; bytes


def assert_bytes(result: fp.Result, numbers_up: int, numbers_down: int, flags_down: int) -> None:
    """Up and down per party and round; a second exchange in a round is the infeasibility test's."""
    history = result.history
    probes = history["exchanges"] - 1
    assert set(np.unique(probes)) <= {0, 1}
    pull, probe = 1 + D + 1, D  # yᵀc, Jᵀy, ‖y‖₁; the point
    np.testing.assert_array_equal(history["bytes_up"], N * FLOAT * (numbers_up + probes * pull))
    np.testing.assert_array_equal(
        history["bytes_down"], N * (FLOAT * (numbers_down + probes * probe) + BOOL * flags_down)
    )


CALL = 2 * D + 3  # point, centre, β, γ, the tolerance; and one flag
MAXIMA, TOLD = 3, 2 * M + 1  # distance, violation, change of μ; constraints, multipliers and objective for the report


def test_bytes_of_newton() -> None:
    _, result = whole("Newton")
    evaluation = 1 + 1 + 2 * D + D * (D + 1) // 2  # Σf, ΣP, ∇P and its change, the upper triangle of ∇²P
    assert_bytes(result, evaluation + MAXIMA + TOLD, CALL, 1)


def test_bytes_of_admm_as_printed() -> None:
    _, result = whole("ADMM as printed")
    sums = D + 1 + 1  # ρũ, the residual (22), Σf
    sync = 2 + 1  # ρ, ε, the (unused) place of the next difference; and a flag for restarts
    assert_bytes(result, sums + MAXIMA + TOLD, CALL + sync, 2)


def test_what_is_not_disclosed_is_not_sent() -> None:
    _, open_run = whole("Newton")
    closed = CASE.solve(METHODS["Newton"], TOLERANCE, disclose=False)
    assert open_run.bytes_up - closed.bytes_up == N * FLOAT * TOLD * closed.rounds
    assert "multipliers" not in closed.history
    np.testing.assert_allclose(closed.params["w"], open_run.params["w"], rtol=0, atol=1e-12)


# the user's JAX

SETTINGS = (
    "jax_enable_x64",
    "jax_numpy_dtype_promotion",
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


def settings() -> dict[str, Any]:
    return {name: getattr(jax.config, name) for name in SETTINGS} | {"float": jnp.ones(()).dtype}


class Trouble(Exception):
    pass


def trouble(history: fp.History) -> None:
    raise Trouble


@pytest.mark.parametrize("x64", [False, True])
def test_the_users_settings_are_left_alone(x64: bool, tmp_path: pathlib.Path) -> None:
    with jax.enable_x64(x64):
        before = settings()
        result = CASE.solve(METHODS["Newton"], TOLERANCE, save=tmp_path / "run")
        assert settings() == before
        assert result.converged
        assert result.params["w"].dtype == np.float64
        with pytest.raises(Trouble):
            CASE.solve(METHODS["Newton"], TOLERANCE, watch=trouble)
        assert settings() == before
        assert fp.verify(tmp_path / "run", CASE.problem, CASE.parties).ok
        assert settings() == before
        with pytest.raises(ValueError, match="another problem"):
            fp.verify(tmp_path / "run", POOLED.problem, CASE.parties)
        assert settings() == before


def test_a_cache_of_the_users_own_is_left_alone(tmp_path: pathlib.Path) -> None:
    mine = str(tmp_path / "mine")
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", mine)
    try:
        CASE.solve(METHODS["Newton"], TOLERANCE, watch=lambda history: settle(mine))
        settle(mine)
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def settle(folder: str) -> None:
    assert jax.config.jax_compilation_cache_dir == folder


def test_a_run_that_fails_is_saved(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, uninterrupted = whole("Newton")
    monkeypatch.setattr("fedpact.run.loop.Run.rounds_per_call", lambda run: 5)
    with pytest.raises(Trouble):
        CASE.solve(METHODS["Newton"], TOLERANCE, save=tmp_path, watch=trouble)
    assert_same_run(CASE.solve(METHODS["Newton"], TOLERANCE, save=tmp_path, resume=True), uninterrupted)
