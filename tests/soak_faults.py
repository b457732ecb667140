"""Faults that the processes of a soak bring upon themselves. A pact of the soak imports this, so that every process has it.

An order is a file in a folder that all processes of this machine read: "north saving", "server full disk". Who finds its own
order the next time it saves carries it out, once:

    saving      it is killed when half of the file is written
    full disk   no file of its process may grow beyond 100 bytes, for 5 s from when it saves its state, not its status (which
                may fail): as where a disk is full or a quota used up
    clock       `time.time` of its process jumps by so many seconds as the order holds

"north other data" is no order but a state: as long as it is there, north's table has other numbers.
"""

import os
import pathlib
import resource
import signal
import threading
import time
from typing import Any

FULL_SECONDS = 5.0
LARGEST = 100  # bytes of a file on a full disk
STATUS = "status.json"


def install(orders: str, kits: str) -> None:
    """Look for orders whenever fedpact writes a file below `kits`, whose first folder says who this is."""
    folder, below = pathlib.Path(orders), pathlib.Path(kits)
    fchmod, fsync = os.fchmod, os.fsync
    if getattr(os, "soaked", False):
        return
    os.soaked = True  # pyright: ignore[reportAttributeAccessIssue]

    def taken(kind: str, fd: int) -> str | None:
        """What an order of this kind for this process says; None where there is none."""
        file = pathlib.Path(os.readlink(f"/proc/self/fd/{fd}"))
        if not file.name.endswith(".part") or not file.is_relative_to(below):
            return None
        order = folder / f"{file.relative_to(below).parts[0]} {kind}"
        try:
            said = order.read_text()
            order.unlink()
        except FileNotFoundError:
            return None
        return said

    def before_writing(fd: int, mode: int) -> None:
        is_status = STATUS in os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))
        if not is_status and taken("full disk", fd) is not None:
            limit = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST, limit[1]))
            threading.Timer(FULL_SECONDS, resource.setrlimit, (resource.RLIMIT_FSIZE, limit)).start()
        jump = taken("clock", fd)
        if jump is not None:
            clock = time.time
            time.time = lambda: clock() + float(jump)
        fchmod(fd, mode)

    def after_writing(fd: int) -> None:
        if taken("saving", fd) is not None:
            os.ftruncate(fd, os.fstat(fd).st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        fsync(fd)

    os.fchmod, os.fsync = before_writing, after_writing


def own_rows(table: Any, party: str, orders: str) -> Any:
    """A party's table, with other numbers while "party other data" is there."""
    if not (pathlib.Path(orders) / f"{party} other data").exists():
        return table
    return table.with_columns(x=table["x"] + 1.0)
