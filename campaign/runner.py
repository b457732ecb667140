"""Worker processes, each with one problem at a time; results go to a file of JSON lines as they come."""

import dataclasses
import json
import multiprocessing
import os
import pathlib
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection, wait
from typing import Any

from campaign.statement import Case

LIMIT_SECONDS = 300.0  # for fedpact, and for the reference


@dataclasses.dataclass(frozen=True)
class Record:
    """One line of the file."""

    name: str
    family: str
    kind: str
    outcome: str
    why: str
    status: str
    message: str
    rounds: int
    seconds: float

    def line(self) -> str:
        return json.dumps(dataclasses.asdict(self))


def read(file: pathlib.Path) -> dict[str, Record]:
    """The records of a file, the last one of each problem; a line that was cut off is left out."""
    found = {}
    for line in file.read_text().splitlines() if file.is_file() else []:
        try:
            record = Record(**json.loads(line))
        except (ValueError, TypeError):
            continue
        found[record.name] = record
    return found


def attempt(
    case: Case,
    references: pathlib.Path | None = None,
    max_rounds: int = 500,
    ready: Callable[[], Any] = lambda: None,
) -> Record:
    """Run fedpact on a problem and judge it.

    - `references`: the folder where references are kept (default None: they are made without IPOPT and not kept).
    - `max_rounds`: of fedpact.
    - `ready`: called between the reference and the run.
    """
    from campaign.referee import Kept, refer
    from campaign.statement import flat
    from campaign.verdict import judge

    stated = case.make()
    reference = refer(stated, ipopt=False) if references is None else Kept(references).refer(case.name, stated)
    ready()
    began = time.perf_counter()
    try:
        result = stated.solve(max_rounds)
        w = flat(result.params)
    except Exception as error:  # whatever fedpact raises is a finding
        text = f"{type(error).__name__}: {error}"
        return _record(case, "error", text, "error", text, 0, time.perf_counter() - began)
    seconds = time.perf_counter() - began
    judged = judge(stated.formulas, reference, result.status, w)
    return _record(case, judged.outcome, judged.why, result.status, result.message, result.rounds, seconds)


def _record(case: Case, outcome: str, why: str, status: str, message: str, rounds: int, seconds: float) -> Record:
    return Record(case.name, case.family, case.kind, outcome, why, status, message, rounds, round(seconds, 2))


def _work(pipe: Connection, references: str, max_rounds: int, first_seed: int) -> None:
    """A worker: names come in, "ready" and records go out."""
    from campaign.families import problems

    cases = problems(first_seed)
    while (name := pipe.recv()) is not None:
        case = cases[name]
        try:
            record = attempt(case, pathlib.Path(references), max_rounds, lambda: pipe.send("ready"))
        except Exception as error:  # a mistake of the campaign's own
            record = _record(case, "unjudged", f"{type(error).__name__}: {error}", "", "the campaign failed", 0, 0.0)
        pipe.send(record)


class _Worker:
    def __init__(self, references: pathlib.Path, max_rounds: int, first_seed: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=_work, args=(theirs, str(references), max_rounds, first_seed), daemon=True
        )
        self.process.start()
        theirs.close()
        self.case: Case | None = None
        self.shape, self.since, self.solving = "", 0.0, False

    def give(self, case: Case) -> None:
        self.case, self.shape, self.since, self.solving = case, case.shape, time.monotonic(), False
        self.pipe.send(case.name)

    def late(self) -> bool:
        return self.case is not None and time.monotonic() - self.since > LIMIT_SECONDS

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def run(
    cases: Iterable[Case],
    references: pathlib.Path,
    max_rounds: int,
    workers: int,
    done: Callable[[Record], Any],
    first_seed: int = 0,
) -> None:
    """Run all cases, of `problems(first_seed)`; `done` gets each record as it comes. A worker keeps to one shape as long as there
    are cases of it."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    left: dict[str, list[Case]] = {}
    for case in cases:
        left.setdefault(case.shape, []).append(case)
    crew: list[_Worker] = []
    try:
        while left or any(worker.case for worker in crew):
            while left and len(crew) < workers:
                crew.append(_Worker(references, max_rounds, first_seed))
            for worker in crew:
                if worker.case is None and (case := _next(left, worker.shape, crew)):
                    worker.give(case)
            wait([worker.pipe for worker in crew if worker.case], timeout=1.0)
            for worker in list(crew):
                _hear(worker, crew, done)
    finally:
        for worker in crew:
            worker.end()


def _next(left: dict[str, list[Case]], shape: str, crew: list[_Worker]) -> Case | None:
    if not left:
        return None
    taken = {worker.shape for worker in crew if worker.case}
    free = [s for s in left if s not in taken] or list(left)
    chosen = shape if shape in left else free[0]
    case = left[chosen].pop(0)
    if not left[chosen]:
        del left[chosen]
    return case


def _hear(worker: _Worker, crew: list[_Worker], done: Callable[[Record], Any]) -> None:
    case = worker.case
    if case is None:
        return
    try:
        if worker.pipe.poll():
            heard = worker.pipe.recv()
            if isinstance(heard, Record):
                worker.case = None
                done(heard)
            else:
                worker.since, worker.solving = time.monotonic(), True
            return
    except (EOFError, OSError):
        text = f"the process ended with exit code {worker.process.exitcode}"
        done(_record(case, "error", text, "error", text, 0, time.monotonic() - worker.since))
        crew.remove(worker)
        worker.end()
        return
    if worker.late():
        outcome = "out of time" if worker.solving else "unjudged"
        text = "fedpact ran over the limit" if worker.solving else "the reference ran over the limit"
        done(_record(case, outcome, text, outcome, text, 0, LIMIT_SECONDS))
        crew.remove(worker)
        worker.end()
