"""A pact's `align` across organisations: before parties describe their tables they match their ids, with the server between.

match, part "count"   how many ids a party has, and whether they are numbers or strings
            "own"     a part of its list, blinded
            "blind"   a part of another party's list, which it blinds too
            "common"  which places of its own list all parties have; it writes the rows to its own disk

The server carries blinded ids and compares lists that all parties have blinded (fedpact.privacy.matching); it is assumed to
follow the protocol. The label holder's party also tells it which rows of its table these are, since the server has that table.
"""

import dataclasses
import hashlib
import json
import pathlib
from typing import Any

import numpy as np

from fedpact.deploy.policy import Policy
from fedpact.engines.remote import Link, PartyRefused
from fedpact.engines.serialization import HEADER, Refused
from fedpact.federation.rows import title
from fedpact.federation.table import Table
from fedpact.files import write
from fedpact.privacy.blinded_ids import CHUNK, KINDS, POINT, BlindedIds, Ids, check_kinds
from fedpact.privacy.matching import compare
from fedpact.run.checkpoint import Folder, npz
from fedpact.run.match import NONE_IN_COMMON
from fedpact.run.pact import Pact
from fedpact.run.progress import ProgressLine

MATCHED = "matched.npz"  # in a party's folder of a run, and in the server's
POINTS, SHARED, ROWS = "points", "shared", "rows"  # the arrays of messages
MOST = HEADER + CHUNK * POINT  # bytes of a message with points


