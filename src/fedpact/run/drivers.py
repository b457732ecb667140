"""Drivers of the same round: many rounds per call, all in one, one per call, and the server on the host.

The loop over rounds lives here; a method owns the inside of a round. All give the same rounds; the first three are one
program, so how many are done per call never changes their arithmetic. Where parties are reached from the host, rounds are run
one phase after the other, and what the server computes between two exchanges is compiled by itself. Methods of few rounds have
the server's part computed by NumPy on the host instead (`ServerOnHost`): compiling it would take longer than all of their
rounds.
"""

import contextlib
import dataclasses
import functools
import time
import weakref
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpact.arrays import host_arithmetic, key_words
from fedpact.compiling import Jitted
from fedpact.problem.oracle import evaluated_on_host
from fedpact.protocol.algorithm import Answer, Begin, Goal, Info, Method, Status
from fedpact.protocol.engine import RunNetwork
from fedpact.protocol.phases import Phase, Phases, ServerData, Traffic, play
from fedpact.records import Record
from fedpact.run import host_server
from fedpact.run.host_server import Plan, Planned, Rehearsal, ServerOnHost, is_small, on_one_device, typed
from fedpact.run.kept_plans import planned
from fedpact.settings.base import Bound

CALL_SECONDS = 0.2  # how long one call should take: between calls Ctrl-C is heard and runs are saved
CHUNK = 256  # rounds whose lines one call can record
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


def _played(phases: Phases, network: RunNetwork, own: ServerData, carry: Any, states: Any) -> tuple[Any, Any]:
    carry, states, _ = play(phases, own, network, carry, states)
    return typed((carry, states))


_played_quickly, _played_well = Jitted(_played, static=1, quickly=True), Jitted(_played, static=1)


@functools.lru_cache(maxsize=4 * KEPT)
def compiled_apart(phases: Phases) -> Phases:
    """The same phases with each of the server's functions compiled by itself."""

    def apart(phase: Phase) -> Phase:
        only_if = phase.only_if and Jitted(phase.only_if)
        ask, hear = Jitted(phase.ask), Jitted(phase.hear)
        drawn = phase.drawn and Jitted(phase.drawn)
        return Phase(ask, phase.step, hear, phase.among, phase.optional, phase.patient, only_if, drawn)

    return tuple(tuple(map(apart, entry)) if isinstance(entry, tuple) else apart(entry) for entry in phases)


@partial(Jitted, static=1)
def _finished(method: Method, own: ServerData, carry: Any) -> tuple[Any, Info]:
    return typed(method.finish(own, carry))


def settled(tree: Any) -> Any:
    """Every number as an array in the order in which a saved state is read: products of matrices round by their layout."""
    return jax.tree.map(lambda leaf: np.array(leaf, order="C"), tree)


def _on_host(
    phases: Phases, network: ServerOnHost, own: ServerData, carry: Any, states: Any
) -> tuple[Any, Any, Traffic]:
    with host_arithmetic():
        return play(phases, own, network, carry, states)


@functools.lru_cache(maxsize=8 * KEPT)
def compiled(function: Any) -> Any:
    """One of the server's functions, compiled by itself."""
    return Jitted(function)


def server_data(bound: Bound, network: RunNetwork) -> ServerData:
    """What the server has of its own: for a server that computes on the host, as NumPy arrays but for its rows."""
    return server_data_on_host(bound) if isinstance(network, ServerOnHost) else bound.server_data


_on_the_host: weakref.WeakKeyDictionary[Bound, ServerData] = weakref.WeakKeyDictionary()


def server_data_on_host(bound: Bound) -> ServerData:
    if bound not in _on_the_host:
        own = bound.server_data
        constants, regularizer, coldest = jax.device_get((own.functions.constants, own.regularizer, own.coldest_rate))
        functions = dataclasses.replace(own.functions, constants=constants)
        _on_the_host[bound] = dataclasses.replace(
            own, functions=functions, regularizer=regularizer, coldest_rate=coldest
        )
    return _on_the_host[bound]


def run_phases(phases: Phases, network: RunNetwork, own: ServerData, carry: Any, states: Any) -> tuple[Any, Any]:
    """From a carry and the parties' states to those after the phases."""
    if isinstance(network, ServerOnHost):
        carry, states, _ = _on_host(phases, network, own, carry, states)
        return settled(carry), states
    if network.traced:
        played = _played_quickly if is_small(network) else _played_well
        return played(tuple(phases), network, own, carry, states)
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
    return run_phases(method.opening, network, own, first(w, goal, seed), None)


def first(w: Any, goal: Goal, seed: int) -> Begin:
    """What a run begins with."""
    numbers: Any = np.asarray(w), goal, key_words(seed)
    return Begin(*numbers)


# one program for all exchanges

_plans: dict[Any, Planned] = {}


def server_on_host(bound: Bound, method: Method, network: RunNetwork, goal: Goal, seed: int) -> ServerOnHost:
    """The network with its server on the host; in one process and on few rows, all exchanges of a run are one program."""
    own, begin = server_data_on_host(bound), first(bound.start, goal, seed)
    kind = method, type(bound), *kind_of((network if network.traced else None, own, begin))
    met_before(kind)
    if not is_small(network) or not on_one_device(network):
        return ServerOnHost(network)
    if kind not in _plans:
        given = method, bound, network, own, begin
        _plans[kind] = planned(*given, lambda: _rehearsed(*given))
    return ServerOnHost(network, _plans[kind])


