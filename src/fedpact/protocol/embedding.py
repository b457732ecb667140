"""What bottoms give on its way to the label holder, and its slope on the way back, for either way of combining."""

import jax
import jax.numpy as jnp

from fedpact.federation.blocks import Block
from fedpact.protocol.messages import Reply


def shown(own: Block, embedded: jax.Array) -> Reply:
    """A party's part: added to the others', or kept apart where the top wants it side by side."""
    return Reply(sum=embedded) if own.combine == "sum" else Reply(each=embedded)


def joined(reply: Reply) -> jax.Array:
    """At the label holder: (rows, width), or (rows, parties, width)."""
    return reply.sum if reply.each is None else jnp.moveaxis(reply.each, 0, 1)


def share(own: Block, slope: jax.Array) -> jax.Array:
    """A party's part of ∂/∂joined, which may have further axes before the rows."""
    if own.combine == "sum":
        return slope
    return jnp.take(slope, own.index, axis=slope.ndim - _axes_after(own))


def _axes_after(own: Block) -> int:
    """Axes from the parties' one on."""
    return 1 + jax.eval_shape(own.embed, own.start).ndim - 1
