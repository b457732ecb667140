"""Mini-batches of rows, and parties that are asked, drawn by each party for itself from a key that all know."""

from typing import Any

import jax
import jax.numpy as jnp

from fedpact.federation.setting import Setting
from fedpact.problem.oracle import Oracle
from fedpact.protocol.sampling import chosen, draw


def folded_key(key: jax.Array, number: jax.Array | int) -> jax.Array:
    """Another key, as raw words."""
    return jax.random.key_data(jax.random.fold_in(jax.random.wrap_key_data(key), number))


def on_a_batch(own: Oracle, key: jax.Array, batch: int) -> Oracle:
    """A party's functions on `batch` of its rows, weighted so that they are right on average."""
    return own.sample(draw(folded_key(key, own.index), own.count, batch), own.count / batch)


def rows_of(own: Oracle, key: jax.Array, batch: int | None) -> Oracle:
    """A party's functions on a batch of its rows, or on all of them."""
    return own if batch is None else on_a_batch(own, key, batch)


def asked(own: Oracle, key: jax.Array, participation: float) -> jax.Array:
    """The weight of a party that is among those asked, 0 for the others: right on average."""
    count = answering(own.parties, participation)
    if count == own.parties:
        return jnp.asarray(1.0)
    return jnp.where(chosen(key, own.index, own.parties, count), own.parties / count, 0.0)


def answering(parties: int, participation: float) -> int:
    """How many parties are asked in a round."""
    return max(1, round(participation * parties))


def heavy_ball(momentum: float) -> Any:
    """optax's gradient descent with momentum, of step size 1."""
    import optax  # takes long to import

    return optax.sgd(1.0, momentum=momentum or None)


def check_batch(owner: str, batch: int | None, setting: Setting) -> None:
    """No party has fewer rows than are drawn."""
    if batch is None:
        return
    few = min(setting.rows, key=setting.rows.__getitem__)
    if batch > setting.rows[few]:
        raise ValueError(
            f"{owner}(batch={batch}): party {few!r} has only {setting.rows[few]} rows; draw fewer, or give it more"
        )


def check_free(owner: str, setting: Setting, draws: bool = True) -> None:
    """For methods that keep no promises; `draws`: that draw rows."""
    if setting.constraints:
        raise ValueError(
            f"{owner} keeps no constraints, but the problem has {setting.constraints[0]!r}; solve with fp.SSCA, "
            "fp.InteriorPoint or fp.ProxAL, or leave the constraints out"
        )
    if draws and setting.whole is not None:
        raise ValueError(f"{setting.whole} reads tables whole, but {owner} draws rows; write it as fp.mean(fn)")
    if setting.ridge is None:
        raise ValueError(f"{owner} takes no regulariser but fp.l2(a) on all parameters")
