"""What a party's operator sees of a run, by `fedpact status` and in the log."""

import os
import time
from typing import Any

from fedpact.deploy.status import Status
from fedpact.run.saved_model import Outcome

PHASES = {
    "step": "rounds",
    "keep": "rounds",
    "count": "ending",
    "end": "ending",
}  # by the kind of a message; others: starting


class PartyStatus(Status):
    """The status of a party: which round it is asked about, how many messages and bytes, and why it refused or failed.

    The server's numbers, such as the violation, are not sent to the parties while a run lasts: nothing needs them there. The
    outcome at the end has those of the certificate.
    """

    def __init__(self, folder: str | os.PathLike[str], party: str, pact: str) -> None:
        super().__init__(folder, party, pact)
        self.say(f"ready, with pact {pact}", phase="waiting", messages=0, bytes_up=0, bytes_down=0)

    def asked(self, words: dict[str, Any], size: int) -> None:
        """What the words of a message, whatever they are, say of where the run is."""
        kind, run, number = str(words.get("kind"))[:16], str(words.get("run"))[:16], words.get("round")
        if kind == "enough":  # it comes while another message is at work
            return
        seen: dict[str, Any] = {
            "kind": kind,
            "run": run,
            "asked": time.time(),
            "awaited": [self.words["who"]],
            "messages": self.words["messages"] + 1,
            "bytes_down": self.words["bytes_down"] + size,
        }
        if self.words["phase"] == "failed":
            seen["reason"] = None
        if run != self.words.get("run"):
            seen |= {"messages": 1, "bytes_up": 0, "bytes_down": size, "round": None}
        if isinstance(number, int):
            seen["round"] = number
        phase = PHASES.get(kind, "starting")
        phase = self.words["phase"] if kind == "evaluate" else phase  # it comes after the end
        at = "" if seen.get("round") is None else f" of round {seen['round']}"
        self.say(f"asked for {kind!r}{at}", phase=phase, **seen)

    def answered(self, size: int) -> None:
        self.say(bytes_up=self.words["bytes_up"] + size, answered=time.time(), awaited=["server"])

    def refused(self, why: str) -> None:
        self.say(f"refused: {why}", phase="failed", reason=why)

    def ended(self, outcome: Outcome) -> None:
        numbers = {name: value for name, value in outcome.numbers.items() if value is not None}
        told = "  ".join(f"{name} {value:.1e}" for name, value in numbers.items())
        line = f"the run has ended: {outcome.status}  {told}"
        self.say(line, phase="ended", message=outcome.status, certificate=numbers)
