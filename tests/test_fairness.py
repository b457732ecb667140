"""Gaps between groups: against numpy on random tables, solved over rows and columns, and what is refused."""

import dataclasses
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpact as fp
from fedpact.problem.split import EMBEDDED
from fedpact.settings import bind
from fedpact.settings.base import Bound

MODEL = fp.linear(bias=True)
LOSS = fp.logistic_loss(MODEL)
GAPS: dict[str, Callable[..., fp.Expression]] = {
    "equal opportunity": lambda of, **more: fp.equal_opportunity_gap(of, label="y", group="sex", **more),
    "demographic parity": lambda of, **more: fp.demographic_parity_gap(of, group="sex", **more),
    "equalised odds": lambda of, **more: fp.equalized_odds_gap(of, label="y", group="sex", **more),
}
BOUND = 0.04
ROWS = {"equal opportunity": 2, "demographic parity": 2, "equalised odds": 4}  # smooth inequalities
MEASURED: dict[str, tuple[Any, dict[str, float], Callable[[np.ndarray, np.ndarray], np.ndarray]]] = {
    "losses": (LOSS, {}, lambda scores, y: np.logaddexp(0, np.where(y == 1, -scores, scores))),
    "rates": (MODEL, {"temperature": 0.5}, lambda scores, y: 1 / (1 + np.exp(-scores / 0.5))),
}


def plain(name: str, per_row: np.ndarray, y: np.ndarray, sex: np.ndarray, positive: float = 1) -> float:
    """The gap by its definition."""
    among = {
        "equal opportunity": [y == positive],
        "demographic parity": [np.ones(len(y), bool)],
        "equalised odds": [y == positive, y != positive],
    }[name]
    return max(abs(per_row[rows & (sex == 0)].mean() - per_row[rows & (sex == 1)].mean()) for rows in among)


def scores_of(params: Any, rows: Any) -> np.ndarray:
    return np.asarray(rows["x"]) @ np.asarray(params["w"]) + np.asarray(params["b"])


def at_start(bound: Bound) -> np.ndarray:
    """The only party's smooth constraints at the starting point."""
    return np.asarray(jax.vmap(lambda own: own(bound.start))(bound.stacks[0]).constraints)[0]


def people(rows: int, seed: int = 2) -> fp.Table:
    """Group 1 has larger features, and larger labels beyond what they explain."""
    rng = np.random.default_rng(seed)
    sex = np.arange(rows) % 2
    x = rng.normal(size=(rows, 3)) + 1.5 * sex[:, None] * np.array([1, 0, 0])
    y = (x @ np.array([1.0, -1, 0.5]) + 0.6 * sex + rng.normal(size=rows) > 0.5).astype(int)
    return fp.Table(x=x, y=y, sex=sex)


@st.composite
def tables(draw: st.DrawFn) -> tuple[fp.Table, dict[str, np.ndarray]]:
    """At least one row of each label in each group, twelve rows in all, and parameters."""
    spare = draw(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=8, max_size=8))
    y, sex = np.array(draw(st.permutations([(0, 0), (0, 1), (1, 0), (1, 1), *spare]))).T
    numbers = st.floats(-3, 3, allow_subnormal=False)
    x = np.reshape(draw(st.lists(numbers, min_size=24, max_size=24)), (12, 2))
    w = np.array(draw(st.lists(numbers, min_size=3, max_size=3)))
    return fp.Table(x=x, y=y, sex=sex), {"w": w[:2], "b": w[2]}


@given(tables(), st.sampled_from(list(GAPS)), st.sampled_from(list(MEASURED)))
@settings(max_examples=30)
def test_gaps_are_those_of_numpy(data: tuple[fp.Table, Any], name: str, measured: str):
    table, params = data
    of, more, formula = MEASURED[measured]
    problem = fp.minimize(fp.mean(LOSS), [GAPS[name](of, **more) <= 0.25])
    bound = bind(problem, [table], start=params)
    found = at_start(bound)
    assert len(found) == ROWS[name]
    expected = plain(name, formula(scores_of(params, table), table["y"]), table["y"], table["sex"])
    assert found.max() + 0.25 == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(("measured", "scope"), [("losses", "pooled"), ("rates", "party")])
