"""Personal models in the parties' own sets: PC-FedAvg, the exact method, and what leaves a party."""

import dataclasses
import functools
import json
import pathlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedpact as fp
from fedpact.algorithms.parts.batches import folded_key, rows_of
from fedpact.engines.local import LocalNetwork
from fedpact.problem.fingerprint import digest
from fedpact.protocol.algorithm import Begin, Goal, Method
from fedpact.protocol.phases import Ask, ServerData, play
from fedpact.protocol.sampling import chosen
from fedpact.run import drivers
from fedpact.settings import bind

D = 4


def federation(m: int, rows: int = 30, seed: int = 0) -> fp.Parties:
    """Regression whose parties disagree: each has weights of its own."""
    rng = np.random.default_rng(seed)
    tables = []
    for _ in range(m):
        x = rng.normal(size=(rows, D))
        tables.append(fp.Table(x=x, y=x @ rng.normal(1.0, 1.0, size=D) + 0.1 * rng.normal(size=rows)))
    return fp.split_rows(tables)


def stated(m: int, pull: Any = None, sets: Any = None, **more: Any) -> fp.Problem:
    given = sets if sets is not None else [fp.l1_ball(0.5 + 0.2 * i) for i in range(m)]
    weights = [0.05 * (1 + i) for i in range(m)] if pull is None else pull
    return fp.minimize(fp.mean(fp.squared_loss(fp.linear())), personal=fp.Personal(sets=given, pull=weights), **more)


# the O(n) form against the algorithm as it is printed, with a block for every pair of parties


def multi_block(problem: fp.Problem, parties: fp.Parties, method: fp.PCFedAvg, rounds: int) -> np.ndarray:
    """Algorithm 1, line by line, on an array of copies [party i, block j]; the blocks that the server ends with."""
    bound = bind(problem, parties)
    (own,) = bound.stacks
    assert isinstance(method.step, float)
    assert isinstance(method.penalty, float)
    m, gamma, rho, pull = len(parties), method.step, method.penalty, own.personal.pull

    def gradient(alone: Any, at: jax.Array, key: jax.Array) -> jax.Array:
        batch = rows_of(alone, key, method.batch)
        return jax.grad(lambda w: m * batch(w).objective)(at)

    @jax.jit
    def one_round(blocks: jax.Array, key: jax.Array) -> jax.Array:
        def once(copies: jax.Array, turn: jax.Array) -> tuple[jax.Array, None]:
            means = copies.mean(1)  # line 6
            g = jax.vmap(gradient, (0, 0, None))(own, means, folded_key(key, turn))  # lines 5 and 7
            mine = copies[jnp.arange(m), jnp.arange(m)]
            outside = mine - jax.vmap(lambda personal, x: personal.project(x))(own.personal, mine)
            cross = (mine - means)[:, None] if method.corrected else copies - means[:, None]
            others = g[:, None] / m - pull[:, None, None] / m * cross
            ours = g / m + rho * outside + pull[:, None] * (m - 1) / m * (mine - means)
            moved = jnp.broadcast_to(others, copies.shape).at[jnp.arange(m), jnp.arange(m)].set(ours)
            return copies - gamma * moved, None  # line 8

        copies = jnp.broadcast_to(blocks, (m, *blocks.shape))  # line 3
        copies, _ = jax.lax.scan(once, copies, jnp.arange(1, method.local_steps + 1))
        return copies.mean(0)  # line 10

    key = jax.random.key_data(jax.random.key(0))
    blocks = jnp.zeros((m, bound.shape.size))
    for t in range(1, rounds + 1):
        blocks = one_round(blocks, folded_key(key, t))
    return np.asarray(blocks)


@pytest.mark.parametrize("m", [2, 4, 10])
@pytest.mark.parametrize("printed", [False, True], ids=["corrected", "printed"])
def test_small_messages_do_what_all_blocks_do(m: int, printed: bool) -> None:
    make = fp.PCFedAvg.as_printed if printed else fp.PCFedAvg
    method = make(step=0.02, local_steps=20, penalty=5.0, batch=7)
    problem, parties = stated(m), federation(m)
    result = fp.solve(problem, parties, method, max_rounds=100, seed=0)
    expected = multi_block(problem, parties, method, 100)
    assert result.unprojected is not None
    found = np.stack([result.unprojected[name]["w"] for name in parties.names])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    assert np.abs(found).max() > 0.1
    far = np.linalg.norm(found - [result.params[name]["w"] for name in parties.names], axis=1)
    assert list((result.moved or {}).values()) == pytest.approx(far)


