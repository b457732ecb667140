"""Regularisers: proximal operators and distances against brute force, on all or on some parameters."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import scipy.optimize
from hypothesis import given
from hypothesis import strategies as st

import fedpact as fp
from fedpact.problem.flat_regularizer import FlatRegularizer
from fedpact.problem.regularizers import Regularizer

PARAMS = {"b": np.zeros(()), "w": np.zeros(4)}  # the flat order is b, then w
SIZE = 5
QUARTERS = st.integers(-12, 12).map(lambda k: k / 4)  # exact in binary, so that ties and corners are met
VECTORS = st.lists(QUARTERS, min_size=SIZE, max_size=SIZE).map(np.array)
STEPS = st.sampled_from([0.25, 0.5, 1.0, 2.0])

COORDINATES = {
    "none": Regularizer(),
    "l1": fp.l1(0.75),
    "l1 on w": fp.l1(0.5, on="w"),
    "box": fp.box(-1, 0.5),
    "box above zero": fp.box(0.25, 2.0),
    "half a box on b": fp.box(lower=0, on=["b"]),
    "l1 and box": fp.l1(0.5) + fp.box(-1, 2),
    "l1 and a box without zero": fp.l1(0.5) + fp.box(0.25, 2),
    "l1 twice, boxes, ridge": fp.l1(0.25) + fp.l1(0.5, on="b") + fp.box(-2, 1) + fp.box(-1, 2, on="w") + fp.l2(0.5),
}
GROUPS = {
    "groups of one": fp.group(0.5),
    "two groups": fp.group(0.75, [[0, 2], [1, 3]]),
    "one group, two free": fp.group(1.0, [[1, 2]]),
    "a group with ridge": fp.group(0.5, [[0, 1, 2]]) + fp.l2(0.25),
}
EVERY = {**COORDINATES, **GROUPS}
named = st.sampled_from(sorted(EVERY))
coordinatewise = st.sampled_from(sorted(COORDINATES))


@functools.cache
def flat(name: str) -> FlatRegularizer:
    return EVERY[name].flat(PARAMS)


PROX = jax.jit(lambda h, w, step: h.prox(w, step))
DISTANCE = jax.jit(lambda h, w, gradient: h.distance(w, gradient))


def proximal(name: str, w: np.ndarray, step: Any) -> np.ndarray:
    return np.asarray(PROX(flat(name), w, step))


def distance(name: str, w: np.ndarray, gradient: np.ndarray) -> float:
    return float(DISTANCE(flat(name), w, gradient))


def weights(regularizer: Regularizer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per coordinate: the weight of |v|, and the box; from what the user wrote, not from what `flat` made of it."""
    l1, lower, upper = np.zeros(SIZE), np.full(SIZE, -math.inf), np.full(SIZE, math.inf)
    for part in regularizer.parts:
        places = [i for i in range(SIZE) if part.on is None or ("b" if i == 0 else "w") in part.on]
        if part.kind == "l1":
            l1[places] += part.numbers[0]
        elif part.kind == "box":
            lower[places] = np.maximum(lower[places], part.numbers[0])
            upper[places] = np.minimum(upper[places], part.numbers[1])
    return l1, lower, upper


def bend(regularizer: Regularizer, v: np.ndarray) -> float:
    """The part of h without a gradient, infinite outside the box."""
    l1, lower, upper = weights(regularizer)
    total = float(l1 @ np.abs(v))
    for part in regularizer.parts:
        if part.kind == "group":
            groups = part.groups or tuple((i,) for i in range(4))
            total += part.numbers[0] * sum(np.linalg.norm(v[1:][list(g)]) for g in groups)
    return total if np.all((lower <= v) & (v <= upper)) else math.inf


# proximal operators


@given(coordinatewise, VECTORS, STEPS)
def test_prox_is_the_best_of_all_candidates(name: str, w: np.ndarray, step: float):
    """A coordinate's minimiser is a corner, an end of the box, or where a quadratic piece has its vertex."""
    l1, lower, upper = weights(EVERY[name])
    found = proximal(name, w, step)
    for i in range(SIZE):
        candidates = np.clip([0.0, w[i] - step * l1[i], w[i] + step * l1[i], -99.0, 99.0], lower[i], upper[i])
        costs = (candidates - w[i]) ** 2 / 2 + step * l1[i] * np.abs(candidates)
        assert float(found[i]) == candidates[np.argmin(costs)]


@given(named, VECTORS, VECTORS, STEPS)
def test_no_other_point_comes_near_prox(name: str, w: np.ndarray, other: np.ndarray, step: float):
    """F(v) = ‖v − w‖²/2 + step · bend(v) is strongly convex: F(v) >= F(prox) + ‖v − prox‖²/2 for every v."""

    def cost(v: np.ndarray) -> float:
        return float((v - w) @ (v - w)) / 2 + step * bend(EVERY[name], v)

    best = proximal(name, w, step)
    assert math.isfinite(cost(best))
    for v in (other, best + (other - best) / 64):
        assert cost(v) >= cost(best) + float((v - best) @ (v - best)) / 2 - 1e-12


