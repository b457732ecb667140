"""A run under way: rounds until something ends them, saved and resumed, certified and handed out."""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import numpy as np

from fedpact import __about__
from fedpact.certificate import Certificate, ConstraintReport
from fedpact.problem.decision_rule import DecisionRule
from fedpact.problem.statement import Problem
from fedpact.protocol.algorithm import Goal, Method, Status
from fedpact.protocol.engine import RunNetwork
from fedpact.protocol.options import check
from fedpact.protocol.phases import Traffic
from fedpact.run import drivers, sentences
from fedpact.run.checkpoint import Folder
from fedpact.run.history import History
from fedpact.run.infeasible import impossible, out_of_range
from fedpact.run.progress import COMPILATION, ProgressLine
from fedpact.run.result import Result
from fedpact.run.saved_model import MODEL
from fedpact.settings.base import Bound
from fedpact.tolerance import Tolerance

SMALL = 1_000_000  # numbers: with less data than this, even the first call may do many rounds
SAVE_SECONDS = 10.0  # between two saves of a running run
COSTS = ("exchanges", "bytes_up", "bytes_down")
SHARPENINGS = 5  # how often a method is sent on with a stricter goal when the certificate does not confirm it

Driver = Literal["host", "chunked", "fused", "stepwise"]


@dataclasses.dataclass
class Run:
    """A run under way: the only place where state changes."""

    bound: Bound
    method: Method
    title: str  # of the method, in words
    tolerance: Tolerance
    seed: int
    driver: Driver | None
    network: RunNetwork

    def __post_init__(self) -> None:
        began = time.perf_counter()
        self.goal = goal_of(self.tolerance, self.method)
        self.driver = self.driver or ("host" if self.method.few_rounds else "chunked")
        if self.driver == "host":
            self.network = drivers.server_on_host(self.bound, self.method, self.network, self.goal, self.seed)
        self.own = drivers.server_data(self.bound, self.network)
        self.server, self.parties = drivers.begin(
            self.method, self.network, self.own, self.bound.start, self.goal, self.seed
        )
        if self.driver == "host":
            pass  # compiles with the first exchange
        elif not self.network.traced:
            self.driver = "stepwise"  # there is no program of many rounds
        elif not drivers.met_before((self.method, *drivers.kind_of(self._states))):
            drivers.rounds(self.method, *self._states, np.asarray(0))  # no round: compiles
        self.compile_seconds = time.perf_counter() - began  # and what is compiled within rounds
        self.seconds = 0.0
        self.history = History.empty()
        self.rounds = 0
        self.cost = Traffic()
        self.sharpened = 0
        self.folder: Folder | None = None
        self.owner: dict[str, Any] = {}
        self.saved = time.monotonic()
        self.certificate: Certificate | None = None

    @property
    def _states(self) -> tuple[Any, ...]:
        return self.network, self.own, self.server, self.parties

    # on disk

    def open(self, folder: Folder, owner: dict[str, Any], resume: bool) -> None:
        """Take a folder for this run, or go on with the run that it holds."""
        folder.check_room()
        self.folder, self.owner = folder, owner
        if not folder.holds_a_run:
            folder.check_free()
            return
        before = folder.owner()
        for part, words in (
            ("problem", "another problem"),
            ("recipe", "another recipe"),
            ("data", "other parties or rows"),
            ("algorithm", "another method or options"),
            ("start", "another starting point"),
            ("seed", "another seed"),
            ("secure", "sums that are secure, or not, as these are"),
        ):
            if before.get(part) != owner.get(part):
                raise ValueError(
                    f"{folder.path} holds a run of {words}; choose another folder for save=, nothing was touched"
                )
        if before.get("disclose") != owner["disclose"]:
            raise ValueError(
                f"{folder.path} holds a run with disclose={before.get('disclose')}; give the same to go on with it, or choose "
                "another folder for save=, nothing was touched"
            )
        if not resume:
            raise ValueError(
                f"{folder.path} holds {before['rounds']} rounds of this very run; go on with resume=True, or choose another "
                "folder for save="
            )
        (self.server, parties), columns = folder.load_state((self.server, self.parties))
        self.parties = self.network.place(parties)
        self.history = History(columns)
        self.rounds, self.seconds = before["rounds"], before["seconds"]
        self.cost = Traffic(*(before.get(name, self.history.total(name)) for name in COSTS))
        self.sharpened = before["sharpened"]
        if Tolerance.of(before["tolerance"]) != self.tolerance:
            self.server, self.sharpened = self.method.aim(self.server, self.goal), 0

    def save_state(self) -> None:
        if self.folder is None:
            return
        progress = {
            "rounds": self.rounds,
            "seconds": self.seconds,
            "tolerance": self.tolerance.given,
            "sharpened": self.sharpened,
            **{name: getattr(self.cost, name) for name in COSTS},
        }
        states = self.server, self.network.collect(self.parties)
        self.folder.save_state(states, dict(self.history), {**self.owner, **progress})
        self.saved = time.monotonic()

    # rounds

    def go(self, max_rounds: int, line: ProgressLine, watch: Callable[[History], None] | None) -> Status:
        """Rounds until something ends them; the certificate has the last word on convergence."""
        try:
            if not self.rounds and self.impossible():
                return Status.infeasible
            while True:
                status = Status(int(self.method.status(self.server)))
                if status == Status.converged:
                    if self.certify().holds(self.tolerance) or self.sharpened == SHARPENINGS:
                        return status
                    self.sharpened += 1
                    self.server = self.method.aim(self.server, stricter(self.goal, self.sharpened))
                elif status != Status.running:
                    return status
                if self.rounds >= max_rounds:
                    return Status.max_rounds
                with line.waiting("compiling ...") if not self.rounds else contextlib.nullcontext():
                    self.advance(max_rounds - self.rounds)
                line.say(self.summary())
                if watch is not None:
                    watch(self.history)
                if self.network.agree(int(time.monotonic() - self.saved > SAVE_SECONDS)):
                    self.save_state()
        except KeyboardInterrupt:
            return Status.stopped
        except BaseException:
            self.save_state()
            raise
        finally:
            line.say(self.summary(), now=True)

    def advance(self, most: int) -> None:
        """One call of the driver."""
        began, compiled = time.perf_counter(), COMPILATION.seconds
        limit = self.network.agree(min(most, self.rounds_per_call() if self.driver != "fused" else most))
        if self.network.traced:
            server, parties, done, cost, written = drivers.rounds(self.method, *self._states, np.asarray(limit))
            count = int(done)  # waits for the call to end
            lines = written.read(min(count, drivers.CHUNK))
        else:
            server, parties, count, lines = drivers.some_steps(limit, self.method, *self._states)
            cost = jax.tree.map(lambda column: column.sum(), lines.cost)
        # the call has ended: from here on nothing can be lost
        history = self.history if self.driver == "fused" else self.history.extended(lines, count, self.rounds)
        cost = jax.tree.map(lambda before, more: before + int(more), self.cost, cost)
        self.server, self.parties, self.certificate = server, parties, None
        self.history, self.cost = history, cost
        self.rounds += count
        passed = time.perf_counter() - began
        compiling = min(COMPILATION.seconds - compiled, passed)
        self.compile_seconds += compiling
        self.seconds += passed - compiling

    def rounds_per_call(self) -> int:
        """As many rounds as take about CALL_SECONDS, by what they took so far; all of their lines are recorded."""
        if self.driver == "stepwise":
            return 1
        if isinstance(self.network, drivers.ServerOnHost) and not self.network.network.traced:
            return 1  # parties may be far away: nothing that they did is lost
        if self.driver == "host" and not self.rounds:
            return 1  # which compiles
        if not self.rounds:
            return 8 if sum(leaf.size for leaf in jax.tree.leaves(self.bound.stacks)) > SMALL else 64
        return min(drivers.CHUNK, max(1, int(drivers.CALL_SECONDS * self.rounds / max(self.seconds, 1e-6))))

    def summary(self) -> str:
        if not len(self.history) or self.history["round"][-1] != self.rounds:
            return f"round {self.rounds}  {self.seconds:.1f} s"
        numbers = "  ".join(
            f"{name} {self.history.last(name):.3g}" for name in ("objective", "violation", "stationarity")
        )
        return f"round {self.rounds}  {numbers}  {self.seconds:.1f} s"

    # the end

    def certify(self) -> Certificate:
        phases = self.bound.conclusion(self.method)
        self.answer, self.kept = drivers.run_phases(phases, *self._states)
        self.measured = drivers.measure(self.bound, self.network, self.answer, self.kept)
        self.certificate = self.bound.certify(self.measured, self.answer)
        return self.certificate

    def impossible(self) -> tuple[ConstraintReport, ...]:
        """The constraints that no parameters meet, whatever a method would do."""
        stated = out_of_range(constraint for constraint, _, _ in self.bound.compiled.rows)
        if not stated or (self.certificate is None and self.bound.measured_once):
            return ()
        return impossible(self.certificate or self.certify(), stated, self.tolerance.feasibility)

    def kept_by_name(self) -> Mapping[str, Any] | None:
        """What each party keeps of the answer; None where that stays with the parties."""
        return self.bound.by_name(self.network.collect(self.kept))

    def culprit(self) -> str | None:
        """Whose numbers are not finite, and what to do about it."""
        where = self.bound.not_finite()
        return where and f"{where} at the start; make it finite there, or begin elsewhere with start="

    def result(self, problem: Problem, status: Status, features: Any = None, recipe: Any = None) -> Result:
        """What is handed back, and saved where the run has a folder. `features`, `recipe`: of the parties' tables."""
        certificate = self.certificate or self.certify()
        early = status in (Status.max_rounds, Status.stopped, Status.stalled)
        if early and certificate.holds(self.tolerance) and not self.method.promises_more(self.server):
            status = Status.converged
        if status == Status.converged and not certificate.holds(self.tolerance):
            status = Status.stopped
        message = _sentence(status, problem, certificate, self)
        answer = self.bound.hand_out(self.method, self.answer, self.measured, self.kept_by_name())
        result = Result(
            params=answer.params,
            status=status.name,
            message=message,
            certificate=certificate,
            history=self.history,
            rounds=self.rounds,
            exchanges=self.cost.exchanges,
            bytes_up=self.cost.bytes_up,
            bytes_down=self.cost.bytes_down,
            seconds=self.seconds,
            compile_seconds=self.compile_seconds,
            tolerance=self.tolerance.given,
            method=self.title,
            parties=self.bound.names,
            problem=problem,
            threshold=_threshold(problem, certificate),
            rows=self.bound.rows,
            ended=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            features=features,
            recipe=recipe,
            secure=self.bound.secure,
            **answer.more,
        )
        if self.folder is not None:
            self.save_state()
            starts = np.asarray(self.bound.start)
            first = starts[0] if starts.ndim > 1 else starts  # of several starts: where units are learnt
            self.folder.save_answer(
                {
                    "w": answer.w,
                    "party_multipliers": certificate.party_multipliers,
                    "server_multipliers": certificate.server_multipliers,
                    "pooled_multipliers": certificate.pooled_multipliers,
                    **({} if certificate.units is None else {"start": first}),
                    **_corrections(certificate),
                    **answer.blocks,
                },
                {
                    "fedpact": __about__.VERSION,
                    "problem": self.owner["problem"],
                    "status": status.name,
                    "message": message,
                    "tolerance": self.tolerance.given,
                    "method": result.method,
                    "parties": list(result.parties),
                    "rounds": self.rounds,
                    "objective": certificate.objective,
                    "stationarity": certificate.stationarity,
                    "feasibility": certificate.feasibility,
                    "complementarity": certificate.complementarity,
                },
            )
            result.save(self.folder.path / MODEL)
        return result


