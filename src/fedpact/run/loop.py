"""A run under way: rounds until something ends them, saved and resumed, certified and handed out."""

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from fedpact import __about__
from fedpact.certificate import Certificate, certify, conflicting
from fedpact.federation.binding import Bound
from fedpact.federation.blocks import BoundColumns
from fedpact.federation.function_checks import not_finite
from fedpact.problem.shape import Shape
from fedpact.problem.statement import Problem
from fedpact.protocol.algorithm import Algorithm, Goal, PersonalAlgorithm, Status
from fedpact.protocol.options import check
from fedpact.run import drivers
from fedpact.run.checkpoint import Folder
from fedpact.run.history import History
from fedpact.run.progress import ProgressLine
from fedpact.run.result import Result
from fedpact.run.selection import title

CALL_SECONDS = 0.2  # how long one call of the chunked driver should take: between calls Ctrl-C is heard
SMALL = 1_000_000  # numbers: with less data than this, even the first call may do many rounds
SAVE_SECONDS = 10.0  # between two saves of a running run
CAUTION = 0.25  # methods aim at this part of the tolerance on constraints, whose violations add up in the parameters
COSTS = ("exchanges", "bytes_up", "bytes_down")
SHARPENINGS = 5  # how often a method is sent on with a stricter goal when the certificate does not confirm it

Driver = Literal["chunked", "fused", "stepwise"]


