"""All problems: families × kinds of data × seeds, each with its number of parties, columns and its level of bounds."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

from campaign import classification, networks, programmes, real
from campaign.data import KINDS
from campaign.levels import LEVELS
from campaign.statement import Case, Stated

CONFIGS = ((1, 4, 60), (3, 8, 40), (5, 1, 32), (8, 15, 48))  # parties, columns, rows at each
WIDE = ((2, 4, 80, 20), (3, 8, 150, 50), (6, 4, 80, 20))  # and caps
SCALES = (1e-6, 1e-3, 1e3, 1e6)
SEEDS = 7


def _spread(
    family: str,
    make: Callable[..., Stated],
    configs: Iterable[Any] = CONFIGS,
    kinds: Iterable[str] = KINDS,
    seeds: int = SEEDS,
    levels: tuple[str, ...] = LEVELS,
    first: int = 0,
    **options: Any,
) -> list[Case]:
    """Seeds from `first` walk through configurations and levels, which meet each other over the kinds."""
    found, listed = [], list(configs)
    for place, kind in enumerate(kinds):
        for seed in range(first, first + seeds):
            config, level = listed[seed % len(listed)], levels[(seed + 2 * place) % len(levels)]
            mine = functools.partial(make, family, kind, seed, config, level, **options)
            label = f"{seed}-{level.replace(' ', '-')}" if level else str(seed)
            found.append(Case(family, kind, label, f"{family} {config}", mine))
    return found


def _scaled(family: str, make: Callable[..., Stated], config: Any, **options: Any) -> list[Case]:
    """Standardised rows; the objective or the constraints multiplied."""
    found = []
    for level in ("tight", "just", "out"):
        for scale in SCALES:
            for part, factors in (("objective", (scale, 1.0)), ("constraints", (1.0, scale))):
                mine = functools.partial(make, family, "standardised", 0, config, level, factors=factors, **options)
                seed = f"{part}-{scale:g}-{level}"
                found.append(Case(family, "scaled", seed, f"{family} scaled {part} {scale}", mine))
    return found


def _many(name: str, kind: str, seed: int, config: Any, level: str) -> Stated:
    return programmes.with_caps(name, kind, seed, config[:3], level, each=config[3])


@functools.cache
def problems(first_seed: int = 0) -> dict[str, Case]:
    """Every problem by its name; with another first seed other draws from the same families, but for those on real data."""
    drawn = functools.partial(_spread, first=first_seed)
    np_, caps, lines = classification.neyman_pearson, programmes.with_caps, programmes.polyhedron
    cases = [
        *drawn("np", np_),
        *drawn("np-l1-box", np_, h="l1 box"),
        *drawn("np-group", np_, h="group"),
        *drawn("hinge", np_, loss="hinge", width=0.5),
        *drawn("one-parameter", np_, configs=((1, 1, 40), (2, 1, 40), (7, 1, 40)), bias=False),
        *drawn("gap", classification.gap, pooled=True),
        *drawn("gap-each", classification.gap, configs=CONFIGS[1:], seeds=3, pooled=False),
        *drawn("rates-1", classification.rates, temperature=1.0, seeds=4),
        *drawn("rates-0.25", classification.rates, temperature=0.25, seeds=4),
        *drawn("rates-0.1", classification.rates, temperature=0.1, seeds=4),
        *drawn("regression", caps),
        *drawn("many-caps", _many, configs=WIDE, seeds=5),
        *drawn("server", caps, seeds=5, scope="server"),
        *drawn("equalities", programmes.equalities),
        *drawn("curved-equality", programmes.curved_equality, seeds=4),
        *drawn("polyhedra", lines),
        *drawn("linear-polyhedra", lines, linear=True, seeds=5),
        *drawn("linear-balls", lines, linear=True, ball=True, seeds=5),
        *drawn("no-minimum", classification.without_minimum, CONFIGS, ("standardised", "huge", "tiny"), 8, ("",)),
        *drawn("unbounded", programmes.unbounded, CONFIGS, [k for k in KINDS if k != "heavy"], 4, ("",)),
    ]
    for hidden, config in ((4, (3, 4, 40)), (8, (2, 8, 60))):
        kinds = ("standardised", "offset", "heavy", "constant", "separable", "one-hot")
        cases += drawn(f"network-{hidden}", networks.network, [config], kinds, 5, hidden=hidden)
    cases += _scaled("np", np_, CONFIGS[1])
    cases += _scaled("regression", caps, CONFIGS[1])
    cases += _scaled("polyhedra", lines, CONFIGS[1])
    cases += _scaled("rates-1", classification.rates, CONFIGS[1], temperature=1.0)
    cases += real.cases()
    return {case.name: case for case in cases}
