"""What a result says first: values against limits, who is at the limit, what a looser bound would buy; and the problem's h."""

import dataclasses
import math
import re

import numpy as np
import pytest

import fedpact as fp
from fedpact.certificate import Certificate, ConstraintReport, SmoothStandIns
from fedpact.report import promised

INF = math.inf
NONE = np.zeros(0)
PARTIES = ("north", "south", "west")


def report(values, multipliers, lower=-INF, upper=INF, holders=PARTIES, **more) -> ConstraintReport:
    """From its values."""
    broken = tuple(max(lower - v, v - upper, 0.0) for v in values)
    margins = tuple(min(v - lower, upper - v) for v in values)
    if lower == upper:
        broken = tuple(abs(v - upper) for v in values)
        margins = tuple(-b for b in broken)
    scope = "pooled" if holders == ("all rows",) else "party"
    return ConstraintReport(
        "rate", lower, upper, scope, (0,), holders, tuple(values), tuple(multipliers), broken, margins, **more
    )


def lines(one: ConstraintReport, smooth=(), converged=True) -> list[str]:
    kinds = dict.fromkeys(smooth, promised.SMOOTH)
    certificate = Certificate(0.0, 0.0, 0.0, 0.5, (one,), NONE, NONE, NONE)
    return promised.in_lines(certificate, kinds, 1e-4, converged)


def test_counted_values_at_each_party() -> None:
    one = report((0.923, 0.94, 0.93), (1.4, 0.0, 0.1), lower=0.92, stand_ins=(0.919, 0.939, 0.92))
    assert lines(one) == [
        "rate >= 0.92, counted, at each party: north 0.923 (at the limit), south 0.94, west 0.93 (at the limit)",
        "  allowing 0.91 instead of 0.92 would lower the objective by about 0.015",  # of all parties: 0.01 · 1.5
    ]
    assert len(lines(one, converged=False)) == 1
    short = dataclasses.replace(one, values=(0.9199, 0.94, 0.93), violations=(1e-4, 0.0, 0.0))
    assert "north 0.9199, which breaks >= 0.92 by 0.0001" in lines(short)[0]  # counts have no tolerance


@pytest.mark.parametrize(
    ("one", "smooth", "told"),
    [
        (report((0.2,), (0.1,), upper=0.2, holders=("all rows",)), (), "allowing 0.22 instead of 0.2 .* about 0.002"),
        (report((-2.0,), (0.1,), lower=-2.0, holders=("all rows",)), (), "allowing -2.2 instead of -2 .* about 0.02"),
        (report((0.0,), (0.5,), upper=0.0, holders=("all rows",)), (), "allowing 0.01 instead of 0 .* about 0.005"),
        (report((0.2,), (0.1,), upper=0.2, holders=("all rows",)), ("rate",), "allowing 0.21 instead of 0.2 .* 0.001"),
    ],
)
def test_steps_of_looser_bounds(one, smooth, told) -> None:
    first, second = lines(one, smooth)
    assert ("smooth stand-in of a rate, not counted, over all rows: 0.2 (at the limit)" in first) == bool(smooth)
    assert re.search(told, second)


def test_both_sides_of_a_range() -> None:
    one = report((0.2, 0.4, 0.3), (0.3, 0.7, 0.0), lower=0.2, upper=0.4, stand_ins=(0.2, 0.4, 0.3))
    assert lines(one)[1:] == [
        "  allowing 0.41 instead of 0.4 would lower the objective by about 0.007",
        "  allowing 0.19 instead of 0.2 would lower the objective by about 0.003",
    ]


def test_what_has_no_price() -> None:
    assert len(lines(report((0.1, 0.1, 0.1), (0.0, 0.0, 0.0), upper=0.2))) == 1
    assert len(lines(report((0.2, 0.1, 0.1), (1e-9, 0.0, 0.0), upper=0.2))) == 1
    first, second = lines(report((1.0,), (-0.3,), lower=1.0, upper=1.0, holders=("all rows",)))
    assert first == "rate == 1, over all rows: 1"
    assert second == "  multiplier -0.3 at all rows"


def test_many_parties_are_told_by_the_least_room() -> None:
    holders = tuple(f"p{k}" for k in range(50))
    values = [0.5 - 0.01 * k for k in range(50)]
    one = report(values, [1.0] + 49 * [0.0], upper=0.5, holders=holders)
    (first, _) = lines(one)
    assert "least room first p0 0.5 (at the limit), p1 0.49, " in first
    assert first.endswith("p5 0.45, … of 50, 1 of them at the limit")
    assert "p6 " not in first


def test_objectives_with_decisions() -> None:
    stand_ins = SmoothStandIns(NONE, NONE, NONE, 0.25, threshold_shift=0.0)
    assert promised.solved_with(stand_ins, 0.25).endswith("until the counts met theirs")
    assert promised.solved_with(stand_ins, 0.24).endswith("and is 0.25 with decisions counted")


def test_which_constraints_are_on_smooth_rates() -> None:
    model = fp.linear()
    loss = fp.mean(fp.logistic_loss(model))
    smooth, counted = fp.mean(fp.positive_rate(model)) <= 0.3, fp.mean(fp.decisions(model)) <= 0.3
    problem = fp.minimize(loss, [smooth.named("smooth"), counted.named("counted"), (loss <= 1).named("loss")])
    assert promised.smooth_rates(problem) == {"smooth"}
    assert promised.kinds(problem) == {"smooth": promised.SMOOTH, "loss": "a mean of logistic_loss, not a rate"}
    unnamed = fp.minimize(loss, [loss <= 1])  # is called by its formula
    assert promised.kinds(unnamed) == {}


def test_the_regulariser_is_spelled_out() -> None:
    loss = fp.mean(fp.logistic_loss(fp.linear(bias=True)))
    h = fp.l2(1e-4) + fp.l1(0.01, on="w") + fp.box(-1, on=["w", "b"])
    assert str(fp.minimize(loss, [loss <= 0.5], h)).splitlines() == [
        "minimise mean(logistic_loss) + 0.0001 ‖w‖² + 0.01 ‖params[w]‖₁",
        "    s.t. mean(logistic_loss) <= 0.5 (party)",
        "    s.t. -1 <= params[w, b]",
    ]
    assert str(fp.minimize(loss, regularizer=fp.group(0.1))) == "minimise mean(logistic_loss) + 0.1 Σ_g ‖params[w]_g‖"
    assert str(fp.minimize(loss, regularizer=fp.box(0, 2))).endswith("s.t. 0 <= w <= 2")


def test_a_page_tells_rows_date_and_digest(tmp_path) -> None:
    table = fp.Table(x=np.eye(3), y=np.array([0, 1, 1]))
    parties = {"north": table, "south": table[np.array([0, 1])]}
    problem = fp.minimize(fp.mean(fp.logistic_loss(fp.linear())), regularizer=fp.l2(0.1))
    result = fp.solve(problem, parties, save=tmp_path / "run")
    assert result.rows == (3, 2)
    assert f'"{result.digest}"' in (tmp_path / "run" / "run.json").read_text()
    page = result.report(tmp_path / "page.html").read_text("utf-8")
    for told in ("The rows", '<th scope="row">south</th><td>2</td>', result.ended, result.digest, "0.1 ‖w‖²"):
        assert told in page
    assert result.ended.endswith(" UTC")
