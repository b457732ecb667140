"""The experiments of the PC-FedAvg paper, Section 5: softmax regression with an ℓ1 budget for each of four parties.

    pc-fedavg/mnist         infeasibility and global loss over 100 rounds of 20 local steps on 10 % of the rows, five methods
    pc-fedavg/cifar10       the same with the paper's settings for CIFAR-10
    pc-fedavg/local-steps   PC-FedAvg on both data sets with 1, 5, 10, 20 and 40 local steps

The printed penalty "4√r + 10,000" is read as the fourth root of (r + 10,000), about 10; with the number as it is printed
step · penalty is 300, and no method stands that. Methods: PC-FedAvg with the corrected gradient and as printed, and FedAvg,
FedProx and SCAFFOLD, each with the distance penalty; beside them the exact optimum by PersonalProjected.
"""

import dataclasses
import pathlib
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from fedpact import datasets
from fedpact.algorithms.averaging.fed_avg import FedAvg
from fedpact.algorithms.averaging.fed_prox import FedProx
from fedpact.algorithms.averaging.scaffold import SCAFFOLD
from fedpact.algorithms.parts.schedules import Growth
from fedpact.algorithms.personal.pc_fedavg import PCFedAvg
from fedpact.algorithms.personal.projected import PersonalProjected
from fedpact.federation.rows import Parties, split_rows
from fedpact.federation.table import Table
from fedpact.problem.functions import mean
from fedpact.problem.losses import softmax_loss
from fedpact.problem.models import linear
from fedpact.problem.personal import Personal
from fedpact.problem.statement import Problem, minimize
from fedpact.protocol.algorithm import Algorithm
from fedpact.reproduce.curves import Quantity, write_page
from fedpact.reproduce.table import Rows
from fedpact.run.progress import ProgressLine
from fedpact.run.result import Result
from fedpact.run.solve import solve
from fedpact.sets import l1_ball

