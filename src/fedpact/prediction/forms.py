"""What saved models compute, in NumPy: linear models, fully connected networks, chains and split models of these.

A form is a model without its parameters, in words that a JSON file can hold. Parameters are arrays by name: "w" and "b" of a
linear model, "w1", "b1", "w2", … of a network, "2/w1" where several models are chained.
"""

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

Arrays = Mapping[str, np.ndarray]


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {  # of one array; `describe` has JAX's for the same names
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0.0),
    "sigmoid": sigmoid,
    "softplus": lambda x: np.logaddexp(x, 0.0),
    "swish": lambda x: x * sigmoid(x),
    "gelu": lambda x: 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3))),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))),
    "leaky_relu": lambda x: np.where(x >= 0, x, 0.01 * x),
}


class Form(abc.ABC):
    """A model without its parameters. `inputs`: the column that it reads."""

    kind: ClassVar[str]
    inputs: str = "x"

    @abc.abstractmethod
    def scores(self, params: Arrays, x: np.ndarray) -> np.ndarray:
        """Scores (rows,) or (rows, outputs) of features (rows, features)."""

    @abc.abstractmethod
    def shapes(self, params: Arrays) -> dict[str, tuple[int, ...]]:
        """What the parameters should be, given the number of features that they show."""

    def width(self, params: Arrays) -> int | None:
        """The number of features; None where the form does not say."""
        return None

    def words(self) -> dict[str, Any]:
        """For a JSON file; `form_of` reads it."""
        return {"kind": self.kind, **dataclasses.asdict(self)}  # pyright: ignore[reportArgumentType]  # all are dataclasses


@dataclasses.dataclass(frozen=True)
class LinearForm(Form):
    """x·w (+ b)."""

    kind: ClassVar[str] = "linear"
    bias: bool
    outputs: int | None
    inputs: str = "x"

    def scores(self, params: Arrays, x: np.ndarray) -> np.ndarray:
        scores = x @ params["w"]
        return scores + params["b"] if self.bias else scores

    def shapes(self, params: Arrays) -> dict[str, tuple[int, ...]]:
        outputs = () if self.outputs is None else (self.outputs,)
        return {"w": (*np.shape(params["w"])[:1], *outputs), **({"b": outputs} if self.bias else {})}

    def width(self, params: Arrays) -> int | None:
        return len(params["w"])


@dataclasses.dataclass(frozen=True)
class MlpForm(Form):
    """A fully connected network; the activation is between layers."""

    kind: ClassVar[str] = "mlp"
    widths: tuple[int, ...]
    activation: str
    bias: bool
    inputs: str = "x"

    def scores(self, params: Arrays, x: np.ndarray) -> np.ndarray:
        last, signal = len(self.widths) - 1, x
        for layer in range(1, last + 1):
            signal = signal @ params[f"w{layer}"]
            if self.bias:
                signal = signal + params[f"b{layer}"]
            if layer < last:
                signal = FUNCTIONS[self.activation](signal)
        return signal[..., 0] if self.widths[-1] == 1 else signal

    def shapes(self, params: Arrays) -> dict[str, tuple[int, ...]]:
        out: dict[str, tuple[int, ...]] = {}
        for layer, (fan_in, fan_out) in enumerate(zip(self.widths[:-1], self.widths[1:], strict=True), start=1):
            out |= {f"w{layer}": (fan_in, fan_out)} | ({f"b{layer}": (fan_out,)} if self.bias else {})
        return out

    def width(self, params: Arrays) -> int | None:
        return self.widths[0]


@dataclasses.dataclass(frozen=True)
class ChainForm(Form):
    """Models and named functions, applied from left to right."""

    kind: ClassVar[str] = "chain"
    parts: tuple[Form | str, ...]

    def models(self) -> list[tuple[str, Form]]:
        """With the prefix of their parameters."""
        models = [(f"{place}/", part) for place, part in enumerate(self.parts) if isinstance(part, Form)]
        return [("", models[0][1])] if len(models) == 1 else models

    def scores(self, params: Arrays, x: np.ndarray) -> np.ndarray:
        prefixes, signal = iter(self.models()), x
        for part in self.parts:
            if isinstance(part, str):
                signal = FUNCTIONS[part](signal)
            else:
                prefix, _ = next(prefixes)
                signal = part.scores(_of(params, prefix), _flat(signal))
        return signal

    def shapes(self, params: Arrays) -> dict[str, tuple[int, ...]]:
        return {
            f"{prefix}{name}": shape
            for prefix, model in self.models()
            for name, shape in model.shapes(_of(params, prefix)).items()
        }

    def width(self, params: Arrays) -> int | None:
        prefix, model = self.models()[0]
        return model.width(_of(params, prefix))

    def words(self) -> dict[str, Any]:
        return {"kind": self.kind, "parts": [part if isinstance(part, str) else part.words() for part in self.parts]}