def test_corrected_and_printed_differ() -> None:
    """With equal pulls the printed line pulls nothing: parties without a set go where the mean loss is least."""
    problem, parties = (
        stated(3, pull=0.5, sets=[fp.l1_ball(0.2), fp.sets.everywhere(), fp.sets.everywhere()]),
        federation(3),
    )
    exact = fp.solve(problem, parties, tolerance=1e-9).params
    far = {}
    for make in (fp.PCFedAvg, fp.PCFedAvg.as_printed):
        found = fp.solve(problem, parties, make(step=0.01, local_steps=1, penalty=100.0), max_rounds=2000).unprojected
        assert found is not None
        far[make] = max(np.abs(found[name]["w"] - exact[name]["w"]).max() for name in parties.names)
    assert far[fp.PCFedAvg] < 0.05
    assert far[fp.PCFedAvg.as_printed] > 5 * far[fp.PCFedAvg]


def test_partial_participation_averages_over_those_asked() -> None:
    """Against all blocks: with p of m asked, every block is the mean of the copies of those p."""
    m, asked = 4, 2
    problem, parties = stated(m), federation(m)
    method = fp.PCFedAvg(step=0.02, local_steps=3, penalty=5.0, participation=asked / m)
    result = fp.solve(problem, parties, method, max_rounds=30, seed=0)
    (own,) = bind(problem, parties).stacks
    key, blocks = jax.random.key_data(jax.random.key(0)), np.zeros((m, D))
    for t in range(1, 31):
        now = folded_key(key, t)
        who = [i for i in range(m) if bool(chosen(now, jnp.asarray(i), m, asked))]
        assert len(who) == asked
        copies = []
        for i in who:
            alone = jax.tree.map(lambda leaf, i=i: leaf[i], own)
            copy, sigma = blocks.copy(), float(alone.personal.pull)
            for _ in range(3):
                mean = copy.mean(0)
                g = m * np.asarray(slope(alone, jnp.asarray(mean)))
                step = np.tile(g / m - sigma / m * (copy[i] - mean), (m, 1))
                outside = np.asarray(beyond(alone, jnp.asarray(copy[i])))
                step[i] = g / m + 5.0 * outside + sigma * (m - 1) / m * (copy[i] - mean)
                copy = copy - 0.02 * step
            copies.append(copy)
        blocks = np.mean(copies, axis=0)
    assert result.unprojected is not None
    found = np.stack([result.unprojected[name]["w"] for name in parties.names])
    np.testing.assert_allclose(found, blocks, rtol=0, atol=1e-12)


@jax.jit
def slope(own: Any, w: jax.Array) -> jax.Array:
    return jax.grad(lambda w: own(w).objective)(w)


@jax.jit
def beyond(own: Any, x: jax.Array) -> jax.Array:
    return own.personal.outside(x)


METHODS: dict[str, fp.Algorithm] = {
    "PCFedAvg": fp.PCFedAvg(step=0.05, local_steps=4, penalty=5.0, batch=8),
    "PCFedAvg, half": fp.PCFedAvg(step=0.05, local_steps=4, penalty=5.0, batch=8, participation=0.5),
    "as printed": fp.PCFedAvg.as_printed(step=0.05, local_steps=4, penalty=5.0),
    "PersonalProjected": fp.PersonalProjected(),
    "FedAvg": fp.FedAvg(step=0.05, local_steps=4, penalty=5.0),
    "FedAvg, plain": fp.FedAvg(step=0.05, local_steps=4, batch=8),
    "FedProx": fp.FedProx(mu=0.1, step=0.05, local_steps=4, penalty=5.0),
    "FedProx, plain": fp.FedProx(mu=0.1, step=0.05, local_steps=4, batch=8),
    "SCAFFOLD": fp.SCAFFOLD(step=0.05, local_steps=4, penalty=5.0, participation=0.5),
    "SCAFFOLD, plain": fp.SCAFFOLD(step=0.05, local_steps=4, batch=8, participation=0.5),
}
OWN = ("PCFedAvg", "PCFedAvg, half", "as printed", "PersonalProjected")
every_method = pytest.mark.parametrize("name", METHODS)


