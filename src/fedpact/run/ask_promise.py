"""fp.promise: set rows aside, train a candidate on the others with tightened limits, test it once."""

import warnings
from collections.abc import Mapping
from typing import Any

from fedpact.federation.columns import ColumnParties
from fedpact.federation.groups import with_groups
from fedpact.federation.rows import Parties, split_rows
from fedpact.federation.table_checks import Holder
from fedpact.problem.statement import Problem
from fedpact.promises.agreed import COLUMNS, AgreedPromise
from fedpact.promises.held_out import Range, counted, rows_of
from fedpact.protocol.algorithm import Algorithm
from fedpact.run.fingerprint import digest_of_data
from fedpact.run.promise import Promise, judged, shift_of
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
    confidence. Raises ValueError or TypeError where a constraint cannot be promised, by its name and with the way out, and as
    `fp.solve` does.

        promise = fp.promise(problem, hospitals, confidence=0.95, held_out=0.4)
        print(promise)
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"fp.promise takes a problem from fp.minimize, not {problem!r}")
    if isinstance(parties, ColumnParties):
        raise ValueError(COLUMNS)
    if not isinstance(previous, Promise | None):
        raise TypeError(f"previous={previous!r}: the promise that was asked before")
    rows = parties if isinstance(parties, Parties) else split_rows(parties)
    if rows.recipe is not None and rows.recipe.told:
        warnings.warn(
            "the recipe of these tables was fitted on all their rows, also on those that the promise holds out; for a strict "
            "promise fit it on other rows: docs/preparation.md",
            stacklevel=2,
        )
    stated = with_groups(problem, [Holder.of(name, rows[name]) for name in rows])
    agreed = AgreedPromise.of(
        stated, rows.names, confidence=confidence, held_out=held_out, seed=seed, power=power, ranges=ranges
    )
    return promised(agreed, rows, algorithm, previous, seed=seed, **options)


def promised(
    agreed: AgreedPromise,
    rows: Parties | Any,
    algorithm: Algorithm | None = None,
    previous: Promise | None = None,
    **options: Any,
) -> Promise:
    """What `fp.promise` does, once its terms are checked; `options` of `fp.solve`."""
    agreed = agreed.asked(1 if previous is None else previous.asked + 1)
    draws = {name: agreed.drawn(name, rows[name]) for name in rows}
    aside = {name: out for name, (_, out) in draws.items()}
    drawn_as = digest_of_data(aside, None)
    if previous is not None and previous.drawn_as != drawn_as:
        raise ValueError(
            "previous= was tested on other rows: another seed, share or table; leave it out where these rows were never asked, "
            "or give the same seed= and held_out="
        )
    means = agreed.statements.means
    stricter = agreed.tightened({name: rows_of(means, table) for name, table in aside.items()})
    trained_on = Parties({name: rest for name, (rest, _) in draws.items()})
    result = solve(stricter, trained_on, algorithm, **options)
    tallies = None
    if result.converged:
        shift = shift_of(result)
        tallies = {name: counted(means, name, table, result.params, shift) for name, table in aside.items()}
    return judged(result, agreed, tallies, {name: table.rows for name, table in aside.items()}, drawn_as)
