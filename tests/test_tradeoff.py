"""Sweeps over the bound of one constraint: the answers of single solves, whatever their status, and how they are told."""

import math

import numpy as np
import pytest
from scipy import stats

import fedpact as fp
from fedpact.promises.held_out import Tally
from fedpact.promises.statements import Statements

RNG = np.random.default_rng(0)
N = 600
SEX = RNG.choice(["f", "m"], N)
X = RNG.normal(size=(N, 2)) + 0.6 * (SEX == "m")[:, None]
Y = (X @ [1.0, -0.5] + 0.5 * RNG.normal(size=N) > 0.4).astype(int)
BANKS = fp.split_rows(fp.Table(x=X, y=Y, sex=SEX), parties=["east", "west"], stratify="y", seed=0)
MODEL = fp.linear(bias=True)
LOSS = fp.mean(fp.logistic_loss(MODEL))
GAP = fp.demographic_parity_gap(fp.decisions(MODEL), group="sex").pooled()
NORM = fp.value(fp.squared_norm)
PROBLEM = fp.minimize(LOSS, [(GAP <= 0.3).named("gap"), (NORM <= 50.0).named("norm")], fp.l2(1e-3))


@pytest.fixture(scope="module")
def swept() -> fp.Tradeoff:
    return fp.tradeoff(PROBLEM, BANKS, constraint="gap", bounds=[0.06, 0.02, 0.04], group="sex")


def test_entries_are_those_of_single_solves(swept: fp.Tradeoff) -> None:
    assert [e.bound for e in swept.entries] == [0.02, 0.04, 0.06]
    assert swept.name == "gap"
    assert swept.side == "upper"
    for e in swept.entries:
        assert e.status == "converged"
        assert e.value <= e.bound
        decided = {name: e.result.predict(rows) for name, rows in BANKS.items()}
        right = sum(int((decided[name] == rows["y"]).sum()) for name, rows in BANKS.items())
        assert e.accuracy == pytest.approx(right / N, abs=1e-12)
        ends = stats.binomtest(right, N).proportion_ci(0.95, method="exact")
        np.testing.assert_allclose(e.accuracy_interval, (ends.low, ends.high), atol=1e-9)
        everyone = np.concatenate([decided[name] for name in BANKS]), np.concatenate([BANKS[n]["sex"] for n in BANKS])
        shares = [everyone[0][everyone[1] == sex].mean() for sex in ("f", "m")]
        assert e.value == pytest.approx(abs(shares[0] - shares[1]), abs=1e-9)
        assert e.interval is not None
        assert 0 <= e.interval[0] <= e.value <= e.interval[1]
    alone = fp.solve(fp.minimize(LOSS, [(GAP <= 0.04).named("gap"), PROBLEM.constraints[1]], fp.l2(1e-3)), BANKS)
    assert swept.at(0.04).objective == pytest.approx(
        alone.objective, rel=0.02
    )  # counts jump: another row may be the last
    falling = [e.objective for e in swept.entries]
    assert falling[0] > falling[1] > falling[2]
    assert swept.at(0.06).evaluation.groups == ("f", "m")


def test_the_price_of_a_bound_is_what_a_looser_one_buys() -> None:
    """Of a smooth convex problem: the words' gain is the slope of the objective in the bound, found by solving twice."""
    problem = fp.minimize(LOSS, [(NORM <= 0.5).named("norm")])
    swept = fp.tradeoff(problem, BANKS, constraint="norm", bounds=[0.4995, 0.5, 0.5005], tolerance=1e-8)
    tight, middle, loose = swept.entries
    slope = (tight.objective - loose.objective) / 0.001
    words = str(middle.result).splitlines()[2].strip()
    assert words == f"allowing 0.55 instead of 0.5 would lower the objective by about {0.05 * slope:.3g}"
    assert middle.interval is None
    assert "infeasible" not in str(swept)


