"""What a promise hands back: kept or not shown, and the bound of every constraint."""

import dataclasses
import math
from collections.abc import Mapping

from fedpact.evaluation.table import Evaluation
from fedpact.federation.rows import title
from fedpact.problem.expressions import Constraint
from fedpact.promises.agreed import AgreedPromise
from fedpact.promises.held_out import Tally, with_all
from fedpact.promises.statements import Side, Statement, Statements, is_within
from fedpact.promises.tightening import Terms
from fedpact.run import promise_words as words
from fedpact.run.result import Result


@dataclasses.dataclass(frozen=True)
class Shown:
    """One side of one constraint, at one party or over all rows, as the test found it.

    - `name`: of the constraint. `party`: at whom it was tested; None where it is over all parties' rows.
    - `side`: "upper" for expression <= limit, "lower" for expression >= limit.
    - `limit`: that was promised. `trained`: the tightened one that the candidate was trained with.
    - `observed`: the expression's value on the held-out rows; NaN where a mean is over none of them.
    - `bound`: the confidence bound of the expression on this side.
    - `counts`: for each mean, the sum and the number of held-out rows: k of n for a rate.
    - `outside`: how many held-out rows have a value outside the stated range.
    - `rows_needed`: about how many held-out rows would have shown the limit at the observed value; ∞ where none would.
    """

    name: str
    party: str | None
    side: Side
    limit: float
    trained: float
    observed: float
    bound: float
    counts: tuple[tuple[float, int], ...]
    outside: int
    rows_needed: float
    statement: Statement = dataclasses.field(repr=False)

    @property
    def kept(self) -> bool:
        """Whether the bound meets the limit, and no value lies outside its range."""
        return not self.outside and is_within(self.bound, self.statement)

    @property
    def rows(self) -> int:
        """Held-out rows behind the bound: those of all its means together."""
        return sum(rows for _, rows in self.counts)

    @property
    def margin(self) -> float:
        """How far the bound is inside the limit, negative where it is not."""
        return self.statement.sign * (self.limit - self.bound)


def shift_of(result: Result) -> float:
    """By how much a candidate's threshold of decisions differs from the problem's."""
    moved = result.certificate.stand_ins
    return 0.0 if moved is None else moved.threshold_shift


@dataclasses.dataclass(frozen=True)
class Promise:
    """A candidate, and what was shown of it on rows that it was not trained on. Made by `fp.promise`; `print` says it in words.

    - `result`: the candidate, an `fp.Result` of the problem with tightened limits on the rows that were not held out.
    - `confidence`: that was asked for, of one asking.
    - `asked`: how often these held-out rows were asked, this time included; a candidate that is not converged is not tested, and
      does not count.
    - `constraints`: what was shown, one entry for each side of each constraint and, where it holds at each party, each party;
      empty where the candidate was not tested.
    - `held_out`: the number of rows that each party held out.
    """

    result: Result
    confidence: float
    asked: int
    constraints: tuple[Shown, ...]
    held_out: Mapping[str, int]
    terms: Terms = dataclasses.field(repr=False)
    drawn_as: str = dataclasses.field(repr=False)  # a digest: which rows were held out

    @property
    def kept(self) -> bool:
        """Whether the candidate is certified and every limit was shown."""
        return bool(self.constraints) and all(shown.kept for shown in self.constraints)

    @property
    def evaluation(self) -> Evaluation | None:
        """That of the candidate, where its pact has `evaluate`."""
        return self.result.evaluation

    @property
    def confidence_of_each(self) -> float:
        """Of each single bound, so that all bounds of this asking hold together with the confidence of the asking."""
        return 1.0 - self.terms.error / max(1, len(self.constraints))

    @property
    def confidence_of_all(self) -> float:
        """That no bound shown in any of the askings is wrong."""
        return 1.0 - self.terms.error_of_all

    def bound(self, name: str, party: str | None = None, side: Side | None = None) -> float:
        """The confidence bound that was shown for a constraint, in the units of its expression.

        - `name`: of the constraint.
        - `party`: at which party, where it holds at each (default: the one whose bound is least inside the limit).
        - `side`: "lower" or "upper", where the constraint has both.

        Raises KeyError for an unknown constraint or party, and ValueError where the side has to be said or nothing was tested.
        """
        return self.constraint(name, party, side).bound

    def constraint(self, name: str, party: str | None = None, side: Side | None = None) -> Shown:
        """All that was shown for a constraint; arguments as in `bound`."""
        own = [shown for shown in self.constraints if shown.name == name]
        if not self.constraints:
            raise ValueError(f"nothing was tested, since the candidate is not converged: {self.result.message}")
        if not own:
            known = ", ".join(map(repr, dict.fromkeys(shown.name for shown in self.constraints)))
            raise KeyError(f"no constraint {name!r} was promised; there are {known}")
        if party is not None:
            known = [shown.party for shown in own if shown.party is not None]
            own = [shown for shown in own if shown.party == party]
            if not own:
                where = f"at {', '.join(dict.fromkeys(known))}" if known else "over all parties' rows; leave party= out"
                raise KeyError(f"constraint {name!r} was not tested at {title(party)}, but {where}")
        if side is None and len({shown.side for shown in own}) > 1:
            raise ValueError(f"constraint {name!r} has two sides: say side='lower' or side='upper'")
        own = [shown for shown in own if side in (None, shown.side)]
        if not own:
            raise ValueError(f"constraint {name!r} has no side {side!r}")
        return min(own, key=lambda shown: shown.margin)

    def __str__(self) -> str:
        return words.in_lines(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return words.in_html(self)


def judged(
    result: Result,
    agreed: AgreedPromise,
    tallies: Mapping[str, tuple[Tally, ...]] | None,
    held_out: Mapping[str, int],
    drawn_as: str,
    together: tuple[Tally, ...] | None = None,
) -> Promise:
    """The one test: every statement against what the parties counted; `tallies` None where the candidate is not tested.

    together: of all parties, where some was added up in secret (default: the sums of the parties' tallies).
    """
    terms, statements = agreed.terms, agreed.statements
    if tallies is None:
        return Promise(result, terms.confidence, terms.asked - 1, (), held_out, terms, drawn_as)
    error = terms.error / len(statements.each)
    known = with_all(tallies) if together is None else {**tallies, None: together}
    trained = {constraint.name: constraint for constraint in result.problem.constraints}
    shown = tuple(_judged(s, statements, known[s.party], error, trained[s.constraint.name]) for s in statements.each)
    return Promise(result, terms.confidence, terms.asked, shown, held_out, terms, drawn_as)


def _judged(
    statement: Statement, statements: Statements, tallies: tuple[Tally, ...], error: float, trained: Constraint
) -> Shown:
    own = [tallies[place] for place in statement.places]
    rows = sum(tally.rows for tally in own)
    times = statements.times_needed(statement, tallies, error)
    return Shown(
        name=statement.constraint.name,
        party=statement.party,
        side=statement.side,
        limit=statement.limit,
        trained=trained.upper if statement.side == "upper" else trained.lower,
        observed=statements.observed(statement, tallies),
        bound=statements.bound(statement, tallies, error),
        counts=tuple((tally.total, tally.rows) for tally in own),
        outside=sum(tally.outside for tally in own),
        rows_needed=times * rows if math.isinf(times) else math.ceil(times * rows),
        statement=statement,
    )
