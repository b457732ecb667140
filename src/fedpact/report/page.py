"""The report: one HTML file with the problem, the certificate, the constraints, and plots over the rounds.

It is self-contained: no script, no font, no network. The same run gives the same bytes.
"""

import dataclasses
import importlib.resources
import os
import pathlib
from collections.abc import Mapping

import numpy as np

from fedpact import __about__
from fedpact.certificate import Certificate
from fedpact.report import markup
from fedpact.report.curves import over_the_rounds
from fedpact.report.tables import SIGNS, certificate_gauges, constraint_tables

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

STATUSES = {
    "converged": ("good", "Converged"),
    "max_rounds": ("edge", "Out of rounds"),
    "stopped": ("edge", "Stopped early"),
    "infeasible": ("bad", "Infeasible"),
    "diverged": ("bad", "Diverged"),
    "stalled": ("edge", "No further progress"),
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
    """Write the report of a run; an interrupted write leaves the previous file.

    - `path`: of the HTML file.
    - `problem`: as text.
    - `status`, `message`: of the result.
    - `summary`: key figures as text; "tolerance" is required.
    - `certificate`: of the result.
    - `history`: columns over the rounds: round, objective, violation, stationarity, bytes_up, bytes_down, and where present
      constraints and multipliers (rounds, parties, scalar constraints), server_multipliers, pooled_multipliers, beta, residual
      and tau.
    - `parties`: their names, in order.

    Returns `path`.
    """
    tightest = sorted(certificate.constraints, key=lambda report: np.nan_to_num(report.margins, nan=-np.inf).min())
    certificate = dataclasses.replace(certificate, constraints=tuple(tightest))
    tolerance = float(summary["tolerance"])
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
<dl class="figures">{figures}</dl>
<section id="problem"><h2>The problem</h2>
<pre tabindex="0">{markup.text(problem)}</pre></section>
<section id="certificate"><h2>The certificate</h2>
{certificate_gauges(certificate, tolerance)}</section>
<section id="constraints"><h2>The constraints</h2>
{constraint_tables(certificate.constraints, tolerance)}</section>
<section id="rounds"><h2>Over the rounds</h2>
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
