"""`fedpact wire pact.py`: every message of a run before it is run, by what it holds, its bytes and who gets it."""

import dataclasses

from fedpact.deploy.tracing import traced
from fedpact.engines.exchanges import Exchange
from fedpact.engines.local import LocalNetwork
from fedpact.engines.remote import Link, Nobody, RemoteNetwork
from fedpact.engines.serialization import Layout
from fedpact.federation.blocks import bind_any
from fedpact.precision import in_double
from fedpact.run.pact import Pact
from fedpact.run.selection import title

PHASES = {
    "begin": "once, before the first round",
    "round": "in a round",
    "end": "once, for what parties keep of the answer",
    "certificate": "when convergence is checked, and at the end",
}
TITLES = ("when", "step", "asks", "bytes down", "down", "bytes up", "up")
COMBINED = {".sum": "added up", ".max": "the largest is taken", ".each": "told by each party"}


@dataclasses.dataclass(frozen=True)
class Wire:
    """The messages of a pact's runs, of one party each."""

    digest: str
    method: str
    parties: tuple[str, ...]
    exchanges: tuple[Exchange, ...]

    def rows(self) -> list[tuple[str, ...]]:
        """When, step, to whom, bytes down, what goes down, bytes up, what comes back."""
        return [
            (
                PHASES[e.phase],
                e.name.rpartition(" ")[0],
                "all parties" if e.among is None else f"{e.among} parties",
                f"{e.message.size:,}",
                _listed(e.message, {}),
                f"{e.reply.size:,}",
                _listed(e.reply, COMBINED),
            )
            for e in self.exchanges
        ]


def _listed(layout: Layout, kinds: dict[str, str]) -> str:
    """Names and shapes of what a message holds; of replies, by how the server combines them."""
    told: dict[str, list[str]] = {}
    for leaf in (leaf for leaf in layout.leaves if leaf.size):
        start = next((start for start in kinds if leaf.name.startswith(start)), "")
        told.setdefault(kinds.get(start, ""), []).append(
            f"{leaf.name.removeprefix(start).lstrip('.') or 'numbers'} {leaf}"
        )
    return (
        "; ".join(f"{kind}: {', '.join(names)}" if kind else ", ".join(names) for kind, names in told.items())
        or "nothing"
    )


@in_double
def wire(pact: Pact) -> Wire:
    """Trace a pact's method over its parties' tables, loaded in this process; nothing is solved."""
    bound = bind_any(
        pact.problem, pact.tables(), None if pact.columns else pact.server, start=pact.options.get("start"),
        seed=pact.options.get("seed", 0), disclose=pact.discloses,
    )  # fmt: skip
    algorithm = pact.method(bound.setting)
    active = tuple(name in pact.active for name in pact.parties)
    net = RemoteNetwork(LocalNetwork.of(bound), Link(Nobody(), pact.parties, active, "", ""))
    plan = traced(algorithm, net, bound)
    return Wire(pact.digest, title(algorithm), pact.parties, tuple(plan.exchanges.values()))
