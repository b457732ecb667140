"""fp.prepare: fit a recipe over parties' raw frames in this process, and make tables of them."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, overload

import numpy as np

from fedpact.federation.columns import ColumnParties
from fedpact.federation.frame_files import frame_column, read_frame
from fedpact.federation.frames import columns_of, is_frame, rows_of
from fedpact.federation.rows import Parties, split_rows, title
from fedpact.federation.table import Table
from fedpact.preparation.agreed import AgreedRecipe
from fedpact.preparation.answers import measure, survey
from fedpact.preparation.fit import agree, asks_twice, question
from fedpact.preparation.recipe import Recipe

PLACES = " places"  # a column of row numbers beside those that rows are dealt by


@overload
def prepare(
    recipe: Recipe | AgreedRecipe,
    frames: Any,
    *,
    parties: int | Sequence[str] | None = None,
    by: str | None = None,
    stratify: str | None = None,
    seed: int = 0,
) -> Parties: ...
@overload
def prepare(
    recipe: Mapping[str, Recipe | AgreedRecipe],
    frames: Mapping[str, Any],
    *,
    active: Sequence[str] | str | None = None,
    id: str | None = None,
) -> ColumnParties: ...
def prepare(
    recipe: Recipe | AgreedRecipe | Mapping[str, Recipe | AgreedRecipe],
    frames: Any,
    *,
    parties: int | Sequence[str] | None = None,
    by: str | None = None,
    stratify: str | None = None,
    seed: int = 0,
    active: Sequence[str] | str | None = None,
    id: str | None = None,
) -> Parties | ColumnParties:
    """Fit a recipe over the parties' frames, and make a table of each.

    Each party answers two questions about its own columns with counts, sums, least and greatest values, histograms and sets of
    categories; no row leaves it. Across organisations the same is done by a pact with `recipe = ...`: docs/preparation.md.

    - `recipe`: an `fp.Recipe`; or one that was fitted before, such as `parties.recipe`, which is then applied to other rows; or,
      where parties hold columns of the same rows, a mapping of party names to recipes: each is fitted to the party's own columns.
    - `frames`: raw frames by party name: data frames of pandas, polars or Arrow, mappings of columns, or files that
      `fp.Table.read` knows. For a simulated federation also one frame or file, whose rows are dealt to parties as
      `fp.split_rows` does:
    - `parties`, `by`, `stratify`, `seed`: of one frame, as in `fp.split_rows`.
    - `active`, `id`: over columns, as in `fp.split_columns`.

    Returns `fp.Parties` with `recipe`, what was agreed on, and `features`, the names of the columns of "x"; over columns
    `fp.ColumnParties`, with both by party. Raises ValueError with party and column where columns are missing, differ in type, or
    hold values that have no place.

        recipe = fp.Recipe([fp.standardize("age"), fp.one_hot("smoker")], fp.label("outcome", positive="died"))
        clinics = fp.prepare(recipe, {"north": north, "south": south})
    """
    if isinstance(recipe, Mapping):
        from fedpact.preparation.over_columns import prepare_columns

        if parties is not None or by is not None or stratify is not None:
            raise ValueError(
                "parties=, by= and stratify= deal out rows, and a recipe for each party is for split columns"
            )
        return prepare_columns(recipe, frames, active, id)
    if active is not None or id is not None:
        raise ValueError("active= and id= are for split columns, where recipe is a mapping of party names to recipes")
    if not isinstance(recipe, Recipe | AgreedRecipe):
        raise TypeError(f"fp.prepare takes an fp.Recipe, not a {type(recipe).__name__}")
    raw = _by_party(frames, parties, by, stratify, seed)
    if not raw:
        raise ValueError("a federation needs at least one party")
    # of a recipe that was fitted on other rows, these parties told nothing
    agreed = fitted(recipe, raw) if isinstance(recipe, Recipe) else dataclasses.replace(recipe, told={})
    few = recipe.min_count if isinstance(recipe, Recipe) else 1
    return Parties({name: prepared(agreed, frame, title(name), few) for name, frame in raw.items()})


def _by_party(frames: Any, parties: Any, by: str | None, stratify: str | None, seed: int) -> dict[str, Any]:
    """Raw frames by party."""
    split = parties is not None or by is not None or stratify is not None
    if is_frame(frames) or isinstance(frames, str | pathlib.Path | Table):
        frame = raw_frame(frames)
        columns = columns_of(frame)
        names = [name for name in (by, stratify) if name is not None]
        if not columns:
            raise ValueError("the frame has no columns")
        count = len(next(iter(columns.values())))
        places = {PLACES: np.arange(count), **{name: frame_column(columns, name) for name in names if name in columns}}
        dealt = split_rows(Table(places), parties, by=by, stratify=stratify, seed=seed)
        return {name: rows_of(frame, table[PLACES]) for name, table in dealt.items()}
    if not isinstance(frames, Mapping):
        raise TypeError(
            f"fp.prepare takes frames by the names of their parties, such as {{'north': frame}}, not a {type(frames).__name__}"
        )
    if split:
        raise ValueError("the frames are split already, one per party; parties=, by= and stratify= split one frame")
    return {str(name): raw_frame(frame) for name, frame in frames.items()}


def fitted(recipe: Recipe, frames: Mapping[str, Any]) -> AgreedRecipe:
    """A recipe fitted over frames in this process."""
    surveys = {name: survey(recipe, frame, title(name), recipe.min_count) for name, frame in frames.items()}
    asked = question(recipe, surveys)
    measures = None
    if asks_twice(recipe):
        measures = [measure(recipe, frame, title(name), asked, recipe.min_count) for name, frame in frames.items()]
    return agree(recipe, surveys, asked, measures)


def prepared(agreed: AgreedRecipe, frame: Any, owner: str, min_count: int = 1) -> Table:
    """A table of an owner's raw frame, with the names of its features; masks can read those that are raw values.

    - `min_count`: as in `AgreedRecipe.transform`.
    """
    raw = [encoder.column for encoder in agreed.encoders if getattr(encoder, "step", "") in ("passthrough", "impute")]
    table = Table(agreed.transform(frame, owner, complete=True, min_count=min_count))
    return table.with_features(agreed.features, readable=raw).prepared_by(agreed)


def raw_frame(thing: Any) -> Any:
    """A frame as it is, or read from a file."""
    return read_frame(thing) if isinstance(thing, str | pathlib.Path) else thing
