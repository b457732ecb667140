"""fp.audit over rows: a run in one process, what the server received of every party, and what attacks read from it."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from fedpact.compiling import Jitted
from fedpact.engines.exchanges import title as step_title
from fedpact.federation.rows import title
from fedpact.federation.table import Table
from fedpact.privacy import attacks, row_attacks
from fedpact.privacy import readings as read_off
from fedpact.privacy.candidates import Fit, Means, explained, fitted
from fedpact.privacy.readings import Known, Reading
from fedpact.privacy.views import Recorded, View, of_one_party, of_sums
from fedpact.problem.statement import Problem
from fedpact.protocol.algorithm import Method, Status
from fedpact.protocol.engine import HostNetwork
from fedpact.protocol.messages import Reply
from fedpact.protocol.phases import Ask, PartyStates
from fedpact.run import drivers
from fedpact.run.host_server import FEW_NUMBERS
from fedpact.run.loop import goal_of
from fedpact.run.row_leaks import RowLeak
from fedpact.settings.base import Bound
from fedpact.tolerance import Tolerance

TOLERANCE = 1e-4  # to which the run is solved, as by fp.solve
MOST_KNOWN = 150  # of a party's rows that the attacker is given as candidates
MOST_VARIANTS = 16  # of values of labels and groups that are tried for a row
LARGEST = 2_000_000_000  # numbers of all replies that are recorded


# the run


class Recorder(HostNetwork):
    """All parties in this process, as `LocalNetwork`, with every party's reply kept as it is sent."""

    def __init__(self, bound: Bound) -> None:
        self.bound = bound
        self.recorded: list[Recorded] = []
        size = sum(leaf.size for leaf in jax.tree.leaves(bound.stacks))
        self.stepped = _quickly if size <= FEW_NUMBERS else _well
        self.numbers = 0

    def exchange(self, asks: Sequence[Ask], states: PartyStates) -> tuple[list[Reply], PartyStates]:
        states = (None,) * len(self.bound.stacks) if states is None else states
        replies = []
        for ask in asks:
            states, sent = self.stepped(ask.step, self.bound.stacks, states, ask.message)
            replies.append(self._kept(ask, sent))
        return replies, states

    def _kept(self, ask: Ask, sent: Sequence[Reply]) -> Reply:
        """The combined reply, after every party's own is kept."""
        sent = jax.device_get(sent)
        self.numbers += sum(leaf.size for leaf in jax.tree.leaves(sent))
        if self.numbers > LARGEST:
            raise ValueError(
                f"fp.audit has recorded {self.numbers:.1e} numbers of replies, more than it can attack; watch fewer with rounds="
            )
        each = tuple(self.bound.by_name(sent).values())
        self.recorded.append(Recorded(step_title(ask.step), jax.tree.map(np.asarray, ask.message), each))
        together = jax.tree.map(lambda *leaves: np.stack(leaves), *each)
        return Reply(
            sum=jax.tree.map(lambda leaf: leaf.sum(0), together.sum),
            max=jax.tree.map(lambda leaf: leaf.max(0), together.max),
            per_party=together.per_party,
        )


def _at_parties(step: Any, stacks: Any, states: Any, message: Any) -> tuple[Any, list[Reply]]:
    at_each: Any = jax.vmap(step, in_axes=(0, 0, None))
    after, replies = [], []
    for stack, state in zip(stacks, states, strict=True):
        new, reply = at_each(stack, state, message)
        after.append(new)
        replies.append(reply)
    return tuple(after), replies


_quickly = Jitted(_at_parties, static=1, quickly=True)
_well = Jitted(_at_parties, static=1)


def watched(bound: Bound, method: Method, rounds: int, seed: int) -> tuple[list[Recorded], int]:
    """The exchanges of a run, until it has converged to TOLERANCE or `rounds` are over, and how many rounds that took."""
    recorder = Recorder(bound)
    network: Any = drivers.ServerOnHost(recorder) if method.few_rounds else recorder
    own = drivers.server_data(bound, network)
    server, states = drivers.begin(method, network, own, bound.start, goal_of(Tolerance.of(TOLERANCE), method), seed)
    done = 0
    while done < rounds and int(method.status(server)) == Status.running:
        server, states, _ = drivers.step(method, network, own, server, states)
        done += 1
    return recorder.recorded, done


# the attacks


