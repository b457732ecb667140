"""Runs in the environment of seldonian-engine, see promises.py: people.npz answer.json times limit delta."""

# pyright: reportMissingImports=false
# seldonian-engine wants versions of its own, so it is installed in an environment beside fedpact's.

import json
import pathlib
import sys
import warnings
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

warnings.filterwarnings("ignore")

from seldonian.dataset import SupervisedDataSet, SupervisedMetaData  # noqa: E402
from seldonian.models.models import BinaryLogisticRegressionModel  # noqa: E402
from seldonian.models.objectives import binary_logistic_loss  # noqa: E402
from seldonian.parse_tree.parse_tree import make_parse_trees_from_constraints  # noqa: E402
from seldonian.seldonian_algorithm import SeldonianAlgorithm  # noqa: E402
from seldonian.spec import SupervisedSpec  # noqa: E402


def start(model: Any, features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Logistic regression without limits; from zeros, the default, its gradient is not finite and it finds no solution."""
    fitted = LogisticRegression().fit(features, labels)
    return np.hstack([fitted.intercept_, fitted.coef_[0]])


def solution(x: np.ndarray, y: np.ndarray, limit: float, delta: float) -> list[float] | None:
    """Intercept and weights; None for No Solution Found."""
    names = [f"x{i}" for i in range(x.shape[1])]
    meta = SupervisedMetaData("classification", [*names, "y"], names, ["y"], [])
    data = SupervisedDataSet(x, y.astype(float), [], len(y), meta)
    trees = make_parse_trees_from_constraints(
        [f"TPR >= {limit}"], [delta], regime="supervised_learning", sub_regime="classification"
    )
    spec = SupervisedSpec(
        dataset=data,
        model=BinaryLogisticRegressionModel(),
        parse_trees=trees,
        sub_regime="classification",
        frac_data_in_safety=0.4,
        primary_objective=binary_logistic_loss,
        initial_solution_fn=start,
        use_builtin_primary_gradient_fn=False,
        optimization_hyperparams={
            "lambda_init": np.array([0.5]), "alpha_theta": 0.05, "alpha_lamb": 0.05, "beta_velocity": 0.9,
            "beta_rmsprop": 0.95, "num_iters": 500, "gradient_library": "autograd", "use_batches": False,
            "hyper_search": None, "verbose": False,
        },
    )  # fmt: skip
    passed, weights = SeldonianAlgorithm(spec).run()
    return [float(w) for w in np.ravel(weights)] if passed else None


if __name__ == "__main__":
    given, answer, times, limit, delta = sys.argv[1:]
    people = np.load(given)
    found = [solution(people[f"x{k}"], people[f"y{k}"], float(limit), float(delta)) for k in range(int(times))]
    pathlib.Path(answer).write_text(json.dumps(found))
