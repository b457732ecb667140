"""Disturb runs on FLARE and Flower again and again, resume them, and compare their results: `make soak`.

Server and sites of a federation are processes of this machine. What may happen to a run, at random:

    server, north           the server, or a party's site, is killed and started again
    north job               the process of a party's job is killed (FLARE)
    north saving            a process is killed when half of a file is saved; also the server's
    north full disk         a process cannot save for some seconds; also the server's
    north clock             the clock of a process jumps by an hour; also the server's
    north stall             nothing passes between a site and the server for a minute: a proxy on loopback
    north other data        a site is started again with other rows: refused, and resumed with the right ones

After each the run goes on, or has stopped with a sentence and is resumed. At the end its answer is compared with that of the
undisturbed run in one process.
"""

import argparse
import os
import pathlib
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
import pacts
from soak_engines import PATIENCE, OnFlare, OnFlower, SoakedRun, flare, flower

from fedpact.run.pact import Pact

TESTS = pathlib.Path(__file__).parent
PARTIES = ("north", "south", "west")
METHODS = ("SCAFFOLD", "PrimalDual", "SSCA rows", "PCFedAvg", "FedSGD columns")  # rows, personal models and columns
FAULTS = ("", " job", " saving", " full disk", " clock", " stall", " other data")  # of a party
AT_SERVER = ("", " saving", " full disk", " clock")
ROUNDS_A_FAULT = {"flare": 150, "flower": 6}
SAVE_SECONDS = {"flare": 0.5, "flower": 4.0}
JUMP = 3600.0  # seconds by which a clock jumps
WITHIN = 1e-10
RESUMED = 5  # times in a row


def pact(rounds: int, method: str = "SCAFFOLD", save: float = 0.5, root: pathlib.Path | None = None) -> str:
    """A pact of so many rounds that saves every `save` seconds; `root`: of the soak, where processes look for orders."""
    text = pacts.PACTS[method].replace("participation=0.67", "participation=1.0")
    text, count = re.subn(r"'max_rounds': \d+", f"'max_rounds': {rounds}", text)
    assert count == 1
    text = f"import fedpact.run.loop\n\nfedpact.run.loop.SAVE_SECONDS = {save}\n" + text
    if root is None:
        return text
    hooks = f"import sys\n\nsys.path.insert(0, {str(TESTS)!r})\nimport soak_faults\n\n"
    hooks += f"soak_faults.install({str(root / 'orders')!r}, {str(root / 'kits')!r})\n"
    rows = f"soak_faults.own_rows(_rows(party), party, {str(root / 'orders')!r})"
    return f"{hooks}{text}\n_rows = load\n\n\ndef load(party):\n    return {rows}\n"


def some_faults(count: int, chance: random.Random, engine: str) -> list[str]:
    """So many, at random: every kind equally often before any comes again."""
    kinds = [f"server{fault}" for fault in AT_SERVER]
    kinds += [f"{chance.choice(PARTIES)}{fault}" for fault in FAULTS if fault != " job" or engine == "flare"]
    found: list[str] = []
    while len(found) < count:
        found += chance.sample(kinds, len(kinds))
    return found[:count]


def disturbed(
    federation: Any, name: str, faults: Sequence[str], chance: random.Random, stall: float = 60.0, proxies: Any = None
) -> Iterator[str]:
    """Run the pact, let one fault after the other happen and resume where it stopped; a line for each, and for the end.

    A run that finishes before all have happened ends early.
    """
    on_flower = type(federation).__module__.startswith("fedpact.deploy.flower")
    run = OnFlower(federation, proxies) if on_flower else OnFlare(federation, name, proxies)
    run.begin(resume=False)
    for number, fault in enumerate(faults, 1):
        if resumed_until(run, run.goes_on) is not None:
            return
        rounds = run.saved_rounds()
        time.sleep(chance.uniform(0.0, 1.0))
        ended = happens(run, fault, stall)
        if ended is not None and ended[0]:
            return  # it finished before
        said = "went on" if ended is None else ended[1].splitlines()[0]
        yield f"fault {number} of {len(faults)}: {fault}, after round {rounds} was saved: {said}"
        if ended is not None:
            run.begin(resume=True)
    said = resumed_until(run, run.stopped)
    yield f"final result: {said.splitlines()[0] if said else ''}"


