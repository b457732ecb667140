"""All parties in this process, and a server that gets their sums: the arithmetic of secure sums without masks.

Every party's numbers are rounded to the ring and added up there, and maxima are known up to a power of two, as in a deployed run
whose replies are masked (`fedpact.engines.sealing`).
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from fedpact.arrays import xp
from fedpact.engines.exchanges import title
from fedpact.engines.local import LocalNetwork, has_role
from fedpact.engines.sealing import check_summed
from fedpact.engines.serialization import Layout
from fedpact.protocol import ring
from fedpact.protocol.messages import Reply, merge
from fedpact.protocol.phases import Ask, PartyStates
from fedpact.settings.base import Bound


class SecureNetwork(LocalNetwork):
    """All parties on one device; the server gets sums of the ring.

    - `discloses`: whether parties agreed to tell some values one by one.
    """

    discloses: bool = eqx.field(static=True)

    def exchange(self, asks: Sequence[Ask], states: PartyStates) -> tuple[list[Reply], PartyStates]:
        replies, states = self.asked(asks, states)
        return [added(*apart) for apart in replies], states

    def asked(self, asks: Sequence[Ask], states: PartyStates) -> tuple[list[tuple[list[Reply], Any]], PartyStates]:
        """What `added` takes for each of `asks`: replies of every bucket, stacked, and what parties tell one by one."""
        states = (None,) * len(self.stacks) if states is None else states
        replies = []
        for ask in asks:
            after, each, parties = [], [], 0
            for stack, state in zip(self.stacks, states, strict=True):
                if not has_role(stack, ask.among):
                    after.append(state)
                    continue
                at_each: Any = jax.vmap(ask.step, in_axes=(0, 0, None))
                new, reply = at_each(stack, state, ask.message)
                parties += jax.tree.leaves(stack)[0].shape[0]
                after.append(new)
                each.append(reply)
            what = title(ask.step).rpartition(".")[2]
            check_summed(what, Layout.of(each[0]), ask.among, parties, self.discloses)
            told = merge([Reply(per_party=reply.per_party) for reply in each], self._places_of(ask.among)).per_party
            replies.append(([dataclasses.replace(reply, per_party=None) for reply in each], told))
            states = tuple(after)
        return replies, states


@dataclasses.dataclass(frozen=True)
class SecureLocal:
    """The engine of `fp.solve(..., privacy=fp.SecureAggregation())`: all parties in this process."""

    def connect(self, bound: Bound) -> tuple[Bound, SecureNetwork]:
        network = LocalNetwork.of(bound)
        return bound, SecureNetwork(network.stacks, network.places, bound.discloses)


def added(each: list[Reply], per_party: Any) -> Reply:
    """The combined reply of several buckets of parties: sums as the ring has them, and the powers of two above maxima.

    In a compiled program or on the host, where it takes nothing to compile.
    """
    parties = sum(leaves[0].shape[0] for leaves in map(jax.tree.leaves, each) if leaves)
    sums, structure = jax.tree.flatten(each[0].sum)
    total = None
    for reply in each:
        words = ring.total(_encoded([ring.bounded(leaf, parties) for leaf in jax.tree.leaves(reply.sum)]))
        total = words if total is None else ring.plus(total, words)
    assert total is not None
    leaves, at = [], 0
    for leaf in sums:
        size = math.prod(leaf.shape[1:])
        part = ring.Words(total.high[at : at + size], total.low[at : at + size])
        leaves.append(ring.decode(part, leaf.dtype).reshape(leaf.shape[1:]))
        at += size
    largest = jax.tree.map(lambda *x: xp.max(xp.concatenate(x), axis=0), *(reply.max for reply in each))
    largest = jax.tree.map(lambda x: ring.bounded(x, parties), largest)
    combined = Reply(jax.tree.unflatten(structure, leaves), jax.tree.map(ring.power_above, largest))
    finite = xp.all(xp.stack([ring.is_finite((reply.sum, reply.max)) for reply in each]))
    known = jax.tree.map(lambda x, nothing: xp.where(finite, x, nothing), combined, ring.unknown(combined))
    return dataclasses.replace(known, per_party=per_party)


def _encoded(leaves: list[Any]) -> ring.Words:
    """All numbers of each party, (parties, numbers): what is encoded at once is compiled once."""
    if not leaves:
        return ring.Words(xp.zeros((1, 0), np.uint64), xp.zeros((1, 0), np.uint64))
    parties = leaves[0].shape[0]
    flat = [leaf.reshape(parties, -1) for leaf in leaves]
    if all(leaf.dtype.kind == "f" for leaf in flat):
        return ring.encode(xp.concatenate(flat, axis=1))
    words = [ring.encode(leaf) for leaf in flat]
    return ring.Words(*(xp.concatenate([getattr(w, half) for w in words], axis=1) for half in ("high", "low")))