@pytest.mark.parametrize("name", GROUPS)
def test_prox_of_groups_is_where_scipy_ends(name: str):
    regularizer, step = GROUPS[name], 0.8
    for w in np.random.default_rng(0).normal(size=(3, SIZE)) * 2:

        def cost(v: np.ndarray, w: np.ndarray = w) -> float:
            return float((v - w) @ (v - w)) / 2 + step * bend(regularizer, v)

        found = scipy.optimize.minimize(cost, w, method="Powell", options={"xtol": 1e-10, "ftol": 1e-14})
        np.testing.assert_allclose(proximal(name, w, step), found.x, atol=1e-5)


@given(named, VECTORS, VECTORS, STEPS)
def test_prox_is_firmly_nonexpansive(name: str, a: np.ndarray, b: np.ndarray, step: float):
    p, q = (proximal(name, v, step) for v in (a, b))
    assert (p - q) @ (p - q) <= (p - q) @ (a - b) + 1e-12


@given(coordinatewise, VECTORS, st.lists(STEPS, min_size=SIZE, max_size=SIZE).map(np.array))
def test_prox_takes_a_step_for_each_coordinate(name: str, w: np.ndarray, steps: np.ndarray):
    each = [proximal(name, w, step)[i] for i, step in enumerate(steps)]
    np.testing.assert_array_equal(proximal(name, w, steps), each)


# distances


def directional(regularizer: Regularizer, v: np.ndarray, i: int, sign: int) -> float:
    """The one-sided derivative of bend along ±e_i: bend is piecewise linear, with corners on quarters only."""
    there = v.copy()
    there[i] += sign / 16
    return 16 * (bend(regularizer, there) - bend(regularizer, v))


@given(coordinatewise, VECTORS, VECTORS)
def test_distance_is_that_to_the_interval_of_slopes(name: str, w: np.ndarray, gradient: np.ndarray):
    """∂bend in a coordinate is the interval from the left derivative to the right one."""
    _, lower, upper = weights(EVERY[name])
    w = np.clip(w, lower, upper)
    gaps = []
    for i in range(SIZE):
        least = gradient[i] - directional(EVERY[name], w, i, -1)
        most = gradient[i] + directional(EVERY[name], w, i, 1)
        gaps.append(max(least, -most, 0.0))
    assert distance(name, w, gradient) == max(gaps)


@given(named, VECTORS, VECTORS, STEPS)
def test_distance_is_zero_exactly_at_fixed_points_of_prox(name: str, w: np.ndarray, gradient: np.ndarray, step: float):
    _, lower, upper = weights(EVERY[name])
    w = np.clip(w, lower, upper)
    moved = np.abs(proximal(name, w - step * gradient, step) - w).max()
    assert (distance(name, w, gradient) < 1e-9) == (moved < 1e-9)


@given(named, VECTORS, STEPS)
def test_distance_is_zero_where_prox_ends(name: str, w: np.ndarray, step: float):
    found = proximal(name, w, step)
    assert distance(name, found, (found - w) / step) < 1e-12


@given(st.sampled_from(sorted(GROUPS)), VECTORS, VECTORS)
def test_distance_of_groups_is_that_of_the_shortest_subgradient(name: str, w: np.ndarray, gradient: np.ndarray):
    """A group away from zero has one subgradient, a group at zero a ball of them."""
    (part,) = [p for p in GROUPS[name].parts if p.kind == "group"]
    residual = gradient.copy()
    for group in part.groups or tuple((i,) for i in range(4)):
        mine = 1 + np.array(group)
        norm = np.linalg.norm(w[mine])
        if norm > 0:
            residual[mine] += part.numbers[0] * w[mine] / norm
        else:
            length = np.linalg.norm(residual[mine])
            residual[mine] *= 0.0 if length <= part.numbers[0] else 1 - part.numbers[0] / length
    assert distance(name, w, gradient) == pytest.approx(np.abs(residual).max(), abs=1e-12)


# values


@given(named, VECTORS)
def test_value_is_the_smooth_part_and_the_bent_one(name: str, w: np.ndarray):
    h, regularizer = flat(name), EVERY[name]
    _, lower, upper = weights(regularizer)
    w = np.clip(w, lower, upper)
    ridge = sum(p.numbers[0] for p in regularizer.parts if p.kind == "l2")
    assert float(h.smooth(w)) == pytest.approx(ridge * w @ w, abs=1e-12)
    assert float(h.value(w)) == pytest.approx(ridge * w @ w + bend(regularizer, w), abs=1e-12)


