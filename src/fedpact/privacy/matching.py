"""Every list of ids goes through the hands of every party, and is then compared: the part of whoever carries the lists.

The list of each party is blinded by its owner, then by the next party in the pact's order, and so on around, until all have
blinded it. The carrier compares the lists and tells every party which of its own ids all have. So a party learns the
intersection of all and how many ids the others have, and not which ids only some of the others share with it; the carrier
learns how many ids each party has and how many any of them share, and no id.
"""

import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np

from fedpact.privacy.blinded_ids import CHUNK, BlindedIds, shared_by_all


class Peer(Protocol):
    """A party, here or elsewhere."""

    @property
    def size(self) -> int:
        """How many ids it has."""
        ...

    def own(self, chunk: int) -> np.ndarray:
        """A part of its own list, blinded: uint8 (at most CHUNK, 32)."""
        ...

    def blind(self, of: str, chunk: int, points: np.ndarray) -> np.ndarray:
        """A part of the list of party `of`, blinded by this party too."""
        ...


class LocalPeer:
    """A party in this process."""

    def __init__(self, ids: BlindedIds):
        self.ids = ids

    @property
    def size(self) -> int:
        return self.ids.size

    def own(self, chunk: int) -> np.ndarray:
        return self.ids.own(chunk)

    def blind(self, of: str, chunk: int, points: np.ndarray) -> np.ndarray:
        return self.ids.blind(points)


@dataclasses.dataclass(frozen=True)
class Compared:
    """What came of it: by party, for each place of its list whether all have that id; and the bytes of the lists."""

    shared: dict[str, np.ndarray]
    bytes_up: int
    bytes_down: int

    @property
    def common(self) -> int:
        """How many ids all have."""
        return int(next(iter(self.shared.values())).sum())


def chunks(size: int) -> Iterator[int]:
    """The numbers of the parts of a list."""
    return iter(range(-(-size // CHUNK)))


def compare(peers: Mapping[str, Peer], say: Callable[[int, int], None] = lambda done, total: None) -> Compared:
    """Carry all lists around, all parties at work at the same time, and compare them.

    - `say`: called with how many ids have been blinded and how many are to be (default: nothing is said).
    """
    names, sizes = tuple(peers), {name: peer.size for name, peer in peers.items()}
    total, done = len(names) * sum(sizes.values()), 0
    lock, stop = threading.Lock(), threading.Event()

    def carried(name: str, part: Callable[[int], np.ndarray]) -> np.ndarray:
        """One list from one pair of hands to the next."""
        nonlocal done
        parts = [np.zeros((0, 32), np.uint8)]
        for chunk in chunks(sizes[name]):
            if stop.is_set():
                break
            parts.append(part(chunk))
            with lock:
                done += len(parts[-1])
                say(done, total)
        return np.concatenate(parts)

    def passed_on(name: str, to: Peer, points: np.ndarray) -> np.ndarray:
        return carried(name, lambda chunk: to.blind(name, chunk, points[chunk * CHUNK : (chunk + 1) * CHUNK]))

    with ThreadPoolExecutor(len(names)) as threads:
        try:
            waits = {name: threads.submit(carried, name, peers[name].own) for name in names}
            lists = {name: wait.result() for name, wait in waits.items()}
            for further in range(1, len(names)):
                hands = {name: peers[names[(at + further) % len(names)]] for at, name in enumerate(names)}
                waits = {name: threads.submit(passed_on, name, hands[name], lists[name]) for name in names}
                lists = {name: wait.result() for name, wait in waits.items()}
        except BaseException:
            stop.set()  # else the others would finish their lists first
            raise
    shared, moved = shared_by_all(lists), 32 * sum(sizes.values())
    told = sum(-(-size // 8) for size in sizes.values())
    return Compared(shared, moved * len(names), moved * (len(names) - 1) + told)
