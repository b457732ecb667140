"""The progress line on the terminal."""

import sys
import time
from types import TracebackType
from typing import TextIO


class ProgressLine:
    """A progress line that is rewritten in place, at most ten times a second.

    - `shown`: whether it is written (default None: where the stream is a terminal).
    - `stream`: where to (default: stderr).
    """

    def __init__(self, shown: bool | None = None, stream: TextIO | None = None):
        self.stream = stream or sys.stderr
        self.shown = self.stream.isatty() if shown is None else shown
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

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.shown and self.width:
            self.stream.write("\n")
            self.stream.flush()
