"""Multipliers to begin with: μ⁰ of the papers, and warm starts after a bound has changed."""

import functools
from typing import Any

import columns
import numpy as np
import pytest
from problems import classes

import fedpact as fp

TABLES = classes(0, (30, 40), d=3)
LOSS = fp.logistic_loss(fp.linear())
NEWTON = fp.ProxAL(fp.Newton())  # the server on the host: little to compile


def stated(bound: float) -> fp.Problem:
    """A limit at each party, one over all rows and a two-sided one at the server."""
    ones, zeros = (fp.mean(LOSS, where=fp.col("y") == label) for label in (1, 0))
    first = fp.value(lambda params, _: params["w"][0]).at_server()
    return fp.minimize(
        fp.mean(LOSS),
        [
            (ones <= bound).named("ones"),
            (zeros.pooled() <= 0.66).named("zeros"),
            first.between(-0.1, 0.05).named("first"),
        ],
        fp.l2(0.01),
    )


@functools.cache
def solved() -> fp.Result:
    before = fp.solve(stated(0.61), TABLES, fp.InteriorPoint(), tolerance=1e-9)
    assert before.converged
    assert min(max(before.constraint(name).multipliers) for name in ("ones", "zeros", "first")) > 1e-3
    return before


@pytest.mark.parametrize("method", [NEWTON, fp.CentralProxAL()], ids=["Newton", "central"])
def test_a_solved_problem_is_solved(method: fp.Algorithm) -> None:
    """With the multipliers of the answer the answer is one: it is seen in a round or two, in another's units as well."""
    plain = fp.solve(stated(0.61), TABLES, method, start=solved().params, tolerance=1e-5)
    warm = fp.solve(stated(0.61), TABLES, method, start=solved(), tolerance=1e-5)
    assert warm.converged
    assert warm.rounds <= 3 < plain.rounds, (warm.rounds, plain.rounds)


def test_a_warm_start_after_a_bound_has_changed() -> None:
    rounds = {
        name: fp.solve(stated(0.605), TABLES, NEWTON, tolerance=1e-6, start=start).rounds
        for name, start in (("cold", None), ("parameters", solved().params), ("both", solved()))
    }
    assert rounds["both"] < min(rounds["cold"], rounds["parameters"]), rounds


def test_given_by_name() -> None:
    before = solved()
    ones, zeros, first = (before.constraint(name).multipliers for name in ("ones", "zeros", "first"))
    given: Any = {"ones": ones, "zeros": zeros[0], "first": [[first[0], 0]]}
    warm = fp.solve(stated(0.61), TABLES, NEWTON, start=before.params, multipliers=given, tolerance=1e-5)
    same = fp.solve(stated(0.61), TABLES, NEWTON, start=before, tolerance=1e-5)
    assert warm.rounds == same.rounds <= 3
    np.testing.assert_allclose(warm.params["w"], same.params["w"], rtol=0, atol=1e-12)


def test_as_printed_begins_with_them() -> None:
    """A party's first μ⁺ = [μ⁰ + βc(w⁰)]₊; the server's own, of form (4) too, move when a subproblem has been begun."""
    ones, zeros = (fp.mean(LOSS, where=fp.col("y") == label) for label in (1, 0))
    limits = [(ones <= 0.5).named("ones"), (zeros.pooled() <= 0.6).named("zeros")]
    problem = fp.minimize(fp.mean(LOSS), limits, fp.l2(0.01))
    given = {"ones": [0.3, 0.7], "zeros": 2}
    method, start = fp.ProxAL.as_printed(beta=2), {"w": np.zeros(3)}
    told = fp.solve(problem, TABLES, method, multipliers=given, max_rounds=1, start=start).certificate
    excess = 2 * (np.log(2) - 0.5)
    np.testing.assert_allclose(told.party_multipliers, [[0.3 + excess], [0.7 + excess]], rtol=1e-12)
    np.testing.assert_allclose(told.pooled_multipliers, [2.0], rtol=1e-12)


@pytest.mark.parametrize("step", [None, 0.1], ids=["searched", "stepped"])
def test_over_columns(step: float | None) -> None:
    method = fp.FairVFL(step=step) if step is None else fp.FairVFL(step=step, rho=0, dual_step=0.1, local_steps=1)
    before = fp.solve(columns.fair(), columns.PARTIES, fp.FairVFL(), tolerance=1e-7)
    warm, plain = (
        fp.solve(columns.fair(), columns.PARTIES, method, tolerance=1e-5, max_rounds=3000, start=start)
        for start in (before, before.params)
    )
    assert warm.converged
    assert warm.rounds <= 3 < plain.rounds


def test_constraints_that_are_new_begin_with_none() -> None:
    before = solved()
    other = fp.minimize(fp.mean(LOSS), [(fp.mean(LOSS) <= 0.6).named("new")], fp.l2(0.01))
    a, b = (fp.solve(other, TABLES, NEWTON, start=start, max_rounds=3) for start in (before, before.params))
    np.testing.assert_array_equal(a.history["objective"], b.history["objective"])


def test_another_start_is_not_resumed(tmp_path: Any) -> None:
    options: Any = {"save": tmp_path / "run", "max_rounds": 2}
    fp.solve(stated(0.61), TABLES, NEWTON, **options)
    with pytest.raises(ValueError, match="another starting point"):
        fp.solve(stated(0.61), TABLES, NEWTON, multipliers={"ones": 1}, resume=True, **options)


@pytest.mark.parametrize(
    ("method", "multipliers", "more", "words"),
    [
        (NEWTON, {"one": 1}, {}, "names 'one', but the constraints are 'ones', 'zeros', 'first'"),
        (NEWTON, {"ones": -1}, {}, "'ones'.*not negative"),
        (NEWTON, {"ones": [1, 2, 3]}, {}, r"one for each holder \(2\)"),
        (NEWTON, {"ones": 1}, {"starts": 2}, "one start"),
        (NEWTON, 3, {}, "by name of constraint"),
        (fp.InteriorPoint(), {"ones": 1}, {}, "InteriorPoint begins with none"),
    ],
)
def test_what_is_refused(method: fp.Algorithm, multipliers: Any, more: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        fp.solve(stated(0.61), TABLES, method, multipliers=multipliers, **more)
