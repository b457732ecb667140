"""What trials of an engine on this machine have in common."""

import contextlib
import signal
import socket
from collections.abc import Iterator


def free_port() -> int:
    """A port of this machine that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """A TERM signal is a Ctrl-C inside, so that nothing is left running."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
