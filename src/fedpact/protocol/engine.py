"""What a run needs of an engine, beyond the exchanges that methods ask for."""

from typing import Any, ClassVar, Protocol

import jax
import numpy as np

from fedpact.protocol.phases import Network, PartyStates


class BoundProblem(Protocol):
    """What an engine reads of a problem that is bound to its parties' data.

    - `names`: of the parties.
    - `stacks`: the parties' data, one stack with a leading party axis for each bucket of like parties.
    - `order`: for each bucket, the places of its parties in `names`.
    """

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def stacks(self) -> tuple[Any, ...]: ...
    @property
    def order(self) -> tuple[tuple[int, ...], ...]: ...

    def own_data(self, name: str) -> Any:
        """One party's data, as a step gets it."""
        ...


class RunNetwork(Network, Protocol):
    """The parties of one run.

    - `traced`: whether `exchange` may stand in a compiled program; the network is then a pytree. Where not, it is called on the
      host with arrays, and only what the server computes in between is compiled.
    """

    traced: ClassVar[bool]

    def collect(self, states: PartyStates) -> Any:
        """The parties' states as they are saved: numpy arrays, stacked as the parties are."""
        ...

    def place(self, states: Any) -> PartyStates:
        """Saved states, handed back to their parties."""
        ...

    def agree(self, number: int) -> int:
        """The same number wherever the run is computed; for clocks, which differ between hosts."""
        ...


class Engine(Protocol):
    """What `fp.solve(..., engine=...)` takes: something that connects a bound problem to its parties."""

    def connect(self, bound: Any) -> tuple[Any, RunNetwork]:
        """The problem (a `BoundProblem`) as this engine holds it, and the network that reaches its parties."""
        ...


class HostNetwork:
    """Defaults for networks of one process: they are called on the host, states are arrays here, and there is one clock."""

    traced: ClassVar[bool] = False

    def collect(self, states: PartyStates) -> Any:
        return jax.tree.map(np.asarray, states)

    def place(self, states: Any) -> PartyStates:
        return states

    def agree(self, number: int) -> int:
        return number
