"""Averages of the parties' replies that a few lying parties cannot move far.

An average over n parties follows a single one of them anywhere. These do not, up to a number of liars that is known before:

    TrimmedMean     of every number, the largest and the smallest replies are left out
    MedianOfMeans   parties are put into groups, and of every number the median of the groups' means is taken

    D. Yin et al., Byzantine-robust distributed learning: towards optimal statistical rates, ICML 2018 (both are taken there
    coordinate by coordinate).

They need every party's reply by itself at the server. A sum that is formed in secret shows no single reply, so whoever wants
secure sums cannot have these, and the other way round. Every party counts alike: how many rows it has is its own word too.
"""

import abc
import math
from typing import Any

import jax
import jax.numpy as jnp

from fedpact.algorithms.parts.batches import answering
from fedpact.federation.setting import Setting
from fedpact.protocol.options import Options, check


class RobustAverage(Options):
    """What `average=` of FedAvg, FedProx, FedSGD and SCAFFOLD takes: `fp.TrimmedMean` or `fp.MedianOfMeans`."""

    @abc.abstractmethod
    def check_parties(self, owner: str, answering: int) -> None:
        """Raise ValueError where it would not be robust over so many parties; `owner`: the method."""

    @abc.abstractmethod
    def __call__(self, replies: jax.Array, there: jax.Array) -> jax.Array:
        """The average over the parties that are `there`, (n,) of booleans, of `replies`, (n, ...); 0 where nobody is."""


class TrimmedMean(RobustAverage):
    """Of every number, the mean over the parties without the largest and the smallest replies.

    - `share`: of the parties, left out at either end (over 0, below 0.5, default 0.2). Up to so many lying parties cannot move
      a number out of the range of the others' replies. Of 10 parties, 0.2 leaves out the 2 largest and the 2 smallest.
    """

    share: float = 0.2

    def __check_init__(self) -> None:
        check("TrimmedMean", "share", self.share, lambda x: 0 < x < 0.5, "left out at either end, over 0 and below 0.5")

    def check_parties(self, owner: str, answering: int) -> None:
        if math.floor(self.share * answering) < 1:
            raise ValueError(
                f"{owner}(average=TrimmedMean(share={self.share:g})): of {answering} parties that leaves out none; "
                f"share={1 / answering:.2g} leaves out one at either end, which takes at least 3 parties"
            )

    def __call__(self, replies: jax.Array, there: jax.Array) -> jax.Array:
        count = there.sum().astype(replies.dtype)
        out = jnp.floor(self.share * count + 1e-9)
        place = _beside(jnp.arange(len(there), dtype=replies.dtype), replies)
        ordered = jnp.sort(jnp.where(_beside(there, replies), replies, jnp.inf), axis=0)
        kept = (place >= out) & (place < count - out)
        return jnp.where(kept, ordered, 0.0).sum(0) / jnp.maximum(count - 2 * out, 1)


class MedianOfMeans(RobustAverage):
    """Parties are dealt to groups in turn; of every number, the median of the groups' means.

    - `groups`: how many (at least 3, and no more than parties; default 5). Fewer lying parties than half of the groups cannot
      move a number out of the range of the other groups' means.
    """

    groups: int = 5

    def __check_init__(self) -> None:
        check("MedianOfMeans", "groups", self.groups, lambda x: x >= 3, "at least 3 groups of parties", whole=True)

    def check_parties(self, owner: str, answering: int) -> None:
        if answering < self.groups:
            raise ValueError(
                f"{owner}(average=MedianOfMeans(groups={self.groups})): only {answering} parties answer; take fewer groups"
            )

    def __call__(self, replies: jax.Array, there: jax.Array) -> jax.Array:
        group = jnp.where(there, (jnp.cumsum(there) - 1) % self.groups, self.groups)
        member = group == jnp.arange(self.groups)[:, None]  # (groups, n)
        sizes = member.sum(1).astype(replies.dtype)
        sums = jnp.tensordot(member.astype(replies.dtype), jnp.where(_beside(there, replies), replies, 0.0), 1)
        means = jnp.where(_beside(sizes > 0, sums), sums / _beside(jnp.maximum(sizes, 1), sums), jnp.nan)
        return jnp.where(there.any(), jnp.nanmedian(means, axis=0), 0.0)


def check_average(owner: str, average: RobustAverage | None) -> None:
    """The option, where it is made."""
    if not isinstance(average, RobustAverage | None):
        raise TypeError(
            f"{owner}(average={average!r}): fp.TrimmedMean(), fp.MedianOfMeans(), or None for the plain average"
        )


def fitting(options: Any, setting: Setting) -> RobustAverage | None:
    """A method's option in this setting; raises ValueError where it does not fit it."""
    average, owner = options.average, type(options).__name__
    if average is None:
        return None
    if setting.split != "rows":
        raise ValueError(f"{owner}(average=...) is for one model of parties who hold rows; leave average= out")
    average.check_parties(owner, answering(setting.parties, options.participation))
    return average


def over_finite(average: RobustAverage, single: jax.Array, asked: jax.Array) -> jax.Array:
    """The average over the parties that were asked and whose numbers, (n, ...), are all finite."""
    finite = jnp.isfinite(single).reshape(len(single), -1).all(1)
    return average(single, (asked > 0) & finite)


def _beside(per_party: jax.Array, replies: jax.Array) -> jax.Array:
    """One entry for each party, in as many axes as the replies have."""
    return per_party.reshape(-1, *(1,) * (replies.ndim - 1))
