"""Solving with counted rates of decisions: what is certified is counted again by NumPy, and the smooth problem is recomputed."""

import dataclasses
import pathlib
import shutil
from typing import Any

import columns
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpact as fp
from fedpact.algorithms.parts.counting import BAND, Count, Limits
from fedpact.problem.program import directions
from fedpact.protocol.algorithm import Answer
from fedpact.run.sentences import counts_not_met, finer_than_a_row, infeasible

TEMPERATURE = 0.1  # of stand-ins, where none is stated
MODEL = fp.linear(bias=True)
LOSS = fp.logistic_loss(MODEL)
DECIDED = fp.decisions(MODEL)
FOUND = fp.mean(DECIDED, where=fp.col("y") == 1)
FALSE = fp.mean(DECIDED, where=fp.col("y") == 0)
RIDGE = 1e-2


def people(rows: int = 240, seed: int = 0) -> fp.Table:
    """Two overlapping classes, three classes of size, three groups, and weights."""
    rng = np.random.default_rng(seed)
    sex = np.array(["f", "m", "x"])[np.arange(rows) % 3]
    x = rng.normal(size=(rows, 3)) + 0.5 * (sex == "m")[:, None] - 0.3 * (sex == "x")[:, None]
    score = x @ np.array([1.0, 0.25, -0.5]) + rng.normal(size=rows)
    return fp.Table(
        x=x, y=(score > 0.3).astype(int), size=np.digitize(score, [-0.5, 0.8]), sex=sex, weight=rng.integers(1, 4, rows)
    )


PARTIES = fp.split_rows(people(), parties=["north", "south", "west"], seed=0)
SERVER = people(90, seed=1)
SELECTED = fp.mean(DECIDED, weights="weight").pooled()
HIGH = fp.mean(fp.decisions(MODEL, threshold=0.4, temperature=0.2)).at_server()
LIMITS = [
    (FOUND >= 0.8).named("found"),
    (SELECTED <= 0.56).named("selected"),
    (HIGH <= 0.3).named("high at the server"),
]
PROBLEM = fp.minimize(fp.mean(LOSS) + 0.1 * FALSE, LIMITS, fp.l2(RIDGE))


def scores_of(params: Any, table: fp.Table) -> np.ndarray:
    return table["x"] @ np.asarray(params["w"]) + np.asarray(params["b"])


def sigmoid(scores: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-scores))


@dataclasses.dataclass(frozen=True)
class Rates:
    """The numbers of PROBLEM by their definitions, counted or smooth, in NumPy alone."""

    params: Any
    counted: bool

    def decided(self, table: fp.Table, threshold: float = 0.0, temperature: float = TEMPERATURE) -> np.ndarray:
        above = scores_of(self.params, table) - threshold
        return above > 0 if self.counted else sigmoid(above / temperature)

    @property
    def found(self) -> list[float]:
        return [float(self.decided(table)[table["y"] == 1].mean()) for table in PARTIES.values()]

    @property
    def selected(self) -> float:
        per_row, weights = (
            np.concatenate([of(table) for table in PARTIES.values()]) for of in (self.decided, lambda t: t["weight"])
        )
        return float((weights * per_row).sum() / weights.sum())

    @property
    def high(self) -> float:
        return float(self.decided(SERVER, 0.4, 0.2).mean())

    @property
    def objective(self) -> float:
        each = []
        for table in PARTIES.values():
            scores, sign = scores_of(self.params, table), np.where(table["y"] == 1, 1.0, -1.0)
            false = self.decided(table)[table["y"] == 0].mean()
            each.append(np.logaddexp(0.0, -sign * scores).mean() + 0.1 * false)
        squares = sum(float(np.sum(np.square(leaf))) for leaf in self.params.values())
        return float(np.mean(each)) + RIDGE * squares

    @property
    def lagrangian_terms(self) -> tuple[np.ndarray, float, float]:
        """The constraints as g <= 0."""
        return 0.8 - np.array(self.found), self.selected - 0.56, self.high - 0.3


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, fp.Result]:
    folder = tmp_path_factory.mktemp("solved") / "run"
    return folder, fp.solve(PROBLEM, PARTIES, server=SERVER, tolerance=1e-5, save=folder)


