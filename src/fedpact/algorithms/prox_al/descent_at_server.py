"""Solvers that run at the server on sums of the parties' derivatives of P_i: the frame that Newton and L-BFGS fill.

Where a subproblem is closed the next one begins, with other multipliers. Its gradient there is known, since the parties tell
by how much theirs would change. So its first trial is one step further, with the curvature of the last one; if the step leads
to a residual more than `LARGER` times the one it began with, times the growth of β, the next trial is where the last
subproblem was closed.
"""

import abc
import dataclasses
from typing import Any, ClassVar

import jax

from fedpact.algorithms.parts.descent import Walk, accepts, forward, shortened
from fedpact.algorithms.parts.multipliers import updated
from fedpact.algorithms.prox_al.inner import Inner, Progress
from fedpact.algorithms.prox_al.merit import Evaluation, Merit, ServerMerit
from fedpact.arrays import choose, cond, each, xp
from fedpact.problem.flat_regularizer import FlatRegularizer
from fedpact.problem.oracle import Values
from fedpact.records import Record

LARGER = 4.0  # times the residual that a subproblem begins with: the first trial has gone astray


class ExpectedMultipliers(Record):
    """To the parties with the trial point: they weigh the curvature of pooled constraints."""

    pooled_multipliers: jax.Array


class Search(Record):
    """The walk, what the solver remembers of it, the pooled multipliers expected at the trial, and how the next subproblem
    begins if this one is closed at the point evaluated last."""

    walk: Walk
    memory: Any
    nu: jax.Array
    onward: Walk


class DescentAtServer(Inner):
    """Each round evaluates one trial point; the server adds up the parties' ∇P_i (and ∇²P_i)."""

    needs_slacks: ClassVar[bool] = False
    prox_growth: ClassVar[float] = 30.0
    uses_hessian: ClassVar[bool]

    @abc.abstractmethod
    def empty_memory(self, w: jax.Array) -> Any:
        """An empty memory."""

    @abc.abstractmethod
    def reset(self, memory: Any) -> Any:
        """The memory after a walk that got stuck."""

    @abc.abstractmethod
    def reopened(self, memory: Any) -> Any:
        """The memory after multipliers or β have changed."""

    @abc.abstractmethod
    def extended(self, memory: Any, w: jax.Array, gradient: jax.Array) -> Any:
        """The memory with an accepted point."""

    @abc.abstractmethod
    def target(
        self, memory: Any, w: jax.Array, gradient: jax.Array, hessian: jax.Array | None, h: FlatRegularizer
    ) -> tuple[jax.Array, jax.Array]:
        """Where to go from w, and the slope predicted on the way."""

    def start(self, w: jax.Array, pooled: int) -> Search:
        return Search(Walk.at(w), self.empty_memory(w), xp.zeros(pooled), Walk.at(w))

    def join(self, w: jax.Array) -> None:
        del w

    def propose(self, state: Search, own: ServerMerit, tau: jax.Array) -> tuple[Search, jax.Array, ExpectedMultipliers]:
        return state, state.walk.trial, ExpectedMultipliers(state.nu)

    def answer(
        self, merit: Merit, state: None, point: jax.Array, message: ExpectedMultipliers, fresh: jax.Array
    ) -> tuple[None, Values, Evaluation]:
        values, evaluation = merit.evaluate(point, message.pooled_multipliers, self.uses_hessian)
        return None, values, evaluation

    def learn(
        self, state: Search, own: ServerMerit, point: jax.Array, sums: Evaluation, fresh: jax.Array
    ) -> tuple[Search, Progress]:
        mine, total = own.total(point, sums)
        h, walk = own.regularizer, state.walk
        value, residual = total.value + h.nonsmooth(point), h.distance(point, total.value_gradient)
        slope = total.value_gradient @ walk.direction + (h.nonsmooth(point) - h.nonsmooth(walk.w)) / walk.step
        first = ~xp.isfinite(walk.value)  # trial of a subproblem: there is no value to compare with
        lower = xp.where(first, residual <= walk.residual, accepts(walk, value, slope, residual))
        ok = lower & (xp.isfinite(value) | (first & xp.all(point == walk.w)))  # where it begins, it has to go on from
        centre, gamma = own.merit.centre, own.merit.gamma
        lagrangian = total.value_gradient - (point - centre) / gamma  # without the prox term around w^k

        def forth(memory: Any) -> tuple[Walk, Any, Walk]:
            memory = self.extended(memory, point, total.value_gradient)
            gradients = xp.stack([total.value_gradient, lagrangian + total.gradient_change])
            targets, slopes = each(lambda gradient: self.target(memory, point, gradient, total.hessian, h), gradients)
            begun = dataclasses.replace(Walk.at(point), residual=h.distance(point, gradients[1]), trial=targets[1])
            return forward(point, value, residual, targets[0], slopes[0]), memory, begun

        def back(memory: Any) -> tuple[Walk, Any, Walk]:
            direction, hessian = walk.direction, total.hessian
            curvature = None if hessian is None else direction @ hessian @ direction
            again = choose(first, Walk.at(walk.w), shortened(walk, value, slope, curvature))
            return again, memory, Walk.at(point)

        moved, memory, onward = cond(ok, forth, back, state.memory)
        ahead = total.pooled + total.pooled_jacobian @ (moved.trial - point)
        expected = updated(own.nu, own.merit.beta, ahead, own.merit.own.pooled_equality)
        progress = Progress(
            settled=ok | moved.stuck,
            exhausted=moved.stuck,
            residual=residual,
            stationarity=h.distance(point, lagrangian),
            objective=total.objective + h.nonsmooth(point),
            pooled=total.pooled,
            constraints=mine.constraints,
        )
        return Search(moved, memory, expected, onward), progress

    def reopen(self, state: Search, w: jax.Array, growth: jax.Array) -> Search:
        memory = choose(state.walk.stuck, self.reset(state.memory), self.reopened(state.memory))
        onward = dataclasses.replace(state.onward, residual=LARGER * growth * state.onward.residual)
        begun = choose(xp.all(state.onward.w == w), onward, Walk.at(w))
        return Search(begun, memory, state.nu, state.onward)
