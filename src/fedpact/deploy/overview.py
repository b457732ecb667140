"""`fedpact status KIT`: what the server and the parties of a kit on this machine say of their runs, from their status files."""

import os
import pathlib
import re
import socket
import time
from collections.abc import Sequence
from typing import Any

from fedpact.deploy.status import STATUS, read
from fedpact.report.words import in_bytes

PLACES = ("state", "fedpact/*")  # of a status in an owner's folder: Flower's kits, FLARE's kits
AT_WORK = ("starting", "rounds", "ending")
PROCESS_FILE = "pid.fl"  # FLARE's, in an owner's folder, while its process is there
PORTS = {"start.sh": r"--port (\d+)", "startup/fed_server.json": r'"target": *"[^"]*:(\d+)"'}  # of a server, by engine


def statuses(kit: pathlib.Path) -> list[dict[str, Any]]:
    """The statuses below a folder, which is one owner's, or that of a whole kit; the server's first.

    To each are added `file`, its path, and `gone`: whether it is at work on this machine and its process is not there.
    """
    files = [file for place in PLACES for above in ("", "*/") for file in kit.glob(f"{above}{place}/{STATUS}")]
    found = [{**words, "file": str(file), "gone": _gone(words)} for file in files if (words := read(file)) is not None]
    return sorted(found, key=lambda words: (words["who"] != "server", str(words["who"]), words.get("updated", 0.0)))


def is_well(words: dict[str, Any]) -> bool:
    """Whether somebody's last run neither failed nor was left by its process."""
    return words["phase"] != "failed" and not words["gone"]


def ailments(kit: pathlib.Path) -> list[str]:
    """What is wrong with an owner's engine, or with those of a whole kit, whatever became of runs: a process that is not there,
    a server that does not listen."""
    wrong = []
    for folder in (kit, *sorted(kit.glob("*/"))):
        file = folder / PROCESS_FILE
        number = file.read_text().strip() if file.is_file() else ""
        if number.isdigit() and not _is_there(int(number)):
            wrong.append(f"{folder}: the engine's process {number} is not there")
        if (folder / "keys").is_dir() or (folder / "startup" / "server.key").is_file():
            wrong += [
                f"{folder}: nothing listens on the server's port {port}" for port in _ports(folder) if _deaf(port)
            ]
    return wrong


def as_text(found: Sequence[dict[str, Any]]) -> str:
    """A line for each, with rounds, violation, bytes and who is awaited, and below it the reason where something failed."""
    width = max((len(str(words["who"])) for words in found), default=0)
    lines = []
    for words in found:
        lines.append("  ".join([str(words["who"]).ljust(width), _phase(words).ljust(8), *_parts(words)]))
        told = words.get("reason") or words.get("message")
        lines += [f"{' ' * width}  {told}"] if told else []
    return "\n".join(lines)


def _phase(words: dict[str, Any]) -> str:
    return "gone" if words["gone"] else str(words["phase"])


def _parts(words: dict[str, Any]) -> list[str]:
    parts = []
    if words.get("round"):
        parts.append(f"round {words['round']}")
    parts += [f"{name} {words[name]:.3g}" for name in ("objective", "violation") if words.get(name) is not None]
    if words.get("bytes_up") is not None:
        parts.append(f"{in_bytes(words['bytes_up'])} up, {in_bytes(words['bytes_down'])} down")
    if words["phase"] in AT_WORK and words.get("awaited"):
        began = words.get("answered" if words["awaited"] == ["server"] else "asked")
        since = max(0.0, time.time() - began) if began else 0.0
        whom = "at work" if words["awaited"] == [words["who"]] else f"awaits {', '.join(map(str, words['awaited']))}"
        parts.append(f"{whom} since {since:.0f} s")
    if words.get("updated"):
        parts.append(f"as of {time.strftime('%H:%M:%S', time.localtime(words['updated']))}")
    return parts


def _ports(server: pathlib.Path) -> list[int]:
    files = [(server / name, pattern) for name, pattern in PORTS.items() if (server / name).is_file()]
    found = [re.search(pattern, file.read_text()) for file, pattern in files]
    return [int(match[1]) for match in found if match]


def _deaf(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return True
    return False


def _gone(words: dict[str, Any]) -> bool:
    here = words.get("host") == socket.gethostname()
    return here and words["phase"] in AT_WORK and not _is_there(int(words.get("process", 0)))


def _is_there(process: int) -> bool:
    if process <= 0:
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
