"""Plots over the rounds as SVG inside the page: matplotlib draws axes and lines, the page writes captions and legends.

No name reaches matplotlib, so no name can break a drawing, and legends wrap with the page. Colours are drawn as stand-ins
and handed over to the page's CSS variables, which know light from dark.
"""

import dataclasses
import io
import math
import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from fedpact.report import markup

WIDTH, HEIGHT = 420, 236
LARGEST = 1e100  # beyond, a number is drawn no better than infinity
SMALLEST = 1e-30  # below, a number is drawn as zero on a logarithmic axis
FEW = 25  # up to this many rounds each one has a marker
WILD = 60.0  # when the whole range is this many times that of the second half, the axis is logarithmic

COLOURS = tuple(f"--line-{k}" for k in range(1, 7))
DASHES = ((), (6, 2.5), (1.5, 1.5), (8, 2, 1.5, 2), (3.5, 1.5), (10, 3))
STAND_INS = {name: f"#01{k:02x}fe" for k, name in enumerate((*COLOURS, "--ink", "--muted", "--rule", "--bad"), start=1)}

Scale = Literal["auto", "log", "linear"]


@dataclasses.dataclass(frozen=True)
class Line:
    """A number per round. colour: a place in COLOURS, None for ink. at: the rounds' places, where not every round is there."""

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
    """A level, and which side of it is forbidden."""

    level: float
    name: str
    forbidden: Literal["above", "below"] | None = None


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
        return f'<figure>{caption}<p class="none">No finite number to draw.</p></figure>'
    svg, beyond, logarithmic = _draw(plot, rounds, salt, points)
    about = markup.text(f"{plot.about} {_told(plot)}".strip())
    opening = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{about}"><title>{about}</title>'
    entries = [_entry(_swatch(line), line.name) for line in plot.lines] if plot.legend else []
    if plot.legend:
        entries += [_entry('<rect width="24" height="10" class="band"/>', band.name) for band in plot.bands]
    for limit in _distinct(plot.limits):
        where = " (beyond this axis)" if limit in beyond else ""
        entries.append(_entry('<path d="M0 5h24" class="limit"/>', f"{limit.name} {markup.number(limit.level)}{where}"))
    notes = []
    if logarithmic and plot.scale == "auto":
        notes.append("The axis is logarithmic.")
    for line in plot.lines[:4]:
        odd = np.flatnonzero(~_drawable(line.values))
        if odd.size and line.at is None:
            which = "" if len(plot.lines) == 1 else f"{markup.text(line.name)}: "
            first = f"first in round {int(rounds[odd[0]]):,}"
            notes.append(f"{which}not finite in {markup.plural(odd.size, 'round')}, {first}.")
    legend = f'<ul class="legend">{"".join(entries)}</ul>' if entries else ""
    extra = f'<p class="none">{" ".join(notes)}</p>' if notes else ""
    return f"<figure>{caption}{opening}{svg}</svg>{legend}{extra}</figure>"


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


def _draw(plot: Plot, rounds: np.ndarray, salt: str, points: int) -> tuple[str, list[Limit], bool]:
    """The inside of the <svg>, the limits that are too far away to be shown, whether the axis is logarithmic."""
    import matplotlib
    from matplotlib.figure import Figure

    ink = STAND_INS["--muted"]
    settings = {
        "svg.fonttype": "none",
        "svg.hashsalt": salt,
        "font.size": 11,
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
        drawing = Figure(figsize=(WIDTH / 72, HEIGHT / 72), layout="constrained")
        drawing.patch.set_visible(False)
        axes = drawing.add_subplot()
        axes.patch.set_visible(False)
        beyond, logarithmic = _fill(axes, plot, rounds, points)
        buffer = io.StringIO()
        drawing.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return _lean(buffer.getvalue()), beyond, logarithmic


def _fill(axes: Any, plot: Plot, rounds: np.ndarray, points: int) -> tuple[list[Limit], bool]:
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
        marker = {"marker": "o", "markersize": 3.4} if x.size <= FEW else {}
        width = 1.5 if line.colour is not None else 1.2
        axes.plot(
            x, np.maximum(y, floor), color=STAND_INS[line.variable], linewidth=width, zorder=3, **style, **marker
        )
    bottom, top = axes.get_ylim()
    for limit in near:
        axes.axhline(limit.level, color=STAND_INS["--bad"], linewidth=1.1, linestyle=(0, (5, 3)), zorder=2)
        if limit.forbidden:
            far = top if limit.forbidden == "above" else bottom
            axes.axhspan(limit.level, far, color=STAND_INS["--bad"], alpha=0.07, linewidth=0, zorder=0)
    axes.set_ylim(bottom, top)
    axes.set_xlabel("round")
    first, last = float(rounds[0]), float(rounds[-1])
    space = 0.5 if first == last else 0.015 * (last - first)
    axes.set_xlim(first - space, last + space)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}" if first <= x <= last else ""))
    return beyond, axes.get_yscale() != "linear"


def _near(level: float, values: np.ndarray) -> bool:
    """Whether showing the level leaves the values at least a fifth of the axis."""
    low, high = values.min(), values.max()
    distance = max(low - level, level - high, 0.0)
    return distance <= 4 * (high - low) or high - low == 0 or low * high <= 0


def _choose_axis(axes: Any, scale: Scale, values: np.ndarray, later: np.ndarray, levels: np.ndarray) -> float:
    """Set the y axis and return what lower values are lifted to (zero on a logarithmic axis has a tick of its own)."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

    shown = np.concatenate([values, levels])
    low, high = float(shown.min()), float(shown.max())
    wild = high - low > WILD * max(float(np.ptp(later)), 1e-9 * abs(high), 1e-300)
    if scale == "log" or (scale == "auto" and low > 0 and high / low > WILD and wild):
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
    elif scale == "auto" and wild:
        inside = math.ceil(math.log10(max(float(np.abs(later).max()), 1e-12)))
        outside = max(math.ceil(math.log10(max(abs(low), abs(high)))), inside + 1)
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
        axes.yaxis.set_major_locator(MaxNLocator(5))
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
    inside = re.sub(r"font-size: 11px; font-family: [^;\"]*;? ?", "", inside)
    inside = re.sub(r' transform="rotate\(-0 [^"]*"', "", inside)
    inside = re.sub(r'(?<= d=")[^"]*|(?<= [xy]=")[^"]*', lambda m: _rounded(m[0]), inside)
    for name, colour in STAND_INS.items():
        inside = inside.replace(colour, f"var({name})")
    inside = re.sub(r">\s+<", "><", inside)
    return re.sub(r"(<g>)(<path[^>]*/>|<text[^>]*>[^<]*</text>)(</g>)", r"\2", inside).strip()


def _rounded(path: str) -> str:
    shorter = re.sub(r"-?\d+\.\d+", lambda m: f"{float(m[0]):.1f}".removesuffix(".0"), path)
    return re.sub(r"\s*([A-Za-z])\s*", r"\1", shorter).strip()
