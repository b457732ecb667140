"""Helpers for running an engine's server and sites as processes of this machine."""

import contextlib
import pathlib
import re
import signal
import socket
from collections.abc import Iterator, Sequence


def free_port() -> int:
    """A TCP port of this machine that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


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