def assert_kept(result: fp.Result) -> None:
    """Converged, and every counted limit is met exactly."""
    assert result.converged, result.message
    for report in result.certificate.constraints:
        assert report.is_counted
        assert max(report.violations) == pytest.approx(0.0, abs=1e-12)
        assert all(report.lower - 1e-12 <= value <= report.upper + 1e-12 for value in report.values)


# what is certified


def test_values_are_counted_at_each_party_pooled_and_at_the_server(solved: tuple[pathlib.Path, fp.Result]) -> None:
    result = solved[1]
    assert_kept(result)
    counted, smooth = (Rates(result.params, counted) for counted in (True, False))
    found, selected, high = result.certificate.constraints
    assert found.values == pytest.approx(counted.found, abs=1e-12)
    assert found.stand_ins == pytest.approx(smooth.found, abs=1e-12)
    assert selected.values == pytest.approx([counted.selected], abs=1e-12)
    assert selected.stand_ins == pytest.approx([smooth.selected], abs=1e-12)
    assert high.values == pytest.approx([counted.high], abs=1e-12)
    assert high.stand_ins == pytest.approx([smooth.high], abs=1e-12)
    assert result.certificate.stand_ins is not None
    assert result.certificate.stand_ins.objective == pytest.approx(counted.objective, abs=1e-12)
    assert result.certificate.objective == pytest.approx(smooth.objective, abs=1e-12)
    assert counted.objective != pytest.approx(smooth.objective, abs=1e-4)
    for holder, table in zip(found.holders, PARTIES.values(), strict=True):
        predicted = result.predict(table)[table["y"] == 1].mean()
        assert found.values[found.holders.index(holder)] == pytest.approx(predicted, abs=1e-12)


def test_the_smooth_problem_with_corrected_bounds_is_optimal(solved: tuple[pathlib.Path, fp.Result]) -> None:
    """Stationarity by differences of the Lagrangian, complementarity from the corrections: all in NumPy."""
    certificate, params = solved[1].certificate, solved[1].params
    flat = np.concatenate([np.ravel(params["b"]), np.ravel(params["w"])])
    moved, units = certificate.stand_ins, certificate.units
    assert moved is not None
    assert units is not None
    mu = certificate.party_multipliers[:, 0], certificate.pooled_multipliers[0], certificate.server_multipliers[0]

    def lagrangian(w: np.ndarray) -> float:
        at = Rates({"b": w[0], "w": w[1:]}, counted=False)
        return at.objective + sum(float(np.sum(m * g)) for m, g in zip(mu, at.lagrangian_terms, strict=True))

    steps = 1e-5 * np.eye(flat.size)
    gradient = np.array([(lagrangian(flat + e) - lagrangian(flat - e)) / 2e-5 for e in steps])
    in_units = np.abs(np.asarray(units.parameters) * gradient / float(units.objective)).max()
    assert in_units == pytest.approx(certificate.stationarity, abs=1e-8)
    assert in_units < 1e-5
    corrections = moved.party[:, 0], moved.pooled[0], moved.server[0]
    unit = units.party_constraints, units.pooled_constraints, units.server_constraints
    slack, broken, least = 0.0, 0.0, 0.0
    for m, g, delta, one in zip(mu, Rates(params, False).lagrangian_terms, corrections, unit, strict=True):
        bounded = (np.atleast_1d(g) + np.atleast_1d(delta)) / np.max(one)
        slack = max(slack, *np.where(np.atleast_1d(m) > 0, np.abs(bounded), 0.0))
        broken, least = max(broken, *bounded), min(least, *np.atleast_1d(m))
    assert slack == pytest.approx(certificate.complementarity, abs=1e-10)
    assert (slack, broken, -least) < (1e-5, 1e-5, 1e-12)
    assert max(np.max(m) for m in mu) > 1e-3, "some limit binds"


# three groups, weights, one of three classes