@every_method
def test_bytes_of_a_party_do_not_depend_on_how_many_there_are(name: str) -> None:
    told = [fp.explain(stated(m), federation(m), METHODS[name]) for m in (2, 4, 10)]
    assert len({(t.bytes_up, t.bytes_down) for t in told}) == 1
    assert told[0].bytes_up <= 8 * (3 * D + 8)


# what leaves a party


@every_method
def test_a_set_never_leaves_its_party(name: str, tmp_path: pathlib.Path) -> None:
    """No message down, no reply, and nothing of the server's changes with a set that does not bind; nor is it saved."""
    m = 3
    parties = federation(m)
    first, second = (
        [fp.sets.l2_ball(r) for r in radii] for radii in ((701.25, 802.5, 903.75), (1701.25, 1802.5, 1903.75))
    )
    seen: list[list[Any]] = []
    for sets in (first, second):
        bound = bind(stated(m, sets=sets), parties)
        method = METHODS[name].bind(bound.setting)
        said = listened(method, LocalNetwork.of(bound), bound.server_data, bound.start)
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(said)]
        for radius in (701.25, 802.5, 903.75, 1701.25, 1802.5, 1903.75):
            assert not any(np.any(np.isclose(leaf, radius)) for leaf in leaves if leaf.dtype.kind == "f")
        seen.append(leaves)
    for one, other in zip(*seen, strict=True):
        np.testing.assert_array_equal(one, other)
    folder = tmp_path / "run"
    fp.solve(stated(m, sets=first), parties, METHODS[name], max_rounds=3, save=folder)
    words = "".join(path.read_text() for path in folder.glob("*.json"))
    assert not any(told in words for told in ("701.25", "802.5", "903.75", "ball", "0.15"))
    for path in folder.glob("*.npz"):
        with np.load(path) as saved:
            for key in saved.files:
                assert not np.any(np.isin(saved[key], [701.25, 802.5, 903.75])), key
    owner = json.loads(np.load(folder / "state.npz")["owner"].tobytes())
    assert owner["problem"] == digest(stated(m, sets=second).public)


@functools.partial(jax.jit, static_argnums=0)
def listened(method: Method, network: LocalNetwork, own: ServerData, start: jax.Array) -> Any:
    """Everything that is said in three rounds, and the states after them."""
    heard = Listening(network)
    begin = Begin(start, Goal(jnp.asarray(1e-9), jnp.asarray(1e-9)), seed_of(0))
    server, states, _ = play(method.opening, own, heard, begin, None)
    for _ in range(3):
        carry, states, _ = play(method.round, own, heard, server, states)
        server, _ = method.finish(own, carry)
    return heard.heard, server, states


class Listening:
    """A network that keeps what was said."""

    def __init__(self, network: LocalNetwork):
        self.network = network
        self.heard: list[Any] = []

    def exchange(self, asks: Sequence[Ask], states: Any) -> Any:
        replies, states = self.network.exchange(asks, states)
        self.heard.append(([ask.message for ask in asks], replies))
        return replies, states


def seed_of(number: int) -> jax.Array:
    return jax.random.key_data(jax.random.key(number))


def test_the_words_of_a_problem_do_not_tell_its_sets() -> None:
    problem = stated(2, sets=[fp.l1_ball(701.25), fp.sets.l2_ball(802.5)], pull=[0.125, 0.375])
    assert "own set" in str(problem)
    assert not any(number in str(problem) for number in ("701", "802", "125", "375"))


# the exact method against an independent solver


