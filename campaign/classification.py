"""Families of two classes: Neyman-Pearson with its regularisers, hinge, one parameter, gaps, rates, no minimum."""

import dataclasses
from typing import Any

import numpy as np

import fedpact as fp
from campaign.data import classes, with_one
from campaign.formulas import Formulas, Kind, Row, Term
from campaign.levels import caps
from campaign.statement import Stated, seed_of, tables

BIASED, PLAIN = fp.linear(bias=True), fp.linear()
POSITIVE, NEGATIVE = fp.col("y") == 1, fp.col("y") == 0
Parties = list[dict[str, Any]]
Config = tuple[int, int, int]  # parties, columns, rows at each


def limit_missed(params: Any, rows: Any) -> Any:
    """Bounds sit in the data, so that problems of one shape share their compiled programs."""
    return rows["limit_missed"]


def limit_false(params: Any, rows: Any) -> Any:
    return rows["limit_false"]


def limit_gap(params: Any, rows: Any) -> Any:
    return rows["limit_gap"]


def rows_of(data: Parties, bias: bool) -> list[tuple[np.ndarray, np.ndarray]]:
    """Columns of the flat parameters, and labels ±1, by party."""
    return [(with_one(p["x"]) if bias else p["x"], np.where(p["y"] == 1, 1.0, -1.0)) for p in data]


def by_class(data: Parties, label: int, bias: bool, kind: Kind = "logistic", parameter: float = 1.0) -> list[Term]:
    """The mean loss of a class at each party."""
    return [Term(kind, A[t == label], t[t == label], parameter=parameter) for A, t in rows_of(data, bias)]


def average(terms: list[Term], factor: float = 1.0) -> tuple[Term, ...]:
    return tuple(dataclasses.replace(t, coefficient=t.coefficient * factor / len(terms)) for t in terms)


def cap(term: Term, bound: float, factor: float = 1.0) -> Row:
    """factor · (term - bound) <= 0."""
    unit = abs(factor) * max(abs(bound), 1e-9)
    return Row((dataclasses.replace(term, coefficient=factor * term.coefficient),), -factor * bound, unit=unit)


def neyman_pearson(
    name: str,
    kind: str,
    seed: int,
    config: Config,
    level: str,
    h: str = "l2",
    loss: Kind = "logistic",
    width: float = 1.0,
    bias: bool = True,
    factors: tuple[float, float] = (1.0, 1.0),
) -> Stated:
    """Class 0's loss is minimised, class 1's bounded at each party, and class 0's too where the level needs it.

    `factors` multiply the objective and the constraints.
    """
    n, d, rows = config
    data = classes(kind, seed_of(name, kind, seed), n, rows, d)
    missed = by_class(data, 1, bias, loss, width)
    false = by_class(data, -1, bias, loss, width)
    size = d + bias
    T = Formulas(size, (*missed, *false)).scaling
    boxed = h == "l1 box" and level == "out" and seed % 2 == 1  # the caps can be met, but far outside the box
    found = caps([*missed, *false], T, "tight" if boxed else level)
    bounds = found.values
    if level in ("slack", "tight"):
        bounds[n:] = 10 * np.maximum(bounds[n:], 1.0)  # does not bind
    for i, party in enumerate(data):
        party["limit_missed"], party["limit_false"] = np.full(rows, bounds[i]), np.full(rows, bounds[n + i])
    model = BIASED if bias else PLAIN
    measured = fp.logistic_loss(model) if loss == "logistic" else fp.smoothed_hinge_loss(model, width=width)
    by_objective, by_row = factors
    regularizer, parts = _regularizer(h, size, d, found.point, 0.01 if boxed else 2.0)
    problem = fp.minimize(
        by_objective * fp.mean(measured, where=NEGATIVE),
        [
            (by_row * (fp.mean(measured, where=POSITIVE) - fp.mean(limit_missed)) <= 0).named("missed"),
            (by_row * (fp.mean(measured, where=NEGATIVE) - fp.mean(limit_false)) <= 0).named("false"),
        ],
        regularizer,
    )
    limits = [cap(term, b, by_row) for term, b in zip([*missed, *false], bounds, strict=True)]
    formulas = Formulas(size, average(false, by_objective), tuple(limits), **parts)
    if boxed:
        return Stated(problem, tables(data), formulas)
    return Stated(problem, tables(data), formulas, known=found.known, point=found.point, why=found.why)


def _regularizer(h: str, size: int, d: int, point: np.ndarray | None, room: float) -> tuple[Any, dict[str, Any]]:
    if h == "l1 box":
        reach = max(room * float(np.max(np.abs(point))), 1e-3) if point is not None else 10.0
        return fp.l1(0.01) + fp.box(-reach, reach), {"l1": 0.01, "lower": -reach, "upper": reach}
    if h == "group":
        listed = [list(range(k, min(k + 2, d))) for k in range(0, d, 2)]
        own = tuple(tuple(size - d + i for i in g) for g in listed)
        return fp.group(0.02, groups=listed), {"groups": own, "weight": 0.02}
    return fp.l2(1e-3), {"l2": 1e-3}


