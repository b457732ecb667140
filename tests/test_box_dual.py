"""The box dual of quadratics with slacks, against Lemma 1, an independent solver and its own duality gap."""

import dataclasses
import warnings
from typing import Any

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpact.algorithms.ssca.box_dual import Quadratics, Solution, gram_matrix, peak, projected_newton, solve_box_dual

SOLVE = jax.jit(solve_box_dual)
NEWTON = jax.jit(projected_newton)
PEAK = jax.jit(peak)
DUAL = jax.jit(Quadratics.dual)
COMBINATION = jax.jit(Quadratics.combination)
TOLERANCE = 1e-6


@dataclasses.dataclass(frozen=True)
class Instance:
    """a_0·w + q_0‖w‖² + c Σ [A_m + a_m·w + q_m‖w‖²]₊ to be minimised."""

    a: np.ndarray
    constants: np.ndarray
    q: np.ndarray
    c: float

    def quadratics(self) -> Quadratics:
        return Quadratics(self.constants, gram_matrix(jnp.asarray(self.a)), self.q)

    def solve(self) -> Solution:
        return SOLVE(self.quadratics(), self.c)

    def weights(self, nu: Any) -> np.ndarray:
        return np.asarray(COMBINATION(self.quadratics(), jnp.asarray(nu))) @ self.a

    def constraints(self, w: np.ndarray) -> np.ndarray:
        return self.constants + self.a[1:] @ w + self.q[1:] * (w @ w)

    def objective(self, w: np.ndarray) -> float:
        return float(self.a[0] @ w + self.q[0] * (w @ w) + self.c * np.sum(np.maximum(self.constraints(w), 0.0)))

    def best(self) -> float:
        """The least objective, by an interior-point solver."""
        w, paid = cp.Variable(self.a.shape[1]), cp.Variable(self.constants.size, nonneg=True)  # paid = c s
        square = cp.sum_squares(w)
        limits = [
            A + a @ w + q * square <= paid[m] / self.c
            for m, (A, a, q) in enumerate(zip(self.constants, self.a[1:], self.q[1:], strict=True))
        ]
        problem = cp.Problem(cp.Minimize(self.a[0] @ w + self.q[0] * square + cp.sum(paid)), limits)
        with warnings.catch_warnings():
            # Clarabel does not get all of these quite to its own 1e-8; what it gives is compared to TOLERANCE in any case
            warnings.filterwarnings("ignore", "Solution may be inaccurate")
            problem.solve(cp.CLARABEL)
        assert problem.status in ("optimal", "optimal_inaccurate")
        return float(problem.value)  # pyright: ignore[reportArgumentType]


def check(instance: Instance, solution: Solution) -> None:
    """In the box, and as low as the other solver gets."""
    nu = np.asarray(solution.nu)
    assert np.all((nu >= 0) & (nu <= instance.c))
    w = instance.weights(nu)
    scale = np.abs(instance.constants) + np.abs(instance.a[1:] @ w) + instance.q[1:] * (w @ w)
    assert np.all(np.abs(solution.values - instance.constraints(w)) <= 1e-9 * scale)
    best = instance.best()
    assert abs(instance.objective(w) - best) <= TOLERANCE * abs(best)


def near(wanted: Any) -> Any:
    """Up to rounding, relative to the largest entry."""
    wanted = np.asarray(wanted)
    return pytest.approx(wanted, rel=1e-9, abs=1e-9 * np.max(np.abs(wanted), initial=1e-3))


# one constraint: Lemma 1

BRANCHES = ["zero", "inside", "no feasible w", "cheap slack", "linear", "as in the paper", "no curvature in front"]


