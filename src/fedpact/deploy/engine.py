"""Deployment engines: what carries the messages of a run between organisations, behind one interface.

An engine is a package with two modules, imported only when they are used, so that neither engine has to be installed:

| module | function |
|---|---|
| `kit` | `write_kit(pact, parties, out, *, server, port, wait)`, which returns the path of the kit's README |
| `local_run` | `try_here(pact, parties, out, *, wait, resume, retry, written)`, which returns a summary of the run |

A folder that was written has a `kit.json`, which says what for: so that the same command again does no harm.
"""

import dataclasses
import json
import pathlib
import re
from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from typing import Any

from fedpact.__about__ import VERSION
from fedpact.deploy.overview import statuses
from fedpact.files import write

KIT = "kit.json"  # what a kit is for
DEFAULT_WAIT = 600.0  # seconds that the server waits for the parties' replies to one message


@dataclasses.dataclass(frozen=True)
class DeploymentEngine:
    """An engine that `fedpact deploy` knows.

    - `name`: its name on the command line.
    - `description`: what it is and which runs it is good for, in one line.
    - `default_port`: the server's TCP port.
    - `package`: dotted name of the package with the modules `kit` and `local_run`.
    """

    name: str
    description: str
    default_port: int
    package: str

    def write_kit(
        self,
        pact: pathlib.Path,
        parties: Sequence[str],
        out: pathlib.Path,
        *,
        server: str = "localhost",
        port: int | None = None,
        wait: float = DEFAULT_WAIT,
    ) -> pathlib.Path:
        """Write what the server and every site need to run a pact: keys, certificates, settings and start scripts.

        - `pact`: the pact file; every site gets a copy.
        - `parties`: names of the parties.
        - `out`: the folder to write; must be empty or not exist yet, or hold this very kit, which then stays as it is.
        - `server`: host name or address under which the sites reach the server (default: localhost).
        - `port`: the server's TCP port (default: `default_port`).
        - `wait`: seconds that the server waits for the parties' replies to one message (default: 600).

        Returns the path of the kit's README, which has the commands to start everything.

        Raises FileNotFoundError where there is no pact file, FileExistsError where `out` is not empty and holds something
        else, ValueError where another argument is invalid, and ImportError where the engine is not installed.
        """
        port = self.default_port if port is None else port
        words = self._words(pact, parties, server=server, port=port, wait=wait)
        before = read_kit(out)
        if before == words:
            return out / "README.md"
        if before is not None:
            other = [name for name in words if before.get(name) != words[name]]
            raise FileExistsError(
                f"{out} holds a kit with another {' and '.join(other)}; its keys are not overwritten. Choose another folder, or "
                f"to keep the keys where only the pact is another, copy {pact} over the pact in the server's and every party's "
                "folder"
            )
        readme = import_module(f"{self.package}.kit").write_kit(pact, parties, out, server=server, port=port, wait=wait)
        write(out / KIT, _json(words))
        return readme

    def _words(self, pact: pathlib.Path, parties: Sequence[str], **more: Any) -> dict[str, Any]:
        """What is in a kit's `kit.json`."""
        from fedpact.run.pact_files import pact_files  # whose package imports JAX

        files = pact_files(pact) if pact.is_file() else {}
        return {"engine": self.name, "fedpact": VERSION, "pact": files, "parties": list(parties), **more}

    def try_here(
        self,
        pact: pathlib.Path,
        parties: Sequence[str],
        out: pathlib.Path,
        *,
        wait: float = DEFAULT_WAIT,
        retry: int = 0,
        tell: Callable[[str], None] = lambda words: None,
    ) -> str:
        """Run a pact once with server and sites as processes of this machine, and stop them, also on Ctrl-C or SIGTERM.

        - `pact`: the pact file; every party's `load` runs on this machine.
        - `parties`: names of the parties.
        - `out`: the folder for kits, state, logs and the result. One of an earlier try is kept under the next free name,
          `out`-1 and so on; but a try of the same pact that has saved something and not ended goes on.
        - `wait`: seconds that the server waits for the parties' replies to one message (default: 600).
        - `retry`: how often the run is resumed where it stopped, after starting again what has ended (default: 0).
        - `tell`: called with a sentence on an earlier try, where there was one (default: nobody is told).

        Returns a summary of the run with the folder of its result.

        Raises RuntimeError where the run did not finish, FileExistsError where `out` is not empty and holds no earlier try,
        and as `write_kit` does.
        """
        words, before = self._words(pact, parties, tried=True), read_kit(out)
        resume = before == words and _is_under_way(out)
        if resume:
            tell(f"{out} holds a try that has not ended: it goes on")
        elif before is not None and before.get("tried"):
            aside = next(path for n in range(1, 10**6) if not (path := out.with_name(f"{out.name}-{n}")).exists())
            out.rename(aside)
            tell(f"the earlier try in {out} is kept in {aside}")
        if not resume and out.exists() and any(out.iterdir()):
            raise FileExistsError(f"{out} is not empty, and holds no earlier try; choose another folder: --out")
        run = import_module(f"{self.package}.local_run").try_here
        return run(
            pact, parties, out, wait=wait, resume=resume, retry=retry, written=lambda: write(out / KIT, _json(words))
        )


