"""`fedpact wire pact.py`: every message of a run before it is run, by what it holds, its bytes and who gets it."""

import dataclasses
import math

import numpy as np

from fedpact.deploy.matching_messages import matching_messages
from fedpact.deploy.party_run import parameters_layout
from fedpact.deploy.promise import message_layout, reply_layout, secure_specs, summed_places
from fedpact.deploy.recipe_messages import recipe_messages
from fedpact.engines.exchanges import Exchange, ExchangePlan
from fedpact.engines.sealing import check_sums, is_sealed, sealed_layout
from fedpact.engines.serialization import Layout, Leaf
from fedpact.engines.summing import sealed_sums_layout
from fedpact.evaluation.counts import Counts, groups_of
from fedpact.federation.columns import ColumnParties
from fedpact.federation.rows import Parties
from fedpact.precision import in_double
from fedpact.privacy.differential import DifferentialPrivacy
from fedpact.problem.shape import Shape
from fedpact.promises.agreed import AgreedPromise
from fedpact.protocol.ring import NUMBER_BYTES
from fedpact.run.pact import Pact
from fedpact.run.summed import exposed, exposed_in_words
from fedpact.settings.base import Bound

PARTS = {
    "begin": "once, before the first round",
    "round": "in a round",
    "end": "when convergence is checked, and at the end",
    "certificate": "when convergence is checked, and at the end",
}
TITLES = ("when", "what a party does", "asked", "bytes down", "the party gets", "bytes up", "the party sends")
COMBINED = {
    ".sum": "the server adds up",
    ".max": "the server takes the largest of",
    ".per_party": "the server keeps apart by party",
}
SUMMED = {
    ".sum": "the server learns the sum over all who are asked of",
    ".max": "the server learns a power of two above the largest of",
    ".per_party": COMBINED[".per_party"],
}
SUMS_TOLD = "the sums of the last exchange, so that the party can check the point"
UNITS = {"f": "number", "i": "integer", "u": "integer", "b": "yes/no"}


@dataclasses.dataclass(frozen=True)
class MessageList:
    """The messages of a pact's runs, of one party each.

    - `description`: what a party tells of its table before the first one.
    - `secure`: whether sums are secure; else the server receives every party's reply by itself. `checked`: whether parties
      check points. `keys`: whether the pact has the parties' keys. `in_the_clear`: whether its options say "privacy": None.
    - `warning`: that the run would be refused, or that rows could be read from its Hessians; "" where neither.
    """

    digest: str
    method: str
    parties: tuple[str, ...]
    exchanges: tuple[Exchange, ...]
    description: str
    evaluation: tuple[str, ...] | None = None  # the last row, where the pact has `evaluate` and parties hold rows
    test: tuple[str, ...] | None = None  # the row of a promise's test, after the last round
    recipe: tuple[tuple[str, ...], ...] = ()  # the first rows, where the pact has a recipe to be fitted
    matching: tuple[tuple[str, ...], ...] = ()  # likewise, where ids are matched
    secure: bool = False
    checked: bool = False
    keys: bool = False
    in_the_clear: bool = False
    some_missing: bool = False  # whether secure sums are over those who are there
    noise: DifferentialPrivacy | None = None  # by which every party draws noise
    warning: str = ""

    def up(self, exchange: Exchange) -> int:
        """Bytes of numbers in a party's reply, as they are sent."""
        return (sealed_layout(exchange.reply, self.checked) if self.secure else exchange.reply).size

    def sums(self, exchange: Exchange) -> int:
        """Bytes of the sums of an exchange, which every party is told with the message after it where points are checked."""
        told = self.checked and is_sealed(exchange.reply)
        return sealed_layout(exchange.reply, checked=True).size if told else 0

    def down(self, exchange: Exchange) -> int:
        """Bytes of numbers in a message to a party, at most: with the sums of the exchange before it."""
        return exchange.message.size + self.told(exchange)

    def asked(self, exchange: Exchange) -> str:
        """Who gets the message, in words."""
        if exchange.drawn is not None:
            return f"{exchange.asked} of {len(self.parties)} parties, drawn anew"
        return "all parties" if exchange.among is None else f"{exchange.among} parties"

    def told(self, exchange: Exchange) -> int:
        """Bytes of the sums of the exchange before, at most: which one that is, depends on the run."""
        place = self.exchanges.index(exchange)
        before = [e for e in self.exchanges[:place] if e.part == exchange.part] or list(self.exchanges[:place])
        if exchange.part == "round" and all(e.part == "begin" for e in before):
            before += [e for e in self.exchanges if e.part == "round"]
        elif before and before[-1].part != exchange.part:
            before = [e for e in before if e.part == before[-1].part]
        return max(map(self.sums, before), default=0)

    def hides(self, exchange: Exchange) -> bool:
        """Whether the server learns a sum over several parties, and not what each says."""
        return self.secure and exchange.asked > 1

    def rows(self) -> list[tuple[str, ...]]:
        """One row for each message, in the order of TITLES."""
        rows = [
            (
                PARTS[e.part],
                _words(e.title),
                self.asked(e),
                f"{self.down(e):,}" + (" at most" if self.told(e) else ""),
                _listed(e.message, {}) + (f"; {SUMS_TOLD} (at most {self.told(e):,} bytes)" if self.told(e) else ""),
                f"{self.up(e):,}",
                _listed(e.reply, SUMMED if self.hides(e) else COMBINED),
            )
            for e in self.exchanges
        ]
        last = [row for row in (self.test, self.evaluation) if row is not None]
        return [*self.matching, *self.recipe, *rows, *last]


