"""A pact's recipe across organisations: it is fitted before a party describes its table, by one or two questions to all parties.

survey   the kinds and categories of its columns, sums, least and greatest values
measure  with what all told: sums of squares, histograms and counts; one such question in a run

Where sums are secure, the server learns them over all parties; kinds, categories, least and greatest values come by party.

What was agreed on goes to every party with the first message of the run; each makes its own table of its own frame with it.
"""

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from fedpact.deploy.policy import Policy
from fedpact.engines.remote import Answers, Link, PartyRefused
from fedpact.engines.serialization import HEADER, Refused
from fedpact.federation.rows import title
from fedpact.preparation.agreed import AgreedRecipe
from fedpact.preparation.answers import (
    EXTREMES,
    SUMS,
    Question,
    Survey,
    check_arrays,
    measure,
    measure_layout,
    survey,
)
from fedpact.preparation.fit import agree, asks_twice, question
from fedpact.preparation.own_check import check_own
from fedpact.preparation.recipe import Recipe
from fedpact.protocol.ring import largest
from fedpact.run.checkpoint import Folder, write
from fedpact.run.pact import Pact

RECIPE = "recipe.json"  # in the server's folder
LEAST_SQUARES = 1e-7  # of a column, in secret: a sum is rounded to 2⁻⁶⁴, 1e-12 of this
CONSTANT = 1e-10  # of the mean: a column that deviates less is constant, and its squares are rounding


