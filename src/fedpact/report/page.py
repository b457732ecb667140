"""The report: one HTML file that says what was asked, whether it holds, and how the run came there.

It needs nothing but itself: no script, no font, no network. The same run gives the same bytes.
"""

import contextlib
import dataclasses
import functools
import importlib.resources
import math
import os
import pathlib
import uuid
from collections.abc import Mapping, Sequence

import numpy as np

from fedpact import __about__
from fedpact.certificate import ALL_ROWS, SERVER, Certificate
from fedpact.report import markup, traces
from fedpact.report.plots import Limit, Line, Plot, figure, legend_of
from fedpact.report.tables import certificate_gauges, constraint_tables

MOST_POINTS = 40_000  # of all drawings together
MOST_DRAWN = 24  # constraints
TOGETHER = 4  # plots of constraints that need no two headings
FIRST_DRAWN = 6  # before the rest is folded

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

STATUSES = {
    "converged": ("good", "✓", "Converged"),
    "max_rounds": ("edge", "◆", "Out of rounds"),
    "stopped": ("edge", "◆", "Stopped early"),
    "infeasible": ("bad", "✕", "Infeasible"),
    "diverged": ("bad", "✕", "Diverged"),
}


def write_page(
    path: pathlib.Path,
    problem: str,
    status: str,
    message: str,
    summary: Mapping[str, str],
    certificate: Certificate,
    history: Mapping[str, np.ndarray],
    parties: tuple[str, ...],
) -> pathlib.Path:
    """Write the report of a run to `path` and return it; an interrupted write leaves what was there before.

    problem: as stated. status, message: the word and the sentence. summary: key figures in words; "tolerance" is read.
    history: columns over the rounds; round, objective, violation, stationarity, bytes_up, bytes_down, and, where they
        are there, constraints and multipliers (rounds, parties, scalar rows), server_multipliers, pooled_multipliers,
        beta, residual and tau.
    """
    path = pathlib.Path(path)
    page = _Page(problem, status, message, summary, certificate, history, parties).html()
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.parent / f".{uuid.uuid4().hex}.part"
    try:
        beside.write_bytes(page.encode("utf-8", "replace"))
        os.replace(beside, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()
    return path


@dataclasses.dataclass(frozen=True)
class _Page:
    problem: str
    status: str
    message: str
    summary: Mapping[str, str]
    certificate: Certificate
    history: Mapping[str, np.ndarray]
    parties: tuple[str, ...]

    @functools.cached_property
    def tolerance(self) -> float | None:
        try:
            told = float(self.summary.get("tolerance", ""))
        except ValueError:
            return None
        return told if math.isfinite(told) and told > 0 else None

    @functools.cached_property
    def rounds(self) -> np.ndarray:
        return np.asarray(self.history["round"]) if "round" in self.history else np.zeros(0, int)

    def html(self) -> str:
        kind, sign, words = STATUSES.get(self.status, ("edge", "◆", self.status))
        style = importlib.resources.files("fedpact.report").joinpath("page.css").read_text("utf-8")
        icon = f"<span aria-hidden='true'>{sign}</span>"
        figures = {"parties": f"{len(self.parties):,}", **self.summary}
        return f"""<!doctype html>
<html lang="en-GB">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{markup.text(words)}: fedpact run report</title>
<style>
{style}</style>
</head>
<body>
<header class="{kind}">
<p class="kind">fedpact run report</p>
<h1>{icon} {markup.text(words)}</h1>
<p class="message">{markup.text(markup.sentence(self.message))}</p>
</header>
<main>
<dl class="figures">{"".join(_figure(k, v) for k, v in figures.items())}</dl>
<section id="problem"><h2>The problem</h2>
<pre tabindex="0">{markup.text(self.problem)}</pre></section>
<section id="certificate"><h2>The certificate</h2>
{self._certificate()}</section>
<section id="constraints"><h2>The constraints</h2>
{self._constraints()}</section>
<section id="rounds"><h2>Over the rounds</h2>
{self._rounds()}</section>
</main>
<footer>Written by fedpact {markup.text(__about__.VERSION)}. This file is complete in itself and loads nothing.</footer>
</body>
</html>
"""

    def _certificate(self) -> str:
        told = "" if self.tolerance is None else f" The upright line is the tolerance, {markup.number(self.tolerance)}."
        return (
            "<p>Measured after the run by one more exchange with the parties, from the answer and its multipliers "
            "alone, whatever the method said. All three numbers are 0 at an exact optimum, and in the units of the "
            f"problem's own objective and constraints.{told} The scale is logarithmic.</p>"
            f"{certificate_gauges(self.certificate, self.tolerance)}"
        )

    def _constraints(self) -> str:
        reports = self.certificate.constraints
        if not reports:
            return constraint_tables(reports, 0.0)
        within = " exact" if self.tolerance is None else f" to the tolerance, {markup.number(self.tolerance)}"
        return (
            f"<p><b>Margin</b> is the room left before the bound, negative where it is broken; verdicts are{within}. "
            "<b>Multiplier</b> is the price of a constraint: by how much the objective would fall per unit of a looser "
            "bound, 0 where the bound does not matter, signed for an equality.</p>"
            f"{constraint_tables(reports, self.tolerance or 0.0)}"
        )

    # over the rounds

    def _rounds(self) -> str:
        if not len(self.rounds):
            return "<p>This run kept no history.</p>"
        general = self._general()
        held = self._trajectories()
        values, prices = self._constraint_plots(held[:MOST_DRAWN]), self._price_plots(held[:MOST_DRAWN])
        count = sum(len(p.lines) + 2 * len(p.bands) for p in (*general, *values, *prices))
        draw = _Draughtsman(self.rounds, int(np.clip(MOST_POINTS / max(count, 1), 40, 500)))
        out = ["<p>A round is a message from the server to every party, and an answer from each."]
        if len(self.rounds) > draw.points:
            out.append(" There are more rounds than can be drawn: of each stretch its least and greatest values are.")
        out.append(f"</p>{draw.grid(general)}{self._per_constraint(held, values, prices, draw)}")
        return "".join(out)

    def _per_constraint(
        self, held: Sequence[traces.Trajectory], values: Sequence[Plot], prices: Sequence[Plot], draw: "_Draughtsman"
    ) -> str:
        several = 1 < len(self.parties) <= traces.MOST_LINES
        key = legend_of([Line(n, np.zeros(0), k) for k, n in enumerate(self.parties)]) if several else ""
        at = "at the party" if len(self.parties) == 1 else "at each party"
        left = len(held) - MOST_DRAWN
        not_drawn = f'<p class="none">{left} more constraints, with more room, are not drawn.</p>' if left > 0 else ""
        forbidden = f"{'The tightest first. ' if len(values) > 1 else ''}The shaded side is forbidden."
        free = [t.name for t in held if t.multipliers is not None and not t.multipliers.any()]
        never = ", ".join(map(markup.name, free[:20])) + (", …" if free[20:] else "")
        price = "The multiplier is the price of a constraint" + (f"; 0 in every round: {never}." if free else ".")
        out = []
        if values and len(values) + len(prices) <= TOGETHER:
            heading = f"<h3>Constraint values and multipliers <span>{at}</span></h3>"
            return f"{heading}<p>{forbidden} {price}</p>{key}{draw.grid([*values, *prices])}"
        if values:
            out.append(f"<h3>Constraint values <span>{at}</span></h3><p>{forbidden}</p>{key}{draw.folded(values)}")
            out.append(not_drawn)
        elif "constraints" not in self.history and any(r.holders == self.parties for r in self.certificate.constraints):
            out.append("<p>The parties did not tell their constraints round by round; the tables have the end.</p>")
        if prices:
            out.append(f"<h3>Multipliers <span>{at}</span></h3><p>{price}</p>{key}{draw.folded(prices)}")
        return "".join(out)

    def _column(self, name: str) -> np.ndarray | None:
        if name not in self.history:
            return None
        column = np.asarray(self.history[name], float)
        return column if column.shape == self.rounds.shape else None

    def _general(self) -> list[Plot]:
        goal = () if self.tolerance is None else (Limit(self.tolerance, "tolerance"),)
        span = f"over {markup.plural(len(self.rounds), 'round')}"
        logarithmic = "Logarithmic, 0 at its foot."
        plots = []
        if (objective := self._column("objective")) is not None:
            note = "with its regulariser, in its own units; it may rise while constraints are being met"
            lines = (Line("objective", objective, 0),)
            plots.append(Plot("Objective", note, f"Objective {span}.", lines, legend=False))
        if lines := self._lines({"violation": "violation", "stationarity": "stationarity"}):
            note = f"the largest amount by which a constraint is broken, and the slope left. {logarithmic}"
            about = f"Violation and stationarity {span}, on a logarithmic scale."
            plots.append(Plot("Violation and stationarity", note, about, lines, limits=goal, scale="log"))
        if lines := self._lines({"bytes_up": "up, parties to server", "bytes_down": "down, server to parties"}):
            totals = [np.cumsum(np.nan_to_num(line.values, posinf=0, neginf=0)) for line in lines]
            unit, size = _unit(max(float(t.max()) for t in totals))
            lines = tuple(Line(line.name, t / size, line.colour) for line, t in zip(lines, totals, strict=True))
            together = f", {len(self.parties):,} parties together" if len(self.parties) > 1 else ""
            note = f"in {unit}, so far{together}"
            plots.append(Plot("Data sent", note, f"Data sent {span}, in {unit}.", lines, scale="linear"))
        if lines := self._lines({"residual": "residual", "tau": "accuracy asked for (τ)"}):
            note = f"the residual of the one under way, and the accuracy that it must reach. {logarithmic}"
            about = f"Residual of the subproblem {span}, on a logarithmic scale."
            plots.append(Plot("Subproblems", note, about, lines, scale="log"))
        if (lines := self._lines({"beta": "penalty"})) and np.unique(lines[0].values).size > 1:
            note = "the weight β that the method puts on broken constraints. Logarithmic."
            plots.append(Plot("Penalty", note, f"Penalty {span}.", lines, scale="log", legend=False))
        return plots

    def _lines(self, columns: Mapping[str, str]) -> tuple[Line, ...]:
        found = [(words, self._column(name)) for name, words in columns.items()]
        return tuple(Line(words, c, k) for k, (words, c) in enumerate(found) if c is not None)

    def _trajectories(self) -> list[traces.Trajectory]:
        mine = [r for r in self.certificate.constraints if r.holders == self.parties]
        certified = np.asarray(self.certificate.party_multipliers)
        return traces.trajectories(self.history, mine, certified, len(self.parties))

    def _constraint_plots(self, held: Sequence[traces.Trajectory]) -> list[Plot]:
        told = [(t, t.values) for t in held if t.values is not None]
        return [self._per_party(t.name, f"value, {markup.bound(t.bound)}", c, t.limits) for t, c in told]

    def _price_plots(self, held: Sequence[traces.Trajectory]) -> list[Plot]:
        told = [(t.name, t.multipliers) for t in held if t.multipliers is not None]
        plots = [self._per_party(n, "multiplier, objective per unit of the bound", mu) for n, mu in told if mu.any()]
        c, reports = self.certificate, self.certificate.constraints
        shared = traces.shared_multipliers(
            self.history,
            ([r for r in reports if r.holders == (SERVER,)], np.asarray(c.server_multipliers)),
            ([r for r in reports if r.holders == (ALL_ROWS,)], np.asarray(c.pooled_multipliers)),
        )
        if shared is None or len(shared[1]) != len(self.rounds) or not shared[1].any():
            return plots
        names, mu = shared
        lines, bands = traces.drawn(mu, names)
        note = "multipliers of constraints on the server's rows or over all rows, objective per unit of the bound"
        return [*plots, Plot("At the server", note, "Multipliers held by the server.", lines, bands)]

    def _per_party(self, name: str, note: str, values: np.ndarray, limits: tuple[Limit, ...] = ()) -> Plot:
        lines, bands = traces.drawn(values, self.parties)
        about = f"{name}, per party over {markup.plural(len(self.rounds), 'round')}."
        return Plot(markup.name(name), note, about, lines, bands, limits, legend=bool(bands))


@dataclasses.dataclass
class _Draughtsman:
    """Draws plots one after the other; each has its own salt, so no two share an id."""

    rounds: np.ndarray
    points: int
    drawn: int = 0

    def grid(self, plots: Sequence[Plot]) -> str:
        figures = []
        for plot in plots:
            self.drawn += 1
            figures.append(figure(plot, self.rounds, f"fedpact {self.drawn}", self.points))
        return f'<div class="grid">{"".join(figures)}</div>'

    def folded(self, plots: Sequence[Plot]) -> str:
        if len(plots) <= FIRST_DRAWN + 2:
            return self.grid(plots)
        rest = plots[FIRST_DRAWN:]
        first = self.grid(plots[:FIRST_DRAWN])
        return f"{first}<details><summary>{len(rest)} more</summary>{self.grid(rest)}</details>"


def _figure(label: str, words: str) -> str:
    return f"<div><dt>{markup.text(label)}</dt><dd>{markup.text(words)}</dd></div>"


def _unit(largest: float) -> tuple[str, float]:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if largest >= size:
            return unit, size
    return "bytes", 1.0
