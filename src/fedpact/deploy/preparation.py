"""A pact's recipe across organisations: it is fitted before a party describes its table, by one or two questions to all parties.

keys     where sums are secure: a public key, from which come the masks of the two answers that follow
survey   the kinds and categories of its columns, sums, least and greatest values
measure  with what all told: sums of squares, histograms and counts; one such question in a run

Where sums are secure, the server learns sums over all parties: of values and of missing ones, of squares, of histograms and of
counts. Kinds, categories, least and greatest values are told by each party in any case.

What was agreed on goes to every party with the first message of the run; each makes its own table of its own frame with it.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedpact.deploy.policy import Policy
from fedpact.engines.remote import Answers, Link, PartyRefused
from fedpact.engines.sealing import SUMS, Masks, opened, sealed, sealed_layout
from fedpact.engines.sealing import added as added_up
from fedpact.engines.serialization import HEADER, Layout, Leaf, Refused
from fedpact.federation.rows import title
from fedpact.preparation.agreed import AgreedRecipe
from fedpact.preparation.answers import (
    Question,
    Shapes,
    Survey,
    check_arrays,
    measure,
    measure_layout,
    survey,
    survey_layout,
)
from fedpact.preparation.fit import added, agree, asks_twice, question
from fedpact.preparation.own_check import check_own
from fedpact.preparation.recipe import Recipe
from fedpact.protocol.ring import largest
from fedpact.run.checkpoint import Folder, write
from fedpact.run.pact import Pact

RECIPE = "recipe.json"  # in the server's folder
LEAST_SQUARES = 1e-7  # of a column, in secret: a sum is rounded to 2⁻⁶⁴, 1e-12 of this


class Preparing:
    """A party's part: its raw frame, and what it answers about it in one run.

    - `masks`: on its sums, where these are secure (None before the survey, and where they are not).
    """

    def __init__(self, recipe: Recipe, party: str, frame: Any, policy: Policy):
        self.recipe, self.frame, self.owner = recipe, frame, title(party)
        self.masks: Masks | None = None
        self.min_count = max(recipe.min_count, policy.min_rows)
        self.asked: bytes | None = None  # the second question, once it has come
        self.question: Question | None = None
        policy.admit_single_values(recipe)
        self.survey = survey(recipe, frame, self.owner, self.min_count)
        present = self.survey.rows - self.survey.missing
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

    def told(
        self, sums: dict[str, np.ndarray], number: int, message: bytes, names: Sequence[str]
    ) -> dict[str, np.ndarray]:
        """Sums as they are sent: with masks, where there are some.

        - `number`: of the question. `message`: a digest of it. `names`: of all parties.
        """
        if self.masks is None:
            return sums
        columns = [ask.column for ask in self.recipe.asks]
        for name in ("total", "deviation", "squares"):
            for column, value in zip(columns, sums.get(name, ()), strict=False):
                if abs(value) >= largest(len(names)) / 2:
                    raise Refused(
                        f"the sum over column {column!r} is too large to be added up in secret: give it in larger units, "
                        "thousands in place of ones"
                    )
        if "squares" in sums and self.question is not None:
            present = self.survey.rows - self.survey.missing
            for place, (column, squares) in enumerate(zip(columns, sums["squares"], strict=True)):
                rounding = present[place] * (1e-10 * self.question.centre[place]) ** 2
                if rounding < squares < LEAST_SQUARES:
                    raise Refused(
                        f"the squares of column {column!r} are too small to be added up in secret: give it in smaller units, "
                        "thousandths in place of ones"
                    )
        layout = _layout({name: (a.shape, a.dtype.kind) for name, a in sums.items()})
        return sealed(layout, {f".sum.{n}": a for n, a in sums.items()}, self.masks, names, number, message)

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
    words, secure = {**greeting, "kind": "survey"}, pact.is_secure
    if secure:
        told = link.tell({**greeting, "kind": "keys"})
        words["keys"] = {name: answer.get("session_key") for name, answer in told.items()}
    shapes = survey_layout(recipe)
    answers = link.ask_all(words, {}, HEADER + 2 * 8 * len(recipe.asks) + _size(shapes, secure))
    sums = _opened(answers, shapes) if secure else None
    surveys = _read(answers, lambda header, arrays: Survey.read(header.get("survey"), _apart(arrays), recipe, secure))
    asked, measured = question(recipe, surveys, sums), None
    if asks_twice(recipe):
        shapes = measure_layout(recipe, asked)
        words = {**greeting, "kind": "measure", **asked.words}
        answers = link.ask_all(words, asked.arrays, HEADER + _size(shapes, secure))
        if secure:
            measured = _checked(_opened(answers, shapes), shapes)
        else:
            measured = added(_read(answers, lambda header, arrays: _checked(arrays, shapes)).values())
    agreed = agree(recipe, surveys, asked, measured, sums)
    write(file, json.dumps(agreed.to_json()).encode())
    return agreed


# sums in secret


def _layout(shapes: Shapes) -> Layout:
    kinds = {"i": "int64", "f": "float64"}
    return Layout(tuple(Leaf(f".sum.{name}", shape, kinds[kind]) for name, (shape, kind) in shapes.items()), None)


def _size(shapes: Shapes, secure: bool) -> int:
    """Bytes of a party's sums, as they are sent."""
    return (sealed_layout(_layout(shapes)) if secure else _layout(shapes)).size


def _apart(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What is not masked."""
    return {name: array for name, array in arrays.items() if name != SUMS}


def _opened(answers: Answers, shapes: Shapes) -> dict[str, np.ndarray]:
    """The sums over all parties."""
    layout, masked = _layout(shapes), sealed_layout(_layout(shapes))
    replies = _read(answers, lambda header, arrays: _masked(masked, arrays))
    sums, finite = opened(layout, added_up(list(replies.values())))
    if not finite:
        raise ValueError("a party's sums over its columns are not finite; its own log says which")
    return {name: sums[f".sum.{name}"] for name in shapes}


def _masked(layout: Layout, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    found = {name: array for name, array in arrays.items() if name == SUMS}
    layout.check(found)
    return found


def _read(answers: Answers, reader: Callable[[dict[str, Any], dict[str, np.ndarray]], Any]) -> dict[str, Any]:
    out = {}
    for party, (header, arrays) in answers.items():
        try:
            out[party] = reader(header, arrays)
        except (ValueError, Refused) as error:
            raise PartyRefused(party, f"its answer about its columns is refused: {error}") from None
    return out


def _checked(arrays: dict[str, np.ndarray], shapes: Shapes) -> dict[str, np.ndarray]:
    check_arrays(arrays, shapes)
    if any(np.any(array < 0) for name, array in arrays.items() if name != "deviation"):
        raise ValueError("its sums of squares or its counts are negative")
    return arrays
