"""The experiments of Ye and Cui, Section VI: MNIST, a network 784-128-10 with swish, ten parties.

    ssca/rows       Algorithms 1 and 2 over rows, against federated SGD: cost on all 60,000 rows and test accuracy over the rounds
    ssca/columns    Algorithms 3 and 4 over columns, against vertical SGD
    ssca/tradeoff   Figure 4: cost against ‖ω‖², for λ and for U varied

How steps were tuned: every method and batch gets the same budget, GRID settings of TRIED rounds each from one start, and the
one with the least cost on all rows is run in full. For SSCA the grid holds the paper's setting.
"""

import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from fedpact import datasets
from fedpact.algorithms.averaging.fed_avg import FedAvg
from fedpact.algorithms.averaging.fed_sgd import FedSGD
from fedpact.algorithms.parts.schedules import Decay
from fedpact.algorithms.ssca.method import SSCA
from fedpact.federation.columns import ColumnParties, split_columns
from fedpact.federation.rows import Parties, split_rows
from fedpact.problem.functions import mean, value
from fedpact.problem.losses import softmax_loss
from fedpact.problem.models import mlp, squared_norm
from fedpact.problem.regularizers import l2
from fedpact.problem.split import chain, split_model
from fedpact.problem.statement import Problem, minimize
from fedpact.protocol.algorithm import Algorithm
from fedpact.reproduce.curves import write_curves
from fedpact.reproduce.table import Rows
from fedpact.run.progress import ProgressLine
from fedpact.run.result import Result
from fedpact.run.solve import solve

PARTIES, HIDDEN, LIMIT, WEIGHT = 10, 128, 0.13, 1e-5  # I, J, U, λ
MARKS = (10, 30, 100, 300, 1000)  # rounds at which all rows are measured
LATER = (2000, 3000)  # and under a limit
TRIED = 200
BATCHES = ("1", "10", "100")  # rows a party
MARGIN = 0.02  # of our own setting; the paper has none
NET = mlp([784, HIDDEN, 10], activation=jax.nn.swish, bias=False)
SPLIT = split_model(
    bottom=lambda width: mlp([width, HIDDEN], bias=False),
    combine="sum",
    top=chain(jax.nn.swish, mlp([HIDDEN, 10], bias=False)),
)
PAPER = {1: (0.4, 0.4, 0.4), 10: (0.6, 0.9, 0.3), 100: (0.9, 0.9, 0.3)}  # rows a party: a1, a2, α


class SplitMNIST:
    """One way of splitting MNIST, with its model; `scale`: how many of the paper's batches over rows make one here."""

    def __init__(self, name: str):
        self.name = name
        self.train, self.test = datasets.mnist()
        self.parties: Parties | ColumnParties
        if name == "rows":
            self.parties, self.cost, self.scale = split_rows(self.train, PARTIES, seed=0), softmax_loss(NET), 1
            self.held_out: Any = self.test
        else:
            self.parties, self.cost, self.scale = (
                split_columns(self.train, PARTIES, active="all"),
                softmax_loss(SPLIT),
                PARTIES,
            )
            self.held_out = split_columns(self.test, PARTIES, active="all")

    def free(self, weight: float = WEIGHT) -> Problem:
        return minimize(mean(self.cost), regularizer=l2(weight))

    def limited(self, limit: float = LIMIT) -> Problem:
        return minimize(value(squared_norm), [(mean(self.cost).pooled() <= limit).named("cost")])

    def printed(self, batch: int, margin: float = 0.0) -> SSCA:
        """The paper's setting for this many rows a party."""
        rho, gamma, power = PAPER[batch]
        return SSCA(
            batch * self.scale, margin=margin, rho=Decay(rho, power), gamma=Decay(gamma, power + 0.05), measure=None
        )

    def ours(self, batch: int) -> SSCA:
        """What keeps the limit on all rows: slower decay, half the curvature, a margin."""
        return SSCA(
            batch * self.scale, margin=MARGIN, rho=Decay(0.9, 0.2), gamma=Decay(0.9, 0.25), tau=0.05, measure=None
        )

    def measured(self, result: Result, problem: Problem) -> dict[str, float]:
        """The cost on all training rows, ‖ω‖², and the accuracy on the test rows."""
        norm = float(sum(np.sum(leaf**2) for leaf in jax.tree.leaves(result.params)))
        weight = problem.regularizer.even or 0.0
        cost = result.constraint("cost").values[0] if problem.constraints else result.objective - weight * norm
        hits = result.predict(self.held_out) == self.test["y"]
        return {"cost": float(cost), "norm": norm, "accuracy": float(np.mean(hits))}


