"""Constraints on counted rates at a point: how far they are broken, how closely met, and how their stand-ins are corrected.

The formulas are in `counted_rates.py`. A holder is a party, the server with its own rows, or the server for pooled constraints.
"""

from typing import Any

import jax

from fedpact.arrays import xp
from fedpact.records import Record

EXACT = 1e-9  # counts are exact up to the rounding of sums
INSIDE = 0.004  # a constraint that binds is met closely enough within this, in units of a rate,
ROWS = 2.0  # or within what so many rows count
AIM = 0.001  # so far inside is aimed at
PUSH = 0.5  # of a violation: so much further than the count says
BINDS = 2e-3  # a smooth constraint with less room than this binds
WHOLLY, TIGHTER, LOOSELY = range(3)  # ways of correcting


class CountMaxima(Record):
    """Of the counted constraints of one party."""

    violation: jax.Array
    inside: jax.Array  # how far those that bind are met, relative to what is close enough
    pooled_jumps: jax.Array  # what one row counts in each pooled constraint, at most


class Count(Record):
    """Constraints of one holder, counted at a point.

    - `correction`, `too_loose`: as before. `counted`, `smooth`: C, and g without its correction.
    - `jumps`: what one row counts in each, at most.
    - `strictest`: what g need not go below, see `Oracle.strictest`.
    - `unit`: the largest factor of a rate in each; 0 where there is none.
    """

    correction: jax.Array
    too_loose: jax.Array
    counted: jax.Array
    smooth: jax.Array
    jumps: jax.Array
    strictest: jax.Array
    unit: Any

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
        """δ in either way of correcting, and the largest one that was too small."""
        aim, now = AIM * self.unit, self.correction
        through = self.counted - self.smooth + aim
        tighter = xp.maximum(now, through) + PUSH * xp.maximum(self.counted, 0.0)
        too_loose = xp.where(self.broken, xp.maximum(self.too_loose, now), self.too_loose)
        known = xp.isfinite(too_loose) & (too_loose < now)
        looser = xp.where(known, xp.maximum(through, 0.5 * (now + xp.where(known, too_loose, 0.0))), through)
        ways = xp.stack([through, xp.where(self.broken, tighter, now), xp.where(self.loose, looser, now)])
        ways = xp.minimum(ways, -self.strictest)  # no stand-in reaches below that, nor need it
        return xp.where(self.unit > 0, ways, 0.0), too_loose

    def maxima(self, pooled_jumps: jax.Array) -> CountMaxima:
        rates, unit = self.unit > 0, xp.where(self.unit > 0, self.unit, 1.0)
        enough = xp.where(rates, self.enough, 1.0)
        violation = xp.max(xp.where(rates, self.counted / unit, -xp.inf), initial=0.0)
        inside = xp.max(xp.where(self.loose, -self.counted / enough, 0.0), initial=0.0)
        return CountMaxima(violation, inside, pooled_jumps)
