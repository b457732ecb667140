"""What a curious server can compute, by problem and method, of one party's replies and of sums: `python -m benchmarks audit`."""

from collections.abc import Iterator

import jax
import numpy as np

import fedpact as fp
from fedpact.reproduce.prox_al import PARTITION, neyman_pearson_problem
from fedpact.run.row_audit import Attacked, watched
from fedpact.settings import bind

ROUNDS = 100
PRINTED = ("plain", "sums")
README = fp.logistic_loss(fp.linear(bias=True))
Case = tuple[str, fp.Problem, fp.Problem, fp.Parties]  # name, with limits, without, parties


def cases() -> Iterator[Case]:
    limited = fp.minimize(
        fp.mean(README, where=fp.col("y") == 0),
        subject_to=[(fp.mean(README, where=fp.col("y") == 1) <= 0.2).named("missed cancers")],
        regularizer=fp.l2(1e-3),
    )
    free = fp.minimize(fp.mean(README), regularizer=fp.l2(1e-3))
    for n in (5, 20):
        parties = fp.split_rows(fp.datasets.breast_cancer(), parties=n, stratify="y", seed=0)
        yield f"README, {n} parties", limited, free, parties
    without = fp.minimize(fp.mean(fp.logistic_loss(fp.linear())))
    for name, table, n in (
        ("breast-cancer-wisc, 20 parties", fp.datasets.breast_cancer_wisc(), 20),
        ("adult-a, 10 parties", fp.datasets.adult_a(), 10),
    ):
        yield name, neyman_pearson_problem(), without, fp.split_rows(table, n, stratify="y", seed=PARTITION)


def measure() -> str:
    lines = [
        "| problem | rows of a party / parameters | method | received | rows read (vectors wrongly taken for rows) | "
        "labels right (majority) | membership |",
        "|---|---|---|---|---|---|---|",
    ]
    with jax.enable_x64(True):
        for name, limited, free, parties in cases():
            for method in (fp.InteriorPoint(), fp.ProxAL(fp.Newton()), fp.ProxAL(fp.LBFGS()), fp.FedAvg(step=1.0)):
                problem = free if isinstance(method, fp.FedAvg) else limited
                bound = bind(problem, parties)
                method_bound = method.bind(bound.setting)
                recorded, _ = watched(bound, method_bound, ROUNDS, 0)
                for received in PRINTED:
                    sums = received == "sums"
                    attacked = Attacked(problem, bound, method_bound, dict(parties.items()), None, recorded, sums, 0)
                    leaks = list(attacked.leaks().values())
                    held = f"{min(parties.sizes)} to {max(parties.sizes)} / {bound.setting.size}"
                    read = sum(round(leak.rows_recovered * leak.rows) for leak in leaks)
                    wrong = sum(leak.wrong_rows for leak in leaks[: 1 if sums else None])  # sums: the same for all
                    labels, majority, member = (
                        np.mean([value for value in each if value is not None])
                        for each in (
                            [leak.label_accuracy for leak in leaks],
                            [leak.majority for leak in leaks],
                            [leak.membership for leak in leaks],
                        )
                    )
                    lines.append(
                        f"| {name} | {held} | `{method.title(bound.setting)}` | {received} | "
                        f"{read} of {sum(parties.sizes)} ({wrong}) | "
                        f"{labels:.3f} ({majority:.3f}) | {member:.3f} |"
                    )
                    print(lines[-1], flush=True)
    return "\n".join(["## What a curious server can compute", "", *lines, ""])