def single(branch: str, seed: int) -> Instance:
    """Where A lies between −F(w(0)) + A, which makes ν = 0, and ‖a_1‖²/(4 q_1), above which F_1 is positive everywhere."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 9))
    a = rng.normal(size=(2, d))
    a *= 10.0 ** rng.uniform(0.0, 0.6, size=(2, 1)) / np.linalg.norm(a, axis=1, keepdims=True)
    q = 10.0 ** rng.uniform(-0.5, 0.5, size=2)
    if branch == "as in the paper":
        a[0], q[0] = 0.0, 1.0
    if branch == "linear":
        q[1] = 0.0
    if branch == "no curvature in front":
        q[0] = 0.0
    free = -a[0] / (2 * q[0]) if q[0] > 0 else np.full(d, 10.0)
    low = -(a[1] @ free + q[1] * free @ free)
    high = a[1] @ a[1] / (4 * q[1]) if q[1] > 0 else low + a[1] @ a[1]
    part = {"zero": -rng.uniform(0.1, 2.0), "no feasible w": rng.uniform(1.1, 3.0)}.get(branch, rng.uniform(0.1, 0.9))
    c = 0.01 if branch == "cheap slack" else float(rng.choice([1e2, 1e3, 1e5]))
    return Instance(a, np.array([low + part * (high - low)]), q, c)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("branch", BRANCHES)
def test_one_constraint(branch: str, seed: int) -> None:
    instance = single(branch, seed)
    solution = instance.solve()
    check(instance, solution)
    assert solution.iterations == 0


def test_every_branch_is_met() -> None:
    found = {
        branch: [float((i := single(branch, seed)).solve().nu[0]) / i.c for seed in range(12)] for branch in BRANCHES
    }
    assert all(part == 0 for part in found["zero"])
    assert all(part == 1 for part in found["no feasible w"])
    assert sum(0 < part < 1 for part in found["inside"]) >= 10
    assert sum(part == 1 for part in found["cheap slack"]) >= 6
    assert all(0 < part < 1 for part in found["as in the paper"])


@pytest.mark.parametrize("seed", range(12))
def test_lemma_1_as_it_is_printed(seed: int) -> None:
    instance = single("as in the paper", seed)
    tau, excess = instance.q[1], instance.constants[0]  # the paper's A − U
    b = instance.a[1] @ instance.a[1]
    nu = min(max((np.sqrt(b / (b - 4 * tau * excess)) - 1) / tau, 0.0), instance.c)
    assert instance.solve().nu[0] == pytest.approx(nu, rel=1e-9)
    assert instance.weights([nu]) == pytest.approx(-nu * instance.a[1] / (2 * (1 + nu * tau)))


@pytest.mark.parametrize("branch", BRANCHES)
def test_newton_agrees_with_the_closed_form(branch: str) -> None:
    for seed in range(12):
        instance = single(branch, seed)
        wanted = instance.solve()
        found = NEWTON(instance.quadratics(), jnp.asarray(instance.c))
        assert found.nu == near(wanted.nu)


def test_a_constraint_that_w_cannot_change() -> None:
    for constant, nu in ((-1.0, 0.0), (1.0, 7.0)):
        solution = Instance(np.array([[3.0], [0.0]]), np.array([constant]), np.array([1.0, 0.0]), 7.0).solve()
        assert solution.nu == nu
        assert solution.slack == max(constant, 0.0)


def test_without_constraints() -> None:
    instance = Instance(np.array([[1.0, -2.0]]), np.zeros(0), np.array([2.0]), 1e5)
    solution = instance.solve()
    assert solution.nu.shape == solution.values.shape == solution.slack.shape == (0,)
    assert solution.gap == 0
    assert instance.weights(solution.nu) == pytest.approx(-instance.a[0] / 4.0)


# many constraints

KINDS = ["mixed", "duplicated", "inactive", "infeasible", "linear", "more than columns", "linear, more than columns"]


def many(kind: str, count: int, seed: int, c: float | None = None, spread: float = 0.0) -> Instance:
    """Constraints of norms 10^±spread that a random w fulfils, half of them tightly, unless the kind says otherwise."""
    rng = np.random.default_rng(seed)
    d = max(count // 3, 1) if "more than columns" in kind else count + int(rng.integers(1, 6))
    a = rng.normal(size=(count + 1, d))
    q = rng.uniform(0.1, 2.0, size=count + 1)
    if "linear" in kind:
        q[1:] = 0.0
    w = rng.normal(size=d) / np.sqrt(d)
    room = rng.choice([0.0, 0.5], size=count)
    if kind == "inactive":
        free = -a[0] / (2 * q[0])
        room += 1.0 + np.maximum(a[1:] @ (free - w) + q[1:] * (free @ free - w @ w), 0.0)
    if kind == "infeasible" or "more than columns" in kind:
        room -= rng.uniform(0.0, 3.0, size=count)
    constants = -(a[1:] @ w + q[1:] * (w @ w)) - room
    if kind == "infeasible":
        constants[0] = 1.5 * a[1] @ a[1] / (4 * q[1])
    scale = 10.0 ** rng.uniform(-spread, spread, size=count)
    a[1:], q[1:], constants = a[1:] * scale[:, None], q[1:] * scale, constants * scale
    if kind == "duplicated":
        half = count // 2
        a[1 : half + 1], q[1 : half + 1], constants[:half] = a[-half:], q[-half:], constants[-half:]
    return Instance(a, constants, q, float(rng.choice([1.0, 1e2, 1e4])) if c is None else c)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("count", [2, 3, 5, 10, 20])
@pytest.mark.parametrize("kind", KINDS)
def test_many_constraints(kind: str, count: int, seed: int) -> None:
    instance = many(kind, count, seed)
    solution = instance.solve()
    check(instance, solution)
    assert solution.gap <= 1e-9


def test_the_many_are_a_fair_choice() -> None:
    shares = {kind: [(i := many(kind, m, 0)).solve().nu / i.c for m in (3, 10, 20)] for kind in KINDS}
    assert all(np.all(share == 0) for share in shares["inactive"])
    assert all(np.any(share == 1) for share in shares["infeasible"])
    assert all(
        np.any((share > 0) & (share < 1)) for kind in ("mixed", "duplicated", "linear") for share in shares[kind]
    )


@pytest.mark.parametrize("count", [2, 5, 20])
@pytest.mark.parametrize("kind", KINDS)
def test_unlike_scales_and_a_high_price(kind: str, count: int) -> None:
    """Norms from 1e-3 to 1e3 and c = 1e5: the duality gap is the judge."""
    for seed in range(5):
        solution = many(kind, count, seed, 1e5, 3.0).solve()
        assert solution.gap <= 1e-6
        assert solution.iterations < 100


def test_duplicates_share_a_multiplier() -> None:
    alone = many("mixed", 5, 0, 1e4)
    twice = Instance(
        np.concatenate([alone.a, alone.a[1:]]),
        np.tile(alone.constants, 2),
        np.concatenate([alone.q, alone.q[1:]]),
        alone.c,
    )
    nu = np.asarray(twice.solve().nu)
    assert nu[:5] + nu[5:] == pytest.approx(np.asarray(alone.solve().nu), rel=1e-6)


# properties


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    kind, count = draw(st.sampled_from(KINDS)), draw(st.sampled_from([2, 3, 5]))
    return many(kind, count, draw(st.integers(0, 10**6)), draw(st.sampled_from([0.1, 1.0, 30.0, 1e3])))


@given(instances())
def test_optimality(instance: Instance) -> None:
    """0 <= ν <= c; F_m < 0 only where ν_m = 0 and F_m > 0 only where ν_m = c."""
    solution = instance.solve()
    nu, values, slack = np.asarray(solution.nu), np.asarray(solution.values), np.asarray(solution.slack)
    assert np.all((nu >= 0) & (nu <= instance.c))
    assert np.all(slack == np.maximum(values, 0.0))
    size = 1.0 + abs(instance.objective(instance.weights(nu)))
    assert np.all(nu * np.maximum(-values, 0.0) <= 1e-8 * size)
    assert np.all((instance.c - nu) * slack <= 1e-8 * size)


@given(instances(), st.integers(0, 100))
def test_weak_duality(instance: Instance, seed: int) -> None:
    """No ν in the box is above the solution, and no w below it."""
    rng = np.random.default_rng(seed)
    problem, solution = instance.quadratics(), instance.solve()
    highest = float(DUAL(problem, solution.nu))
    lowest = instance.objective(instance.weights(solution.nu))
    rounding = 1e-8 * (1.0 + abs(lowest))
    assert highest <= lowest + rounding
    anywhere = rng.uniform(0.0, instance.c, size=instance.constants.size) * rng.integers(0, 2, instance.constants.size)
    assert DUAL(problem, jnp.asarray(anywhere)) <= highest + rounding
    assert instance.objective(instance.weights(anywhere)) >= lowest - rounding
    assert instance.objective(rng.normal(size=instance.a.shape[1])) >= lowest - rounding


def test_derivatives_of_the_dual() -> None:
    """∂g/∂ν = F(w(ν)), and the Hessian −VVᵀ/(2q)."""
    gradient, hessian = jax.jit(jax.grad(Quadratics.dual, 1)), jax.jit(jax.hessian(Quadratics.dual, 1))
    for seed in range(10):
        problem = many("mixed", 5, seed, spread=1.0).quadratics()
        nu = jnp.asarray(np.random.default_rng(seed).uniform(0.0, 2.0, size=5))
        point = problem.point(nu)
        assert gradient(problem, nu) == near(point.values)
        assert hessian(problem, nu) == near(-point.slopes / (2 * point.curvature))


def test_the_peak_on_a_line() -> None:
    """In any direction, q growing or falling along it."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        problem = many("mixed", 5, seed, spread=1.0).quadratics()
        nu, direction = jnp.asarray(rng.uniform(5.0, 10.0, size=5)), jnp.asarray(rng.normal(size=5))
        t = PEAK(problem, nu, direction, 1.0)
        heights = [DUAL(problem, nu + part * direction) for part in (t, *np.linspace(0.0, 1.0, 51))]
        assert 0 <= t <= 1
        assert heights[0] >= max(heights) - 1e-12 * abs(heights[0])


