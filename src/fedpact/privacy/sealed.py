"""`ckks` on traced arrays: the same messages inside a compiled exchange, one party after the other.

Shapes are known when the program is traced, so that bytes can be counted. All but `fresh_seed` may run more than once or not at
all, as the compiler likes: whatever repeats gives the same gradient and tells nobody more.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from fedpact.privacy import ckks


def fresh_seed(place: jax.Array) -> jax.Array:
    """64 secret bytes; `place` (the party's index, for one) keeps a vectorised step from drawing one seed for all."""
    return io_callback(lambda _: ckks.fresh_seed(), _bytes(ckks.SEED_BYTES), place)


def public_key(seed: jax.Array) -> jax.Array:
    """The server's public key, for the parties."""
    return jax.pure_callback(
        lambda seed: ckks.server_key(_read(seed)).public, _bytes(ckks.PUBLIC_BYTES), seed, vmap_method="sequential"
    )


def encrypt(seed: jax.Array, nu: jax.Array) -> jax.Array:
    """At the server: Enc(ν) for a vector ν."""

    def call(seed: jax.Array, nu: jax.Array) -> np.ndarray:
        return ckks.server_key(_read(seed)).encrypt(np.asarray(nu))

    return jax.pure_callback(call, _bytes(*ckks.residual_shape(nu.size)), seed, nu, vmap_method="sequential")


def masked_product(
    public: jax.Array, residual: jax.Array, jacobian: jax.Array, seed: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """At a party: Enc(Jᵀν + mask) to send, and the opening to keep."""

    def call(public: jax.Array, residual: jax.Array, jacobian: jax.Array, seed: jax.Array) -> tuple[np.ndarray, ...]:
        return ckks.masked_product(np.asarray(public), np.asarray(residual), np.asarray(jacobian), _read(seed))

    shapes = (
        _bytes(*ckks.product_shape(*jacobian.shape)),
        jax.ShapeDtypeStruct((2, jacobian.shape[1]), jnp.float64),
    )
    return jax.pure_callback(call, shapes, public, residual, jacobian, seed, vmap_method="sequential")


def decrypt(seed: jax.Array, product: jax.Array, length: int, columns: int) -> jax.Array:
    """At the server: the masked gradient of a party with `columns` columns; `length` is that of ν."""

    def call(seed: jax.Array, product: jax.Array) -> np.ndarray:
        return ckks.server_key(_read(seed)).decrypt(np.asarray(product), length, columns)

    return jax.pure_callback(
        call, jax.ShapeDtypeStruct((columns,), jnp.float64), seed, product, vmap_method="sequential"
    )


unmask = ckks.unmask


def _bytes(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.uint8)


def _read(seed: jax.Array) -> bytes:
    return np.asarray(seed).tobytes()
