"""Simulation of very many parties: the party axis sharded over the devices of this machine, or of several hosts.

Every device holds some of the parties. A step runs on all devices at once; sums and maxima are reduced over them, and the
server's computations are replicated on every device. Hosts run in lock-step: one that fails stops all.
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

from fedpact.engines.local import Buckets, run_step, summed_gradients
from fedpact.protocol.messages import Reply
from fedpact.protocol.phases import Ask, Functions, Gradients, PartyStates
from fedpact.settings.base import Bound

AXIS = "parties"
SPREAD, EVERYWHERE = PartitionSpec(AXIS), PartitionSpec()


@dataclasses.dataclass(frozen=True)
class Mesh:
    """An engine that shards the parties over devices, for simulations of very many: `fp.solve(..., engine=fp.Mesh())`.

    - `devices`: JAX devices (default None: `jax.devices()`, on all hosts after `jax.distributed.initialize`).

    The rounds are the same as without it, up to the rounding of sums.
    """

    devices: Sequence[Any] | None = None

    def connect(self, bound: Bound) -> tuple[Bound, "MeshNetwork"]:
        """Place the parties' data on the devices; called by `fp.solve`.

        Parties of equal shape are divided evenly over the devices; the remainder is replicated on all of them.
        """
        devices = list(self.devices if self.devices is not None else jax.devices())
        mesh = jax.sharding.Mesh(np.asarray(devices), (AXIS,))
        stacks, order, spread = [], [], []
        for stack, places in zip(bound.stacks, bound.order, strict=True):
            even = len(places) - len(places) % len(devices)
            for part, shared in ((slice(0, even), True), (slice(even, None), False)):
                if places[part]:
                    stacks.append(_placed(jax.tree.map(lambda leaf, part=part: leaf[part], stack), mesh, shared))
                    order.append(places[part])
                    spread.append(shared)
        server_data, start = (_placed(part, mesh, False) for part in (bound.server_data, bound.start))
        bound = dataclasses.replace(
            bound, stacks=tuple(stacks), order=tuple(order), server_data=server_data, start=start
        )
        places = _placed(np.argsort(np.concatenate(order), kind="stable"), mesh, False)
        return bound, MeshNetwork(bound.stacks, places, mesh, tuple(spread))


class MeshNetwork(Buckets):
    """The parties' data on a mesh of devices."""

    mesh: jax.sharding.Mesh = eqx.field(static=True)
    spread: tuple[bool, ...] = eqx.field(static=True)  # for each bucket: sharded, or replicated

    def stepped(self, ask: Ask, asked: list[bool], states: PartyStates) -> tuple[PartyStates, list[Reply]]:
        def on_device(stacks: Any, states: Any, message: Any, drawn: Any) -> tuple[Any, Any]:
            after, replies = run_step(ask._replace(message=message, drawn=drawn), stacks, asked, states)
            shared = [on for on, chosen in zip(self.spread, asked, strict=True) if chosen]
            return after, [_over_devices(r) if on else r for r, on in zip(replies, shared, strict=True)]

        specs = self._specs
        run = self._on_devices(on_device, (specs, specs, EVERYWHERE, EVERYWHERE), (specs, EVERYWHERE))
        return run(self.stacks, states, ask.message, ask.drawn)

    def gradients(self, functions: Functions, states: PartyStates, context: Any, w: jax.Array, drawn: Any) -> Gradients:
        def on_device(stacks: Any, states: Any, context: Any, w: jax.Array, drawn: Any) -> Any:
            sums = []
            for shared in (True, False):
                chosen = [(o, s) for o, s, on in zip(stacks, states, self.spread, strict=True) if on == shared]
                if chosen:
                    own, own_states = zip(*chosen, strict=True)
                    part = summed_gradients(functions, own, own_states, context, w, drawn)
                    sums.append(lax.psum(part, AXIS) if shared else part)
            return jax.tree.map(lambda *parts: sum(parts[1:], parts[0]), *sums)

        specs = self._specs
        run = self._on_devices(on_device, (specs, specs, EVERYWHERE, EVERYWHERE, EVERYWHERE), EVERYWHERE)
        return run(self.stacks, states, context, w, drawn)

    def collect(self, states: PartyStates) -> Any:
        """States as numpy arrays, those on other hosts included."""
        return jax.tree.map(_collected, states)

    def place(self, states: Any) -> PartyStates:
        """Place the states of all parties, by bucket, on the devices that hold the parties."""
        return tuple(_placed(state, self.mesh, shared) for state, shared in zip(states, self.spread, strict=True))

    def agree(self, number: int) -> int:
        """The first host's number on all hosts, so that they take the same decisions though clocks differ."""
        if jax.process_count() == 1:
            return number
        return int(multihost_utils.broadcast_one_to_all(np.asarray(number)))

    @property
    def _specs(self) -> tuple[PartitionSpec, ...]:
        return tuple(SPREAD if shared else EVERYWHERE for shared in self.spread)

    def _on_devices(self, function: Callable[..., Any], arguments: Any, results: Any) -> Callable[..., Any]:
        return jax.shard_map(function, mesh=self.mesh, in_specs=arguments, out_specs=results, check_vma=False)


def _over_devices(reply: Reply) -> Reply:
    """Reduce the replies of each device over all devices."""
    gather = partial(lax.all_gather, axis_name=AXIS, tiled=True)
    return Reply(
        sum=jax.tree.map(lambda x: lax.psum(x, AXIS), reply.sum),
        max=jax.tree.map(lambda x: lax.pmax(x, AXIS), reply.max),
        per_party=jax.tree.map(gather, reply.per_party),
    )


def _placed(tree: Any, mesh: jax.sharding.Mesh, shared: bool) -> Any:
    sharding = NamedSharding(mesh, SPREAD if shared else EVERYWHERE)
    return jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf), sharding), tree)


def _collected(leaf: Any) -> np.ndarray:
    if isinstance(leaf, jax.Array) and not (leaf.is_fully_addressable or leaf.is_fully_replicated):
        return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))
    return np.asarray(leaf)
