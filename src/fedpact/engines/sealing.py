"""A party's reply on its way to a server that may learn sums over parties only, and what that server makes of all of them.

    sums     a number of the ring for each (beyond 2⁶¹ over the parties it is cut off there), and a last one that is 0 unless
             the reply holds numbers that are not finite; the party then sends random numbers, and the server learns no more
             than that somebody did
    maxima   a ladder of random words for each, modulo a prime: 0 on the rungs above it
    tag      where points are checked: by which parties know that sums are their own (`fedpact.engines.tags`)

All are masked (`fedpact.privacy.masks`) with words that cancel in the sum over those who are asked.
"""

import math
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from fedpact.engines import tags
from fedpact.engines.serialization import Layout, Leaf
from fedpact.protocol import ring
from fedpact.protocol.phases import Role

if TYPE_CHECKING:
    from fedpact.engines.exchanges import ExchangePlan


class Masks(Protocol):
    """A party's masks: `fedpact.privacy.masks.Masks`."""

    @property
    def checked(self) -> bool:
        """Whether replies carry tags."""
        ...

    def streams(self, among: Sequence[str], number: int, message: bytes, size: int) -> list[tuple[int, np.ndarray]]:
        """For each other party of a group: 1 or −1, and `size` random words (uint64) of this exchange."""
        ...

    def factors(self, number: int, message: bytes, size: int) -> np.ndarray:
        """`size` random words (uint64) of this exchange that all parties know, and the server does not."""
        ...


SUMS, MAXIMA, TAG = "sums", "maxima", "tag"
TOLD = "told."  # where sums are told to the parties, their names in a message begin with this
WORD = np.dtype(np.uint64)


def sealed_layout(reply: Layout, checked: bool = False) -> Layout:
    """What a party sends in place of a reply; the same where there is nothing to add up. checked: with a tag."""
    sums, maxima, apart = _parts(reply)
    if not sums and not maxima:
        return reply
    numbers = sum(math.prod(leaf.shape) for leaf in sums) + 1
    ladders = sum(math.prod(leaf.shape) for leaf in maxima)
    leaves = [Leaf(SUMS, (numbers, 2), WORD.name)]
    leaves += [Leaf(MAXIMA, (ladders, ring.RUNGS), WORD.name)] if ladders else []
    leaves += [Leaf(TAG, (1,), WORD.name)] if checked else []
    return Layout((*leaves, *apart), None)


def totals_layout(reply: Layout) -> Layout:
    """What parties are told of the sums of an exchange, where points are checked."""
    return Layout(tuple(x for x in sealed_layout(reply, checked=True).leaves if x.name in (SUMS, MAXIMA, TAG)), None)


def is_sealed(reply: Layout) -> bool:
    """Whether there is anything to add up in it."""
    sums, maxima, _ = _parts(reply)
    return bool(sums or maxima)


def check_sums(plan: "ExchangePlan", discloses: bool) -> None:
    """Raises ValueError where a reply is more than a sum over parties, or a sum over one; `discloses`: parties agreed to it."""
    for exchange in plan.exchanges.values():
        check_summed(exchange.title, exchange.reply, exchange.among, exchange.asked, discloses)


def check_summed(what: str, reply: Layout, among: Role | None, parties: int, discloses: bool) -> None:
    """One active party is no secret: it is the label holder, who is the server."""
    sums, maxima, apart = _parts(reply)
    if any(leaf.size for leaf in apart) and not discloses:
        raise ValueError(
            f"secure sums: the server needs the replies to {what!r} one by one, and sums over parties hide just that; choose "
            'another method, over columns combine="sum", or privacy=None'
        )
    if parties < 2 and among != "active" and (sums or maxima):
        raise ValueError(
            f"secure sums: only one party is asked for {what!r}, and a sum over one party is what it said; use privacy=None"
        )


def sealed(
    reply: Layout, arrays: dict[str, np.ndarray], masks: Masks, among: Sequence[str], number: int, message: bytes
) -> dict[str, np.ndarray]:
    """A party's reply with masks on.

    - `reply`: its layout, `arrays`: its numbers by name.
    - `among`: everybody who is asked. `number`: of the exchange, `message`: a digest of what is answered.
    """
    sums, maxima, apart = _parts(reply)
    told = {leaf.name: arrays[leaf.name] for leaf in (*sums, *maxima)}
    parties = len(among)
    finite = bool(ring.is_finite(told))
    told = {name: ring.bounded(array, parties) for name, array in told.items()}
    words, ladders = _words(sums, told, finite, parties), _ladders(maxima, told, finite)
    tag = np.zeros(0, np.uint64)
    if masks.checked:
        tag = _tag({SUMS: words, MAXIMA: ladders}, masks, number, message)[None]
    rest = np.concatenate([ladders.ravel(), tag])  # modulo a prime
    for sign, stream in masks.streams(among, number, message, words.size + rest.size):
        on_sums, on_rest = stream[: words.size].reshape(words.shape), tags.reduced(stream[words.size :])
        mask = ring.Words(on_sums[:, 0], on_sums[:, 1])
        added = (ring.plus if sign > 0 else ring.minus)(ring.Words(words[:, 0], words[:, 1]), mask)
        words = np.stack([added.high, added.low], axis=1)
        rest = (tags.plus if sign > 0 else tags.minus)(rest, on_rest)
    out = {leaf.name: arrays[leaf.name] for leaf in apart} | {SUMS: words}
    out |= {MAXIMA: rest[: ladders.size].reshape(ladders.shape)} if ladders.size else {}
    return out | ({TAG: rest[ladders.size :]} if masks.checked else {})


