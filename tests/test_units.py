"""Units do not matter: columns, constraints and the objective multiplied by anything give the same run."""

from typing import Any

import numpy as np
import pytest

import fedpact as fp
from fedpact.problem.flat_regularizer import FlatRegularizer
from fedpact.problem.units import Units

ROWS, D = 60, 4
FACTORS = np.array([1e-6, 1e3, 1.0, 1e6])
METHODS = {
    "interior point": (fp.InteriorPoint(), 1e-6, 0),
    "Newton": (fp.ProxAL(fp.Newton()), 1e-6, 1),
    "LBFGS": (fp.ProxAL(fp.LBFGS()), 1e-4, 5),
}


def tables(columns: np.ndarray | float = 1.0) -> list[fp.Table]:
    """Two classes that no model separates, at three parties."""
    rng = np.random.default_rng(3)
    found = []
    for _ in range(3):
        x = rng.normal(size=(ROWS, D))
        y = (x @ [1.0, -1.0, 0.5, 0.0] + 1.5 * rng.normal(size=ROWS) > 0).astype(int)
        found.append(fp.Table(x=x * columns, y=y))
    return found


def problem(objective: float = 1.0, constraint: float = 1.0, bound: float = 0.5) -> fp.Problem:
    loss = fp.logistic_loss(fp.linear(bias=True))
    kept = (constraint * fp.mean(loss, where=fp.col("y") == 1) <= constraint * bound).named("kept")
    return fp.minimize(objective * fp.mean(loss, where=fp.col("y") == 0), [kept])


def weights(result: fp.Result, columns: np.ndarray | float = 1.0) -> np.ndarray:
    params: Any = result.params
    return np.append(np.asarray(params["w"]) * columns, params["b"])


@pytest.fixture(scope="module", params=METHODS)
def usual(request: pytest.FixtureRequest) -> tuple[Any, float, int, fp.Result]:
    method, tolerance, slack = METHODS[request.param]
    result = fp.solve(problem(), tables(), method, tolerance=tolerance)
    assert result.converged, result.message
    return method, tolerance, slack, result


@pytest.mark.parametrize(
    ("columns", "objective", "constraint"),
    [(FACTORS, 1.0, 1.0), (1.0, 1e6, 1e-6), (FACTORS, 1e-6, 1e6)],
    ids=["columns", "objective up, constraint down", "all"],
)
def test_no_unit_matters(
    usual: tuple[Any, float, int, fp.Result], columns: Any, objective: float, constraint: float
) -> None:
    method, tolerance, slack, wanted = usual
    found = fp.solve(problem(objective, constraint), tables(columns), method, tolerance=tolerance)
    assert found.converged, found.message
    assert abs(found.rounds - wanted.rounds) <= slack
    scale = np.append(columns * np.ones(D), 1.0)
    np.testing.assert_allclose(weights(found) * scale, weights(wanted), rtol=1e-4 if slack else 1e-6, atol=1e-5)
    assert found.objective == pytest.approx(objective * wanted.objective, rel=10 * tolerance)
    price = objective / constraint
    theirs, ours = found.constraint("kept").multipliers, wanted.constraint("kept").multipliers
    np.testing.assert_allclose(theirs, price * np.asarray(ours), rtol=1e-2, atol=1e-4 * price)
    for number in ("stationarity", "feasibility", "complementarity"):
        assert getattr(found.certificate, number) <= tolerance


def test_without_scaling_the_numbers_are_the_problems_own() -> None:
    result = fp.solve(problem(), tables(), tolerance=1e-6, scale=False)
    assert result.converged
    assert result.certificate.units is None
    assert "certificate.units" not in str(result)
    assert all(report.unit == 1.0 for report in result.certificate.constraints)


def test_the_first_penalty_is_relative_to_the_constraints_slopes() -> None:
    """Without scaling too: β c² is the same for a constraint that is a thousand times as large."""
    runs = [
        fp.solve(problem(constraint=factor), tables(), fp.ProxAL(fp.Newton()), tolerance=1e-6, scale=False)
        for factor in (1.0, 1000.0)
    ]
    assert all(run.converged for run in runs)
    first = [float(run.history["beta"][0]) for run in runs]
    assert first[0] == pytest.approx(1e6 * first[1], rel=1e-9)


