"""A PyTorch module inside a run, called back by JAX, against the same network in JAX: why there is no fp.torch_model.

Scores and gradients are torch's, batched over parties by `torch.func.vmap`. JAX hands arrays to callbacks in the precision of
their thread, which is not the run's, so numbers travel as bits.
"""

import importlib
import importlib.util
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fedpact as fp
from fedpact.problem import fingerprint
from fedpact.problem.models import Model

ROUNDS, ROWS, PARTIES, REPEATS = 50, 10_000, 10, 3
ALL = fp.FedAvg(step=0.5, local_steps=5)
BATCHES = fp.FedAvg(step=0.5, local_steps=5, batch=100)
CELLS = (
    ([20, 32, 1], "`FedAvg(local_steps=5)`, all rows", ALL),
    ([20, 32, 1], "`FedAvg(local_steps=5, batch=100)`", BATCHES),
    ([200, 128, 1], "`FedAvg(local_steps=5, batch=100)`", BATCHES),
)
ALIKE = 1e-10  # relative: what two orders of summation may differ by


def measure() -> str:
    title = "## A PyTorch module called back\n\n"
    if importlib.util.find_spec("torch") is None:
        return title + "Not measured: torch is not installed (`pip install torch==2.13.0`).\n"
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    fingerprint.BY_NAME.add("torch")
    lines = [
        f"{ROUNDS} rounds over {PARTIES} parties with {ROWS // PARTIES:,} rows each, after compiling. The module's scores and "
        f"gradients come from PyTorch {torch.__version__} (1 thread) through `jax.pure_callback`, batched over parties; the "
        "other network is `fp.mlp` of the same shape and start. Processor seconds of the process, the median of "
        f"{REPEATS}, alternating.\n",
        "| network | method | `fp.mlp` | module called back | ratio |",
        "|---|---|---|---|---|",
    ]
    for widths, words, method in CELLS:
        ours, theirs = _Runs(torch, widths).times(method)
        lines.append(f"| {'-'.join(map(str, widths))} | {words} | {ours:.2f} | {theirs:.2f} | {theirs / ours:.1f} |")
    return title + "\n".join(lines) + "\n"


class _Runs:
    """The same problem with both networks."""

    def __init__(self, torch: Any, widths: list[int]) -> None:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(ROWS, widths[0]))
        y = (np.tanh(x[:, :5].sum(axis=1)) + 0.3 * rng.normal(size=ROWS) > 0).astype(int)
        self.parties = fp.split_rows(fp.Table(x=x, y=y), parties=PARTIES, seed=0)
        first, last = torch.nn.Linear(*widths[:2]), torch.nn.Linear(*widths[1:])
        module = torch.nn.Sequential(first, torch.nn.Tanh(), last).double()
        weights = [p.detach().numpy().copy() for p in module.parameters()]
        ours = {"w1": weights[0].T, "b1": weights[1], "w2": weights[2].T, "b2": weights[3]}
        self.networks = [(fp.mlp(widths), ours), (Called(torch, module), tuple(weights))]

    def times(self, method: fp.Algorithm) -> tuple[float, float]:
        seen: list[list[float]] = [[], []]
        objectives = [self.run(which, method).objective for which in (0, 1)]  # compiles
        assert abs(objectives[0] - objectives[1]) <= ALIKE * abs(objectives[0]), "the networks are not the same"
        for _ in range(REPEATS):
            for which in (0, 1):
                began = time.process_time()
                self.run(which, method)
                seen[which].append(time.process_time() - began)
        return statistics.median(seen[0]), statistics.median(seen[1])

    def run(self, which: int, method: fp.Algorithm) -> fp.Result:
        model, start = self.networks[which]
        problem = fp.minimize(fp.mean(fp.logistic_loss(model)).pooled(), regularizer=fp.l2(1e-4))
        return fp.solve(problem, self.parties, method, start=start, max_rounds=ROUNDS, tolerance=1e-12, progress=False)


class Called(Model):
    """A module with one score a row; parameters are a tuple of its own, in their order."""

    def __init__(self, torch: Any, module: Any) -> None:
        self.torch, self.module = torch, module
        self.names = [name for name, _ in module.named_parameters()]
        self.axes = [parameter.ndim for parameter in module.parameters()]
        self.scores = jax.custom_vjp(self._scores)
        self.scores.defvjp(lambda params, x: (self._scores(params, x), (params, x)), self._pulled)

    def init(self, key: jax.Array, rows: Any) -> tuple[np.ndarray, ...]:
        return tuple(parameter.detach().numpy().copy() for parameter in self.module.parameters())

    def apply(self, params: tuple[jax.Array, ...], rows: Any) -> jax.Array:
        return self.scores(tuple(params), jnp.asarray(rows["x"], params[0].dtype))

    def _scores(self, params: tuple[jax.Array, ...], x: jax.Array) -> jax.Array:
        shape = jax.ShapeDtypeStruct((len(x), 2), jnp.uint32)
        sent = map(_bits, (*params, x))
        return _numbers(jax.pure_callback(self.forward, shape, *sent, vmap_method="expand_dims"))

    def _pulled(self, kept: Any, slopes: jax.Array) -> tuple[Any, None]:
        params, x = kept
        shapes = tuple(jax.ShapeDtypeStruct((*leaf.shape, 2), jnp.uint32) for leaf in params)
        sent = map(_bits, (*params, x, slopes))
        gradients = jax.pure_callback(self.backward, shapes, *sent, vmap_method="expand_dims")
        return tuple(map(_numbers, gradients)), None

    def forward(self, *sent: Any) -> np.ndarray:
        with self.torch.no_grad():
            (scores,) = self.batched(lambda *a: (self.called(a[:-1], a[-1]),), sent)
        return scores

    def backward(self, *sent: Any) -> tuple[np.ndarray, ...]:
        def gradients(*arrays: Any) -> Any:
            *params, x, slopes = arrays
            return self.torch.func.vjp(lambda *p: self.called(p, x), *params)[1](slopes)

        return self.batched(gradients, sent)

    def called(self, params: Any, x: Any) -> Any:
        named = dict(zip(self.names, params, strict=True))
        return self.torch.func.functional_call(self.module, named, (x,))[..., 0]

    def batched(self, function: Any, sent: Any) -> tuple[np.ndarray, ...]:
        """Over the parties' axis, where there is one; an array that all parties share has length 1 along it."""
        tensors = [self.torch.from_numpy(np.array(array).view(np.float64)[..., 0]) for array in sent]
        if tensors[0].ndim > self.axes[0]:
            many = max(len(tensor) for tensor in tensors)
            along = [0 if len(tensor) == many else None for tensor in tensors]
            tensors = [t if axis == 0 else t[0] for t, axis in zip(tensors, along, strict=True)]
            function = self.torch.func.vmap(function, in_dims=tuple(along))
        found = (np.ascontiguousarray(tensor.detach().numpy()) for tensor in function(*tensors))
        return tuple(array[..., None].view(np.uint32) for array in found)


def _bits(numbers: jax.Array) -> jax.Array:
    return jax.lax.bitcast_convert_type(numbers, jnp.uint32)


def _numbers(bits: jax.Array) -> jax.Array:
    return jax.lax.bitcast_convert_type(bits, jnp.float64)
