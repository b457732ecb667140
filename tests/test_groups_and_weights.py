"""Gaps between all groups of a column, means with weights, and the usual rates by name: against numpy, and what is refused."""

import dataclasses
import itertools
import pathlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_deploy import Loopback, Server

import fedpact as fp
from fedpact.deploy.message_list import wire
from fedpact.deploy.party import Site
from fedpact.deploy.server import serve
from fedpact.federation.description import Description
from fedpact.problem.rates import Rate
from fedpact.problem.split import EMBEDDED
from fedpact.run.pact import Pact
from fedpact.settings import bind
from fedpact.settings.base import Bound

MODEL = fp.linear(bias=True)
LOSS = fp.logistic_loss(MODEL)
SPLIT = fp.split_model(bottom=lambda width: fp.linear(), combine="sum")
PARAMS = {"w": np.array([0.8, -0.6]), "b": np.array(0.1)}
GROUPS = ("f", "m", "x")


def people(rows: int = 90, seed: int = 3) -> fp.Table:
    """Three groups, in every one of which both labels occur; weights from 0 to 3."""
    rng = np.random.default_rng(seed)
    sex = np.array(GROUPS)[np.arange(rows) % 3]
    x = rng.normal(size=(rows, 2)) + 0.7 * (sex == "m")[:, None] - 0.4 * (sex == "x")[:, None]
    y = (x @ np.array([1.0, -1.0]) + rng.normal(size=rows) > 0.2).astype(int)
    return fp.Table(x=x, y=y, sex=sex, weight=rng.integers(0, 4, rows))


def scores_of(params: Any, table: Any) -> np.ndarray:
    return table["x"] @ np.asarray(params["w"]) + np.asarray(params["b"])


def gap_of(per_row: np.ndarray, groups: np.ndarray, rows: Any = True, weights: Any = 1.0) -> float:
    """The largest less the smallest weighted mean of the groups, by the definition."""
    weights = np.broadcast_to(weights, len(per_row))
    chosen = [rows & (groups == value) for value in np.unique(groups)]
    means = [(weights[mine] * per_row[mine]).sum() / weights[mine].sum() for mine in chosen]
    return max(means) - min(means)


def at(bound: Bound, counted: bool = False, w: Any = None) -> Any:
    """The functions of the parties in the only bucket, with a leading party axis."""
    w = bound.start if w is None else w
    return jax.vmap(lambda own: own.counted(w) if counted else own(w))(bound.stacks[0])


STATED: dict[str, Callable[..., fp.Expression]] = {
    "parity": lambda of, **more: fp.demographic_parity_gap(of, group="sex", **more),
    "opportunity": lambda of, **more: fp.equal_opportunity_gap(of, group="sex", **more),
    "odds": lambda of, **more: fp.equalized_odds_gap(of, group="sex", **more),
}


def expected(name: str, per_row: np.ndarray, table: fp.Table, weights: Any = 1.0) -> float:
    among = {"parity": [True], "opportunity": [table["y"] == 1], "odds": [table["y"] == 1, table["y"] != 1]}[name]
    return max(gap_of(per_row, table["sex"], rows, weights) for rows in among)


@pytest.mark.parametrize("weights", [None, "weight"])
@pytest.mark.parametrize("name", list(STATED))
def test_the_gap_is_between_all_groups_that_the_parties_have(name: str, weights: str | None):
    table = people()
    parties = fp.split_rows(table, parties=2, seed=1)
    gap = STATED[name](fp.decisions(MODEL), weights=weights)
    limits = [gap <= 0.25, STATED[name](LOSS, weights=weights).pooled() <= 0.0]
    bound = bind(fp.minimize(fp.mean(LOSS), limits), parties, start=PARAMS)
    each = 12 if name == "odds" else 6
    counted = np.asarray(at(bound, counted=True).constraints)
    assert counted.shape == (2, each)
    for own, party in zip(counted, parties.values(), strict=True):
        of = 1.0 if weights is None else party[weights]
        decided = (scores_of(PARAMS, party) > 0).astype(float)
        assert own.max() + 0.25 == pytest.approx(expected(name, decided, party, of), abs=1e-12)
    pooled = np.asarray(at(bound).pooled).sum(0)
    assert pooled.shape == (each,)
    losses = np.asarray(LOSS(PARAMS, {"x": table["x"], "y": table["y"]}))
    of = 1.0 if weights is None else table[weights]
    assert pooled.max() == pytest.approx(expected(name, losses, table, of), abs=1e-12)


