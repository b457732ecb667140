"""Plots over the rounds: the columns of a history, and each constraint at each party.

A history has scalar inequalities g <= 0; a constraint's report has the indices of its own.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fedpact.certificate import Certificate, ConstraintReport
from fedpact.report import markup
from fedpact.report.plots import Band, Limit, Line, Plot, figure, legend
from fedpact.report.words import byte_unit
from fedpact.tolerance import Tolerance

History = Mapping[str, np.ndarray]

MOST_LINES = 6  # more holders than this are drawn as a band with its extreme lines
MOST_POINTS = 40_000  # of all plots together
MOST_DRAWN = 24  # plots of constraints
TOGETHER = 4  # up to this many plots, values and multipliers share a heading
FIRST_DRAWN = 6  # further ones are collapsed

OBJECTIVE = "with its regulariser, in its own units; it may rise while violations are reduced"
VIOLATION = "the largest violation of a constraint, and the gradient of the Lagrangian. Logarithmic, 0 at the bottom."
SUBPROBLEMS = "the residual of the current subproblem, and its tolerance. Logarithmic, 0 at the bottom."
PENALTY = "the penalty parameter β of violated constraints. Logarithmic."
STAND_IN = "smooth stand-in with its correction, no rate"
PRICE = "multiplier, objective per unit of the bound"
PART = "its part of the objective"
AT_SERVER = "multipliers of constraints on the server's rows or over all rows, objective per unit of the bound"


def over_the_rounds(history: History, certificate: Certificate, parties: tuple[str, ...], tolerance: Tolerance) -> str:
    """All plots with captions. Columns that are missing or do not have the certificate's shape are not drawn."""
    rounds = np.asarray(history.get("round", ()))
    if not rounds.size:
        return "<p>This run has no history.</p>"
    at_parties = [report for report in certificate.constraints if report.scope == "party"]
    shape = certificate.party_multipliers.shape
    general = _general(history, len(parties), tolerance)
    values = [
        _per_party(
            r.name, f"{STAND_IN if r.is_counted else 'value'}, {markup.bound(r.bound)}", value(r, c), parties, limits(r)
        )
        for c in _column(history, "constraints", *shape)
        for r in at_parties[:MOST_DRAWN]
    ]
    paid = [
        (r.name, mu[..., list(r.rows)].sum(axis=-1))
        for mu in _column(history, "multipliers", *shape)
        for r in at_parties
    ]
    prices = [_per_party(name, PRICE, price, parties) for name, price in paid[:MOST_DRAWN] if price.any()]
    prices += _at_server(history, certificate)
    parts = [
        _per_party("Objective of each party", PART, column, parties)
        for column in _column(history, "party_objective", len(parties))
        if len(parties) > 1
    ]
    curves = sum(len(plot.curves) for plot in (*general, *parts, *values, *prices))
    points = int(np.clip(MOST_POINTS / max(curves, 1), 40, 500))

    def grid(plots: Sequence[Plot]) -> str:
        return f'<div class="grid">{"".join(figure(plot, rounds, points) for plot in plots)}</div>'

    def folded(plots: Sequence[Plot]) -> str:
        if len(plots) <= FIRST_DRAWN + 2:
            return grid(plots)
        rest = plots[FIRST_DRAWN:]
        return f"{grid(plots[:FIRST_DRAWN])}<details><summary>{len(rest)} more</summary>{grid(rest)}</details>"

    out = "<p>A round is a message from the server to every party, and an answer from each."
    if rounds.size > points:
        out += " Not every round is drawn: the lines pass through the minimum and maximum of each interval."
    out += f"</p>{grid(general)}"
    if at_parties and "constraints" not in history:
        out += "<p>The parties did not disclose their constraints in every round; the tables have the final values.</p>"
    left = (
        f"; {len(at_parties) - MOST_DRAWN} more, with larger margins, are not drawn" if at_parties[MOST_DRAWN:] else ""
    )
    forbidden = f"{f'The tightest first{left}. ' if len(values) > 1 else ''}The shaded side is infeasible."
    free = [markup.name(name) for name, price in paid if not price.any()]
    never = f"; 0 in every round: {', '.join(free[:20])}{', …' if free[20:] else ''}" if free else ""
    price = f"The multiplier is the price of a constraint{never}."
    sections = [("Constraint values", forbidden, values), ("Multipliers", price, prices)]
    if values and len(values) + len(prices) <= TOGETHER:
        sections = [("Constraint values and multipliers", f"{forbidden} {price}", values + prices)]
    sections.insert(
        0, ("Objective", "The parts add up to the objective, with the server's own and the regulariser.", parts)
    )
    at = f"at {'the' if len(parties) == 1 else 'each'} party"
    key = legend((f"line-{k}", name) for k, name in enumerate(parties, 1)) if 1 < len(parties) <= MOST_LINES else ""
    for heading, words, plots in sections:
        out += f"<h3>{heading} <span>{at}</span></h3><p>{words}</p>{key}{folded(plots)}" if plots else ""
    return out


