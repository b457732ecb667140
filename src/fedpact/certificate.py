"""The certificate: how far a point with its multipliers is from optimal, measured by an exchange of its own.

    stationarity     dist∞(0, ∇f(w) + ∂h(w) + Σ μ_j ∇c_j(w))
    feasibility      the largest violation: [c_j]₊, |c_j| for equalities, and the distance to a box of h
    complementarity  the largest |c_j| among inequalities with μ_j > 0, and of -μ_j among those with μ_j < 0

Where every party has a model x_j of its own in a set of its own, with Ḡ = (1/m) Σ_i [∇f_i(x̄) − σ_i(x_i − x̄)]:

    stationarity     the largest ‖x_j − Π_j(x_j − Ḡ − σ_j(x_j − x̄))‖∞ of the parties
    feasibility      the largest distance ‖x_j − Π_j(x_j)‖

All three within a tolerance is Definition 1 of He, Peng and Sun. Nothing here comes from an algorithm but the numbers
that it hands out: the point, and the multipliers that each party and the server hold. So anybody who has them, and the
parties' cooperation for one exchange, can measure it again (`fp.verify`).
"""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedpact.federation.binding import Bound
from fedpact.federation.blocks import Block, BoundColumns
from fedpact.problem.constraints import Constraint, bound_in_words
from fedpact.problem.expressions import Scope
from fedpact.problem.oracle import Oracle, Values
from fedpact.problem.split import EMBEDDED
from fedpact.protocol.algorithm import Answer
from fedpact.protocol.embedding import joined, share, shown
from fedpact.protocol.messages import Reply

SERVER = "server"
ALL_ROWS = "all rows"


class OwnModel(eqx.Module):
    """A party's model as it is handed out, and as the method left it, before it was projected."""

    point: jax.Array
    block: jax.Array


class Sums(eqx.Module):
    objective: jax.Array
    gradient: jax.Array
    pooled: jax.Array


def measure(own: Oracle, multipliers: jax.Array, answer: Answer) -> tuple[jax.Array, Reply]:
    """A party's step: its share of the Lagrangian's gradient, and its own constraints, which it discloses here."""
    values, pull = jax.vjp(own, answer.w)
    weights = Values(jnp.ones_like(values.objective), multipliers, answer.pooled_multipliers)
    sums = Sums(values.objective, pull(weights)[0], values.pooled)
    return multipliers, Reply(sum=sums, each=(values.constraints, multipliers))


@dataclasses.dataclass(frozen=True)
class ConstraintReport:
    """One constraint at its holders: the parties, or the server, or all rows together."""

    name: str
    lower: float
    upper: float
    scope: Scope
    rows: tuple[int, ...]  # the scalar rows g <= 0 of its scope that stand for it: columns of the multipliers' arrays
    holders: tuple[str, ...]
    values: tuple[float, ...]  # the expression itself, to be compared with its bound
    multipliers: tuple[float, ...]  # >= 0 for inequalities (both sides added), signed for equalities
    violations: tuple[float, ...]  # how far outside the bound, 0 inside
    margins: tuple[float, ...]  # how much room is left before the bound, negative where it is broken

    @property
    def bound(self) -> str:
        """The right-hand side in words: "<= 0.2"."""
        return bound_in_words(self.lower, self.upper)

    @property
    def worst(self) -> int:
        """The place of the holder with the least room."""
        return int(np.argmin(self.margins))


@dataclasses.dataclass(frozen=True)
class PersonalReport:
    """For every party by name: how far its model is from stationary, and from its own set."""

    residuals: dict[str, float]
    distances: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Certificate:
    """The three numbers, per constraint and party, and the multipliers that they were measured with."""

    stationarity: float
    feasibility: float
    complementarity: float
    objective: float
    constraints: tuple[ConstraintReport, ...]
    party_multipliers: np.ndarray  # (parties, scalar constraints)
    server_multipliers: np.ndarray
    pooled_multipliers: np.ndarray
    personal: PersonalReport | None = None

    def holds(self, tolerance: float) -> bool:
        """Whether the point is (tolerance, tolerance)-optimal."""
        return all(x <= tolerance for x in (self.stationarity, self.feasibility, self.complementarity))

    def constraint(self, name: str) -> ConstraintReport:
        for report in self.constraints:
            if report.name == name:
                return report
        known = ", ".join(repr(r.name) for r in self.constraints) or "none"
        raise KeyError(f"no constraint is named {name!r}; there are: {known}")


