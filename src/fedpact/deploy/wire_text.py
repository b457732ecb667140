"""`fedpact wire` for a privacy officer: each message in plain words, whom it reaches, what it reveals, and bytes; 80 columns."""

import itertools
import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fedpact.deploy import matching_messages
from fedpact.deploy.message_list import COMBINED, PARTS, SUMMED, SUMS_TOLD, MessageList, amount
from fedpact.deploy.wire_notes import notes
from fedpact.deploy.wire_words import DOWN, GLOSSARY, NOTHING, ONE_PARTY, STEPS, UP, kind_of, reveals, words_for
from fedpact.engines.exchanges import Exchange
from fedpact.engines.sealing import is_sealed
from fedpact.engines.serialization import Layout

WIDTH = 80
BEFORE = "once, before the first round"


class Field(NamedTuple):
    """One thing in a message: what it is, how much, and what it reveals to whoever gets it."""

    words: str
    reveals: str
    amount: str = ""


class Part(NamedTuple):
    """One way of a message: whom it reaches, how many bytes, and what is in it."""

    reaches: str
    size: str
    fields: tuple[Field, ...]

    def by_revealed(self) -> list[tuple[str, list[Field]]]:
        """Fields that reveal the same, together."""
        kinds = dict.fromkeys(field.reveals for field in self.fields)
        return [(kind, [field for field in self.fields if field.reveals == kind]) for kind in kinds]

    @property
    def is_empty(self) -> bool:
        return all(field.words == NOTHING for field in self.fields)


class Message(NamedTuple):
    """A message to parties and their reply. `when`: in a run. `asked`: whom."""

    when: str
    title: str
    asked: str
    down: Part
    up: Part


class Total(NamedTuple):
    """Bytes of numbers in a part of a run."""

    when: str
    down: int  # to one party, at most
    up: int  # from one party, at most
    together: int


def messages(listing: MessageList) -> list[Message]:
    """All messages of a run in their order."""
    parties = len(listing.parties)
    of_all = reveals("answer", listing.secure, parties)

    def from_row(row: Sequence[str], told: tuple[str, str]) -> Message:
        when, does, asked, down, gets, up, sends = row
        summed, hidden = reveals("sum", listing.secure, parties), SUMMED[".sum"]
        fields = [Field(part, summed if part.startswith(hidden) else told[1]) for part in sends.split("; ")]
        return Message(when, does, asked, _one(asked, down, gets, told[0]), Part("the server", up, tuple(fields)))

    matching = [from_row(row, matching_messages.REVEALS[row[1]]) for row in listing.matching]
    first = [*matching, *(from_row(row, (of_all, ONE_PARTY)) for row in listing.recipe)]
    exchanges = [_exchange(e, listing, at == 0) for at, e in enumerate(listing.exchanges)]
    rest = listing.rows()[len(first) + len(exchanges) :]  # a promise's test, an evaluation
    last = Message(
        "once, at the end",
        "learn how the run ended",
        "all parties",
        _one("all parties", "0", "status, threshold of decisions, the certificate's three numbers", of_all),
        _one("the server", "0", NOTHING, NOTHING),
    )
    return [*first, *_greeting(listing), *exchanges, *(from_row(row, (of_all, ONE_PARTY)) for row in rest), last]


def _greeting(listing: MessageList) -> Iterator[Message]:
    told = listing.description.partition(" so: ")[2]
    whose = listing.description.partition("its table, ")[2].partition(" so: ")[0]
    signed = ", signed with its own key" if listing.keys else ""
    key = Field(f"as words: its public key for this run{signed}", NOTHING)
    up = (Field(f"as words, of {whose}: {told}", ONE_PARTY), *([key] if listing.secure else []))
    yield Message(
        BEFORE,
        "describe its table",
        "all parties",
        _one("all parties", "0", "the pact's digest", NOTHING),
        Part("the server, and all parties by it", "0", up),
    )
    down = [Field("as words: the descriptions of all parties", ONE_PARTY)]
    up = [Field("a digest of the messages that it expects", NOTHING)]
    if listing.secure:
        down.append(Field("as words: the public keys of all parties for this run", NOTHING))
    if listing.checked:
        secret = f"from {listing.parties[0]}: a secret for the other parties, encrypted, by which sums are checked"
        up.append(Field(secret, NOTHING))
    yield Message(
        BEFORE,
        "agree on the shapes of all messages" + (", and on masks" if listing.secure else ""),
        "all parties",
        Part("all parties", "0", tuple(down)),
        Part("the server", "0", tuple(up)),
    )


def _exchange(exchange: Exchange, listing: MessageList, first: bool) -> Message:
    """`first`: the server has heard nothing yet, so its message reveals nothing."""
    asked, parties = listing.asked(exchange), len(listing.parties)
    title = STEPS.get(exchange.title, exchange.title.replace("_", " "))
    down, up = (_fields(exchange, layout, listing.secure, parties) for layout in (exchange.message, exchange.reply))
    if first:
        down = tuple(field._replace(reveals=NOTHING) for field in down)
    told = listing.told(exchange)
    if told:
        sums = Field(SUMS_TOLD, reveals("answer", True, parties), f"at most {told:,} bytes")
        down = (sums, *(field for field in down if field.words != NOTHING))
    if listing.secure and is_sealed(exchange.reply):
        added = reveals("sum", True, exchange.asked)
        up = (*up, Field("a number that is 0 where all of these are finite", added, "1 number"))
        if listing.checked:
            up = (*up, Field("a tag, by which parties know that sums are their own", NOTHING, "8 bytes"))
    return Message(
        PARTS[exchange.part],
        title,
        asked,
        Part(asked, f"{listing.down(exchange):,}" + (" at most" if told else ""), down),
        Part("the server", f"{listing.up(exchange):,}", up),
    )


