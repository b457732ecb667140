"""Helpers for running an engine's server and sites as processes of this machine."""

import contextlib
import pathlib
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple


def free_port() -> int:
    """A TCP port of this machine that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Attempt(NamedTuple):
    """How a run, or the rest of one, ended: whether it finished, and in words."""

    finished: bool
    message: str


def run_until_finished(
    attempt: Callable[[bool], Attempt], revive: Callable[[], object], folder: pathlib.Path, retry: int
) -> Attempt:
    """One run, resumed where it stops.

    - `attempt`: begins the run, or where True resumes it, and waits for its end.
    - `revive`: starts what is not running any more; called before the run is resumed.
    - `folder`: below it the server saves its state. Once a resumed run stops and has saved nothing new, it is given up.
    - `retry`: how often it may be resumed (0 or more).
    """
    ended, before = attempt(False), None
    for number in range(1, retry + 1):
        saved = {file: file.stat().st_mtime_ns for file in folder.glob("server/**/state.npz")}
        if ended.finished or saved == before:
            break
        before = saved
        print(f"fedpact: {ended.message.strip()}\nfedpact: resuming, {number} of {retry}", file=sys.stderr, flush=True)
        revive()
        ended = attempt(True)
    return ended


def progress_in(folder: pathlib.Path) -> str:
    """The newest line about a run's rounds that a server has written below a folder; "" where there is none yet."""
    try:
        files = sorted(folder.glob("server/**/progress.txt"), key=lambda file: file.stat().st_mtime)
        return files[-1].read_text().strip() if files else ""
    except OSError:  # it was replaced in this moment
        return ""


def reasons_in(folder: pathlib.Path, parties: Sequence[str]) -> str:
    """Of parties whose processes ran on this machine, the last error in their own logs, which nobody else is told."""
    told = []
    for party in parties:
        for log in sorted((folder / party).glob("*.txt")):
            errors = re.findall(r"^\w*(?:Error|Exception)\b.*$", log.read_text(errors="replace"), re.MULTILINE)
            told += [f"{log}: {errors[-1]}"] if errors else []
    return "\n".join(told)


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
