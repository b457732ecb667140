"""Paper A's experiments reach their figures, on parts of the tables small enough for every day; how rows are kept and drawn."""

import dataclasses
import json
import pathlib
import sys

import numpy as np
import pytest

import fedpact as fp
from fedpact.reproduce import figures, pc_fedavg, provenance, prox_al, prox_al_figures, prox_al_tables, rounds, ssca
from fedpact.reproduce.stepping import Seeds, iterates
from fedpact.reproduce.table import Bar, Rows, moments, thinned

ROUNDS = {"Newton": 80, "L-BFGS": 520, "ADMM": 1100, "interior point": 20}  # to 1e-3


def test_rows_are_kept_with_where_they_come_from_and_not_computed_again(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "some.json"
    rows = Rows("prox-al/np", out, 3, ["monks-1"])
    rows.add(n=5, tolerance=(1e-3, 1e-4), objective=np.float64(0.5), gone=float("nan"))
    kept = json.loads(out.read_text())
    (run,) = kept["runs"]
    assert run["command"] == "fedpact reproduce prox-al/np --trials 3 --only monks-1"
    assert kept["rows"] == [{"n": 5, "tolerance": [1e-3, 1e-4], "objective": 0.5, "gone": None, "run": 0}]
    again = Rows("prox-al/np", out, 2)
    assert again.has(n=5, tolerance=(1e-3, 1e-4))
    assert not again.has(n=10)
    again.add(n=10)
    assert [row["run"] for row in again.rows] == [0, 1]
    again.drop(n=5)
    again.add(n=20)
    kept = json.loads(out.read_text())
    assert [run["command"] for run in kept["runs"]] == ["fedpact reproduce prox-al/np --trials 2"]
    assert [(row["n"], row["run"]) for row in kept["rows"]] == [(10, 0), (20, 0)]
    with pytest.raises(ValueError, match="holds rows of prox-al/np"):
        Rows("ssca/rows", out)


def test_provenance_names_no_host_and_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    run = provenance.this_run("ssca/rows", 20, ["SGD, E=2"])
    assert run["command"] == "fedpact reproduce ssca/rows --trials 20 --only 'SGD, E=2'"
    assert "cores" in run["machine"]
    assert not any("/" in run[part] for part in ("commit", "date"))
    assert str(provenance.ROOT) not in str(run)
    monkeypatch.setenv("FEDPACT_COMMIT", "abc1234")
    assert provenance.commit() == "abc1234"


def test_moments_and_thinned_curves() -> None:
    assert moments("a", [1.0, 3.0]) == {"a": 2.0, "a_spread": pytest.approx(2**0.5)}
    assert moments("a", [1.0])["a_spread"] is None
    places, values = thinned(np.linspace(0, 1, 3000), 100)
    assert (places[0], places[-1], values[-1]) == (0, 2999, 1.0)
    assert len(places) <= 101
    assert thinned([1 / 3]) == ([0], [0.333333])


def test_the_bar_says_how_much_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    with Bar(True, 4) as bar:
        bar.step()
        bar.say("next", now=True)
    assert "[##........] 1 of 4" in capsys.readouterr().err


def test_figures_without_matplotlib_say_what_to_install(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"rows are in a\.json; .*pip install"):
        figures.drawn(tmp_path / "a.json", "", [])


@pytest.mark.parametrize(("name", "n"), [("breast-cancer-wisc", 5), ("monks-1", 1)])
def test_neyman_pearson(data_folder: pathlib.Path, name: str, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    del data_folder
    most = [dataclasses.replace(each, cap=min(each.cap, 600)) for each in prox_al_tables.NP_CONTENDERS]
    monkeypatch.setattr(prox_al_tables, "NP_CONTENDERS", most)
    rows = prox_al_tables.neyman_pearson(2, None, progress=False, names=[name, f"n={n}"])
    assert [row["solver"] for row in rows][:2] == [prox_al_tables.PRINTED, prox_al_tables.CENTRAL]
    for row in rows:
        if row["solver"] in ROUNDS:
            assert row["certified"] == "2/2"
            assert row["largest"] <= 0.2 + row["tolerance"]
            assert row["rounds"] <= ROUNDS[row["solver"]]
            assert row["objective_spread"] is not None
    for exact in rows[-2:]:
        assert exact["tolerance"] == 1e-6
        assert exact["objective"] == pytest.approx(exact["independent"], rel=1e-4)


def test_fairness_against_the_independent_optimum(data_folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del data_folder
    quick = [each for each in prox_al_tables.FAIRNESS_CONTENDERS if each.name in ("Newton", "interior point")]
    monkeypatch.setattr(prox_al_tables, "FAIRNESS_CONTENDERS", quick)
    for row in prox_al_tables.fairness(1, None, progress=False, names=["n=5"]):
        assert row["certified"] == "1/1"
        assert row["largest"] <= 0.1 + 1e-3
        assert row["difference"] <= 1e-4


def test_lcqp_at_the_papers_settings() -> None:
    printed, central, newton, interior = prox_al_tables.lcqp(2, None, progress=False, names=["n=5"], dimensions=[100])
    assert (printed["certified"], central["certified"]) == ("2/2", "2/2")
    assert printed["violation"] <= printed["paper_violation"]
    assert printed["to_central"] <= printed["paper_to_central"]
    for row in (newton, interior):
        assert row["error"] <= 1e-6
        assert row["violation"] <= 1e-6


def test_clients_over_the_outer_iterations(data_folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    del data_folder
    out = tmp_path / "figures.json"
    (row,) = prox_al_figures.convergence(1, out, progress=False, names=["breast-cancer-wisc", "n=5"])
    assert row["ended"]
    assert row["objective_low"][-1] < row["objective"][-1] < row["objective_high"][-1]
    assert row["constraint_high"][-1] == pytest.approx(0.2, abs=1e-3)
    assert row["constraint_high"][0] > 0.2
    assert out.with_suffix(".png").stat().st_size > 10_000
    assert out.with_suffix(".svg").read_text().startswith("<?xml")
    parties = fp.split_rows(prox_al.load("breast-cancer-wisc"), 5, stratify="y", seed=prox_al.PARTITION)
    start = {"w": prox_al.starts(parties[parties.names[0]]["x"].shape[1], 1)[0]}
    result = fp.solve(
        prox_al.neyman_pearson_problem(), parties, fp.ProxAL.as_printed(), start=start, tolerance=1e-3, progress=False
    )
    assert result.rounds == row["rounds"]  # stepping is what a run does
    assert result.objective == pytest.approx(row["objective"][-1], rel=1e-5)
    # what the clients told is what their rows say
    losses = {
        name: np.logaddexp(0, (1 - 2 * parties[name]["y"]) * (parties[name]["x"] @ start["w"])) for name in parties
    }
    for y, column in ((0, "objective"), (1, "constraint")):
        at_start = [losses[name][parties[name]["y"] == y].mean() for name in parties]
        assert row[column][0] == pytest.approx(np.mean(at_start), rel=2e-6)  # kept with six digits
        assert row[f"{column}_low"][0] == pytest.approx(min(at_start), rel=2e-6)  # kept with six digits
        assert row[f"{column}_high"][0] == pytest.approx(max(at_start), rel=2e-6)  # kept with six digits


def test_seeds_at_once_are_the_runs_one_by_one() -> None:
    table = fp.datasets.breast_cancer()
    net = fp.mlp([30, 4, 2], bias=False)
    problem = fp.minimize(fp.mean(fp.softmax_loss(net)), regularizer=fp.l2(1e-3))
    method = fp.SSCA(5, measure=None)
    over_rows = fp.split_rows(table, 3, seed=0)
    for reached in Seeds(problem, over_rows, (3, 4)).run(method, (1, 4)):
        for seed, found in zip((3, 4), reached.parameters, strict=True):
            alone = fp.solve(problem, over_rows, method, max_rounds=reached.rounds, seed=seed, progress=False)
            for ours, theirs in zip(_leaves(found), _leaves(alone.params), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
            assert reached.bytes_per_round == (alone.bytes_up + alone.bytes_down) / reached.rounds


def _leaves(tree: object) -> list[np.ndarray]:
    import jax

    return jax.tree.leaves(tree)


def test_the_cost_of_a_network_is_the_librarys() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(784, 128)) / 28, rng.normal(size=(128, 10)) / 11
    case = ssca.SplitMNIST.__new__(ssca.SplitMNIST)
    case.train = case.test = fp.Table(x=rng.uniform(size=(40, 784)), y=rng.integers(0, 10, 40))
    case.parties = fp.split_rows(case.train, 2, seed=0)
    case.train_arrays = case.test_arrays = ssca._in_single(case.train)
    loss = fp.softmax_loss(ssca.NET)
    shaped = ssca.NET.init(np.array([0, 1], np.uint32), {"x": case.train["x"][:1]})
    import jax

    params = jax.tree.unflatten(jax.tree.structure(shaped), [first, second])
    result = fp.solve(fp.minimize(fp.mean(loss)), case.parties, fp.FedSGD(20, step=1e-12), start=params, max_rounds=1)
    assert case.measured(params)["cost"] == pytest.approx(result.objective, rel=1e-5)


def test_iterates_end_with_the_method() -> None:
    parties = fp.split_rows(fp.datasets.breast_cancer(), 3, stratify="y", seed=0)
    problem = fp.minimize(fp.mean(fp.logistic_loss(fp.linear(bias=True))), regularizer=fp.l2(1e-2))
    assert len(list(iterates(problem, parties, fp.FedSGD(10, step=0.1), max_rounds=3))) == 3


def only(monkeypatch: pytest.MonkeyPatch, kind: str, *methods: str) -> None:
    """Of the table of rounds, these methods alone."""
    monkeypatch.setitem(rounds.CONTENDERS, kind, [c for c in rounds.CONTENDERS[kind] if c[0] in methods])


@pytest.mark.parametrize(("name", "n"), [("breast-cancer-wisc", 20), ("monks-1", 5), ("adult-a", 5)])
def test_the_interior_point_method_needs_a_dozen_rounds(
    data_folder: pathlib.Path, name: str, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    del data_folder
    only(monkeypatch, "np", "interior point")
    interior = rounds.rounds(2, None, progress=False, names=[name], sizes=[n])
    for row, most in zip(interior, (9, 15, 20), strict=True):
        assert row["certified"] == "2/2"
        assert row["rounds"] <= most


def test_the_interior_point_method_on_nonconvex_constraints(
    data_folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del data_folder
    only(monkeypatch, "adult-b", "interior point", "ProxAL, Newton")
    rows = rounds.rounds(1, None, progress=False, names=["adult-b"], sizes=[10])
    found = {(row["method"], row["tolerance"]): row for row in rows}
    interior = found["interior point", 1e-6]
    assert interior["certified"] == "1/1"
    assert interior["rounds"] <= 15
    assert found["ProxAL, Newton", 1e-3]["rounds"] <= 60  # 67 where a shift makes the Hessian just positive definite
    assert interior["objective"] <= found["ProxAL, Newton", 1e-6]["objective"] * (1 + 1e-6)


def test_the_interior_point_method_on_equalities(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "lcqp", "interior point")
    rows = rounds.rounds(1, None, progress=False, names=["lcqp"], sizes=[5])
    exact = [row for row in rows if row["method"] == "interior point" and row["tolerance"] == 1e-8]
    assert len(exact) == 3
    assert all(row["certified"] == "1/1" and row["rounds"] <= 5 for row in exact)


def test_personal_budgets(data_folder: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del data_folder
    out = tmp_path / "mnist.json"
    names = ["PC-FedAvg", "SCAFFOLD, penalised"]
    rows = pc_fedavg.mnist(1, out, progress=False, names=names, rows=400, marks=(1, 60))
    assert json.loads(out.read_text())["rows"] == rows
    assert [(row["method"], row["iterations"]) for row in rows] == [(name, mark) for name in names for mark in (1, 60)]
    assert "infeasibility" in out.with_suffix(".svg").read_text()
    for first, last in (rows[:2], rows[2:]):
        assert 0.2 < last["loss"] < first["loss"] < 2.3
        assert last["accuracy"] > 0.7
    assert max(row["infeasibility_handed_out"] for row in rows[:2]) <= 188e-9
    monkeypatch.setattr(pc_fedavg, "LOCAL", (1, 5))
    one, five = pc_fedavg.local_steps(1, None, progress=False, names=["mnist"], rows=400, marks=(3,))
    assert five["loss"] < one["loss"]
