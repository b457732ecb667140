"""Paper A's experiments reach their figures, on parts of the tables small enough for every day."""

import json
import pathlib

import pytest

from fedpact.reproduce import prox_al

ROUNDS = {"Newton": 80, "L-BFGS": 520, "ADMM": 1100}  # to 1e-3


@pytest.mark.parametrize(("name", "n"), [("breast-cancer-wisc", 5), ("monks-1", 1)])
def test_neyman_pearson(data_folder: pathlib.Path, tmp_path: pathlib.Path, name: str, n: int) -> None:
    del data_folder
    out = tmp_path / "np.json"
    rows = prox_al.neyman_pearson(2, out, progress=False, names=[name], sizes=[n])
    assert json.loads(out.read_text()) == {"name": "prox-al/np", "rows": rows}
    assert [row["solver"] for row in rows] == ["Newton", "L-BFGS", "ADMM", "ADMM as printed", "Newton"]
    for row in rows:
        if row["solver"] in ROUNDS:
            assert row["certified"] == "2/2"
            assert max(row["stationarity"], row["feasibility"]) <= row["tolerance"]
            assert row["max_class1"] <= 0.2 + row["tolerance"]
            assert row["rounds"] <= ROUNDS[row["solver"]]
    exact = rows[-1]
    assert exact["tolerance"] == 1e-6
    assert exact["objective"] == pytest.approx(exact["objective_independent"], rel=1e-4)
    assert exact["objective_central"] == pytest.approx(exact["objective_independent"], rel=1e-5)


def test_fairness(data_folder: pathlib.Path) -> None:
    del data_folder
    for row in prox_al.fairness(1, None, progress=False, sizes=[5]):
        assert row["certified"] == "1/1"
        assert row["max_disparity"] <= 0.1 + 1e-3
        assert row["relative_difference"] <= 5e-3


def test_lcqp() -> None:
    (row,) = prox_al.lcqp(3, None, progress=False, sizes=[5], dimensions=[100])
    assert row["certified"] == "3/3"
    assert row["error_to_exact"] <= 1e-6
    assert row["violation"] <= 1e-6
    assert row["rounds"] <= 60
    assert row["objective"] == pytest.approx(row["objective_exact"], rel=1e-6)
