"""Rounds of the interior-point method where every party has a limit on a smooth rate, soft and sharp."""

import numpy as np

import fedpact as fp

PARTIES, ROWS, TEMPERATURES = (4, 5, 6, 7, 8), (400, 484, 569), (1.0, 0.25, 0.1)


def measure() -> str:
    named = " | ".join(f"T = {t:g}" for t in TEMPERATURES)
    lines = [
        "## Rounds with sharp rates\n",
        "Breast cancer, a smooth sensitivity of at least 0.95 at each hospital, tolerance 1e-4, at most 200 rounds: rounds, and "
        "the objective that was reached; the status where it is not `converged`.\n",
        f"| hospitals | rows | {named} |",
        f"|---|---|{'---|' * len(TEMPERATURES)}",
    ]
    for parties in PARTIES:
        for rows in ROWS:
            cells = [_cell(parties, rows, temperature) for temperature in TEMPERATURES]
            lines.append(f"| {parties} | {rows} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def solved(parties: int, rows: int, temperature: float, max_rounds: int) -> fp.Result:
    """At least 95 % of the cancers at each hospital, as a smooth rate: nonconvex, the sharper the worse."""
    data = fp.datasets.breast_cancer()
    data = data if rows == data.rows else data[np.random.default_rng(0).permutation(data.rows)[:rows]]
    model, found = fp.linear(bias=True), fp.col("y") == 1
    rate = fp.mean(fp.positive_rate(model, temperature), where=found)
    loss = fp.mean(fp.logistic_loss(model), where=~found)
    problem = fp.minimize(loss, [(rate >= 0.95).named("sensitivity")], fp.l2(1e-3))
    return fp.solve(problem, fp.split_rows(data, parties=parties, stratify="y", seed=0), max_rounds=max_rounds)


def _cell(parties: int, rows: int, temperature: float) -> str:
    result = solved(parties, rows, temperature, max_rounds=200)
    return f"{result.rounds}, {result.objective:.4f}" + ("" if result.converged else f" {result.status}")
