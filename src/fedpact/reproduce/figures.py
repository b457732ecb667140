"""Figures of an experiment, drawn by matplotlib (extra `figures`) as PNG and SVG beside the JSON that has their numbers."""

import dataclasses
import math
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedpact.extras import install

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#7f7f7f")  # Okabe and Ito
WIDTH, HEIGHT = 4.6, 3.3  # inches of a panel
DOTS = 110  # an inch
MARK = "o"


@dataclasses.dataclass(frozen=True)
class Curve:
    """A line, with a band from `low` to `high` where there are any; `points`: single points instead of a line."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    style: str = "-"
    colour: int | None = None  # place in COLOURS; None: the next
    points: bool = False


@dataclasses.dataclass(frozen=True)
class Panel:
    """One pair of axes. `limit`: a dashed line across."""

    title: str
    curves: Sequence[Curve]
    x: str
    y: str
    scale: str = "linear"  # or "log"
    x_scale: str = "linear"  # or "log"
    limit: float | None = None
    y_range: tuple[float, float] | None = None


def drawn(out: pathlib.Path, heading: str, panels: Sequence[Panel], across: int = 2) -> tuple[pathlib.Path, ...]:
    """Draw panels into OUT.png and OUT.svg, `across` of them in a row.

    Raises ImportError where matplotlib is missing; the JSON is written by then, and the same command draws once it is there.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(
            f"the rows are in {out.with_suffix('.json').name}; to draw them matplotlib is needed: {install('figures')}"
        ) from None
    down = math.ceil(len(panels) / across)
    figure = Figure(figsize=(WIDTH * across, HEIGHT * down + 0.4), layout="constrained")
    for place, panel in enumerate(panels):
        _fill(figure.add_subplot(down, across, place + 1), panel)
    figure.suptitle(heading, fontsize=11)
    written = tuple(out.with_suffix(ending) for ending in (".png", ".svg"))
    with matplotlib.rc_context({"svg.hashsalt": "fedpact", "svg.fonttype": "path"}):
        figure.savefig(written[0], dpi=DOTS, metadata={"Software": None})
        figure.savefig(written[1], metadata={"Date": None, "Creator": None})
    return written


def _fill(axes: Any, panel: Panel) -> None:
    for place, curve in enumerate(panel.curves):
        of = place if curve.colour is None else curve.colour
        colour, again = COLOURS[of % len(COLOURS)], of >= len(COLOURS)
        x, y = np.asarray(curve.x, float), np.asarray(curve.y, float)
        style = {"linestyle": "none", "marker": MARK} if curve.points else {"linestyle": "--" if again else curve.style}
        axes.plot(x, y, color=colour, label=curve.name, linewidth=1.3, markersize=4, **style)
        if curve.low is not None and curve.high is not None:
            low, high = np.asarray(curve.low, float), np.asarray(curve.high, float)
            axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
    if panel.limit is not None:
        axes.axhline(panel.limit, color="black", linestyle="--", linewidth=0.9)
    axes.set_title(panel.title, fontsize=9)
    axes.set_xlabel(panel.x, fontsize=8)
    axes.set_ylabel(panel.y, fontsize=8)
    axes.set_yscale(panel.scale)
    axes.set_xscale(panel.x_scale)
    if panel.y_range is not None:
        axes.set_ylim(*panel.y_range)
    axes.tick_params(labelsize=7, which="both")
    axes.grid(alpha=0.25, linewidth=0.5)
    if panel.curves:
        axes.legend(fontsize=6.5, framealpha=0.8)


def banded(rows: Sequence[dict[str, Any]], name: str, across: str, quantity: str, **more: Any) -> Curve:
    """Mean over seeds, with a band of one standard deviation where there are several, of rows with one number each."""
    by_place: dict[float, list[float]] = {}
    for row in rows:
        if row.get(quantity) is not None:
            by_place.setdefault(row[across], []).append(row[quantity])
    x = sorted(by_place)
    mean = np.array([np.mean(by_place[at]) for at in x])
    if x and min(map(len, by_place.values())) > 1:
        spread = np.array([np.std(by_place[at], ddof=1) for at in x])
        more |= {"low": (mean - spread).tolist(), "high": (mean + spread).tolist()}
    return Curve(name, x, mean.tolist(), **more)
