"""How often Flower is asked whether there is something new: often after something was, seldom after a long silence.

Every request costs the superlink some 10 ms, whether or not it brings anything.
"""

import time


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
