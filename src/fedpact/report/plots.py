"""Plots over the rounds as SVG inside the page: matplotlib draws axes and lines, the page writes captions and legends.

No name reaches matplotlib, so no name can break a drawing, and legends wrap with the page. Colours are drawn as
stand-ins and handed over to the page's CSS variables, which know light from dark.
"""

import dataclasses
import io
import math
import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from fedpact.report import markup

WIDTH, HEIGHT, FONT = 380, 214, 11.5
LARGEST = 1e100  # beyond, a number is drawn no better than infinity
SMALLEST = 1e-30  # below, a number is drawn as zero on a logarithmic axis
FEW = 25  # up to this many rounds each one has a marker
WILD = 100.0  # numbers that span more than this factor are drawn on a logarithmic axis

COLOURS = tuple(f"--line-{k}" for k in range(1, 7))
DASHES = ((), (6, 2.5), (1.5, 1.5), (8, 2, 1.5, 2), (3.5, 1.5), (10, 3))
STAND_INS = {name: f"#01{k:02x}fe" for k, name in enumerate((*COLOURS, "--ink", "--muted", "--rule", "--bad"), start=1)}

AXES = {"log": "The axis is logarithmic.", "symlog": "The axis is logarithmic, but linear about 0."}

Scale = Literal["auto", "log", "linear"]  # linear: from zero


@dataclasses.dataclass(frozen=True)
class Line:
    """A number per round. colour: a place in COLOURS, None for ink. at: which rounds, where not every one is there."""

    name: str
    values: np.ndarray
    colour: int | None
    at: np.ndarray | None = None

    @property
    def variable(self) -> str:
        return "--ink" if self.colour is None else COLOURS[self.colour]

    @property
    def dashes(self) -> tuple[float, ...]:
        return () if self.colour is None else DASHES[self.colour]


@dataclasses.dataclass(frozen=True)
class Band:
    """Between two numbers per round."""

    name: str
    low: np.ndarray
    high: np.ndarray


@dataclasses.dataclass(frozen=True)
class Limit:
    """A level, and which side of it is forbidden: both for an equality."""

    level: float
    name: str
    forbidden: Literal["above", "below", "both"] | None = None

    @property
    def variable(self) -> str:
        return "--bad" if self.forbidden else "--ink"


@dataclasses.dataclass(frozen=True)
class Plot:
    """One drawing. title and note are HTML (escaped by who writes them), names are plain text."""

    title: str
    note: str
    about: str  # for who cannot see it, plain text
    lines: tuple[Line, ...]
    bands: tuple[Band, ...] = ()
    limits: tuple[Limit, ...] = ()
    scale: Scale = "auto"
    legend: bool = True


# thinning


