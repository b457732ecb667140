"""What was promised, constraint by constraint: values against limits, who is at the limit, what a looser bound would buy.

Print and page share these words. A value is counted where its constraint has `fp.decisions`; a smooth rate (`fp.positive_rate`)
is called a stand-in, since it is no share of rows.
"""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from fedpact.certificate import Certificate, ConstraintReport, SmoothStandIns
from fedpact.problem.statement import Problem

MANY = 6  # holders of one constraint that a line names; of more, those with the least room
POINT = 0.01  # a looser bound on a rate: one percentage point more
PART = 0.1  # of any other bound
LITTLE = 1e-6  # of the objective: less than this is not worth a word

COUNTED = "counted"
SMOOTH = "smooth stand-in of a rate, not counted"
RATES = (COUNTED, SMOOTH)


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


def kinds(problem: Problem) -> dict[str, str]:
    """By name of a constraint, what its values are where the name does not say it: smooth rates, and means of losses.

    A constraint that was given no name is called by its formula, which says it.
    """
    named = [constraint for constraint in problem.constraints if constraint.given_name is not None]
    losses = {
        c.name: {atom.loss.name for atom, _ in c.expression.atoms() if atom.loss is not None and atom.rate is None}
        for c in named
    }
    of_losses = {name: f"a mean of {sorted(found)[0]}, not a rate" for name, found in losses.items() if found}
    return of_losses | dict.fromkeys(smooth_rates(problem), SMOOTH)


def kind_of(report: ConstraintReport, kinds: Mapping[str, str]) -> str:
    """What its values are, in words; empty where they are just what was bounded. `kinds`: of those that are not counted."""
    return COUNTED if report.is_counted else kinds.get(report.name, "")


def at_limit(report: ConstraintReport, holder: int, tolerance: float) -> bool:
    """Whether the limit holds the result back there: no room to a tolerance, or, since counts jump, a multiplier above 0.
    Where values are hidden, room is too: the multipliers say it."""
    if report.hidden:
        return report.lower != report.upper and report.multipliers[holder] > 0
    if report.lower == report.upper:
        return False
    return report.margins[holder] <= tolerance * report.unit or (report.is_counted and report.multipliers[holder] > 0)


def looser(report: ConstraintReport, objective: float, is_rate: bool) -> list[Looser]:
    """For each side with multipliers above 0, those of all holders together: the bound is theirs together."""
    if report.lower == report.upper:
        return []
    if report.hidden and math.isfinite(report.upper - report.lower):
        return []  # nobody knows which side holds the result back
    values, prices = np.asarray(report.values), np.asarray(report.multipliers)
    # the side that a multiplier belongs to
    upper = np.abs(np.nan_to_num(values) - report.upper) <= np.abs(np.nan_to_num(values) - report.lower)
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
    return "at each party" if len(report.holders) > 1 or report.hidden else f"at {', '.join(report.holders)}"


def heading(report: ConstraintReport) -> str:
    """Name and bound; the formula of a constraint without a name ends with its bound."""
    return report.name if report.name.endswith(report.bound) else f"{report.name} {report.bound}"


def in_lines(certificate: Certificate, kinds: Mapping[str, str], tolerance: float, converged: bool) -> list[str]:
    """For print: each constraint with its values, and beneath it what a looser bound would buy."""
    lines = []
    for report in certificate.constraints:
        kind = kind_of(report, kinds)
        lines.append(
            f"{heading(report)}, {f'{kind}, ' if kind else ''}{place_of(report)}: {_values(report, tolerance)}"
        )
        if converged:
            lines += [f"  {each}" for each in looser(report, certificate.objective, kind in RATES)]
        if report.lower == report.upper:
            where = "over the parties, their sizes added up" if report.hidden else f"at {report.holders[report.worst]}"
            lines.append(f"  multiplier {report.multipliers[report.worst]:.4g} {where}")
    return lines


def _values(report: ConstraintReport, tolerance: float) -> str:
    def one(holder: int) -> str:
        name = f"{report.holders[holder]} " if len(report.holders) > 1 else ""
        value = f"{name}{report.values[holder]:.6g}"
        if report.is_broken(holder, tolerance):
            return f"{value}, which breaks {report.bound} by {report.violations[holder]:.3g}"
        return f"{value} (at the limit)" if at_limit(report, holder, tolerance) else value

    if report.hidden:
        most = report.violations[0]
        if report.is_broken(0, tolerance):
            return f"broken somewhere, at no party by more than {most:.3g}; values are hidden"
        within = "" if not most else f" to {most:.1e}"
        return f"holds{within} at every party; values are hidden"
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
