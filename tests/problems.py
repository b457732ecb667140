"""Convex problems whose primal and dual solution an independent solver gives.

Every case states its problem twice: with fedpact, over a federation, and with cvxpy, for Clarabel. Conventions that the
second statement has to share: parties' objectives are averaged unless pooled, `fp.l2(a)` is a‖w‖², `fp.squared_loss` is
½(score − y)², and multipliers belong to g <= 0 (or g == 0) in the Lagrangian objective + Σ μg. Scalar rows stand in the
order of the constraints; a two-sided constraint gives its upper row first.

Bounds sit in the data where they can (columns `limit`), so that cases of one structure share their compiled programs.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import cvxpy as cp
import jax.numpy as jnp
import numpy as np
import scipy.optimize

import fedpact as fp

MODEL = fp.linear()
SQUARED = fp.squared_loss(MODEL)
LOGISTIC = fp.logistic_loss(fp.linear(bias=True))
NEAR = 1e-5  # what Clarabel finds smaller than this is zero


@dataclasses.dataclass(frozen=True)
class Stated:
    """The problem in cvxpy: objective with regulariser, and scalar g <= 0 (or g == 0) by holder."""

    objective: Any
    party: Sequence[Sequence[Any]] = ()
    server: Sequence[Any] = ()
    pooled: Sequence[Any] = ()
    box: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True)
class Optimum:
    """Clarabel's solution; multipliers as in a certificate."""

    w: np.ndarray
    objective: float
    party: np.ndarray
    server: np.ndarray
    pooled: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """One problem over one federation, and its second statement as a function of a cvxpy variable of `size` entries."""

    name: str
    problem: fp.Problem
    parties: fp.Parties
    size: int
    stated: Callable[[cp.Variable], Stated]
    server: fp.Table | None = None
    unique: bool = True  # the multipliers are
    sparse: bool = False  # the solution has exact zeros

    @property
    def start(self) -> np.ndarray | None:
        return np.zeros(self.size) if self.problem.model is None else None

    @property
    def pooled(self) -> bool:
        return any(c.scope == "pooled" for c in self.problem.constraints)

    def solve(self, method: fp.Algorithm | None, tolerance: float, **options: Any) -> fp.Result:
        return fp.solve(
            self.problem, self.parties, method, server=self.server, start=self.start, tolerance=tolerance, **options
        )

    @functools.cached_property
    def optimum(self) -> Optimum:
        w = cp.Variable(self.size)
        stated = self.stated(w)
        holders = ([c for rows in stated.party for c in rows], stated.server, stated.pooled)
        held = [c for rows in holders for c in rows]
        inside = [w >= stated.box[0], w <= stated.box[1]] if stated.box else []
        problem = cp.Problem(cp.Minimize(stated.objective), [*held, *inside])
        problem.solve(cp.CLARABEL)
        assert problem.status == cp.OPTIMAL, f"{self.name}: Clarabel says {problem.status}"
        mu = polished(w, stated, held, np.array([*([0.0] if self.sparse else []), *stated.box]))
        party, server, pooled = np.split(mu, np.cumsum([len(rows) for rows in holders])[:-1])
        return Optimum(w.value, float(stated.objective.value), party.reshape(len(self.parties), -1), server, pooled)


def slope(expression: Any, w: cp.Variable) -> np.ndarray:
    return expression.grad[w].toarray().ravel()


def polished(w: cp.Variable, stated: Stated, held: list[Any], kinks: np.ndarray) -> np.ndarray:
    """Multipliers of `held`, and w.value, to rounding.

    Under quadratic constraints an interior point is good to 1e-6 only. So go on with Newton's method on the optimality
    conditions, where the active constraints and the coordinates at a kink (a zero of l1, an end of the box) are known.
    """
    active = [isinstance(c, cp.constraints.Equality) or np.sum(c.dual_value) > NEAR for c in held]
    close = np.abs(w.value[:, None] - kinks) < NEAR
    free = ~close.any(axis=1)
    point, mu = w.value.copy(), np.zeros(len(held))
    point[~free] = kinks[close[~free].argmax(axis=1)] if kinks.size else 0.0
    touching = [c for c, mine in zip(held, active, strict=True) if mine]
    straight = [slope(c.expr, w) if c.expr.is_affine() else None for c in touching]  # once, as it takes milliseconds

    def conditions(z: np.ndarray) -> np.ndarray:
        point[free], mu[active] = z[: free.sum()], z[free.sum() :]
        w.value = point
        slopes = [slope(c.expr, w) if known is None else known for c, known in zip(touching, straight, strict=True)]
        gradient = slope(stated.objective, w) + sum(m * each for m, each in zip(mu[active], slopes, strict=True))
        return np.concatenate([gradient[free], [c.expr.value for c in touching]])

    first = np.concatenate([point[free], [np.sum(c.dual_value) for c in touching]])
    found = scipy.optimize.root(conditions, first, tol=1e-13)
    assert np.abs(conditions(found.x)).max() < 1e-11, found.message
    assert np.abs(found.x - first).max() < 100 * NEAR * (1 + np.abs(first).max()), "polishing has left Clarabel's point"
    return mu