def as_far_as_it_goes(problem: cp.Problem) -> None:
    """Clarabel, asked for more than it can reach where balls are round: it ends some digits before and says so."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Solution may be inaccurate")
        problem.solve(cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
    assert problem.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE)


def bounds(x: cp.Variable, kind: str, place: int) -> list[Any]:
    radius = 0.4 + 0.3 * place
    low = np.array([-0.1, 0.2, -0.3, 0.0])
    return {
        "l1": [cp.norm1(x) <= radius],
        "l2": [cp.norm2(x) <= radius],
        "linf": [cp.norm_inf(x) <= radius],
        "box": [x >= low, x <= low + radius],
        "nonnegative": [x >= 0],
        "simplex": [x >= 0, cp.sum(x) == radius],
        "affine": [np.ones(D) @ x == radius, np.arange(D) @ x == 0.5],
        "halfspace": [np.arange(1.0, D + 1) @ x <= radius],
        "nonnegative l1": [x >= 0, cp.norm1(x) <= radius],
        "nonnegative l2": [x >= 0, cp.norm2(x) <= radius],
        "everywhere": [],
        "function": [cp.norm2(x - 1.0) <= radius],
    }[kind]


def region(kind: str, place: int) -> Any:
    radius = 0.4 + 0.3 * place
    low = np.array([-0.1, 0.2, -0.3, 0.0])

    def near_one(params: Any) -> Any:
        away = params["w"] - 1.0
        return {"w": 1.0 + away * jnp.minimum(1.0, radius / jnp.maximum(jnp.linalg.norm(away), 1e-12))}

    return {
        "l1": fp.l1_ball(radius),
        "l2": fp.sets.l2_ball(radius),
        "linf": fp.sets.linf_ball(radius),
        "box": fp.sets.box(low, low + radius),
        "nonnegative": fp.sets.nonnegative(),
        "simplex": fp.sets.simplex(radius),
        "affine": fp.sets.affine([np.ones(D), np.arange(D)], [radius, 0.5]),
        "halfspace": fp.sets.halfspace(np.arange(1.0, D + 1), radius),
        "nonnegative l1": fp.l1_ball(radius) & fp.sets.nonnegative(),
        "nonnegative l2": fp.sets.nonnegative() & fp.sets.l2_ball(radius),
        "everywhere": fp.sets.everywhere(),
        "function": fp.sets.projection(near_one),
    }[kind]


KINDS = {
    **{kind: (kind,) * 3 for kind in ("l1", "l2", "linf", "box", "nonnegative", "simplex", "affine", "halfspace")},
    "nonnegative balls": ("nonnegative l1", "nonnegative l2", "nonnegative l1"),
    "free": ("everywhere", "everywhere", "l1"),
    "by functions": ("function", "function", "l2"),
    "mixed": ("l1", "simplex", "box"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pooled", [False, True], ids=["averaged", "pooled"])
def test_the_exact_method_agrees_with_cvxpy(kind: str, pooled: bool) -> None:
    m, ridge, kinds = 3, 0.01, KINDS[kind]
    sizes, pull = (20, 30, 45), np.array([0.05, 0.1, 0.4])
    parties = fp.split_rows([federation(3, rows, seed=rows)["party 1"] for rows in sizes])
    loss = fp.mean(fp.squared_loss(fp.linear()))
    personal = fp.Personal([region(name, i) for i, name in enumerate(kinds)], pull=list(pull))
    problem = fp.minimize((loss.pooled() if pooled else loss) + 0.5, regularizer=fp.l2(ridge), personal=personal)
    result = fp.solve(problem, parties, tolerance=1e-8)
    assert result.converged
    assert result.method == "PersonalProjected"

    x = [cp.Variable(D) for _ in range(m)]
    mean = sum(x[1:], x[0]) / m
    terms = []
    for i, table in enumerate(parties.values()):
        weight = 1.0 / sum(sizes) if pooled else 1.0 / (m * table.rows)
        terms.append(weight * cp.sum_squares(table["x"] @ mean - table["y"]) / 2)
        terms.append(pull[i] / (2 * m) * cp.sum_squares(x[i] - mean))
    inside = [c for i, name in enumerate(kinds) for c in bounds(x[i], name, i)]
    exact = cp.Problem(cp.Minimize(sum(terms[1:], terms[0]) + ridge * cp.sum_squares(mean) + 0.5), inside)
    as_far_as_it_goes(exact)
    assert result.objective == pytest.approx(exact.value, rel=1e-7)
    theirs, value = [each.value for each in x], exact.objective.value
    for name, each in zip(parties.names, x, strict=True):
        each.value = np.asarray(result.params[name]["w"])
    assert max(np.max(c.violation()) for c in inside) <= 1e-9
    # where ours is the minimum, another point of the sets costs at least what the objective's bend makes of the distance
    away = np.concatenate([np.asarray(each.value) - there for each, there in zip(x, theirs, strict=True)])
    taken = np.eye(m * D).reshape(m, D, m * D)
    averaged = taken.mean(axis=0)
    bend = 2 * ridge * averaged.T @ averaged
    for i, table in enumerate(parties.values()):
        weight = 1.0 / sum(sizes) if pooled else 1.0 / (m * table.rows)
        at_mean, apart = table["x"] @ averaged, taken[i] - averaged
        bend = bend + weight * at_mean.T @ at_mean + pull[i] / m * apart.T @ apart
    assert away @ bend @ away / 2 <= value - exact.objective.value + 1e-9
    assert max(result.infeasibility.values()) <= 1e-9


def test_the_exact_method_is_feasible_in_every_round(tmp_path: pathlib.Path) -> None:
    parties, problem = federation(4), stated(4)
    for rounds in range(1, 12):
        found = fp.solve(problem, parties, max_rounds=rounds, tolerance=1e-12, save=tmp_path, resume=True)
        assert max((found.moved or {}).values()) <= 1e-12
        assert max(found.infeasibility.values()) <= 1e-12


@pytest.mark.parametrize("curvature", [1e-3, 1.0, 1e4])
def test_the_first_curvature_does_not_matter(curvature: float) -> None:
    parties, problem = federation(4), stated(4)
    wanted = fp.solve(problem, parties, tolerance=1e-8).objective
    found = fp.solve(problem, parties, fp.PersonalProjected(curvature), tolerance=1e-8)
    assert found.converged
    assert found.objective == pytest.approx(wanted, abs=1e-10)


def test_parameters_by_name() -> None:
    """Sets on a part of the parameters leave the others free, and sets on different parts hold both."""
    rng = np.random.default_rng(0)
    table = fp.Table(x=rng.normal(size=(90, 3)) + 1.0, y=rng.integers(0, 2, 90))
    problem = fp.minimize(
        fp.mean(fp.logistic_loss(fp.linear(bias=True))),
        regularizer=fp.l2(1e-2),
        personal=fp.Personal(
            [fp.l1_ball(0.05, on="w"), fp.l1_ball(0.05, on="w") & fp.sets.linf_ball(0.01, on="b")], pull=0.1
        ),
    )
    result = fp.solve(problem, fp.split_rows(table, 2), tolerance=1e-7)
    assert result.converged
    one, two = result.params.values()
    assert np.abs(one["w"]).sum() <= 0.05 * (1 + 1e-9)
    assert np.abs(two["w"]).sum() <= 0.05 * (1 + 1e-9)
    assert abs(two["b"]) <= 0.01 * (1 + 1e-9) < abs(one["b"])


# who the parties are


def test_one_party_alone_is_the_plain_problem_in_its_set() -> None:
    table = federation(1)["party 1"]
    problem = stated(1, sets=[fp.sets.l2_ball(0.7)])
    exact = fp.solve(problem, fp.split_rows([table]), tolerance=1e-9)
    w = cp.Variable(D)
    as_far_as_it_goes(cp.Problem(cp.Minimize(cp.sum_squares(table["x"] @ w - table["y"])), [cp.norm2(w) <= 0.7]))
    np.testing.assert_allclose(exact.params["party 1"]["w"], w.value, rtol=0, atol=1e-5)
    method = fp.PCFedAvg(step=0.05, local_steps=1, penalty=30.0)
    near = fp.solve(problem, fp.split_rows([table]), method, max_rounds=300)
    np.testing.assert_allclose(near.params["party 1"]["w"], w.value, rtol=0, atol=0.05)


def test_copies_of_a_party_agree_with_the_party_alone() -> None:
    table = federation(1)["party 1"]
    alone, copies = (fp.split_rows([table] * m) for m in (1, 3))
    one, three = (fp.solve(stated(1, 0.3, fp.l1_ball(0.7)), who, tolerance=1e-9) for who in (alone, copies))
    assert three.objective == pytest.approx(one.objective, abs=1e-10)
    for params in three.params.values():
        np.testing.assert_allclose(params["w"], one.params["party 1"]["w"], rtol=0, atol=1e-6)


def test_names_do_not_matter() -> None:
    parties = federation(3)
    named = fp.split_rows(list(parties.values()), parties=["z", "a", "party 1"])
    for name in ("PCFedAvg", "SCAFFOLD"):
        plain, renamed = (fp.solve(stated(3), who, METHODS[name], max_rounds=5) for who in (parties, named))
        for one, other in zip(jax.tree.leaves(plain.params), jax.tree.leaves(renamed.params), strict=True):
            assert one.shape == other.shape
        np.testing.assert_array_equal(list(plain.infeasibility.values()), list(renamed.infeasibility.values()))
        assert tuple(renamed.infeasibility) == ("z", "a", "party 1")
        assert renamed.objective == plain.objective


# methods of one model for all


def test_scaffold_without_sampling_finds_the_optimum_of_parties_who_disagree() -> None:
    """Local steps of FedAvg drift; SCAFFOLD's do not."""
    parties = federation(4)
    problem = fp.minimize(fp.mean(fp.squared_loss(fp.linear())))
    exact = fp.solve(problem, parties, tolerance=1e-9).params["w"]
    far = {}
    for method in (fp.SCAFFOLD(step=0.05, local_steps=10), fp.FedAvg(step=0.05, local_steps=10)):
        found = fp.solve(problem, parties, method, max_rounds=300)
        far[found.method] = np.abs(found.params["w"] - exact).max()
    assert far["SCAFFOLD"] < 1e-8
    assert far["FedAvg"] > 1e-4


