"""FairVFL and FedBCD: known solutions, the paper's own iterates, asynchrony, who is told what, and what is refused."""

import dataclasses
import functools
import pathlib
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import columns
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from columns import LOSS, MODEL, PARTIES, RIDGE, TABLE, X, Y, between, both_sides, fair, flat, losses, optimum

import fedpact as fp
from fedpact.algorithms.fair_vfl.lagrangian import Dual, merit
from fedpact.algorithms.fair_vfl.method import FairVFLMethod
from fedpact.algorithms.fair_vfl.pace import Timing
from fedpact.algorithms.fair_vfl.parties import Residuals
from fedpact.engines.local import LocalNetwork
from fedpact.protocol.algorithm import Begin, Goal
from fedpact.protocol.phases import Ask, Phases, play
from fedpact.run import drivers
from fedpact.settings import bind
from fedpact.settings.base import Bound

TOLERANCE = 1e-7


def gap(w: jax.Array) -> jax.Array:
    return between(losses(X @ w), Y > 0)


@functools.cache
def fair_optimum(bound: float) -> columns.Optimum:
    return optimum(columns.regularised, both_sides(gap, bound))


@functools.cache
def whole() -> tuple[pathlib.Path, fp.Result]:
    """The run that others are compared with, and where it is saved."""
    folder = pathlib.Path(tempfile.mkdtemp()) / "run"
    result = fp.solve(fair(), PARTIES, fp.FairVFL(), tolerance=TOLERANCE, save=folder)
    assert result.converged, result.message
    return folder, result


# known solutions


def test_a_gap_that_binds() -> None:
    _, found = whole()
    known = fair_optimum(0.01)
    assert known.multipliers.max() > 0.01
    np.testing.assert_allclose(flat(found), known.w, atol=1e-5)
    assert found.objective == pytest.approx(known.objective, abs=1e-7)
    np.testing.assert_allclose(found.certificate.pooled_multipliers, known.multipliers, atol=1e-5)
    assert found.constraint("gap").values[0] == pytest.approx(0.01, abs=1e-6)
    assert found.rounds < 60


def test_a_gap_that_does_not_bind_with_random_steps() -> None:
    found = fp.solve(fair(0.9), PARTIES, fp.FairVFL(pace="random"), tolerance=TOLERANCE)
    known = fair_optimum(0.9)
    assert found.converged
    assert not known.multipliers.any()
    np.testing.assert_allclose(flat(found), known.w, atol=1e-5)
    np.testing.assert_array_equal(found.certificate.pooled_multipliers, 0.0)
    seconds = set(np.diff(found.history["seconds"], prepend=0.0).tolist())
    assert seconds <= {2.0, 3.0, 4.0, 5.0, 6.0}  # one to five steps, and the way
    assert len(seconds) > 1


def test_two_gaps_on_rates() -> None:
    odds, parity = fp.equalized_odds_gap(MODEL, group="sex"), fp.demographic_parity_gap(MODEL, group="sex")
    problem = fp.minimize(fp.mean(LOSS), [(odds <= 0.02).named("odds"), (parity <= 0.06).named("parity")], fp.l2(RIDGE))
    found = fp.solve(problem, PARTIES, fp.FairVFL(), tolerance=TOLERANCE)
    assert found.converged, found.message
    known = optimum(
        columns.regularised,
        [
            *both_sides(lambda w: between(jax.nn.sigmoid(X @ w), Y > 0), 0.02),
            *both_sides(lambda w: between(jax.nn.sigmoid(X @ w), Y < 0), 0.02),
            *both_sides(lambda w: between(jax.nn.sigmoid(X @ w)), 0.06),
        ],
    )
    assert np.sum(known.multipliers > 1e-2) == 2, "one row of each should bind"
    np.testing.assert_allclose(flat(found), known.w, atol=1e-5)
    assert found.objective == pytest.approx(known.objective, abs=1e-7)
    for name, rows in (("odds", slice(0, 4)), ("parity", slice(4, 6))):
        assert found.constraint(name).multipliers[0] == pytest.approx(known.multipliers[rows].sum(), abs=1e-5)