def _rehearsed(method: Method, bound: Bound, network: RunNetwork, own: ServerData, begin: Begin) -> Plan:
    """All exchanges of a run: before the first round, in a round, at the end and for the certificate."""
    rehearsal = Rehearsal(network)
    with host_arithmetic():
        server, states = _rehearse(method.opening, own, rehearsal, begin, None)
        carry, states = _rehearse(method.round, own, rehearsal, settled(server), states)
        server, _ = settled(method.finish(own, carry))
        answer, kept = _rehearse(bound.conclusion(method), own, rehearsal, server, states)
        if bound.measured_on_host:
            _rehearse(bound.measurement, own, rehearsal, settled(answer), kept)
    return Plan(tuple(rehearsal.noted))


def _rehearse(phases: Phases, own: ServerData, rehearsal: Rehearsal, carry: Any, states: Any) -> tuple[Any, Any]:
    """Phases that may not take place are played, since others follow, and not noted: they are compiled when they do."""
    for entry in phases:
        group = entry if isinstance(entry, tuple) else (entry,)
        rehearsal.notes = group[0].only_if is None
        always = tuple(dataclasses.replace(phase, only_if=None) for phase in group)
        carry, states, _ = play((always,), own, rehearsal, carry, states)
    return carry, states


def kind_of(state: Any) -> tuple[Any, Any]:
    """What programs are compiled for: the structure of a tree, with the shapes and types of its arrays."""
    leaves, tree = jax.tree.flatten(state)
    return tree, tuple((leaf.shape, leaf.dtype) for leaf in leaves)


# rounds


def traced_round(
    method: Method, network: RunNetwork, own: ServerData, server: Any, states: Any
) -> tuple[Any, Any, Line]:
    """A round, and its line in the history."""
    carry, states, cost = play(method.round, own, network, server, states)
    server, info = method.finish(own, carry)
    cost = jax.tree.map(lambda x: jnp.asarray(x, jnp.int64), cost)
    return typed(server), typed(states), typed(Line(info, cost))


@partial(Jitted, static=1)
def rounds(
    method: Method, network: RunNetwork, own: ServerData, server: Any, states: Any, limit: Any
) -> tuple[Any, Any, jax.Array, Traffic, Lines]:
    """At most `limit` rounds: server, states, how many were done, what they cost, and the lines of the last CHUNK of them.

    One program, whatever the limit: drivers that compile whole rounds differ in how many they ask for.
    """
    once_more = jax.jit(partial(traced_round, method))  # traced once for both uses
    lines = Lines.empty(jax.eval_shape(once_more, network, own, server, states)[2])
    nothing = Traffic(*(jnp.zeros((), jnp.int64) for _ in range(3)))

    def more(carry: Any) -> jax.Array:
        server, _, done, _, _ = carry
        return (done < limit) & (method.status(server) == int(Status.running))

    def once(carry: Any) -> Any:
        server, states, done, cost, lines = carry
        server, states, line = once_more(network, own, server, states)
        return server, states, done + 1, cost + line.cost, lines.written(done % CHUNK, line)

    return lax.while_loop(more, once, (server, states, jnp.zeros((), int), nothing, lines))


@functools.lru_cache(maxsize=KEPT)
def _round_of(method: Method) -> Phases:
    return method.round


def step(method: Method, network: RunNetwork, own: ServerData, server: Any, states: Any) -> tuple[Any, Any, Line]:
    """One round: for debugging, and for parties that are reached from the host."""
    if isinstance(network, ServerOnHost):
        with host_arithmetic():
            return _step_on_host(_round_of(method), method.finish, network, own, server, states)
    if network.traced:
        server, states, _, _, lines = rounds(method, network, own, server, states, np.asarray(1))
        return server, states, jax.tree.map(lambda column: column[0], lines.read(1))
    carry, states, cost = play(compiled_apart(tuple(method.round)), own, network, server, states)
    server, info = _finished(method, own, carry)
    return server, states, Line(info, cost)


def _step_on_host(
    phases: Phases, finish: Any, network: ServerOnHost, own: ServerData, server: Any, states: Any
) -> tuple[Any, Any, Line]:
    carry, states, cost = play(phases, own, network, server, states)
    server, info = settled(finish(own, carry))
    return server, states, Line(info, cost)


def some_steps(
    limit: int, method: Method, network: RunNetwork, own: ServerData, server: Any, states: Any
) -> tuple[Any, Any, int, Line]:
    """Rounds one after the other, at most `limit` and until CALL_SECONDS are over: server, states, how many, and their lines."""
    lines: list[Line] = []
    began, more = time.monotonic(), True
    once, status, agree = partial(step, method, network, own), method.status, network.agree
    with contextlib.ExitStack() as entered:
        if isinstance(network, ServerOnHost):  # what takes as long as a part of a round is done before them
            entered.enter_context(host_arithmetic())
            once = partial(_step_on_host, _round_of(method), method.finish, network, own)
        while more:
            server, states, line = once(server, states)
            lines.append(line)
            late = time.monotonic() - began > CALL_SECONDS
            more = len(lines) < limit and int(status(server)) == Status.running and not agree(int(late))
    return server, states, len(lines), jax.tree.map(lambda *leaves: np.stack(leaves), *lines)


_met: set[Any] = set()


def met_before(kind: tuple[Any, ...]) -> bool:
    """Whether this process has run a method on this kind of data. When it has met very many, all programs are dropped."""
    if kind in _met:
        return True
    if len(_met) >= KEPT:
        forget()
    _met.add(kind)
    return False


def forget() -> None:
    """Drop all programs."""
    _met.clear()
    _plans.clear()
    compiled_apart.cache_clear()
    traced = (rounds, _played_quickly, _played_well, _finished)
    programs: tuple[Any, ...] = (*traced, *host_server.PROGRAMS, evaluated_on_host)
    for program in programs:
        program.clear_cache()
