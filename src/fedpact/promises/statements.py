"""What a promise states, one by one: one side of one constraint, at one party or over all rows.

The error 1 - confidence is split evenly over the statements (Bonferroni), so that all bounds that are shown hold together. A
statement bounds E = max_k g_k, where every part g_k = Σ_j c_j·mean_j + constant (abs and largest have several parts). Its share
of the error is

- not split over the parts: whichever part is the largest in truth, its bound alone has to hold;
- split evenly over the means of a part, each of which is bounded on the side that its coefficient asks for. Parts with two
  means, such as gaps, so take each group's rate at half of the share, however many groups are compared.
"""

import dataclasses
import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from fedpact.problem.atoms import Mean
from fedpact.problem.expressions import Constraint, Expression
from fedpact.problem.statement import Problem
from fedpact.promises.bounds import above, below, bisected
from fedpact.promises.held_out import Range, Tally, TestedMean

Side = Literal["upper", "lower"]
MOST = 1e6  # times as many rows: beyond, no number of rows is named


@dataclasses.dataclass(frozen=True)
class Part:
    """Σ coefficient · mean + constant; `places` are those of the means among all that the promise tests."""

    places: tuple[int, ...]
    coefficients: tuple[float, ...]
    constant: float


@dataclasses.dataclass(frozen=True)
class Statement:
    """One side of one constraint for one holder.

    - `constraint`, `side`: "upper" for E <= limit, "lower" for E >= limit.
    - `party`: at whom; None for the rows of all parties together.
    - `parts`: their largest is E, or -E for a lower side.
    """

    constraint: Constraint
    side: Side
    party: str | None
    parts: tuple[Part, ...]

    @property
    def limit(self) -> float:
        return self.constraint.upper if self.side == "upper" else self.constraint.lower

    @property
    def sign(self) -> float:
        """Of E in the parts."""
        return 1.0 if self.side == "upper" else -1.0

    @property
    def places(self) -> tuple[int, ...]:
        """Of the means that it reads."""
        return tuple(sorted({place for part in self.parts for place in part.places}))


@dataclasses.dataclass(frozen=True)
class Statements:
    """All that a promise states.

    - `means`: that the parties count, in order.
    - `each`: statement.
    """

    means: tuple[TestedMean, ...]
    each: tuple[Statement, ...]

    @classmethod
    def of(cls, problem: Problem, parties: Sequence[str], ranges: Mapping[str, Range]) -> "Statements":
        """The statements of a problem's constraints. Raises ValueError for those that cannot be promised, by name."""
        _check_ranges(ranges, problem)
        if problem.open_groups():
            column = problem.open_groups()[0][0]
            raise ValueError(
                f"a gap compares all values of column {column!r}, which are not known before rows are drawn; name them for the "
                "promise: groups=('a', 'b')"
            )
        places: dict[TestedMean, int] = {}
        each: list[Statement] = []
        for constraint in problem.constraints:
            atoms = [atom for atom, _ in constraint.expression.atoms()]
            if all(atom.is_squared_norm for atom in atoms):
                continue  # of the parameters alone: it is met on new rows as on old ones, and the certificate tells it
            _check(constraint)
            given = ranges.get(constraint.name)
            tested = {atom: _tested(constraint, atom, given) for atom in atoms}
            for mean in tested.values():
                places.setdefault(mean, len(places))
            for side, bounded in _sides(constraint):
                parts = tuple(_part(part, {a: places[t] for a, t in tested.items()}) for part in bounded.smooth_parts())
                holders = parties if constraint.scope == "party" else [None]
                each += [Statement(constraint, side, party, parts) for party in holders]
        if not each:
            raise ValueError(
                "the problem has no constraint on rows, so there is nothing to promise: fp.minimize(loss, [rate >= 0.9])"
            )
        return cls(tuple(places), tuple(each))

    def bound(self, statement: Statement, tallies: Sequence[Tally], error: float) -> float:
        """The bound of E that is shown, on the statement's side; wrong with a probability of at most `error`."""
        return statement.sign * max(
            part.constant
            + sum(
                c * self._end(place, tallies[place], error / len(part.places), upper=c > 0)
                for place, c in zip(part.places, part.coefficients, strict=True)
            )
            for part in statement.parts
        )

    def interval(self, statement: Statement, tallies: Sequence[Tally], error: float) -> tuple[float, float]:
        """E from below and from above, each wrong with a probability of at most `error` / 2.

        From below E is at least each of its parts, so the error is split over these; and at least their mean, which is known
        where their coefficients cancel, as in a gap.
        """
        near = statement.sign * max(
            part.constant
            + sum(
                c * self._end(place, tallies[place], error / (2 * len(statement.parts) * len(part.places)), upper=c < 0)
                for place, c in zip(part.places, part.coefficients, strict=True)
            )
            for part in statement.parts
        )
        weights: dict[int, float] = {}
        for place, c in (
            (p, c) for part in statement.parts for p, c in zip(part.places, part.coefficients, strict=True)
        ):
            weights[place] = weights.get(place, 0.0) + c
        if len(statement.parts) > 1 and not any(weights.values()):
            mean = sum(part.constant for part in statement.parts) / len(statement.parts)
            near = statement.sign * max(statement.sign * near, mean)
        far = self.bound(statement, tallies, error / 2)
        return min(near, far), max(near, far)

    def observed(self, statement: Statement, tallies: Sequence[Tally]) -> float:
        """The value of E on the held-out rows; NaN where a mean is over none of them."""
        if any(not tallies[place].rows for place in statement.places):
            return math.nan
        return statement.sign * max(
            part.constant
            + sum(
                c * tallies[place].total / tallies[place].rows
                for place, c in zip(part.places, part.coefficients, strict=True)
            )
            for part in statement.parts
        )

    def times_needed(self, statement: Statement, tallies: Sequence[Tally], error: float) -> float:
        """How many times as many held-out rows would show the limit at the rates that were seen; ∞ where none would."""

        def shown(log_times: float) -> bool:
            times = 2**log_times
            more = [Tally(times * t.rows, times * t.total) for t in tallies]  # type: ignore[arg-type]  # predicted, not counted
            return is_within(self.bound(statement, more, error), statement)

        most = math.log2(MOST)
        seen = self.observed(statement, tallies)
        return 2 ** bisected(shown, 0.0, most) if is_within(seen, statement) and shown(most) else math.inf

    def _end(self, place: int, tally: Tally, error: float, upper: bool) -> float:
        tested = self.means[place]
        least, largest = tested.ends
        width = largest - least
        total = min(max((tally.total - least * tally.rows) / width, 0.0), float(tally.rows))
        return least + width * (above if upper else below)(total, tally.rows, error, tested.is_rate)


