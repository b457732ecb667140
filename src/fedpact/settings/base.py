"""One interface for every way in which parties may hold a problem's data: rows, columns, or rows with a model of their own.

A setting owns how a problem is bound to tables, what a party keeps of an answer, how an answer is measured and certified, how
parameters are named, and where a number that is not finite came from. Nobody above asks which setting it is.
"""

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import numpy as np

from fedpact.certificate import Certificate
from fedpact.federation.description import Description
from fedpact.federation.setting import Setting
from fedpact.federation.table import Table
from fedpact.problem.program import Compiled
from fedpact.problem.shape import Shape
from fedpact.problem.statement import Problem
from fedpact.protocol.algorithm import Answer, Method
from fedpact.protocol.messages import Reply
from fedpact.protocol.phases import Phase, Phases, ServerData
from fedpact.records import Record


@dataclasses.dataclass(frozen=True)
class HandedOut:
    """An answer as it is handed out: the flat parameters and their tree; by party what is its own, flat; and what a result
    holds besides."""

    w: np.ndarray
    params: Any
    blocks: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    more: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Agreement:
    """What all sites of a deployed run have agreed on, beside the method.

    - `names`: of the parties. `active`: those with labels and groups, over columns. `id`: the column that names the rows.
      `matched`: whether the rows were found by matching these ids, so that nobody has to compare them again.
    - `start`, `seed`, `disclose`: as in `fp.solve`.
    - `descriptions`: of the parties' tables, once they have met; `server`: of the server's own.
    """

    problem: Problem
    names: tuple[str, ...]
    active: tuple[str, ...] = ()
    id: str | None = None
    matched: bool = False
    start: Any = None
    seed: int = 0
    disclose: bool | None = False
    descriptions: tuple[Description, ...] = ()
    server: Description | None = None