def bytes_without_label_holder(
    features: Sequence[int], batch: int, hidden: int, top: int, bytes_per_number: int = 4
) -> int:
    """Bytes that one round of the paper's Section V sends in all, for one constraint and bottom models that are linear.

    There every party has the labels and computes the loss by itself. To every other party it sends, for each row of the batch,
    ω·x of each of its features and what its bottom model gives without any: `hidden` numbers each. The server sends to every
    party the parameters of the top model and ρ, and as our label holder does a random key of 8 bytes, two weights of
    surrogates, γ, a curvature and a flag; back come the surrogates' four inner products, ∇F̂·ω, ‖ω‖², a residual, F̂ and its
    gradient for the top.

    - `features`: of each party.
    - `batch`: rows drawn in a round.
    - `hidden`: width of the bottom models' output.
    - `top`: parameters of the top model.
    - `bytes_per_number`: between parties (default 4, single precision); with the server it is double precision.
    """
    parties = len(features)
    between = (parties - 1) * (sum(features) + parties) * hidden * batch * bytes_per_number
    down = 8 * (top + 1 + 2 + 1 + 1) + 8 + 1
    up = 8 * (4 + 1 + 1 + 1 + 1 + top)
    return between + parties * (down + up)


STEPS = tuple(Decay(scale, power) for scale in (0.3, 1.0, 3.0) for power in (0.0, 0.2, 0.4))


def sgd_grid(mnist: SplitMNIST, batch: int) -> list[Algorithm]:
    return [FedSGD(batch * mnist.scale, step=step) for step in STEPS]


def ssca_grid(mnist: SplitMNIST, batch: int) -> list[Algorithm]:
    """As many settings as SGD has, the paper's among them; with ρ = 1 and constant γ SSCA is SGD with the step γ/2τ."""
    others = [
        SSCA(batch * mnist.scale, rho=Decay(rho, power), gamma=Decay(0.9, more), tau=tau, measure=None)
        for rho, power, more in ((1.0, 0.0, 0.0), (0.9, 0.1, 0.15))
        for tau in (0.1, 0.15, 0.3, 0.5)
    ]
    return [mnist.printed(batch), *others]


def tuned(mnist: SplitMNIST, methods: Sequence[Algorithm], line: ProgressLine, name: str) -> Algorithm:
    """The method with the least cost on all rows after TRIED rounds."""
    costs = []
    for place, method in enumerate(methods):
        line.say(f"{mnist.name}: tuning {name}, {place + 1} of {len(methods)}", now=True)
        result = solve(mnist.free(), mnist.parties, method, max_rounds=TRIED, seed=0, progress=False)
        costs.append(result.objective if np.isfinite(result.objective) else np.inf)
    return methods[int(np.argmin(costs))]


def curve(
    mnist: SplitMNIST,
    problem: Problem,
    method: Algorithm,
    marks: Sequence[int],
    seed: int,
    line: ProgressLine,
    name: str,
) -> list[dict[str, Any]]:
    """One run, measured on all rows at these rounds."""
    points = []
    with tempfile.TemporaryDirectory() as folder:
        for mark in marks:
            line.say(f"{mnist.name}: {name}, seed {seed}, to round {mark}", now=True)
            result = solve(
                problem, mnist.parties, method, save=folder, resume=True, max_rounds=mark, seed=seed, progress=False
            )
            point = {"iterations": mark, **mnist.measured(result, problem), "seconds": result.seconds}
            points.append(point | {"bytes_per_round": (result.bytes_up + result.bytes_down) / result.rounds})
    return points


def _words(method: Algorithm) -> str:
    return " ".join(repr(method).split())


