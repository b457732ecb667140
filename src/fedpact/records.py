"""Records: frozen dataclasses of arrays that JAX takes apart and puts together. Messages, replies and states are records.

They are what `equinox.Module` is for data, without its checks of every attribute: a server that computes on the host makes
hundreds of them in a run.
"""

import abc
import dataclasses
from typing import Any, dataclass_transform

import equinox as eqx
import jax


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(dataclasses.field, eqx.field))
class Record:
    """A base class: each subclass is a frozen dataclass and a pytree. `eqx.field(static=True)` marks what is no array."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        dataclasses.dataclass(frozen=True, eq=False)(cls)
        jax.tree_util.register_dataclass(cls)


class Addend(Record, abc.ABC):
    """Something in a reply's `sum` that is cheaper to add up in parts than one by one."""

    @abc.abstractmethod
    def alone(self) -> jax.Array:
        """What one party sends."""

    @abc.abstractmethod
    def of_all(self) -> jax.Array:
        """The sum over parties that are stacked along a leading axis."""


def is_addend(node: Any) -> bool:
    return isinstance(node, Addend)