def test_fedprox_with_mu_0_is_fedavg_and_a_large_mu_holds_the_parties() -> None:
    parties, problem = federation(4), stated(4)
    plain, same, held = (
        fp.solve(problem, parties, method, max_rounds=1).params["w"]
        for method in (
            fp.FedAvg(step=0.05, local_steps=10, penalty=5.0),
            fp.FedProx(mu=0.0, step=0.05, local_steps=10, penalty=5.0),
            fp.FedProx(mu=10.0, step=0.05, local_steps=10, penalty=5.0),
        )
    )
    np.testing.assert_array_equal(plain, same)
    assert np.linalg.norm(held) < 0.5 * np.linalg.norm(plain)


@pytest.mark.parametrize("make", [fp.FedAvg, lambda **o: fp.FedProx(mu=0.1, **o), fp.SCAFFOLD])
def test_a_penalty_brings_the_one_model_nearer_to_the_sets(make: Callable[..., fp.Algorithm]) -> None:
    parties, problem = federation(4), stated(4)
    free, held = (
        fp.solve(problem, parties, make(step=0.02, local_steps=5, **more), max_rounds=200)
        for more in ({}, {"penalty": 20.0})
    )
    assert max(held.infeasibility.values()) < 0.5 * max(free.infeasibility.values())
    assert max(held.infeasibility.values()) > 1e-3
    assert held.history["infeasibility"].shape == (200, 4)
    assert held.history["infeasibility"][-1] == pytest.approx(list(held.infeasibility.values()), rel=0.05)


