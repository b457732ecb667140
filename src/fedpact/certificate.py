"""The certificate: how far parameters with their multipliers are from optimal, measured by a separate exchange with the parties.

    stationarity     dist∞(0, ∇f(w) + ∂h(w) + Σ μ_j ∇c_j(w))
    feasibility      the largest violation: [c_j]₊, |c_j| for equalities, and the distance to a box of h
    complementarity  the largest |c_j| among inequalities with μ_j > 0, and of -μ_j among those with μ_j < 0

All three at most a tolerance is Definition 1 of He, Peng and Sun (2024). Of the algorithm only the result is used: the
parameters, and the multipliers of each party and the server. So anybody who has these, and the parties' cooperation for one
exchange, can recompute it (`fp.verify`). The measurement for each setting is in `settings/`.
"""

import dataclasses
import html
import math
from typing import Any

import jax
import numpy as np

from fedpact.problem.atoms import Scope
from fedpact.problem.expressions import Constraint, bound_in_words
from fedpact.problem.program import Compiled, rate_factors
from fedpact.problem.units import Units
from fedpact.protocol.algorithm import Answer
from fedpact.records import Record
from fedpact.tolerance import Tolerance

EXACT = 1e-9  # counted rates are exact, up to the rounding of sums
SERVER = "server"
ALL_ROWS = "all rows"
EVERY_PARTY = "every party"
MOST_LINES = 50  # of a certificate's table in a notebook


class Counted(Record):
    """Where decisions are counted: the same with counts in place of smooth stand-ins, and what corrects these."""

    objective: jax.Array
    party_constraints: jax.Array
    server_constraints: jax.Array
    pooled_constraints: jax.Array
    party_corrections: jax.Array


class Hidden(Record):
    """What is known of the parties' own constraints where sums are secure, of each scalar one: the sum of the multipliers'
    sizes, and powers of two that no party's violation, gap (|c| where μ > 0) and −μ are above."""

    multipliers: jax.Array
    violation: jax.Array
    gap: jax.Array
    negative: jax.Array
    counted: jax.Array | None  # violation with decisions counted


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
    counted: Counted | None = None
    hidden: Hidden | None = None  # then the parties' constraints and multipliers are NaN


@dataclasses.dataclass(frozen=True)
class SmoothStandIns:
    """What a problem with counted rates of decisions was solved with: smooth stand-ins, with bounds moved by corrections.

    - `party` (parties, scalar constraints), `server`, `pooled` (scalar constraints,): what was added to each g <= 0.
    - `objective`: with decisions counted; `certificate.objective` has them smoothed, as they were minimised.
    - `threshold_shift`: by which the threshold of decisions had to be moved for the counts to be within their limits, in units
      of the score (0: it is as stated).
    """

    party: np.ndarray
    server: np.ndarray
    pooled: np.ndarray
    objective: float
    threshold_shift: float


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
    - `stand_ins`: where `values` are counted from decisions: the values of the smooth expression that was bounded in their
      place (default None: nothing is counted). A counted constraint is broken by any violation, however small.
    - `hidden`: whether sums were secure and no party told its own (default: no). Then the only holder is "every party":
      `violations` has a power of two that none is above, `margins` its negative, `multipliers` the sum over parties, and
      `values` and `stand_ins` are NaN.
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
    stand_ins: tuple[float, ...] | None = None
    hidden: bool = False

    def is_broken(self, holder: int, tolerance: float) -> bool:
        """Whether the holder's violation is more than a tolerance, in this unit; if it is counted, whether there is any."""
        return self.violations[holder] > (EXACT if self.is_counted else tolerance * self.unit)

    @property
    def is_counted(self) -> bool:
        """Whether its values are counted from decisions."""
        return self.stand_ins is not None

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
    - `party_multipliers` (parties, scalar constraints), `server_multipliers`, `pooled_multipliers` (scalar constraints,): μ;
      those of the parties are NaN where sums were secure and no party told its own.
    - `infeasible_radius`: where the multipliers prove, for convex constraints, that no feasible point lies this near, in the
      units of the parameters; 0 where they prove nothing. Large where a run is "infeasible", and meaningless elsewhere.
    - `personal`: residuals and distances by party, where every party has a model of its own (default None).
    - `units`: that stationarity, feasibility and complementarity are in, an `fp.protocol.Units` (default None: those of the
      problem's own numbers): a component of the gradient counts per unit of the objective and of its parameter, a violation
      per unit of its constraint. Everything else is in the problem's own units.
    - `stand_ins`: where rates of decisions are counted, an `fp.SmoothStandIns` (default None). Stationarity and complementarity
      are then those of the smooth problem with corrected bounds; feasibility is that of the counted constraints, too.

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
    stand_ins: SmoothStandIns | None = None

    def holds(self, tolerance: float | tuple[float, float]) -> bool:
        """Whether stationarity, feasibility and complementarity are all at most `tolerance` (> 0; or two numbers, the first on
        stationarity), and every constraint on counted rates is met exactly."""
        within = Tolerance.of(tolerance, "holds")
        small = max(self.feasibility, self.complementarity) <= within.feasibility
        return small and self.stationarity <= within.stationarity and not self.broken_counts

    @property
    def broken_counts(self) -> tuple[ConstraintReport, ...]:
        """The constraints on counted rates that are broken, by however little."""
        return tuple(r for r in self.constraints if r.is_counted and max(r.violations) > EXACT)

    def constraint(self, name: str) -> ConstraintReport:
        """The report of one constraint by name. Raises KeyError for an unknown name."""
        for report in self.constraints:
            if report.name == name:
                return report
        known = ", ".join(repr(r.name) for r in self.constraints) or "none"
        raise KeyError(f"no constraint is named {name!r}; there are: {known}")

    def _repr_html_(self) -> str:
        """For notebooks: every constraint at its holders, those with the least room first, then the three numbers."""
        heads = ("constraint", "bound", "at", "value", "margin", "multiplier")
        lines = [
            (r.name, r.bound, r.holders[at], *(f"{x[at]:.6g}" for x in (r.values, r.margins, r.multipliers)))
            for r in self.constraints
            for at in np.argsort(r.margins, kind="stable").tolist()
        ]
        more = f"<p>… and {len(lines) - MOST_LINES} more</p>" if len(lines) > MOST_LINES else ""
        rows = "".join(
            f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in line)}</tr>" for line in lines[:MOST_LINES]
        )
        top = "".join(f"<th>{head}</th>" for head in heads)
        table = f"<table><thead><tr>{top}</tr></thead><tbody>{rows}</tbody></table>{more}" if lines else ""
        numbers = "   ".join(
            f"{name} {getattr(self, name):.1e}" for name in ("stationarity", "feasibility", "complementarity")
        )
        return f"{table}<p>objective {self.objective:.6g}   {numbers}</p>"


