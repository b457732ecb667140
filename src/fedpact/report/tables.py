"""The certificate and the constraints, as the page shows them: gauges, strips and tables."""

import math
from collections.abc import Sequence

import numpy as np

from fedpact.certificate import ALL_ROWS, SERVER, Certificate, ConstraintReport
from fedpact.report import markup

MOST_ROWS = 4000  # of all tables together
FIRST_ROWS = 10  # of a table, before the rest is folded
FIRST_CONSTRAINTS = 20
OPEN_TABLES = 3  # with more constraints than this, their tables are folded
STRIP = (150, 18)  # width and height

MEANINGS = {
    "Stationarity": "the largest component of the Lagrangian's gradient: how much slope is left to follow",
    "Feasibility": "the largest amount by which any constraint is broken, at any party",
    "Complementarity": "the farthest from its bound that a constraint with a multiplier above 0 is",
}


# the certificate


def certificate_gauges(certificate: Certificate, tolerance: float | None) -> str:
    """The three numbers as bars on one logarithmic scale, with the tolerance across."""
    numbers = (certificate.stationarity, certificate.feasibility, certificate.complementarity)
    shown = [x for x in (*numbers, tolerance or 0.0) if math.isfinite(x) and x > 1e-30] or [1e-4]
    low = math.floor(math.log10(min(shown)) - 0.5)
    high = max(math.ceil(math.log10(max(shown)) + 0.5), low + 4)

    def place(x: float) -> float:
        if not math.isfinite(x):
            return 100.0
        return 100.0 * min(max((math.log10(x) - low) / (high - low), 0.0), 1.0) if x > 0 else 0.0

    mark = "" if tolerance is None else f'<i class="mark" style="left:{place(tolerance):.1f}%"></i>'
    items = []
    for (label, meaning), x in zip(MEANINGS.items(), numbers, strict=True):
        kind, words = _against(x, tolerance)
        told = f"{label} {markup.number(x, 3)}, {words.lower()}"
        items.append(
            f'<li class="{kind}"><span class="label"><b>{label}</b> <small>{meaning}</small></span>'
            f'<span class="track" role="img" aria-label="{told}">'
            f'<i class="bar" style="width:{place(x):.1f}%"></i>{mark}</span>'
            f'<span class="reading"><b>{markup.number(x, 3)}</b> '
            f'<span class="verdict">{SIGNS[kind]} {words}</span></span></li>'
        )
    stride = max(1, math.ceil((high - low) / 6))
    ticks = "".join(
        f'<span style="left:{100 * (e - low) / (high - low):.1f}%">{markup.power_of_ten(e)}</span>'
        for e in range(low, high + 1, stride)
    )
    scale = f'<div class="scale" aria-hidden="true"><div>{ticks}</div></div>'
    return f'<ul class="gauges">{"".join(items)}</ul>{scale}'


def _against(x: float, tolerance: float | None) -> tuple[str, str]:
    if math.isnan(x) or x == math.inf:
        return "bad", "Not finite"
    if tolerance is None:
        return "plain", "Measured"
    return ("good", "Within tolerance") if x <= tolerance else ("bad", "Above tolerance")


# the constraints

SIGNS = {"good": "✓", "edge": "◆", "bad": "✕", "plain": "·"}


def verdict(report: ConstraintReport, at: int, tolerance: float) -> tuple[str, str]:
    """How a constraint stands at one holder: (kind, words)."""
    room, value = report.margins[at], report.values[at]
    if math.isnan(room) or math.isnan(value):
        return "bad", "not a number"
    if room < -tolerance:
        return "bad", "broken"
    if report.bound.startswith("=="):
        return "good", "holds"
    return ("edge", "at the limit") if room <= tolerance else ("good", "holds")


