"""Fits of the rules: thresholds by a linear programme over ROC hulls, and the share of scores to be replaced."""

import dataclasses
from typing import Any

import numpy as np

from fedpact.evaluation.counts import Tag
from fedpact.postprocess.rules import Cost, DrawnThresholds, MixedScores, check_probabilities
from fedpact.postprocess.tallies import Tally, some, tallied

LEAST_CHANCE = 1e-9  # thresholds of smaller probability are dropped


def equal_opportunity(
    scores: Any, labels: Any = None, groups: Any = None, *, positive: Tag | None = None, odds: bool = False
) -> DrawnThresholds:
    """Randomised thresholds by group with equal true positive rates and the least expected error on these rows.

    Group a's thresholds t have rates (FPR_a(t), TPR_a(t)), the points of its ROC curve; drawn with probabilities p_a(t) they have
    the mean rates, any point of the curve's convex hull. The rule solves

        minimise   Σ_a Σ_t p_a(t) (positives_a (1 - TPR_a(t)) + negatives_a FPR_a(t)) / n
        s.t.       Σ_t p_a(t) TPR_a(t) the same for all a,   p_a >= 0,   Σ_t p_a(t) = 1

    a linear programme over the vertices of the hulls (Hardt, Price and Srebro, 2016).

    - `scores`: finite numbers (rows,), larger for more positive; or an `fp.Evaluation` with groups, in place of scores, labels
      and groups: then thresholds are edges of its bins, and rates exact on its rows.
    - `labels`: (rows,), two different values.
    - `groups`: (rows,), at least two different values, each with both labels.
    - `positive`: the value of a positive label (default: the larger one).
    - `odds`: also equal false positive rates, that is, equalised odds (default False).

    Returns a `DrawnThresholds`. Raises ValueError or TypeError where an argument is not of this form.

        rule = fp.postprocess.equal_opportunity(result.scores(table), table["y"], table["group"])
        decisions = rule.predict(result.scores(new), new["group"])
        rule = fp.postprocess.equal_opportunity(fp.evaluate(result, parties, group="group"))   # over parties: only counts travel
    """
    tallies, pair, rows = tallied(scores, labels, groups, positive, at_edges=True)
    curves = {name: _roc_hull(tally) for name, tally in tallies.items()}
    chances = _least_errors(list(curves.values()), odds)
    rules, rates, errors = {}, {}, 0.0
    for (name, curve), drawn in zip(curves.items(), chances, strict=True):
        rules[name] = tuple((float(t), float(p)) for t, p in zip(curve.thresholds, drawn, strict=True) if p > 0)
        rates[name] = float(drawn @ curve.true_rates), float(drawn @ curve.false_rates)
        errors += float(drawn @ curve.errors)
    return DrawnThresholds(
        pair,
        rules,
        {name: true for name, (true, _) in rates.items()},
        {name: false for name, (_, false) in rates.items()},
        1 - errors / sum(tally.total for tally in tallies.values()),
        rows,
    )


