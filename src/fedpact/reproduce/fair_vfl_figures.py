"""Figures 1 and 2 of fair vertical learning (arXiv:2109.08344): L(θ) and DEO(θ) over the rounds, for every ε and for FedBCD.

    fair-vfl/figures   linear bottoms (Figure 1) and networks (Figure 2) on Adult, Compas and Crime, first split;
                       Algorithms 1 to 3 with the paper's settings, and fedpact's form

FedBCD with one local step is FairVFL whose constraint is never active; so its line is drawn with ε = 10⁶, which has DEO in its
history. How many rounds the paper's figures show is not known here; these are CAPS.
"""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedpact.algorithms.fair_vfl.method import FairVFL
from fedpact.reproduce.fair_vfl import DATA, LEVELS, Kind, fair_problem
from fedpact.reproduce.fair_vfl import drawn as fair_data
from fedpact.reproduce.figures import Curve, Panel, drawn
from fedpact.reproduce.table import Bar, Rows, thinned
from fedpact.run.solve import solve

NEVER = 1e6  # an ε that no DEO reaches
KINDS: tuple[Kind, ...] = ("linear", "mlp")
PRINTED, OURS = "as printed", "ours"
FORMS = {PRINTED: FairVFL.as_printed(), OURS: FairVFL()}
CAPS = {  # rounds
    (PRINTED, "linear"): 3000,
    (PRINTED, "mlp"): 1000,
    (OURS, "linear"): 100,
    (OURS, "mlp"): 300,
}
CHOICES = (*DATA, *KINDS, *FORMS)
SMALLEST = 1e-5  # of DEO on its axis: at the start all scores are equal


def curves(
    trials: int, out: pathlib.Path | None, progress: bool | None = None, names: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """`fedpact reproduce fair-vfl/figures`; `names`: of data sets, linear or mlp, "as printed" or ours; empty: all."""
    del trials
    rows = Rows("fair-vfl/figures", out, None, names)
    data, forms = ([name for name in names if name in every] or every for every in (DATA, FORMS))
    kinds: list[Kind] = [kind for kind in KINDS if kind in names or not set(KINDS) & set(names)]
    work: list[tuple[str, Kind, str, float]] = [
        (name, kind, form, level) for kind in kinds for name in data for form in forms for level in (*LEVELS, NEVER)
    ]
    with Bar(progress, len(work)) as bar:
        for name, kind, form, level in work:
            method = "FedBCD" if level == NEVER else f"ε = {level:g}"
            about = {"data": name, "kind": kind, "form": form, "method": method}
            if rows.has(**about):
                bar.step(False)
                continue
            bar.say(f"{name}, {kind}, {form}: {method}", now=True)
            split = fair_data(name, kind, 0)
            problem = fair_problem(kind, split, level)
            cap = CAPS[form, kind]
            result = solve(problem, split.train, FORMS[form], tolerance=1e-9, max_rounds=cap, progress=False)
            gap = level + result.history["pooled_constraints"].max(axis=1)
            at, objective = thinned(result.history["objective"], 100)
            rows.add(
                **about,
                level=None if level == NEVER else level,
                rounds=result.rounds,
                at=at,
                objective=objective,
                deo=thinned(gap, 100)[1],
            )
            bar.step()
    rows.show(
        {"data": "data", "kind": "bottoms", "form": "form", "method": "ε", "rounds": "rounds"},
        "The file has L(θ) and DEO(θ) on the training rows over the rounds.",
    )
    if out is not None:
        draw(out, rows.rows)
    return rows.rows


def draw(out: pathlib.Path, rows: Sequence[dict[str, Any]]) -> None:
    """For every data set, kind of bottoms and form: L and DEO, a line for each ε and for FedBCD."""
    panels = []
    for kind, data, form in dict.fromkeys((row["kind"], row["data"], row["form"]) for row in rows):
        mine = [row for row in rows if (row["kind"], row["data"], row["form"]) == (kind, data, form)]
        for quantity, title, scale in (("objective", "L(θ)", "linear"), ("deo", "DEO(θ)", "log")):
            lines = []
            for row in mine:
                values = np.maximum(row[quantity], SMALLEST if quantity == "deo" else 0.0).tolist()
                style = "--" if row["method"] == "FedBCD" else "-"
                lines.append(Curve(row["method"], [at + 1 for at in row["at"]], values, style=style))
            panels.append(Panel(f"{data}, {kind}, {form}: {title}", lines, "round", title, scale))
    drawn(out, "Fair vertical learning: objective and equal-opportunity gap on the training rows", panels, across=4)