@jax.jit
def _exchange(net: Any, multipliers: Any, answer: Answer) -> tuple[Any, ...]:
    reply, _ = net.exchange(measure, multipliers, answer)
    own, pull = jax.vjp(net.server, answer.w)
    weights = Values(jnp.ones_like(own.objective), answer.server_multipliers, answer.pooled_multipliers)
    h, w = net.regularizer, answer.w
    gradient = reply.sum.gradient + pull(weights)[0] + 2 * h.ridge * w
    return (
        h.distance(w, gradient),
        h.outside(w),
        reply.sum.objective + own.objective + h.value(w),
        *reply.each,
        own.constraints,
        reply.sum.pooled + own.pooled,
    )


@jax.jit
def _exchange_columns(net: Any, blocks: Any, answer: Answer) -> tuple[Any, ...]:
    """Two exchanges: what the bottoms give on all rows, and the slope of the Lagrangian back to every block."""
    reply, _ = net.exchange(_embed_all, blocks, None)
    program = net.server.program
    objective_norm, _, pooled_norms = program.norm_shares()

    def numbers(w: jax.Array, embedded: jax.Array) -> Values:
        return dataclasses.replace(net.server, rows={**net.server.rows, EMBEDDED: embedded})(w)

    values, pull = jax.vjp(numbers, answer.w, joined(reply))
    none = jnp.zeros_like(values.constraints)
    gradient, slope = pull(Values(jnp.ones_like(values.objective), none, answer.pooled_multipliers))
    factor = objective_norm[0] + jnp.asarray(pooled_norms) @ answer.pooled_multipliers
    reply, _ = net.exchange(_block_residual, blocks, (slope, factor))
    norm, residual = reply.sum, jnp.maximum(reply.max, jnp.max(jnp.abs(gradient), initial=0.0))
    objective = values.objective + objective_norm[0] * norm
    pooled = values.pooled + jnp.asarray(pooled_norms) * norm
    parties, nothing = net.parties, jnp.zeros(0)
    return residual, jnp.asarray(0.0), objective, *(jnp.zeros((parties, 0)),) * 2, nothing, pooled


def _embed_all(own: Block, block: jax.Array, message: None) -> tuple[jax.Array, Reply]:
    del message
    return block, shown(own, own.embed(block))


def _block_residual(own: Block, block: jax.Array, message: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, Reply]:
    """How far this block is from stationary, and its ‖·‖²."""
    slope, factor = message
    _, pull = jax.vjp(own.embed, block)
    gradient = pull(share(own, slope))[0] + 2.0 * factor * block
    return block, Reply(sum=jnp.sum(block**2), max=jnp.max(jnp.abs(gradient)))


@jax.jit
def _exchange_personal(net: Any, models: Any) -> tuple[jax.Array, ...]:
    """Three exchanges: x̄; the objective and Ḡ at x̄; and what that means to every party."""
    reply, _ = net.exchange(add_up, models, None)
    mean = reply.sum / net.parties
    reply, _ = net.exchange(_slope_at_mean, models, mean)
    h = net.regularizer
    slope = reply.sum.gradient + 2 * h.ridge * mean
    objective = reply.sum.objective + net.server(mean).objective + h.smooth(mean)
    reply, _ = net.exchange(_own_residual, models, (mean, slope))
    return objective, *reply.each


PROGRAMS = (_exchange, _exchange_columns, _exchange_personal)  # compiled once for each kind of run


def add_up(own: Oracle, model: OwnModel, message: None) -> tuple[OwnModel, Reply]:
    del own, message
    return model, Reply(sum=model.point)


def _slope_at_mean(own: Oracle, model: OwnModel, mean: jax.Array) -> tuple[OwnModel, Reply]:
    personal = own.personal
    assert personal is not None
    value, gradient = jax.value_and_grad(
        lambda mean: own(mean).objective + personal.cost(model.point, mean) / own.parties
    )(mean)
    return model, Reply(sum=Sums(value, gradient, jnp.zeros(0)))


def _own_residual(own: Oracle, model: OwnModel, message: tuple[jax.Array, jax.Array]) -> tuple[OwnModel, Reply]:
    assert own.personal is not None
    (mean, slope), x = message, model.point
    onward = own.personal.project(x - slope - own.personal.pull * (x - mean))
    return model, Reply(each=(jnp.max(jnp.abs(x - onward)), own.personal.distance(x)))


