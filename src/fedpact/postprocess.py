"""Fairness after training: decisions from held scores that are equally good for every group.

    Hardt, Price and Srebro, Equality of opportunity in supervised learning, NIPS 2016: `equal_opportunity`
    Pleiss, Raghavan, Wu, Kleinberg and Weinberger, On fairness and calibration, NIPS 2017: `calibrated_equal_opportunity`

Both are fitted on scores, labels and groups in one place, so over parties who share none of them they are baselines, not
methods; and both need a row's group when they decide about it.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

Tag = int | float | str  # a label, or the name of a group
Cost = Literal["fnr", "fpr", "weighted"]

LEAST_CHANCE = 1e-9  # a threshold that is drawn more rarely is left out


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class DrawnThresholds:
    """Decides "positive" where score >= threshold, the threshold drawn for each row among those of its group.

    labels: (negative, positive).
    thresholds: for each group its thresholds with their probabilities; infinity finds nobody positive.
    true_positive_rates, false_positive_rates, accuracy: expected on the rows it was fitted on.
    """

    labels: tuple[Tag, Tag]
    thresholds: Mapping[Tag, tuple[tuple[float, float], ...]]
    true_positive_rates: Mapping[Tag, float]
    false_positive_rates: Mapping[Tag, float]
    accuracy: float
    rows: int

    def chances(self, scores: Any, groups: Any) -> np.ndarray:
        """The probability that each row is told positive."""
        scores, of_row = _rows_of(scores, groups, tuple(self.thresholds))
        chances = np.zeros(len(scores))
        for group, rule in self.thresholds.items():
            for threshold, chance in rule:
                chances += np.where((of_row == group) & (scores >= threshold), chance, 0.0)
        return chances

    def predict(self, scores: Any, groups: Any, seed: int = 0) -> np.ndarray:
        """Labels, one per row; `seed` is of the draw."""
        chances = self.chances(scores, groups)
        return _as_labels(np.random.default_rng(seed).random(len(chances)) < chances, self.labels)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__}: accuracy {self.accuracy:.4f} expected on the {self.rows} rows of the fit"]
        for group, rule in self.thresholds.items():
            told = ", ".join(
                f"score >= {t:.4g} (probability {p:.3g})" if p < 1 else f"score >= {t:.4g}" for t, p in rule
            )
            rates = f"TPR {self.true_positive_rates[group]:.4f}, FPR {self.false_positive_rates[group]:.4f}"
            lines.append(f"  group {group!r}: {rates}; {self.labels[1]!r} where {told}")
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class MixedScores:
    """Puts the base rate of one group in place of its score in a random part of its rows; "positive" from 0.5 on.

    labels: (negative, positive).
    group: the one that is mixed; `share` the part of its rows, `base_rate` what they get.
    costs, mixed_costs: for each group its generalised cost on the rows of the fit, before mixing and, expected, after it.
    """

    labels: tuple[Tag, Tag]
    group: Tag
    share: float
    base_rate: float
    cost: Cost
    costs: Mapping[Tag, float]
    mixed_costs: Mapping[Tag, float]

    def mixed(self, scores: Any, groups: Any, seed: int = 0) -> np.ndarray:
        """The scores after mixing, probabilities as before."""
        scores, of_row = _rows_of(scores, groups, tuple(self.costs))
        _check_probabilities(scores)
        drawn = np.random.default_rng(seed).random(len(scores)) < self.share
        return np.where((of_row == self.group) & drawn, self.base_rate, scores)

    def predict(self, scores: Any, groups: Any, seed: int = 0) -> np.ndarray:
        """Labels, one per row; `seed` is of the draw."""
        return _as_labels(self.mixed(scores, groups, seed) >= 0.5, self.labels)

    def __repr__(self) -> str:
        told = ", ".join(
            f"{before:.4f} -> {self.mixed_costs[group]:.4f} in group {group!r}" for group, before in self.costs.items()
        )
        return (
            f"{type(self).__name__}: {self.cost} cost {told}\n"
            f"  group {self.group!r}: the base rate {self.base_rate:.4f} for a share {self.share:.4f} of its rows"
        )


def equal_opportunity(
    scores: Any, labels: Any, groups: Any, *, positive: Tag | None = None, odds: bool = False
) -> DrawnThresholds:
    """Thresholds, drawn at random by group, that find the same part of the positives in every group.

    Among them the ones with the least expected errors on these rows. A group's thresholds t have rates (FPR_a(t), TPR_a(t)), the
    points of its ROC curve; drawn with probabilities p_a(t) they have the mean rates, any point of the curve's convex hull. So

        minimise   Σ_a Σ_t p_a(t) (positives_a (1 - TPR_a(t)) + negatives_a FPR_a(t)) / n
        s.t.       Σ_t p_a(t) TPR_a(t) the same for all a,   p_a >= 0,   Σ_t p_a(t) = 1

    a linear programme over the corners of the hulls (Hardt, Price and Srebro, 2016).

    scores: any numbers, larger for more positive; labels: two values; groups: two values or more.
    positive: the label that counts; default the larger one.
    odds: also the same FPR for all groups, that is, equalised odds (default False).
    """
    scores, told, of_row, pair = _fitting(scores, labels, groups, positive)
    names = [name.item() for name in np.unique(of_row)]
    curves = {name: _roc_hull(scores[of_row == name], told[of_row == name]) for name in names}
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
        1 - errors / len(scores),
        len(scores),
    )


def calibrated_equal_opportunity(
    scores: Any, labels: Any, groups: Any, cost: Cost = "fnr", *, positive: Tag | None = None, strict: bool = True
) -> MixedScores:
    """Equal generalised cost in two groups, with scores that stay calibrated where they were.

    For a group a with scores s in [0, 1] and base rate μ_a, the part of its rows that is positive,

        fnr_a = mean(1 - s | positive),   fpr_a = mean(s | negative),   weighted_a = μ_a fnr_a + (1 - μ_a) fpr_a

    The group with the smaller cost g gets μ_a in place of its score with probability

        α = (g_other - g_a) / (g_a(μ) - g_a),   g_a(μ) the cost of the constant score μ_a

    so that its expected cost is g_other (Pleiss and others, 2017). That needs g_other <= g_a(μ), where fnr_a(μ) = 1 - μ_a and
    fpr_a(μ) = μ_a; the more base rates differ, the less it holds.

    scores: probabilities of the positive label; of a logistic model sigmoid(score).
    cost: "fnr" (default: equal opportunity), "fpr" or "weighted".
    positive: the label that counts; default the larger one.
    strict: refuse scores whose costs no mixture makes equal (default True); False takes the mixture that comes nearest.
    """
    if cost not in ("fnr", "fpr", "weighted"):
        raise ValueError(f"calibrated_equal_opportunity(cost={cost!r}): 'fnr', 'fpr' or 'weighted'")
    scores, told, of_row, pair = _fitting(scores, labels, groups, positive)
    _check_probabilities(scores)
    names = [name.item() for name in np.unique(of_row)]
    if len(names) != 2:
        raise ValueError(f"groups holds {_some(names)}; calibrated_equal_opportunity takes two groups")
    costs = {name: _cost(cost, scores[of_row == name], told[of_row == name]) for name in names}
    better, worse = sorted(names, key=lambda name: costs[name])
    base_rate = float(told[of_row == better].mean())
    flat = _cost(cost, np.full(int((of_row == better).sum()), base_rate), told[of_row == better])
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
    """Corners of the upper hull of a ROC curve: thresholds, rates, and how many rows they get wrong."""

    thresholds: np.ndarray
    true_rates: np.ndarray
    false_rates: np.ndarray
    errors: np.ndarray


def _roc_hull(scores: np.ndarray, positive: np.ndarray) -> _Curve:
    order = np.argsort(-scores, kind="stable")
    last = np.flatnonzero(np.diff(scores[order], append=-np.inf))  # of each run of equal scores
    true = np.concatenate([[0], np.cumsum(positive[order])[last]])
    false = np.concatenate([[0], last + 1]) - true
    corners: list[int] = []
    for at in range(len(true)):
        while len(corners) >= 2:
            a, b = corners[-2:]
            turn = (true[b] - true[a]) * (false[at] - false[a]) - (false[b] - false[a]) * (true[at] - true[a])
            if turn > 0:  # b lies above the line from a to here
                break
            corners.pop()
        corners.append(at)
    thresholds = np.concatenate([[np.inf], scores[order][last]])[corners]
    true, false, found = true[corners], false[corners], int(positive.sum())
    return _Curve(thresholds, true / found, false / (len(scores) - found), found - true + false)


def _least_errors(curves: list[_Curve], odds: bool) -> list[np.ndarray]:
    """For each curve the probabilities of its corners."""
    from scipy.optimize import linprog  # its import takes longer than the rest of this module

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


def _cost(cost: Cost, scores: np.ndarray, positive: np.ndarray) -> float:
    missed, alarmed, base_rate = float(1 - scores[positive].mean()), float(scores[~positive].mean()), positive.mean()
    return {"fnr": missed, "fpr": alarmed, "weighted": float(base_rate * missed + (1 - base_rate) * alarmed)}[cost]


def _fitting(
    scores: Any, labels: Any, groups: Any, positive: Tag | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[Tag, Tag]]:
    """Scores, which rows are positive, groups, and the labels (negative, positive), all checked."""
    scores, labels, groups = np.asarray(scores), np.asarray(labels), np.asarray(groups)
    shapes = {name: array.shape for name, array in (("scores", scores), ("labels", labels), ("groups", groups))}
    if len(set(shapes.values())) > 1 or scores.ndim != 1 or not len(scores):
        told = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"scores, labels and groups have one entry a row each, but their shapes are {told}")
    _check_numbers(scores)
    found = [value.item() for value in np.unique(labels)]
    if len(found) != 2:
        raise ValueError(f"labels holds {_some(found)}; two different labels are wanted")
    chosen: Tag = found[1] if positive is None else positive
    if chosen not in found:
        raise ValueError(f"positive={positive!r}: labels holds {_some(found)}")
    names = [name.item() for name in np.unique(groups)]
    if len(names) < 2:
        raise ValueError(f"groups holds {_some(names)} only; at least two groups are wanted")
    for name in names:
        for label in found:
            if not ((groups == name) & (labels == label)).any():
                raise ValueError(
                    f"group {name!r} has no row with the label {label!r}, so it has no rates to make equal"
                )
    (negative,) = (label for label in found if label != chosen)
    return scores.astype(float), labels == chosen, groups, (negative, chosen)


def _rows_of(scores: Any, groups: Any, known: tuple[Tag, ...]) -> tuple[np.ndarray, np.ndarray]:
    scores, groups = np.asarray(scores), np.asarray(groups)
    if scores.ndim != 1 or scores.shape != groups.shape:
        raise ValueError(f"scores and groups have one entry a row each, but shapes {scores.shape} and {groups.shape}")
    _check_numbers(scores)
    strange = groups[~np.isin(groups, known)]
    if len(strange):
        raise ValueError(f"groups holds {strange[0].item()!r}, which was not there in the fit: {_some(list(known))}")
    return scores.astype(float), groups


def _check_numbers(scores: np.ndarray) -> None:
    if scores.dtype.kind not in "iuf":
        raise TypeError(f"scores holds {scores.dtype}; numbers are wanted")
    wrong = int((~np.isfinite(scores)).sum())
    if wrong:
        raise ValueError(f"scores holds {wrong} values that are NaN or infinite in {len(scores)} rows")


def _check_probabilities(scores: np.ndarray) -> None:
    if len(scores) and not (scores.min() >= 0 and scores.max() <= 1):
        raise ValueError(
            f"scores go from {scores.min():.4g} to {scores.max():.4g}, but probabilities are wanted; of a logistic model "
            "give 1 / (1 + exp(-score))"
        )


def _as_labels(positive: np.ndarray, labels: tuple[Tag, Tag]) -> np.ndarray:
    negative, other = labels
    return np.where(positive, np.asarray(other), np.asarray(negative))


def _some(values: list[Any]) -> str:
    return ", ".join(map(repr, values[:5])) + (", …" if len(values) > 5 else "")
