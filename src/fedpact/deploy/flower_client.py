"""The ClientApp: hands a message to the party's own process and its answer back.

This file travels to the sites inside the Flower app. Flower starts a new process for every message, so it imports nothing of
fedpact: JAX, the party's rows and its compiled programs stay in the one process of `fedpact.deploy.flower_party`, which the
site's `start.sh` keeps running beside the node.
"""

import pathlib
import time
from multiprocessing.connection import Client

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

STARTING = 120.0  # seconds that a party's process may take until it listens

app = ClientApp()


@app.query()
def answer(message: Message, context: Context) -> Message:
    """The party's answer to one message of the server; an error in words if its process is not there."""
    sent, here = message.content.config_records["fedpact"], context.node_config
    party = str(here["party"])
    if sent["party"] != party:
        raise RuntimeError(
            f"the server has registered this node's key for {sent['party']!r}, but it is the site of {party!r}"
        )
    asked = sent["message"]
    if not isinstance(asked, bytes):
        raise RuntimeError(f"a message to {party!r} is bytes, not a {type(asked).__name__}")
    reply = _ask(party, pathlib.Path(str(here["socket"])), asked)
    return Message(RecordDict({"fedpact": ConfigRecord({"message": reply})}), reply_to=message)


def _ask(party: str, socket: pathlib.Path, message: bytes) -> bytes:
    deadline = time.monotonic() + STARTING
    while not socket.exists() and socket.parent.is_dir() and time.monotonic() < deadline:
        time.sleep(0.05)
    try:
        with Client(str(socket), "AF_UNIX") as connection:
            connection.send_bytes(message)
            return connection.recv_bytes()
    except (OSError, EOFError):
        raise RuntimeError(f"the process of {party!r} is not running or failed: its log at the site says why") from None