def _threshold(problem: Problem, certificate: Certificate) -> float | None:
    """Of decisions, where it was moved; None where it is the problem's own."""
    moved = certificate.stand_ins
    return (
        None
        if moved is None or not moved.threshold_shift
        else DecisionRule.of(problem).threshold + moved.threshold_shift
    )


def _corrections(certificate: Certificate) -> dict[str, np.ndarray]:
    moved = certificate.stand_ins
    if moved is None:
        return {}
    return {
        "party_corrections": moved.party,
        "server_corrections": moved.server,
        "pooled_corrections": moved.pooled,
        "threshold_shift": np.asarray(moved.threshold_shift),
    }


def checked_limits(tolerance: Any, max_rounds: Any) -> tuple[Tolerance, int]:
    """As a user gave them."""
    check("solve", "max_rounds", max_rounds, lambda x: x >= 1, "a positive whole number", whole=True)
    return Tolerance.of(tolerance), int(max_rounds)


def stricter(goal: Goal, times: int) -> Goal:
    """The goal after the certificate has not confirmed the method's own measure so many times."""
    factor = 0.3**times
    return Goal(factor * goal.stationarity, factor * goal.feasibility)


def goal_of(tolerance: Tolerance, method: Method) -> Goal:
    """What a method aims at to be certified to a tolerance."""
    within: Any = (np.asarray(tolerance.stationarity), np.asarray(method.caution * tolerance.feasibility))
    return Goal(*within)


