"""A sweep over the bounds of one constraint as a page: objective, accuracy and the constraint's value against the bound."""

import importlib.resources
import os
import pathlib
from collections.abc import Sequence

import numpy as np

from fedpact.report import markup
from fedpact.report.page import POLICY
from fedpact.report.plots import Band, Line, Plot, figure

Series = tuple[np.ndarray, np.ndarray | None]  # values by bound, and intervals (bounds, 2)

POINTS = 400


def drawn(
    title: str, note: str, name: str, bounds: np.ndarray, series: Series, interval: str, limit: bool = False
) -> str:
    """One quantity against the bound, with its interval; `limit`: with the bound itself as a line."""
    values, ends = series
    lines = (Line(name, values, 1), *((Line("the bound", bounds, 2),) if limit else ()))
    bands = () if ends is None else (Band(interval, ends[:, 0], ends[:, 1]),)
    plot = Plot(title, note, lines, bands, legend=bool(limit or bands), across="bound", whole=False)
    return figure(plot, bounds, POINTS)


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of text, as HTML."""
    head = "".join(f"<th>{markup.text(title)}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(f'<td>{markup.text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def write_sweep(
    path: pathlib.Path, heading: str, notes: Sequence[str], figures: Sequence[str], rows: str
) -> pathlib.Path:
    """Write one self-contained page; an interrupted write leaves the previous file. Returns `path`."""
    style = importlib.resources.files("fedpact.report").joinpath("page.css").read_text("utf-8")
    said = "".join(f"<p>{markup.text(markup.sentence(note))}</p>" for note in notes)
    shown = (
        f'<div class="grid">{"".join(figures)}</div>' if figures else "<p>No bound gave a converged result to draw.</p>"
    )
    page = (
        f'<!doctype html>\n<html lang="en-GB"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">'
        f"<title>{markup.text(heading)}</title><style>{style}</style></head><body><main><h1>{markup.name(heading)}</h1>"
        f'<section>{shown}</section><section><div class="scrolled">{rows}</div>{said}</section></main></body></html>\n'
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.part")
    try:
        beside.write_text(page, "utf-8", "replace")
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    return path
