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
undisturbed run in one process. By default every method meets every kind of fault on both engines once.

Faults mostly wait: `--jobs 8` has eight runs side by side. Every run that has ended is a line of `--log`; the same command goes
on from there until all faults have happened. Remove the line of a run that failed once its cause is repaired.
"""

import argparse
import collections
import concurrent.futures
import json
import multiprocessing
import os
import pathlib
import random
import re
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import pacts
from soak_engines import PATIENCE, OnFlare, OnFlower, SoakedRun, flare, flower
from soak_page import kind_of, page

from fedpact.reproduce.provenance import commit
from fedpact.run.pact import Pact

TESTS = pathlib.Path(__file__).parent
PARTIES = ("north", "south", "west")
METHODS = ("SCAFFOLD", "PrimalDual", "SSCA rows", "PCFedAvg", "FedSGD columns")  # rows, personal models and columns
FAULTS = ("", " job", " saving", " full disk", " clock", " stall", " other data")  # of a party
AT_SERVER = ("", " saving", " full disk", " clock")
ROUNDS_A_FAULT = {"flare": 150, "flower": 4}
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


COMBINATIONS = len(METHODS) * (len(AT_SERVER) + len(FAULTS) + len(AT_SERVER) + len(FAULTS) - 1)  # no job on Flower


class Plan(NamedTuple):
    """One run of a soak."""

    engine: str
    method: str
    faults: list[str]
    seed: int


def kinds_on(engine: str) -> list[str]:
    """Every kind of fault that an engine's run may meet."""
    return [f"server{fault}" for fault in AT_SERVER] + [
        f"a party{fault}" for fault in FAULTS if fault != " job" or engine == "flare"
    ]