@given(st.lists(st.sampled_from([0, 1, 2.5, -3]), min_size=6, max_size=14), st.integers(0, 2**31))
@settings(max_examples=15)
def test_numbers_of_any_kind_are_groups(values: list[float], seed: int):
    values = [*values, 0, 1]
    x = np.random.default_rng(seed).normal(size=(len(values), 2))
    half = len(values) // 2
    tables = [fp.Table(x=x[:half], g=np.array(values[:half], float)), fp.Table(x=x[half:], g=np.array(values[half:]))]
    gap = fp.demographic_parity_gap(MODEL, group="g").pooled() <= 0.0
    bound = bind(fp.minimize(fp.mean(fp.positive_rate(MODEL)), [gap]), tables, start=PARAMS)
    rates = 1 / (1 + np.exp(-scores_of(PARAMS, {"x": x})))
    found = sum(np.asarray(jax.vmap(lambda own: own(bound.start))(s).pooled).sum(0) for s in bound.stacks)
    assert np.max(found) == pytest.approx(gap_of(rates, np.array(values, float)), abs=1e-12)


def test_chosen_groups_and_the_servers_own():
    table = people()
    server = people(60, seed=9).take(np.arange(60) % 3 != 2)  # the server has two of the groups
    chosen = fp.demographic_parity_gap(LOSS, group="sex", groups=["x", "f"]) <= 0.0
    at_server = fp.demographic_parity_gap(LOSS, group="sex", weights="weight").at_server() <= 0.0
    bound = bind(fp.minimize(fp.mean(LOSS), [chosen, at_server]), [table], server, start=PARAMS)
    losses = np.asarray(LOSS(PARAMS, {"x": table["x"], "y": table["y"]}))
    two = table["sex"] != "m"
    assert np.max(at(bound).constraints) == pytest.approx(gap_of(losses[two], table["sex"][two]), abs=1e-12)
    own = np.asarray(bound.server_data.functions(bound.start).constraints)
    assert own.shape == (2,)
    losses = np.asarray(LOSS(PARAMS, {"x": server["x"], "y": server["y"]}))
    assert own.max() == pytest.approx(gap_of(losses, server["sex"], weights=server["weight"]), abs=1e-12)


def test_over_columns_the_label_holder_has_groups_and_weights():
    table = people(40)
    parties = fp.split_columns(table, {"bank": [0], "shop": [1]}, active=["bank"])
    loss = fp.logistic_loss(SPLIT)
    limits = [STATED["odds"](loss) <= 0.3, STATED["parity"](fp.decisions(SPLIT), weights="weight") <= 0.3]
    bound = bind(fp.minimize(fp.mean(loss, weights="weight"), limits), parties)
    scores = np.random.default_rng(2).normal(size=40)
    rows = {**bound.server_data.functions.rows, EMBEDDED: jnp.asarray(scores)}
    found = dataclasses.replace(bound.server_data.functions, rows=rows).counted(bound.start)
    losses = np.logaddexp(0, np.where(table["y"] == 1, -scores, scores))
    assert found.pooled.shape == (18,)
    assert float(found.pooled[:12].max()) == pytest.approx(expected("odds", losses, table), abs=1e-12)
    decided = (scores > 0).astype(float)
    assert float(found.pooled[12:].max()) == pytest.approx(
        expected("parity", decided, table, table["weight"]), abs=1e-12
    )
    assert float(found.objective) == pytest.approx(np.average(losses, weights=table["weight"]), abs=1e-12)