class Matching:
    """A party's part in one run. Its secret number is drawn here, serves one matching and is never written."""

    def __init__(self, pact: Pact, party: str, policy: Policy, folder: pathlib.Path, run: str):
        if pact.align is None:
            raise Refused("its pact matches no ids: it has no `align`")
        policy.admit_matching()
        if pact.setting.sends_row_outputs:
            policy.admit_row_outputs()  # before anything is told, not after
        self.pact, self.party, self.policy, self.run = pact, party, policy, run
        self.file = folder / run / MATCHED
        table = pact.table(party)
        try:
            self.blinded = BlindedIds(Ids.of(title(party), table, pact.align))
        except (ImportError, ValueError) as error:  # these say how many ids are wrong, and none of them
            raise Refused(f"it cannot match ids: {error}") from None
        # by owner and number, a digest of the part that was blinded, and how many ids it had
        self.seen: dict[tuple[str, int], tuple[bytes, int]] = {}
        self.shared: bytes | None = None  # what all have, once it was told

    def answer(
        self, words: dict[str, Any], arrays: dict[str, np.ndarray]
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Words and arrays in reply to a message."""
        part = words.get("part")
        if part == "count":
            return {"ids": self.blinded.size, "type": self.blinded.kind}, {}
        if part == "common":
            return {}, self._common(arrays)
        chunk = words.get("chunk")
        if part not in ("own", "blind") or not isinstance(chunk, int) or chunk < 0:
            raise Refused(f"a message of the part {part!r} is unknown in a matching")
        if self.shared is not None:
            raise Refused("the matching of this run is over")
        if part == "own":
            return {}, {POINTS: self.blinded.own(chunk)}
        return {}, {POINTS: self._blind(words.get("of"), chunk, _only(arrays, POINTS))}

    def _blind(self, of: Any, chunk: int, points: np.ndarray) -> np.ndarray:
        """A part of a list is blinded once; the same part again, as after a lost reply, gets the same answer."""
        if of not in self.pact.parties or of == self.party:
            raise Refused(f"{of!r} is no other party of the pact")
        if len(points) > CHUNK:
            raise Refused(f"{len(points)} blinded ids in one message are more than {CHUNK}")
        mark, known = hashlib.sha256(points.tobytes()).digest(), self.seen.get((of, chunk))
        if known is None:
            self.policy.admit_ids(of, len(points) + sum(n for (owner, _), (_, n) in self.seen.items() if owner == of))
        elif known[0] != mark:
            raise Refused(f"it has blinded part {chunk} of the list of {title(of)} already, with other ids")
        try:
            blinded = self.blinded.blind(points)
        except ValueError as error:
            raise Refused(f"the list of {title(of)}: {error}") from None
        self.seen[of, chunk] = mark, len(points)
        return blinded

    def _common(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        packed, size = _only(arrays, SHARED), self.blinded.size
        if packed.dtype != np.uint8 or packed.shape != (-(-size // 8),):
            raise Refused(f"{packed.dtype}{list(packed.shape)} does not say of {size} ids which are in common")
        if self.shared not in (None, packed.tobytes()):
            raise Refused("it was told already which of its ids are in common, and others")
        shared = np.unpackbits(packed, count=size).astype(bool)
        if not shared.any():
            raise Refused(NONE_IN_COMMON)
        self.shared = packed.tobytes()
        rows = self.blinded.rows(shared)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        whose = np.frombuffer(self.blinded.ids.digest().encode(), np.uint8)
        write(self.file, npz({ROWS: rows, "ids": whose}))
        return {ROWS: rows} if self.party == self.pact.active[0] else {}

    @property
    def most(self) -> int:
        """Bytes of the longest message that may come."""
        return max(MOST, HEADER + self.blinded.size)


def own_rows(pact: Pact, party: str, folder: pathlib.Path, run: str, table: Table) -> Table:
    """The rows of a party's table that were found in common in this run, in the common order; all where the pact matches none.

    Raises Refused where nothing was matched in this run, or the ids are others now.
    """
    if pact.align is None:
        return table
    file = folder / run / MATCHED
    if not file.exists():
        raise Refused("it has matched no ids in this run: the first messages of a run match them")
    with np.load(file, allow_pickle=False) as saved:
        rows, whose = saved[ROWS], saved["ids"].tobytes().decode()
    if Ids.of(title(party), table, pact.align).digest() != whose:
        raise Refused("its ids are not those that were matched in this run; begin a new run")
    return table.take(rows)


@dataclasses.dataclass(frozen=True)
class RemotePeer:
    """A party elsewhere."""

    link: Link
    greeting: dict[str, Any]
    name: str
    size: int

    def own(self, chunk: int) -> np.ndarray:
        return self._points({"part": "own", "chunk": chunk}, {}, min(CHUNK, self.size - chunk * CHUNK))

    def blind(self, of: str, chunk: int, points: np.ndarray) -> np.ndarray:
        return self._points({"part": "blind", "of": of, "chunk": chunk}, {POINTS: points}, len(points))

    def tell(self, shared: np.ndarray) -> dict[str, np.ndarray]:
        """Which places of its list all have; the arrays that it answers."""
        return self._ask({"part": "common"}, {SHARED: np.packbits(shared)}, HEADER + 8 * self.size)

    def _points(self, words: dict[str, Any], arrays: dict[str, np.ndarray], count: int) -> np.ndarray:
        told = self._ask(words, arrays, MOST).get(POINTS)
        if told is None or told.shape != (count, POINT) or told.dtype != np.uint8:
            raise PartyRefused(self.name, f"its reply is not a list of {count} blinded ids")
        return told

    def _ask(self, words: dict[str, Any], arrays: dict[str, np.ndarray], most: int) -> dict[str, np.ndarray]:
        words = {**self.greeting, "kind": "match", **words}
        return self.link.ask_all(words, arrays, most, [self.name])[self.name][1]


def match_over_parties(
    pact: Pact, link: Link, home: Folder, greeting: dict[str, Any], resumed: bool, progress: bool | None
) -> np.ndarray | None:
    """The server's part: which rows of the label holder's table all parties have; None where the pact matches none.

    - `greeting`: the words by which parties know pact and versions.
    - `resumed`: those of the saved run; parties have theirs on their own disks.

    Raises PartyLost where a party stays away or refuses, and ValueError where types of ids differ or none is in common.
    """
    if pact.align is None:
        return None
    file = home.path / MATCHED
    if resumed:
        if not file.exists():
            raise ValueError(
                f"{home.path} holds a run whose matched rows, {MATCHED}, are gone; begin again in a new folder"
            )
        with np.load(file, allow_pickle=False) as saved:
            return saved[ROWS]
    counted = {
        name: header
        for name, (header, _) in link.ask_all({**greeting, "kind": "match", "part": "count"}, {}, HEADER).items()
    }
    for name, told in counted.items():
        if not isinstance(told.get("ids"), int) or told["ids"] < 0 or told.get("type") not in KINDS.values():
            raise PartyRefused(name, "it does not say how many ids it has")
    check_kinds({title(name): told["type"] for name, told in counted.items()}, pact.align)
    peers = {name: RemotePeer(link, greeting, name, told["ids"]) for name, told in counted.items()}
    with ProgressLine(progress) as line:
        found = compare(
            peers, lambda done, total: line.say(f"matching ids: {done:,} of {total:,} blinded", now=done == total)
        )
    if not found.common:
        raise ValueError(NONE_IN_COMMON)
    answers = {name: peer.tell(found.shared[name]) for name, peer in peers.items()}
    holder = pact.active[0]
    rows = answers[holder].get(ROWS)
    if rows is None or rows.dtype != np.int64 or rows.shape != (found.common,) or not _places(rows, peers[holder].size):
        raise PartyRefused(holder, "it does not say which of its rows are in common")
    words = {
        "id": pact.align,
        "common": found.common,
        "ids": {name: peer.size for name, peer in peers.items()},
        "bytes up": found.bytes_up,
        "bytes down": found.bytes_down,
    }
    write(home.path / "matched.json", json.dumps(words, indent=2).encode())
    write(file, npz({ROWS: rows}))
    return rows


def labels_in_order(pact: Pact, table: Table, rows: np.ndarray | None) -> Table:
    """The rows in common of the label holder's table, as the server has it.

    Raises ValueError where it has no ids, or others than the party has, or in another order.
    """
    if rows is None or pact.align is None:
        return table
    ids = Ids.of("the label holder's table at the server", table, pact.align)
    if not _places(rows, len(ids)) or not ids.are_in_common_order(rows):
        raise ValueError(
            f"the server's table does not have the rows of {title(pact.active[0])} in the same order: give both the same file"
        )
    return table.take(rows)


def _places(rows: np.ndarray, size: int) -> bool:
    """Whether these are places in a table, each once."""
    return not len(rows) or bool(rows.min() >= 0 and rows.max() < size and len(np.unique(rows)) == len(rows))


def _only(arrays: dict[str, np.ndarray], name: str) -> np.ndarray:
    if set(arrays) != {name}:
        raise Refused(f"the message holds {', '.join(map(repr, arrays)) or 'nothing'} in place of {name!r}")
    return arrays[name]