def test_an_equality_and_a_bound_on_the_norm() -> None:
    rate = fp.positive_rate(MODEL)
    balance = fp.mean(rate, where=fp.col("sex") == 0) - fp.mean(rate, where=fp.col("sex") == 1) == -0.1
    size = fp.value(fp.squared_norm) <= 0.7
    problem = fp.minimize(fp.mean(LOSS), [balance.named("balance"), size.named("size")])
    found = fp.solve(problem, PARTIES, fp.FairVFL(), tolerance=TOLERANCE)
    assert found.converged, found.message
    known = optimum(
        lambda w: losses(X @ w).mean(),
        [lambda w: w @ w - 0.7],
        [lambda w: between(jax.nn.sigmoid(X @ w)) + 0.1],
    )
    assert known.multipliers[0] > 1e-3
    np.testing.assert_allclose(flat(found), known.w, atol=1e-5)
    assert found.constraint("size").multipliers[0] == pytest.approx(known.multipliers[0], abs=1e-5)
    assert found.constraint("balance").multipliers[0] == pytest.approx(known.multipliers[1], abs=1e-5)


@pytest.mark.parametrize(
    "parties",
    [
        fp.split_columns(TABLE, columns.FEATURES, active="all"),
        fp.split_columns(TABLE, {"bank": range(5)}),
    ],
    ids=["all active", "one party"],
)
def test_whoever_is_active(parties: fp.ColumnParties) -> None:
    found = fp.solve(fair(), parties, fp.FairVFL(), tolerance=TOLERANCE)
    assert found.converged, found.message
    w = flat(found) if len(parties) > 1 else found.params["bank"]["w"]
    np.testing.assert_allclose(w, fair_optimum(0.01).w, atol=1e-5)
    np.testing.assert_allclose(found.certificate.pooled_multipliers, fair_optimum(0.01).multipliers, atol=1e-5)


def test_side_by_side_under_a_top() -> None:
    model = fp.split_model(bottom=lambda width: fp.linear(bias=False), combine="concat", top=fp.linear())
    begin = {name: {"w": np.full(len(places), 0.5)} for name, places in columns.FEATURES.items()}
    top = {"w": np.full(3, 0.5)}
    parties = fp.split_columns(TABLE, columns.FEATURES, active=["shop", "bank"])
    problem = fair(loss=fp.logistic_loss(model, labels=(-1, 1)))
    found = fp.solve(problem, parties, fp.FairVFL(), tolerance=1e-6, start={**begin, "top": top})
    assert found.converged, found.message

    def scores(z: jax.Array) -> jax.Array:
        return (X * z[:5]) @ z[5:][jnp.array([0, 1, 1, 2, 2])]

    known = optimum(
        lambda z: losses(scores(z)).mean() + RIDGE * z @ z,
        both_sides(lambda z: between(losses(scores(z)), Y > 0), 0.01),
        start=np.full(8, 0.5),
    )
    assert found.objective == pytest.approx(known.objective, abs=1e-6)
    np.testing.assert_allclose(found.scores(parties), scores(jnp.asarray(known.w)), atol=1e-4)
    np.testing.assert_allclose(found.certificate.pooled_multipliers, known.multipliers, atol=1e-4)


# the paper's own iterates


