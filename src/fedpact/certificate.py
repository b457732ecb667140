"""The certificate: how far parameters with their multipliers are from optimal, measured by a separate exchange with the parties.

    stationarity     dist∞(0, ∇f(w) + ∂h(w) + Σ μ_j ∇c_j(w))
    feasibility      the largest violation: [c_j]₊, |c_j| for equalities, and the distance to a box of h
    complementarity  the largest |c_j| among inequalities with μ_j > 0, and of -μ_j among those with μ_j < 0

All three at most a tolerance is Definition 1 of He, Peng and Sun (2024). Of the algorithm only the result is used: the
parameters, and the multipliers of each party and the server. So anybody who has these, and the parties' cooperation for one
exchange, can recompute it (`fp.verify`). The measurement for each setting is in `settings/`.
"""

import dataclasses
import math
from typing import Any

import jax
import numpy as np

from fedpact.problem.atoms import Scope
from fedpact.problem.expressions import Constraint, bound_in_words
from fedpact.problem.program import Compiled
from fedpact.problem.statement import Problem
from fedpact.problem.units import Units
from fedpact.protocol.algorithm import Answer
from fedpact.records import Record

FAR = 10.0  # times 1 + ‖parameters‖: where no feasible point is within this, none is to be expected at all
SERVER = "server"
ALL_ROWS = "all rows"


class Measured(Record):
    """The results of a certificate's exchanges, over rows or columns."""

    stationarity: jax.Array
    outside: jax.Array  # the distance to a box of h
    objective: jax.Array
    party_constraints: jax.Array  # (parties, scalar constraints)
    party_multipliers: jax.Array
    server_constraints: jax.Array
    pooled_constraints: jax.Array
    infeasible_radius: Any = np.float64(0.0)


@dataclasses.dataclass(frozen=True)
class ConstraintReport:
    """One constraint at the result, at each of its holders: the parties, the server, or all rows together.

    - `name`: of the constraint.
    - `lower`, `upper`: its bounds, ∓∞ for none.
    - `scope`: "party", "server" or "pooled".
    - `rows`: the scalar inequalities g <= 0 of this scope that it consists of: columns of the certificate's multipliers.
    - `holders`: party names, "server" or "all rows"; the following have one entry for each.
    - `values`: of the expression, in its own units.
    - `multipliers`: >= 0 for inequalities (both sides added), of either sign for equalities; objective per unit of the bound.
    - `violations`: the distance outside the bounds, 0 inside.
    - `margins`: the distance to the nearest bound, negative where it is violated.
    - `unit`: in which a violation is compared with the tolerance (default 1: that of the expression).
    """

    name: str
    lower: float
    upper: float
    scope: Scope
    rows: tuple[int, ...]
    holders: tuple[str, ...]
    values: tuple[float, ...]
    multipliers: tuple[float, ...]
    violations: tuple[float, ...]
    margins: tuple[float, ...]
    unit: float = 1.0

    def is_broken(self, holder: int, tolerance: float) -> bool:
        """Whether the holder's violation is more than a tolerance, in this unit."""
        return self.violations[holder] > tolerance * self.unit

    @property
    def bound(self) -> str:
        """The relation and right-hand side as text: "<= 0.2"."""
        return bound_in_words(self.lower, self.upper)

    @property
    def worst(self) -> int:
        """The index in `holders` of the smallest margin."""
        return int(np.argmin(self.margins))


@dataclasses.dataclass(frozen=True)
class PersonalReport:
    """Stationarity residual of each party's model, and its Euclidean distance from the party's own set, by party name."""

    residuals: dict[str, float]
    distances: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Certificate:
    """How far a result is from optimal, measured by a separate exchange with the parties, independently of the method.

    - `stationarity`: the largest component of the gradient of the Lagrangian, dist∞(0, ∇f + ∂h + Σ μ_j ∇c_j).
    - `feasibility`: the largest violation of a constraint at any holder, or of a box of the regulariser.
    - `complementarity`: the largest |c_j| among inequalities with μ_j > 0, and −μ_j among those with μ_j < 0.
    - `objective`: with the regulariser.
    - `constraints`: one `fp.ConstraintReport` per constraint.
    - `party_multipliers` (parties, scalar constraints), `server_multipliers`, `pooled_multipliers` (scalar constraints,): μ.
    - `infeasible_radius`: where the multipliers prove, for convex constraints, that no feasible point lies this near, in the
      units of the parameters; 0 where they prove nothing. Large where a run is "infeasible", and meaningless elsewhere.
    - `personal`: residuals and distances by party, where every party has a model of its own (default None).
    - `units`: that stationarity, feasibility and complementarity are in, an `fp.protocol.Units` (default None: those of the
      problem's own numbers): a component of the gradient counts per unit of the objective and of its parameter, a violation
      per unit of its constraint. Everything else is in the problem's own units.

    All three are 0 at an exact optimum.
    """

    stationarity: float
    feasibility: float
    complementarity: float
    objective: float
    constraints: tuple[ConstraintReport, ...]
    party_multipliers: np.ndarray
    server_multipliers: np.ndarray
    pooled_multipliers: np.ndarray
    infeasible_radius: float = 0.0
    personal: PersonalReport | None = None
    units: Units | None = None

    def holds(self, tolerance: float) -> bool:
        """Whether stationarity, feasibility and complementarity are all at most `tolerance` (> 0)."""
        return all(x <= tolerance for x in (self.stationarity, self.feasibility, self.complementarity))

    def proves_infeasible(self, problem: Problem, parameters: np.ndarray) -> bool:
        """Whether the multipliers prove that no parameters within ten times 1 + ‖parameters‖ meet all constraints.

        They do so only if all constraints whose multiplier is not 0 are known to be convex.
        """
        convex = {constraint.name for constraint in problem.constraints if constraint.is_convex}
        units = 1.0 if self.units is None else np.asarray(self.units.parameters)
        far = FAR * (1.0 + float(np.linalg.norm(parameters / units)))
        return self.infeasible_radius > far and all(
            report.name in convex for report in self.constraints if any(report.multipliers)
        )

    def constraint(self, name: str) -> ConstraintReport:
        """The report of one constraint by name. Raises KeyError for an unknown name."""
        for report in self.constraints:
            if report.name == name:
                return report
        known = ", ".join(repr(r.name) for r in self.constraints) or "none"
        raise KeyError(f"no constraint is named {name!r}; there are: {known}")


