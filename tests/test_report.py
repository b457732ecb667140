"""The report's page: complete, safe, reproducible, and of a bearable size whatever the run was."""

import dataclasses
import html.parser
import math
import pathlib
import re

import numpy as np
import pytest

from fedpact.certificate import ALL_ROWS, SERVER, Certificate, ConstraintReport
from fedpact.report import curves, markup, plots
from fedpact.report.page import write_page
from fedpact.run.history import History
from fedpact.tolerance import Tolerance

SUMMARY = {"method": "ProxAL with Newton", "tolerance": "0.0001", "rounds": "60", "sent up": "1.2 MB"}
PROBLEM = "minimise mean(logistic_loss)\n    s.t. missed: mean(logistic_loss | y == 1) <= 0.2 (party)"
HOSTILE = (
    "<script>alert(1)</script>",
    "\"quoted\" & 'so' > on",
    r"$\frac{1}{0}$ \n",
    "\x00\x07\u202eright to left\ud800",
    "日本語 🙂",
    "long " * 200,
    "",
)


@dataclasses.dataclass
class Run:
    """What `write_page` takes, made by hand."""

    certificate: Certificate
    history: History
    parties: tuple[str, ...]
    problem: str = PROBLEM
    status: str = "converged"
    message: str = "every optimality condition holds to 0.0001 after 60 rounds"
    summary: dict[str, str] = dataclasses.field(default_factory=lambda: dict(SUMMARY))
    tolerance: Tolerance = Tolerance(1e-4, 1e-4)

    def write(self, path: pathlib.Path) -> str:
        written = write_page(
            path,
            self.problem,
            self.status,
            self.message,
            self.summary,
            self.certificate,
            self.history,
            self.parties,
            self.tolerance,
        )  # fmt: skip
        assert written == path
        return path.read_text("utf-8")


INF = math.inf
RANGE = (-1.0, 1.0)
BOUNDS = ((-INF, 0.2), (0.5, INF), (0.0, 0.0), RANGE)  # of every kind


