"""Expressions and constraints: their algebra is that of the numbers they stand for; scopes, names and refusals."""

import operator
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedpact as fp
from fedpact.problem.atoms import Atom
from fedpact.problem.expressions import MOST_PARTS
from fedpact.problem.oracle import Oracle, Values
from fedpact.problem.program import Compiled, Program, compile_problem
from fedpact.problem.shape import Shape
from fedpact.settings import bind

Pair = tuple[fp.Expression, Callable[[np.ndarray, dict[str, np.ndarray]], float]]
SHAPE = Shape.of(np.zeros(2))
SCALARS = st.floats(-3, 3, allow_subnormal=False).map(lambda c: round(c, 3))


def product(w: Any, rows: Any) -> Any:
    return rows["x"] @ w


def square(w: Any, rows: Any) -> Any:
    return (rows["x"][:, 0] - w[1]) ** 2


def norm(w: Any, rows: Any) -> Any:
    del rows
    return (w**2).sum()


def spread(w: Any, rows: Any) -> Any:
    return rows["x"][:, 1].max() * w[0]


ATOMS: list[Pair] = [
    (fp.mean(product), lambda w, rows: float(product(w, rows).mean())),
    (fp.mean(product, where=fp.col("y") == 1), lambda w, rows: float(product(w, rows)[rows["y"] == 1].mean())),
    (fp.mean(square, where=fp.col("y") == 0), lambda w, rows: float(square(w, rows)[rows["y"] == 0].mean())),
    (fp.value(norm), lambda w, rows: float(norm(w, rows))),
    (fp.value(spread), lambda w, rows: float(spread(w, rows))),
]


@st.composite
def rows_and_params(draw: st.DrawFn) -> tuple[dict[str, np.ndarray], np.ndarray]:
    rows = draw(st.integers(2, 8))
    entries = draw(st.lists(SCALARS, min_size=2 * rows + 2, max_size=2 * rows + 2))
    labels = draw(st.permutations([0, 1] + [draw(st.integers(0, 1)) for _ in range(rows - 2)]))
    return {"x": np.reshape(entries[2:], (rows, 2)), "y": np.array(labels)}, np.array(entries[:2])