def test_the_penalised_optimum_is_that_of_the_stated_function() -> None:
    """One step a round on all rows is gradient descent on (1/m) Σ f_i(w) + (ρ/2) dist(w, X_i)²."""
    parties, problem = federation(3), stated(3)
    found = fp.solve(problem, parties, fp.FedAvg(step=0.05, penalty=5.0), max_rounds=3000).params["w"]
    w = cp.Variable(D)
    terms = []
    inside = []
    for i, table in enumerate(parties.values()):
        z = cp.Variable(D)
        inside.append(cp.norm1(z) <= 0.5 + 0.2 * i)
        terms.append(cp.sum_squares(table["x"] @ w - table["y"]) / (2 * table.rows) + 2.5 * cp.sum_squares(w - z))
    cp.Problem(cp.Minimize(sum(terms[1:], terms[0]) / 3), inside).solve(cp.CLARABEL)
    np.testing.assert_allclose(found, w.value, rtol=0, atol=1e-5)


# results


@every_method
def test_results_predict_and_are_reported(name: str, tmp_path: pathlib.Path) -> None:
    parties = federation(4)
    whole = fp.solve(stated(4), parties, METHODS[name], max_rounds=20, tolerance=1e-3)
    rows = {"x": np.ones((2, D))}
    if name in OWN:
        assert list(whole.params) == list(parties.names)
        assert max(whole.infeasibility.values()) <= 1e-9
        scores = np.stack([whole.scores(rows, party=party) for party in parties.names])
        np.testing.assert_allclose(scores.mean(0), whole.scores(rows), atol=1e-12)
        with pytest.raises(ValueError, match="no such model"):
            whole.scores(rows, party="nobody")
    else:
        assert max(whole.infeasibility.values()) > 1e-3
        np.testing.assert_allclose(whole.scores(rows), rows["x"] @ whole.params["w"], atol=1e-12)
        with pytest.raises(ValueError, match="leave party= out"):
            whole.scores(rows, party="party 1")
    assert "outside its set" in str(whole)
    whole.report(tmp_path / "page.html")


