"""The report: one HTML file with what was promised, what is decided, optimality, the problem, and plots over the rounds.

It is self-contained: no script, no font, no network. The same run gives the same bytes.
"""

import dataclasses
import importlib.resources
import os
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from fedpact import __about__
from fedpact.certificate import Certificate
from fedpact.report import markup
from fedpact.report.curves import over_the_rounds
from fedpact.report.promised import solved_with
from fedpact.report.tables import SIGNS, certificate_gauges, constraint_tables, folded, stand_in_table
from fedpact.tolerance import Tolerance

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

STATUSES = {
    "converged": ("good", "Converged"),
    "max_rounds": ("edge", "Out of rounds"),
    "stopped": ("edge", "Stopped early"),
    "infeasible": ("bad", "Infeasible"),
    "diverged": ("bad", "Diverged"),
    "stalled": ("edge", "No further progress"),
}

FIRST_PARTIES = 12  # whose rows are shown; further ones are collapsed
FIRST_LINES = 40  # of an evaluation


@dataclasses.dataclass(frozen=True)
class Decided:
    """An evaluation as text: what stands above the table, the table with its titles first, and notes beneath it.

    - `names`: how many columns have names of parties and groups; the others are numbers.
    """

    head: str
    table: Sequence[Sequence[str]]
    notes: Sequence[str]
    names: int = 1


def write_page(
    path: pathlib.Path,
    problem: str,
    status: str,
    message: str,
    summary: Mapping[str, str],
    certificate: Certificate,
    history: Mapping[str, np.ndarray],
    parties: tuple[str, ...],
    tolerance: Tolerance,
    *,
    rows: Sequence[int] = (),
    kinds: Mapping[str, str] | None = None,
    decided: Decided | None = None,
    more: Sequence[str] = (),
) -> pathlib.Path:
    """Write the report of a run; an interrupted write leaves the previous file.

    - `path`: of the HTML file.
    - `problem`: as text.
    - `status`, `message`: of the result.
    - `summary`: key figures as text.
    - `certificate`: of the result.
    - `history`: columns over the rounds: round, objective, violation, stationarity, bytes_up, bytes_down, and where present
      constraints and multipliers (rounds, parties, scalar constraints), server_multipliers, pooled_multipliers, beta, residual
      and tau.
    - `parties`: their names, in order.
    - `tolerance`: of the run.
    - `rows`: how many each of them has (default: not known).
    - `kinds`: by name of a constraint, what its values are where they are not counted, in words (default: none).
    - `decided`: an evaluation (default: none).
    - `more`: sentences about optimality (default: none).

    Returns `path`.
    """
    tightest = sorted(certificate.constraints, key=lambda report: np.nan_to_num(report.margins, nan=-np.inf).min())
    certificate = dataclasses.replace(certificate, constraints=tuple(tightest))
    kind, words = STATUSES.get(status, ("edge", status))
    style = importlib.resources.files("fedpact.report").joinpath("page.css").read_text("utf-8")
    figures = "".join(
        f"<div><dt>{markup.text(label)}</dt><dd>{markup.text(entry)}</dd></div>"
        for label, entry in {"parties": f"{len(parties):,}", **summary}.items()
    )
    page = f"""<!doctype html>
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
<h1><span aria-hidden="true">{SIGNS[kind]}</span> {markup.text(words)}</h1>
<p class="message">{markup.text(markup.sentence(message))}</p>
</header>
<main>
<section id="constraints"><h2>What was promised</h2>
{constraint_tables(certificate, tolerance.feasibility, kinds or {}, status == "converged")}</section>
{_decided(decided)}<dl class="figures">{figures}</dl>
<section id="certificate"><h2>Optimality</h2>
{certificate_gauges(certificate, tolerance)}{_solved_with(certificate, more)}</section>
<section id="problem"><h2>The problem</h2>
<pre tabindex="0">{markup.text(problem)}</pre></section>
{_rows(parties, rows)}<section id="rounds"><h2>Over the rounds</h2>
{over_the_rounds(history, certificate, parties, tolerance)}</section>
</main>
<footer>Written by fedpact {markup.text(__about__.VERSION)}. This file is complete in itself and loads nothing.</footer>
</body>
</html>
"""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.part")
    try:
        beside.write_text(page, "utf-8", "replace")
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    return path


def _decided(decided: Decided | None) -> str:
    """The section with rates by party and group, each with its interval."""
    if decided is None:
        return ""
    titles, *lines = decided.table
    head = "".join(f"<th{_left(k, decided)}>{markup.text(title)}</th>" for k, title in enumerate(titles))
    rows = [f"<tr>{''.join(_cell(k, cell, decided) for k, cell in enumerate(line))}</tr>" for line in lines]
    notes = "".join(f"<p>{markup.text(markup.sentence(note))}</p>" for note in decided.notes)
    table = folded("Decisions by party and group", head, rows, FIRST_LINES, "more lines", "rates")
    above = f"<h2>What is decided</h2><p>Counted: {markup.text(decided.head)}.</p>"
    return f'<section id="decisions">{above}{table}{notes}</section>\n'


def _left(column: int, decided: Decided) -> str:
    return ' class="left"' if column < decided.names else ""


def _cell(column: int, words: str, decided: Decided) -> str:
    if column == 0:
        return f'<th scope="row">{markup.name(words)}</th>'
    rate, _, interval = words.partition(" ")
    if column < decided.names or not interval:
        return f"<td{_left(column, decided)}>{markup.text(words)}</td>"
    return f"<td>{markup.text(rate)} <small>{markup.text(interval)}</small></td>"


def _solved_with(certificate: Certificate, more: Sequence[str]) -> str:
    """What optimality is about where decisions are counted, with the values of the stand-ins; and further sentences."""
    words = [] if certificate.stand_ins is None else [solved_with(certificate.stand_ins, certificate.objective)]
    said = "".join(f"<p>{markup.text(markup.sentence(sentence))}</p>" for sentence in (*words, *more))
    return said + (stand_in_table(certificate) if words else "")


def _rows(parties: tuple[str, ...], rows: Sequence[int]) -> str:
    """The section with the rows of every party."""
    if not rows:
        return ""
    lines = [
        f'<tr><th scope="row">{markup.name(name)}</th><td>{count:,}</td></tr>'
        for name, count in zip(parties, rows, strict=True)
    ]
    table = folded("Rows by party", "<th>Party</th><th>Rows</th>", lines, FIRST_PARTIES, "more parties")
    return f'<section id="rows"><h2>The rows</h2>{table}</section>\n'
