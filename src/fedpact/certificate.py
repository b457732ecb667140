"""The certificate: how far a point with its multipliers is from optimal, measured by an exchange of its own.

    stationarity     dist∞(0, ∇f(w) + ∂h(w) + Σ μ_j ∇c_j(w))
    feasibility      the largest violation: [c_j]₊, |c_j| for equalities, and the distance to a box of h
    complementarity  the largest |c_j| among inequalities with μ_j > 0, and of -μ_j among those with μ_j < 0

All three within a tolerance is Definition 1 of He, Peng and Sun. Nothing here comes from an algorithm but the numbers that it
hands out: the point, and the multipliers that each party and the server hold. So anybody who has them, and the parties'
cooperation for one exchange, can measure it again (`fp.verify`). How each setting measures is in `settings/`.
"""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import numpy as np

from fedpact.problem.atoms import Scope
from fedpact.problem.expressions import Constraint, bound_in_words
from fedpact.problem.oracle import Compiled
from fedpact.protocol.algorithm import Answer

SERVER = "server"
ALL_ROWS = "all rows"


class Measured(eqx.Module):
    """What the exchanges of a certificate give, over rows or columns."""

    stationarity: jax.Array
    outside: jax.Array  # the distance to a box of h
    objective: jax.Array
    party_constraints: jax.Array  # (parties, scalar constraints)
    party_multipliers: jax.Array
    server_constraints: jax.Array
    pooled_constraints: jax.Array


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


def certificate_of(names: tuple[str, ...], compiled: Compiled, measured: Measured, answer: Answer) -> Certificate:
    """From what was measured to the three numbers, per constraint and party."""
    measured = jax.tree.map(np.asarray, measured)
    party_c, party_mu = measured.party_constraints, np.asarray(measured.party_multipliers)
    server_c, pooled_c = measured.server_constraints, measured.pooled_constraints
    server_mu, pooled_mu = np.asarray(answer.server_multipliers), np.asarray(answer.pooled_multipliers)
    sides: dict[Scope, tuple[Any, ...]] = {
        "party": (names, party_c, party_mu, compiled.party.equality),
        "server": ((SERVER,), server_c[None], server_mu[None], compiled.server.equality),
        "pooled": ((ALL_ROWS,), pooled_c[None], pooled_mu[None], compiled.party.pooled_equality),
    }
    feasibility, complementarity = float(measured.outside), 0.0
    for _, c, mu, equality in sides.values():
        equal = np.asarray(equality, bool)
        broken = np.where(equal, np.abs(c), np.maximum(c, 0.0))
        active = np.where(equal, 0.0, np.where(mu > 0, np.abs(c), -mu))
        feasibility = float(np.maximum(feasibility, broken.max(initial=0.0)))  # NaN stays NaN
        complementarity = float(np.maximum(complementarity, active.max(initial=0.0)))
    reports = tuple(_report(*row, *sides[row[1]][:3]) for row in compiled.rows)
    stationarity, objective = float(measured.stationarity), float(measured.objective)
    return Certificate(stationarity, feasibility, complementarity, objective, reports, party_mu, server_mu, pooled_mu)


def _report(
    constraint: Constraint, scope: Scope, rows: tuple[int, ...], holders: tuple[str, ...], c: np.ndarray, mu: np.ndarray
) -> ConstraintReport:
    """From the scalar rows g <= 0 that stand for a constraint back to its expression's value."""
    sides, weights = c[:, list(rows)], mu[:, list(rows)]
    if math.isinf(constraint.upper):
        values = constraint.lower - sides.max(axis=1)
    else:
        below = 0 if math.isinf(constraint.lower) or constraint.kind == "==" else 1
        values = constraint.upper + sides[:, : len(rows) - below].max(axis=1)
    broken = np.abs(sides[:, 0]) if constraint.kind == "==" else np.maximum(sides, 0.0).max(axis=1)
    margins = -broken if constraint.kind == "==" else -sides.max(axis=1)
    numbers = (tuple(float(x) for x in column) for column in (values, weights.sum(axis=1), broken, margins))
    return ConstraintReport(constraint.name, constraint.lower, constraint.upper, scope, rows, holders, *numbers)


def conflicting(certificate: Certificate) -> list[tuple[ConstraintReport, float]]:
    """Constraints that pull against each other in an infeasible problem, with their share of the pull, strongest first."""
    pulls = [(report, math.fsum(abs(mu) for mu in report.multipliers)) for report in certificate.constraints]
    total = math.fsum(pull for _, pull in pulls) or 1.0
    shares = [(report, pull / total) for report, pull in pulls if pull > 0.01 * total]
    return sorted(shares, key=lambda share: -share[1])
