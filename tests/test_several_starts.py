"""fp.solve(..., starts=5): several starts in one run, of which the best is handed out."""

import pathlib
from typing import Any

import jax
import numpy as np
import pytest
from pacts import assert_same
from test_contract import OnHost, assert_same_certificate, numbers_of
from test_deploy import Loopback

import fedpact as fp
from fedpact.deploy.server import serve
from fedpact.engines.local import Local
from fedpact.run import drivers
from fedpact.run.loop import goal_of
from fedpact.run.pact import Pact
from fedpact.run.selection import from_starts
from fedpact.settings import bind
from fedpact.tolerance import Tolerance

# two wells, cut off by w_0 + w_1 <= 1.5 on the right and by w_0 + w_1 >= -1.6 on the left


def wells(params: Any, rows: Any) -> jax.Array:
    a, b = params["w"]
    return (a**2 - 1) ** 2 + 0.3 * a + (b - a) ** 2 + 0.0 * rows["x"]


def total(params: Any, rows: Any) -> jax.Array:
    return params["w"].sum()


PARTIES = fp.split_rows(fp.Table(x=np.arange(12.0)), parties=3, seed=0)
WELLS = fp.minimize(fp.mean(wells), [fp.value(total) <= 1.5, fp.value(total) >= -1.6])
LBFGS = fp.ProxAL(fp.LBFGS())


def solved(algorithm: fp.Algorithm, **options: Any) -> fp.Result:
    given = {"start": {"w": np.ones(2)}, "tolerance": 1e-6, "seed": 2, **options}
    return fp.solve(WELLS, PARTIES, algorithm, **given)


def bottom(cubic: list[float], sum_of_both: float) -> np.ndarray:
    """Where the objective is least on w_0 + w_1 = sum: the only real root of its derivative."""
    (root,) = (r.real for r in np.roots(cubic) if abs(r.imag) < 1e-9)
    return np.array([root, sum_of_both - root])


LEFT, RIGHT = bottom([4, 0, 4, 6.7], -1.6), bottom([4, 0, 4, -5.7], 1.5)


@pytest.mark.parametrize("algorithm", [fp.InteriorPoint(), LBFGS], ids=["InteriorPoint", "ProxAL LBFGS"])
def test_the_better_optimum_is_found(algorithm: fp.Algorithm) -> None:
    one, best = solved(LBFGS), solved(algorithm, starts=5)
    np.testing.assert_allclose(one.params["w"], RIGHT, atol=1e-5)
    np.testing.assert_allclose(best.params["w"], LEFT, atol=1e-5)
    assert one.converged
    assert best.converged
    assert best.objective < one.objective - 0.5
    assert best.certificate.party_multipliers.max() > 0.1
    assert best.method.endswith(", 5 starts")
    assert best.method in str(best)
    # rounds are counted once, and one or two exchanges in each serve all starts
    assert best.rounds == len(best.history)
    assert best.exchanges == best.history["exchanges"].sum() <= 2 * best.rounds
    assert "constraints" not in best.history
    running = best.history["running"]
    assert running[0] == 5
    assert running[-1] == 0
    assert (np.diff(running) <= 0).all()
    assert best.history["start"][-1] > 1
    assert best.history["objective"][-1] == pytest.approx(best.objective, abs=1e-9)


def test_one_start_is_as_without_the_argument() -> None:
    one, usual = solved(LBFGS, starts=1), solved(LBFGS)
    assert (one.method, one.rounds, one.message) == (usual.method, usual.rounds, usual.message)
    assert one.history.columns == usual.history.columns
    for column in usual.history:
        np.testing.assert_array_equal(one.history[column], usual.history[column])
    np.testing.assert_array_equal(one.params["w"], usual.params["w"])
    assert_same_certificate(one.certificate, usual.certificate)


def test_resumed_is_uninterrupted(tmp_path: pathlib.Path) -> None:
    """Also where some starts have ended and others have not."""
    whole = solved(LBFGS, starts=5)
    running = whole.history["running"]
    some_ended = int(np.flatnonzero(running < 5)[0]) + 1
    assert some_ended < whole.rounds
    for cut in (1, some_ended):
        part = solved(LBFGS, starts=5, save=tmp_path, resume=True, max_rounds=cut)
        assert part.rounds == cut
    with pytest.raises(ValueError, match="another method or options"):
        solved(LBFGS, save=tmp_path, resume=True)
    resumed = solved(LBFGS, starts=5, save=tmp_path, resume=True)
    assert (resumed.status, resumed.rounds) == (whole.status, whole.rounds)
    for column in whole.history:
        np.testing.assert_array_equal(resumed.history[column], whole.history[column], err_msg=column)
    np.testing.assert_array_equal(resumed.params["w"], whole.params["w"])
    assert_same_certificate(resumed.certificate, whole.certificate)
    assert fp.verify(tmp_path, WELLS, PARTIES, params={"w": np.ones(2)}).ok
    sharper = solved(LBFGS, starts=5, save=tmp_path, resume=True, tolerance=1e-8)
    assert sharper.converged
    assert sharper.rounds > whole.rounds


