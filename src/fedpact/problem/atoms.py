"""Atoms: the numbers that expressions are made of, each evaluated on the rows of one holder.

    Mean     (1/|S|) Σ_{r in S} function(params, row r),  S the rows that a mask selects
    Value    function(params, rows), any function that gives one number

Whoever compiles, checks or evaluates a problem asks an atom, never what kind of atom it is. So another kind is another
subclass of `Atom`, and nothing else.
"""

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from fedpact.problem.columns import Mask
from fedpact.problem.losses import Loss
from fedpact.problem.models import squared_norm

Scope = Literal["party", "pooled", "server"]
RowFunction = Callable[[Any, Mapping[str, jax.Array]], jax.Array]


class Evaluator:
    """Calls functions on the same parameters and rows, each of them once."""

    def __init__(self, params: Any, rows: Any, dtype: Any) -> None:
        self.params, self.rows, self.dtype = params, rows, dtype
        self.results: dict[Any, jax.Array] = {}

    def __call__(self, function: Callable[[Any, Any], jax.Array]) -> jax.Array:
        if function not in self.results:
            self.results[function] = jnp.asarray(function(self.params, self.rows), self.dtype)
        return self.results[function]


class Atom(abc.ABC):
    """A number that depends on the parameters and on the rows of one holder. Subclasses are frozen dataclasses.

    over_rows: whether it is a weighted sum of one number per row, the weights 1/count on the rows that `where` selects and
        zero on the others. If not, its function gives one number, and may read the table as a whole.
    wanted: in words, what its function should give.
    function: what is evaluated, as function(params, rows); it can be hashed, and atoms of one function share its calls.
    where: the rows that it is taken over; None for all.
    """

    over_rows: ClassVar[bool]
    wanted: ClassVar[str]
    function: Callable[[Any, Any], jax.Array]
    where: Mask | None = None

    @abc.abstractmethod
    def evaluate(self, call: Evaluator, weights: jax.Array | None) -> jax.Array:
        """Its value; `weights` are those of the rows, None where it is not over rows."""

    def curvature(self, params: Any, rows: Any, weights: jax.Array) -> jax.Array | None:
        """∇² of Σ_r weights_r function_r over flat parameters without a general Hessian; None where there is no short cut.

        Only for atoms over rows. The weights may be those of several atoms of one kind and one function together.
        """
        del params, rows, weights
        return None

    def share(self, scope: Scope, parties: int) -> float:
        """Its factor at one of n parties where they are averaged: 1, where the weights have been divided by all rows."""
        divided = scope == "server" or (scope == "pooled" and self.over_rows)
        return 1.0 if divided else 1.0 / parties

    def result_shape(self, rows: int) -> tuple[int, ...]:
        """The shape of what its function should give on so many rows."""
        return (rows,) if self.over_rows else ()

    @property
    def loss(self) -> Loss | None:
        """The loss that it reads, whose model is trained and whose labels are checked."""
        return None

    @property
    def may_do_anything(self) -> bool:
        """Whether it is over rows and nobody knows that its function treats each by itself, and is finite on finite ones."""
        return self.over_rows

    @property
    def is_squared_norm(self) -> bool:
        """Whether it is ‖params‖²."""
        return False


@dataclasses.dataclass(frozen=True)
class Mean(Atom):
    """The mean of a row-wise function over the rows of a mask."""

    over_rows: ClassVar[bool] = True
    wanted: ClassVar[str] = "one number per row"

    function: RowFunction
    where: Mask | None = None

    def evaluate(self, call: Evaluator, weights: jax.Array | None) -> jax.Array:
        assert weights is not None
        return weights @ call(self.function)

    def curvature(self, params: Any, rows: Any, weights: jax.Array) -> jax.Array | None:
        return None if self.loss is None else self.loss.curvature(params, rows, weights)

    @property
    def loss(self) -> Loss | None:
        return self.function if isinstance(self.function, Loss) else None

    @property
    def may_do_anything(self) -> bool:
        return self.loss is None or not self.loss.known

    def __str__(self) -> str:
        return f"mean({name_of(self.function)}{'' if self.where is None else f' | {self.where}'})"


@dataclasses.dataclass(frozen=True)
class Value(Atom):
    """Any function of parameters and rows that gives one number."""

    over_rows: ClassVar[bool] = False
    wanted: ClassVar[str] = "one real number: take a sum or a mean, or state a constraint for each entry"

    function: Callable[[Any, Any], jax.Array]

    def evaluate(self, call: Evaluator, weights: jax.Array | None) -> jax.Array:
        del weights
        return call(self.function)

    @property
    def is_squared_norm(self) -> bool:
        return self.function is squared_norm

    def __str__(self) -> str:
        return f"value({name_of(self.function)})"


def name_of(function: Any) -> str:
    """A function's name as a reader would know it."""
    return str(getattr(function, "name", None) or getattr(function, "__name__", None) or type(function).__name__)


def check_hash(function: Any) -> None:
    """An atom's function can be hashed."""
    try:
        hash(function)
    except TypeError:
        raise TypeError(
            f"{name_of(function)} cannot be hashed, so its compiled program could not be found again; wrap it in a "
            "function: lambda params, rows: fn(params, rows)"
        ) from None
