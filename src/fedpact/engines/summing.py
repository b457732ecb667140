"""Sums outside of a method's exchanges: what parties tell for a recipe, an evaluation or a promise, sealed as replies are.

Nobody knows beforehand how large the columns of a raw frame are, so a number with a fraction is three of the ring, in units of
2⁴⁰, 1 and 2⁻⁶⁴. Up to 2¹⁰¹ over the parties in size, its error is the rounding of float64, or 2⁻¹²⁸; and the sum over parties
is rounded once, as `math.fsum` does it, so that one process and a deployment agree to the bit.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fedpact.engines.sealing import SUMS, Masks, added, sealed, sealed_layout
from fedpact.engines.serialization import Layout, Leaf
from fedpact.protocol import ring

NUMBER = 0  # of every such exchange; those of a method are numbered from 1 on, and the message tells them apart
UPPER = 2.0**40
EXACT = 2.0**-12  # from here on a number is one of the ring without error
HALF = np.uint64(32)

Specs = Mapping[str, tuple[tuple[int, ...], str]]  # by name: a shape, and "i" for whole numbers or "f" for others


def sums_layout(sums: Specs, apart: Specs | None = None) -> Layout:
    """Of a party's numbers before they are sealed. `apart`: of those that the server gets one by one (default: none)."""
    leaves = [
        Leaf(f".sum {name}", shape if kind == "i" else (*shape, 3), "int64" if kind == "i" else "float64")
        for name, (shape, kind) in sums.items()
    ]
    return Layout((*leaves, *(Leaf(n, shape, _DTYPES[kind]) for n, (shape, kind) in (apart or {}).items())), None)


_DTYPES = {"i": "int64", "f": "float64"}


def sealed_sums(
    arrays: Mapping[str, np.ndarray],
    masks: Masks,
    among: Sequence[str],
    message: bytes,
    apart: Mapping[str, np.ndarray] | None = None,
) -> dict[str, np.ndarray]:
    """A party's numbers (int64 or float64) by name, with masks on.

    - `among`: everybody who is asked. `message`: a digest of what is answered.
    - `apart`: what the server gets one by one (default: nothing).
    """
    told = {f".sum {name}": a if a.dtype.kind == "i" else _limbs(a) for name, a in arrays.items()}
    more = dict(apart or {})
    layout = sums_layout(*({n: (a.shape, a.dtype.kind) for n, a in part.items()} for part in (arrays, more)))
    return sealed(layout, told | more, masks, among, NUMBER, message)


def sealed_sums_layout(sums: Specs, apart: Specs | None = None) -> Layout:
    """Of what `sealed_sums` sends."""
    return sealed_layout(sums_layout(sums, apart))


def opened_sums(sums: Specs, replies: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray] | None:
    """The sums over all parties by name, from what each sent; None where somebody's numbers were not finite."""
    words = added([dict(reply) for reply in replies])[SUMS]
    if words[-1].any():
        return None
    out, at = {}, 0
    for name, (shape, kind) in sums.items():
        count = math.prod(shape)
        if kind == "i":
            out[name], used = words[at : at + count, 0].astype(np.int64).reshape(shape), count
        else:
            used = 3 * count
            out[name] = _whole(words[at : at + used].reshape(count, 3, 2)).reshape(shape)
        at += used
    return out


def _limbs(x: np.ndarray) -> np.ndarray:
    """Numbers in units of 2⁴⁰, 1 and 2⁻⁶⁴, (..., 3), whose sum they are without error."""
    with np.errstate(invalid="ignore"):  # what is not finite stays so, and is seen when it is sealed
        upper = np.trunc(x / UPPER)
        rest = x - upper * UPPER
        middle = np.where(np.abs(rest) < EXACT, np.round(rest / ring.LEAST) * ring.LEAST, rest)
        return np.stack([upper, middle, (rest - middle) / ring.LEAST], axis=-1)


def _whole(words: np.ndarray) -> np.ndarray:
    """What the sums of limbs, words of the ring (numbers, 3, 2), stand for: correctly rounded."""
    high, low = words[..., 0].view(np.int64), words[..., 1]
    least = np.uint64(0xFFFFFFFF)
    halves = np.stack(
        [
            (high >> np.int64(32)) * ring.HALF,
            (high & np.int64(0xFFFFFFFF)).astype(float),
            (low >> HALF) / ring.HALF,
            (low & least) * ring.LEAST,
        ],
        axis=-1,
    )
    parts = halves * np.array([UPPER, 1.0, ring.LEAST])[:, None]
    return np.array([math.fsum(each) for each in parts.reshape(len(words), 12)])
