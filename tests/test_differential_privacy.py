"""Differential privacy: what one row can move, how much noise there is, what was spent, and what is refused."""

import dataclasses
import math
from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from problems import classes

import fedpact as fp
from fedpact.privacy.accounting import epsilon_spent, noise_multiplier
from fedpact.privacy.differential import CERTIFICATE, secret_normals
from fedpact.problem.oracle import derivatives
from fedpact.problem.private_oracle import PrivateOracle, clipped_sum
from fedpact.run import drivers
from fedpact.run.selection import protected
from fedpact.settings import bind

MODEL = fp.linear()
LOSS = fp.logistic_loss(MODEL)
ONES, ZEROS = (fp.mean(LOSS, where=fp.col("y") == label) for label in (1, 0))
LIMIT = (ONES.pooled() <= 0.6).named("ones")
PARTIES = fp.split_rows(classes(0, (12, 9, 12)))
PROBLEM = fp.minimize(ZEROS, [LIMIT], fp.l2(0.01))
ROWS, SIZE = 33, 3
PRIVACY = fp.DifferentialPrivacy(3.0, 1e-5, clip=2.0, seed=4)
SHORT = fp.PrimalDual(rounds=6)


def solved(privacy: Any = PRIVACY, algorithm: Any = SHORT, problem: fp.Problem = PROBLEM, **options: Any) -> fp.Result:
    return fp.solve(problem, options.pop("parties", PARTIES), algorithm, privacy=privacy, **options)


@pytest.fixture(scope="module")
def result() -> fp.Result:
    return solved()


# what one row can move

OWN = bind(PROBLEM, PARTIES).own_data("party 1")
TOTAL = jax.jit(clipped_sum)
FEATURES = [-1e200, -30.0, -1.0, 0.0, 0.5, 40.0, 1e6, 1e308, math.inf, math.nan]


def test_without_a_tight_clip_the_sum_is_exact() -> None:
    w = jnp.array([0.3, -0.2, 0.5])
    values, slopes = derivatives(OWN, w)
    told = TOTAL(OWN, w, jnp.asarray(1e3))
    np.testing.assert_allclose(told[:, 0], [values.objective, *values.pooled], atol=1e-14)
    np.testing.assert_allclose(told[:, 1:], [slopes.objective, *slopes.pooled], atol=1e-14)


@hypothesis.given(
    row=st.integers(0, 11),
    features=st.lists(st.sampled_from(FEATURES), min_size=3, max_size=3),
    at=st.lists(st.floats(-5, 5), min_size=3, max_size=3),
    limit=st.sampled_from([1e-3, 0.02, 1.0]),
)
def test_no_row_moves_the_sum_by_more_than_the_limit(
    row: int, features: list[float], at: list[float], limit: float
) -> None:
    """Whatever the row holds: the sum without it (its weights are zero) is within the limit of the sum with it."""
    w, clip = jnp.array(at), jnp.asarray(limit)
    x = OWN.rows["x"].at[row].set(jnp.array(features))
    there = dataclasses.replace(OWN, rows={**OWN.rows, "x": x})
    without = dataclasses.replace(there, weights=there.weights.at[:, row].set(0.0))
    with_row, without_row = TOTAL(there, w, clip), TOTAL(without, w, clip)
    assert np.isfinite(with_row).all()
    assert np.linalg.norm(with_row - without_row) <= limit * (1 + 1e-9)


def test_the_limit_is_reached() -> None:
    """A row in the objective or in the constraint has its values and gradients clipped together, not one by one."""
    w, limit = jnp.zeros(3), jnp.asarray(1e-3)
    for row in (0, 1):  # of class 0, which the objective is over; of class 1, which the constraint is over
        without = dataclasses.replace(OWN, weights=OWN.weights.at[:, row].set(0.0))
        moved = TOTAL(OWN, w, limit) - TOTAL(without, w, limit)
        assert np.linalg.norm(moved) == pytest.approx(1e-3)
        assert np.count_nonzero(np.abs(moved).sum(1) > 1e-9) == 1


# accounting