def _compared(
    kind: str, trials: int, out: pathlib.Path | None, progress: bool | None, names: Sequence[str]
) -> list[dict[str, Any]]:
    rows, mnist = Rows(f"ssca/{kind}", out), SplitMNIST(kind)
    first, second = ("Algorithm 1", "Algorithm 2") if kind == "rows" else ("Algorithm 3", "Algorithm 4")

    def run(
        name: str, batch: int, problem: Problem, method: Algorithm, marks: Sequence[int], line: ProgressLine
    ) -> None:
        for seed in range(trials):
            for point in curve(mnist, problem, method, marks, seed, line, f"{name}, B={batch * mnist.scale}"):
                rows.add(
                    method=name,
                    batch=batch * mnist.scale,
                    seed=seed,
                    setting=_words(method),
                    drawn=batch * mnist.scale * getattr(method, "local_steps", 1),
                    limited=bool(problem.constraints),
                    **point,
                )

    with ProgressLine(progress) as line:
        for batch in map(int, names):
            sgd = tuned(mnist, sgd_grid(mnist, batch), line, f"SGD, B={batch * mnist.scale}")
            best = tuned(mnist, ssca_grid(mnist, batch), line, f"{first}, B={batch * mnist.scale}")
            run(f"{first}, paper's steps", batch, mnist.free(), mnist.printed(batch), MARKS, line)
            run(f"{first}, tuned", batch, mnist.free(), best, MARKS, line)
            run("SGD, tuned", batch, mnist.free(), sgd, MARKS, line)
            if kind == "rows" and batch > 1:
                grid = [FedAvg(batch // 2, local_steps=2, step=step) for step in STEPS]
                twice = tuned(mnist, grid, line, f"SGD, B={batch // 2}, E=2")
                run("SGD, tuned, E=2", batch // 2, mnist.free(), twice, MARKS, line)
            run(f"{second}, paper's steps", batch, mnist.limited(), mnist.printed(batch), (*MARKS, *LATER), line)
        if "100" in names:
            run(f"{second}, ours", 100, mnist.limited(), mnist.ours(100), (*MARKS, *LATER), line)
    rows.show(
        {
            "method": "method",
            "batch": "B",
            "iterations": "T",
            "cost": "cost, all rows",
            "accuracy": "test accuracy",
            "norm": "‖ω‖²",
            "bytes_per_round": "bytes a round",
            "seconds": "s",
        },
        f"cost: on all 60,000 training rows. Limit U = {LIMIT}; 'ours' keeps a margin of {MARGIN} inside it. Tuned: the best of "
        f"{len(STEPS)} settings by the cost after {TRIED} rounds, for SGD and for SSCA alike.",
    )
    if out is not None:
        write_curves(out.with_suffix(".html"), f"MNIST, {kind} split over {PARTIES} parties", rows.rows, LIMIT)
    return rows.rows


def ssca_rows(
    trials: int, out: pathlib.Path | None, progress: bool | None = None, names: Sequence[str] = BATCHES
) -> list[dict[str, Any]]:
    return _compared("rows", trials, out, progress, names)


def ssca_columns(
    trials: int, out: pathlib.Path | None, progress: bool | None = None, names: Sequence[str] = BATCHES
) -> list[dict[str, Any]]:
    return _compared("columns", trials, out, progress, names)


def tradeoff(trials: int, out: pathlib.Path | None, progress: bool | None = None) -> list[dict[str, Any]]:
    """Figure 4: each point is a run of 1,000 rounds with B = 100."""
    rows = Rows("ssca/tradeoff", out)
    with ProgressLine(progress) as line:
        for kind in ("rows", "columns"):
            mnist = SplitMNIST(kind)
            for seed in range(trials):
                for weight in (1e-2, 1e-3, 1e-4, 1e-5):
                    (point,) = curve(
                        mnist, mnist.free(weight), mnist.printed(100), (1000,), seed, line, f"λ = {weight:g}"
                    )
                    rows.add(split=kind, seed=seed, weight=weight, **point)
                for limit in (0.5, 0.3, 0.2, 0.13):
                    (point,) = curve(
                        mnist, mnist.limited(limit), mnist.ours(100), (1000,), seed, line, f"U = {limit:g}"
                    )
                    rows.add(split=kind, seed=seed, limit=limit, **point)
    rows.show(
        {
            "split": "split",
            "weight": "λ",
            "limit": "U",
            "cost": "cost, all rows",
            "norm": "‖ω‖²",
            "accuracy": "test accuracy",
        },
        "Algorithms 1 and 3 for λ, 2 and 4 for U; 1,000 rounds, 100 rows a party (1,000 over columns).",
    )
    return rows.rows
