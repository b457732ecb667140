"""Atoms: the numbers that expressions are made of, each evaluated on the rows of one holder.

    Mean     Σ_{r in S} weight_r function(params, row r) / Σ_{r in S} weight_r,  S the rows that a mask selects
    Value    function(params, rows), any function that gives one number

Code that compiles, checks or evaluates a problem uses the interface of `Atom` alone, so another kind of atom is another
subclass and nothing else.
"""

import abc
import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from fedpact.problem.columns import Mask
from fedpact.problem.losses import Loss
from fedpact.problem.models import Model, squared_norm
from fedpact.problem.rates import Rate
from fedpact.problem.symmetric import OuterProducts

Scope = Literal["party", "pooled", "server"]
RowFunction = Callable[[Any, Mapping[str, jax.Array]], jax.Array]


class Evaluator:
    """Evaluates functions on the same parameters and rows and caches the results, so that each is called once."""

    def __init__(self, params: Any, rows: Any, dtype: Any) -> None:
        self.params, self.rows, self.dtype = params, rows, dtype
        self.results: dict[Any, jax.Array] = {}

    def __call__(self, function: Callable[[Any, Any], jax.Array], key: Any = None) -> jax.Array:
        """The function's result; `key`: by which it is known (default: the function itself, which is hashed)."""
        key = function if key is None else key
        if key not in self.results:
            self.results[key] = jnp.asarray(function(self.params, self.rows), self.dtype)
        return self.results[key]


class Atom(abc.ABC):
    """A number that depends on the parameters and on the rows of one holder. Subclasses are frozen dataclasses.

    - `over_rows`: whether it is a weighted sum of one number per row, with weights that add up to 1 on the rows that `where`
      selects and are zero on the others; if not, its function returns one number and may read all rows.
    - `wanted`: what its function should return, in words for error messages.
    - `function`: evaluated as `function(params, rows)`; hashable, and atoms with the same function share its calls.
    - `where`: a mask of the rows that are averaged (default None: all rows).
    - `weights`: the column of the rows' weights before they are divided by their sum (default None: all alike).
    """

    over_rows: ClassVar[bool]
    wanted: ClassVar[str]
    function: Callable[[Any, Any], jax.Array]
    where: Mask | None = None
    weights: str | None = None

    @abc.abstractmethod
    def evaluate(self, call: Evaluator, weights: jax.Array | None, key: Any = None) -> jax.Array:
        """The value of the atom, a scalar; `weights` (rows,) are the weights of the rows, None where it is not over rows.

        `key`: by which the function's result is known (default: the function).
        """

    def curvature(self, params: Any, rows: Any, weights: jax.Array) -> OuterProducts | None:
        """∇² of Σ_r weights_r function_r over flat parameters in closed form; None where there is none.

        Only for atoms over rows. `weights` (rows,) may be the sum over several atoms of the same class and function.
        """
        return None

    def share(self, scope: Scope, parties: int) -> float:
        """Its factor at one of n parties in an average: 1 where the weights are divided by the count of all rows, else 1/n."""
        divided = scope == "server" or (scope == "pooled" and self.over_rows)
        return 1.0 if divided else 1.0 / parties

    def result_shape(self, rows: int) -> tuple[int, ...]:
        """The shape that its function should return on this many rows."""
        return (rows,) if self.over_rows else ()

    @property
    def rows_in_words(self) -> str:
        """Which rows it is over, and by which column they are weighted; the same for atoms over the same rows."""
        where = "all rows" if self.where is None else str(self.where)
        return where if self.weights is None else f"{where}, weights {self.weights}"

    @property
    def loss(self) -> Loss | None:
        """The loss that it averages, whose model is trained and whose labels are checked; None for other functions."""
        return None

    @property
    def rate(self) -> Rate | None:
        """The rate that it averages; None for other functions."""
        return None if self.loss is None else self.loss.rate

    def with_rate(self, rate: Rate) -> "Atom":
        """The same with another rate in place of its own, whose numbers may be arrays."""
        return self

    def with_model(self, model: Model) -> "Atom":
        """The same with this model in a loss that names none."""
        return self

    @property
    def may_do_anything(self) -> bool:
        """Whether it is over rows and its function is not known to be row-wise and finite on finite rows."""
        return self.over_rows

    @property
    def is_squared_norm(self) -> bool:
        """Whether it is ‖params‖²."""
        return False

    @property
    def is_convex(self) -> bool:
        """Whether it is known to be a convex function of the parameters."""
        return self.is_squared_norm or (self.loss is not None and self.loss.convex)

    @property
    def range(self) -> tuple[float, float]:
        """Between which numbers it is known to be, whatever the parameters."""
        if self.loss is not None:
            return self.loss.range
        return (0.0 if self.is_squared_norm else -math.inf), math.inf


@dataclasses.dataclass(frozen=True)
class Mean(Atom):
    """The mean of a row-wise function over the rows of a mask, weighted by a column where one is named."""

    over_rows: ClassVar[bool] = True
    wanted: ClassVar[str] = "one number per row"

    function: RowFunction
    where: Mask | None = None
    weights: str | None = None

    def evaluate(self, call: Evaluator, weights: jax.Array | None, key: Any = None) -> jax.Array:
        assert weights is not None
        return weights @ call(self.function, key)

    def with_rate(self, rate: Rate) -> "Mean":
        assert self.loss is not None
        return dataclasses.replace(self, function=dataclasses.replace(self.loss, formula=rate))

    def with_model(self, model: Model) -> "Mean":
        return self if self.loss is None else dataclasses.replace(self, function=self.loss.with_model(model))

    def curvature(self, params: Any, rows: Any, weights: jax.Array) -> OuterProducts | None:
        return None if self.loss is None else self.loss.curvature(params, rows, weights)

    @property
    def loss(self) -> Loss | None:
        return self.function if isinstance(self.function, Loss) else None

    @property
    def may_do_anything(self) -> bool:
        return self.loss is None or not self.loss.known

    def __str__(self) -> str:
        where = "" if self.where is None else f" | {self.where}"
        return f"mean({name_of(self.function)}{where}{'' if self.weights is None else f', weights {self.weights}'})"


@dataclasses.dataclass(frozen=True)
class Value(Atom):
    """Any function of parameters and rows that returns one number."""

    over_rows: ClassVar[bool] = False
    wanted: ClassVar[str] = "one real number: take a sum or a mean, or state a constraint for each entry"

    function: Callable[[Any, Any], jax.Array]

    def evaluate(self, call: Evaluator, weights: jax.Array | None, key: Any = None) -> jax.Array:
        return call(self.function, key)

    @property
    def is_squared_norm(self) -> bool:
        return self.function is squared_norm

    def __str__(self) -> str:
        return f"value({name_of(self.function)})"


def name_of(function: Any) -> str:
    """The name of a function or callable object, for messages."""
    return str(getattr(function, "name", None) or getattr(function, "__name__", None) or type(function).__name__)


def check_hash(function: Any) -> None:
    """Raise TypeError where a function is not hashable."""
    try:
        hash(function)
    except TypeError:
        raise TypeError(
            f"{name_of(function)} cannot be hashed, so its compiled program cannot be cached; wrap it in a "
            "function: lambda params, rows: fn(params, rows)"
        ) from None
