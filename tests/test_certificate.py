"""The certificate against plain NumPy at points that are nothing special, and `fp.verify` against tampering."""

import json
import pathlib
import shutil
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from problems import CASES, SQUARED, excess, gap, regression, shortfall

import fedpact as fp
from fedpact.certificate import Certificate
from fedpact.engines.local import LocalNetwork
from fedpact.protocol.algorithm import Answer
from fedpact.run import drivers
from fedpact.settings import bind
from fedpact.settings.base import Bound

L1, L2, LOWER, UPPER = 0.3, 0.2, -1.0, 1.1
PROBLEM = fp.minimize(
    fp.mean(SQUARED),
    [
        (fp.mean(excess) <= 0.1).named("below"),
        fp.mean(gap).between(-0.3, 0.4).named("between"),
        (abs(fp.mean(gap)) <= 0.2).named("abs"),
        (fp.mean(shortfall) >= -0.5).named("at least"),
        (fp.mean(gap) == 0.1).named("equal"),
        (fp.mean(excess).pooled() <= 0.2).named("pooled"),
        (fp.mean(gap).pooled() == 0.0).named("pooled equality"),
        (fp.mean(excess).at_server() <= 0.3).named("server"),
    ],
    fp.l1(L1) + fp.l2(L2) + fp.box(LOWER, UPPER),
)
*TABLES, SERVER = regression(0, (6, 2, 5, 4), (0.5, 0.1, 0.2, 0.3), d=4)
EQUAL = np.array([False] * 6 + [True])
MU = np.array([[0.5, 0, 0.2, 0.1, 0, 0.7, -0.4], [0, 1.5, 0, 0, 0.3, 0, 0.2], [0, 0, 0, 0, 0, 0, 0]])


@pytest.fixture(scope="module")
def bound() -> Bound:
    return bind(PROBLEM, fp.split_rows(TABLES), SERVER)


def measured(bound: Bound, w: np.ndarray, mu: np.ndarray, pooled: np.ndarray, server: np.ndarray) -> Certificate:
    answer = Answer(*(jnp.asarray(a) for a in (w, server, pooled, 0.0)))
    network, kept = LocalNetwork.of(bound), bound.kept_in({"party_multipliers": mu})
    found, _ = drivers.run_phases(bound.measurement, network, bound.server_data, answer, kept)
    return bound.certify(found, answer)


