"""`fedpact deploy flower --poc`: a kit's server and sites as separate processes on this machine, with TLS and keys."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Sequence

from fedpact.deploy.engine import DEFAULT_WAIT
from fedpact.deploy.flower.kit import REGISTERED, write_kit
from fedpact.deploy.this_machine import Attempt, free_port, run_until_finished, sigterm_as_interrupt, where

START_SECONDS = 120.0  # that the server may take to listen
STOP_SECONDS = 10.0  # between SIGTERM and SIGKILL


class LocalFederation:
    """The server and sites of a kit as running processes; a context manager that stops them all when it is left.

    Each is started by its own `start.sh` in a process group of its own, and its output is in its folder's `log.txt`.

    - `kit`: the folder that `write_kit(..., server="127.0.0.1", port=free_port())` wrote.
    - `environment`: variables for all processes, added to those of this one (default: None).
    """

    def __init__(self, kit: pathlib.Path, environment: dict[str, str] | None = None):
        self.kit = kit.resolve()
        self.parties = sorted(path.parent.name for path in self.kit.glob("*/node.key"))
        scripts = os.path.dirname(sys.executable)  # Flower starts its own commands by name
        path = os.pathsep.join([scripts, os.environ.get("PATH", os.defpath)])
        self.environment = {**os.environ, "PATH": path, **(environment or {})}
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "LocalFederation":
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

    def __exit__(self, *_: object) -> None:
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

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop the server or a site and all processes that it has started, by signal `how` and after 10 s by SIGKILL."""
        self._stop([name], how)

    def _stop(self, names: Sequence[str], how: signal.Signals = signal.SIGTERM) -> None:
        processes = [self.running.pop(name) for name in names]
        groups = [-process.pid for process in processes]
        # the superlink puts its executor into a group of its own
        descendants: set[int] = set().union(*(_descendants(process.pid) for process in processes))
        _signal(groups, how)
        deadline = time.monotonic() + STOP_SECONDS
        while time.monotonic() < deadline and (any(p.poll() is None for p in processes) or _alive(descendants)):
            time.sleep(0.05)
        _signal([*groups, *_alive(descendants)], signal.SIGKILL)
        for process in processes:
            process.wait()

    def run(self, *, resume: bool = False, wait: float | None = None, limit: float | None = None) -> str:
        """Run the pact once, by the kit's `run.sh`.

        - `resume`: whether to resume the last run (default: False).
        - `wait`: seconds that the server waits for the parties' replies to a message (default: None, as set in the kit).
        - `limit`: seconds for the whole run (default: None, no limit).

        Returns the output of `run.sh`.

        Raises RuntimeError where the run failed; the message has the output, and subprocess.TimeoutExpired where the run took
        longer than `limit`.
        """
        environment = {} if wait is None else {"FEDPACT_WAIT": repr(float(wait))}
        return self._script("server", "run.sh", *(["--resume"] if resume else []), environment=environment, limit=limit)

    def revive(self) -> None:
        """Start again the server and the sites whose processes have ended."""
        ended = [name for name, process in self.running.items() if process.poll() is not None]
        for name in sorted(ended, key=lambda name: name != "server"):
            self.stop(name)  # what is left of it
            self.start(name)
            if name == "server":
                self._wait_for_server()

    def close(self) -> None:
        self._stop([name for name in self.running if name != "server"])  # they sign off at the server
        self._stop(list(self.running))

    def _wait_for_server(self) -> None:
        deadline = time.monotonic() + START_SECONDS
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
            output = process.communicate(timeout=limit)[0].decode(errors="replace")
        finally:
            _signal([-process.pid], signal.SIGKILL)
            process.wait()
        if process.returncode:
            raise RuntimeError(f"{name}/{script} failed:\n{output}")
        return output


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
    """Write a kit, start its server and sites as processes of this machine, run the pact once, and stop everything.

    Everything is stopped also when the run fails, or Ctrl-C or SIGTERM ends this process.

    - `pact`: the pact file; every party's `load` runs on this machine.
    - `parties`: names of the parties.
    - `out`: the folder for the kit, state, logs and the result; must be empty or not exist yet.
    - `wait`: seconds that the server waits for all parties' replies to one message (default: 600).
    - `retry`: how often the run is resumed where it stopped, after starting again what has ended (default: 0).
    - `resume`: go on with the run of the kit that `out` holds (default: False).
    - `written`: called when the kit has been written (default: nothing).

    Returns the result's summary and its folder.

    Raises RuntimeError where the run did not finish; the message has the output of `run.sh`, and as `write_kit` does.
    """
    if not resume:
        write_kit(pact, parties, out, server="127.0.0.1", port=free_port(), wait=wait)
        written()
    with sigterm_as_interrupt(), LocalFederation(out) as federation:

        def attempt(again: bool) -> Attempt:
            try:
                return Attempt(True, federation.run(resume=again))
            except RuntimeError as error:
                return Attempt(False, str(error))

        result = run_until_finished(attempt, federation.revive, out, retry, resume)
    if not result.finished:
        raise RuntimeError(result.message)
    from fedpact.deploy.flower.server_app import OUTCOME

    state = out / "server" / "state"
    outcome = json.loads((state / OUTCOME).read_text())
    return f"{outcome['message'].removeprefix('finished').lstrip()}\n{where(state)}"


def _address(kit: pathlib.Path) -> tuple[str, int]:
    address = tomllib.loads((kit / "server" / "flower" / "config.toml").read_text())["superlink"]["fedpact"]["address"]
    host, port = address.rsplit(":", 1)
    return host, int(port)


def _parents() -> dict[int, int]:
    """The parent of every process of this machine that has not ended, by process id."""
    table = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in table.splitlines()]
    return {int(pid): int(parent) for pid, parent, state, *_ in rows if not state.startswith("Z")}


def _descendants(process: int) -> set[int]:
    parents, descendants, generation = _parents(), set(), {process}
    while generation:
        generation = {child for child, parent in parents.items() if parent in generation}
        descendants |= generation
    return descendants


def _alive(processes: set[int]) -> set[int]:
    return processes & _parents().keys()


def _signal(processes: Iterable[int], how: signal.Signals) -> None:
    """Signal processes that may have ended; a negative number is a process group."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, how)