def value(report: ConstraintReport, c: np.ndarray) -> np.ndarray:
    """The value of a constraint's expression from the inequalities g <= 0 of its scope, along the last axis."""
    sides = c[..., list(report.rows)]
    if math.isinf(report.upper):
        return report.lower - sides.max(axis=-1)
    two_sided = -math.inf < report.lower < report.upper
    return report.upper + (sides[..., :-1] if two_sided else sides).max(axis=-1)


def limits(report: ConstraintReport) -> tuple[Limit, ...]:
    if report.lower == report.upper:
        return (Limit(report.upper, "limit"),)
    above, below = Limit(report.upper, "limit", "above"), Limit(report.lower, "limit", "below")
    return tuple(limit for limit in (above, below) if math.isfinite(limit.level))


def _column(history: History, name: str, *shape: int) -> list[np.ndarray]:
    """A list of the column (rounds, *shape); empty where it is missing or of another shape."""
    column = np.asarray(history.get(name, math.nan), float)
    return [column] if column.shape == (len(history["round"]), *shape) else []


def _per_party(
    name: str, note: str, values: np.ndarray, parties: tuple[str, ...], limits: tuple[Limit, ...] = ()
) -> Plot:
    lines, bands = drawn(values, parties)
    return Plot(name, note, lines, bands, limits, legend=bool(bands))


def _general(history: History, parties: int, tolerance: Tolerance) -> list[Plot]:
    def lines(**names: str) -> tuple[Line, ...]:
        return tuple(
            Line(words, column, k)
            for k, (name, words) in enumerate(names.items(), 1)
            for column in _column(history, name)
        )

    sent = lines(bytes_up="up, parties to server", bytes_down="down, server to parties")
    unit, size = byte_unit(max((line.values.sum() for line in sent), default=0.0))
    so_far = tuple(Line(line.name, line.values.cumsum() / size, line.colour) for line in sent)
    beta = lines(beta="penalty") if np.unique(history.get("beta", ())).size > 1 else ()
    note = f"in {unit}, so far" + (f", {parties:,} parties together" if parties > 1 else "")
    goal = tuple(Limit(number, "tolerance") for number in sorted(set(tolerance)))
    broken = lines(violation="violation", stationarity="stationarity")
    residual = lines(residual="residual", tau="tolerance (τ)")
    plots = [
        Plot("Objective", OBJECTIVE, lines(objective="objective"), legend=False),
        Plot("Violation and stationarity", VIOLATION, broken, limits=goal, scale="log"),
        Plot("Data sent", note, so_far, scale="linear"),
        Plot("Subproblems", SUBPROBLEMS, residual, scale="log"),
        Plot("Penalty", PENALTY, beta, scale="log", legend=False),
    ]
    return [plot for plot in plots if plot.lines]


def _at_server(history: History, certificate: Certificate) -> list[Plot]:
    """The multipliers at the server: of its own constraints and of the pooled ones."""
    own, pooled = certificate.server_multipliers.size, certificate.pooled_multipliers.size
    by_slacks = _column(history, "server_multipliers", own + pooled)  # the pooled ones after the server's own
    apart = [
        np.concatenate([at_server, over_all], axis=1)
        for at_server in _column(history, "server_multipliers", own)
        for over_all in _column(history, "pooled_multipliers", pooled)
    ]
    places = {"server": (0, "at the server"), "pooled": (own, "over all rows")}
    reports = [(r, *places[r.scope]) for r in certificate.constraints if r.scope in places]
    names = [f"{r.name}, {place}" for r, _, place in reports]
    plots = []
    for mu in by_slacks or apart:
        prices = [mu[:, [first + k for k in r.rows]].sum(axis=1) for r, first, _ in reports]
        if np.any(prices):
            plots.append(Plot("At the server", AT_SERVER, *drawn(np.stack(prices, axis=1), names)))
    return plots


def drawn(values: np.ndarray, names: Sequence[str]) -> tuple[tuple[Line, ...], tuple[Band, ...]]:
    """One line for each of a few holders; for many a band, the median and the two extreme lines, where all are finite."""
    if len(names) <= MOST_LINES:
        return tuple(Line(name, values[:, k], k + 1) for k, name in enumerate(names)), ()
    values = np.where(np.isfinite(values), values, np.nan)
    last = values[~np.isnan(values).any(axis=1)][-1:]
    order = last[0].argsort() if last.size else range(len(names))
    lowest, highest = order[0], order[-1]
    lines = (
        Line("median", np.median(values, axis=1), 0),
        Line(f"highest at the end: {names[highest]}", values[:, highest], 2),
        Line(f"lowest at the end: {names[lowest]}", values[:, lowest], 1),
    )
    return lines, (Band(f"from least to greatest of {len(names)}", values.min(axis=1), values.max(axis=1)),)
