"""Mini-batch SSCA over rows and columns, and the gradient methods that it is compared with."""

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import classes

import fedpact as fp
from fedpact.algorithms.averaging.fed_sgd import BatchKey
from fedpact.algorithms.parts.batches import answering, folded_key
from fedpact.engines.local import LocalNetwork
from fedpact.problem.split import EMBEDDED
from fedpact.protocol.phases import Ask, GradientRequest, GradientStep
from fedpact.protocol.sampling import draw
from fedpact.reproduce.ssca import bytes_without_label_holder
from fedpact.settings import bind

HIDDEN, FEATURES, CLASSES = 6, 8, 3
NET = fp.mlp([FEATURES, HIDDEN, CLASSES], activation=jax.nn.swish, bias=False)
COST = fp.softmax_loss(NET)
SPLIT = fp.split_model(
    bottom=lambda width: fp.mlp([width, HIDDEN], bias=False),
    combine="sum",
    top=fp.chain(jax.nn.swish, fp.mlp([HIDDEN, CLASSES], bias=False)),
)
SPLIT_COST = fp.softmax_loss(SPLIT)
STEPS: Any = {"rho": fp.Decay(0.9, 0.3), "gamma": fp.Decay(0.9, 0.35)}


def flowers(rows: int = 240, seed: int = 0) -> fp.Table:
    """Three classes that a small network tells apart."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, rows)
    centres = rng.normal(size=(CLASSES, FEATURES))
    return fp.Table(x=centres[y] + 0.5 * rng.normal(size=(rows, FEATURES)), y=y)


def limited(cost: Any, bound: float = 0.3) -> fp.Problem:
    """The smallest network whose mean cost is at most `bound`."""
    return fp.minimize(fp.value(fp.squared_norm), [(fp.mean(cost).pooled() <= bound).named("cost")])


def free(cost: Any) -> fp.Problem:
    return fp.minimize(fp.mean(cost), regularizer=fp.l2(1e-3))


def starts(parties: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same network whole, and split over holders of columns."""
    rng = np.random.default_rng(1)
    first, second = 0.4 * rng.normal(size=(FEATURES, HIDDEN)), 0.4 * rng.normal(size=(HIDDEN, CLASSES))
    parts = np.array_split(first, parties)
    return {"w1": first, "w2": second}, {
        **{f"party {i + 1}": {"w1": part} for i, part in enumerate(parts)},
        "top": {"w1": second},
    }


# rows and columns