class Preparing:
    """A party's part: its raw frame, and what it answers about it in one run."""

    def __init__(self, recipe: Recipe, party: str, frame: Any, policy: Policy):
        self.recipe, self.frame, self.owner = recipe, frame, title(party)
        self.min_count = max(recipe.min_count, policy.min_rows)
        self.asked: bytes | None = None  # the second question, once it has come
        self.question: Question | None = None
        policy.admit_single_values(recipe)
        self.survey = survey(recipe, frame, self.owner, self.min_count)
        present = self.survey.rows - self.survey.sums["missing"]
        sums = (
            (f"the sum of column {ask.column!r}", n) for ask, n in zip(recipe.asks, present, strict=True) if ask.total
        )
        policy.admit_means([(words, int(count)) for words, count in sums])

    def measure(self, words: dict[str, Any], arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The sums that the second question asks for; another one in the same run is refused."""
        try:
            asked = Question.read(words, arrays, self.recipe)
            asked.check_covers(self.recipe, self.survey)
        except (KeyError, TypeError, ValueError) as error:
            raise Refused(f"that is no question about the pact's recipe: {error}") from None
        same = json.dumps(asked.words).encode() + b"".join(array.tobytes() for array in asked.arrays.values())
        if self.asked not in (None, same):
            raise Refused("it was asked about its columns in this run already, in other words")
        self.asked, self.question = same, asked
        return measure(self.recipe, self.frame, self.owner, asked, self.min_count)

    def check_summable(self, sums: dict[str, np.ndarray], parties: int) -> None:
        """Refuse sums that the ring of secure sums would cut off, and squares that its rounding would spoil."""
        columns = [ask.column for ask in self.recipe.asks]
        for name in ("total", "deviation", "squares"):
            for column, value in zip(columns, sums.get(name, ()), strict=False):
                if abs(value) >= largest(parties) / 2:
                    raise Refused(
                        f"the sum over column {column!r} is too large to be added up in secret: give it in larger units, "
                        "thousands in place of ones"
                    )
        if "squares" not in sums or self.question is None:
            return
        present = self.survey.rows - self.survey.sums["missing"]
        rounding = present * (CONSTANT * self.question.centre) ** 2
        for column, squares, least in zip(columns, sums["squares"], rounding, strict=True):
            if least < squares < LEAST_SQUARES:
                raise Refused(
                    f"the squares of column {column!r} are too small to be added up in secret: give it in smaller units, "
                    "thousandths in place of ones"
                )

    def check(self, agreed: AgreedRecipe) -> None:
        """Raise ValueError where what the server says that all agreed on does not fit the party's own rows."""
        check_own(self.recipe, agreed, self.frame, self.owner, self.survey, self.question, self.min_count)


def agreed_recipe(
    pact: Pact, words: dict[str, Any], preparing: Callable[[Recipe], Preparing]
) -> tuple[AgreedRecipe | None, int]:
    """What the server says that all agreed on, as a party reads it, and the least rows of a category that is not kept here.

    - `preparing`: gives the party's own part of a recipe, where it was fitted in this run.

    Refused where it is no fit of the pact's recipe, or does not fit what the party told.
    """
    if not isinstance(pact.recipe, Recipe):
        return pact.recipe, 1
    own = preparing(pact.recipe)
    try:
        agreed = AgreedRecipe.from_json(words.get("recipe"))
        pact.recipe.check_fit(agreed)
        own.check(agreed)
    except ValueError as error:
        raise Refused(str(error)) from None
    return agreed, own.min_count


def fit_over_parties(
    pact: Pact, link: Link, home: Folder, greeting: dict[str, Any], resumed: bool
) -> AgreedRecipe | None:
    """The server's part: the pact's recipe, fitted over its parties; that of the saved run where one is resumed.

    - `greeting`: the words by which parties know pact and versions.

    Raises PartyLost where a party stays away or does not answer the question, and ValueError where nothing can be agreed on.
    """
    recipe = pact.recipe
    if not isinstance(recipe, Recipe):
        return recipe
    file = home.path / RECIPE
    if resumed:
        if not file.exists():
            raise ValueError(f"{home.path} holds a run whose recipe, {RECIPE}, is gone; begin again in a new folder")
        return AgreedRecipe.from_json(json.loads(file.read_text()))
    agreed = (_fitted_in_secret if pact.is_secure else _fitted)(recipe, link, greeting)
    write(file, json.dumps(agreed.to_json()).encode())
    return agreed


def _fitted(recipe: Recipe, link: Link, greeting: dict[str, Any]) -> AgreedRecipe:
    most = HEADER + 8 * 4 * len(recipe.asks)
    surveys = _surveys(recipe, link.ask_all({**greeting, "kind": "survey"}, {}, most))
    asked, measures = question(recipe, surveys), None
    if asks_twice(recipe):
        layout = measure_layout(recipe, asked)
        most = HEADER + 8 * sum(shape[0] for shape, _ in layout.values())
        answers = link.ask_all({**greeting, "kind": "measure", **asked.words}, asked.arrays, most)
        measures = list(_read(answers, lambda header, arrays: _checked(arrays, layout)).values())
    return agree(recipe, surveys, asked, measures)


def _fitted_in_secret(recipe: Recipe, link: Link, greeting: dict[str, Any]) -> AgreedRecipe:
    """From sums over all parties: what a single one has of them is not known."""
    sums, extremes = ({n: ((len(recipe.asks),), kind) for n, kind in part.items()} for part in (SUMS, EXTREMES))
    first, answers = link.ask_sums({**greeting, "kind": "survey"}, {}, sums, extremes)
    surveys = _surveys(recipe, answers)
    if np.any((first["missing"] < 0) | (first["missing"] > sum(survey.rows for survey in surveys.values()))):
        raise ValueError("the parties' numbers of missing values add up to what cannot be")
    asked, measures = question(recipe, surveys, first), None
    if asks_twice(recipe):
        layout = measure_layout(recipe, asked)
        second, _ = link.ask_sums({**greeting, "kind": "measure", **asked.words}, asked.arrays, layout)
        measures = [_checked(second, layout)]
    return agree(recipe, surveys, asked, measures, first)


def _surveys(recipe: Recipe, answers: Answers) -> dict[str, Survey]:
    return _read(answers, lambda header, arrays: Survey.read(header.get("survey"), arrays, recipe))


def _read(answers: Answers, reader: Callable[[dict[str, Any], dict[str, np.ndarray]], Any]) -> dict[str, Any]:
    out = {}
    for party, (header, arrays) in answers.items():
        try:
            out[party] = reader(header, arrays)
        except ValueError as error:
            raise PartyRefused(party, f"its answer about its columns is refused: {error}") from None
    return out


def _checked(arrays: dict[str, np.ndarray], layout: dict[str, tuple[tuple[int, ...], str]]) -> dict[str, np.ndarray]:
    check_arrays(arrays, layout)
    if any(np.any(array < 0) for name, array in arrays.items() if name != "deviation"):
        raise ValueError("sums of squares or counts are negative")
    return arrays