def sums(parts: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    return st.one_of(
        st.tuples(parts, parts).map(lambda p: (p[0][0] + p[1][0], lambda w, r: p[0][1](w, r) + p[1][1](w, r))),
        st.tuples(parts, parts).map(lambda p: (p[0][0] - p[1][0], lambda w, r: p[0][1](w, r) - p[1][1](w, r))),
        st.tuples(parts, SCALARS).map(lambda p: (p[1] * p[0][0], lambda w, r: p[1] * p[0][1](w, r))),
        st.tuples(parts, SCALARS).map(lambda p: (p[0][0] * p[1], lambda w, r: p[0][1](w, r) * p[1])),
        st.tuples(parts, SCALARS).map(lambda p: (p[0][0] + p[1], lambda w, r: p[0][1](w, r) + p[1])),
        st.tuples(parts, SCALARS).map(lambda p: (p[1] - p[0][0], lambda w, r: p[1] - p[0][1](w, r))),
        st.tuples(parts, SCALARS).map(lambda p: (p[0][0] - p[1], lambda w, r: p[0][1](w, r) - p[1])),
        st.tuples(parts, SCALARS.filter(lambda c: abs(c) > 0.1)).map(
            lambda p: (p[0][0] / p[1], lambda w, r: p[0][1](w, r) / p[1])
        ),
        parts.map(lambda p: (-p[0], lambda w, r: -p[1](w, r))),
        st.lists(parts, min_size=1, max_size=3).map(
            lambda ps: (sum(p[0] for p in ps), lambda w, r: sum(p[1](w, r) for p in ps))
        ),
    )


EXPRESSIONS = st.recursive(st.sampled_from(ATOMS), sums, max_leaves=6)


def compiled(problem: fp.Problem) -> Compiled:
    return compile_problem(problem, SHAPE, parties=1)


def evaluated(program: Program, rows: dict[str, np.ndarray], w: np.ndarray) -> Values:
    """What one holder of these rows finds; a mean has the weight 1/count on the rows of its mask."""
    masks = [np.ones(len(rows["y"]), bool) if a.where is None else a.where(rows) for a in means(program)]
    weights = np.array([mask / mask.sum() for mask in masks]).reshape(len(masks), len(rows["y"]))
    columns = {n: jnp.asarray(c) for n, c in rows.items()}
    oracle = Oracle.of(program, columns, jnp.asarray(weights), jnp.asarray(0), jnp.asarray(len(rows["y"])))
    return oracle(jnp.asarray(w))


def means(program: Program) -> list[Atom]:
    return [atom for atom, _ in program.over_rows]


@given(rows_and_params(), EXPRESSIONS)
def test_algebra_of_expressions_is_that_of_numbers(data: tuple[Any, Any], pair: Pair):
    rows, w = data
    expression, plain = pair
    both = compiled(fp.minimize(expression))
    found = evaluated(both.party, rows, w).objective + evaluated(both.server, rows, w).objective
    assert float(found) == pytest.approx(plain(w, rows), rel=1e-9, abs=1e-9)


@given(rows_and_params(), EXPRESSIONS, SCALARS, st.sampled_from(["<=", ">=", "=="]))
def test_a_comparison_is_met_exactly_when_its_inequalities_are(
    data: tuple[Any, Any], pair: Pair, bound: float, symbol: str
):
    rows, w = data
    expression, plain = pair
    constraint = {"<=": expression <= bound, ">=": expression >= bound, "==": expression == bound}[symbol]
    program = compiled(fp.minimize(fp.value(norm), [constraint])).party
    (found,) = evaluated(program, rows, w).constraints
    gap = plain(w, rows) - bound
    assert float(found) == pytest.approx(-gap if symbol == ">=" else gap, rel=1e-9, abs=1e-9)
    assert program.equality == (symbol == "==",)


@given(rows_and_params(), EXPRESSIONS, SCALARS, st.floats(0, 2))
def test_between_is_two_inequalities(data: tuple[Any, Any], pair: Pair, lower: float, width: float):
    rows, w = data
    expression, plain = pair
    upper = lower + width
    constraint = expression.between(lower, upper)
    found = evaluated(compiled(fp.minimize(fp.value(norm), [constraint])).party, rows, w).constraints
    number = plain(w, rows)
    expected = [number - upper, lower - number] if constraint.kind == "between" else [number - upper]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@given(rows_and_params(), st.lists(st.tuples(EXPRESSIONS, st.floats(0, 2)), min_size=1, max_size=3), EXPRESSIONS)
def test_the_largest_smooth_part_is_the_absolute_value(
    data: tuple[Any, Any], bent: list[tuple[Pair, float]], rest: Pair
):
    rows, w = data
    expression = sum((factor * abs(pair[0]) for pair, factor in bent), rest[0])
    number = rest[1](w, rows) + sum(factor * abs(pair[1](w, rows)) for pair, factor in bent)
    constraint = expression <= 1.5
    found = evaluated(compiled(fp.minimize(fp.value(norm), [constraint])).party, rows, w).constraints
    assert len(found) == 2 ** len(bent)
    assert float(found.max()) == pytest.approx(number - 1.5, rel=1e-9, abs=1e-9)


@given(rows_and_params(), st.lists(EXPRESSIONS, min_size=1, max_size=3), EXPRESSIONS, EXPRESSIONS)
def test_the_largest_smooth_part_is_the_largest_expression(
    data: tuple[Any, Any], pairs: list[Pair], bent: Pair, rest: Pair
):
    rows, w = data
    expression = 2 * fp.largest(*(e for e, _ in pairs), abs(bent[0])) + rest[0]
    number = 2 * max(*(plain(w, rows) for _, plain in pairs), abs(bent[1](w, rows))) + rest[1](w, rows)
    found = evaluated(compiled(fp.minimize(fp.value(norm), [expression <= 1.5])).party, rows, w).constraints
    assert len(found) == len(pairs) + 2
    assert float(found.max()) == pytest.approx(number - 1.5, rel=1e-9, abs=1e-9)


@given(rows_and_params(), EXPRESSIONS, EXPRESSIONS)
def test_two_expressions_compare_by_their_difference(data: tuple[Any, Any], left: Pair, right: Pair):
    rows, w = data
    (found,) = evaluated(compiled(fp.minimize(fp.value(norm), [left[0] <= right[0]])).party, rows, w).constraints
    assert float(found) == pytest.approx(left[1](w, rows) - right[1](w, rows), rel=1e-9, abs=1e-9)


# scopes


@pytest.fixture(scope="module")
def tables() -> tuple[fp.Parties, fp.Table]:
    rng = np.random.default_rng(3)
    rows = fp.Table(x=rng.normal(size=(23, 2)), y=rng.permutation([0, 1] * 11 + [1]))
    return fp.split_rows(rows[:17], ["a", "b", "c"], shares=[3, 2, 1], stratify="y"), rows[17:]


def totals(problem: fp.Problem, parties: fp.Parties, server: fp.Table, w: np.ndarray) -> tuple[Any, list[Any], Any]:
    """(Σ objectives with the server's, each party's constraints, Σ pooled with the server's)."""
    bound = bind(problem, parties, server, start=w)
    found = [jax.vmap(lambda own: own(jnp.asarray(w)))(oracles) for oracles in bound.stacks]
    own = bound.server_data.functions(jnp.asarray(w))
    by_party = {
        i: c for places, v in zip(bound.order, found, strict=True) for i, c in zip(places, v.constraints, strict=True)
    }
    objective = sum(v.objective.sum() for v in found) + own.objective
    pooled = sum(v.pooled.sum(0) for v in found) + own.pooled
    return float(objective), [by_party[i] for i in range(len(parties))], (np.asarray(own.constraints), pooled)


def test_scopes_are_each_party_all_rows_and_the_server(tables: tuple[fp.Parties, fp.Table]):
    parties, server = tables
    w = np.array([0.7, -1.2])
    union = {name: np.concatenate([parties[p][name] for p in parties]) for name in ("x", "y")}
    expression = 2 * fp.mean(product, where=fp.col("y") == 1) - fp.mean(square) + fp.value(norm) + 0.5

    def plain(rows: Any) -> float:
        return 2 * product(w, rows)[rows["y"] == 1].mean() - square(w, rows).mean() + norm(w, rows) + 0.5

    constraints = [expression <= 0, expression.pooled() <= 0.25, (expression >= 0.5).at_server()]
    for objective, expected in [
        (expression, np.mean([plain(parties[p]) for p in parties])),
        (expression.pooled(), plain(union)),
        (expression.at_server(), plain(server)),
        (expression + expression.pooled(), np.mean([plain(parties[p]) for p in parties]) + plain(union)),
    ]:
        total, each, (own, pooled) = totals(fp.minimize(objective, constraints), parties, server, w)
        assert total == pytest.approx(expected, rel=1e-12)
        np.testing.assert_allclose(np.ravel(each), [plain(parties[p]) for p in parties], rtol=1e-12)
        np.testing.assert_allclose(pooled, [plain(union) - 0.25], rtol=1e-12)
        np.testing.assert_allclose(own, [0.5 - plain(server)], rtol=1e-12)


def test_abs_keeps_its_scope(tables: tuple[fp.Parties, fp.Table]):
    parties, server = tables
    w = np.array([0.7, -1.2])
    union = {name: np.concatenate([parties[p][name] for p in parties]) for name in ("x", "y")}
    gap = fp.mean(product, where=fp.col("y") == 0) - fp.mean(product, where=fp.col("y") == 1)
    problem = fp.minimize(fp.value(norm), [abs(gap).pooled() <= 0.1, abs(gap.at_server()) <= 0.2])

    def plain(rows: Any) -> float:
        return abs(product(w, rows)[rows["y"] == 0].mean() - product(w, rows)[rows["y"] == 1].mean())

    _, _, (own, pooled) = totals(problem, parties, server, w)
    assert max(pooled) == pytest.approx(plain(union) - 0.1, rel=1e-12)
    assert max(own) == pytest.approx(plain(server) - 0.2, rel=1e-12)


@pytest.mark.parametrize(
    "mix",
    [
        lambda e: fp.minimize(e, [e + e.pooled() <= 1]),
        lambda e: abs(e - e.at_server()),
        lambda e: (e.pooled() - e.at_server() == 0).scope,
    ],
)
def test_a_constraint_holds_over_one_scope(mix: Callable[[fp.Expression], Any]):
    with pytest.raises(ValueError, match=r"mixes the scopes .*call \.pooled\(\) or \.at_server\(\) on the whole"):
        mix(fp.mean(product))


def test_a_scope_is_given_once():
    e = fp.mean(product)
    with pytest.raises(ValueError, match="already pooled; it cannot be server"):
        e.pooled().at_server()
    with pytest.raises(ValueError, match="already server; it cannot be pooled"):
        (e.at_server() <= 1).pooled()
    assert e.pooled().pooled().scope == "pooled"
    assert (e.scope, (e <= 1).scope, (e <= 1).at_server().scope) == ("party", "party", "server")


# words


def test_kinds_bounds_and_names():
    e = 2 * fp.mean(product, where=fp.col("y") == 1) - 0.5
    assert str(e) == "2 * mean(product | y == 1) + -0.5"
    assert str(abs(fp.mean(square)) + fp.value(norm)) == "abs(mean(square)) + value(norm)"
    told = {c.kind: c.bound for c in (e <= 1, e >= 0.25, e == -2, e.between(0, 3))}
    assert told == {"<=": "<= 1", ">=": ">= 0.25", "==": "== -2", "between": "in [0, 3]"}
    assert (e <= 1).name == str(e <= 1) == f"{e} <= 1"
    assert (e <= 1).named("limit").name == "limit"
    assert (e <= 1).named("limit").pooled().name == "limit"
    assert e.between(1, 1).kind == "=="


def test_problems_number_nameless_constraints_that_read_alike():
    e = fp.mean(product)
    problem = fp.minimize(e, [e <= 1, e <= 1, (e <= 1).named("limit")])
    assert [c.name for c in problem.constraints] == ["mean(product) <= 1", "mean(product) <= 1 (#2)", "limit"]
    assert str(problem).splitlines()[-1].strip() == "s.t. limit: mean(product) <= 1 (party)"


def test_one_constraint_needs_no_list():
    assert len(fp.minimize(fp.mean(product), fp.mean(product) <= 1).constraints) == 1


def test_the_model_is_that_of_the_losses():
    e = fp.mean(fp.logistic_loss(fp.linear()))
    assert fp.minimize(e, [abs(e) <= 1]).model == fp.linear()
    assert fp.minimize(fp.mean(product)).model is None
    two = fp.minimize(e, [fp.mean(fp.logistic_loss(fp.linear(bias=True))) <= 1])
    with pytest.raises(ValueError, match=r"2 different models.*give every loss the same model"):
        _ = two.model


# refusals


def test_constraints_and_expressions_have_no_truth_value():
    e = fp.mean(product)
    with pytest.raises(TypeError, match=r"no truth value; a chain such as .* is written e\.between"):
        _ = 0 <= e <= 1
    with pytest.raises(TypeError, match=r"mean\(product\) <= 1 has no truth value"):
        bool(e <= 1)
    with pytest.raises(TypeError, match=r"mean\(product\) has no truth value"):
        bool(e)
    with pytest.raises(TypeError, match="no truth value"):
        _ = e in [fp.mean(square)]


def test_strict_inequalities_are_refused():
    with pytest.raises(TypeError, match=r"strict inequality .* write <= or >="):
        _ = fp.mean(product) < 1
    with pytest.raises(TypeError, match=r"strict inequality .* write <= or >="):
        operator.lt(1, fp.mean(product))


@pytest.mark.parametrize("thing", ["0.2", None, True, [0.2], 1j, np.ones(2), fp.mean(product) <= 1, product])
def test_only_numbers_mix_with_expressions(thing: Any):
    e = fp.mean(product)
    for wrong in (
        lambda: e <= thing,
        lambda: e >= thing,
        lambda: e == thing,
        lambda: e.between(0, thing),
        lambda: e + thing,
        lambda: e - thing,
        lambda: e * thing,
        lambda: e / thing,
    ):
        with pytest.raises(TypeError, match="must be a number, not"):
            wrong()


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_bounds_and_factors_are_finite(number: float):
    e = fp.mean(product)
    for wrong in (lambda: e <= number, lambda: e.between(number, 1), lambda: e + number, lambda: number * e):
        with pytest.raises(ValueError, match="must be finite"):
            wrong()


def test_numpy_numbers_are_numbers_on_either_side():
    e = fp.mean(product)
    assert str(np.float32(0.25) >= e) == str(e <= 0.25)
    assert str(np.int64(2) * e - np.float64(1)) == str(2 * e - 1)
    with pytest.raises(TypeError, match="a factor must be a number"):
        _ = np.ones(2) * e


def test_products_and_quotients_of_expressions_are_refused():
    e = fp.mean(product)
    with pytest.raises(TypeError, match=r"write a product of two inside fp\.value"):
        _ = e * e
    with pytest.raises(TypeError, match="a divisor must be a number"):
        _ = e / e
    with pytest.raises(ZeroDivisionError, match="divided by zero"):
        _ = e / 0


def test_bounds_stand_in_order():
    with pytest.raises(ValueError, match=r"between\(2, 1\): the lower bound is above"):
        fp.mean(product).between(2, 1)


@pytest.mark.parametrize(
    ("constraint", "told"),
    [
        (lambda e: abs(e) >= 0.1, r"only abs\(\.\.\.\) <= bound is convex"),
        (lambda e: 0.1 - abs(e) <= 0.1, r"only abs\(\.\.\.\) <= bound is convex"),
        (lambda e: abs(e).between(0.1, 0.2), r"only abs\(\.\.\.\) <= bound is convex"),
        (lambda e: abs(e) == 0.1, r"not smooth; write abs\(\.\.\.\) <= number"),
        (
            lambda e: sum(abs(e - k) for k in range(7)) <= 1,
            "to 128 smooth inequalities; a constraint may have at most 64",
        ),
        (lambda e: fp.largest(*[e] * (MOST_PARTS + 1)) <= 1, "to 65 smooth inequalities"),
        (lambda e: fp.largest(e, -e) >= 0.1, r"only largest\(\.\.\.\) <= bound is convex"),
        (lambda e: fp.largest(e, -e) == 0.1, "not smooth; write"),
    ],
)
def test_abs_is_bounded_from_above_only(constraint: Callable[[fp.Expression], fp.Constraint], told: str):
    e = fp.mean(product)
    with pytest.raises(ValueError, match=told) as caught:
        fp.minimize(e, [constraint(e).named("the gap")])
    assert "'the gap'" in str(caught.value)


def test_the_objective_has_no_corner():
    with pytest.raises(ValueError, match=r"not differentiable because of abs.*by a constraint instead"):
        fp.minimize(abs(fp.mean(product)))
    with pytest.raises(ValueError, match=r"not differentiable because of .*largest.*by a constraint instead"):
        fp.minimize(fp.largest(fp.mean(product)))


def test_the_largest_is_of_expressions_over_one_scope():
    e, number = fp.mean(product), cast("Any", 0.5)
    with pytest.raises(ValueError, match="at least one expression"):
        fp.largest()
    with pytest.raises(TypeError, match="expected an expression"):
        fp.largest(e, number)
    with pytest.raises(ValueError, match=r"fp\.largest mixes the scopes party, pooled"):
        fp.largest(e, e.pooled())
    assert fp.largest(e.pooled(), e.pooled()).scope == "pooled"
    assert (fp.largest(e, e) <= 1).at_server().scope == "server"
    assert str(fp.largest(e, abs(e)) <= 1) == "largest(mean(product), abs(mean(product))) <= 1"
