"""Rows split: Algorithms 1 and 2. The parameters are broadcast; each party answers with sums over a mini-batch of its own."""

import dataclasses
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedpact.algorithms.parts.batches import asked, folded_key, on_a_batch
from fedpact.algorithms.parts.descent import choose
from fedpact.algorithms.ssca.box_dual import solve_box_dual
from fedpact.algorithms.ssca.surrogates import folded, folded_constants, violation
from fedpact.problem.oracle import Oracle, Program, Values, derivatives
from fedpact.problem.regularizers import FlatRegularizer
from fedpact.protocol.algorithm import Answer, Info, Status
from fedpact.protocol.messages import Reply
from fedpact.protocol.network import Network, PartyStates

if TYPE_CHECKING:
    from fedpact.algorithms.ssca.method import SSCA


class Best(eqx.Module):
    """The best point that was measured on all rows: the lowest objective among feasible ones, else the least violation."""

    w: jax.Array
    nu: jax.Array
    objective: jax.Array
    violation: jax.Array

    def or_better(self, other: "Best") -> "Best":
        both = (self.violation <= 0) & (other.violation <= 0)
        better = jnp.where(both, other.objective < self.objective, other.violation < self.violation)
        return choose(better, other, self)


class Server(eqx.Module):
    w: jax.Array
    slopes: jax.Array  # a, one line each
    constants: jax.Array  # A
    nu: jax.Array
    penalty: "Penalty"
    best: Best
    key: jax.Array
    t: jax.Array
    status: jax.Array


class Penalty(eqx.Module):
    """c_j: where the slack has not vanished for a while, c grows (Section III-B)."""

    c: jax.Array
    least: jax.Array  # slack since c was chosen
    since: jax.Array  # rounds

    @classmethod
    def first(cls, c: float) -> "Penalty":
        return cls(jnp.asarray(c), jnp.asarray(jnp.inf), jnp.zeros((), int))

    def after(self, slack: jax.Array, method: "SSCA") -> "Penalty":
        least, since = jnp.minimum(self.least, slack), self.since + 1
        over = since >= method.patience
        grown = jnp.where(least > VANISHED, jnp.minimum(method.growth * self.c, method.most_penalty), self.c)
        return Penalty(jnp.where(over, grown, self.c), jnp.where(over, jnp.inf, least), jnp.where(over, 0, since))


VANISHED = 1e-9  # slack


class RoundInfo(Info):
    slack: jax.Array
    penalty: jax.Array
    measured_objective: jax.Array  # on all rows; NaN in rounds without a measurement
    measured_violation: jax.Array


def init(method: "SSCA", net: Network, w: jax.Array, key: jax.Array) -> tuple[Server, PartyStates]:
    _, parties = net.exchange(join, None, w)
    lines, rows = len(method.made.lines), len(method.made.norms) - 1
    nu, endless = jnp.zeros(rows), jnp.asarray(jnp.inf)
    slopes, best = jnp.zeros((lines, w.size)), Best(w, nu, endless, endless)
    running = jnp.asarray(int(Status.running))
    return (
        Server(w, slopes, jnp.zeros(lines), nu, Penalty.first(method.penalty), best, key, jnp.ones((), int), running),
        parties,
    )


# party steps


def join(own: Oracle, state: None, message: jax.Array) -> tuple[tuple[()], Reply]:
    del own, state, message
    return (), Reply()


def estimates(method: "SSCA", own: Oracle, state: Any, key: jax.Array, w: jax.Array) -> jax.Array:
    """A party's part of the sampled numbers on its mini-batch (Algorithm 2, line 4); zero where it is not asked."""
    del state
    batch = stripped(on_a_batch(own, key, method.batch), method.made.party)
    found = flat(batch(w.astype(float)))[np.asarray(method.made.sampled, int)]
    return asked(own, key, method.participation) * found


def measured(own: Oracle, state: Any, w: jax.Array) -> tuple[Any, Reply]:
    """A party's numbers on all its rows."""
    return state, Reply(flat(own(w)))


def stripped(own: Oracle, program: Program) -> Oracle:
    """Without what is known exactly."""
    return dataclasses.replace(own, program=program)


def flat(values: Values) -> jax.Array:
    """Objective and pooled contributions."""
    return jnp.concatenate([values.objective[None], values.pooled])


# server steps


