"""A pact's promise across organisations: what a party holds out, its ledger of askings, and the one exchange of the test.

In its answer to `hello` a party tells over how many of its held-out rows each mean is taken, and how often these rows were asked
before; with that of all parties, in `meet`, every site makes the same tightened problem. After the run the server sends the
candidate's parameters once (`count`), and a party answers with its counts; where sums are secure, those that only limits over all
rows are about are added up in secret. Neither the rows nor the draw leave the party.
"""

import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fedpact.engines.remote import Link, PartyRefused
from fedpact.engines.serialization import Layout, Refused
from fedpact.engines.summing import Specs
from fedpact.federation.fingerprint import digest_of_data
from fedpact.federation.table import Table
from fedpact.files import private_folder, write
from fedpact.problem.shape import Shape
from fedpact.problem.statement import Problem
from fedpact.promises.agreed import AgreedPromise
from fedpact.promises.held_out import Tally, counted, rows_of
from fedpact.records import Record
from fedpact.run.promise import Promise, judged, shift_of
from fedpact.run.result import Result

NAMES = ("rows", "totals", "outside")
LEDGER = "promises.json"  # in a party's folder: by held-out rows the runs that asked them, and with which parameters


class Candidate(Record):
    """The message of the test."""

    parameters: np.ndarray
    threshold_shift: np.ndarray


class Counts(Record):
    """A party's answer: for each mean the held-out rows, the sum over them, and how many are outside the range."""

    rows: np.ndarray
    totals: np.ndarray
    outside: np.ndarray


class HeldOut:
    """A party's held-out rows.

    - `folder`: the party's own, for its ledger. `run`: the name of the run.
    """

    def __init__(self, agreed: AgreedPromise, party: str, rows: Table, folder: pathlib.Path, run: str):
        self.agreed, self.party, self.rows, self.run = agreed, party, rows, run
        self.file = folder / LEDGER
        self.key = digest_of_data({party: rows}, None)

    @property
    def counts(self) -> tuple[int, ...]:
        """Over how many of these rows each mean is taken."""
        return tuple(tally.rows for tally in rows_of(self.agreed.statements.means, self.rows))

    @property
    def asked_before(self) -> int:
        """How many other runs have asked these rows."""
        return len(self._ledger().get(self.key, {}).keys() - {self.run})

    def as_words(self) -> dict[str, Any]:
        """What the party tells before the first round."""
        return {"rows": self.rows.rows, "counts": self.counts, "asked": self.asked_before, "drawn_as": self.key}

    def answer(self, shape: Shape, arrays: dict[str, np.ndarray]) -> Counts:
        """The counts at a candidate's parameters, one candidate in each run; it is written down before it is answered."""
        means, asked = self.agreed.statements.means, self.candidate(shape, arrays)
        w = asked.parameters
        ledger, candidate = (
            self._ledger(),
            hashlib.sha256(w.tobytes() + asked.threshold_shift.tobytes()).hexdigest()[:16],
        )
        runs = ledger.setdefault(self.key, {})
        if runs.setdefault(self.run, candidate) != candidate:
            raise Refused(
                "its held-out rows were asked in this run already, with other parameters; a promise has one test"
            )
        private_folder(self.file.parent)
        write(self.file, json.dumps(ledger).encode())
        tallies = counted(means, self.party, self.rows, shape.unravel(w), float(asked.threshold_shift))
        columns = zip(*((tally.rows, tally.total, tally.outside) for tally in tallies), strict=True)
        return Counts(*map(np.array, columns))

    @staticmethod
    def candidate(shape: Shape, arrays: dict[str, np.ndarray]) -> "Candidate":
        """What the message of the test asks about."""
        layout = message_layout(shape)
        layout.check(arrays)
        return layout.as_tree(arrays)

    def _ledger(self) -> dict[str, dict[str, str]]:
        return json.loads(self.file.read_text()) if self.file.exists() else {}


def message_layout(shape: Shape) -> Layout:
    """Of the message of the test."""
    return Layout.of(Candidate(_spec((shape.size,), np.float64), _spec((), np.float64)))


def reply_layout(agreed: AgreedPromise) -> Layout:
    """Of a party's answer."""
    count = len(agreed.statements.means)
    return Layout.of(Counts(_spec((count,), np.int64), _spec((count,), np.float64), _spec((count,), np.int64)))


def summed_places(agreed: AgreedPromise) -> list[int]:
    """The means that no limit at single parties is about: sums over all parties are enough of these."""
    single = {place for s in agreed.statements.each if s.party is not None for place in s.places}
    return [place for place in range(len(agreed.statements.means)) if place not in single]


def apart_and_summed(agreed: AgreedPromise, counts: Counts) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """A party's answer where sums are secure: what the server needs of each party, and what it needs the sum of."""
    summed = summed_places(agreed)
    single = [place for place in range(len(counts.rows)) if place not in summed]
    told = {"rows": counts.rows, "own totals": counts.totals[single], "own outside": counts.outside[single]}
    return told, {"totals": counts.totals[summed], "outside": counts.outside[summed]} if summed else {}


