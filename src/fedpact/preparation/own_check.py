"""What a party can see of a fitted recipe by its own rows, so that something else than the parties told is refused."""

from collections import Counter
from typing import Any

import numpy as np

from fedpact.federation.frames import columns_of, read_column
from fedpact.preparation.agreed import AgreedRecipe
from fedpact.preparation.answers import Question, Survey
from fedpact.preparation.encoders import BinsEncoder, CategoryEncoder, NumberEncoder
from fedpact.preparation.recipe import Recipe
from fedpact.preparation.steps import NumberStep
from fedpact.preparation.summary import Ask

ROUNDING = 1e-6  # relative, of sums over all rows


def check_own(
    recipe: Recipe, agreed: AgreedRecipe, frame: Any, owner: str, own: Survey, asked: Question | None, min_count: int
) -> None:
    """Raise ValueError, with the column, where a fit of the recipe cannot be that of all parties, this one among them.

    - `frame`, `owner`: the party's raw rows, and whose they are. `own`: what it told of them. `min_count`: what fewer of its rows
      have was not told.
    - `asked`: the second question, which has what all parties told; None where it did not come to this process.

    Checked are: the number of rows; that no category is missing that the party told, and with the question that none is in it
    which it did not name; that categories which stayed here have a place; of `standardize`, that the party's own squares are
    not more than those of all; of `scale` without quantiles, that its values lie within; with the question, means, medians,
    quantiles and edges.
    """
    if agreed.rows < own.rows:
        raise ValueError(f"it is said to be fitted on {agreed.rows} rows, and this party alone has {own.rows}")
    columns, place = columns_of(frame, owner), 0
    encoders = iter(agreed.encoders)
    for step in recipe.steps:
        for column in step.columns:
            made, ask, why = next(encoders), recipe.asks[place], None
            raw = read_column(columns, column, owner)
            if isinstance(made, CategoryEncoder) and ask.categories in ("all", "declared"):
                rare = ask.categories == "all" and any(rows < min_count for rows in Counter(raw.tags()).values())
                why = _categories(made, own.sets[place].categories or (), asked and asked.categories[place], rare)
            elif isinstance(made, NumberEncoder) and isinstance(step, NumberStep):
                why = _scaled(step, made, made.encode(raw)[:, 0], agreed.rows)
            why = why or (None if asked is None else _numbers(step, made, ask, asked, place))
            if why is not None:
                raise ValueError(f"what was agreed on for column {column!r} does not fit what this party told: {why}")
            place += 1
        for _ in range(len(step.outline()) - len(step.columns)):
            next(encoders)  # indicators of missing values
    if agreed.label is not None and agreed.label.labels is not None:
        told = own.sets[place].categories or ()
        if not set(told) <= set(agreed.label.labels):
            raise ValueError(
                f"the labels that were agreed on leave out what this party told of column {agreed.label.column!r}"
            )


def _categories(made: CategoryEncoder, told: Any, of_all: Any, rare: bool) -> str | None:
    listed = {*made.categories, *made.together}
    if not set(told) <= listed:
        return "it leaves out a category"
    if of_all is not None and listed != set(of_all):
        return "its categories are not those of the question about them"
    if rare and not made.unnamed:
        return "it has no place for categories that stay here"
    return None


def _scaled(step: NumberStep, made: NumberEncoder, values: np.ndarray, rows: int) -> str | None:
    if step.kind == "standardize" and np.square(values).sum() > rows * (1 + ROUNDING) + ROUNDING:
        return "its own squared deviations are more than those of all parties"
    by_range = step.kind == "scale" and step.quantiles is None and step.within is None
    if by_range and len(values) and (values.min() < -ROUNDING or values.max() > 1 + ROUNDING):
        return "its own values are beyond the least and the greatest"
    return None


def _numbers(step: Any, made: Any, ask: Ask, asked: Question, place: int) -> str | None:
    """Compared with the question: the mean of all parties' values, and where their histogram begins and ends."""
    if ask.squares and step.missing in ("error", "mean"):
        centre, slack = float(asked.centre[place]), ROUNDING * (made.scale + abs(made.shift))
        fill = made.shift if made.fill is None else made.fill
        if max(abs(made.shift - centre), abs(fill - centre)) > slack:
            return "its mean is not that of the question about squares"
    if not ask.cells:
        return None
    numbers = list(made.edges) if isinstance(made, BinsEncoder) and step.edges is None else []
    if isinstance(made, NumberEncoder) and made.step == "scale" and step.quantiles is not None:
        numbers += [made.shift]
    numbers += [made.fill] if step.missing == "median" and made.fill is not None else []
    low, high = float(asked.low[place]), float(asked.high[place])
    if not isinstance(step.missing, str):  # what is filled in counts in quantiles, wherever it lies
        low, high = min(low, step.missing), max(high, step.missing)
    slack = ROUNDING * (high - low + abs(low) + abs(high))
    if any(not low - slack <= number <= high + slack for number in numbers):
        return "a median, quantile or edge is outside of the histogram"
    return None