def analytic_delta(epsilon: float, deviation: float) -> float:
    """δ of the Gaussian mechanism with sensitivity 1 (Balle and Wang, ICML 2018, theorem 8)."""
    normal = scipy.stats.norm.cdf
    a, b = 0.5 / deviation, epsilon * deviation
    return float(normal(a - b) - math.exp(epsilon) * normal(-a - b))


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 8.0])
@pytest.mark.parametrize("releases", [1, 60])
def test_the_noise_is_that_of_the_analytic_formula(epsilon: float, releases: int) -> None:
    """As many releases as there are tell what one with √releases times less noise does."""
    z = noise_multiplier(epsilon, 1e-5, releases)
    assert analytic_delta(epsilon, z / math.sqrt(releases)) == pytest.approx(1e-5, rel=1e-3)
    assert analytic_delta(epsilon, 0.999 * z / math.sqrt(releases)) > 1e-5
    assert epsilon_spent(z, 1e-5, releases) == pytest.approx(epsilon, rel=1e-4)


def test_releases_add_up_as_in_an_accountant_that_composes_them() -> None:
    from dp_accounting import GaussianDpEvent
    from dp_accounting.rdp import RdpAccountant

    z = noise_multiplier(1.0, 1e-5, 20)
    rdp = RdpAccountant().compose(GaussianDpEvent(z), 20).get_epsilon(1e-5)
    assert 1.0 < rdp < 1.25  # an upper bound, looser by what Rényi's bounds lose


def test_nothing_and_everything() -> None:
    assert epsilon_spent(1e9, 1e-5, 1) == 0.0
    assert epsilon_spent(1e-9, 1e-5, 1) == math.inf


# noise


def test_noise_has_the_deviation_that_was_accounted() -> None:
    """Of rounds and of the certificate, with all of it and with shares."""
    for summed, own in ((False, 1.0), (True, 1 / math.sqrt(3))):
        privacy = dataclasses.replace(PRIVACY, summed=summed)
        spent = privacy.spent(6, 6, ROWS, 3)
        noise = np.stack(privacy.drawn(6, ROWS, 3, (2000,)))
        deviation = own * privacy.multiplier(6) * privacy.clip / ROWS
        np.testing.assert_allclose(noise[:, :-1].std(), deviation, rtol=0.02)
        np.testing.assert_allclose(noise[:, -1].std(), deviation / math.sqrt(CERTIFICATE), rtol=0.05)
        np.testing.assert_allclose(noise[:, :-1].sum(0).std(), spent.noise_of_rounds, rtol=0.05)
        np.testing.assert_allclose(noise[:, -1].sum(0).std(), spent.noise, rtol=0.1)


def test_releases_are_the_clipped_sum_with_noise_of_their_own() -> None:
    """Over many draws at once."""
    drawn = np.stack(dataclasses.replace(PRIVACY, seed=None).drawn(2, ROWS, 400, (2, 4)))
    w, limit = jnp.zeros(3), jnp.asarray(PRIVACY.limit(ROWS))

    def told(noise: jax.Array) -> jax.Array:
        own = PrivateOracle(OWN, limit, noise)
        return jnp.stack([own.release(k, w) for k in range(4)])

    releases = np.asarray(jax.jit(jax.vmap(told))(drawn))
    np.testing.assert_allclose(releases[:, :3] - TOTAL(OWN, w, limit), drawn, atol=1e-15)
    assert np.isnan(releases[:, 3]).all()  # no noise is left
    together = np.corrcoef(drawn.reshape(400, -1), rowvar=False)
    assert np.abs(together - np.eye(24)).max() < 0.3


def test_noise_is_normal_and_never_the_same() -> None:
    one, other = secret_normals((4, 5000)), secret_normals((4, 5000))
    assert not np.any(one == other)
    assert scipy.stats.kstest(one.ravel(), "norm").pvalue > 1e-4
    assert (
        solved(dataclasses.replace(PRIVACY, seed=None)).params["w"][0]
        != solved(dataclasses.replace(PRIVACY, seed=None)).params["w"][0]
    )


def test_a_private_oracle_has_no_exact_values() -> None:
    own = PrivateOracle(OWN, jnp.asarray(0.1), jnp.zeros((2, 2, 4)))
    for name in ("__call__", "counted", "curvature", "rows", "weights", "program"):
        assert not hasattr(own, name), name


