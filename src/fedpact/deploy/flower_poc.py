"""`fedpact deploy flower --poc`: a kit's server and sites as separate processes on this machine, with TLS and keys."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Sequence
from types import TracebackType

from fedpact.deploy.flower import WAIT
from fedpact.deploy.flower_kit import REGISTERED, write_kit
from fedpact.deploy.here import free_port, terminated_like_interrupted

STARTING = 120.0  # seconds that the server may take to listen
ENDING = 10.0  # seconds between asking a process to end and ending it


class Loopback:
    """A kit whose server and sites run on this machine until the `with` block is left, however it is left.

    Each is started by its own `start.sh` in a process group of its own, and its output is in its folder's `log.txt`.

    Args:
        kit: what `write_kit(..., server="127.0.0.1", port=free_port())` wrote.
        environment: variables for all processes, beside those of this one.
    """

    def __init__(self, kit: str | os.PathLike[str], environment: dict[str, str] | None = None):
        self.kit = pathlib.Path(kit).resolve()
        self.parties = sorted(path.parent.name for path in self.kit.glob("*/node.key"))
        commands = os.path.dirname(sys.executable)  # Flower starts its own commands by name
        path = os.pathsep.join([commands, os.environ.get("PATH", os.defpath)])
        self.environment = {**os.environ, "PATH": path, **(environment or {})}
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "Loopback":
        try:
            self.start("server")
            self._wait_for_server()
            if not (self.kit / "server" / REGISTERED).exists():
                self._script("server", "register.sh")
            for party in self.parties:
                self.start(party)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self, name: str) -> None:
        """Start the server or a site."""
        environment = {**self.environment, "FEDPACT_NODE_PORT": str(free_port())}
        with (self.kit / name / "log.txt").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [str(self.kit / name / "start.sh")],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def restart(self, party: str, limit: float = STARTING) -> None:
        """Start a site that was killed, until the server takes its node: it refuses it while it thinks it online, a minute."""
        log, deadline = self.kit / party / "log.txt", time.monotonic() + limit
        while time.monotonic() < deadline:
            before = log.stat().st_size
            self.start(party)
            while self.running[party].poll() is None:
                if b"SuperNode ID:" in log.read_bytes()[before:]:
                    return
                time.sleep(0.1)
            self.stop(party)
        raise RuntimeError(f"the site of {party} did not start within {limit:g} s: {log} says why")

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """End the server or a site and all that it has started."""
        process = self.running.pop(name)
        started = _descendants(process.pid)  # the superlink puts its executor into a group of its own
        _signal([-process.pid], how)
        deadline = time.monotonic() + ENDING
        while time.monotonic() < deadline and (process.poll() is None or _there(started)):
            time.sleep(0.05)
        _signal([-process.pid, *_there(started)], signal.SIGKILL)
        process.wait()

    def run(self, *, resume: bool = False, wait: float | None = None, limit: float | None = None) -> str:
        """`run.sh`: one run to its end. Returns what it printed; raises RuntimeError with that if the run failed.

        Args:
            resume: go on with the last run.
            wait: seconds that the server waits for the parties' answers to a message; the kit's own if None.
            limit: seconds for the whole run; None for no limit.
        """
        environment = {} if wait is None else {"FEDPACT_WAIT": repr(float(wait))}
        return self._script("server", "run.sh", *(["--resume"] if resume else []), environment=environment, limit=limit)

    def close(self) -> None:
        for name in sorted(self.running, key=lambda name: name == "server"):  # the sites say goodbye to it
            self.stop(name)

    def _wait_for_server(self) -> None:
        deadline = time.monotonic() + STARTING
        while time.monotonic() < deadline:
            if self.running["server"].poll() is not None:
                break
            try:
                socket.create_connection(_address(self.kit), timeout=1).close()
            except (OSError, KeyError):  # it does not listen yet, or has not written its address
                time.sleep(0.1)
            else:
                return
        log = (self.kit / "server" / "log.txt").read_text(errors="replace")
        raise RuntimeError(f"Flower's server did not start:\n{log[-2000:]}")

    def _script(
        self,
        name: str,
        script: str,
        *arguments: str,
        environment: dict[str, str] | None = None,
        limit: float | None = None,
    ) -> str:
        process = subprocess.Popen(
            [str(self.kit / name / script), *arguments],
            env={**self.environment, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            said = process.communicate(timeout=limit)[0].decode(errors="replace")
        finally:
            _signal([-process.pid], signal.SIGKILL)
            process.wait()
        if process.returncode:
            raise RuntimeError(f"{name}/{script} failed:\n{said}")
        return said


def try_here(
    pact: str | os.PathLike[str],
    parties: Sequence[str],
    out: str | os.PathLike[str] | None = None,
    *,
    wait: float = WAIT,
    resume: bool = False,
) -> pathlib.Path:
    """Write a kit for this machine, start its server and sites, run the pact, stop everything; returns the folder of the result.

    Args:
        pact: the pact file.
        parties: the parties' names.
        out: where the kit is written, or was written by an earlier try that is to be resumed; a temporary folder if None.
        wait: seconds that the server waits for all parties' answers to one message.
        resume: go on with the last run in `out`.
    """
    kit = pathlib.Path(out or tempfile.mkdtemp(prefix="fedpact-flower-"))
    if not resume:
        write_kit(pact, parties, kit, server="127.0.0.1", port=free_port(), wait=wait)
    with terminated_like_interrupted(), Loopback(kit) as here:
        here.run(resume=resume, wait=wait)
    return kit / "server" / "state"


def _address(kit: pathlib.Path) -> tuple[str, int]:
    address = tomllib.loads((kit / "server" / "flower" / "config.toml").read_text())["superlink"]["fedpact"]["address"]
    host, port = address.rsplit(":", 1)
    return host, int(port)


def _processes() -> dict[int, int]:
    """All processes of this machine that have not ended, and the parent of each."""
    table = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in table.splitlines()]
    return {int(pid): int(parent) for pid, parent, state, *_ in rows if not state.startswith("Z")}


def _descendants(process: int) -> set[int]:
    parents, found, new = _processes(), set(), {process}
    while new:
        new = {child for child, parent in parents.items() if parent in new}
        found |= new
    return found


def _there(processes: set[int]) -> set[int]:
    return processes & _processes().keys()


def _signal(processes: Iterable[int], how: signal.Signals) -> None:
    """Signal processes that may have ended; a negative number is a process group."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, how)
