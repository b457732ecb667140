"""Constraints on counted rates at a point: how far they are broken, how closely met, and how their stand-ins are corrected.

The formulas are in `counted_rates.py`. A holder is a party, the server with its own rows, or the server for pooled constraints.
"""

from typing import Any

import jax
import numpy as np

from fedpact.arrays import xp
from fedpact.records import Record

EXACT = 1e-9  # counts are exact up to the rounding of sums
INSIDE = 0.004  # a constraint that binds is met closely enough within this, in units of a rate,
ROWS = 2.0  # or within what so many rows count
AIM = 0.001  # so far inside is aimed at
BAND = 1e-3  # two-sided bounds leave stand-ins this width, or half of that between the bounds
PUSH = 0.5  # of a violation: so much further than the count says
BINDS = 2e-3  # a smooth constraint with less room than this binds
WAYS = 4  # of correcting: so that what is bounded passes through what was counted, tighter, looser, and without an aim inside
WHOLLY, TIGHTER, LOOSELY, PLAINLY = range(WAYS)


class CountMaxima(Record):
    """Of the counted constraints of one party."""

    violation: jax.Array
    others: jax.Array  # the largest of its constraints without rates
    inside: jax.Array  # how far those that bind are met, relative to what is close enough
    missed: jax.Array  # how far stand-ins miss their corrected bounds, relative to what is close enough
    pooled_jumps: jax.Array  # what one row counts in each pooled constraint, at most


class Count(Record):
    """Constraints of one holder, counted at a point.

    - `correction`, `too_loose`: as before. `counted`, `smooth`: C, and g without its correction.
    - `jumps`: what one row counts in each, at most.
    - `strictest`: what g need not go below, see `Oracle.strictest`.
    - `unit`: the largest factor of a rate in each; 0 where there is none.
    - `opposite`: where a constraint is one of two-sided bounds, the place of the other one; else its own.
    - `sharp`: whether the rates had their stated temperature.
    """

    correction: jax.Array
    too_loose: jax.Array
    counted: jax.Array
    smooth: jax.Array
    jumps: jax.Array
    strictest: jax.Array
    unit: Any
    opposite: Any
    sharp: Any

    @property
    def two_sided(self) -> jax.Array:
        """Those of two-sided bounds that do not contradict each other."""
        is_pair = (self.unit > 0) & (self.opposite != np.arange(len(self.opposite)))
        return is_pair & (self.width >= -EXACT * self.unit)

    @property
    def width(self) -> jax.Array:
        """Of two-sided bounds."""
        return -(self.counted + self.counted[self.opposite])

    @property
    def room(self) -> jax.Array:
        """What corrections of two-sided bounds may sum to."""
        return self.width - xp.maximum(0.5 * self.width, BAND * self.unit)

    @property
    def broken(self) -> jax.Array:
        return (self.unit > 0) & (self.counted > EXACT * self.unit)

    @property
    def enough(self) -> jax.Array:
        """How far inside its bound a constraint is met closely."""
        return xp.maximum(INSIDE * self.unit, ROWS * self.jumps)

    @property
    def loose(self) -> jax.Array:
        """Whether a constraint binds, and yet is met by more than need be."""
        binds = self.smooth + self.correction > -BINDS * self.unit
        return (self.unit > 0) & binds & (-self.counted > self.enough)

    def proposals(self) -> tuple[jax.Array, jax.Array]:
        """δ in each way of correcting, and the largest one that was too small."""
        aim, now = AIM * self.unit, self.correction
        aim = xp.where(self.two_sided, xp.minimum(aim, 0.25 * self.width), aim)
        through = self.counted - self.smooth + aim
        tighter = xp.maximum(now, through) + PUSH * xp.maximum(self.counted, 0.0)
        too_loose = xp.where(self.broken & self.sharp, xp.maximum(self.too_loose, now), self.too_loose)
        highest = self.room - too_loose[self.opposite]  # from where on the opposite bound was broken
        beyond = self.two_sided & (tighter >= highest) & (too_loose < highest)
        tighter = xp.where(beyond, 0.5 * (too_loose + highest), tighter)
        known = xp.isfinite(too_loose) & (too_loose < now)
        looser = xp.where(known, xp.maximum(through, 0.5 * (now + xp.where(known, too_loose, 0.0))), through)
        tighter, looser = xp.where(self.broken, tighter, now), xp.where(self.loose, looser, now)
        ways = xp.stack([through, tighter, looser, through - aim])
        ways = xp.minimum(ways, -self.strictest)  # no stand-in reaches below that, nor need it
        return xp.where(self.unit > 0, self._apart(ways), 0.0), too_loose

    def _apart(self, ways: jax.Array) -> jax.Array:
        """Two-sided bounds are moved together where they would come too close: away from the one that is broken."""
        close = xp.maximum(ways + ways[:, self.opposite] - self.room, 0.0)
        gives_way = xp.where(self.broken, 0.0, xp.where(self.broken[self.opposite], 1.0, 0.5))
        return xp.where(self.two_sided, ways - gives_way * close, ways)

    def maxima(self, pooled_jumps: jax.Array) -> CountMaxima:
        rates, unit = self.unit > 0, xp.where(self.unit > 0, self.unit, 1.0)
        enough = xp.where(rates, self.enough, 1.0)
        violation = xp.max(xp.where(rates, self.counted / unit, -xp.inf), initial=0.0)
        inside = xp.max(xp.where(self.loose, -self.counted / enough, 0.0), initial=0.0)
        missed = xp.max(xp.where(rates, (self.smooth + self.correction) / enough, 0.0), initial=0.0)
        others = xp.max(xp.where(rates, 0.0, self.counted), initial=0.0)
        return CountMaxima(violation, others, inside, missed, pooled_jumps)