# a run


def test_a_run_tells_what_it_spent(result: fp.Result) -> None:
    spent = result.privacy
    assert spent is not None
    assert (result.status, result.rounds, spent.rounds) == ("max_rounds", 6, 6)
    assert spent.epsilon == pytest.approx(3.0, rel=1e-4)
    assert spent.noise_multiplier == pytest.approx(noise_multiplier(3.0, 1e-5, 6 + CERTIFICATE))
    assert spent.noise == pytest.approx(spent.noise_multiplier * 2.0 / ROWS * math.sqrt(3 / CERTIFICATE))
    assert "not private, the noise has seed 4: would be ε = 3 (δ = 1e-05) spent over 6 rounds" in str(result)
    assert f"noise of ±{spent.noise:.2g}" in str(result)
    assert "no convergence can be shown" in result.message


@pytest.mark.parametrize(
    "bound", [None, 95.0, 1.0005], ids=["possible", "impossible", "impossible by less than the tolerance"]
)
def test_every_release_is_counted(bound: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each party one for each round and one for the certificate, each with noise of its own; and nothing else is evaluated."""
    rate = fp.mean(fp.positive_rate(MODEL)).pooled()
    problem = PROBLEM if bound is None else fp.minimize(PROBLEM.objective, [rate >= bound], fp.l2(1e-2))
    numbers: list[Any] = []
    told = PrivateOracle.release

    def counted(own: PrivateOracle, number: Any, w: jax.Array) -> jax.Array:
        jax.debug.callback(lambda n: numbers.append(np.asarray(n)), number + 0 * own.index)
        return told(own, number, w)

    monkeypatch.setattr(PrivateOracle, "release", counted)
    drivers.forget()  # programs without it
    solved(algorithm=fp.PrimalDual(rounds=3), problem=problem, parties=fp.split_rows(classes(0, (8, 8, 8))))
    jax.effects_barrier()
    drivers.forget()  # and with it
    assert sorted(int(n) for call in numbers for n in np.ravel(call)) == sorted([0, 1, 2, 3] * 3)


def test_a_shorter_run_spends_less(result: fp.Result) -> None:
    shorter = solved(max_rounds=2)
    assert shorter.rounds == 2
    assert shorter.privacy is not None
    assert shorter.privacy.epsilon == pytest.approx(
        epsilon_spent(noise_multiplier(3.0, 1e-5, 6 + CERTIFICATE), 1e-5, 2 + CERTIFICATE)
    )
    assert shorter.privacy.epsilon < 3.0
    assert "stopped at max_rounds=2 of the 6" in shorter.message


def test_with_hardly_any_noise_it_is_the_method_itself() -> None:
    """All values and gradients, of the rounds and of the certificate, come through releases."""
    huge = fp.DifferentialPrivacy(9_000.0, 0.5, clip=100.0, seed=0)
    free = dataclasses.replace(huge, epsilon=1e12)
    near = solved(free, fp.PrimalDual(rounds=20))
    plain = solved(None, fp.PrimalDual(average=True), max_rounds=20)
    np.testing.assert_allclose(near.params["w"], plain.params["w"], atol=1e-3)
    assert near.objective == pytest.approx(plain.objective, abs=1e-3)
    assert near.constraint("ones").values[0] == pytest.approx(plain.constraint("ones").values[0], abs=1e-3)
    assert near.privacy is not None
    assert near.privacy.epsilon == math.inf


def test_the_default_method_is_the_one_that_fits() -> None:
    assert solved(algorithm=None).method == "PrimalDual"


def test_a_mesh_adds_the_same_noise(result: fp.Result) -> None:
    other = solved(engine=fp.Mesh())
    np.testing.assert_allclose(other.params["w"], result.params["w"], atol=1e-10)
    assert other.objective == pytest.approx(result.objective, abs=1e-10)


def test_shares_add_up_to_less_noise(result: fp.Result) -> None:
    shared = solved(dataclasses.replace(PRIVACY, summed=True))
    assert shared.privacy is not None
    assert result.privacy is not None
    assert shared.privacy.noise == pytest.approx(result.privacy.noise / math.sqrt(3))
    assert "holds against those who see sums over the parties only" in str(shared)


def test_the_page_says_it(result: fp.Result, tmp_path: Any) -> None:
    assert "not private, the noise has seed 4" in result.report(tmp_path / "run.html").read_text()


# what is refused


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epsilon": 0}, "epsilon=0"),
        ({"epsilon": math.inf}, "epsilon=inf"),
        ({"delta": 0.0}, "delta=0"),
        ({"delta": 1}, "delta=1"),
        ({"clip": -2.0}, "clip=-2"),
        ({"clip": "1"}, "clip='1'"),
        ({"summed": 1}, "summed=1"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": 0.5}, "seed=0.5"),
    ],
)
def test_options_are_checked(options: dict[str, Any], words: str) -> None:
    given: Any = {"epsilon": 1.0, "delta": 1e-5, "clip": 1.0, **options}
    with pytest.raises((ValueError, TypeError), match=rf"^DifferentialPrivacy\({words}\)"):
        fp.DifferentialPrivacy(**given)


@pytest.mark.parametrize(
    "method",
    [fp.InteriorPoint(), fp.ProxAL(fp.LBFGS()), fp.SSCA(batch=5), fp.FedSGD(batch=5, step=0.1)],
    ids=lambda method: type(method).__name__,
)
def test_methods_that_send_more_are_refused(method: fp.Algorithm) -> None:
    with pytest.raises(ValueError, match=rf"^{type(method).__name__} sends .* cannot be accounted.*fp\.PrimalDual\(\)"):
        solved(algorithm=method)


def test_problems_that_noise_cannot_protect_are_refused() -> None:
    own = PARTIES["party 1"]
    for problem, options, words in (
        (fp.minimize(ZEROS, [(ONES <= 0.6).named("each")]), {}, r"'each' holds at each party: noise .* \.pooled\(\)"),
        (
            fp.minimize(ZEROS, [(ONES.at_server() <= 0.6).named("own")]),
            {"server": own},
            "'own' holds on the server's own rows",
        ),
        (fp.minimize(ZEROS + ONES.at_server()), {"server": own}, "objective reads the server's own rows"),
        (fp.minimize(ZEROS + 0.1 * fp.value(fp.squared_norm)), {}, "is no mean over rows"),
    ):
        with pytest.raises(ValueError, match=words):
            solved(problem=problem, **options)
    sets = fp.Personal([fp.sets.l2_ball(1.0)] * 3, pull=0.1)
    with pytest.raises(ValueError, match="share one model"):
        solved(problem=fp.minimize(fp.mean(LOSS), personal=sets))


def test_options_of_a_run_that_would_tell_more_are_refused(tmp_path: Any) -> None:
    with pytest.raises(ValueError, match=r"save=: a run's folder would hold the noise"):
        solved(save=tmp_path / "run")
    with pytest.raises(ValueError, match=r"summed=True\): shares of noise need at least 3 parties, there are 2"):
        solved(dataclasses.replace(PRIVACY, summed=True), parties=fp.split_rows(classes(0, (12, 12))))
    with pytest.raises(ValueError, match="begins from one start"):
        solved(starts=2)
    with pytest.raises(ValueError, match="every run of a sweep would spend"):
        fp.tradeoff(PROBLEM, PARTIES, constraint="ones", bounds=[0.6, 0.7], privacy=PRIVACY)


def test_evaluations_without_noise_are_refused(result: fp.Result) -> None:
    with pytest.raises(ValueError, match="counts rows without noise"):
        fp.evaluate(result, PARTIES)
    assert fp.evaluate(MODEL, PARTIES, params=result.params).at().rows == ROWS


def test_a_run_without_noise_is_not_private() -> None:
    assert solved(None, fp.PrimalDual(), max_rounds=2).privacy is None
    with pytest.raises(TypeError, match=r"privacy=3: .* fp\.DifferentialPrivacy"):
        solved(3)
    with pytest.raises(TypeError, match="privacy=DifferentialPrivacy"):
        protected(fp.FairVFL(), PRIVACY)  # pyright: ignore[reportArgumentType]