def calibrated_equal_opportunity(
    scores: Any,
    labels: Any = None,
    groups: Any = None,
    cost: Cost = "fnr",
    *,
    positive: Tag | None = None,
    strict: bool = True,
) -> MixedScores:
    """Equal generalised cost in two groups by mixing in the base rate, which keeps calibrated scores calibrated.

    For a group a with scores s in [0, 1] and base rate μ_a, the share of positives among its rows,

        fnr_a = mean(1 - s | positive),   fpr_a = mean(s | negative),   weighted_a = μ_a fnr_a + (1 - μ_a) fpr_a

    The group with the smaller cost g gets μ_a in place of its score with probability

        α = (g_other - g_a) / (g_a(μ) - g_a),   g_a(μ) the cost of the constant score μ_a

    so that its expected cost is g_other (Pleiss and others, 2017). That needs g_other <= g_a(μ), where fnr_a(μ) = 1 - μ_a and
    fpr_a(μ) = μ_a, and fails where base rates differ too much.

    - `scores`: probabilities of the positive label (rows,); for a logistic model sigmoid(score). Or an `fp.Evaluation` with
      groups, in place of scores, labels and groups: then sigmoid(score) is taken to be the middle of its bin.
    - `labels`: (rows,), two different values.
    - `groups`: (rows,), two different values, each with both labels.
    - `cost`: "fnr" (default: equal opportunity), "fpr" or "weighted".
    - `positive`: the value of a positive label (default: the larger one).
    - `strict`: raise where no mixture makes the costs equal (default True); False returns the nearest mixture.

    Returns a `MixedScores`. Raises ValueError where an argument is not of this form, or as `strict` says.
    """
    if cost not in ("fnr", "fpr", "weighted"):
        raise ValueError(f"calibrated_equal_opportunity(cost={cost!r}): 'fnr', 'fpr' or 'weighted'")
    tallies, pair, _ = tallied(scores, labels, groups, positive, at_edges=False)
    check_probabilities(np.concatenate([tally.values for tally in tallies.values()]))
    names = list(tallies)
    if len(names) != 2:
        raise ValueError(f"groups holds {some(names)}; calibrated_equal_opportunity takes two groups")
    costs = {name: _cost(cost, tally) for name, tally in tallies.items()}
    better, worse = sorted(names, key=lambda name: costs[name])
    base_rate = float(tallies[better].positive.sum() / tallies[better].total)
    flat = _cost(cost, dataclasses.replace(tallies[better], values=np.full_like(tallies[better].values, base_rate)))
    room, gap = flat - costs[better], costs[worse] - costs[better]
    share = min(gap / room, 1.0) if room > 0 else 0.0
    if gap > max(room, 0.0) and strict:
        raise ValueError(
            f"the {cost} cost of group {worse!r}, {costs[worse]:.4f}, is above {flat:.4f}, which the base rate of group "
            f"{better!r} costs: no mixture makes them equal; calibrate the scores, choose another cost, or take the nearest "
            "mixture by strict=False"
        )
    after = costs | {better: costs[better] + share * room}
    return MixedScores(pair, better, share, base_rate, cost, costs, after)


@dataclasses.dataclass(frozen=True)
class _Curve:
    """Vertices of the upper hull of a ROC curve: thresholds, rates, and counts of errors."""

    thresholds: np.ndarray
    true_rates: np.ndarray
    false_rates: np.ndarray
    errors: np.ndarray


def _roc_hull(tally: Tally) -> _Curve:
    true, false = (np.concatenate([[0], np.cumsum(counts[::-1])]) for counts in (tally.positive, tally.negative))
    corners: list[int] = []
    for at in range(len(true)):
        while len(corners) >= 2:
            a, b = corners[-2:]
            turn = (true[b] - true[a]) * (false[at] - false[a]) - (false[b] - false[a]) * (true[at] - true[a])
            if turn > 0:  # b lies above the line from a to here
                break
            corners.pop()
        corners.append(at)
    thresholds = np.concatenate([[np.inf], tally.values[::-1]])[corners]
    true, false, positives, negatives = true[corners], false[corners], true[-1], false[-1]
    return _Curve(thresholds, true / positives, false / negatives, positives - true + false)


def _least_errors(curves: list[_Curve], odds: bool) -> list[np.ndarray]:
    """For each curve the probabilities of its vertices."""
    from scipy.optimize import linprog  # slow to import

    sizes = [len(curve.thresholds) for curve in curves]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    lines, sides = [], []
    for place, size in enumerate(sizes):
        line = np.zeros(starts[-1])
        line[starts[place] : starts[place] + size] = 1
        lines.append(line)
        sides.append(1.0)
    for rates in [[c.true_rates for c in curves], *([[c.false_rates for c in curves]] if odds else [])]:
        for place in range(1, len(curves)):
            line = np.zeros(starts[-1])
            line[: sizes[0]] = -rates[0]
            line[starts[place] : starts[place + 1]] = rates[place]
            lines.append(line)
            sides.append(0.0)
    errors = np.concatenate([curve.errors for curve in curves]) / sum(curve.errors.max() for curve in curves)
    solved = linprog(errors, A_eq=np.array(lines), b_eq=sides, bounds=(0, 1), method="highs")
    if not solved.success:
        raise ValueError(f"the linear programme of the thresholds was not solved: {solved.message}")
    parts = [np.where(part > LEAST_CHANCE, part, 0.0) for part in np.split(solved.x, starts[1:-1])]
    return [part / part.sum() for part in parts]


def _cost(cost: Cost, tally: Tally) -> float:
    missed, alarmed = (
        1 - np.average(tally.values, weights=tally.positive),
        np.average(tally.values, weights=tally.negative),
    )
    base_rate = tally.positive.sum() / tally.total
    return float({"fnr": missed, "fpr": alarmed, "weighted": base_rate * missed + (1 - base_rate) * alarmed}[cost])
