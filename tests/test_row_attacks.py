"""A curious server over rows: what attacks read from one party's replies, and from sums; the attacks by themselves."""

import functools
from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import pytest
import scipy.optimize

import fedpact as fp
from fedpact.privacy import candidates, row_attacks, views
from fedpact.privacy.readings import Reading
from fedpact.problem.oracle import Values
from fedpact.protocol.messages import Reply
from fedpact.run import row_audit
from fedpact.settings import bind

LOSS = fp.logistic_loss(fp.linear(bias=True))
WIDTH = 5  # features; 6 parameters
FREE = fp.minimize(fp.mean(LOSS), regularizer=fp.l2(1e-2))
POOLED = fp.minimize(
    fp.mean(LOSS, where=fp.col("y") == 0).pooled(),
    subject_to=[fp.mean(LOSS, where=fp.col("y") == 1).pooled() <= 0.5],
    regularizer=fp.l2(1e-2),
)
LIMITED = fp.minimize(
    fp.mean(LOSS, where=fp.col("y") == 0),
    subject_to=[(fp.mean(LOSS, where=fp.col("y") == 1) <= 0.5).named("class 1")],
    regularizer=fp.l2(1e-2),
)


def rows(count: int, seed: int) -> fp.Table:
    rng = np.random.default_rng(seed)
    y = np.arange(count) % 3 == 0
    return fp.Table(x=rng.normal(size=(count, WIDTH)) + 0.7 * y[:, None], y=y.astype(float))


def federation(*sizes: int) -> fp.Parties:
    return fp.Parties({f"party {place + 1}": rows(count, place) for place, count in enumerate(sizes)})


SMALL, LARGE = (5, 5, 6), (12, 12, 12)
FEW, MANY = federation(*SMALL), federation(*LARGE)


@functools.cache
def attacked(problem: fp.Problem, sizes: tuple[int, ...], method: Any, sums: bool = False) -> fp.RowAudit:
    return fp.audit(problem, federation(*sizes), method, rounds=40, privacy=fp.SecureAggregation() if sums else None)


def values(objective: float, constraints: Any, pooled: Any) -> Values:
    arrays: Any = np.asarray(objective), np.asarray(constraints), np.asarray(pooled)
    return Values(*arrays)


def slope_of_all(params: Any, data: Any) -> Any:
    return 0.01 * (params["w"] @ data["x"].mean(0)) ** 2


# what is read


@pytest.mark.parametrize("method", [fp.InteriorPoint(), fp.ProxAL(fp.Newton())], ids=["interior point", "ProxAL"])
def test_hessians_show_every_row_of_a_small_party(method: fp.Algorithm) -> None:
    seen = attacked(LIMITED, SMALL, method)
    for name, leak in seen.items():
        assert leak.rows == FEW[name].rows
        assert leak.rows_recovered == 1.0
        assert leak.label_accuracy == 1.0
        assert leak.majority == pytest.approx(2 / 3, abs=0.07)
        assert leak.membership == 1.0
        assert leak.federation_membership is None
    assert "the server reads 5 of 5 rows of party 1 from Hessians" in seen["party 1"].words[0]
    assert seen["party 1"].words[0] in str(seen)


def test_more_rows_than_parameters_are_not_read_and_it_is_said_why() -> None:
    seen = attacked(LIMITED, LARGE, fp.InteriorPoint())
    for leak in seen.values():
        assert leak.rows_recovered == 0.0
        assert leak.membership == 1.0  # the same Hessians still tell which of the known rows are here,
        assert leak.label_accuracy == 1.0  # and their labels
    assert "party 1 has 12 rows, more than the 6 parameters" in str(seen)
    assert "no more" in str(seen)


@pytest.mark.parametrize("method", [fp.InteriorPoint(), fp.ProxAL(fp.LBFGS())], ids=["interior point", "ProxAL"])
def test_sums_of_parties_with_limits_of_their_own_show_no_row(method: fp.Algorithm) -> None:
    hidden = attacked(LIMITED, LARGE, method, sums=True)
    for leak in hidden.values():
        assert leak.rows_recovered == 0.0
        assert leak.majority is not None
        assert leak.label_accuracy == leak.majority
        assert leak.membership is not None
        assert leak.membership <= 0.75
    assert "receiving sums over all parties" in str(hidden)


