"""Runs in MLflow and TensorBoard, and in notebooks, checked with what these tools read back."""

import dataclasses
import pathlib
from typing import Any

import numpy as np
import pytest
from test_deploy import Loopback

import fedpact as fp
from fedpact.deploy.server import serve
from fedpact.run.pact import Pact
from fedpact.trackers.base import _plain


def solved(watch: Any = None) -> fp.Result:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    parties = fp.split_rows({"x": x, "y": (x.sum(1) > 0).astype(int)}, parties=["north", "<south>"])
    loss = fp.logistic_loss(fp.linear())
    limit = (fp.mean(loss, where=fp.col("y") == 1) <= 0.3).named("missed <b>")
    return fp.solve(fp.minimize(fp.mean(loss), [limit], fp.l2(1e-2)), parties, watch=watch)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_mlflow_has_rounds_page_and_model(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # later versions would rather have a database
    uri = (tmp_path / "runs").as_uri()
    tracker = fp.trackers.MLflow("clinics", run_name="first", uri=uri)
    result = solved(tracker)
    client = mlflow.MlflowClient(uri)
    run = client.get_run(tracker.run_id)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "first"
    objective = client.get_metric_history(tracker.run_id, "objective")
    assert [metric.step for metric in objective] == result.history["round"].tolist()
    assert [metric.value for metric in objective] == result.history["objective"].tolist()
    assert run.data.metrics["bytes_up"] == result.history.total("bytes_up")
    assert run.data.metrics["certificate/feasibility"] == result.certificate.feasibility
    assert run.data.metrics["constraint/missed _b_/north"] == result.certificate.constraints[0].values[0]
    assert run.data.tags["fedpact.digest"] == result.digest
    first = client.get_metric_history(tracker.run_id, "multipliers/constraint 1/party 1")
    assert [metric.value for metric in first] == result.history["multipliers"][:, 0, 0].tolist()
    assert {file.path for file in client.list_artifacts(tracker.run_id)} == {"report.html", "model"}
    model = fp.load(client.download_artifacts(tracker.run_id, "model", str(tmp_path)))
    np.testing.assert_array_equal(model.params["w"], result.params["w"])


def test_tensorboard_has_rounds_page_and_model(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("tensorboardX")
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    result = solved(fp.trackers.TensorBoard(tmp_path / "runs"))
    events = reader.EventAccumulator(str(tmp_path / "runs"))
    events.Reload()
    objective = events.Scalars("objective")
    assert [event.step for event in objective] == result.history["round"].tolist()
    np.testing.assert_allclose([event.value for event in objective], result.history["objective"], rtol=1e-6)
    violation = [event.value for event in events.Scalars("violation")]
    np.testing.assert_allclose(violation, result.history["violation"], rtol=1e-6, atol=1e-30)
    assert events.Scalars("bytes_down")[-1].value == pytest.approx(result.history.total("bytes_down"))
    assert any(tag.startswith("status") for tag in events.Tags()["tensors"])
    assert "missed" in (tmp_path / "runs" / "report.html").read_text()
    np.testing.assert_array_equal(fp.load(tmp_path / "runs" / "model").params["w"], result.params["w"])


def test_a_tracker_is_told_each_round_once_and_nothing_that_is_not_finite() -> None:
    class Kept(fp.trackers.Tracker):
        def __init__(self) -> None:
            super().__init__()
            self.rounds: list[int] = []
            self.all: list[float] = []
            self.ended: dict[str, str] = {}

        def numbers(self, numbers: dict[str, float], round: int) -> None:
            self.rounds.append(round)
            self.all += numbers.values()

        def words(self, words: dict[str, str]) -> None:
            self.ended = words

        def files(self, page: pathlib.Path, model: pathlib.Path) -> None:
            assert page.is_file()
            assert (model / "model.json").is_file()

        def close(self) -> None:
            self.ended["closed"] = "yes"

    kept = Kept()
    result = solved(kept)
    assert kept.rounds == [*range(1, result.rounds + 1), result.rounds]  # each, and the result
    assert (kept.ended["status"], kept.ended["closed"]) == ("converged", "yes")
    broken = fp.History({**result.history, "objective": np.full(len(result.history), np.nan)})
    again = Kept()
    again(broken)
    assert np.isfinite(again.all).all()
    again(broken)
    assert again.rounds == list(range(1, result.rounds + 1))


def test_a_tracker_that_fails_at_the_end_does_not_cost_the_result() -> None:
    class Away(fp.trackers.Tracker):
        def numbers(self, numbers: dict[str, float], round: int) -> None:
            pass

        def words(self, words: dict[str, str]) -> None:
            raise ConnectionError("nobody answers")

        def files(self, page: pathlib.Path, model: pathlib.Path) -> None:
            pass

        def close(self) -> None:
            pass

    with pytest.warns(UserWarning, match="the tracker failed after the run: ConnectionError: nobody answers"):
        assert solved(Away()).converged


class InMemory(fp.trackers.Tracker):
    """Keeps rounds; `away`: in which round its server does not answer."""

    def __init__(self, away: int | None = None) -> None:
        super().__init__()
        self.away = away
        self.rounds: list[int] = []
        self.ended: dict[str, str] = {}

    def numbers(self, numbers: dict[str, float], round: int) -> None:
        if round == self.away:
            self.away = None
            raise ConnectionError("nobody answers")
        self.rounds.append(round)

    def words(self, words: dict[str, str]) -> None:
        self.ended = words

    def files(self, page: pathlib.Path, model: pathlib.Path) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_tracker_that_fails_in_a_round_does_not_end_the_run() -> None:
    tracker = InMemory(away=2)
    with pytest.warns(
        UserWarning, match="the tracker failed in round 2: ConnectionError: nobody answers; the run goes on"
    ):
        result = solved(tracker)
    assert result.converged
    assert tracker.rounds == [*range(1, result.rounds + 1), result.rounds]  # told at the end
    assert tracker.ended["status"] == "converged"


def test_long_names_stay_different() -> None:
    names = [_plain("a" * 200 + end) for end in ("north", "south")]
    assert names[0] != names[1]
    assert max(map(len, names)) <= 100


TRACKED = """
import fedpact as fp
from test_trackers import InMemory

parties = ["north", "south"]
loss = fp.logistic_loss(fp.linear())
problem = fp.minimize(fp.mean(loss), regularizer=fp.l2(1e-2))
TOLD = []

def load(party):
    return fp.Table(x=[[1.0], [2.0], [-1.0 - parties.index(party)]], y=[1, 0, 0])

def watch():
    TOLD.append(InMemory())
    return TOLD[-1]
"""


def test_a_pact_has_its_tracker_where_the_run_is_led(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "pact.py"
    file.write_text(TRACKED)
    trackers: list[InMemory] = []
    monkeypatch.setattr(Pact, "watch", lambda pact: trackers.append(InMemory()) or trackers[-1])
    here = Pact(file)
    one = here.run(here.tables())
    other = serve(file, Loopback.of(file, tmp_path), tmp_path / "server")
    assert len(trackers) == 2  # the parties make none
    for result, tracker in zip((one, other), trackers, strict=True):
        assert isinstance(result, fp.Result)
        assert tracker.rounds == [*range(1, result.rounds + 1), result.rounds]
        assert tracker.ended["status"] == "converged"
    monkeypatch.undo()
    assert isinstance(Pact(file).watch(), fp.trackers.Tracker)
    file.write_text(TRACKED.replace("def watch():", "watch = 'mlflow'\n\ndef unused():"))
    with pytest.raises(TypeError, match="`watch` should be a function without arguments that gives a tracker"):
        Pact(file)


def test_notebooks_show_results_certificates_and_explanations() -> None:
    result = solved()
    shown = result._repr_html_()
    assert "<b>converged</b>" in shown
    assert "missed &lt;b&gt;" in shown
    assert "missed <b>" not in shown
    assert "&lt;south&gt;" in shown
    assert result.certificate._repr_html_() in shown
    (report,) = result.certificate.constraints
    many = dataclasses.replace(
        report, **{name: getattr(report, name) * 40 for name in ("holders", "values", "margins", "multipliers")}
    )
    assert "… and 30 more" in dataclasses.replace(result.certificate, constraints=(many,))._repr_html_()
    parties = fp.split_rows({"x": np.ones((4, 2)), "y": np.array([0, 1, 0, 1])}, parties=2)
    told = fp.explain(fp.minimize(fp.mean(fp.squared_loss(fp.linear()))), parties)
    assert told._repr_html_().count("<p>") == len(str(told).splitlines())
