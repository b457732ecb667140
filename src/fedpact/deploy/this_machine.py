"""Helpers for running an engine's server and sites as processes of this machine."""

import contextlib
import pathlib
import random
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from fedpact.deploy.earlier_runs import REPORT
from fedpact.deploy.overview import as_text, statuses
from fedpact.deploy.status import FAILURE
from fedpact.run.saved_model import MODEL

OWN_PORTS = range(10_000, 32_768)


def free_port() -> int:
    """A TCP port of this machine that nothing listens on now, drawn at random from those below Linux's own for outgoing
    connections: what asks for it may take seconds to listen, and until then no connection of another process takes it.

    Raises OSError where none of a hundred is free.
    """
    for port in random.SystemRandom().sample(OWN_PORTS, 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"no free port was found between {OWN_PORTS[0]} and {OWN_PORTS[-1]}")


class Attempt(NamedTuple):
    """How a run, or the rest of one, ended: whether it finished, and in words."""

    finished: bool
    message: str


def run_until_finished(
    attempt: Callable[[bool], Attempt],
    revive: Callable[[], object],
    folder: pathlib.Path,
    retry: int,
    resume: bool = False,
) -> Attempt:
    """One run, resumed where it stops.

    - `attempt`: begins the run, or where True resumes it, and waits for its end.
    - `revive`: starts what is not running any more; called before the run is resumed.
    - `folder`: below it the server saves its state. Once a resumed run stops and has saved nothing new, it is given up.
    - `retry`: how often it may be resumed (0 or more).
    - `resume`: whether the first attempt goes on with an earlier one (default: no).
    """
    ended, before = attempt(resume), None
    for number in range(1, retry + 1):
        saved = {file: file.stat().st_mtime_ns for file in folder.glob("server/**/state.npz")}
        if ended.finished or saved == before:
            break
        before = saved
        print(f"fedpact: {ended.message.strip()}\nfedpact: resuming, {number} of {retry}", file=sys.stderr, flush=True)
        revive()
        ended = attempt(True)
    return ended


def where(folder: pathlib.Path) -> str:
    """What a run has left in the server's folder, for whoever started it."""
    return f"The result is in {folder}: the model in {MODEL}, the report page {REPORT}"


def progress_in(folder: pathlib.Path) -> str:
    """What server and parties say of the run below a folder, a line each; "" where there is nothing yet."""
    return as_text(statuses(folder))


def reasons_in(folder: pathlib.Path, parties: Sequence[str]) -> str:
    """Of parties whose processes ran on this machine, why they refused or failed, and what an exception said, which nobody
    else is told."""
    told = []
    for words in statuses(folder):
        if words["who"] in parties and words["phase"] == "failed":
            told.append(f"{words['who']}: {words['reason']}")
            failure = pathlib.Path(words["file"]).with_name(FAILURE)
            told += _errors(failure)[-1:] if FAILURE in str(words["reason"]) else []
    for party in parties:  # whose process did not come so far as to have a status
        if not any(line.startswith(f"{party}: ") for line in told):
            logs = sorted((folder / party).glob("*.txt"))
            told += [f"{party}: {log}: {errors[-1]}" for log in logs if (errors := _errors(log))]
    return "\n".join(told)


def _errors(log: pathlib.Path) -> list[str]:
    """Lines that name an exception."""
    if not log.is_file():
        return []
    return re.findall(r"^[\w.]*(?:Error|Exception|Refused)\b.*$", log.read_text(errors="replace"), re.MULTILINE)


@contextlib.contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Within this context SIGTERM raises KeyboardInterrupt, as Ctrl-C does, so that no process is left running."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
