"""fp.audit: a run replayed from the view of a curious passive party (columns) or server (rows), and what it can tell."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np

from fedpact.arrays import one_blas_thread
from fedpact.engines.local import LocalNetwork
from fedpact.federation.columns import ColumnParties
from fedpact.federation.rows import Parties, checked_seed, split_rows
from fedpact.federation.table import Table, as_table
from fedpact.precision import in_double
from fedpact.privacy import attacks
from fedpact.privacy.residuals import EncryptedResiduals
from fedpact.privacy.secure_sums import SecureAggregation
from fedpact.problem.statement import Problem
from fedpact.protocol.algorithm import Algorithm, Goal, Method
from fedpact.protocol.messages import Reply
from fedpact.protocol.options import check
from fedpact.protocol.phases import Ask, Network, PartyStates, ServerData, play
from fedpact.run.drivers import begin
from fedpact.run.row_audit import Attacked, watched
from fedpact.run.row_leaks import RowAudit
from fedpact.run.selection import protected
from fedpact.settings import bind
from fedpact.settings.base import Bound


@dataclasses.dataclass(frozen=True)
class Leak:
    """What a curious passive party can infer. Accuracies are parts of rows guessed right, from 0 to 1.

    - `label_accuracy`: labels by the sign attack.
    - `group_accuracy`: groups by the clustering attack, of the rows of one label: the one where it gets more above the
      majority, since constraints may be about either. None where there are no groups.
    - `gradient_label_accuracy`: labels by the logistic attack on the party's own first gradient, which no mode hides from it.
    - `label_majority`, `group_majority`: what guessing the more frequent one gets right, on the same rows.
    """

    label_accuracy: float
    group_accuracy: float | None
    gradient_label_accuracy: float
    label_majority: float
    group_majority: float | None


@dataclasses.dataclass(frozen=True)
class Audit(Mapping[str, Leak]):
    """What passive parties can infer: a mapping from their names to `fp.Leak`. `print(audit)` has the table.

    - `leaks`: by party. `rounds`: how many were watched. `method`: in words.
    """

    leaks: dict[str, Leak]
    rounds: int
    method: str

    def __getitem__(self, party: str) -> Leak:
        if party not in self.leaks:
            raise KeyError(f"no passive party {party!r}; there are {', '.join(self.leaks) or 'none'}")
        return self.leaks[party]

    def __iter__(self) -> Iterator[str]:
        return iter(self.leaks)

    def __len__(self) -> int:
        return len(self.leaks)

    def __str__(self) -> str:
        lines = [
            f"what passive parties can infer from {self.rounds} rounds of {self.method}: rows guessed right",
            f"  {'party':<16}{'labels, sign':>14}{'labels, own gradient':>22}{'majority':>10}{'groups':>9}{'majority':>10}",
        ]
        for name, leak in self.leaks.items():
            group, most = ("-" if x is None else f"{x:.3f}" for x in (leak.group_accuracy, leak.group_majority))
            lines.append(
                f"  {name:<16}{leak.label_accuracy:>14.3f}{leak.gradient_label_accuracy:>22.3f}{leak.label_majority:>10.3f}"
                f"{group:>9}{most:>10}"
            )
        return "\n".join(lines)

    __repr__ = __str__


class _Listening:
    """A network that keeps what is sent to passive parties."""

    def __init__(self, network: Network):
        self.network = network
        self.messages: list[Any] = []

    def exchange(self, asks: Sequence[Ask], states: PartyStates) -> tuple[list[Reply], PartyStates]:
        self.messages += [ask.message for ask in asks if ask.among != "active"]
        return self.network.exchange(asks, states)


@overload
def audit(  # pyright: ignore[reportOverlappingOverload]
    problem: Problem,
    parties: ColumnParties,
    algorithm: Algorithm,
    rounds: int = 100,
    *,
    privacy: Any = None,
    group: str | None = None,
    seed: int = 0,
    server: Any = None,
    outsiders: Any = None,
) -> Audit: ...


@overload
def audit(
    problem: Problem,
    parties: Parties | Sequence[Any] | Mapping[str, Any],
    algorithm: Algorithm,
    rounds: int = 100,
    *,
    privacy: Any = None,
    group: str | None = None,
    seed: int = 0,
    server: Any = None,
    outsiders: Any = None,
) -> RowAudit: ...


@in_double
@one_blas_thread()
def audit(
    problem: Problem,
    parties: ColumnParties | Parties | Any,
    algorithm: Algorithm,
    rounds: int = 100,
    *,
    privacy: Any = None,
    group: str | None = None,
    seed: int = 0,
    server: Any = None,
    outsiders: Any = None,
) -> Audit | RowAudit:
    """Run a method in this process, and say what somebody curious can compute from what they receive.

    Over columns: how well each passive party can infer labels and groups. Over rows: what the server can compute of each
    party's rows from the party's replies: rows from Hessians and from gradients of single rows; labels, and which of some known
    rows are the party's, from gradients and Hessians of all rounds. An attack that fails is no proof that none succeeds.

    - `problem`, `parties`: as in `fp.solve`; of parties that hold columns, at least one is passive.
    - `algorithm`: over columns fp.FairVFL or fp.FedBCD, over rows any method with one model for all.
    - `rounds`: how many are watched at most (at least 1, default 100); over rows a run ends where it has converged to 1e-4.
    - `privacy`: over columns fp.EncryptedResiduals(); over rows fp.SecureAggregation(), with which the attacks get sums over all
      parties, and maxima as powers of two; or None (default) for the plain protocol.
    - `group`: over columns, the column of groups (default: the only column besides the label that has two values; None where
      there is none).
    - `seed`: as in `fp.solve` (default 0); also of which rows of others are mixed with a party's.
    - `server`: over rows, the server's own table (default: none).
    - `outsiders`: over rows, a table of rows that no party holds, with the parties' columns: they are mixed with a party's rows
      to measure whether the server can tell that somebody holds a row (default: none, not measured).

    Returns an `fp.Audit` over columns, an `fp.RowAudit` over rows. Raises ValueError or TypeError where there is nobody to audit,
    or the method is not for these parties.
    """
    check("audit", "rounds", rounds, lambda x: x >= 1, "a positive whole number", whole=True)
    if not isinstance(algorithm, Algorithm):
        raise TypeError(f"fp.audit takes an algorithm such as fp.InteriorPoint(), not {algorithm!r}")
    if not isinstance(parties, ColumnParties):
        if group is not None:
            raise ValueError(f"group={group!r}: groups are inferred by holders of columns; leave it out over rows")
        return _over_rows(problem, parties, algorithm, int(rounds), privacy, checked_seed(seed), server, outsiders)
    if server is not None or outsiders is not None:
        raise ValueError("server= and outsiders= are for parties that hold rows; leave them out over columns")
    return _over_columns(problem, parties, algorithm, int(rounds), privacy, group, seed)


def _over_rows(
    problem: Problem,
    parties: Any,
    algorithm: Algorithm,
    rounds: int,
    privacy: Any,
    seed: int,
    server: Any,
    outsiders: Any,
) -> RowAudit:
    sums = _only_sums(privacy)
    parties = parties if isinstance(parties, Parties) else split_rows(parties)
    bound = bind(problem, parties, None if server is None else as_table(server), seed=seed)
    setting = bound.setting
    if setting.split == "personal":
        raise ValueError(
            "fp.audit does not attack models of the parties' own: with personal= the server receives them anyway"
        )
    if any(program.decides for program in setting.programs):
        raise ValueError(
            "fp.audit does not follow the corrections of counted rates; audit the smooth rate fp.positive_rate(model) in place "
            "of fp.decisions(model)"
        )
    method = algorithm.bind(setting)
    recorded, done = watched(bound, method, rounds, seed)
    others = None if outsiders is None else _outsiders(as_table(outsiders), parties)
    attacked = Attacked(problem, bound, method, dict(parties.items()), others, recorded, sums, seed)
    return RowAudit(attacked.leaks(), done, algorithm.title(setting), sums)


def _only_sums(privacy: Any) -> bool:
    """Whether the server receives sums over parties only."""
    if privacy is None:
        return False
    if not isinstance(privacy, SecureAggregation):
        raise TypeError(f"privacy={privacy!r}: over rows fp.SecureAggregation(), or None")
    return True


def _outsiders(table: Table, parties: Parties) -> Table:
    """With the columns of the parties' tables."""
    first = next(iter(parties.values()))
    missing = [name for name in first.columns if name not in table.columns]
    if missing:
        raise ValueError(
            f"outsiders= has no column {missing[0]!r}; it needs those of the parties: {', '.join(first.columns)}"
        )
    if not table.rows:
        raise ValueError("outsiders= has no rows; leave it out, or give it some that no party holds")
    return table