class ByHand:
    """The same numbers, written out."""

    def __init__(self, w: np.ndarray, mu: np.ndarray, pooled: np.ndarray, server: np.ndarray):
        u, v, limit = (np.concatenate([t[name] for t in TABLES]) for name in ("u", "v", "limit"))
        self.rows = [self.party(w, t["u"], t["v"], t["limit"]) for t in TABLES]
        over, slope = self.excess(w, u, v, limit)
        self.pooled = np.array([over - 0.2, u.mean(0) @ w - v.mean()]), np.stack([slope, u.mean(0)])
        over, slope = self.excess(w, SERVER["u"], SERVER["v"], SERVER["limit"])
        self.server = np.array([over - 0.3]), slope[None]

        residuals = [t["x"] @ w - t["y"] for t in TABLES]
        gradient = np.mean([(r[:, None] * t["x"]).mean(0) for r, t in zip(residuals, TABLES, strict=True)], axis=0)
        gradient += sum(m @ slopes for m, (_, slopes) in zip(mu, self.rows, strict=True))
        gradient += pooled @ self.pooled[1] + server @ self.server[1] + 2 * L2 * w
        least = gradient + np.where(w > 0, L1, -L1)
        most = gradient + np.where(w < 0, -L1, L1)
        least, most = np.where(w <= LOWER, -np.inf, least), np.where(w >= UPPER, np.inf, most)
        self.stationarity = max(0.0, least.max(), -most.min())

        c = np.concatenate([*(values for values, _ in self.rows), self.pooled[0], self.server[0]])
        m = np.concatenate([mu.ravel(), pooled, server])
        equal = np.concatenate([*[EQUAL] * len(TABLES), [False, True], [False]])
        broken = np.where(equal, np.abs(c), np.maximum(c, 0.0))
        self.feasibility = max(broken.max(), (w - UPPER).max(), (LOWER - w).max())
        self.complementarity = max(0.0, np.abs(c[~equal & (m > 0)]).max(initial=0.0), -m[~equal].min())
        losses = [np.mean(0.5 * r**2) for r in residuals]
        self.objective = np.mean(losses) + L1 * np.abs(w).sum() + L2 * w @ w

    @staticmethod
    def excess(w: np.ndarray, u: np.ndarray, v: np.ndarray, limit: np.ndarray) -> tuple[float, np.ndarray]:
        r = u @ w - v
        return np.mean(0.5 * r**2) - limit.mean(), (r[:, None] * u).mean(0)

    @classmethod
    def party(cls, w: np.ndarray, u: np.ndarray, v: np.ndarray, limit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Seven scalar rows: below, between above and below, abs above and below, at least, equal."""
        over, slope = cls.excess(w, u, v, limit)
        off, line = u.mean(0) @ w - v.mean(), u.mean(0)
        values = [over - 0.1, off - 0.4, -0.3 - off, off - 0.2, -off - 0.2, -0.5 + over, off - 0.1]
        return np.array(values), np.stack([slope, line, -line, line, -line, slope, line])


POINTS = {
    "inside": np.array([0.5, 0.0, -0.7, 0.9]),
    "on the box": np.array([UPPER, LOWER, 0.0, 0.2]),
    "outside the box": np.array([0.5, -1.4, 0.1, 1.2]),
}
MULTIPLIERS = {
    "mixed": (MU, np.array([0.6, -0.8]), np.array([0.9])),
    "none": (0 * MU, np.zeros(2), np.zeros(1)),
    "negative at a party": (MU - 2.0 * (np.arange(21).reshape(3, 7) == 7), np.zeros(2), np.zeros(1)),
    "negative at the server": (MU, np.zeros(2), np.array([-30.0])),
    "negative, pooled": (MU, np.array([-40.0, 50.0]), np.zeros(1)),
    "of equalities only": (MU * EQUAL * 100, np.array([0.0, -7.0]), np.zeros(1)),
}


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("multipliers", MULTIPLIERS)
def test_three_numbers(bound: Bound, point: str, multipliers: str) -> None:
    given = POINTS[point], *MULTIPLIERS[multipliers]
    certificate, expected = measured(bound, *given), ByHand(*given)
    for number in ("stationarity", "feasibility", "complementarity", "objective"):
        assert getattr(certificate, number) == pytest.approx(getattr(expected, number), rel=1e-12, abs=1e-14), number
    largest = max(expected.stationarity, expected.feasibility, expected.complementarity)
    assert certificate.holds(largest * (1 + 1e-9))
    assert not certificate.holds(largest * (1 - 1e-9))


def test_every_constraint_is_reported_as_it_was_written(bound: Bound) -> None:
    w, (mu, pooled, server) = POINTS["inside"], MULTIPLIERS["mixed"]
    certificate, by_hand = measured(bound, w, mu, pooled, server), ByHand(w, mu, pooled, server)
    c = np.stack([values for values, _ in by_hand.rows])
    over, off = c[:, 0] + 0.1, c[:, 6] + 0.1
    expected = {  # value, multiplier, violation, room
        "below": (over, mu[:, 0], np.maximum(over - 0.1, 0), 0.1 - over),
        "between": (off, mu[:, 1:3].sum(1), np.maximum(np.maximum(off - 0.4, -0.3 - off), 0), -c[:, 1:3].max(1)),
        "abs": (np.abs(off), mu[:, 3:5].sum(1), np.maximum(np.abs(off) - 0.2, 0), 0.2 - np.abs(off)),
        "at least": (-over, mu[:, 5], np.maximum(-0.5 + over, 0), -over + 0.5),
        "equal": (off, mu[:, 6], np.abs(off - 0.1), -np.abs(off - 0.1)),
    }
    for name, columns in expected.items():
        report = certificate.constraint(name)
        assert report.holders == bound.names
        found = (report.values, report.multipliers, report.violations, report.margins)
        for column, wanted in zip(found, columns, strict=True):
            np.testing.assert_allclose(column, wanted, atol=1e-13, err_msg=name)
    assert certificate.constraint("pooled").values == pytest.approx([by_hand.pooled[0][0] + 0.2])
    assert certificate.constraint("pooled equality").violations == pytest.approx([abs(by_hand.pooled[0][1])])
    assert certificate.constraint("server").values == pytest.approx([by_hand.server[0][0] + 0.3])
    assert certificate.constraint("below").worst == int(np.argmax(over))
    with pytest.raises(KeyError, match="below"):
        certificate.constraint("beyond")


@pytest.mark.parametrize("place", ["each party", "pooled", "server"])
def test_an_equality_is_broken_from_both_sides(place: str) -> None:
    w = np.array([0.5, 0.0, -0.7, 0.9])
    balance = fp.mean(gap)
    balance = {"each party": balance, "pooled": balance.pooled(), "server": balance.at_server()}[place]
    tables = {"each party": TABLES, "pooled": TABLES, "server": [SERVER]}[place]
    gaps = [t["u"] @ w - t["v"] for t in tables]
    values = [np.concatenate(gaps).mean()] if place == "pooled" else [g.mean() for g in gaps]
    sizes = {"each party": (1, 0, 0), "pooled": (0, 1, 0), "server": (0, 0, 1)}[place]
    none = np.zeros((len(TABLES), sizes[0])), np.zeros(sizes[1]), np.zeros(sizes[2])
    for wanted in (-50.0, 50.0):
        bound = bind(fp.minimize(fp.mean(SQUARED), [balance == wanted]), fp.split_rows(TABLES), SERVER)
        certificate = measured(bound, w, *none)
        assert certificate.feasibility == pytest.approx(max(abs(v - wanted) for v in values), rel=1e-12)
        assert certificate.complementarity == 0.0


def logarithm(params: Any, rows: Any) -> Any:
    del rows
    return jnp.log(params["w"][0])


@pytest.mark.parametrize("place", ["each party", "pooled", "server"])
def test_a_constraint_without_a_value_holds_to_no_tolerance(place: str) -> None:
    limit = fp.value(logarithm)
    limit = {"each party": limit, "pooled": limit.pooled(), "server": limit.at_server()}[place]
    bound = bind(fp.minimize(fp.mean(SQUARED), [limit <= 0.0]), fp.split_rows(TABLES), SERVER)
    sizes = {"each party": (1, 0, 0), "pooled": (0, 1, 0), "server": (0, 0, 1)}[place]
    none = np.zeros((len(TABLES), sizes[0])), np.zeros(sizes[1]), np.zeros(sizes[2])
    assert measured(bound, np.array([0.5, 0.0, 0.0, 0.0]), *none).holds(1e3)
    assert not measured(bound, np.array([-0.5, 0.0, 0.0, 0.0]), *none).holds(1e3)


# fp.verify

CASE = CASES["local limit"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, fp.Result]:
    folder = tmp_path_factory.mktemp("verify") / "run"
    return folder, CASE.solve(fp.ProxAL(fp.Newton()), 1e-6, save=folder)


def tampered(folder: pathlib.Path, to: pathlib.Path, array: str, change: float) -> pathlib.Path:
    """A copy of a run in which the first entry of one array is changed."""
    shutil.copytree(folder, to)
    with np.load(to / "answer.npz") as saved:
        arrays = dict(saved)
    arrays[array].flat[0] += change
    np.savez(to / "answer.npz", **arrays)
    return to


def test_verify_measures_what_was_claimed(finished: tuple[pathlib.Path, fp.Result]) -> None:
    folder, result = finished
    check = fp.verify(folder, CASE.problem, CASE.parties)
    assert check.ok
    assert check.claimed == {name: getattr(result.certificate, name) for name in check.claimed}
    assert check.claimed == {name: getattr(check.certificate, name) for name in check.claimed}
    assert check.certificate.constraints == result.certificate.constraints


@pytest.mark.parametrize(
    ("array", "change"),
    [("w", 1e-4), ("w", -1e-4), ("party_multipliers", 1e-3), ("party_multipliers", -1.0), ("w", np.nan)],
)
def test_a_tampered_answer_is_not_ok(
    finished: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path, array: str, change: float
) -> None:
    check = fp.verify(tampered(finished[0], tmp_path / "run", array, change), CASE.problem, CASE.parties)
    assert not check.ok
    assert "does NOT hold" in str(check)


def test_whoever_verifies_may_choose_the_tolerance(
    finished: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path
) -> None:
    folder, result = finished
    assert fp.verify(folder, CASE.problem, CASE.parties).tolerance == 1e-6
    strict = fp.verify(folder, CASE.problem, CASE.parties, tolerance=result.certificate.stationarity / 2)
    assert not strict.ok
    lax = tampered(folder, tmp_path / "run", "w", 1e-3)
    words = json.loads((lax / "run.json").read_text())
    (lax / "run.json").write_text(json.dumps({**words, "tolerance": 1e3}))
    assert fp.verify(lax, CASE.problem, CASE.parties).ok
    assert not fp.verify(lax, CASE.problem, CASE.parties, tolerance=1e-6).ok
    with pytest.raises(ValueError, match=r"verify\(tolerance=0\)"):
        fp.verify(folder, CASE.problem, CASE.parties, tolerance=0)


def test_a_problem_without_a_model_is_verified_with_the_shape_of_its_parameters(tmp_path: pathlib.Path) -> None:
    problem = fp.minimize(fp.value(lambda p, rows: jnp.sum((p["w"] - 3) ** 2)))
    start = {"w": np.zeros(2)}
    fp.solve(problem, CASE.parties, start=start, save=tmp_path)
    assert fp.verify(tmp_path, problem, CASE.parties, params=start).ok
    with pytest.raises(ValueError, match=r"no model.*params="):
        fp.verify(tmp_path, problem, CASE.parties)


def test_other_rows_are_not_ok(finished: tuple[pathlib.Path, fp.Result]) -> None:
    first, *others = CASE.parties.values()
    changed = fp.split_rows([first.with_columns(y=first["y"] + 0.1), *others])
    assert not fp.verify(finished[0], CASE.problem, changed).ok


def test_wrong_problem_and_wrong_parties_are_refused(finished: tuple[pathlib.Path, fp.Result]) -> None:
    folder, _ = finished
    tables = list(CASE.parties.values())
    looser = fp.minimize(fp.mean(SQUARED), [(fp.mean(excess) <= 1.0).named("limit")], fp.l2(0.05))
    with pytest.raises(ValueError, match="another problem"):
        fp.verify(folder, looser, CASE.parties)
    with pytest.raises(ValueError, match="another problem"):
        fp.verify(folder, CASES["lasso"].problem, CASE.parties)
    with pytest.raises(ValueError, match="party 1, party 2, party 3"):
        fp.verify(folder, CASE.problem, fp.split_rows(tables[:2]))
    with pytest.raises(ValueError, match="north"):
        fp.verify(folder, CASE.problem, fp.split_rows(tables, parties=["north", "south", "west"]))


def test_a_damaged_or_missing_answer_is_an_error(
    finished: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path
) -> None:
    run = shutil.copytree(finished[0], tmp_path / "run")
    whole = (run / "answer.npz").read_bytes()
    (run / "answer.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="truncated"):
        fp.verify(run, CASE.problem, CASE.parties)
    np.savez(run / "answer.npz", w=np.zeros(3))
    with pytest.raises(ValueError, match="shape"):
        fp.verify(run, CASE.problem, CASE.parties)
    (run / "answer.npz").unlink()
    with pytest.raises(FileNotFoundError, match=r"answer\.npz"):
        fp.verify(run, CASE.problem, CASE.parties)


def test_a_rosier_claim_changes_nothing(finished: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path) -> None:
    run = tampered(finished[0], tmp_path / "run", "w", 1e-3)
    words = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**words, "status": "converged", "stationarity": 0.0, "feasibility": 0.0}))
    check = fp.verify(run, CASE.problem, CASE.parties)
    assert not check.ok
    assert check.stationarity > 1e-4


def test_a_proof_is_found_where_the_least_violation_is_at_infinity(tmp_path: pathlib.Path) -> None:
    """Losses on separable rows are to be negative: they fall to zero along a ray, and never stop falling."""
    parties = fp.split_rows(fp.datasets.breast_cancer(), parties=3, stratify="y", seed=3)
    loss = fp.logistic_loss(fp.linear(bias=True))
    alarms, missed = (fp.mean(loss, where=fp.col("y") == label) for label in (0, 1))
    limits = [(missed <= -0.01).named("missed"), (alarms <= 0.01).named("alarms")]
    problem = fp.minimize(alarms, limits, fp.l2(1e-3))
    result = fp.solve(problem, parties, tolerance=1e-6, save=tmp_path)
    assert result.status == "infeasible"
    assert result.rounds <= 60
    assert fp.verify(tmp_path, problem, parties).infeasible


def test_an_infeasible_verdict_is_recomputed(tmp_path: pathlib.Path) -> None:
    """Two convex limits that exclude each other: the multipliers are a proof, until somebody changes them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    parties = fp.split_rows(fp.Table(x=x, y=(x[:, 0] > 0).astype(int)), parties=3, seed=0)
    loss = fp.logistic_loss(fp.linear())
    ones, zeros = (fp.mean(loss, where=fp.col("y") == label).pooled() for label in (1, 0))
    far = fp.value(fp.squared_norm).at_server() <= 0.01
    problem = fp.minimize(ones, [(zeros <= 0.1).named("zeros"), far.named("small")])
    result = fp.solve(problem, parties, save=tmp_path)
    assert result.status == "infeasible"
    check = fp.verify(tmp_path, problem, parties)
    assert check.infeasible
    assert not check.ok, "that is for answers that may be used"
    assert "does NOT hold" in str(check)
    assert "infeasible, which is confirmed" in str(check)
    with np.load(tmp_path / "answer.npz") as saved:
        arrays = dict(saved)
    for factor in (0.0, -1.0):  # of the multiplier of "small": no proof without it, nor with the wrong sign
        changed = {**arrays, "server_multipliers": factor * arrays["server_multipliers"]}
        np.savez(tmp_path / "answer.npz", **changed)
        check = fp.verify(tmp_path, problem, parties)
        assert not check.infeasible
