"""`fedpact deploy flare --poc`: a kit's server and sites as separate processes on this machine, with mutual TLS."""

import contextlib
import dataclasses
import io
import json
import os
import pathlib
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedpact.deploy.engine import DEFAULT_WAIT
from fedpact.deploy.flare import NOT_INSTALLED
from fedpact.deploy.flare.kit import ADMIN, ADMIN_FOLDER, SERVER_FOLDER, write_kit
from fedpact.deploy.this_machine import Attempt, free_port, run_until_finished, sigterm_as_interrupt, where

START_SECONDS = 120.0  # for all sites to connect to the server, on a loaded machine
COMMANDS = {
    SERVER_FOLDER: ("nvflare.private.fed.app.server.server_train", "fed_server.json"),
    "site": ("nvflare.private.fed.app.client.client_train", "fed_client.json"),
}


@dataclasses.dataclass(frozen=True)
class JobResult:
    """How a job ended.

    - `status`: FLARE's status of the job.
    - `pacts`: for each pact, whether it `finished`, and a `message`: the result's summary or the error.
    - `folder`: the results, downloaded from the server.
    """

    status: str
    pacts: Mapping[str, Mapping[str, Any]]
    folder: pathlib.Path

    @property
    def finished(self) -> bool:
        return self.status == "FINISHED:COMPLETED"

    def __str__(self) -> str:
        messages = [f"{name}: {pact['message']}" for name, pact in self.pacts.items()]
        return "\n".join([self.status, *messages, f"results and the server's log are in {self.folder}"])


class LocalFederation:
    """The server and sites of a kit as running processes; a context manager that stops them all when it is left.

    - `folder`: the folder that `write_kit` wrote.
    - `parties`: the parties whose sites to start.
    - `env`: environment variables for the processes, added to those of this one (default: None).
    """

    def __init__(self, folder: pathlib.Path, parties: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self.folder = folder.resolve()
        self.parties = tuple(parties)
        self._env = {**os.environ, "MALLOC_ARENA_MAX": "4", **(env or {})}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._session: Any = None

    def __enter__(self) -> "LocalFederation":
        try:
            for name in (SERVER_FOLDER, *self.parties):
                self.start(name)
            self.connect()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, name: str) -> None:
        """Start the server or a party's site, in a process group of its own."""
        kit = self.folder / name
        module, config = COMMANDS.get(name, COMMANDS["site"])
        uid = [] if name == SERVER_FOLDER else [f"uid={name}"]
        org = SERVER_FOLDER if name == SERVER_FOLDER else "".join(c if c.isalnum() else "_" for c in name)
        options = ["secure_train=true", *uid, f"org={org}", "config_folder=config"]
        command = [sys.executable, "-u", "-m", module, "-m", str(kit), "-s", config, "--set", *options]
        with (kit / "output.txt").open("ab") as output:
            self._processes[name] = subprocess.Popen(
                command, env=self._env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def connect(self, again: bool = False) -> None:
        """Log in as the admin and wait until every site is connected.

        again: with a new session, where the last one lost its connection (default: False).

        Raises ImportError where FLARE is not installed, TimeoutError where a site is not connected after 120 s, and
        RuntimeError where the process of the server or of a site has ended.
        """
        try:
            from nvflare.fuel.flare_api.flare_api import Session
        except ImportError as error:
            raise ImportError(NOT_INSTALLED) from error
        if again:
            self._close_session()
        deadline = time.monotonic() + START_SECONDS
        missing = list(self.parties)
        while missing:
            self._check_alive()
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"not connected after {START_SECONDS:g} s: {', '.join(missing)}; see output.txt in their kits"
                )
            # Until the server listens, any failure means "not yet"; FLARE prints each attempt to connect.
            with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
                if self._session is None:
                    self._log_in(Session(ADMIN, str(self.folder / ADMIN_FOLDER)))
                assert self._session is not None
                connected = {client.name for client in self._session.get_connected_client_list()}
                missing = [party for party in self.parties if party not in connected]
            time.sleep(0.2)

    def _log_in(self, session: Any) -> None:
        self._session = session  # before connecting: its threads keep this process alive until it is closed
        try:
            session.try_connect(5.0)
        except BaseException:
            self._close_session()
            raise

    def submit(self, job: pathlib.Path) -> str:
        """Submit the job in this folder and return FLARE's id for it."""
        return self._session.submit_job(str(job))

    def wait(self, job: str, timeout: float = 0.0) -> JobResult:
        """Wait until a job has ended and download its results.

        - `job`: FLARE's id for it.
        - `timeout`: seconds to wait (default: 0, no limit).
        """
        meta = self._session.wait_for_job(job, timeout=timeout, poll_interval=0.3)
        results = pathlib.Path(self._session.download_job_result(job)) / "workspace"
        outcome = results / "fedpact.json"
        return JobResult(meta["status"], json.loads(outcome.read_text()) if outcome.is_file() else {}, results)

    def run(self, job: pathlib.Path, timeout: float = 0.0) -> JobResult:
        """Submit the job in this folder and wait for its end; `timeout` as in `wait`."""
        return self.wait(self.submit(job), timeout)

    def kill(self, name: str) -> None:
        """Kill the server or a site with SIGKILL, with the processes of its jobs."""
        if name == SERVER_FOLDER:
            self._close_session()
        _stop(self._processes_of(name), grace=0.0)
        self._processes.pop(name).wait()

    def stop(self) -> None:
        """Stop every process that was started here, and the processes of its jobs."""
        self._close_session()
        _stop([process for name in self._processes for process in self._processes_of(name)], grace=3.0)
        for process in self._processes.values():
            process.wait()
        self._processes.clear()

    @property
    def ended(self) -> list[str]:
        """The server and the sites that were started here and whose processes have ended since."""
        return [name for name, process in self._processes.items() if process.poll() is not None]

    def revive(self) -> None:
        """Start again whose processes have ended, and wait until every site is connected."""
        for name in self.ended:
            self.kill(name)  # what is left of its jobs
            self.start(name)
        self.connect()

    def status(self, job: str) -> str:
        """FLARE's status of a job now, for instance RUNNING or FINISHED:COMPLETED."""
        return str(self._session.get_job_meta(job).get("status"))

    def jobs_of(self, name: str) -> list[int]:
        """Process ids of the jobs that run at the server or a site now."""
        return [process.pid for process in self._processes_of(name) if process.pid != self._processes[name].pid]

    def _processes_of(self, name: str) -> list[Any]:
        """The process of the server or a site, and those of its jobs: FLARE puts the kit's folder on their command lines."""
        import psutil

        kit = str(self.folder / name)
        return [process for process in psutil.process_iter(["cmdline"]) if kit in (process.info["cmdline"] or [])]

    def _check_alive(self) -> None:
        for name, process in self._processes.items():
            if process.poll() is not None:
                tail = (self.folder / name / "output.txt").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{name} ended at once (exit status {process.returncode}):\n{tail}")

    def _close_session(self) -> None:
        if self._session is not None:
            with contextlib.suppress(Exception):  # the server may be gone already
                self._session.close()
            self._session = None