def _over_columns(
    problem: Problem,
    parties: ColumnParties,
    algorithm: Algorithm,
    rounds: int,
    privacy: EncryptedResiduals | None,
    group: str | None,
    seed: int,
) -> Audit:
    if not algorithm.sends_residuals:
        raise TypeError(f"over columns fp.audit replays fp.FairVFL and fp.FedBCD, not {type(algorithm).__name__}")
    passive = [name for name in parties.names if name not in parties.active]
    if not passive:
        raise ValueError("every party is active and knows the labels; there is nobody to audit")
    bound = bind(problem, parties, seed=seed)
    method = protected(algorithm, privacy).bind(bound.setting)
    labels, groups = _truth(problem, parties, group)
    views, gradients = _replay(bound, method, rounds, seed)
    guess = attacks.sign_attack(views)
    group_accuracy, group_majority = _group_accuracy(views, guess, labels, groups)
    leaks = {}
    for name in passive:
        own = bound.own_data(name)
        jacobian = np.asarray(jax.jacfwd(own.embed)(own.start)).reshape(len(labels), -1, own.start.size).sum(1)
        own_guess = attacks.logistic_attack(jacobian, gradients[name])
        leaks[name] = Leak(
            label_accuracy=attacks.agreement(guess, labels),
            group_accuracy=group_accuracy,
            gradient_label_accuracy=attacks.agreement(own_guess, labels),
            label_majority=attacks.majority(labels),
            group_majority=group_majority,
        )
    return Audit(leaks, rounds, algorithm.title(bound.setting) + (" with encrypted residuals" if privacy else ""))


