"""fp.prepare: fit a recipe over parties' raw frames in this process, and make tables of them."""

import pathlib
from collections.abc import Mapping
from typing import Any

from fedpact.federation.frames import is_frame
from fedpact.federation.rows import Parties, title
from fedpact.federation.table import Table, read_frame
from fedpact.preparation.agreed import AgreedRecipe
from fedpact.preparation.answers import measure, survey
from fedpact.preparation.fit import agree, asks_twice, question
from fedpact.preparation.recipe import Recipe


def prepare(recipe: Recipe | AgreedRecipe, frames: Mapping[str, Any]) -> Parties:
    """Fit a recipe over the parties' frames, and make a table of each.

    Each party answers two questions about its own columns with counts, sums, least and greatest values, histograms and sets of
    categories; no row leaves it. Across organisations the same is done by a pact with `recipe = ...`: docs/preparation.md.

    - `recipe`: an `fp.Recipe`; or one that was fitted before, such as `parties.recipe`, which is then applied to other rows.
    - `frames`: raw frames by party name: data frames of pandas, polars or Arrow, mappings of columns, or files that
      `fp.Table.read` knows.

    Returns `fp.Parties` with `recipe`, what was agreed on, and `features`, the names of the columns of "x". Raises ValueError
    with party and column where columns are missing, differ in type, or hold values that have no place.

        clinics = fp.prepare(fp.Recipe([fp.standardize("age"), fp.one_hot("smoker")], fp.label("died", positive=1)), frames)
    """
    if not isinstance(recipe, Recipe | AgreedRecipe):
        raise TypeError(f"fp.prepare takes an fp.Recipe, not a {type(recipe).__name__}")
    if not isinstance(frames, Mapping) or is_frame(frames) or isinstance(frames, Table):
        raise TypeError(
            f"fp.prepare takes frames by the names of their parties, such as {{'north': frame}}, not a {type(frames).__name__}"
        )
    raw = {str(name): raw_frame(frame) for name, frame in frames.items()}
    if not raw:
        raise ValueError("a federation needs at least one party")
    agreed = recipe if isinstance(recipe, AgreedRecipe) else fitted(recipe, raw)
    return Parties({name: prepared(agreed, frame, title(name)) for name, frame in raw.items()}, agreed)


def fitted(recipe: Recipe, frames: Mapping[str, Any]) -> AgreedRecipe:
    """A recipe fitted over frames in this process."""
    surveys = {name: survey(recipe, frame, title(name), recipe.min_count) for name, frame in frames.items()}
    asked = question(recipe, surveys)
    measures = None
    if asks_twice(recipe):
        measures = {
            name: measure(recipe, frame, title(name), asked, recipe.min_count) for name, frame in frames.items()
        }
    return agree(recipe, surveys, asked, measures)


def prepared(agreed: AgreedRecipe, frame: Any, owner: str) -> Table:
    """A table of an owner's raw frame, with the names of its features; masks can read those that are raw values."""
    raw = [encoder.column for encoder in agreed.encoders if getattr(encoder, "step", "") in ("passthrough", "impute")]
    return Table(agreed.transform(frame, owner, complete=True)).with_features(agreed.features, readable=raw)


def raw_frame(thing: Any) -> Any:
    """A frame as it is, or read from a file."""
    return read_frame(thing) if isinstance(thing, str | pathlib.Path) else thing
