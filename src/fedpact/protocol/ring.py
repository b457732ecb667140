"""Numbers as whole multiples of 2⁻⁶⁴ modulo 2¹²⁸, so that masks cancel exactly; and maxima up to a power of two.

A number is two words of 64 bits, the whole part (two's complement) and the fraction. What is at least 2⁻¹² in size and below
2⁶² is encoded without error, and sums are exact until they are decoded. The server of secure sums decodes nothing but sums
over all parties. Code written with `xp` runs in a compiled program and on the host alike, so that one process and a deployment
round in the same way.

A maximum of numbers >= 0 becomes a sum, too: every number lights the rungs 0 < x, 2⁻⁶⁴ < x, 2⁻⁶³ < x, … of a ladder, and the
highest rung that anybody lit is all that a sum of random words over each rung tells (`fedpact.engines.sealing`). What is
known then is the least power of two that is not below the maximum.
"""

import math
from typing import Any

import jax
import numpy as np

from fedpact.arrays import xp
from fedpact.records import Record

HALF = 4294967296.0  # 2³²
LEAST = 2.0**-64  # above 0, of a ladder
RUNGS = 128  # of a ladder: its values are 0, 2⁻⁶⁴, 2⁻⁶³, …, 2⁶²
NUMBER_BYTES = 16
LADDER_BYTES = 8 * RUNGS
MOST = 2.0**62
FEWEST = 3  # parties in a sum: of two, each knows the other's share of it


class Words(Record):
    """Numbers of the ring: their whole parts and fractions, uint64 arrays of the same shape."""

    high: Any
    low: Any


def is_words(node: Any) -> bool:
    return isinstance(node, Words)


def largest(parties: int) -> float:
    """What every party's numbers have to stay below in size, so that no sum passes the end of the ring."""
    return MOST / 2.0 ** math.ceil(math.log2(max(parties, 1)))


def encode(x: Any) -> Words:
    """Numbers below `MOST` in size as words of the ring, rounded to 2⁻⁶⁴."""
    if x.dtype.kind in "iu":
        words = x.astype(np.int64).astype(np.uint64)
        return Words(words, xp.zeros_like(words))
    size = xp.abs(x).astype(np.float64)
    whole = xp.floor(size)
    part = (size - whole) * HALF
    upper = xp.floor(part)
    lower = xp.round((part - upper) * HALF)
    low = (upper.astype(np.uint64) << np.uint64(32)) + lower.astype(np.uint64)
    words = Words(whole.astype(np.uint64), low)
    negative = negated(words)
    return Words(xp.where(x < 0, negative.high, words.high), xp.where(x < 0, negative.low, words.low))


def negated(words: Words) -> Words:
    """−x."""
    low = ~words.low + np.uint64(1)
    return Words(~words.high + (words.low == 0).astype(np.uint64), low)


def plus(a: Words, b: Words) -> Words:
    """a + b."""
    low = a.low + b.low
    return Words(a.high + b.high + (low < a.low).astype(np.uint64), low)


def minus(a: Words, b: Words) -> Words:
    """a − b."""
    return plus(a, negated(b))


def total(words: Words) -> Words:
    """The sum over the first axis, of at most 2³² entries."""
    least, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    lower = xp.sum(words.low & least, axis=0, dtype=np.uint64)
    upper = xp.sum(words.low >> half, axis=0, dtype=np.uint64) + (lower >> half)
    high = xp.sum(words.high, axis=0, dtype=np.uint64) + (upper >> half)
    return Words(high, (upper << half) | (lower & least))


def decode(words: Words, dtype: Any) -> Any:
    """The numbers that words stand for."""
    below = words.high >= np.uint64(1 << 63)
    if np.dtype(dtype).kind in "iu":
        return words.high.astype(np.int64).astype(dtype)
    negative = negated(words)
    high, low = xp.where(below, negative.high, words.high), xp.where(below, negative.low, words.low)
    size = high.astype(np.float64) + low.astype(np.float64) * LEAST
    return xp.where(below, -size, size).astype(dtype)


def power_above(x: Any) -> Any:
    """The least power of two that is not below x >= 0, from 2⁻⁶⁴ on; 0 for 0, and NaN for what is not finite."""
    least, most = (np.asarray(bound, x.dtype) for bound in (LEAST, MOST))
    fraction, exponent = xp.frexp(xp.clip(x, least, most))
    exponent = xp.where(fraction == 0.5, exponent - 1, exponent)
    power = xp.ldexp(xp.ones_like(x), exponent)
    power = xp.where(x > 0, power, xp.zeros_like(x))
    return xp.where(xp.isfinite(x), power, xp.full_like(x, xp.nan))


def is_finite(tree: Any) -> Any:
    """Whether all numbers of a tree are."""
    finite = [xp.all(xp.isfinite(leaf)) for leaf in jax.tree.leaves(tree) if leaf.dtype.kind == "f"]
    return xp.all(xp.stack(finite)) if finite else xp.asarray(True)


def bounded(x: Any, parties: int) -> Any:
    """Numbers that are too large to be added up in the ring, as the largest that can be: what is huge stays huge."""
    most = np.asarray(largest(parties) / 2, x.dtype) if x.dtype.kind == "f" else None
    return x if most is None else xp.clip(x, -most, most)


def unknown(tree: Any) -> Any:
    """The same numbers, none of them known: NaN, and 0 where they are whole."""
    return jax.tree.map(lambda x: xp.full_like(x, np.nan) if x.dtype.kind == "f" else xp.zeros_like(x), tree)


def rungs_of(x: np.ndarray) -> np.ndarray:
    """Which rungs numbers >= 0 light, bool (..., RUNGS); on the host."""
    steps = np.concatenate([[0.0], np.exp2(np.arange(-64.0, 63.0))])
    return np.asarray(x, np.float64)[..., None] > steps


def height_of(lit: np.ndarray) -> np.ndarray:
    """The powers of two that lit rungs stand for; on the host."""
    values = np.concatenate([[0.0], np.exp2(np.arange(-64.0, 64.0))])
    highest = lit.shape[-1] - np.argmax(lit[..., ::-1], axis=-1)
    return values[np.where(lit.any(axis=-1), highest, 0)]
