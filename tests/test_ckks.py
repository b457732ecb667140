"""Gradients from encrypted residuals: right for the party, uniform for the server, of known size for everybody."""

import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedpact.privacy import ckks, traced_ckks

SEED = bytes(range(64))


@functools.cache
def key() -> ckks.ServerKey:
    return ckks.ServerKey(SEED)


def drawn(length: int, columns: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=length) / length, rng.normal(size=(length, columns)) * 10.0 ** rng.integers(-9, 9, columns)


def exchanged(nu: np.ndarray, jacobian: np.ndarray, server: ckks.ServerKey | None = None) -> np.ndarray:
    server = server or key()
    message, opening = ckks.masked_product(server.public, server.encrypt(nu), jacobian, b"p" * 64)
    return ckks.unmask(server.decrypt(message, *jacobian.shape), opening)


def bound(nu: np.ndarray, jacobian: np.ndarray) -> np.ndarray:
    """The docstring's error bound, with room for the rounding of the expected value itself."""
    above = np.exp2(np.frexp(np.abs(jacobian).max(0))[1])
    return above * (2.0**-39 * np.sqrt(nu.size) + 2.0**-22 * np.abs(nu).sum() + 1e-15)


@settings(max_examples=12)
@given(st.integers(1, 5000), st.integers(1, 6), st.integers(0, 2**32))
@example(length=4096, columns=2, seed=0)
@example(length=4097, columns=2, seed=0)
@example(length=2048, columns=3, seed=0)
@example(length=5, columns=900, seed=0)
def test_the_party_gets_its_gradient(length: int, columns: int, seed: int) -> None:
    nu, jacobian = drawn(length, columns, seed)
    assert (np.abs(exchanged(nu, jacobian) - jacobian.T @ nu) <= bound(nu, jacobian)).all()


def test_columns_of_zeros_and_sparse_blocks_have_gradients_too() -> None:
    nu, jacobian = drawn(9000, 3)
    jacobian[:, 0] = 0
    jacobian[4096:, 1] = 0
    assert (np.abs(exchanged(nu, jacobian) - jacobian.T @ nu) <= bound(nu, jacobian)).all()


@pytest.mark.parametrize("size", [1e-300, 1e-12, 990.0])
def test_large_and_small_residuals(size: float) -> None:
    nu, jacobian = np.array([size, -size / 100]), np.array([[1.0, 3.0], [2.0, -1e-320]])
    assert (np.abs(exchanged(nu, jacobian) - jacobian.T @ nu) <= bound(nu, jacobian)).all()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1000.0])
def test_residuals_out_of_range_come_back_as_nan(wrong: float) -> None:
    assert np.isnan(exchanged(np.array([0.0, wrong]), np.ones((2, 3)))).all()
    assert not key().encrypt(np.array([0.0, wrong])).any()


def test_a_jacobian_that_is_not_finite_comes_back_as_nan() -> None:
    assert np.isnan(exchanged(np.ones(2), np.array([[1.0, np.inf], [0.0, 0.0]]))).all()


@pytest.mark.parametrize("size", [0.0, 1.0, 400.0])
def test_the_server_sees_uniform_numbers_whatever_the_gradient(size: float) -> None:
    nu, jacobian = np.full(4, size / 4), np.ones((4, 1024))
    message, opening = ckks.masked_product(key().public, key().encrypt(nu), jacobian, b"p" * 64)
    masked = key().decrypt(message, 4, 1024)
    assert scipy.stats.kstest(masked, "uniform", (-0.5, 1.0)).pvalue > 1e-9
    np.testing.assert_allclose(ckks.unmask(masked, opening), size, atol=1e-3)
    # All of the polynomial, not only where gradients are: masks left of coefficients unused would show J.
    plain = ckks.seal().Plaintext()
    key()._decryptor.decrypt(ckks._loaded(ckks.seal().Ciphertext(), message[0]), plain)
    everything = ckks._decoded(plain, ckks.NU_UNIT * ckks.COLUMN_UNIT) / ckks._modulus()
    assert everything.size == 4096
    assert scipy.stats.kstest(everything, "uniform", (-0.5, 1.0)).pvalue > 1e-9


def test_what_the_server_could_divide_by_is_hidden() -> None:
    """The second polynomial of the answer is fresh each time, though mask, ν and J are the same."""
    nu, jacobian = drawn(10, 2)
    residual = key().encrypt(nu)
    first, opening = ckks.masked_product(key().public, residual, jacobian, SEED)
    again, same = ckks.masked_product(key().public, residual, jacobian, SEED)
    np.testing.assert_array_equal(opening, same)
    difference, library = ckks.seal().Ciphertext(), ckks.seal()
    pair = [ckks._loaded(library.Ciphertext(), message[0]) for message in (first, again)]
    library.Evaluator(ckks._context()).sub(*pair, difference)
    numbers, half = difference.dyn_array(), difference.dyn_array().size() // 2
    second = [numbers.at(half + i) for i in range(100)]
    assert np.count_nonzero(second) > 90


def test_masks_differ_between_calls_parties_and_matrices() -> None:
    nu, jacobian = drawn(10, 2)
    residual, other = key().encrypt(nu), key().encrypt(nu)
    calls = [
        (residual, jacobian, SEED),
        (other, jacobian, SEED),
        (residual, -jacobian, SEED),
        (residual, jacobian, b"q" * 64),
    ]
    masks = [ckks.masked_product(key().public, *call)[1][0] for call in calls]
    assert len(np.unique(np.round(masks, 6))) == 8


