"""The experiments of Ye and Cui, Section VI: MNIST, a network 784-128-10 with swish, ten parties. Figures: ssca_figures.py."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpact import datasets
from fedpact.algorithms.averaging.fed_avg import FedAvg
from fedpact.algorithms.averaging.fed_sgd import FedSGD
from fedpact.algorithms.parts.schedules import Decay
from fedpact.algorithms.ssca.method import SSCA
from fedpact.federation.columns import ColumnParties, split_columns
from fedpact.federation.rows import Parties, split_rows
from fedpact.federation.table import Table
from fedpact.problem.functions import mean, value
from fedpact.problem.losses import softmax_loss
from fedpact.problem.models import mlp, squared_norm
from fedpact.problem.regularizers import l2
from fedpact.problem.split import TOP, chain, split_model
from fedpact.problem.statement import Problem, minimize
from fedpact.protocol.algorithm import Algorithm

PARTIES, HIDDEN, LIMIT, WEIGHT = 10, 128, 0.13, 1e-5  # I, J, U, λ
BATCHES = ("1", "10", "100")  # rows a party
MARGIN = 0.02  # of our own setting; the paper has none
NET = mlp([784, HIDDEN, 10], activation=jax.nn.swish, bias=False)
SPLIT = split_model(
    bottom=lambda width: mlp([width, HIDDEN], bias=False),
    combine="sum",
    top=chain(jax.nn.swish, mlp([HIDDEN, 10], bias=False)),
)
PAPER = {1: (0.4, 0.4, 0.4), 10: (0.6, 0.9, 0.3), 100: (0.9, 0.9, 0.3)}  # rows a party: a1, a2, α


def _in_single(table: Table) -> tuple[jax.Array, jax.Array]:
    return jnp.asarray(table["x"], jnp.float32), jnp.asarray(table["y"], jnp.int32)


class SplitMNIST:
    """One way of splitting MNIST, with its model; `scale`: how many of the paper's batches over rows make one here."""

    def __init__(self, name: str):
        self.name = name
        self.train, self.test = datasets.mnist()
        self.parties: Parties | ColumnParties
        if name == "rows":
            self.parties, self.cost, self.scale = split_rows(self.train, PARTIES, seed=0), softmax_loss(NET), 1
        else:
            self.parties, self.cost, self.scale = (
                split_columns(self.train, PARTIES, active="all"),
                softmax_loss(SPLIT),
                PARTIES,
            )
        self.train_arrays, self.test_arrays = _in_single(self.train), _in_single(self.test)

    def free(self, weight: float = WEIGHT) -> Problem:
        return minimize(mean(self.cost), regularizer=l2(weight))

    def limited(self, limit: float = LIMIT) -> Problem:
        return minimize(value(squared_norm), [(mean(self.cost).pooled() <= limit).named("cost")])

    def printed(self, batch: int, margin: float = 0.0) -> SSCA:
        """The paper's setting for this many rows a party."""
        rho, gamma, power = PAPER[batch]
        return SSCA(
            batch * self.scale, margin=margin, rho=Decay(rho, power), gamma=Decay(gamma, power + 0.05), measure=None
        )

    def ours(self, batch: int) -> SSCA:
        """What keeps the limit on all rows: slower decay, half the curvature, a margin."""
        return SSCA(
            batch * self.scale, margin=MARGIN, rho=Decay(0.9, 0.2), gamma=Decay(0.9, 0.25), tau=0.05, measure=None
        )

    def layers(self, params: Any) -> tuple[np.ndarray, np.ndarray]:
        """The network's two matrices, whoever holds their parts."""
        if isinstance(self.parties, Parties):
            first, second = jax.tree.leaves(params)
            return first, second
        parts = [jax.tree.leaves(params[name])[0] for name in self.parties.names]
        return np.concatenate(parts), jax.tree.leaves(params[TOP])[0]

    def measured(self, params: Any) -> dict[str, float]:
        """The cost on all training rows, ‖ω‖², and the accuracy on the test rows; products in single precision."""
        first, second = self.layers(params)
        small = np.asarray(first, np.float32), np.asarray(second, np.float32)
        cost, _ = _on_rows(*self.train_arrays, *small)
        _, accuracy = _on_rows(*self.test_arrays, *small)
        norm = float(np.sum(np.square(first)) + np.sum(np.square(second)))
        return {"cost": float(cost), "norm": norm, "accuracy": float(accuracy)}


@jax.jit
def _on_rows(x: jax.Array, y: jax.Array, first: jax.Array, second: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean softmax loss, and the part of the rows that are classified rightly."""
    scores = jax.nn.swish(x @ first) @ second
    losses = jax.nn.logsumexp(scores, axis=1) - jnp.take_along_axis(scores, y[:, None], axis=1)[:, 0]
    return losses.mean(), jnp.mean(scores.argmax(axis=1).astype(y.dtype) == y)


def bytes_without_label_holder(
    features: Sequence[int], batch: int, hidden: int, top: int, bytes_per_number: int = 4
) -> int:
    """Bytes that one round of the paper's Section V sends in all, for one constraint and bottom models that are linear.

    There every party has the labels and computes the loss by itself. To every other party it sends, for each row of the batch,
    ω·x of each of its features and what its bottom model gives without any: `hidden` numbers each. The server sends to every
    party the parameters of the top model and ρ, and as our label holder does a random key of 8 bytes, two weights of
    surrogates, γ, a curvature and a flag; back come the surrogates' four inner products, ∇F̂·ω, ‖ω‖², a residual, F̂ and its
    gradient for the top.

    - `features`: of each party.
    - `batch`: rows drawn in a round.
    - `hidden`: width of the bottom models' output.
    - `top`: parameters of the top model.
    - `bytes_per_number`: between parties (default 4, single precision); with the server it is double precision.
    """
    parties = len(features)
    between = (parties - 1) * (sum(features) + parties) * hidden * batch * bytes_per_number
    down = 8 * (top + 1 + 2 + 1 + 1) + 8 + 1
    up = 8 * (4 + 1 + 1 + 1 + 1 + top)
    return between + parties * (down + up)


STEPS = tuple(Decay(scale, power) for scale in (0.3, 1.0, 3.0) for power in (0.0, 0.2, 0.4))


def sgd_grid(mnist: SplitMNIST, batch: int) -> list[Algorithm]:
    return [FedSGD(batch * mnist.scale, step=step) for step in STEPS]


def ssca_grid(mnist: SplitMNIST, batch: int) -> list[Algorithm]:
    """As many settings as SGD has, the paper's among them; with ρ = 1 and constant γ SSCA is SGD with the step γ/2τ."""
    others = [
        SSCA(batch * mnist.scale, rho=Decay(rho, power), gamma=Decay(0.9, more), tau=tau, measure=None)
        for rho, power, more in ((1.0, 0.0, 0.0), (0.9, 0.1, 0.15))
        for tau in (0.1, 0.15, 0.3, 0.5)
    ]
    return [mnist.printed(batch), *others]


def twice_grid(mnist: SplitMNIST, batch: int) -> list[Algorithm]:
    """FedAvg with two local steps of half the batch."""
    return [FedAvg(batch * mnist.scale // 2, local_steps=2, step=step) for step in STEPS]
