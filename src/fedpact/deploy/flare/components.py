"""The classes that FLARE's processes build from a job's configuration; they carry bytes between `Site` and `serve`.

A job holds no code, only the names of these two classes: a site runs the fedpact that it installed itself, and its own
`local/fedpact.json` says which file on its own disk is the pact. `fedpact.deploy.flare.kit` writes jobs and kits.
"""

import json
import pathlib
import shutil
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from fedpact.deploy.earlier_runs import EARLIER
from fedpact.deploy.engine import DEFAULT_WAIT
from fedpact.deploy.flare import NOT_INSTALLED
from fedpact.deploy.kit_files import POLICY, SETTINGS, PactFiles
from fedpact.deploy.party import Site
from fedpact.deploy.server import serve
from fedpact.deploy.verification import measured_again
from fedpact.engines.remote import PartyLost
from fedpact.files import write

try:
    from nvflare.apis.fl_constant import FLContextKey
    from nvflare.collab import collab
    from nvflare.collab.api import CallOption
    from nvflare.collab.api.exceptions import RunAborted
    from nvflare.collab.api.group import group
except ImportError as error:
    raise ImportError(NOT_INSTALLED) from error

OUTCOME = "fedpact.json"  # in the folder of a job's results at the server
SERVER = "server"  # FLARE's name for the server, whatever its host is called


class MessageHandler(Protocol):
    def answer(self, message: bytes) -> bytes: ...


def read_settings(kit: pathlib.Path, pact: str, site: str) -> PactFiles:
    """Read from a kit's `local/fedpact.json` where this machine keeps a pact.

        {"hospitals": {"pact": "local/hospitals.py", "folder": "fedpact/hospitals", "policy": "local/policy.toml"}}

    Relative paths start at the kit's folder. `local/policy.toml`, if it exists, is the policy unless another is named.

    - `kit`: the folder of the kit.
    - `pact`: the pact's name in the settings.
    - `site`: name of the site or the server, for error messages.

    Returns the paths, each checked to exist but for the state folder.

    Raises FileNotFoundError where the settings or a file that they name is missing, KeyError where the settings have no such
    pact, and ValueError where its entry lacks 'pact' or 'folder', or has an unknown key.
    """
    path = kit / SETTINGS
    if not path.is_file():
        raise FileNotFoundError(f"{site}: {path} is missing; it says where the pact is on this machine")
    pacts = json.loads(path.read_text())
    if pact not in pacts:
        raise KeyError(f"{site}: no pact {pact!r} in {path}, which has {', '.join(map(repr, pacts)) or 'none'}")
    entry = dict(pacts[pact])
    file, folder, policy = entry.pop("pact", None), entry.pop("folder", None), entry.pop("policy", None)
    if policy is None and (kit / POLICY).is_file():
        policy = POLICY
    if not file or not folder or entry:
        raise ValueError(f"{site}: {pact!r} in {path} needs 'pact' and 'folder', may have 'policy', and nothing else")
    files = PactFiles(kit / file, kit / folder, kit / policy if policy else None)
    for named in (files.pact, files.policy):
        if named is not None and not named.is_file():
            raise FileNotFoundError(f"{site}: {named} is missing; {path} names it for {pact!r}")
    return files


class Party:
    """A site's component: one `Site` for each pact, created when the server's first message for it arrives.

    - `make_site`: called with pact file, party, state folder and policy file (default: `fedpact.deploy.party.Site`;
      tests pass another).
    """

    def __init__(self, make_site: Callable[..., MessageHandler] = Site) -> None:
        self._make_site = make_site
        self._sites: dict[str, MessageHandler] = {}
        self._lock = threading.Lock()  # FLARE calls from many threads

    @collab.publish
    def answer(self, pact: str, message: bytes) -> bytes:
        if collab.caller != SERVER:
            raise PermissionError(f"{collab.site_name} answers the server only, not {collab.caller}")
        with self._lock:
            if pact not in self._sites:
                files = read_settings(pathlib.Path(collab.workspace.get_root_dir()), pact, collab.site_name)
                self._sites[pact] = self._make_site(files.pact, collab.site_name, files.folder, files.policy)
        return self._sites[pact].answer(message)


