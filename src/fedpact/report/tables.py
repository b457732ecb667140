"""The certificate as gauges, and the constraints as tables, in HTML."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fedpact.certificate import Certificate, ConstraintReport
from fedpact.problem.units import Units
from fedpact.report import markup
from fedpact.report.promised import COUNTED, RATES, SMOOTH, at_limit, kind_of, looser, place_of
from fedpact.tolerance import Tolerance

MOST_ROWS = 4000  # of all tables together
FIRST_ROWS = 10  # of a table; further rows are collapsed
FIRST_CONSTRAINTS = 20
OPEN_TABLES = 3  # with more constraints than this, their tables are collapsed
STRIP_WIDTH, STRIP_HEIGHT = 150, 18

HIDDEN = "hidden"  # in place of a number
SIGNS = {"good": "✓", "edge": "◆", "bad": "✕"}

MEANINGS = {
    "Stationarity": "the largest component of the gradient of the Lagrangian",
    "Feasibility": "the largest violation of a constraint, at any party",
    "Complementarity": "the largest distance from its bound of a constraint with a multiplier above 0",
}


def certificate_gauges(certificate: Certificate, tolerance: Tolerance) -> str:
    """The three numbers as bars on one logarithmic scale, each with a line at its tolerance."""
    numbers = (certificate.stationarity, certificate.feasibility, certificate.complementarity)
    shown = [x for x in (*numbers, *tolerance) if 1e-30 < x < math.inf]
    low = math.floor(math.log10(min(shown)) - 0.5)
    high = max(math.ceil(math.log10(max(shown)) + 0.5), low + 4)

    def place(x: float) -> str:
        part = (math.log10(max(x, 1e-300)) - low) / (high - low) if math.isfinite(x) else 1.0
        return f"{100 * min(max(part, 0.0), 1.0):.1f}%"

    items = []
    goals = (tolerance.stationarity, tolerance.feasibility, tolerance.feasibility)
    for (label, meaning), x, goal in zip(MEANINGS.items(), numbers, goals, strict=True):
        kind = "good" if x <= goal else "bad"
        words = f"{'Within' if x <= goal else 'Above'} tolerance" if math.isfinite(x) else "Not finite"
        items.append(
            f'<li class="{kind}"><span class="label"><b>{label}</b> <small>{meaning}</small></span>'
            f'<span class="track" role="img" aria-label="{label} {markup.number(x, 2)}, {words.lower()}">'
            f'<i class="bar" style="width:{place(x)}"></i><i class="mark" style="left:{place(goal)}"></i></span>'
            f'<span class="reading"><b>{markup.number(x, 2)}</b> '
            f'<span class="verdict">{SIGNS[kind]} {words}</span></span></li>'
        )
    ticks = "".join(
        f'<span style="left:{place(10.0**e)}">{markup.power_of_ten(e)}</span>'
        for e in range(low, high + 1, math.ceil((high - low) / 6))
    )
    return (
        "<p>Measured after the run by one more exchange with the parties, from the parameters and multipliers "
        "alone, independently of the method. All three numbers are 0 at an exact optimum. "
        f"{_in_words(certificate.units)} The upright line is the tolerance, {markup.text(str(tolerance))}. "
        f'The scale is logarithmic.</p><ul class="gauges">{"".join(items)}</ul>'
        f'<div class="scale" aria-hidden="true"><div>{ticks}</div></div>'
    )


def _in_words(units: Units | None) -> str:
    """What the certificate's numbers are relative to."""
    if units is None:
        return "They are in the units of the problem's own objective and constraints."
    return (
        f"They are relative to an objective of {markup.number(float(units.objective), 3)}, and to units of each parameter and "
        "each constraint that were found at the start, so that the units of columns do not matter."
    )