class Bound(Record, abc.ABC):
    """A problem bound to its parties' data.

    - `stacks`: the parties' own data, one stack with a leading party axis for each bucket of like parties.
    - `server_data`: what the server has of its own.
    - `start`: the first parameters that the server holds, flat; one row for each where there are several starts.
    - `order`: for each bucket, the places of its parties. `names`, `rows`: of all parties.
    """

    stacks: tuple[Any, ...]
    server_data: ServerData
    start: jax.Array
    order: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    rows: tuple[int, ...] = eqx.field(static=True)
    compiled: Compiled = eqx.field(static=True)

    measured_on_host: ClassVar[bool] = False  # whether the server's part of it is written with `fedpact.arrays`
    sends_row_outputs: ClassVar[bool] = False  # whether parties send a number for every row
    measured_once: ClassVar[bool] = False  # whether there is noise for one certificate only

    @property
    @abc.abstractmethod
    def measurement(self) -> Phases:
        """The certificate's exchanges: from the answer and what parties keep of it, to what `certify` takes."""

    # for methods

    @property
    @abc.abstractmethod
    def setting(self) -> Setting:
        """What a method is told before it begins."""

    @staticmethod
    @abc.abstractmethod
    def keep(method: Method, own: Any, state: Any, answer: Any) -> Any:
        """At a party: what it keeps of the answer."""

    def conclusion(self, method: Method) -> Phases:
        """From the server's state to the answer; the parties' states become what they keep of it."""
        return (*method.closing, Phase(method.answer, Keep(type(self), method), Answered(method)))

    def with_starts(self, others: Sequence[Any] | None) -> Self:
        """The same, to be solved from other first parameters too, trees of the model's shape (None: the method draws them)."""
        if others is None:
            return self
        flat = [np.asarray(self.start), *(np.asarray(self.shape.ravel(params)) for params in others)]
        return dataclasses.replace(self, start=jax.device_put(np.stack(flat)))

    # for results

    @abc.abstractmethod
    def certify(self, measured: Any, answer: Answer) -> Certificate:
        """The certificate, from what its exchanges measured."""

    @abc.abstractmethod
    def hand_out(self, method: Method, answer: Answer, measured: Any, kept: Mapping[str, Any] | None) -> HandedOut:
        """The answer as users get it; `kept`: by party, None where that stays with the parties."""

    @abc.abstractmethod
    def block_shapes(self) -> dict[str, tuple[int, ...]]:
        """For each party with parameters of its own, the shape of their flat array in a saved run."""

    @abc.abstractmethod
    def kept_in(self, arrays: Mapping[str, np.ndarray]) -> Any:
        """What parties keep of an answer, stacked by bucket, from the arrays of a saved run."""

    def own_parameters(self, method: Method, name: str, kept: Any) -> Any:
        """The tree of parameters that are a party's own, from what it `kept`; None where all share one model."""
        return None

    @staticmethod
    def decides_with(kept: Any, parameters: Any) -> Any:
        """The flat parameters that a party's rows are evaluated with: those of all, unless it has `kept` some of its own."""
        return parameters

    def not_finite(self) -> str | None:
        """Which function has no finite value or slope at the start, and at which party, in words; None where all have."""
        return None

    @property
    def discloses(self) -> bool:
        """Whether parties disclose values in every round, as `fp.solve` says."""
        return False

    @property
    def secure(self) -> bool:
        """Whether the server learns sums over parties only."""
        return self.server_data.secure

    @property
    def hides(self) -> bool:
        """Whether the certificate, too, says nothing of single parties: sums are secure, and nobody agreed to disclose."""
        return self.secure and not self.discloses

    def secured(self, checked: bool = False) -> Self:
        """The same for a server that learns sums over parties only; checked: and tells them to the parties."""
        own = dataclasses.replace(self.server_data, secure=True, checked=checked)
        return dataclasses.replace(self, server_data=own)

    # binding

    @classmethod
    @abc.abstractmethod
    def bind(cls, problem: Problem, parties: Any, server: Any, *, start: Any, seed: int, disclose: bool | None) -> Self:
        """Check everything that can be wrong between a problem and its data, and turn tables into arrays."""

    @classmethod
    @abc.abstractmethod
    def describe(cls, agreement: Agreement, name: str, table: Table) -> tuple[Description, list[tuple[str, int]]]:
        """At a party of a deployed run: its table without any value of a row, and what it will reveal of some of its rows, in
        words that may be sent, with the number of these rows."""

    @classmethod
    @abc.abstractmethod
    def bind_at_party(cls, agreement: Agreement, name: str, table: Table) -> tuple[Self, Any]:
        """At a party of a deployed run: the problem over zeros in place of others' tables, and its own data."""

    @classmethod
    @abc.abstractmethod
    def bind_at_server(
        cls, agreement: Agreement, server: Table | None, load: Callable[[str], Table]
    ) -> tuple[Self, Description | None]:
        """At the server of a deployed run: the problem over zeros in place of the parties' tables, and a description of the
        server's own table. `load`: gives a party's table where this machine has it."""

    # small pieces

    @property
    def shape(self) -> Shape:
        """Of the parameters that the server holds."""
        return self.compiled.party.shape

    def own_data(self, name: str) -> Any:
        """One party's data."""
        place = self.names.index(name)
        for stack, bucket in zip(self.stacks, self.order, strict=True):
            if place in bucket:
                return jax.tree.map(lambda leaf, at=bucket.index(place): leaf[at], stack)
        raise KeyError(name)

    def by_name(self, states: Any) -> dict[str, Any]:
        """States, stacked as the parties are, by the parties' names and in their order."""
        by_place: dict[int, Any] = {}
        for stack, bucket in zip(states, self.order, strict=True):
            leaves, tree = jax.tree.flatten(stack)
            for at, place in enumerate(bucket):
                by_place[place] = jax.tree.unflatten(tree, [np.asarray(leaf[at]) for leaf in leaves])
        return {name: by_place[place] for place, name in enumerate(self.names)}

    def by_bucket(self, per_party: Sequence[Any]) -> Any:
        """The inverse: one entry for each party in their order, stacked as the parties are."""
        return tuple(
            jax.tree.map(lambda *leaves: np.stack(leaves), *(per_party[place] for place in bucket))
            for bucket in self.order
        )


@dataclasses.dataclass(frozen=True)
class Keep:
    """A party's last step: its state becomes what it keeps of the answer."""

    setting: type[Bound]
    method: Method

    def __call__(self, own: Any, state: Any, answer: Any) -> tuple[Any, Reply]:
        return self.setting.keep(self.method, own, state, answer), Reply()


@dataclasses.dataclass(frozen=True)
class Answered:
    """The server's part in a party's last step: nothing comes back, and the answer is the message."""

    method: Method

    def __call__(self, own: ServerData, carry: Any, reply: Reply) -> Answer:
        return self.method.answer(own, carry)
