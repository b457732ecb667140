"""Parties elsewhere: a `Network` on whatever carries bytes to them and back.

What the server computes between two exchanges is compiled as it is for parties in this process. A party's state stays with the
party: the server holds the number of a version of it, and names that version when it asks for a step.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedpact.engines.exchanges import Exchange, ExchangePlan
from fedpact.engines.sealing import TOLD, added, is_sealed, opened, sealed_layout
from fedpact.engines.serialization import HEADER, Layout, Refused, is_finite, largest_of, pack, unpack
from fedpact.engines.summing import Specs, opened_sums, sealed_sums_layout
from fedpact.protocol import ring
from fedpact.protocol.engine import HostNetwork
from fedpact.protocol.messages import Reply
from fedpact.protocol.phases import Ask, Role
from fedpact.records import Record

HUGE = 1e150  # numbers whose squares are not finite any more
NOTHING = -1  # the version of states that do not exist yet


class PartyLost(Exception):
    """A party that did not answer, or not as agreed. What was saved is kept: the run can be resumed."""

    def __init__(self, party: str, why: str):
        super().__init__(f"party {party!r}: {why}")
        self.party, self.why = party, why


class PartyRefused(PartyLost):
    """A party that answered, but not as agreed."""


class Channel(Protocol):
    """How an engine reaches the parties; may be used by several threads at once."""

    interrupts: bool  # whether a message reaches a party that is at work on another

    def ask(self, message: bytes, parties: Sequence[str], some: bool = False) -> dict[str, bytes]:
        """The same message to each of these parties at once, and their answers; raises PartyLost where one stays away.

        some: leave out who stays away; raises PartyLost where all do.
        """
        ...


class RemoteStates(Record):
    """States that stay with their parties: which version of them is meant."""

    version: np.ndarray  # int64

    @classmethod
    def of(cls, version: int) -> "RemoteStates":
        return cls(np.asarray(version, np.int64))


Answers = dict[str, tuple[dict[str, Any], dict[str, np.ndarray]]]  # by party: header and arrays


class Call(NamedTuple):
    """One exchange on its way."""

    exchange: Exchange
    number: int
    names: list[str]
    words: dict[str, Any]
    message: dict[str, np.ndarray]


@dataclasses.dataclass(eq=False)
class Link:
    """The server's end of a channel: numbers its messages, checks the answers, adds them up."""

    channel: Channel
    names: tuple[str, ...]
    active: tuple[bool, ...]
    run: str
    session: str  # of this process: messages and answers of another one do not count
    plan: ExchangePlan = dataclasses.field(default_factory=ExchangePlan)
    number: int = 0
    round: int = 0  # that is under way, for the parties' operators to see
    oldest: int = NOTHING  # the version that the round began with: those before it are needed no more
    made: dict[int, tuple[int, frozenset[str]]] = dataclasses.field(default_factory=dict)  # version: before it, by whom
    welcome: Callable[[str, int], None] | None = (
        None  # greets a party again whose process was restarted: its name and version
    )
    failure: BaseException | None = None
    secure: bool = False  # whether replies are sealed, so that only their sums can be read
    checked: bool = False  # whether parties check the points: then they are told the sums of the last exchange
    some_missing: bool = False  # whether secure sums are over those who are there: each first says that it is
    totals: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)  # of the last exchange
    envelopes: dict[str, str] = dataclasses.field(default_factory=dict)  # from one party to the others, not told yet
    spoilt: bool = False  # whether in a sum somebody's numbers were not finite, and nobody knows whose
    largest_reply: float | None = None  # the largest absolute number that a party may send (None: any finite one)
    # who said that its numbers were not finite, or sent one above HUGE, and in which message first
    suspects: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def first_suspects(self) -> list[str]:
        """Whose numbers were the first that were not finite, or huge: what others send afterwards follows from these."""
        first = min(self.suspects.values(), default=None)
        return sorted(name for name, number in self.suspects.items() if number == first)

    def asked(self, among: Role | None) -> list[str]:
        if among is None:
            return list(self.names)
        return [n for n, active in zip(self.names, self.active, strict=True) if active == (among == "active")]

    def versions(self, version: int) -> dict[str, int]:
        """What a version is called by each party: the last before it that the party had a part in."""
        return {name: self._of(name, version) for name in self.names}

    def _of(self, name: str, version: int) -> int:
        while version in self.made and name not in self.made[version][1]:
            version = self.made[version][0]
        return version

    def tell(
        self,
        words: dict[str, Any],
        names: Sequence[str] | None = None,
        some: bool = False,
        arrays: dict[str, np.ndarray] | None = None,
    ) -> dict[str, Any]:
        """Words, and arrays where there are some, to parties (default: all), and what each answers in words."""
        asked = self.names if names is None else names
        return {name: answer for name, (answer, _) in self._asked(words, arrays or {}, asked, HEADER, some).items()}

    def ask_all(
        self, words: dict[str, Any], arrays: dict[str, np.ndarray], most: int, names: Sequence[str] | None = None
    ) -> Answers:
        """Words and arrays to parties (default: all) outside of the plan, and their answers of at most `most` bytes each."""
        return self._asked(words, arrays, self.names if names is None else names, most)

    def gather(
        self, words: dict[str, Any], message: dict[str, np.ndarray], reply: Layout
    ) -> dict[str, dict[str, np.ndarray]]:
        """Words and arrays to all parties, outside of the method's exchanges, and the arrays that each answers."""
        out = {}
        for name, (_, arrays) in self.ask_all(words, message, reply.size + HEADER).items():
            try:
                reply.check(arrays)
            except Refused as error:
                raise PartyRefused(name, f"its reply to {words['kind']!r} is refused: {error}") from None
            out[name] = arrays
        return out

    def ask_sums(
        self, words: dict[str, Any], message: dict[str, np.ndarray], sums: Specs, apart: Specs | None = None
    ) -> tuple[dict[str, np.ndarray], Answers]:
        """Words and arrays to all parties, outside of the method's exchanges, and what their sealed answers add up to.

        Parties make keys for it first, so that it does not matter whose process was restarted since the last exchange.

        - `sums`: what is added up. `apart`: what else each answers, which comes back by party with its words (default: nothing).

        Raises ValueError where some party's numbers are not finite.
        """
        reply = sealed_sums_layout(sums, apart)
        keys = {name: answer.get("session_key") for name, answer in self.tell({"kind": "keys"}).items()}
        answers = self.ask_all({**words, "keys": keys}, message, reply.size + HEADER)
        for name, (_, arrays) in answers.items():
            try:
                reply.check(arrays, finite=False)
            except Refused as error:
                raise PartyRefused(name, f"its reply to {words['kind']!r} is refused: {error}") from None
        added_up = opened_sums(sums, [arrays for _, arrays in answers.values()]) if sums else {}
        if added_up is None:
            raise ValueError(
                f"in the answers to {words['kind']!r} some party's numbers are not finite, or parties were not asked the same; "
                "secure sums hide whose: look into the parties' own logs, or run with options = {'privacy': None}"
            )
        own = {name: (header, {n: arrays[n] for n in apart or {}}) for name, (header, arrays) in answers.items()}
        return added_up, own

    def exchange(self, asks: Sequence[Ask], before: int) -> list[Reply]:
        """Messages to groups of parties at the same time, and the combined reply of each; `self.number` is the new version."""
        try:
            calls = self._calls(asks, before)
            replies = self._exchanged(calls)
        except BaseException as error:
            self.failure = error
            raise
        return [call.exchange.combined.as_tree(reply) for call, reply in zip(calls, replies, strict=True)]

    def _calls(self, asks: Sequence[Ask], before: int) -> list[Call]:
        needed = self.versions(self.oldest)
        self.made = {n: m for n, m in self.made.items() if n >= min(needed.values())}
        calls = []
        for ask in asks:
            exchange = self.plan.of_ask(ask)
            message = exchange.message.by_name(ask.message)
            exchange.message.check(message, finite=False)
            message |= self.told()
            self.number += 1
            words = {
                "kind": "step",
                "finite": all(map(is_finite, message.values())),
                "exchange": exchange.name,
                "number": self.number,
                "round": self.round,
                "versions": self.versions(before),
                "oldest": needed,
                **({"envelopes": self.envelopes} if self.envelopes else {}),
            }
            self.envelopes = {}
            names = self.asked(exchange.among)
            if ask.drawn is not None:
                names = [self.names[place] for place in np.asarray(ask.drawn)]
            self.made[self.number] = before, frozenset(names)
            calls.append(Call(exchange, self.number, names, words, message))
            before = self.number
        return calls

    def told(self) -> dict[str, np.ndarray]:
        """Where points are checked, the sums of the last exchange, for the next message; once."""
        totals, self.totals = self.totals, {}
        return {f"{TOLD}{name}": array for name, array in totals.items()} if self.checked else {}

    def _exchanged(self, calls: list[Call]) -> list[dict[str, np.ndarray]]:
        if len(calls) == 1:
            return [self._replies(calls[0])]
        with ThreadPoolExecutor(len(calls)) as threads:
            waits = {call.number: threads.submit(self._replies, call) for call in calls}
            patient = [call for call in calls if call.exchange.patient]
            if patient and self.channel.interrupts:
                wait([waits[call.number] for call in calls if not call.exchange.patient])
                for call in patient:
                    if not waits[call.number].done():
                        self._asked({"kind": "enough", "number": call.number}, {}, call.names, HEADER)
            return [waits[call.number].result() for call in calls]

    def _replies(self, call: Call) -> dict[str, np.ndarray]:
        exchange = call.exchange
        reply = sealed_layout(exchange.reply, self.checked) if self.secure else exchange.reply
        answers = self._asked(call.words, call.message, call.names, reply.size + HEADER, exchange.optional)
        if self.secure and self.some_missing and is_sealed(exchange.reply):
            answers = self._sealed_for(call, answers, reply.size + HEADER)
        for name, (header, arrays) in answers.items():
            try:
                if header.get("number") != call.number:
                    raise Refused(f"it answers message {header.get('number')}, not {call.number}")
                reply.check(arrays, finite=header.get("finite") is not False)
                if self.largest_reply is not None and not self.secure:  # else the party itself sees to it
                    reply.check_size(arrays, self.largest_reply)
            except Refused as error:
                raise PartyRefused(name, f"its reply to {exchange.name!r} is refused: {error}") from None
            if header.get("finite") is False or max(map(largest_of, arrays.values()), default=0.0) > HUGE:
                self.suspects.setdefault(name, call.number)
        if not answers:
            raise PartyLost(call.names[0], "no answer, and none of anybody else")
        self.made[call.number] = self.made[call.number][0], frozenset(answers)
        replies = [answers[n][1] if n in answers else None for n in self.asked(exchange.among)]
        if not self.secure or not is_sealed(exchange.reply):
            return _combined(exchange, replies)
        apart = _combined(exchange, replies, only=".per_party")
        self.totals = added([reply for reply in replies if reply is not None])
        sums, finite = opened(exchange.reply, self.totals)
        self.spoilt = self.spoilt or not finite
        return apart | sums

    def _sealed_for(self, call: Call, ready: Answers, most: int) -> Answers:
        """The replies of those who said that they are ready, masked for just these. Who is lost now ends the run."""
        if len(ready) < ring.FEWEST:
            away = [name for name in call.names if name not in ready]
            raise PartyLost(
                away[0], f"no answer, and a secure sum is over {ring.FEWEST} parties at least; {len(ready)} are left"
            )
        keys = {name: header.get("session_key") for name, (header, _) in ready.items()}
        return self._asked({"kind": "seal", "number": call.number, "keys": keys}, {}, list(ready), most)

    def _asked(
        self, words: dict[str, Any], arrays: dict[str, np.ndarray], names: Sequence[str], most: int, some: bool = False
    ) -> Answers:
        answers = self.channel.ask(pack({"run": self.run, "session": self.session, **words}, arrays), names, some)
        unknown = sorted(answers.keys() - set(names))
        if unknown:
            raise PartyRefused(unknown[0], "it answered though nobody asked it")
        out: Answers = {}
        for name in names:
            if name not in answers:
                if some:
                    continue
                raise PartyLost(name, "no answer")
            try:
                header, arrays = unpack(answers[name], most)
            except Refused as error:
                raise PartyRefused(name, str(error)) from None
            comes_back = self.welcome if some and header.get("restarted") else None
            if "refused" in header and comes_back is None:
                raise PartyRefused(name, f"it refuses: {header['refused']}")
            if (header.get("run"), header.get("session"), header.get("party")) != (self.run, self.session, name):
                raise PartyRefused(name, "its answer belongs to another run or comes from another party")
            if comes_back is not None:
                try:
                    comes_back(name, words["versions"][name])  # it takes part from the next exchange on
                except PartyRefused:
                    raise
                except PartyLost:
                    pass  # gone again
                continue
            out[name] = header, arrays
        return out


