"""Solvers that run at the server on sums of the parties' derivatives of P_i: the frame that Newton and L-BFGS fill."""

import abc
from typing import Any, ClassVar

import jax

from fedpact.algorithms.parts.descent import Walk, accepts, forward, shortened
from fedpact.algorithms.parts.multipliers import updated
from fedpact.algorithms.prox_al.inner import Inner, Progress
from fedpact.algorithms.prox_al.merit import Evaluation, Merit, ServerMerit
from fedpact.arrays import choose, cond, xp
from fedpact.problem.flat_regularizer import FlatRegularizer
from fedpact.problem.oracle import Values
from fedpact.records import Record


class ExpectedMultipliers(Record):
    """To the parties with the trial point: they weigh the curvature of pooled constraints."""

    pooled_multipliers: jax.Array


class Search(Record):
    """The walk, what the solver remembers of it, and the pooled multipliers expected at the trial."""

    walk: Walk
    memory: Any
    nu: jax.Array


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
        """The memory after the function has changed by more than a shift of multipliers."""

    @abc.abstractmethod
    def reopened(self, memory: Any) -> Any:
        """The memory after the multipliers have changed."""

    @abc.abstractmethod
    def direction(
        self, memory: Any, w: jax.Array, gradient: jax.Array, hessian: jax.Array | None, h: FlatRegularizer
    ) -> tuple[Any, jax.Array, jax.Array]:
        """From an accepted point: the new memory, where to go, and the slope predicted on the way."""

    def start(self, w: jax.Array, pooled: int) -> Search:
        return Search(Walk.at(w), self.empty_memory(w), xp.zeros(pooled))

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
        value, residual = total.value + h.nonsmooth(point), h.distance(point, total.gradient)
        slope = total.gradient @ walk.direction + (h.nonsmooth(point) - h.nonsmooth(walk.w)) / walk.step
        ok = accepts(walk, value, slope, residual) | fresh

        def onward(memory: Any) -> tuple[Walk, Any]:
            memory, target, slope = self.direction(memory, point, total.gradient, total.hessian, h)
            return forward(point, value, residual, target, slope), memory

        def back(memory: Any) -> tuple[Walk, Any]:
            direction, hessian = walk.direction, total.hessian
            curvature = None if hessian is None else direction @ hessian @ direction
            return shortened(walk, value, slope, curvature), memory

        moved, memory = cond(ok, onward, back, state.memory)
        ahead = total.pooled + total.pooled_jacobian @ (moved.trial - point)
        expected = updated(own.nu, own.merit.beta, ahead, own.merit.own.pooled_equality)
        kkt = h.distance(point, total.gradient - (point - own.merit.centre) / own.merit.gamma)
        progress = Progress(
            settled=ok | moved.stuck,
            exhausted=moved.stuck,
            residual=residual,
            stationarity=kkt,
            objective=total.objective + h.nonsmooth(point),
            pooled=total.pooled,
            constraints=mine.constraints,
        )
        return Search(moved, memory, expected), progress

    def reopen(self, state: Search, w: jax.Array, regrown: jax.Array) -> Search:
        memory = choose(regrown | state.walk.stuck, self.reset(state.memory), self.reopened(state.memory))
        return Search(Walk.at(w), memory, state.nu)