@given(coordinatewise, VECTORS)
def test_outside_is_the_distance_to_the_box(name: str, w: np.ndarray):
    _, lower, upper = weights(EVERY[name])
    assert float(flat(name).outside(w)) == np.abs(np.clip(w, lower, upper) - w).max()


@given(named, VECTORS, VECTORS, st.lists(QUARTERS, min_size=4, max_size=4).map(np.array), STEPS)
def test_padding_is_free(name: str, w: np.ndarray, gradient: np.ndarray, more: np.ndarray, step: float):
    h, longer = flat(name), flat(name).padded(2)
    wide = np.concatenate([w, more[:2]])
    np.testing.assert_array_equal(PROX(longer, wide, step), np.concatenate([proximal(name, w, step), more[:2]]))
    assert float(longer.value(wide)) == float(h.value(w))
    assert float(longer.outside(wide)) == float(h.outside(w))
    far = DISTANCE(longer, wide, np.concatenate([gradient, more[2:]]))
    assert float(far) == max(distance(name, w, gradient), *np.abs(more[2:]))


# the parameters that are meant


def test_on_names_parameters_wherever_they_are():
    params = {"deep": [{"w": np.zeros((2, 2)), "b": np.zeros(2)}, {"w": np.zeros(1)}], "w": np.zeros(1)}
    h = (fp.l1(1.0, on="w") + fp.l2(2.0, on=["b", "w"]) + fp.box(-1, 1, on=("b",))).flat(params)
    np.testing.assert_array_equal(h.l1, [0, 0, 1, 1, 1, 1, 1, 1])
    np.testing.assert_array_equal(h.ridge, np.full(8, 2.0))
    np.testing.assert_array_equal(np.isfinite(h.lower), [1, 1, 0, 0, 0, 0, 0, 0])


def test_a_group_holds_a_features_weights_for_all_outputs():
    h = fp.group(2.0, [[0, 2]], on="w").flat({"b": np.zeros(2), "w": np.zeros((3, 2))})
    w = np.arange(8.0)
    assert float(h.value(w)) == pytest.approx(2 * np.linalg.norm([2, 3, 6, 7]))
    each = fp.group(1.0).flat({"w": np.zeros((3, 2))})
    assert float(each.value(w[2:])) == pytest.approx(sum(np.linalg.norm(w[2 + 2 * i : 4 + 2 * i]) for i in range(3)))


def test_a_regulariser_of_an_equinox_network_names_its_fields():
    import equinox as eqx

    params = eqx.filter(eqx.nn.MLP(2, 1, 2, 1, key=jax.random.key(0)), eqx.is_inexact_array)
    h = fp.l1(1.0, on="bias").flat(params)
    assert float(h.l1.sum()) == 3


def test_l2_is_not_halved():
    assert float(fp.l2(0.5).flat({"w": np.zeros(2)}).value(np.array([3.0, 4.0]))) == 12.5


@pytest.mark.parametrize(
    ("call", "kind", "told"),
    [
        (lambda: fp.l1(-1), ValueError, r"fp\.l1\(-1\): the weight must be a finite number >= 0"),
        (lambda: fp.l2(np.nan), ValueError, r"fp\.l2\(nan\): the weight"),
        (lambda: fp.l2(np.inf), ValueError, r"fp\.l2\(inf\): the weight"),
        (lambda: fp.group("a"), ValueError, r"fp\.group\('a'\): the weight"),
        (lambda: fp.l1(None), ValueError, r"fp\.l1\(None\): the weight"),
        (lambda: fp.l1(True), ValueError, r"fp\.l1\(True\): the weight"),
        (lambda: fp.l1(1, on=3), TypeError, "on=3: names of parameters"),
        (lambda: fp.l1(1, on=[]), TypeError, r"on=\[\]: names of parameters"),
        (lambda: fp.l1(1, on="v").flat(PARAMS), ValueError, "on 'v', but the parameters are b, w"),
        (lambda: fp.box(1, 0), ValueError, r"fp\.box\(1, 0\): two numbers, the lower bound below the upper"),
        (lambda: fp.box(np.nan, 0), ValueError, "the lower bound below"),
        (lambda: fp.box("a", "b"), ValueError, "two numbers"),
        (lambda: fp.box(None, 1), ValueError, "two numbers"),
        (lambda: fp.box(np.zeros(2), np.ones(2)), ValueError, "two numbers"),
        (lambda: (fp.box(0, 1) + fp.box(2, 3)).flat(PARAMS), ValueError, "no point in common; widen one"),
        (lambda: fp.group(1, [[0], [0, 1]]), ValueError, "no feature is in two groups"),
        (lambda: fp.group(1, [[0], []]), ValueError, "every group has at least one feature"),
        (lambda: fp.group(1, []), ValueError, "at least one feature"),
        (lambda: fp.group(1, [0, 1]), TypeError, r"lists of features, such as \[\[0, 1\], \[2\]\]"),
        (lambda: fp.group(1, [[0.5]]), TypeError, "lists of features"),
        (lambda: fp.group(1, on=["w"]), TypeError, r"on=\['w'\]\): the name of one parameter"),
        (lambda: fp.group(1, [[4]]).flat(PARAMS), ValueError, "names feature 4, but 'w' has 4"),
        (lambda: fp.group(1, [[-1]]).flat(PARAMS), ValueError, "names feature -1"),
        (lambda: fp.group(1, on="b").flat(PARAMS), ValueError, "on 'b', which is a single number"),
        (lambda: fp.group(1).flat([{"w": np.zeros(2)}, {"w": np.zeros(2)}]), ValueError, "which is 2 parameters"),
        (lambda: fp.l1(1) + 3, TypeError, "added to another one, not to 3"),
        (lambda: fp.minimize(fp.value(fp.squared_norm), regularizer=[fp.l1(1)]), TypeError, "regularizer= takes fp.l1"),
    ],
)
def test_regularisers_that_are_refused(call: Callable[[], Any], kind: type[Exception], told: str):
    with pytest.raises(kind, match=told):
        call()


