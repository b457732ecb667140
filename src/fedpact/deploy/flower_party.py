"""The party's own process beside its Flower node: one `Site`, kept in memory, that answers over a socket of this machine.

Flower starts a new process for every message. A Site made in there would import JAX, load its rows and compile each time, so the
Site lives here instead, and the app's process (`flower_client.py`) only passes bytes on. The socket is a Unix socket in the
site's folder, which only the party's user can enter. All processes of the site work in that folder, so the path is relative:
one of more than 107 bytes is not allowed. What comes over it is bytes, never an object to be unpickled.

    python -m fedpact.deploy.flower_party --party north --pact pact.py --folder state --socket run/$$/party.sock --node $$

It ends with the node: `start.sh` starts it and then becomes `flower-supernode`, so `$$` is the node's process, and its parent.
"""

import argparse
import os
import pathlib
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Listener

from fedpact.deploy.party import Site

WATCH = 0.5  # seconds between two looks whether the node is still there


def listen(answer: Callable[[bytes], bytes], socket: str | os.PathLike[str]) -> None:
    """Answer one message per connection, for ever. What cannot be answered closes its connection; the log says why."""
    with Listener(str(socket), "AF_UNIX") as listener:
        while True:
            try:
                with listener.accept() as connection:
                    connection.send_bytes(answer(connection.recv_bytes()))
            except Exception:
                traceback.print_exc()


def end_with(node: int, folder: pathlib.Path) -> None:
    """End this process, and remove the socket's folder, as soon as `node` is no longer its parent."""
    while os.getppid() == node:
        time.sleep(WATCH)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m fedpact.deploy.flower_party", description="The party's process beside its node."
    )
    parser.add_argument("--party", required=True, help="the party's name in the pact")
    parser.add_argument("--pact", required=True, help="the pact file")
    parser.add_argument("--folder", required=True, help="where the party's state is kept between messages")
    parser.add_argument("--policy", help="the party's own policy file, if it has one")
    parser.add_argument("--socket", required=True, help="the socket to listen on, in a folder of its own")
    parser.add_argument("--node", required=True, type=int, help="the node's process, which has started this one")
    given = parser.parse_args(arguments)
    home = pathlib.Path(given.socket).parent
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # so that the socket's folder is removed
    threading.Thread(target=end_with, args=(given.node, home), daemon=True).start()
    try:
        site = Site(given.pact, given.party, given.folder, given.policy)
        print(f"fedpact: the site of {given.party} is ready", file=sys.stderr, flush=True)
        listen(site.answer, given.socket)
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