def test_the_certificate_is_in_its_units() -> None:
    """Recomputed by hand from parameters, multipliers and units."""
    parties = tables(FACTORS)
    result = fp.solve(problem(1e3, 1e-3), parties, tolerance=1e-4)
    c, units = result.certificate, result.certificate.units
    assert units is not None
    assert "certificate.units" in str(result)
    x, w = [np.column_stack([t["x"], np.ones(ROWS)]) for t in parties], weights(result)
    order = np.r_[D, :D]  # the tree is in the order of its keys: b, w
    gradient, violation = np.zeros(D + 1), 0.0
    for i, table in enumerate(parties):
        y, score = np.asarray(table["y"]), x[i] @ w
        slope = np.where(y == 1, -1.0, 1.0) / (1.0 + np.exp(np.where(y == 1, score, -score)))
        loss = np.logaddexp(0.0, np.where(y == 1, -score, score))
        gradient += 1e3 / 3 * (slope[y == 0] @ x[i][y == 0]) / np.sum(y == 0)
        gradient += 1e-3 * c.party_multipliers[i, 0] * (slope[y == 1] @ x[i][y == 1]) / np.sum(y == 1)
        violation = max(violation, 1e-3 * (np.mean(loss[y == 1]) - 0.5))
    scaled = gradient[order] * units.parameters / units.objective
    assert np.max(np.abs(scaled)) == pytest.approx(c.stationarity, rel=1e-6, abs=1e-12)
    assert violation / units.party_constraints[0] == pytest.approx(c.feasibility, rel=1e-6, abs=1e-12)
    assert c.constraints[0].unit == units.party_constraints[0]


def test_a_saved_run_is_verified_in_units_found_again(tmp_path: Any) -> None:
    stated, parties = problem(), tables(FACTORS)
    result = fp.solve(stated, parties, tolerance=1e-6, save=tmp_path / "run")
    found = fp.verify(tmp_path / "run", stated, parties)
    assert found.ok
    for number in ("stationarity", "feasibility", "complementarity"):
        assert getattr(found, number) == pytest.approx(getattr(result.certificate, number), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("h", [fp.l1(0.3) + fp.l2(0.2), fp.box(-1.0, 0.5), fp.group(0.7) + fp.l2(0.1)], ids=str)
def test_a_regulariser_in_other_units_is_the_same_function(h: Any) -> None:
    rng, params = np.random.default_rng(0), {"w": np.zeros(1)}
    own: FlatRegularizer = h.flat(params)
    none = np.ones(0)
    for _ in range(20):
        unit, phi = np.exp(rng.normal(size=1)), np.exp(rng.normal())
        units: Any = Units(unit, phi, none, none, none)  # pyright: ignore
        other = own.in_units(units)
        w, gradient = np.asarray(own.prox(rng.normal(size=1), 1.0)), rng.normal(size=1)
        assert phi * float(other.value(w / unit)) == pytest.approx(float(own.value(w)))
        assert float(own.distance(w, gradient)) == pytest.approx(
            phi / unit[0] * float(other.distance(w / unit, unit * gradient / phi))
        )
        step = np.exp(rng.normal())
        there = unit * np.asarray(other.prox(w / unit, step * phi / unit[0] ** 2))
        np.testing.assert_allclose(there, np.asarray(own.prox(w, step)))


def test_scale_is_true_or_false() -> None:
    with pytest.raises(TypeError, match="scale='yes': True or False"):
        fp.solve(problem(), tables(), scale="yes")  # pyright: ignore


def test_an_objective_that_only_its_regulariser_bends_keeps_its_size() -> None:
    """No row is at the hinge's corner at the start: Newton's step there promises the more, the larger the columns are."""
    loss = fp.mean(fp.smoothed_hinge_loss(fp.linear(bias=True), width=0.5))
    result = fp.solve(fp.minimize(loss, [loss <= 0.95], fp.l2(1e-8)), tables(1e6))
    assert result.converged, result.message
    assert result.certificate.units is not None
    assert result.certificate.units.objective == pytest.approx(0.75), "what it is at the start"
    standard = fp.solve(fp.minimize(loss, [loss <= 0.95], fp.l2(1e-9)), tables())
    assert result.objective == pytest.approx(standard.objective, rel=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_a_slope_that_is_rounding_makes_no_units(seed: int) -> None:
    """At 0 a gap between groups has no slope along the bias but what the sum's rounding leaves."""
    rng = np.random.default_rng(seed)
    sex, x = rng.choice(["F", "M"], 3 * ROWS), rng.normal(size=(3 * ROWS, 2))
    y = (x @ [1.5, -1.0] + rng.logistic(size=3 * ROWS) > 0).astype(int)
    parties = fp.split_rows({"x": x, "y": y, "sex": sex}, parties=3, seed=0)
    model = fp.linear(bias=True)
    gap = fp.demographic_parity_gap(model, group="sex").pooled()
    result = fp.solve(fp.minimize(fp.mean(fp.logistic_loss(model)), [gap <= 0.02], fp.l2(1e-3)), parties)
    assert result.converged, result.message
    assert result.certificate.units is not None
    sizes = np.asarray(result.certificate.units.parameters)
    assert sizes.max() <= 100 * sizes.min()