@dataclasses.dataclass(frozen=True)
class SplitForm(Form):
    """The label holder's part of a model over columns: what the parties' models give is added up or concatenated, and goes
    through the top model, where there is one."""

    kind: ClassVar[str] = "split"
    combine: str
    top: Form | None

    def together(self, outputs: Sequence[np.ndarray]) -> np.ndarray:
        """What the top model reads, from what the parties' models give."""
        if self.combine == "sum":
            return sum(outputs[1:], outputs[0])
        return _flat(np.stack(outputs, axis=1))

    def scores(self, params: Arrays, x: np.ndarray) -> np.ndarray:
        return x if self.top is None else self.top.scores(params, _flat(x))

    def shapes(self, params: Arrays) -> dict[str, tuple[int, ...]]:
        return {} if self.top is None else self.top.shapes(params)

    def words(self) -> dict[str, Any]:
        return {"kind": self.kind, "combine": self.combine, "top": None if self.top is None else self.top.words()}


@dataclasses.dataclass(frozen=True)
class OwnForm(Form):
    """A model of the user's own code, which has to be given again; `described`: what it was."""

    kind: ClassVar[str] = "own code"
    described: str
    inputs: str = "x"

    def scores(self, params: Arrays, x: np.ndarray) -> np.ndarray:
        raise ValueError(
            f"the model is {self.described}, code that no file holds; give it again: fp.load(folder, model=model)"
        )

    def shapes(self, params: Arrays) -> dict[str, tuple[int, ...]]:
        return {name: np.shape(array) for name, array in params.items()}


@dataclasses.dataclass(frozen=True)
class NoForm(OwnForm):
    """The parameters of a problem without a model."""

    kind: ClassVar[str] = "parameters"

    def scores(self, params: Arrays, x: np.ndarray) -> np.ndarray:
        raise ValueError("the problem was stated without a model, so there is nothing to predict with")


def form_of(words: Any) -> Form:
    """A form from its words. Raises ValueError where they are not of this shape."""
    if not isinstance(words, dict):
        raise ValueError("its model is not described")
    given = {name: value for name, value in words.items() if name != "kind"}
    if not isinstance(given.get("inputs", "x"), str):
        raise ValueError(f"its model reads the column {given['inputs']!r}")
    match words.get("kind"):
        case "linear":
            form = LinearForm(**_fields(given, bias=bool, outputs=int | None))
        case "mlp":
            form = MlpForm(**_fields(given, widths=list, activation=str, bias=bool))
            form = dataclasses.replace(form, widths=tuple(form.widths))
            whole = all(isinstance(width, int) and width > 0 for width in form.widths)
            if len(form.widths) < 2 or not whole or form.activation not in FUNCTIONS:
                raise ValueError(f"its network has widths {form.widths} and activation {form.activation!r}")
        case "chain":
            parts = _fields(given, parts=list)["parts"]
            form = ChainForm(tuple(part if isinstance(part, str) else form_of(part) for part in parts))
            if not form.models() or any(part not in FUNCTIONS for part in form.parts if isinstance(part, str)):
                raise ValueError("its chain has a function that is not known, or no model")
        case "split":
            found = _fields(given, combine=str, top=dict | None)
            form = SplitForm(found["combine"], None if found["top"] is None else form_of(found["top"]))
            if form.combine not in ("sum", "concat"):
                raise ValueError(f"its parts are combined by {form.combine!r}")
        case "own code":
            form = OwnForm(**_fields(given, described=str))
        case "parameters":
            form = NoForm(**_fields(given, described=str))
        case other:
            raise ValueError(f"its model is of the kind {other!r}, which this version does not know")
    return form


def _fields(given: dict[str, Any], **kinds: Any) -> dict[str, Any]:
    for name, kind in kinds.items():
        if name not in given or not isinstance(given[name], kind):
            raise ValueError(f"{name} of its model is {given.get(name)!r}")
    odd = given.keys() - kinds.keys() - {"inputs"}
    if odd:
        raise ValueError(f"its model has {sorted(odd)[0]!r}, which this version does not know")
    return given


def _of(params: Arrays, prefix: str) -> Arrays:
    """The parameters of one model of a chain."""
    return {name.removeprefix(prefix): array for name, array in params.items() if name.startswith(prefix)}


def _flat(x: np.ndarray) -> np.ndarray:
    return x.reshape(len(x), -1) if len(x) else x.reshape(0, int(np.prod(x.shape[1:])))
