"""What a party was asked, over all runs of a pact: whoever begins a new run goes on counting where the last one ended.

The server names the runs, so a limit for one run is none. In the party's folder, `askings/DIGEST.txt` has a line for every
question that was answered: a digest of its kind, and one of all that the answer depends on. The line is written before the
answer is computed. The same question again tells nothing new and is not counted: a run that is resumed, or begun again from
the same seed, repeats what was asked before.
"""

import fcntl
import hashlib
import os
import pathlib
from collections import Counter
from typing import Any

import jax
import numpy as np

from fedpact.deploy.policy import Policy
from fedpact.files import only_for_owner, private_folder

ASKINGS = "askings"  # in a party's folder


class Askings:
    """The questions that a party answered about one pact.

    - `folder`: the party's own. `digest`: of the pact. `policy`: says how many are answered; without a limit none is recorded.
    """

    def __init__(self, folder: pathlib.Path, digest: str, policy: Policy):
        self.file, self.policy = folder / ASKINGS / f"{digest}.txt", policy
        self._known: set[str] = set()
        self._count: Counter[str] = Counter()
        self._read = 0  # bytes of the file

    def admit(self, kind: str, content: Any, in_a_round: bool = False) -> None:
        """Record a question, or raise Refused where the policy allows no more of its kind.

        - `kind`: such as the name of an exchange; each kind is counted by itself.
        - `content`: a tree of arrays, numbers and strings: all that the answer depends on, the party's own state included.
        - `in_a_round`: as in `Policy.admit_exchange` (default: no).
        """
        if self.policy.max_rounds is None:
            return
        asked = hashlib.sha256(kind.encode()).hexdigest()[:16]
        line = f"{asked} {_digest(content)}"
        private_folder(self.file.parent)
        with open(self.file, "a+b", opener=only_for_owner) as log:
            fcntl.flock(log, fcntl.LOCK_EX)  # the processes of two jobs may answer at once
            log.seek(self._read)
            self._add(log.read().decode().splitlines())
            if line not in self._known:
                self.policy.admit_exchange(self._count[asked] + 1, in_a_round)
                log.write(f"\n{line}\n".encode())  # what an interrupted write left stands on a line of its own
                log.flush()
                os.fsync(log.fileno())
                self._add([line])
            self._read = log.seek(0, os.SEEK_END)

    def _add(self, lines: list[str]) -> None:
        new = {line for line in lines if line} - self._known
        self._known |= new
        self._count.update(line.partition(" ")[0] for line in new)


def _digest(content: Any) -> str:
    leaves, structure = jax.tree.flatten(content)
    out = hashlib.sha256(str(structure).encode())
    for leaf in leaves:
        array = np.asarray(leaf)
        out.update(f"{array.dtype}{array.shape}".encode())
        out.update(array.tobytes())
    return out.hexdigest()[:32]