def test_a_solved_problem_keeps_its_words_and_is_verified(tmp_path: pathlib.Path):
    table = people(150)
    parties = fp.split_rows(table, parties=2, seed=1)
    gap = fp.demographic_parity_gap(MODEL, group="sex").pooled() <= 0.02
    problem = fp.minimize(fp.mean(LOSS), [gap], fp.l2(1e-2))
    result = fp.solve(problem, parties, tolerance=1e-6, save=tmp_path)
    assert result.converged, result
    assert result.problem is problem
    rates = 1 / (1 + np.exp(-scores_of(result.params, table)))
    report = result.constraint("gap(mean(positive_rate) by sex) <= 0.02")
    assert report.values[0] == pytest.approx(gap_of(rates, table["sex"]), abs=1e-10)
    assert report.values[0] == pytest.approx(0.02, abs=1e-5)
    assert "gap(mean(positive_rate) by sex) <= 0.02" in str(result)
    assert fp.verify(tmp_path, problem, parties, tolerance=1e-5).ok
    assert "InteriorPoint" in str(fp.explain(problem, parties))
    chosen = fp.demographic_parity_gap(MODEL, group="sex", groups=GROUPS).pooled() <= 0.02
    again = fp.solve(fp.minimize(fp.mean(LOSS), [chosen], fp.l2(1e-2)), parties, tolerance=1e-6)
    np.testing.assert_array_equal(again.params["w"], result.params["w"])


# weights


def test_a_weight_is_as_many_rows():
    table = people(80)
    repeated = table.take(np.repeat(np.arange(80), table["weight"]))
    heavy = {"north": table.take(slice(0, 40)), "south": table.take(slice(40, 80))}
    often = {name: own.take(np.repeat(np.arange(40), own["weight"])) for name, own in heavy.items()}
    assert sum(own.rows for own in often.values()) == repeated.rows == table["weight"].sum()

    def stated(weights: str | None) -> fp.Problem:
        missed = fp.mean(LOSS, where=fp.col("y") == 1, weights=weights) <= 0.4
        gap = fp.demographic_parity_gap(MODEL, group="sex", weights=weights).pooled() <= 0.1
        both = fp.mean(LOSS, weights=weights) + fp.mean(LOSS, weights=weights).pooled()
        return fp.minimize(both, [missed.named("missed"), gap.named("gap")], fp.l2(1e-2))

    ones, many = (fp.solve(stated(w), of, tolerance=1e-10) for w, of in (("weight", heavy), (None, often)))
    assert ones.converged
    assert max(ones.constraint("missed").multipliers) > 1e-3
    assert max(ones.constraint("gap").multipliers) > 1e-3
    assert ones.objective == pytest.approx(many.objective, abs=1e-12)
    np.testing.assert_allclose(ones.params["w"], many.params["w"], rtol=0, atol=1e-12)
    for name in ("missed", "gap"):
        np.testing.assert_allclose(ones.constraint(name).values, many.constraint(name).values, rtol=0, atol=1e-12)


def test_rows_of_weight_0_are_not_read():
    table = fp.Table(x=np.array([[1.0], [2.0], [-1.0]]), weight=np.array([1.0, 0.5, 0.0]))
    roots = fp.mean(lambda params, rows: jnp.sqrt(rows["x"][:, 0]) * params["w"], weights="weight")
    bound = bind(fp.minimize(roots), [table], start={"w": np.array(2.0)})
    value, slope = jax.value_and_grad(lambda w: at(bound, w=w).objective[0])(bound.start)
    assert float(value) == pytest.approx(2 * (1 + 0.5 * np.sqrt(2)) / 1.5, abs=1e-12)
    assert float(slope[0]) == pytest.approx((1 + 0.5 * np.sqrt(2)) / 1.5, abs=1e-12)


# rates by name

COUNTS = {
    "true_positive_rate": lambda decided, y: decided[y].mean(),
    "false_negative_rate": lambda decided, y: (~decided)[y].mean(),
    "false_positive_rate": lambda decided, y: decided[~y].mean(),
    "true_negative_rate": lambda decided, y: (~decided)[~y].mean(),
    "error_rate": lambda decided, y: (decided != y).mean(),
}


