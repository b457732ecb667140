"""The tables and figures that `fedpact reproduce` computes, by name."""

import dataclasses
from collections.abc import Callable
from typing import Any

from fedpact.reproduce import pc_fedavg, prox_al_figures, prox_al_tables, ssca_figures
from fedpact.reproduce.fair_vfl import DATA, fair_linear, fair_mlp
from fedpact.reproduce.fair_vfl_audit import audited
from fedpact.reproduce.fair_vfl_figures import CHOICES, curves
from fedpact.reproduce.fair_vfl_paces import paced
from fedpact.reproduce.prox_al import NP_DATA
from fedpact.reproduce.rounds import rounds
from fedpact.reproduce.ssca import BATCHES

SIZES = ("n=1", "n=5", "n=10", "n=20")


@dataclasses.dataclass(frozen=True)
class Experiment:
    """How a table or figure is computed.

    - `run`: called with trials, the JSON file and `names=`, what --only chose.
    - `takes`: about how long all of it takes on two cores, said before it begins.
    - `choices`: of --only.
    - `trials`: the default of --trials; `most_trials`: the largest.
    """

    run: Callable[..., list[dict[str, Any]]]
    takes: str
    choices: tuple[str, ...] = ()
    trials: int = 10
    most_trials: int = 10


EXPERIMENTS = {
    "rounds": Experiment(rounds, "half an hour", (*NP_DATA, "adult-b", "lcqp")),
    "prox-al/np": Experiment(
        prox_al_tables.neyman_pearson,
        "an hour, of which adult-a takes most; 20 minutes with --trials 1",
        (*NP_DATA, *SIZES),
    ),
    "prox-al/fairness": Experiment(prox_al_tables.fairness, "an hour; 20 minutes with --trials 1", SIZES),
    "prox-al/lcqp": Experiment(prox_al_tables.lcqp, "20 minutes; 5 with --trials 1", SIZES[:3]),
    "prox-al/figures": Experiment(prox_al_figures.convergence, "20 minutes", (*prox_al_figures.DATA, *SIZES), 1, 1),
    "ssca/rows": Experiment(
        ssca_figures.ssca_rows,
        "5 minutes a line of B = 1 or 10 with 20 seeds, as long for one of B = 100 with 3; there are 15 lines",
        (*BATCHES, *ssca_figures.LINES),
        ssca_figures.MOST_SEEDS,
        100,
    ),
    "ssca/columns": Experiment(
        ssca_figures.ssca_columns,
        "5 minutes a line with 5 seeds; there are 13 lines",
        (*BATCHES, *ssca_figures.LINES),
        ssca_figures.MOST_SEEDS,
        100,
    ),
    "ssca/tradeoff": Experiment(ssca_figures.tradeoff, "20 minutes a seed", ("rows", "columns"), 1, 100),
    "fair-vfl/linear": Experiment(fair_linear, "15 minutes", DATA, 5),
    "fair-vfl/mlp": Experiment(fair_mlp, "an hour, of which Adult takes most", DATA, 5),
    "fair-vfl/figures": Experiment(curves, "an hour, of which Adult takes most", CHOICES, 1, 1),
    "fair-vfl/paces": Experiment(paced, "2 minutes", (), 1),
    "fair-vfl/audit": Experiment(audited, "5 minutes", DATA, 1),
    "pc-fedavg/mnist": Experiment(pc_fedavg.mnist, "8 minutes a seed", pc_fedavg.NAMES, 1),
    "pc-fedavg/cifar10": Experiment(pc_fedavg.cifar10, "half an hour a seed", pc_fedavg.NAMES, 1),
    "pc-fedavg/local-steps": Experiment(
        pc_fedavg.local_steps, "half an hour a seed, of which CIFAR-10 takes most", tuple(pc_fedavg.SETTINGS), 1
    ),
}
