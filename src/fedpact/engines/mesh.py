"""Very many simulated parties: the party axis spread over the devices of this machine, or of several hosts.

Every device holds some of the parties. A step runs on all of them at once; sums and maxima are taken over the devices, and
whatever the server computes, every device computes alike. Hosts work in lock-step: one that dies stops all.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from fedpact.engines.local import Buckets, has_role, line_gradients
from fedpact.federation.binding import Bound
from fedpact.federation.blocks import BoundColumns
from fedpact.protocol.messages import Reply, combine, merge
from fedpact.protocol.network import Numbers, PartyStates, Role, Step, Tell

AXIS = "parties"
SPREAD, EVERYWHERE = PartitionSpec(AXIS), PartitionSpec()


@dataclasses.dataclass(frozen=True)
class Mesh:
    """An engine for `fp.solve(..., engine=fp.Mesh())`.

    devices: which ones (default: all that JAX sees, on all hosts after `jax.distributed.initialize`).
    """

    devices: Sequence[Any] | None = None

    def spread(self, bound: Any) -> tuple[Any, "MeshNetwork"]:
        """The same problem in buckets that the devices share evenly; what is left over of a bucket is on all of them."""
        devices = list(self.devices if self.devices is not None else jax.devices())
        mesh = jax.sharding.Mesh(np.asarray(devices), (AXIS,))
        stacks, order, spread = [], [], []
        for stack, places in zip(bound.oracles, bound.order, strict=True):
            even = len(places) - len(places) % len(devices)
            for part, shared in ((slice(0, even), True), (slice(even, None), False)):
                if places[part]:
                    stacks.append(_placed(jax.tree.map(lambda leaf, part=part: leaf[part], stack), mesh, shared))
                    order.append(places[part])
                    spread.append(shared)
        common = (_placed(part, mesh, False) for part in (bound.server, bound.regularizer, bound.start))
        server, regularizer, start = common
        bound = dataclasses.replace(
            bound, oracles=tuple(stacks), order=tuple(order), server=server, regularizer=regularizer, start=start
        )
        return bound, MeshNetwork.of(bound, mesh, tuple(spread))


class MeshNetwork(Buckets):
    """The parties' data on a mesh of devices."""

    mesh: jax.sharding.Mesh = eqx.field(static=True)
    spread: tuple[bool, ...] = eqx.field(static=True)  # of each bucket: whether devices share it, or all have it

    @classmethod
    def of(cls, bound: Bound | BoundColumns, mesh: jax.sharding.Mesh, spread: tuple[bool, ...]) -> "MeshNetwork":
        places = _placed(np.argsort(np.concatenate(bound.order), kind="stable"), mesh, False)
        return cls(bound.oracles, bound.server, bound.regularizer, places, len(bound.names), mesh, spread)

    def exchange(
        self, step: Step, parties: PartyStates, message: Any, among: Role | None = None
    ) -> tuple[Reply, PartyStates]:
        given = (None,) * len(self.oracles) if parties is None else parties
        asked = [has_role(oracle, among) for oracle in self.oracles]
        if not any(asked):
            raise ValueError(f"there is no {among} party to ask")
        at_each: Any = jax.vmap(step, in_axes=(0, 0, None))

        def here(oracles: Any, states: Any, message: Any) -> tuple[Any, Any]:
            after, replies = [], []
            for oracle, state, mine, shared in zip(oracles, states, asked, self.spread, strict=True):
                if not mine:
                    after.append(state)
                    continue
                new, reply = at_each(oracle, state, message)
                after.append(new)
                replies.append(_over_devices(combine(reply)) if shared else combine(reply))
            return tuple(after), tuple(replies)

        specs = self._specs
        states, replies = self._at_devices(here, (specs, specs, EVERYWHERE), (specs, EVERYWHERE))(
            self.oracles, given, message
        )
        return merge(list(replies), self.places_of(among)), states

    def gradients(
        self, numbers: Numbers, parties: PartyStates, message: Any, w: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        given = (None,) * len(self.oracles) if parties is None else parties

        def here(oracles: Any, states: Any, message: Any, w: jax.Array) -> Any:
            sums = []
            for shared in (True, False):
                mine = [(o, s) for o, s, on in zip(oracles, states, self.spread, strict=True) if on == shared]
                if mine:
                    own, held = zip(*mine, strict=True)
                    found = line_gradients(numbers, own, held, message, w)
                    sums.append(lax.psum(found, AXIS) if shared else found)
            return jax.tree.map(lambda *parts: sum(parts[1:], parts[0]), *sums)

        specs = self._specs
        return self._at_devices(here, (specs, specs, EVERYWHERE, EVERYWHERE), EVERYWHERE)(
            self.oracles, given, message, w
        )

    def share(self, tell: Tell, step: Step, parties: PartyStates, message: Any) -> tuple[Reply, PartyStates]:
        def telling(own: Any, state: Any, message: Any) -> tuple[Any, Reply]:
            return state, Reply(sum=tell(own, state, message).sum(0))

        reply, _ = self.exchange(telling, parties, message)
        return self.exchange(step, parties, (message, reply.sum))

    def collected(self, states: Any) -> Any:
        """States as numpy arrays, also those that are on other hosts."""
        return jax.tree.map(_collected, states)

    def placed(self, states: Any) -> Any:
        """States of all parties, by bucket, handed to the devices that hold them."""
        return tuple(_placed(state, self.mesh, shared) for state, shared in zip(states, self.spread, strict=True))

    def agreed(self, number: int) -> int:
        """The same number on all hosts, the first one's: clocks differ, and all must do the same."""
        if jax.process_count() == 1:
            return number
        return int(multihost_utils.broadcast_one_to_all(np.asarray(number)))

    @property
    def _specs(self) -> tuple[PartitionSpec, ...]:
        return tuple(SPREAD if shared else EVERYWHERE for shared in self.spread)

    def _at_devices(self, function: Callable[..., Any], given: Any, out: Any) -> Callable[..., Any]:
        return jax.shard_map(function, mesh=self.mesh, in_specs=given, out_specs=out, check_vma=False)


def _over_devices(reply: Reply) -> Reply:
    """Replies that are combined on each device, combined over all of them."""
    gather = partial(lax.all_gather, axis_name=AXIS, tiled=True)
    return Reply(
        sum=jax.tree.map(lambda x: lax.psum(x, AXIS), reply.sum),
        max=jax.tree.map(lambda x: lax.pmax(x, AXIS), reply.max),
        each=jax.tree.map(gather, reply.each),
    )


def _placed(tree: Any, mesh: jax.sharding.Mesh, shared: bool) -> Any:
    sharding = NamedSharding(mesh, SPREAD if shared else EVERYWHERE)
    return jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf), sharding), tree)


def _collected(leaf: Any) -> np.ndarray:
    if isinstance(leaf, jax.Array) and not (leaf.is_fully_addressable or leaf.is_fully_replicated):
        return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))
    return np.asarray(leaf)
