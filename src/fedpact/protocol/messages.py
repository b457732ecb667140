"""What parties send to the server. A server needs sums and a few maxima of the replies, so that is the shape of a reply."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from fedpact.protocol import ring
from fedpact.records import Record, is_addend


class Reply(Record):
    """One party's reply; the field says how replies are combined.

    - `sum`: leaves are added over the parties. An `Addend` is a leaf, too.
    - `max`: leaves are maximised over the parties.
    - `per_party`: leaves are not combined. The server gets one entry for each party that was asked, in the order of the
      parties, and knows whose it is. Used for certificates, for the curves of the report, and by methods that cannot do with a
      sum: split models with `combine="concat"`, and encrypted products.
    """

    sum: Any = None
    max: Any = None
    per_party: Any = None


def combine(replies: Reply) -> Reply:
    """Combine replies that are stacked along a leading party axis: sums, maxima, and `per_party` as it is."""
    return Reply(
        sum=jax.tree.map(lambda x: x.of_all() if is_addend(x) else x.sum(0), replies.sum, is_leaf=is_addend),
        max=jax.tree.map(lambda x: x.max(0), replies.max),
        per_party=replies.per_party,
    )


def alone(reply: Reply) -> Reply:
    """One party's reply as it is sent."""
    sums = jax.tree.map(lambda x: x.alone() if is_addend(x) else x, reply.sum, is_leaf=is_addend)
    return dataclasses.replace(reply, sum=sums)


def merge(replies: list[Reply], places: jax.Array) -> Reply:
    """Combine the combined replies of several groups; `places[k]` is where party k stands in their concatenation."""
    per_party = jax.tree.map(lambda *x: jnp.concatenate(x), *(r.per_party for r in replies))
    return Reply(
        sum=jax.tree.map(lambda *x: sum(x[1:], x[0]), *(r.sum for r in replies)),
        max=jax.tree.map(lambda *x: jnp.stack(x).max(0), *(r.max for r in replies)),
        per_party=jax.tree.map(lambda x: x[places], per_party),
    )


def size_in_bytes(tree: Any) -> int:
    """Bytes of the arrays in a message, as they are sent."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def sealed_bytes(reply: Reply, checked: bool = False) -> int:
    """Bytes of one party's sums and maxima where they are added up in secret, with a number that says that all are finite.

    checked: and with a tag.
    """
    sums, maxima = (sum(leaf.size for leaf in jax.tree.leaves(part)) for part in (reply.sum, reply.max))
    is_sealed = bool(jax.tree.leaves((reply.sum, reply.max)))
    return ring.NUMBER_BYTES * (sums + 1) + ring.LADDER_BYTES * maxima + 8 * checked if is_sealed else 0