def test_rates_by_name_are_counted():
    table = people(60)
    table = table.with_columns(y=np.where(table["y"] == 1, 2, -1), other=1 + table["weight"])
    names = [*COUNTS, "selection_rate"]
    limits = [getattr(fp, name)(MODEL, "y", 2, 0.3) <= 0 for name in COUNTS]
    limits += [fp.selection_rate(MODEL, 0.3) <= 0, fp.error_rate(MODEL, "y", 2, 0.3, weights="other") <= 0]
    loss = fp.logistic_loss(MODEL, labels=(-1, 2))
    bound = bind(fp.minimize(fp.mean(loss), limits), [table], start=PARAMS)
    scores, y = scores_of(PARAMS, table), table["y"] == 2
    decided = scores > 0.3
    rates = [count(decided, y) for count in COUNTS.values()]
    rates += [decided.mean(), np.average(decided != y, weights=table["other"])]
    np.testing.assert_allclose(at(bound, counted=True).constraints[0], rates, rtol=0, atol=1e-12)
    smooth = dict(zip([*names, "weighted"], np.asarray(at(bound).constraints[0]), strict=True))
    soft = 1 / (1 + np.exp(-(scores - 0.3) / 0.1))
    assert smooth["error_rate"] == pytest.approx(np.where(y, 1 - soft, soft).mean(), abs=1e-12)
    assert smooth["false_negative_rate"] == pytest.approx(1 - soft[y].mean(), abs=1e-12)


def test_a_smooth_rate_of_wrong_decisions_tends_to_the_counted_one():
    scores, labels = jnp.array([-2.0, -0.5, 0.5, 2.0]), jnp.array([0, 1, 0, 1])
    rate = Rate(1e-3, is_decision=True, positive=1.0)
    np.testing.assert_allclose(rate(scores, labels), [0, 1, 1, 0], atol=1e-12)
    np.testing.assert_array_equal(rate.counted(0.0)(scores, labels), [0, 1, 1, 0])
    np.testing.assert_array_equal(rate.counted(1.0)(scores, labels), [0, 1, 0, 0])


# deployed

PACT = """
import numpy as np
import fedpact as fp

parties = ["north", "south"]
model = fp.linear(bias=True)
loss = fp.logistic_loss(model)


def load(party):
    rng = np.random.default_rng(parties.index(party))
    sex = rng.permutation(np.resize(["f", "m"] if party == "north" else ["x"], 40))
    x = rng.normal(size=(40, 2)) + 0.8 * (sex == "m")[:, None]
    y = (x[:, 0] + rng.normal(size=40) > 0.3).astype(int)
    return fp.Table(x=x, y=y, sex=sex, weight=rng.uniform(0.5, 2.0, 40))


gap = fp.demographic_parity_gap(model, group="sex", weights="weight").pooled()
own = fp.demographic_parity_gap(loss, group="sex", weights="weight").at_server()
limits = [(gap <= 0.05).named("gap"), (own <= 0.3).named("own")]
problem = fp.minimize(fp.mean(loss, weights="weight"), limits, fp.l2(1e-2))
algorithm = fp.InteriorPoint()
server = lambda: load("north")
options = {"tolerance": 1e-6}
"""
COLUMNS_PACT = """
import numpy as np
import fedpact as fp

parties = ["bank", "shop"]
loss = fp.logistic_loss(fp.split_model(bottom=lambda width: fp.linear(), combine="sum"))


def load(party):
    rng = np.random.default_rng(5)
    sex = np.resize(["f", "m", "x"], 60)
    x = rng.normal(size=(60, 3)) + 0.6 * (sex == "m")[:, None]
    y = (x.sum(1) + rng.normal(size=60) > 0.5).astype(int)
    own = {"y": y, "sex": sex, "weight": rng.uniform(0, 2, 60)} if party == "bank" else {}
    return fp.Table(x=x[:, :1] if party == "bank" else x[:, 1:], **own)


gap = fp.demographic_parity_gap(loss, group="sex", weights="weight")
problem = fp.minimize(fp.mean(loss), [(gap <= 0.05).named("gap")], fp.l2(1e-2))
options = {"tolerance": 1e-4, "max_rounds": 5}
"""