def _combined(exchange: Exchange, replies: list[dict[str, np.ndarray] | None], only: str = "") -> dict[str, np.ndarray]:
    """Sums and maxima over the replies; `per_party` leaves in the order of the parties, NaN for a party that has none.

    only: what the names of the leaves begin with (default: all).
    """
    there = [reply for reply in replies if reply is not None]
    out = {}
    for leaf in exchange.combined.leaves:
        if not leaf.name.startswith(only):
            continue
        parts = [reply[leaf.name] for reply in there]
        if leaf.name.startswith(".sum"):
            out[leaf.name] = np.asarray(functools.reduce(np.add, parts), leaf.dtype)
        elif leaf.name.startswith(".max"):
            out[leaf.name] = np.asarray(functools.reduce(np.maximum, parts), leaf.dtype)
        else:
            missing = np.full_like(parts[0], np.nan if parts[0].dtype.kind == "f" else 0)
            out[leaf.name] = np.stack([missing if reply is None else reply[leaf.name] for reply in replies])
    return out


class RemoteNetwork(HostNetwork):
    """The parties behind a link; their states stay with them, and the server knows versions of these."""

    def __init__(self, link: Link) -> None:
        self.link = link

    def exchange(self, asks: Sequence[Ask], states: RemoteStates | None) -> tuple[list[Reply], RemoteStates]:
        replies = self.link.exchange(asks, NOTHING if states is None else int(states.version))
        return replies, RemoteStates.of(self.link.number)

    def collect(self, states: RemoteStates) -> RemoteStates:
        """States stay where they are."""
        return states
