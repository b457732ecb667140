"""A pact on NVIDIA FLARE: the classes that its processes build from a job's configuration. They pass bytes and know nothing else.

A job holds no code, only the names of these two classes: a site runs the fedpact that it installed itself, and its own
`local/fedpact.json` says which file on its own disk is the pact. `fedpact.deploy.flare_kit` writes jobs and kits.
"""

import dataclasses
import json
import pathlib
import shutil
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from fedpact.deploy.flare_kit import MISSING
from fedpact.deploy.party import Site
from fedpact.deploy.server import serve
from fedpact.engines.remote import PartyLost

try:
    from nvflare.apis.fl_constant import FLContextKey
    from nvflare.collab import collab
    from nvflare.collab.api import CallOption
    from nvflare.collab.api.exceptions import RunAborted
    from nvflare.collab.api.group import group
except ImportError as error:
    raise ImportError(MISSING) from error

SETTINGS = "fedpact.json"  # in a kit's folder `local`
POLICY = "local/policy.toml"
OUTCOME = "fedpact.json"  # in the folder of a job's results at the server
SERVER = "server"  # what FLARE calls the server's end, whatever its host is called


class Answering(Protocol):
    def answer(self, message: bytes) -> bytes: ...


@dataclasses.dataclass(frozen=True)
class Place:
    """What one end of a pact has on its own disk: the pact's file, the folder for its state, and a party's policy."""

    pact: pathlib.Path
    folder: pathlib.Path
    policy: pathlib.Path | None = None


def place(kit: pathlib.Path, name: str, who: str) -> Place:
    """Where `who` keeps the pact `name`, from `local/fedpact.json` in its kit; relative paths start at the kit's folder.

    `local/policy.toml` is the policy wherever it is there and no other is named.

    {"hospitals": {"pact": "local/hospitals.py", "folder": "fedpact/hospitals", "policy": "local/policy.toml"}}
    """
    path = kit / "local" / SETTINGS
    if not path.is_file():
        raise FileNotFoundError(f"{who}: {path} is missing; it says where the pact is on this machine")
    pacts = json.loads(path.read_text())
    if name not in pacts:
        raise KeyError(f"{who}: no pact {name!r} in {path}, which has {', '.join(map(repr, pacts)) or 'none'}")
    settings = dict(pacts[name])
    pact, folder, policy = settings.pop("pact", None), settings.pop("folder", None), settings.pop("policy", None)
    if policy is None and (kit / POLICY).is_file():
        policy = POLICY
    if not pact or not folder or settings:
        raise ValueError(f"{who}: {name!r} in {path} needs 'pact' and 'folder', may have 'policy', and nothing else")
    found = Place(kit / pact, kit / folder, kit / policy if policy else None)
    for file in (found.pact, found.policy):
        if file is not None and not file.is_file():
            raise FileNotFoundError(f"{who}: {file} is missing; {path} names it for {name!r}")
    return found


class Party:
    """A site's end: one `Site` for each pact that the server asks for, made when it first does.

    `make_site(pact, party, folder, policy)` is `fedpact.deploy.party.Site` unless a test gives another.
    """

    def __init__(self, make_site: Callable[..., Answering] = Site) -> None:
        self._make_site = make_site
        self._sites: dict[str, Answering] = {}
        self._opening = threading.Lock()  # the engine has many threads

    @collab.publish
    def answer(self, pact: str, message: bytes) -> bytes:
        if collab.caller != SERVER:
            raise PermissionError(f"{collab.site_name} answers the server only, not {collab.caller}")
        with self._opening:
            if pact not in self._sites:
                self._sites[pact] = self._open(pact)
        return self._sites[pact].answer(message)

    def _open(self, pact: str) -> Answering:
        found = place(pathlib.Path(collab.workspace.get_root_dir()), pact, collab.site_name)
        return self._make_site(found.pact, collab.site_name, found.folder, found.policy)


