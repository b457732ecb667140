"""Linear models and networks as ONNX files, in float64."""

import json
import pathlib
from typing import Any

import numpy as np

from fedpact import __about__
from fedpact.extras import install
from fedpact.prediction.forms import ChainForm, Form, LinearForm, MlpForm
from fedpact.prediction.predictor import Predictor
from fedpact.problem.decision_rule import DecisionRule

OPSET = 17
SIMPLE = {"tanh": "Tanh", "relu": "Relu", "sigmoid": "Sigmoid"}  # one operator each; the others are made of several


def write_onnx(predictor: Predictor, path: pathlib.Path) -> pathlib.Path:
    """Write a predictor's model; see `fp.Predictor.to_onnx`."""
    try:
        import onnx
        from onnx import helper
    except ImportError:
        raise ImportError(f"writing ONNX files needs the onnx package: {install('onnx')}") from None
    form = predictor.form
    if not isinstance(form, LinearForm | MlpForm | ChainForm):
        raise ValueError(f"only linear models and networks become ONNX files, and this one is {form.kind!r}")
    graph = _Graph(onnx)
    scores = graph.model(form, "", predictor.params, "x")
    if _outputs(form) == 1:  # a column; the scores of such models have one entry per row
        scores = graph.node("Squeeze", scores, graph.constant(np.array([1], np.int64)))
    double, shape = onnx.TensorProto.DOUBLE, ["rows"] if _outputs(form) == 1 else ["rows", "outputs"]
    outputs = [helper.make_tensor_value_info(graph.renamed(scores, "scores"), double, shape)]
    rule = predictor.rule
    if rule is not None:
        outputs.append(helper.make_tensor_value_info(*graph.labels(rule, scores), ["rows"]))
        if rule.probabilities is not None:
            name = graph.probabilities(rule, scores)
            outputs.append(helper.make_tensor_value_info(name, double, ["rows", "labels"]))
    width = form.width(predictor.params)
    inputs = [helper.make_tensor_value_info("x", double, ["rows", "features" if width is None else width])]
    made = helper.make_graph(graph.nodes, "fedpact", inputs, outputs, graph.constants)
    model = helper.make_model(
        made,
        producer_name="fedpact",
        producer_version=__about__.VERSION,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=8,
    )
    about = {"status": predictor.status, "digest": predictor.digest, "features": json.dumps(predictor.features)}
    helper.set_model_props(model, about)
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())
    return path


class _Graph:
    """Nodes under construction; every value has a name of its own."""

    def __init__(self, onnx: Any):
        self.onnx, self.nodes, self.constants = onnx, [], []

    def node(self, operator: str, *inputs: str, **options: Any) -> str:
        name = f"{operator.lower()} {len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), [name], **options))
        return name

    def renamed(self, value: str, name: str) -> str:
        self.nodes.append(self.onnx.helper.make_node("Identity", [value], [name]))
        return name

    def constant(self, array: Any) -> str:
        name = f"constant {len(self.constants)}"
        array = np.asarray(array)
        if array.dtype.kind == "U":
            words = [str(entry).encode() for entry in array.ravel()]
            tensor = self.onnx.helper.make_tensor(name, self.onnx.TensorProto.STRING, array.shape, words)
        else:
            tensor = self.onnx.numpy_helper.from_array(np.ascontiguousarray(array), name)
        self.constants.append(tensor)
        return name

    def number(self, number: float) -> str:
        return self.constant(np.array([number], np.float64))

    def model(self, form: Form | str, prefix: str, params: Any, x: str) -> str:
        """What a form gives for features, always (rows, outputs)."""
        if isinstance(form, str):
            return self.function(form, x)
        if isinstance(form, ChainForm):
            prefixes = iter(form.models())
            for part in form.parts:
                x = self.model(part, "" if isinstance(part, str) else next(prefixes)[0], params, x)
            return x
        if isinstance(form, LinearForm):
            w = np.asarray(params[f"{prefix}w"]).reshape(len(params[f"{prefix}w"]), -1)
            return self.layer(x, w, np.ravel(params[f"{prefix}b"]) if form.bias else None)
        assert isinstance(form, MlpForm)
        last = len(form.widths) - 1
        for place in range(1, last + 1):
            x = self.layer(x, params[f"{prefix}w{place}"], params[f"{prefix}b{place}"] if form.bias else None)
            x = self.function(form.activation, x) if place < last else x
        return x

    def layer(self, x: str, weights: Any, bias: Any) -> str:
        product = self.node("MatMul", x, self.constant(np.asarray(weights, np.float64)))
        return product if bias is None else self.node("Add", product, self.constant(np.asarray(bias, np.float64)))

    def function(self, name: str, x: str) -> str:
        """A function of `forms.FUNCTIONS`, of operators that runtimes have in float64."""
        node, number = self.node, self.number
        match name:
            case "swish":
                return node("Mul", x, node("Sigmoid", x))
            case "softplus":  # max(x, 0) + log(1 + exp(-|x|))
                small = node("Exp", node("Neg", node("Abs", x)))
                return node("Add", node("Relu", x), node("Log", node("Add", number(1.0), small)))
            case "gelu":
                cube = node("Mul", number(0.044715), node("Mul", x, node("Mul", x, x)))
                inner = node("Tanh", node("Mul", number(float(np.sqrt(2.0 / np.pi))), node("Add", x, cube)))
                return node("Mul", node("Mul", number(0.5), x), node("Add", number(1.0), inner))
            case "elu":  # max(x, 0) + exp(min(x, 0)) - 1
                below = node("Sub", node("Exp", node("Min", x, number(0.0))), number(1.0))
                return node("Add", node("Relu", x), below)
            case "leaky_relu":
                return node("Max", x, node("Mul", number(0.01), x))
        return node(SIMPLE[name], x)

    def labels(self, rule: DecisionRule, scores: str) -> tuple[str, Any]:
        """The name and type of the output of decided labels."""
        if rule.by_class:
            place = self.node("ArgMax", scores, axis=1, keepdims=0)
        else:
            above = self.node("Greater", scores, self.number(rule.threshold))
            place = self.node("Cast", above, to=self.onnx.TensorProto.INT64)
        names = rule.classes if rule.by_class else rule.labels
        chosen = self.node("Gather", self.constant(np.asarray(names)), place) if names else place
        kind = np.asarray(names or (0,)).dtype.kind
        types = {"U": "STRING", "f": "DOUBLE", "b": "BOOL"}
        return self.renamed(chosen, "labels"), getattr(self.onnx.TensorProto, types.get(kind, "INT64"))

    def probabilities(self, rule: DecisionRule, scores: str) -> str:
        if rule.probabilities == "softmax":
            return self.renamed(self.node("Softmax", scores, axis=1), "probabilities")
        column = self.node("Unsqueeze", scores, self.constant(np.array([1], np.int64)))
        both = self.node("Concat", self.node("Neg", column), column, axis=1)
        return self.renamed(self.node("Sigmoid", both), "probabilities")


def _outputs(form: Form | str) -> int | None:
    """1 where scores have one entry per row and no second axis."""
    match form:
        case LinearForm():
            return 1 if form.outputs is None else None
        case MlpForm():
            return 1 if form.widths[-1] == 1 else None
        case ChainForm():
            return _outputs(form.models()[-1][1])
    return None
