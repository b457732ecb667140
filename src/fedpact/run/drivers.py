"""Drivers of the same round: chunks of rounds per call, the whole run in one, one round per call, and the server on the host.

The loop over rounds lives here; a method owns the inside of a round. All give the same rounds; how many are done per
call never changes their arithmetic. Where parties are reached from the host, rounds are run one phase after the other, and
what the server computes between two exchanges is compiled by itself. Methods of few rounds have the server's part computed by
NumPy on the host instead (`ServerOnHost`): compiling it would take longer than all of their rounds.
"""

import dataclasses
import functools
import math
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer

from fedpact.arrays import on_host, xp
from fedpact.engines.secure import SecureNetwork, added
from fedpact.problem.oracle import evaluated_on_host
from fedpact.protocol.algorithm import Answer, Begin, Goal, Info, Method, Status
from fedpact.protocol.engine import RunNetwork
from fedpact.protocol.messages import Reply
from fedpact.protocol.phases import Ask, PartyStates, Phase, Phases, ServerData, Traffic, play
from fedpact.records import Record
from fedpact.settings.base import Bound

CALL_SECONDS = 0.2  # how long one call should take: between calls Ctrl-C is heard and runs are saved
CHUNK = 256  # rounds that one call can record
FEW_NUMBERS = 200_000  # of all parties' data
KEPT = 50  # kinds of runs whose programs are kept: each holds 300 to 800 mappings of memory, and Linux allows 65,530


class Line(Record):
    """One line of the history, with what the round cost."""

    info: Info
    cost: Traffic


class Lines(Record):
    """Lines of the history as rows of one matrix: a program that writes one array compiles faster than one for each."""

    rows: jax.Array
    tree: Any = eqx.field(static=True)
    leaves: tuple[jax.ShapeDtypeStruct, ...] = eqx.field(static=True)

    @classmethod
    def empty(cls, like: Any) -> "Lines":
        leaves, tree = jax.tree.flatten(like)
        width = sum(leaf.size for leaf in leaves)
        return cls(jnp.zeros((CHUNK, width)), tree, tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in leaves))

    def written(self, place: jax.Array, line: Line) -> "Lines":
        row = jnp.concatenate([jnp.ravel(leaf).astype(self.rows.dtype) for leaf in jax.tree.leaves(line)])
        return Lines(lax.dynamic_update_index_in_dim(self.rows, row, place, 0), self.tree, self.leaves)

    def read(self, count: int) -> Line:
        """The first `count` lines; every leaf has them along its first axis."""
        rows = np.asarray(self.rows)[:count]
        ends = np.cumsum([leaf.size for leaf in self.leaves])
        columns = np.split(rows, ends[:-1], axis=1)
        shaped = (c.reshape(count, *x.shape).astype(x.dtype) for c, x in zip(columns, self.leaves, strict=True))
        return jax.tree.unflatten(self.tree, list(shaped))


# phases, compiled as a whole or one function at a time


@partial(jax.jit, static_argnums=0)
def _played(phases: Phases, network: RunNetwork, own: ServerData, carry: Any, states: Any) -> tuple[Any, Any]:
    carry, states, _ = play(phases, own, network, carry, states)
    return _typed((carry, states))


@functools.lru_cache(maxsize=4 * KEPT)
def compiled_apart(phases: Phases) -> Phases:
    """The same phases with each of the server's functions compiled by itself."""

    def apart(phase: Phase) -> Phase:
        only_if = None if phase.only_if is None else jax.jit(phase.only_if)
        ask, hear = jax.jit(phase.ask), jax.jit(phase.hear)
        drawn = None if phase.drawn is None else jax.jit(phase.drawn)
        return Phase(ask, phase.step, hear, phase.among, phase.optional, phase.patient, only_if, drawn)

    return tuple(tuple(map(apart, entry)) if isinstance(entry, tuple) else apart(entry) for entry in phases)


