"""The experiments of He, Peng and Sun, Federated Learning with Convex Global and Local Constraints (TMLR 2024)."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedpact import datasets
from fedpact.federation.rows import Parties, split_rows
from fedpact.federation.table import Table
from fedpact.problem.columns import col
from fedpact.problem.functions import mean, value
from fedpact.problem.losses import logistic_loss
from fedpact.problem.models import linear
from fedpact.problem.statement import Problem, minimize

PARTIES = (1, 5, 10, 20)
NP_DATA = ("breast-cancer-wisc", "monks-1", "adult-a")
PARTITION = 10  # seed of the split over parties
LIMIT, DISPARITY = 0.2, 0.1  # of the class-1 loss, and of the loss disparity

# Table 1: objective of Algorithm 1, relative difference to Algorithm 3 and its standard deviation, mean class-1 loss.
PAPER_NP = {
    ("breast-cancer-wisc", 1): (0.27, 7.09e-4, 2.02e-4, 0.20),
    ("breast-cancer-wisc", 5): (0.34, 1.15e-2, 5.17e-3, 0.19),
    ("breast-cancer-wisc", 10): (0.37, 3.92e-4, 2.76e-4, 0.17),
    ("breast-cancer-wisc", 20): (0.46, 3.43e-2, 2.91e-2, 0.16),
    ("adult-a", 1): (0.73, 2.24e-4, 3.46e-4, 0.20),
    ("adult-a", 5): (0.74, 4.25e-3, 7.44e-4, 0.20),
    ("adult-a", 10): (0.77, 2.69e-3, 3.24e-3, 0.19),
    ("adult-a", 20): (0.78, 1.13e-2, 4.11e-3, 0.18),
    ("monks-1", 1): (1.58, 1.39e-5, 1.09e-5, 0.20),
    ("monks-1", 5): (1.65, 2.08e-4, 1.84e-4, 0.19),
    ("monks-1", 10): (1.71, 4.59e-4, 3.32e-4, 0.18),
    ("monks-1", 20): (1.81, 1.78e-2, 1.38e-2, 0.17),
}
# Table 2: objective, relative difference and its standard deviation, mean disparity.
PAPER_FAIRNESS = {
    1: (0.37, 1.97e-3, 2.53e-4, 0.10),
    5: (0.37, 1.86e-3, 4.69e-4, 0.09),
    10: (0.37, 2.39e-3, 8.40e-4, 0.08),
    20: (0.38, 4.61e-3, 2.43e-3, 0.08),
}
# Table 4: objective of Algorithm 1 and of cProx-AL, their relative difference, violation of Algorithm 1 and of cProx-AL.
PAPER_LCQP = {
    (1, 100): (-0.23, -0.23, 1.63e-3, 3.33e-4, 5.68e-4),
    (1, 300): (-0.37, -0.37, 1.01e-3, 3.52e-4, 4.45e-4),
    (1, 500): (-0.30, -0.30, 1.34e-3, 4.38e-4, 3.85e-4),
    (5, 100): (9.81, 9.80, 1.09e-3, 1.34e-4, 8.03e-4),
    (5, 300): (8.47, 8.45, 1.36e-3, 1.09e-4, 8.28e-4),
    (5, 500): (9.92, 9.91, 8.26e-4, 1.33e-4, 3.73e-4),
    (10, 100): (49.40, 49.37, 5.59e-4, 7.31e-5, 5.88e-4),
    (10, 300): (41.49, 41.44, 1.14e-3, 8.56e-5, 8.73e-4),
    (10, 500): (41.45, 41.41, 9.39e-4, 9.29e-4, 7.66e-4),
}


def neyman_pearson_problem(limit: float = LIMIT) -> Problem:
    """(30): the parties' class-0 losses averaged, the class-1 loss at most `limit` at each party."""
    loss = logistic_loss(linear())
    limited = (mean(loss, where=col("y") == 1) <= limit).named("class-1 loss")
    return minimize(mean(loss, where=col("y") == 0), subject_to=[limited])


def fairness_problem(limit: float = DISPARITY) -> Problem:
    """(32): the parties' losses averaged, the gap between the groups' losses at most `limit` at each party and the server."""
    loss = logistic_loss(linear())
    gap = mean(loss, where=col("sex") == 0) - mean(loss, where=col("sex") == 1)
    return minimize(
        mean(loss),
        subject_to=[(abs(gap) <= limit).named("disparity"), (abs(gap).at_server() <= limit).named("disparity, server")],
    )


def lcqp_problem(parties: int, rows: int) -> Problem:
    """(84): Σ ½wᵀA_i w + b_iᵀw with C_i w + d_i = 0 at the parties and the server."""

    def quadratic(w: Any, data: Any) -> Any:
        return 0.5 * w @ data["A"][0] @ w + data["b"][0] @ w

    def line(j: int) -> Callable[[Any, Any], Any]:
        return lambda w, data: data["C"][0][j] @ w + data["d"][0][j]

    equalities = [(value(line(j)) == 0).named(f"row {j + 1}") for j in range(rows)]
    own = [(value(line(j)) == 0).at_server().named(f"row {j + 1}, server") for j in range(rows)]
    return minimize(parties * value(quadratic), subject_to=equalities + own)


def lcqp_federation(d: int, n: int) -> tuple[datasets.Lcqp, Problem, Parties, Table]:
    """An instance with d/100 equalities at each of n parties and at the server."""
    instance = datasets.lcqp(d, n, d // 100)
    tables = [
        Table(
            A=instance.A[i : i + 1],
            b=instance.b[i : i + 1],
            C=instance.C[i + 1 : i + 2],
            d=instance.d[i + 1 : i + 2],
        )
        for i in range(n)
    ]
    return instance, lcqp_problem(n, d // 100), split_rows(tables), Table(C=instance.C[:1], d=instance.d[:1])


def starts(size: int, trials: int) -> np.ndarray:
    """Random points on the unit sphere, one per trial."""
    draws = np.random.default_rng(0).normal(size=(trials, size))
    return draws / np.linalg.norm(draws, axis=1, keepdims=True)


def load(name: str) -> Table:
    """A data set of Table 1 by its name."""
    loaders = {
        "breast-cancer-wisc": datasets.breast_cancer_wisc,
        "monks-1": datasets.monks_1,
        "adult-a": datasets.adult_a,
    }
    return loaders[name]()


def sizes_in(names: Sequence[str], every: Sequence[int]) -> tuple[list[str], tuple[int, ...]]:
    """From what --only gave: the names of data sets, and the numbers of parties that "n=5" asks for (default: all)."""
    counts = tuple(int(name[2:]) for name in names if name.startswith("n="))
    return [name for name in names if not name.startswith("n=")], counts or tuple(every)
