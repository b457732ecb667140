"""Sets: projections have the properties that make them projections, and wrong sets are told where they are made."""

import math
from typing import Any

import hypothesis.extra.numpy as arrays
import jax
import jax.numpy as jnp
import numpy as np
import optax.projections
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedpact as fp
from fedpact.problem.own_sets import on_flat

SIZE = 6
PARAMS = {"b": np.zeros(2), "w": np.zeros((2, 2))}  # flat: b, then w
MATRIX = np.array([[1.0, 1.0, 0.0, 0.0, 2.0, 0.0], [0.0, 1.0, -1.0, 3.0, 0.0, 0.0]])
NORMAL = np.array([1.0, -2.0, 0.5, 0.0, 3.0, 1.0])


def soft(params: Any) -> Any:
    """The ball around 1, as a function of the tree."""
    away = jnp.concatenate([params["b"], jnp.ravel(params["w"])]) - 1.0
    shrink = jnp.minimum(1.0, 2.0 / jnp.maximum(jnp.linalg.norm(away), 1e-12))
    return jax.tree.map(lambda leaf: 1.0 + (leaf - 1.0) * shrink, params)


def above(w: jax.Array) -> jax.Array:
    return jnp.maximum(w, 0.25)


SETS: dict[str, tuple[Any, Any]] = {  # each with how far a point is outside, by its definition
    "l1": (fp.l1_ball(2.0), lambda x: np.abs(x).sum() - 2.0),
    "l2": (fp.sets.l2_ball(2.0), lambda x: np.linalg.norm(x) - 2.0),
    "linf": (fp.sets.linf_ball(2.0), lambda x: np.abs(x).max() - 2.0),
    "box": (fp.sets.box(np.arange(SIZE) - 3.0, np.arange(SIZE) * 1.0), lambda x: outside_box(x)),
    "nonnegative": (fp.sets.nonnegative(), lambda x: -x.min()),
    "simplex": (fp.sets.simplex(2.0), lambda x: max(-x.min(), abs(x.sum() - 2.0))),
    "affine": (fp.sets.affine(MATRIX, [1.0, 2.0]), lambda x: np.abs(MATRIX @ x - [1.0, 2.0]).max()),
    "halfspace": (fp.sets.halfspace(NORMAL, 1.0), lambda x: NORMAL @ x - 1.0),
    "nonnegative l1": (fp.l1_ball(2.0) & fp.sets.nonnegative(), lambda x: max(-x.min(), x.sum() - 2.0)),
    "nonnegative l2": (fp.sets.nonnegative() & fp.sets.l2_ball(2.0), lambda x: max(-x.min(), np.linalg.norm(x) - 2.0)),
    "two boxes": (fp.sets.linf_ball(2.0) & fp.sets.nonnegative(), lambda x: max(-x.min(), x.max() - 2.0)),
    "on w": (fp.l1_ball(2.0, on="w"), lambda x: np.abs(x[2:]).sum() - 2.0),
    "w and b": (
        fp.l1_ball(2.0, on="w") & fp.sets.nonnegative(on="b"),
        lambda x: max(np.abs(x[2:]).sum() - 2.0, -x[:2].min()),
    ),
    "both by name": (fp.sets.l2_ball(2.0, on=["w", "b"]), lambda x: np.linalg.norm(x) - 2.0),
    "everywhere": (fp.sets.everywhere(), lambda x: 0.0),
    "function": (fp.sets.projection(soft), lambda x: np.linalg.norm(x - 1.0) - 2.0),
    "function on w": (fp.sets.projection(above, on="w"), lambda x: 0.25 - x[2:].min()),
}


def outside_box(x: np.ndarray) -> float:
    return max((np.arange(SIZE) - 3.0 - x).max(), (x - np.arange(SIZE)).max())


PROJECT = {
    name: jax.jit(lambda x, region=on_flat(region, PARAMS): region.project(x)) for name, (region, _) in SETS.items()
}
points = arrays.arrays(float, SIZE, elements=st.floats(-1e6, 1e6, allow_subnormal=False))
near = arrays.arrays(float, SIZE, elements=st.floats(-3.0, 3.0, allow_subnormal=False))
every_set = pytest.mark.parametrize("name", SETS)


@every_set
@given(x=points | near, y=points | near)
def test_projections(name: str, x: np.ndarray, y: np.ndarray) -> None:
    """In the set; not moved again; non-expansive; and no point of the set is nearer: (x − Πx)·(Πy − Πx) <= 0."""
    project, outside = PROJECT[name], SETS[name][1]
    px, py = np.asarray(project(x)), np.asarray(project(y))
    scale = 1.0 + np.abs(x).max() + np.abs(y).max()
    noise = 1e-9 if name != "affine" else 1e-13 * scale + 1e-9
    assert outside(px) <= noise * 2.0
    np.testing.assert_allclose(np.asarray(project(px)), px, rtol=0, atol=1e-14 * scale + 1e-12)
    assert np.linalg.norm(px - py) <= np.linalg.norm(x - y) * (1 + 1e-12) + 1e-13 * scale
    assert (x - px) @ (py - px) <= 1e-12 * scale**2