def gap(name: str, kind: str, seed: int, config: Config, level: str, pooled: bool) -> Stated:
    """The loss over all rows, which is capped, with a limit on the gap between two groups' losses among positives."""
    n, d, rows = config
    rng = seed_of(name, kind, seed)
    data = classes(kind, rng, n, rows, d)
    A, t = (np.concatenate(part) for part in zip(*rows_of(data, True), strict=True))
    whole = Term("logistic", A, t)
    T = Formulas(d + 1, (whole,)).scaling
    found = caps([whole], T, level)
    out = level in ("barely out", "out")
    bound = float(found.values[0]) if out else 10.0
    limit = {"slack": 1.0, "tight": 0.02, "just": 1e-4}.get(level, 0.05)
    for party in data:
        party["limit_gap"], party["limit_false"] = np.full(rows, limit), np.full(rows, bound)
    measured = fp.logistic_loss(BIASED)
    distance = fp.equal_opportunity_gap(measured, group="g") - fp.mean(limit_gap)
    problem = fp.minimize(
        fp.mean(measured).pooled(),
        [
            ((distance.pooled() if pooled else distance) <= 0).named("gap"),
            ((fp.mean(measured) - fp.mean(limit_false)).pooled() <= 0).named("loss"),
        ],
        fp.l2(1e-3),
    )
    lines = [cap(whole, bound)]
    holders = [data] if pooled else [[party] for party in data]
    for held in holders:
        A, t = (np.concatenate(part) for part in zip(*rows_of(held, True), strict=True))
        g = np.concatenate([party["g"] for party in held])
        first, second = (Term("logistic", A[(t > 0) & (g == k)], t[(t > 0) & (g == k)]) for k in (0, 1))
        for sign in (1.0, -1.0):
            pair = (dataclasses.replace(first, coefficient=sign), dataclasses.replace(second, coefficient=-sign))
            lines.append(Row(pair, -limit))
    formulas = Formulas(d + 1, (whole,), tuple(lines), l2=1e-3, convex=False)
    if out:
        return Stated(problem, tables(data), formulas, known=found.known, why=found.why)
    return Stated(
        problem, tables(data), formulas, known="feasible", point=np.zeros(d + 1), why="no gap at w = 0, loss log 2"
    )


def rates(
    name: str,
    kind: str,
    seed: int,
    config: Config,
    level: str,
    temperature: float,
    factors: tuple[float, float] = (1.0, 1.0),
) -> Stated:
    """Class 0's loss under a lower bound on the smooth positive rate of class 1 and an upper one of class 0, at each party."""
    n, d, rows = config
    rng = seed_of(name, kind, seed)
    data = classes(kind, rng, n, rows, d, distance=1.5)
    why, known, point = "", "feasible", None
    hit, alarm = {"slack": (0.5, 1.5), "tight": (0.9, 1.5), "just": (0.95, 0.6)}.get(level, (0.9, 0.4))
    if level == "out":
        hit, known, why = 1.02, "infeasible", "a rate is to exceed 1"
    elif level == "barely out":
        first, last = data[0], data[-1]
        if n == 1:  # the same rows in both classes
            first["x"][first["y"] == 0] = first["x"][first["y"] == 1]
        else:
            last["x"][last["y"] == 0] = first["x"][first["y"] == 1]
        known, why = "infeasible", "the same rows are to have a rate above 0.9 and below 0.4"
    elif level != "just":
        point = np.zeros(d + 1)
        point[0] = 20.0 * temperature
        why = "a large intercept has rate 1"
    for party in data:
        party["limit_missed"], party["limit_false"] = np.full(rows, hit), np.full(rows, alarm)
    measured, rate = fp.logistic_loss(BIASED), fp.positive_rate(BIASED, temperature=temperature)
    by_objective, by_row = factors
    problem = fp.minimize(
        by_objective * fp.mean(measured, where=NEGATIVE),
        [
            (by_row * (fp.mean(rate, where=POSITIVE) - fp.mean(limit_missed)) >= 0).named("hits"),
            (by_row * (fp.mean(rate, where=NEGATIVE) - fp.mean(limit_false)) <= 0).named("alarms"),
        ],
        fp.l2(1e-3),
    )
    hits = [cap(term, hit, -by_row) for term in by_class(data, 1, True, "rate", temperature)]
    alarms = [cap(term, alarm, by_row) for term in by_class(data, -1, True, "rate", temperature)]
    objective = average(by_class(data, -1, True), by_objective)
    formulas = Formulas(d + 1, objective, (*hits, *alarms), l2=1e-3, convex=False)
    known = None if known == "feasible" and point is None else known
    return Stated(problem, tables(data), formulas, known=known, point=point, why=why)


def without_minimum(name: str, kind: str, seed: int, config: Config, level: str = "") -> Stated:
    """Separable classes and no regulariser: the loss falls to 0 at infinity only. There are no levels."""
    n, d, rows = config
    data = classes("separable", seed_of(name, kind, seed), n, rows, d)
    scale = {"huge": 1e4, "tiny": 1e-4}.get(kind, 1.0)
    for party in data:
        party["x"] = scale * party["x"]
        party["limit_missed"] = np.full(rows, (0.5, 0.05)[seed % 2])
    measured = fp.logistic_loss(BIASED)
    problem = fp.minimize(
        fp.mean(measured), [(fp.mean(measured, where=POSITIVE) - fp.mean(limit_missed) <= 0).named("missed")]
    )
    everyone = [Term("logistic", A, t) for A, t in rows_of(data, True)]
    limits = [cap(term, float(data[0]["limit_missed"][0])) for term in by_class(data, 1, True)]
    formulas = Formulas(d + 1, average(everyone), tuple(limits))
    return Stated(problem, tables(data), formulas, known="not attained", why="the classes are separable")
