"""fp.promise: set rows aside, train a candidate on the others with tightened limits, test it once."""

import functools
import math
import numbers
import operator
from collections.abc import Mapping
from typing import Any

from fedpact.federation.columns import ColumnParties
from fedpact.federation.rows import Parties, checked_seed, split_rows
from fedpact.problem.split import SplitModel
from fedpact.problem.statement import Problem
from fedpact.promises.held_out import Range, Tally, counted, drawn, rows_of
from fedpact.promises.promise import Promise, judged
from fedpact.promises.statements import Statements
from fedpact.promises.tightening import Terms, tightened
from fedpact.protocol.algorithm import Algorithm
from fedpact.run.fingerprint import digest_of_data
from fedpact.run.solve import solve


def promise(
    problem: Problem,
    parties: Parties | Any,
    algorithm: Algorithm | None = None,
    *,
    confidence: float = 0.95,
    held_out: float = 0.4,
    seed: int = 0,
    power: float = 0.9,
    ranges: Mapping[str, Range] | None = None,
    previous: Promise | None = None,
    **options: Any,
) -> Promise:
    """Promise a problem's constraints for new rows: train on one part of every party's rows, test once on the other.

    - `problem`: from `fp.minimize`, with constraints at each party or `.pooled()`: on rates of `fp.decisions`, on gaps and other
      linear combinations of rates, and on means of losses whose range is known.
    - `parties`: who holds which rows, from `fp.split_rows`, or a list or mapping of tables.
    - `algorithm`: as in `fp.solve`.
    - `confidence`: with which all bounds that are shown hold together (0.5 to 1, default 0.95); it is split over the sides of
      constraints and, where these hold at each party, the parties.
    - `held_out`: the share of every party's rows that is held out for the test (0 to 1, default 0.4). Which rows is drawn at the
      party, keyed by the seed, its name and its rows.
    - `seed`: of the draws and of `fp.solve` (default 0).
    - `power`: the probability with which a candidate at its tightened limit should pass a test (0.5 to 1, default 0.9): the more,
      the tighter the limits that it is trained with.
    - `ranges`: by the name of a constraint, the least and the largest value that a row's loss in it may have, for losses other
      than rates, whose means are bounded by their range (default: none).
    - `previous`: the last promise that was asked of the same held-out rows. The kth asking then has the error
      (1 - confidence)/2^(k-1), and the words say so (default: these rows were not asked before).
    - `options`: of `fp.solve`, such as `tolerance` and `max_rounds`.

    Returns an `fp.Promise`: `kept`, or not shown and why. A candidate that is not converged is not tested, which spends no
    confidence. Raises ValueError or TypeError where a constraint cannot be promised,
    by its name and with the way out, and as `fp.solve` does.

        promise = fp.promise(problem, hospitals, confidence=0.95, held_out=0.4)
        print(promise)
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"fp.promise takes a problem from fp.minimize, not {problem!r}")
    if isinstance(parties, ColumnParties) or isinstance(problem.model, SplitModel):
        raise ValueError(
            "the parties hold columns of the same rows; a promise is made where they hold rows of their own: fp.split_rows"
        )
    if not isinstance(previous, Promise | None):
        raise TypeError(f"previous={previous!r}: the promise that was asked before")
    terms = checked_terms(confidence, held_out, power, 1 if previous is None else previous.asked + 1)
    rows = parties if isinstance(parties, Parties) else split_rows(parties)
    if ranges is not None and not isinstance(ranges, Mapping):
        raise TypeError(f"ranges={ranges!r}: ranges by the names of constraints, such as {{'loss': (0, 1)}}")
    statements = Statements.of(problem, rows.names, ranges or {})
    draws = {name: drawn(rows[name], name, held_out, checked_seed(seed)) for name in rows}
    aside = {name: out for name, (_, out) in draws.items()}
    drawn_as = digest_of_data(aside, None)
    if previous is not None and previous.drawn_as != drawn_as:
        raise ValueError(
            "previous= was tested on other rows: another seed, share or table; leave it out where these rows were never asked, "
            "or give the same seed= and held_out="
        )
    known = with_all({name: rows_of(statements.means, table) for name, table in aside.items()})
    stricter = tightened(problem, statements, known, terms)
    result = solve(
        stricter, Parties({name: rest for name, (rest, _) in draws.items()}), algorithm, seed=seed, **options
    )
    sizes = {name: table.rows for name, table in aside.items()}
    if not result.converged:
        return Promise(result, terms.confidence, terms.asked - 1, (), sizes, terms, drawn_as)
    tallies = {name: counted(statements.means, name, table, result.params) for name, table in aside.items()}
    shown = judged(result, statements, with_all(tallies), terms)
    return Promise(result, terms.confidence, terms.asked, shown, sizes, terms, drawn_as)


def with_all(tallies: Mapping[str, tuple[Tally, ...]]) -> dict[str | None, tuple[Tally, ...]]:
    """The parties' tallies, and for None their sums, in the parties' order."""
    together = tuple(functools.reduce(operator.add, own) for own in zip(*tallies.values(), strict=True))
    return {**tallies, None: together}


def checked_terms(confidence: Any, held_out: Any, power: Any, asked: int = 1) -> Terms:
    """Raises ValueError where a number is out of its range."""
    _check("confidence", confidence, 0.5 <= _number(confidence) < 1, "at least 0.5 and below 1; 0.95 is the default")
    _check("held_out", held_out, 0 < _number(held_out) < 1, "the share of rows, between 0 and 1; 0.4 is the default")
    _check("power", power, 0.5 <= _number(power) < 1, "at least 0.5 and below 1; 0.9 is the default")
    return Terms(float(confidence), float(held_out), float(power), asked)


def _check(name: str, given: Any, fits: bool, words: str) -> None:
    if not fits:
        raise ValueError(f"promise({name}={given!r}): {words}")


def _number(given: Any) -> float:
    return float(given) if isinstance(given, numbers.Real) and not isinstance(given, bool) else math.nan