def test_in_print_frame_and_page(swept: fp.Tradeoff, tmp_path) -> None:
    lines = str(swept).splitlines()
    assert lines[0] == "gap <= bound: counted, over all rows"
    assert lines[1].split() == ["bound", "value", "at", "accuracy", "objective", "rounds", "status"]
    assert [line.split()[0] for line in lines[2:5]] == ["0.02", "0.04", "0.06"]
    assert "95 % intervals" in lines[5]
    frame = swept.to_frame()
    assert frame["bound"].tolist() == [0.02, 0.04, 0.06]
    assert (frame["accuracy_low"] < frame["accuracy"]).all()
    page = swept.plot(tmp_path / "new" / "tradeoff.html").read_text("utf-8")
    assert page.count("<figure>") == 3
    assert page.count('class="band"') >= 2
    assert "Objective over 3 bounds" in page
    assert "http-equiv" in page
    assert "<script" not in page
    assert "<th>accuracy</th>" in swept._repr_html_()
    with pytest.raises(KeyError, match=r"no bound 0\.3 in this sweep; there are 0\.02, 0\.04, 0\.06"):
        swept.at(0.3)
    with pytest.raises(ValueError, match="that is a folder"):
        swept.plot(tmp_path)


def test_an_infeasible_bound_is_an_entry(tmp_path) -> None:
    small = fp.minimize(NORM, [(LOSS <= 0.6).named("loss")])
    swept = fp.tradeoff(small, BANKS, constraint="loss", bounds=[0.01, 0.6])
    impossible, possible = swept.entries
    assert impossible.status == "infeasible"
    assert possible.status == "converged"
    assert "bound 0.01: no parameters" in str(swept)
    page = swept.plot(tmp_path / "page.html").read_text("utf-8")
    assert "Objective over 1 bound" in page
    assert not math.isnan(possible.accuracy)  # by the label of the loss in the constraint


def test_bad_input() -> None:
    def ask(problem=PROBLEM, **options):
        return fp.tradeoff(problem, BANKS, **{"constraint": "gap", "bounds": [0.1], **options})

    with pytest.raises(ValueError, match=r"constraint='gpa': .* there are 'gap', 'norm'"):
        ask(constraint="gpa")
    with pytest.raises(ValueError, match="there are none"):
        ask(fp.minimize(LOSS))
    with pytest.raises(ValueError, match="'mass' is an equality"):
        ask(fp.minimize(LOSS, [(NORM == 1.0).named("mass")]), constraint="mass")
    rate = fp.mean(fp.decisions(MODEL)).between(0.2, 0.4).named("rate")
    with pytest.raises(ValueError, match="'rate' has two bounds: say side="):
        ask(fp.minimize(LOSS, [rate]), constraint="rate")
    with pytest.raises(
        ValueError, match=r"bounds= has 0\.1, which leaves no room in constraint 'rate' in \[0\.2, 0\.4\]"
    ):
        ask(fp.minimize(LOSS, [rate]), constraint="rate", side="upper")
    with pytest.raises(ValueError, match="'gap' has no lower bound"):
        ask(side="lower")
    with pytest.raises(ValueError, match="'upper' or 'lower'"):
        ask(side="left")
    for bounds in ([], [0.1, 0.1], [math.nan], ["0.1"], "0.1", 0.1, [True]):
        with pytest.raises(ValueError, match="a list of different finite numbers"):
            ask(bounds=bounds)
    with pytest.raises(ValueError, match="runs of a sweep are not saved"):
        ask(save="folder")
    with pytest.raises(TypeError, match="takes a problem"):
        ask(LOSS)
    with pytest.raises(ValueError, match="confidence"):
        ask(confidence=95)


def test_intervals_of_gaps_cover_the_truth() -> None:
    """|p - q| at 90 %: the interval misses at most one time in ten, on either side of the truth together."""
    stated = fp.minimize(
        LOSS, [fp.demographic_parity_gap(fp.decisions(MODEL), group="sex", groups=("f", "m")).pooled() <= 0.1]
    )
    statements = Statements.of(stated, ("east", "west"), {})
    rng, runs = np.random.default_rng(1), 400
    for p, q in ((0.3, 0.3), (0.3, 0.5)):
        missed = 0
        for _ in range(runs):
            tallies = [Tally(200, float(rng.binomial(200, rate))) for rate in (p, q)]
            low, high = statements.interval(statements.each[0], tallies, 0.1)
            assert 0 <= low <= abs(tallies[0].total - tallies[1].total) / 200 <= high
            missed += not low <= abs(p - q) <= high
        assert missed <= stats.binom.ppf(0.999, runs, 0.1)