@dataclasses.dataclass
class Running:
    """A run under way: the only place where state changes."""

    bound: Bound | BoundColumns
    algorithm: Algorithm
    tolerance: float
    seed: int
    driver: Driver
    net: Any  # a Network

    def __post_init__(self) -> None:
        began = time.perf_counter()
        self.goal = goal_of(self.tolerance)
        self.server, self.parties = drivers.begin(self.algorithm, self.net, self.bound.start, self.goal, self.seed)
        state = self.net, self.server, self.parties
        if not drivers.met_before(self.algorithm, *state) and self.driver == "chunked":
            drivers.chunk(self.algorithm, *state, np.asarray(0))  # no round: compiles
        self.compile_seconds = time.perf_counter() - began
        self.seconds = 0.0
        self.history = History.empty()
        self.rounds = 0
        self.cost = drivers.Cost(0, 0, 0)
        self.sharpened = 0
        self.folder: Folder | None = None
        self.owner: dict[str, Any] = {}
        self.saved = time.monotonic()
        self.certificate: Certificate | None = None

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
            ("data", "other parties or rows"),
            ("algorithm", "another method or options"),
            ("start", "another starting point"),
            ("seed", "another seed"),
        ):
            if before.get(part) != owner[part]:
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
        self.parties = self.net.placed(parties)
        self.history = History(columns)
        self.rounds, self.seconds = before["rounds"], before["seconds"]
        self.cost = drivers.Cost(*(before.get(name, self.history.total(name)) for name in COSTS))
        self.sharpened = before["sharpened"]
        if before["tolerance"] != self.tolerance:
            self.server, self.sharpened = self.algorithm.aim(self.server, self.goal), 0

    def save_state(self) -> None:
        if self.folder is None:
            return
        told = {
            "rounds": self.rounds,
            "seconds": self.seconds,
            "tolerance": self.tolerance,
            "sharpened": self.sharpened,
            **{name: getattr(self.cost, name) for name in COSTS},
        }
        states = self.server, self.net.collected(self.parties)
        self.folder.save_state(states, dict(self.history), {**self.owner, **told})
        self.saved = time.monotonic()

    # rounds

    def go(self, max_rounds: int, line: ProgressLine, watch: Callable[[History], None] | None) -> Status:
        """Rounds until something ends them; the certificate has the last word on convergence."""
        try:
            while True:
                status = Status(int(self.algorithm.status(self.server)))
                if status == Status.converged:
                    if self.certify().holds(self.tolerance) or self.sharpened == SHARPENINGS:
                        return status
                    self.sharpened += 1
                    factor = 0.3**self.sharpened
                    stricter = Goal(factor * self.goal.stationarity, factor * self.goal.feasibility)
                    self.server = self.algorithm.aim(self.server, stricter)
                elif status != Status.running:
                    return status
                if self.rounds >= max_rounds:
                    return Status.max_rounds
                self.advance(max_rounds - self.rounds)
                line.say(self.told())
                if watch is not None:
                    watch(self.history)
                if self.net.agreed(int(time.monotonic() - self.saved > SAVE_SECONDS)):
                    self.save_state()
        except KeyboardInterrupt:
            return Status.stopped
        except BaseException:
            self.save_state()
            raise
        finally:
            line.say(self.told(), now=True)

    def advance(self, most: int) -> None:
        """One call of the driver."""
        began = time.perf_counter()
        lines = None
        if self.driver == "stepwise":
            server, parties, line = drivers.step(self.algorithm, self.net, self.server, self.parties)
            count, lines = 1, jax.tree.map(lambda leaf: np.asarray(leaf)[None], line)
            cost = line.cost
        elif self.driver == "fused":
            call = drivers.fused(self.algorithm, self.net, self.server, self.parties, np.asarray(most))
            server, parties, count, cost = call
        else:
            limit = self.net.agreed(min(most, drivers.CHUNK, self.rounds_per_call()))
            call = drivers.chunk(self.algorithm, self.net, self.server, self.parties, np.asarray(limit))
            server, parties, count, written = call
            lines = written.read(int(count))  # waits for the call to end
            cost = jax.tree.map(lambda column: column.sum(), lines.cost)
        count = int(count)  # the call has ended: from here on nothing can be lost
        history = self.history if lines is None else self.history.extended(lines, count, self.rounds)
        cost = jax.tree.map(lambda before, more: before + int(more), self.cost, cost)
        self.server, self.parties, self.certificate = server, parties, None
        self.history, self.cost = history, cost
        self.rounds += count
        self.seconds += time.perf_counter() - began

    def rounds_per_call(self) -> int:
        """As many rounds as take about CALL_SECONDS, by what they took so far."""
        if not self.rounds:
            return 8 if sum(leaf.size for leaf in jax.tree.leaves(self.net)) > SMALL else 64
        return max(1, int(CALL_SECONDS * self.rounds / max(self.seconds, 1e-6)))

    def told(self) -> str:
        if not len(self.history) or self.history["round"][-1] != self.rounds:
            return f"round {self.rounds}  {self.seconds:.1f} s"
        numbers = "  ".join(
            f"{name} {self.history.last(name):.3g}" for name in ("objective", "violation", "stationarity")
        )
        return f"round {self.rounds}  {numbers}  {self.seconds:.1f} s"

    # the end

    def certify(self) -> Certificate:
        answer, self.kept = drivers.conclude(self.algorithm, self.net, self.server, self.parties)
        self.certificate = certify(self.bound, self.net, self.kept, answer)
        self.answer = answer
        return self.certificate

    def found(self) -> "Found":
        """The answer as it is handed out."""
        w, bound = np.asarray(self.answer.w), self.bound
        if isinstance(bound, BoundColumns):
            blocks = {
                f"block {name}": np.asarray(block)
                for name, block in bound.by_name(self.net.collected(self.kept)).items()
            }
            return Found(w, bound.params(w, self.net.collected(self.kept)), blocks)
        if not bound.setting.personal:
            return Found(w, jax.tree.map(np.asarray, bound.shape.unravel(w)))
        assert isinstance(self.algorithm, PersonalAlgorithm)  # no other is begun with personal sets
        models = bound.by_name(self.net.collected(self.kept))
        w = np.mean([model.point for model in models.values()], axis=0)
        params, more = _own_models(models, bound.shape, w, self.algorithm.models == "each")
        return Found(w, params, {f"block {name}": model.point for name, model in models.items()}, more)

    def culprit(self) -> str | None:
        """Whose numbers are not finite, and what to do about it."""
        b = self.bound
        found = not_finite(b.oracles, b.server, b.order, b.names, b.start) if isinstance(b, Bound) else None
        return found and f"{found} at the start; make it finite there, or begin elsewhere with start="

    def result(self, problem: Problem, status: Status) -> Result:
        certificate = self.certificate or self.certify()
        if status in (Status.max_rounds, Status.stopped, Status.stalled) and certificate.holds(self.tolerance):
            status = Status.converged
        if status == Status.converged and not certificate.holds(self.tolerance):
            status = Status.stopped
        message = _sentence(status, certificate, self)
        found = self.found()
        result = Result(
            params=found.params,
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
            tolerance=float(self.tolerance),
            method=title(self.algorithm),
            parties=self.bound.names,
            problem=problem,
            **found.more,
        )
        if self.folder is not None:
            self.save_state()
            self.folder.save_answer(
                {
                    "w": found.w,
                    "party_multipliers": certificate.party_multipliers,
                    "server_multipliers": certificate.server_multipliers,
                    "pooled_multipliers": certificate.pooled_multipliers,
                    **found.blocks,
                },
                {
                    "fedpact": __about__.VERSION,
                    "problem": self.owner["problem"],
                    "status": status.name,
                    "message": message,
                    "tolerance": self.tolerance,
                    "method": result.method,
                    "parties": list(result.parties),
                    "rounds": self.rounds,
                    "objective": certificate.objective,
                    "stationarity": certificate.stationarity,
                    "feasibility": certificate.feasibility,
                    "complementarity": certificate.complementarity,
                },
            )
        return result