def _sentence(status: Status, problem: Problem, certificate: Certificate, run: Run) -> str:
    if status == Status.converged:
        note = sentences.drift(run.answer, certificate, run.bound.shape)
        return f"{sentences.converged(certificate, run.tolerance)} after {run.rounds} rounds{note}"
    if status == Status.diverged or not math.isfinite(certificate.stationarity + certificate.feasibility):
        culprit = run.culprit()
        if culprit is not None:
            return culprit
    rows = dict(zip(run.bound.names, run.bound.rows, strict=True)) if run.bound.rows else {}
    fine = sentences.finer_than_a_row(certificate, problem, rows, int(run.own.functions.count))
    if status == Status.stalled:
        if certificate.broken_counts:
            return sentences.counts_not_met(certificate, run.rounds) + fine
        return sentences.stalled(certificate, run.rounds, run.tolerance.feasibility) + fine
    if status == Status.max_rounds:
        said = sentences.max_rounds(certificate, run.rounds, run.tolerance)
        return said + fine if certificate.broken_counts else said
    if status == Status.diverged:
        return sentences.diverged(certificate, run.answer, run.bound.shape, run.rounds, run.tolerance.stationarity)
    if status == Status.infeasible:
        never = run.impossible()
        if never:
            return sentences.impossible(never)
        least = sentences.least_violation(certificate.constraints)
        return sentences.infeasible(certificate, run.answer, problem, run.own.regularizer, least) + fine
    numbers = sentences.numbers_of(certificate)
    word = "stopped by hand" if int(run.method.status(run.server)) != Status.converged else "stopped unconfirmed"
    return f"{word} after {run.rounds} rounds; {numbers}"