@pytest.mark.parametrize("name", list(GAPS))
def test_solved_over_rows_with_a_certificate_that_numpy_confirms(name: str, measured: str, scope: str):
    table = people(240)
    parties = fp.split_rows(table, parties=2, seed=1)
    of, more, formula = MEASURED[measured]
    gap = GAPS[name](of, **more)
    bounded = (gap if scope == "party" else gap.pooled()) <= BOUND
    free = fp.solve(fp.minimize(fp.mean(LOSS), regularizer=fp.l2(1e-2)), parties, fp.InteriorPoint(), tolerance=1e-6)
    fair = fp.solve(
        fp.minimize(fp.mean(LOSS), [bounded.named(name)], regularizer=fp.l2(1e-2)),
        parties,
        fp.InteriorPoint(),
        tolerance=1e-6,
    )

    def gaps(params: Any) -> list[float]:
        holders = [parties[p] for p in parties] if scope == "party" else [table]
        return [plain(name, formula(scores_of(params, h), h["y"]), h["y"], h["sex"]) for h in holders]

    assert max(gaps(free.params)) > 2 * BOUND, "the constraint would not bind"
    assert fair.converged, fair
    assert max(gaps(fair.params)) <= BOUND + 1e-6
    np.testing.assert_allclose(fair.constraint(name).values, gaps(fair.params), rtol=1e-9, atol=1e-12)
    assert fair.objective > free.objective


def test_signed_labels_named_groups_and_another_positive():
    table = people(60)
    signed = np.where(table["y"] == 1, 1, -1)
    named = fp.Table(x=table["x"], y=signed, sex=np.where(table["sex"] == 1, "man", "woman"))
    loss = fp.logistic_loss(MODEL, labels=(-1, 1))
    params = {"w": np.array([0.3, -0.2, 0.5]), "b": np.array(0.1)}
    per_row = np.asarray(loss(params, named))
    for positive in (None, 1, -1):
        for gap in (fp.equal_opportunity_gap, fp.equalized_odds_gap):
            bounded = gap(loss, group="sex", positive=positive, groups=("woman", "man")) <= 0
            bound = bind(fp.minimize(fp.mean(loss), [bounded]), [named], start=params)
            found = at_start(bound).max()
            name = "equal opportunity" if gap is fp.equal_opportunity_gap else "equalised odds"
            assert float(found) == pytest.approx(plain(name, per_row, signed, table["sex"], positive or 1), rel=1e-12)


def test_the_positive_rate_has_no_label_and_the_curvature_of_derivatives():
    table = people(30)
    rate = fp.positive_rate(MODEL, temperature=2.0)
    params = {"w": np.array([0.3, -0.2, 0.5]), "b": np.array(0.1)}
    unlabelled = {"x": table["x"]}
    np.testing.assert_allclose(rate(params, unlabelled), 1 / (1 + np.exp(-scores_of(params, table) / 2)), rtol=1e-12)
    weights = jnp.linspace(0.0, 1.0, 30)

    def total(b: jax.Array, w: jax.Array) -> jax.Array:
        return weights @ rate({"w": w, "b": b}, {"x": jnp.asarray(table["x"])})

    (bb, bw), (_, ww) = jax.hessian(total, argnums=(0, 1))(jnp.asarray(params["b"]), jnp.asarray(params["w"]))
    expected = np.block([[np.reshape(bb, (1, 1)), np.reshape(bw, (1, 3))], [np.reshape(bw, (3, 1)), np.asarray(ww)]])
    found = rate.curvature(jax.tree.map(jnp.asarray, params), {"x": jnp.asarray(table["x"])}, weights)
    assert found is not None
    np.testing.assert_allclose(found.matrix(), expected, atol=1e-12)


def test_a_rate_shares_the_model_of_the_losses():
    other = fp.demographic_parity_gap(fp.linear(), group="sex") <= 0.1
    with pytest.raises(ValueError, match="2 different models"):
        fp.solve(fp.minimize(fp.mean(LOSS), [other]), [people(20)])


# over columns


SPLIT = fp.split_model(bottom=lambda width: fp.linear(), combine="sum")


@pytest.mark.parametrize("measured", list(MEASURED))
@pytest.mark.parametrize("name", list(GAPS))
def test_over_columns_gaps_are_over_all_rows(name: str, measured: str):
    table = people(40)
    parties = fp.split_columns(table, {"bank": [0, 1], "shop": [2]}, active=["bank"])
    loss = fp.logistic_loss(SPLIT)
    of, more = (loss, {}) if measured == "losses" else (SPLIT, {"temperature": 0.5})
    bound = bind(fp.minimize(fp.mean(loss), [GAPS[name](of, **more) <= 0.25]), parties)
    scores = np.random.default_rng(2).normal(size=40)
    rows = {**bound.server_data.functions.rows, EMBEDDED: jnp.asarray(scores)}
    pooled = dataclasses.replace(bound.server_data.functions, rows=rows)(bound.start).pooled
    assert len(pooled) == ROWS[name]
    per_row = MEASURED[measured][2](scores, table["y"])
    expected = plain(name, per_row, table["y"], table["sex"])
    assert float(pooled.max()) == pytest.approx(expected, rel=1e-12)  # bounds are added once, by the label holder


