"""Outputs of bottom models on their way to the label holder, and their gradient on the way back, for either way of combining."""

import jax
import jax.numpy as jnp

from fedpact.federation.blocks import Block
from fedpact.protocol.messages import Reply
from fedpact.records import Record


class Embedding(Record):
    """What a party's bottom model gives, (rows, width)."""

    embedding: jax.Array


def contribution(own: Block, embedded: jax.Array) -> Reply:
    """At a party, what its bottom model gives: added to the others', or kept apart where the top takes them side by side."""
    sent = Embedding(embedded)
    return Reply(sum=sent) if own.combine == "sum" else Reply(per_party=sent)


def combined(reply: Reply) -> jax.Array:
    """At the label holder: (rows, width), or (rows, parties, width)."""
    if reply.per_party is None:
        return reply.sum.embedding
    return jnp.moveaxis(reply.per_party.embedding, 0, 1)


def own_share(own: Block, slope: jax.Array) -> jax.Array:
    """At a party, its part of ∂/∂combined, which may have further axes before the rows."""
    if own.combine == "sum":
        return slope
    axes = jax.eval_shape(
        own.embed, own.start
    ).ndim  # from the parties' axis on: as many as a bottom model's output has
    return jnp.take(slope, own.index, axis=slope.ndim - axes)