@dataclasses.dataclass(frozen=True)
class Attacked:
    """One federation under attack; everything that is the same for all of its parties."""

    problem: Problem
    bound: Bound
    method: Method
    tables: dict[str, Table]
    outsiders: Table | None
    recorded: list[Recorded]
    sums: bool
    seed: int

    def leaks(self) -> dict[str, RowLeak]:
        together = of_sums(self.recorded) if self.sums else None
        found = None if together is None else self._rows_of(together, 0)  # the same for every party
        return {name: self._leak(place, together, found) for place, name in enumerate(self.tables)}

    def _leak(self, place: int, together: View | None, found: "_Found | None") -> RowLeak:
        name = list(self.tables)[place]
        table, rng = self.tables[name], np.random.default_rng([self.seed, place])
        view = together or of_one_party(self.recorded, place)
        told, means = self.readings(view, place), self.means(place)
        labels = None if self.label is None or self.label not in table else table[self.label]
        majority = None if labels is None or not self._few_labels else attacks.majority(labels)
        found = found or self._rows_of(view, place)
        words = [self._words(title(name), table, found, place), *found.words]
        recovered = found.among(table, means)
        known = self._drawn(table, MOST_KNOWN, rng)
        others = self._others(place, known.rows, rng)
        accuracies: list[float] = []
        if majority is not None:
            accuracies.append(majority)
        membership = inside = None
        if told and means.readable and others is not None:
            fit = fitted(means, told, self.variants(joined([known, others])), self.seed)
            membership = _balanced(fit, known.rows)
            if labels is not None and fit.trusted and majority is not None:
                accuracies.append(self._label_accuracy(fit, known))
            words.append(_of_candidates(fit, known.rows, table.rows))
        if told and means.readable and self.outsiders is not None:
            outside = self._drawn(self.outsiders, known.rows, rng)
            same = known if outside.rows == known.rows else self._drawn(known, outside.rows, rng)
            inside = _balanced(fitted(means, told, self.variants(joined([same, outside])), self.seed), same.rows)
        if labels is not None and majority is not None and (recovered >= 0).any():
            accuracies.append(self._labels_of_found(found, recovered, labels, told, means, place))
        if not told:
            words.append(
                f"no gradient or Hessian could be read off what {self._kind} sends here, so labels and membership were not "
                "attacked; that is not to say that nothing can be read"
            )
        elif not means.readable:
            words.append(
                "the problem has fp.value(fn) of whole tables, of which rows have no part of their own: labels and membership "
                "were not attacked; that is not to say that nothing can be read"
            )
        share = float(np.mean(recovered >= 0))
        wrong = self._wrong(found, means, table)
        if wrong:
            words.append(f"{wrong} of the {len(found.rows)} vectors that the attack takes for rows are nobody's")
        labels_right = max(accuracies, default=None)
        return RowLeak(table.rows, share, labels_right, majority, membership, inside, wrong, tuple(words))

    # small pieces

    @property
    def label(self) -> str | None:
        return next((loss.label for loss in self.problem.losses if loss.label is not None), None)

    @property
    def _kind(self) -> str:
        return type(_innermost(self.method)).__name__.removesuffix("Method").removesuffix("OverRows")

    @property
    def _few_labels(self) -> bool:
        return self.label is not None and len(self._hidden_values) <= MOST_VARIANTS

    @property
    def _hidden(self) -> tuple[str, ...]:
        """Columns that decide which means a row is in: the label, and what masks read."""
        first = next(iter(self.tables.values()))
        masks = [atom.where.columns for atom, _ in self.bound.compiled.party.over_rows if atom.where is not None]
        names = dict.fromkeys([*([self.label] if self.label else []), *(name for columns in masks for name in columns)])
        return tuple(name for name in names if name in first.columns)

    @property
    def _hidden_values(self) -> list[tuple[Any, ...]]:
        """All combinations of their values that occur, of which the server is assumed to know the list."""
        seen: dict[tuple[Any, ...], None] = {}
        for table in self.tables.values():
            seen |= dict.fromkeys(zip(*(table[name].tolist() for name in self._hidden), strict=True))
            if len(seen) > MOST_VARIANTS:
                break
        return sorted(seen, key=repr)

    def variants(self, table: Table) -> list[Table]:
        """The same rows with every combination of labels and groups; as they are where there are too many, or none."""
        values = self._hidden_values
        if not self._hidden or len(values) > MOST_VARIANTS:
            return [table]
        return [self._with(table, value) for value in values]

    def _with(self, table: Table, values: tuple[Any, ...]) -> Table:
        columns = {
            name: np.full(table.rows, value, table[name].dtype)
            for name, value in zip(self._hidden, values, strict=True)
        }
        return table.with_columns(**columns)

    def means(self, place: int) -> Means:
        return Means.of(self.bound.compiled.party, list(self.tables.values()), place)

    def readings(self, view: View, place: int, objective_slope: Any = None) -> list[Reading]:
        program, sizes = self.bound.compiled.party, self.bound.rows
        known = Known(
            size=self.bound.shape.size,
            equality=np.asarray(program.equality, bool),
            pooled=len(program.pooled),
            parties=view.parties,
            members=len(self.tables),
            rows=sizes[place] if view.parties == 1 else sum(sizes),
            method=_innermost(self.method),
            objective_slope=objective_slope,
        )
        return read_off.readings(view, known)

    def _rows_of(self, view: View, place: int) -> "_Found":
        """Rows from Hessians, and from gradients of means over a single row."""
        told, means = self.readings(view, place), self.means(place)
        model, nothing = means.model, np.zeros((0, self.bound.shape.size))
        if model is None or not means.readable:
            return _Found(nothing, None, ("only losses of a linear model with one score a row are attacked for rows",))
        bias = 0 if model.bias else None
        held = sum(self.bound.rows) if self.sums else self.bound.rows[place]
        rows, hessians = _from_hessians(means, told, bias, held)
        if bias is not None and 0 < len(rows) < held:
            # the rows of the objective tell its gradient everywhere, which leaves those of the constraint
            more = self.readings(view, place, self._objective_slope(rows, told, means, place))
            again, hessians = _from_hessians(means, more, bias, held)
            rows = row_attacks.joined([rows, again])
        alone: dict[Any, list[np.ndarray]] = {}
        for reading in told:
            if reading.kind == "gradient" and reading.exact and self._rows_behind(means, reading, view, place) == 1:
                alone.setdefault(_weights_key(reading), []).append(means.of_rows(reading))
        rows = row_attacks.joined([rows, *(row_attacks.from_gradients(every, bias) for every in alone.values())])
        words = () if model.bias else ("the model has no bias, so rows are read up to a factor each",)
        return _Found(rows if len(rows) else nothing, bias, words, hessians)

    def _objective_slope(self, rows: np.ndarray, told: list[Reading], means: Means, place: int) -> Any:
        """∇f as a function of the point, where the rows explain what was read of it; else None."""
        only = [
            reading
            for reading in told
            if reading.objective and not reading.constraints.any() and not reading.pooled.any()
        ]
        if not only:
            return None
        variants = self.variants(self._as_table(rows, means, place))
        fit = fitted(means, only, variants, self.seed)
        return explained(means, fit, variants, next(r for r in only if r.kind == "gradient")) if fit.trusted else None

    def _as_table(self, rows: np.ndarray, means: Means, place: int) -> Table:
        """Rows that were read, as candidates; columns that are not features are to be tried."""
        table = list(self.tables.values())[place]
        assert means.model is not None
        inputs = means.model.inputs
        shape = (len(rows), *table[inputs].shape[1:])
        return table.take(np.zeros(len(rows), int)).with_columns(**{inputs: rows[:, 1:].reshape(shape)})

    def _rows_behind(self, means: Means, reading: Reading, view: View, place: int) -> int:
        """Of how many rows a reading is a sum: the means' counts are in the parties' descriptions."""
        tables = list(self.tables.values())
        tables = [tables[place]] if view.parties == 1 else tables
        over_rows = [number for number, (atom, _) in enumerate(means.program.atoms) if atom.over_rows]
        used = means.pull(reading)[over_rows] != 0
        return sum(int((means.weights(table)[used] > 0).any(0).sum()) for table in tables)

    def _words(self, party: str, table: Table, found: "_Found", place: int) -> str:
        size, read = self.bound.shape.size, int((found.among(table, self.means(place)) >= 0).sum())
        held = sum(self.bound.rows) if self.sums else table.rows
        whose = f"the parties together have {held}" if self.sums else f"{party} has {held}"
        if read:
            source = "Hessians, two rounds at a time" if found.hessians > 2 else "gradients of a single row"
            summed = ", summed over all parties" if self.sums else ""
            return f"the server reads {read} of {table.rows} rows of {party} from {source}{summed}"
        if found.hessians > 2 and held > size:
            return f"no row is read from Hessians: {whose} rows, more than the {size} parameters, which this attack does not undo"
        if found.hessians > 2:
            return f"no row of {party} is read from its Hessians"
        return "no row is read: no Hessians of rows alone could be computed from what is sent, and no gradient is one row's"

    def _wrong(self, found: "_Found", means: Means, table: Table) -> int:
        """Vectors that are taken for rows and are none, of this party or, of sums, of any."""
        tables = list(self.tables.values()) if self.sums else [table]
        right = set(np.concatenate([found.among(each, means) for each in tables]).tolist()) - {-1}
        return len(found.rows) - len(right)

    def _drawn(self, table: Table, most: int, rng: np.random.Generator) -> Table:
        return table if table.rows <= most else table.take(np.sort(rng.choice(table.rows, most, replace=False)))

    def _others(self, place: int, count: int, rng: np.random.Generator) -> Table | None:
        """Rows of other parties, or of nobody where there is one party."""
        rest = [table for other, table in enumerate(self.tables.values()) if other != place]
        rest = rest or ([] if self.outsiders is None else [self.outsiders])
        return self._drawn(joined(rest), count, rng) if rest else None

    def _label_accuracy(self, fit: Fit, known: Table) -> float:
        return attacks.agreement(self.labels_of(fit)[: known.rows], known[self.label])

    def labels_of(self, fit: Fit) -> np.ndarray:
        """The label of the heaviest variant; the most frequent one of all where a row has no weight."""
        place = self._hidden.index(self.label) if self.label in self._hidden else 0
        values = np.array([value[place] for value in self._hidden_values])
        every = np.concatenate([table[self.label] for table in self.tables.values()])
        names, counts = np.unique(every, return_counts=True)
        return np.where(fit.of_rows > 0.5, values[np.argmax(fit.weights, axis=1)], names[np.argmax(counts)])

    def _labels_of_found(
        self, found: "_Found", places: np.ndarray, labels: np.ndarray, told: list[Reading], means: Means, place: int
    ) -> float:
        """Recovered rows are candidates in their turn; other rows are guessed to have the more frequent label."""
        names, counts = np.unique(labels, return_counts=True)
        guess = np.full(len(labels), names[np.argmax(counts)])
        if found.bias is not None:
            fit = fitted(means, told, self.variants(self._as_table(found.rows, means, place)), self.seed)
            if fit.weights.shape[1] > 1:
                guess = np.where(places >= 0, self.labels_of(fit)[places], guess)
        return attacks.agreement(guess, labels)


