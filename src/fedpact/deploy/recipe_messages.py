"""The messages that fit a pact's recipe, in words, for `fedpact wire`."""

from fedpact.preparation.agreed import AgreedRecipe
from fedpact.preparation.fit import asks_twice
from fedpact.preparation.recipe import Recipe
from fedpact.preparation.summary import Ask

WHEN = "once, before all others"


def recipe_messages(recipe: Recipe | AgreedRecipe | None) -> tuple[tuple[str, ...], ...]:
    """The rows of `fedpact wire` about a recipe: none where there is nothing to be fitted."""
    if not isinstance(recipe, Recipe):
        return ()
    asks = recipe.asks
    count = len(asks)
    rows = [
        (
            WHEN,
            "tell of its columns",
            "all parties",
            "0",
            "nothing",
            f"{32 * count:,} and the categories",
            "; ".join(
                [
                    f"the server adds up: missing values of {_columns(asks)}",
                    *_part("sums of", [ask for ask in asks if ask.total]),
                    *_part("the server takes the least and the greatest of", [ask for ask in asks if ask.extremes]),
                    *_part(
                        "the server keeps apart by party: categories of", [a for a in asks if a.categories != "none"]
                    ),
                ]
            ),
        )
    ]
    if asks_twice(recipe):
        histograms = [ask for ask in asks if ask.cells]
        size = 24 * count + 8 * sum(ask.cells for ask in histograms)
        counted = [ask for ask in asks if ask.counts]
        rows.append(
            (
                WHEN,
                "measure its columns",
                "all parties",
                f"{24 * count:,} and the categories",
                "means, ranges and categories of all parties",
                f"{size:,}" + (" and 8 for each category" if counted else ""),
                "the server adds up: "
                + "; ".join(
                    [
                        *_part("sums of squares about the mean of", [ask for ask in asks if ask.squares]),
                        *(f"histogram of {ask.column} ({ask.cells:,} integers)" for ask in histograms),
                        *_part("rows by category of", counted),
                        *_part("whether there are other categories of", [a for a in asks if a.categories == "all"]),
                    ]
                ),
            )
        )
    return tuple(rows)


def _part(words: str, asks: list[Ask]) -> list[str]:
    return [f"{words} {_columns(asks)}"] if asks else []


def _columns(asks: list[Ask] | tuple[Ask, ...]) -> str:
    return ", ".join(dict.fromkeys(ask.column for ask in asks))