@pytest.mark.parametrize("size", [1, 7, 5000])
def test_thresholds_are_those_of_a_sort(size: int) -> None:
    rng = np.random.default_rng(size)
    for scale, radius in ((1e-3, 1.0), (1.0, 0.5), (100.0, 1.0), (1.0, 1e-6), (1.0, 1e6)):
        x = scale * rng.normal(size=size)
        x[: size // 3] = scale  # ties
        ball = np.asarray(on_flat(fp.l1_ball(radius), x).project(jnp.asarray(x)))
        simplex = np.asarray(on_flat(fp.sets.simplex(radius), x).project(jnp.asarray(x)))
        with jax.numpy_dtype_promotion("standard"):  # optax divides by whole numbers
            by_sort = optax.projections.projection_l1_ball(jnp.asarray(x), radius)
            simplex_by_sort = optax.projections.projection_simplex(jnp.asarray(x), radius)
        np.testing.assert_allclose(ball, by_sort, rtol=0, atol=1e-12 * scale)
        np.testing.assert_allclose(simplex, simplex_by_sort, rtol=0, atol=1e-11 * (scale + radius))
        assert np.abs(ball).sum() <= radius * (1 + 1e-9)


def test_what_is_not_a_number_stays_so() -> None:
    for name, project in PROJECT.items():
        if name != "everywhere":
            out = np.asarray(project(np.full(SIZE, np.nan)))
            assert np.isnan(out).any(), name


# bad input


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: fp.l1_ball(-1.0), r"fp.l1_ball\(-1.0\): the radius must be a finite number > 0"),
        (lambda: fp.sets.l2_ball(0.0), "the radius"),
        (lambda: fp.sets.linf_ball(math.nan), "the radius"),
        (lambda: fp.l1_ball("wide"), "the radius"),
        (lambda: fp.l1_ball(True), "the radius"),
        (lambda: fp.sets.simplex(-1.0), "the total"),
        (lambda: fp.sets.box(1.0, 0.0), "no lower bound above"),
        (lambda: fp.sets.box("low"), "numbers or arrays"),
        (lambda: fp.sets.affine(np.ones((2, 3)), [1.0]), "do not match"),
        (lambda: fp.sets.affine([[1.0, 1.0], [1.0, 1.0]], [1.0, 2.0]), "have no solution"),
        (lambda: fp.sets.affine("a", 1.0), "arrays of numbers"),
        (lambda: fp.sets.halfspace([0.0, 0.0], 1.0), "not all 0"),
        (lambda: fp.sets.projection(7), "takes a function"),
        (lambda: fp.l1_ball(1.0, on=7), "names of parameters"),
        (lambda: fp.l1_ball(1.0) & fp.sets.l2_ball(1.0), "not known in closed form"),
        (lambda: fp.l1_ball(1.0) & fp.sets.nonnegative(on="w"), "not known in closed form"),
        (lambda: fp.sets.linf_ball(1.0) & fp.sets.box(2.0, 3.0), "no point in common"),
        (lambda: fp.l1_ball(1.0) & 3, "another one"),
        (
            lambda: fp.sets.affine([[1.0, 0.0]], [1.0]) & fp.sets.affine([[1.0]], [1.0]),
            "different numbers of parameters",
        ),
    ],
)
def test_bad_sets_are_told(make: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        make()


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda params: params["w"], "should keep them"),
        (lambda params: {"b": params["b"], "w": params["w"][:1]}, "should keep them"),
        (lambda params: params["v"], "fails on the parameters: KeyError"),
        (lambda params: jax.tree.map(lambda leaf: leaf / 2, params), "projected already"),
        (lambda params: jax.tree.map(jnp.sign, params), "not the projection onto a convex set"),
        (
            lambda params: jax.tree.map(lambda leaf: jnp.where(jnp.abs(leaf) > 0.5, leaf, 0.0), params),
            "not the projection",
        ),
        (lambda params: jax.tree.map(lambda leaf: jnp.log(-jnp.abs(leaf)), params), "NaN or infinite"),
    ],
    ids=["a leaf", "shorter", "no such name", "halves", "corners", "hard threshold", "nan"],
)
def test_bad_projections_are_told(function: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        on_flat(fp.sets.projection(function), PARAMS)
