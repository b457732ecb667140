"""Three drivers of the same round: chunks of rounds per call (default), the whole run in one, one round per call.

The loop over rounds lives here; a method owns the inside of a round. All three give the same rounds; how many are done per
call never changes their arithmetic. Where parties are reached from the host, rounds are run one phase after the other, and
what the server computes between two exchanges is compiled by itself.
"""

import functools
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpact.protocol.algorithm import Begin, Goal, Info, Method, Status
from fedpact.protocol.engine import RunNetwork
from fedpact.protocol.phases import Phase, Phases, ServerData, Traffic, play

CHUNK = 256  # rounds that one call can record
KEPT = 50  # kinds of runs whose programs are kept: each holds 300 to 800 mappings of memory, and Linux allows 65,530


class Line(eqx.Module):
    """One line of the history, with what the round cost."""

    info: Info
    cost: Traffic


class Lines(eqx.Module):
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
        return Phase(ask, phase.step, hear, phase.among, phase.optional, phase.patient, only_if)

    return tuple(tuple(map(apart, entry)) if isinstance(entry, tuple) else apart(entry) for entry in phases)


@partial(jax.jit, static_argnums=0)
def _finished(method: Method, own: ServerData, carry: Any) -> tuple[Any, Info]:
    return _typed(method.finish(own, carry))


def run_phases(phases: Phases, network: RunNetwork, own: ServerData, carry: Any, states: Any) -> tuple[Any, Any]:
    """From a carry and the parties' states to those after the phases."""
    if network.traced:
        return _played(tuple(phases), network, own, carry, states)
    carry, states, _ = play(compiled_apart(tuple(phases)), own, network, carry, states)
    return carry, states


def begin(method: Method, network: RunNetwork, own: ServerData, w: Any, goal: Goal, seed: int) -> tuple[Any, Any]:
    """The states of the server and of the parties before the first round."""
    key = jax.random.key_data(jax.random.key(seed))
    return run_phases(method.opening, network, own, Begin(jnp.asarray(w), goal, key), None)


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


one_round = jax.jit(traced_round, static_argnums=0)


def step(method: Method, network: RunNetwork, own: ServerData, server: Any, states: Any) -> tuple[Any, Any, Line]:
    """One round: for debugging, and for parties that are reached from the host."""
    if network.traced:
        return one_round(method, network, own, server, states)
    carry, states, cost = play(compiled_apart(tuple(method.round)), own, network, server, states)
    server, info = _finished(method, own, carry)
    return server, states, Line(info, cost)


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
        programs: tuple[Any, ...] = (chunk, fused, one_round, _played, _finished)
        for program in programs:
            program.clear_cache()
    _met.add(kind)
    return False