def test_sums_show_rows_where_all_parties_together_have_few() -> None:
    seen = attacked(FREE, (2, 2, 2), fp.InteriorPoint(), sums=True)
    assert [leak.rows_recovered for leak in seen.values()] == [1.0, 1.0, 1.0]
    assert "rows of party 2 from Hessians, two rounds at a time, summed over all parties" in str(seen)


def test_who_knows_all_features_reads_all_labels_from_sums() -> None:
    """What secure sums do not hide, which docs/threat_model.md says."""
    with jax.enable_x64(True):
        bound = bind(POOLED, MANY)
        method = fp.InteriorPoint().bind(bound.setting)
        recorded, _ = row_audit.watched(bound, method, 40, 0)
        attack = row_audit.Attacked(POOLED, bound, method, dict(MANY.items()), None, recorded, True, 0)
        everyone = row_audit.joined(list(MANY.values()))
        view = views.of_sums(recorded)
        fit = candidates.fitted(attack.means(0), attack.readings(view, 0), attack.variants(everyone))
        assert fit.trusted
        assert (attack.labels_of(fit) == everyone["y"]).all()


@pytest.mark.parametrize(
    "method",
    [fp.FedAvg(step=1.0), fp.SCAFFOLD(step=0.5), fp.FedSGD(batch=12, step=0.5)],
    ids=lambda method: type(method).__name__,
)
def test_gradients_tell_members_and_labels(method: fp.Algorithm) -> None:
    leak = attacked(FREE, LARGE, method)["party 1"]
    assert leak.rows_recovered == 0.0
    assert leak.membership == 1.0
    assert leak.label_accuracy == 1.0


def test_the_gradient_of_one_row_is_the_row() -> None:
    leak = attacked(FREE, (1, 12, 12), fp.FedAvg(step=1.0))["party 1"]
    assert leak.rows_recovered == 1.0
    assert leak.words[0] == "the server reads 1 of 1 rows of party 1 from gradients of a single row"


def test_what_is_not_attacked_is_said() -> None:
    drawn = attacked(FREE, LARGE, fp.FedSGD(batch=3, step=0.5))
    leak = drawn["party 1"]
    assert (leak.rows_recovered, leak.membership) == (0.0, None)
    assert leak.label_accuracy == leak.majority
    assert "not to say that nothing can be read" in str(drawn)
    whole = attacked(fp.minimize(fp.mean(LOSS) + fp.value(slope_of_all)), LARGE, fp.FedAvg(step=0.5))
    assert whole["party 1"].membership is None
    assert "fp.value(fn) of whole tables" in str(whole)
    network = fp.minimize(fp.mean(fp.logistic_loss(fp.mlp([WIDTH, 2, 1]))))
    seen = attacked(network, LARGE, fp.FedAvg(step=0.5))
    assert "only losses of a linear model" in str(seen)
    assert seen["party 1"].membership is not None


def test_outsiders_measure_membership_in_the_federation() -> None:
    seen = fp.audit(LIMITED, MANY, fp.InteriorPoint(), rounds=40, outsiders=rows(12, 99))
    assert seen["party 2"].federation_membership == 1.0
    assert "in the federation" in str(seen)
    assert "<th>in the federation</th>" in seen._repr_html_()
    assert "<caption>what a curious server can compute from" in seen._repr_html_()


def test_several_limits_and_a_norm_in_the_objective() -> None:
    stated = fp.minimize(
        fp.mean(LOSS) + 0.01 * fp.value(fp.squared_norm),
        subject_to=[fp.mean(LOSS, where=fp.col("y") == 0) <= 0.8, fp.mean(LOSS, where=fp.col("y") == 1) <= 0.9],
        regularizer=fp.l2(1e-2),
    )
    leak = attacked(stated, SMALL, fp.InteriorPoint())["party 1"]
    assert leak.rows_recovered == 0.0  # of two limits, JᵀWJ is not known
    assert leak.membership == 1.0


# what a server reads off messages is what the party computed