def _fields(exchange: Exchange, layout: Layout, secure: bool, parties: int) -> tuple[Field, ...]:
    """The largest first."""
    fields = []
    for leaf in sorted((leaf for leaf in layout.leaves if leaf.size), key=lambda leaf: -leaf.size):
        part = next((start for start in COMBINED if leaf.name.startswith(start)), "")
        name = leaf.name.removeprefix(part).lstrip(".")
        words = words_for(name, exchange.title, UP if part else DOWN) or name.replace("_", " ").replace(".", ": ")
        kind = kind_of(name, exchange.title, part)
        told = reveals(kind, secure, parties if kind == "answer" else exchange.asked)
        fields.append(Field(words, told, amount(leaf)))
    return tuple(fields) or (Field(NOTHING, NOTHING),)


def _one(reaches: str, size: str, words: str, told: str) -> Part:
    return Part(reaches, size, (Field(words, NOTHING if words == NOTHING else told),))


def totals(listing: MessageList) -> list[Total]:
    """Bytes of the method's own messages by part of a run; those of a round are the most that it may have. Sums that parties are
    told count where they are made."""
    found = []
    for when, group in itertools.groupby(listing.exchanges, lambda e: PARTS[e.part]):
        exchanges = list(group)
        roles = {e.among for e in exchanges if e.among is not None} or {None}
        own = [[e for e in exchanges if e.among in (None, role)] for role in roles]
        to_party = {e.name: e.message.size + listing.sums(e) for e in exchanges}
        down, up = max(sum(to_party[e.name] for e in of) for of in own), max(sum(map(listing.up, of)) for of in own)
        together = sum((to_party[e.name] + listing.up(e)) * e.asked for e in exchanges)
        found.append(Total("in a round, at most" if exchanges[0].part == "round" else when, down, up, together))
    return found


def glossary(text: str) -> dict[str, str]:
    """The terms that occur in a text."""
    return {term: meaning for term, meaning in GLOSSARY.items() if term in text}


def as_text(listing: MessageList) -> str:
    """The list as plain text of at most 80 columns."""
    lines = [
        *_wrapped(f"{listing.method} over {', '.join(listing.parties)}", ""),
        f"the pact's digest is {listing.digest}",
        "",
        *(line for note in notes(listing) for line in _wrapped(note, "")),
    ]
    number = 0
    for when, group in itertools.groupby(messages(listing), lambda message: message.when):
        lines += ["", when.capitalize(), "-" * len(when)]
        for message in group:
            number += 1
            lines += _wrapped(f"{number}. {message.title[:1].upper()}{message.title[1:]}", "   ", first="")
            lines += _part("to", message.down) + _part("from a party to", message.up)
    lines += ["", "Bytes of numbers", "-" * 16, *_totals(listing)]
    said = glossary("\n".join(lines))
    if said:
        lines += ["", "Words", "-----"]
        lines += [line for term, meaning in said.items() for line in _wrapped(f"{term}: {meaning}", "  ", first="")]
    return "\n".join(lines)


def _part(way: str, part: Part) -> list[str]:
    if part.is_empty:
        return []
    number, _, what = part.size.partition(" ")  # "5,360", or "32 for each id"
    size = "" if number == "0" else f", {number} bytes {what}".rstrip()
    lines = []
    for told, fields in part.by_revealed():
        lines += _wrapped(f"{way} {part.reaches}{size}, reveals {told}:", "     ", first="   ")
        lines += [line for field in fields for line in _field(field)]
        size = ""
    return lines


def _field(field: Field) -> list[str]:
    """Its words, and at the right how much it is."""
    *above, last = _wrapped(field.words, "       ", first="     ", width=WIDTH - len(field.amount) - 1)
    return [*above, (last.ljust(WIDTH - len(field.amount)) + field.amount).rstrip()]


def _totals(listing: MessageList) -> list[str]:
    rows = [("", "to a party", "from a party", "all together")]
    rows += [(each.when, f"{each.down:,}", f"{each.up:,}", f"{each.together:,}") for each in totals(listing)]
    widths = [max(len(row[at]) for row in rows) for at in range(4)]
    first = min(widths[0], WIDTH - sum(widths[1:]) - 6)
    lines = []
    for row in rows:
        *above, last = textwrap.wrap(row[0], first) or [""]
        lines += above
        lines.append(
            "  ".join([last.ljust(first), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        )
    return lines


def _wrapped(text: str, indent: str, first: str | None = None, width: int = WIDTH) -> list[str]:
    start = indent if first is None else first
    return textwrap.wrap(text, width, initial_indent=start, subsequent_indent=indent, break_on_hyphens=False)