@dataclasses.dataclass(frozen=True)
class _Found:
    """What the attacker takes for rows."""

    rows: np.ndarray
    bias: int | None
    words: tuple[str, ...] = ()
    hessians: int = 0

    def among(self, table: Table, means: Means) -> np.ndarray:
        """For each row of a party, the place of the one that is found for it; −1 where there is none."""
        if means.model is None or not len(self.rows):
            return np.full(table.rows, -1)
        truth = np.asarray(means.model.score_slopes({means.model.inputs: table[means.model.inputs]}))
        return row_attacks.matched(self.rows, truth, self.bias)


def _from_hessians(means: Means, told: Sequence[Reading], bias: int | None, held: int) -> tuple[np.ndarray, int]:
    """Rows from Hessians of the same functions, and how many Hessians there were."""
    alike: dict[Any, list[np.ndarray]] = {}
    for reading in told:
        if reading.kind == "hessian":
            alike.setdefault(_weights_key(reading), []).append(means.of_rows(reading))
    rows = row_attacks.joined([row_attacks.from_hessians(every, bias, held) for every in alike.values()])
    return rows, sum(map(len, alike.values()))


def _weights_key(reading: Reading) -> tuple[bool, ...]:
    return reading.objective != 0, *(reading.constraints != 0).tolist(), *(reading.pooled != 0).tolist()


def _innermost(method: Any) -> Any:
    while hasattr(method, "method"):
        method = method.method
    return method


def _balanced(fit: Fit, members: int) -> float:
    """The mean of the shares of members and of others that are told right."""
    total = fit.of_rows
    if not total.any():
        return 0.5
    level = 0.5 if fit.trusted else float(np.median(total))
    said = total > level
    return 0.5 * float(np.mean(said[:members])) + 0.5 * float(np.mean(~said[members:]))


def _of_candidates(fit: Fit, known: int, rows: int) -> str:
    among = "its rows" if known == rows else f"{known} of its rows"
    if fit.trusted:
        return f"candidates: somebody who knows the features of {among} and of as many others explains all that was received"
    return f"candidates: what was received is not explained by {among} and as many others, so labels are guessed by the majority"


def joined(tables: Sequence[Table]) -> Table:
    first = tables[0]
    if len(tables) == 1:
        return first
    whole = {name: np.concatenate([table[name] for table in tables]) for name in first.columns}
    return first.take(np.zeros(len(next(iter(whole.values()))), int)).with_columns(**whole)