@pytest.mark.parametrize(
    ("problem", "parties", "method", "disclose"),
    [
        (LIMITED, FEW, fp.InteriorPoint(), True),
        (LIMITED, FEW, fp.ProxAL(fp.Newton()), False),
        (LIMITED, MANY, fp.ProxAL(fp.LBFGS()), True),
        (POOLED, MANY, fp.InteriorPoint(), True),
        (FREE, MANY, fp.FedAvg(step=1.0), True),
        (FREE, MANY, fp.SCAFFOLD(step=0.5), True),
    ],
    ids=["interior point", "Newton", "L-BFGS", "pooled", "FedAvg", "SCAFFOLD"],
)
def test_readings_are_derivatives_of_the_partys_functions(
    problem: fp.Problem, parties: fp.Parties, method: Any, disclose: bool
) -> None:
    with jax.enable_x64(True):
        bound = bind(problem, parties, disclose=disclose)
        bound_method = method.bind(bound.setting)
        recorded, _ = row_audit.watched(bound, bound_method, 40, 0)
        attack = row_audit.Attacked(problem, bound, bound_method, dict(parties.items()), None, recorded, False, 0)
        own = bound.own_data("party 2")
        told = attack.readings(views.of_one_party(recorded, 1), 1)
        assert len(told) > 8
        for reading in told:
            weights = values(reading.objective, reading.constraints, reading.pooled)
            if reading.kind == "hessian":
                truth = np.asarray(own.curvature(reading.w, weights).matrix())
            else:
                truth = np.asarray(jax.grad(lambda w, by=weights: _weighted(own(w), by))(reading.w))
            assert np.abs(reading.value - truth).max() <= 1e-6 * (1e-6 + np.abs(truth).max())


def _weighted(values: Values, by: Values) -> Any:
    return by.objective * values.objective + by.constraints @ values.constraints + by.pooled @ values.pooled


# the attacks


@hypothesis.given(st.integers(0, 1000), st.integers(1, 6), st.booleans())
def test_rows_from_hessians(seed: int, count: int, has_bias: bool) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 6))
    x[:, 0] = 1.0 if has_bias else x[:, 0]
    hessians = [x.T @ (rng.uniform(0.1, 1.0, count)[:, None] * x) for _ in range(4)]
    bias = 0 if has_bias else None
    found = row_attacks.from_hessians(hessians, bias, count)
    assert (row_attacks.matched(found, x, bias) >= 0).all()
    assert len(found) == count


def test_no_rows_from_hessians_of_many() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([np.ones((9, 1)), rng.normal(size=(9, 5))], axis=1)
    hessians = [x.T @ (rng.uniform(0.1, 1.0, 9)[:, None] * x) for _ in range(4)]
    assert not len(row_attacks.from_hessians(hessians, 0, 9))
    assert not len(row_attacks.from_hessians(hessians[:2], 0, 9))  # nothing to compare with
    assert not len(row_attacks.from_hessians([], 0, 9))
    assert not len(row_attacks.from_hessians([np.diag([1.0, -1.0])] * 3, 0, 2))


def test_a_row_with_a_rare_value_is_found_among_many_and_nothing_else() -> None:
    """More rows than parameters hide the rows that are combinations of others, and only these."""
    rng = np.random.default_rng(1)
    x = np.concatenate([np.ones((9, 1)), rng.normal(size=(9, 4)), np.zeros((9, 1))], axis=1)
    x[3, 5] = 1.0  # nobody else has it
    weights = [rng.uniform(0.1, 1.0, 9) for _ in range(4)]
    weights += [weights[-1] * (1 + 1e-7 * rng.normal(size=9)) for _ in range(4)]  # the end of a run that converges
    found = row_attacks.from_hessians([x.T @ (line[:, None] * x) for line in weights], 0, 9)
    np.testing.assert_allclose(found, x[3:4], atol=1e-8)


def test_a_row_from_gradients() -> None:
    row = np.array([1.0, 2.0, -3.0])
    np.testing.assert_allclose(row_attacks.from_gradients([0.5 * row, -2.0 * row], 0), [row])
    assert not len(row_attacks.from_gradients([0.5 * row, row + np.eye(3)[1]], 0))
    assert not len(row_attacks.from_gradients([row, np.zeros(3)], 0))


