"""A run on FLARE or on Flower that a soak disturbs: begin, resume, see whether it goes on, kill and start again."""

import abc
import json
import os
import pathlib
import signal
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from soak_network import Proxy

from fedpact.deploy.flare.job import write_job
from fedpact.deploy.flare.kit import write_kit as write_flare_kit
from fedpact.deploy.flare.local_run import LocalFederation as FlareFederation
from fedpact.deploy.this_machine import free_port

WAIT = 30.0  # seconds for a reply
PATIENCE = 300.0  # seconds for a run to begin, to save or to stop


class SoakedRun(abc.ABC):
    """One pact on a federation of this machine.

    - `state`: the file that the server saves. `folder`: the kits'. `parties`: their names.
    - `proxies`: by party, on its way to the server; empty where there are none.
    """

    state: pathlib.Path
    folder: pathlib.Path
    parties: Sequence[str]
    proxies: dict[str, Proxy]

    @abc.abstractmethod
    def begin(self, resume: bool) -> None:
        """Start the run, or the rest of it; returns at once."""

    @abc.abstractmethod
    def ended(self) -> tuple[bool, str] | None:
        """Whether it finished, and what it said; None while it runs."""

    @abc.abstractmethod
    def kill(self, who: str) -> None:
        """Kill the server or a party's site, and start it again."""

    @abc.abstractmethod
    def kill_job(self, party: str) -> None:
        """Kill the process that answers for a party, and nothing else."""

    def saved_rounds(self) -> int:
        with np.load(self.state) as saved:
            return int(json.loads(saved["owner"].tobytes())["rounds"])

    def goes_on(self) -> tuple[bool, str] | None:
        """Wait until the server saves, or the run has ended; None where it saved, else as `ended`."""
        since, deadline = time.time(), time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            ended = self.ended()
            if ended is not None:
                return ended
            if self.state.exists() and self.state.stat().st_mtime > since:
                return None
            time.sleep(0.3)
        raise TimeoutError(f"for {PATIENCE:g} s the run neither saved nor stopped")

    def finished(self) -> tuple[bool, str]:
        """Wait until the run has ended, however long it goes on."""
        ended = None
        while ended is None:
            ended = self.goes_on()
        return ended

    def stopped(self) -> tuple[bool, str]:
        """Wait until the run has ended."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            ended = self.ended()
            if ended is not None:
                return ended
            time.sleep(0.3)
        raise TimeoutError(f"the run did not stop within {PATIENCE:g} s")


class OnFlare(SoakedRun):
    def __init__(self, federation: FlareFederation, name: str, proxies: dict[str, Proxy] | None = None) -> None:
        self.federation, self.name, self.proxies = federation, name, proxies or {}
        self.folder, self.parties = federation.folder, federation.parties
        self.state = self.folder / "server" / "fedpact" / name / "state.npz"
        self.jobs = 0
        self.over: tuple[bool, str] | None = None  # where the server is gone, and its job with it

    def begin(self, resume: bool) -> None:
        self.jobs, self.over = self.jobs + 1, None
        folder = self.folder.parent / f"{self.name}-{self.jobs}"
        self.job = self.federation.submit(write_job(folder, [self.name], self.parties, resume=resume, wait=WAIT))

    def ended(self) -> tuple[bool, str] | None:
        from nvflare.fuel.flare_api.api_spec import NoConnection

        if self.over is None:
            try:
                if self.federation.status(self.job).startswith("FINISHED"):
                    result = self.federation.wait(self.job)
                    said = result.pacts.get(self.name, {}).get("message", result.status)
                    self.over = result.finished, said
            except NoConnection:  # the server was too busy to answer the admin: log in again
                self.federation.connect(again=True)
        return self.over

    def kill(self, who: str) -> None:
        self.federation.kill(who)
        self.federation.start(who)
        self.federation.connect()
        if who == "server":
            self.over = False, "the server was restarted"

    def kill_job(self, party: str) -> None:
        for process in self.federation.jobs_of(party):
            os.kill(process, signal.SIGKILL)


class OnFlower(SoakedRun):
    def __init__(self, federation: Any, proxies: dict[str, Proxy] | None = None) -> None:
        self.federation, self.proxies = federation, proxies or {}
        self.folder, self.parties = federation.kit, federation.parties
        self.state = self.folder / "server" / "state" / "state.npz"
        self.over: tuple[bool, str] | None = None

    def begin(self, resume: bool) -> None:
        self.over = None

        def run() -> None:
            try:
                self.over = True, _last_words(self.federation.run(resume=resume, wait=WAIT))
            except RuntimeError as error:
                self.over = False, _last_words(str(error))

        threading.Thread(target=run, daemon=True).start()

    def ended(self) -> tuple[bool, str] | None:
        return self.over

    def kill(self, who: str) -> None:
        self.federation.stop(who, signal.SIGKILL)
        self.federation.start(who)
        if who == "server":
            self.federation._wait_for_server()

    def kill_job(self, party: str) -> None:
        self.kill(party)  # where the party's own process ends, so does its node


def _last_words(output: str) -> str:
    """What fedpact said at the end of `run.sh`."""
    return output.rpartition("fedpact: ")[2].strip() or output.strip()[-300:]


def flare(
    pact: pathlib.Path, parties: Sequence[str], kits: pathlib.Path, policy: pathlib.Path
) -> tuple[FlareFederation, dict[str, Proxy]]:
    """A federation that is not started yet, with a proxy before every site."""
    port = free_port()
    write_flare_kit(pact, parties, kits, port=port, wait=WAIT, policy=policy, lost_after=10.0)
    proxies = {party: Proxy(port) for party in parties}
    for party, proxy in proxies.items():
        file = kits / party / "startup" / "fed_client.json"
        text = file.read_text()
        assert str(port) in text, text
        file.write_text(text.replace(str(port), str(proxy.port)))
    return FlareFederation(kits, parties, {"HOME": str(kits.parent)}), proxies


def flower(
    pact: pathlib.Path, parties: Sequence[str], kits: pathlib.Path, policy: pathlib.Path, environment: dict[str, Any]
) -> tuple[Any, dict[str, Proxy]]:
    """The same on Flower."""
    from fedpact.deploy.flower.kit import write_kit
    from fedpact.deploy.flower.local_run import LocalFederation

    port = free_port()
    write_kit(pact, parties, kits, server="127.0.0.1", port=port, wait=WAIT)
    proxies = {party: Proxy(port) for party in parties}
    for party, proxy in proxies.items():
        start = kits / party / "start.sh"
        start.write_text(start.read_text().replace(f":{port} ", f":{proxy.port} "))
        (kits / party / "policy.toml").write_text(policy.read_text())
    return LocalFederation(kits, environment), proxies
