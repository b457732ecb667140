"""Stand-ins for the server's loop and the sites, to test the transport alone.

A pact here is a file with `serve(channel, folder, resume)` and `answer(party, folder, message)`.
FLARE's processes build `Server` and `Party` from these names; the transport is that of fedpact.deploy.flare.components.
"""

import pathlib
from typing import Any

from nvflare.collab import collab

from fedpact.deploy.flare import components


def read(pact: pathlib.Path) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(pact.read_text(), str(pact), "exec"), names)
    return names


class Site:
    def __init__(
        self, pact: pathlib.Path, party: str, folder: pathlib.Path, policy: pathlib.Path | None = None
    ) -> None:
        self._answer, self._party, self._folder = read(pact)["answer"], party, folder
        folder.mkdir(parents=True, exist_ok=True)

    def answer(self, message: bytes) -> bytes:
        return self._answer(self._party, self._folder, message)


def serve(pact: pathlib.Path, channel: components.FlareChannel, folder: pathlib.Path, *, resume: bool = False) -> Any:
    folder.mkdir(parents=True, exist_ok=True)
    return read(pact)["serve"](channel, folder, resume)


class Party:
    def __init__(self) -> None:
        self._party = components.Party(make_site=Site)

    @collab.publish
    def answer(self, pact: str, message: bytes) -> bytes:
        return self._party.answer(pact, message)


class Server:
    def __init__(self, pacts: list[str], resume: bool, wait: float) -> None:
        self._server = components.Server(pacts, resume, wait, serve=serve)

    @collab.main
    def run(self) -> None:
        self._server.run()
