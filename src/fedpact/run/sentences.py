"""A result's status as a sentence that says what was found, whose doing it is, and what to do about it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fedpact.certificate import EXACT, Certificate, ConstraintReport
from fedpact.problem.atoms import Atom
from fedpact.problem.expressions import Term
from fedpact.problem.flat_regularizer import FlatRegularizer
from fedpact.problem.gaps import Gap
from fedpact.problem.shape import Shape
from fedpact.problem.statement import Problem
from fedpact.protocol.algorithm import Answer
from fedpact.run.infeasible import conflicting
from fedpact.tolerance import Tolerance

MANY = 4  # constraints, or parameters, that a sentence names at most
NO_RADIUS = 1e12  # a radius as large as this is as good as none


def numbers_of(certificate: Certificate) -> str:
    return (
        f"stationarity {certificate.stationarity:.1e}, feasibility {certificate.feasibility:.1e}, "
        f"complementarity {certificate.complementarity:.1e}"
    )


def converged(certificate: Certificate, tolerance: Tolerance) -> str:
    if not any(report.is_counted for report in certificate.constraints):
        return f"every optimality condition holds to {tolerance}"
    moved = 0.0 if certificate.stand_ins is None else certificate.stand_ins.threshold_shift
    shifted = f" with the threshold of decisions moved by {moved:.3g}" if moved else ""
    return (
        f"all counted rates are within their limits{shifted}, and every optimality condition of the smooth problem behind them "
        f"holds to {tolerance}"
    )


def counts_not_met(certificate: Certificate, rounds: int) -> str:
    """How near counted rates came to their limits, where none of the points that were counted meets all constraints."""
    missed = [_at_worst(report) for report in certificate.broken_counts[:MANY]]
    least = least_violation(certificate.broken_counts)
    others = "" if all(report.is_counted for report in certificate.constraints) else " while the other constraints hold"
    return (
        f"no point was found whose counted rates are all within their limits{others}, in {rounds} rounds; the nearest misses by "
        f"{least:.3g}: {' and '.join(missed)}. Counts jump from row to row: relax a limit, pool it, or try several starts="
    )


def finer_than_a_row(certificate: Certificate, problem: Problem, rows: Mapping[str, int], at_server: int = 0) -> str:
    """Which counted limits leave less room than one row moves a rate, where a run ends without an answer; "" where none does.

    - `rows`: of each party; `at_server`: the server's. A rate over them, or over some of them, moves by one over their number
      or more.
    """
    stated = {constraint.name: constraint.expression for constraint in problem.constraints}
    told = []
    for report in certificate.constraints:
        if report.name not in stated:
            continue
        expression = stated[report.name]
        factors = [_factor_of_rate(term) for term in expression.terms]
        sizes = [rows[holder] for holder in report.holders if holder in rows]
        count = {"party": min(sizes, default=0), "pooled": sum(rows.values()), "server": at_server}[report.scope]
        if not count or min(factors, default=0.0) <= 0:
            continue  # differences of rates may be below 0, so that 0 is no end of theirs
        step = min(factors) / count
        lower, upper = report.lower - expression.constant, report.upper - expression.constant
        if min(upper, sum(factors) - lower, upper - lower) < step:
            told.append(f"{report.name!r} ({report.bound}): one row more or less moves it by {step:.3g} or more")
    if not told:
        return ""
    return f". This limit is finer than rows can be counted: {' and '.join(told[:MANY])}; leave room for a few rows"


def _factor_of_rate(term: Term) -> float:
    """What a rate of counted rows, or a gap in one, is multiplied by; 0 where the term is another."""
    atom = term.atom
    if isinstance(atom, Gap):
        return term.coefficient * min(_factor_of_rate(of_group) for of_group in atom.means()[0].terms)
    counted = isinstance(atom, Atom) and atom.rate is not None and atom.rate.is_decision
    return term.coefficient if counted and getattr(atom, "weights", None) is None else 0.0


def max_rounds(certificate: Certificate, rounds: int, tolerance: Tolerance) -> str:
    numbers = numbers_of(certificate)
    if certificate.holds(tolerance.given):
        numbers = f"{numbers}, but next steps still lower the objective by more than the tolerance is worth"
    done = f"stopped at max_rounds={rounds}; {numbers}; go on with a larger max_rounds=, or with save= and resume=True"
    broken = _broken(certificate, tolerance.feasibility)
    if not broken:
        return done
    worst = max(broken, key=lambda r: max(r.violations) / r.unit)
    at = int(np.argmax(worst.violations))
    return f"{done}. These parameters break {worst.name!r}: {_place(worst, at, '.6g')}"


def _broken(certificate: Certificate, tolerance: float) -> list[ConstraintReport]:
    return [r for r in certificate.constraints if r.is_broken(int(np.argmax(r.violations)), tolerance)]


def diverged(certificate: Certificate, answer: Answer, shape: Shape, rounds: int, tolerance: float) -> str:
    """Along which direction the objective falls without end, or towards an infimum that no parameters attain."""
    descent = None if answer.descent is None else np.asarray(answer.descent)
    if descent is None or not descent.any():
        return (
            f"the iterates grew without bound in round {rounds}: the objective may have no minimum (add a regulariser), "
            "or a function gave NaN"
        )
    units = 1.0 if certificate.units is None else np.asarray(certificate.units.parameters)
    where = _direction(descent, units, shape)
    if certificate.stationarity <= tolerance:
        return (
            f"no minimum is attained: the objective falls for ever, though ever less, along {where}, as it does where a model "
            f"separates the classes; add fp.l2(1e-4) or bound the parameters (found in round {rounds})"
        )
    return (
        f"the objective has no minimum: it falls without end along {where} (found in round {rounds}); add a regulariser "
        "such as fp.l2, or a bound on these parameters"
    )


def drift(answer: Answer, certificate: Certificate, shape: Shape) -> str:
    """What a converged result adds where its optimality conditions hold, but no minimum is attained."""
    if answer.descent is None or not np.any(answer.descent):
        return ""
    units = 1.0 if certificate.units is None else np.asarray(certificate.units.parameters)
    where = _direction(np.asarray(answer.descent), units, shape)
    return f"; no minimum is attained: the objective falls for ever, though ever less, along {where}; add fp.l2 to keep it finite"


def _direction(descent: np.ndarray, units: Any, shape: Shape) -> str:
    """The parameters that change most, each relative to its unit."""
    paths = jax.tree_util.tree_flatten_with_path(shape.specs())[0]
    names = []
    for path, leaf in paths:
        name = "".join(str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path) or "w"
        places = np.ndindex(leaf.shape)
        names += [name + (f"[{', '.join(map(str, place))}]" if place else "") for place in places]
    size = np.abs(descent / units)
    most = [int(k) for k in np.argsort(-size)[:MANY] if size[k] > 0.1 * size.max()]
    listed = ", ".join(f"{'+' if descent[k] > 0 else '-'}{names[k]}" for k in most)
    return listed if len(most) == descent.size or len(most) < MANY else f"{listed}, ..."


def infeasible(certificate: Certificate, answer: Answer, problem: Problem, h: FlatRegularizer, least: float) -> str:
    """Which constraints conflict, and whether that is known everywhere or near these parameters only."""
    named = [report for report, _ in conflicting(certificate)]
    named += [report for report in certificate.broken_counts if report not in named]
    pulls = [_in_conflict(report) for report in named[:MANY]]
    w = np.asarray(answer.parameters)
    if bool(np.any((w <= np.asarray(h.lower)) | (w >= np.asarray(h.upper)))):
        pulls.append("the box of the regulariser")
    convex = {c.name for c in problem.constraints if c.is_convex}
    radius = float(answer.infeasible_radius)
    pulling = [report.name for report in certificate.constraints if any(report.multipliers)]
    if pulling and convex.issuperset(pulling):
        within = f"within {radius:.1e} units of these " if 0 < radius < NO_RADIUS else ""
        opening = f"no parameters {within}meet all constraints"
        remedy = "Relax a bound, pool it, or drop it"
    else:
        opening = (
            "no parameters near these meet all constraints (locally: a constraint that is not known to be convex may be met "
            "elsewhere)"
        )
        remedy = "Try other parameters with start= or several with starts=, relax a bound, pool it, or drop it"
    counted = any(report.is_counted for report in certificate.constraints)
    others = " together with the others" if counted and len(certificate.constraints) > 1 else ""
    conflict = f"{pulls[0]} cannot be met{others}" if len(pulls) == 1 else f"these conflict: {' and '.join(pulls)}"
    # counted points are compared in units of a rate, and only where the other constraints hold
    told = "these parameters break a limit by" if counted else "the least violation found is"
    return f"{opening}; {conflict}; {told} {least:.3g}. {remedy}"


def impossible(reports: Sequence[ConstraintReport]) -> str:
    """Which constraints no parameters meet, by what they ask of rates and losses."""
    asked = " and ".join(f"{report.name!r} (wanted {report.bound})" for report in reports[:MANY])
    return (
        f"no parameters meet {asked}: a rate is never below 0 or above 1, and a loss or a squared norm never below 0. Change the "
        "bound"
    )


def _in_conflict(report: ConstraintReport) -> str:
    if report.is_counted and max(report.violations) <= EXACT:
        return f"{report.name!r} ({_place(report, report.worst, '.3g')}; met here, but its smooth stand-in is not)"
    return _at_worst(report)


def _at_worst(report: ConstraintReport) -> str:
    return f"{report.name!r} ({_place(report, report.worst, '.3g')})"


def _place(report: ConstraintReport, at: int, digits: str) -> str:
    """A value, whose it is and its bound; where values are hidden, what is known of them."""
    if report.hidden:
        return f"broken at some party by at most {report.violations[at]:{digits}}, wanted {report.bound}"
    return f"{report.values[at]:{digits}} at {report.holders[at]}, wanted {report.bound}"


def stalled(certificate: Certificate, rounds: int, tolerance: float) -> str:
    if any(report.is_counted for report in certificate.constraints):
        broken = " and ".join(_at_worst(report) for report in _broken(certificate, tolerance)[:MANY])
        missed = (
            f"not so {broken}"
            if broken
            else "but no such point was found that also solves the smooth problem behind them"
        )
        return (
            f"no further progress after {rounds} rounds: all counted rates are within their limits here, {missed}; relax a "
            "limit, or try several starts="
        )
    return (
        f"no further progress at float64 precision after round {rounds}; {numbers_of(certificate)}; allow a larger tolerance=, "
        "or try fp.ProxAL()"
    )


def least_violation(reports: Sequence[ConstraintReport]) -> float:
    return max((max(report.violations) for report in reports), default=math.nan)
