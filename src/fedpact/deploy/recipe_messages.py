"""The messages that fit a pact's recipe, in words, for `fedpact wire`."""

from collections.abc import Sequence

from fedpact.engines.summing import Specs, sealed_sums_layout
from fedpact.preparation.agreed import AgreedRecipe
from fedpact.preparation.fit import asks_twice
from fedpact.preparation.recipe import Recipe
from fedpact.preparation.summary import Ask

WHEN = "once, before all others"


def recipe_messages(
    recipe: Recipe | AgreedRecipe | None, added: str, apart: str, secure: bool
) -> tuple[tuple[str, ...], ...]:
    """The rows of `fedpact wire` about a recipe: none where there is nothing to be fitted.

    - `added`, `apart`: what the server does with sums, and with what is no sum, in words. `secure`: whether sums are.
    """
    if not isinstance(recipe, Recipe):
        return ()
    asks = recipe.asks
    count = len(asks)
    sums: Specs = {"missing": ((count,), "i"), "total": ((count,), "f")}
    by_party = [f"whether numbers or words are in {_columns(asks)}"]
    by_party += _part("least and greatest value of", [ask for ask in asks if ask.extremes])
    by_party += _part("categories of", [a for a in asks if a.categories != "none"])
    rows = [
        (
            WHEN,
            "tell of its columns",
            "all parties",
            "0",
            "the public keys of all parties" if secure else "nothing",
            f"{_size(sums, secure) + 16 * count:,} and the categories",
            _sentence(
                (added, [f"missing values of {_columns(asks)}", *_part("sums of", [a for a in asks if a.total])]),
                (apart, by_party),
            ),
        )
    ]
    if asks_twice(recipe):
        histograms = [ask for ask in asks if ask.cells]
        counted = [ask for ask in asks if ask.counts]
        sums = {"deviation": ((count,), "f"), "squares": ((count,), "f"), "others": ((count,), "i")}
        sums |= {ask.column: ((ask.cells,), "i") for ask in histograms}
        each = 16 if secure else 8
        rows.append(
            (
                WHEN,
                "measure its columns",
                "all parties",
                f"{24 * count:,} and the categories",
                "means, ranges and categories of all parties",
                f"{_size(sums, secure):,}" + (f" and {each} for each category" if counted else ""),
                _sentence(
                    (
                        added,
                        [
                            *_part("sums of squares about the mean of", [ask for ask in asks if ask.squares]),
                            *(f"histogram of {ask.column} ({ask.cells:,} integers)" for ask in histograms),
                            *_part("rows by category of", counted),
                            *_part("whether there are other categories of", [a for a in asks if a.categories == "all"]),
                        ],
                    )
                ),
            )
        )
    return tuple(rows)


def _size(sums: Specs, secure: bool) -> int:
    return sealed_sums_layout(sums).size if secure else sum(8 * shape[0] for shape, _ in sums.values())


def _sentence(*groups: tuple[str, Sequence[str]]) -> str:
    return "; ".join(f"{words}: {', '.join(parts)}" for words, parts in groups)


def _part(words: str, asks: list[Ask]) -> list[str]:
    return [f"{words} {_columns(asks)}"] if asks else []


def _columns(asks: list[Ask] | tuple[Ask, ...]) -> str:
    return ", ".join(dict.fromkeys(ask.column for ask in asks))