@pytest.mark.parametrize("other", [fp.l1(1, on="b"), fp.box(0, 1), fp.group(2)])
def test_sums_without_a_closed_prox_are_refused(other: Regularizer):
    for call in (lambda: fp.group(1) + other, lambda: other + fp.l2(1) + fp.group(1)):
        with pytest.raises(ValueError, match=r"fp\.group has no closed-form proximal operator together with"):
            call()


def test_numpy_numbers_are_weights():
    assert fp.l1(np.float32(0.5)) + fp.box(np.int64(0), np.float64(2)) == fp.l1(0.5) + fp.box(0, 2)


def test_a_list_of_regularisers_is_added_up() -> None:
    assert sum([fp.l1(1.0), fp.l2(2.0)]) == fp.l1(1.0) + fp.l2(2.0)


def independent_distance(kind: str, w: np.ndarray, g: np.ndarray, groups: list[list[int]]) -> float:
    """dist∞(0, g + ∂h(w)) by its definition: the smallest box around −g that meets the subdifferential."""
    if kind == "group":
        largest = 0.0
        for members in groups:
            part, slope = w[members], g[members]
            if np.any(part):
                largest = max(largest, float(np.max(np.abs(slope + 0.7 * part / np.linalg.norm(part)))))
            elif np.linalg.norm(slope) > 0.7:

                def outside(t: float, slope: np.ndarray = slope) -> float:
                    nearest = np.clip(0.0, np.abs(slope) - t, np.abs(slope) + t)  # of the box, entry by entry
                    return float(np.linalg.norm(nearest) - 0.7)

                largest = max(largest, scipy.optimize.brentq(outside, 0.0, np.max(np.abs(slope)), xtol=1e-14))
        return largest
    ends = {"l1": (-np.inf, np.inf), "box": (-0.5, 1.0)}[kind]
    largest = 0.0
    for x, slope in zip(w, g, strict=True):
        lo, hi = (-0.7, 0.7) if kind == "l1" and x == 0 else (0.7 * np.sign(x),) * 2 if kind == "l1" else (0.0, 0.0)
        lo, hi = (-np.inf if x <= ends[0] else lo), (np.inf if x >= ends[1] else hi)
        largest = max(largest, 0.0 if lo <= -slope <= hi else min(abs(-slope - lo), abs(-slope - hi)))
    return largest


@pytest.mark.parametrize("kind", ["l1", "box", "group"])
@pytest.mark.parametrize("seed", range(20))
def test_the_distance_to_the_subdifferential(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = [[0, 1, 2], [3], [4, 5]]
    w, g = rng.normal(size=6), rng.normal(size=6)
    w[rng.random(6) < 0.4] = 0.0
    if kind == "group":
        for members in groups:
            w[members] = w[members] if rng.random() < 0.5 else 0.0
    if kind == "box":
        w = np.clip(w, -0.5, 1.0)
    stated = {"l1": fp.l1(0.7), "box": fp.box(-0.5, 1.0), "group": fp.group(0.7, groups)}[kind]
    h = stated.flat({"w": w})
    expected = independent_distance(kind, w, g, groups)
    assert float(h.distance(w, g)) == pytest.approx(expected, abs=1e-12)
    with jax.enable_x64(True):
        assert float(jax.jit(h.distance)(w, g)) == pytest.approx(expected, abs=1e-12)
