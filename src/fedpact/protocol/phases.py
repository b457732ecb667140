"""A round in phases: the server asks, every party steps, the server hears.

A phase is three pure functions. `ask` and `hear` run at the server and read the server's own data and state, `step` runs at
a party and reads the party's own data, its state and the message. No function holds a network, so the same phases run fused
into one program, one function at a time on the host, and across organisations.

    message          = ask(own, carry)                at the server
    state, reply     = step(own, state, message)      at every party that is asked
    carry            = hear(own, carry, reply)        at the server, with the combined reply

`carry` is the server's state on its way through the phases; each `hear` gives what the next phase begins with.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer

from fedpact.federation.blocks import Block
from fedpact.problem.flat_regularizer import FlatRegularizer
from fedpact.problem.oracle import Oracle
from fedpact.protocol.messages import Reply, alone, sealed_bytes, size_in_bytes
from fedpact.records import Record

PartyStates = Any  # states of all parties: stacked in one process, a version number where they stay with their parties
Role = Literal["active", "passive"]  # of a holder of columns: with labels and groups, or without
Step = Callable[[Any, Any, Any], tuple[Any, Reply]]  # (own data, own state, message) -> (own state, reply)
Drawn = Callable[[Any], jax.Array]  # (message) -> the places of those who are asked, ascending
Functions = Callable[[Any, Any, Any, jax.Array], jax.Array]  # (own data, own state, message, w) -> a vector of numbers


class ServerData(Record):
    """What the server has of its own.

    - `functions`: the problem's functions on the server's own rows (over columns: on labels and groups).
    - `regularizer`: h.
    - `parties`: how many there are.
    - `active`: for each party, whether it is active; empty where rows are split.
    - `coldest_rate`: the least temperature of a smooth rate, at most 1.
    - `secure`: whether it learns sums over parties only (default: no). `checked`: whether it tells the parties these sums, so
      that they can compute its points themselves (default: no).
    """

    functions: Oracle
    regularizer: FlatRegularizer
    parties: int = eqx.field(static=True)
    active: tuple[bool, ...] = eqx.field(static=True, default=())
    coldest_rate: Any = np.float64(1.0)
    secure: bool = eqx.field(static=True, default=False)
    checked: bool = eqx.field(static=True, default=False)

    def count(self, among: Role | None = None) -> int:
        """How many parties there are, of this role."""
        return self.parties if among is None else sum(active == (among == "active") for active in self.active)


@dataclasses.dataclass(frozen=True)
class Phase:
    """One exchange.

    - `ask`, `step`, `hear`: see above.
    - `among`: only parties of this role are asked, and the message reaches nobody else (default: all parties).
    - `optional`: a party may miss it; it then keeps its state and has no part in sums and maxima (default: no).
    - `patient`: parties may work on until those asked at the same time have replied (default: no).
    - `only_if`: (own, carry) -> whether the exchange takes place; `carry` stays as it is where not (default: it always does).
    - `drawn`: (message) -> the places of the parties that are asked in this round, ascending, as many in every round. The others
      would reply with sums of 0 and keep their states, so that an engine may leave them out (default: all are asked).
    """

    ask: Callable[[ServerData, Any], Any]
    step: Step
    hear: Callable[[ServerData, Any, Reply], Any]
    among: Role | None = None
    optional: bool = False
    patient: bool = False
    only_if: Callable[[ServerData, Any], jax.Array] | None = None
    drawn: Drawn | None = None


def send_carry(own: ServerData, carry: Any) -> Any:
    """An `ask` whose message is the carry itself."""
    return carry


def send_nothing(own: ServerData, carry: Any) -> None:
    """An `ask` without a message: the step says all."""


Phases = Sequence[Phase | tuple[Phase, ...]]  # one after the other; those of an inner tuple are asked at the same time


class Ask(NamedTuple):
    """What an engine is given for one group of parties: a step, and the message for it; see `Phase`.

    - `drawn`: the places of those who are asked, where not all are (None: all). `per_party` leaves of the others are NaN.
    """

    step: Step
    message: Any
    among: Role | None = None
    optional: bool = False
    patient: bool = False
    drawn: Any = None


class Network(Protocol):
    """The parties of one run, as an engine reaches them. That is an engine's whole interface to methods."""

    def exchange(self, asks: Sequence[Ask], states: PartyStates) -> tuple[list[Reply], PartyStates]:
        """Ask groups of parties at the same time: each party runs its step; replies are combined by group.

        - `asks`: one for each group; no party is in two of them.
        - `states`: of all parties, as the last exchange returned them; None before the first.

        Returns the combined replies in the order of `asks`, and the new states.
        """
        ...


class Traffic(Record):
    """What exchanges have cost: how many there were, and bytes over all parties."""

    exchanges: Any = 0
    bytes_up: Any = 0
    bytes_down: Any = 0

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(
            self.exchanges + other.exchanges, self.bytes_up + other.bytes_up, self.bytes_down + other.bytes_down
        )


