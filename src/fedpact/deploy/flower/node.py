"""Flower's supernode, as `flower-supernode`, that asks for messages more often while a run lasts.

    python -m fedpact.deploy.flower.node --superlink ...          (the arguments of flower-supernode)

A node of Flower sleeps 3 s when there is no message for it, and half a second at a time until its party has replied; neither
can be configured, and together they are most of an exchange. Here it sleeps a fifth of the time since its last message, at
least 0.2 s and at most Flower's own 3 s: quick within a run, and no more requests than Flower's between runs. Where another
version of Flower sleeps in another way, it is left as it is.
"""

import time
from typing import Any

from flwr.supernode import start_client_internal
from flwr.supernode.cli import flower_supernode

from fedpact.deploy.flower.pace import Pace

REPLY_POLL = 0.05  # seconds between two looks whether the party has replied, in the node's own memory
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


def main() -> None:
    if getattr(start_client_internal, "time", None) is time:
        setattr(start_client_internal, "time", Clock())  # noqa: B010 (pyright does not know it)
    flower_supernode()


if __name__ == "__main__":
    main()
