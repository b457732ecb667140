"""From a model and its parameters to what a file holds of them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpact.prediction.forms import ChainForm, Form, LinearForm, MlpForm, OwnForm, SplitForm
from fedpact.problem.models import EquinoxModel, FunctionModel, Linear, Mlp, Model
from fedpact.problem.split import Chain, SplitModel

NAMES: dict[Any, str] = {  # JAX's functions, by the names of those in NumPy
    jnp.tanh: "tanh",
    jax.nn.tanh: "tanh",
    jax.nn.relu: "relu",
    jax.nn.sigmoid: "sigmoid",
    jax.nn.softplus: "softplus",
    jax.nn.silu: "swish",
    jax.nn.swish: "swish",
    jax.nn.gelu: "gelu",
    jax.nn.elu: "elu",
    jax.nn.leaky_relu: "leaky_relu",
}


def describe(model: Model) -> Form:
    """The form of a model: in NumPy where it is one of fedpact's own with functions that are known by name."""
    if type(model) is Linear:
        return LinearForm(model.bias, model.outputs, model.inputs)
    if type(model) is Mlp and _name(model.activation) is not None:
        return MlpForm(model.widths, NAMES[model.activation], model.bias, model.inputs)
    if type(model) is Chain:
        parts = [describe(part) if isinstance(part, Model) else _name(part) for part in model.parts]
        if all(part is not None and not isinstance(part, OwnForm) for part in parts):
            return ChainForm(tuple(part for part in parts if part is not None))
    if type(model) is SplitModel:
        return SplitForm(model.combine, None if model.top is None else describe(model.top))
    return OwnForm(_words(model), getattr(model, "inputs", "x"))


def named(params: Any) -> dict[str, np.ndarray]:
    """The arrays of a tree of parameters by name, such as "w1" or "layers/0/weight"."""
    found = jax.tree_util.tree_flatten_with_path(params)[0]
    return {
        jax.tree_util.keystr(path, simple=True, separator="/") or "parameters": np.asarray(leaf) for path, leaf in found
    }


def _name(function: Any) -> str | None:
    try:
        return NAMES.get(function)
    except TypeError:  # not hashable
        return None


def _words(model: Model) -> str:
    match model:
        case FunctionModel():
            return "fp.model(...)"
        case EquinoxModel():
            return "fp.equinox_model(...)"
        case Mlp():
            return f"fp.mlp({list(model.widths)}, ...) with an activation of its own"
        case Chain():
            return "fp.chain(...) with functions of its own"
    return f"a {type(model).__name__}"