def certificate_of(names: tuple[str, ...], compiled: Compiled, measured: Measured, answer: Answer) -> Certificate:
    """The certificate from the measurements at all holders."""
    measured, answer = jax.tree.map(np.asarray, (measured, answer))
    party_c, party_mu = measured.party_constraints, np.asarray(measured.party_multipliers)
    server_c, pooled_c = measured.server_constraints, measured.pooled_constraints
    server_mu, pooled_mu = np.asarray(answer.server_multipliers), np.asarray(answer.pooled_multipliers)
    units = answer.units and answer.units.at(answer.parameters, measured.objective)
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
    rates: dict[Scope, np.ndarray] = {
        "party": rate_factors(compiled.party)[1] > 0,
        "server": rate_factors(compiled.server)[1] > 0,
        "pooled": (rate_factors(compiled.party)[2] > 0) | (rate_factors(compiled.server)[2] > 0),
    }
    feasibility, complementarity, proof = float(measured.outside), 0.0, True
    hidden = measured.hidden
    if hidden is not None:
        price = 1.0 if units is None else units.objective
        broken, gap = hidden.violation / of_scope["party"], hidden.gap / of_scope["party"]
        negative = hidden.negative * of_scope["party"] / price
        feasibility = float(np.maximum(feasibility, broken.max(initial=0.0)))
        complementarity = float(np.maximum(gap, negative).max(initial=0.0))
        proof = not hidden.negative.any()
        if hidden.counted is not None:
            counts = np.where(rates["party"], hidden.counted, 0.0) / of_scope["party"]
            feasibility = float(np.maximum(feasibility, counts.max(initial=0.0)))
    for scope, (_, c, mu, equality) in sides.items():
        if hidden is not None and scope == "party":
            continue
        equal, c = np.asarray(equality, bool), c / of_scope[scope]
        mu = mu * of_scope[scope] / (1.0 if units is None else units.objective)
        broken = np.where(equal, np.abs(c), np.maximum(c, 0.0))
        active = np.where(equal, 0.0, np.where(mu > 0, np.abs(c), -mu))
        proof = proof and bool(np.all(equal | (mu >= 0)))
        feasibility = float(np.maximum(feasibility, broken.max(initial=0.0)))  # NaN stays NaN
        complementarity = float(np.maximum(complementarity, active.max(initial=0.0)))
    values: dict[Scope, Any] = {scope: side[1] for scope, side in sides.items()}
    smooth: dict[Scope, Any] = {}
    stand_ins = None
    if measured.counted is not None:
        stand_ins, counts, smooth = _counted(compiled, measured, answer)
        for scope in values:
            if hidden is not None and scope == "party":
                continue
            values[scope] = np.where(rates[scope], counts[scope], values[scope])
            broken = np.where(rates[scope], np.maximum(counts[scope], 0.0), 0.0) / of_scope[scope]
            feasibility = float(np.maximum(feasibility, broken.max(initial=0.0)))
    reports = []
    for constraint, scope, rows in compiled.rows:
        holders, _, mu, _ = sides[scope]
        if hidden is not None and scope == "party":
            reports.append(_hidden_report(constraint, rows, hidden, rates[scope], of_scope[scope]))
            continue
        report = _report(constraint, scope, rows, holders, values[scope], mu, of_scope[scope])
        if measured.counted is not None and rates[scope][list(rows)].any():
            report = dataclasses.replace(report, stand_ins=_values_of(constraint, smooth[scope][:, list(rows)]))
        reports.append(report)
    stationarity, objective = float(measured.stationarity), float(measured.objective)
    multipliers = party_mu, server_mu, pooled_mu
    radius = float(measured.infeasible_radius) if proof else 0.0  # multipliers below zero prove nothing
    return Certificate(
        stationarity, feasibility, complementarity, objective, tuple(reports), *multipliers, radius, units=units,
        stand_ins=stand_ins,
    )  # fmt: skip


