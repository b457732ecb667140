"""Promises: exact bounds, draws that stay at the party, tightened limits, one test, and the words for it."""

import dataclasses
import math
import pathlib
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
import pacts
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

import fedpact as fp
from fedpact.deploy.message_list import wire
from fedpact.deploy.party import Site
from fedpact.deploy.server import serve
from fedpact.engines.remote import PartyLost
from fedpact.engines.serialization import pack, unpack
from fedpact.promises.agreed import AgreedPromise
from fedpact.promises.bounds import above, below, mean_above, rate_above
from fedpact.promises.held_out import Tally, counted, drawn, rows_of, with_all
from fedpact.promises.statements import Statements
from fedpact.promises.tightening import Terms, tightened
from fedpact.run.pact import Pact
from fedpact.run.promise import Promise, judged

MODEL = fp.linear(bias=True)
DECIDED, LOSS = fp.decisions(MODEL), fp.logistic_loss(MODEL)
FOUND = fp.mean(DECIDED, where=fp.col("y") == 1)
RATES = [fp.mean(DECIDED, where=fp.col("sex") == g) for g in (0, 1, 2)]


def people(rows: int, seed: int = 0) -> fp.Table:
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, 3, rows)
    x = rng.normal(size=(rows, 3)) + 0.3 * sex[:, None]
    return fp.Table(x=x, y=(x @ [1.0, -1.0, 0.5] + rng.normal(size=rows) > 0.5).astype(int), sex=sex)


def stated(*constraints: fp.Constraint) -> fp.Problem:
    return fp.minimize(fp.mean(LOSS), constraints, fp.l2(1e-3))


# bounds


@given(st.integers(1, 60), st.data(), st.sampled_from([0.2, 0.05, 0.01, 1e-4]))
@settings(max_examples=60, deadline=None)
def test_bounds_of_rates_invert_the_binomial_tail(rows: int, data: st.DataObject, error: float) -> None:
    count = data.draw(st.integers(0, rows))
    upper, lower = rate_above(count, rows, error), below(count, rows, error, is_rate=True)
    if count < rows:
        brute = optimize.brentq(lambda p: stats.binom.cdf(count, rows, p) - error, 1e-12, 1 - 1e-12, xtol=1e-14)
        assert upper == pytest.approx(brute, abs=1e-9)
    else:
        assert upper == 1.0
    if count:
        brute = optimize.brentq(lambda p: stats.binom.sf(count - 1, rows, p) - error, 1e-12, 1 - 1e-12, xtol=1e-14)
        assert lower == pytest.approx(brute, abs=1e-9)
    else:
        assert lower == 0.0


@given(st.floats(0, 1), st.integers(1, 5000), st.sampled_from([0.2, 0.05, 1e-3]))
@settings(max_examples=60, deadline=None)
def test_bounds_of_means_lie_between_the_rate_and_hoeffdings(mean: float, rows: int, error: float) -> None:
    """Known relations: as wide as that of a rate at least, since rates are such means, and never wider than Hoeffding's."""
    upper = mean_above(mean * rows, rows, error)
    assert mean <= upper <= min(1.0, mean + math.sqrt(math.log(1 / error) / (2 * rows))) + 1e-9
    count = math.floor(mean * rows)
    assert mean_above(count, rows, error) >= rate_above(count, rows, error) - 1e-9
    if upper < 1 and mean > 0:
        kl = mean * math.log(mean / upper) + (1 - mean) * math.log((1 - mean) / (1 - upper)) if mean < 1 else 0.0
        assert kl * rows == pytest.approx(math.log(1 / error), rel=1e-6)


def test_no_rows_bound_nothing() -> None:
    assert (above(0, 0, 0.05, True), below(0, 0, 0.05, False)) == (1.0, 0.0)


