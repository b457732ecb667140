"""A FLARE federation on this machine, from its kits: server and sites as separate processes on loopback, mutual TLS and all."""

import contextlib
import dataclasses
import io
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from fedpact.deploy.flare_kit import ADMIN, ADMIN_FOLDER, MISSING, SERVER_FOLDER, write_kit
from fedpact.deploy.here import free_port, terminated_like_interrupted

START_SECONDS = 120.0  # for server and sites to find each other, on a loaded machine
COMMANDS = {
    SERVER_FOLDER: ("nvflare.private.fed.app.server.server_train", "fed_server.json"),
    "site": ("nvflare.private.fed.app.client.client_train", "fed_client.json"),
}


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a job ended: FLARE's word for it, what each of its pacts came to, and the folder of results fetched from the server."""

    status: str
    pacts: Mapping[str, Mapping[str, Any]]
    folder: pathlib.Path

    @property
    def finished(self) -> bool:
        return self.status == "FINISHED:COMPLETED"

    def __str__(self) -> str:
        says = [f"{name}: {pact['says']}" for name, pact in self.pacts.items()]
        return "\n".join([self.status, *says, f"results and the server's log are in {self.folder}"])


class Federation:
    """Server and sites of the kits in `folder`, running; use as a context manager, which leaves no process behind.

    Args:
        folder: what `write_kit` wrote.
        parties: whose sites to start.
        env: environment variables for the processes, beside those of this one.
    """

    def __init__(self, folder: pathlib.Path, parties: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self.folder = folder.resolve()
        self.parties = tuple(parties)
        self._env = {**os.environ, "MALLOC_ARENA_MAX": "4", **(env or {})}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._session: Any = None

    def __enter__(self) -> "Federation":
        try:
            for who in (SERVER_FOLDER, *self.parties):
                self.start(who)
            self.connect()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, who: str) -> None:
        """Start the server or a party's site, in a process group of its own."""
        kit = self.folder / who
        module, config = COMMANDS.get(who, COMMANDS["site"])
        uid = [] if who == SERVER_FOLDER else [f"uid={who}"]
        org = SERVER_FOLDER if who == SERVER_FOLDER else "".join(c if c.isalnum() else "_" for c in who)
        options = ["secure_train=true", *uid, f"org={org}", "config_folder=config"]
        command = [sys.executable, "-u", "-m", module, "-m", str(kit), "-s", config, "--set", *options]
        with (kit / "output.txt").open("ab") as output:
            self._processes[who] = subprocess.Popen(
                command, env=self._env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def connect(self) -> None:
        """Log in as the admin and wait until every site is there."""
        try:
            from nvflare.fuel.flare_api.flare_api import Session
        except ImportError as error:
            raise ImportError(MISSING) from error
        deadline = time.monotonic() + START_SECONDS
        missing = list(self.parties)
        while missing:
            self._check_alive()
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"not connected after {START_SECONDS:g} s: {', '.join(missing)}; see output.txt in their kits"
                )
            # Until the server listens, every kind of failure is "not yet"; and FLARE prints that it connects.
            with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
                if self._session is None:
                    self._log_in(Session(ADMIN, str(self.folder / ADMIN_FOLDER)))
                assert self._session is not None
                there = {client.name for client in self._session.get_connected_client_list()}
                missing = [party for party in self.parties if party not in there]
            time.sleep(0.2)

    def _log_in(self, session: Any) -> None:
        self._session = session  # first of all: its threads keep this process alive until it is closed
        try:
            session.try_connect(5.0)
        except BaseException:
            self._close()
            raise

    def submit(self, job: pathlib.Path) -> str:
        """Hand the job in; returns FLARE's id for it."""
        return self._session.submit_job(str(job))

    def wait(self, job: str, timeout: float = 0.0) -> Ended:
        """Wait until the job with this id has ended (`timeout` in seconds, 0: for ever) and fetch its results."""
        meta = self._session.wait_for_job(job, timeout=timeout, poll_interval=0.3)
        fetched = pathlib.Path(self._session.download_job_result(job)) / "workspace"
        outcome = fetched / "fedpact.json"
        return Ended(meta["status"], json.loads(outcome.read_text()) if outcome.is_file() else {}, fetched)

    def run(self, job: pathlib.Path, timeout: float = 0.0) -> Ended:
        return self.wait(self.submit(job), timeout)

    def kill(self, who: str) -> None:
        """Kill the server or a site without warning, with the processes of its jobs."""
        if who == SERVER_FOLDER:
            self._close()
        _end(self._family(who), patience=0.0)
        self._processes.pop(who).wait()

    def stop(self) -> None:
        """End every process that was started here, and theirs."""
        self._close()
        _end([process for who in self._processes for process in self._family(who)], patience=3.0)
        for process in self._processes.values():
            process.wait()
        self._processes.clear()

    def jobs_of(self, who: str) -> list[int]:
        """Process ids of the jobs that run at the server or a site now."""
        return [process.pid for process in self._family(who) if process.pid != self._processes[who].pid]

    def _family(self, who: str) -> list[Any]:
        """The process that runs `who` and those that run its jobs: FLARE names the kit's folder on their command lines."""
        import psutil

        kit = str(self.folder / who)
        return [process for process in psutil.process_iter(["cmdline"]) if kit in (process.info["cmdline"] or [])]

    def _check_alive(self) -> None:
        for who, process in self._processes.items():
            if process.poll() is not None:
                tail = (self.folder / who / "output.txt").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{who} ended at once (exit status {process.returncode}):\n{tail}")

    def _close(self) -> None:
        if self._session is not None:
            with contextlib.suppress(Exception):  # the server may be gone already
                self._session.close()
            self._session = None


def _end(processes: Sequence[Any], patience: float) -> None:
    """Ask these to end, and kill what still runs after `patience` seconds."""
    import psutil

    if patience:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        _, processes = psutil.wait_procs(processes, timeout=patience)
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=10.0)


def try_here(pact: pathlib.Path, parties: Sequence[str], out: pathlib.Path, *, timeout: float = 600.0) -> Ended:
    """`fedpact deploy flare --poc`: kits in `out`, server and sites as processes of this machine, one run, its results.

    Everything that was started is stopped again, also when the run fails or Ctrl-C or a TERM signal ends this process.

    Args:
        pact: the pact's file; every party's `load` runs on this machine.
        parties: names of the parties.
        out: a folder that is not there yet, or empty; kits, state and the fetched results are in it.
        timeout: seconds that a party has for one answer.
    """
    write_kit(pact, parties, out, port=free_port(), timeout=timeout)
    with terminated_like_interrupted(), Federation(out, parties) as federation:
        return federation.run(out / ADMIN_FOLDER / "jobs" / "run")