def measured(bound: Bound | BoundColumns, net: Any, kept: Any, answer: Answer) -> tuple[Any, ...]:
    """The exchanges of the certificate, and the numbers that they give. `kept` as in `certify`."""
    if isinstance(bound, BoundColumns):
        return _exchange_columns(net, kept, answer)
    return _exchange_personal(net, kept) if bound.setting.personal else _exchange(net, kept, answer)


def _certify_personal(bound: Bound, told: tuple[Any, ...]) -> Certificate:
    """The certificate of the parties' own models, which are their states here."""
    objective, residuals, distances = (np.asarray(x) for x in told)
    by_name = [dict(zip(bound.names, map(float, told), strict=True)) for told in (residuals, distances)]
    none = np.zeros(0)
    return Certificate(
        float(residuals.max()), float(distances.max()), 0.0, float(objective), (), np.zeros((len(bound.names), 0)), none, none,
        PersonalReport(*by_name),
    )  # fmt: skip


def certify(bound: Bound | BoundColumns, net: Any, kept: Any, answer: Answer) -> Certificate:
    """Measure by exchanges of its own. `kept` are the parties' multipliers (rows), blocks (columns) or own models, as their
    states."""
    told = list(measured(bound, net, kept, answer))
    if isinstance(bound, Bound) and bound.setting.personal:
        return _certify_personal(bound, tuple(told))
    if isinstance(bound, BoundColumns):
        told[2] += bound.compiled.server.objective.constants[0]
        told[6] += jnp.asarray(bound.compiled.server.pooled.constants)
    stationarity, outside, objective, party_c, party_mu, server_c, pooled_c = (np.asarray(x) for x in told)
    server_mu, pooled_mu = np.asarray(answer.server_multipliers), np.asarray(answer.pooled_multipliers)
    sides: dict[Scope, tuple[Any, ...]] = {
        "party": (bound.names, party_c, party_mu, bound.compiled.party.equality),
        "server": ((SERVER,), server_c[None], server_mu[None], bound.compiled.server.equality),
        "pooled": ((ALL_ROWS,), pooled_c[None], pooled_mu[None], bound.compiled.party.pooled_equality),
    }
    feasibility, complementarity = float(outside), 0.0
    for _, c, mu, equality in sides.values():
        equal = np.asarray(equality, bool)
        broken = np.where(equal, np.abs(c), np.maximum(c, 0.0))
        active = np.where(equal, 0.0, np.where(mu > 0, np.abs(c), -mu))
        feasibility = float(np.maximum(feasibility, broken.max(initial=0.0)))  # NaN stays NaN
        complementarity = float(np.maximum(complementarity, active.max(initial=0.0)))
    reports = tuple(_report(*row, *sides[row[1]][:3]) for row in bound.compiled.rows)
    return Certificate(
        float(stationarity), feasibility, complementarity, float(objective), reports, party_mu, server_mu, pooled_mu
    )


def _report(
    constraint: Constraint, scope: Scope, rows: tuple[int, ...], holders: tuple[str, ...], c: np.ndarray, mu: np.ndarray
) -> ConstraintReport:
    """From the scalar rows g <= 0 that stand for a constraint back to its expression's value."""
    mine, weights = c[:, list(rows)], mu[:, list(rows)]
    if math.isinf(constraint.upper):
        values = constraint.lower - mine.max(axis=1)
    else:
        below = 0 if math.isinf(constraint.lower) or constraint.kind == "==" else 1
        values = constraint.upper + mine[:, : len(rows) - below].max(axis=1)
    broken = np.abs(mine[:, 0]) if constraint.kind == "==" else np.maximum(mine, 0.0).max(axis=1)
    margins = -broken if constraint.kind == "==" else -mine.max(axis=1)
    told = (tuple(float(x) for x in column) for column in (values, weights.sum(axis=1), broken, margins))
    return ConstraintReport(constraint.name, constraint.lower, constraint.upper, scope, rows, holders, *told)


def conflicting(certificate: Certificate) -> list[tuple[ConstraintReport, float]]:
    """Constraints that pull against each other in an infeasible problem, with their share of the pull, strongest first."""
    pulls = [(report, math.fsum(abs(mu) for mu in report.multipliers)) for report in certificate.constraints]
    total = math.fsum(pull for _, pull in pulls) or 1.0
    shares = [(report, pull / total) for report, pull in pulls if pull > 0.01 * total]
    return sorted(shares, key=lambda share: -share[1])