def resumed_until(run: SoakedRun, reached: Callable[[], tuple[bool, str] | None]) -> str | None:
    """Wait for it, and resume where the run stops before, as a site may need a minute to come back; what a finished run said.

    A run that stops so often is lost.
    """
    stops = []
    while len(stops) < RESUMED:
        ended = reached()
        if ended is None or ended[0]:
            return None if ended is None else ended[1]
        stops.append(ended[1])
        run.begin(resume=True)
    raise AssertionError(f"resumed {RESUMED} times, and stopped each time: {stops[-1]}")


def happens(run: SoakedRun, fault: str, stall: float) -> tuple[bool, str] | None:
    """Let a fault happen; how the run has ended by it, or None where it goes on."""
    who, _, kind = fault.partition(" ")
    orders = run.folder.parent / "orders"
    if kind == "":
        run.kill(who)
        return run.stopped()
    if kind == "job":
        run.kill_job(who)
        return run.stopped()
    if kind == "stall":
        run.proxies[who].stall(stall)
        time.sleep(stall)
        return run.goes_on()
    if kind == "other data":
        return _other_data(run, who, orders / fault)
    order = orders / fault
    order.write_text(str(JUMP))
    deadline = time.monotonic() + PATIENCE
    while order.exists():
        ended = run.ended()
        if ended is not None:
            order.unlink(missing_ok=True)
            return ended
        assert time.monotonic() < deadline, f"{who} saved nothing"
        time.sleep(0.05)
    if kind == "saving" and isinstance(run, OnFlower):
        run.stopped() if who == "server" else run.kill(who)  # its node has ended with it
    return run.goes_on()


def _other_data(run: SoakedRun, party: str, there: pathlib.Path) -> tuple[bool, str]:
    """A site comes back with other rows, is refused, and comes back with its own."""
    there.write_text("")
    try:
        run.kill(party)
        ended = run.stopped()
        if ended[0]:
            return ended
        run.begin(resume=True)
        finished, said = run.stopped()
        assert not finished, "a run went on with other rows"
        assert "rows" in said or "table" in said, said
        return finished, said
    finally:
        there.unlink()


def distance(kits: pathlib.Path, name: str) -> float:
    """How far the answer in the server's folder is from the undisturbed run's, in one process; over columns, those of parties."""
    flower_kit = (kits / "server" / "state").is_dir()
    folder = kits / "server" / ("state" if flower_kit else f"fedpact/{name}")
    stated = Pact(kits / "server" / ("pact.py" if flower_kit else f"local/{name}.py"))
    undisturbed: Any = stated.run(stated.tables())
    far = []
    shared = {leaf: value for leaf, value in undisturbed.params.items() if leaf not in stated.parties}
    if shared:
        with np.load(folder / "answer.npz") as saved:
            flat = np.concatenate([np.ravel(shared[leaf]) for leaf in sorted(shared)])
            far.append(np.max(np.abs(saved["w"] - flat)))
    for party in undisturbed.params.keys() & set(stated.parties):
        own = pacts.own(kits / party / ("state" if flower_kit else f"fedpact/{name}"))
        flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(undisturbed.params[party])])
        far.append(np.max(np.abs(own - flat)))
    return float(max(far))


def soak(engine: str, method: str, faults: list[str], seed: int, stall: float, rounds: int) -> dict[str, Any]:
    """One run after the other, of so many rounds a fault, until all faults have happened; what was seen."""
    lines, far, began = [], [], time.monotonic()
    chance, left = random.Random(seed), list(faults)
    while left:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "orders").mkdir()
            file = root / "soak.py"
            file.write_text(pact(rounds * (1 + len(left)), method, SAVE_SECONDS[engine], root))
            policy, environment = TESTS / "as_in_one_process.toml", {"HOME": folder}
            made = (
                flare(file, PARTIES, root / "kits", policy)
                if engine == "flare"
                else flower(file, PARTIES, root / "kits", policy, environment)
            )
            federation: Any = made[0]
            with federation:
                for line in disturbed(federation, "soak", left, chance, stall, made[1]):
                    print(f"{time.monotonic() - began:6.0f} s  {engine}, {method}: {line}", flush=True)
                    lines.append(line)
            done = sum(line.startswith("fault") for line in lines) - (len(faults) - len(left))
            left, rounds = left[done:], rounds if done else 4 * rounds
            far.append(distance(root / "kits", "soak"))
            print(f"the answer is {far[-1]:.1e} from the undisturbed run's", flush=True)
            assert far[-1] <= WITHIN
    return {
        "engine": engine, "method": method, "faults": faults, "lines": lines, "far": max(far, default=0.0),
        "seconds": time.monotonic() - began,
    }  # fmt: skip