def plans(
    pairs: Sequence[tuple[str, str]],
    seen: Sequence[dict[str, Any]],
    *,
    each: int,
    seed: int,
    count: int | None = None,
    faults: Sequence[str] | None = None,
) -> list[Plan]:
    """The runs that are left to do.

    - `pairs`: engines and methods. `seen`: records of earlier runs; what happened in those that finished is not repeated.
    - `each`: faults of a run, at most. `seed`: of their order and of the parties that they happen to.
    - `count`: faults in all, shared out over the pairs, each kind before any comes again (default: None, each kind once).
    - `faults`: these in turn (default: None, all kinds).
    """
    found = []
    for number, (engine, method) in enumerate(pairs):
        chance = random.Random(f"{seed} {len(seen)} {engine} {method}")
        kinds = list(faults or kinds_on(engine))
        share = len(kinds) if count is None else count // len(pairs) + (number < count % len(pairs))
        happened = collections.Counter(
            kind_of(fault)
            for run in seen
            if (run["engine"], run["method"]) == (engine, method)
            for fault in run["faults"]
        )
        left = []
        for kind in (kinds * share)[:share]:
            if happened[kind_of(kind)]:
                happened[kind_of(kind)] -= 1
            else:
                left.append(kind.replace("a party", chance.choice(PARTIES)))
        if not faults:
            chance.shuffle(left)
        runs = -(-len(left) // each)
        found += [Plan(engine, method, left[run::runs], chance.randrange(1 << 30)) for run in range(runs)]
    return found


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
    said = resumed_until(run, run.finished)
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


def soak(plan: Plan, stall: float, rounds: int | None) -> dict[str, Any]:
    """One run after the other, of so many rounds a fault, until all faults have happened; what was seen, also where it failed."""
    lines: list[str] = []
    logs: dict[str, str] = {}
    far, failed, began = [], None, time.monotonic()
    try:
        for answer in _runs(plan, stall, rounds or ROUNDS_A_FAULT[plan.engine], lines, logs):
            far.append(answer)
            assert answer <= WITHIN, f"the answer is {answer:.1e} from the undisturbed run's"
    except Exception:
        failed = traceback.format_exc()
    seconds = round(time.monotonic() - began)
    record = {
        "engine": plan.engine,
        "method": plan.method,
        "seed": plan.seed,
        "commit": commit(),
        "seconds": seconds,
        "lines": lines,
    }
    if failed is not None:
        return {**record, "faults": [], "meant": plan.faults, "failed": failed, "logs": logs}
    return {**record, "faults": plan.faults, "far": max(far)}


def _runs(plan: Plan, stall: float, rounds: int, lines: list[str], logs: dict[str, str]) -> Iterator[float]:
    """Adds what happened to `lines`, and where it fails the ends of all logs to `logs`; how far each answer is from the
    undisturbed run's."""
    began, chance, left = time.monotonic(), random.Random(plan.seed), list(plan.faults)
    while left:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "orders").mkdir()
            file = root / "soak.py"
            file.write_text(pact(rounds * (1 + len(left)), plan.method, SAVE_SECONDS[plan.engine], root))
            policy, environment = TESTS / "as_in_one_process.toml", {"HOME": folder}
            made = (
                flare(file, PARTIES, root / "kits", policy)
                if plan.engine == "flare"
                else flower(file, PARTIES, root / "kits", policy, environment)
            )
            federation: Any = made[0]
            before = len(lines)
            try:
                with federation:
                    for line in disturbed(federation, "soak", left, chance, stall, made[1]):
                        print(f"{time.monotonic() - began:6.0f} s  {plan.engine}, {plan.method}: {line}", flush=True)
                        lines.append(line)
            except Exception:
                for log in (root / "kits").rglob("log*.txt"):
                    logs[str(log.relative_to(root))] = log.read_text(errors="replace")[-6000:]
                raise
            done = sum(line.startswith("fault") for line in lines[before:])
            left, rounds = left[done:], rounds if done else 4 * rounds
            yield distance(root / "kits", "soak")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="make soak", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--kills", type=int, help="faults in all (default: every kind once, for each method and engine)"
    )
    parser.add_argument("--engines", nargs="+", choices=("flare", "flower"), default=["flare", "flower"])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--faults", nargs="+", help='these in turn, such as "north saving" (default: at random)')
    parser.add_argument("--each", type=int, default=5, help="faults of a run, at most")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--stall", type=float, default=60.0, help="seconds that the network stalls")
    parser.add_argument("--rounds", type=int, help=f"of a run for each fault (default: {ROUNDS_A_FAULT})")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--log", type=pathlib.Path, help="records of runs, added to, and read at the beginning (default: none)"
    )
    parser.add_argument("--page", type=pathlib.Path, help="where to write the summary (default: nowhere)")
    args = parser.parse_args()
    seen = [json.loads(line) for line in args.log.read_text().splitlines()] if args.log and args.log.exists() else []
    pairs = [(engine, method) for method in args.methods for engine in args.engines]
    left = plans(pairs, seen, each=args.each, seed=args.seed, count=args.kills, faults=args.faults)
    apart = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(args.jobs, apart, max_tasks_per_child=1) as pool:
        running = [pool.submit(soak, plan, args.stall, args.rounds) for plan in left]
        for ended in concurrent.futures.as_completed(running):
            seen.append(ended.result())
            if "failed" in seen[-1]:
                print("\n".join([f"FAILED: {seen[-1]['engine']}, {seen[-1]['method']}", *seen[-1]["lines"]]))
                print(seen[-1]["failed"], flush=True)
            if args.log is not None:
                with args.log.open("a") as log:
                    log.write(json.dumps(seen[-1]) + "\n")
            if args.page is not None:
                args.page.write_text(page(seen, COMBINATIONS))
    if args.page is not None:
        args.page.write_text(page(seen, COMBINATIONS))
    good = [run for run in seen if "failed" not in run]
    happened, worst = sum(len(run["faults"]) for run in good), max((run["far"] for run in good), default=0.0)
    print(
        f"{happened} faults, {happened} recoveries; the worst answer is {worst:.1e} away; {len(seen) - len(good)} runs failed"
    )
    raise SystemExit(len(good) < len(seen))


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    main()
