"""Every exchange that a method may ask for, found by tracing it: what is sent, what each party computes, what comes back.

Server and parties trace the same functions on the same shapes, so both have the same plan. A message names its exchange; the
step itself never travels.
"""

import contextlib
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

from fedpact.engines.serialization import Layout
from fedpact.protocol.messages import Reply
from fedpact.protocol.network import Role, Step


@dataclasses.dataclass(frozen=True)
class Exchange:
    """One of them: `reply` is what one party sends, `combined` what the server makes of all replies.

    phase: of a run, where it is first asked for. partial: a party may miss it. patient: parties may work on until those of the
    exchanges at the same time have answered.
    """

    name: str
    phase: str
    step: Step
    among: Role | None
    asked: int
    message: Layout
    reply: Layout
    combined: Layout
    state: Layout  # of all parties after the step, as they are stacked in one process
    partial: bool = False
    patient: bool = False


class Plan:
    """Exchanges by name, in the order in which they are first met."""

    def __init__(self) -> None:
        self.exchanges: dict[str, Exchange] = {}
        self.phase = ""

    @contextlib.contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """What is traced inside belongs to this part of a run."""
        before, self.phase = self.phase, phase
        try:
            yield
        finally:
            self.phase = before

    def met(
        self, step: Step, among: Role | None, asked: int, message: Any, reply: Reply, state: Any, **more: bool
    ) -> Exchange:
        """The exchange that is traced here. Traced again it has the same name, whatever the compiler did in between."""
        down, combined = Layout.of(message), Layout.of(reply)
        each = Reply(reply.sum, reply.max, _first(reply.each))
        what = f"{among}{down.leaves}{down.tree}{combined.leaves}{combined.tree}"
        name = f"{title(step)} {hashlib.sha256(what.encode()).hexdigest()[:8]}"
        found = Exchange(
            name, self.phase, step, among, asked, down, Layout.of(each), combined, Layout.of(state), **more
        )
        known = self.exchanges.setdefault(name, found)
        if _code(known.step) != _code(step):
            raise ValueError(
                f"two steps of the method are called {title(step)!r} and look alike: give them names of their own"
            )
        return known

    def __getitem__(self, name: str) -> Exchange:
        return self.exchanges[name]

    def __contains__(self, name: object) -> bool:
        return name in self.exchanges

    @property
    def digest(self) -> str:
        """Equal where two ends mean the same by every message."""
        told = [(e.name, e.among, e.message.leaves, e.reply.leaves) for e in self.exchanges.values()]
        return hashlib.sha256(repr(sorted(told, key=lambda entry: entry[0])).encode()).hexdigest()[:16]


def title(step: Callable[..., Any]) -> str:
    """A step's name as it is written: "ProxAL.step"."""
    if isinstance(step, functools.partial):
        inner = [title(x) for x in step.args if callable(x) and hasattr(x, "__name__")]
        return " of ".join([title(step.func), *inner])
    return getattr(step, "__qualname__", None) or getattr(step, "__name__", type(step).__name__)


def _code(step: Any) -> Any:
    """What a step runs, whoever it is bound to."""
    if isinstance(step, functools.partial):
        return (_code(step.func), *(_code(x) for x in step.args if callable(x)))
    return getattr(getattr(step, "__func__", step), "__code__", type(step))


def _first(each: Any) -> Any:
    """What one party tells, of what all told."""
    import jax

    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), each)