@pytest.mark.parametrize(
    ("problem", "method"),
    [
        (limited, fp.SSCA(batch=30, margin=0.02, measure=None, **STEPS)),
        (limited, fp.SSCA(batch=30, measure=20, **STEPS)),
        (free, fp.SSCA(batch=30, **STEPS)),
        (free, fp.FedSGD(batch=30, step=0.2, momentum=0.5)),
    ],
)
@pytest.mark.parametrize("parties", [2, 3])
def test_rows_and_columns_take_one_path(problem: Any, method: fp.Algorithm, parties: int) -> None:
    """One party with all rows draws the batches that the holders of columns draw."""
    table = flowers()
    whole, split = starts(parties)
    rows = fp.solve(problem(COST), [table], method, start=whole, max_rounds=100, seed=3)
    columns = fp.split_columns(table, parties=parties)
    over = fp.solve(problem(SPLIT_COST), columns, method, start=split, max_rounds=100, seed=3)
    first = np.concatenate([over.params[name]["w1"] for name in columns])
    np.testing.assert_allclose(first, rows.params["w1"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(over.params["top"]["w1"], rows.params["w2"], rtol=0, atol=1e-9)
    for name in ("stationarity", "feasibility", "objective"):
        assert getattr(over.certificate, name) == pytest.approx(getattr(rows.certificate, name), rel=1e-8, abs=1e-10)
    np.testing.assert_allclose(over.history["objective"], rows.history["objective"], rtol=1e-9)
    np.testing.assert_allclose(
        over.scores(columns),
        rows.scores({"x": np.concatenate([columns[n]["x"] for n in columns], axis=1)}),
        atol=1e-8,
    )


def test_rows_and_columns_have_one_gradient_on_one_batch() -> None:
    table = flowers()
    whole, split = starts(3)
    columns = fp.split_columns(table, parties=3)
    with jax.enable_x64(True):
        rows = bind(limited(COST), fp.split_rows([table]), start=whole)
        over = bind(limited(SPLIT_COST), columns, start=split)
        places = draw(folded_key(jax.random.key_data(jax.random.key(7)), 0), jnp.asarray(table.rows), 25)
        alone = rows.own_data("party 1").sample(places, jnp.asarray(1.0))
        wanted = rows.shape.unravel(jax.grad(lambda w: alone(w).pooled[0])(rows.start))
        labels = over.server_data.functions.sample(places, jnp.asarray(1.0))

        def cost(blocks: Any, top: jax.Array) -> jax.Array:
            given = sum(
                jax.vmap(lambda own, w: own.embed(w, places))(bucket, w).sum(0)
                for bucket, w in zip(over.stacks, blocks, strict=True)
            )
            return dataclasses.replace(labels, rows={**labels.rows, EMBEDDED: given})(top).pooled[0]

        blocks, top = jax.grad(cost, argnums=(0, 1))(tuple(b.start for b in over.stacks), over.start)
    by_party = over.by_name(blocks)
    found = np.concatenate([by_party[name].reshape(-1, HIDDEN) for name in columns])
    np.testing.assert_allclose(found, wanted["w1"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(over.shape.unravel(top)["w1"], wanted["w2"], rtol=0, atol=1e-12)


# what it finds


def test_the_smallest_network_within_its_limit() -> None:
    """Measured on all rows; and as small as an exact method makes it."""
    parties = fp.split_rows(flowers(), parties=4, seed=0)
    result = fp.solve(limited(COST), parties, fp.SSCA(batch=30, margin=0.003), max_rounds=2000, seed=0)
    report = result.constraint("cost")
    assert report.holders == ("all rows",)
    scores = result.scores(flowers())
    measured = np.mean([np.log(np.exp(s).sum()) - s[k] for s, k in zip(scores, flowers()["y"], strict=True)])
    assert report.values[0] == pytest.approx(measured, rel=1e-9)
    assert report.values[0] <= 0.3
    exact = fp.solve(limited(COST), parties, fp.InteriorPoint(), start=result.params, tolerance=1e-6)
    assert exact.converged
    assert result.objective <= 1.1 * exact.objective
    assert report.multipliers[0] == pytest.approx(exact.constraint("cost").multipliers[0], rel=0.3)


def test_full_batches_find_the_exact_minimum() -> None:
    tables = classes(0, (30, 30, 30), d=4)
    loss = fp.logistic_loss(fp.linear(bias=True))
    problem = fp.minimize(fp.mean(loss), regularizer=fp.l2(0.05))
    exact = fp.solve(problem, tables, tolerance=1e-9)
    for method in (
        fp.SSCA(batch=30, rho=1.0, gamma=1.0, tau=0.5, measure=None),
        fp.FedSGD(batch=30, step=0.5),
        fp.FedSGD(batch=30, step=0.2, momentum=0.6),
        fp.FedAvg(batch=30, step=0.5),
    ):
        result = fp.solve(problem, tables, method, max_rounds=400, tolerance=1e-6)
        assert result.converged, (method, result.message)
        assert result.objective == pytest.approx(exact.objective, abs=1e-9)


def test_several_constraints_at_once() -> None:
    """A cost, two sides of a band at the server, and a limit on the norm that needs no sampling."""
    tables = classes(1, (40, 40, 40), d=4)
    loss = fp.logistic_loss(fp.linear())
    problem = fp.minimize(
        fp.mean(loss).pooled(),
        [
            (fp.mean(loss, where=fp.col("y") == 1).pooled() <= 0.62).named("ones"),
            (fp.value(fp.squared_norm).pooled() <= 0.5).named("norm"),
            fp.value(lambda p, _: p["w"][0]).at_server().between(0.0, 0.1).named("first"),
        ],
    )
    exact = fp.solve(problem, tables, fp.InteriorPoint(), tolerance=1e-8)
    found = fp.solve(problem, tables, fp.SSCA(batch=40, rho=1.0, gamma=0.5, tau=0.5, measure=None), max_rounds=500)
    assert exact.converged
    np.testing.assert_allclose(found.params["w"], exact.params["w"], atol=1e-3)
    for name in ("ones", "norm", "first"):
        one, other = found.constraint(name), exact.constraint(name)
        np.testing.assert_allclose(one.values, other.values, atol=1e-3)
        np.testing.assert_allclose(one.multipliers, other.multipliers, atol=1e-2)


def test_an_uneven_ridge_and_kinks_without_constraints() -> None:
    tables = classes(2, (30, 30), d=4)
    loss = fp.logistic_loss(fp.linear(bias=True))
    for h in (fp.l2(0.3, on="w"), fp.l1(0.05) + fp.l2(0.01), fp.box(-0.2, 0.1)):
        problem = fp.minimize(fp.mean(loss), regularizer=h)
        exact = fp.solve(problem, tables, tolerance=1e-8)
        found = fp.solve(
            problem,
            tables,
            fp.SSCA(batch=30, rho=1.0, gamma=1.0, tau=0.5, measure=None),
            max_rounds=500,
            tolerance=1e-6,
        )
        assert found.converged, (h, found.message)
        assert found.objective == pytest.approx(exact.objective, abs=1e-9)


def test_an_uneven_ridge_beside_the_norm_alone() -> None:
    tables = [fp.Table(x=t["x"], y=t["x"] @ np.ones(4) + 1.0) for t in classes(2, (20, 20), d=4)]
    cost = fp.mean(fp.squared_loss(fp.linear(bias=True))).pooled()
    problem = fp.minimize(fp.value(fp.squared_norm), [cost <= 0.2], fp.l2(3.0, on="b"))
    exact = fp.solve(problem, tables, fp.InteriorPoint(), tolerance=1e-7)
    found = fp.solve(problem, tables, fp.SSCA(batch=20, rho=1, gamma=0.5, tau=1, measure=None), max_rounds=600)
    np.testing.assert_allclose(found.params["b"], exact.params["b"], atol=1e-3)


def test_a_part_of_the_parties_gives_the_gradient_on_average() -> None:
    tables = classes(3, (20, 24, 28, 22, 30), d=3)
    problem = fp.minimize(fp.mean(fp.logistic_loss(fp.linear())).pooled())
    with jax.enable_x64(True):
        bound = bind(problem, fp.split_rows(tables))
        net, w = LocalNetwork.of(bound), bound.start + 0.3
        states = tuple(() for _ in bound.stacks)

        def gradient(functions: Any, message: Any) -> jax.Array:
            (reply,), _ = net.exchange([Ask(GradientStep(functions), GradientRequest(message, w))], states)
            return reply.sum.gradients[0]

        sums = {}
        for part in (1.0, 0.4):
            method: Any = fp.FedSGD(batch=5, step=1.0, participation=part).bind(bound.setting)

            @jax.jit
            def estimate(seed: jax.Array, method: Any = method) -> jax.Array:
                return gradient(method.estimate, BatchKey(jax.random.key_data(jax.random.key(seed))))

            sums[part] = np.asarray(jax.lax.map(estimate, jnp.arange(4000)))
        exact = gradient(lambda own, state, message, w: own(w).objective[None], None)
    assert answering(5, 0.4) == 2
    for estimates in sums.values():
        error = np.abs(estimates.mean(0) - np.asarray(exact))
        assert np.all(error <= 5 * estimates.std(0) / np.sqrt(len(estimates)))
    assert np.all(sums[0.4].std(0) > sums[1.0].std(0))


def test_local_steps_move_farther() -> None:
    parties = fp.split_rows(flowers(), parties=4, seed=0)
    one, five = (
        fp.solve(free(COST), parties, fp.FedAvg(batch=10, local_steps=e, step=0.1), max_rounds=30, seed=0)
        for e in (1, 5)
    )
    assert five.objective < one.objective


def test_averages_are_weighted_as_the_objective_is() -> None:
    """Parties whose rows are all alike draw no noise: one local step is a gradient step on the objective, pooled or not."""
    tables = [t.take(np.zeros(rows, int)) for t, rows in zip(classes(4, (5, 5), d=3), (20, 60), strict=True)]
    loss = fp.logistic_loss(fp.linear())
    start = {"w": np.array([0.3, -0.2, 0.1])}
    found = {}
    for name, objective in (("each", fp.mean(loss)), ("pooled", fp.mean(loss).pooled())):
        problem = fp.minimize(objective, regularizer=fp.l2(0.1))
        averaged, stepped = (
            fp.solve(problem, tables, method, start=start, max_rounds=3).params["w"]
            for method in (fp.FedAvg(batch=10, step=0.5), fp.FedSGD(batch=10, step=0.5))
        )
        np.testing.assert_allclose(averaged, stepped, rtol=1e-12)
        found[name] = averaged
    assert np.abs(found["each"] - found["pooled"]).max() > 1e-3


# the wire


def test_bytes_over_columns_and_float32() -> None:
    table, (_, split) = flowers(), starts(3)
    columns = fp.split_columns(table, parties=3)
    sent = {}
    wires: tuple[Literal["float64", "float32"], ...] = ("float64", "float32")
    for wire in wires:
        method = fp.SSCA(batch=20, measure=None, wire=wire)
        result = fp.solve(limited(SPLIT_COST), columns, method, start=split, max_rounds=3)
        sent[wire] = (result.bytes_up / 9, result.bytes_down / 9)  # per party and round
        assert result.exchanges == 6
    up, down = sent["float64"]
    gram, batch = 4 + 1 + 1, 20 * HIDDEN
    assert up == 8 * (batch + 1 + gram)
    assert down == 8 * (batch + 2 + 1 + 1 + 1) + 1 + 2 * 8
    assert [a - b for a, b in zip(sent["float64"], sent["float32"], strict=True)] == [4 * batch, 4 * batch]


def test_bytes_with_and_without_the_label_holder_at_the_size_of_the_paper() -> None:
    """784-128-10 over ten parties, a batch of 100, single precision on the wire: what one round sends in all."""
    parties, batch, hidden = 10, 100, 128
    table = fp.Table(x=np.zeros((batch, 784)), y=np.arange(batch) % 10)
    columns = fp.split_columns(table, parties=parties, active="all")
    model = fp.split_model(
        lambda width: fp.mlp([width, hidden], bias=False), top=fp.chain(jax.nn.swish, fp.mlp([hidden, 10], bias=False))
    )
    method = fp.SSCA(batch=batch, measure=None, wire="float32")
    star = fp.explain(limited(fp.softmax_loss(model)), columns, method)
    assert parties * (star.bytes_up + star.bytes_down) == 1_025_130
    features = [columns[name]["x"].shape[1] for name in columns]
    assert bytes_without_label_holder(features, batch, hidden, hidden * 10) == 366_081_130


@pytest.mark.parametrize(("bytes_per_number", "up"), [(4, 16_464), (8, 32_304)])
def test_bytes_without_a_label_holder(bytes_per_number: int, up: int) -> None:
    """As they were counted when the protocol of the paper's Section V was run: 8-6-3, features 3, 3 and 2, a batch of 30."""
    assert bytes_without_label_holder([3, 3, 2], 30, HIDDEN, HIDDEN * CLASSES, bytes_per_number) == up + 579


# the penalty


def test_the_penalty_grows_until_the_slack_vanishes() -> None:
    """Section III-B: with a price of slack that is too low c grows tenfold after `patience` rounds, and then no more."""
    parties = fp.split_rows(flowers(), parties=2, seed=0)
    method = fp.SSCA(batch=60, penalty=1e-3, patience=10, most_penalty=1e6, **STEPS)
    history = fp.solve(limited(COST), parties, method, max_rounds=150).history
    penalty, slack = history["penalty"], history["slack"]
    assert penalty[0] == 1e-3
    steps = np.flatnonzero(np.diff(penalty))
    assert len(steps)
    assert (steps % 10 == 9).all()
    np.testing.assert_allclose(penalty[steps + 1] / penalty[steps], 10.0)
    for start in range(0, 140, 10):
        grown = penalty[start + 10] > penalty[start]
        assert grown == (slack[start : start + 10].min() > 1e-9 and penalty[start] < 1e6)
    assert slack[-10:].min() <= 1e-9


# what it refuses


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch": 0}, "at least one row"),
        ({"batch": 5, "tau": 0}, "tau must be > 0"),
        ({"batch": 5, "participation": 0}, "over 0 and up to 1"),
        ({"batch": 5, "measure": 0}, "number of rounds"),
    ],
)
def test_options_are_checked(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fp.SSCA(**options)


@pytest.mark.parametrize("method", [fp.FedSGD, fp.FedAvg])
@pytest.mark.parametrize(("option", "given"), [("momentum", 1.0), ("step", 0.0), ("batch", 0), ("participation", 2)])
def test_gradient_methods_check_their_options(method: Any, option: str, given: Any) -> None:
    with pytest.raises(ValueError, match=rf"{option}="):
        method(**{"batch": 5, "step": 0.1, option: given})


def test_what_cannot_be_done_is_said() -> None:
    tables = classes(0, (20, 30), d=3)
    loss = fp.logistic_loss(fp.linear())
    each = fp.minimize(fp.mean(loss), [(fp.mean(loss) <= 0.5).named("mine")])
    with pytest.raises(ValueError, match=r"'mine' holds at each party.*\.pooled\(\)"):
        fp.solve(each, tables, fp.SSCA(batch=5))
    for method in (fp.FedSGD(batch=5, step=0.1), fp.FedAvg(batch=5)):
        with pytest.raises(ValueError, match="no regulariser but"):
            fp.solve(fp.minimize(fp.mean(loss), regularizer=fp.l1(0.1)), tables, method)
    for method in (fp.SSCA(batch=25), fp.FedSGD(batch=25, step=0.1), fp.FedAvg(batch=25)):
        with pytest.raises(ValueError, match=r"batch=25.*'party 1' has only 20 rows"):
            fp.solve(fp.minimize(fp.mean(loss)), tables, method)
    equal = fp.minimize(fp.mean(loss), [(fp.mean(loss).pooled() == 0.5)])
    with pytest.raises(ValueError, match="keeps inequalities"):
        fp.solve(equal, tables, fp.SSCA(batch=5))
    pooled = fp.minimize(fp.mean(loss), [(fp.mean(loss).pooled() <= 0.5).named("all")], fp.l1(0.1))
    with pytest.raises(ValueError, match=r"no regulariser but fp.l2"):
        fp.solve(pooled, tables, fp.SSCA(batch=5))


def test_a_bound_that_cannot_be_kept_tells_the_best_reached() -> None:
    parties = fp.split_rows(flowers(), parties=2, seed=0)
    problem = fp.minimize(
        fp.mean(COST).pooled(),
        [(fp.value(fp.squared_norm).pooled() <= 1.0), (fp.mean(COST).pooled() <= 0.01).named("cost")],
    )
    result = fp.solve(problem, parties, fp.SSCA(batch=50), max_rounds=300)
    assert result.status == "max_rounds"
    assert "These parameters break 'cost'" in result.message


def test_a_function_that_turns_nan_stops_the_run() -> None:
    tables = classes(0, (20, 20), d=3)

    def odd(params: Any, rows: Any) -> Any:
        return jnp.log(0.05 - rows["x"] @ params["w"])

    problem = fp.minimize(fp.mean(odd))
    result = fp.solve(problem, tables, fp.FedSGD(batch=20, step=10.0), start={"w": np.zeros(3)}, max_rounds=50)
    assert result.status == "diverged"
    assert np.isfinite(result.params["w"]).all()


# seeds


def over_rows(method: fp.Algorithm, **options: Any) -> fp.Result:
    problem = limited(COST) if isinstance(method, fp.SSCA) else free(COST)
    return fp.solve(problem, fp.split_rows(flowers(), parties=4, seed=0), method, **{"max_rounds": 12, **options})


def over_columns(method: fp.Algorithm, **options: Any) -> fp.Result:
    problem = limited(SPLIT_COST) if isinstance(method, fp.SSCA) else free(SPLIT_COST)
    return fp.solve(problem, fp.split_columns(flowers(), parties=3), method, **{"max_rounds": 12, **options})


every_way = pytest.mark.parametrize(
    ("solved", "method"),
    [
        (over_rows, fp.SSCA(batch=10, participation=0.5, measure=5)),
        (over_rows, fp.FedSGD(batch=10, step=0.1, momentum=0.5)),
        (over_rows, fp.FedAvg(batch=10, local_steps=3, participation=0.5)),
        (over_columns, fp.SSCA(batch=10, measure=5)),
        (over_columns, fp.FedSGD(batch=10, step=0.1, momentum=0.5)),
    ],
)


@every_way
def test_seeds_tell_runs_apart(solved: Any, method: fp.Algorithm) -> None:
    one, same, other = (solved(method, seed=seed, max_rounds=3) for seed in (1, 1, 2))
    assert jax.tree.all(jax.tree.map(np.array_equal, one.params, same.params))
    assert not jax.tree.all(jax.tree.map(np.array_equal, one.params, other.params))
