"""Flower's supernode, as `flower-supernode`, that asks for messages more often while a run lasts.

    python -m fedpact.deploy.flower.node --superlink ...          (the arguments of flower-supernode)

A node of Flower sleeps 3 s when there is no message for it, and half a second at a time until its party has replied; neither
can be configured, and together they are most of an exchange. Here it sleeps a fifth of the time since its last message, at
least 0.2 s and at most Flower's own 3 s: quick within a run, and no more requests than Flower's between runs. Where another
version of Flower sleeps in another way, it is left as it is.

A node of Flower waits for a server that does not answer, but is offline for good after any other failure: a connection cut in
the middle of a TLS handshake, a reply whose upload the restarted server does not know, or a server that considers the node
online for another minute because it was killed a moment ago. Here it then begins anew, in the same process, until it is stopped.
"""

import os
import sys
import time
import traceback
from typing import Any

from flwr.supernode import start_client_internal
from flwr.supernode.cli import flower_supernode

from fedpact.deploy.flower.pace import Pace, pull_soon

REPLY_POLL = 0.05  # seconds between two looks whether the party has replied, in the node's own memory
AGAIN = "FEDPACT_NODE_AGAIN"  # variable that is set where a node begins anew
AGAIN_AFTER = 5.0  # seconds until a node that has failed begins anew
WRONG_ARGUMENTS = 2  # exit status of argparse
FLOWERS_IDLE = 3.0  # seconds that Flower sleeps where there is no message: what it sleeps otherwise is for a reply


class Clock:
    """Stands in for the module `time` in Flower's loop of a node: sleeps less than it is told."""

    def __init__(self) -> None:
        self.pace = Pace(0.2, FLOWERS_IDLE)

    def sleep(self, seconds: float) -> None:
        if seconds < FLOWERS_IDLE:
            self.pace.again()
            time.sleep(min(seconds, REPLY_POLL))
        else:
            self.pace.wait()

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def run() -> None:
    """Flower's node, with its loop on our clock."""
    pull_soon()
    if getattr(start_client_internal, "time", None) is time:
        setattr(start_client_internal, "time", Clock())  # noqa: B010 (pyright does not know it)
    flower_supernode()


def main() -> None:
    if AGAIN in os.environ:
        time.sleep(AGAIN_AFTER)
    try:
        run()
    except SystemExit as ended:
        if ended.code in (0, None, WRONG_ARGUMENTS):
            raise
    except Exception:
        traceback.print_exc()
    print(f"fedpact: the node is offline, and begins anew in {AGAIN_AFTER:g} s", file=sys.stderr, flush=True)
    os.environ[AGAIN] = "1"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # at once: Flower's threads would end the process


if __name__ == "__main__":
    main()