@pytest.mark.parametrize("text", [PACT, COLUMNS_PACT], ids=["rows", "columns"])
def test_deployed_as_in_one_process(text: str, tmp_path: pathlib.Path):
    pact = tmp_path / "pact.py"
    pact.write_text(text)
    deployed = serve(pact, Loopback.of(pact, tmp_path), tmp_path / "server")
    stated = Pact(pact)
    local = stated.run(stated.tables())
    assert (deployed.status, deployed.rounds) == (local.status, local.rounds)
    assert deployed.objective == pytest.approx(local.objective, abs=1e-10)
    np.testing.assert_allclose(deployed.constraint("gap").values, local.constraint("gap").values, rtol=0, atol=1e-10)
    told = [Server(Site(pact, party, tmp_path / "again")).says("hello")["description"] for party in stated.parties]
    first = Description.read(told[0])
    if stated.columns:
        assert first.groups == {"sex": ("f", "m", "x")}
        assert Description.read(told[1]).groups == {}
        return
    assert local.converged
    np.testing.assert_allclose(deployed.constraint("own").values, local.constraint("own").values, rtol=0, atol=1e-10)
    assert first.groups == {"sex": ("f", "m")}
    table = stated.table("north")
    groups = {f"sex == {g!r}, weights weight": table["weight"][table["sex"] == g].sum() for g in ("f", "m")}
    assert first.totals == pytest.approx({"all rows, weights weight": table["weight"].sum(), **groups}, rel=1e-14)
    assert "the groups of column sex: 'f', 'm'" in wire(stated).description


def test_a_policy_asks_for_the_rows_of_a_group_and_does_not_name_it(tmp_path: pathlib.Path):
    pact, policy = tmp_path / "pact.py", tmp_path / "policy.toml"
    pact.write_text(PACT)
    policy.write_text("min_rows = 21")
    refused = Server(Site(pact, "north", tmp_path, policy)).says("hello")["refused"]
    assert refused == "a mean over one of its groups is over fewer of its rows than the 21 that its policy demands"
    policy.write_text("min_rows = 20")
    assert "description" in Server(Site(pact, "north", tmp_path, policy)).says("hello")


# bad input


def solved(expression: fp.Expression, parties: Any) -> None:
    fp.solve(fp.minimize(fp.mean(LOSS), [(expression <= 0.1).named("limit")]), parties)


def test_columns_that_make_no_groups_are_refused():
    table = people(30)
    gap = fp.demographic_parity_gap(LOSS, group="sex")
    with pytest.raises(ValueError, match=r"'limit': column 'sex' holds 'm' alone over all parties, .* another column"):
        solved(gap, [table.take(table["sex"] == "m")])
    with pytest.raises(
        ValueError, match=r"'limit': column 'age' has 9 groups, .* 72 smooth inequalities; .*groups=\(a, b"
    ):
        solved(fp.demographic_parity_gap(LOSS, group="age"), [table.with_columns(age=np.arange(30) % 9)])
    with pytest.raises(ValueError, match=r"by age in .* expands to 84 smooth inequalities; .* fewer groups"):
        solved(fp.equalized_odds_gap(LOSS, group="age"), [table.with_columns(age=np.arange(30) % 7)])
    with pytest.raises(ValueError, match="column 'sex', which is missing at party 2: it has x, y"):
        solved(gap, [table, fp.Table(x=table["x"], y=table["y"])])
    with pytest.raises(
        ValueError, match="column 'sex' holds numbers at party 2 and strings at party 1; make them alike"
    ):
        solved(gap, [table, table.with_columns(sex=np.arange(30) % 3)])
    with pytest.raises(ValueError, match="column 'x' of party 1 holds arrays; a group is one value a row"):
        solved(fp.demographic_parity_gap(LOSS, group="x"), [table])
    with pytest.raises(ValueError, match="column 'sex' of party 1 holds 1 NaN"):
        solved(gap, [table.with_columns(sex=np.where(np.arange(30) == 4, np.nan, np.arange(30) % 2))])
    with pytest.raises(ValueError, match=r"selects none of the \d+ rows of party 2 \(no row has sex == 'm'"):
        solved(gap, [table, table.take(table["sex"] != "m")])  # at each party all groups are compared
    with pytest.raises(ValueError, match="holds on the server's own rows, but there are none"):
        solved(gap.at_server(), [table])


