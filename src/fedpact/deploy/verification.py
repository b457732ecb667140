"""`fedpact verify KIT`: measure the certificate of a deployed run again, at the parties, in no further round.

What the parties keep of a run, such as multipliers of their own constraints, is on their own disks only, so the certificate
can be measured by asking them and in no other way.
"""

import os
import pathlib
import shutil
import tempfile
from collections.abc import Mapping, Sequence

from fedpact.deploy.earlier_runs import EARLIER
from fedpact.deploy.kit_files import owners
from fedpact.deploy.party import Site
from fedpact.deploy.server import serve
from fedpact.engines.remote import Channel
from fedpact.run.checkpoint import Folder
from fedpact.run.promise import Promise
from fedpact.run.verify import Verification

NUMBERS = ("stationarity", "feasibility", "complementarity", "objective")


def measured_again(
    pact: str | os.PathLike[str], channel: Channel, folder: pathlib.Path, tolerance: float | None = None
) -> Verification:
    """The certificate of the run in the server's folder, measured at the parties behind a channel; the folder stays as it is.

    tolerance: to which it has to hold (default: the run's own).
    """
    _, claimed = Folder(folder).load_answer()
    with tempfile.TemporaryDirectory() as beside:
        copy = pathlib.Path(beside) / "run"
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(EARLIER))
        result = serve(pact, channel, copy, resume=True, measure_again=True, progress=False)
    assert not isinstance(result, Promise)
    asked = float(claimed["tolerance"] if tolerance is None else tolerance)
    numbers = {name: float(claimed[name]) for name in NUMBERS}
    return Verification(result.certificate.holds(asked), asked, result.certificate, numbers)


class OnThisMachine:
    """A channel to sites that are objects of this process."""

    interrupts = True

    def __init__(self, sites: Mapping[str, Site]) -> None:
        self.sites = sites

    def ask(self, message: bytes, parties: Sequence[str], some: bool = False) -> dict[str, bytes]:
        return {party: self.sites[party].answer(message) for party in parties}


def verify_here(kit: pathlib.Path, tolerance: float | None = None) -> Verification:
    """The certificate of the last run of a kit whose folders are all on this machine, as after `fedpact deploy … --poc`.

    Raises FileNotFoundError where the server's folder or a party's is missing, or no run has ended.
    """
    found = owners(kit)
    if "server" not in found or len(found) < 2:
        raise FileNotFoundError(
            f"{kit} holds not the folders of the server and all parties: where parties are elsewhere, ask them through "
            "the engine, by admin/jobs/verify on FLARE or server/run.sh --verify on Flower"
        )
    server = found.pop("server")
    sites = {party: Site(files.pact, party, files.folder, files.policy) for party, files in found.items()}
    return measured_again(server.pact, OnThisMachine(sites), server.folder, tolerance)
