"""Small networks: class 0's loss minimised, class 1's bounded at each party. Not convex."""

import numpy as np

import fedpact as fp
from campaign.classification import NEGATIVE, POSITIVE, Config, average, cap, limit_false, limit_missed
from campaign.data import classes
from campaign.formulas import Formulas, Term
from campaign.statement import Known, Stated, seed_of, tables

BOUNDS = {"slack": 2.0, "tight": 0.3, "just": 0.1}


def network(name: str, kind: str, seed: int, config: Config, level: str, hidden: int) -> Stated:
    """One hidden layer of tanh, and l2. A large intercept meets any cap on one class alone."""
    n, d, rows = config
    data = classes(kind, seed_of(name, kind, seed), n, rows, d)
    missed, false = BOUNDS.get(level, 0.5), (0.5 if level in ("barely out", "out") else 50.0)
    known: Known = "feasible"
    why = "the intercept alone meets the caps"
    size = hidden * (d + 2) + 1
    point = np.zeros(size)
    point[hidden] = 5.0
    if level == "out":
        known, why, missed = "infeasible", "a loss >= 0 is to be negative", -0.01
    elif level == "barely out":  # the same rows in both classes: their losses add up to 2 log 2 = 1.39 at least
        known, why = "infeasible", "the same rows are in both classes, and the caps add up to 1"
        first, last = data[0], data[-1]
        last["x"][last["y"] == 0] = first["x"][first["y"] == 1]
    for party in data:
        party["limit_missed"], party["limit_false"] = np.full(rows, missed), np.full(rows, false)
    loss = fp.logistic_loss(fp.mlp([d, hidden, 1]))
    problem = fp.minimize(
        fp.mean(loss, where=NEGATIVE),
        [
            (fp.mean(loss, where=POSITIVE) - fp.mean(limit_missed) <= 0).named("missed"),
            (fp.mean(loss, where=NEGATIVE) - fp.mean(limit_false) <= 0).named("false"),
        ],
        fp.l2(1e-3),
    )
    ones, zeros = (
        [
            Term(
                "logistic",
                party["x"][party["y"] == k],
                np.full(int(np.sum(party["y"] == k)), 2.0 * k - 1),
                hidden=hidden,
            )
            for party in data
        ]
        for k in (1, 0)
    )
    rows_ = [cap(term, missed) for term in ones] + [cap(term, false) for term in zeros]
    formulas = Formulas(size, average(zeros), tuple(rows_), l2=1e-3, convex=False)
    return Stated(problem, tables(data), formulas, known=known, point=None if known == "infeasible" else point, why=why)
