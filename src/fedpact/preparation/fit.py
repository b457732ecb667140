"""The server's part in fitting a recipe: what the parties' answers give together."""

import graphlib
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from fedpact.federation.frames import Tag
from fedpact.federation.rows import title
from fedpact.preparation.agreed import AgreedRecipe
from fedpact.preparation.answers import Arrays, Question, Survey
from fedpact.preparation.recipe import Recipe
from fedpact.preparation.summary import Ask, Summary
from fedpact.sums import exact_sum

SHOWN = 8  # categories of a column in print


def question(recipe: Recipe, surveys: Mapping[str, Survey], sums: Arrays | None = None) -> Question:
    """The second question, from the answers to the first by party.

    - `sums`: of the surveys over all parties, where they were added up in secret (default: the surveys have them).

    Raises ValueError with party and column where the parties' columns are of different kinds, or a party has no rows.
    """
    empty = [party for party, survey in surveys.items() if not survey.rows]
    if empty:
        raise ValueError(f"{title(empty[0])} holds no rows; leave it out or give it some")
    sums = _added([survey.sums for survey in surveys.values()]) if sums is None else sums
    asks, together = recipe.asks, [_summary(ask, place, surveys, sums) for place, ask in enumerate(recipe.asks)]
    centre = np.array(
        [known.mean if ask.squares and known.count else 0.0 for ask, known in zip(asks, together, strict=True)]
    )
    ends = [
        (known.least, known.greatest) if ask.cells and math.isfinite(known.least) else (0.0, 0.0)
        for ask, known in zip(asks, together, strict=True)
    ]
    low, high = np.array(ends).T
    return Question(
        centre, np.ascontiguousarray(low), np.ascontiguousarray(high), tuple(k.categories for k in together)
    )


def asks_twice(recipe: Recipe) -> bool:
    """Whether the recipe needs the second question."""
    return any(ask.asks_twice for ask in recipe.asks)


def agree(
    recipe: Recipe,
    surveys: Mapping[str, Survey],
    asked: Question,
    measures: Sequence[Arrays] | None,
    sums: Arrays | None = None,
) -> AgreedRecipe:
    """The fitted recipe, from the answers to both questions.

    - `surveys`: the answers to the first by party. `sums`: as in `question`.
    - `measures`: the answers to the second, or their sum; None where there was no second one.

    Raises ValueError where nothing can be agreed on, with the column.
    """
    sums = _added([survey.sums for survey in surveys.values()]) if sums is None else sums
    more = None if measures is None else _added(measures)
    known = [
        _measured(_summary(ask, place, surveys, sums), place, asked, more) for place, ask in enumerate(recipe.asks)
    ]
    encoders, place = [], 0
    for step in recipe.steps:
        encoders += step.encoders(known[place : place + len(step.columns)])
        place += len(step.columns)
    label = None
    if recipe.label is not None:
        label = recipe.label.encoder(known[place])
        place += 1
    keep = {summary.ask.column: summary.kind for summary in known[place:]}
    rows = sum(survey.rows for survey in surveys.values())
    agreed = AgreedRecipe(tuple(encoders), label, keep, rows, _told(recipe.asks, surveys))
    features = agreed.features
    twice = [name for place, name in enumerate(features) if name in features[:place]]
    if twice:
        raise ValueError(f"two steps of the recipe make a feature called {twice[0]!r}; leave one of them out")
    return agreed


def _summary(ask: Ask, place: int, surveys: Mapping[str, Survey], sums: Arrays) -> Summary:
    """What the answers to the first question give about a column."""
    answers = list(surveys.values())
    rows, missing = sum(each.rows for each in answers), int(sums["missing"][place])
    kind = _kind(ask, place, surveys)
    mean = float(sums["total"][place]) / (rows - missing) if rows > missing else math.nan
    least, greatest = min(each.least[place] for each in answers), max(each.greatest[place] for each in answers)
    if ask.within is not None:
        least, greatest = ask.within
    categories = _categories(ask, place, surveys) if ask.tells_categories(kind) else ()
    return Summary(ask, kind, rows, missing, mean, math.nan, float(least), float(greatest), None, categories)


def _measured(known: Summary, place: int, asked: Question, sums: Arrays | None) -> Summary:
    """With what the answers to the second question add."""
    ask = known.ask
    if sums is None or not ask.asks_twice:
        return known
    more = {}
    if ask.squares and known.count:
        # The first mean has the rounding of one large sum; what values deviate from it says how far it is off.
        off = float(sums["deviation"][place]) / known.count
        more["mean"] = float(asked.centre[place]) + off
        more["squares"] = max(0.0, float(sums["squares"][place]) - known.count * off**2)
    if ask.cells:
        more["histogram"] = sums[f"histogram {place}"]
        if int(more["histogram"].sum()) != known.count:
            raise ValueError(
                f"column {ask.column!r}: the histograms have other numbers of values than the parties told"
            )
    if ask.counts:
        more["counts"] = dict(zip(known.categories, map(int, sums[f"counts {place}"]), strict=True))
    return Summary(**{**vars(known), **more, "others": int(sums["others"][place])})


def _added(answers: Sequence[Arrays]) -> dict[str, np.ndarray]:
    """Sums over parties, rounded once, as those that are added up in secret are."""
    return {name: exact_sum([each[name] for each in answers]) for name in answers[0]}


