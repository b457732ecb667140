"""Rounds outside of `fp.solve`, for figures: several seeds as one program, the iterates of every round, results on the way.

The same bound problems, methods and phases as in a run. Seeds and iterates go without the certificate and the history.
"""

import copy
import dataclasses
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpact.engines.local import LocalNetwork
from fedpact.federation.columns import ColumnParties
from fedpact.federation.rows import split_rows
from fedpact.precision import in_double
from fedpact.problem.statement import Problem
from fedpact.protocol.algorithm import Algorithm, Method, Status
from fedpact.run import drivers
from fedpact.run.loop import Run, goal_of
from fedpact.run.progress import ProgressLine
from fedpact.run.result import Result
from fedpact.run.saved_model import reads_features
from fedpact.settings import bind
from fedpact.tolerance import Tolerance


class Reached(NamedTuple):
    """After some rounds: the parameters of every seed, the bytes of one round, and the seconds so far, both of one seed."""

    rounds: int
    parameters: list[Any]
    bytes_per_round: float
    seconds: float


class Round(NamedTuple):
    """The server's state before and after a round, and the round's line in the history."""

    before: Any
    info: Any
    after: Any


class Seeds:
    """A problem over parties, with the first parameters of several seeds; methods run from all of them at once."""

    @in_double
    def __init__(self, problem: Problem, parties: Any, seeds: Sequence[int]):
        self.seeds, self.starts, self.blocks = tuple(seeds), [], []
        self.bound = bind(problem, parties, None, start=None, seed=self.seeds[0], disclose=False)
        small = _one_row_each(parties)  # the model's first parameters depend on the columns alone
        for seed in self.seeds:
            first = bind(problem, small, None, start=None, seed=seed, disclose=False)
            self.starts.append(first.start)
            self.blocks.append(tuple(getattr(stack, "start", None) for stack in first.stacks))

    def only_first(self) -> "Seeds":
        """The same with the first seed alone."""
        one = copy.copy(self)
        one.seeds, one.starts, one.blocks = self.seeds[:1], self.starts[:1], self.blocks[:1]
        return one

    def network(self, place: int) -> LocalNetwork:
        """With the blocks that this seed begins with, where columns are split."""
        stacks = tuple(
            stack if block is None else dataclasses.replace(stack, start=block)
            for stack, block in zip(self.bound.stacks, self.blocks[place], strict=True)
        )
        return LocalNetwork.of(dataclasses.replace(self.bound, stacks=stacks))

    def run(self, algorithm: Algorithm, marks: Sequence[int]) -> Iterator["Reached"]:
        """What was reached at each of these rounds."""
        method = algorithm.bind(self.bound.setting)
        (server, states), done, seconds = self._begun(method), 0, 0.0
        self._advanced(method, server, states, 0)  # compiles
        for mark in marks:
            began = time.perf_counter()
            server, states, sent = jax.block_until_ready(self._advanced(method, server, states, mark - done))
            seconds += time.perf_counter() - began
            done = mark
            yield Reached(mark, self._parameters(method, server, states), float(sent[0]), seconds / len(self.seeds))

    @in_double
    def _begun(self, method: Method) -> Any:
        goal, own = goal_of(Tolerance.of(1e-4), method), self.bound.server_data
        begun = [
            drivers.begin(method, self.network(place), own, start, goal, seed)
            for place, (seed, start) in enumerate(zip(self.seeds, self.starts, strict=True))
        ]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *begun)

    @in_double
    def _advanced(self, method: Method, server: Any, states: Any, count: int) -> Any:
        return _rounds(method, self.network(0), self.bound.server_data, server, states, jnp.asarray(count))

    @in_double
    def _parameters(self, method: Method, server: Any, states: Any) -> list[Any]:
        network, own, found = self.network(0), self.bound.server_data, []
        for place in range(len(self.seeds)):
            of_seed = jax.tree.map(lambda leaf, place=place: leaf[place], (server, states))
            answer, kept = drivers.run_phases(self.bound.conclusion(method), network, own, *of_seed)
            found.append(self.bound.hand_out(method, answer, None, self.bound.by_name(kept)).params)
        return found


@partial(jax.jit, static_argnums=0)
def _rounds(method: Method, network: Any, own: Any, server: Any, states: Any, count: jax.Array) -> Any:
    """`count` rounds of every seed, and the bytes of the last."""

    def once(server: Any, states: Any) -> Any:
        server, states, line = drivers.traced_round(method, network, own, server, states)
        return server, states, (line.cost.bytes_up + line.cost.bytes_down).astype(float)

    def more(_: Any, carry: Any) -> Any:
        return jax.vmap(once)(*carry[:2])

    nothing = jnp.zeros(jax.tree.leaves(server)[0].shape[0])
    return lax.fori_loop(0, count, more, (server, states, nothing))


def iterates(
    problem: Problem,
    parties: Any,
    algorithm: Algorithm,
    *,
    server: Any = None,
    start: Any = None,
    tolerance: Any = 1e-4,
    max_rounds: int = 10_000,
) -> Iterator["Round"]:
    """Every round until the method ends; parties disclose what they have to say in each."""
    with jax.enable_x64(True):
        bound = bind(problem, parties, server, start=start, seed=0, disclose=True)
        method, network, own = algorithm.bind(bound.setting), LocalNetwork.of(bound), bound.server_data
        state, states = drivers.begin(method, network, own, bound.start, goal_of(Tolerance.of(tolerance), method), 0)
    for _ in range(max_rounds):
        with jax.enable_x64(True):
            after, states, line = drivers.step(method, network, own, state, states)
        yield Round(state, line.info, after)
        state = after
        if int(method.status(state)) != Status.running:
            return


def results_at(
    problem: Problem, parties: Any, algorithm: Algorithm, marks: Sequence[int], seed: int
) -> Iterator[Result]:
    """The result of one run at each of these rounds, as if it were stopped there; the last one where the method ends before."""
    run: Run | None = None
    for mark in marks:
        with jax.enable_x64(True):
            if run is None:
                bound = bind(problem, parties, None, start=None, seed=seed, disclose=False)
                method, network = algorithm.bind(bound.setting), LocalNetwork.of(bound)
                run = Run(bound, method, type(algorithm).__name__, Tolerance.of(1e-4), seed, None, network)
            status = run.go(mark, ProgressLine(False), None)
            result = run.result(problem, status, parties.features if reads_features(problem) else None)
        yield result
        if status != Status.max_rounds:
            return


def _one_row_each(parties: Any) -> Any:
    tables = {name: parties[name].take(np.zeros(1, int)) for name in parties}
    return ColumnParties(tables, parties.active) if isinstance(parties, ColumnParties) else split_rows(tables)