def test_a_run_over_columns_certifies_the_gap_of_its_scores():
    table = people(80)
    parties = fp.split_columns(table, {"bank": [0, 1], "shop": [2]}, active=["bank"])
    loss = fp.logistic_loss(SPLIT)
    gap = (fp.equalized_odds_gap(SPLIT, label="y", group="sex") <= 0.05).named("odds")
    start = {"bank": {"w": np.array([1.0, -1.0])}, "shop": {"w": np.array([0.5])}}
    method = fp.SSCA(batch=80, measure=None)
    result = fp.solve(fp.minimize(fp.mean(loss), [gap]), parties, method, start=start, max_rounds=3)
    rates = 1 / (1 + np.exp(-result.scores(parties)))
    expected = plain("equalised odds", rates, table["y"], table["sex"])
    assert expected > 1e-3
    assert result.constraint("odds").values[0] == pytest.approx(expected, rel=1e-9)


# bad input


def test_a_value_that_no_row_has_is_named():
    table = people(20)

    def solved(gap: fp.Expression, parties: Any = None, loss: Any = LOSS) -> None:
        fp.solve(fp.minimize(fp.mean(loss), [gap <= 0.1]), parties or [table])

    nobody = r"\(no row has sex == 7: column 'sex' holds 0, 1\)"
    with pytest.raises(ValueError, match=rf"selects none of the 20 rows of party 1 {nobody}, so its mean"):
        solved(fp.equal_opportunity_gap(LOSS, group="sex", groups=(0, 7)))
    with pytest.raises(ValueError, match=rf"selects no row at any party {nobody}"):
        solved(fp.demographic_parity_gap(LOSS, group="sex", groups=(0, 7)).pooled())
    with pytest.raises(ValueError, match=r"no row has y == 2: column 'y' holds 0, 1"):
        solved(fp.equalized_odds_gap(MODEL, label="y", group="sex", positive=2))
    columns = fp.split_columns(table, {"bank": [0, 1], "shop": [2]}, active=["bank"])
    split = fp.logistic_loss(SPLIT)
    with pytest.raises(ValueError, match=nobody):
        solved(fp.equal_opportunity_gap(split, group="sex", groups=(7, 1)), columns, split)
    lonely = table.take((table["y"] == 0) | (table["sex"] == 0))  # each value is there, both together are not
    with pytest.raises(ValueError, match=r"\(y == 1\) and \(sex == 1\) selects none of the \d+ rows of party 1, so"):
        solved(fp.equal_opportunity_gap(LOSS, group="sex"), [lonely])
    with pytest.raises(ValueError, match="column 'gender', which is missing at party 1: it has x, y, sex"):
        solved(fp.equal_opportunity_gap(LOSS, group="gender"))


@pytest.mark.parametrize(
    ("of", "options", "told"),
    [
        (LOSS, {"groups": (0,)}, r"groups=\(0,\): two or more different values of column 'sex'"),
        (LOSS, {"groups": (1, 1)}, "two or more different values"),
        (LOSS, {"groups": "01"}, "two or more different values"),
        (LOSS, {"groups": (0, np.nan)}, "two or more different values"),
        (LOSS, {"temperature": 0.5}, "belongs to the smooth rate of a model, but the gap is taken of logistic_loss"),
        (MODEL, {"temperature": 0.0}, r"temperature=0\.0\): a positive number"),
        (LOSS, {"group": 3}, "group=3: the name of a column"),
        ("logistic", {}, "taken of a loss such as .*not of 'logistic'"),
    ],
)
@pytest.mark.parametrize("gap", [fp.equal_opportunity_gap, fp.demographic_parity_gap, fp.equalized_odds_gap])
def test_bad_options_are_refused_where_they_are_given(gap: Any, of: Any, options: dict[str, Any], told: str):
    with pytest.raises((ValueError, TypeError), match=told):
        gap(of, **{"group": "sex", **options})


def test_bad_labels_are_refused():
    with pytest.raises(ValueError, match=r"positive=-1: the loss knows the labels 0, 1 in column 'y'"):
        fp.equal_opportunity_gap(LOSS, group="sex", positive=-1)
    with pytest.raises(TypeError, match="label=5: the name of a column"):
        fp.equalized_odds_gap(LOSS, group="sex", label=cast("Any", 5))
    with pytest.raises(ValueError, match=r"positive=\[1\]: the value of column 'y'"):
        fp.equal_opportunity_gap(LOSS, group="sex", positive=cast("Any", [1]))
    many = fp.linear(outputs=3)
    gap = fp.demographic_parity_gap(many, group="sex") <= 0.1
    with pytest.raises(ValueError, match="one score a row"):
        fp.solve(fp.minimize(fp.mean(fp.softmax_loss(many)), [gap]), [people(20)])