CLASSES = fp.linear(bias=True, outputs=3)
LARGE = fp.decisions(CLASSES, label=2)
GAP = fp.demographic_parity_gap(LARGE, group="sex", weights="weight").pooled()
BY_CLASS = fp.minimize(
    fp.mean(fp.softmax_loss(CLASSES, label="size")),
    [(GAP <= 0.1).named("gap"), (fp.mean(LARGE, where=fp.col("size") == 2) >= 0.6).named("large found")],
    fp.l2(RIDGE),
)


def test_the_largest_of_several_scores_is_counted_in_gaps_between_three_groups() -> None:
    result = fp.solve(BY_CLASS, PARTIES)
    assert_kept(result)
    gap, found = result.certificate.constraints
    tables = list(PARTIES.values())
    scores = [table["x"] @ result.params["w"] + result.params["b"] for table in tables]
    counted = [s.argmax(axis=1) == 2 for s in scores]
    soft = [np.exp((s - s.max(1, keepdims=True)) / TEMPERATURE) for s in scores]
    smooth = [s[:, 2] / s.sum(axis=1) for s in soft]
    sex, weights = (np.concatenate([table[name] for table in tables]) for name in ("sex", "weight"))
    for told, per_row in ((gap.values, counted), (gap.stand_ins, smooth)):
        rates = [np.average(np.concatenate(per_row)[sex == g], weights=weights[sex == g]) for g in "fmx"]
        assert told == pytest.approx([max(rates) - min(rates)], abs=1e-12)
    for told, per_row in ((found.values, counted), (found.stand_ins, smooth)):
        each = [mine[table["size"] == 2].mean() for mine, table in zip(per_row, tables, strict=True)]
        assert told == pytest.approx(each, abs=1e-12)
    predicted = [(result.predict(table) == 2) for table in tables]
    assert all(np.array_equal(mine, theirs) for mine, theirs in zip(predicted, counted, strict=True))


# over columns

SPLIT_GAP = fp.demographic_parity_gap(fp.decisions(columns.MODEL, threshold=0.1), group="sex")
OVER_COLUMNS = fp.minimize(fp.mean(columns.LOSS), [(SPLIT_GAP <= 0.15).named("gap")], fp.l2(columns.RIDGE))


@pytest.fixture(scope="module")
def over_columns(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, fp.Result]:
    folder = tmp_path_factory.mktemp("columns") / "run"
    return folder, fp.solve(OVER_COLUMNS, columns.PARTIES, tolerance=1e-4, save=folder)


def test_values_are_counted_over_columns(over_columns: tuple[pathlib.Path, fp.Result]) -> None:
    _, result = over_columns
    assert_kept(result)
    scores, sex = columns.TABLE["x"] @ columns.flat(result) - 0.1, columns.TABLE["sex"]
    (gap,) = result.certificate.constraints
    for told, per_row in ((gap.values, scores > 0), (gap.stand_ins, sigmoid(scores / TEMPERATURE))):
        assert told == pytest.approx([abs(per_row[sex == 0].mean() - per_row[sex == 1].mean())], abs=1e-12)


# methods

ONE = fp.minimize(fp.mean(LOSS), [(FOUND.pooled() >= 0.9).named("found")], fp.l2(RIDGE))


@pytest.fixture(scope="module")
def one() -> fp.Result:
    return fp.solve(ONE, PARTIES)


@pytest.mark.parametrize("method", [fp.ProxAL(fp.Newton()), fp.ProxAL(fp.LBFGS())], ids=["Newton", "LBFGS"])
def test_methods_reach_about_the_same(method: fp.Algorithm, one: fp.Result) -> None:
    assert_kept(one)
    other = fp.solve(ONE, PARTIES, method, max_rounds=5000)
    assert_kept(other)
    assert other.objective == pytest.approx(one.objective, rel=0.03)
    assert other.constraint("found").values == pytest.approx(one.constraint("found").values, abs=0.03)


