"""Post-processing for fairness: decision rules on a trained model's scores with equal error rates in every group.

    Hardt, Price and Srebro, Equality of opportunity in supervised learning, NIPS 2016: `equal_opportunity`
    Pleiss, Raghavan, Wu, Kleinberg and Weinberger, On fairness and calibration, NIPS 2017: `calibrated_equal_opportunity`

Both are fitted on scores, labels and groups in one place, so over parties that do not share these they are baselines and not
federated methods; and both need the group of a row to decide about it.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

Tag = int | float | str  # a label, or the name of a group
Cost = Literal["fnr", "fpr", "weighted"]

LEAST_CHANCE = 1e-9  # thresholds of smaller probability are dropped


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class DrawnThresholds:
    """A randomised threshold rule: positive where score >= threshold, which is drawn for each row from its group's thresholds.

    Made by `equal_opportunity`.

    - `labels`: (negative, positive).
    - `thresholds`: by group, pairs (threshold, probability); a threshold of ∞ decides negative for every row.
    - `true_positive_rates`, `false_positive_rates`: by group, expected on the rows of the fit.
    - `accuracy`: expected on the rows of the fit.
    - `rows`: how many there were.
    """

    labels: tuple[Tag, Tag]
    thresholds: Mapping[Tag, tuple[tuple[float, float], ...]]
    true_positive_rates: Mapping[Tag, float]
    false_positive_rates: Mapping[Tag, float]
    accuracy: float
    rows: int

    def chances(self, scores: Any, groups: Any) -> np.ndarray:
        """The probability of a positive decision for each row.

        - `scores`: (rows,), of the same model as in the fit.
        - `groups`: (rows,), each a group of the fit.

        Returns probabilities (rows,). Raises ValueError where shapes differ, scores are not finite, or a group is unknown.
        """
        scores, of_row = _rows_of(scores, groups, tuple(self.thresholds))
        chances = np.zeros(len(scores))
        for group, rule in self.thresholds.items():
            for threshold, chance in rule:
                chances += np.where((of_row == group) & (scores >= threshold), chance, 0.0)
        return chances

    def predict(self, scores: Any, groups: Any, seed: int = 0) -> np.ndarray:
        """Decisions as labels.

        - `scores`: (rows,), of the same model as in the fit.
        - `groups`: (rows,), each a group of the fit.
        - `seed`: of the draw of thresholds (default 0).

        Returns labels (rows,). Raises ValueError as `chances` does.
        """
        probabilities = self.chances(scores, groups)
        return _as_labels(np.random.default_rng(seed).random(len(probabilities)) < probabilities, self.labels)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__}: accuracy {self.accuracy:.4f} expected on the {self.rows} rows of the fit"]
        for group, rule in self.thresholds.items():
            rules = ", ".join(
                f"score >= {t:.4g} (probability {p:.3g})" if p < 1 else f"score >= {t:.4g}" for t, p in rule
            )
            rates = f"TPR {self.true_positive_rates[group]:.4f}, FPR {self.false_positive_rates[group]:.4f}"
            lines.append(f"  group {group!r}: {rates}; {self.labels[1]!r} where {rules}")
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class MixedScores:
    """A rule that replaces the score by the base rate in a random share of one group's rows; positive where the result >= 0.5.

    Made by `calibrated_equal_opportunity`.

    - `labels`: (negative, positive).
    - `group`: the group whose scores are replaced.
    - `share`: the probability of that for a row of this group (0 to 1).
    - `base_rate`: the share of positives in this group, which is the new score.
    - `cost`: "fnr", "fpr" or "weighted", which of the generalised costs is made equal.
    - `costs`, `mixed_costs`: by group, the generalised cost on the rows of the fit, before and (expected) after.
    """

    labels: tuple[Tag, Tag]
    group: Tag
    share: float
    base_rate: float
    cost: Cost
    costs: Mapping[Tag, float]
    mixed_costs: Mapping[Tag, float]

    def mixed(self, scores: Any, groups: Any, seed: int = 0) -> np.ndarray:
        """Scores with the base rate in place of some of them.

        - `scores`: probabilities (rows,).
        - `groups`: (rows,), each a group of the fit.
        - `seed`: of the random selection of rows (default 0).

        Returns probabilities (rows,). Raises ValueError where scores are not probabilities or a group is unknown.
        """
        scores, of_row = _rows_of(scores, groups, tuple(self.costs))
        _check_probabilities(scores)
        drawn = np.random.default_rng(seed).random(len(scores)) < self.share
        return np.where((of_row == self.group) & drawn, self.base_rate, scores)

    def predict(self, scores: Any, groups: Any, seed: int = 0) -> np.ndarray:
        """Decisions as labels.

        - `scores`: probabilities (rows,).
        - `groups`: (rows,), each a group of the fit.
        - `seed`: of the random selection of rows (default 0).

        Returns labels (rows,). Raises ValueError as `mixed` does.
        """
        return _as_labels(self.mixed(scores, groups, seed) >= 0.5, self.labels)

    def __repr__(self) -> str:
        changes = ", ".join(
            f"{before:.4f} -> {self.mixed_costs[group]:.4f} in group {group!r}" for group, before in self.costs.items()
        )
        return (
            f"{type(self).__name__}: {self.cost} cost {changes}\n"
            f"  group {self.group!r}: the base rate {self.base_rate:.4f} for a share {self.share:.4f} of its rows"
        )


def equal_opportunity(
    scores: Any, labels: Any, groups: Any, *, positive: Tag | None = None, odds: bool = False
) -> DrawnThresholds:
    """Randomised thresholds by group with equal true positive rates and the least expected error on these rows.

    Group a's thresholds t have rates (FPR_a(t), TPR_a(t)), the points of its ROC curve; drawn with probabilities p_a(t) they have
    the mean rates, any point of the curve's convex hull. The rule solves

        minimise   Σ_a Σ_t p_a(t) (positives_a (1 - TPR_a(t)) + negatives_a FPR_a(t)) / n
        s.t.       Σ_t p_a(t) TPR_a(t) the same for all a,   p_a >= 0,   Σ_t p_a(t) = 1

    a linear programme over the vertices of the hulls (Hardt, Price and Srebro, 2016).

    - `scores`: finite numbers (rows,), larger for more positive.
    - `labels`: (rows,), two different values.
    - `groups`: (rows,), at least two different values, each with both labels.
    - `positive`: the value of a positive label (default: the larger one).
    - `odds`: also equal false positive rates, that is, equalised odds (default False).

    Returns a `DrawnThresholds`. Raises ValueError or TypeError where an argument is not of this form.

        rule = fp.postprocess.equal_opportunity(result.scores(table), table["y"], table["group"])
        decisions = rule.predict(result.scores(new), new["group"])
    """
    scores, is_positive, of_row, pair = _fitting(scores, labels, groups, positive)
    names = [name.item() for name in np.unique(of_row)]
    curves = {name: _roc_hull(scores[of_row == name], is_positive[of_row == name]) for name in names}
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
    """Equal generalised cost in two groups by mixing in the base rate, which keeps calibrated scores calibrated.

    For a group a with scores s in [0, 1] and base rate μ_a, the share of positives among its rows,

        fnr_a = mean(1 - s | positive),   fpr_a = mean(s | negative),   weighted_a = μ_a fnr_a + (1 - μ_a) fpr_a

    The group with the smaller cost g gets μ_a in place of its score with probability

        α = (g_other - g_a) / (g_a(μ) - g_a),   g_a(μ) the cost of the constant score μ_a

    so that its expected cost is g_other (Pleiss and others, 2017). That needs g_other <= g_a(μ), where fnr_a(μ) = 1 - μ_a and
    fpr_a(μ) = μ_a, and fails where base rates differ too much.

    - `scores`: probabilities of the positive label (rows,); for a logistic model sigmoid(score).
    - `labels`: (rows,), two different values.
    - `groups`: (rows,), two different values, each with both labels.
    - `cost`: "fnr" (default: equal opportunity), "fpr" or "weighted".
    - `positive`: the value of a positive label (default: the larger one).
    - `strict`: raise where no mixture makes the costs equal (default True); False returns the nearest mixture.

    Returns a `MixedScores`. Raises ValueError where an argument is not of this form, or as `strict` says.
    """
    if cost not in ("fnr", "fpr", "weighted"):
        raise ValueError(f"calibrated_equal_opportunity(cost={cost!r}): 'fnr', 'fpr' or 'weighted'")
    scores, is_positive, of_row, pair = _fitting(scores, labels, groups, positive)
    _check_probabilities(scores)
    names = [name.item() for name in np.unique(of_row)]
    if len(names) != 2:
        raise ValueError(f"groups holds {_some(names)}; calibrated_equal_opportunity takes two groups")
    costs = {name: _cost(cost, scores[of_row == name], is_positive[of_row == name]) for name in names}
    better, worse = sorted(names, key=lambda name: costs[name])
    base_rate = float(is_positive[of_row == better].mean())
    flat = _cost(cost, np.full(int((of_row == better).sum()), base_rate), is_positive[of_row == better])
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
    true, false, positives = true[corners], false[corners], int(positive.sum())
    return _Curve(thresholds, true / positives, false / (len(scores) - positives), positives - true + false)


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
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"scores, labels and groups must have one entry per row each, but their shapes are {listed}")
    _check_numbers(scores)
    values = [value.item() for value in np.unique(labels)]
    if len(values) != 2:
        raise ValueError(f"labels holds {_some(values)}; two different labels are required")
    chosen: Tag = values[1] if positive is None else positive
    if chosen not in values:
        raise ValueError(f"positive={positive!r}: labels holds {_some(values)}")
    names = [name.item() for name in np.unique(groups)]
    if len(names) < 2:
        raise ValueError(f"groups holds {_some(names)} only; at least two groups are required")
    for name in names:
        for label in values:
            if not ((groups == name) & (labels == label)).any():
                raise ValueError(
                    f"group {name!r} has no row with the label {label!r}, so it has no rates to make equal"
                )
    (negative,) = (label for label in values if label != chosen)
    return scores.astype(float), labels == chosen, groups, (negative, chosen)


def _rows_of(scores: Any, groups: Any, known: tuple[Tag, ...]) -> tuple[np.ndarray, np.ndarray]:
    scores, groups = np.asarray(scores), np.asarray(groups)
    if scores.ndim != 1 or scores.shape != groups.shape:
        raise ValueError(
            f"scores and groups must have one entry per row each, but have shapes {scores.shape} and {groups.shape}"
        )
    _check_numbers(scores)
    strange = groups[~np.isin(groups, known)]
    if len(strange):
        raise ValueError(f"groups holds {strange[0].item()!r}, which is not a group of the fit: {_some(list(known))}")
    return scores.astype(float), groups


def _check_numbers(scores: np.ndarray) -> None:
    if scores.dtype.kind not in "iuf":
        raise TypeError(f"scores holds {scores.dtype}; numbers are required")
    wrong = int((~np.isfinite(scores)).sum())
    if wrong:
        raise ValueError(f"scores holds {wrong} values that are NaN or infinite in {len(scores)} rows")


def _check_probabilities(scores: np.ndarray) -> None:
    if len(scores) and not (scores.min() >= 0 and scores.max() <= 1):
        raise ValueError(
            f"scores go from {scores.min():.4g} to {scores.max():.4g}, but probabilities are required; for a logistic model "
            "take 1 / (1 + exp(-score))"
        )


def _as_labels(positive: np.ndarray, labels: tuple[Tag, Tag]) -> np.ndarray:
    negative, other = labels
    return np.where(positive, np.asarray(other), np.asarray(negative))


def _some(values: list[Any]) -> str:
    return ", ".join(map(repr, values[:5])) + (", …" if len(values) > 5 else "")
