"""Promises about decisions: are counted rates within their limits, how closely, in how many rounds, and how accurate is it?"""

import dataclasses

import numpy as np

import fedpact as fp

PARTIES = 5
LIMITS = {
    "missed": {"compas": (0.3, 0.2, 0.1), "adult": (0.4, 0.3, 0.2)},
    "selection gap": {"compas": (0.1, 0.05, 0.03), "adult": (0.1, 0.05, 0.03)},
    "opportunity gap": {"compas": (0.1, 0.05, 0.03), "adult": (0.07, 0.05, 0.03)},
}
DATA = ("compas", "adult")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One run: the worst counted value, how far inside the limit the closest holder is, and what it cost."""

    status: str
    value: float
    inside: float
    rounds: int
    exchanges: int
    accuracy: float


def solved(data: str, rate: str, limit: float, pooled: bool, model: fp.Model | None = None) -> Outcome:
    """The loss of a logistic model over five parties, with one limit on a counted rate over all rows or at each party."""
    table = getattr(fp.datasets, data)()
    parties = fp.split_rows(table, parties=PARTIES, seed=0)
    model = model or fp.linear(bias=True)
    decided, group = fp.decisions(model), "group"
    counted = {
        "missed": 1 - fp.mean(decided, where=fp.col("y") == 1),
        "selection gap": fp.demographic_parity_gap(decided, group=group),
        "opportunity gap": fp.equal_opportunity_gap(decided, group=group, label="y"),
    }[rate]
    limited = (counted.pooled() if pooled else counted) <= limit
    problem = fp.minimize(fp.mean(fp.logistic_loss(model, labels=(-1, 1))).pooled(), [limited.named(rate)], fp.l2(1e-4))
    result = fp.solve(problem, parties, progress=False, max_rounds=1000)
    report = result.constraint(rate)
    accuracy = float(np.mean((result.scores(table) > 0) == (table["y"] == 1)))
    margins = [m for m, mu in zip(report.margins, report.multipliers, strict=True) if mu > 0]
    inside = max(margins, default=0.0)
    return Outcome(result.status, max(report.values), inside, result.rounds, result.exchanges, accuracy)


def measure() -> str:
    lines = [
        "## Promises about decisions\n",
        f"A linear logistic model over {PARTIES} parties, one limit on a counted rate, over all rows or at each party; tolerance "
        "1e-4. *Inside*: how far within the limit the loosest of the holders is whose limit binds.\n",
        "| data | rate | holds | limit | counted | inside | rounds (exchanges) | accuracy |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for data in DATA:
        for rate, limits in LIMITS.items():
            for pooled in (True, False):
                for limit in limits[data]:
                    one = solved(data, rate, limit, pooled)
                    where = "over all rows" if pooled else "at each party"
                    status = "" if one.status == "converged" else f" {one.status}"
                    lines.append(
                        f"| {data} | {rate} | {where} | {limit:g} | {one.value:.4f}{status} | {one.inside:.4f} | "
                        f"{one.rounds} ({one.exchanges}) | {one.accuracy:.4f} |"
                    )
                    print(lines[-1], flush=True)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(measure())
