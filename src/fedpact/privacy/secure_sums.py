"""Secure sums: the server gets sums over parties, and nothing that one party said."""

import dataclasses
from typing import Any

FEWEST = 3  # parties: of two, each knows the other's share of the sum


@dataclasses.dataclass(frozen=True)
class SecureAggregation:
    """Sums over parties whose terms nobody sees, `fp.solve(..., privacy=fp.SecureAggregation())`; in a pact,
    `options = {"privacy": fp.SecureAggregation()}`, which is the default of deployed runs where the method allows it.

    Every party adds masks to its reply that cancel in the sum over all parties, so the server learns sums. Maxima become
    known up to a power of two. The certificate says of constraints at each party that they hold everywhere to a power of
    two, without their values, unless `disclose=True` says that parties agree to tell them.

    Numbers are rounded to 2⁻⁶⁴ and added up exactly, and where sums are in the clear `fp.InteriorPoint` and `fp.ProxAL` make
    no more of a maximum than its power of two: rounds are the same, and answers differ by rounding. A message up has 16 bytes
    instead of 8 for a number, and 1,024 for a maximum.

    In one process the arithmetic is that of a deployed run, and nothing is masked: whoever runs it has all rows anyhow. Across
    organisations parties agree on masks by X25519 keys, which they sign with keys that the pact names (`fedpact keys`). A
    party that is lost ends the run, which can be resumed. Needs at least 3 parties, and a method that needs sums only;
    ValueError says which does not. docs/threat_model.md has what sums still tell.

    - `checked`: whether every party computes each point itself, from the sums that it is told, and refuses another, so that a
      server cannot choose points that tell more than the method's (default None: across organisations where the pact has the
      parties' keys and the server no rows of its own). Sums then also travel down, with a tag that shows that they are the
      parties' own; there has to be one model over rows, or one for each party, and the server may hold no rows.
    """

    checked: bool | None = None

    def __post_init__(self) -> None:
        if self.checked not in (None, True, False):
            raise TypeError(f"SecureAggregation(checked={self.checked!r}): True, False, or None for the default")


def checked_parties(parties: int) -> None:
    """Refuse sums over so few parties that each knows too much of the others."""
    if parties < FEWEST:
        raise ValueError(
            f"fp.SecureAggregation: a sum over {parties} {'party' if parties == 1 else 'parties'} tells each what the others "
            f"said; it needs at least {FEWEST}, or privacy=None"
        )


def is_secure(privacy: Any) -> bool:
    return isinstance(privacy, SecureAggregation)