def printed(
    rounds: int,
    bound: float,
    decay: Callable[[int], float] = lambda t: 1e-3,
    step: Callable[[int], float] = lambda t: 0.01,
    local_steps: int = 1,
) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Algorithms 1 to 3 with β = 0.1, c_t and 1/η_t: parameters, λ, and the objective of each round.

    The bank, which is active, takes Q steps, the others' outputs as they were; passive parties take one.
    """
    x, y, sex = (np.asarray(TABLE[name], float) for name in ("x", "y", "sex"))
    n, a, b = len(y), (y > 0) & (sex == 0), (y > 0) & (sex == 1)
    theta, lam, told = np.zeros(5), np.zeros(2), []
    for t in range(1, rounds + 1):
        scores = x @ theta
        loss = np.logaddexp(0.0, -y * scores)
        told.append(loss.mean() + RIDGE * theta @ theta)
        unfair = loss[a].mean() - loss[b].mean()
        lam = np.maximum(lam + 0.1 * (np.array([unfair, -unfair]) - bound - decay(t) * lam), 0.0)  # (8), (10)
        weight = 1 / n + (lam[0] - lam[1]) * (a / a.sum() - b / b.sum())
        nu = weight * -y / (1 + np.exp(y * scores))  # (12)
        first = theta[0]
        for _ in range(local_steps):
            own = weight * -y / (1 + np.exp(y * (scores + x[:, 0] * (first - theta[0]))))
            first = first - step(t) * (x[:, 0] @ own + 2 * RIDGE * first)
        theta = theta - step(t) * (x.T @ nu + 2 * RIDGE * theta)  # (11)
        theta[0] = first
    return theta, lam, told


@pytest.mark.parametrize("local_steps", [1, 3])
def test_as_printed_goes_where_the_paper_says(local_steps: int) -> None:
    found = fp.solve(fair(1e-3), PARTIES, fp.FairVFL.as_printed(local_steps), tolerance=TOLERANCE, max_rounds=50)
    theta, lam, told = printed(50, 1e-3, local_steps=local_steps)
    assert lam.max() > 1e-3, "the multipliers should have moved"
    np.testing.assert_allclose(flat(found), theta, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.certificate.pooled_multipliers, lam, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.history["objective"], told, rtol=0, atol=1e-12)


def test_a_pull_and_a_step_that_decrease_as_theorem_2_wants() -> None:
    method = fp.FairVFL(local_steps=1, rho=0, dual_step=0.1, decay=fp.Decay(0.1, 0.25), step=fp.Decay(0.05, 0.5))
    found = fp.solve(fair(1e-3), PARTIES, method, tolerance=TOLERANCE, max_rounds=50)
    theta, lam, told = printed(50, 1e-3, lambda t: 0.1 / t**0.25, lambda t: 0.05 / t**0.5)
    np.testing.assert_allclose(flat(found), theta, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.certificate.pooled_multipliers, lam, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.history["objective"], told, rtol=0, atol=1e-12)


# asynchrony


def test_one_local_step_ends_where_five_do() -> None:
    one = fp.solve(fair(), PARTIES, fp.FairVFL(local_steps=1), tolerance=TOLERANCE)
    assert one.converged
    np.testing.assert_allclose(flat(one), flat(whole()[1]), atol=1e-5)
    np.testing.assert_array_equal(np.diff(one.history["seconds"], prepend=0.0), 2.0)  # one step and the way
    np.testing.assert_array_equal(np.diff(whole()[1].history["seconds"], prepend=0.0), 6.0)


def test_a_clock_allows_as_many_steps_as_fit() -> None:
    speeds = {"most": 10, "step": (1.0, 3.0, 2.0, 0.5), "active": (True, True, False, False), "latency": 1.0}
    key = jnp.asarray([0, 1], jnp.uint32)
    clock = Timing("clock", **speeds)
    assert [int(clock.steps(jnp.asarray(i), key)) for i in (0, 1)] == [3, 1]
    assert float(clock.seconds(key)) == 4.0  # the slowest party's one step, and the way
    fixed = Timing("fixed", **speeds)
    assert [int(fixed.steps(jnp.asarray(i), key)) for i in (0, 1)] == [10, 10]
    assert float(fixed.seconds(key)) == 31.0
    short = Timing("clock", **(speeds | {"most": 2}))
    assert int(short.steps(jnp.asarray(0), key)) == 2
    exact = Timing("clock", 10, (0.1, 0.3), (True, False), 0.0)  # 0.3 / 0.1 is below 3 in floating point
    assert int(exact.steps(jnp.asarray(0), key)) == 3
    alone = Timing("clock", 10, (1.0, 4.0), (True, True), 1.0)
    assert [int(alone.steps(jnp.asarray(i), key)) for i in (0, 1)] == [5, 1]


def test_random_steps_are_from_one_to_q_and_take_their_time() -> None:
    timing = Timing("random", 4, (1.0, 3.0, 2.0), (True, True, False), 1.0)
    keys = jax.random.key_data(jax.random.split(jax.random.key(0), 100))
    steps = np.asarray(jax.vmap(lambda key: jnp.stack([timing.steps(jnp.asarray(i), key) for i in (0, 1)]))(keys))
    for drawn in steps.T:
        assert set(drawn.tolist()) == {1, 2, 3, 4}
    assert (steps[:, 0] != steps[:, 1]).any()
    seconds = np.asarray(jax.vmap(timing.seconds)(keys))
    np.testing.assert_array_equal(seconds, np.maximum(np.maximum(steps[:, 0], 3 * steps[:, 1]), 2) + 1)


def test_the_clock_of_a_run() -> None:
    clock = fp.Clock(step={"bank": 0.5, "shop": 3.0}, latency=1.0)  # network takes 1 s
    found = fp.solve(fair(), PARTIES, fp.FairVFL(pace="clock", clock=clock, local_steps=10), tolerance=TOLERANCE)
    assert found.converged
    np.testing.assert_allclose(found.history["seconds"], 4.0 * np.arange(1, found.rounds + 1))
    np.testing.assert_allclose(flat(found), fair_optimum(0.01).w, atol=1e-5)


# neural bottoms

NEURAL = fp.logistic_loss(fp.split_model(bottom=lambda width: fp.mlp([width, 4, 1])), labels=(-1, 1))


def aimed(tolerance: float) -> Goal:
    return Goal(jnp.asarray(tolerance, float), jnp.asarray(tolerance, float))


def bound_to(problem: fp.Problem, method: Any, tolerance: float = 1e-9) -> tuple[Bound, FairVFLMethod, Any, Any, Any]:
    """Before the first round: data, the method that is bound to them, the network, and the states of server and parties."""
    bound = bind(problem, PARTIES)
    ready, network = method.bind(bound.setting), LocalNetwork.of(bound)
    return bound, ready, network, *drivers.begin(ready, network, bound.server_data, bound.start, aimed(tolerance), 0)


def test_neural_bottoms_never_raise_the_merit_and_are_certified() -> None:
    problem = fair(0.05, NEURAL)
    found = fp.solve(problem, PARTIES, fp.FairVFL(local_steps=2), tolerance=1e-3, max_rounds=2000)
    assert found.converged, found.message
    assert found.constraint("gap").values[0] <= 0.05 + 1e-3
    assert found.constraint("gap").multipliers[0] > 1e-3
    bound, method, network, server, states = bound_to(problem, fp.FairVFL(local_steps=2))
    own, lower = bound.server_data, 0
    for _ in range(30):
        before = server.iterate.point
        server, states, line = drivers.step(method, network, own, server, states)
        merit_at = functools.partial(
            merit, method.party.terms, own.functions, Dual(server.dual.multipliers, line.info.rho)
        )
        there, here = (float(merit_at(point)) for point in (server.iterate.point, before))
        assert there <= here
        lower += there < here
    assert lower > 10


def test_the_server_knows_where_the_parties_are() -> None:
    """Over many rounds, from the first ones to those at rounding, and after a stricter goal."""
    for problem, options in ((fair(), fp.FairVFL()), (fair(0.05, NEURAL), fp.FairVFL(local_steps=2))):
        bound, method, network, server, states = bound_to(problem, options, 1e-4)
        for t in range(60):
            if t in (25, 40):
                server = method.aim(server, aimed(10.0**-t))
            server, states, _ = drivers.step(method, network, bound.server_data, server, states)
        _, blocks = drivers.run_phases(bound.conclusion(method), network, bound.server_data, server, states)
        embeddings = [
            jax.vmap(lambda own, w: own.embed(w))(own, w) for own, w in zip(bound.stacks, blocks, strict=True)
        ]
        point = server.iterate.point
        np.testing.assert_allclose(point.embedding, sum(e.sum(0) for e in embeddings), rtol=0, atol=1e-9)
        np.testing.assert_allclose(point.squared_norm, sum((w**2).sum() for w in blocks), rtol=1e-9)


# FedBCD


def test_fed_bcd_is_logistic_regression() -> None:
    free = fp.minimize(fp.mean(LOSS), regularizer=fp.l2(RIDGE))
    known = optimum(columns.regularised)
    found = fp.solve(free, PARTIES, fp.FedBCD(), tolerance=1e-8)
    assert found.converged
    np.testing.assert_allclose(flat(found), known.w, atol=1e-6)
    stepped = fp.solve(free, PARTIES, fp.FedBCD(local_steps=3, step=0.3), tolerance=1e-6)
    assert stepped.converged
    np.testing.assert_allclose(flat(stepped), known.w, atol=1e-4)


def test_a_deployed_fed_bcd_steps_until_the_others_have_replied() -> None:
    free = fp.minimize(fp.mean(LOSS), regularizer=fp.l2(RIDGE))
    bound, method, _, server, states = bound_to(free, fp.FedBCD(pace="clock", local_steps=10))
    own, state, calls = bound.own_data("bank"), bound.by_name(states)["bank"], []

    def enough() -> bool:
        calls.append(len(calls) + 1)
        return len(calls) == 3

    message = method.label_view(bound.server_data, server)
    after, _ = jax.jit(method.deployed(enough).party.active)(own, state, message)
    assert calls == [1, 2, 3]
    for steps, same in ((2, False), (3, True)):
        fixed = bound_to(free, fp.FedBCD(local_steps=steps))[1]
        expected, _ = jax.jit(fixed.party.active)(own, state, message)
        assert np.allclose(after.proposal, expected.proposal, rtol=1e-12) == same


# who is told what


class Listening:
    """A network that keeps what is sent to passive parties."""

    def __init__(self, network: LocalNetwork):
        self.network = network
        self.messages: list[Any] = []

    def exchange(self, asks: Sequence[Ask], states: Any) -> Any:
        self.messages += [ask.message for ask in asks if ask.among != "active"]
        return self.network.exchange(asks, states)


def test_passive_parties_are_told_the_residual_and_nothing_else() -> None:
    bound, method, network, server, states = bound_to(fair(), fp.FairVFL())
    for stack in bound.stacks:
        assert (stack.labels is None) == (not stack.active)
        assert set(stack.index.tolist()) == ({0} if stack.active else {1, 2})

    def messages_of(phases: Phases, carry: Any, states: Any) -> list[Any]:
        def played(carry: Any, states: Any) -> list[Any]:
            listening = Listening(network)
            play(phases, bound.server_data, listening, carry, states)
            return listening.messages

        return jax.eval_shape(played, carry, states)

    assert messages_of(method.opening, Begin(bound.start, server.goal, server.key), None) == [None]
    (message,) = messages_of(method.round, server, states)
    assert isinstance(message, Residuals)
    assert {f.name for f in dataclasses.fields(message)} == {"move", "residuals", "norm_derivative", "curvature"}
    assert message.residuals.shape == (TABLE.rows,)
    small = jax.tree.leaves((message.move, message.norm_derivative, message.curvature))
    assert sorted(leaf.size for leaf in small) == [1, 1, 1, method.party.rule.memory]


# runs that are saved, and the order of parties


def test_a_finished_run_goes_on_to_a_stricter_tolerance(tmp_path: pathlib.Path) -> None:
    rough = fp.solve(fair(), PARTIES, fp.FairVFL(), tolerance=1e-2, save=tmp_path)
    assert rough.converged
    finer = fp.solve(fair(), PARTIES, fp.FairVFL(), tolerance=TOLERANCE, save=tmp_path, resume=True)
    assert finer.converged, finer.message
    assert rough.rounds < finer.rounds < 80
    np.testing.assert_allclose(flat(finer), fair_optimum(0.01).w, atol=1e-5)


def test_a_saved_run_does_not_hold_on_other_rows() -> None:
    folder, _ = whole()
    assert fp.verify(folder, fair(), PARTIES).ok
    other = fp.split_columns(fp.Table(x=TABLE["x"] + 0.01, y=TABLE["y"], sex=TABLE["sex"]), columns.FEATURES)
    assert not fp.verify(folder, fair(), other).ok


def test_the_order_of_passive_parties_does_not_matter() -> None:
    swapped = {name: columns.FEATURES[name] for name in ("bank", "network", "shop")}
    found = fp.solve(fair(), fp.split_columns(TABLE, swapped), fp.FairVFL(), tolerance=TOLERANCE)
    _, first = whole()
    assert found.rounds == first.rounds
    np.testing.assert_allclose(flat(found), flat(first), rtol=0, atol=1e-9)


# what cannot be done is said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rho": 0.0}, r"without the augmented term give a step="),
        ({"momentum": 1.0}, "momentum is from 0 to below 1"),
        ({"local_steps": 0}, "at least one step"),
        ({"dual_step": 0.0}, "positive"),
        ({"step": 0.0}, "a step size is a positive number"),
        ({"memory": 0}, "at least one last move"),
    ],
)
def test_options_are_checked(options: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        fp.FairVFL(**options)
    if set(options) <= {"local_steps", "step", "momentum"}:
        with pytest.raises((ValueError, TypeError), match=f"FedBCD.*{words}|{words}"):
            fp.FedBCD(**options)


def test_clocks_are_checked() -> None:
    for wrong in (0.0, {"bank": 0.0}):
        with pytest.raises(ValueError, match=r"Clock\(step="):
            fp.Clock(step=wrong)
    with pytest.raises(ValueError, match="no party 'bnak'; there are bank, shop, network"):
        fp.solve(fair(), PARTIES, fp.FairVFL(clock=fp.Clock(step={"bnak": 1.0})))


def test_what_is_no_privacy_is_said() -> None:
    with pytest.raises(TypeError, match=r"privacy='yes': fp.SecureAggregation\(\), fp.EncryptedResiduals\(\)"):
        fp.solve(fair(), PARTIES, fp.FairVFL(), privacy="yes")


def test_constraints_that_cannot_be_met_are_named() -> None:
    problem = fp.minimize(fp.mean(LOSS), [(fp.mean(LOSS) <= 0.1).named("loss")], fp.l2(RIDGE))
    found = fp.solve(problem, PARTIES, fp.FairVFL(), max_rounds=300)
    assert found.status == "max_rounds"
    assert "These parameters break 'loss'" in found.message
    least = optimum(lambda w: losses(X @ w).mean()).objective
    assert found.constraint("loss").values[0] == pytest.approx(least, abs=1e-2)