def _stop(processes: Sequence[Any], grace: float) -> None:
    """Terminate these processes, and kill those that still run after `grace` seconds."""
    import psutil

    if grace:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        _, processes = psutil.wait_procs(processes, timeout=grace)
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=10.0)


def try_here(
    pact: pathlib.Path,
    parties: Sequence[str],
    out: pathlib.Path,
    *,
    wait: float = DEFAULT_WAIT,
    resume: bool = False,
    retry: int = 0,
    written: Callable[[], None] = lambda: None,
) -> str:
    """Write kits, start server and sites as processes of this machine, run the pact once, and stop everything.

    Everything is stopped also when the run fails, or Ctrl-C or SIGTERM ends this process.

    - `pact`: the pact file; every party's `load` runs on this machine.
    - `parties`: names of the parties.
    - `out`: the folder for kits, state and the downloaded results; must be empty or not exist yet.
    - `wait`: seconds that a party has for one reply (default: 600).
    - `retry`: how often the run is resumed where it stopped, after starting again what has ended (default: 0). FLARE does not
      take a party back into a running job, so that resuming is the way back.
    - `resume`: go on with the run of the kits that `out` holds (default: False).
    - `written`: called when the kits have been written (default: nothing).

    Returns the result's summary and the folder of the results.

    Raises RuntimeError where the job did not finish; the message has the same three, and TimeoutError where a site did not
    connect to the server within 120 s, and as `write_kit` does. Raises ValueError where FLARE cannot start jobs in `out`.
    """
    _check_path(out.resolve())
    if not resume:
        write_kit(pact, parties, out, port=free_port(), wait=wait)
        written()
    with sigterm_as_interrupt(), LocalFederation(out, parties) as federation:

        def attempt(again: bool) -> Attempt:
            try:
                result = federation.run(out / ADMIN_FOLDER / "jobs" / ("resume" if again else "run"))
            except Exception:
                if SERVER_FOLDER not in federation.ended:
                    raise
                return Attempt(False, "the server's process has ended")
            if not result.finished:
                return Attempt(False, str(result))
            message = result.pacts[pact.stem]["message"]
            return Attempt(True, f"{message}\n{where(out / SERVER_FOLDER / 'fedpact' / pact.stem)}")

        result = run_until_finished(attempt, federation.revive, out, retry, resume)
    if not result.finished:
        raise RuntimeError(result.message)
    return result.message


def _check_path(out: pathlib.Path) -> None:
    """FLARE splits the command that starts a job without quoting the paths in it."""
    try:
        stays_whole = shlex.split(str(out), comments=True) == [str(out)]
    except ValueError:  # an odd quote
        stays_whole = False
    if not stays_whole:
        raise ValueError(
            f"NVIDIA FLARE starts no jobs in a folder whose path has spaces, quotes, backslashes or #: {out}; give another one, "
            "such as --out /tmp/try"
        )
