"""Rows split: Algorithms 1 and 2. The parameters are broadcast; each party replies with sums over a mini-batch of its own."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedpact.algorithms.parts.batches import asked, drawn_places, folded_key, on_a_batch
from fedpact.algorithms.ssca.box_dual import solve_box_dual
from fedpact.algorithms.ssca.shared import Measurement, Penalty, RoundInfo, SSCAMethod
from fedpact.algorithms.ssca.surrogates import violation
from fedpact.arrays import choose
from fedpact.problem.flat_regularizer import FlatRegularizer
from fedpact.problem.oracle import Oracle, Values, derivatives
from fedpact.problem.program import Program
from fedpact.protocol.algorithm import Answer, Begin, Status
from fedpact.protocol.messages import Reply
from fedpact.protocol.phases import GradientRequest, GradientStep, Phase, Phases, ServerData
from fedpact.records import Record

# messages


class BatchKey(Record):
    """Down, with the parameters: who is asked, and which rows each party draws, follow from the key."""

    random_key: jax.Array


class MeasuredPoint(Record):
    """Measurement, down."""

    parameters: jax.Array


class PartOfValues(Record):
    """Measurement, up: a party's part of the functions on all its rows."""

    objective: jax.Array
    pooled_constraints: jax.Array


# states


class ServerState(Record):
    w: jax.Array
    slopes: jax.Array  # a, one line per surrogate
    constants: jax.Array  # A
    nu: jax.Array
    penalty: Penalty
    best_w: jax.Array  # the best point that was measured on all rows
    best: Measurement
    key: jax.Array
    t: jax.Array
    status: jax.Array


class Estimated(Record):
    """The server within a round: what the parties estimated, and what was measured on all rows."""

    server: ServerState
    values: jax.Array
    gradients: jax.Array
    measured: Measurement


class Minimiser(eqx.Module):
    """Where the surrogate problem is least."""

    w: jax.Array
    nu: jax.Array
    slack: jax.Array  # the largest
    curvature: jax.Array  # of the Lagrangian
    finite: jax.Array