def made_run(
    rounds: int = 60,
    parties: int = 5,
    bounds: tuple[tuple[float, float], ...] = ((-INF, 0.2), RANGE),
    names: tuple[str, ...] = (),
) -> Run:
    """A run whose constraints settle, some with room and some at their bound; each g <= 0 as in a real history."""
    rng = np.random.default_rng(0)
    t = np.arange(1, rounds + 1)
    fade = np.exp(-t / max(rounds / 8, 1))[:, None]
    holders = names or tuple(f"party {k + 1}" for k in range(parties))
    c, mu, reports = np.zeros((rounds, parties, 0)), np.zeros((rounds, parties, 0)), []
    for place, (lower, upper) in enumerate(bounds):
        end = np.where(rng.random(parties) < 0.5, -np.abs(rng.normal(size=parties)), 0.0)
        g = end + 0.3 * rng.normal(size=parties) * fade
        price = np.where(end == 0, rng.random(parties), 0.0) * (1 - fade)
        rows, prices = ([g, -2 - g], [price, 0 * price]) if (lower, upper) == RANGE else ([g], [price])
        mine = tuple(range(c.shape[2], c.shape[2] + len(rows)))
        c, mu = np.concatenate([c, np.stack(rows, -1)], axis=2), np.concatenate([mu, np.stack(prices, -1)], axis=2)
        last, paid = (g[-1], price[-1]) if rounds else (end, 0 * end)
        values = lower - last if upper == INF else upper + last
        broken = np.abs(last) if lower == upper else np.maximum(last, 0)
        columns = [tuple(map(float, x)) for x in (values, paid, broken, -broken if lower == upper else -last)]
        reports.append(ConstraintReport(f"constraint {place + 1}", lower, upper, "party", mine, holders, *columns))
    reports += [
        ConstraintReport("norm", -INF, 25.0, "server", (0,), (SERVER,), (10.0,), (0.5,), (0.0,), (15.0,)),
        ConstraintReport("gap", -INF, 0.02, "pooled", (0, 1), (ALL_ROWS,), (0.02,), (2.0,), (0.0,), (0.0,)),
    ]
    last_mu = mu[-1] if rounds else np.zeros(mu.shape[1:])
    certificate = Certificate(1e-6, 0.0, 8e-5, 0.312, tuple(reports), last_mu, np.array([0.5]), np.array([0.0, 2.0]))
    columns = {
        "round": t,
        "objective": 0.3 + fade[:, 0],
        "violation": np.maximum(c, 0).max(axis=(1, 2), initial=0) * (t < 0.8 * rounds),
        "stationarity": 10.0 ** (-6 * t / max(rounds, 1)),
        "exchanges": np.ones(rounds, int),
        "bytes_up": np.full(rounds, 800 * parties),
        "bytes_down": np.full(rounds, 400 * parties),
        "outer": t // 10,
        "beta": 10.0 * 3.0 ** (4 * t // max(rounds, 1)),
        "residual": 10.0 ** (-5 * t / max(rounds, 1)),
        "tau": 10.0 ** (-4 * t / max(rounds, 1)),
        "constraints": c,
        "multipliers": mu,
        "server_multipliers": 0.5 * (1 - fade),
        "pooled_multipliers": np.concatenate([0 * fade, 2 * (1 - fade)], axis=1),
    }
    return Run(certificate, History(columns), holders)


class Reader(html.parser.HTMLParser):
    """Collects tags, addresses, handlers and text, and checks that every element is closed in order."""

    VOID = {"meta", "path", "rect"}

    def __init__(self) -> None:
        super().__init__()
        lists: list[list[str]] = [[] for _ in range(5)]
        self.open, self.tags, self.addresses, self.handlers, self.words = lists

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("href", "src", "xlink:href", "action"):
                self.addresses.append(value or "")
            if name.startswith("on"):
                self.handlers.append(name)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert not reader.open
    assert "script" not in reader.tags
    assert not reader.handlers
    assert not reader.addresses
    assert not re.search(r"https?://|//[a-z]|@import|url\(", page)  # nothing is loaded from elsewhere
    return reader


def test_a_typical_run(tmp_path):
    page = made_run().write(tmp_path / "deep" / "down" / "report.html")
    reader = read(page)
    words = " ".join(reader.words)
    assert 10_000 < len(page) < 200_000
    told = ("Converged", "Every optimality condition holds", "mean(logistic_loss | y == 1) <= 0.2", "8e-5", "Within")
    told += ("constraint 1", "constraint 2", "norm", "gap", "party 3", "at the limit", "holds", "≤ 0.2", "1.2 MB")
    told += (
        "Objective",
        "Violation and stationarity",
        "Data sent",
        "Constraint values",
        "Multipliers",
        "At the server",
    )
    told += ("norm, at the server", "gap, over all rows")
    assert [words_ for words_ in told if words_ not in words] == []
    assert reader.tags.count("figure") == 5 + 2 + 2 + 1
    assert page.count('role="img" aria-label=') > 10
    assert "Content-Security-Policy" in page
    assert not re.search(r"\bnan\b", page, re.I)
    assert sorted(p.name for p in (tmp_path / "deep" / "down").iterdir()) == ["report.html"]
    assert made_run().write(tmp_path / "again.html") == page  # the same run gives the same bytes


@pytest.mark.parametrize("columns", [{"round": np.zeros(0, int)}, {}])
def test_a_run_without_history(tmp_path, columns):
    run = dataclasses.replace(made_run(), history=columns)
    assert "has no history" in run.write(tmp_path / "report.html")
    page = made_run(rounds=0).write(tmp_path / "report.html")
    assert "has no history" in page
    assert "party 3" in page


@pytest.mark.parametrize("rounds", [1, 2, 30])
@pytest.mark.parametrize("parties", [1, 6, 7])
def test_few_rounds_and_parties(tmp_path, rounds, parties):
    reader = read(made_run(rounds, parties, BOUNDS).write(tmp_path / "report.html"))
    assert reader.tags.count("figure") >= 7


def test_no_constraints(tmp_path):
    run = made_run(bounds=())
    bare = dataclasses.replace(
        run.certificate, constraints=(), server_multipliers=np.zeros(0), pooled_multipliers=np.zeros(0)
    )
    history = {k: v for k, v in run.history.items() if "multipliers" not in k}
    page = dataclasses.replace(run, certificate=bare, history=history).write(tmp_path / "report.html")
    assert "no constraints" in page
    assert "Constraint values" not in page


def test_parties_that_disclose_nothing(tmp_path):
    run = made_run()
    history = {k: v for k, v in run.history.items() if k not in ("constraints", "multipliers")}
    page = dataclasses.replace(run, history=history).write(tmp_path / "report.html")
    assert "did not disclose" in page
    assert "At the server" in page


def test_numbers_that_are_none(tmp_path):
    run = made_run(40)
    history = {name: np.array(column, float) for name, column in run.history.items()}
    history["round"] = run.history["round"]
    history["objective"][20:] = np.nan
    history["violation"][:] = np.inf
    history["stationarity"][:] = 0.0
    history["constraints"][10:] = np.nan
    history["multipliers"][5:7] = np.inf
    history["residual"][:] = np.nan
    history["beta"][:] = np.inf
    history["tau"][:] = 1e308
    history["bytes_up"][3] = np.nan
    history["server_multipliers"][:] = 1e-320
    odd = tuple(math.nan if k % 2 else math.inf for k in range(5))
    reports = [
        dataclasses.replace(r, values=odd, margins=odd, multipliers=odd) for r in run.certificate.constraints[:2]
    ]
    certificate = dataclasses.replace(
        run.certificate, stationarity=math.nan, feasibility=math.inf, complementarity=0.0, constraints=tuple(reports)
    )
    page = dataclasses.replace(run, certificate=certificate, history=history, status="diverged").write(
        tmp_path / "r.html"
    )
    words = " ".join(read(page).words)
    for told in ("Diverged", "not a number", "∞", "Not finite in 20 rounds, first in round 21", "No finite number"):
        assert told in words or told.lower() in words.lower()


@pytest.mark.parametrize("shape", ["wild", "falling", "flat", "narrow", "gone"])
def test_any_range_can_be_drawn(tmp_path, shape):
    run, t = made_run(50), np.arange(50.0)
    history = dict(run.history)
    history["objective"] = {
        "wild": 1e6 * np.exp(-t) - 3,
        "falling": 1e6 * np.exp(-t / 2) + 1e-3,
        "flat": 0 * t + 7,
        "narrow": 0.312 + 1e-9 * t,
        "gone": 0.5 * (t < 5),
    }[shape]
    page = dataclasses.replace(run, history=history).write(tmp_path / "report.html")
    assert ("axis is logarithmic" in page) == (shape in ("wild", "falling"))


def test_many_parties_and_constraints(tmp_path):
    page = made_run(60, 200, (*BOUNDS, (-INF, 0.2)) * 8).write(tmp_path / "report.html")
    reader = read(page)
    words = " ".join(reader.words)
    assert len(page.encode()) < 1_500_000
    assert "from least to greatest of 200" in words
    assert "16 more, with larger margins, are not drawn" in words
    assert "are not shown" in words
    assert reader.tags.count("details") > 40


def test_twenty_thousand_rounds(tmp_path):
    run = made_run(20_000, 6, ((-INF, 0.2),) * 2)
    noise = np.random.default_rng(0).normal(size=20_000)
    history = {**run.history, "objective": noise, "stationarity": np.exp(noise), "violation": np.maximum(noise, 0)}
    page = dataclasses.replace(run, history=history).write(tmp_path / "report.html")
    assert len(page.encode()) < 1_000_000
    assert "Not every round is drawn" in page


def test_thinning_keeps_the_extremes():
    values = np.random.default_rng(0).normal(size=50_000)
    values[17_001], values[33], values[4:9] = 99.0, -99.0, np.nan
    kept = plots.thinned(values, 100)
    assert kept.size <= 102
    assert {0, 33, 17_001, 49_999} <= set(kept.tolist())


def test_hostile_names(tmp_path):
    run = made_run(parties=7, names=HOSTILE)
    reports = [dataclasses.replace(r, name=n) for r, n in zip(run.certificate.constraints, HOSTILE, strict=False)]
    certificate = dataclasses.replace(run.certificate, constraints=tuple(reports))
    evil = "</pre></p><img src=x onerror=alert(1)>"
    page = Run(certificate, run.history, HOSTILE, evil, evil, evil, {evil: evil, "tolerance": "1"}).write(
        tmp_path / "r.html"
    )
    reader = read(page)  # no script, no handler, well-formed
    assert "img" not in reader.tags
    assert "<script>alert(1)</script>" in "".join(reader.words)
    assert "\x00" not in page
    assert "\u202e" not in page


@pytest.mark.parametrize("status", ["converged", "max_rounds", "infeasible", "diverged", "stopped", "of another kind"])
def test_the_status_is_said_in_words(tmp_path, status):
    page = dataclasses.replace(made_run(3), status=status).write(tmp_path / "report.html")
    assert len(re.sub("<.*?>", "", page.split("<h1>")[1].split("</h1>")[0])) > 8


def test_a_failed_write_leaves_the_old_page(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")

    def fails(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fails)
    with pytest.raises(OSError, match="disk full"):
        made_run(3).write(path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


# the rows of a history


@pytest.mark.parametrize(
    ("lower", "upper", "rows", "expected"),
    [
        (-INF, 0.2, (2,), 0.15),
        (-INF, 0.2, (0, 1), 0.1),  # an absolute value
        (1.0, INF, (1, 2), 1.05),
        (2.0, 2.0, (0,), 1.7),
        (-1.0, 0.5, (0, 2), 0.2),  # the last row is the lower bound's
    ],
)
def test_values_come_back_from_rows(lower, upper, rows, expected):
    report = dataclasses.replace(made_run(1).certificate.constraints[0], lower=lower, upper=upper, rows=rows)
    c = np.tile([-0.3, -0.1, -0.05], (7, 2, 1))
    np.testing.assert_allclose(curves.value(report, c), np.full((7, 2), expected))


def test_what_the_server_holds_goes_by_name(tmp_path):
    run = made_run(2)
    page = run.write(tmp_path / "report.html")
    assert "norm, at the server: from 0.316 to 0.432." in page
    assert "gap, over all rows: from 1.26 to 1.73." in page  # both rows of an absolute value, added
    own, pooled = run.history["server_multipliers"], run.history["pooled_multipliers"]
    by_slacks = {"server_multipliers": np.concatenate([own, pooled], axis=1), "pooled_multipliers": np.zeros((2, 0))}
    assert dataclasses.replace(run, history={**run.history, **by_slacks}).write(tmp_path / "slacks.html") == page


def test_columns_of_another_shape_are_not_drawn(tmp_path):
    run = made_run()
    odd = {name: np.repeat(column, 4, axis=-1) for name, column in run.history.items() if name != "round"}
    reader = read(dataclasses.replace(run, history={**run.history, **odd}).write(tmp_path / "report.html"))
    assert "figure" not in reader.tags


def test_numbers_in_words():
    numbers = (0.0, -0.0, 1.5e-7, -2.5, math.inf, math.nan, 3e20)
    assert [*map(markup.number, numbers)] == ["0", "0", "1.5e-7", "−2.5", "∞", "not a number", "3e20"]
