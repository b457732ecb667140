"""What a message looks like on its way: named arrays and a few words, in a format that executes nothing when it is read.

A message is a safetensors file in memory. Its arrays are the leaves of a tree that both ends know by heart, since both have
traced the same method, so names, shapes, dtypes and size are checked before anything is made of it.
"""

import dataclasses
import json
import math
from typing import Any

import jax
import numpy as np

WORDS = "fedpact"  # the key of the words in a file's metadata
HEADER = 1 << 20  # bytes that names, shapes and words may take


class Refused(Exception):
    """A message that is not what was agreed on; the text says what is wrong with it."""


def pack(words: dict[str, Any], arrays: dict[str, np.ndarray] | None = None) -> bytes:
    """A message as it is sent."""
    from safetensors.numpy import save

    plain = {name: np.asarray(array, order="C") for name, array in (arrays or {}).items()}
    return save(plain, metadata={WORDS: json.dumps(words)})


def unpack(
    message: bytes, most: int | None = None, words: int = HEADER
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The words and the arrays of a message of at most `most` bytes (default: any number), `words` of them for names, shapes and
    words (default: 1 MiB). What is longer is refused before any of it is read."""
    from safetensors.numpy import load

    if not isinstance(message, bytes):
        raise Refused(f"a message is bytes, not {type(message).__name__}")
    if most is not None and len(message) > most:
        raise Refused(f"the message has {len(message)} bytes, more than the {most} that were agreed on")
    try:
        length = int.from_bytes(message[:8], "little")
        if not 2 <= length <= min(words, len(message) - 8):
            raise ValueError("its header does not fit")
        told = json.loads(json.loads(message[8 : 8 + length])["__metadata__"][WORDS])
        arrays = load(message)
    except Exception as error:  # damaged bytes raise whatever they happen to ask for
        raise Refused(f"the message cannot be read: {type(error).__name__}: {error}") from None
    if not isinstance(told, dict):
        raise Refused("the message's words are no mapping")
    return told, arrays


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One array of a message."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """In bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


@dataclasses.dataclass(frozen=True)
class Layout:
    """The arrays of a message: a tree of them for programs, by name on the wire."""

    leaves: tuple[Leaf, ...]
    tree: Any

    @classmethod
    def of(cls, tree: Any) -> "Layout":
        found, structure = jax.tree_util.tree_flatten_with_path(tree)
        leaves = (Leaf(jax.tree_util.keystr(path) or "message", leaf.shape, str(leaf.dtype)) for path, leaf in found)
        return cls(tuple(leaves), structure)

    @property
    def size(self) -> int:
        """In bytes, without names and words."""
        return sum(leaf.size for leaf in self.leaves)

    @property
    def specs(self) -> Any:
        """The tree of shapes and dtypes."""
        return jax.tree.unflatten(self.tree, [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in self.leaves])

    def check(self, arrays: dict[str, np.ndarray], finite: bool = True) -> None:
        """Refuse what is not exactly this; `finite`: and what holds NaN or infinite numbers."""
        wanted = {leaf.name: leaf for leaf in self.leaves}
        odd = sorted(wanted.keys() ^ arrays.keys())
        if odd:
            raise Refused(f"{odd[0]!r} is {'missing' if odd[0] in wanted else 'in it, which nobody asked for'}")
        for name, leaf in wanted.items():
            array = arrays[name]
            if array.shape != leaf.shape or str(array.dtype) != leaf.dtype:
                raise Refused(f"{name!r} is {array.dtype}{list(array.shape)}, not {leaf}")
            if finite and not is_finite(array):
                raise Refused(f"{name!r} holds NaN or infinite numbers")

    def check_size(self, arrays: dict[str, np.ndarray], largest: float) -> None:
        """Refuse what holds a finite number whose absolute value is above `largest`."""
        for leaf in self.leaves:
            most = largest_of(arrays[leaf.name])
            if most > largest:
                raise Refused(
                    f"{leaf.name!r} holds {most:.3g}, and the pact's largest_reply is {largest:g}; raise that if honest parties "
                    "send such numbers"
                )

    def as_tree(self, arrays: dict[str, np.ndarray]) -> Any:
        return jax.tree.unflatten(self.tree, [arrays[leaf.name] for leaf in self.leaves])

    def by_name(self, tree: Any) -> dict[str, np.ndarray]:
        """The arrays of a tree of this kind by name."""
        return {leaf.name: np.asarray(x) for leaf, x in zip(self.leaves, jax.tree.leaves(tree), strict=True)}


def largest_of(array: np.ndarray) -> float:
    """The largest absolute value of its finite numbers; 0 of what are none, such as keys and ciphertexts."""
    if array.dtype.kind != "f":
        return 0.0
    return float(np.max(np.abs(array), where=np.isfinite(array), initial=0.0))


def is_finite(array: np.ndarray) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())
