"""A round of SSCA against a plain PyTorch loop over parties with the same arithmetic, both in float64."""

import functools
import importlib
import importlib.util
import math
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fedpact as fp
from fedpact.algorithms.parts.batches import folded_key
from fedpact.engines.local import LocalNetwork
from fedpact.problem.oracle import derivatives
from fedpact.protocol.algorithm import Goal
from fedpact.protocol.sampling import draw
from fedpact.run import drivers
from fedpact.settings import bind

LIMIT, TAU, PENALTY = 0.13, 0.1, 1e5
RHO, GAMMA = fp.Decay(0.9, 0.3), fp.Decay(0.9, 0.35)
CELLS = ((10, 10), (10, 100), (100, 10), (100, 100))  # parties, rows drawn at each
ROUNDS = {100: 10, 1000: 3, 10_000: 2}  # timed at once, by the rows of a round: short, to fit between other jobs
REPEATS = 10
ALIKE = 1e-10  # relative: what two orders of summation may differ by
CHECKED = 3  # rounds


def measure() -> str:
    if importlib.util.find_spec("torch") is None:
        return "## Against a PyTorch loop\n\nNot measured: torch is not installed (`pip install torch==2.13.0`).\n"
    torch = importlib.import_module("torch")
    table, name = _images()
    default = torch.get_num_threads()
    counts = sorted({1, default})
    heads = [f"torch, {count} thread{'s' * (count > 1)}, ms" for count in counts]
    lines = [
        "## Against a PyTorch loop\n",
        f"A round of mini-batch SSCA on {name} ({table.rows:,} rows), rows split: the smallest network (784-128-10, swish, no "
        f"bias) with a mean cost of at most {LIMIT}. The loop is PyTorch {torch.__version__}, eager: it goes over the parties, "
        "draws rows of each (`randint`, cheaper than `randperm`), takes the gradient by autograd, adds it up, folds it into the "
        "surrogate and moves by Lemma 1. fedpact: the default driver after compiling, history kept, nothing measured on all "
        f"rows. Both in float64. A round's wall-clock time, best of {REPEATS}, alternating; the ratio is to the faster torch. "
        "Processor time is that of all threads, median, torch with 1 thread: other jobs on the machine disturb it little. On the "
        f"same rows both give the same gradient, and the same parameters after {CHECKED} rounds, to {ALIKE:g}. "
        "Where the ratio of processor times is 1, both spend theirs in the same matrix products.\n",
        f"| parties | rows of each | {' | '.join(heads)} | fedpact, ms | times as fast "
        "| torch, processor ms | fedpact, processor ms | ratio |",
        "|---|---|" + "---|" * (len(counts) + 5),
    ]
    for parties, batch in CELLS:
        cell = _Cell(torch, table, parties, batch)
        cell.check()
        *theirs, ours = cell.times(counts)
        torch.set_num_threads(default)
        walls, fastest = [f"{t.wall:.2f}" for t in theirs], min(t.wall for t in theirs)
        one = theirs[0].processor
        lines.append(
            f"| {parties} | {batch} | {' | '.join(walls)} | {ours.wall:.2f} | {fastest / ours.wall:.1f} "
            f"| {one:.2f} | {ours.processor:.2f} | {one / ours.processor:.1f} |"
        )
    return "\n".join(lines) + "\n"


def _images() -> tuple[fp.Table, str]:
    """MNIST, or noise of its shape where there is none and none can be had."""
    try:
        return fp.datasets.mnist()[0], "MNIST"
    except FileNotFoundError:  # what a round takes does not depend on what the images show
        rng = np.random.default_rng(0)
        return fp.Table(
            x=rng.random((60_000, 784), np.float32), y=rng.integers(0, 10, 60_000)
        ), "noise of MNIST's shape"