def _replay(bound: Bound, method: Method, rounds: int, seed: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """What every passive party is sent, as one number for each row and round; and each one's own first gradient."""
    network, own, rows = LocalNetwork.of(bound), bound.server_data, bound.rows[0]
    goal = Goal(jnp.asarray(0.0), jnp.asarray(0.0))
    server, states = begin(method, network, own, bound.start, goal, seed)

    entries = [entry if isinstance(entry, tuple) else (entry,) for entry in method.round]

    @partial(jax.jit, static_argnums=0)
    def wanted(place: int, own: ServerData, carry: Any) -> jax.Array:
        only_if = entries[place][0].only_if
        return jnp.asarray(True) if only_if is None else only_if(own, carry)

    @partial(jax.jit, static_argnums=0)
    def heard(
        place: int, network: LocalNetwork, own: ServerData, carry: Any, states: Any
    ) -> tuple[Any, Any, list[Any]]:
        listening, phases = _Listening(network), tuple(dataclasses.replace(p, only_if=None) for p in entries[place])
        carry, states, _ = play((phases,), own, listening, carry, states)
        return carry, states, listening.messages

    finish = jax.jit(lambda own, carry: method.finish(own, carry)[0])
    views, gradients = [], {}
    for _ in range(rounds):
        carry, messages = server, []
        for place in range(len(entries)):
            if wanted(place, own, carry):
                carry, states, more = heard(place, network, own, carry, states)
                messages += more
        server = finish(own, carry)
        if not gradients:
            gradients = bound.by_name(tuple(state.gradient for state in states))
        view = attacks.per_row([np.asarray(leaf) for leaf in jax.tree.leaves(messages)], rows)
        views.append(np.zeros(rows) if view is None else view)
    return np.stack(views), gradients


def _group_accuracy(
    views: np.ndarray, guess: np.ndarray, labels: np.ndarray, groups: np.ndarray | None
) -> tuple[float | None, float | None]:
    """The part of groups guessed right, and the majority's part, among the rows of the label where more is gained."""
    accuracies = []
    for label in (1, -1):
        guessed = np.flatnonzero(guess == label)
        right = labels[guessed] == label
        if groups is not None and len(guessed) > 1 and right.any():
            split = attacks.clustering_attack(views[:, guessed])
            truth = groups[guessed[right]]
            accuracies.append((attacks.agreement_up_to_names(split[right], truth), attacks.majority(truth)))
    return max(accuracies, key=lambda pair: pair[0] - pair[1], default=(None, None))


def _truth(problem: Problem, parties: ColumnParties, group: str | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Labels as +1 and −1, and groups as 0 and 1."""
    label = next((loss.label for loss in problem.losses if loss.label is not None), "y")
    columns = parties.labels.columns
    values = np.unique(parties.labels[label]) if label in columns else np.zeros(0)
    if len(values) != 2:
        raise ValueError(f"fp.audit guesses labels of two values; column {label!r} has {len(values)}")
    labels = np.where(parties.labels[label] == values[1], 1, -1)
    if group is None:
        two = [name for name in columns if name != label and len(np.unique(parties.labels[name])) == 2]
        group = two[0] if len(two) == 1 else None
    elif group not in columns:
        raise ValueError(f"fp.audit(group={group!r}): the active parties hold {', '.join(columns)}")
    if group is None:
        return labels, None
    return labels, (parties.labels[group] == np.unique(parties.labels[group])[1]).astype(int)
