"""What travels. The server needs sums and a few maxima of what the parties say, so that is the shape of a reply."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp


class Reply(eqx.Module):
    """A party's answer; the field says how answers are combined.

    `sum` leaves are added over parties, `max` leaves maximised. `each` leaves are kept apart in party order: for what a
    party agreed to tell about itself (its certificate, its curves in the report), never for an algorithm's arithmetic.
    """

    sum: Any = None
    max: Any = None
    each: Any = None


def combine(replies: Reply) -> Reply:
    """Combine answers stacked along a leading party axis; `each` stays stacked."""
    return Reply(
        sum=jax.tree.map(lambda x: x.sum(0), replies.sum),
        max=jax.tree.map(lambda x: x.max(0), replies.max),
        each=replies.each,
    )


def merge(replies: list[Reply], places: jax.Array) -> Reply:
    """Combine the combined answers of several buckets; `places[k]` is where party k stands in their concatenation."""
    each = jax.tree.map(lambda *x: jnp.concatenate(x), *(r.each for r in replies))
    return Reply(
        sum=jax.tree.map(lambda *x: sum(x[1:], x[0]), *(r.sum for r in replies)),
        max=jax.tree.map(lambda *x: jnp.stack(x).max(0), *(r.max for r in replies)),
        each=jax.tree.map(lambda x: x[places], each),
    )


def size_in_bytes(tree: Any) -> int:
    """Bytes of the arrays in a message, as they are sent."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
