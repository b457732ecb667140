"""Flower's ServerApp of a kit: runs the pact in the server's folder."""

import contextlib
import fcntl
import json
import os
import pathlib
import time
from collections.abc import Iterator
from typing import Any

from fedpact.deploy.flower import require_flower
from fedpact.deploy.flower.channel import FlowerChannel
from fedpact.deploy.flower.pace import pull_soon
from fedpact.deploy.server import serve
from fedpact.deploy.status import start_log
from fedpact.files import OWN_FILE, private_folder, write

SERVER_FOLDER = (
    "FEDPACT_FLOWER_SERVER"  # variable set by start.sh: the superlink starts the ServerApp, in a folder of its own
)
LOG_FILE = "log.txt"  # in the server's state folder
OUTCOME = "flower.json"  # how the last run ended, in the server's state folder
LOCK_WAIT = 30.0  # seconds that a run waits for the previous one to end
LOCK_POLL = 0.1  # seconds between two attempts to lock


def server_app() -> Any:
    """The ServerApp that runs the pact of the server's folder, or resumes its last run (run config `resume`), or measures the
    certificate of the last run again (run config `verify`).

    Raises ModuleNotFoundError where Flower is not installed.
    """
    require_flower()
    from flwr.serverapp import ServerApp

    app = ServerApp()
    app.main()(_main)
    return app


def _main(grid: Any, context: Any) -> None:
    if SERVER_FOLDER not in os.environ:
        raise RuntimeError(f"{SERVER_FOLDER} is not set: start the superlink with start.sh of the server's folder")
    folder, config = pathlib.Path(os.environ[SERVER_FOLDER]), context.run_config
    state = private_folder(folder / "state")
    (state / LOG_FILE).touch(OWN_FILE)
    start_log(state / LOG_FILE)  # stderr is shown by run.sh, and kept by nobody
    pull_soon()
    channel = FlowerChannel(grid, wait=float(config["wait"]))
    with _locked(state):
        try:
            if config.get("verify"):
                from fedpact.deploy.verification import measured_again

                result = measured_again(folder / "pact.py", channel, state)
            else:
                result = serve(folder / "pact.py", channel, state, resume=bool(config["resume"]))
        except Exception as error:
            _write_outcome(state, f"{type(error).__name__}: {error}", finished=False)
            raise
        _write_outcome(state, f"finished\n{result}", finished=True)


@contextlib.contextmanager
def _locked(state: pathlib.Path) -> Iterator[None]:
    """One run at a time: the app of a superlink that was killed lives on for some seconds, and the next would start beside it."""
    deadline = time.monotonic() + LOCK_WAIT
    with (state / "lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise RuntimeError(f"another run uses {state}: wait for its end, or stop it: flwr stop") from None
                time.sleep(LOCK_POLL)
        yield


def _write_outcome(state: pathlib.Path, message: str, finished: bool) -> None:
    """How the run ended, for `run.sh`: `flwr run` has no exit status for it."""
    write(state / OUTCOME, (json.dumps({"finished": finished, "message": message}) + "\n").encode())