def constraint_tables(certificate: Certificate, tolerance: float, kinds: Mapping[str, str], converged: bool) -> str:
    """A table of all constraints, what looser bounds would buy, then a table of each constraint at its holders."""
    reports = certificate.constraints
    if not reports:
        return "<p>The problem has no constraints.</p>"
    out = []
    many = [r for r in reports if len(r.holders) > 1]
    alone = len(many) == len(reports) == 1
    if not alone:
        head = (
            '<th>Constraint</th><th></th><th>Value</th><th class="left">Worst at</th><th>Margin</th><th>Multiplier</th>'
            f'<th class="left">{"Margins of all parties" if many else ""}</th>'
        )
        rows = [_glance(report, tolerance, kinds) for report in reports]
        out.append(folded("All constraints, smallest margin first", head, rows, FIRST_CONSTRAINTS, kind="cards"))
    each = []
    for report in many:
        said = filter(
            None, (_bound(report), kind_of(report, kinds), f"at each of {markup.plural(len(report.holders), 'party')}")
        )
        heading = f"{markup.name(report.name)} <span>{', '.join(said)}</span>"
        table = _holders(report, tolerance, max(FIRST_ROWS, MOST_ROWS // len(many)))
        if len(many) <= OPEN_TABLES:
            strip = f'<p class="wide">Margins of all parties: {_strip(report, tolerance)}</p>' if alone else ""
            each.append(f"<h3>{heading}</h3>{strip}{table}")
        else:
            each.append(f"<details><summary>{heading}</summary>{table}</details>")
    if len(each) > FIRST_ROWS:
        each = ["<details><summary>Party by party</summary>", *each, "</details>"]
    bought = _looser(certificate, kinds) if converged else ""
    return "".join([*out, bought, *each, _legend(reports, kinds, tolerance)])


def _looser(certificate: Certificate, kinds: Mapping[str, str]) -> str:
    """What looser bounds would buy."""
    items = [
        f"<li><b>{markup.name(report.name)}</b>: {markup.text(each)}.</li>"
        for report in certificate.constraints
        for each in looser(report, certificate.objective, kind_of(report, kinds) in RATES)
    ]
    shown, rest = items[:FIRST_CONSTRAINTS], items[FIRST_CONSTRAINTS:]
    if not shown:
        return ""
    further = f"<details><summary>{len(rest)} more</summary><ul>{''.join(rest)}</ul></details>" if rest else ""
    return f'<div class="bought"><ul>{"".join(shown)}</ul>{further}</div>'


def _legend(reports: Sequence[ConstraintReport], kinds: Mapping[str, str], tolerance: float) -> str:
    """What the words of the tables mean."""
    out = (
        "<p><b>Margin</b> is the distance to the bound, negative where it is violated; verdicts are to the "
        f"tolerance, {markup.number(tolerance)}. <b>Multiplier</b> is the price of a constraint: by how much the "
        "objective would fall per unit of a looser bound, 0 where the bound is not active, of either sign for an equality.</p>"
    )
    if any(report.is_counted for report in reports):
        out += (
            "<p><b>Counted</b> values are shares of rows as they are decided, and are compared with the bound exactly. "
            "They move from row to row, so where one is at the limit it may be a few rows inside.</p>"
        )
    if any(report.hidden for report in reports):
        out += (
            "<p><b>Hidden</b> is what parties keep to themselves: sums over them are secure. Of a constraint at each party "
            "the server knows the sum of the multipliers, and a power of two that no violation is above.</p>"
        )
    if any(kind_of(report, kinds) == SMOOTH for report in reports):
        out += "<p>A <b>smooth stand-in of a rate</b> is no share of rows: the share that is decided may be another one.</p>"
    return out


def stand_in_table(certificate: Certificate) -> str:
    """The smooth stand-ins beside what was counted, collapsed."""
    rows = [
        f'<tr><th scope="row">{markup.name(report.name)} <small>{_bound(report)}</small></th>'
        f'<td class="left">{markup.name(holder)}</td><td>{markup.number(value)}</td><td>{markup.number(smooth)}</td></tr>'
        for report in certificate.constraints
        for holder, value, smooth in zip(report.holders, report.values, report.stand_ins or (), strict=False)
    ]
    if not rows:
        return ""
    head = '<th>Constraint</th><th class="left">At</th><th>Counted</th><th>Smooth stand-in</th>'
    table = folded("Counted values and smooth stand-ins", head, rows[:MOST_ROWS], MOST_ROWS)
    return f"<details><summary>The stand-ins, which are no rates</summary>{table}</details>"


def _bound(report: ConstraintReport) -> str:
    """The bound; empty for a constraint without a name, whose formula ends with the bound."""
    return "" if report.name.endswith(report.bound) else markup.bound(report.bound)


def _glance(report: ConstraintReport, tolerance: float, kinds: Mapping[str, str]) -> str:
    at = report.worst
    label, where = ("Worst at", report.holders[at]) if len(report.holders) > 1 else ("Where", place_of(report))
    said = ", ".join(filter(None, (_bound(report), kind_of(report, kinds))))
    return (
        f'<tr><th scope="row">{markup.name(report.name)} <small>{said}</small></th>'
        f'{_verdict(report, at, tolerance)}<td data-label="Value">{_value(report, at)}</td>'
        f'<td class="left" data-label="{label}">{markup.name(where)}</td>'
        f"{_prices(report, at)}<td>{_strip(report, tolerance) if len(report.holders) > 1 else ''}</td></tr>"
    )


def _holders(report: ConstraintReport, tolerance: float, most: int) -> str:
    """The holders of one constraint, smallest margin first."""
    order = np.nan_to_num(report.margins, nan=-np.inf).argsort(kind="stable")
    rows = [
        f'<tr><th scope="row">{markup.name(report.holders[k])}</th>'
        f"{_verdict(report, k, tolerance)}<td>{_value(report, k)}</td>{_prices(report, k)}</tr>"
        for k in order[:most]
    ]
    value = f"{COUNTED.capitalize() if report.is_counted else 'Value'}, {markup.bound(report.bound)}"
    head = f"<th>Party</th><th></th><th>{value}</th><th>Margin</th><th>Multiplier</th>"
    out = folded(f"{report.name}, smallest margin first", head, rows, FIRST_ROWS)
    if order[most:].size:
        least, greatest = (markup.number(report.margins[k], 3) for k in (order[most], order[-1]))
        left = f"{markup.plural(order.size - most, 'party')} more, with margins from {least} to {greatest}"
        out += f'<p class="none">{left}, are not shown.</p>'
    return out


def _value(report: ConstraintReport, at: int) -> str:
    return HIDDEN if report.hidden else markup.number(report.values[at])


def _prices(report: ConstraintReport, at: int) -> str:
    margin = HIDDEN if report.hidden and not report.violations[at] else markup.number(report.margins[at], 3)
    price = markup.number(report.multipliers[at], 4)
    return f'<td data-label="Margin">{margin}</td><td data-label="Multiplier">{price}</td>'


def _verdict(report: ConstraintReport, at: int, tolerance: float) -> str:
    """Whether a constraint holds at one holder, as a table cell."""
    room = report.margins[at]
    kind, words = "good", "holds"
    if math.isnan(room):
        kind, words = "bad", "not a number"
    elif report.is_broken(at, tolerance):
        kind, words = "bad", "violated"
    elif at_limit(report, at, tolerance):
        kind, words = "edge", "at the limit"
    return f'<td class="left {kind}"><span class="verdict">{SIGNS[kind]} {words}</span></td>'


def _strip(report: ConstraintReport, tolerance: float) -> str:
    """The margins of all holders as ticks on an axis, violated left of the limit. Each strip has its own scale."""
    margins = [m for m in report.margins if math.isfinite(m)]
    low, high = min(margins, default=0.0), max(margins, default=0.0)
    description = f"margins from {markup.number(low, 3)} to {markup.number(high, 3)}"
    low, high = min(low, 0.0), max(high, 0.0)
    spread = max(high - low, 10 * tolerance * report.unit)

    def place(margin: float) -> float:
        return round(STRIP_WIDTH * ((margin - low) / spread + 0.12) / 1.16, 1)

    ticks = "".join(f"M{x:g} 4v{STRIP_HEIGHT - 8}" for x in sorted(set(map(place, margins))))
    return (
        f'<svg class="strip" viewBox="0 0 {STRIP_WIDTH} {STRIP_HEIGHT}" role="img" aria-label="{description}">'
        f'<title>{description}</title><rect class="broken" width="{place(0.0)}" height="{STRIP_HEIGHT}"/>'
        f'<path class="axis" d="M0 {STRIP_HEIGHT / 2:g}h{STRIP_WIDTH}"/>'
        f'<path class="limit" d="M{place(0.0)} 0v{STRIP_HEIGHT}"/><path class="ticks" d="{ticks}"/></svg>'
    )


def folded(
    label: str, head: str, rows: Sequence[str], first: int, rest: str = "with larger margins", kind: str = ""
) -> str:
    """A table with the rows after the first ones collapsed.

    Where the page is narrow it scrolls; with `kind` "cards" each row is a block instead, with "rates" intervals stand below.
    """

    def table(label: str, rows: Sequence[str]) -> str:
        about = f'role="region" tabindex="0" aria-label="{markup.text(label)}"'
        body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
        return f'<div class="scrolled" {about}><table class="{kind}">{body}</table></div>'

    if len(rows) <= first + 2:
        return table(label, rows)
    more = f"<summary>{len(rows) - first:,} {rest}</summary>{table(f'{label}, continued', rows[first:])}"
    return f"{table(label, rows[:first])}<details>{more}</details>"
