"""Parties elsewhere: a `Network` on whatever carries bytes to them and back.

A round is compiled as it is for parties in this process; an exchange is a call out of the compiled program. A party's state
stays with the party: the server holds the number of a version of it, and names that version when it asks for a step.
"""

import dataclasses
import functools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback

from fedpact.engines.exchanges import Exchange, Plan
from fedpact.engines.local import LocalNetwork
from fedpact.engines.serialization import HEADER, Layout, Refused, is_finite, pack, unpack
from fedpact.problem.oracle import Oracle
from fedpact.problem.regularizers import FlatRegularizer
from fedpact.protocol.messages import Reply
from fedpact.protocol.network import Ask, Numbers, PartyStates, Role, Step, Tell

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


class Nobody:
    """The channel of whoever traces a run and asks nobody."""

    interrupts = False

    def ask(self, message: bytes, parties: Sequence[str], some: bool = False) -> dict[str, bytes]:
        raise PartyLost(parties[0], f"nobody is there to get a message of {len(message)} bytes")


class Elsewhere(eqx.Module):
    """States that are with their parties: which version is meant, and what they look like."""

    version: jax.Array
    layout: Layout = eqx.field(static=True)


Answers = dict[str, tuple[dict[str, Any], dict[str, np.ndarray]]]  # by party: words and arrays


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
    plan: Plan = dataclasses.field(default_factory=Plan)
    number: int = 0
    oldest: int = NOTHING  # the version that the round began with: those before it are needed no more
    made: dict[int, tuple[int, frozenset[str]]] = dataclasses.field(default_factory=dict)  # version: before it, by whom
    welcome: Callable[[str, int], None] | None = None  # greets a party anew that lost what it had: its name and version
    failure: BaseException | None = None
    not_finite: set[str] = dataclasses.field(default_factory=set)  # who said that its numbers were not
    turn: threading.Lock = dataclasses.field(default_factory=threading.Lock)  # one call out of a round after the other

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

    def tell(self, words: dict[str, Any], names: Sequence[str] | None = None, some: bool = False) -> dict[str, Any]:
        """Words to parties (default: all), and what each answers."""
        asked = self.names if names is None else names
        return {name: answer for name, (answer, _) in self._asked(words, {}, asked, HEADER, some).items()}

    def exchange(
        self, exchanges: tuple[Exchange, ...], version: np.ndarray, *raw: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """Called from the compiled round: bytes of messages to bytes of the combined replies, and the new version."""
        with self.turn:
            try:
                before = int(np.asarray(version).view(np.int64)[0])
                totals = self._exchanged(self._calls(exchanges, before, raw))
                return *totals, np.asarray([self.number], np.int64).view(np.uint8)
            except BaseException as error:
                self.failure = error
                raise

    def _calls(self, exchanges: tuple[Exchange, ...], before: int, raw: tuple[np.ndarray, ...]) -> list[Call]:
        needed = self.versions(self.oldest)
        self.made = {n: m for n, m in self.made.items() if n >= min(needed.values())}
        calls = []
        for exchange, sent in zip(exchanges, raw, strict=True):
            message = exchange.message.by_name(np.asarray(sent))
            exchange.message.check(message, finite=False)
            self.number += 1
            words = {
                "kind": "step",
                "finite": all(map(is_finite, message.values())),
                "exchange": exchange.name,
                "number": self.number,
                "versions": self.versions(before),
                "oldest": needed,
            }
            names = self.asked(exchange.among)
            self.made[self.number] = before, frozenset(names)
            calls.append(Call(exchange, self.number, names, words, message))
            before = self.number
        return calls

    def _exchanged(self, calls: list[Call]) -> list[np.ndarray]:
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

    def _replies(self, call: Call) -> np.ndarray:
        exchange = call.exchange
        most = exchange.reply.size + HEADER
        answers = self._asked(call.words, call.message, call.names, most, exchange.partial)
        for name, (told, arrays) in answers.items():
            try:
                if told.get("number") != call.number:
                    raise Refused(f"it answers message {told.get('number')}, not {call.number}")
                exchange.reply.check(arrays, finite=told.get("finite") is not False)
            except Refused as error:
                raise PartyRefused(name, f"its reply to {exchange.name!r} is refused: {error}") from None
            if told.get("finite") is False:
                self.not_finite.add(name)
        if not answers:
            raise PartyLost(call.names[0], "no answer, and none of anybody else")
        self.made[call.number] = self.made[call.number][0], frozenset(answers)
        return exchange.combined.raw(_combined(exchange, [answers[n][1] if n in answers else None for n in call.names]))

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
                told, found = unpack(answers[name], most)
            except Refused as error:
                raise PartyRefused(name, str(error)) from None
            comes_back = self.welcome if some and told.get("anew") else None
            if "refused" in told and comes_back is None:
                raise PartyRefused(name, f"it refuses: {told['refused']}")
            if (told.get("run"), told.get("session"), told.get("party")) != (self.run, self.session, name):
                raise PartyRefused(name, "its answer belongs to another run or comes from another party")
            if comes_back is not None:
                try:
                    comes_back(name, words["versions"][name])  # it takes part from the next exchange on
                except PartyRefused:
                    raise
                except PartyLost:
                    pass  # gone again
                continue
            out[name] = told, found
        return out


def _combined(exchange: Exchange, replies: list[dict[str, np.ndarray] | None]) -> dict[str, np.ndarray]:
    """Sums and maxima over the replies; what each told stays apart, in the parties' order, NaN of one that stayed away."""
    there = [reply for reply in replies if reply is not None]
    out = {}
    for leaf in exchange.combined.leaves:
        parts = [reply[leaf.name] for reply in there]
        if leaf.name.startswith(".sum"):
            out[leaf.name] = np.asarray(functools.reduce(np.add, parts), leaf.dtype)
        elif leaf.name.startswith(".max"):
            out[leaf.name] = np.asarray(functools.reduce(np.maximum, parts), leaf.dtype)
        else:
            missing = np.full_like(parts[0], np.nan if parts[0].dtype.kind == "f" else 0)
            out[leaf.name] = np.stack([missing if reply is None else reply[leaf.name] for reply in replies])
    return out


class RemoteNetwork(eqx.Module):
    """The parties behind a link. `like` has tables of zeros in place of theirs: shapes are all that is read of it."""

    like: LocalNetwork
    link: Link = eqx.field(static=True)

    @property
    def parties(self) -> int:
        return self.like.parties

    @property
    def server(self) -> Oracle:
        return self.like.server

    @property
    def regularizer(self) -> FlatRegularizer:
        return self.like.regularizer

    def exchange(
        self, step: Step, parties: PartyStates, message: Any, among: Role | None = None
    ) -> tuple[Reply, PartyStates]:
        met, states = self._met(step, self._states(parties), message, among)
        (reply,), parties = self._called([met], [message], parties, states)
        return reply, parties

    def partial_exchange(self, step: Step, parties: PartyStates, message: Any) -> tuple[Reply, PartyStates]:
        met, states = self._met(step, self._states(parties), message, None, partial=True)
        (reply,), parties = self._called([met], [message], parties, states)
        return reply, parties

    def at_once(self, parties: PartyStates, *asks: Ask) -> tuple[list[Reply], PartyStates]:
        states, met = self._states(parties), []
        for ask in asks:
            found, states = self._met(ask.step, states, ask.message, ask.among, patient=ask.patient)
            met.append(found)
        return self._called(met, [ask.message for ask in asks], parties, states)

    def _states(self, parties: PartyStates) -> Any:
        return None if parties is None else parties.layout.specs

    def _met(self, step: Step, states: Any, message: Any, among: Role | None, **more: bool) -> tuple[Exchange, Any]:
        """The exchange, and what the parties' states look like after it."""
        message = jax.tree.map(jnp.asarray, message)
        reply, after = jax.eval_shape(lambda s, m: self.like.exchange(step, s, m, among), states, message)
        return self.link.plan.met(step, among, self.count(among), message, reply, after, **more), after

    def _called(
        self, met: list[Exchange], messages: list[Any], parties: PartyStates, after: Any
    ) -> tuple[list[Reply], PartyStates]:
        version = jnp.asarray(NOTHING, jnp.int64) if parties is None else parties.version
        *raw, number = io_callback(
            functools.partial(self.link.exchange, tuple(met)),
            (
                *(jax.ShapeDtypeStruct((each.combined.size,), jnp.uint8) for each in met),
                jax.ShapeDtypeStruct((8,), jnp.uint8),
            ),
            lax.bitcast_convert_type(version, jnp.uint8),
            *(each.message.flattened(message) for each, message in zip(met, messages, strict=True)),
        )
        replies = [each.combined.restored(part) for each, part in zip(met, raw, strict=True)]
        return replies, Elsewhere(lax.bitcast_convert_type(number, jnp.int64), Layout.of(after))

    def count(self, among: Role | None = None) -> int:
        return self.like.count(among)

    def gradients(
        self, numbers: Numbers, parties: PartyStates, message: Any, w: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        reply, _ = self.exchange(functools.partial(lines, numbers), parties, (message, w))
        return reply.sum

    def share(self, tell: Tell, step: Step, parties: PartyStates, message: Any) -> tuple[Reply, PartyStates]:
        raise ValueError(
            "parties elsewhere are reached through the server, and this method wants them to talk to one another: "
            "leave relay=False out"
        )

    def collected(self, states: Elsewhere) -> Elsewhere:
        """States stay where they are."""
        return states

    placed = collected

    def agreed(self, number: int) -> int:
        """The server alone decides."""
        return number

    def when(self, predicate: jax.Array, branch: Callable[..., Any], *operands: Any) -> Any:
        return lax.cond(predicate, lambda *given: branch(self, *given), lambda *kept: kept, *operands)


def lines(numbers: Numbers, own: Any, state: Any, message: Any) -> tuple[Any, Reply]:
    """A party's step: its numbers at w, and the gradient of each of them."""
    inside, w = message
    values, pull = jax.vjp(lambda w: numbers(own, state, inside, w), w)
    slopes = jax.vmap(lambda e: pull(e)[0])(jnp.eye(values.size, dtype=values.dtype))
    return state, Reply(sum=(values, slopes))