@partial(jax.jit, static_argnums=0)
def _finished(method: Method, own: ServerData, carry: Any) -> tuple[Any, Info]:
    return _typed(method.finish(own, carry))


class ServerOnHost:
    """A network whose server computes on the host; of a network of one process only the parties' steps are compiled."""

    traced: ClassVar[bool] = False

    def __init__(self, network: RunNetwork) -> None:
        self.network = network
        size = sum(leaf.size for leaf in jax.tree.leaves(network)) if network.traced else 0
        self.compiled = _compiled_quickly if size <= FEW_NUMBERS else _compiled_well
        self.adds_up = isinstance(network, SecureNetwork) and size <= FEW_NUMBERS

    def exchange(self, asks: Sequence[Ask], states: PartyStates) -> tuple[list[Reply], PartyStates]:
        if not self.network.traced:
            asks = [ask._replace(message=jax.tree.map(np.asarray, ask.message)) for ask in asks]
            replies, states = self.network.exchange(asks, states)
            return jax.device_get(replies), states
        steps = tuple(ask._replace(message=None, drawn=None) for ask in asks)
        messages = Packed.of([(ask.message, ask.drawn) for ask in asks])
        if self.adds_up:
            apart, states = _asked_quickly(steps, self.network, messages, states)
            return [added(*each) for each in apart.unpacked()], states
        replies, states = self.compiled(steps, self.network, messages, states)
        return replies.unpacked(), states

    def collect(self, states: PartyStates) -> Any:
        return self.network.collect(states)

    def place(self, states: Any) -> PartyStates:
        return self.network.place(states)

    def agree(self, number: int) -> int:
        return self.network.agree(number)


class Packed(Record):
    """A tree whose floating-point numbers are one vector: a program takes and gives one array faster than thirty."""

    numbers: Any
    others: list[Any]
    tree: Any = eqx.field(static=True)
    shapes: tuple[tuple[int, ...] | None, ...] = eqx.field(static=True)  # None for the others

    @classmethod
    def of(cls, tree: Any) -> "Packed":
        leaves, structure = jax.tree.flatten(tree)
        leaves = [np.asarray(leaf) if on_host(leaf) else leaf for leaf in leaves]
        real = [leaf.dtype == np.float64 for leaf in leaves]
        numbers = xp.concatenate(
            [np.zeros(0), *(leaf.ravel() for leaf, is_real in zip(leaves, real, strict=True) if is_real)]
        )
        others = [leaf for leaf, is_real in zip(leaves, real, strict=True) if not is_real]
        shapes = tuple(leaf.shape if is_real else None for leaf, is_real in zip(leaves, real, strict=True))
        return cls(numbers, others, structure, shapes)

    def unpacked(self) -> Any:
        """The tree; of NumPy arrays where this is outside of a program."""
        numbers, others = self.numbers, iter(self.others)
        if not isinstance(numbers, Tracer):
            numbers, others = np.asarray(numbers), iter(jax.device_get(self.others))
        leaves, end = [], 0
        for shape in self.shapes:
            if shape is None:
                leaves.append(next(others))
                continue
            begin, end = end, end + math.prod(shape)
            leaves.append(numbers[begin:end].reshape(shape))
        return jax.tree.unflatten(self.tree, leaves)


def _exchanged(asks: tuple[Ask, ...], network: RunNetwork, messages: Packed, states: Any) -> tuple[Packed, PartyStates]:
    replies, states = network.exchange(_told(asks, messages), states)
    return Packed.of(_typed(replies)), _typed(states)


def _asked(asks: tuple[Ask, ...], network: SecureNetwork, messages: Packed, states: Any) -> tuple[Packed, PartyStates]:
    """The same but for the arithmetic of secure sums, which takes longer to compile than to do on the host."""
    replies, states = network.asked(_told(asks, messages), states)
    return Packed.of(_typed(replies)), _typed(states)


