"""Every exchange that a run may ask for, found by tracing it: what is sent, what each party computes, what comes back.

Server and parties trace the same phases on the same shapes, so both have the same plan. A message names its exchange; the
step itself never travels.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fedpact.engines.local import LocalNetwork
from fedpact.engines.serialization import Layout
from fedpact.protocol.algorithm import Begin, Goal, Method
from fedpact.protocol.messages import Reply
from fedpact.protocol.phases import (
    Ask,
    Drawn,
    GradientStep,
    PartyStates,
    Phases,
    Role,
    ServerData,
    Step,
    as_sent,
    asked_of,
    play,
)
from fedpact.settings.base import Bound, Keep


@dataclasses.dataclass(frozen=True)
class Exchange:
    """One of them: `reply` is what one party sends, `combined` what the server makes of all replies.

    - `part`: of a run, where it is first asked for: "begin", "round", "end" or "certificate".
    - `asked`: how many parties are.
    - `state`: of all parties after the step, as they are stacked in one process.
    - `optional`, `patient`, `drawn`: as of the phase.
    """

    name: str
    part: str
    step: Step
    among: Role | None
    asked: int
    message: Layout
    reply: Layout
    combined: Layout
    state: Layout
    optional: bool = False
    patient: bool = False
    drawn: Drawn | None = None

    @property
    def title(self) -> str:
        """What a party does, in words."""
        return title(self.step).rpartition(".")[2]


class ExchangePlan:
    """Exchanges by name, in the order in which they are first met."""

    def __init__(self) -> None:
        self.exchanges: dict[str, Exchange] = {}

    @classmethod
    def of(cls, method: Method, bound: Bound) -> "ExchangePlan":
        """All exchanges of a run, from the first one to the certificate; nothing is computed and nothing sent. Runs of one
        process that look alike have one plan."""
        begun = bound.server_data, LocalNetwork.of(bound), bound.start
        leaves, tree = jax.tree.flatten(begun)
        return _traced(method, bound.conclusion(method), bound.measurement, tree, tuple(map(_looks, leaves)))

    def record(self, part: str, ask: Ask, asked: int, reply: Reply, state: Any, drawn: Drawn | None = None) -> None:
        """The exchange that is traced here. Traced again it has the same name, whatever the compiler did in between."""
        message, combined = Layout.of(ask.message), Layout.of(reply)
        one = Reply(reply.sum, reply.max, jax.tree.map(_first, reply.per_party))
        name = name_of(ask.step, ask.among, message)
        new = Exchange(
            name, part, ask.step, ask.among, asked, message, Layout.of(one), combined, Layout.of(state), ask.optional,
            ask.patient, drawn,
        )  # fmt: skip
        known = self.exchanges.setdefault(name, new)
        if _code(known.step) != _code(ask.step) or known.combined != combined:
            raise ValueError(
                f"two steps of the method are called {title(ask.step)!r} and look alike: give them names of their own"
            )

    def of_ask(self, ask: Ask) -> Exchange:
        """The exchange that a method asks for now."""
        return self.exchanges[name_of(ask.step, ask.among, Layout.of(ask.message))]

    def __getitem__(self, name: str) -> Exchange:
        return self.exchanges[name]

    def __contains__(self, name: object) -> bool:
        return name in self.exchanges

    @property
    def digest(self) -> str:
        """Equal where two ends mean the same by every message."""
        entries = [(e.name, e.among, e.message.leaves, e.reply.leaves) for e in self.exchanges.values()]
        return hashlib.sha256(repr(sorted(entries, key=lambda entry: entry[0])).encode()).hexdigest()[:16]


@functools.lru_cache(maxsize=50)
def _traced(
    method: Method, conclusion: Phases, measurement: Phases, tree: Any, leaves: tuple[jax.ShapeDtypeStruct, ...]
) -> ExchangePlan:
    plan = ExchangePlan()
    own, network, start = jax.tree.unflatten(tree, leaves)

    def traced(part: str, phases: Phases, carry: Any, states: Any, finish: Callable[..., Any] | None = None) -> Any:
        def played(own: ServerData, stacks: LocalNetwork, carry: Any, states: Any) -> Any:
            network = _Recorder(plan, part, stacks, own, phases)
            carry, states, _ = play(phases, own, network, carry, states)
            return carry if finish is None else finish(own, carry), states

        return jax.eval_shape(played, own, network, carry, states)

    number: Any = jax.ShapeDtypeStruct((), start.dtype)
    key = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0)))
    server, states = traced("begin", method.opening, Begin(start, Goal(number, number), key), None)
    (server, _), states = traced("round", method.round, server, states, method.finish)
    answer, kept = traced("end", conclusion, server, states)
    traced("certificate", measurement, answer, kept)
    return plan


def _looks(leaf: Any) -> jax.ShapeDtypeStruct:
    kind = jax.typeof(leaf)
    return jax.ShapeDtypeStruct(kind.shape, kind.dtype, weak_type=kind.weak_type)


class _Recorder:
    """A network that records every exchange that is traced through it."""

    def __init__(self, plan: ExchangePlan, part: str, stacks: LocalNetwork, own: ServerData, phases: Phases) -> None:
        self.plan, self.part, self.stacks, self.own = plan, part, stacks, own
        self.phases = [phase for entry in phases for phase in (entry if isinstance(entry, tuple) else (entry,))]

    def exchange(self, asks: Sequence[Ask], states: PartyStates) -> tuple[list[Reply], PartyStates]:
        replies = []
        for ask in asks:
            ask = ask._replace(message=jax.tree.map(jnp.asarray, ask.message))
            (reply,), states = self.stacks.exchange([ask], states)
            drawn = None
            if ask.drawn is not None:
                drawn = next(phase.drawn for phase in self.phases if as_sent(phase.step) == ask.step)
            self.plan.record(self.part, ask, asked_of(ask, self.own), reply, states, drawn)
            replies.append(reply)
        return replies, states


def name_of(step: Step, among: Role | None, message: Layout) -> str:
    """An exchange's name: the step's, and a digest of who is asked and of what the message looks like."""
    looks = f"{among}{message.leaves}{message.tree}"
    return f"{title(step)} {hashlib.sha256(looks.encode()).hexdigest()[:8]}"


def title(step: Any) -> str:
    """A step's name as it is written: "ProxALMethod.step"."""
    if isinstance(step, GradientStep):
        return f"{title(step.functions)} and gradients"
    if isinstance(step, Keep):
        return "keep own part of the answer"
    if isinstance(step, functools.partial):
        return title(step.func)
    if hasattr(step, "wrapped"):
        return title(step.wrapped)
    return getattr(step, "__qualname__", None) or getattr(step, "__name__", type(step).__name__)


def _code(step: Any) -> Any:
    """What a step runs, whoever it is bound to."""
    if isinstance(step, GradientStep):
        return GradientStep, _code(step.functions)
    if isinstance(step, functools.partial):
        return _code(step.func)
    if hasattr(step, "wrapped"):
        return type(step), _code(step.wrapped)
    return getattr(getattr(step, "__func__", step), "__code__", type(step))


def _first(leaf: Any) -> Any:
    """What one party sends, of what all sent."""
    return jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)