def round(method: "SSCA", server: Server, parties: PartyStates, net: Network) -> tuple[Server, PartyStates, RoundInfo]:
    h, w = net.regularizer, server.w
    key = folded_key(server.key, server.t)
    rho, gamma = method.steps(server.t)

    sent = method.on_the_wire(w)
    estimated, gradients = net.gradients(method.estimates, parties, key, sent)  # Algorithm 2, lines 3 and 4

    values, slopes = _with_the_server(method, net, w, estimated, gradients.astype(w.dtype))
    lines = folded(server.slopes, rho, slopes, w, method.tau)
    constants = folded_constants(server.constants, rho, values, slopes @ w, w @ w, method.tau)
    target, nu, slack, curvature, sound = _minimiser(method, lines, constants, server.penalty.c, h)  # Problem 5
    moved = (1.0 - gamma) * w + gamma * target  # (5)

    best, seen = _measured(method, server, parties, net)
    numbers = method.made.numbers(values, w @ w)
    after = Server(
        w=moved,
        slopes=lines,
        constants=constants,
        nu=nu,
        penalty=server.penalty.after(slack, method),
        best=best,
        key=server.key,
        t=server.t + 1,
        status=server.status,
    )
    diverged = jnp.asarray(int(Status.diverged))
    broken = eqx.tree_at(lambda s: (s.status, s.slopes), server, (diverged, lines))  # nobody reads its slopes
    info = RoundInfo(
        objective=numbers[0] + _even(h) * (w @ w) + h.bend(w),
        violation=violation(numbers),
        stationarity=2.0 * curvature * jnp.max(jnp.abs(w - target)),
        slack=slack,
        penalty=server.penalty.c,
        measured_objective=seen.objective,
        measured_violation=seen.violation,
    )
    return choose(sound, after, broken), parties, info


def _with_the_server(
    method: "SSCA", net: Network, w: jax.Array, numbers: jax.Array, gradients: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Every line's value and gradient: what the parties estimated, the server's own part, and what of h is not ‖w‖²."""
    made, h = method.made, net.regularizer
    every = tuple(range(1 + len(made.party.pooled) + len(made.server.constraints)))
    own, slopes = derivatives(stripped(net.server, made.server), w)
    values = made.of_lines(numbers, made.sampled)
    values += made.of_lines(jnp.concatenate([flat(own), own.constraints]), every)
    lines = made.of_lines(gradients, made.sampled)
    lines += made.of_lines(jnp.concatenate([slopes.objective[None], slopes.pooled, slopes.constraints]), every)
    if made.lines[:1] == (0,):
        uneven = h.ridge - _even(h)
        values, lines = values.at[0].add(uneven @ w**2), lines.at[0].add(2.0 * uneven * w)
    return values, lines


def _even(h: FlatRegularizer) -> jax.Array:
    """The a in a‖w‖² that h has for all parameters alike."""
    return jnp.min(h.ridge)


def _minimiser(
    method: "SSCA", lines: jax.Array, constants: jax.Array, penalty: jax.Array, h: FlatRegularizer
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]:
    """Where the surrogate problem is least, its multipliers, its largest slack, its curvature, and whether all is finite.

    Lines are finite where their squares are, and their sum is where its weights are: no need to look at every parameter.
    """
    made = method.made
    problem = made.quadratics(constants, made.gram(lines), method.tau, _even(h), method.margin)
    found = solve_box_dual(problem, penalty)
    weights, curvature = problem.combination(found.nu), problem.curvature(found.nu)
    target = h.prox(made.combined(weights, lines), 0.5 / curvature)
    sound = jnp.isfinite(constants.sum() + problem.gram.sum() + weights.sum())
    return target, found.nu, jnp.max(found.slack, initial=0.0), curvature, sound


def _measured(method: "SSCA", server: Server, parties: PartyStates, net: Network) -> tuple[Best, Best]:
    """Every so many rounds w is measured on all rows; the best that was seen, and what was seen now."""
    nothing = jnp.asarray(jnp.nan)
    unseen = Best(server.w, server.nu, nothing, nothing)
    if method.measure is None:
        return server.best, unseen

    def look(net: Network, best: Best, seen: Best) -> tuple[Best, Best]:
        reply, _ = net.exchange(measured, parties, server.w)
        own = net.server(server.w)
        numbers = jnp.concatenate([reply.sum + flat(own), own.constraints])
        objective = numbers[0] + net.regularizer.value(server.w)
        seen = Best(server.w, server.nu, objective, violation(numbers))
        return best.or_better(seen), seen

    return net.when((server.t - 1) % method.measure == 0, look, server.best, unseen)


def answer(method: "SSCA", server: Server) -> Answer:
    """The best point that was measured; the last one where none was."""
    known = jnp.isfinite(server.best.violation)
    w, nu = choose(known, (server.best.w, server.best.nu), (server.w, server.nu))
    own, pooled = method.made.multipliers(nu)
    return Answer(w, own, pooled, jnp.asarray(0.0))