class FlareChannel:
    """The server's end of the wire, from inside a running job; `ask` may be called from any thread.

    Args:
        pact: the name that the sites know the pact by.
        timeout: seconds that a party has for one answer.
    """

    def __init__(self, pact: str, timeout: float) -> None:
        self._pact = pact
        self.timeout = timeout
        self._context = collab.context
        self._sites = {site.name: site for site in collab.clients}

    interrupts = True  # a site's process has many threads

    def ask(self, message: bytes, parties: Sequence[str], some: bool = False) -> dict[str, bytes]:
        for party in parties:
            if party not in self._sites:
                raise PartyLost(party, f"has no site in this job, which has {', '.join(self._sites)}")
        answered: set[str] = set()

        def note(call: Any, answer: Any) -> Any:
            answered.add(call.target_name.partition(".")[0])
            return answer

        # `group` rather than `collab.clients(...)`: it takes the context, which the latter looks for in its own thread.
        asked = [self._sites[party] for party in parties]
        sites = group(self._context, asked, CallOption(timeout=self.timeout), process_resp_cb=note)
        try:
            replies: Any = sites.answer(self._pact, message)
        except RunAborted:
            raise self._stopped([party for party in parties if party not in answered]) from None
        lost = [party for party in parties if party in replies.failures]
        if lost and self._context.is_aborted():
            raise self._stopped([party for party in parties if party not in answered])
        if lost and not (some and len(lost) < len(parties)):
            others = f"; neither did {', '.join(lost[1:])}" if len(lost) > 1 else ""
            raise PartyLost(lost[0], self._why(replies.failures[lost[0]]) + others)
        answers: dict[str, bytes] = dict(replies)
        return {party: answers[party] for party in parties if party in answers}

    def _why(self, failure: Any) -> str:
        if isinstance(failure.cause, TimeoutError):
            return f"did not answer within {self.timeout:g} s"
        return f"did not answer, its site failed: {failure.cause}"

    def _stopped(self, silent: list[str]) -> Exception:
        """FLARE stops a job when the process of one of its sites has ended, and does not say which; `silent` had not answered."""
        communicator = self._context.backend.manager.communicator
        lost = [party for party in self._sites if communicator.get_client_disconnect_time(party) is not None] or silent
        if len(lost) == 1:
            return PartyLost(lost[0], "the process of its job is gone, and FLARE has stopped the job")
        waited = f"; the answers of {', '.join(silent)} were awaited" if silent else ""
        return RunAborted(f"FLARE has stopped the job: the admin did, or the process of a site's job ended{waited}")


class Server:
    """The server's end: runs the pacts of a job one after the other and leaves what came of each with the job's results.

    Args:
        pacts: their names in the server's own `local/fedpact.json`.
        resume: go on with the runs that their folders hold.
        timeout: seconds that a party has for one answer.
        serve: `fedpact.deploy.server.serve` unless a test gives another.
    """

    def __init__(
        self,
        pacts: Sequence[str],
        resume: bool = False,
        timeout: float = 600.0,
        serve: Callable[..., Any] = serve,
    ) -> None:
        if not timeout > 0:
            raise ValueError(f"Server(timeout={timeout}): timeout must be > 0; it is in seconds, for one answer")
        self._pacts = list(pacts)
        self._resume = resume
        self._timeout = timeout
        self._serve = serve

    @collab.main
    def run(self) -> None:
        job = collab.fl_ctx.get_prop(FLContextKey.CURRENT_RUN)
        results = pathlib.Path(collab.workspace.get_run_dir(job))
        outcome: dict[str, dict[str, Any]] = {}
        for name in self._pacts:
            try:
                found = place(pathlib.Path(collab.workspace.get_root_dir()), name, SERVER)
                result = self._serve(found.pact, FlareChannel(name, self._timeout), found.folder, resume=self._resume)
                outcome[name] = {"finished": True, "says": str(result)}
                shutil.copytree(found.folder, results / "fedpact" / name, dirs_exist_ok=True)
            except Exception as error:  # one pact that fails leaves the next its turn, unless the job was stopped
                outcome[name] = {"finished": False, "says": f"{type(error).__name__}: {error}"}
                if isinstance(error, RunAborted):
                    raise
            finally:
                (results / OUTCOME).write_text(json.dumps(outcome, indent=2))
        failed = {name: entry["says"] for name, entry in outcome.items() if not entry["finished"]}
        if failed:
            raise RuntimeError("; ".join(f"{name}: {says}" for name, says in failed.items()))
