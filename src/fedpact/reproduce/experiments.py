"""The tables that `fedpact reproduce` computes, by name."""

from collections.abc import Callable
from typing import Any

from fedpact.reproduce import pc_fedavg
from fedpact.reproduce.fair_vfl import DATA, fair_linear, fair_mlp
from fedpact.reproduce.fair_vfl_audit import audited
from fedpact.reproduce.fair_vfl_convergence import convergence
from fedpact.reproduce.prox_al import NP_DATA, fairness, lcqp, neyman_pearson
from fedpact.reproduce.rounds import rounds
from fedpact.reproduce.ssca import BATCHES, ssca_columns, ssca_rows, tradeoff

EXPERIMENTS: dict[str, Callable[..., list[dict[str, Any]]]] = {
    "rounds": rounds,
    "prox-al/np": neyman_pearson,
    "prox-al/fairness": fairness,
    "prox-al/lcqp": lcqp,
    "ssca/rows": ssca_rows,
    "ssca/columns": ssca_columns,
    "ssca/tradeoff": tradeoff,
    "fair-vfl/linear": fair_linear,
    "fair-vfl/mlp": fair_mlp,
    "fair-vfl/convergence": convergence,
    "fair-vfl/audit": audited,
    "pc-fedavg/mnist": pc_fedavg.mnist,
    "pc-fedavg/cifar10": pc_fedavg.cifar10,
    "pc-fedavg/local-steps": pc_fedavg.local_steps,
}
NAMES = {  # what --only may choose from
    "ssca/rows": BATCHES,
    "ssca/columns": BATCHES,
    "rounds": (*NP_DATA, "adult-b", "lcqp"),
    "prox-al/np": NP_DATA,
    "fair-vfl/linear": DATA,
    "fair-vfl/mlp": DATA,
    "fair-vfl/audit": DATA,
    "pc-fedavg/mnist": pc_fedavg.NAMES,
    "pc-fedavg/cifar10": pc_fedavg.NAMES,
    "pc-fedavg/local-steps": tuple(pc_fedavg.SETTINGS),
}
TRIALS = {"fair-vfl/linear": 5, "fair-vfl/mlp": 5, "fair-vfl/convergence": 1, "fair-vfl/audit": 1}  # where it is not 10