def test_matching_needs_four_digits() -> None:
    truth = np.array([[1.0, 2.0], [1.0, -1.0]])
    near = truth + np.array([[0.0, 1e-4], [0.0, 1e-3]])
    assert row_attacks.matched(near, truth, 0).tolist() == [0, -1]
    assert row_attacks.matched(-3 * truth / np.linalg.norm(3 * truth, axis=1)[:, None], truth, None).tolist() == [0, 1]


@hypothesis.given(st.integers(0, 1000), st.integers(1, 12), st.integers(1, 12))
def test_nonnegative_least_squares(seed: int, equations: int, unknowns: int) -> None:
    rng = np.random.default_rng(seed)
    matrix, value = rng.normal(size=(equations, unknowns)), rng.normal(size=equations)
    found = candidates.nonnegative(matrix, value)
    _, best = scipy.optimize.nnls(matrix, value)
    assert (found >= 0).all()
    assert np.linalg.norm(matrix @ found - value) <= best + 1e-6


def test_contributions_add_up_to_the_partys_gradient() -> None:
    table = MANY["party 1"]
    with jax.enable_x64(True):
        bound = bind(LIMITED, MANY)
        means = candidates.Means.of(bound.compiled.party, list(MANY.values()), 0)
        w = np.linspace(-1.0, 1.0, 6)
        reading = Reading("gradient", w, np.zeros(6), 1.0, np.array([0.3]), np.zeros(0))
        parts = candidates.contributions(means, reading, table)
        own = bound.own_data("party 1")
        truth = jax.grad(lambda w: _weighted(own(w), values(1.0, [0.3], np.zeros(0))))(w)
        assert parts is not None
        np.testing.assert_allclose(parts.sum(0), truth, rtol=1e-12)


# views


def test_a_view_of_sums_has_nothing_of_one_party() -> None:
    replies = tuple(Reply(sum=np.array([k, 1.0]), max=np.asarray(0.3 * k), per_party=np.ones(2)) for k in (1, 2))
    recorded = [views.Recorded("a step", None, replies)]
    together = views.of_sums(recorded)
    assert together.parties == 2
    assert together.exchanges[0].reply.sum.tolist() == [3.0, 2.0]
    assert together.exchanges[0].reply.max == 1.0
    assert together.exchanges[0].reply.per_party is None
    assert views.of_one_party(recorded, 1).exchanges[0].reply is replies[1]


@hypothesis.given(st.floats(1e-300, 1e300))
def test_maxima_become_powers_of_two(number: float) -> None:
    power = float(views.rounded_up(number))
    assert number <= power < 2 * number
    assert np.frexp(power)[0] == 0.5


def test_maxima_that_are_no_positive_numbers() -> None:
    assert views.rounded_up(np.array([0.0, -2.0, np.inf])).tolist() == [0.0, 0.0, np.inf]
    assert np.isnan(views.rounded_up(np.nan))


# what is refused


def test_what_cannot_be_audited_is_said() -> None:
    def audited(problem: fp.Problem = FREE, method: Any = fp.InteriorPoint(), **more: Any) -> Any:
        return fp.audit(problem, FEW, method, **more)

    with pytest.raises(TypeError, match=r"privacy=True: over rows fp.SecureAggregation\(\), or None"):
        audited(privacy=True)
    with pytest.raises(ValueError, match="group='y': groups are inferred by holders of columns"):
        audited(group="y")
    with pytest.raises(TypeError, match=r"such as fp.InteriorPoint\(\), not None"):
        audited(method=None)
    with pytest.raises(ValueError, match="FairVFL is for parties who hold columns"):
        audited(method=fp.FairVFL())
    with pytest.raises(ValueError, match="rounds=0"):
        audited(rounds=0)
    with pytest.raises(ValueError, match="outsiders= has no column 'y'"):
        audited(outsiders=fp.Table(x=np.zeros((2, WIDTH))), rounds=1)
    rate = fp.mean(fp.decisions(fp.linear(bias=True)))
    with pytest.raises(ValueError, match="corrections of counted rates"):
        audited(fp.minimize(fp.mean(LOSS), subject_to=[rate <= 0.9]))
    with pytest.raises(KeyError, match="no party 'north'; there are party 1"):
        attacked(LIMITED, SMALL, fp.InteriorPoint())["north"]
