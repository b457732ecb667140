"""Kill the server, a site or a job again and again, resume the run each time, and compare its result: `make soak`.

The kits of a federation on NVIDIA FLARE, as processes of this machine. Who is killed: a party's site, the process of a party's
job alone, or the server. What a party holds between rounds (SCAFFOLD's control variates) is on its own disk only.
"""

import argparse
import json
import os
import pathlib
import random
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence

import numpy as np
import pacts

from fedpact.deploy.flare.job import write_job
from fedpact.deploy.flare.kit import write_kit
from fedpact.deploy.flare.local_run import LocalFederation
from fedpact.deploy.this_machine import free_port
from fedpact.run.pact import Pact

PARTIES = ("north", "south", "west")
ROUNDS = "'max_rounds': 12"
WAIT = 30.0  # seconds for a reply
STARTING = 120.0  # seconds until a run has saved something


def pact(rounds: int) -> str:
    """A pact of so many rounds that saves every half second."""
    text = pacts.PACTS["SCAFFOLD"].replace("participation=0.67", "participation=1.0")
    assert ROUNDS in text
    often = "import fedpact.run.loop\n\nfedpact.run.loop.SAVE_SECONDS = 0.5\n"
    return often + text.replace(ROUNDS, f"'max_rounds': {rounds}")


def disturbed(federation: LocalFederation, name: str, victims: Sequence[str], chance: random.Random) -> Iterator[str]:
    """Run the pact, kill one victim after the other and resume after each; yields a line for each, and for the end.

    A victim is "server", a party, or a party with " job": then only the process of the party's job is killed.
    """
    state = federation.folder / "server" / "fedpact" / name / "state.npz"
    job = _submit(federation, name, 0)
    for number, victim in enumerate(victims, 1):
        rounds = _saved_since(state, time.time())
        time.sleep(chance.uniform(0.0, 1.0))
        who = victim.removesuffix(" job")
        if victim.endswith(" job"):
            for process in federation.jobs_of(who):
                os.kill(process, signal.SIGKILL)
        else:
            federation.kill(who)
            federation.start(who)
            federation.connect()
        if who == "server":
            message = "the server was restarted"
        else:
            result = federation.wait(job, timeout=240.0)
            assert not result.finished, f"the run had ended before {victim} was killed"
            message = result.pacts[name]["message"]
        yield f"kill {number} of {len(victims)}: {victim}, after round {rounds} was saved: {message}"
        job = _submit(federation, name, number)
    result = federation.wait(job, timeout=600.0)
    assert result.finished, str(result)
    yield f"final result: {result.pacts[name]['message'].splitlines()[0]}"


def _submit(federation: LocalFederation, name: str, number: int) -> str:
    folder = federation.folder.parent / f"{name}-{number}"
    return federation.submit(write_job(folder, [name], PARTIES, resume=number > 0, wait=WAIT))


def _saved_since(state: pathlib.Path, began: float) -> int:
    """Wait until the run has saved something, and say after how many rounds."""
    deadline = time.monotonic() + STARTING
    while not state.exists() or state.stat().st_mtime < began:
        assert time.monotonic() < deadline, "the run saved nothing"
        time.sleep(0.05)
    with np.load(state) as saved:
        return int(json.loads(saved["owner"].tobytes())["rounds"])


def distance(kits: pathlib.Path, name: str) -> float:
    """How far the answer in the server's folder is from the undisturbed run's, in one process."""
    stated = Pact(kits / "server" / "local" / f"{name}.py")
    undisturbed = stated.run(stated.tables())
    with np.load(kits / "server" / "fedpact" / name / "answer.npz") as saved:
        w = saved["w"]
    flat = np.concatenate([np.ravel(undisturbed.params[leaf]) for leaf in sorted(undisturbed.params)])
    return float(np.max(np.abs(w - flat)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3000, help="of the run")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    chance = random.Random(args.seed)
    victims = [chance.choice(["server", *PARTIES, *(f"{party} job" for party in PARTIES)]) for _ in range(args.kills)]
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        file, kits = root / "soak.py", root / "kits"
        file.write_text(pact(args.rounds))
        policy = pathlib.Path(__file__).parent / "as_in_one_process.toml"
        write_kit(file, PARTIES, kits, port=free_port(), wait=WAIT, policy=policy, lost_after=10.0)
        began = time.monotonic()
        with LocalFederation(kits, PARTIES, {"HOME": folder}) as federation:
            for line in disturbed(federation, "soak", victims, chance):
                print(f"{time.monotonic() - began:6.0f} s  {line}", flush=True)
        far = distance(kits, "soak")
    print(f"{args.kills} kills, {args.kills} recoveries; the answer is {far:.1e} from the undisturbed run's")
    assert far <= 1e-10


if __name__ == "__main__":
    main()