@dataclasses.dataclass(frozen=True)
class Found:
    """An answer: the flat parameters and their tree; by party what is its own, flat; and what a result tells besides."""

    w: np.ndarray
    params: Any
    blocks: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    more: dict[str, Any] = dataclasses.field(default_factory=dict)


def checked_limits(tolerance: Any, max_rounds: Any) -> tuple[float, int]:
    """As a user gave them."""
    check("solve", "tolerance", tolerance, lambda x: x > 0, "a positive number; 1e-4 is the default")
    check("solve", "max_rounds", max_rounds, lambda x: x >= 1, "a positive whole number", whole=True)
    return float(tolerance), int(max_rounds)


def goal_of(tolerance: float) -> Goal:
    """What a method aims at to be certified to a tolerance."""
    within: Any = (np.asarray(tolerance), np.asarray(CAUTION * tolerance))
    return Goal(*within)


def _own_models(models: dict[str, Any], shape: Shape, mean: np.ndarray, each: bool) -> tuple[Any, dict[str, Any]]:
    """The parameters to hand out: a tree for each party, or the one that all share; and what a result tells besides."""
    average = shape.unravel(mean)
    if not each:
        return average, {}
    return {name: shape.unravel(model.point) for name, model in models.items()}, {
        "average": average,
        "unprojected": {name: shape.unravel(model.block) for name, model in models.items()},
        "moved": {name: float(np.linalg.norm(model.block - model.point)) for name, model in models.items()},
    }


def _sentence(status: Status, certificate: Certificate, run: Running) -> str:
    numbers = (
        f"stationarity {certificate.stationarity:.1e}, feasibility {certificate.feasibility:.1e}, "
        f"complementarity {certificate.complementarity:.1e}"
    )
    if status == Status.converged:
        return f"every optimality condition holds to {run.tolerance:g} after {run.rounds} rounds"
    if status == Status.diverged or not math.isfinite(certificate.stationarity + certificate.feasibility):
        culprit = run.culprit()
        if culprit is not None:
            return culprit
    if status == Status.max_rounds:
        done = f"{run.rounds} rounds were allowed and done; {numbers}; more with max_rounds=, or save= and resume=True"
        broken = [r for r in certificate.constraints if max(r.violations) > run.tolerance]
        if not broken:
            return done
        worst = max(broken, key=lambda r: max(r.violations))
        at = int(np.argmax(worst.violations))
        place = f"{worst.values[at]:.6g} at {worst.holders[at]}, wanted {worst.bound}"
        return f"{done}. The best that was reached breaks {worst.name!r}: {place}"
    if status == Status.diverged:
        return (
            f"the iterates left every bound in round {run.rounds}: the objective may have no minimum (add a regulariser), "
            "or a function gave NaN"
        )
    if status == Status.stalled:
        return f"no step lowers the merit any more in round {run.rounds}; {numbers}; ask for less, or try fp.ProxAL()"
    if status == Status.infeasible:
        pulls = [
            f"{r.name!r} ({r.values[r.worst]:.3g} at {r.holders[r.worst]}, wanted {r.bound})"
            for r, _ in conflicting(certificate)[:4]
        ]
        h, w = run.bound.regularizer, run.answer.w
        if bool(jnp.any((w <= h.lower) | (w >= h.upper))):
            pulls.append("the box of the regulariser")
        radius = float(run.answer.empty_radius)
        where = f"within {radius:.1e} of here " if radius < 1e12 else ""
        return (
            f"no parameters {where}meet all constraints, if these are convex; they pull against each other: "
            f"{' and '.join(pulls)}; the least violation found is {_least(run.history):.3g}. Relax a bound, pool it, or drop it"
        )
    if certificate.holds(run.tolerance):
        return numbers
    word = "stopped by hand" if int(run.algorithm.status(run.server)) != Status.converged else "stopped unconfirmed"
    return f"{word} after {run.rounds} rounds; {numbers}"


def _least(history: History) -> float:
    return float(np.min(history["violation"])) if len(history) else math.nan
