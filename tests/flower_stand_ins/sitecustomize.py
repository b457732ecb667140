"""Python imports this first in every process that a test of Flower starts: stand-ins for the server's loop and the sites.

The tests check the transport of messages, so a party here answers with who it is, and a server does what the pact's `play` says.
"""

import os
import runpy
import sys
import time
import types
from typing import Any


class Site:
    """Answers with its name, its process, how many messages it has had, and the message itself."""

    def __init__(self, pact: str, party: str, folder: str, policy: str | None = None):
        self.party, self.count = party, 0

    def answer(self, message: bytes) -> bytes:
        self.count += 1
        order, _, rest = message.partition(b" ")
        if order == b"fail:" + self.party.encode():
            raise RuntimeError("a secret of the party")
        if order == b"sleep:" + self.party.encode():
            time.sleep(float(rest))
        return f"{self.party} {os.getpid()} {self.count} ".encode() + message


def serve(pact: Any, channel: Any, folder: Any, *, resume: bool = False, progress: Any = None) -> str:
    runpy.run_path(str(pact))["play"](channel, folder, resume)
    return "what the loop returns"


for name, parts in {"party": {"Site": Site}, "server": {"serve": serve}}.items():
    module = types.ModuleType(f"fedpact.deploy.{name}")
    vars(module).update(parts)
    sys.modules[module.__name__] = module
