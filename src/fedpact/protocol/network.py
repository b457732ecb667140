"""The only effect that an algorithm may use: broadcast a message, let every party run a step, combine the replies."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol

import jax

from fedpact.federation.blocks import Block
from fedpact.problem.oracle import Oracle
from fedpact.problem.regularizers import FlatRegularizer
from fedpact.protocol.messages import Reply

PartyStates = Any  # opaque to algorithms: stacked states in this process, a token where states stay with their parties
# (own data, own state, message) -> (own state, reply), where rows are split or where columns are
Step = Callable[[Oracle, Any, Any], tuple[Any, Reply]] | Callable[[Block, Any, Any], tuple[Any, Reply]]
Tell = Callable[[Block, Any, Any], jax.Array]  # (own data, own state, message) -> what other parties are told
Role = Literal["active", "passive"]  # of a holder of columns: with labels and groups, or without
Numbers = Callable[[Any, Any, Any, jax.Array], jax.Array]  # (own data, own state, message, w) -> a vector of numbers


class Ask(NamedTuple):
    """One of several exchanges at the same time.

    patient: parties may work on until those of the other exchanges have answered; in one process nobody waits for anybody.
    """

    step: Step
    message: Any
    among: Role
    patient: bool = False


class Network(Protocol):
    """What an algorithm sees of the world."""

    @property
    def parties(self) -> int:
        """How many parties there are."""
        ...

    @property
    def server(self) -> Oracle:
        """The server's own functions on the server's own rows. Never read by a party's step."""
        ...

    @property
    def regularizer(self) -> FlatRegularizer:
        """h, which everybody knows."""
        ...

    def exchange(
        self, step: Step, parties: PartyStates, message: Any, among: Role | None = None
    ) -> tuple[Reply, PartyStates]:
        """Broadcast `message`; every party runs `step` on its own data and state; combine the replies.

        among: where columns are split, only the parties of this role are asked; the message reaches nobody else.
        """
        ...

    def partial_exchange(self, step: Step, parties: PartyStates, message: Any) -> tuple[Reply, PartyStates]:
        """An exchange that a party may miss: it then keeps its state, and nothing of it is in sums and maxima."""
        ...

    def at_once(self, parties: PartyStates, *asks: Ask) -> tuple[list[Reply], PartyStates]:
        """Several exchanges at the same time, each among parties of another role."""
        ...

    def count(self, among: Role | None = None) -> int:
        """How many parties there are, of this role."""
        ...

    def gradients(
        self, numbers: Numbers, parties: PartyStates, message: Any, w: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """One exchange: Σ over parties of `numbers` at w, and the gradient of each of these sums, line by line.

        A party sends its own numbers and gradients. Where all parties are in one process only the sums are computed, which
        for a network of many parameters takes a fraction of the time.
        """
        ...

    def share(self, tell: Tell, step: Step, parties: PartyStates, message: Any) -> tuple[Reply, PartyStates]:
        """One exchange without relay: every party sends what it tells to every other party, then runs its step.

        What is told has an axis of parts; the step gets (message, the sum of all parts of all parties).
        """
        ...

    def when(self, predicate: jax.Array, branch: Callable[..., Any], *operands: Any) -> Any:
        """`branch(net, *operands)` if `predicate`, else `operands`; the branch may itself exchange, through its `net`."""
        ...
