"""What a certificate says of a problem without feasible parameters: which constraints conflict, and what is proved."""

import math
from collections.abc import Iterable

import numpy as np

from fedpact.certificate import Certificate, ConstraintReport
from fedpact.problem.expressions import Constraint
from fedpact.problem.infeasibility import least_violation
from fedpact.problem.statement import Problem

FAR = 10.0  # a proof reaches this many times as far as 1 + the norm of the parameters


def proves_infeasible(certificate: Certificate, problem: Problem, parameters: np.ndarray) -> bool:
    """Whether the multipliers prove that no parameters within ten times 1 + ‖parameters‖ meet all constraints.

    They do so only if all constraints whose multiplier is not 0 are known to be convex.
    """
    convex = {constraint.name for constraint in problem.constraints if constraint.is_convex}
    units = 1.0 if certificate.units is None else np.asarray(certificate.units.parameters)
    far = FAR * (1.0 + float(np.linalg.norm(parameters / units)))
    return certificate.infeasible_radius > far and all(
        report.name in convex for report in certificate.constraints if any(report.multipliers)
    )


def out_of_range(constraints: Iterable[Constraint]) -> list[Constraint]:
    """Those that no parameters meet exactly, by the ranges of rates and losses.

    Convex ones are not among them: for these the methods find a proof, and the parameters that violate them least.
    """
    return [constraint for constraint in constraints if not constraint.is_convex and least_violation(constraint) > 0]


def impossible(
    certificate: Certificate, constraints: Iterable[Constraint], feasibility: float
) -> tuple[ConstraintReport, ...]:
    """The reports of those that are out of range by more than the tolerance, which is in the constraints' units."""
    least = {constraint.name: least_violation(constraint) for constraint in out_of_range(constraints)}
    return tuple(r for r in certificate.constraints if least.get(r.name, 0.0) > feasibility * r.unit)


def conflicting(certificate: Certificate) -> list[tuple[ConstraintReport, float]]:
    """The conflicting constraints of an infeasible problem with their shares of the sum of multipliers, largest first."""
    pulls = [(report, math.fsum(abs(mu) for mu in report.multipliers)) for report in certificate.constraints]
    total = math.fsum(pull for _, pull in pulls) or 1.0
    shares = [(report, pull / total) for report, pull in pulls if pull > 0.01 * total]
    return sorted(shares, key=lambda share: -share[1])