def _listed(layout: Layout, kinds: dict[str, str]) -> str:
    """What a message holds, in words; of replies, by how the server combines them."""
    parts: dict[str, list[str]] = {}
    for leaf in (leaf for leaf in layout.leaves if leaf.size):
        start = next((start for start in kinds if leaf.name.startswith(start)), "")
        name = _words(leaf.name.removeprefix(start).lstrip(".")) or "values"
        parts.setdefault(kinds.get(start, ""), []).append(f"{name} ({amount(leaf)})")
    texts = (f"{kind}: {', '.join(names)}" if kind else ", ".join(names) for kind, names in parts.items())
    return "; ".join(texts) or "nothing"


def _words(name: str) -> str:
    return name.replace("_", " ").replace(".", ": ")


def amount(leaf: Leaf) -> str:
    """How much it is: "31 numbers", "80 x 2 numbers", "115,712 bytes"."""
    kind = np.dtype(leaf.dtype)
    if kind == np.uint8:
        return f"{leaf.size:,} bytes"
    count, unit = math.prod(leaf.shape), UNITS[kind.kind]
    size = " x ".join(map(str, leaf.shape)) or "1"
    return f"{size} {unit}{'s' if count != 1 and unit != 'yes/no' else ''}"


@in_double
def wire(pact: Pact) -> MessageList:
    """Trace a pact's method over its parties' tables, loaded in this process; nothing is solved."""
    tables = pact.tables(blinded=False)
    bound = pact.bind(tables)
    plan = ExchangePlan.of(pact.method_for(bound.setting), bound)
    last = None if pact.evaluate is None or pact.columns else _evaluation(pact, bound.shape.size)
    test = None if pact.promise is None else _test(pact, pact.promise, bound.shape)
    exchanges, title = tuple(plan.exchanges.values()), pact.title_for(bound.setting)
    combined = SUMMED if pact.is_secure else COMBINED
    fit = recipe_messages(pact.recipe, combined[".sum"], combined[".per_party"], pact.is_secure)
    description = _description(pact, tables)
    matching = matching_messages(pact)
    secure, checked, keys = pact.is_secure, pact.checks_points, pact.keys is not None
    clear, warning = pact.options.get("privacy", "unsaid") is None, _warning(pact, plan, bound)
    return MessageList(
        pact.digest, title, pact.parties, exchanges, description, last, test, fit, matching, secure, checked, keys, clear,
        pact.some_missing, pact.privacy if isinstance(pact.privacy, DifferentialPrivacy) else None, warning,
    )  # fmt: skip