def is_within(value: float, statement: Statement) -> bool:
    """Whether a value of E meets the statement's limit."""
    return statement.sign * value <= statement.sign * statement.limit


def _sides(constraint: Constraint) -> list[tuple[Side, Expression]]:
    sides: list[tuple[Side, Expression]] = []
    if not math.isinf(constraint.upper):
        sides.append(("upper", constraint.expression))
    if not math.isinf(constraint.lower):
        sides.append(("lower", -constraint.expression))
    return sides


def _part(expression: Expression, places: Mapping[Any, int]) -> Part:
    coefficients: dict[int, float] = {}
    for term in expression.terms:
        place = places[term.evaluated[0]]
        coefficients[place] = coefficients.get(place, 0.0) + term.coefficient
    kept = {place: c for place, c in coefficients.items() if c}
    return Part(tuple(kept), tuple(kept.values()), expression.constant)


def _check(constraint: Constraint) -> None:
    if constraint.kind == "==":
        raise ValueError(
            f"constraint {constraint.name!r}: an equality is not shown by any number of rows; promise a range, "
            f"e.between({constraint.lower - 0.02:g}, {constraint.upper + 0.02:g}) say"
        )
    if constraint.scope == "server":
        raise ValueError(
            f"constraint {constraint.name!r} is .at_server(), whose rows are not held out; promise it at each party or .pooled()"
        )


def _tested(constraint: Constraint, atom: Any, given: Range | None) -> TestedMean:
    if not isinstance(atom, Mean):
        raise ValueError(
            f"constraint {constraint.name!r}: {atom} is no mean over rows, so no number of rows bounds it; write it as fp.mean "
            "of a row-wise function, or leave it out of what is promised"
        )
    if getattr(atom, "weights", None) is not None:
        raise ValueError(
            f"constraint {constraint.name!r}: {atom} is a weighted mean, which a promise does not bound; promise the mean "
            "without weights="
        )
    if atom.rate is not None and atom.rate.is_decision:
        return TestedMean(atom, None)
    known = (0.0, 1.0) if atom.rate is not None else None
    if given is None and known is None:
        raise ValueError(
            f"constraint {constraint.name!r}: {atom} has no known range, by which a mean is bounded; say the least and the "
            f"largest value of a row, ranges={{{constraint.name!r}: (0, 1)}}, or promise a rate of fp.decisions"
        )
    return TestedMean(atom, given or known)


def _check_ranges(ranges: Mapping[str, Range], problem: Problem) -> None:
    names = [constraint.name for constraint in problem.constraints]
    for name, ends in ranges.items():
        if name not in names:
            raise ValueError(f"ranges= has {name!r}; the constraints are {', '.join(map(repr, names))}")
        pair = tuple(ends) if isinstance(ends, tuple | list) else ()
        numeric = all(isinstance(v, numbers.Real) and not isinstance(v, bool) and math.isfinite(v) for v in pair)
        if len(pair) != 2 or not numeric or not pair[0] < pair[1]:
            raise ValueError(
                f"ranges={{{name!r}: {ends!r}}}: two finite numbers, the least value of a row and the largest"
            )
