"""Several starts of a deployed run: every site draws the same ones."""

from typing import TypeVar

from fedpact.federation.binding import drawn_starts
from fedpact.federation.rows import Parties
from fedpact.run.pact import Pact
from fedpact.settings.base import Agreement, Bound

Kind = TypeVar("Kind", bound=Bound)


def with_drawn_starts(bound: Kind, pact: Pact, agreement: Agreement) -> Kind:
    """The problem with all first parameters that the pact's method begins from."""
    if pact.starts == 1:
        return bound
    first = Parties({pact.parties[0]: agreement.descriptions[0].zeros(1)})
    return bound.with_starts(drawn_starts(pact.problem, first, agreement.seed, pact.starts - 1))
