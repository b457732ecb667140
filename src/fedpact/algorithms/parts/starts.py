"""Several starts of one method: their states and messages, where they begin, and which one is the best."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from fedpact.protocol.algorithm import Answer, Begin, Goal, Info, Status
from fedpact.protocol.phases import ServerData
from fedpact.records import Record

SAME = 1e-9  # objectives that differ by less, relatively, are of the same optimum: the first of these starts wins

OnlyIf = Callable[[ServerData, Any], jax.Array]

# messages


class ForStarts(Record):
    """From the server in every round: which starts take part, and a message for each start (zeros where it does not)."""

    taking_part: jax.Array
    message: Any


class BestAnswer(Answer):
    """The answer of the best start.

    - `start`: its index, from 0.
    """

    start: jax.Array


class StartsInfo(Info):
    """The line of the best start so far.

    - `running`: how many starts still run.
    - `start`: which start the line is of, from 1.
    """

    running: jax.Array
    start: jax.Array


# states


class Starts(Record):
    """The server's state: that of every start, and how each of them stands."""

    inner: Any  # of each start
    begun: Any  # within a round: `inner` as it was before; else None
    status: jax.Array
    objective: jax.Array  # in each start's last round, as are the following
    violation: jax.Array
    stationarity: jax.Array
    goal: Goal

    @property
    def running(self) -> jax.Array:
        return self.status == int(Status.running)

    def taking_part(self, own: ServerData, only_if: OnlyIf | None) -> jax.Array:
        """The starts that still run and want the phase."""
        return self.running if only_if is None else self.running & jax.vmap(partial(only_if, own))(self.inner)

    @property
    def best(self) -> jax.Array:
        """The index of the best start so far."""
        return best_of(self.status, self.objective, self.violation, self.goal.feasibility)[0]

    @property
    def overall(self) -> jax.Array:
        """Running while any start runs, then the best one's status."""
        return best_of(self.status, self.objective, self.violation, self.goal.feasibility)[1]


@jax.jit
def best_of(
    status: jax.Array, objective: jax.Array, violation: jax.Array, feasibility: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The index of the best start, and the status of all of them together."""
    converged = status == int(Status.converged)
    lowest = jnp.min(jnp.where(converged, objective, jnp.inf))
    among_lowest = converged & (objective <= lowest + SAME * jnp.abs(lowest))
    lost = jnp.isnan(violation) | (status == int(Status.diverged))
    broken = jnp.where(violation <= feasibility, 0.0, violation)
    least_broken = jnp.lexsort((objective, jnp.where(lost, jnp.inf, broken)))[0]
    best = jnp.where(jnp.any(converged), jnp.argmax(among_lowest), least_broken)
    runs = jnp.any(status == int(Status.running))
    return best, jnp.where(runs, int(Status.running), status[best])


# where to start


def first_of(begin: Begin) -> Begin:
    """As if there were one start."""
    return begin if begin.w.ndim == 1 else dataclasses.replace(begin, w=begin.w[0])


def spread(begin: Begin, starts: int) -> Begin:
    """From one start to several: those of `w` where it has a row for each, else drawn around it. The first one is as it was."""
    key = jax.random.wrap_key_data(begin.key)
    keys = jnp.stack([begin.key, *(jax.random.key_data(jax.random.fold_in(key, k)) for k in range(1, starts))])
    w = begin.w
    if w.ndim == 1:
        w = jnp.stack(
            [w, *(w + _away(jax.random.fold_in(key, k // 2), w) * (-1.0) ** (k % 2) for k in range(2, starts + 1))]
        )
    return Begin(w, repeated(begin.goal, starts), keys)


def _away(key: jax.Array, w: jax.Array) -> jax.Array:
    return (1.0 + jnp.abs(w)) * jax.random.normal(key, w.shape, w.dtype)


def entered(inner: Any, goal: Goal, starts: int) -> Starts:
    """The server's state before the method's own opening."""
    unknown = jnp.full(starts, jnp.inf)
    return Starts(inner, None, jnp.full(starts, int(Status.running)), unknown, unknown, unknown, goal)


def repeated(tree: Any, starts: int) -> Any:
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (starts, *jnp.shape(leaf))), tree)


def where(chosen: jax.Array, yes: Any, no: Any) -> Any:
    """`yes` for the starts that are chosen, leaf by leaf."""

    def leaf(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(chosen.reshape(chosen.shape + (1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(leaf, yes, no)


def blank_unless(chosen: jax.Array, tree: Any) -> Any:
    return where(chosen, tree, jax.tree.map(jnp.zeros_like, tree))
