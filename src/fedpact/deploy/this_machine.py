"""Helpers for running an engine's server and sites as processes of this machine."""

import contextlib
import signal
import socket
from collections.abc import Iterator


def free_port() -> int:
    """A TCP port of this machine that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


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