@pytest.mark.parametrize("truth", [0.03, 0.5, 0.9])
def test_bounds_of_rates_cover_the_truth(truth: float) -> None:
    """The exact probability that a bound is wrong, over all counts: at most the error, for like and unlike parties."""
    rows, error = 80, 0.05
    wrong = np.array([rate_above(k, rows, error) < truth for k in range(rows + 1)])
    assert stats.binom.pmf(np.arange(rows + 1), rows, truth) @ wrong <= error
    apart = min(0.9 * truth, 0.9 * (1 - truth))  # two parties, half of the rows each, with the same average
    halves = [stats.binom.pmf(np.arange(rows // 2 + 1), rows // 2, truth + shift) for shift in (apart, -apart)]
    assert np.convolve(*halves) @ wrong <= error


def test_bounds_of_gaps_cover_the_truth_though_three_groups_are_compared() -> None:
    """By simulation of counts: share of wrong bounds of the largest gap, and of a sum of means, at most the error."""
    gap = fp.largest(*(abs(RATES[a] - RATES[b]) for a, b in ((0, 1), (0, 2), (1, 2)))).pooled() <= 0.5
    mixed = (2 * RATES[0] - RATES[1] + 0.1).pooled() <= 0.5
    rng, truth, sizes, error, times = np.random.default_rng(0), np.array([0.3, 0.5, 0.55]), (60, 50, 70), 0.1, 2000
    for constraint, value in ((gap, 0.25), (mixed, 0.2)):
        statements = Statements.of(stated(constraint), ["a"], {})
        (statement,) = statements.each
        groups = [int(tested.mean.where.parts[1]) for tested in statements.means]
        counts = rng.binomial([sizes[g] for g in groups], truth[groups], size=(times, len(groups)))
        tables = [[Tally(sizes[g], float(k)) for g, k in zip(groups, line, strict=True)] for line in counts]
        wrong = np.mean([statements.bound(statement, tallies, error) < value for tallies in tables])
        assert wrong <= error
        assert len(statement.parts[0].places) == 2


def test_bounds_of_bounded_losses_cover_the_truth() -> None:
    rng, rows, error = np.random.default_rng(1), 50, 0.1
    draws = 4 * rng.beta(0.01, 0.04, size=(3000, rows))  # in [0, 4], mean 0.8
    wrong = [4 * mean_above(total / 4, rows, error) < 0.8 for total in draws.sum(1)]
    assert 0 < np.mean(wrong) <= error


# draws and counts


def test_draws_are_repeatable_disjoint_and_of_the_party() -> None:
    table = people(101)
    rest, out = drawn(table, "north", 0.4, 7)
    again = drawn(table, "north", 0.4, 7)[1]
    assert (rest.rows, out.rows) == (61, 40)
    together = np.concatenate([rest["x"], out["x"]])
    assert {tuple(row) for row in together} == {tuple(row) for row in table["x"]}
    np.testing.assert_array_equal(out["x"], again["x"])
    changed = table.with_columns(y=1 - table["y"])
    others = [drawn(table, "south", 0.4, 7), drawn(table, "north", 0.4, 8), drawn(changed, "north", 0.4, 7)]
    assert all(not np.array_equal(out["x"], other["x"]) for _, other in others)
    assert (drawn(people(2), "a", 0.01, 0)[1].rows, drawn(people(2), "a", 0.99, 0)[1].rows) == (1, 1)
    with pytest.raises(ValueError, match="party 'a' has 1 row"):
        drawn(people(1), "a", 0.5, 0)


def test_draws_hold_out_every_row_alike() -> None:
    table = people(20)
    times = np.zeros(20)
    for seed in range(2000):
        out = drawn(table, "a", 0.25, seed)[1]
        times += np.isin(table["x"][:, 0], out["x"][:, 0])
    assert stats.chisquare(times).pvalue > 1e-4


def test_parties_count_what_numpy_counts() -> None:
    table, params = people(200), {"w": np.array([1.0, -0.5, 0.2]), "b": np.array(-0.1)}
    bounded = fp.mean(LOSS, where=fp.col("sex") == 2)
    statements = Statements.of(stated(FOUND >= 0.5, (bounded <= 1.0).named("loss")), ["a"], {"loss": (0, 1.0)})
    scores = table["x"] @ params["w"] + params["b"]
    loss = np.log1p(np.exp(-np.where(table["y"] == 1, scores, -scores)))[table["sex"] == 2]
    found, tally = counted(statements.means, "a", table, params)
    ill = table["y"] == 1
    assert found == Tally(int(ill.sum()), float((scores[ill] > 0).sum()), 0)
    assert (tally.rows, tally.outside) == (len(loss), int((loss > 1.0).sum()))
    assert tally.outside > 0
    assert tally.total == pytest.approx(loss.sum())
    assert [t.rows for t in rows_of(statements.means, table)] == [found.rows, tally.rows]
    pooled = with_all({"a": (found,), "b": (Tally(3, 2.0, 1),)})[None]
    assert pooled == (Tally(found.rows + 3, found.total + 2, 1),)


# tightening


def limits(problem: fp.Problem, rows: int, **terms: float) -> list[tuple[float, float]]:
    names, ranges = ["a", "b"], {c.name: (0.0, 4.0) for c in problem.constraints if "loss" in c.name}
    statements = Statements.of(problem, names, ranges)
    known = with_all({name: tuple(Tally(rows * k) for _ in statements.means) for k, name in enumerate(names, 1)})
    return [(c.lower, c.upper) for c in tightened(problem, statements, known, Terms(**terms)).constraints]


def test_a_rate_is_tightened_by_the_margin_of_its_test_and_its_noise() -> None:
    ((lower, upper),) = limits(stated(FOUND.pooled() >= 0.8), 200, power=0.5)
    assert upper == math.inf
    assert below(600 * lower, 600, 0.05, is_rate=True) == pytest.approx(
        0.8, abs=1e-9
    )  # 600 rows: what is needed is met
    ((more, _),) = limits(stated(FOUND.pooled() >= 0.8), 200)
    noise = stats.norm.ppf(0.9) * math.sqrt(lower * (1 - lower) / 600 * (1 + 0.4 / 0.6))
    assert more == pytest.approx(lower + noise, abs=1e-9)
    ((at_each, _),) = limits(
        stated(FOUND >= 0.8), 200, power=0.5
    )  # two statements, and the party with fewer rows decides
    assert below(200 * at_each, 200, 0.025, is_rate=True) == pytest.approx(0.8, abs=1e-9)


def test_limits_stay_possible_whatever_the_number_of_rows() -> None:
    gap = abs(RATES[0] - RATES[1]).pooled() <= 0.1
    loss = (fp.mean(LOSS).pooled() <= 1.0).named("loss")
    ((_, few),), ((_, many),), ((_, bounded),) = (
        limits(stated(gap), 5),
        limits(stated(gap), 10**6),
        limits(stated(loss), 500),
    )
    assert few == pytest.approx(
        0.025
    )  # never by more than three quarters of the way to the best value possible, which is 0
    assert 0.095 < many < 0.1
    assert 0.25 <= bounded < 1.0
    ((none, _),) = limits(stated(FOUND.pooled() >= 0.8), 0)
    assert none == 0.8
    ((low, high),) = limits(stated(FOUND.pooled().between(0.5, 0.52)), 50)
    assert 0.5 < low < high < 0.52


def test_sides_and_parties_share_the_error_and_parameters_need_none() -> None:
    two = FOUND.between(0.4, 0.9)
    norm = fp.value(fp.squared_norm) <= 4.0
    statements = Statements.of(stated(two, norm, RATES[0].pooled() <= 0.9), ["a", "b", "c"], {})
    assert len(statements.each) == 3 * 2 + 1
    assert [s.side for s in statements.each] == ["upper"] * 3 + ["lower"] * 3 + ["upper"]


# what cannot be promised


@pytest.mark.parametrize(
    ("constraint", "words"),
    [
        (fp.mean(LOSS) <= 0.4, r"'mean\(logistic_loss\) <= 0.4'.*no known range.*ranges="),
        (fp.mean(fp.positive_rate(MODEL)) == 0.5, "an equality is not shown"),
        (FOUND.at_server() >= 0.5, "at_server"),
        (fp.value(lambda params, rows: jnp.mean(rows["x"])) <= 0.5, "is no mean over rows"),
        (fp.value(fp.squared_norm) <= 0.5, "nothing to promise"),
    ],
)
def test_what_cannot_be_promised_is_refused_by_name(constraint: fp.Constraint, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fp.promise(stated(constraint), {"a": people(20)})


def test_weighted_means_are_refused() -> None:
    (term,) = FOUND.terms
    weighted = dataclasses.replace(term.atom)
    object.__setattr__(weighted, "weights", "w")
    expression = fp.Expression((dataclasses.replace(term, atom=weighted),))
    with pytest.raises(ValueError, match="weighted mean"):
        fp.promise(stated(expression >= 0.5), {"a": people(20)})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"confidence": 1.0}, "confidence=1.0"),
        ({"confidence": 95}, "confidence=95"),
        ({"held_out": 0}, "held_out=0"),
        ({"held_out": True}, "held_out=True"),
        ({"power": 0.2}, "power=0.2"),
        ({"seed": -1}, "seed=-1"),
        ({"ranges": {"nothing": (0, 1)}}, "ranges= has 'nothing'; the constraints are 'found'"),
        ({"ranges": {"found": (1, 0)}}, "the least value of a row"),
    ],
)
def test_bad_terms_are_refused(options: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fp.promise(stated((FOUND >= 0.5).named("found")), {"a": people(20)}, **options)


def test_columns_are_refused() -> None:
    table = people(30)
    parts = {"a": fp.Table(x=table["x"][:, :1], y=table["y"]), "b": fp.Table(x=table["x"][:, 1:])}
    columns = fp.split_columns(parts, active=["a"])
    with pytest.raises(ValueError, match="hold columns"):
        fp.promise(stated(FOUND >= 0.5), columns)


# the whole


@pytest.fixture(scope="module")
def asked() -> tuple[fp.Parties, fp.Problem, Promise]:
    parties = fp.split_rows(people(3000), parties=["north", "south"], seed=0)
    bounded = (fp.mean(LOSS).pooled() <= 1.2).named("loss")
    problem = stated((FOUND >= 0.75).named("found"), bounded)
    return parties, problem, fp.promise(problem, parties, ranges={"loss": (0, 12)}, seed=3)


def test_a_promise_is_kept_on_rows_that_were_held_out(asked: tuple[fp.Parties, fp.Problem, Promise]) -> None:
    parties, _, promise = asked
    assert promise.kept
    assert promise.result.converged
    for name in parties:
        rest, out = drawn(parties[name], name, 0.4, 3)
        ill = out["y"] == 1
        scores = out["x"] @ promise.result.params["w"] + promise.result.params["b"]
        shown = promise.constraint("found", party=name)
        assert shown.counts == ((float((scores[ill] > 0).sum()), int(ill.sum())),)
        expected = stats.beta.ppf(0.05 / 3, shown.counts[0][0], ill.sum() - shown.counts[0][0] + 1)
        assert promise.bound("found", party=name) == pytest.approx(expected, abs=1e-9)
        assert shown.observed == pytest.approx(shown.counts[0][0] / ill.sum())
        assert shown.trained > shown.limit == 0.75
        assert promise.held_out[name] == out.rows
        assert rest.rows + out.rows == parties[name].rows
    assert promise.bound("found") == min(promise.bound("found", party=name) for name in parties)
    text = str(promise)
    assert text.startswith("kept: all 3 limits were shown at confidence 0.95, asked once")
    assert f"found at north: >= {promise.bound('found', party='north'):.4f} shown at confidence 0.983333" in text
    assert "split over 3 bounds (Bonferroni)" in text
    page = promise._repr_html_()
    assert page.startswith("<p><b>kept: ")
    assert page.count("<tr>") == 4
    fresh = people(100_000, seed=9)
    ill = fresh["y"] == 1
    assert (fresh["x"][ill] @ promise.result.params["w"] + promise.result.params["b"] > 0).mean() >= 0.75


def test_asking_again_is_counted_and_costs(asked: tuple[fp.Parties, fp.Problem, Promise]) -> None:
    parties, problem, first = asked
    with pytest.raises(ValueError, match="tested on other rows"):
        fp.promise(problem, parties, ranges={"loss": (0, 12)}, seed=4, previous=first)
    with pytest.raises(TypeError, match="previous='yes'"):
        fp.promise(problem, parties, ranges={"loss": (0, 12)}, seed=3, previous="yes")
    again = fp.promise(problem, parties, ranges={"loss": (0, 12)}, seed=3, previous=first)
    assert (again.asked, again.confidence) == (2, 0.95)
    assert again.confidence_of_each == pytest.approx(1 - 0.025 / 3)
    assert again.confidence_of_all == pytest.approx(0.925)
    assert again.constraint("found", party="north").trained > first.constraint("found", party="north").trained
    assert "asked 2 times: this time at confidence 0.975, all times together at 0.925" in str(again)


def test_what_is_not_shown_says_what_is_missing(asked: tuple[fp.Parties, fp.Problem, Promise]) -> None:
    """Other counts in the same test: too few rows, a rate that breaks the limit, none at all, values outside the range."""
    parties, problem, promise = asked
    agreed = AgreedPromise.of(problem, parties.names, ranges={"loss": (0, 12)})

    def told(north: Tally, loss: Tally = Tally(1200, 300.0)) -> Promise:
        tallies = {"north": (north, loss), "south": (Tally(400, 380.0), loss)}
        return judged(promise.result, agreed, tallies, promise.held_out, "")

    few = told(Tally(50, 40.0))
    needed = few.constraint("found", party="north").rows_needed
    assert not few.kept
    assert str(few).startswith("not shown: found at confidence 0.95, asked once")
    assert f"about {needed:,} held-out rows would have been needed" in str(few)
    assert stats.beta.ppf(0.05 / 3, 0.8 * needed, 0.2 * needed + 1) == pytest.approx(0.75, abs=1e-3)
    assert "the observed value 0.7000 itself breaks the limit" in str(told(Tally(50, 35.0)))
    assert "too close to the limit" in str(told(Tally(40, 30.0)))
    assert "no held-out row is behind it" in str(told(Tally(0)))
    outside = told(Tally(400, 390.0), Tally(1200, 300.0, 1))
    assert not outside.kept
    assert "2 held-out rows have values outside the stated range" in str(outside)
    assert "not shown: about" in few._repr_html_()


def test_bounds_are_asked_for_by_name(asked: tuple[fp.Parties, fp.Problem, Promise]) -> None:
    _, _, promise = asked
    with pytest.raises(KeyError, match="no constraint 'lost' was promised; there are 'found', 'loss'"):
        promise.bound("lost")
    with pytest.raises(KeyError, match="not tested at party 'east', but at north, south"):
        promise.bound("found", party="east")
    with pytest.raises(KeyError, match="leave party= out"):
        promise.bound("loss", party="north")
    with pytest.raises(ValueError, match="has no side 'upper'"):
        promise.bound("found", side="upper")


def test_a_candidate_that_did_not_converge_is_not_tested(asked: tuple[fp.Parties, fp.Problem, Promise]) -> None:
    parties, problem, _ = asked
    promise = fp.promise(problem, parties, ranges={"loss": (0, 12)}, seed=3, max_rounds=2)
    assert not promise.kept
    assert (promise.asked, promise.constraints) == (0, ())
    assert str(promise).startswith(
        "not shown: the candidate is not certified (max_rounds) and was not tested, asked never"
    )
    assert promise.result.message in str(promise)
    assert "<table>" not in promise._repr_html_()
    with pytest.raises(ValueError, match="nothing was tested"):
        promise.bound("found")


# across organisations


@pytest.fixture
def pact(tmp_path: pathlib.Path) -> pathlib.Path:
    file = tmp_path / "pact.py"
    file.write_text(pacts.PROMISED)
    return file


def test_a_promise_elsewhere_counts_the_same(pact: pathlib.Path, tmp_path: pathlib.Path) -> None:
    sites = {name: Site(pact, name, tmp_path / name) for name in ("north", "south", "west")}
    channel = Loopback(sites)
    deployed = serve(pact, channel, tmp_path / "server")
    stated_there = Pact(pact)
    here = stated_there.run(stated_there.tables())
    assert isinstance(deployed, Promise)
    assert isinstance(here, Promise)
    assert deployed.kept
    for a, b in zip(deployed.constraints, here.constraints, strict=True):
        assert (a.name, a.party, a.limit, a.outside) == (b.name, b.party, b.limit, b.outside)
        if a.name == "found":
            assert (a.counts, a.bound, a.trained) == (b.counts, b.bound, b.trained)
        else:
            assert a.bound == pytest.approx(b.bound, abs=1e-9)
    assert (tmp_path / "server" / "promise.txt").read_text().startswith("kept: all 4 limits were shown")
    counts = [unpack(message)[0] for message in channel.heard if unpack(message)[0]["kind"] == "count"]
    assert len(counts) == 1
    told = [unpack(answer)[1] for answer in channel.counted]
    assert [{n: a.shape for n, a in each.items()} for each in told] == 3 * [
        {"rows": (2,), "own totals": (1,), "own outside": (1,), "sums": (5, 2)}
    ], "the loss, which is limited over all rows, is added up in secret"

    # the party counts the askings: the same run may not ask with other parameters, and another run pays for it
    again = next(message for message in channel.heard if unpack(message)[0]["kind"] == "count")
    words, arrays = unpack(again)
    other = {name: array + 1e-3 for name, array in arrays.items()}
    assert "a promise has one test" in unpack(sites["north"].answer(pack(words, other)))[0]["refused"]
    assert "refused" not in unpack(sites["north"].answer(again))[0]
    second = serve(pact, Loopback({**sites, "north": Site(pact, "north", tmp_path / "north")}), tmp_path / "second")
    assert isinstance(second, Promise)
    assert (second.asked, second.terms.error) == (2, pytest.approx(0.05))
    resumed = serve(pact, Loopback(sites), tmp_path / "second", resume=True)
    assert isinstance(resumed, Promise)
    assert (resumed.asked, [s.counts for s in resumed.constraints]) == (2, [s.counts for s in second.constraints])


def test_a_partys_policy_speaks_of_held_out_rows_too(pact: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "policy.toml").write_text("min_rows = 170\n")  # of 600 rows about 260 are positive: 130 on either side
    sites = {name: Site(pact, name, tmp_path / name, tmp_path / "policy.toml") for name in ("north", "south", "west")}
    with pytest.raises(PartyLost, match="held out, is over fewer of its rows than the 170"):
        serve(pact, Loopback(sites), tmp_path / "server")


def test_pacts_name_their_promise(pact: pathlib.Path) -> None:
    before = Pact(pact).digest
    listed = wire(Pact(pact)).rows()[-1]
    assert listed[:3] == ("once, after the last round", "count on the rows that it holds out", "all parties")
    assert "parameters (3 numbers)" in listed[4]
    assert "rows (2 integers), totals (1 numbers)" in listed[6], "the limit at each party is shown for each"
    assert "the sum over all who are asked of: totals and values outside the range of means" in listed[6]
    pact.write_text(pacts.PROMISED.replace("0.9,", "0.95,"))
    assert Pact(pact).digest != before
    pact.write_text(pacts.PROMISED.replace("(0, 12)", "(0, 13)"))
    assert Pact(pact).digest != before
    pact.write_text(pacts.PROMISED.replace('"held_out"', '"kept_back"'))
    with pytest.raises(ValueError, match="may have confidence, held_out, power, ranges"):
        Pact(pact)


@dataclasses.dataclass
class Loopback:
    """Parties as objects, and every message that was sent."""

    sites: dict[str, Site]
    heard: list[bytes] = dataclasses.field(default_factory=list)
    counted: list[bytes] = dataclasses.field(default_factory=list)  # answers of the test
    interrupts: bool = True

    def ask(self, message: bytes, parties: Sequence[str], some: bool = False) -> dict[str, bytes]:
        self.heard.append(message)
        answers = {party: self.sites[party].answer(message) for party in parties}
        self.counted += answers.values() if unpack(message)[0]["kind"] == "count" else ()
        return answers