def _told(asks: tuple[Ask, ...], messages: Packed) -> list[Ask]:
    """The asks with their messages, and whom they are for."""
    told = zip(asks, messages.unpacked(), strict=True)
    return [ask._replace(message=message, drawn=drawn) for ask, (message, drawn) in told]


# On few rows a step takes microseconds however it is compiled: then without optimising loops, in half the time.
_compiled_quickly: Any = jax.jit(_exchanged, static_argnums=0, compiler_options={"xla_backend_optimization_level": 0})
_compiled_well: Any = jax.jit(_exchanged, static_argnums=0)
_asked_quickly: Any = jax.jit(_asked, static_argnums=0, compiler_options={"xla_backend_optimization_level": 0})


def settled(tree: Any) -> Any:
    """Every number as an array in the order in which a saved state is read: products of matrices round by their layout."""
    return jax.tree.map(lambda leaf: np.array(leaf, order="C"), tree)


def _on_host(
    phases: Phases, network: ServerOnHost, own: ServerData, carry: Any, states: Any
) -> tuple[Any, Any, Traffic]:
    with np.errstate(all="ignore"):
        return play(phases, own, network, carry, states)


@functools.lru_cache(maxsize=8 * KEPT)
def compiled(function: Any) -> Any:
    """One of the server's functions, compiled by itself."""
    return jax.jit(function)


def server_data(bound: Bound, network: RunNetwork) -> ServerData:
    """What the server has of its own: for a server that computes on the host, as NumPy arrays but for its rows."""
    return server_data_on_host(bound) if isinstance(network, ServerOnHost) else bound.server_data


def server_data_on_host(bound: Bound) -> ServerData:
    own = bound.server_data
    constants, regularizer, coldest = jax.device_get((own.functions.constants, own.regularizer, own.coldest_rate))
    functions = dataclasses.replace(own.functions, constants=constants)
    return dataclasses.replace(own, functions=functions, regularizer=regularizer, coldest_rate=coldest)


def run_phases(phases: Phases, network: RunNetwork, own: ServerData, carry: Any, states: Any) -> tuple[Any, Any]:
    """From a carry and the parties' states to those after the phases."""
    if isinstance(network, ServerOnHost):
        carry, states, _ = _on_host(phases, network, own, carry, states)
        return settled(carry), states
    if network.traced:
        return _played(tuple(phases), network, own, carry, states)
    carry, states, _ = play(compiled_apart(tuple(phases)), own, network, carry, states)
    return carry, states


def measure(bound: Bound, network: RunNetwork, answer: Answer, kept: Any) -> Any:
    """What the certificate is made from, by an exchange of its own."""
    if bound.measured_on_host:
        answer = jax.device_get(answer)
        network = network if isinstance(network, ServerOnHost) else ServerOnHost(network)
    return run_phases(bound.measurement, network, server_data(bound, network), answer, kept)[0]


def begin(method: Method, network: RunNetwork, own: ServerData, w: Any, goal: Goal, seed: int) -> tuple[Any, Any]:
    """The states of the server and of the parties before the first round."""
    key = np.asarray(jax.random.key_data(jax.random.key(seed)))
    first: Any = np.asarray(w), goal, key
    return run_phases(method.opening, network, own, Begin(*first), None)


# rounds


def traced_round(
    method: Method, network: RunNetwork, own: ServerData, server: Any, states: Any
) -> tuple[Any, Any, Line]:
    """A round, and its line in the history."""
    carry, states, cost = play(method.round, own, network, server, states)
    server, info = method.finish(own, carry)
    cost = jax.tree.map(lambda x: jnp.asarray(x, jnp.int64), cost)
    return _typed(server), _typed(states), _typed(Line(info, cost))


def _typed(tree: Any) -> Any:
    """Every number of a definite type, so that a state that went through a round fits the same program again."""
    return jax.tree.map(lambda leaf: lax.convert_element_type(leaf, leaf.dtype), tree)


def _running(method: Method, server: Any) -> jax.Array:
    return method.status(server) == int(Status.running)


