"""Plots over the rounds or another quantity as inline SVG. Colours and dashes are CSS classes, for light and dark themes."""

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np

from fedpact.report import markup

WIDTH, HEIGHT, CHARACTER = 380, 214, 7  # pixels; the width of a character at the style's size
LEAST, GREATEST = 1e-30, 1e100  # values beyond are drawn as zero (on a logarithmic axis) and not at all
FEW = 25  # up to this many rounds, each has a marker
WILD = 100.0  # values that span more than this factor have a logarithmic axis

AXES = {"log": "The axis is logarithmic.", "symlog": "The axis is logarithmic, but linear about 0."}


@dataclasses.dataclass(frozen=True)
class Line:
    """One number per round. `colour`: 1 to 6, 0 for the text colour."""

    name: str
    values: np.ndarray
    colour: int


@dataclasses.dataclass(frozen=True)
class Band:
    """The area between two numbers per round."""

    name: str
    low: np.ndarray
    high: np.ndarray


@dataclasses.dataclass(frozen=True)
class Limit:
    """A horizontal line, and which side of it is infeasible."""

    level: float
    name: Literal["limit", "tolerance"]
    forbidden: Literal["above", "below"] | None = None


@dataclasses.dataclass(frozen=True)
class Plot:
    """The contents of one plot."""

    title: str
    note: str
    lines: tuple[Line, ...]
    bands: tuple[Band, ...] = ()
    limits: tuple[Limit, ...] = ()
    scale: Literal["auto", "log", "linear"] = "auto"  # linear: from zero
    legend: bool = True
    across: str = "round"  # the quantity on the horizontal axis
    whole: bool = True  # whether it is a whole number

    @property
    def curves(self) -> list[np.ndarray]:
        return [line.values for line in self.lines] + [side for band in self.bands for side in (band.low, band.high)]


def figure(plot: Plot, rounds: np.ndarray, points: int) -> str:
    """A <figure> with caption, plot and legend; `points`: the most points of a line."""
    caption = f"<figcaption><b>{markup.name(plot.title)}</b> <span>{markup.text(plot.note)}</span></figcaption>"
    shown = np.concatenate([_finite(curve) for curve in plot.curves])
    if not shown.size:
        return f'<figure>{caption}<p class="none">No finite number to draw.</p><div></div></figure>'
    near = [limit for limit in plot.limits if plot.scale == "log" or _near(limit.level, shown)]
    axis = _axis(plot, shown, [limit.level for limit in near])
    about = [f"{plot.title} over {markup.plural(len(rounds), plot.across)}: {plot.note.rstrip('.')}."]
    notes = []
    if plot.scale == "auto" and axis.kind in AXES:
        notes.append(AXES[axis.kind])
    for line in plot.lines:
        there, odd = _finite(line.values), np.flatnonzero(~_drawable(line.values))
        if there.size:
            about.append(f"{line.name}: from {markup.number(there[0], 3)} to {markup.number(there[-1], 3)}.")
        if odd.size:
            which = "Not" if len(plot.lines) == 1 else f"{markup.name(line.name)}: not"
            first = f"first in {plot.across} {_place(plot, float(rounds[odd[0]]))}"
            notes.append(f"{which} finite in {markup.plural(odd.size, plot.across)}, {first}.")
    entries = [(f"line-{line.colour}", line.name) for line in plot.lines] if plot.legend else []
    entries += [("band", band.name) for band in plot.bands]
    for limit in plot.limits:
        where = "" if limit in near else " (beyond this axis)"
        entries.append((limit.name, f"{limit.name} {markup.number(limit.level)}{where}"))
    description, extra = markup.text(" ".join(about)), f'<p class="none">{" ".join(notes)}</p>' if notes else ""
    return (
        f'<figure>{caption}<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{description}"><title>{description}</title>'
        f"{_drawing(plot, rounds, points, near, axis)}</svg><div>{legend(entries)}{extra}</div></figure>"
    )


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """A legend from pairs (CSS class of the line, name)."""
    swatch = '<svg class="swatch" viewBox="0 0 24 10" aria-hidden="true"><path class="{}" d="M0 5h24"/></svg>'
    items = "".join(f"<li>{swatch.format(kind)}{markup.name(name)}</li>" for kind, name in entries)
    return f'<ul class="legend">{items}</ul>' if items else ""


