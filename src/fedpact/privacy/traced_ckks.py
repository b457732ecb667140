"""`ckks` on traced arrays: the same messages inside a compiled exchange, one party after the other.

Shapes are known when the program is traced, so that bytes can be counted. All but `fresh_seed` may run more than once or not at
all, as the compiler likes: a repetition gives the same gradient and shows nobody more. `fresh_seed` is called once and its seed
kept in the caller's state.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback

from fedpact.privacy import ckks


def fresh_seed(index: jax.Array) -> jax.Array:
    """64 secret bytes; `index` (a party's, for one) keeps a vectorised step from drawing one seed for all."""
    return io_callback(lambda _: ckks.fresh_seed(), _bytes(ckks.SEED_BYTES), index)


def public_key(seed: jax.Array) -> jax.Array:
    """The server's public key, for the parties."""
    return jax.pure_callback(
        lambda seed: ckks.server_key(_read(seed)).public, _bytes(ckks.PUBLIC_BYTES), seed, vmap_method="sequential"
    )


def encrypt(seed: jax.Array, nu: jax.Array) -> jax.Array:
    """At the server: Enc(ν) for a vector ν."""

    def call(seed: jax.Array, nu: jax.Array) -> np.ndarray:
        return ckks.server_key(_read(seed)).encrypt(_doubles(nu))

    shape = _bytes(*ckks.residual_shape(nu.size))
    return jax.pure_callback(call, shape, seed, _as_bytes(nu), vmap_method="sequential")


def masked_product(
    public: jax.Array, residual: jax.Array, jacobian: jax.Array, seed: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """At a party: Enc(Jᵀν + mask) to send, and the opening to keep."""

    def call(public: jax.Array, residual: jax.Array, jacobian: jax.Array, seed: jax.Array) -> tuple[np.ndarray, ...]:
        product, opening = ckks.masked_product(
            np.asarray(public), np.asarray(residual), _doubles(jacobian), _read(seed)
        )
        return product, _as_raw(opening)

    shapes = _bytes(*ckks.product_shape(*jacobian.shape)), _bytes(2, jacobian.shape[1], 8)
    arguments = public, residual, _as_bytes(jacobian), seed
    product, opening = jax.pure_callback(call, shapes, *arguments, vmap_method="sequential")
    return product, _as_numbers(opening)


def decrypt(seed: jax.Array, product: jax.Array, length: int, columns: int) -> jax.Array:
    """At the server: the masked gradient of a party with `columns` columns; `length` is that of ν."""

    def call(seed: jax.Array, product: jax.Array) -> np.ndarray:
        return _as_raw(ckks.server_key(_read(seed)).decrypt(np.asarray(product), length, columns))

    return _as_numbers(jax.pure_callback(call, _bytes(columns, 8), seed, product, vmap_method="sequential"))


unmask = ckks.unmask


def _bytes(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.uint8)


def _read(seed: jax.Array) -> bytes:
    return np.asarray(seed).tobytes()


# Callbacks run in a thread of their own, where JAX would make float32 of numbers: they travel as bytes.


def _as_bytes(numbers: jax.Array) -> jax.Array:
    return lax.bitcast_convert_type(numbers.astype(jnp.float64), jnp.uint8)


def _as_numbers(raw: jax.Array) -> jax.Array:
    return lax.bitcast_convert_type(raw, jnp.float64)


def _doubles(raw: jax.Array) -> np.ndarray:
    return np.ascontiguousarray(raw).view(np.float64)[..., 0]


def _as_raw(numbers: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(numbers, np.float64)[..., None].view(np.uint8)
