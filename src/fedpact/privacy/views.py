"""What a server receives in a run: the replies of one party, or only sums over all of them.

The attacks of `row_attacks` and `candidates` read a view and nothing else, so that the same attacks measure what sums hide.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from fedpact.protocol.messages import Reply


@dataclasses.dataclass(frozen=True)
class Recorded:
    """One exchange of a run: `replies` has what each party sent, in the order of the parties."""

    name: str
    message: Any
    replies: tuple[Reply, ...]


@dataclasses.dataclass(frozen=True)
class Received:
    """One exchange as the server sees it: what the server sent, and what it received."""

    name: str
    message: Any
    reply: Reply


@dataclasses.dataclass(frozen=True)
class View:
    """All exchanges as the server sees them, of one party (`parties` is 1) or added up over so many parties."""

    exchanges: tuple[Received, ...]
    parties: int


def of_one_party(recorded: Sequence[Recorded], place: int) -> View:
    """What the server receives from one party; `place`: its place among the parties, from 0."""
    return View(tuple(Received(r.name, r.message, r.replies[place]) for r in recorded), 1)


def of_sums(recorded: Sequence[Recorded]) -> View:
    """What the server receives where replies are added up before it sees them: sums, maxima rounded up to a power of two, and
    nothing that is one party's own."""
    return View(tuple(Received(r.name, r.message, summed(r.replies)) for r in recorded), len(recorded[0].replies))


def summed(replies: Sequence[Reply]) -> Reply:
    """Replies as secure sums show them."""
    return Reply(
        sum=jax.tree.map(lambda *leaves: np.sum(leaves, axis=0), *(reply.sum for reply in replies)),
        max=jax.tree.map(lambda *leaves: rounded_up(np.max(leaves, axis=0)), *(reply.max for reply in replies)),
    )


def rounded_up(number: Any) -> np.ndarray:
    """The power of two that is not below a number, elementwise; 0 for what is not positive. Other than finite stays."""
    number = np.asarray(number, float)
    good = np.isfinite(number) & (number > 0)
    mantissa, exponent = np.frexp(np.where(good, number, 1.0))
    power = np.ldexp(1.0, exponent - (mantissa == 0.5))
    return np.where(good, power, np.where(number <= 0, 0.0, number))