def test_another_key_does_not_open_the_message() -> None:
    nu, jacobian = np.full(8, 1 / 8), np.ones((8, 4))
    message, opening = ckks.masked_product(key().public, key().encrypt(nu), jacobian, SEED)
    stranger = ckks.ServerKey(SEED[::-1])
    assert np.abs(ckks.unmask(key().decrypt(message, 8, 4), opening) - 1).max() < 1e-6
    assert np.abs(ckks.unmask(stranger.decrypt(message, 8, 4), opening) - 1).min() > 1e-3


def test_a_resumed_server_has_the_same_secret_key_and_sends_none() -> None:
    nu, jacobian = drawn(100, 3)
    message, opening = ckks.masked_product(key().public, key().encrypt(nu), jacobian, b"p" * 64)
    resumed = ckks.ServerKey(SEED)
    found = ckks.unmask(resumed.decrypt(message, 100, 3), opening)
    assert (np.abs(found - jacobian.T @ nu) <= bound(nu, jacobian)).all()
    assert (resumed.public != key().public).any()
    assert SEED not in resumed.public.tobytes()


def test_the_server_adds_the_noise_it_promises() -> None:
    """One that is large against encryption's, and the same however often the same message is decrypted."""
    jacobian = np.ones((4, 1024))
    message, opening = ckks.masked_product(key().public, key().encrypt(np.zeros(4)), jacobian, SEED)
    numbers = key().decrypt(message, 4, 1024)
    np.testing.assert_array_equal(numbers, key().decrypt(message, 4, 1024))
    largest = 2 * np.sqrt(4) * ckks.FLOOD * ckks.ENCRYPTION_NOISE * ckks.NU_UNIT  # 2 is the power of two above 1
    assert scipy.stats.kstest(ckks.unmask(numbers, opening) / largest, "uniform", (-1.0, 2.0)).pvalue > 1e-9


def test_messages_have_the_size_that_was_announced() -> None:
    lengths = []
    for length, columns in [(1, 1), (4096, 3), (4100, 3), (30, 500)]:
        residual = key().encrypt(np.zeros(length))
        message, _ = ckks.masked_product(key().public, residual, np.ones((length, columns)), SEED)
        assert residual.shape == ckks.residual_shape(length)
        assert message.shape == ckks.product_shape(length, columns)
        assert residual.dtype == message.dtype == np.uint8
        lengths += [int.from_bytes(cell[:4].tobytes(), "little") for cell in (*residual, *message)]
    assert min(lengths) > 110_000
    assert max(lengths) < ckks.CELL - 2000
    assert ckks.product_shape(40_000, 17) == (17, ckks.CELL)
    assert ckks.product_shape(100, 41) == (2, ckks.CELL)


def test_a_message_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="where 996 fit"):
        ckks._cell(ckks._loaded(ckks.seal().Ciphertext(), key().encrypt(np.ones(1))[0]), 1000)


def test_without_tenseal_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tenseal.sealapi", None)
    with pytest.raises(ImportError, match="pip install 'tenseal"):
        ckks.ServerKey(SEED)


def test_inside_a_compiled_vectorised_exchange() -> None:
    parties, length, columns, rounds = 3, 5000, 2, 3
    rng = np.random.default_rng(0)
    jacobians = jnp.asarray(rng.normal(size=(parties, length, columns)))
    residuals = jnp.asarray(rng.normal(size=(rounds, length)) / length)

    @jax.jit
    def run(jacobians: jax.Array, residuals: jax.Array) -> tuple[jax.Array, ...]:
        server = traced_ckks.fresh_seed(jnp.asarray(-1))
        secrets = jax.vmap(traced_ckks.fresh_seed)(jnp.arange(parties))
        public = traced_ckks.public_key(server)

        def one_round(_: None, nu: jax.Array) -> tuple[None, tuple[jax.Array, jax.Array]]:
            message = traced_ckks.encrypt(server, nu)
            replies, openings = jax.vmap(traced_ckks.masked_product, (None, None, 0, 0))(
                public, message, jacobians, secrets
            )
            masked = jax.vmap(lambda reply: traced_ckks.decrypt(server, reply, length, columns))(replies)
            return None, (jax.vmap(traced_ckks.unmask)(masked, openings), openings[:, 0])

        _, (gradients, masks) = jax.lax.scan(one_round, None, residuals)
        return gradients, masks, secrets

    gradients, masks, secrets = run(jacobians, residuals)
    for found, nu in zip(np.asarray(gradients), np.asarray(residuals), strict=True):
        for gradient, jacobian in zip(found, np.asarray(jacobians), strict=True):
            assert (np.abs(gradient - jacobian.T @ nu) <= bound(nu, jacobian)).all()
    assert len(np.unique(np.round(masks, 6))) == rounds * parties * columns
    assert len(np.unique(secrets, axis=0)) == parties


def test_sizes_are_known_while_tracing() -> None:
    residual = jax.eval_shape(
        traced_ckks.encrypt, jax.ShapeDtypeStruct((64,), jnp.uint8), jax.ShapeDtypeStruct((40_000,), float)
    )
    assert residual.shape == (10, ckks.CELL)
    message, opening = jax.eval_shape(
        traced_ckks.masked_product,
        jax.ShapeDtypeStruct((ckks.PUBLIC_BYTES,), jnp.uint8),
        residual,
        jax.ShapeDtypeStruct((40_000, 17), float),
        jax.ShapeDtypeStruct((64,), jnp.uint8),
    )
    assert (message.shape, opening.shape) == ((17, ckks.CELL), (2, 17))