def test_a_gap_that_is_open_is_checked_where_it_is_written():
    gap = fp.demographic_parity_gap(LOSS, group="sex")
    with pytest.raises(ValueError, match=r"where gap.* is not convex"):
        fp.minimize(fp.mean(LOSS), [gap >= 0.1])
    with pytest.raises(ValueError, match="a gap == number is not smooth"):
        fp.minimize(fp.mean(LOSS), [gap == 0.1])
    with pytest.raises(ValueError, match=r"the objective gap.* is not differentiable"):
        fp.minimize(gap)
    with pytest.raises(ValueError, match=r"column 'sex' has 9 groups"):
        fp.demographic_parity_gap(LOSS, group="sex", groups=range(9))
    assert not (gap <= 0.1).is_convex


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (np.resize([1.0, -1.0], 30), "column 'weight' of party 2 holds 15 negative values; weights are finite numbers from 0"),
        (np.resize([1.0, np.nan, 1.0], 30), "column 'weight' of party 2 holds 10 NaN and 0 infinite values"),
        (np.resize(["1", "2"], 30), "column 'weight' of party 2 holds strings; weights are"),
        (np.ones((30, 2)), "column 'weight' of party 2 holds arrays; weights are"),
        (np.full(30, 1e308), "column 'weight' of party 2: its sum is too large"),
        (np.zeros(30), "the condition weight > 0 on weights selects none of the 30 rows of party 2, so its mean does not exist"),
    ],
)  # fmt: skip
def test_weights_that_are_none_are_refused(column: np.ndarray, told: str):
    table = people(30)
    with pytest.raises(ValueError, match=told):
        solved(fp.mean(LOSS, weights="weight"), [table, table.with_columns(weight=column)])


def test_more_bad_weights():
    table = people(30)
    nothing = table.with_columns(weight=np.zeros(30))
    with pytest.raises(
        ValueError, match="the mask y == 1 and the condition weight > 0 on weights selects no row at any"
    ):
        solved(fp.mean(LOSS, where=fp.col("y") == 1, weights="weight").pooled(), [nothing])
    with pytest.raises(ValueError, match="weights= reads column 'age', which is missing at party 1"):
        solved(fp.mean(LOSS, weights="age"), [table])
    with pytest.raises(TypeError, match="weights=3: the name of a column"):
        fp.mean(LOSS, weights=3)  # pyright: ignore[reportArgumentType]
    problem = fp.minimize(fp.mean(LOSS), [fp.mean(LOSS, weights="weight").at_server() <= 1])
    with pytest.raises(ValueError, match="on weights selects none of the server's 30 rows"):
        fp.solve(problem, [table], server=nothing)


def test_bad_rates_are_refused():
    bad: Any = fp.error_rate
    with pytest.raises(ValueError, match=r"error_rate\(positive='yes'\): the number of a positive label"):
        bad(MODEL, positive="yes")
    with pytest.raises(TypeError, match=r"error_rate\(label=3\): the name of a column"):
        bad(MODEL, label=3)
    with pytest.raises(TypeError, match="label=3: the name of a column"):
        fp.false_positive_rate(MODEL, label=3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="takes a model"):
        fp.selection_rate("linear")  # pyright: ignore[reportArgumentType]
    many = fp.linear(outputs=3)
    with pytest.raises(ValueError, match=r"wrong_decisions: the scores have shape .*use a model with one score a row"):
        fp.solve(fp.minimize(fp.mean(fp.softmax_loss(many)), [fp.error_rate(many) <= 0.1]), [people(12)])
    assert [str(getattr(fp, name)(MODEL)) for name in itertools.islice(COUNTS, 2)] == [
        "mean(decisions | y == 1)",
        "-1 * mean(decisions | y == 1) + 1",
    ]


def test_groups_by_other_names_are_told_of() -> None:
    rows = {"x": np.ones((4, 1)), "y": np.array([0, 1, 0, 1])}
    north, south = (fp.Table(**rows, sex=np.array(names * 2)) for names in (["F", "M"], ["female", "male"]))
    gap = fp.demographic_parity_gap(fp.linear(), group="sex").pooled()
    problem = fp.minimize(fp.mean(fp.logistic_loss(fp.linear())), [gap <= 0.5])
    with pytest.warns(
        UserWarning, match="'sex' of party 'north' holds 'F', 'M', and that of the others 'female', 'male'"
    ):
        bind(problem, fp.Parties({"north": north, "south": south}), None)
    one_each = (fp.Table(**rows, sex=np.array([name] * 4)) for name in ("F", "M"))
    bind(problem, fp.Parties(dict(zip(("women's", "men's"), one_each, strict=True))), None)  # which may well be
    compared = fp.minimize(fp.mean(fp.logistic_loss(fp.linear()), where=fp.col("sex") == 0))
    with pytest.raises(ValueError, match="cannot be compared with 0; it has 'F', 'M': compare with these"):
        bind(compared, fp.Parties({"north": north}), None)