# rows


def regression(seed: int, sizes: Sequence[int], limits: Sequence[float], d: int = 5) -> list[fp.Table]:
    """Rows x, y to be fitted; rows u, v whose loss is to stay below `limit`."""
    rng = np.random.default_rng(seed)
    truth, other = rng.normal(size=(2, d)) * np.linspace(2.0, 0.2, d)
    tables = []
    for rows, limit in zip(sizes, limits, strict=True):
        x, u = rng.normal(size=(2, rows, d))
        y, v = x @ truth + 0.3 * rng.normal(size=rows), u @ (truth + 0.5 * other) + 0.3 * rng.normal(size=rows)
        tables.append(fp.Table(x=x, y=y, u=u, v=v, limit=np.full(rows, limit)))
    return tables


def classes(seed: int, sizes: Sequence[int], d: int = 3, distance: float = 1.0) -> list[fp.Table]:
    """Two overlapping classes, which lie a little differently at each party; both are there at every one."""
    rng = np.random.default_rng(seed)
    direction = distance * rng.normal(size=d) / np.sqrt(d)
    tables = []
    for rows in sizes:
        y = np.arange(rows) % 2
        x = rng.normal(size=(rows, d)) + np.where(y == 1, 1.0, -1.0)[:, None] * direction + 0.3 * rng.normal(size=d)
        tables.append(fp.Table(x=x, y=y))
    return tables


def quadratics(seed: int, parties: int = 2, d: int = 5, lines: int = 2) -> list[fp.Table]:
    """One row per party: Q positive definite, q, and lines a·w − b that pass near the origin."""
    rng = np.random.default_rng(seed)
    tables = []
    for _ in range(parties):
        root = rng.normal(size=(d, d)) / np.sqrt(d)
        columns = {"Q": root @ root.T + 0.3 * np.eye(d), "q": 2 * rng.normal(size=d)}
        columns |= {"a": rng.normal(size=(lines, d)), "b": 0.3 * rng.normal(size=lines)}
        tables.append(fp.Table({name: column[None] for name, column in columns.items()}))
    return tables


# functions of (parameters, rows), one number per row


def excess(params: Any, rows: Any) -> Any:
    """½(u·w − v)² − limit."""
    return 0.5 * (rows["u"] @ params["w"] - rows["v"]) ** 2 - rows["limit"]


def shortfall(params: Any, rows: Any) -> Any:
    """limit − ½(u·w − v)²: concave, to be kept above a bound."""
    return -excess(params, rows)


def gap(params: Any, rows: Any) -> Any:
    """u·w − v."""
    return rows["u"] @ params["w"] - rows["v"]


def bowl(w: Any, rows: Any) -> Any:
    """½ wᵀQw + q·w."""
    return jnp.einsum("rij,i,j->r", rows["Q"], 0.5 * w, w) + rows["q"] @ w


def ball(w: Any, rows: Any) -> Any:
    """‖w − 0.3 a₀‖² − ½, a₀ the first line's normal."""
    return jnp.sum((w - 0.3 * rows["a"][:, 0]) ** 2, axis=1) - 0.5


def first(w: Any, rows: Any) -> Any:
    return rows["a"][:, 0] @ w - rows["b"][:, 0]


def second(w: Any, rows: Any) -> Any:
    return rows["a"][:, 1] @ w - rows["b"][:, 1]


# the same in cvxpy


def cp_squared(w: Any, *tables: fp.Table) -> Any:
    """The mean of ½(x·w − y)² over the rows of these tables."""
    x, y = (np.concatenate([t[name] for t in tables]) for name in ("x", "y"))
    return cp.sum_squares(x @ w - y) / (2 * len(y))


def cp_excess(w: Any, *tables: fp.Table) -> Any:
    u, v, limit = (np.concatenate([t[name] for t in tables]) for name in ("u", "v", "limit"))
    return cp.sum_squares(u @ w - v) / (2 * len(v)) - limit.mean()


def cp_gap(w: Any, *tables: fp.Table) -> Any:
    u, v = (np.concatenate([t[name] for t in tables]) for name in ("u", "v"))
    return u.mean(0) @ w - v.mean()


def cp_logistic(w: Any, tables: Sequence[fp.Table], label: int | None = None) -> Any:
    """The mean logistic loss over the rows with this label (default: all); w[0] is the bias."""
    x, y = (np.concatenate([t[name] for t in tables]) for name in ("x", "y"))
    mine = np.ones(len(y), bool) if label is None else y == label
    sign = np.where(y == 1, -1.0, 1.0)[mine]
    return cp.sum(cp.logistic(cp.multiply(sign, x[mine] @ w[1:] + w[0]))) / mine.sum()