ENGINES: dict[str, DeploymentEngine] = {
    engine.name: engine
    for engine in (
        DeploymentEngine("flare", "NVIDIA FLARE, for many rounds", 8002, "fedpact.deploy.flare"),
        DeploymentEngine("flower", "Flower, for few rounds", 9092, "fedpact.deploy.flower"),
    )
}


def read_kit(out: pathlib.Path) -> dict[str, Any] | None:
    """What the kit in a folder is for; None where there is none."""
    try:
        words = json.loads((out / KIT).read_text())
    except (OSError, ValueError):
        return None
    return words if isinstance(words, dict) else None


def _json(words: dict[str, Any]) -> bytes:
    return json.dumps(words, indent=2).encode()


def _is_under_way(out: pathlib.Path) -> bool:
    """Whether the server in a folder has saved something of a run that has not ended."""
    found = [words for words in statuses(out) if words["who"] == "server"]
    return any(w["phase"] != "ended" and pathlib.Path(w["file"]).with_name("state.npz").exists() for w in found)


def find_engine(name: str) -> DeploymentEngine:
    """The engine of this name in `ENGINES`.

    Raises ValueError where there is none; the message lists the known ones.
    """
    if name not in ENGINES:
        raise ValueError(f"unknown engine {name!r}; known engines are {', '.join(ENGINES)}")
    return ENGINES[name]


def check_kit_arguments(
    pact: pathlib.Path,
    parties: Sequence[str],
    out: pathlib.Path,
    *,
    port: int,
    wait: float,
    reserved: Collection[str],
    party_pattern: str = r"[A-Za-z0-9_][A-Za-z0-9_-]*",
) -> None:
    """Check the arguments that `write_kit` has on every engine, before anything is written.

    - `pact`, `parties`, `out`, `port`, `wait`: as in `DeploymentEngine.write_kit`.
    - `reserved`: names of the kit's other folders, which no party may have.
    - `party_pattern`: regular expression for the name of a party (default: letters, digits, `_`, and `-` but at the start).

    Raises FileNotFoundError where there is no pact file, FileExistsError where `out` is not empty, and ValueError where
    another argument is invalid.
    """
    if not pact.is_file():
        raise FileNotFoundError(f"pact file {pact} does not exist")
    if not parties or len(set(parties)) < len(parties):
        raise ValueError(f"parties={list(parties)!r}: name at least one party, and each only once")
    for party in parties:
        if not re.fullmatch(party_pattern, party):
            raise ValueError(
                f"party {party!r}: a name has letters, digits, '-' and '_' only, and does not start with '-'"
            )
        if party in reserved:
            raise ValueError(f"party {party!r}: this name is reserved for a folder of the kit")
    if not 0 < port < 65536:
        raise ValueError(f"port={port}: must be between 1 and 65535")
    if not wait > 0:
        raise ValueError(f"wait={wait}: must be > 0; it is in seconds, for the parties' replies to one message")
    if out.exists() and any(out.iterdir()):
        raise FileExistsError(f"{out} is not empty: existing keys and state are not overwritten; choose another folder")