def test_a_limit_that_does_not_bind_costs_nothing() -> None:
    """The optimum without the limit has its counted rate well inside."""
    free = fp.solve(fp.minimize(fp.mean(LOSS), regularizer=fp.l2(RIDGE)), PARTIES, tolerance=1e-6)
    loose = fp.solve(fp.minimize(fp.mean(LOSS), [FOUND.pooled() >= 0.3], fp.l2(RIDGE)), PARTIES, tolerance=1e-6)
    assert_kept(loose)
    assert loose.objective == pytest.approx(free.objective, abs=1e-6)


@pytest.mark.parametrize(("bound", "wanted"), [(FOUND >= 1.0, 1.0), (FALSE <= 0.0, 0.0)], ids=["all found", "no alarm"])
def test_limits_that_no_smooth_rate_reaches_are_met(bound: fp.Constraint, wanted: float) -> None:
    """A sigmoid is below 1 and above 0 everywhere, but a stand-in need only be so near that every row is decided so."""
    result = fp.solve(fp.minimize(fp.mean(LOSS), [bound.named("limit")], fp.l2(RIDGE)), PARTIES)
    assert_kept(result)
    assert set(result.constraint("limit").values) == {wanted}


def test_rates_alone_are_an_objective() -> None:
    """Its parts cancel at the start, where every row has the score 0, but for rounding."""
    result = fp.solve(fp.minimize(FALSE - FOUND, regularizer=fp.l2(RIDGE)), PARTIES)
    assert result.converged, result.message
    each = []
    for table in PARTIES.values():
        decided = scores_of(result.params, table) > 0
        each.append(decided[table["y"] == 0].mean() - decided[table["y"] == 1].mean())
    squares = sum(float(np.sum(np.square(leaf))) for leaf in result.params.values())
    assert result.certificate.stand_ins is not None
    assert result.certificate.stand_ins.objective == pytest.approx(np.mean(each) + RIDGE * squares, abs=1e-12)
    assert np.mean(each) < -0.3


def test_several_starts(one: fp.Result) -> None:
    result = fp.solve(ONE, PARTIES, starts=2)
    assert_kept(result)
    assert result.objective <= one.objective + 1e-3


def test_limits_that_cannot_be_met_are_never_certified() -> None:
    limits = [(FOUND >= 0.99).named("found"), (FALSE <= 0.01).named("false alarms")]
    result = fp.solve(fp.minimize(fp.mean(LOSS), limits, fp.l2(RIDGE)), PARTIES)
    assert not result.converged
    assert result.status == "infeasible"
    rates = Rates(result.params, counted=True)
    assert result.constraint("found").values == pytest.approx(rates.found, abs=1e-12)
    assert max(max(report.violations) for report in result.certificate.constraints) > 0.01
    assert result.certificate.broken_counts
    assert not result.certificate.holds(1.0), "by however little"