def thinned(values: np.ndarray, most: int) -> np.ndarray:
    """Indices of at most about `most` finite values: the first, the last, and the extremes of every interval."""
    places = np.flatnonzero(_drawable(values))
    if places.size <= most:
        return places
    kept = [places[[0, -1]]]
    for stretch in np.array_split(places, max(1, most // 2)):
        there = values[stretch]
        kept.append(stretch[[there.argmin(), there.argmax()]])
    return np.unique(np.concatenate(kept))


def _drawable(values: np.ndarray) -> np.ndarray:
    return np.abs(values) < GREATEST  # False for NaN


def _finite(values: np.ndarray) -> np.ndarray:
    return values[_drawable(values)]


def _near(level: float, values: np.ndarray) -> bool:
    """Whether the values fill at least a fifth of the axis when the level is shown."""
    low, high = values.min(), values.max()
    distance = max(low - level, level - high)
    return abs(level) < GREATEST and (distance <= 4 * (high - low) or low == high or low * high <= 0)


# the drawing


@dataclasses.dataclass(frozen=True)
class Axis:
    """A vertical axis from transform⁻¹(low) to transform⁻¹(high)."""

    kind: Literal["linear", "log", "symlog"]
    transform: Callable[[Any], Any]
    low: float
    high: float
    ticks: dict[float, str]


def _axis(plot: Plot, shown: np.ndarray, levels: list[float]) -> Axis:
    later = np.concatenate([levels, *(_finite(curve[curve.size // 2 :]) for curve in plot.curves)])
    settled = float(np.abs(later).max(initial=0.0))
    shown = np.concatenate([shown, levels, [0.0] if plot.scale == "linear" else []])
    low, high = float(shown.min()), float(shown.max())
    largest = max(-low, high)
    if plot.scale == "log" or (plot.scale == "auto" and low > LEAST and high / low > WILD):
        positive = shown[shown > LEAST] if high > LEAST else np.array([1e-6, 1.0])
        bottom = math.floor(math.log10(positive.min()))
        top = max(math.ceil(math.log10(positive.max())), bottom + 2)
        stride = math.ceil((top - bottom) / 5)
        ticks = {10.0**e: markup.power_of_ten(e) for e in range(top, bottom - 1, -stride)}
        if low <= LEAST:  # zero has a tick of its own
            bottom = round(math.log10(min(ticks))) - stride
            ticks[10.0**bottom] = "0"
        return Axis("log", lambda y: np.log10(np.maximum(y, 10.0**bottom)), bottom, top, ticks)
    if plot.scale == "auto" and largest > WILD * settled > 1e-9 * largest:  # not where the values converge to zero
        low, high = min(low, 0.0), max(high, 0.0)
        inside, outside = math.ceil(math.log10(settled)), math.floor(math.log10(largest))
        exponents = range(inside, outside + 1, math.ceil((outside - inside + 1) / 3))
        ticks = {0.0: "0"} | {10.0**e: markup.power_of_ten(e) for e in exponents}
        ticks |= {-y: "−" + label for y, label in ticks.items() if y}
        unit = 10.0**inside / 3
        ends = math.asinh(low / unit), math.asinh(high / unit)
        return Axis(
            "symlog", lambda y: np.arcsinh(y / unit), *ends, {y: t for y, t in ticks.items() if low <= y <= high}
        )
    if high - low <= max(1e-9 * largest, LEAST):  # flat
        space = 0.1 * largest if largest > LEAST else 1.0
        low, high = low - space, high + space
    steps = _steps(low, high, 5)
    digits = max(5, len(f"{largest / (steps[1] - steps[0]):.0f}") + 1)
    return Axis("linear", np.asarray, low, high, {y: markup.number(y, digits) for y in steps})


def _place(plot: Plot, at: float) -> str:
    """A place on the horizontal axis."""
    return f"{at:,.0f}" if plot.whole else markup.number(at, 4)


def _steps(low: float, high: float, most: int, least: float = 0.0) -> list[float]:
    """Round numbers from low to high, about `most` at most, at least `least` apart."""
    smallest = max((high - low) / most, least)
    if not smallest:
        return [low]
    power = 10.0 ** math.floor(math.log10(smallest))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= smallest)
    return [k * step for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _drawing(plot: Plot, rounds: np.ndarray, points: int, limits: list[Limit], axis: Axis) -> str:
    """The contents of the <svg> element."""
    left = 10 + CHARACTER * max(map(len, axis.ticks.values()))
    right, top, bottom = WIDTH - 10, 8, HEIGHT - 38
    first, length = float(rounds[0]), float(rounds[-1] - rounds[0]) or 1.0

    def across(r: Any) -> Any:
        return left + 4 + (right - left - 8) * (r - first) / length

    def down(y: Any) -> Any:
        return bottom - (bottom - top) * (0.05 + 0.9 * (axis.transform(y) - axis.low) / (axis.high - axis.low))

    def along(values: np.ndarray) -> list[str]:
        at = thinned(values, points)
        return [f"{x:.1f} {y:.1f}" for x, y in zip(across(rounds[at]), down(values[at]), strict=True)]

    def text(x: float, y: float, anchor: str, words: str) -> str:
        return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'

    out = [
        f'<path class="rule" d="M{left} {bottom}H{right}"/>',
        text((left + right) / 2, HEIGHT - 4, "middle", plot.across),
    ]
    for r in _steps(rounds[0], rounds[-1], 6, least=1.0 if plot.whole else 0.0):
        out.append(text(across(r), bottom + 16, "middle", _place(plot, r)))
    for level, label in axis.ticks.items():
        out.append(f'<path class="rule" d="M{left} {down(level):.1f}H{right}"/>')
        out.append(text(left - 5, down(level) + 4, "end", label))
    for limit in limits:
        level = f"M{left} {down(limit.level):.1f}H{right}"
        if limit.forbidden:
            out.append(f'<path class="forbidden" d="{level}V{top if limit.forbidden == "above" else bottom}H{left}Z"/>')
        out.append(f'<path class="{limit.name}" d="{level}"/>')
    for band in plot.bands:
        out.append(f'<path class="band" d="M{" ".join(along(band.low) + along(band.high)[::-1])}Z"/>')
    for line in plot.lines:
        path = along(line.values)
        out.append(f'<path class="line-{line.colour}" d="M{" ".join(path)}"/>')
        if len(rounds) <= FEW or len(path) == 1:
            out.append(f'<path class="line-{line.colour} dots" d="{"".join(f"M{point}h0" for point in path)}"/>')
    return "".join(out)