def test_other_sets_are_another_run_and_another_verdict(tmp_path: pathlib.Path) -> None:
    parties = federation(3)
    fp.solve(stated(3), parties, tolerance=1e-6, save=tmp_path)
    wider = stated(3, sets=[fp.l1_ball(0.4)] * 3)
    with pytest.raises(ValueError, match="other parties or rows"):
        fp.solve(wider, parties, save=tmp_path, resume=True)
    check = fp.verify(tmp_path, wider, parties)
    assert not check.ok
    assert check.feasibility > 0.01


def test_sets_of_several_kinds_and_sizes_keep_to_their_parties() -> None:
    """Parties of different sizes and kinds of sets stand in different buckets; names, not places, decide."""
    sizes = (10, 80, 79)
    parties = fp.Parties({f"p{i}": federation(1, rows, seed=i)["party 1"] for i, rows in enumerate(sizes)})
    radii, order = {"p0": 0.3, "p1": 0.6, "p2": 0.9}, {"p0": 1, "p1": 1, "p2": 2}
    sets = {name: (fp.l1_ball if order[name] == 1 else fp.sets.l2_ball)(r) for name, r in reversed(radii.items())}
    personal = fp.Personal(sets=sets, pull={name: 0.1 + r for name, r in reversed(radii.items())})
    problem = fp.minimize(fp.mean(fp.squared_loss(fp.linear())), personal=personal)
    assert [len(bucket) for bucket in bind(problem, parties).order] == [1, 1, 1]
    result = fp.solve(problem, parties, tolerance=1e-7)
    for name, radius in radii.items():
        assert np.linalg.norm(result.params[name]["w"], order[name]) == pytest.approx(radius, rel=1e-6)
    turned = fp.Parties({name: parties[name] for name in ("p2", "p0", "p1")})
    other = fp.solve(problem, turned, tolerance=1e-7)
    for name in radii:
        np.testing.assert_allclose(other.params[name]["w"], result.params[name]["w"], rtol=0, atol=1e-5)


def test_local_steps_are_traced_once() -> None:
    count = 0

    def counted(params: Any, rows: Any) -> Any:
        nonlocal count
        count += 1
        return (rows["x"] @ params - rows["y"]) ** 2 / 2

    problem = dataclasses.replace(stated(2), objective=fp.mean(counted))
    fp.solve(problem, federation(2), METHODS["PCFedAvg"], max_rounds=2, start=np.zeros(D))
    before = count
    fp.solve(problem, federation(2), METHODS["PCFedAvg"], max_rounds=50, start=np.zeros(D))
    assert count - before <= before


def test_divergence_is_told_and_the_last_sound_models_are_handed_out() -> None:
    method = fp.PCFedAvg(step=10.0, local_steps=30, penalty=0.1)
    result = fp.solve(stated(3), federation(3), method, max_rounds=300)
    assert result.status == "diverged"
    assert all(np.isfinite(params["w"]).all() for params in result.params.values())
    assert max(result.infeasibility.values()) <= 1e-9


def test_the_automatic_choice_is_explained() -> None:
    told = fp.explain(stated(4), federation(4))
    assert told.method == "PersonalProjected"
    assert "model of its own" in str(told)


# on data of every day


def test_digits_is_certified() -> None:
    devices = fp.split_rows(fp.datasets.digits(), parties=4, seed=0)
    radii = (20, 25, 30, 40)
    problem = fp.minimize(
        fp.mean(fp.softmax_loss(fp.linear(outputs=10))),
        personal=fp.Personal([fp.l1_ball(r) for r in radii], pull=[0.01, 0.02, 0.03, 0.04]),
    )
    exact = fp.solve(problem, devices, tolerance=1e-6)
    assert exact.converged
    assert exact.rounds <= 150
    some = fp.solve(problem, devices, fp.PCFedAvg(step=0.1, local_steps=4, penalty=10.0), max_rounds=100)
    assert exact.objective < some.objective < exact.objective + 0.2
    for result in (exact, some):
        for params, radius in zip(result.params.values(), radii, strict=True):
            assert np.abs(params["w"]).sum() <= radius * (1 + 1e-9)
    assert max((some.moved or {}).values()) > 1e-3


# bad input


