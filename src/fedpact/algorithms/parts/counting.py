"""Constraints on counted rates at a point: how far they are broken, how closely met, and how their stand-ins are corrected.

The formulas are in `counted_rates.py`. A holder is a party, the server with its own rows, or the server for pooled constraints.
"""

from typing import Any

import jax
import numpy as np

from fedpact.arrays import xp
from fedpact.problem.program import Program, directions, rate_factors
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
    others: jax.Array  # the largest violation of its constraints without rates
    inside: jax.Array  # how far those that bind are met, relative to what is close enough
    missed: jax.Array  # how far stand-ins miss their corrected bounds, relative to what is close enough
    pooled_jumps: jax.Array  # what one row counts in each pooled constraint, at most


class Limits(Record):
    """What does not change of the constraints of one holder.

    - `unit`: the largest factor of a rate in each; 0 where there is none.
    - `direction`: see `program.directions`.
    - `equality`: which are equalities. These have no rates.
    """

    unit: Any
    direction: Any
    equality: Any

    @classmethod
    def of(cls, program: Program) -> "Limits":
        return cls(
            rate_factors(program)[1],
            directions(program.constraints.matrix(len(program.atoms))),
            np.asarray(program.equality, bool),
        )


class Count(Record):
    """Constraints of one holder, counted at a point.

    - `correction`, `too_loose`: as before. `counted`, `smooth`: C, and g without its correction.
    - `jumps`: what one row counts in each, at most.
    - `strictest`: what g need not go below, see `Oracle.strictest`.
    - `sharp`: whether the rates had their stated temperature.

    All but the parts without rates are in units of a rate.
    """

    limits: Limits
    correction: jax.Array
    too_loose: jax.Array
    counted: jax.Array
    smooth: jax.Array
    jumps: jax.Array
    strictest: jax.Array
    sharp: Any

    @classmethod
    def at(cls, limits: Limits, sharp: Any, **parts: jax.Array) -> "Count":
        """Of parts as they are stated."""
        unit = xp.asarray(np.where(limits.unit > 0, limits.unit, 1.0))
        return cls(limits=limits, sharp=sharp, **{name: part / unit for name, part in parts.items()})

    @property
    def rates(self) -> jax.Array:
        return xp.asarray(self.limits.unit > 0)

    @property
    def sums(self) -> jax.Array:
        """Of each constraint's counted value and that of every opposite one; -∞ for others."""
        direction = np.asarray(self.limits.direction)
        opposite = (direction[:, None] == -direction) & (self.limits.unit > 0)[:, None]
        return xp.where(opposite, self.counted[:, None] + self.counted, -xp.inf)

    @property
    def opposite(self) -> jax.Array:
        """The place of the closest of the constraints that are each one's other side."""
        return xp.argmax(self.sums, axis=1) if self.counted.size else xp.zeros(0, int)

    @property
    def width(self) -> jax.Array:
        """Of two-sided bounds; ∞ where there is no other side."""
        return -xp.max(self.sums, axis=1, initial=-xp.inf)

    @property
    def two_sided(self) -> jax.Array:
        """Those of two-sided bounds that do not contradict each other."""
        return xp.isfinite(self.width) & (self.width >= -EXACT)

    @property
    def room(self) -> jax.Array:
        """What corrections of two-sided bounds may sum to."""
        width = xp.where(self.two_sided, self.width, 0.0)
        return width - xp.maximum(0.5 * width, BAND)

    @property
    def broken(self) -> jax.Array:
        return self.rates & (self.counted > EXACT)

    @property
    def enough(self) -> jax.Array:
        """How far inside its bound a constraint is met closely."""
        return xp.maximum(INSIDE, ROWS * self.jumps)

    @property
    def loose(self) -> jax.Array:
        """Whether a constraint binds, and yet is met by more than need be."""
        return self.rates & (self.smooth + self.correction > -BINDS) & (-self.counted > self.enough)

    def proposals(self) -> tuple[jax.Array, jax.Array]:
        """δ in each way of correcting, and the largest one that was too small, as they are stated."""
        now, before, other = self.correction, self.too_loose, self.opposite
        aim = xp.where(self.two_sided, xp.minimum(AIM, 0.25 * self.width), AIM)
        through = self.counted - self.smooth + aim
        tighter = xp.maximum(now, through) + PUSH * xp.maximum(self.counted, 0.0)
        too_loose = xp.where(self.broken & self.sharp, xp.maximum(before, now), before)
        highest = self.room - too_loose[other]  # from where on the opposite bound was broken
        beyond = self.two_sided & (tighter >= highest) & (too_loose < highest)
        tighter = xp.where(beyond, 0.5 * (too_loose + highest), tighter)
        known = xp.isfinite(too_loose) & (too_loose < now)
        looser = xp.where(known, xp.maximum(through, 0.5 * (now + xp.where(known, too_loose, 0.0))), through)
        tighter, looser = xp.where(self.broken, tighter, now), xp.where(self.loose, looser, now)
        ways = xp.stack([through, tighter, looser, through - aim])
        ways = xp.minimum(ways, -self.strictest)  # no stand-in reaches below that, nor need it
        unit = xp.asarray(self.limits.unit)
        return unit * self._apart(ways), xp.where(self.rates, unit * too_loose, -xp.inf)

    def _apart(self, ways: jax.Array) -> jax.Array:
        """Two-sided bounds are moved together where they would come too close: away from the one that is broken."""
        other = self.opposite
        close = xp.maximum(ways + ways[:, other] - self.room, 0.0)
        gives_way = xp.where(self.broken, 0.0, xp.where(self.broken[other], 1.0, 0.5))
        return xp.where(self.two_sided, ways - gives_way * close, ways)

    def maxima(self, pooled_jumps: jax.Array) -> CountMaxima:
        rates = self.rates
        violation = xp.max(xp.where(rates, self.counted, -xp.inf), initial=0.0)
        inside = xp.max(xp.where(self.loose, -self.counted / self.enough, 0.0), initial=0.0)
        missed = xp.max(xp.where(rates, (self.smooth + self.correction) / self.enough, 0.0), initial=0.0)
        broken = xp.where(self.limits.equality, xp.abs(self.counted), self.counted)
        return CountMaxima(violation, xp.max(xp.where(rates, 0.0, broken), initial=0.0), inside, missed, pooled_jumps)