def constraint_tables(reports: Sequence[ConstraintReport], tolerance: float) -> str:
    """All constraints at a glance, then each one at its holders."""
    if not reports:
        return "<p>The problem has no constraints.</p>"
    alone = len(reports) == 1
    many = [r for r in reports if len(r.holders) > 1]
    out = []
    if not (alone and many):
        rows = [_glance(r, tolerance) for r in sorted(reports, key=_room)]
        head = (
            '<thead><tr><th>Constraint</th><th></th><th class="left">Worst at</th><th>Value</th><th>Margin</th>'
            f'<th>Multiplier</th><th class="left">{"Room at every party" if many else ""}</th></tr></thead>'
        )
        out.append(_folded("All constraints, the tightest first", head, rows, FIRST_CONSTRAINTS))
    most = max(FIRST_ROWS, MOST_ROWS // max(len(many), 1))
    each = []
    for report in sorted(many, key=_room):
        bound = "" if _named_by_bound(report) else f"{markup.bound(report.bound)}, "
        heading = f"{markup.name(report.name)} <span>{bound}{_held(report)}</span>"
        table = _holders(report, tolerance, most)
        if len(many) <= OPEN_TABLES:
            strip = f"<p class='wide'>{_strip(report, tolerance, 'Room at every party: ')}</p>" if alone else ""
            each.append(f"<h3>{heading}</h3>{strip}{table}")
        else:
            each.append(f"<details><summary>{heading}</summary>{table}</details>")
    if len(each) > FIRST_ROWS:
        return f"{''.join(out)}<details><summary>Party by party</summary>{''.join(each)}</details>"
    return "".join(out + each)


def _held(report: ConstraintReport) -> str:
    if report.holders == (SERVER,):
        return "on the server's rows"
    if report.holders == (ALL_ROWS,):
        return "over all rows together"
    return f"at each of {markup.plural(len(report.holders), 'party')}"


def _named_by_bound(report: ConstraintReport) -> bool:
    """A constraint that nobody named is called by its formula, which ends with the bound."""
    return report.name.endswith(report.bound)


def _room(report: ConstraintReport) -> float:
    return -math.inf if any(map(math.isnan, report.margins)) else min(report.margins, default=math.inf)


def _glance(report: ConstraintReport, tolerance: float) -> str:
    if not report.holders:
        return f'<tr><th scope="row">{markup.name(report.name)}</th><td colspan="6">held by nobody</td></tr>'
    at = report.worst
    strip = f"<td>{_strip(report, tolerance) if len(report.holders) > 1 else ''}</td>"
    bound = "" if _named_by_bound(report) else f" <small>{markup.bound(report.bound)}</small>"
    return (
        f'<tr><th scope="row">{markup.name(report.name)}{bound}</th>'
        f'{_verdict(report, at, tolerance)}<td class="left">{markup.name(report.holders[at])}</td>'
        f"{_numbers(report, at)}{strip}</tr>"
    )


def _holders(report: ConstraintReport, tolerance: float, most: int) -> str:
    """The holders of one constraint, least room first."""
    order = sorted(range(len(report.holders)), key=lambda k: _ascending(report.margins[k]))
    rows = [
        f'<tr><th scope="row">{markup.name(report.holders[k])}</th>'
        f"{_verdict(report, k, tolerance)}{_numbers(report, k)}</tr>"
        for k in order[:most]
    ]
    value = f"Value, {markup.bound(report.bound)}"
    head = f"<thead><tr><th>Party</th><th></th><th>{value}</th><th>Margin</th><th>Multiplier</th></tr></thead>"
    out = _folded(f"{report.name}, least room first", head, rows, FIRST_ROWS)
    if order[most:]:
        left = [report.margins[k] for k in order[most:]]
        between = f"margins from {markup.number(min(left), 3)} to {markup.number(max(left), 3)}"
        out += f'<p class="none">{markup.plural(len(left), "party")} more, with {between}, are left out here.</p>'
    return out


def _ascending(margin: float) -> float:
    return -math.inf if math.isnan(margin) else margin


def _numbers(report: ConstraintReport, at: int) -> str:
    value, room, price = report.values[at], report.margins[at], report.multipliers[at]
    return f"<td>{markup.number(value)}</td><td>{markup.number(room, 3)}</td><td>{markup.number(price, 4)}</td>"


def _verdict(report: ConstraintReport, at: int, tolerance: float) -> str:
    kind, words = verdict(report, at, tolerance)
    return f'<td class="left {kind}"><span class="verdict">{SIGNS[kind]} {words}</span></td>'


def _strip(report: ConstraintReport, tolerance: float, before: str = "") -> str:
    """Every holder as a tick on a line of margins: left of the limit is broken. Each strip has its own scale."""
    width, height = STRIP
    margins = np.array([m for m in report.margins if math.isfinite(m)])
    if not margins.size:
        return ""
    low, high = min(float(margins.min()), 0.0), max(float(margins.max()), 0.0)
    spread = max(high - low, 10 * tolerance, 1e-12)
    low, high = low - 0.12 * spread, max(high, low + spread) + 0.04 * spread
    places = np.unique(np.round(2 * width * (margins - low) / (high - low)) / 2)
    limit = width * (0.0 - low) / (high - low)
    ticks = "".join(f"M{x:g} 4v{height - 8}" for x in places)
    told = f"margins from {markup.number(float(margins.min()), 3)} to {markup.number(float(margins.max()), 3)}"
    return (
        f'{before}<svg class="strip" viewBox="0 0 {width} {height}" role="img" aria-label="{told}">'
        f'<title>{told}</title><rect class="broken" width="{limit:.1f}" height="{height}"/>'
        f'<path class="axis" d="M0 {height / 2:g}h{width}"/><path class="limit" d="M{limit:.1f} 0v{height}"/>'
        f'<path class="ticks" d="{ticks}"/></svg>'
    )


def _folded(label: str, head: str, rows: Sequence[str], first: int) -> str:
    """A table of which the first rows are seen and the rest is folded."""
    first = first if len(rows) > first + 2 else len(rows)
    table = _scrolled(label, f"{head}<tbody>{''.join(rows[:first])}</tbody>")
    if not rows[first:]:
        return table
    rest = _scrolled(f"{label}, continued", f"{head}<tbody>{''.join(rows[first:])}</tbody>")
    return f"{table}<details><summary>{len(rows) - first:,} with more room</summary>{rest}</details>"


def _scrolled(label: str, table: str) -> str:
    """A table that scrolls by itself where the page is narrow."""
    about = f'role="region" tabindex="0" aria-label="{markup.text(label)}"'
    return f'<div class="scrolled" {about}><table>{table}</table></div>'
