"""Limits on counted decisions, judged by a scan of linear classifiers: `python -m campaign.decisions [--problems 200]`.

Two features, so that the decisions of nearly all linear models are known: those of 360 directions with every threshold. A run is
judged by counts of NumPy at its answer, and by whether the scan knows a model within the limits.
"""

import argparse
import collections
import dataclasses
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from rich.progress import track

import fedpact as fp

KINDS = ("gap", "found at each party", "found and false", "narrow range", "opportunity gap")
OUTCOMES = ("met", "rightly infeasible", "met, not optimal", "infeasible here only", "not solved", "false")
DIRECTIONS = 360
EXACT = 1e-12

Outcome = Literal["met", "rightly infeasible", "met, not optimal", "infeasible here only", "not solved", "false"]
Array = np.ndarray


@dataclasses.dataclass(frozen=True)
class Limit:
    """Of a rate, or of the difference of two, over masks of the rows."""

    mask: Array
    other: Array | None = None
    low: float = -np.inf
    high: float = np.inf

    def holds(self, rate: Any, other: Any) -> Any:
        value = rate if self.other is None else np.abs(rate - other)
        return (value >= self.low - EXACT) & (value <= self.high + EXACT)

    def met(self, decided: Array) -> bool:
        """With one decision for each row."""
        other = 0.0 if self.other is None else decided[self.other].mean()
        return bool(self.holds(decided[self.mask].mean(), other))


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A problem, and what is to hold in the judge's words."""

    kind: str
    rows: dict[str, Array]
    parties: fp.Parties
    problem: fp.Problem
    limits: tuple[Limit, ...]


@dataclasses.dataclass(frozen=True)
class Judged:
    drawn: Drawn
    possible: bool  # whether the scan knows a model within the limits
    result: fp.Result
    outcome: Outcome


def drawn(number: int) -> Drawn:
    """The problem of this number: always the same."""
    rng = np.random.default_rng(number)
    kind, n, holders = KINDS[number % len(KINDS)], int(rng.choice([80, 300, 1500])), int(rng.integers(1, 5))
    sex, x = rng.choice(["F", "M"], n), rng.normal(size=(n, 2))
    x[:, 0] += rng.choice([0.0, 0.5, 1.0]) * (sex == "M")
    noise = rng.choice([0.3, 1.0, 2.0]) * rng.logistic(size=n)
    y = (x @ [1.5, -1.0] + noise > rng.choice([0.0, 1.0])).astype(int)
    rows = {"x": x, "y": y, "sex": sex, "row": np.arange(n)}
    parties = fp.split_rows(rows, parties=holders, seed=number)
    ill, well, every = y == 1, y == 0, np.ones(n, bool)
    model = fp.linear(bias=True)
    decided = fp.decisions(model)
    found, false = fp.mean(decided, where=fp.col("y") == 1), fp.mean(decided, where=fp.col("y") == 0)
    if kind == "gap":
        bound = float(rng.choice([0.6 / n, 2.5 / n, 6 / n, 0.02, 0.05]))
        limits = [Limit(sex == "F", sex == "M", high=bound)]
        stated = [fp.demographic_parity_gap(decided, group="sex").pooled() <= bound]
    elif kind == "found at each party":
        bound = float(rng.choice([0.8, 0.9, 0.97, 1.0]))
        held = (np.isin(np.arange(n), table["row"]) for table in parties.values())
        limits = [Limit(mask & ill, low=bound) for mask in held]
        stated = [found >= bound]
    elif kind == "found and false":
        bound = float(np.round(rng.uniform(0.6, 0.95), 3))
        least = min(rates[1][rates[0] >= bound - EXACT].min() for rates in _scan(x, [ill, well]))
        most = float(least + rng.choice([-5, -1.2, 0.3, 1.5, 5, 15]) / well.sum())
        limits = [Limit(ill, low=bound), Limit(well, high=most)]
        stated = [found.pooled() >= bound, false.pooled() <= most]
    elif kind == "narrow range":
        low, width = float(rng.uniform(0.1, 0.8)), float(rng.choice([1.2, 2.5, 6]) / n)
        limits = [Limit(every, low=low, high=low + width)]
        stated = [fp.mean(decided).pooled().between(low, low + width)]
    else:
        bound = float(rng.choice([0.01, 0.03, 0.1]))
        limits = [Limit(ill & (sex == "F"), ill & (sex == "M"), high=bound)]
        stated = [fp.equal_opportunity_gap(decided, group="sex").pooled() <= bound]
    problem = fp.minimize(fp.mean(fp.logistic_loss(model)), stated, fp.l2(1e-3))
    return Drawn(kind, rows, parties, problem, tuple(limits))


