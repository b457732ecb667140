"""Where a row of a table comes from: the command, the commit, the day and the machine. No names of hosts, users or folders."""

import os
import pathlib
import platform
import shlex
import subprocess
import time
from collections.abc import Sequence

from fedpact import __about__

ROOT = pathlib.Path(__file__).parents[3]  # of a checkout
CPU_INFO = pathlib.Path("/proc/cpuinfo")


def command(name: str, trials: int | None, only: Sequence[str]) -> str:
    """What a user types for this run."""
    chosen = [part for each in only for part in ("--only", shlex.quote(each))]
    return " ".join(["fedpact reproduce", name, *([] if trials is None else ["--trials", str(trials)]), *chosen])


def commit() -> str:
    """The commit of this checkout, with + where files were changed; FEDPACT_COMMIT where there is no repository beside the code;
    else the version."""
    given = os.environ.get("FEDPACT_COMMIT")
    if given:
        return given
    if (ROOT / ".git").exists():
        try:
            found = _git("rev-parse", "--short=7", "HEAD")
            return found + ("+" if _git("status", "--porcelain", "--untracked-files=no", "--", "src") else "")
        except (OSError, subprocess.CalledProcessError):
            pass
    return f"version {__about__.VERSION}"


def _git(*words: str) -> str:
    ran = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def _listed() -> str | None:
    """The processor's name where /proc has numbers for it only."""
    try:
        lines = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.strip().startswith("Model name")), None)


def machine() -> str:
    """Processor and cores, and the accelerator where the arithmetic is done by one."""
    import jax

    model = platform.machine()
    if CPU_INFO.exists():
        named = [line.partition(":")[2].strip() for line in CPU_INFO.read_text().splitlines() if "model name" in line]
        model = named[0] if named else _listed() or model
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    device = jax.devices()[0]
    with_device = "" if device.platform == "cpu" else f", {device.device_kind}"
    return f"{model}, {cores} cores{with_device}"


def this_run(name: str, trials: int | None, only: Sequence[str]) -> dict[str, str]:
    """Of the run that begins now."""
    return {
        "command": command(name, trials, only),
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": machine(),
    }
