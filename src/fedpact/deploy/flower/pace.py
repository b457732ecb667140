"""How often Flower is asked whether there is something new: often after something was, seldom after a long silence.

Every request costs the superlink some 10 ms, whether or not it brings anything.
"""

import time

PULL_AGAIN = 0.05  # seconds until a part of a message that has not arrived is asked for again; each time twice as many


class Pace:
    """Waits a share of the time since something last happened.

    - `least`, `most`: seconds that it waits at least and at most.
    - `share`: of the time since then (default: 0.2, by which an answer comes at most a fifth later).
    """

    def __init__(self, least: float, most: float, share: float = 0.2) -> None:
        self.least, self.most, self.share = least, most, share
        self.last = time.monotonic()

    def again(self) -> None:
        """Something happened."""
        self.last = time.monotonic()

    def wait(self) -> None:
        time.sleep(min(self.most, max(self.least, self.share * (time.monotonic() - self.last))))


def pull_soon() -> None:
    """Have Flower ask again soon for what a message announced and has not uploaded yet, in this process.

    Who asks often sees a message before its parts are there. Flower then sleeps a second, which cannot be configured: on the way
    down and on the way up, it was most of an exchange. Where another version does it in another way, it is left as it is.
    """
    from flwr.supercore.inflatable import inflatable_utils

    defaults = getattr(getattr(inflatable_utils, "pull_objects", None), "__kwdefaults__", None) or {}
    if "initial_backoff" in defaults:
        defaults["initial_backoff"] = PULL_AGAIN