class _Cell:
    """One federation and one size of batches, on both sides."""

    def __init__(self, torch: Any, table: fp.Table, parties: int, batch: int):
        self.batch = batch
        split = fp.split_rows(table, parties=parties, seed=0)
        net = fp.mlp([784, 128, 10], activation=jax.nn.swish, bias=False)
        cost = fp.mean(fp.softmax_loss(net)).pooled()
        problem = fp.minimize(fp.value(fp.squared_norm), subject_to=[cost <= LIMIT])
        method = fp.SSCA(batch, rho=RHO, gamma=GAMMA, tau=TAU, penalty=PENALTY, measure=None)
        with jax.enable_x64(True):
            self.bound = bind(problem, split)
            self.method = method.bind(self.bound.setting)
            self.parties = LocalNetwork.of(self.bound), self.bound.server_data
            goal = Goal(jnp.asarray(0.0), jnp.asarray(0.0))
            self.state = drivers.begin(self.method, *self.parties, self.bound.start, goal, 0)
        start = [np.array(self.bound.shape.unravel(self.bound.start)[name]) for name in ("w1", "w2")]
        self.loop = Loop(torch, [split[name] for name in split], start, batch)
        self.rounds = ROUNDS[parties * batch]

    def run(self, rounds: int) -> np.ndarray:
        """fedpact's parameters after so many rounds."""
        with jax.enable_x64(True):
            server, *_ = drivers.rounds(self.method, *self.parties, *self.state, np.asarray(rounds))
            return np.asarray(server.w)

    def check(self) -> None:
        """On the rows that fedpact draws, both sides compute the same."""
        first, loop = self.drawn(1), self.loop
        with jax.enable_x64(True):
            own = jax.tree.map(lambda leaf: leaf[0], self.bound.stacks[0])
            sampled = own.sample(jnp.asarray(first[0]), own.count / self.batch)
            ours = np.asarray(derivatives(sampled, self.bound.start)[1].pooled[0])
        theirs = loop.flat(loop.gradient(0, loop.torch.as_tensor(first[0]))[1])
        assert _apart(ours, theirs) <= ALIKE, "the gradients on one batch differ"
        for t in range(1, CHECKED + 1):
            loop.round([loop.torch.as_tensor(places) for places in self.drawn(t)])
        assert _apart(self.run(CHECKED), loop.flat(loop.w)) <= ALIKE, f"the parameters after {CHECKED} rounds differ"

    def drawn(self, t: int) -> list[np.ndarray]:
        """The rows that fedpact draws at each party in round t."""
        with jax.enable_x64(True):
            key = folded_key(jax.random.key_data(jax.random.key(0)), t)
            numbers = enumerate(self.bound.rows)
            return [np.array(draw(folded_key(key, i), jnp.asarray(n), self.batch), np.int64) for i, n in numbers]

    def times(self, counts: list[int]) -> "list[Time]":
        """Of torch with each number of threads, then of fedpact."""

        def looped(threads: int, rounds: int) -> None:
            self.loop.torch.set_num_threads(threads)
            for _ in range(rounds):
                self.loop.round()

        runs: list[Callable[[int], Any]] = [functools.partial(looped, count) for count in counts]
        runs.append(self.run)
        seen: list[list[Time]] = [[] for _ in runs]
        for run in runs:
            run(CHECKED)
        for _ in range(REPEATS):
            for run, times in zip(runs, seen, strict=True):
                wall, processor = time.perf_counter(), time.process_time()
                run(self.rounds)
                wall, processor = time.perf_counter() - wall, time.process_time() - processor
                times.append(Time(1e3 * wall / self.rounds, 1e3 * processor / self.rounds))
        return [Time(min(t.wall for t in times), statistics.median(t.processor for t in times)) for times in seen]


class Time(NamedTuple):
    """Of a round, in ms."""

    wall: float
    processor: float


class Loop:
    """Algorithm 2 of the SSCA paper as one would write it in PyTorch."""

    def __init__(self, torch: Any, tables: list[fp.Table], start: list[np.ndarray], batch: int):
        self.torch, self.batch = torch, batch
        self.x = [torch.tensor(table["x"], dtype=torch.float64) for table in tables]
        self.y = [torch.tensor(table["y"]) for table in tables]
        self.total = sum(table.rows for table in tables)
        self.w = [torch.tensor(leaf, dtype=torch.float64, requires_grad=True) for leaf in start]
        self.slopes = [torch.zeros_like(leaf) for leaf in self.w]
        self.constant = 0.0
        self.t = 1

    def gradient(self, party: int, places: Any) -> tuple[Any, tuple[Any, ...]]:
        """A party's part of the mean cost, and its gradient, on some of its rows."""
        torch = self.torch
        x, y = self.x[party][places], self.y[party][places]
        scores = torch.nn.functional.silu(x @ self.w[0]) @ self.w[1]
        cost = torch.nn.functional.cross_entropy(scores, y, reduction="sum")
        cost = cost * (len(self.x[party]) / (self.batch * self.total))
        return cost.detach(), torch.autograd.grad(cost, self.w)

    def round(self, drawn: list[Any] | None = None) -> None:
        torch = self.torch
        value, gradients = -LIMIT, [torch.zeros_like(leaf) for leaf in self.w]
        for party, x in enumerate(self.x):
            places = torch.randint(len(x), (self.batch,)) if drawn is None else drawn[party]
            cost, sent = self.gradient(party, places)
            value = value + cost
            for gradient, part in zip(gradients, sent, strict=True):
                gradient += part
        with torch.no_grad():
            self.move(float(value), gradients)

    def move(self, value: float, gradients: list[Any]) -> None:
        """The surrogate, its minimiser by Lemma 1, and the step there."""
        rho, gamma = (min(scale / self.t**power, 1.0) for scale, power in (_numbers(RHO), _numbers(GAMMA)))
        along, norm = self.dot(gradients, self.w), self.dot(self.w, self.w)
        self.constant = (1 - rho) * self.constant + rho * (value - along + TAU * norm)
        for a, g, w in zip(self.slopes, gradients, self.w, strict=True):
            a.mul_(1 - rho).add_(g, alpha=rho).add_(w, alpha=-2 * rho * TAU)
        square = self.dot(self.slopes, self.slopes)
        root = square - 4 * TAU * self.constant
        nu = min(max((math.sqrt(square / root) - 1) / TAU, 0.0), PENALTY) if root > 0 else PENALTY
        for a, w in zip(self.slopes, self.w, strict=True):
            w.mul_(1 - gamma).add_(a, alpha=-gamma * nu / (2 * (1 + nu * TAU)))
        self.t += 1

    def dot(self, left: list[Any], right: list[Any]) -> float:
        return sum(float(a.reshape(-1) @ b.reshape(-1)) for a, b in zip(left, right, strict=True))

    def flat(self, leaves: Any) -> np.ndarray:
        return np.concatenate([leaf.detach().numpy().ravel() for leaf in leaves])


def _numbers(schedule: fp.Decay) -> tuple[float, float]:
    return float(schedule.scale), float(schedule.power)


def _apart(ours: np.ndarray, theirs: np.ndarray) -> float:
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(ours))