@pytest.mark.parametrize(
    "other", [{"driver": "fused"}, {"driver": "stepwise"}, {"engine": OnHost()}], ids=["fused", "stepwise", "host"]
)
def test_drivers_and_engines_agree(other: dict[str, Any]) -> None:
    first, second = solved(LBFGS, starts=5), solved(LBFGS, starts=5, **other)
    assert (second.status, second.rounds, second.exchanges) == (first.status, first.rounds, first.exchanges)
    assert (second.bytes_up, second.bytes_down) == (first.bytes_up, first.bytes_down)
    np.testing.assert_allclose(second.params["w"], first.params["w"], rtol=0, atol=1e-9)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-8),
        *map(numbers_of, (first.certificate, second.certificate)),
    )
    if other != {"driver": "fused"}:
        for column in first.history:
            np.testing.assert_allclose(second.history[column], first.history[column], rtol=1e-6, atol=1e-8)


# where to start

MODEL = """
import jax
import numpy as np
import fedpact as fp

parties = ["north", "south"]
model = fp.model(
    lambda key, features: {"w": 2.0 * jax.random.normal(key, (features,))},
    lambda params, x: x @ (params["w"] ** 2 - 1) ** 2 + 0.3 * params["w"].sum(),
)
problem = fp.minimize(fp.mean(fp.loss(lambda scores, y: scores - y, model)), [fp.value(fp.squared_norm) <= 1.9])
algorithm = fp.ProxAL(fp.Newton())
options = {"scale": False, "starts": 3, "seed": 3, "privacy": None}


def load(party):
    return fp.Table(x=np.full((3, 2), 1.0 if party == "north" else 2.0), y=np.zeros(3))
"""


def test_random_models_begin_from_the_seeds_that_follow_deployed_too(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "pact.py"
    file.write_text(MODEL)
    pact = Pact(file)
    tables = pact.tables()
    best, alone = pact.run(tables), [pact.run(tables, starts=1, seed=seed) for seed in (3, 4, 5)]
    assert all(result.converged for result in (best, *alone))
    objectives = [result.objective for result in alone]
    lowest = alone[int(np.argmin(objectives))]
    assert lowest.objective < objectives[0] - 0.5
    assert best.history["start"][-1] == np.argmin(objectives) + 1
    assert best.rounds == max(result.rounds for result in alone)
    np.testing.assert_allclose(best.params["w"], lowest.params["w"], atol=1e-8)
    deployed = serve(file, Loopback.of(file, tmp_path), tmp_path / "server")
    assert deployed.method == best.method == "ProxAL with Newton, 3 starts"
    assert_same(deployed, best, {})


def test_starts_are_spread_in_the_units_of_the_columns() -> None:
    """In cents or in dollars, the starts are the same, in units."""
    rng, loss = np.random.default_rng(0), fp.squared_loss(fp.linear())
    x = rng.normal(size=(30, 2))
    y = x @ [1.0, -2.0] + 0.1 * rng.normal(size=30)
    starts = []
    for unit in (1.0, 1e6):
        parties = fp.split_rows(fp.Table(x=x * [1.0, unit], y=y), parties=2, seed=0)
        bound = bind(fp.minimize(fp.mean(loss)), parties, start={"w": np.array([0.5, 0.5 / unit])})
        method = from_starts(fp.ProxAL(fp.Newton()), bound.setting, 5)
        bound, network = Local().connect(bound)
        server, _ = drivers.begin(
            method, network, bound.server_data, bound.start, goal_of(Tolerance(1e-4, 1e-4), method), 0
        )
        w = np.asarray(server.inner.units.parameters * server.inner.inner.centre)
        np.testing.assert_allclose(w[0], [0.5, 0.5 / unit])
        np.testing.assert_allclose(w[1] + w[2], 2 * w[0])  # on either side
        np.testing.assert_allclose(w[3] + w[4], 2 * w[0])
        starts.append(w * [1.0, unit])
    np.testing.assert_allclose(*starts)
    assert 0.1 < np.abs(starts[0][1:] - 0.5).mean() < 10


# arguments


@pytest.mark.parametrize("starts", [0, -1, 2.0, True, "5", None])
def test_bad_numbers_of_starts(starts: Any) -> None:
    with pytest.raises(ValueError, match=r"^solve\(starts=.*: a positive whole number"):
        solved(LBFGS, starts=starts)


def test_disclosing_from_several_starts() -> None:
    with pytest.raises(ValueError, match="disclose=True: from 2 starts"):
        solved(LBFGS, starts=2, disclose=True)


@pytest.mark.parametrize("algorithm", [fp.SSCA(batch=2), fp.FedAvg(step=0.1, local_steps=1)])
def test_methods_that_begin_from_one_start(algorithm: fp.Algorithm) -> None:
    name = type(algorithm).__name__
    with pytest.raises(ValueError, match=rf"^starts=2: {name} begins from one start, unlike fp.InteriorPoint.*seed="):
        solved(algorithm, starts=2)