def secure_specs(agreed: AgreedPromise) -> tuple[Specs, Specs]:
    """The shapes and kinds of these: what is added up, and what is not."""
    means, summed = len(agreed.statements.means), len(summed_places(agreed))
    single = means - summed
    apart = {"rows": ((means,), "i"), "own totals": ((single,), "f"), "own outside": ((single,), "i")}
    return {"totals": ((summed,), "f"), "outside": ((summed,), "i")} if summed else {}, apart


def _spec(shape: tuple[int, ...], kind: Any) -> Any:
    return jax.ShapeDtypeStruct(shape, kind)


class Told:
    """What all parties tell of their held-out rows; raises ValueError where it is not of this form."""

    def __init__(self, agreed: AgreedPromise, words: Mapping[str, Any]):
        try:
            self.words = {party: dict(own) for party, own in words.items()}
            self.rows = {party: int(own["rows"]) for party, own in self.words.items()}
            self.counts = {party: tuple(map(int, own["counts"])) for party, own in self.words.items()}
            before = [int(own["asked"]) for own in self.words.values()]
            self.drawn_as = " ".join(str(own["drawn_as"]) for own in self.words.values())
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"that is no account of held-out rows: {error!r}") from None
        means = len(agreed.statements.means)
        for party, own in self.counts.items():
            if len(own) != means or not all(0 <= count <= self.rows[party] for count in own):
                raise ValueError(f"party {party!r} tells numbers of held-out rows that cannot be")
        self.asked = 1 + max(before)
        self.agreed = agreed.asked(self.asked)

    def problem(self) -> Problem:
        """The problem that the candidate solves: the same at every site."""
        return self.agreed.tightened({party: tuple(map(Tally, own)) for party, own in self.counts.items()})


def told_of(held_out: HeldOut, parties: Sequence[str], meeting: Mapping[str, Any]) -> Told:
    """What the server says that all parties told, as one of them reads it; refused where it is not what this one told."""
    words = meeting.get("held_out")
    if not isinstance(words, Mapping) or set(words) != set(parties):
        raise Refused("the server does not say what the parties hold out")
    told = Told(held_out.agreed, {party: words[party] for party in parties})
    own = held_out.as_words()
    if told.counts[held_out.party] != own["counts"] or told.asked <= own["asked"]:
        raise Refused("the server says other numbers of its held-out rows, or of their askings, than it told")
    return told


def tested(link: Link, told: Told, result: Result, hidden: bool) -> Promise:
    """The server's part of the test: one exchange of counts, where the candidate is converged.

    hidden: whether counts are told of each party only where a limit is at each.
    """
    tallies = together = None
    if result.converged:
        shape = Shape.of(result.params)
        message = message_layout(shape).by_name(Candidate(shape.ravel(result.params), np.asarray(shift_of(result))))
        summed, counts = (_hidden_counts if hidden else _counts)(link, told.agreed, message)
        for party, own in counts.items():
            if own.rows.tolist() != list(told.counts[party]):
                raise PartyRefused(party, "it counts other numbers of held-out rows than it told at the start")
        tallies = {party: _tallies(own) for party, own in counts.items()}
        together = None if summed is None else _tallies(summed)
    return judged(result, told.agreed, tallies, told.rows, told.drawn_as, together)


def _tallies(counts: Counts) -> tuple[Tally, ...]:
    columns = counts.rows.tolist(), counts.totals.tolist(), counts.outside.tolist()
    return tuple(Tally(*own) for own in zip(*columns, strict=True))


def _counts(link: Link, agreed: AgreedPromise, message: dict[str, np.ndarray]) -> tuple[None, dict[str, Counts]]:
    layout = reply_layout(agreed)
    answers = link.gather({"kind": "count"}, message, layout)
    return None, {party: layout.as_tree(named) for party, named in answers.items()}


def _hidden_counts(
    link: Link, agreed: AgreedPromise, message: dict[str, np.ndarray]
) -> tuple[Counts, dict[str, Counts]]:
    """Of all parties together, and of each party; NaN where a party's own total is not known."""
    specs, apart = secure_specs(agreed)
    sums, answers = link.ask_sums({"kind": "count"}, message, specs, apart)
    places = summed_places(agreed)
    single = [place for place in range(len(agreed.statements.means)) if place not in places]
    counts = {}
    for party, (_, own) in answers.items():
        totals, outside = np.full(len(own["rows"]), np.nan), np.zeros(len(own["rows"]), np.int64)
        totals[single], outside[single] = own["own totals"], own["own outside"]
        counts[party] = Counts(own["rows"], totals, outside)
    together = Counts(*(np.sum([getattr(own, n) for own in counts.values()], axis=0) for n in NAMES))
    if places:
        together.totals[places], together.outside[places] = sums["totals"], sums["outside"]
    return together, counts
