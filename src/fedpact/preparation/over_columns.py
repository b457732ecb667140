"""Recipes where parties hold columns of the same rows: each is fitted at home, to the party's own columns."""

from collections.abc import Mapping
from typing import Any

from fedpact.federation.columns import ColumnParties, split_columns
from fedpact.federation.frame_files import frame_column
from fedpact.federation.frames import columns_of
from fedpact.federation.rows import title
from fedpact.federation.table import Table
from fedpact.preparation.agreed import AgreedRecipe
from fedpact.preparation.prepare import fitted, prepared, raw_frame
from fedpact.preparation.recipe import Recipe


def own_table(recipe: Recipe | AgreedRecipe, rows: Any, party: str, id: str | None = None) -> Table:
    """A column holder's table, made of its raw frame or file by its own recipe, which is fitted to it where it is not yet.

    - `id`: the column of row identifiers, which stays as it is (default: none).
    """
    frame = raw_frame(rows)
    agreed, few = recipe, 1
    if isinstance(recipe, Recipe):
        agreed, few = fitted(recipe, {party: frame}), recipe.min_count
    assert isinstance(agreed, AgreedRecipe)
    table = prepared(agreed, frame, title(party), few)
    if id is None or id in table.columns:
        return table
    columns = columns_of(frame)
    if id not in columns:
        raise ValueError(f"column {id!r} of {title(party)} is missing: there are {', '.join(columns)}")
    return table.with_columns(**{id: frame_column(columns, id)})


def prepare_columns(recipes: Mapping[Any, Any], frames: Any, active: Any, id: str | None) -> ColumnParties:
    """A vertical federation of raw frames by party, each prepared by the party's own recipe."""
    if not isinstance(frames, Mapping):
        raise TypeError("fp.prepare with a recipe for each party takes their frames by name too: {'bank': frame}")
    check_recipes(recipes, tuple(map(str, frames)))
    made = {str(party): recipes[party] for party in recipes}
    return split_columns(
        {str(name): own_table(made[str(name)], frame, str(name), id) for name, frame in frames.items()},
        active=active,
        id=id,
    )


def check_recipes(recipes: Mapping[Any, Any], parties: tuple[str, ...]) -> None:
    """Raise TypeError or ValueError where these are not one recipe for each party."""
    odd = [party for party, recipe in recipes.items() if not isinstance(recipe, Recipe | AgreedRecipe)]
    if odd:
        raise TypeError(
            f"the recipe of {title(str(odd[0]))} should be an fp.Recipe, not a {type(recipes[odd[0]]).__name__}"
        )
    differing = sorted(set(map(str, recipes)) ^ set(parties))
    if differing:
        what = "has no recipe" if differing[0] in parties else "has a recipe, but no frame"
        raise ValueError(f"{title(differing[0])} {what}; over columns every party has one of its own")
