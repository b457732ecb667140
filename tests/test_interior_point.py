"""The interior-point method on random problems whose solution an independent solver gives, and what it says and tells."""

import re
from collections.abc import Sequence
from typing import Any

import cvxpy as cp
import jax.numpy as jnp
import numpy as np
import pytest
from problems import (
    LOGISTIC,
    SQUARED,
    Case,
    Stated,
    bowl,
    classes,
    cp_excess,
    cp_line,
    cp_logistic,
    cp_squared,
    excess,
    first,
    quadratics,
    regression,
    second,
)

import fedpact as fp
from benchmarks import sharp_rates
from fedpact.engines.exchanges import ExchangePlan
from fedpact.engines.serialization import Layout
from fedpact.settings import bind

TOLERANCE = 1e-8
MOST = 40  # rounds
THIN = 1e-4  # the width of a feasible set that is nearly empty


def apart(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference, relative to the largest entry."""
    return float(np.max(np.abs(found - wanted), initial=0.0) / max(np.max(np.abs(wanted), initial=0.0), 1e-3))


def cp_bowls(w: Any, tables: Sequence[fp.Table]) -> Any:
    """The mean of ½ wᵀQw + q·w, as one form: polishing evaluates it often."""
    form, slope = (np.mean([t[name][0] for t in tables], axis=0) for name in ("Q", "q"))
    return 0.5 * cp.quad_form(w, form, assume_PSD=True) + slope @ w


# half-spaces: d = 8, three parties

LINES = fp.minimize(fp.mean(bowl), [(fp.mean(first) <= 0.0).named("low"), (fp.mean(second) <= 0.0).named("high")])


def lines(name: str, tables: list[fp.Table], unique: bool = True) -> Case:
    """A quadratic program; where the multipliers are not unique, the second line is left out of the reference."""
    kept = (0, 1) if unique else (0,)
    return Case(
        f"lines, {name}",
        LINES,
        fp.split_rows(tables),
        8,
        lambda w: Stated(cp_bowls(w, tables), party=[[cp_line(w, t, k) <= 0 for k in kept] for t in tables]),
        unique=unique,
    )


def pulled(tables: list[fp.Table], point: np.ndarray, pull: np.ndarray) -> list[fp.Table]:
    """With q such that the mean bowl has the gradient −pull at this point."""
    slope = sum((t["Q"][0] @ point + t["q"][0] for t in tables), np.zeros_like(point))
    shift = -len(tables) * pull - slope
    return [tables[0].with_columns(q=tables[0]["q"] + shift), *tables[1:]]


def touching_lines(seed: int) -> list[fp.Table]:
    """Two lines pass through the solution: one has the multiplier 1, the other 0."""
    tables, point = quadratics(seed, 3, 8), np.random.default_rng(seed).normal(size=8)
    room = iter(([0.0, 1.0], [1.0, 0.0], [1.0, 1.0]))
    moved = [t.with_columns(b=t["a"] @ point + next(room)) for t in tables]
    return pulled(moved, point, tables[0]["a"][0, 0])


def slab(seed: int, width: float) -> list[fp.Table]:
    """Every party's lines are the two sides of one slab, which another party's crosses."""
    tables = quadratics(seed, 3, 8)
    return [
        t.with_columns(
            a=np.stack([t["a"][:, 0], -t["a"][:, 0]], axis=1), b=np.stack([t["b"][:, 0], width - t["b"][:, 0]], axis=1)
        )
        for t in tables
    ]


def twice_lined(seed: int) -> list[fp.Table]:
    return [t.with_columns(a=t["a"][:, [0, 0]], b=t["b"][:, [0, 0]]) for t in quadratics(seed, 3, 8)]


def loosened(seed: int) -> list[fp.Table]:
    """The second line is the first with more room: redundant."""
    return [t.with_columns(a=t["a"][:, [0, 0]], b=t["b"][:, [0, 0]] + [0.0, 0.1]) for t in quadratics(seed, 3, 8)]


def line_cases() -> list[Case]:
    return [
        *(lines(f"{seed}", quadratics(seed, 3, 8)) for seed in range(5)),
        lines("the same twice", twice_lined(5), unique=False),
        lines("redundant", loosened(6)),
        lines("zero multiplier 7", touching_lines(7)),
        lines("zero multiplier 8", touching_lines(8)),
        lines("thin slabs 9", slab(9, THIN)),
        lines("thin slabs 10", slab(10, THIN)),
    ]


# ellipsoids: d = 4, two parties


def oval(w: Any, rows: Any) -> Any:
    """(w − c)ᵀP(w − c) − limit."""
    away = w - rows["c"]
    return jnp.einsum("rij,ri,rj->r", rows["P"], away, away) - rows["limit"]


def cp_oval(w: Any, t: fp.Table) -> Any:
    return cp.quad_form(w - t["c"][0], t["P"][0], assume_PSD=True) - t["limit"][0]


def height(w: np.ndarray, t: fp.Table) -> float:
    """oval + limit in numpy."""
    return float((w - t["c"][0]) @ t["P"][0] @ (w - t["c"][0]))


OVALS = fp.minimize(fp.mean(bowl), [(fp.mean(oval) <= 0.0).named("oval")])


def ovals(name: str, tables: list[fp.Table], unique: bool = True) -> Case:
    def stated(w: cp.Variable) -> Stated:
        held = [[cp_oval(w, t) <= 0] for t in tables]
        loss = cp_bowls(w, tables)
        return Stated(loss, party=held) if unique else Stated(loss, server=held[0])

    return Case(f"ovals, {name}", OVALS, fp.split_rows(tables), 4, stated, unique=unique)


def oval_tables(seed: int) -> list[fp.Table]:
    """Ellipsoids with the origin inside."""
    rng = np.random.default_rng(seed)
    tables = []
    for t in quadratics(seed, 2, 4):
        root = rng.normal(size=(4, 4))
        t = t.with_columns(c=rng.normal(size=(1, 4)), P=(root @ root.T / 4 + 0.1 * np.eye(4))[None], limit=[0.0])
        tables.append(t.with_columns(limit=[height(np.zeros(4), t) + rng.uniform(0.05, 0.5)]))
    return tables


def lens(seed: int, width: float) -> list[fp.Table]:
    """Two unit balls that overlap by `width`."""
    rng = np.random.default_rng(seed)
    way = rng.normal(size=4)
    centre = (1.0 - 0.5 * width) * way / np.linalg.norm(way)
    return [
        t.with_columns(c=[sign * centre], P=np.eye(4)[None], limit=[1.0])
        for t, sign in zip(quadratics(seed, 2, 4), (1, -1), strict=True)
    ]


def touching_ovals(seed: int) -> list[fp.Table]:
    """Both pass through the solution; the second has no multiplier there."""
    point = np.random.default_rng(seed).normal(size=4)
    tables = [t.with_columns(limit=[height(point, t)]) for t in oval_tables(seed)]
    return pulled(tables, point, 2 * tables[0]["P"][0] @ (point - tables[0]["c"][0]))


def one_oval(seed: int) -> list[fp.Table]:
    """Both parties have the same one."""
    one, other = oval_tables(seed)
    return [one, other.with_columns(c=one["c"], P=one["P"], limit=one["limit"])]


def oval_cases() -> list[Case]:
    return [
        *(ovals(f"{seed}", oval_tables(seed)) for seed in (*range(6), 97)),
        ovals("the same twice", one_oval(6), unique=False),
        ovals("zero multiplier", touching_ovals(7)),
        ovals("thin lens 8", lens(8, THIN)),
        ovals("thin lens 10", lens(10, THIN)),
    ]


# equalities and two-sided limits: d = 12, five parties

PLANES = fp.minimize(
    fp.mean(bowl), [(fp.mean(first) == 0.0).named("exact"), (abs(fp.mean(second)) <= 1.0).named("band")]
)


def planes(name: str, tables: list[fp.Table], unique: bool = True) -> Case:
    """Where two parties state the same, the reference has all as the server's, and the first party's not."""

    def stated(w: cp.Variable) -> Stated:
        loss = cp_bowls(w, tables)
        rows = [[cp_line(w, t, 0) == 0, *(s * cp_line(w, t, 1) - 1.0 <= 0 for s in (1, -1))] for t in tables]
        return Stated(loss, party=rows) if unique else Stated(loss, server=[row for mine in rows[1:] for row in mine])

    return Case(f"planes, {name}", PLANES, fp.split_rows(tables), 12, stated, unique=unique)


def plane_tables(seed: int, width: float = 0.2) -> list[fp.Table]:
    """Each party's second line is kept within `width`."""
    scale = np.array([1.0, 1.0 / width])
    return [t.with_columns(a=t["a"] * scale[:, None], b=t["b"] * scale) for t in quadratics(seed, 5, 12)]


def shared_planes(seed: int) -> list[fp.Table]:
    """The first two parties state the same."""
    _, second, *others = plane_tables(seed)
    return [quadratics(seed, 1, 12)[0].with_columns(a=second["a"], b=second["b"]), second, *others]


def plane_cases() -> list[Case]:
    return [
        *(planes(f"{seed}", plane_tables(seed)) for seed in (0, 2, 24)),
        planes("the same twice", shared_planes(3), unique=False),
        *(planes(f"narrow bands {seed}", plane_tables(seed, 1e-3)) for seed in (4, 12)),
    ]


# logistic loss with l1 and a box, a norm limit at the server: d = 6, three parties


def norm(params: Any, rows: Any) -> Any:
    """‖params‖² − limit."""
    return fp.squared_norm(params) - rows["limit"][0]


def bent(name: str, seed: int, limit: float, weight: float = 0.0, box: tuple[float, float] = (-9.0, 9.0)) -> Case:
    tables = classes(seed, (12,) * 3, d=5)
    h = fp.l1(weight) + fp.box(*box)
    return Case(
        f"bent, {name}",
        fp.minimize(fp.mean(LOGISTIC), [(fp.value(norm) <= 0.0).at_server().named("norm")], h),
        fp.split_rows(tables),
        6,
        lambda w: Stated(
            cp_logistic(w, tables) + weight * cp.norm1(w),
            server=[cp.sum_squares(w) - limit <= 0],
            box=box,
        ),
        fp.Table(limit=[limit]),
        sparse=weight > 0,
    )


def bent_cases() -> list[Case]:
    return [
        bent("l1 0", 0, 0.3, 0.05),
        bent("l1 1", 1, 0.2, 0.1),
        bent("l1, inactive norm", 2, 90.0, 0.1),
        bent("box 3", 3, 0.5, box=(-0.3, 0.4)),
        bent("box 4", 4, 0.2, box=(-0.2, 0.3)),
        bent("l1 and box 5", 5, 0.3, 0.05, box=(-0.3, 0.3)),
        bent("l1 and box 6", 6, 0.1, 0.02, box=(-0.1, 0.2)),
    ]


# logistic loss with a group term, limits on a group and on the norm: d = 7, one party

GROUPS = ((0, 1), (2, 3), (4, 5))


def part(params: Any, rows: Any) -> Any:
    """‖the first two weights‖² − part."""
    return jnp.sum(params["w"][:2] ** 2) - rows["part"][0]


def groups(name: str, seed: int, weight: float, limit: float, share: float) -> Case:
    """‖params‖² <= limit, and at most share·limit of it in the first group."""
    (table,) = (
        t.with_columns(limit=np.full(t.rows, limit), part=np.full(t.rows, share * limit))
        for t in classes(seed, (24,), d=6)
    )
    limits = [(fp.value(norm) <= 0.0).named("norm"), (fp.value(part) <= 0.0).named("part")]
    return Case(
        f"groups, {name}",
        fp.minimize(fp.mean(LOGISTIC), limits, fp.group(weight, GROUPS) + fp.l2(0.01)),
        fp.split_rows([table]),
        7,
        lambda w: Stated(
            cp_logistic(w, [table])
            + weight * sum(cp.norm2(w[[1 + i for i in g]]) for g in GROUPS)
            + 0.01 * cp.sum_squares(w),
            party=[[cp.sum_squares(w) - limit <= 0, cp.sum_squares(w[1:3]) - share * limit <= 0]],
        ),
        sparse=True,
    )


def group_cases() -> list[Case]:
    return [
        groups("0", 0, 0.02, 0.5, 0.1),
        groups("1", 1, 0.05, 0.3, 0.9),
        groups("2", 2, 0.1, 0.2, 0.05),
        groups("3", 3, 0.15, 0.1, 0.3),
        groups("4", 4, 0.05, 90.0, 0.001),
        groups("no weight", 5, 0.0, 0.4, 0.2),
    ]


# least squares under a pooled limit, a pooled gap and the server's own limit: d = 5, three parties


def lean(params: Any, rows: Any) -> Any:
    """p·w − r."""
    return rows["p"] @ params["w"] - rows["r"]


POOLED = fp.minimize(
    fp.mean(SQUARED).pooled(),
    [
        (fp.mean(excess).pooled() <= 0.0).named("limit"),
        (abs(fp.mean(lean)).pooled() <= 1.0).named("gap"),
        (fp.mean(excess).at_server() <= 0.0).named("own"),
    ],
    fp.l2(0.01),
)


def pooled(name: str, seed: int, slack: float, own_slack: float, width: float = 0.05) -> Case:
    """Limits lie `slack` above what the best fit of u, v reaches; the gap is 2·width wide around a point near it."""
    *tables, own = regression(seed, (15, 12, 14, 10), (0.0,) * 4)
    rng = np.random.default_rng(seed)
    u, v = (np.concatenate([t[name] for t in tables]) for name in ("u", "v"))
    best = np.linalg.lstsq(u, v, rcond=None)[0]
    limit = 0.5 * np.mean((u @ best - v) ** 2) + slack
    tables = [
        t.with_columns(limit=np.full(t.rows, limit), p=(p := rng.normal(size=(t.rows, 5)) / width), r=p @ best)
        for t in tables
    ]
    tables[0] = tables[0].with_columns(r=tables[0]["r"] + rng.uniform(-1.0, 1.0))
    own = own.with_columns(limit=np.full(own.rows, 0.5 * np.mean((own["u"] @ best - own["v"]) ** 2) + own_slack))
    p, r = (np.concatenate([t[name] for t in tables]).mean(0) for name in ("p", "r"))
    return Case(
        f"pooled, {name}",
        POOLED,
        fp.split_rows(tables),
        5,
        lambda w: Stated(
            cp_squared(w, *tables) + 0.01 * cp.sum_squares(w),
            pooled=[cp_excess(w, *tables) <= 0, p @ w - r - 1.0 <= 0, r - p @ w - 1.0 <= 0],
            server=[cp_excess(w, own) <= 0],
        ),
        own,
    )


def pooled_cases() -> list[Case]:
    return [
        pooled("0", 0, 0.05, 0.1),
        pooled("1", 1, 0.1, 0.05),
        pooled("2", 2, 0.02, 5.0),
        pooled("3", 3, 5.0, 0.01),
        pooled("narrow gap", 4, 0.2, 5.0, 0.001),
        pooled("hardly possible 5", 5, THIN, 5.0),
        pooled("hardly possible 6", 6, THIN, THIN),
    ]


CASES = [
    *line_cases(),
    *oval_cases(),
    *plane_cases(),
    *bent_cases(),
    *group_cases(),
    *pooled_cases(),
]


def held(case: Case, party: np.ndarray, server: np.ndarray, pooled: np.ndarray) -> np.ndarray:
    """All multipliers, or their sum where only that is unique."""
    every = np.concatenate([np.ravel(party), server, pooled])
    return every if case.unique else every.sum(keepdims=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_solution_is_found_in_few_rounds(case: Case) -> None:
    best = case.optimum
    # where multipliers are in the tens, violations of 1e-10 show in the objective
    tolerance = 1e-11 if "thin lens" in case.name else TOLERANCE
    result = case.solve(fp.InteriorPoint(), tolerance, max_rounds=60)
    assert result.status == "converged", result.message
    certificate = result.certificate
    assert certificate.holds(tolerance)
    assert abs(result.objective - best.objective) <= 1e-7 * abs(best.objective)
    mine = held(case, certificate.party_multipliers, certificate.server_multipliers, certificate.pooled_multipliers)
    assert apart(mine, held(case, best.party, best.server, best.pooled)) <= 1e-5
    assert result.rounds <= MOST


def test_the_table_is_a_fair_one() -> None:
    """Names differ; most cases have a constraint that binds, some have one that does not."""
    assert len({case.name for case in CASES}) == len(CASES) >= 40
    every = [np.concatenate([np.ravel(b.party), b.server, b.pooled]) for b in (case.optimum for case in CASES)]
    binds = [np.max(np.abs(mu)) > 1e-2 for mu in every]
    assert sum(binds) >= 0.8 * len(CASES)
    assert not all(binds)
    assert sum(np.sum(np.abs(mu) > 1e-2) > 1 for mu in every) >= 0.4 * len(CASES)
    assert sum(np.any(mu == 0) for mu in every) >= 0.3 * len(CASES)


# where there is no minimum, no feasible point, or no convexity


def solved(problem: fp.Problem, tables: list[fp.Table], d: int, **options: Any) -> fp.Result:
    given = {"tolerance": TOLERANCE, "max_rounds": 60, "start": np.zeros(d), **options}
    return fp.solve(problem, fp.split_rows(tables), fp.InteriorPoint(), **given)


def test_a_start_without_a_slope_is_named() -> None:
    """‖w‖ has none at zero."""
    far = (fp.value(lambda w, rows: jnp.linalg.norm(w)) <= 1.0).named("norm")
    result = solved(fp.minimize(fp.mean(bowl), [far]), quadratics(0, 1, 2), 2)
    assert result.status == "diverged", result.message
    assert "at the start" in result.message


def test_a_slope_without_a_floor_diverges() -> None:
    tables = [t.with_columns(Q=np.zeros((1, 2, 2))) for t in quadratics(0, 1, 2)]
    result = solved(fp.minimize(fp.mean(bowl)), tables, 2, max_rounds=500)
    assert result.status == "diverged", result.message
    assert "no minimum" in result.message


@pytest.mark.parametrize("seed", [0, 1, 2, 12])
def test_an_empty_slab_is_named_with_its_least_violation(seed: int) -> None:
    """a·w <= b and a·w >= b + 0.2: some line is broken by 0.1 wherever one is."""
    result = solved(LINES, slab(seed, -0.2), 8, max_rounds=200)
    assert result.status == "infeasible", result.message
    assert not result.certificate.holds(1e-3)
    assert "'low'" in result.message
    assert "'high'" in result.message
    found = re.search(r"the least violation found is ([0-9.e+-]+\d)", result.message)
    assert found is not None
    least = float(found.group(1))
    assert least == pytest.approx(0.1, rel=1e-2)


def test_ovals_apart_are_called_infeasible() -> None:
    result = solved(OVALS, lens(0, -0.1), 4)
    assert result.status == "infeasible", result.message
    assert "'oval'" in result.message


@pytest.mark.parametrize("seed", [*range(6), 9, 12])
def test_a_concave_objective_in_ovals_ends_certified(seed: int) -> None:
    tables = [t.with_columns(Q=-t["Q"]) for t in oval_tables(seed)]
    result = solved(OVALS, tables, 4, max_rounds=200)
    assert result.status == "converged", result.message
    assert result.certificate.holds(TOLERANCE)
    assert result.constraint("oval").multipliers != (0.0, 0.0)  # an inside point would be a maximum


# options, and what the server sees


@pytest.mark.parametrize(
    ("option", "given", "words"),
    [
        ("mu", 0, "must be > 0"),
        *(("centering", part, "between 0 and 1") for part in (0, 1)),
    ],
)
def test_options_are_checked(option: str, given: Any, words: str) -> None:
    with pytest.raises(ValueError, match=rf"InteriorPoint\({option}=.*{words}"):
        fp.InteriorPoint(**{option: given})


def exchanges(disclose: bool | None) -> ExchangePlan:
    """Of 5 parties with 3 constraints each, one pooled constraint and 7 parameters: no two counts are alike."""
    *tables, own = regression(3, (9, 9, 9, 9, 9, 10), (0.5,) * 6, d=7)
    limits = [(fp.mean(excess) <= bound).named(f"{bound}") for bound in (0.0, 0.1, 0.2)]
    limits += [(fp.mean(excess).pooled() <= 0.3).named("pooled"), (fp.mean(excess).at_server() <= 0.0).named("own")]
    bound = bind(fp.minimize(fp.mean(SQUARED), limits), fp.split_rows(tables), own, disclose=disclose)
    return ExchangePlan.of(fp.InteriorPoint().bind(bound.setting), bound)


def shapes(layout: Layout, field: str = "") -> list[tuple[int, ...]]:
    return [leaf.shape for leaf in layout.leaves if leaf.name.startswith(field)]


def test_a_party_sends_what_is_summed_or_maximised_only() -> None:
    learn, join, step = list(exchanges(disclose=False).exchanges.values())[:3]
    d, parties, constraints, own = 7, 5, 3, 1
    units = (constraints,)  # of each constraint, nothing of its value
    assert sorted(shapes(learn.reply, ".sum")) == sorted([(), units, (own, d), (d,), (d,), (d,)])
    assert shapes(learn.reply, ".max") == shapes(learn.reply, ".per_party") == shapes(join.reply) == []
    assert shapes(step.reply, ".per_party") == []
    sent = shapes(step.reply)
    assert not any(count in shape for shape in sent for count in (parties, constraints))
    assert set(sent) <= {(), (d,), (d * (d + 1) // 2,), (own,), (own, d)}  # `own` is the pooled constraint
    assert all(shape == () for shape in shapes(step.reply, ".max"))
    assert sum(np.prod(shape, dtype=int) for shape in sent) == d * (d + 1) // 2 + 5 * d + 17 + own * (1 + d)
    assert not any(count in shape for shape in shapes(step.message) for count in (parties, constraints))


@pytest.mark.parametrize("disclose", [True, None])
def test_a_party_discloses_what_it_agreed_to(disclose: bool | None) -> None:
    _, _, step = list(exchanges(disclose).exchanges.values())[:3]
    assert shapes(step.reply, ".per_party") == [(3,), (3,), ()]  # constraints, multipliers, its part of the objective
    assert shapes(step.combined, ".per_party") == [(5, 3), (5, 3), (5,)]
    assert not any(5 in shape or 3 in shape for shape in shapes(step.reply, ".sum") + shapes(step.reply, ".max"))


# starts and scales that need care


@pytest.mark.parametrize(
    ("constraint", "d"),
    [
        (fp.value(lambda w, _: 1.0 - jnp.sum(w**2)) <= 0.0, 3),
        (fp.value(lambda w, _: jnp.cos(w[0])) <= -0.5, 2),
        (fp.value(lambda w, _: w[0] * w[1]) >= 1.0, 2),
        (fp.value(lambda w, _: jnp.sum(w**2)) == 1.0, 3),
    ],
)
def test_a_broken_constraint_without_a_slope_is_no_verdict(constraint: fp.Constraint, d: int) -> None:
    """At zero none of them has a gradient, and all can be kept."""
    problem = fp.minimize(fp.value(lambda w, _: jnp.sum((w - 0.3) ** 2)), [constraint])
    result = solved(problem, quadratics(0, 1, 2), d, max_rounds=80)
    assert result.status == "converged", result.message


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_large_scales_of_constraints_do_not_matter(scale: float) -> None:
    problem = fp.minimize(
        fp.value(lambda w, _: 0.005 * jnp.sum((w - 1.0) ** 2)),
        [fp.value(lambda w, _: scale * (w[0] - 0.9)) <= 0.0, fp.value(lambda w, _: scale * (w[1] + w[2])) == scale],
    )
    result = solved(problem, quadratics(0, 1, 2), 3, max_rounds=40)
    assert result.status == "converged", result.message
    np.testing.assert_allclose(result.params, [0.9, 0.5, 0.5], atol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_a_limit_much_smaller_than_its_unit_is_met_as_well(seed: int) -> None:
    """The objective suggests parameters a thousand times larger than the equality does, and so a unit as large for it."""
    rng = np.random.default_rng(seed)
    tables = []
    for _ in range(3):
        u = 1e4 * rng.normal(size=20)
        x, y = 1e4 * rng.normal(size=20), 2e3 * rng.normal(size=20)
        tables.append(fp.Table({"x": x, "y": y, "u": u, "v": 1e-4 * u}))

    def error(w: Any, rows: Any) -> Any:
        return 0.5 * (rows["x"] * w - rows["y"]) ** 2

    balance = fp.mean(lambda w, rows: rows["u"] * w - rows["v"]) == 0
    problem = fp.minimize(fp.mean(error), [balance], fp.l2(1e-3))
    result = fp.solve(problem, fp.split_rows(tables), start=np.zeros(()), tolerance=1e-6)
    assert result.status == "converged", result.message
    report = result.certificate.constraints[0]
    at_start = max(abs(float(np.mean(table["v"]))) for table in tables)
    assert report.unit > 100 * at_start
    assert max(report.violations) <= 2e-6 * at_start


@pytest.mark.parametrize(
    ("parties", "rows", "temperature"),
    [(5, 400, 0.25), (5, 569, 0.1), (8, 400, 1.0), (8, 400, 0.25), (7, 400, 0.1), (8, 450, 0.1)],
)
def test_sharp_rates_at_every_party(parties: int, rows: int, temperature: float) -> None:
    result = sharp_rates.solved(parties, rows, temperature, max_rounds=300)  # the hardest: rounding decides
    assert result.converged, result.message
    assert result.history["softening"][-1] == 1.0
    assert min(result.constraint("sensitivity").values) >= 0.95 - 1e-4 * result.constraint("sensitivity").unit


def test_groups_are_solved_alike_on_the_host_and_compiled() -> None:
    data = fp.datasets.breast_cancer()
    parties = fp.split_rows(fp.Table(x=data["x"][:, :6], y=data["y"]), parties=3, stratify="y", seed=0)
    loss = fp.logistic_loss(fp.linear(bias=True))
    limit = (fp.mean(loss, where=fp.col("y") == 1) <= 0.3).named("missed")
    problem = fp.minimize(fp.mean(loss, where=fp.col("y") == 0), [limit], fp.group(0.05, [[0, 1], [2, 3], [4, 5]]))
    on_host, compiled = (
        fp.solve(problem, parties, tolerance=1e-8, max_rounds=60, driver=driver) for driver in ("host", "chunked")
    )
    assert on_host.converged, on_host.message
    assert compiled.converged, compiled.message
    np.testing.assert_allclose(on_host.params["w"], compiled.params["w"], atol=1e-7)


def rate_in_a_box(limit: float) -> fp.Result:
    """x > 0 and 0.5 <= w <= 5: the rate is at least 0.9 at every party."""
    rng = np.random.default_rng(0)
    tables = [fp.Table({"x": rng.uniform(0.3, 0.6, size=(40, 1)), "y": np.arange(40) % 2}) for _ in range(2)]
    model = fp.linear()
    few = fp.mean(fp.positive_rate(model, temperature=0.1)) <= limit
    return fp.solve(
        fp.minimize(fp.mean(fp.logistic_loss(model)), [few], fp.box(0.5, 5)), tables, max_rounds=60, progress=False
    )


@pytest.mark.parametrize("limit", [0.51, 0.54, 0.7])
def test_a_rate_that_only_soft_temperatures_meet_is_infeasible(limit: float) -> None:
    result = rate_in_a_box(limit)
    assert result.status == "infeasible"
    assert result.params["w"] == pytest.approx(0.5)  # the least rate in the box


@pytest.mark.parametrize("seed", [9, 11])
def test_an_infeasible_answer_is_the_least_violated_point(seed: int) -> None:
    """Nearly all of one class and nearly none of the other, on labels with noise, by a small network."""
    rng = np.random.default_rng(seed)
    tables = []
    for _ in range(3):
        x = np.column_stack([rng.normal(size=(40, 4)), np.ones(40)])
        tables.append(fp.Table({"x": x, "y": (x[:, 0] + x[:, 1] + 1.5 * rng.normal(size=40) > 0).astype(float)}))
    model, positive = fp.mlp([5, 3, 1]), fp.col("y") == 1
    rate = fp.positive_rate(model, temperature=0.3)
    limits = [
        (fp.mean(rate, where=positive) >= 0.99).named("found"),
        (fp.mean(rate, where=~positive) <= 0.01).named("false"),
    ]
    problem = fp.minimize(fp.mean(fp.logistic_loss(model)), limits, fp.l2(1e-3))
    result = fp.solve(problem, tables, max_rounds=150, progress=False)
    assert result.status == "infeasible", result.message
    visited = result.history["violation"][(result.history["softening"] == 1.0) & result.history["accepted"]]
    assert result.certificate.feasibility <= np.sqrt(2) * visited.min()  # the sum of squares is what is least


@pytest.mark.parametrize("part", [1e-5, 3e-5, 5e-5])
def test_a_run_that_has_nowhere_to_go_ends(part: float) -> None:
    """The minimiser is a corner of the box, where the loss is 1/2; its limit is broken there, within the tolerance."""
    tables = [fp.Table({"x": np.ones((20, 1)), "y": np.full(20, 2.0)}) for _ in range(2)]
    loss = fp.mean(fp.squared_loss(fp.linear()))
    problem = fp.minimize(loss, [loss <= 0.5 * (1.0 - part)], fp.box(-1, 1))
    result = fp.solve(problem, tables, fp.InteriorPoint(), max_rounds=30, progress=False)
    assert result.converged
    assert result.certificate.feasibility > 0
    assert result.rounds <= 6
