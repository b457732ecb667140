"""Paper C's experiments reach their figures, on parts of the tables small enough for every day."""

import json
import pathlib

import numpy as np
import pytest
from typer.testing import CliRunner

import fedpact as fp
from fedpact.cli import app
from fedpact.reproduce import fair_vfl, fair_vfl_figures, fair_vfl_paces
from fedpact.reproduce.independent import PooledFairLogistic

LABELS = fp.Table(y=np.array([1, 1, 1, 1, -1, -1, -1, -1]), group=np.array([0, 0, 1, 1, 0, 0, 1, 1]))


def test_decisions_are_judged_by_the_protected_class() -> None:
    told = np.array([True, True, True, False, False, False, False, True])  # put into the class 1
    assert fair_vfl.judged(told, LABELS, 1) == {"accuracy": 75.0, "dfp": 0.5, "dfn": 0.5}
    told = np.array([True, True, True, True, False, False, False, True])
    assert fair_vfl.judged(told, LABELS, 1) == {"accuracy": 87.5, "dfp": 0.5, "dfn": 0.0}
    assert fair_vfl.judged(~told, LABELS, -1) == {"accuracy": 87.5, "dfp": 0.0, "dfn": 0.5}


def test_the_gap_of_losses_is_the_librarys(data_folder: pathlib.Path) -> None:
    del data_folder
    split = fair_vfl.drawn("crime", "linear", 0)
    result = fp.solve(fair_vfl.fair_problem("linear", split, 0.1), split.train, fp.FairVFL(), max_rounds=3)
    with pytest.warns(UserWarning, match="breaks the constraint 'equal opportunity'"):
        ours = fair_vfl.loss_gap(result.scores(split.train), split.train.labels, split.protected)
    assert ours == pytest.approx(result.constraint(fair_vfl.GAP).values[0], rel=1e-9)
    pooled = PooledFairLogistic(split.train, split.protected, 0.1)
    pooled.at(np.concatenate([np.ravel(result.params[name]["w"]) for name in split.train]))
    assert pooled.values[0] == pytest.approx(result.objective, rel=1e-9)
    assert np.abs(pooled.values[1:]) == pytest.approx([ours, ours], rel=1e-9)


def test_the_linear_table(data_folder: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del data_folder
    monkeypatch.setattr(fair_vfl, "LEVELS", (1e-2,))
    monkeypatch.setattr(fair_vfl, "PRINTED_CAP", 100)
    out = tmp_path / "linear.json"
    rows = fair_vfl.fair_linear(2, out, progress=False, names=["compas"])
    assert json.loads(out.read_text())["rows"] == rows
    named = {row["method"]: row for row in rows}
    assert list(named) == ["FedBCD", "FedBCD + EO", "FedBCD + CEO", "FairVFL(ε=0.01)"]
    assert {row["certified"] for row in rows} == {"2/2"}
    fair, free = named["FairVFL(ε=0.01)"], named["FedBCD"]
    assert max(fair["deo_by_split"]) <= 1e-2 + 1e-3
    assert fair["rounds_near"] <= 40
    assert fair["rounds_near_printed"] is None  # far from there after a hundred rounds
    assert free["deo"] > 0.1
    assert fair["objective"] > free["objective"]
    assert fair["paper_accuracy"] == 66.95
    assert named["FedBCD + EO"]["dfn"] < free["dfn"]
    assert named["FedBCD + CEO"]["equalised"] == "2/2"


def test_the_networks_columns_are_centred_on_crime(data_folder: pathlib.Path) -> None:
    del data_folder
    raw, split = fair_vfl.drawn("crime", "linear", 0), fair_vfl.drawn("crime", "mlp", 0)
    assert split.train.active == raw.train.active
    assert split.test.rows == raw.test.rows
    for party in split.train:
        np.testing.assert_allclose(split.train[party]["x"].mean(0), 0.0, atol=1e-12)
        np.testing.assert_allclose(np.ptp(split.test[party]["x"], 0), np.ptp(raw.test[party]["x"], 0), atol=1e-12)
    np.testing.assert_array_equal(split.test.labels["y"], raw.test.labels["y"])


def test_paces(data_folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    del data_folder
    out = tmp_path / "paces.json"
    paces = ["Q = 10", "Q as the clock allows, up to 10"]
    rows = fair_vfl_paces.paced(1, out, progress=False, forms=["ours"], paces=paces)
    assert [row["pace"] for row in rows] == paces
    assert all(row["rounds_near"] <= 40 for row in rows)
    assert all(len(row["deo"]) == len(row["seconds"]) == len(row["at"]) for row in rows)
    by_pace = {row["pace"]: row for row in rows}
    assert by_pace["Q = 10"]["seconds"][0] == pytest.approx(3.0)  # ten steps of 0.2 s, and the way
    assert by_pace["Q as the clock allows, up to 10"]["seconds"][0] == pytest.approx(
        2.0
    )  # a passive party's step, and the way
    assert out.with_suffix(".png").exists()


def test_every_level_and_fed_bcd_over_the_rounds(
    data_folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    del data_folder
    monkeypatch.setattr(fair_vfl_figures, "LEVELS", (1e-2,))
    monkeypatch.setitem(fair_vfl_figures.CAPS, (fair_vfl_figures.PRINTED, "linear"), 20)
    out = tmp_path / "figures.json"
    rows = fair_vfl_figures.curves(1, out, progress=False, names=["compas", "linear", fair_vfl_figures.PRINTED])
    fair, free = rows
    assert (fair["method"], free["method"]) == ("ε = 0.01", "FedBCD")
    assert fair["at"] == list(range(20))
    assert fair["objective"][-1] < fair["objective"][0]
    split = fair_vfl.drawn("compas", "linear", 0)
    problem = fair_vfl.fair_problem("linear", split)
    method = fp.FedBCD(local_steps=1, step=0.01, momentum=0.0)
    alone = fp.solve(problem, split.train, method, max_rounds=20, tolerance=1e-9, progress=False)
    np.testing.assert_allclose(free["objective"], alone.history["objective"], rtol=1e-5)
    assert out.with_suffix(".svg").exists()


def test_data_sets_are_chosen_by_name() -> None:
    failed = CliRunner().invoke(app, ["reproduce", "fair-vfl/mlp", "--only", "monks-1"])
    assert failed.exit_code == 2
    assert "adult" in failed.output