def _scan(x: Array, masks: list[Array]) -> Iterator[list[Array]]:
    """For every direction the rates over each mask, with each threshold."""
    for angle in 2 * np.pi * np.arange(DIRECTIONS) / DIRECTIONS:
        order = np.argsort(-(x @ [np.cos(angle), np.sin(angle)]))
        yield [np.append(0.0, np.cumsum(mask[order]) / mask.sum()) for mask in masks]


def possible(problem: Drawn) -> bool:
    masks = [mask for limit in problem.limits for mask in (limit.mask, limit.other) if mask is not None]
    for rates in _scan(problem.rows["x"], masks):
        left = iter(rates)
        held = [limit.holds(next(left), 0.0 if limit.other is None else next(left)) for limit in problem.limits]
        if np.any(np.all(held, axis=0)):
            return True
    return False


def judge(problem: Drawn, method: Any = None) -> Judged:
    """Solve it and compare with the scan. `method`: of `fp.solve` (default: its own choice)."""
    result = fp.solve(problem.problem, problem.parties, method, progress=False)
    params: Any = result.params
    scores = problem.rows["x"] @ np.asarray(params["w"]) + np.asarray(params["b"])
    decided = (scores > (result.threshold or 0.0)).astype(float)
    met, known = all(limit.met(decided) for limit in problem.limits), possible(problem)
    return Judged(problem, known or met, result, _outcome(result.status, met, known))


def _outcome(status: str, met: bool, known: bool) -> Outcome:
    """With rates `infeasible` is said of the parameters nearby: a model that the scan finds elsewhere is no contradiction."""
    if status == "converged":
        return "met" if met else "false"
    if status == "diverged" or (status == "infeasible" and met):
        return "false"
    if status == "infeasible":
        return "infeasible here only" if known else "rightly infeasible"
    return "met, not optimal" if met else "not solved"


def table(judged: list[Judged]) -> str:
    lines = [
        f"| limits | problems | {' | '.join(OUTCOMES)} | rounds, median / most |",
        "|---" * (len(OUTCOMES) + 3) + "|",
    ]
    for kind in (*KINDS, "all"):
        mine = [one for one in judged if kind in (one.drawn.kind, "all")]
        counts = collections.Counter(one.outcome for one in mine)
        rounds = [one.result.rounds for one in mine]
        cells = [str(counts[outcome] or "") for outcome in OUTCOMES]
        if mine:
            spread = f"{np.median(rounds):g} / {max(rounds)}"
            lines.append(f"| {kind} | {len(mine)} | {' | '.join(cells)} | {spread} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m campaign.decisions", description=__doc__)
    parser.add_argument("--problems", type=int, default=200, help="how many, the first ones (default: 200)")
    judged = []
    for number in track(range(parser.parse_args().problems), "counted decisions"):
        judged.append(judge(drawn(number)))
        if judged[-1].outcome not in ("met", "rightly infeasible"):
            print(f"{judged[-1].outcome}: problem {number}: {judged[-1].result.message}")
    print(table(judged))


if __name__ == "__main__":
    main()