# q_0 = 0


@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("kind", ["mixed", "duplicated", "infeasible", "more than columns"])
def test_an_objective_without_curvature(kind: str, count: int) -> None:
    given = many(kind, count, 1, 1e2)
    instance = dataclasses.replace(given, q=np.append(0.0, given.q[1:]))
    check(instance, instance.solve())


@pytest.mark.parametrize("seed", [17, 35])
def test_a_step_that_goes_too_far_is_cut_at_the_peak(seed: int) -> None:
    """Here whole steps would go round in circles, inside the box."""
    given = many("more than columns", 5, seed, 1e3, 3.0)
    assert dataclasses.replace(given, q=np.append(0.0, given.q[1:])).solve().gap <= 1e-9


@pytest.mark.parametrize("count", [1, 3])
def test_no_objective_at_all(count: int) -> None:
    """Only feasibility is asked for, and w = 0 does not have it."""
    a = np.append(np.zeros((1, 4)), np.random.default_rng(0).normal(size=(count, 4)), axis=0)
    instance = Instance(a, np.full(count, 0.01), np.append(0.0, np.ones(count)), 1e5)
    solution = instance.solve()
    assert np.all(solution.slack <= 1e-12)
    assert np.all(instance.constraints(instance.weights(solution.nu)) <= 1e-12)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_no_curvature_anywhere_is_finite(count: int) -> None:
    a = np.random.default_rng(0).normal(size=(count + 1, 4))
    solution = Instance(a, np.ones(count), np.zeros(count + 1), 10.0).solve()
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(solution))