def page(seen: Sequence[dict[str, Any]]) -> str:
    """docs/soak.md."""
    lines = [line for each in seen for line in each["lines"] if line.startswith("fault")]
    table: dict[tuple[str, str], dict[str, int]] = {}
    for each in seen:
        for line in each["lines"]:
            found = re.fullmatch(r"fault \d+ of \d+: (\w+)( [a-z ]+)?, after round \d+ was saved: (.*)", line)
            if found is None:
                continue
            who, kind, said = found.groups()
            kind = (kind or " killed").strip()
            what = f"{'the server' if who == 'server' else 'a party'}: {kind}"
            said = re.sub("'?(north|south|west)'?", "…", said)
            counts = table.setdefault((each["engine"], what), {})
            counts[said] = counts.get(said, 0) + 1
    rows = [
        f"| {engine} | {what} | {sum(said.values())} | {'; '.join(f'{n} x “{words}”' for words, n in said.items())} |"
        for (engine, what), said in sorted(table.items())
    ]
    ends = [
        f"| {each['engine']} | {each['method']} | {sum(x.startswith('fault') for x in each['lines'])} | {each['far']:.1e} | "
        f"{each['seconds']:.0f} |"
        for each in seen
    ]
    worst = max((each["far"] for each in seen), default=0.0)
    return "\n".join(
        [
            "# What runs survive",
            "",
            f"Written by `make soak` (`python tests/soak.py --kills {len(lines)} --page docs/soak.md`): {len(lines)} faults in "
            f"{len(seen)} runs on this machine, {len(lines)} recoveries; the worst answer is {worst:.1e} from that of the "
            "undisturbed run in one process. What each fault is, is in [tests/soak.py](../tests/soak.py).",
            "",
            "| engine | what happened | times | what the run said |",
            "|---|---|---|---|",
            *rows,
            "",
            "“went on”: the run did not stop. Every other sentence is that of a clean stop, after which the run was resumed.",
            "",
            "| engine | method | faults | answer differs by | seconds |",
            "|---|---|---|---|---|",
            *ends,
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="make soak", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100, help="faults in all")
    parser.add_argument("--engines", nargs="+", choices=("flare", "flower"), default=["flare", "flower"])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--faults", nargs="+", help='these in turn, such as "north saving" (default: at random)')
    parser.add_argument("--stall", type=float, default=60.0, help="seconds that the network stalls")
    parser.add_argument("--rounds", type=int, help=f"of a run for each fault (default: {ROUNDS_A_FAULT})")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--page", type=pathlib.Path, help="where to write the summary (default: nowhere)")
    args = parser.parse_args()
    chance = random.Random(args.seed)
    runs = [(engine, method) for method in args.methods for engine in args.engines][: args.kills]
    seen = []
    for number, (engine, method) in enumerate(runs):
        count = args.kills // len(runs) + (number < args.kills % len(runs))
        faults = (args.faults * count)[:count] if args.faults else some_faults(count, chance, engine)
        rounds = args.rounds or ROUNDS_A_FAULT[engine]
        seen.append(soak(engine, method, faults, args.seed + number, args.stall, rounds))
        if args.page is not None:
            args.page.write_text(page(seen))
    happened = sum(line.startswith("fault") for each in seen for line in each["lines"])
    print(f"{happened} faults, {happened} recoveries; the worst answer is {max(each['far'] for each in seen):.1e} away")


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    main()