class FlareChannel:
    """The server's `Channel` to the parties inside a running job; `ask` may be called from any thread.

    - `pact`: the pact's name in every site's settings.
    - `wait`: seconds that a party has for one reply.

    `on_reply` is called with the name of every party whose reply has come.
    """

    interrupts = True  # a site's process has many threads

    def __init__(self, pact: str, wait: float) -> None:
        self._pact = pact
        self.wait = wait
        self.on_reply: Callable[[str], None] = lambda party: None
        self._context = collab.context
        self._sites = {site.name: site for site in collab.clients}

    def ask(self, message: bytes, parties: Sequence[str], some: bool = False) -> dict[str, bytes]:
        for party in parties:
            if party not in self._sites:
                raise PartyLost(party, f"has no site in this job, which has {', '.join(self._sites)}")
        answered: set[str] = set()

        def record(call: Any, reply: Any) -> Any:
            answered.add(call.target_name.partition(".")[0])
            self.on_reply(call.target_name.partition(".")[0])
            return reply

        # `group` rather than `collab.clients(...)`: it takes the context, which the latter looks for in its own thread.
        targets = [self._sites[party] for party in parties]
        sites = group(self._context, targets, CallOption(timeout=self.wait), process_resp_cb=record)
        try:
            replies: Any = sites.answer(self._pact, message)
        except RunAborted:
            raise self._job_stopped([party for party in parties if party not in answered]) from None
        failed = [party for party in parties if party in replies.failures]
        if failed and self._context.is_aborted():
            raise self._job_stopped([party for party in parties if party not in answered])
        if failed and not (some and len(failed) < len(parties)):
            others = f"; neither did {', '.join(failed[1:])}" if len(failed) > 1 else ""
            raise PartyLost(failed[0], self._reason(replies.failures[failed[0]]) + others)
        received: dict[str, bytes] = dict(replies)
        return {party: received[party] for party in parties if party in received}

    def _reason(self, failure: Any) -> str:
        if isinstance(failure.cause, TimeoutError):
            return f"did not answer within {self.wait:g} s"
        return f"did not answer, its site failed: {failure.cause}"

    def _job_stopped(self, unanswered: list[str]) -> Exception:
        """FLARE stops a job when the process of one of its sites has ended, and does not say which."""
        communicator = self._context.backend.manager.communicator
        gone = [party for party in self._sites if communicator.get_client_disconnect_time(party) is not None]
        lost = gone or unanswered
        if len(lost) == 1:
            return PartyLost(lost[0], "the process of its job is gone, and FLARE has stopped the job")
        pending = f"; the answers of {', '.join(unanswered)} were awaited" if unanswered else ""
        return RunAborted(f"FLARE has stopped the job: the admin did, or the process of a site's job ended{pending}")


class Server:
    """The server's component: runs the pacts of a job one after the other and adds the outcome of each to the job's results.

    - `pacts`: their names in the server's own `local/fedpact.json`.
    - `resume`: whether to resume the runs saved in their folders (default: False).
    - `verify`: whether to measure the certificates of these runs again instead (default: False).
    - `wait`: seconds that a party has for one reply (default: 600).
    - `serve`: the server's loop (default: `fedpact.deploy.server.serve`; tests pass another).
    """

    def __init__(
        self,
        pacts: Sequence[str],
        resume: bool = False,
        wait: float = DEFAULT_WAIT,
        verify: bool = False,
        serve: Callable[..., Any] = serve,
    ) -> None:
        if not wait > 0:
            raise ValueError(f"Server(wait={wait}): must be > 0; it is in seconds, for one reply of a party")
        self._pacts = list(pacts)
        self._resume = resume
        self._wait = wait
        self._verify = verify
        self._serve = serve

    @collab.main
    def run(self) -> None:
        job = collab.fl_ctx.get_prop(FLContextKey.CURRENT_RUN)
        results = pathlib.Path(collab.workspace.get_run_dir(job))
        outcome: dict[str, dict[str, Any]] = {}
        for pact in self._pacts:
            try:
                files = read_settings(pathlib.Path(collab.workspace.get_root_dir()), pact, SERVER)
                channel = FlareChannel(pact, self._wait)
                if self._verify:
                    result = measured_again(files.pact, channel, files.folder)
                else:
                    result = self._serve(files.pact, channel, files.folder, resume=self._resume)
                outcome[pact] = {"finished": True, "message": str(result)}
                without = shutil.ignore_patterns(EARLIER)
                shutil.copytree(files.folder, results / "fedpact" / pact, dirs_exist_ok=True, ignore=without)
            except Exception as error:  # the job goes on with its next pact, unless it was stopped
                outcome[pact] = {"finished": False, "message": f"{type(error).__name__}: {error}"}
                if isinstance(error, RunAborted):
                    raise
            finally:
                write(results / OUTCOME, json.dumps(outcome, indent=2).encode())  # whole, or on a full disk not there
        failures = [f"{pact}: {entry['message']}" for pact, entry in outcome.items() if not entry["finished"]]
        if failures:
            raise RuntimeError("; ".join(failures))
