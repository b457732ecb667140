"""The progress line on the terminal and in notebooks, and how long programs are compiled."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, TextIO

import jax.monitoring


@contextlib.contextmanager
def each_half_second(call: Callable[[], None]) -> Iterator[None]:
    """Call something again and again while the block lasts."""
    ended = threading.Event()

    def again() -> None:
        while not ended.wait(0.5):
            call()

    calling = threading.Thread(target=again, daemon=True)
    calling.start()
    try:
        yield
    finally:
        ended.set()
        calling.join()


class ProgressLine:
    """A progress line that is rewritten in place, at most ten times a second.

    - `shown`: whether it is written (default None: where the stream is a terminal, and in notebooks).
    - `stream`: where to (default: stderr).
    """

    def __init__(self, shown: bool | None = None, stream: TextIO | None = None):
        self.stream = stream or sys.stderr
        self.shown = self.stream.isatty() or "ipykernel" in sys.modules if shown is None else shown
        self.last = 0.0
        self.width = 0

    def say(self, text: str, now: bool = False) -> None:
        """Show `text`; with `now` also within a tenth of a second of the last one."""
        moment = time.monotonic()
        if not self.shown or (moment - self.last < 0.1 and not now):
            return
        self.last = moment
        padded = text.ljust(self.width)
        self.width = len(text)
        self.stream.write(f"\r{padded}")
        self.stream.flush()

    @contextlib.contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Show `text` with the seconds that the block has taken, as long as it takes."""
        if not self.shown:
            yield
            return
        began = time.monotonic()
        with each_half_second(lambda: self.say(f"{text} {time.monotonic() - began:.0f} s", now=True)):
            yield

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.shown and self.width:
            self.stream.write("\n")
            self.stream.flush()


class _CompilationClock:
    """Seconds that this process has spent on tracing and compiling."""

    def __init__(self) -> None:
        self.seconds = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._note)

    def _note(self, event: str, duration_secs: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            self.seconds += duration_secs


COMPILATION = _CompilationClock()
