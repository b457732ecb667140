"""What the adapter adds to NVIDIA FLARE: one exchange with five sites, by `FlareChannel.ask` and by the engine's own bare loop.

Server and sites are processes on loopback with mutual TLS; the ways take turns in one job. Takes about a minute, so it is not
part of the default run: `python -m benchmarks flare`.
"""

import hashlib
import json
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np
from nvflare.collab import collab

from fedpact.deploy.flare import components
from fedpact.deploy.flare.job import write_job
from fedpact.deploy.flare.kit import write_kit
from fedpact.deploy.flare.local_run import LocalFederation
from fedpact.deploy.this_machine import free_port
from fedpact.engines.sealing import added, opened, sealed
from fedpact.engines.serialization import HEADER, Layout, pack, unpack
from fedpact.privacy.masks import Masks
from fedpact.protocol import Reply

PARTIES = [f"site{number}" for number in range(1, 6)]
SIZES = (1_000, 100_000)
SECURE = 1_000  # numbers of a reply that is added up, in the clear and in secret
TURNS = {1_000: 60, 100_000: 25}
SUMS_TURNS = 100


class Echo:
    """Sends a message back; one in words, as an answer of its numbers to be added up, masked where these say so."""

    def __init__(self, _pact: object, party: str, *_: object) -> None:
        self.masks = Masks(party, {other: _secret(party, other) for other in PARTIES if other != party})

    def answer(self, message: bytes) -> bytes:
        if int.from_bytes(message[:8], "little") > HEADER:  # bare numbers
            return message
        words, arrays = unpack(message)
        reply = {".sum": arrays["w"]}
        if words["secure"]:
            reply = sealed(_layout(), reply, self.masks, PARTIES, words["number"], hashlib.sha256(message).digest())
        return pack({"number": words["number"]}, reply)


def _layout() -> Layout:
    return Layout.of(Reply(sum=np.zeros(SECURE)))


def _secret(one: str, other: str) -> bytes:
    """Parties agree on secrets once in a run, which is not measured here."""
    return hashlib.sha256("".join(sorted((one, other))).encode()).digest()


class Party:
    def __init__(self) -> None:
        self._party = components.Party(make_site=Echo)

    @collab.publish
    def answer(self, pact: str, message: bytes) -> bytes:
        return self._party.answer(pact, message)

    @collab.publish
    def bare(self, message: bytes) -> bytes:
        return message

    @collab.publish
    def array(self, values: np.ndarray) -> np.ndarray:
        return values


class Server:
    def __init__(self, pacts: list[str], resume: bool, wait: float) -> None:
        self._server = components.Server(pacts, resume, wait, serve=take_turns)

    @collab.main
    def run(self) -> None:
        self._server.run()


def take_turns(_: pathlib.Path, channel: components.FlareChannel, folder: pathlib.Path, *, resume: bool = False) -> str:
    """Median milliseconds per exchange, by size and way."""
    folder.mkdir(parents=True, exist_ok=True)
    taken: dict[str, dict[str, float]] = {}
    for size in SIZES:
        values = np.random.default_rng(0).normal(size=size)
        message = values.tobytes()

        def ask(message: bytes = message) -> None:
            channel.ask(message, PARTIES)

        def bare(message: bytes = message) -> None:
            assert len(collab.clients(timeout=60.0).bare(message)) == len(PARTIES)

        def array(values: np.ndarray = values) -> None:
            assert len(collab.clients(timeout=60.0).array(values)) == len(PARTIES)

        ways = {"ask": ask, "bare": bare, "array": array}
        times: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(TURNS[size] + 5):
            for name, way in ways.items():
                began = time.perf_counter()
                way()
                if turn >= 5:
                    times[name].append(1e3 * (time.perf_counter() - began))
        taken[str(size)] = {name: statistics.median(spent) for name, spent in times.items()}
    return json.dumps(taken | {"sums": _added_up(channel)})


def _added_up(channel: components.FlareChannel) -> dict[str, float]:
    """Median milliseconds of an exchange whose replies are added up, in the clear and in secret; in turns."""
    values, layout = np.random.default_rng(0).normal(size=SECURE), _layout()
    times: dict[str, list[float]] = {"clear": [], "secret": []}
    for turn in range(2 * (SUMS_TURNS + 5)):
        secure = bool(turn % 2)
        began = time.perf_counter()
        message = pack({"secure": secure, "number": turn + 1}, {"w": values})
        replies = [unpack(answer)[1] for answer in channel.ask(message, PARTIES).values()]
        if secure:
            (total,) = opened(layout, added(replies))[0].values()
        else:
            total = sum(reply[".sum"] for reply in replies)
        times["secret" if secure else "clear"].append(1e3 * (time.perf_counter() - began))
        np.testing.assert_allclose(total, len(PARTIES) * values, rtol=1e-12)
    return {name: statistics.median(spent[5:]) for name, spent in times.items()}


def measure() -> str:
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        pact, kits = root / "echo.py", root / "kits"
        pact.write_text("")
        write_kit(pact, PARTIES, kits, port=free_port())
        for who in ("server", *PARTIES):
            resources = kits / who / "local" / "resources.json"
            settings = json.loads(resources.read_text())
            settings["class_allow_list"].append("benchmarks.flare.")
            resources.write_text(json.dumps(settings))
        job = write_job(
            root / "turns", ["echo"], PARTIES, server="benchmarks.flare.Server", party="benchmarks.flare.Party"
        )
        path = ":".join([str(pathlib.Path(__file__).parents[1]), *filter(None, sys.path)])
        began = time.perf_counter()
        with LocalFederation(kits, PARTIES, {"PYTHONPATH": path, "HOME": folder}) as federation:
            started = time.perf_counter() - began
            result = federation.run(job, timeout=300.0)
            ran = time.perf_counter() - began - started
        if not result.finished:
            raise RuntimeError(str(result))
        taken = json.loads(result.pacts["echo"]["message"])
    rows = [
        f"| {size:,} | {8 * size / 1e3:,.0f} kB | {ways['ask']:.1f} | {ways['bare']:.1f} | {ways['ask'] / ways['bare']:.2f} "
        f"| {ways['array']:.1f} |"
        for size, ways in ((int(size), ways) for size, ways in taken.items() if size != "sums")
    ]
    sums = taken["sums"]
    return (
        "## NVIDIA FLARE\n\n"
        f"Five sites and the server as processes of this machine, mutual TLS; medians, in turns within one job. Starting took "
        f"{started:.0f} s, the job {ran:.0f} s.\n\n"
        "| float64 numbers | bytes | fedpact's `ask`, ms | FLARE's bare loop, ms | ratio | bare loop with an array, ms |\n"
        "|---|---|---|---|---|---|\n" + "\n".join(rows) + "\n\n"
        f"An exchange whose {SECURE:,} numbers are added up takes {sums['clear']:.1f} ms in the clear and {sums['secret']:.1f} "
        f"ms in secret: {sums['secret'] / sums['clear']:.2f} times as long.\n"
    )
