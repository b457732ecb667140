"""The list of messages of `fedpact wire` as one HTML file that loads nothing."""

import importlib.resources
import itertools
import pathlib

from fedpact import __about__
from fedpact.deploy.message_list import MessageList
from fedpact.deploy.wire_notes import notes
from fedpact.deploy.wire_text import Message, Part, Total, as_text, glossary, messages, totals
from fedpact.deploy.wire_words import NOTHING, ONE_PARTY
from fedpact.files import write
from fedpact.report import markup
from fedpact.report.page import POLICY

COLOURS = {ONE_PARTY: "bad", NOTHING: "good"}  # all else is between


def write_wire(path: pathlib.Path, listing: MessageList) -> pathlib.Path:
    """Write the page; an interrupted write leaves the previous file. Returns `path`."""
    style = importlib.resources.files("fedpact.report").joinpath("page.css").read_text("utf-8")
    said = "".join(f"<p>{markup.text(note)}</p>" for note in notes(listing))
    figures = {
        "parties": ", ".join(listing.parties),
        "method": listing.method,
        "the pact's digest": listing.digest,
    }
    facts = "".join(f"<div><dt>{markup.text(k)}</dt><dd>{markup.text(v)}</dd></div>" for k, v in figures.items())
    numbers = itertools.count(1)
    sections = []
    for when, group in itertools.groupby(messages(listing), lambda message: message.when):
        tables = "".join(_message(next(numbers), message) for message in group)
        sections.append(f"<section><h2>{markup.text(when[:1].upper() + when[1:])}</h2>{tables}</section>")
    words = glossary(as_text(listing))
    terms = "".join(f"<p><b>{markup.text(term)}</b>: {markup.text(meaning)}</p>" for term, meaning in words.items())
    page = f"""<!doctype html>
<html lang="en-GB">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Every message of a run: fedpact</title>
<style>
{style}</style>
</head>
<body>
<header class="edge">
<p class="kind">fedpact wire</p>
<h1>Every message of a run</h1>
<p class="message">What is sent, whom it reaches, what it reveals, and how many bytes it has. Nothing was run.</p>
</header>
<main>
<dl class="figures">{facts}</dl>
<section>{said}</section>
{"".join(sections)}
<section><h2>Bytes of numbers</h2>{_totals(totals(listing))}</section>
<section><h2>Words</h2>{terms}</section>
</main>
<footer>Written by fedpact {markup.text(__about__.VERSION)}. This file is complete in itself and loads nothing.</footer>
</body>
</html>
"""
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, page.encode("utf-8", "replace"))
    return path


def _message(number: int, message: Message) -> str:
    head = '<th>Way</th><th class="left">What it is</th><th class="left">Reveals</th><th>Bytes</th>'
    rows = _rows(f"To {message.down.reaches}", message.down) + _rows(f"To {message.up.reaches}", message.up)
    title = f"<h3>{number}. {markup.text(message.title[:1].upper() + message.title[1:])}</h3>"
    if not rows:
        return f'{title}<p class="none">Nothing is sent but the request itself.</p>'
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'{title}<div class="scrolled" tabindex="0">{table}</div>'


def _rows(way: str, part: Part) -> str:
    if part.is_empty:
        return ""
    rows, size = [], "" if part.size == "0" else part.size
    for told, fields in part.by_revealed():
        said = (
            f"{markup.text(field.words)}{f' <small>{markup.text(field.amount)}</small>' if field.amount else ''}"
            for field in fields
        )
        rows.append(
            f'<tr><th scope="row">{markup.text(way)}</th><td class="left">{"<br>".join(said)}</td>'
            f'<td class="left {COLOURS.get(told, "edge")}"><span class="verdict">{markup.text(told)}</span></td>'
            f"<td>{markup.text(size)}</td></tr>"
        )
        way, size = "", ""
    return "".join(rows)


def _totals(found: list[Total]) -> str:
    head = "<th>Part of a run</th><th>To a party</th><th>From a party</th><th>All together</th>"
    rows = "".join(
        f'<tr><th scope="row">{markup.text(t.when)}</th><td>{t.down:,}</td><td>{t.up:,}</td><td>{t.together:,}</td></tr>'
        for t in found
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
