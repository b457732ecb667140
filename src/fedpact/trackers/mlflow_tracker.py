"""Runs in MLflow."""

import pathlib
import time

from fedpact.extras import install
from fedpact.trackers.base import Tracker


class MLflow(Tracker):
    """A run in MLflow (extra `mlflow`): rounds as metrics, the report page and the model as artefacts.

    - `experiment`: its name (default "fedpact"); made where there is none.
    - `run_name`: of the run (default: MLflow makes one).
    - `uri`: of the tracking server or folder (default: MLflow's own setting, MLFLOW_TRACKING_URI).

    The run begins with the first round, is FINISHED where the result converged and FAILED otherwise, and has the status as a tag.
    Other runs, active ones too, are left alone. Raises ImportError without MLflow.

        fp.solve(problem, parties, watch=fp.trackers.MLflow("clinics"))
    """

    def __init__(self, experiment: str = "fedpact", run_name: str | None = None, uri: str | None = None):
        super().__init__()
        try:
            from mlflow.entities import Metric
            from mlflow.tracking import MlflowClient
        except ImportError:
            raise ImportError(f"fp.trackers.MLflow needs MLflow: {install('mlflow')}") from None
        self._metric, self._client = Metric, MlflowClient(uri)
        self._experiment, self._run_name = experiment, run_name
        self._run: str | None = None
        self._converged = False

    @property
    def run_id(self) -> str:
        """MLflow's name of the run, which is begun where it has not."""
        if self._run is None:
            found = self._client.get_experiment_by_name(self._experiment)
            place = self._client.create_experiment(self._experiment) if found is None else found.experiment_id
            self._run = str(self._client.create_run(place, run_name=self._run_name).info.run_id)
        return self._run

    def numbers(self, numbers: dict[str, float], round: int) -> None:
        now = int(time.time() * 1000)
        metrics = [self._metric(name.replace(",", ""), number, now, round) for name, number in numbers.items()]
        self._client.log_batch(self.run_id, metrics=metrics)

    def words(self, words: dict[str, str]) -> None:
        self._converged = words["status"] == "converged"
        for name, text in words.items():
            self._client.set_tag(self.run_id, f"fedpact.{name}", text[:5000])

    def files(self, page: pathlib.Path, model: pathlib.Path) -> None:
        self._client.log_artifact(self.run_id, str(page))
        self._client.log_artifacts(self.run_id, str(model), artifact_path="model")

    def close(self) -> None:
        self._client.set_terminated(self.run_id, "FINISHED" if self._converged else "FAILED")
