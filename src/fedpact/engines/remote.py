"""Parties elsewhere: a `Network` on whatever carries bytes to them and back.

A round is compiled as it is for parties in this process; an exchange is a call out of the compiled program. A party's state
stays with the party: the server holds the number of a version of it, and names that version when it asks for a step.
"""

import dataclasses
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback

from fedpact.engines.local import LocalNetwork
from fedpact.engines.plan import Exchange, Plan
from fedpact.engines.wire import HEADER, Layout, Refused, pack, unpack
from fedpact.problem.oracle import Oracle
from fedpact.problem.regularizers import FlatRegularizer
from fedpact.protocol.messages import Reply
from fedpact.protocol.network import Numbers, PartyStates, Role, Step, Tell

NOTHING = -1  # the version of states that do not exist yet


class PartyLost(Exception):
    """A party that did not answer, or not as agreed. What was saved is kept: the run can be resumed."""

    def __init__(self, party: str, why: str):
        super().__init__(f"party {party!r}: {why}")
        self.party, self.why = party, why


class Channel(Protocol):
    """How an engine reaches the parties."""

    def ask(self, message: bytes, parties: Sequence[str]) -> dict[str, bytes]:
        """The same message to each of these parties at once, and their answers; raises PartyLost where one stays away."""
        ...


class Nobody:
    """The channel of whoever traces a run and asks nobody."""

    def ask(self, message: bytes, parties: Sequence[str]) -> dict[str, bytes]:
        raise PartyLost(parties[0], f"nobody is there to get a message of {len(message)} bytes")


class Elsewhere(eqx.Module):
    """States that are with their parties: which version is meant, and what they look like."""

    version: jax.Array
    layout: Layout = eqx.field(static=True)


@dataclasses.dataclass(eq=False)
class Link:
    """The server's end of a channel: numbers its messages, checks the answers, adds them up."""

    channel: Channel
    names: tuple[str, ...]
    active: tuple[bool, ...]
    run: str
    plan: Plan = dataclasses.field(default_factory=Plan)
    number: int = 0
    oldest: int = NOTHING  # the version that the round began with: those before it are needed no more
    made: dict[int, tuple[int, Role | None]] = dataclasses.field(
        default_factory=dict
    )  # of a version: before it, by whom
    failure: BaseException | None = None
    turn: threading.Lock = dataclasses.field(default_factory=threading.Lock)  # one exchange after the other

    def asked(self, among: Role | None) -> list[str]:
        if among is None:
            return list(self.names)
        return [n for n, active in zip(self.names, self.active, strict=True) if active == (among == "active")]

    def versions(self, version: int) -> dict[str, int]:
        """What a version is called by the parties of either role: the last before it that they had a part in."""
        return {role: self._of(role, version) for role in get_args(Role)}

    def _of(self, role: str, version: int) -> int:
        while version in self.made and self.made[version][1] not in (None, role):
            version = self.made[version][0]
        return version

    def tell(self, words: dict[str, Any], most: int = HEADER) -> dict[str, dict[str, Any]]:
        """Words to every party, and what each answers."""
        return {name: answer for name, (answer, _) in self._asked(words, {}, list(self.names), most).items()}

    def exchange(self, exchange: Exchange, version: np.ndarray, raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Called from the compiled round: bytes of the message to bytes of the combined reply, and the new version."""
        with self.turn:
            return self._exchange(exchange, version, raw)

    def _exchange(self, exchange: Exchange, version: np.ndarray, raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        try:
            before = int(np.asarray(version).view(np.int64)[0])
            message = exchange.message.by_name(np.asarray(raw))
            exchange.message.check(message)
            self.number += 1
            words = {
                "kind": "step",
                "exchange": exchange.name,
                "number": self.number,
                "versions": self.versions(before),
                "oldest": self.versions(self.oldest),
            }
            names = self.asked(exchange.among)
            answers = self._asked(words, message, names, exchange.reply.size + HEADER)
            for name, (told, arrays) in answers.items():
                try:
                    if told.get("number") != self.number:
                        raise Refused(f"it answers message {told.get('number')}, not {self.number}")
                    exchange.reply.check(arrays)
                except Refused as error:
                    raise PartyLost(name, f"its reply to {exchange.name!r} is refused: {error}") from None
            needed = min(self.versions(self.oldest).values())
            self.made = {n: m for n, m in self.made.items() if n >= needed} | {self.number: (before, exchange.among)}
            total = _combined(exchange, [answers[name][1] for name in names])
            return exchange.combined.raw(total), np.asarray([self.number], np.int64).view(np.uint8)
        except BaseException as error:
            self.failure = error
            raise

    def _asked(
        self, words: dict[str, Any], arrays: dict[str, np.ndarray], names: list[str], most: int
    ) -> dict[str, tuple[dict[str, Any], dict[str, np.ndarray]]]:
        answers = self.channel.ask(pack({"run": self.run, **words}, arrays), names)
        unknown = sorted(answers.keys() - set(names))
        if unknown:
            raise PartyLost(unknown[0], "it answered though nobody asked it")
        out = {}
        for name in names:
            if name not in answers:
                raise PartyLost(name, "no answer")
            try:
                told, found = unpack(answers[name], most)
            except Refused as error:
                raise PartyLost(name, str(error)) from None
            if "refused" in told:
                raise PartyLost(name, f"it refuses: {told['refused']}")
            if told.get("run") != self.run or told.get("party") != name:
                raise PartyLost(name, "its answer belongs to another run or comes from another party")
            out[name] = told, found
        return out


def _combined(exchange: Exchange, replies: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Sums and maxima over the replies; what each told stays apart, in the parties' order."""
    out = {}
    for leaf in exchange.combined.leaves:
        parts = [reply[leaf.name] for reply in replies]
        if leaf.name.startswith(".sum"):
            out[leaf.name] = np.asarray(functools.reduce(np.add, parts), leaf.dtype)
        elif leaf.name.startswith(".max"):
            out[leaf.name] = np.asarray(functools.reduce(np.maximum, parts), leaf.dtype)
        else:
            out[leaf.name] = np.stack(parts)
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
        states = None if parties is None else parties.layout.specs
        message = jax.tree.map(jnp.asarray, message)
        reply, after = jax.eval_shape(lambda s, m: self.like.exchange(step, s, m, among), states, message)
        met = self.link.plan.met(step, among, self.count(among), message, reply, after)
        version = jnp.asarray(NOTHING, jnp.int64) if parties is None else parties.version
        raw, number = io_callback(
            functools.partial(self.link.exchange, met),
            (jax.ShapeDtypeStruct((met.combined.size,), jnp.uint8), jax.ShapeDtypeStruct((8,), jnp.uint8)),
            lax.bitcast_convert_type(version, jnp.uint8),
            met.message.flattened(message),
        )
        return met.combined.restored(raw), Elsewhere(lax.bitcast_convert_type(number, jnp.int64), met.state)

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