def cp_bowl(w: Any, t: fp.Table) -> Any:
    return 0.5 * cp.quad_form(w, t["Q"][0], assume_PSD=True) + t["q"][0] @ w


def cp_line(w: Any, t: fp.Table, k: int) -> Any:
    return t["a"][0, k] @ w - t["b"][0, k]


def average(values: Sequence[Any]) -> Any:
    return sum(values[1:], values[0]) / len(values)


# the table

SIZES = (15, 12, 14)
TIGHT, LOOSE = (0.2, 0.25, 0.14), (50.0, 50.0, 50.0)


def _limited(
    name: str,
    h: Any,
    cp_h: Callable[[Any], Any],
    limits: Sequence[float] = TIGHT,
    box: tuple[float, ...] = (),
    sparse: bool = False,
) -> Case:
    """Least squares under a loss limit at each party, with a regulariser."""
    tables = regression(1, SIZES, limits)
    return Case(
        name,
        fp.minimize(fp.mean(SQUARED), [(fp.mean(excess) <= 0.0).named("limit")], h),
        fp.split_rows(tables),
        5,
        lambda w: Stated(
            average([cp_squared(w, t) for t in tables]) + cp_h(w),
            party=[[cp_excess(w, t) <= 0] for t in tables],
            box=box,
        ),
        sparse=sparse,
    )


def _quadratic(name: str, constraints: list[fp.Constraint], rows: Callable[[Any, fp.Table], list[Any]]) -> Case:
    """A quadratic program: `rows(w, table)` states a party's constraints."""
    tables = quadratics(2)
    return Case(
        name,
        fp.minimize(fp.mean(bowl), constraints),
        fp.split_rows(tables),
        5,
        lambda w: Stated(average([cp_bowl(w, t) for t in tables]), party=[rows(w, t) for t in tables]),
    )


def _neyman_pearson() -> Case:
    tables = classes(30, (24, 20, 22, 21))
    return Case(
        "Neyman-Pearson",
        fp.minimize(
            fp.mean(LOGISTIC, where=fp.col("y") == 0),
            [
                (fp.mean(LOGISTIC, where=fp.col("y") == 1) <= 0.3).named("missed"),
                (fp.mean(LOGISTIC, where=fp.col("y") == 0) <= 0.9).named("false"),
            ],
            fp.l2(0.01),
        ),
        fp.split_rows(tables),
        4,
        lambda w: Stated(
            average([cp_logistic(w, [t], 0) for t in tables]) + 0.01 * cp.sum_squares(w),
            party=[[cp_logistic(w, [t], 1) <= 0.3, cp_logistic(w, [t], 0) <= 0.9] for t in tables],
        ),
    )


def _twice() -> Case:
    """One limit, stated from both sides: the two multipliers are not unique, their sum is."""
    tables = regression(1, SIZES, TIGHT)
    limits = [(fp.mean(excess) <= 0.0).named("at most"), (fp.mean(shortfall) >= 0.0).named("at least")]
    return Case(
        "the same limit twice",
        fp.minimize(fp.mean(SQUARED), limits),
        fp.split_rows(tables),
        5,
        lambda w: Stated(average([cp_squared(w, t) for t in tables]), party=[[cp_excess(w, t) <= 0] for t in tables]),
        unique=False,
    )


def _pooled() -> tuple[Case, Case]:
    """A limit and a balance over all rows; and the same rows at one party, where both are its own."""
    tables = regression(5, SIZES, (0.1, 0.2, 0.15))
    whole = fp.Table({name: np.concatenate([t[name] for t in tables]) for name in tables[0].columns})
    loss, limit, balance = fp.mean(SQUARED), (fp.mean(excess) <= 0.0).named("limit"), fp.mean(gap) == 0.1
    balance = balance.named("balance")
    return (
        Case(
            "pooled",
            fp.minimize(loss.pooled(), [limit.pooled(), balance.pooled()]),
            fp.split_rows(tables),
            5,
            lambda w: Stated(
                cp_squared(w, *tables), pooled=[cp_excess(w, *tables) <= 0, cp_gap(w, *tables) - 0.1 == 0]
            ),
        ),
        Case(
            "single party",
            fp.minimize(loss, [limit, balance]),
            fp.split_rows([whole]),
            5,
            lambda w: Stated(cp_squared(w, whole), party=[[cp_excess(w, whole) <= 0, cp_gap(w, whole) - 0.1 == 0]]),
        ),
    )