def _counted(
    compiled: Compiled, measured: Measured, answer: Answer
) -> tuple[SmoothStandIns, dict[Scope, Any], dict[Scope, Any]]:
    """The corrections, and by scope the counted constraints and their stand-ins without corrections."""
    counted, corrections = measured.counted, answer.corrections
    assert counted is not None
    assert corrections is not None
    party, server, pooled = (np.asarray(x) for x in (counted.party_corrections, corrections.server, corrections.pooled))
    counts: dict[Scope, Any] = {
        "party": counted.party_constraints,
        "server": counted.server_constraints[None],
        "pooled": counted.pooled_constraints[None],
    }
    smooth: dict[Scope, Any] = {
        "party": measured.party_constraints - party,
        "server": (measured.server_constraints - server)[None],
        "pooled": (measured.pooled_constraints - pooled)[None],
    }
    rates = (*compiled.party.rates, *compiled.server.rates)
    shift = float(answer.threshold_shift) * next(rate.temperature for rate in rates if rate.is_decision)
    return SmoothStandIns(party, server, pooled, float(counted.objective), shift), counts, smooth


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
    values = _values_of(constraint, sides)
    broken = np.abs(sides[:, 0]) if constraint.kind == "==" else np.maximum(sides, 0.0).max(axis=1)
    margins = -broken if constraint.kind == "==" else -sides.max(axis=1)
    numbers = (tuple(float(x) for x in column) for column in (values, weights.sum(axis=1), broken, margins))
    unit = float(np.max(np.broadcast_to(units, c.shape[1:])[list(rows)]))
    return ConstraintReport(
        constraint.name, constraint.lower, constraint.upper, scope, rows, holders, *numbers, unit=unit
    )


def _hidden_report(
    constraint: Constraint, rows: tuple[int, ...], hidden: Hidden, rates: np.ndarray, units: Any
) -> ConstraintReport:
    """What is known of a constraint at the parties where none told its own."""
    at = list(rows)
    is_counted = hidden.counted is not None and bool(rates[at].any())
    counted: Any = hidden.counted
    each: Any = np.where(rates, counted, hidden.violation) if is_counted else hidden.violation
    broken = float(each[at].max())
    unit = float(np.max(np.broadcast_to(units, hidden.violation.shape)[at]))
    unknown = (math.nan,)
    return ConstraintReport(
        constraint.name, constraint.lower, constraint.upper, "party", rows, (EVERY_PARTY,), unknown,
        (float(hidden.multipliers[at].sum()),), (broken,), (-broken,), unit, unknown if is_counted else None, hidden=True,
    )  # fmt: skip


def _values_of(constraint: Constraint, sides: np.ndarray) -> tuple[float, ...]:
    """The values of a constraint's expression at each holder, from those of its scalar inequalities."""
    if math.isinf(constraint.upper):
        values = constraint.lower - sides.max(axis=1)
    else:
        below = 0 if math.isinf(constraint.lower) or constraint.kind == "==" else 1
        values = constraint.upper + sides[:, : sides.shape[1] - below].max(axis=1)
    return tuple(float(x) for x in values)
