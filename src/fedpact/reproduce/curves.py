"""Curves of an experiment over the rounds, as one page of HTML that loads nothing."""

import dataclasses
import importlib.resources
import pathlib
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from fedpact.report import markup
from fedpact.report.plots import Limit, Line, Plot, figure


def write_figures(path: pathlib.Path, heading: str, figures: Sequence[str]) -> pathlib.Path:
    """A page of figures."""
    style = importlib.resources.files("fedpact.report").joinpath("page.css").read_text("utf-8")
    path.write_text(
        f'<!doctype html><html lang="en-GB"><head><meta charset="utf-8"><title>{markup.text(heading)}</title>'
        f"<style>{style}</style></head><body><main><h1>{markup.text(heading)}</h1>"
        f'<section class="grid">{"".join(figures)}</section></main></body></html>\n',
        "utf-8",
    )
    return path


def write_curves(path: pathlib.Path, heading: str, rows: list[dict[str, Any]], limit: float) -> pathlib.Path:
    """Cost and accuracy of every method over the rounds, means over seeds; figures by the rows drawn in a round."""
    figures = []
    for limited, drawn in sorted({(row["limited"], row["drawn"]) for row in rows}):
        mine = [row for row in rows if (row["limited"], row["drawn"]) == (limited, drawn)]
        rounds = np.array(sorted({row["iterations"] for row in mine}))
        for quantity, note in (("cost", "on all training rows"), ("accuracy", "on the test rows")):
            names = list(dict.fromkeys(row["method"] for row in mine))
            lines = tuple(
                Line(name, _means(mine, name, quantity, rounds), place % 6 + 1) for place, name in enumerate(names)
            )
            limits = (Limit(limit, "limit", "above"),) if quantity == "cost" and limited else ()
            title = f"{quantity}, B·E = {drawn}{', under a limit' if limited else ''}"
            scale = "log" if quantity == "cost" else "auto"
            figures.append(figure(Plot(title, note, lines, limits=limits, scale=scale), rounds, 200))
    return write_figures(path, heading, figures)


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A column of rows that is drawn over the rounds."""

    column: str
    title: str
    note: str
    scale: Literal["auto", "log"] = "auto"


def write_page(
    path: pathlib.Path, heading: str, rows: list[dict[str, Any]], by: str, quantities: Sequence[Quantity]
) -> pathlib.Path:
    """Figures of these quantities over the rounds, means over seeds, a line for each method; `by` "data": figures apart for
    each value of that column."""
    figures = []
    for group in dict.fromkeys(row["data"] for row in rows) if by == "data" else ("",):
        mine = [row for row in rows if row["data"] == group] if group else rows
        rounds = np.array(sorted({row["iterations"] for row in mine}))
        names = list(dict.fromkeys(row["method"] for row in mine))
        for q in quantities:
            lines = tuple(Line(n, _means(mine, n, q.column, rounds), place % 6 + 1) for place, n in enumerate(names))
            title = f"{q.title}, {group}" if group else q.title
            figures.append(figure(Plot(title, q.note, lines, limits=(), scale=q.scale), rounds, 200))
    return write_figures(path, heading, figures)


def _means(rows: list[dict[str, Any]], name: str, quantity: str, rounds: np.ndarray) -> np.ndarray:
    found = [[row[quantity] for row in rows if row["method"] == name and row["iterations"] == t] for t in rounds]
    return np.array([np.mean(values) if values else np.nan for values in found])
