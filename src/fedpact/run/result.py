"""What a run hands back."""

import dataclasses
import os
import pathlib
from typing import Any

import numpy as np

from fedpact.certificate import Certificate, ConstraintReport
from fedpact.evaluation.table import Evaluation, cells, titled
from fedpact.prediction.predictor import warn
from fedpact.preparation.agreed import AgreedRecipe
from fedpact.privacy.differential import PrivacySpent
from fedpact.problem.fingerprint import digest
from fedpact.problem.statement import Problem
from fedpact.report import promised
from fedpact.report.markup import text
from fedpact.report.words import in_bytes
from fedpact.run.history import History
from fedpact.run.saved_model import predictor_of
from fedpact.tolerance import Tolerance


@dataclasses.dataclass(frozen=True)
class Result:
    """A model with its certificate.

    - `params`: the parameters, as numpy arrays in the model's own tree; over columns keyed by party, with "top" for the top
      model.
    - `status`: "converged", "max_rounds", "infeasible", "diverged", "stalled" (no further progress at float64 precision) or
      "stopped"; `message` says it in a sentence.
    - `certificate`: stationarity, feasibility, complementarity, measured apart from the method.
    - `history`: one line per round (`fp.History`).
    - `rounds`: how many. `exchanges`: rounds, and whatever the method asked besides.
    - `bytes_up`, `bytes_down`: over all parties and rounds, without headers.
    - `seconds`: of the rounds. `compile_seconds`: before the first one and within rounds.
    - `tolerance`, `method`, `parties`, `problem`: what was asked for.
    - `threshold`: of decisions, in units of the score; None (default) where it is the problem's own.
    - `evaluation`: what the pact's `evaluate` asks for; None (default) where it asks for nothing, and without a pact. Print and
      page have it: `dataclasses.replace(result, evaluation=fp.evaluate(result, ...))` adds one to any result.
    - `rows`: of each party, in the order of `parties`; over columns all have the same rows (default: not known).
    - `ended`: when the run did, as text in UTC (default: not known).
    - `features`: the names of the features, in order, over columns by party (default None: not known).
    - `recipe`: what made them of raw columns, where `fp.prepare` did (default None).
    - `secure`: whether sums were secure (`fp.SecureAggregation`; default: no).
    - `privacy`: what a run with `fp.DifferentialPrivacy` told of single rows, an `fp.PrivacySpent` (default None: without noise).
      The numbers of the certificate and of the history are then noisy, too.
    - `widths`: over columns how many features each party has, where its part is in this process (default None).

    Where every party has a model of its own, `params` are keyed by party and lie in the parties' sets; `average` is their mean,
    `unprojected` what the method left before it was projected, `moved` how far the projection moved it, both by party.
    """

    params: Any
    status: str
    message: str
    certificate: Certificate
    history: History
    rounds: int
    exchanges: int
    bytes_up: int
    bytes_down: int
    seconds: float
    compile_seconds: float
    tolerance: float | tuple[float, float]
    method: str
    parties: tuple[str, ...]
    problem: Problem
    average: Any = None
    unprojected: dict[str, Any] | None = None
    moved: dict[str, float] | None = None
    threshold: float | None = None
    evaluation: Evaluation | None = None
    rows: tuple[int, ...] = ()
    ended: str = ""
    features: tuple[str, ...] | dict[str, tuple[str, ...] | None] | None = None
    recipe: AgreedRecipe | None = None
    widths: dict[str, int] | None = None
    privacy: PrivacySpent | None = None
    secure: bool = False

    @property
    def converged(self) -> bool:
        return self.status == "converged"

    @property
    def objective(self) -> float:
        """Objective with regulariser at the handed-out parameters."""
        return self.certificate.objective

    @property
    def digest(self) -> str:
        """A digest of the problem, 16 hexadecimal characters, but for the parties' own sets; that of a saved run's `run.json`."""
        return digest(self.problem.public)

    @property
    def infeasibility(self) -> dict[str, float]:
        """Where sets are personal: how far what a party was handed lies outside its set, ‖x − Π(x)‖, by party.

        0 up to rounding for a method that gives every party a model of its own; for one model for all, what it breaks.
        """
        if self.certificate.personal is None:
            raise ValueError("the problem has no personal sets; result.certificate.feasibility is what you want")
        return self.certificate.personal.distances

    def constraint(self, name: str) -> ConstraintReport:
        """One constraint: its value, multiplier and margin at each party."""
        return self.certificate.constraint(name)

    def scores(self, rows: Any, party: str | None = None) -> np.ndarray:
        """The model's scores on new rows.

        - `rows`: a data frame, a table or a mapping of columns, with the features by name or as the model's matrix column;
          raw columns where there is a recipe; an array (rows, features); where columns are split, the parties' tables by name,
          or what `fp.split_columns` gave.
        - `party`: whose own model is meant, where every party has one (default: the average of them).

        Returns an array with one entry (or one line) per row. Warns where the run ended "infeasible", "diverged" or "stopped",
        or with a constraint broken. Raises ValueError where rows and model do not fit, with the column's name, or hold NaN.
        """
        predictor = predictor_of(self)
        warn(predictor.doubts)
        return predictor.raw_scores(rows, party)

    def predict(self, rows: Any, party: str | None = None) -> np.ndarray:
        """Decided labels of new rows.

        With a logistic or hinge loss the positive one of its `labels` where score > threshold, else the negative one; with a
        softmax loss the place of the largest score; with `fp.decisions` alone 1 or 0; with a recipe the labels of its frames.
        The threshold is `self.threshold`, else that of the problem's `fp.decisions` where they have one, else 0.

        - `rows`, `party`: as in `scores`.

        Returns an array with one label per row. Warns and raises as `scores` does; also raises ValueError for other losses,
        which say nothing about decisions.
        """
        predictor = predictor_of(self)
        warn(predictor.doubts)
        return predictor.decide(predictor.raw_scores(rows, party))

    def predict_proba(self, rows: Any, party: str | None = None) -> np.ndarray:
        """Probabilities of the labels, as the loss reads them from scores; see `fp.Predictor.predict_proba`.

        - `rows`, `party`: as in `scores`.

        Returns an array (rows, labels), negative first. Warns and raises as `scores` does; also raises ValueError for losses
        other than logistic and softmax.
        """
        predictor = predictor_of(self)
        warn(predictor.doubts)
        return predictor.chances(predictor.raw_scores(rows, party))

    def save(self, folder: str | os.PathLike[str]) -> pathlib.Path:
        """Write the model into a folder of its own: parameters, labels, threshold, features, recipe and certificate.

        Files are json and safetensors; `fp.load(folder)` reads them without executing anything, and predicts without JAX where
        the model is linear or an `fp.mlp`. What is the parties' own is in a subfolder of each. The run itself, to be resumed
        and verified, is saved by `fp.solve(..., save=folder)`, which also leaves the model in its subfolder "model".

        - `folder`: new, empty, or with a model, which is replaced.

        Returns the folder's path. Raises ValueError where it holds something else.
        """
        return predictor_of(self).save(folder)

    def report(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Write one self-contained HTML page.

        It leads with the constraints and the evaluation, where there is one; then come optimality, the problem, the parties'
        rows, and objective, violation and multipliers over the rounds.
        """
        if not isinstance(path, str | os.PathLike) or not os.fspath(path):
            raise TypeError(f"report takes the path of the page to write, such as 'run.html', not {path!r}")
        if pathlib.Path(path).is_dir():
            raise ValueError(f"report({str(path)!r}): that is a folder; name the page to write in it, such as run.html")
        from fedpact.report.page import Decided, write_page  # a page is written by few runs

        decided = None
        if self.evaluation is not None:
            head, notes = titled(self.evaluation)
            decided = Decided(head, cells(self.evaluation), notes, names=2 if self.evaluation.groups else 1)
        return write_page(
            pathlib.Path(path), str(self.problem), self.status, self.message, self._figures(), self.certificate, self.history,
            self.parties, Tolerance.of(self.tolerance), rows=self.rows, kinds=promised.kinds(self.problem), decided=decided,
            more=self._personal(),
        )  # fmt: skip

    def _figures(self) -> dict[str, str]:
        """The summary, and what tells one run from another."""
        ended = {"ended": self.ended} if self.ended else {}
        return {**self.summary(), **ended, "problem's digest": self.digest}

    def summary(self) -> dict[str, str]:
        """The run in a few words, for print and page."""
        return {
            "method": self.method,
            "tolerance": str(Tolerance.of(self.tolerance)),
            "objective": f"{self.objective:.6g}",
            "rounds": f"{self.rounds}"
            if self.exchanges == self.rounds
            else f"{self.rounds} ({self.exchanges} exchanges)",
            "sent up": in_bytes(self.bytes_up),
            "sent down": in_bytes(self.bytes_down),
            "time": f"{self.seconds:.2f} s after {self.compile_seconds:.2f} s of compiling",
            **({} if self.privacy is None else {"differential privacy": str(self.privacy)}),
            **({} if not self.secure else {"secure sums": self._hidden()}),
        }

    def __str__(self) -> str:
        c, s = self.certificate, self.summary()
        lines = promised.in_lines(
            c, promised.kinds(self.problem), Tolerance.of(self.tolerance).feasibility, self.converged
        )
        if self.evaluation is not None:
            lines += str(self.evaluation).splitlines()
        lines += [
            f"objective {s['objective']}   stationarity {c.stationarity:.1e}   feasibility {c.feasibility:.1e}   "
            f"complementarity {c.complementarity:.1e}   (tolerance {s['tolerance']}{_units_in_words(c)})",
            *([] if c.stand_ins is None else [promised.solved_with(c.stand_ins, c.objective)]),
            *self._personal(),
            *([] if self.privacy is None else [str(self.privacy)]),
            *([] if not self.secure else [self._hidden()]),
            f"{s['method']}: {s['rounds']} rounds, {s['sent up']} up, {s['sent down']} down, {s['time']}",
        ]
        return "\n".join([f"{self.status}: {self.message}", *(f"  {line}" for line in lines)])

    def _hidden(self) -> str:
        """What secure sums hid from whom, and their price."""
        apart = any(report.hidden for report in self.certificate.constraints)
        own = ", and no party's own constraints" if apart else ""
        return (
            f"sums over {len(self.parties)} parties are secure: the server learns these and maxima up to a power of two, nothing "
            f"that one party said{own}; a number takes 16 bytes up instead of 8, a maximum 1,024"
        )

    def _personal(self) -> list[str]:
        """Where sets are personal: how far outside them models are."""
        personal = self.certificate.personal
        if personal is None:
            return []
        at = max(personal.distances, key=personal.distances.__getitem__)
        before = ""
        if self.moved is not None:
            far = max(self.moved, key=self.moved.__getitem__)
            before = f"; before they were projected: {self.moved[far]:.2g} at {far}"
        whose = "one model for all" if self.moved is None else f"{len(self.parties)} models of the parties' own"
        return [f"{whose}, farthest outside its set: {personal.distances[at]:.2g} at {at}{before}"]

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """For notebooks: how it ended, the certificate, the evaluation where there is one, and what it cost."""
        head = f"<p><b>{text(self.status)}</b>: {text(self.message)}</p>"
        evaluation = "" if self.evaluation is None else self.evaluation._repr_html_()
        figures = ", ".join(f"{text(name)} {text(words)}" for name, words in self.summary().items())
        return f"{head}{self.certificate._repr_html_()}{evaluation}<p>{figures}</p>"


def _units_in_words(certificate: Certificate) -> str:
    if certificate.units is None:
        return ""
    return f", relative to an objective of {float(certificate.units.objective):.3g} and to certificate.units"
