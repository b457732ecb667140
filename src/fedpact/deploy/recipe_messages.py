"""The messages that fit a pact's recipe, in words, for `fedpact wire`."""

from fedpact.preparation.agreed import AgreedRecipe
from fedpact.preparation.fit import asks_twice
from fedpact.preparation.recipe import Recipe
from fedpact.preparation.summary import Ask
from fedpact.protocol.ring import NUMBER_BYTES

WHEN = "once, before all others"
CLEAR = "the server adds up"
SECRET = "the server learns the sum over all parties of"
APART = "the server keeps apart by party"


def recipe_messages(recipe: Recipe | AgreedRecipe | None, secure: bool = False) -> tuple[tuple[str, ...], ...]:
    """The rows of `fedpact wire` about a recipe: none where there is nothing to be fitted. secure: whether sums are."""
    if not isinstance(recipe, Recipe):
        return ()
    asks, number = recipe.asks, NUMBER_BYTES if secure else 8
    count, more = len(asks), NUMBER_BYTES if secure else 0  # one number says that all are finite
    adds = SECRET if secure else CLEAR
    survey = (
        WHEN,
        "tell of its columns",
        "all parties",
        "0",
        "the public keys of all parties" if secure else "nothing",
        f"{(16 + 2 * number) * count + more:,} and the categories",
        "; ".join(
            [
                f"{adds}: missing values of {_columns(asks)}{_also('sums of', [ask for ask in asks if ask.total])}",
                *_part(APART + ": least and greatest of", [ask for ask in asks if ask.extremes]),
                *_part(APART + ": categories of", [a for a in asks if a.categories != "none"]),
            ]
        ),
    )
    keys = (WHEN, "agree on masks", "all parties", "0", "the pact's digest", "0", "its public key for this recipe")
    rows: list[tuple[str, ...]] = [keys, survey] if secure else [survey]
    if asks_twice(recipe):
        histograms = [ask for ask in asks if ask.cells]
        size = 3 * number * count + number * sum(ask.cells for ask in histograms) + more
        counted = [ask for ask in asks if ask.counts]
        rows.append(
            (
                WHEN,
                "measure its columns",
                "all parties",
                f"{24 * count:,} and the categories",
                "means, ranges and categories of all parties",
                f"{size:,}" + (f" and {number} for each category" if counted else ""),
                f"{adds}: "
                + ", ".join(
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


def _also(words: str, asks: list[Ask]) -> str:
    return f", {words} {_columns(asks)}" if asks else ""


def _part(words: str, asks: list[Ask]) -> list[str]:
    return [f"{words} {_columns(asks)}"] if asks else []


def _columns(asks: list[Ask] | tuple[Ask, ...]) -> str:
    return ", ".join(dict.fromkeys(ask.column for ask in asks))