def test_bad_personal_problems_are_told() -> None:
    parties = federation(3)
    ball, loss = fp.l1_ball(1.0), fp.mean(fp.squared_loss(fp.linear()))

    def solved(sets: Any, pull: Any = 0.1, **more: Any) -> fp.Result:
        return fp.solve(fp.minimize(loss, personal=fp.Personal(sets, pull), **more), parties, max_rounds=1)

    for make, words in (
        (lambda: solved([ball, ball]), "has 2 for 3 parties"),
        (lambda: solved([ball] * 3, [0.1] * 4), "pull=.* has 4 for 3 parties"),
        (lambda: solved({"party 1": ball, "party 2": ball, "nobody": ball}), "names 'nobody', but the parties are"),
        (lambda: solved({"party 1": ball, "party 2": ball}), "none for party 'party 3'"),
        (lambda: solved([ball] * 3, {"party 1": 1.0}), "none for party 'party 2'"),
        (lambda: solved([ball, ball, 7]), "number 3 is 7, not a set"),
        (lambda: solved(fp.l1(0.1)), "not a set such as fp.l1_ball"),
        (lambda: solved(ball, -1.0), "pull σ is a finite number > 0"),
        (lambda: solved(ball, [0.1, float("nan"), 0.1]), "number 2 is nan"),
        (lambda: solved(ball, True), "pull σ"),
        (lambda: solved(ball, subject_to=[loss <= 1.0]), "together with personal="),
        (lambda: solved(ball, regularizer=fp.l1(0.1)), "fp.sets.box, fp.l1_ball"),
        (lambda: solved(fp.l1_ball(1.0, on="v")), "the set of party 'party 1': .* is on 'v', but the parameters are w"),
        (lambda: solved(fp.sets.affine(np.ones((1, 7)), [1.0])), "a matrix of 7 columns, but it is on 4 parameters"),
        (lambda: solved(fp.sets.box(np.zeros(3), 1.0)), "bounds of 3 entries, but it is on 4 parameters"),
        (lambda: solved(fp.sets.halfspace(np.ones(3), 1.0)), "a normal of 3 entries"),
        (lambda: fp.minimize(loss, personal=[ball]), "personal= takes fp.Personal"),
        (lambda: fp.minimize(loss.at_server(), personal=fp.Personal(ball, 0.1)), "not .at_server"),
    ):
        with pytest.raises((ValueError, TypeError), match=words):
            make()


def test_bad_methods_for_personal_problems_are_told() -> None:
    parties = federation(3)
    plain = fp.minimize(fp.mean(fp.squared_loss(fp.linear())))
    for name in ("FedAvg", "FedProx", "SCAFFOLD"):
        with pytest.raises(ValueError, match=f"{name}.penalty=.* the problem has none"):
            fp.solve(plain, parties, METHODS[name])
    with pytest.raises(ValueError, match="party 1' has only 30 rows"):
        fp.solve(stated(3), parties, fp.PCFedAvg(step=0.1, local_steps=1, penalty=1.0, batch=31))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: fp.PCFedAvg(step=0.0, local_steps=1, penalty=1.0), "step size"),
        (lambda: fp.PCFedAvg(step=0.1, local_steps=0, penalty=1.0), "at least one step"),
        (lambda: fp.PCFedAvg(step=0.1, local_steps=1, penalty=30.0), "step · penalty is 3"),
        (lambda: fp.PCFedAvg(step=0.1, local_steps=1, penalty=1.0, participation=0.0), "over 0 and up to 1"),
        (lambda: fp.PCFedAvg(step=0.1, local_steps=1, penalty=1.0, batch=0), "at least one row"),
        (lambda: fp.FedAvg(step=0.1, penalty=30.0), "step · penalty is 3"),
        (lambda: fp.SCAFFOLD(server_step=0.0), "server's step size"),
        (lambda: fp.PersonalProjected(curvature=0.0), "over 0"),
        (lambda: fp.PersonalProjected(relax=1.5), "up to 1"),
        (lambda: fp.Growth(0.0, 1.0), "scale > 0"),
    ],
)
def test_bad_options_are_told(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_drivers_keep_own_models_apart() -> None:
    """The exchange that asks for what parties keep sends nothing back."""
    bound = bind(stated(2), federation(2))
    method, network, own = METHODS["PCFedAvg"].bind(bound.setting), LocalNetwork.of(bound), bound.server_data
    goal = Goal(jnp.asarray(1e-4), jnp.asarray(1e-4))
    server, states = drivers.begin(method, network, own, bound.start, goal, 0)
    listening = Listening(network)
    _, (models,), _ = play(bound.conclusion(method), own, listening, server, states)
    ((_, replies),) = listening.heard
    assert jax.tree.leaves(replies) == []
    assert models.point.shape == models.unprojected.shape == (2, D)
