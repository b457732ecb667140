"""Where corrected bounds leave counts outside their limits, the threshold is moved, and everybody decides with it."""

from typing import Any

import numpy as np
import pytest

import fedpact as fp
from fedpact.algorithms.parts import counted_rates, counting


def hospitals() -> fp.Parties:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(300, 2))
    y = (x.sum(1) + rng.normal(size=300) > 0.5).astype(int)
    return fp.split_rows(fp.Table(x=x, y=y), parties=["north", "south"], stratify="y", seed=0)


def problem() -> fp.Problem:
    model = fp.linear(bias=True)
    found = fp.mean(fp.decisions(model), where=fp.col("y") == 1)
    return fp.minimize(fp.mean(fp.logistic_loss(model)), [(found >= 0.9).named("found")], fp.l2(1e-3))


@pytest.fixture
def without_corrections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Corrections that aim outside of the limits: what they leave is left to the threshold."""
    monkeypatch.setattr(counted_rates, "ROUGHLY", 0)
    monkeypatch.setattr(counted_rates, "CLOSELY", 0)
    monkeypatch.setattr(counting, "AIM", -0.015)


@pytest.mark.usefixtures("without_corrections")
def test_the_threshold_is_moved_where_bounds_do_not_help(tmp_path: Any) -> None:
    parties = hospitals()
    result = fp.solve(problem(), parties, save=tmp_path / "run")
    moved = result.certificate.stand_ins
    assert moved is not None
    assert result.converged, result.message
    assert moved.threshold_shift < 0
    assert result.threshold == moved.threshold_shift
    assert "threshold of decisions moved" in result.message
    for name, value in zip(parties.names, result.constraint("found").values, strict=True):
        ill = parties[name]["y"] == 1
        scores = result.scores(parties[name])
        assert value == pytest.approx((scores > result.threshold)[ill].mean())
        assert (result.predict(parties[name])[ill] == 1).mean() == pytest.approx(value)
        assert value >= 0.9
    assert any((result.scores(parties[name]) > 0)[parties[name]["y"] == 1].mean() < 0.9 for name in parties.names)
    table = fp.evaluate(result, parties, label="y")
    assert table.at(party="north").true_positive_rate == pytest.approx(result.constraint("found").values[0])
    again = fp.verify(tmp_path / "run", problem(), parties)
    assert again.ok
    assert again.certificate.constraint("found").values == result.constraint("found").values