def test_a_run_that_ends_early_says_what_is_counted_there(one: fp.Result) -> None:
    """Every round has an answer, whose values are counted; only those that hold are certified."""
    for rounds in (1, one.rounds // 2):
        part = fp.solve(ONE, PARTIES, max_rounds=rounds)
        assert (part.status, part.rounds) == ("max_rounds", rounds)
        tables = list(PARTIES.values())
        ill = np.concatenate([scores_of(part.params, table)[table["y"] == 1] for table in tables])
        assert part.constraint("found").values == pytest.approx([(ill > 0).mean()], abs=1e-12)
        assert part.constraint("found").stand_ins == pytest.approx([sigmoid(ill / TEMPERATURE).mean()], abs=1e-12)


# verified


@pytest.mark.parametrize("array", ["w", "party_corrections", "pooled_corrections", "server_corrections"])
def test_verify_counts_again_and_notices_what_was_changed(
    array: str, solved: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path
) -> None:
    folder, result = solved
    check = fp.verify(folder, PROBLEM, PARTIES, SERVER)
    assert check.ok
    assert [r.values for r in check.certificate.constraints] == [r.values for r in result.certificate.constraints]
    changed = shutil.copytree(folder, tmp_path / "run")
    with np.load(changed / "answer.npz") as saved:
        arrays = dict(saved)
    arrays[array] = arrays[array] + 0.5
    np.savez(changed / "answer.npz", **arrays)
    again = fp.verify(changed, PROBLEM, PARTIES, SERVER)
    assert not again.ok


def test_verify_wants_the_corrections(solved: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path) -> None:
    changed = shutil.copytree(solved[0], tmp_path / "run")
    with np.load(changed / "answer.npz") as saved:
        arrays = {name: array for name, array in saved.items() if name != "pooled_corrections"}
    np.savez(changed / "answer.npz", **arrays)
    with pytest.raises(ValueError, match="pooled_corrections has the shape None"):
        fp.verify(changed, PROBLEM, PARTIES, SERVER)


def test_verify_over_columns(over_columns: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path) -> None:
    folder, result = over_columns
    check = fp.verify(folder, OVER_COLUMNS, columns.PARTIES)
    assert check.ok
    assert check.certificate.constraints[0].values == result.certificate.constraints[0].values


# what is said about such a run


def test_explain_and_audit() -> None:
    assert fp.explain(ONE, PARTIES).method == "InteriorPoint"
    told = fp.explain(OVER_COLUMNS, columns.PARTIES)
    assert told.method == "FairVFL"
    assert min(told.bytes_up, told.bytes_down) > 0
    audit = fp.audit(OVER_COLUMNS, columns.PARTIES, fp.FairVFL(), rounds=2)
    assert set(audit) == {"shop", "network"}


# refused

SPLIT = fp.Personal([fp.sets.l2_ball(1.0)] * 3, pull=0.1)
SOFTMAX = fp.mean(fp.softmax_loss(CLASSES, label="size"))


def minimised(limits: Any = (), objective: Any = None, **more: Any) -> fp.Problem:
    return fp.minimize(fp.mean(LOSS) if objective is None else objective, limits, **more)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: minimised([(FOUND == 0.9).named("found")]), r"'found': a counted rate .* no equality"),
        (
            lambda: fp.solve(minimised(objective=FOUND), PARTIES, fp.FedAvg(step=0.1)),
            r"FedAvg cannot count.*InteriorPoint",
        ),
        (
            lambda: fp.solve(ONE, PARTIES, fp.SSCA(batch=9)),
            r"SSCA cannot count.*fp\.InteriorPoint\(\) or fp\.ProxAL\(\)",
        ),
        (lambda: fp.solve(OVER_COLUMNS, columns.PARTIES, fp.SSCA(batch=9)), r"SSCA cannot count.*fp\.FairVFL\(\)"),
        (
            lambda: fp.solve(minimised(objective=FOUND, personal=SPLIT), PARTIES),
            r"cannot count.*fp\.positive_rate\(model\)",
        ),
        (
            lambda: fp.solve(minimised([fp.mean(fp.decisions(MODEL, label=1)) <= 0.5]), PARTIES),
            r"decisions\(label=1\).*outputs=",
        ),
        (
            lambda: fp.solve(minimised([fp.mean(fp.decisions(CLASSES)) <= 0.5], SOFTMAX), PARTIES),
            r"fp\.decisions\(model, label=0\), up to 2",
        ),
        (
            lambda: fp.solve(minimised([fp.mean(fp.decisions(CLASSES, label=3)) <= 0.5], SOFTMAX), PARTIES),
            r"decisions\(label=3\).*outputs=",
        ),
        (lambda: fp.decisions(MODEL, float("nan")), r"threshold=nan\): a finite number"),
        (lambda: fp.decisions(MODEL, "high"), r"threshold='high'"),  # pyright: ignore[reportArgumentType]
        (lambda: fp.decisions(MODEL, temperature=0.0), r"temperature=0.0\): a positive number; 0.1"),
        (lambda: fp.decisions(MODEL, temperature=float("inf")), r"temperature=inf"),
        (lambda: fp.decisions(CLASSES, label=-1), r"label=-1\): the place of a class"),
        (lambda: fp.decisions(CLASSES, 0.5, label=1), "the largest score has no threshold"),
    ],
)
def test_what_is_refused(make: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        make()


def gap_of(result: fp.Result, rows: dict[str, np.ndarray]) -> float:
    """Between the decisions on both sexes, counted by hand."""
    decided = rows["x"] @ np.asarray(result.params["w"]) + np.asarray(result.params["b"]) > 0.0
    return abs(decided[rows["sex"] == "F"].mean() - decided[rows["sex"] == "M"].mean())


@pytest.mark.parametrize("seed", range(4))
def test_a_limit_finer_than_a_row(seed: int, tmp_path: pathlib.Path) -> None:
    """The start decides alike for all, so the limit can be met: the run ends there, or better, and never infeasible."""
    rng = np.random.default_rng(seed)
    rows = {"x": rng.normal(size=(101, 2)), "y": rng.integers(0, 2, 101), "sex": rng.choice(["F", "M"], 101)}
    model = fp.linear(bias=True)
    gap = fp.demographic_parity_gap(fp.decisions(model), group="sex").pooled()
    problem = fp.minimize(fp.mean(fp.logistic_loss(model)), [(gap <= 0).named("gap")], fp.l2(1e-2))
    clinics = fp.split_rows(rows, parties=3)
    result = fp.solve(problem, clinics, save=tmp_path / "run")
    assert result.status in ("stalled", "converged")
    assert not result.certificate.broken_counts
    if result.threshold is None:
        assert gap_of(result, rows) <= 1e-12
    if result.status == "stalled":
        assert "all counted rates are within their limits here" in result.message
        assert (
            "finer than rows can be counted: 'gap' (<= 0): one row more or less moves it by 0.0099 or more"
            in result.message
        )
    check = fp.verify(tmp_path / "run", problem, clinics)
    assert check.stationarity == pytest.approx(result.certificate.stationarity, rel=1e-6, abs=1e-12)
    assert check.certificate.constraints[0].values == result.certificate.constraints[0].values
    parties = {"party 1": 34, "party 2": 34, "party 3": 33}
    assert "'gap' (<= 0): one row more or less" in finer_than_a_row(result.certificate, problem, parties)
    wide = fp.minimize(fp.mean(fp.logistic_loss(model)), [(gap <= 0.02).named("gap")])
    report = dataclasses.replace(result.certificate.constraints[0], upper=0.02)
    certificate = dataclasses.replace(result.certificate, constraints=(report,))
    assert finer_than_a_row(certificate, wide, parties) == ""


def test_whether_a_limit_is_finer_than_a_row_is_said_of_counted_rates_alone() -> None:
    selected, loss = fp.mean(DECIDED).pooled(), fp.mean(LOSS).pooled()
    fine = [(selected + 0.5 <= 0.5).named("none"), (2 * selected - 1 >= 0.999).named("all")]
    wide = [(selected + 0.5 >= 1.2).named("many"), (selected + loss >= 2.0).named("mixed")]
    result = fp.solve(fp.minimize(fp.mean(LOSS), [*fine, *wide]), PARTIES, max_rounds=1)
    told = result.message.partition("finer than rows can be counted: ")[2]
    assert "'none'" in told
    assert "'all'" in told
    assert "'many'" not in told
    assert "'mixed'" not in told


@pytest.mark.parametrize(("rows", "limit", "seed"), [(300, 0.01, 2), (1000, 0.003, 1), (20_000, 0.0005, 0)])
def test_a_narrow_gap_is_met(rows: int, limit: float, seed: int) -> None:
    """Both bounds of a gap are corrected, and leave each other room."""
    rng = np.random.default_rng(seed)
    sex, x = rng.choice(["F", "M"], rows), rng.normal(size=(rows, 3))
    x[:, 0] += 0.6 * (sex == "M")
    y = (x[:, 0] + x[:, 1] + rng.logistic(size=rows) > 0.5).astype(int)
    model, data = fp.linear(bias=True), {"x": x, "y": y, "sex": sex}
    gap = fp.demographic_parity_gap(fp.decisions(model), group="sex").pooled()
    problem = fp.minimize(fp.mean(fp.logistic_loss(model)), [gap <= limit], fp.l2(1e-4))
    result = fp.solve(problem, fp.split_rows(data, parties=3))
    assert result.status == "converged", result.message
    assert gap_of(result, data) <= limit
    assert result.certificate.objective < 0.69  # that of the start is log 2


def test_a_start_within_the_counted_limits_alone_is_no_feasible_point() -> None:
    """No row is selected there, but the loss is out of reach."""
    low = fp.mean(LOSS).pooled() <= 0.1
    problem = fp.minimize(fp.mean(LOSS), [(SELECTED <= 0.5).named("selected"), low.named("loss")], fp.l2(RIDGE))
    result = fp.solve(problem, PARTIES, server=SERVER)
    assert result.status == "infeasible"
    assert "'loss'" in result.message


@settings(max_examples=200, deadline=None)
@given(
    counted=st.floats(-0.2, 0.2),
    smooth=st.floats(-0.2, 0.2),
    width=st.floats(0.0, 0.4),
    now=st.tuples(st.floats(-0.3, 0.3), st.floats(-0.3, 0.3)),
    before=st.tuples(st.floats(-0.3, 0.3), st.floats(-0.3, 0.3)),
)
def test_corrections_of_two_sided_bounds_leave_room(
    counted: float, smooth: float, width: float, now: tuple[float, float], before: tuple[float, float]
) -> None:
    """upper: r − width <= 0, lower: −r <= 0, for a rate or a difference r."""
    both = np.array([1.0, -1.0]), np.array([-width, 0.0])
    numbers = Count(
        limits=Limits(unit=np.ones(2), direction=np.array([1, -1]), equality=np.zeros(2, bool)),
        correction=np.array(now),
        too_loose=np.array(before),
        counted=both[0] * counted + both[1],
        smooth=both[0] * smooth + both[1],
        jumps=np.full(2, 0.01),
        strictest=np.full(2, -np.inf),
        sharp=True,
    )
    proposed, _ = numbers.proposals()
    for corrections in np.asarray(proposed):
        assert width - corrections.sum() >= max(0.5 * width, BAND) - 1e-12  # between the corrected bounds


def test_opposite_bounds_are_found() -> None:
    lines = np.array([[1.0, -1.0, 0.0], [0.0, 0.0, 2.0], [-1.0, 1.0, 0.0], [0.0, 0.0, -0.3], [0.0, 0.0, 0.0]])
    assert directions(lines).tolist() == [1, 2, -1, -2, 0]
    assert directions(lines, np.array([[0.0], [0.0], [1.0], [0.0], [0.0]])).tolist() == [1, 2, -3, -2, 0]


@pytest.mark.parametrize("wide_first", [False, True])
@pytest.mark.parametrize("factor", [1, 2])
def test_the_narrowest_of_several_two_sided_bounds_counts(wide_first: bool, factor: int) -> None:
    wide = [SELECTED <= 0.9, SELECTED >= 0.1]
    narrow = [factor * SELECTED >= factor * 0.3, SELECTED <= 0.32]
    limits = [*wide, *narrow] if wide_first else [*narrow, *wide]
    result = fp.solve(fp.minimize(fp.mean(LOSS), limits, fp.l2(RIDGE)), PARTIES, server=SERVER)
    assert result.status == "converged", result.message
    assert result.rounds <= 60


def test_a_broken_equality_is_not_within_the_limits() -> None:
    loss = fp.mean(LOSS).pooled()
    limits = [(SELECTED <= 0.5).named("selected"), (loss == 0.9).named("equal"), (loss <= 0.8).named("below")]
    result = fp.solve(fp.minimize(fp.mean(LOSS), limits, fp.l2(RIDGE)), PARTIES, server=SERVER)
    assert result.status in ("infeasible", "stalled")
    assert "'equal'" in result.message
    assert "'below'" in result.message
    assert float(np.max(result.certificate.constraint("equal").violations)) < 0.08  # at the start 0.2


def test_a_start_within_the_limits_is_only_left_for_a_better_point() -> None:
    """101 rows and a gap of 0: hardly any model but one that decides alike for all is within the limit."""
    rng = np.random.default_rng(2)
    sex, x = rng.choice(["F", "M"], 101), rng.normal(size=(101, 2))
    x[:, 0] += 0.6 * (sex == "M")
    y = (x @ [1.5, -1.0] + rng.logistic(size=101) > 0.5).astype(int)
    parties = fp.split_rows({"x": x, "y": y, "sex": sex}, parties=3, seed=0)
    gap = fp.demographic_parity_gap(fp.decisions(MODEL), group="sex").pooled()
    problem = fp.minimize(fp.mean(LOSS), [gap <= 0], fp.l2(1e-2))
    start = {"w": np.array([0.058, -0.06]), "b": np.array(0.214)}
    result = fp.solve(problem, parties, start=start)
    assert result.certificate.constraints[0].violations[0] <= 1e-9
    assert result.certificate.objective <= 0.67539  # of the start


def test_a_pooled_limit_with_admm() -> None:
    problem = fp.minimize(fp.mean(LOSS), [SELECTED <= 0.3], fp.l2(RIDGE))
    admm, newton = (
        fp.solve(problem, PARTIES, method, server=SERVER, tolerance=1e-3) for method in (fp.ProxAL(fp.ADMM()), None)
    )
    assert admm.status == newton.status == "converged"
    assert admm.certificate.constraints[0].values[0] <= 0.3
    assert admm.certificate.objective == pytest.approx(newton.certificate.objective, abs=0.02)


def test_a_first_tolerance_that_ended_early_does_not_make_a_rough_stage_final(tmp_path: pathlib.Path) -> None:
    gap = fp.demographic_parity_gap(fp.decisions(MODEL), group="sex").pooled()
    problem = fp.minimize(fp.mean(LOSS), [gap <= 0.05], fp.l2(RIDGE))
    first = fp.solve(problem, PARTIES, server=SERVER, max_rounds=4, save=tmp_path, tolerance=1e-3)
    assert first.status == "max_rounds"
    result = fp.solve(problem, PARTIES, server=SERVER, save=tmp_path, resume=True, tolerance=1e-4)
    assert result.status == "converged", result.message


def test_bounds_that_contradict_each_other_are_infeasible() -> None:
    limits = [(SELECTED <= 0.3).named("few"), (SELECTED >= 0.5).named("many")]
    result = fp.solve(fp.minimize(fp.mean(LOSS), limits, fp.l2(RIDGE)), PARTIES, server=SERVER)
    assert result.status == "infeasible"
    assert "'few'" in result.message
    assert "'many'" in result.message


def test_of_points_that_miss_counted_limits_the_nearest_is_handed_out() -> None:
    """Halfway between bounds that contradict each other a limit is missed by half of what is between them, to a row or two."""
    selected = fp.mean(DECIDED).pooled()
    problem = fp.minimize(
        fp.mean(LOSS), [(selected <= 0.2).named("few"), (selected >= 0.5).named("many")], fp.l2(RIDGE)
    )
    result = fp.solve(problem, PARTIES)
    assert result.status == "infeasible"
    missed = max(max(report.violations) for report in result.certificate.constraints)
    assert missed <= 0.15 + 2 / len(people()["y"])
    assert f"these parameters break a limit by {missed:.3g}" in result.message
    none = tuple(dataclasses.replace(report, multipliers=(0.0,)) for report in result.certificate.constraints)
    without = dataclasses.replace(result.certificate, constraints=none)  # as at a start
    told = infeasible(without, Answer.without_multipliers(np.zeros(1)), problem, fp.l2(RIDGE).flat(np.zeros(1)), missed)
    assert "(locally:" in told


def test_that_no_counts_were_met_is_said_of_points_where_other_constraints_hold() -> None:
    limits = [(FOUND.pooled() >= 0.9).named("found"), (fp.mean(LOSS).pooled() <= 0.6).named("loss")]
    certificate = fp.solve(fp.minimize(fp.mean(LOSS), limits), PARTIES, max_rounds=1).certificate
    alone = dataclasses.replace(certificate, constraints=certificate.constraints[:1])
    assert "within their limits while the other constraints hold, in 1 rounds" in counts_not_met(certificate, 1)
    assert "within their limits, in 1 rounds" in counts_not_met(alone, 1)
