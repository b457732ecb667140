"""SSCA with surrogates of the user's own."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedpact as fp

D, TAU = 3, 0.8
rng = np.random.default_rng(0)
X = rng.normal(size=(2, 20, D))
Y = np.einsum("ind,d->in", X, [1.5, -1.0, 0.5]) + 0.3 * rng.normal(size=(2, 20))
TABLES = [fp.Table(x=x, y=y, u=rng.integers(0, 2, 20)) for x, y in zip(X, Y, strict=True)]
LOSS = fp.squared_loss(fp.linear())
COST = fp.mean(LOSS).pooled()


def limited(bound: float) -> fp.Problem:
    return fp.minimize(fp.value(fp.squared_norm), [(bound >= COST).named("cost")])


def whole_q(params: Any, rows: Any) -> Any:
    """Of (x·w − y)²/2 all that there is to know of a row: it is its own surrogate."""
    x, y = rows["x"], rows["y"][:, None]
    return jnp.concatenate([jax.vmap(lambda a: jnp.outer(a, a).ravel())(x), x * y, y**2], axis=1)


def whole_p(q: Any, params: Any) -> Any:
    w = params["w"]
    return 0.5 * w @ q[: D * D].reshape(D, D) @ w - q[D * D : -1] @ w + 0.5 * q[-1]


WHOLE = fp.Surrogate(whole_q, whole_p)


def line_q(params: Any, rows: Any) -> Any:
    """(11): value and gradient at ω_t, and ω_t itself as often as there are rows."""
    w = params["w"]
    left = rows["x"] @ w - rows["y"]
    constant = 0.5 * left**2 - left * (rows["x"] @ w) + TAU * w @ w
    slope = left[:, None] * rows["x"] - 2 * TAU * w
    return jnp.concatenate([constant[:, None], slope, jnp.ones((left.size, 1))], axis=1)


def line_p(q: Any, params: Any) -> Any:
    w = params["w"]
    return q[0] + q[1:-1] @ w + q[-1] * TAU * w @ w


def test_a_function_that_is_its_own_surrogate_is_solved_in_a_round() -> None:
    exact = fp.solve(limited(0.2), TABLES, fp.InteriorPoint(), tolerance=1e-9)
    method = fp.SSCA(batch=20, rho=1, gamma=1, surrogates={"cost": WHOLE})
    found = fp.solve(limited(0.2), TABLES, method, max_rounds=1, tolerance=1e-6)
    assert found.converged, found.message
    np.testing.assert_allclose(found.params["w"], exact.params["w"], rtol=0, atol=1e-7)
    np.testing.assert_allclose(found.constraint("cost").multipliers, exact.constraint("cost").multipliers, rtol=1e-4)


def test_the_papers_own_surrogate_takes_its_path() -> None:
    """On mini-batches, with ρ = 1: there the recursion begins with nothing either way."""
    given: Any = {"batch": 5, "rho": 1, "gamma": fp.Decay(0.5, 0.6), "growth": 1}
    ours = fp.SSCA(**given, surrogates={"cost": fp.Surrogate(line_q, line_p)})
    known = fp.SSCA(**given, tau=TAU, measure=None)
    a, b = (fp.solve(limited(0.6), TABLES, method, max_rounds=20) for method in (ours, known))
    np.testing.assert_allclose(a.params["w"], b.params["w"], rtol=0, atol=1e-6)
    np.testing.assert_allclose(a.history["objective"], b.history["objective"], rtol=1e-5)


def test_averages_without_constraints() -> None:
    """(3) by hand: q̄ of all rows with ρ, F̄ of round 0 being 0."""
    problem = fp.minimize(COST, regularizer=fp.l2(0.1))
    method = fp.SSCA(batch=20, rho=0.5, gamma=0.5, surrogates={"objective": fp.Surrogate(line_q, line_p)})
    found = fp.solve(problem, TABLES, method, max_rounds=3, start={"w": np.ones(D)})
    w, slope, share = np.ones(D), np.zeros(D), 0.0
    x, y = X.reshape(-1, D), Y.ravel()
    for _ in range(3):
        slope = 0.5 * slope + 0.5 * (x.T @ (x @ w - y) / len(y) - 2 * TAU * w)
        share = 0.5 * share + 0.5
        w = 0.5 * w - 0.5 * slope / (2 * (TAU * share + 0.1))
    np.testing.assert_allclose(found.params["w"], w, rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("surrogates", "words"),
    [
        ({"objective": WHOLE}, "names 'objective'; one is needed for each of 'cost'"),
        ({"cost": 3}, "an fp.Surrogate"),
        ({}, "names none"),
    ],
)
def test_what_is_refused(surrogates: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        fp.solve(limited(0.3), TABLES, fp.SSCA(batch=5, surrogates=surrogates))


def test_two_means_are_not_one() -> None:
    problem = fp.minimize(fp.mean(LOSS).pooled() + fp.mean(LOSS, where=fp.col("u") == 1).pooled())
    with pytest.raises(ValueError, match=r"one fp\.mean"):
        fp.solve(problem, TABLES, fp.SSCA(batch=5, surrogates={"objective": WHOLE}))
