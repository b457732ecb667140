"""Families of regressions and programmes: caps, many caps, server, equalities, polyhedra, linear and unbounded objectives."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.optimize

import fedpact as fp
from campaign.classification import Config, average, cap
from campaign.data import regression, transform
from campaign.formulas import Formulas, Row, Term
from campaign.levels import MARGIN, caps
from campaign.statement import Known, Stated, seed_of, tables

SQUARED = fp.squared_loss(fp.linear())


def excess(params: Any, rows: Any) -> Any:
    """½(u·w − v)² − limit."""
    return 0.5 * (rows["u"] @ params["w"] - rows["v"]) ** 2 - rows["limit"]


def distance(params: Any, rows: Any) -> Any:
    """u·w − v."""
    return rows["u"] @ params["w"] - rows["v"]


def norm_excess(params: Any, rows: Any) -> Any:
    return jnp.sum(params["w"] ** 2) - rows["norm"][0]


def bowl(w: Any, rows: Any) -> Any:
    return 0.5 * (rows["x"] @ w - rows["y"]) ** 2


def slope(w: Any, rows: Any) -> Any:
    return rows["c"] @ w


def line(w: Any, rows: Any) -> Any:
    return rows["a"] @ w - rows["b"]


def cone(w: Any, rows: Any) -> Any:
    """½(x·w − y)² − limit."""
    return bowl(w, rows) - rows["limit"]


def limit(w: Any, rows: Any) -> Any:
    return rows["limit"]


def with_caps(
    name: str,
    kind: str,
    seed: int,
    config: Config,
    level: str,
    each: int = 1,
    scope: str = "party",
    factors: tuple[float, float] = (1.0, 1.0),
) -> Stated:
    """Least squares with caps on the loss of other rows: `each` at every party, or at the server, with a limit on ‖w‖²."""
    n, d, rows = config
    at_server = scope == "server"
    data = regression(kind, seed_of(name, kind, seed), n + at_server, rows, d)
    for party in data:
        party["k"] = np.arange(rows) % each
    holders = data[-1:] if at_server else data
    terms = [
        Term("squared", party["u"][party["k"] == k], party["v"][party["k"] == k])
        for party in holders
        for k in range(each)
    ]
    fits = [Term("squared", party["x"], party["y"]) for party in data[:n]]
    T = Formulas(d, (*fits, *terms)).scaling
    found = caps(terms, T, level)
    for party, bounds in zip(holders, found.values.reshape(-1, each), strict=True):
        party["limit"] = bounds[party["k"]]
    by_objective, by_row = factors
    where = [None] if each == 1 else [fp.col("k") == k for k in range(each)]
    limits = [(by_row * fp.mean(excess, where=mask) <= 0).named(f"cap {k}") for k, mask in enumerate(where)]
    lines = [cap(term, float(b), by_row) for term, b in zip(terms, found.values, strict=True)]
    own = None
    if at_server:
        size = 1.0 + (float(found.point @ found.point) if found.point is not None else 0.0)
        data[-1]["norm"] = np.full(rows, size)
        limits = [c.at_server() for c in [*limits, (fp.value(norm_excess) <= 0).named("norm")]]
        lines.append(cap(Term("squared", np.sqrt(2.0 * d) * np.eye(d), np.zeros(d)), size))
        own = fp.Table(data.pop())
    problem = fp.minimize(by_objective * fp.mean(SQUARED), limits, fp.l2(1e-3 * by_objective))
    formulas = Formulas(d, average(fits, by_objective), tuple(lines), l2=1e-3 * by_objective)
    return Stated(problem, tables(data), formulas, own, known=found.known, point=found.point, why=found.why)


def equalities(name: str, kind: str, seed: int, config: Config, level: str) -> Stated:
    """Least squares where mean(u·w − v) of two sets of rows is 0 at each party: met by a known w, repeated, or contradicted."""
    n, d, rows = config
    rng = seed_of(name, kind, seed)
    data = regression(kind, rng, n, rows, d)
    k = np.arange(rows) % 2
    fits = [Term("squared", party["x"], party["y"]) for party in data]
    point = Formulas(d, tuple(fits)).scaling @ rng.normal(size=d)
    known: Known = "feasible"
    for party in data:
        party["k"] = k
        party["v"] = party["u"] @ point
    if level in ("just", "barely out", "out"):  # the last set of rows repeats the first one
        last, first = data[-1], data[0]
        last["u"][k == 1], last["v"][k == 1] = first["u"][k == 0], first["v"][k == 0]
    reach = float(np.mean([np.abs(party["u"]) @ np.abs(point) for party in data]))
    if level in ("barely out", "out"):
        known = "infeasible"
        data[-1]["v"][k == 1] += (1e-3 if level == "barely out" else 1.0) * reach
    limits = [(fp.mean(distance, where=fp.col("k") == j) == 0).named(f"balance {j}") for j in range(2)]
    problem = fp.minimize(fp.mean(SQUARED), limits, fp.l2(1e-3))
    lines = [
        Row((Term("linear", party["u"][k == j], party["v"][k == j]),), equality=True, unit=reach)
        for party in data
        for j in range(2)
    ]
    formulas = Formulas(d, average(fits), tuple(lines), l2=1e-3)
    why = "two equalities contradict each other" if known == "infeasible" else "the rows were made from a known point"
    return Stated(problem, tables(data), formulas, known=known, point=point if known == "feasible" else None, why=why)


def curved_equality(name: str, kind: str, seed: int, config: Config, level: str) -> Stated:
    """Least squares where the loss over all other rows equals a number: not convex."""
    n, d, rows = config
    data = regression(kind, seed_of(name, kind, seed), n, rows, d)
    u, v = (np.concatenate([party[c] for party in data]) for c in ("u", "v"))
    term = Term("squared", u, v)
    fits = [Term("squared", party["x"], party["y"]) for party in data]
    T = Formulas(d, (*fits, term)).scaling
    found = caps([term], T, level)
    bound = float(found.values[0])
    for party in data:
        party["limit"] = np.full(rows, bound)
    problem = fp.minimize(fp.mean(SQUARED), [(fp.mean(excess).pooled() == 0).named("loss")], fp.l2(1e-3))
    row = dataclasses.replace(cap(term, bound), equality=True)
    formulas = Formulas(d, average(fits), (row,), l2=1e-3, convex=False)
    if found.point is None:
        return Stated(problem, tables(data), formulas, known=found.known, why=found.why)
    center, ray = found.point, T @ np.ones(d)
    far: Any = scipy.optimize.brentq(lambda s: term.value(center + s * ray) - bound, 0.0, 1e6, xtol=1e-15)
    point = center + far * ray
    return Stated(problem, tables(data), formulas, known="feasible", point=point, why="on a ray from the least loss")


def polyhedron(
    name: str,
    kind: str,
    seed: int,
    config: Config,
    level: str,
    linear: bool = False,
    ball: bool = False,
    factors: tuple[float, float] = (1.0, 1.0),
) -> Stated:
    """Least squares, or a linear objective, over |mean of lines| <= limit, four at each party (`ball`: over ellipsoids)."""
    n, d, rows = config
    rng = seed_of(name, kind, seed)
    data = regression(kind, rng, n, rows, d)
    k = np.arange(rows) % 4
    fits = [Term("squared", party["x"], party["y"]) for party in data]
    ball_caps = caps(fits, Formulas(d, tuple(fits)).scaling, level)
    T = Formulas(d, tuple(fits)).scaling
    point = T @ rng.normal(size=d)
    width = {"slack": 3.0, "tight": 0.3, "just": 1e-4}.get(level, 0.01)
    known: Known | None = "infeasible" if MARGIN[level] < 0 else "feasible"
    lie = np.concatenate([party["x" if ball else "u"] for party in data])
    lie = lie if ball else lie.reshape(-1, 4, d).mean(0)
    price = rng.normal(size=len(lie)) @ lie / len(lie)  # no price on what the constraints leave free
    for i, party in enumerate(data):
        party |= {"k": k, "a": party.pop("u"), "c": np.tile(price, (rows, 1))}
        party["b"] = party["a"] @ point
        party["limit"] = np.full(rows, ball_caps.values[i] if ball else width)
    if known == "infeasible" and not ball:  # the last lines repeat the first ones, too far away
        first, last = data[0], data[-1]
        apart = 2 * width + {"barely out": 1e-3, "out": 1.0}[level]
        last["a"][k == 3], last["b"][k == 3] = first["a"][k == 0], first["b"][k == 0] + apart
    by_objective, by_row = factors
    lines: list[Row] = []
    if ball:
        limits = [(fp.mean(cone) <= 0).named("ellipsoid")]
        lines += [cap(term, float(b)) for term, b in zip(fits, ball_caps.values, strict=True)]
        known, point = ball_caps.known, ball_caps.point
    else:
        limits = [
            (by_row * (abs(fp.mean(line, where=fp.col("k") == j)) - fp.mean(limit)) <= 0).named(f"line {j}")
            for j in range(4)
        ]
        for party in data:
            for j in range(4):
                term = Term("linear", party["a"][k == j].mean(0)[None], party["b"][k == j].mean()[None])
                for sign in (by_row, -by_row):
                    lines.append(Row((dataclasses.replace(term, coefficient=sign),), -by_row * width, unit=by_row))
    objective = [Term("linear", price[None], np.zeros(1))] if linear else fits
    h, weight = (None, 0.0) if linear else (fp.l2(1e-6), 1e-6)
    problem = fp.minimize(by_objective * fp.mean(slope if linear else bowl), limits, h)
    formulas = Formulas(d, average(objective, by_objective), tuple(lines), l2=weight)
    return Stated(
        problem,
        tables(data),
        formulas,
        start=np.zeros(d),
        known=known,
        point=point if known == "feasible" else None,
        why=ball_caps.why if ball else "lines through a known point, or repeated too far away",
    )


def unbounded(name: str, kind: str, seed: int, config: Config, level: str = "") -> Stated:
    """A linear objective that falls along −w_0 for ever, over lines a·w <= b with a_0 >= 0. There are no levels."""
    n, d, rows = config
    rng = seed_of(name, kind, seed)
    change = transform(kind, rng, d)
    k = np.arange(rows) % 4
    others = np.zeros(d - 1) if seed % 3 else rng.normal(size=d - 1)
    data = []
    for _ in range(n):
        a = change(rng.normal(size=(rows, d)))
        size = np.maximum(np.abs(a).mean(0), 1e-6)
        a[:, 0] = 0.0 if seed % 2 else np.abs(a[:, 0])
        price = np.array([1.0, *others]) * size
        data.append({"a": a, "b": rng.uniform(0.1, 1.0, size=rows), "k": k, "c": np.tile(price, (rows, 1))})
    limits = [(fp.mean(line, where=fp.col("k") == j) <= 0).named(f"line {j}") for j in range(4)]
    lines = [
        Row((Term("linear", party["a"][k == j].mean(0)[None], party["b"][k == j].mean()[None]),))
        for party in data
        for j in range(4)
    ]
    objective = [Term("linear", party["c"][:1], np.zeros(1)) for party in data]
    formulas = Formulas(d, average(objective), tuple(lines))
    why = "the objective falls along -w_0, and no line minds"
    return Stated(
        fp.minimize(fp.mean(slope), limits),
        tables(data),
        formulas,
        start=np.zeros(d),
        known="unbounded",
        point=np.zeros(d),
        why=why,
    )
