"""The experiments of the PC-FedAvg paper, Section 5: softmax regression with an ℓ1 budget for each of four parties.

    pc-fedavg/mnist         Figures 2 and 3: infeasibility and global loss over 100 rounds of 20 local steps on 10 % of the rows
    pc-fedavg/cifar10       Figures 1 and 3: the same with the paper's settings for CIFAR-10, which here is decoded from JPEGs
    pc-fedavg/local-steps   Figure 4: PC-FedAvg on both data sets with 1, 5, 10, 20 and 40 local steps

The printed penalty "4√r + 10,000" is read as the fourth root of (r + 10,000), about 10; with the number as it is printed
step · penalty is 300, and no method stands that. Methods: PC-FedAvg with the corrected gradient and as printed, and FedAvg,
FedProx and SCAFFOLD, each with the distance penalty; beside them the exact optimum by PersonalProjected.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Sequence
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
from fedpact.reproduce.figures import Panel, banded, drawn
from fedpact.reproduce.stepping import results_at
from fedpact.reproduce.table import Bar, Rows
from fedpact.run.result import Result
from fedpact.run.solve import solve
from fedpact.sets import l1_ball

PARTIES, STEPS, PART = 4, 20, 0.1
MARKS = (1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
PENALTY = Growth(1.0, 0.25, 10_000)
LOCAL = (1, 5, 10, 20, 40)
LOSS = softmax_loss(linear(outputs=10))
EXACT_ROUNDS, EXACT_TOLERANCE = 20_000, 1e-6
EXACT = "exact"


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
    EXACT,
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
    case: Case, method: Algorithm, marks: Sequence[int], seed: int, line: Bar, name: str
) -> Iterator[dict[str, Any]]:
    """One run, measured on all rows at these rounds."""
    line.say(f"{case.name}: {name}, seed {seed}", now=True)
    for result in results_at(case.problem, case.parties, method, marks, seed):
        line.say(f"{case.name}: {name}, seed {seed}, round {result.rounds}", now=True)
        yield {
            "iterations": result.rounds,
            **case.measured(result),
            "seconds": result.seconds,
            "bytes": (result.bytes_up + result.bytes_down) / PARTIES,
            "status": result.status,
        }


COLUMNS = {
    "data": "data",
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


def _compared(
    name: str,
    trials: int,
    out: pathlib.Path | None,
    progress: bool | None,
    names: Sequence[str],
    rows: int | None,
    marks: Sequence[int],
) -> list[dict[str, Any]]:
    table, case = Rows(f"pc-fedavg/{name}", out, trials, names), Case(name, rows)
    methods, chosen = case.printed.methods(case.batch), list(names) or list(NAMES)
    with Bar(progress, trials * len(chosen)) as bar:
        for method in [title for title in chosen if title in methods]:
            _add_curves(table, bar, case, methods[method], {"data": name, "method": method}, marks, trials)
        if EXACT in chosen and not table.has(method=EXACT):
            bar.say(f"{name}: the exact optimum", now=True)
            exact = solve(
                case.problem,
                case.parties,
                PersonalProjected(),
                tolerance=EXACT_TOLERANCE,
                max_rounds=EXACT_ROUNDS,
                progress=False,
            )
            table.add(
                data=name,
                method=EXACT,
                seed=0,
                iterations=exact.rounds,
                **case.measured(exact),
                stationarity=exact.certificate.stationarity,
                status=exact.status,
                seconds=exact.seconds,
                bytes=(exact.bytes_up + exact.bytes_down) / PARTIES,
            )
    table.show(COLUMNS, FINDINGS)
    if out is not None:
        draw(out, table.rows)
    return table.rows


def _add_curves(
    table: Rows, bar: Bar, case: Case, method: Algorithm, about: dict[str, Any], marks: Sequence[int], trials: int
) -> None:
    """A row for each seed and mark, but for the seeds that the table has to the end."""
    for seed in range(trials):
        ended = [
            row["iterations"] == marks[-1] or row["status"] != "max_rounds" for row in table.where(**about, seed=seed)
        ]
        if any(ended):
            bar.step(False)
            continue
        table.drop(**about, seed=seed)
        for point in curve(case, method, marks, seed, bar, about["method"]):
            table.add(**about, seed=seed, **point)
        bar.step()


def draw(out: pathlib.Path, rows: Sequence[dict[str, Any]]) -> None:
    """Infeasibility and global loss over the rounds by method, for each data set; the exact optimum as a dashed line."""
    panels = []
    for data in dict.fromkeys(row["data"] for row in rows):
        mine = [row for row in rows if row["data"] == data and row["method"] != EXACT]
        exact = [row["loss"] for row in rows if row["data"] == data and row["method"] == EXACT]
        names = list(dict.fromkeys(row["method"] for row in mine))
        for quantity, title in (("infeasibility", "infeasibility"), ("loss", "global loss")):
            curves = [banded([r for r in mine if r["method"] == n], n, "iterations", quantity) for n in names]
            limit = exact[0] if exact and quantity == "loss" else None
            panels.append(Panel(f"{title}, {data}", curves, "round", title, limit=limit))
    drawn(out, "Softmax regression over four parties with ℓ1 budgets", panels)


FINDINGS = (
    "The paper says that its iterates 'remain feasible throughout' and those of the others drift away. Compare the columns: a "
    "party's penalty moves its block by 1/m of what it asks, so PC-FedAvg's models leave their sets as soon as the budgets bind. "
    "What fedpact hands out of a method with personal models is projected; one model for all is handed out as it is."
)


def mnist(
    trials: int,
    out: pathlib.Path | None,
    progress: bool | None = None,
    names: Sequence[str] = (),
    rows: int | None = None,
    marks: Sequence[int] = MARKS,
) -> list[dict[str, Any]]:
    return _compared("mnist", trials, out, progress, names, rows, marks)


def cifar10(
    trials: int,
    out: pathlib.Path | None,
    progress: bool | None = None,
    names: Sequence[str] = (),
    rows: int | None = None,
    marks: Sequence[int] = MARKS,
) -> list[dict[str, Any]]:
    return _compared("cifar10", trials, out, progress, names, rows, marks)


def local_steps(
    trials: int,
    out: pathlib.Path | None,
    progress: bool | None = None,
    names: Sequence[str] = (),
    rows: int | None = None,
    marks: Sequence[int] = MARKS,
) -> list[dict[str, Any]]:
    """Figure 4: the number of local steps."""
    table, chosen = Rows("pc-fedavg/local-steps", out, trials, names), list(names) or list(SETTINGS)
    with Bar(progress, trials * len(chosen) * len(LOCAL)) as bar:
        for name in chosen:
            case = Case(name, rows)
            for steps in LOCAL:
                method = PCFedAvg(case.printed.step, steps, PENALTY, case.batch)
                about = {"data": name, "method": f"H = {steps}", "steps": steps}
                _add_curves(table, bar, case, method, about, marks, trials)
    table.show(
        COLUMNS,
        "The paper says that more local steps improve the method. They lower the loss in as many rounds, and they let the models "
        "drift out of their sets: see 'infeasibility'.",
    )
    if out is not None:
        draw(out, table.rows)
    return table.rows
