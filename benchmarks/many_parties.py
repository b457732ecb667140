"""What an exchange costs against the number of parties: over the byte layer in one process, and on Flower.

`python -m benchmarks parties`; Flower's nodes are two processes each, and join only where they are named:
`python -m benchmarks.many_parties 4 8`.
"""

import os
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from unittest import mock

from fedpact.deploy.party import Site
from fedpact.deploy.server import serve
from fedpact.engines.exchanges import ExchangePlan
from fedpact.engines.serialization import unpack
from fedpact.run import loop

SIZES = (10, 100, 1000)
ROUNDS = 8
PACT = """
import numpy as np
import fedpact as fp

parties = [f"party{{k}}" for k in range({parties})]


def load(party):
    rng = np.random.default_rng(int(party[5:]))
    x = rng.normal(size=(50, 20))
    return fp.Table(x=x, y=(x[:, 0] + rng.normal(size=50) > 0).astype(int))


problem = fp.minimize(fp.mean(fp.logistic_loss(fp.linear())), regularizer=fp.l2(1e-2))
algorithm = fp.FedAvg(local_steps=2, step=0.1, participation={part})
options = {{"max_rounds": {rounds}, "privacy": None, "tolerance": 1e-9}}
"""
WATCH = """

def watch():
    import time

    def told(history):
        with open({file!r}, "a") as times:
            times.write(f"{{time.time()}} {{len(history['round'])}}\\n")

    return told
"""


class OneProcess:
    """All sites as objects, reached by the bytes that an engine would carry; notes when a round is asked for."""

    interrupts = False

    def __init__(self, pact: pathlib.Path, parties: Sequence[str], folder: pathlib.Path) -> None:
        self.sites = {party: Site(pact, party, folder / party) for party in parties}
        self.rounds: list[tuple[float, float]] = []  # wall and CPU seconds when one begins
        self.meeting = self.size = 0

    def ask(self, message: bytes, parties: Sequence[str], some: bool = False) -> dict[str, bytes]:
        words, began = unpack(message)[0], time.process_time()
        if words.get("exchange", "").startswith("AveragingMethod.step"):
            self.rounds.append((time.perf_counter(), began))
            self.size = len(message)
        answers = {party: self.sites[party].answer(message) for party in parties}
        if words["kind"] == "meet":
            self.meeting = time.process_time() - began
        return answers


def measure() -> str:
    lines = [
        "## An exchange against the number of parties\n",
        "`python -m benchmarks parties`: `fp.FedAvg` as deployed, every message packed, checked and unpacked at both ends, but "
        f"all parties in one process and one after the other: 50 rows of 20 features each, the median of {ROUNDS - 3} rounds "
        "after the first two. A party traces the method when it meets the others; here one trace serves all.\n",
        "| parties | participation | asked | ms an exchange | CPU ms | CPU ms a party asked | bytes of a message | meeting, "
        "CPU ms a party |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for parties in SIZES:
        for part in (1.0, 0.1):
            lines.append(_in_one_process(parties, part))
    return "\n".join(lines) + "\n"


def _in_one_process(parties: int, part: float) -> str:
    traced: list[ExchangePlan] = []
    trace = ExchangePlan.of

    def once(method: object, bound: object) -> ExchangePlan:
        if not traced:
            traced.append(trace(method, bound))  # pyright: ignore[reportArgumentType]
        return traced[0]

    names = [f"party{k}" for k in range(parties)]
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        mock.patch.object(ExchangePlan, "of", once),
        mock.patch.object(loop, "SAVE_SECONDS", 3600.0),
    ):
        root = pathlib.Path(folder)
        pact = root / "pact.py"
        pact.write_text(PACT.format(parties=parties, part=part, rounds=ROUNDS))
        channel = OneProcess(pact, names, root)
        serve(pact, channel, root / "server", progress=False)
    asked = max(1, round(part * parties))
    wall, cpu = (
        1e3 * statistics.median(b[k] - a[k] for a, b in zip(channel.rounds[2:-1], channel.rounds[3:], strict=True))
        for k in (0, 1)
    )
    return (
        f"| {parties:,} | {part:g} | {asked:,} | {wall:,.0f} | {cpu:,.0f} | {cpu / asked:.2f} | {channel.size:,} | "
        f"{1e3 * channel.meeting / parties:.0f} |"
    )


def on_flower(sizes: Sequence[int]) -> str:
    """Real nodes, a supernode and the party's own process each."""
    from fedpact.deploy.flower.kit import write_kit
    from fedpact.deploy.flower.local_run import LocalFederation
    from fedpact.deploy.this_machine import free_port

    lines = ["| Flower nodes | starting, s | ms an exchange | whole run, s |", "|---|---|---|---|"]
    for parties in sizes:
        names = [f"party{k}" for k in range(parties)]
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            pact = root / "pact.py"
            times = root / "times.txt"
            pact.write_text(PACT.format(parties=parties, part=1.0, rounds=ROUNDS) + WATCH.format(file=str(times)))
            write_kit(pact, names, root / "kit", server="127.0.0.1", port=free_port())
            began = time.perf_counter()
            with LocalFederation(root / "kit", {"PYTHONPATH": os.pathsep.join(sys.path)}) as federation:
                started = time.perf_counter()
                federation.run()
                ended = time.perf_counter()
            told = [tuple(map(float, line.split())) for line in times.read_text().splitlines()]
        (first, few), (last, all_of_them) = told[0], told[-1]
        exchange = 1e3 * (last - first) / (all_of_them - few)
        lines.append(f"| {parties} | {started - began:.0f} | {exchange:,.0f} | {ended - started:.0f} |")
        print(lines[-1], flush=True)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(on_flower([int(size) for size in sys.argv[1:]]))