def added(replies: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Sealed replies of all, added up: masks are gone."""
    words = np.stack([each[SUMS] for each in replies])
    sums = ring.total(ring.Words(words[..., 0], words[..., 1]))
    rest = {
        name: tags.total(np.stack([each[name] for each in replies])) for name in (MAXIMA, TAG) if name in replies[0]
    }
    return {SUMS: np.stack([sums.high, sums.low], axis=1), **rest}


def is_own(totals: dict[str, np.ndarray], masks: Masks, number: int, message: bytes) -> bool:
    """At a party: whether sums carry the tag that all replies to this message add up to."""
    return bool(_tag(totals, masks, number, message) == totals[TAG][0])


def _tag(told: dict[str, np.ndarray], masks: Masks, number: int, message: bytes) -> np.ndarray:
    numbers = tags.of_ring(ring.Words(told[SUMS][:, 0], told[SUMS][:, 1]))
    numbers = np.concatenate([numbers, told.get(MAXIMA, np.zeros(0, np.uint64)).ravel()])
    return tags.tag(tags.reduced(masks.factors(number, message, numbers.size)), numbers)


def opened(reply: Layout, totals: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], bool]:
    """Sums and maxima by name, and whether everybody's numbers were finite; NaN where not. totals: as `added`."""
    sums, maxima, _ = _parts(reply)
    total = ring.Words(totals[SUMS][:, 0], totals[SUMS][:, 1])
    known = not (total.high[-1] or total.low[-1])
    out, at = {}, 0
    for leaf in sums:
        count = math.prod(leaf.shape)
        part = ring.Words(total.high[at : at + count], total.low[at : at + count])
        out[leaf.name] = ring.decode(part, np.dtype(leaf.dtype)).reshape(leaf.shape)
        at += count
    lit = totals.get(MAXIMA, np.zeros((0, ring.RUNGS), np.uint64)) != 0
    heights, at = ring.height_of(lit), 0
    for leaf in maxima:
        count = math.prod(leaf.shape)
        out[leaf.name] = heights[at : at + count].reshape(leaf.shape).astype(leaf.dtype)
        at += count
    return (out if known else ring.unknown(out)), known


def _parts(reply: Layout) -> tuple[list[Leaf], list[Leaf], list[Leaf]]:
    starts = (".sum", ".max")
    sums, maxima = ([leaf for leaf in reply.leaves if leaf.name.startswith(start)] for start in starts)
    return sums, maxima, [leaf for leaf in reply.leaves if not leaf.name.startswith(starts)]


def _random(*shape: int) -> np.ndarray:
    return np.frombuffer(secrets.token_bytes(8 * math.prod(shape)), np.uint64).reshape(shape)


def _words(leaves: list[Leaf], arrays: dict[str, np.ndarray], finite: bool, parties: int) -> np.ndarray:
    """Numbers of the ring, (numbers + 1, 2); random ones of as many bits as may be told, where they cannot be."""
    if not finite:
        words = _random(sum(math.prod(leaf.shape) for leaf in leaves) + 1, 2).copy()
        bits = int(math.log2(ring.largest(parties)))
        words[:, 0] = (words[:, 0].view(np.int64) >> np.int64(63 - bits)).view(np.uint64)
        return words
    encoded = [ring.encode(arrays[leaf.name].ravel()) for leaf in leaves]
    flag = ring.Words(np.zeros(1, np.uint64), np.zeros(1, np.uint64))
    both = (np.concatenate(parts) for parts in zip(*((e.high, e.low) for e in (*encoded, flag)), strict=True))
    return np.stack(list(both), axis=1)


def _ladders(leaves: list[Leaf], arrays: dict[str, np.ndarray], finite: bool) -> np.ndarray:
    """Random words on the rungs that are lit, (ladders, rungs)."""
    count = sum(math.prod(leaf.shape) for leaf in leaves)
    words = tags.reduced(_random(count, ring.RUNGS))
    if not finite or not count:
        return words
    values = np.concatenate([arrays[leaf.name].ravel() for leaf in leaves])
    return np.where(ring.rungs_of(values), words, np.uint64(0))