class RowsMethod(SSCAMethod[ServerState]):
    """SSCA over rows as it runs."""

    @property
    def round(self) -> Phases:
        drawn = self.drawn if self.participation < 1 else None
        estimation = Phase(self.ask_estimates, GradientStep(self.estimates), self.hear_estimates, drawn=drawn)
        return (estimation, *self.measurement(self.ask_values, self.values, self.hear_values))

    def drawn(self, message: GradientRequest) -> jax.Array:
        """The places of the parties that are asked for estimates in a round."""
        return drawn_places(message.context.random_key, self.parties, self.participation)

    # at a party

    def estimates(self, own: Oracle, state: tuple[()], message: BatchKey, w: jax.Array) -> jax.Array:
        """A party's part of the sampled functions on its mini-batch (Algorithm 2, line 4); zero where it is not asked."""
        key = message.random_key
        batch = _with_program(on_a_batch(own, key, self.batch), self.surrogates.party)
        values = _stacked(batch(w.astype(float)))[np.asarray(self.surrogates.sampled, int)]
        return asked(own, key, self.participation) * values

    def values(self, own: Oracle, state: tuple[()], message: MeasuredPoint) -> tuple[tuple[()], Reply]:
        """A party's part of the functions on all its rows."""
        values = own(message.parameters)
        return state, Reply(PartOfValues(values.objective, values.pooled))

    # at the server

    def start(self, own: ServerData, begin: Begin, reply: Reply) -> ServerState:
        count, nu = len(self.surrogates.functions), jnp.zeros(self.surrogates.constraints)
        return ServerState(
            w=begin.w,
            slopes=jnp.zeros((count, begin.w.size)),
            constants=jnp.zeros(count),
            nu=nu,
            penalty=Penalty.first(self.penalty),
            best_w=begin.w,
            best=Measurement.worst(nu),
            key=begin.key,
            t=jnp.ones((), int),
            status=Status.running.as_array(),
        )

    def ask_estimates(self, own: ServerData, server: ServerState) -> GradientRequest:
        """Algorithm 2, line 3."""
        return GradientRequest(BatchKey(folded_key(server.key, server.t)), self.on_the_wire(server.w))

    def hear_estimates(self, own: ServerData, server: ServerState, reply: Reply) -> Estimated:
        values, gradients = reply.sum
        return Estimated(server, values, gradients, Measurement.missing(server.nu))

    def ask_values(self, own: ServerData, carry: Estimated) -> MeasuredPoint:
        return MeasuredPoint(carry.server.w)

    def hear_values(self, own: ServerData, carry: Estimated, reply: Reply) -> Estimated:
        w, server = carry.server.w, own.functions(carry.server.w)
        pooled = reply.sum.pooled_constraints + server.pooled
        objective = reply.sum.objective + server.objective + own.regularizer.value(w)
        values = jnp.concatenate([objective[None], pooled, server.constraints])
        return dataclasses.replace(carry, measured=Measurement(objective, violation(values), carry.server.nu))

    def finish(self, own: ServerData, carry: Estimated) -> tuple[ServerState, RoundInfo]:
        h, server, w = own.regularizer, carry.server, carry.server.w
        rho, gamma = self.steps(server.t)
        values, gradients = self._with_the_server(own, w, carry.values, carry.gradients.astype(w.dtype))
        slopes = self.surrogates.folded(server.slopes, rho, gradients, w, self.tau)
        along, norm = gradients @ w, w @ w
        constants = self.surrogates.folded_constants(server.constants, rho, values, along, norm, self.tau)
        target = self._minimiser(slopes, constants, server.penalty.c, h)  # Problem 5
        better = carry.measured.beats(server.best)
        after = ServerState(
            w=(1.0 - gamma) * w + gamma * target.w,  # (5)
            slopes=slopes,
            constants=constants,
            nu=target.nu,
            penalty=server.penalty.after(target.slack, self.penalty),
            best_w=jnp.where(better, w, server.best_w),
            best=choose(better, carry.measured, server.best),
            key=server.key,
            t=server.t + 1,
            status=server.status,
        )
        broken = eqx.tree_at(  # nobody reads its slopes
            lambda s: (s.status, s.slopes), server, (Status.diverged.as_array(), slopes)
        )
        estimates = self.surrogates.values(values, w @ w)
        info = RoundInfo(
            objective=estimates[0] + self.surrogates.kept_ridge(h) * (w @ w) + h.nonsmooth(w),
            violation=violation(estimates),
            stationarity=2.0 * target.curvature * jnp.max(jnp.abs(w - target.w)),
            slack=target.slack,
            penalty=server.penalty.c,
            measured_objective=carry.measured.objective,
            measured_violation=carry.measured.violation,
        )
        return choose(target.finite, after, broken), info

    def _with_the_server(
        self, own: ServerData, w: jax.Array, values: jax.Array, gradients: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Value and gradient of what has a surrogate: the parties' estimates, the server's part, and what of h is not ‖w‖²."""
        surrogates, h = self.surrogates, own.regularizer
        every = tuple(range(1 + surrogates.constraints))
        server, slopes = derivatives(_with_program(own.functions, surrogates.server), w)
        values = surrogates.to_surrogates(values, surrogates.sampled)
        values += surrogates.to_surrogates(jnp.concatenate([_stacked(server), server.constraints]), every)
        gradients = surrogates.to_surrogates(gradients, surrogates.sampled)
        gradients += surrogates.to_surrogates(
            jnp.concatenate([slopes.objective[None], slopes.pooled, slopes.constraints]), every
        )
        if surrogates.functions[:1] == (0,):
            uneven = h.ridge - self.surrogates.kept_ridge(h)
            values, gradients = values.at[0].add(uneven @ w**2), gradients.at[0].add(2.0 * uneven * w)
        return values, gradients

    def _minimiser(self, slopes: jax.Array, constants: jax.Array, c: jax.Array, h: FlatRegularizer) -> Minimiser:
        """Slopes are finite where their squares are, and their sum is where its weights are: no need to look at every one."""
        surrogates = self.surrogates
        ridge = surrogates.kept_ridge(h)
        problem = surrogates.quadratics(constants, surrogates.gram(slopes), self.tau, ridge, self.margin)
        dual = solve_box_dual(problem, c)
        weights, curvature = problem.combination(dual.nu), problem.curvature(dual.nu)
        return Minimiser(
            w=h.prox(surrogates.weighted_sum(weights, slopes), 0.5 / curvature),
            nu=dual.nu,
            slack=jnp.max(dual.slack, initial=0.0),
            curvature=curvature,
            finite=jnp.isfinite(constants.sum() + problem.gram.sum() + weights.sum()),
        )

    def answer(self, own: ServerData, carry: ServerState) -> Answer:
        """The best point that was measured; the last one where none was."""
        known = jnp.isfinite(carry.best.violation)
        w, nu = choose(known, (carry.best_w, carry.best.nu), (carry.w, carry.nu))
        return Answer(w, *self.surrogates.multipliers(nu), jnp.asarray(0.0))


def _with_program(own: Oracle, program: Program) -> Oracle:
    """The same rows with another program: the one without what is known exactly."""
    return dataclasses.replace(own, program=program)


def _stacked(values: Values) -> jax.Array:
    """Objective and pooled constraints."""
    return jnp.concatenate([values.objective[None], values.pooled])
