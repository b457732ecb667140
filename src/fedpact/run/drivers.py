"""Three drivers of the same round: chunks of rounds per call (default), the whole run in one, one round per call.

The loop over rounds lives here; an algorithm owns the inside of a round. All three give the same rounds; how many are
done per call never changes their arithmetic.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpact import certificate
from fedpact.certificate import OwnModel
from fedpact.engines.local import Metered
from fedpact.federation.blocks import Block
from fedpact.protocol.algorithm import Algorithm, ColumnAlgorithm, Info, PersonalAlgorithm, Status
from fedpact.protocol.messages import Reply

CHUNK = 256  # rounds that one call can record
KEPT = 50  # kinds of runs whose programs are kept: each holds 300 to 800 mappings of memory, and Linux allows 65,530


class Cost(eqx.Module):
    """What rounds cost, over all parties."""

    exchanges: Any
    bytes_up: Any
    bytes_down: Any


class Line(eqx.Module):
    """One line of the history, with what the round cost."""

    info: Info
    cost: Cost


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


def metered_round(algorithm: Algorithm, net: Any, server: Any, parties: Any) -> tuple[Any, Any, Line]:
    """A round, and its line in the history."""
    counted = Metered(net)
    new_server, new_parties, info = algorithm.round(server, parties, counted)
    cost = Cost(*(jnp.asarray(x, jnp.int64) for x in (counted.exchanges, counted.bytes_up, counted.bytes_down)))
    return _typed(new_server), _typed(new_parties), _typed(Line(info, cost))


def _typed(tree: Any) -> Any:
    """Every number of a definite type, so that a state that went through a round fits the same program again."""
    return jax.tree.map(lambda leaf: lax.convert_element_type(leaf, leaf.dtype), tree)


def _running(algorithm: Algorithm, server: Any) -> jax.Array:
    return algorithm.status(server) == int(Status.running)


@partial(jax.jit, static_argnums=0)
def chunk(algorithm: Algorithm, net: Any, server: Any, parties: Any, limit: jax.Array) -> tuple[Any, Any, Any, Lines]:
    """At most `limit` (<= CHUNK) rounds: server, parties, how many were done, and their lines (CHUNK of them)."""
    once_more = jax.jit(partial(metered_round, algorithm))  # traced once for both uses
    lines = Lines.empty(jax.eval_shape(once_more, net, server, parties)[2])

    def more(carry: Any) -> jax.Array:
        server, _, done, _ = carry
        return (done < limit) & _running(algorithm, server)

    def once(carry: Any) -> Any:
        server, parties, done, lines = carry
        server, parties, line = once_more(net, server, parties)
        return server, parties, done + 1, lines.written(done, line)

    return lax.while_loop(more, once, (server, parties, jnp.zeros((), int), lines))


_met: set[Any] = set()


def met_before(algorithm: Algorithm, *state: Any) -> bool:
    """Whether this process has run this method on this kind of data. When it has met very many, all programs are dropped."""
    leaves, tree = jax.tree.flatten(state)
    kind = algorithm, tree, tuple((leaf.shape, leaf.dtype) for leaf in leaves)
    if kind in _met:
        return True
    if len(_met) >= KEPT:
        _met.clear()
        programs: tuple[Any, ...] = (chunk, fused, step, begin, conclude, *certificate.PROGRAMS)
        for program in programs:
            program.clear_cache()
    _met.add(kind)
    return False


@partial(jax.jit, static_argnums=0)
def fused(algorithm: Algorithm, net: Any, server: Any, parties: Any, limit: jax.Array) -> tuple[Any, Any, Any, Cost]:
    """All rounds in one program, without history: for sweeps, where it can be vectorised over starts."""

    def more(carry: Any) -> jax.Array:
        server, _, done, _ = carry
        return (done < limit) & _running(algorithm, server)

    def once(carry: Any) -> Any:
        server, parties, done, cost = carry
        server, parties, line = metered_round(algorithm, net, server, parties)
        return server, parties, done + 1, jax.tree.map(jnp.add, cost, line.cost)

    none = Cost(*(jnp.zeros((), jnp.int64) for _ in range(3)))
    return lax.while_loop(more, once, (server, parties, jnp.zeros((), int), none))


@partial(jax.jit, static_argnums=0)
def step(algorithm: Algorithm, net: Any, server: Any, parties: Any) -> tuple[Any, Any, Line]:
    """One round: for debugging and, without jit, for deployment."""
    return metered_round(algorithm, net, server, parties)


@partial(jax.jit, static_argnums=0)
def begin(algorithm: Algorithm, net: Any, w: jax.Array, goal: Any, seed: Any) -> tuple[Any, Any]:
    """The state before the first round."""
    return _typed(algorithm.init(net, w, goal, jax.random.key_data(jax.random.key(seed))))


@partial(jax.jit, static_argnums=0)
def conclude(algorithm: Algorithm, net: Any, server: Any, parties: Any) -> tuple[Any, Any]:
    """The answer, and what every party keeps of it: its own multipliers, or its block where columns are split, or its own
    model where sets are personal."""
    answer = algorithm.answer(server, net)
    _, kept = net.exchange(partial(_kept, algorithm), parties, answer)
    return answer, kept


def _kept(algorithm: Algorithm, own: Any, state: Any, answer: Any) -> Any:
    if isinstance(own, Block):
        assert isinstance(algorithm, ColumnAlgorithm)  # no other is begun over columns
        return algorithm.block(own, state, answer), Reply()
    if own.personal is not None:
        assert isinstance(algorithm, PersonalAlgorithm)  # no other is begun with personal sets
        block = algorithm.block(own, state, answer)
        if algorithm.models == "one":
            return OwnModel(block, block), Reply()
        # twice, since rounding leaves a block from far outside not quite inside
        return OwnModel(own.personal.project(own.personal.project(block)), block), Reply()
    return algorithm.multipliers(own, state, answer), Reply()
