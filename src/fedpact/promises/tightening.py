"""The limits that a candidate is trained with: tightened by what the test will need, as Seldonian candidate selection does.

Thomas, Castro da Silva, Barto, Giguere, Brun and Brunskill, "Preventing undesirable behavior of intelligent machines" (Science
2019). With n held-out rows behind a mean, a limit is tightened by

- the margin of the test: how far inside the limit a value has to be seen for its bound to meet the limit;
- the noise: z·√Σ_j c_j²·v_j·(1/n_j + 1/t_j), z the normal quantile of `power`, v_j the variance of a row and t_j the rows for
  training, so that a candidate at its tightened limit passes the test with about the probability `power`.

Of a single rate, margin and variance are those at the limit; where several means are compared their rates are not known before
training, and 1/2 is taken, at which both are largest. No limit is moved by more than `FARTHEST` of the way to the best value
that is possible at all. A constraint at each party has one limit, that of the party which needs most.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import special

from fedpact.problem.expressions import Constraint
from fedpact.problem.statement import Problem
from fedpact.promises.bounds import bisected
from fedpact.promises.held_out import Tally
from fedpact.promises.statements import Part, Side, Statement, Statements

FARTHEST = 0.75


@dataclasses.dataclass(frozen=True)
class Terms:
    """The terms of a promise, all sites the same.

    - `confidence`: that all bounds hold together. `held_out`: the share of rows that is held out.
    - `power`: the probability with which a candidate at its tightened limits passes one statement's test.
    - `asked`: how often these rows were asked, this time included; the error of the kth asking is (1 - confidence)/2^(k-1).
    """

    confidence: float = 0.95
    held_out: float = 0.4
    power: float = 0.9
    asked: int = 1

    @property
    def error(self) -> float:
        """Of this asking: the probability with which a bound that it shows is wrong."""
        return (1.0 - self.confidence) / 2 ** (self.asked - 1)

    @property
    def error_of_all(self) -> float:
        """Of all askings together."""
        return (1.0 - self.confidence) * (2.0 - 0.5 ** (self.asked - 1))


def tightened(
    problem: Problem, statements: Statements, rows: Mapping[str | None, Sequence[Tally]], terms: Terms
) -> Problem:
    """The problem that the candidate solves.

    - `rows`: by party, and for None over all of them, the numbers of held-out rows behind each mean.
    """
    error = terms.error / len(statements.each)
    limits: dict[tuple[str, Side], float] = {}
    for statement in statements.each:
        own = statement.constraint.name, statement.side
        limit = _limit(statement, statements, rows[statement.party], error, terms)
        strictest = min if statement.side == "upper" else max
        limits[own] = strictest(limits.get(own, limit), limit)
    constraints = tuple(_with(constraint, limits) for constraint in problem.constraints)
    return dataclasses.replace(problem, constraints=constraints)


def _with(constraint: Constraint, limits: Mapping[tuple[str, Side], float]) -> Constraint:
    upper = limits.get((constraint.name, "upper"), constraint.upper)
    lower = limits.get((constraint.name, "lower"), constraint.lower)
    if lower >= upper:  # between: what is left is the middle, with a little room
        middle, room = 0.5 * (constraint.lower + constraint.upper), 0.05 * (constraint.upper - constraint.lower)
        lower, upper = middle - room, middle + room
    return Constraint(constraint.expression, lower, upper, constraint.name)


def _limit(statement: Statement, of: Statements, rows: Sequence[Tally], error: float, terms: Terms) -> float:
    """The tightened limit of a statement, in the units of its constraint."""
    limit = statement.sign * statement.limit
    floor = _least(statement, of)
    if floor >= limit or any(not rows[place].rows for place in statement.places):
        return statement.limit  # nothing that the test could show
    needs = [_needed(part, statement, of, rows, error, terms) for part in statement.parts if part.places]
    return statement.sign * max(min([limit, *needs]), limit - FARTHEST * (limit - floor))


def _needed(
    part: Part, statement: Statement, of: Statements, rows: Sequence[Tally], error: float, terms: Terms
) -> float:
    """The value of a part that passes its test with the probability `power`; below every value where none does."""
    alone = dataclasses.replace(statement, side="upper", parts=(part,))
    limit = statement.sign * statement.limit
    ends = [of.means[place].ends for place in part.places]

    def seen(shares: Sequence[float]) -> list[Tally]:
        """Tallies with each mean at this share of its range."""
        tallies = list(rows)
        for place, (least, largest), share in zip(part.places, ends, shares, strict=True):
            n = rows[place].rows
            tallies[place] = Tally(n, n * (least + share * (largest - least)))
        return tallies

    halves = [0.5] * len(ends)
    if len(ends) == 1:
        falls = part.coefficients[0] > 0  # the part falls with this share, and passes from there on

        def passes(share: float) -> bool:
            return of.bound(alone, seen([1.0 - share if falls else share]), error) <= limit

        if not passes(1.0):
            return -math.inf
        share = bisected(passes, 0.0, 1.0)
        shares, value = [share], of.observed(alone, seen([1.0 - share if falls else share]))
    else:
        at_halves = seen(halves)
        shares, value = halves, limit - (of.bound(alone, at_halves, error) - of.observed(alone, at_halves))
    trained = (1.0 - terms.held_out) / terms.held_out  # rows for training for each that is held out
    variance = sum(
        (c * (largest - least)) ** 2 * s * (1.0 - s) / rows[place].rows * (1.0 + 1.0 / trained)
        for place, c, (least, largest), s in zip(part.places, part.coefficients, ends, shares, strict=True)
    )
    return value - float(special.ndtri(terms.power)) * math.sqrt(variance)


def _least(statement: Statement, of: Statements) -> float:
    """The least value that the largest part can have, over all values of the means: a linear program."""
    places = statement.places
    lines = np.zeros((len(statement.parts), len(places) + 1))
    lines[:, -1] = -1.0
    for line, part in zip(lines, statement.parts, strict=True):
        for place, c in zip(part.places, part.coefficients, strict=True):
            line[places.index(place)] = c
    bounds = [*(of.means[place].ends for place in places), (None, None)]
    constants = [-part.constant for part in statement.parts]
    from scipy.optimize import linprog  # slow to import

    answer = linprog([*[0.0] * len(places), 1.0], A_ub=lines, b_ub=constants, bounds=bounds)
    return float(answer.fun)