def play(
    phases: Phases, own: ServerData, network: Network, carry: Any, states: PartyStates, optional_traffic: bool = True
) -> tuple[Any, PartyStates, Traffic]:
    """Run phases one after the other.

    - `phases`: in order; those of an inner tuple are asked at the same time.
    - `own`: the server's own data. `network`: reaches the parties.
    - `carry`: what the first `ask` reads. `states`: of all parties, None before the first exchange.
    - `optional_traffic`: whether phases with `only_if` are counted (default: yes).

    Returns the last `carry`, the parties' states and the traffic. In a traced program, a phase with `only_if` is a branch.
    """
    traffic = Traffic()
    for entry in phases:
        group = entry if isinstance(entry, tuple) else (entry,)

        def exchanged(carry: Any, states: PartyStates, group: tuple[Phase, ...] = group) -> tuple[Any, Any, Traffic]:
            asks = [_ask(phase, own, carry) for phase in group]
            replies, states = network.exchange(asks, states)
            cost = Traffic()
            for phase, ask, reply in zip(group, asks, replies, strict=True):
                carry = phase.hear(own, carry, reply)
                cost = cost + traffic_of(ask, reply, own)
            return carry, states, cost

        only_if = group[0].only_if
        if any(phase.only_if != only_if for phase in group):
            raise ValueError("phases at the same time take place together: give all of them the same only_if")
        if only_if is None:
            carry, states, cost = exchanged(carry, states)
        else:
            carry, states, cost = _branch(only_if(own, carry), exchanged, carry, states)
            cost = cost if optional_traffic else Traffic()
        traffic = traffic + cost
    return carry, states, traffic


def _ask(phase: Phase, own: ServerData, carry: Any) -> Ask:
    message = phase.ask(own, carry)
    drawn = None if phase.drawn is None or own.secure else phase.drawn(message)  # secure sums are those of all
    return Ask(as_sent(phase.step), message, phase.among, phase.optional, phase.patient, drawn)


def _branch(
    chosen: Any, exchanged: Callable[[Any, PartyStates], tuple[Any, Any, Traffic]], carry: Any, states: PartyStates
) -> tuple[Any, PartyStates, Traffic]:
    if not isinstance(chosen, Tracer):
        return exchanged(carry, states) if chosen else (carry, states, Traffic())
    nothing = jax.tree.map(lambda x: jnp.asarray(x, jnp.int64), Traffic())

    def taken(carry: Any, states: PartyStates) -> tuple[Any, Any, Traffic]:
        carry, states, cost = exchanged(carry, states)
        return carry, states, nothing + cost

    return lax.cond(chosen, taken, lambda carry, states: (carry, states, nothing), carry, states)


@dataclasses.dataclass(frozen=True)
class AsSent:
    """A step whose reply is what the party sends. Where parties are in one process, `wrapped` leaves sums in parts."""

    wrapped: Step

    def __call__(self, own: Any, state: Any, message: Any) -> tuple[Any, Reply]:
        state, reply = self.wrapped(own, state, message)
        return state, alone(reply)


def as_sent(step: Step) -> Step:
    return step if isinstance(step, GradientStep) else AsSent(step)


def asked_of(ask: Ask, own: ServerData) -> int:
    """How many parties are asked."""
    return own.count(ask.among) if ask.drawn is None else ask.drawn.shape[0]


def traffic_of(ask: Ask, reply: Reply, own: ServerData) -> Traffic:
    """Of one exchange: per party what is broadcast and what comes back, times the parties asked."""
    asked = asked_of(ask, own)
    if not own.secure:
        apart = size_in_bytes(reply.per_party) // own.count(ask.among)  # an entry for each, asked or not
        up = (size_in_bytes((reply.sum, reply.max)) + apart) * asked
        return Traffic(1, up, size_in_bytes(ask.message) * asked)
    sealed = sealed_bytes(reply, own.checked)
    down = size_in_bytes(ask.message) + (sealed if own.checked else 0)  # the sums, with the next message
    return Traffic(1, sealed * asked + size_in_bytes(reply.per_party), down * asked)


class GradientRequest(NamedTuple):
    """The message of a `GradientStep`: where to evaluate, and what else the functions need to know."""

    context: Any
    parameters: jax.Array


class Gradients(NamedTuple):
    """The reply of a `GradientStep`: a vector of values, and the gradient of each of them, line by line."""

    values: jax.Array
    gradients: jax.Array


@dataclasses.dataclass(frozen=True)
class GradientStep:
    """A party's step: a vector of functions at w, and the gradient of each; the server gets the sums over parties.

    An engine that has all parties in one process may differentiate the sum instead of adding
    gradients, which for a network of many parameters takes a fraction of the time.

    - `functions`: (own data, own state, context, w) -> vector.
    """

    functions: Functions

    def __call__(self, own: Oracle | Block, state: Any, message: GradientRequest) -> tuple[Any, Reply]:
        context, w = message
        return state, Reply(sum=values_and_gradients(lambda w: self.functions(own, state, context, w), w))


def values_and_gradients(functions: Callable[[jax.Array], jax.Array], w: jax.Array) -> Gradients:
    """A vector of functions at w, and the gradient of each of them, line by line."""
    values, pull = jax.vjp(functions, w)
    if values.size == 1:  # an axis over lines, even of one, keeps XLA from writing the gradient in w's own order
        return Gradients(values, pull(jnp.ones_like(values))[0][None])
    return Gradients(values, jax.vmap(lambda e: pull(e)[0])(jnp.eye(values.size, dtype=values.dtype)))