@partial(jax.jit, static_argnums=0)
def chunk(
    method: Method, network: RunNetwork, own: ServerData, server: Any, states: Any, limit: jax.Array
) -> tuple[Any, Any, Any, Lines]:
    """At most `limit` (<= CHUNK) rounds: server, states, how many were done, and their lines (CHUNK of them)."""
    once_more = jax.jit(partial(traced_round, method))  # traced once for both uses
    lines = Lines.empty(jax.eval_shape(once_more, network, own, server, states)[2])

    def more(carry: Any) -> jax.Array:
        server, _, done, _ = carry
        return (done < limit) & _running(method, server)

    def once(carry: Any) -> Any:
        server, states, done, lines = carry
        server, states, line = once_more(network, own, server, states)
        return server, states, done + 1, lines.written(done, line)

    return lax.while_loop(more, once, (server, states, jnp.zeros((), int), lines))


@partial(jax.jit, static_argnums=0)
def fused(
    method: Method, network: RunNetwork, own: ServerData, server: Any, states: Any, limit: jax.Array
) -> tuple[Any, Any, Any, Traffic]:
    """All rounds in one program, without history: for sweeps, where it can be vectorised over starts."""

    def more(carry: Any) -> jax.Array:
        server, _, done, _ = carry
        return (done < limit) & _running(method, server)

    def once(carry: Any) -> Any:
        server, states, done, cost = carry
        server, states, line = traced_round(method, network, own, server, states)
        return server, states, done + 1, cost + line.cost

    nothing = Traffic(*(jnp.zeros((), jnp.int64) for _ in range(3)))
    return lax.while_loop(more, once, (server, states, jnp.zeros((), int), nothing))


@functools.lru_cache(maxsize=KEPT)
def _round_of(method: Method) -> Phases:
    return method.round


one_round = jax.jit(traced_round, static_argnums=0)


def step(method: Method, network: RunNetwork, own: ServerData, server: Any, states: Any) -> tuple[Any, Any, Line]:
    """One round: for debugging, and for parties that are reached from the host."""
    if isinstance(network, ServerOnHost):
        carry, states, cost = _on_host(_round_of(method), network, own, server, states)
        with np.errstate(all="ignore"):
            server, info = settled(method.finish(own, carry))
        return server, states, Line(info, cost)
    if network.traced:
        return one_round(method, network, own, server, states)
    carry, states, cost = play(compiled_apart(tuple(method.round)), own, network, server, states)
    server, info = _finished(method, own, carry)
    return server, states, Line(info, cost)


def some_steps(
    limit: int, method: Method, network: RunNetwork, own: ServerData, server: Any, states: Any
) -> tuple[Any, Any, int, Line]:
    """Rounds one after the other, at most `limit` and until CALL_SECONDS are over: server, states, how many, and their lines."""
    lines: list[Line] = []
    began, more = time.monotonic(), True
    while more:
        server, states, line = step(method, network, own, server, states)
        lines.append(line)
        late = time.monotonic() - began > CALL_SECONDS
        more = len(lines) < limit and int(method.status(server)) == Status.running and not network.agree(int(late))
    return server, states, len(lines), jax.tree.map(lambda *leaves: np.stack(leaves), *lines)


_met: set[Any] = set()


def met_before(method: Method, *state: Any) -> bool:
    """Whether this process has run this method on this kind of data. When it has met very many, all programs are dropped."""
    leaves, tree = jax.tree.flatten(state)
    kind = method, tree, tuple((leaf.shape, leaf.dtype) for leaf in leaves)
    if kind in _met:
        return True
    if len(_met) >= KEPT:
        _met.clear()
        compiled_apart.cache_clear()
        traced = (chunk, fused, one_round, _played, _finished)
        programs: tuple[Any, ...] = (*traced, _compiled_quickly, _compiled_well, _asked_quickly, evaluated_on_host)
        for program in programs:
            program.clear_cache()
    _met.add(kind)
    return False