# how it is used


def test_slopes_in_float32() -> None:
    """Products of float32 numbers, summed in float64."""
    instance = many("mixed", 5, 3, 1e4)
    single_precision = jnp.asarray(instance.a, jnp.float32)
    gram = gram_matrix(single_precision)
    assert gram.dtype == jnp.float64
    rounded = dataclasses.replace(instance, a=np.asarray(single_precision, np.float64))
    assert gram == pytest.approx(rounded.a @ rounded.a.T, rel=1e-13)
    check(rounded, SOLVE(Quadratics(instance.constants, gram, instance.q), instance.c))


def test_parties_with_columns_need_only_their_own() -> None:
    instance = many("mixed", 5, 4, 1e4)
    blocks = [jnp.asarray(block) for block in np.array_split(instance.a, 3, axis=1)]
    grams = [gram_matrix(block) for block in blocks]
    problem = Quadratics(instance.constants, jnp.sum(jnp.stack(grams), axis=0), instance.q)
    nu = SOLVE(problem, instance.c).nu
    pieces = [problem.combination(nu) @ block for block in blocks]
    assert np.concatenate(pieces) == pytest.approx(instance.weights(instance.solve().nu), rel=1e-7)


def test_many_problems_at_once() -> None:
    """Under vmap, where every loop runs as long as the slowest."""
    problems = [many("mixed", 3, seed, 1e2).quadratics() for seed in range(6)]
    together = jax.jit(jax.vmap(solve_box_dual, (0, None)))(jax.tree.map(lambda *x: jnp.stack(x), *problems), 1e2)
    alone = [SOLVE(problem, 1e2) for problem in problems]
    assert together.nu == near(np.stack([solution.nu for solution in alone]))
