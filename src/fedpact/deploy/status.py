"""What a server or a party says of a run while it lasts: a small file for `fedpact status`, and lines in its log.

    status.json     in the folder of the server, or of a party: who, which run, its phase, rounds, bytes, who is awaited
    failure.txt     beside it: the traceback of what failed last

The status is replaced as a whole, at most twice a second and at every change of the phase. It holds names, counts and times, at
the server also the last objective and violation. Neither it nor the log holds rows: an exception's text may have values of them,
so it is in failure.txt alone, which only its owner can read, and the status says where to look. Lines go to the logger
`fedpact`: `start_log` writes them to stderr, as text or, with FEDPACT_LOG=json, as one JSON object a line.
"""

import contextlib
import json
import logging
import os
import pathlib
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

from fedpact import __about__
from fedpact.files import private_folder, write

STATUS, FAILURE = "status.json", "failure.txt"
LOG = "FEDPACT_LOG"  # environment variable: json for one JSON object a line
LEAST = 0.5  # seconds between two writes of the same phase
LINES = 2.0  # seconds between two lines about rounds in the log

logger = logging.getLogger("fedpact")


class Status:
    """The status of one end of a run, on disk. May be used from several threads.

    - `folder`: where `status.json` is written.
    - `who`: "server", or the party's name.
    - `pact`: digest of the pact. `words`: more to begin with.
    """

    def __init__(self, folder: str | os.PathLike[str], who: str, pact: str, **words: Any) -> None:
        self.file = pathlib.Path(folder).absolute() / STATUS  # it is written later, too, wherever the process is then
        self.words: dict[str, Any] = {
            "who": who,
            "pact": pact,
            "fedpact": __about__.VERSION,
            "phase": "starting",
            "host": socket.gethostname(),
            "process": os.getpid(),
            "began": time.time(),
            **words,
        }
        self._lock = threading.Lock()
        self._written = self._told = 0.0

    def warn(self, line: str) -> None:
        """A line of the log that is not to be missed."""
        logger.warning("%s: %s", self.words["who"], line, extra={"fedpact": dict(self.words)})

    def say(self, line: str | None = None, **words: Any) -> None:
        """Change words of the status, and write it if it is time or its phase is another; with `line`, also to the log."""
        with self._lock:
            before = self.words.get("phase"), self.words.get("reason")
            self.words |= words
            moment = time.monotonic()
            now = (self.words.get("phase"), self.words.get("reason")) != before
            if now or moment - self._written >= LEAST:
                self._write()
            else:
                _LATER.add(self)
            if line is not None and (now or moment - self._told >= LINES):
                self._told = moment
                level = logging.ERROR if self.words["phase"] == "failed" else logging.INFO
                logger.log(level, "%s: %s", self.words["who"], line, extra={"fedpact": dict(self.words)})

    def failed(self, error: BaseException) -> None:
        """Say which exception ended it and where; what its text says is in failure.txt."""
        places = traceback.extract_tb(error.__traceback__)[-1:]
        at = "".join(f" at {os.path.basename(place.filename)}:{place.lineno}" for place in places)
        reason = f"{type(error).__name__}{at}"
        with contextlib.suppress(OSError):
            file = private_folder(self.file.parent) / FAILURE
            write(file, "".join(traceback.format_exception(error)).encode(), durable=False)
            reason += f"; {file} says why"
        self.say(f"failed: {reason}", phase="failed", reason=reason, awaited=[])

    def catch_up(self) -> None:
        """Write what was too soon to be written."""
        with self._lock:
            self._write()

    def _write(self) -> None:
        """A status that cannot be written, as on a full disk, does not cost the run."""
        _LATER.done(self)
        self._written = time.monotonic()
        with contextlib.suppress(OSError):
            private_folder(self.file.parent)
            write(self.file, json.dumps({**self.words, "updated": time.time()}).encode(), durable=False)


class _Later:
    """One thread for all statuses of a process, which writes those whose last words are not on disk yet."""

    def __init__(self) -> None:
        self._waiting: dict[int, Status] = {}
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def add(self, status: Status) -> None:
        with self._lock:
            self._waiting[id(status)] = status
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="fedpact-status", daemon=True)
                self._thread.start()

    def done(self, status: Status) -> None:
        with self._lock:
            self._waiting.pop(id(status), None)

    def _run(self) -> None:
        took = 0.0
        while True:
            time.sleep(max(LEAST, 20 * took))  # at most a twentieth of the time, however many there are
            began = time.monotonic()
            with self._lock:
                waiting = list(self._waiting.values())
                if not waiting:
                    self._thread = None
                    return
            for status in waiting:
                status.catch_up()
            took = time.monotonic() - began


_LATER = _Later()


class Watched:
    """A channel whose status says who is asked, and who has not answered yet.

    A channel that has an attribute `on_reply` calls it with the name of every party whose answer has come; of others one sees
    only who was asked.
    """

    def __init__(self, channel: Any, status: Status) -> None:
        self.channel, self.status = channel, status
        self.interrupts: bool = channel.interrupts
        self._awaited: list[str] = []
        self._lock = threading.Lock()  # several threads may ask
        if hasattr(channel, "on_reply"):
            channel.on_reply = self._heard

    def ask(self, message: bytes, parties: Sequence[str], some: bool = False) -> dict[str, bytes]:
        with self._lock:
            self._awaited = [*self._awaited, *parties]
        self.status.say(awaited=sorted(self._awaited), asked=time.time())
        try:
            return self.channel.ask(message, parties, some)
        finally:
            for party in parties:
                self._heard(party)

    def _heard(self, party: str) -> None:
        with self._lock:
            if party not in self._awaited:
                return
            self._awaited = [name for name in self._awaited if name != party]
        self.status.say(awaited=sorted(self._awaited))


@contextlib.contextmanager
def until_the_end(status: Status) -> Iterator[None]:
    """Whatever ends the block with an exception is the status's reason: a party that is lost with what is known of it."""
    try:
        yield
    except BaseException as error:
        if hasattr(error, "party"):  # PartyLost, whose module `fedpact status` does not need
            status.say(str(error), phase="failed", reason=str(error), awaited=[])
        else:
            status.failed(error)
        raise


def read(file: pathlib.Path) -> dict[str, Any] | None:
    """A status as it was written; None where there is none, or it is damaged."""
    try:
        words = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    return words if isinstance(words, dict) and "who" in words and "phase" in words else None


class _Lines(logging.Formatter):
    """One JSON object a line: time, level, message, and the words of the status."""

    def format(self, record: logging.LogRecord) -> str:
        words = {"time": round(record.created, 3), "level": record.levelname, "message": record.getMessage()}
        return json.dumps(getattr(record, "fedpact", {}) | words)


def start_log(file: pathlib.Path | None = None) -> None:
    """Write what is logged to stderr, as FEDPACT_LOG says; called by processes that are fedpact's own, once.

    file: to which it is written as well (default: none).
    """
    if logger.handlers:
        return
    as_json = os.environ.get(LOG) == "json"
    for handler in (logging.StreamHandler(sys.stderr), *([] if file is None else [logging.FileHandler(file)])):
        handler.setFormatter(_Lines() if as_json else logging.Formatter("%(asctime)s fedpact %(message)s"))
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
