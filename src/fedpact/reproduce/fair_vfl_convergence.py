"""Figure 1 of fair vertical learning, on Compas with linear bottoms: objective and DEO over the rounds and simulated seconds.

    fair-vfl/convergence   Algorithms 1 to 3 as printed and our form, each with several paces of the active party

The simulated clock: a local step takes the active party 0.2 s and a passive one 1 s, and messages are on their way for 1 s.
So ten steps of the active party fit into the time that it waits for the others, which the clock's pace makes use of.
"""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedpact.algorithms.fair_vfl.method import FairVFL
from fedpact.algorithms.fair_vfl.pace import Clock, Pace
from fedpact.report.plots import Limit, Line, Plot, figure
from fedpact.reproduce.curves import write_figures
from fedpact.reproduce.fair_vfl import best_objective, drawn, fair_problem, rounds_until_near
from fedpact.reproduce.fair_vfl_data import ACTIVE
from fedpact.reproduce.table import Rows
from fedpact.run.progress import ProgressLine
from fedpact.run.solve import solve

SMALLEST = (
    1e-5  # gaps below are drawn here: at the start all scores are equal, and 1e-16 would stretch a logarithmic axis
)
LEVEL = 1e-2  # ε
CLOCK = Clock(step={ACTIVE: 0.2}, latency=1.0)
PACES: dict[str, tuple[int, Pace]] = {
    "Q = 1": (1, "fixed"),
    "Q = 5": (5, "fixed"),
    "Q = 10": (10, "fixed"),
    "Q from 1 to 10 at random": (10, "random"),
    "Q as the clock allows, up to 10": (10, "clock"),
}
FORMS = {"as printed": (FairVFL.as_printed(), 3000), "ours": (FairVFL(), 40)}  # and rounds
DRAWN = 400  # points of a line at most


def convergence(
    trials: int,
    out: pathlib.Path | None,
    progress: bool | None = None,
    forms: Sequence[str] = tuple(FORMS),
    paces: Sequence[str] = tuple(PACES),
) -> list[dict[str, Any]]:
    """`fedpact reproduce fair-vfl/convergence`."""
    rows = Rows("fair-vfl/convergence", out)
    with ProgressLine(progress) as line:
        for seed in range(trials):
            split = drawn("compas", "linear", seed)
            problem, optimum = fair_problem("linear", split, LEVEL), best_objective(split, LEVEL)
            for form in forms:
                method, cap = FORMS[form]
                for name in paces:
                    steps, pace = PACES[name]
                    line.say(f"split {seed + 1}: {form}, {name}", now=True)
                    paced = dataclasses.replace(method, local_steps=steps, pace=pace, clock=CLOCK)
                    result = solve(
                        problem, split.train, paced, tolerance=1e-9, max_rounds=cap, seed=seed, progress=False
                    )
                    history, near = result.history, rounds_until_near(result, LEVEL, optimum)
                    rows.add(
                        method=form,
                        pace=name,
                        split=seed,
                        rounds_near=near,
                        seconds_near=None if near is None else float(history["seconds"][near - 1]),
                        rounds=result.rounds,
                        optimum=optimum,
                        objective=history["objective"].tolist(),
                        deo=(LEVEL + history["pooled_constraints"].max(axis=1)).tolist(),
                        seconds=history["seconds"].tolist(),
                    )
    rows.show(
        {
            "method": "method",
            "pace": "active party's steps",
            "split": "split",
            "rounds_near": "rounds to L*",
            "seconds_near": "simulated s",
            "rounds": "rounds run",
        },
        f"Compas, linear, ε = {LEVEL:g}. To L*: until DEO <= ε + 2e-3 and L within 2e-3 of SLSQP's on pooled data. A local step "
        "takes the active\nparty 0.2 s, a passive one 1 s, and a round 1 s more.",
    )
    if out is not None:
        write_figures(out.with_suffix(".html"), "Compas over six parties, linear, ε = 0.01", figures(rows.rows))
    return rows.rows


def figures(rows: list[dict[str, Any]]) -> list[str]:
    """Objective and DEO of the first split over rounds and seconds, for each form; a run that has ended stays there."""
    found = []
    for form in dict.fromkeys(row["method"] for row in rows):
        mine = [row for row in rows if row["method"] == form and row["split"] == 0]
        rounds = np.arange(1, max(row["rounds"] for row in mine) + 1)
        seconds = np.arange(0, max(row["seconds"][-1] for row in mine) + 1)
        for quantity, title in (("objective", "L(θ)"), ("deo", "DEO(θ)")):
            limits = (Limit(LEVEL, "limit", "above"),) if quantity == "deo" else ()
            for across, at in (("round", rounds), ("second", seconds)):
                lines = tuple(
                    Line(row["pace"], _shown(row, quantity, across, at), place) for place, row in enumerate(mine, 1)
                )
                note = "on training rows, over the rounds" if across == "round" else "over simulated seconds"
                plot = Plot(f"{title}, {form}", note, lines, limits=limits, across=across)
                found.append(figure(plot, at, DRAWN))
    return found


def _shown(row: dict[str, Any], quantity: str, across: str, at: np.ndarray) -> np.ndarray:
    """The quantity at these rounds or seconds: what the last round that had ended by then began with."""
    ended = np.arange(1, row["rounds"] + 1) if across == "round" else np.asarray(row["seconds"])
    found = np.asarray(row[quantity])[np.clip(np.searchsorted(ended, at, "right") - 1, 0, None)]
    return np.maximum(found, SMALLEST)
