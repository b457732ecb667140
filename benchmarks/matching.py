"""Private matching of ids at two parties: CPU seconds of each and bytes."""

import time

import numpy as np

from fedpact.federation.table import Table
from fedpact.privacy.blinded_ids import BlindedIds, Ids
from fedpact.privacy.matching import LocalPeer, compare

IDS, COMMON = 100_000, 60_000


class Timed(LocalPeer):
    """A party, and the CPU seconds that it has worked."""

    def __init__(self, ids: np.ndarray):
        began = time.thread_time()
        table = Table(customer=np.array([f"customer-{k:07d}" for k in ids]))
        super().__init__(BlindedIds(Ids.of("a party", table, "customer")))
        self.seconds = time.thread_time() - began

    def own(self, chunk: int) -> np.ndarray:
        began = time.thread_time()
        points = super().own(chunk)
        self.seconds += time.thread_time() - began
        return points

    def blind(self, of: str, chunk: int, points: np.ndarray) -> np.ndarray:
        began = time.thread_time()
        points = super().blind(of, chunk, points)
        self.seconds += time.thread_time() - began
        return points


def measure() -> str:
    peers = {"bank": Timed(np.arange(IDS)), "shop": Timed(np.arange(IDS - COMMON, 2 * IDS - COMMON))}
    found = compare(peers)
    assert found.common == COMMON
    worst = max(peer.seconds for peer in peers.values())
    return "\n".join(
        [
            "## Private matching of ids\n",
            "`fp.match` of two parties, as deployed: each hashes and blinds its own ids, and blinds the other's. CPU seconds of "
            "the slower party; bytes between both parties and the server between them. `python -m benchmarks matching`.\n",
            "| ids at each party | in common | CPU s a party | bytes from parties | bytes to parties |",
            "|---|---|---|---|---|",
            f"| {IDS:,} | {found.common:,} | {worst:.0f} | {found.bytes_up:,} | {found.bytes_down:,} |",
            "",
        ]
    )


if __name__ == "__main__":
    print(measure())