def thinned(values: np.ndarray, most: int) -> np.ndarray:
    """Places of at most about `most` finite values that keep first, last, and the extremes of every stretch."""
    places = np.flatnonzero(_drawable(values))
    if places.size <= most:
        return places
    kept = [places[[0, -1]]]
    for stretch in np.array_split(places, max(1, most // 2)):
        there = values[stretch]
        kept.append(stretch[[there.argmin(), there.argmax()]])
    return np.unique(np.concatenate(kept))


def _thinned_band(band: Band, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places, lows and highs: of every stretch its last place and its extremes."""
    places = np.flatnonzero(_drawable(band.low) & _drawable(band.high))
    if places.size <= most:
        return places, band.low[places], band.high[places]
    stretches = np.array_split(places, most)
    low, high = (np.array([f(side[s]) for s in stretches]) for f, side in ((np.min, band.low), (np.max, band.high)))
    return np.array([places[0], *(s[-1] for s in stretches[1:])]), low, high


def _drawable(values: np.ndarray) -> np.ndarray:
    return np.isfinite(values) & (np.abs(np.where(np.isfinite(values), values, 0.0)) < LARGEST)


# one plot in the page


def figure(plot: Plot, rounds: np.ndarray, salt: str, points: int) -> str:
    """A <figure>: caption, drawing, legend. `points` bounds what a line is drawn with."""
    caption = f"<figcaption><b>{plot.title}</b> <span>{plot.note}</span></figcaption>"
    if not any(_drawable(line.values).any() for line in plot.lines):
        return f'<figure>{caption}<p class="none">No finite number to draw.</p><div></div></figure>'
    svg, beyond, scale = _draw(plot, rounds, salt, points)
    about = markup.text(f"{plot.about} {_told(plot)}".strip())
    opening = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{about}"><title>{about}</title>'
    entries = [_entry(_swatch(line), line.name) for line in plot.lines] if plot.legend else []
    if plot.legend:
        entries += [_entry('<rect width="24" height="10" class="band"/>', band.name) for band in plot.bands]
    for limit in _distinct(plot.limits):
        where = " (beyond this axis)" if limit in beyond else ""
        swatch = f'<path d="M0 5h24" style="stroke:var({limit.variable})"/>'
        entries.append(_entry(swatch, f"{limit.name} {markup.number(limit.level)}{where}"))
    notes = []
    if plot.scale == "auto" and scale in AXES:
        notes.append(AXES[scale])
    for line in plot.lines[:4]:
        odd = np.flatnonzero(~_drawable(line.values))
        if odd.size and line.at is None:
            which = "Not" if len(plot.lines) == 1 else f"{markup.name(line.name)}: not"
            first = f"first in round {int(rounds[odd[0]]):,}"
            notes.append(f"{which} finite in {markup.plural(odd.size, 'round')}, {first}.")
    legend = f'<ul class="legend">{"".join(entries)}</ul>' if entries else ""
    extra = f'<p class="none">{" ".join(notes)}</p>' if notes else ""
    return f"<figure>{caption}{opening}{svg}</svg><div>{legend}{extra}</div></figure>"


def legend_of(lines: Sequence[Line]) -> str:
    """The legend that several plots share."""
    return f'<ul class="legend">{"".join(_entry(_swatch(line), line.name) for line in lines)}</ul>'


def _entry(swatch: str, name: str) -> str:
    return f'<li><svg class="swatch" viewBox="0 0 24 10" aria-hidden="true">{swatch}</svg>{markup.name(name)}</li>'


def _swatch(line: Line) -> str:
    dashes = f' stroke-dasharray="{" ".join(f"{d:g}" for d in line.dashes)}"' if line.dashes else ""
    return f'<path d="M0 5h24" style="stroke:var({line.variable})"{dashes}/>'


def _distinct(limits: Sequence[Limit]) -> list[Limit]:
    return list({limit.level: limit for limit in limits}.values())


def _told(plot: Plot) -> str:
    """The plot in words: where each line begins and ends."""
    words = []
    for line in plot.lines[:6]:
        there = line.values[_drawable(line.values)]
        if there.size:
            words.append(f"{line.name}: from {markup.number(there[0], 3)} to {markup.number(there[-1], 3)}")
    return "; ".join(words) + "."


# the drawing


def _draw(plot: Plot, rounds: np.ndarray, salt: str, points: int) -> tuple[str, list[Limit], str]:
    """The inside of the <svg>, the limits that are too far away to be shown, and the scale of the axis."""
    import matplotlib
    from matplotlib.figure import Figure

    ink = STAND_INS["--muted"]
    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": salt,
        "font.size": FONT,
        "font.sans-serif": ["DejaVu Sans"],
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.edgecolor": STAND_INS["--rule"],
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.spines.left": False,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.formatter.limits": (-4, 5),
        "grid.color": STAND_INS["--rule"],
        "grid.linewidth": 0.6,
        "lines.scale_dashes": False,
        "xtick.color": ink,
        "ytick.color": ink,
        **{f"{axis}tick.{which}.size": 0 for axis in "xy" for which in ("major", "minor")},
    }
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # the page does not depend on anybody's settings
        matplotlib.rcParams.update(settings)
        drawing = Figure(figsize=(WIDTH / 72, HEIGHT / 72))
        drawing.patch.set_visible(False)
        axes = drawing.add_subplot()
        axes.patch.set_visible(False)
        beyond, scale = _fill(axes, plot, rounds, points)
        drawing.subplots_adjust(*_frame(axes))
        buffer = io.StringIO()
        drawing.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return _lean(buffer.getvalue()), beyond, scale


def _fill(axes: Any, plot: Plot, rounds: np.ndarray, points: int) -> tuple[list[Limit], str]:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    lines, bands = [], []
    for line in plot.lines:
        places = thinned(line.values, points)
        x = rounds[places if line.at is None else line.at[places]]
        lines.append((line, x, line.values[places].astype(float)))
    for band in plot.bands:
        places, low, high = _thinned_band(band, points)
        bands.append((rounds[places], low, high))
    everything = np.concatenate([*(y for _, _, y in lines), *(side for _, *sides in bands for side in sides)])
    beyond = [limit for limit in plot.limits if plot.scale != "log" and not _near(limit.level, everything)]
    near = [limit for limit in plot.limits if limit not in beyond and math.isfinite(limit.level)]
    later = [y[y.size // 2 :] for _, _, y in lines] + [side[side.size // 2 :] for _, *both in bands for side in both]
    levels = np.array([limit.level for limit in near])
    floor = _choose_axis(axes, plot.scale, everything, np.concatenate([*later, levels]), levels)

    for x, low, high in bands:
        low, high = np.maximum(low, floor), np.maximum(high, floor)
        axes.fill_between(x, low, high, color=STAND_INS["--muted"], alpha=0.22, linewidth=0)
    for line, x, y in lines:
        style = {"linestyle": (0, line.dashes)} if line.dashes and x.size > 1 else {}
        marker = {"marker": "o", "markersize": 3.4} if rounds.size <= FEW or x.size == 1 else {}
        height = np.maximum(y, floor)
        rough = _rough(np.log10(height) if axes.get_yscale() == "log" else height)
        width = 1.3 if line.colour is None else 1.0 if rough else 1.7
        colour, alpha = STAND_INS[line.variable], 0.8 if rough else None
        axes.plot(x, height, color=colour, alpha=alpha, linewidth=width, zorder=3, **style, **marker)
    bottom, top = axes.get_ylim()
    for limit in near:
        axes.axhline(limit.level, color=STAND_INS[limit.variable], linewidth=1.0, zorder=2)
        if limit.forbidden in ("above", "below"):
            far = top if limit.forbidden == "above" else bottom
            axes.axhspan(limit.level, far, color=STAND_INS["--bad"], alpha=0.07, linewidth=0, zorder=0)
    axes.set_ylim(bottom, top)
    axes.set_xlabel("round")
    first, last = float(rounds[0]), float(rounds[-1])
    space = 0.5 if first == last else 0.015 * (last - first)
    axes.set_xlim(first - space, last + space)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}" if first <= x <= last else ""))
    return beyond, axes.get_yscale()


def _frame(axes: Any) -> tuple[float, float, float, float]:
    """Left, bottom, right and top of the axes, by the longest label: half the time of a general layout."""
    formatter = axes.yaxis.get_major_formatter()
    longest = max(map(len, formatter.format_ticks(axes.yaxis.get_majorticklocs())), default=1)
    above = 20 if formatter.get_offset() else 8
    return (0.62 * FONT * longest + 8) / WIDTH, 38 / HEIGHT, 1 - 10 / WIDTH, 1 - above / HEIGHT


def _rough(y: np.ndarray) -> bool:
    """Whether a line goes up and down many times its height; it is drawn thinner."""
    return y.size > 2 and bool(np.abs(np.diff(y)).sum() > 15 * np.ptp(y))


def _near(level: float, values: np.ndarray) -> bool:
    """Whether showing the level leaves the values at least a fifth of the axis."""
    low, high = values.min(), values.max()
    distance = max(low - level, level - high, 0.0)
    return distance <= 4 * (high - low) or high - low == 0 or low * high <= 0


def _choose_axis(axes: Any, scale: Scale, values: np.ndarray, later: np.ndarray, levels: np.ndarray) -> float:
    """Set the y axis and return what lower values are lifted to (zero on a logarithmic axis has a tick of its own)."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

    shown = np.concatenate([values, levels, [0.0] if scale == "linear" else []])
    low, high = float(shown.min()), float(shown.max())
    settled, largest = float(np.abs(later).max()), max(-low, high)
    if scale == "log" or (scale == "auto" and low > SMALLEST and high / low > WILD):
        positive = shown[shown > SMALLEST]
        lowest, highest = (positive.min(), positive.max()) if positive.size else (1e-6, 1.0)
        bottom, top = math.floor(math.log10(lowest)), math.ceil(math.log10(highest))
        top = max(top, bottom + 2)
        zero = bool((values <= SMALLEST).any())
        stride = max(1, math.ceil((top - bottom) / 5))
        exponents = list(range(top, bottom - 1, -stride))[::-1]
        bottom = exponents[0] - (stride if zero else 0) if zero else bottom
        ticks = {10.0**e: markup.power_of_ten(e) for e in exponents}
        ticks |= {10.0**bottom: "0"} if zero else {}
        axes.set_yscale("log")
        axes.set_ylim(10.0 ** (bottom - 0.06 * (top - bottom)), 10.0 ** (top + 0.02 * (top - bottom)))
        floor = 10.0**bottom if zero else -math.inf
    elif scale == "auto" and largest > WILD * settled > 1e-9 * largest:  # what settles at nothing needs no logarithm
        inside = math.ceil(math.log10(settled))
        outside = max(math.ceil(math.log10(largest)), inside + 1)
        stride = max(1, math.ceil((outside - inside) / 3))
        exponents = range(inside, outside + 1, stride)
        ticks = {0.0: "0"} | {10.0**e: markup.power_of_ten(e) for e in exponents}
        ticks |= {-(10.0**e): "−" + markup.power_of_ten(e) for e in exponents} if low < -0.05 * 10.0**inside else {}
        axes.set_yscale("symlog", linthresh=10.0**inside)
        axes.set_ylim(low * 1.5 if low < 0 else -0.05 * 10.0**inside, high * 1.5 if high > 0 else 0.05 * 10.0**inside)
        floor = -math.inf
    else:
        space = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
        axes.set_ylim(low - space, high + space)
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        axes.ticklabel_format(axis="y", useOffset=high - low < 1e-6 * max(-low, high))
        return -math.inf
    axes.yaxis.set_major_locator(FixedLocator(list(ticks)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: next((t for v, t in ticks.items() if v == y), "")))
    axes.yaxis.set_minor_locator(NullLocator())
    return floor


def _lean(svg: str) -> str:
    """Without prologue, fonts, unused ids and digits that no screen shows; colours as the page's variables."""
    inside = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")]
    inside = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", inside, count=1, flags=re.S)
    inside = re.sub(r"<metadata>.*?</metadata>", "", inside, count=1, flags=re.S)
    used = set(re.findall(r'(?:url\(#|href="#)([\w.]+)', inside))
    inside = re.sub(r' id="([^"]*)"', lambda m: m[0] if m[1] in used else "", inside)
    inside = inside.replace("xlink:href", "href")
    inside = re.sub(r"font-size: [0-9.]+px; font-family: [^;\"]*;? ?", "", inside)
    inside = re.sub(r' transform="rotate\(-0 [^"]*"', "", inside)
    inside = re.sub(r'(?<= d=")[^"]*|(?<= [xy]=")[^"]*', lambda m: _rounded(m[0]), inside)
    for name, colour in STAND_INS.items():
        inside = inside.replace(colour, f"var({name})")
    inside = re.sub(r">\s+<", "><", inside)
    return re.sub(r"(<g>)(<path[^>]*/>|<text[^>]*>[^<]*</text>)(</g>)", r"\2", inside).strip()


def _rounded(path: str) -> str:
    shorter = re.sub(r"-?\d+\.\d+", lambda m: f"{float(m[0]):.1f}".removesuffix(".0"), path)
    return re.sub(r"\s*([A-Za-z])\s*", r"\1", shorter).strip()