PARTIES, STEPS, PART = 4, 20, 0.1
MARKS = (1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
PENALTY = Growth(1.0, 0.25, 10_000)
LOCAL = (1, 5, 10, 20, 40)
LOSS = softmax_loss(linear(outputs=10))
EXACT_ROUNDS, EXACT = 20_000, 1e-6


@dataclasses.dataclass(frozen=True)
class Printed:
    """A data set with the paper's settings for it."""

    data: Callable[[], tuple[Table, Table]]
    radii: tuple[float, ...]  # τ
    pull: tuple[float, ...]  # σ
    step: float  # of PC-FedAvg
    other_step: float  # of the others
    mu: float

    def methods(self, batch: int) -> dict[str, Algorithm]:
        """The five of the figures, and PC-FedAvg as it is printed."""
        others: dict[str, Any] = {
            "batch": batch,
            "local_steps": STEPS,
            "step": self.other_step,
            "penalty": PENALTY,
        }
        return {
            "PC-FedAvg": PCFedAvg(self.step, STEPS, PENALTY, batch),
            "PC-FedAvg, as printed": PCFedAvg.as_printed(self.step, STEPS, PENALTY, batch),
            "FedAvg, penalised": FedAvg(**others),
            "FedProx, penalised": FedProx(mu=self.mu, **others),
            "SCAFFOLD, penalised": SCAFFOLD(participation=0.5, **others),
        }


SETTINGS = {
    "mnist": Printed(datasets.mnist, (188.0,) * 4, (0.01, 0.02, 0.03, 0.04), 0.03, 0.01, 0.1),
    "cifar10": Printed(datasets.cifar10, (85.0, 86.0, 87.0, 88.0), (0.001, 0.01, 0.1, 0.2), 0.003, 0.001, 2.0),
}
NAMES = (
    "PC-FedAvg",
    "PC-FedAvg, as printed",
    "FedAvg, penalised",
    "FedProx, penalised",
    "SCAFFOLD, penalised",
    "exact",
)


class Case:
    """A data set dealt out to four parties, with the problem (1)."""

    def __init__(self, name: str, rows: int | None = None):
        self.name, self.printed = name, SETTINGS[name]
        train, self.test = self.printed.data()
        train = train if rows is None else train.take(np.random.default_rng(0).permutation(train.rows)[:rows])
        self.parties: Parties = split_rows(train, PARTIES, seed=0)
        self.batch = round(PART * min(self.parties.sizes))
        personal = Personal([l1_ball(radius) for radius in self.printed.radii], list(self.printed.pull))
        self.problem: Problem = minimize(mean(LOSS), personal=personal)

    def measured(self, result: Result) -> dict[str, Any]:
        """Of the models as the method left them: the loss at their mean and their distances; and of those handed out."""
        left, out = result.unprojected, result.average if result.unprojected is not None else result.params
        before = out
        distances = result.infeasibility
        if left is not None:
            before = jax.tree.map(lambda *leaves: np.mean(leaves, axis=0), *left.values())
            distances = result.moved or {}
        hits = result.predict(self.test) == self.test["y"]
        return {
            "loss": self.loss(before),
            "loss_handed_out": self.loss(out),
            "objective": result.objective,
            "infeasibility": max(distances.values()),
            "infeasibility_mean": float(np.mean(list(distances.values()))),
            "infeasibility_handed_out": max(result.infeasibility.values()),
            "distances": list(distances.values()),
            "accuracy": float(np.mean(hits)),
        }

    def loss(self, params: Any) -> float:
        """(1/m) Σ f_i at one model, on all rows."""
        total = 0.0
        for table in self.parties.values():
            scores = np.asarray(table["x"], float) @ params["w"]
            scores -= scores.max(axis=1, keepdims=True)
            chosen = scores[np.arange(len(scores)), table["y"]]
            total += float(np.mean(np.log(np.exp(scores).sum(axis=1)) - chosen))
        return total / len(self.parties)


def curve(
    case: Case, method: Algorithm, marks: Sequence[int], seed: int, line: ProgressLine, name: str
) -> list[dict[str, Any]]:
    """One run, measured on all rows at these rounds."""
    points = []
    with tempfile.TemporaryDirectory() as folder:
        for mark in marks:
            line.say(f"{case.name}: {name}, seed {seed}, to round {mark}", now=True)
            result = solve(
                case.problem, case.parties, method, save=folder, resume=True, max_rounds=mark, seed=seed, progress=False
            )
            points.append(
                {"iterations": mark, **case.measured(result), "seconds": result.seconds, "status": result.status}
            )
            if result.status == "diverged":
                break
    return points


COLUMNS = {
    "method": "method",
    "iterations": "round",
    "loss": "loss at the mean",
    "infeasibility": "infeasibility, worst",
    "infeasibility_mean": "mean",
    "loss_handed_out": "loss, handed out",
    "infeasibility_handed_out": "infeasibility, handed out",
    "accuracy": "test accuracy",
    "seconds": "s",
}
QUANTITIES = (
    Quantity("loss", "global loss", "at the mean of the models as the method left them, all training rows", "log"),
    Quantity("infeasibility", "infeasibility", "the largest distance of a party's model to its set, before projecting"),
)


def _compared(
    name: str,
    trials: int,
    out: pathlib.Path | None,
    progress: bool | None,
    names: Sequence[str],
    rows: int | None,
    marks: Sequence[int],
) -> list[dict[str, Any]]:
    table, case = Rows(f"pc-fedavg/{name}", out), Case(name, rows)
    with ProgressLine(progress) as line:
        methods = case.printed.methods(case.batch)
        for method in [title for title in names if title in methods]:
            for seed in range(trials):
                for point in curve(case, methods[method], marks, seed, line, method):
                    table.add(data=name, method=method, seed=seed, **point)
        if "exact" in names:
            line.say(f"{name}: the exact optimum", now=True)
            exact = solve(
                case.problem,
                case.parties,
                PersonalProjected(),
                tolerance=EXACT,
                max_rounds=EXACT_ROUNDS,
                progress=False,
            )
            outcome = {"stationarity": exact.certificate.stationarity, "status": exact.status, "seconds": exact.seconds}
            table.add(data=name, method="exact", seed=0, iterations=exact.rounds, **case.measured(exact), **outcome)
    table.show(COLUMNS, FINDINGS)
    if out is not None:
        mine = [row for row in table.rows if row["method"] != "exact"]
        write_page(out.with_suffix(".html"), f"{name}, {PARTIES} parties with ℓ1 budgets", mine, "method", QUANTITIES)
    return table.rows


FINDINGS = (
    "The paper says that its iterates 'remain feasible throughout' and those of the others drift away. Compare the columns: a "
    "party's penalty moves its block by 1/m of what it asks, so PC-FedAvg's models leave their sets as soon as the budgets bind. "
    "What fedpact hands out of a method with personal models is projected; one model for all is handed out as it is."
)


def mnist(
    trials: int,
    out: pathlib.Path | None,
    progress: bool | None = None,
    names: Sequence[str] = NAMES,
    rows: int | None = None,
    marks: Sequence[int] = MARKS,
) -> list[dict[str, Any]]:
    return _compared("mnist", trials, out, progress, names, rows, marks)


def cifar10(
    trials: int,
    out: pathlib.Path | None,
    progress: bool | None = None,
    names: Sequence[str] = NAMES,
    rows: int | None = None,
    marks: Sequence[int] = MARKS,
) -> list[dict[str, Any]]:
    return _compared("cifar10", trials, out, progress, names, rows, marks)


def local_steps(
    trials: int,
    out: pathlib.Path | None,
    progress: bool | None = None,
    names: Sequence[str] = tuple(SETTINGS),
    rows: int | None = None,
    marks: Sequence[int] = MARKS,
) -> list[dict[str, Any]]:
    """Figure 4: the number of local steps."""
    table = Rows("pc-fedavg/local-steps", out)
    with ProgressLine(progress) as line:
        for name in names:
            case = Case(name, rows)
            for steps in LOCAL:
                method = PCFedAvg(case.printed.step, steps, PENALTY, case.batch)
                for seed in range(trials):
                    for point in curve(case, method, marks, seed, line, f"H = {steps}"):
                        table.add(data=name, method=f"{name}, H = {steps}", steps=steps, seed=seed, **point)
    table.show(
        COLUMNS,
        "The paper says that more local steps improve the method. They lower the loss in as many rounds, and they let the models "
        "drift out of their sets: see 'infeasibility'.",
    )
    if out is not None:
        write_page(out.with_suffix(".html"), "PC-FedAvg and its local steps", table.rows, "data", QUANTITIES)
    return table.rows
