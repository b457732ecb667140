"""Models: a pair of functions, `init(key, rows) -> params` and `apply(params, rows) -> scores`.

`rows` maps column names to arrays of equal length; scores have one entry, or one vector, per row.
"""

import abc
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

Rows = Mapping[str, Any]
NO_MODEL = (
    "no model is named: only the estimators of fedpact.sklearn have one of their own; give it one, such as fp.linear()"
)


class Model(abc.ABC):
    """The interface of a model: `init` and `apply`. Instances are hashable, and equal ones share compiled programs.

    `fp.linear`, `fp.mlp`, `fp.model`, `fp.equinox_model`, `fp.split_model` and `fp.chain` make them.
    """

    @abc.abstractmethod
    def init(self, key: jax.Array, rows: Rows) -> Any:
        """Initial parameters.

        - `key`: a JAX random key.
        - `rows`: a mapping of column names to arrays, of which only shapes after the first axis matter.

        Returns a tree of arrays.
        """

    @abc.abstractmethod
    def apply(self, params: Any, rows: Rows) -> jax.Array:
        """Scores of rows.

        - `params`: a tree of arrays, as `init` returns it.
        - `rows`: a mapping of column names to arrays with one entry per row.

        Returns scores (rows,) or (rows, outputs).
        """

    @property
    def is_linear(self) -> bool:
        """Whether scores are linear in the parameters (default False)."""
        return False

    def score_slopes(self, rows: Rows) -> jax.Array | None:
        """The gradients of scores over flat parameters, for scores that are linear in them.

        - `rows`: a mapping of column names to arrays.

        Returns a matrix (rows, parameters), or None where scores are not linear or not one per row (default).
        """
        return None


@dataclasses.dataclass(frozen=True)
class UnnamedModel(Model):
    """Stands in losses that name no model, until an estimator puts its own in its place. It has no parameters."""

    def init(self, key: jax.Array, rows: Rows) -> Any:
        raise ValueError(NO_MODEL)

    def apply(self, params: Any, rows: Rows) -> jax.Array:
        raise ValueError(NO_MODEL)


@dataclasses.dataclass(frozen=True)
class Linear(Model):
    """A linear model with scores x·w (+ b), started at zero. Made by `fp.linear`."""

    bias: bool = False
    outputs: int | None = None
    inputs: str = "x"

    def init(self, key: jax.Array, rows: Rows) -> dict[str, np.ndarray]:
        outputs = () if self.outputs is None else (self.outputs,)
        params = {"w": np.zeros((_width(rows[self.inputs]), *outputs))}
        return params | ({"b": np.zeros(outputs)} if self.bias else {})

    def apply(self, params: dict[str, jax.Array], rows: Rows) -> jax.Array:
        scores = _flat(rows[self.inputs], params["w"]) @ params["w"]
        return scores + params["b"] if self.bias else scores

    @property
    def is_linear(self) -> bool:
        return True

    def score_slopes(self, rows: Rows) -> jax.Array | None:
        if self.outputs is not None:
            return None
        x = _flat(rows[self.inputs], jnp.zeros(()))
        return jnp.concatenate([jnp.ones((len(x), 1), x.dtype), x], axis=1) if self.bias else x  # sorted: b, then w


@dataclasses.dataclass(frozen=True)
class Mlp(Model):
    """A fully connected network; weights start from the Glorot uniform distribution, biases at zero. Made by `fp.mlp`."""

    widths: tuple[int, ...]
    activation: Callable[[jax.Array], jax.Array]
    bias: bool
    inputs: str = "x"

    def init(self, key: jax.Array, rows: Rows) -> dict[str, jax.Array]:
        width = _width(rows[self.inputs])
        if width != self.widths[0]:
            raise ValueError(f"fp.mlp({list(self.widths)}): column {self.inputs!r} has {width} features")
        params = {}
        for layer, (fan_in, fan_out) in enumerate(zip(self.widths[:-1], self.widths[1:], strict=True), start=1):
            reach = math.sqrt(6.0 / (fan_in + fan_out))
            draw = jax.random.uniform(jax.random.fold_in(key, layer), (fan_in, fan_out), minval=-reach, maxval=reach)
            params[f"w{layer}"] = draw
            if self.bias:
                params[f"b{layer}"] = jnp.zeros(fan_out)
        return params

    def apply(self, params: dict[str, jax.Array], rows: Rows) -> jax.Array:
        signal = _flat(rows[self.inputs], params["w1"])
        last = len(self.widths) - 1
        for layer in range(1, last + 1):
            signal = signal @ params[f"w{layer}"]
            if self.bias:
                signal = signal + params[f"b{layer}"]
            if layer < last:
                signal = self.activation(signal)
        return signal[..., 0] if self.widths[-1] == 1 else signal

    @property
    def is_linear(self) -> bool:
        return len(self.widths) == 2


@dataclasses.dataclass(frozen=True)
class FunctionModel(Model):
    """A model from two plain functions of the input column. Made by `fp.model`."""

    start: Callable[[jax.Array, int], Any]
    forward: Callable[[Any, jax.Array], jax.Array]
    inputs: str = "x"

    def init(self, key: jax.Array, rows: Rows) -> Any:
        return self.start(key, _width(rows[self.inputs]))

    def apply(self, params: Any, rows: Rows) -> jax.Array:
        return self.forward(params, rows[self.inputs])


