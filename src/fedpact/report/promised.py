"""What was promised, constraint by constraint: values against limits, who is at the limit, what a looser bound would buy.

Print and page share these words. A value is counted where its constraint has `fp.decisions`; a smooth rate (`fp.positive_rate`)
is called a stand-in, since it is no share of rows.
"""

import dataclasses
import math
from collections.abc import Collection

import numpy as np

from fedpact.certificate import Certificate, ConstraintReport, SmoothStandIns
from fedpact.problem.statement import Problem

MANY = 6  # holders of one constraint that a line names; of more, those with the least room
POINT = 0.01  # a looser bound on a rate: one percentage point more
PART = 0.1  # of any other bound
LITTLE = 1e-6  # of the objective: less than this is not worth a word

COUNTED = "counted"
SMOOTH = "smooth stand-in of a rate, not counted"


@dataclasses.dataclass(frozen=True)
class Looser:
    """What a looser bound would buy, to first order: `allowed` instead of `bound` lowers the objective by about `gain`."""

    bound: float
    allowed: float
    gain: float

    def __str__(self) -> str:
        return f"allowing {self.allowed:.6g} instead of {self.bound:.6g} would lower the objective by about {self.gain:.3g}"


def smooth_rates(problem: Problem) -> frozenset[str]:
    """The names of constraints on smooth rates that nobody counts."""
    rates = {
        c.name: [atom.rate for atom, _ in c.expression.atoms() if atom.rate is not None] for c in problem.constraints
    }
    return frozenset(name for name, found in rates.items() if found and not any(rate.is_decision for rate in found))


def kind_of(report: ConstraintReport, smooth: Collection[str]) -> str:
    """What its values are, in words; empty where they are just what was bounded."""
    return COUNTED if report.is_counted else SMOOTH if report.name in smooth else ""


def at_limit(report: ConstraintReport, holder: int, tolerance: float) -> bool:
    """Whether the limit holds the result back there: no room to a tolerance, or, since counts jump, a multiplier above 0."""
    if report.lower == report.upper:
        return False
    return report.margins[holder] <= tolerance * report.unit or (report.is_counted and report.multipliers[holder] > 0)


def looser(report: ConstraintReport, objective: float, is_rate: bool) -> list[Looser]:
    """For each side with multipliers above 0, those of all holders together: the bound is theirs together."""
    if report.lower == report.upper:
        return []
    values, prices = np.asarray(report.values), np.asarray(report.multipliers)
    upper = np.abs(values - report.upper) <= np.abs(values - report.lower)  # the side that a multiplier belongs to
    out = []
    for bound, sign, here in ((report.upper, 1.0, upper), (report.lower, -1.0, ~upper)):
        step = POINT if is_rate or not bound else PART * abs(bound)
        gain = step * float(prices[here].sum())
        if math.isfinite(bound) and gain > LITTLE * max(abs(objective), LITTLE):
            out.append(Looser(bound, bound + sign * step, gain))
    return out


def place_of(report: ConstraintReport) -> str:
    """Where it holds, in words."""
    if report.scope == "pooled":
        return "over all rows"
    if report.scope == "server":
        return "at the server"
    return "at each party" if len(report.holders) > 1 else f"at {', '.join(report.holders)}"


def heading(report: ConstraintReport) -> str:
    """Name and bound; the formula of a constraint without a name ends with its bound."""
    return report.name if report.name.endswith(report.bound) else f"{report.name} {report.bound}"


def in_lines(certificate: Certificate, smooth: Collection[str], tolerance: float, converged: bool) -> list[str]:
    """For print: each constraint with its values, and beneath it what a looser bound would buy."""
    lines = []
    for report in certificate.constraints:
        kind = kind_of(report, smooth)
        lines.append(
            f"{heading(report)}, {f'{kind}, ' if kind else ''}{place_of(report)}: {_values(report, tolerance)}"
        )
        if converged:
            lines += [f"  {each}" for each in looser(report, certificate.objective, bool(kind))]
        if report.lower == report.upper:
            lines.append(f"  multiplier {report.multipliers[report.worst]:.4g} at {report.holders[report.worst]}")
    return lines


def _values(report: ConstraintReport, tolerance: float) -> str:
    def one(holder: int) -> str:
        name = f"{report.holders[holder]} " if len(report.holders) > 1 else ""
        value = f"{name}{report.values[holder]:.6g}"
        if report.is_broken(holder, tolerance):
            return f"{value}, which breaks {report.bound} by {report.violations[holder]:.3g}"
        return f"{value} (at the limit)" if at_limit(report, holder, tolerance) else value

    if len(report.holders) <= MANY:
        return ", ".join(map(one, range(len(report.holders))))
    order = np.nan_to_num(report.margins, nan=-np.inf).argsort(kind="stable").tolist()
    tight = sum(at_limit(report, k, tolerance) for k in order)
    named = ", ".join(map(one, order[:MANY]))
    return f"least room first {named}, … of {len(order)}, {tight} of them at the limit"


def solved_with(stand_ins: SmoothStandIns, objective: float) -> str:
    """What optimality is about where decisions are counted, and the objective with them counted, where it has any."""
    words = (
        "optimality is that of smooth stand-ins for the decisions, whose bounds were moved until the counts met theirs"
    )
    if abs(stand_ins.objective - objective) <= LITTLE * LITTLE * abs(objective):
        return words
    return f"{words}; the objective has them smoothed and is {stand_ins.objective:.6g} with decisions counted"
