"""Bindings that are remembered: only for the same things, only where no user's function takes part, and not for ever."""

import gc
import pathlib
import types
import weakref
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import classes

import fedpact as fp
from fedpact.settings import bind, remembered

LOSS = fp.logistic_loss(fp.linear())
LIMIT = fp.mean(LOSS, where=fp.col("y") == 1) <= 0.6


def stated() -> fp.Problem:
    return fp.minimize(fp.mean(LOSS), [LIMIT], fp.l2(0.01))


def parties(seed: int = 0) -> fp.Parties:
    return fp.split_rows(classes(seed, (12, 9)))


@pytest.fixture(autouse=True)
def nothing_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(remembered, "_bindings", {})
    with jax.enable_x64(True):
        yield


def test_an_equal_problem_over_the_same_tables_is_bound_once() -> None:
    problem, federation, server = stated(), parties(), fp.Table(classes(1, (8,))[0])
    first = bind(problem, federation)
    assert bind(problem, federation) is first
    assert bind(stated(), federation) is first, "an equal one"
    others = [
        bind(fp.minimize(fp.mean(LOSS), [LIMIT], fp.l2(0.02)), federation),
        bind(problem, parties()),
        bind(problem, federation, server),
        bind(problem, federation, start={"w": np.ones(first.shape.size)}),
        bind(problem, federation, start={"w": np.zeros(first.shape.size)}),
        bind(problem, federation, disclose=False),
    ]
    assert len({id(bound) for bound in [first, *others]}) == 1 + len(others)


def test_a_binding_of_another_precision_is_another_one() -> None:
    problem, federation = stated(), parties()
    with jax.enable_x64(False):
        single = bind(problem, federation)
    assert bind(problem, federation) is not single
    assert fp.solve(problem, federation).converged


def test_a_start_drawn_by_another_generator_is_another_one() -> None:
    problem = fp.minimize(fp.mean(fp.logistic_loss(fp.mlp([3, 2, 1]))), [], fp.l2(0.01))
    federation = parties()
    first = bind(problem, federation)
    with jax.threefry_partitionable(not jax.config.jax_threefry_partitionable):
        assert bind(problem, federation) is not first
    assert bind(problem, federation) is first


def test_results_are_the_same_to_the_bit() -> None:
    problem, federation = stated(), parties()
    first, again = (fp.solve(problem, federation, tolerance=1e-6) for _ in range(2))
    fresh = fp.solve(stated(), parties(), tolerance=1e-6)
    for other in (again, fresh):
        np.testing.assert_array_equal(first.params["w"], other.params["w"])
        np.testing.assert_array_equal(first.history["objective"], other.history["objective"])


WEIGHT = [1.0]
RIDGE = fp.prox(
    lambda params, t: {"w": params["w"] / (1 + 2 * WEIGHT[0] * t)}, lambda params: WEIGHT[0] * jnp.sum(params["w"] ** 2)
)


@pytest.mark.parametrize(
    "problem",
    [
        lambda: fp.minimize(fp.mean(fp.loss(lambda scores, _: WEIGHT[0] * scores**2, fp.linear()))),
        lambda: fp.minimize(fp.mean(LOSS) + fp.value(lambda params, rows: WEIGHT[0] * jnp.sum(params["w"] ** 2))),
        lambda: fp.minimize(fp.mean(LOSS), [], RIDGE),
    ],
)
def test_what_a_users_function_reads_is_read_again(problem: Any) -> None:
    federation, own = parties(), problem()
    assert bind(own, federation) is not bind(own, federation)
    assert not remembered._bindings


def test_large_ones_and_old_ones_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    federation = parties()
    problems = [fp.minimize(fp.mean(LOSS), [], fp.l2(0.1 * k)) for k in range(1, remembered.KEPT + 2)]
    bounds = [bind(problem, federation) for problem in problems]
    assert len(remembered._bindings) == remembered.KEPT
    assert bind(problems[-1], federation) is bounds[-1]
    assert bind(problems[0], federation) is not bounds[0]
    monkeypatch.setattr(remembered, "MOST", 10)
    assert bind(stated(), federation) is not bind(stated(), federation)


def test_what_their_owner_has_changed_is_read_again() -> None:
    federation, highest, pulls = parties(), np.ones(3), {"party 1": 1.0, "party 2": 2.0}
    bounded = fp.minimize(fp.mean(LOSS), [], fp.sets.box(-1.0, highest))
    own = fp.minimize(fp.mean(LOSS), personal=fp.Personal([fp.sets.l2_ball(1.0)] * 2, pull=pulls))
    before = [bind(problem, federation) for problem in (bounded, own)]
    assert [bind(problem, federation) for problem in (bounded, own)] == before
    highest[0], pulls["party 1"] = 0.5, 7.0
    for problem, old in zip((bounded, own), before, strict=True):
        leaves = jax.tree.leaves(bind(problem, federation)), jax.tree.leaves(old)
        assert not all(np.array_equal(new, was) for new, was in zip(*leaves, strict=True))


def test_frames_files_and_mappings_are_not_kept(tmp_path: pathlib.Path) -> None:
    federation, rows = parties(), classes(1, (8,))[0]
    assert bind(stated(), federation, dict(rows)) is not bind(stated(), federation, dict(rows))
    read_only = types.MappingProxyType({name: federation[name] for name in federation})
    assert bind(stated(), read_only).names == federation.names
    assert not remembered._bindings
    frame = tmp_path / "server.csv"
    frame.write_text("a,b,c,y\n" + "\n".join(f"{k},1,2,{k % 2}" for k in range(4)))
    flat = fp.minimize(fp.mean(LOSS), [(fp.value(fp.squared_norm) <= 9.0).at_server()], fp.l2(0.01))
    assert "InteriorPoint" in str(fp.explain(flat, federation, server=str(frame)))


def test_a_binding_goes_with_its_tables() -> None:
    federation = parties()
    bound = weakref.ref(bind(stated(), federation))
    assert len(remembered._bindings) == 1
    del federation
    gc.collect()
    assert not remembered._bindings
    assert bound() is None


def test_an_error_is_raised_every_time() -> None:
    federation = fp.split_rows([{"x": np.ones((3, 2)), "y": np.array([0, 1, 2])}])
    problem = stated()
    for _ in range(2):
        with pytest.raises(ValueError, match="label"):
            bind(problem, federation)