@dataclasses.dataclass(frozen=True)
class EquinoxModel(Model):
    """An Equinox module as a model. Made by `fp.equinox_model`."""

    make: Callable[[jax.Array], Any]
    inputs: str = "x"

    def init(self, key: jax.Array, rows: Rows) -> Any:
        return eqx.filter(self.make(key), eqx.is_inexact_array)

    def module(self, params: Any) -> Any:
        """The Equinox module with these parameters, to be called on one row."""
        return eqx.combine(params, eqx.filter(self.make(jax.random.key(0)), eqx.is_inexact_array, inverse=True))

    def apply(self, params: Any, rows: Rows) -> jax.Array:
        scores = jax.vmap(self.module(params))(rows[self.inputs])
        return scores[..., 0] if scores.ndim == 2 and scores.shape[-1] == 1 else scores


def linear(bias: bool = False, outputs: int | None = None, inputs: str = "x") -> Linear:
    """A linear model: score = x·w, or x·w + b.

    - `bias`: whether there is an intercept b (default False).
    - `outputs`: how many scores a row has (>= 1); default None: one, and scores have shape (rows,).
    - `inputs`: the column of features x (rows, features); further axes are flattened (default "x").

    Returns a `Model` with parameters `{"w": (features,) or (features, outputs), "b": () or (outputs,)}`, all 0 at the start; the
    number of features is read from the data. Raises ValueError or TypeError where an argument is not of this form.
    """
    if outputs is not None and not _whole(outputs):
        raise ValueError(f"fp.linear(outputs={outputs!r}): at least one output, or None for one score per row")
    if not isinstance(bias, bool):
        raise TypeError(f"fp.linear(bias={bias!r}): True or False; how many features there are is read from the data")
    return Linear(bias, outputs, _name(inputs))


def mlp(
    widths: Sequence[int],
    activation: Callable[[jax.Array], jax.Array] = jax.nn.tanh,
    bias: bool = True,
    inputs: str = "x",
) -> Mlp:
    """A fully connected network (multi-layer perceptron).

    - `widths`: of the layers, input first (at least two integers >= 1): `fp.mlp([64, 32, 10])` has 64 features, 32 hidden units
      and 10 scores per row. A last width of 1 gives scores of shape (rows,).
    - `activation`: between layers, a function of an array (default `jax.nn.tanh`).
    - `bias`: whether layers have biases (default True).
    - `inputs`: the column of features (rows, features); further axes are flattened (default "x").

    Returns a `Model` with parameters "w1", "b1", "w2", …; weights start from the Glorot uniform distribution, biases at 0.
    Raises ValueError or TypeError where an argument is not of this form.
    """
    layers = tuple(widths) if isinstance(widths, Iterable) else ()
    if len(layers) < 2 or not all(_whole(width) for width in layers):
        raise ValueError(f"fp.mlp({widths!r}): widths are at least two positive whole numbers, input first")
    if not callable(activation):
        raise TypeError(f"fp.mlp(activation={activation!r}): a function such as jax.nn.tanh")
    return Mlp(tuple(int(width) for width in layers), activation, bool(bias), _name(inputs))


def model(
    init: Callable[[jax.Array, int], Any], apply: Callable[[Any, jax.Array], jax.Array], inputs: str = "x"
) -> FunctionModel:
    """A model from two functions.

    - `init`: `(key, features) -> params`, a tree of arrays, from a JAX random key and the number of features.
    - `apply`: `(params, x) -> scores`, (rows,) or (rows, outputs), in JAX.
    - `inputs`: the column that is passed to `apply` as x (default "x").

    Returns a `Model`. Raises TypeError where `init` or `apply` is not a function.

        ramp = fp.model(lambda key, features: {"w": jnp.zeros(features)}, lambda params, x: jnp.tanh(x @ params["w"]))
    """
    for name, function in (("init", init), ("apply", apply)):
        if not callable(function):
            raise TypeError(f"fp.model({name}={function!r}): {name} must be a function")
    return FunctionModel(init, apply, _name(inputs))


def equinox_model(make: Callable[[jax.Array], Any], inputs: str = "x") -> EquinoxModel:
    """An Equinox module as a model.

    - `make`: `key -> module`, where the module maps the features of one row to its score or scores:
      `fp.equinox_model(lambda key: eqx.nn.MLP(4, "scalar", 8, 2, key=key))`.
    - `inputs`: the column of features (rows, …), passed to the module row by row (default "x").

    Returns a `Model` whose parameters are the floating-point arrays of the module. Raises TypeError where `make` is a module
    itself or not a function.
    """
    if not callable(make) or isinstance(make, eqx.Module):
        raise TypeError(f"fp.equinox_model takes a function of a key that makes a module, not a {type(make).__name__}")
    return EquinoxModel(make, _name(inputs))


def squared_norm(params: Any, rows: Any = None) -> jax.Array:
    """The squared Euclidean norm ‖params‖² over all arrays of the parameters: `fp.value(fp.squared_norm) <= 4.0`.

    - `params`: a tree of arrays.
    - `rows`: not read.

    Returns a scalar.
    """
    return sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(params)), jnp.zeros(()))


def _flat(column: Any, weights: jax.Array) -> jax.Array:
    column = jnp.asarray(column, weights.dtype)
    return column.reshape(column.shape[0], _width(column))


def _width(column: Any) -> int:
    return math.prod(column.shape[1:])


def _whole(number: Any) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool) and bool(number >= 1)


def _name(inputs: Any) -> str:
    if not isinstance(inputs, str):
        raise TypeError(f"inputs={inputs!r}: the name of a column")
    return inputs
