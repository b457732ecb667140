"""What passive parties of fair vertical learning can infer, plainly and with encrypted residuals, and what these cost.

fair-vfl/audit   Adult, Compas and Crime, linear bottoms, ε = 0.05: attacks, objectives, CPU seconds and bytes a round
"""

import pathlib
import time
from collections.abc import Sequence
from typing import Any

from fedpact.algorithms.fair_vfl.method import FairVFL
from fedpact.privacy.residuals import EncryptedResiduals
from fedpact.reproduce.fair_vfl import DATA, TOLERANCE, drawn, fair_problem
from fedpact.reproduce.table import Bar, Rows
from fedpact.run.audit import audit
from fedpact.run.history import History
from fedpact.run.solve import solve

LEVEL = 5e-2  # ε
WATCHED = 20  # rounds


def audited(
    trials: int,
    out: pathlib.Path | None,
    progress: bool | None = None,
    names: Sequence[str] = (),
    watched: int = WATCHED,
) -> list[dict[str, Any]]:
    """`fedpact reproduce fair-vfl/audit`."""
    rows, chosen = Rows("fair-vfl/audit", out, trials, names), list(names) or list(DATA)
    with Bar(progress, 2 * trials * len(chosen)) as line:
        for name in chosen:
            for seed in range(trials):
                split = drawn(name, "linear", seed)
                problem = fair_problem("linear", split, LEVEL)
                for protocol, privacy in (("plain", None), ("encrypted", EncryptedResiduals())):
                    line.say(f"{name}, split {seed + 1}: {protocol}", now=True)
                    line.step()
                    if rows.has(dataset=name, split=seed, protocol=protocol):
                        continue
                    leaks = audit(problem, split.train, FairVFL(), watched, privacy=privacy, group="group", seed=seed)
                    every = list(leaks.values())
                    moments: list[tuple[int, float]] = []

                    def noted(history: History, moments: list[tuple[int, float]] = moments) -> None:
                        moments.append((len(history), time.process_time()))

                    result = solve(
                        problem, split.train, FairVFL(), tolerance=TOLERANCE, seed=seed, progress=False, privacy=privacy,
                        driver="stepwise", watch=noted,
                    )  # fmt: skip
                    (first, began), (last, ended) = moments[0], moments[-1]
                    rows.add(
                        dataset=name,
                        split=seed,
                        protocol=protocol,
                        labels=max(leak.label_accuracy for leak in every),
                        label_majority=every[0].label_majority,
                        groups=max(leak.group_accuracy or 0.0 for leak in every),
                        group_majority=every[0].group_majority,
                        labels_by_gradient=max(leak.gradient_label_accuracy for leak in every),
                        objective=result.objective,
                        certified=result.converged,
                        rounds=result.rounds,
                        cpu_seconds=(ended - began) / max(last - first, 1),
                        bytes_up=result.bytes_up / result.rounds,
                        bytes_down=result.bytes_down / result.rounds,
                    )
    rows.show(
        {
            "dataset": "data",
            "split": "split",
            "protocol": "residuals",
            "labels": "labels, sign attack",
            "label_majority": "majority",
            "groups": "groups, clustering",
            "group_majority": "majority",
            "labels_by_gradient": "labels, own gradient",
            "objective": "objective",
            "certified": "certified",
            "rounds": "rounds",
            "cpu_seconds": "CPU s a round",
            "bytes_up": "bytes up a round",
            "bytes_down": "down",
        },
        f"Parts of rows guessed right by the passive party that guesses best, from {watched} rounds of FairVFL; groups: of the "
        "rows of one label.\nCPU seconds: of all parties and the server together.",
    )
    return rows.rows