def certificate_of(names: tuple[str, ...], compiled: Compiled, measured: Measured, answer: Answer) -> Certificate:
    """The certificate from the measurements at all holders."""
    measured = jax.tree.map(np.asarray, measured)
    party_c, party_mu = measured.party_constraints, np.asarray(measured.party_multipliers)
    server_c, pooled_c = measured.server_constraints, measured.pooled_constraints
    server_mu, pooled_mu = np.asarray(answer.server_multipliers), np.asarray(answer.pooled_multipliers)
    units = answer.units and jax.tree.map(np.asarray, answer.units.at(answer.parameters, measured.objective))
    of_scope: dict[Scope, Any] = {"party": 1.0, "server": 1.0, "pooled": 1.0}
    if units is not None:
        of_scope = {
            "party": units.party_constraints,
            "server": units.server_constraints,
            "pooled": units.pooled_constraints,
        }
    sides: dict[Scope, tuple[Any, ...]] = {
        "party": (names, party_c, party_mu, compiled.party.equality),
        "server": ((SERVER,), server_c[None], server_mu[None], compiled.server.equality),
        "pooled": ((ALL_ROWS,), pooled_c[None], pooled_mu[None], compiled.party.pooled_equality),
    }
    feasibility, complementarity, proof = float(measured.outside), 0.0, True
    for scope, (_, c, mu, equality) in sides.items():
        equal, c = np.asarray(equality, bool), c / of_scope[scope]
        mu = mu * of_scope[scope] / (1.0 if units is None else units.objective)
        broken = np.where(equal, np.abs(c), np.maximum(c, 0.0))
        active = np.where(equal, 0.0, np.where(mu > 0, np.abs(c), -mu))
        proof = proof and bool(np.all(equal | (mu >= 0)))
        feasibility = float(np.maximum(feasibility, broken.max(initial=0.0)))  # NaN stays NaN
        complementarity = float(np.maximum(complementarity, active.max(initial=0.0)))
    reports = tuple(_report(*row, *sides[row[1]][:3], units=of_scope[row[1]]) for row in compiled.rows)
    stationarity, objective = float(measured.stationarity), float(measured.objective)
    multipliers = party_mu, server_mu, pooled_mu
    radius = float(measured.infeasible_radius) if proof else 0.0  # multipliers below zero prove nothing
    return Certificate(
        stationarity, feasibility, complementarity, objective, reports, *multipliers, radius, units=units
    )


def _report(
    constraint: Constraint,
    scope: Scope,
    rows: tuple[int, ...],
    holders: tuple[str, ...],
    c: np.ndarray,
    mu: np.ndarray,
    units: Any,
) -> ConstraintReport:
    """The report of a constraint from its scalar inequalities g <= 0."""
    sides, weights = c[:, list(rows)], mu[:, list(rows)]
    if math.isinf(constraint.upper):
        values = constraint.lower - sides.max(axis=1)
    else:
        below = 0 if math.isinf(constraint.lower) or constraint.kind == "==" else 1
        values = constraint.upper + sides[:, : len(rows) - below].max(axis=1)
    broken = np.abs(sides[:, 0]) if constraint.kind == "==" else np.maximum(sides, 0.0).max(axis=1)
    margins = -broken if constraint.kind == "==" else -sides.max(axis=1)
    numbers = (tuple(float(x) for x in column) for column in (values, weights.sum(axis=1), broken, margins))
    unit = float(np.max(np.broadcast_to(units, c.shape[1:])[list(rows)]))
    return ConstraintReport(
        constraint.name, constraint.lower, constraint.upper, scope, rows, holders, *numbers, unit=unit
    )


def conflicting(certificate: Certificate) -> list[tuple[ConstraintReport, float]]:
    """The conflicting constraints of an infeasible problem with their shares of the sum of multipliers, largest first."""
    pulls = [(report, math.fsum(abs(mu) for mu in report.multipliers)) for report in certificate.constraints]
    total = math.fsum(pull for _, pull in pulls) or 1.0
    shares = [(report, pull / total) for report, pull in pulls if pull > 0.01 * total]
    return sorted(shares, key=lambda share: -share[1])