def _kind(ask: Ask, place: int, surveys: Mapping[str, Survey]) -> str:
    """The kind that the column has at all parties; "nothing" fits to any, and booleans are numbers where these are asked for."""
    kinds = {party: survey.sets[place].kind for party, survey in surveys.items()}
    if ask.of_numbers:
        kinds = {party: "numbers" if kind == "booleans" else kind for party, kind in kinds.items()}
    there = {party: kind for party, kind in kinds.items() if kind != "nothing"}
    if not there:
        return "nothing"
    first, *others = there
    for party in others:
        if there[party] != there[first]:
            raise ValueError(
                f"column {ask.column!r} holds {there[party]} at {title(party)} and {there[first]} at {title(first)}; all "
                "parties need the same"
            )
    return there[first]


def _categories(ask: Ask, place: int, surveys: Mapping[str, Survey]) -> tuple[Tag, ...]:
    """All parties' categories: sorted, or in the order that they declare."""
    if ask.categories == "declared":
        return _declared(ask.column, {party: survey.sets[place].categories or () for party, survey in surveys.items()})
    told = {tag for survey in surveys.values() for tag in survey.sets[place].categories or ()}
    orders = {p: order for p, survey in surveys.items() if (order := survey.sets[place].order) is not None}
    if not orders:
        return tuple(sorted(told))
    merged = _merged(ask.column, orders)
    unordered = sorted(told - set(merged))
    if unordered:
        party = next(p for p, survey in surveys.items() if unordered[0] in (survey.sets[place].categories or ()))
        raise ValueError(
            f"column {ask.column!r} of {title(party)} holds {unordered[0]!r}, which is not in the order that other parties "
            f"declare: {', '.join(map(str, merged))}"
        )
    return tuple(tag for tag in merged if tag in told)


def _declared(column: str, by_party: Mapping[str, tuple[Tag, ...]]) -> tuple[Tag, ...]:
    """The categories that all parties declare alike."""
    (first, own), *others = by_party.items()
    for party, theirs in others:
        if theirs != own:
            odd = sorted(set(own) ^ set(theirs), key=str)
            what = f"{odd[0]!r} is declared by one of them only" if odd else "their order differs"
            raise ValueError(
                f"column {column!r} declares other categories at {title(party)} than at {title(first)}: {what}; give all parties "
                "the same, or list them in the recipe's step"
            )
    return own


def _merged(column: str, orders: Mapping[str, Sequence[Tag]]) -> tuple[Tag, ...]:
    """One order of all categories, in which each party's are in its own order."""
    advice = "give all parties the same ordered categories, or state them: fp.ordinal(..., order=[...])"
    sorter: graphlib.TopologicalSorter[Tag] = graphlib.TopologicalSorter()
    for order in orders.values():
        for place, tag in enumerate(order):
            sorter.add(tag, *order[max(place - 1, 0) : place])
    try:
        sorter.prepare()
    except graphlib.CycleError:
        first, second = next(
            filter(lambda pair: _conflict(*pair), itertools.combinations(orders.items(), 2)), (None, None)
        )
        who = "some parties" if first is None or second is None else f"{title(first[0])} and {title(second[0])}"
        raise ValueError(f"{who} have the categories of column {column!r} in different orders; {advice}") from None
    merged: list[Tag] = []
    while sorter.is_active():
        ready = sorter.get_ready()
        if len(ready) > 1:
            first, second = map(str, sorted(ready)[:2])
            raise ValueError(f"no party says which comes first in column {column!r}, {first} or {second}; {advice}")
        merged += ready
        sorter.done(*ready)
    return tuple(merged)


def _conflict(one: tuple[str, Sequence[Tag]], other: tuple[str, Sequence[Tag]]) -> bool:
    """Whether two parties have their common categories in different orders."""
    return [tag for tag in one[1] if tag in other[1]] != [tag for tag in other[1] if tag in one[1]]


def _told(asks: Sequence[Ask], surveys: Mapping[str, Survey]) -> dict[str, str]:
    """By party, what it told, in words."""
    return {party: "; ".join(_told_by(asks, survey)) for party, survey in surveys.items()}


def _told_by(asks: Sequence[Ask], survey: Survey) -> list[str]:
    parts = [f"{survey.rows:,} rows"]
    for place, ask in enumerate(asks):
        words = []
        if survey.missing is not None and survey.missing[place]:
            words.append(f"{int(survey.missing[place]):,} missing")
        if ask.total and survey.total is not None:
            words.append(f"sum {survey.total[place]:.6g}" + (" and sum of squares" if ask.squares else ""))
        if ask.extremes and math.isfinite(survey.least[place]):
            words.append(f"from {survey.least[place]:.6g} to {survey.greatest[place]:.6g}")
        if ask.cells and survey.total is not None:
            words.append(f"a histogram of {ask.cells:,} cells")
        tags = survey.sets[place].categories
        if tags is not None:
            listed = ", ".join(map(str, tags[:SHOWN])) + (f" and {len(tags) - SHOWN} more" if len(tags) > SHOWN else "")
            words.append(listed or "no category in enough rows")
        if ask.counts and survey.total is not None:
            words.append("rows by category")
        if words:
            parts.append(f"{ask.column} {', '.join(words)}")
    return parts
