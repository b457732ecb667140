"""fp.audit: a run replayed from each passive party's view, and what can be guessed from it."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpact.algorithms.fair_vfl.fed_bcd import FedBCD
from fedpact.algorithms.fair_vfl.method import FairVFL
from fedpact.engines.local import LocalNetwork, Metered
from fedpact.federation.blocks import Block, BoundColumns, bind_any
from fedpact.federation.columns import ColumnParties
from fedpact.precision import in_double
from fedpact.privacy import attacks
from fedpact.privacy.residuals import EncryptedResiduals
from fedpact.problem.statement import Problem
from fedpact.protocol.algorithm import Algorithm, Goal
from fedpact.protocol.messages import Reply
from fedpact.protocol.network import Role
from fedpact.protocol.options import check
from fedpact.run import drivers
from fedpact.run.selection import protected


@dataclasses.dataclass(frozen=True)
class Leak:
    """What a curious passive party can infer. Accuracies are parts of rows guessed right, from 0 to 1.

    label_accuracy: labels by the sign attack. group_accuracy: groups by the clustering attack, of the rows of one label: the
        one where it gets more above the majority, since constraints may be about either.
    gradient_label_accuracy: labels by the logistic attack on the party's own first gradient, which no mode hides from it.
    label_majority, group_majority: what guessing the more frequent one gets right, on the same rows.
    """

    label_accuracy: float
    group_accuracy: float | None
    gradient_label_accuracy: float
    label_majority: float
    group_majority: float | None


@dataclasses.dataclass(frozen=True)
class Audit(Mapping[str, Leak]):
    """By passive party. `print(audit)` has the table."""

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


class _Overheard(Metered):
    """A network that keeps what is sent to passive parties."""

    def __init__(self, net: LocalNetwork):
        super().__init__(net)
        self.heard: list[Any] = []

    def carried(self, message: Any, reply: Reply, among: Role | None) -> None:
        super().carried(message, reply, among)
        if among != "active":
            self.heard.append(message)


@in_double
def audit(
    problem: Problem,
    parties: ColumnParties,
    algorithm: Algorithm,
    rounds: int = 100,
    *,
    privacy: EncryptedResiduals | None = None,
    group: str | None = None,
    seed: int = 0,
) -> Audit:
    """Replay a run from each passive party's view, and say how well labels and groups can be inferred from it.

    algorithm: fp.FairVFL or fp.FedBCD. rounds: how many are watched (default 100).
    privacy: fp.EncryptedResiduals(), or None (default) for the plain protocol.
    group: the column of groups (default: the only column besides the label that has two values; None where there is none).
    """
    check("audit", "rounds", rounds, lambda x: x >= 1, "a positive whole number", whole=True)
    if not isinstance(parties, ColumnParties):
        raise TypeError("fp.audit looks at holders of columns: fp.split_columns")
    if not isinstance(algorithm, FairVFL | FedBCD):
        raise TypeError(f"fp.audit replays fp.FairVFL and fp.FedBCD, not {type(algorithm).__name__}")
    passive = [name for name in parties.names if name not in parties.active]
    if not passive:
        raise ValueError("every party is active and knows the labels; there is nobody to audit")
    bound = bind_any(problem, parties, seed=seed)
    assert isinstance(bound, BoundColumns)
    prepared = protected(algorithm, privacy).prepared(bound.setting)
    labels, groups = _truth(problem, parties, group)
    views, gradients = _replayed(bound, prepared, rounds, seed)
    guess = attacks.sign_attack(views)
    group_accuracy, group_majority = _groups_guessed(views, guess, labels, groups)
    leaks = {}
    for name in passive:
        own, start = _block_of(bound, name)
        jacobian = np.asarray(jax.jacfwd(own.embed)(start)).reshape(len(labels), -1, start.size).sum(1)
        own_guess = attacks.logistic_attack(jacobian, gradients[name])
        leaks[name] = Leak(
            label_accuracy=attacks.agreement(guess, labels),
            group_accuracy=group_accuracy,
            gradient_label_accuracy=attacks.agreement(own_guess, labels),
            label_majority=attacks.majority(labels),
            group_majority=group_majority,
        )
    word = type(algorithm).__name__ + (" with encrypted residuals" if privacy else "")
    return Audit(leaks, rounds, word)


def _replayed(
    bound: BoundColumns, algorithm: Algorithm, rounds: int, seed: int
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """What every passive party is sent, as one number a row and round; and each one's own first gradient."""
    net = LocalNetwork.of(bound)
    goal = Goal(jnp.asarray(0.0), jnp.asarray(0.0))
    server, parties = drivers.begin(algorithm, net, bound.start, goal, seed)

    @jax.jit
    def once(net: LocalNetwork, server: Any, parties: Any) -> tuple[Any, Any, list[Any]]:
        watched = _Overheard(net)
        server, parties, _ = algorithm.round(server, parties, watched)
        return server, parties, watched.heard

    views, gradients = [], {}
    for _ in range(rounds):
        server, parties, heard = once(net, server, parties)
        if not gradients:
            gradients = bound.by_name(tuple(state.gradient for state in parties))
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(heard)]
        found = attacks.per_row(leaves, bound.rows[0])
        views.append(np.zeros(bound.rows[0]) if found is None else found)
    return np.stack(views), gradients


def _groups_guessed(
    views: np.ndarray, guess: np.ndarray, labels: np.ndarray, groups: np.ndarray | None
) -> tuple[float | None, float | None]:
    """The part of groups guessed right, and the majority's part, among the rows of the label where more is gained."""
    found = []
    for label in (1, -1):
        held = np.flatnonzero(guess == label)
        right = labels[held] == label
        if groups is not None and len(held) > 1 and right.any():
            split = attacks.clustering_attack(views[:, held])
            truth = groups[held[right]]
            found.append((attacks.agreement_up_to_names(split[right], truth), attacks.majority(truth)))
    return max(found, key=lambda pair: pair[0] - pair[1], default=(None, None))


def _block_of(bound: BoundColumns, name: str) -> tuple[Block, jax.Array]:
    place = bound.names.index(name)
    for stack, mine in zip(bound.oracles, bound.order, strict=True):
        if place in mine:
            own = jax.tree.map(lambda leaf, at=mine.index(place): leaf[at], stack)
            return own, jnp.asarray(own.start)
    raise KeyError(name)


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
