"""Ids that are compared without being shown: private set intersection by Diffie and Hellman's exchange, over ristretto255.

Every party hashes each of its ids to a point of the group and multiplies it by a secret number of its own. A list that every
party has multiplied in turn is the same whatever the order of the parties, so that equal ids are equal points in the end,
and a point says nothing about its id to anybody who lacks one of the secret numbers.

C. Meadows, "A more efficient cryptographic matchmaking protocol for use in the absence of a continuously available third
party", IEEE Symposium on Security and Privacy, 1986; the group is that of RFC 9496, by libsodium (`rbcl`).
"""

import dataclasses
import hashlib
import secrets
from typing import Any

import numpy as np

from fedpact.extras import install
from fedpact.federation.table import Table

POINT = 32  # bytes of a point
CHUNK = 1 << 14  # points of one message, and about two seconds of work
PREFIX = b"fedpact: an id to be matched, 1\0"
KINDS = {"i": "whole numbers", "u": "whole numbers", "U": "strings"}


@dataclasses.dataclass(frozen=True)
class Ids:
    """The ids of one party.

    - `kind`: "whole numbers" or "strings"; the number 1 and the string "1" are different ids.
    - `digests`: SHA-512 of each, (rows, 64) uint8.
    """

    kind: str
    digests: np.ndarray

    @classmethod
    def of(cls, owner: str, table: Table, column: str) -> "Ids":
        """Read a column of ids.

        - `owner`: whose table it is, in words for errors: "party 'bank'".

        Raises ValueError where there is no such column, it holds neither whole numbers nor strings, or ids are missing (NaN, or
        a string that is empty or blank) or occur twice, with how many.
        """
        if column not in table.columns:
            raise ValueError(f"column {column!r} of {owner} is missing: it has {', '.join(table.columns)}")
        values, named = table[column], f"column {column!r} of {owner}"
        missing = _missing(values)
        if missing:
            raise ValueError(
                f"{named} has {missing:,} missing ids in {table.rows:,} rows; leave out rows that have no id"
            )
        if values.ndim > 1 or values.dtype.kind not in KINDS:
            raise ValueError(f"{named} holds {_words(values)}; ids are whole numbers or strings, one for each row")
        twice = table.rows - len(np.unique(values))
        if twice:
            raise ValueError(
                f"{named} has {twice:,} duplicate ids in {table.rows:,} rows; an id names one row: keep one of each"
            )
        kind = KINDS[values.dtype.kind]
        start = PREFIX + kind.encode() + b"\0"
        hashes = (hashlib.sha512(start + str(value).encode()).digest() for value in values.tolist())
        return cls(kind, np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, 64))

    def __len__(self) -> int:
        return len(self.digests)

    def in_common_order(self, rows: np.ndarray) -> np.ndarray:
        """These rows in an order that depends on their ids alone and that looks random: that of the digests."""
        first, second = self._keys(rows)
        return rows[np.lexsort((second, first))]

    def are_in_common_order(self, rows: np.ndarray) -> bool:
        return np.array_equal(self.in_common_order(rows), rows)

    def _keys(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        keys = np.ascontiguousarray(self.digests[rows, :16]).view(">u8")
        return keys[:, 0], keys[:, 1]

    def digest(self) -> str:
        """Of all ids in their order; to be kept, not to be sent, since it would confirm a guess of the list."""
        return hashlib.sha256(self.digests.tobytes()).hexdigest()


def check_kinds(kinds: dict[str, str], column: str) -> None:
    """Raise ValueError where parties write ids in different ways. `kinds`: by the parties' titles."""
    (first, kind), *others = kinds.items()
    for owner, other in others:
        if other != kind:
            raise ValueError(
                f"column {column!r} holds {other} at {owner} and {kind} at {first}, so no id would be equal: write them alike "
                "everywhere"
            )


class BlindedIds:
    """A party's part of one matching: its ids, and a secret number that is drawn here and never leaves.

    Raises ImportError without rbcl, the extra `match`.
    """

    def __init__(self, ids: Ids):
        self._group = _ristretto()
        self.ids = ids
        self._secret = self._group.crypto_core_ristretto255_scalar_random()
        order = list(range(len(ids)))
        secrets.SystemRandom().shuffle(order)  # so that places in the list say nothing about places in the table
        self._order = np.array(order, np.int64)

    @property
    def size(self) -> int:
        return len(self.ids)

    @property
    def kind(self) -> str:
        return self.ids.kind

    def own(self, chunk: int) -> np.ndarray:
        """A part of its list, at most CHUNK points, uint8 (points, 32)."""
        rows = self._order[chunk * CHUNK : (chunk + 1) * CHUNK]
        to_point = self._group.crypto_core_ristretto255_from_hash
        return self._times_secret([to_point(digest.tobytes()) for digest in self.ids.digests[rows]])

    def blind(self, points: np.ndarray) -> np.ndarray:
        """Another party's points, multiplied by the secret number. Raises ValueError where one is no point or the neutral one."""
        if points.ndim != 2 or points.shape[1] != POINT or points.dtype != np.uint8:
            raise ValueError(f"{points.dtype}{list(points.shape)} is no list of blinded ids")
        return self._times_secret([point.tobytes() for point in points])

    def _times_secret(self, points: list[bytes]) -> np.ndarray:
        multiply, secret = self._group.crypto_scalarmult_ristretto255, self._secret
        try:
            raw = b"".join([multiply(secret, point) for point in points])
        except RuntimeError:  # so says libsodium of encodings that are not canonical, and of a product that is neutral
            raise ValueError("a value in the list is no blinded id") from None
        return np.frombuffer(raw, np.uint8).reshape(-1, POINT)

    def rows(self, shared: np.ndarray) -> np.ndarray:
        """The rows of its table whose ids all parties have, in the common order. `shared`: whether, by place in its list."""
        return self.ids.in_common_order(self._order[shared])


def shared_by_all(lists: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """For each party and each place of its list, whether all parties have that point.

    - `lists`: by party, points that all parties have multiplied, uint8 (ids, 32).

    Raises ValueError where a list has a point twice.
    """
    plain = {name: np.ascontiguousarray(points).view(f"S{POINT}").ravel() for name, points in lists.items()}
    for name, points in plain.items():
        if len(np.unique(points)) < len(points):
            raise ValueError(f"the list of party {name!r} has an id twice")
    first, *others = plain.values()
    common = first
    for points in others:
        common = common[np.isin(common, points)]
    return {name: np.isin(points, common) for name, points in plain.items()}


def _ristretto() -> Any:
    try:
        import rbcl
    except ImportError:
        raise ImportError(f"private matching of ids needs rbcl: {install('match')}") from None
    return rbcl


def _missing(values: np.ndarray) -> int:
    if values.dtype.kind == "f":
        return int(np.isnan(values).sum())
    if values.dtype.kind == "M":
        return int(np.isnat(values).sum())
    return int((np.char.strip(values) == "").sum()) if values.dtype.kind == "U" else 0


def _words(values: np.ndarray) -> str:
    if values.ndim > 1:
        return f"{values.shape[1:]} values in a row"
    return {"f": "numbers with decimals", "b": "yes or no", "M": "dates"}.get(values.dtype.kind, str(values.dtype))
