"""What every tracker is told of a run, whatever tool keeps it."""

import abc
import hashlib
import math
import pathlib
import re
import tempfile
import warnings

import numpy as np

from fedpact.run.history import History
from fedpact.run.result import Result
from fedpact.tolerance import Tolerance

TOTALS = ("bytes_up", "bytes_down", "exchanges")  # of which the sum so far is told
MOST_MULTIPLIERS = 32  # of parties times constraints that are told one by one; of more, the largest of each constraint


class Tracker(abc.ABC):
    """The `watch=` of `fp.solve`: it is told every round while the run goes on, and its result at the end.

    A round has the objective, the violation, the stationarity, exchanges and bytes so far, the method's own columns, and the
    multipliers where parties disclose them. The result has the certificate's numbers, value and multiplier of every constraint
    at every holder, the report page and the model as files. A tracker is for one run. A subclass says where numbers, words
    and files go, by `numbers`, `words`, `files` and `close`.
    """

    def __init__(self) -> None:
        self._told = 0
        self._failed = False

    def __call__(self, history: History) -> None:
        """Tell the rounds that are new. Where that fails, warn, and leave it until the run has ended: the run goes on."""
        if self._failed:
            return
        try:
            self._tell(history)
        except Exception as error:
            self._failed = True
            warnings.warn(
                f"the tracker failed in round {self._told + 1}: {type(error).__name__}: {error}; the run goes on, and what is "
                "missing is told when it has ended",
                UserWarning,
                stacklevel=2,
            )

    def _tell(self, history: History) -> None:
        lines = {name: np.asarray(history[name], float) for name in history if history[name].ndim == 1}
        lines |= {name: np.cumsum(lines[name]) for name in TOTALS if name in lines}
        rounds = lines.pop("round")
        lines |= _multipliers(history)
        for place in np.flatnonzero(rounds > self._told):
            numbers = {name: float(column[place]) for name, column in lines.items()}
            self.numbers(_finite(numbers), int(rounds[place]))
            self._told = int(rounds[place])

    def finish(self, result: Result) -> None:
        """Tell the result, with rounds that were not told; `fp.solve` calls it once, when the run has ended."""
        self._tell(result.history)
        certificate = result.certificate
        numbers = {
            f"certificate/{name}": getattr(certificate, name)
            for name in ("stationarity", "feasibility", "complementarity", "objective")
        }
        for report in certificate.constraints:
            for holder, value, multiplier in zip(report.holders, report.values, report.multipliers, strict=True):
                where = f"{_plain(report.name)}/{_plain(holder)}"
                numbers |= {f"constraint/{where}": value, f"multiplier/{where}": multiplier}
        self.numbers(_finite(numbers), result.rounds)
        self.words(
            {
                "status": result.status,
                "message": result.message,
                "method": result.method,
                "tolerance": str(Tolerance.of(result.tolerance)),
                "parties": str(len(result.parties)),
                "digest": result.digest,
                "problem": str(result.problem),
            }
        )
        with tempfile.TemporaryDirectory() as folder:
            page = result.report(pathlib.Path(folder) / "report.html")
            self.files(page, result.save(pathlib.Path(folder) / "model"))
        self.close()

    @abc.abstractmethod
    def numbers(self, numbers: dict[str, float], round: int) -> None:
        """Keep these numbers of one round."""

    @abc.abstractmethod
    def words(self, words: dict[str, str]) -> None:
        """Keep what describes the run."""

    @abc.abstractmethod
    def files(self, page: pathlib.Path, model: pathlib.Path) -> None:
        """Keep the report page, a file, and the model, a folder; both are gone afterwards."""

    @abc.abstractmethod
    def close(self) -> None:
        """The run has ended, and nothing more is told."""


def _multipliers(history: History) -> dict[str, np.ndarray]:
    """Those that parties disclosed: by party and constraint where they are few, else the largest of each constraint."""
    if "multipliers" not in history:
        return {}
    disclosed = np.asarray(history["multipliers"], float)
    if disclosed.ndim != 3 or not disclosed.size:
        return {}
    _, parties, constraints = disclosed.shape
    if parties * constraints > MOST_MULTIPLIERS:
        return {f"multipliers/constraint {c + 1}, largest": disclosed[:, :, c].max(axis=1) for c in range(constraints)}
    places = [(party, c) for party in range(parties) for c in range(constraints)]
    return {f"multipliers/constraint {c + 1}/party {party + 1}": disclosed[:, party, c] for party, c in places}


def _finite(numbers: dict[str, float]) -> dict[str, float]:
    return {name: float(number) for name, number in numbers.items() if math.isfinite(number)}


def _plain(name: str) -> str:
    """A name with what every tool takes; of a long one the beginning and a digest."""
    plain = re.sub(r"[^\w\-. ]+", "_", name).strip() or "_"
    return plain if len(plain) <= 100 else f"{plain[:91]} {hashlib.sha256(name.encode()).hexdigest()[:8]}"
