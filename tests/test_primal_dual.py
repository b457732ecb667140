"""PrimalDual on pooled problems whose solution is known, with every regulariser that it takes."""

import numpy as np
import pytest
from problems import CASES, GROUPS, SIZES, SQUARED, excess, regression

import fedpact as fp
from fedpact.problem.regularizers import Regularizer


def test_the_known_solution_is_found() -> None:
    """An inequality and an equality over all rows."""
    case = CASES["pooled"]
    result = case.solve(fp.PrimalDual(), 1e-6)
    assert result.status == "converged", result.message
    np.testing.assert_allclose(result.params["w"], case.optimum.w, atol=1e-4)
    np.testing.assert_allclose(result.certificate.pooled_multipliers, case.optimum.pooled, atol=1e-4)


@pytest.mark.parametrize(
    ("h", "limit"),
    [
        pytest.param(fp.l1(0.2), 0.15, id="l1"),
        pytest.param(fp.box(-0.3, 0.5), 1.75, id="box"),
        pytest.param(fp.l1(0.1) + fp.l2(0.05) + fp.box(-0.6, 1.0), 1.15, id="l1, l2 and box"),
        pytest.param(fp.group(0.3, groups=GROUPS), 0.15, id="group"),
    ],
)
def test_regularisers(h: Regularizer, limit: float) -> None:
    tables = regression(5, SIZES, (0.3, 0.4, 0.35))
    problem = fp.minimize(fp.mean(SQUARED).pooled(), [(fp.mean(excess).pooled() <= limit).named("limit")], h)
    best = fp.solve(problem, tables, fp.InteriorPoint(), tolerance=1e-8)
    found = fp.solve(problem, tables, fp.PrimalDual(), tolerance=1e-6)
    assert (best.status, found.status) == ("converged", "converged")
    assert best.constraint("limit").multipliers[0] > 1e-2
    np.testing.assert_allclose(found.params["w"], best.params["w"], atol=1e-4)
    np.testing.assert_array_equal(found.params["w"] == 0, best.params["w"] == 0)
    assert found.objective == pytest.approx(best.objective, rel=1e-5)


def test_without_constraints_it_is_gradient_descent() -> None:
    tables = regression(5, SIZES, (0.3, 0.4, 0.35))
    problem = fp.minimize(fp.mean(SQUARED).pooled())
    found = fp.solve(problem, tables, fp.PrimalDual(), tolerance=1e-8)
    x, y = (np.concatenate([t[name] for t in tables]) for name in ("x", "y"))
    assert found.converged
    np.testing.assert_allclose(found.params["w"], np.linalg.lstsq(x, y)[0], atol=1e-6)


def test_the_first_step_has_the_stated_length() -> None:
    tables = regression(5, SIZES, (0.3, 0.4, 0.35))
    problem = fp.minimize(fp.mean(SQUARED).pooled())
    found = fp.solve(problem, tables, fp.PrimalDual(step=0.25), max_rounds=1)
    assert np.linalg.norm(found.params["w"]) == pytest.approx(0.25)


def test_the_mean_of_the_points_weighs_late_ones_more() -> None:
    """After two rounds 1/5 of the first point and 4/5 of the second."""
    tables = regression(5, SIZES, (0.3, 0.4, 0.35))
    problem = fp.minimize(fp.mean(SQUARED).pooled())
    first, second, mean = (
        fp.solve(problem, tables, fp.PrimalDual(average=average), max_rounds=rounds).params["w"]
        for average, rounds in ((False, 1), (False, 2), (True, 2))
    )
    np.testing.assert_allclose(mean, 0.2 * first + 0.8 * second, atol=1e-12)
