"""Paces of the active party on Compas with linear bottoms: objective and DEO over the rounds and simulated seconds.

    fair-vfl/paces   Algorithms 1 to 3 as printed and our form, each with several paces of the active party

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
from fedpact.reproduce.fair_vfl import best_objective, fair_problem, rounds_until_near
from fedpact.reproduce.fair_vfl import drawn as fair_data
from fedpact.reproduce.fair_vfl_data import ACTIVE
from fedpact.reproduce.figures import Curve, Panel, drawn
from fedpact.reproduce.table import Bar, Rows, thinned
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


def paced(
    trials: int,
    out: pathlib.Path | None,
    progress: bool | None = None,
    forms: Sequence[str] = tuple(FORMS),
    paces: Sequence[str] = tuple(PACES),
) -> list[dict[str, Any]]:
    """`fedpact reproduce fair-vfl/paces`."""
    rows = Rows("fair-vfl/paces", out, trials)
    with Bar(progress, trials * len(forms) * len(paces)) as line:
        for seed in range(trials):
            split = fair_data("compas", "linear", seed)
            problem, optimum = fair_problem("linear", split, LEVEL), best_objective(split, LEVEL)
            for form in forms:
                method, cap = FORMS[form]
                for name in paces:
                    steps, pace = PACES[name]
                    line.say(f"split {seed + 1}: {form}, {name}", now=True)
                    line.step()
                    if rows.has(method=form, pace=name, split=seed):
                        continue
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
                        at=thinned(history["objective"])[0],
                        objective=thinned(history["objective"])[1],
                        deo=thinned(LEVEL + history["pooled_constraints"].max(axis=1))[1],
                        seconds=thinned(history["seconds"])[1],
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
        draw(out, rows.rows)
    return rows.rows


def draw(out: pathlib.Path, rows: Sequence[dict[str, Any]]) -> None:
    """Objective and DEO of the first split over rounds and simulated seconds, for each form."""
    panels = []
    for form in dict.fromkeys(row["method"] for row in rows):
        mine = [row for row in rows if row["method"] == form and row["split"] == 0]
        for quantity, title in (("objective", "L(θ)"), ("deo", "DEO(θ)")):
            for across in ("round", "second"):
                curves = [
                    Curve(
                        row["pace"],
                        [at + 1 for at in row["at"]] if across == "round" else row["seconds"],
                        np.maximum(row[quantity], SMALLEST).tolist() if quantity == "deo" else row[quantity],
                    )
                    for row in mine
                ]
                limit, scale = (LEVEL, "log") if quantity == "deo" else (None, "linear")
                words = "round" if across == "round" else "simulated second"
                panels.append(Panel(f"{title}, {form}", curves, words, title, scale, limit=limit))
    drawn(out, f"Compas over six parties, linear, ε = {LEVEL:g}", panels)
