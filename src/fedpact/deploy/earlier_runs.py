"""The server's folder holds one run; one that has ended makes room for the next."""

import os
import pathlib
import time

from fedpact.deploy.matching import MATCHED
from fedpact.deploy.preparation import RECIPE
from fedpact.deploy.status import STATUS, read
from fedpact.files import private_folder
from fedpact.run.checkpoint import Folder
from fedpact.run.pact import EVALUATION
from fedpact.run.saved_model import MODEL

REPORT, PROMISE = "report.html", "promise.txt"  # the page of the result, and what a promise says
EARLIER = "earlier"  # in the server's folder: runs that have ended, each in a folder with the time of its end
FILES = ("answer.npz", "run.json", MODEL, REPORT, EVALUATION, PROMISE, MATCHED, "matched.json", RECIPE, STATUS)


def put_aside(home: Folder) -> pathlib.Path | None:
    """Move a run that has ended out of the way of the next one; returns the folder that it is in then, if there was one.

    Raises ValueError where the folder holds a run that has not ended, with the ways out.
    """
    if not home.holds_a_run:
        return None
    words, before = read(home.path / STATUS), home.owner()
    if words is None or words.get("run_ended") != before.get("run"):
        raise ValueError(
            f"{home.path} holds {before['rounds']} rounds of a run that has not ended: resume it, or move this folder away "
            "to begin anew; nothing was touched"
        )
    moment = time.gmtime((home.path / "state.npz").stat().st_mtime)
    aside = home.path / EARLIER / f"{time.strftime('%Y-%m-%d-%H%M%S', moment)}-{before.get('run', 'run')}"
    private_folder(aside)
    for name in (*FILES, "state.npz"):  # the state last: until then the folder holds the run
        if (home.path / name).exists():
            os.replace(home.path / name, aside / name)
    return aside
