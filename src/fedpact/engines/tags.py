"""A tag on sums, by which parties know that a sum is that of their own replies: a linear code under a key that they share.

    tag_i = Σ_k α_k x_ik + mask_i   mod p = 2⁶¹ − 1

x_i are party i's numbers as whole multiples of 2⁻⁶⁴, or words of its ladders; α comes from the key, the number of the exchange
and the message that is answered. Masks cancel, so the tags add up to Σ_k α_k X_k for the sums X. Who does not know α and
changes X finds the new tag with probability 2⁻⁶¹. All arithmetic is on arrays of 64-bit words.
"""

from typing import Any

import numpy as np

from fedpact.protocol import ring

PRIME = np.uint64((1 << 61) - 1)
_LOW31, _LOW30 = np.uint64((1 << 31) - 1), np.uint64((1 << 30) - 1)
_61, _31, _30, _3 = (np.uint64(n) for n in (61, 31, 30, 3))


def reduced(x: Any) -> np.ndarray:
    """Words of 64 bits modulo p."""
    x = (x & PRIME) + (x >> _61)
    with np.errstate(over="ignore"):
        return np.where(x >= PRIME, x - PRIME, x)


def plus(a: Any, b: Any) -> np.ndarray:
    """a + b modulo p, of numbers below p."""
    return reduced(a + b)


def minus(a: Any, b: Any) -> np.ndarray:
    """a − b modulo p, of numbers below p."""
    return reduced(a + (PRIME - b))


def times(a: Any, b: Any) -> np.ndarray:
    """a·b modulo p, of numbers below p."""
    upper_a, lower_a, upper_b, lower_b = a >> _31, a & _LOW31, b >> _31, b & _LOW31
    middle = lower_a * upper_b + upper_a * lower_b
    whole = ((upper_a * upper_b) << np.uint64(1)) + (middle >> _30) + ((middle & _LOW30) << _31) + lower_a * lower_b
    return reduced(whole)


def total(x: np.ndarray) -> np.ndarray:
    """The sum over the first axis modulo p, of less than 2³² numbers below p."""
    half = np.uint64(32)
    lower, upper = (np.sum(part, axis=0, dtype=np.uint64) for part in (x & np.uint64(0xFFFFFFFF), x >> half))
    return plus(reduced(lower), times(reduced(upper), np.uint64(1 << 32)))


def of_ring(words: ring.Words) -> np.ndarray:
    """Numbers of the ring, as the whole numbers of either sign that they stand for, modulo p."""
    below = words.high >= np.uint64(1 << 63)
    negative = ring.negated(words)
    high, low = (np.where(below, n, x) for n, x in ((negative.high, words.high), (negative.low, words.low)))
    size = plus(reduced(reduced(high) << _3), reduced(low))  # 2⁶⁴ is 8 modulo p
    return np.where(below & (size > 0), PRIME - size, size)


def tag(factors: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Σ_k α_k x_k modulo p; both below p, one-dimensional."""
    return total(times(factors, numbers)) if numbers.size else np.zeros((), np.uint64)