def _server_norm() -> Case:
    tables = regression(8, SIZES, TIGHT)
    return Case(
        "server norm without rows",
        fp.minimize(fp.mean(SQUARED), [(fp.value(fp.squared_norm) <= 1.0).at_server().named("norm")]),
        fp.split_rows(tables),
        5,
        lambda w: Stated(average([cp_squared(w, t) for t in tables]), server=[cp.sum_squares(w) <= 1.0]),
    )


def _unequal() -> Case:
    sizes = (9, 80, 66, 8, 70, 65, 8)
    tables = regression(42, sizes, (0.1, 0.08, 0.06, 0.1, 0.06, 0.1, 0.1), d=3)
    return Case(
        "seven unequal parties",
        fp.minimize(fp.mean(SQUARED).pooled(), [(fp.mean(excess) <= 0.0).named("limit")], fp.l2(0.01)),
        fp.split_rows(tables),
        3,
        lambda w: Stated(
            cp_squared(w, *tables) + 0.01 * cp.sum_squares(w), party=[[cp_excess(w, t) <= 0] for t in tables]
        ),
    )


def _everything() -> Case:
    *tables, own = regression(25, (*SIZES, 10), (0.35, 0.35, 0.35, 0.3))
    return Case(
        "everything at once",
        fp.minimize(
            fp.mean(SQUARED).pooled(),
            [
                (fp.mean(excess) <= 0.0).named("each party"),
                (abs(fp.mean(gap)).pooled() <= 0.05).named("all rows"),
                (fp.mean(excess).at_server() <= 0.0).named("regulator"),
                (fp.value(fp.squared_norm) <= 2.5).at_server().named("norm"),
            ],
            fp.l1(0.2) + fp.l2(0.01),
        ),
        fp.split_rows(tables),
        5,
        lambda w: Stated(
            cp_squared(w, *tables) + 0.2 * cp.norm1(w) + 0.01 * cp.sum_squares(w),
            party=[[cp_excess(w, t) <= 0] for t in tables],
            server=[cp_excess(w, own) <= 0, cp.sum_squares(w) <= 2.5],
            pooled=[cp_gap(w, *tables) - 0.05 <= 0, -cp_gap(w, *tables) - 0.05 <= 0],
        ),
        own,
    )


GROUPS = ((0, 1), (2, 3), (4,))

CASES = {
    case.name: case
    for case in (
        _quadratic(
            "equalities",
            [(fp.mean(first) == 0.0).named("one"), (fp.mean(second) == 0.0).named("two")],
            lambda w, t: [cp_line(w, t, 0) == 0, cp_line(w, t, 1) == 0],
        ),
        _quadratic(
            "half-spaces",
            [(fp.mean(first) <= 0.0).named("low"), (fp.mean(second) >= 0.0).named("high")],
            lambda w, t: [cp_line(w, t, 0) <= 0, -cp_line(w, t, 1) <= 0],
        ),
        _quadratic(
            "two-sided",
            [fp.mean(first).between(-0.4, 0.3).named("between"), (abs(fp.mean(second)) <= 0.5).named("abs")],
            lambda w, t: [
                cp_line(w, t, 0) - 0.3 <= 0,
                -0.4 - cp_line(w, t, 0) <= 0,
                cp_line(w, t, 1) - 0.5 <= 0,
                -cp_line(w, t, 1) - 0.5 <= 0,
            ],
        ),
        _quadratic(
            "norm limits",
            [(fp.mean(ball) <= 0.0).named("ball")],
            lambda w, t: [cp.sum_squares(w - 0.3 * t["a"][0, 0]) - 0.5 <= 0],
        ),
        _limited("local limit", fp.l2(0.05), lambda w: 0.05 * cp.sum_squares(w)),
        _limited("inactive limit", fp.l2(0.0), lambda w: 0.0, LOOSE),
        _limited("lasso", fp.l1(0.4), lambda w: 0.4 * cp.norm1(w), sparse=True),
        _limited("box", fp.box(-0.6, 1.0), lambda w: 0.0, box=(-0.6, 1.0)),
        _limited(
            "l1 and box",
            fp.l1(0.6) + fp.box(-0.6, 1.0),
            lambda w: 0.6 * cp.norm1(w),
            box=(-0.6, 1.0),
            sparse=True,
        ),
        _limited(
            "elastic net",
            fp.l1(0.5) + fp.l2(0.05),
            lambda w: 0.5 * cp.norm1(w) + 0.05 * cp.sum_squares(w),
            sparse=True,
        ),
        _limited(
            "group lasso",
            fp.group(0.3, groups=GROUPS),
            lambda w: 0.3 * sum(cp.norm2(w[list(g)]) for g in GROUPS),
            sparse=True,
        ),
        _twice(),
        *_pooled(),
        _neyman_pearson(),
        _server_norm(),
        _unequal(),
        _everything(),
    )
}
