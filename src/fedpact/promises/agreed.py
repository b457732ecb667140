"""What all sites of a promise agree on before rows are drawn, and what each of them makes of it."""

import dataclasses
import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

from fedpact.federation.rows import checked_seed
from fedpact.federation.table import Table
from fedpact.problem.split import SplitModel
from fedpact.problem.statement import Problem
from fedpact.promises.held_out import Tally, drawn, with_all
from fedpact.promises.statements import Statements
from fedpact.promises.tightening import Terms, tightened


@dataclasses.dataclass(frozen=True)
class AgreedPromise:
    """A problem's promise: its statements, its terms and the seed of the parties' draws."""

    problem: Problem
    statements: Statements
    terms: Terms
    seed: int

    @classmethod
    def of(
        cls,
        problem: Problem,
        parties: Sequence[str],
        *,
        confidence: Any = 0.95,
        held_out: Any = 0.4,
        seed: Any = 0,
        power: Any = 0.9,
        ranges: Any = None,
    ) -> "AgreedPromise":
        """Arguments as in `fp.promise`; raises ValueError or TypeError as it does."""
        if isinstance(problem.model, SplitModel):
            raise ValueError(COLUMNS)
        if ranges is not None and not isinstance(ranges, Mapping):
            raise TypeError(f"ranges={ranges!r}: ranges by the names of constraints, such as {{'loss': (0, 1)}}")
        terms = _checked_terms(confidence, held_out, power)
        return cls(problem, Statements.of(problem, parties, ranges or {}), terms, checked_seed(seed))

    def drawn(self, party: str, table: Table) -> tuple[Table, Table]:
        """A party's rows for training, and those that it holds out."""
        return drawn(table, party, self.terms.held_out, self.seed)

    def asked(self, times: int) -> "AgreedPromise":
        """The same where the held-out rows are asked for the so-manieth time."""
        return dataclasses.replace(self, terms=dataclasses.replace(self.terms, asked=times))

    def tightened(self, rows: Mapping[str, Sequence[Tally]]) -> Problem:
        """The problem that the candidate solves, from the numbers of held-out rows behind each mean, by party."""
        known = with_all({party: tuple(own) for party, own in rows.items()})
        return tightened(self.problem, self.statements, known, self.terms)


COLUMNS = (
    "the parties hold columns of the same rows; a promise is made where they hold rows of their own: fp.split_rows"
)


def _checked_terms(confidence: Any, held_out: Any, power: Any) -> Terms:
    """Raises ValueError where a number is out of its range."""
    _check("confidence", confidence, 0.5 <= _number(confidence) < 1, "at least 0.5 and below 1; 0.95 is the default")
    _check("held_out", held_out, 0 < _number(held_out) < 1, "the share of rows, between 0 and 1; 0.4 is the default")
    _check("power", power, 0.5 <= _number(power) < 1, "at least 0.5 and below 1; 0.9 is the default")
    return Terms(float(confidence), float(held_out), float(power))


def _check(name: str, given: Any, fits: bool, words: str) -> None:
    if not fits:
        raise ValueError(f"promise({name}={given!r}): {words}")


def _number(given: Any) -> float:
    return float(given) if isinstance(given, numbers.Real) and not isinstance(given, bool) else math.nan
