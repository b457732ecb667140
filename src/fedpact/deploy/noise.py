"""A party's noise in a deployed run with `fp.DifferentialPrivacy`: drawn by itself, for every answer anew, and accounted.

The server asks, and names the version of the party's state that it means. So noise that belonged to a version could be asked for
twice, and be subtracted: it is drawn when a question comes, from the operating system's generator, and kept nowhere. What was
told is written down first, in the party's folder, for all runs of the pact together, whoever begins them:

privacy.json   by the pact's digest, how many rounds and how many certificates were told
"""

import dataclasses
import json
import math
import pathlib
from collections import Counter
from typing import Any

import jax
import numpy as np

from fedpact.deploy.policy import Policy
from fedpact.engines.serialization import Refused
from fedpact.files import private_folder, write
from fedpact.privacy.differential import CERTIFICATE
from fedpact.problem.oracle import Oracle
from fedpact.problem.private_oracle import PrivateOracle
from fedpact.run.private import PrivateRun
from fedpact.settings.base import Bound

LEDGER = "privacy.json"
MOST = {"round": 0, "certificate": 1}  # of a run; rounds as planned


class OwnNoise:
    """What a party adds to its answers in one run.

    - `private`: the pact's, with the rounds that it plans. `bound`: the problem, over all parties.
    - `folder`: the party's own. `digest`: of the pact. `policy`: may limit ε.
    """

    def __init__(self, private: PrivateRun, bound: Bound, folder: pathlib.Path, digest: str, policy: Policy) -> None:
        self.private, self.policy, self.digest, self.file = private, policy, digest, folder / LEDGER
        self.parties, self.rows = len(bound.names), sum(bound.rows)
        self.shape = (1 + bound.setting.pooled, 1 + bound.setting.size)
        self.most = {**MOST, "round": private.rounds}
        self.told: Counter[str] = Counter()  # in this run
        self.multiplier = private.privacy.multiplier(private.rounds)
        policy.admit_noise(private.privacy.epsilon, private.privacy.delta, self.multiplier)
        self._admit(self._ledger() + Counter({"round": 1, "certificate": 1}))

    def behind(self, own: Oracle) -> PrivateOracle:
        """The party's rows, of which nothing can be told but with noise, and no noise yet."""
        nothing = np.full((1, *self.shape), np.nan)
        limit = np.asarray(self.private.privacy.limit(self.rows))
        limit, nothing = jax.device_put((limit, nothing))
        return PrivateOracle(own, limit, nothing, self.private.rounds + 1)

    def fresh(self, own: PrivateOracle, part: str) -> PrivateOracle:
        """The same with noise for one answer, which is accounted before it is drawn. `part`: of a run, as of an exchange."""
        if part not in self.most:
            return own
        if self.told[part] >= self.most[part]:
            raise Refused(
                f"it has told {self.told[part]} noisy answers for a {part} in this run, as many as its noise is planned for"
            )
        ledger = self._ledger() + Counter({part: 1})
        self._admit(ledger)
        self.told[part] += 1
        private_folder(self.file.parent)
        write(self.file, json.dumps({**self._all(), self.digest: dict(ledger)}).encode())
        privacy, last = self.private.privacy, part == "certificate"
        noise = privacy.drawn_once(self.multiplier, self.rows, self.parties, self.shape, last)
        return dataclasses.replace(own, noise=jax.device_put(noise[None]))

    def spent(self, ledger: Counter[str]) -> float:
        """ε of all that was told of this pact."""
        releases = ledger["round"] + CERTIFICATE * ledger["certificate"]
        return self.private.privacy.epsilon_of(self.multiplier, releases)

    def _admit(self, ledger: Counter[str]) -> None:
        if self.policy.max_epsilon is None:
            return
        spent = self.spent(ledger)
        if spent > self.policy.max_epsilon * (1 + 1e-9) or not math.isfinite(spent):
            raise Refused(
                f"its policy allows ε = {self.policy.max_epsilon:g} over all runs of this pact, and with this answer it would "
                f"have spent {spent:.4g}"
            )

    def _ledger(self) -> Counter[str]:
        return Counter(self._all().get(self.digest, {}))

    def _all(self) -> dict[str, Any]:
        return json.loads(self.file.read_text()) if self.file.exists() else {}