def _warning(pact: Pact, plan: ExchangePlan, bound: Bound) -> str:
    """What speaks against the run as the pact states it, in words."""
    try:
        if pact.is_secure:
            check_sums(plan, bound.discloses)
        else:
            pact.check_in_the_clear(bound.setting)
    except ValueError as error:
        return f"This run would be refused: {error}."
    names = () if pact.is_secure else exposed(pact.options_for(bound.setting), bound.setting)
    return f"Beware: {exposed_in_words(names, bound.setting.size)}." if names else ""


def _description(pact: Pact, tables: Parties | ColumnParties) -> str:
    """What the first party, or the first with labels, tells of its table, in words."""
    party = (*pact.active, *pact.parties)[0]
    table = pact.table(party, tables.recipe) if pact.align is None else tables[party]
    told, _ = pact.setting.describe(pact.agreement, party, table)
    parts = [f"its {told.rows} rows", f"names, types and widths of the columns {', '.join(told.columns)}"]
    if told.features is not None:
        parts.append(f"the names of the {len(told.features)} features in x")
    if told.totals:
        parts.append(f"the count or the sum of the weights of these: {'; '.join(told.totals)}")
    parts += [f"the groups of column {name}: {', '.join(map(repr, groups))}" for name, groups in told.groups.items()]
    if pact.hides_counts and pact.evaluate is not None and pact.question().group is not None:
        counted, few = groups_of(table, pact.question())
        listed = ", ".join(map(repr, (*counted, *few)))
        parts.append(f"the groups of column {pact.question().group}, for the evaluation: {listed}")
    return f"before the first round a party describes its table, {party} so: {'; '.join(parts)}"


def _evaluation(pact: Pact, size: int) -> tuple[str, ...]:
    """The evaluation's row: what it asks of a party, and what one group sends up."""
    question, down = pact.question(), parameters_layout(size)
    cells, bins = ("4 integers", "integers") if question.weights is None else ("4 integers and 8 numbers", "numbers")
    bytes_up = 8 * ((4 if question.weights is None else 12) + 2 * question.bins)
    names, kept = "names of groups, ", COMBINED[".per_party"]
    if pact.hides_counts:
        bytes_up = sealed_sums_layout(Counts.specs(1, question)).size - NUMBER_BYTES
        names, kept = "", SUMMED[".sum"]
    return (
        "once, after the end",
        "evaluate",
        "all parties",
        f"{down.size + 8:,}",
        f"parameters ({size} numbers), threshold (1 number)",
        f"{bytes_up:,} for each group",
        f"{kept}: {names}rows by label and decision ({cells}), histogram of scores by label (2 x {question.bins} {bins})",
    )


def _test(pact: Pact, promise: AgreedPromise, shape: Shape) -> tuple[str, ...]:
    """The row of the test: what is asked of a party, and what it counts on the rows that it holds out."""
    asked, told = message_layout(shape), reply_layout(promise)
    size, sends = told.size, _listed(told, {})
    if pact.hides_counts:
        size = sealed_sums_layout(*secure_specs(promise)).size
        means, single = len(promise.statements.means), len(promise.statements.means) - len(summed_places(promise))
        parts = [f"{COMBINED['.per_party']}: rows ({means} integers)"]
        of_each = "of means that a limit at each party is about"
        parts[0] += (
            f", totals ({single} numbers) and values outside the range ({single} integers) {of_each}" if single else ""
        )
        of_all = "totals and values outside the range of means that limits over all rows alone are about"
        parts += [f"{SUMMED['.sum']}: {of_all} ({means - single} of each)"] if means > single else []
        sends = "; ".join(parts)
    words = "once, after the last round", "count on the rows that it holds out", "all parties"
    return (*words, f"{asked.size:,}", _listed(asked, {}), f"{size:,}", sends)
