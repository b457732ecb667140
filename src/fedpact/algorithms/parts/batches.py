"""Mini-batches of rows, and parties that are asked, drawn by each party for itself from a key that all know.

A party elsewhere mixes a secret of its own into the keys of its mini-batches (deploy/batch_secret.py): which rows are in a batch
is nobody else's business. Who is asked has to be known to all, so that is drawn from the common key alone.
"""

import jax
import jax.numpy as jnp

from fedpact.federation.setting import Setting
from fedpact.problem.oracle import Oracle
from fedpact.protocol.options import check
from fedpact.protocol.sampling import chosen, draw


def folded_key(key: jax.Array, number: jax.Array | int) -> jax.Array:
    """Another key, as raw words."""
    return jax.random.key_data(jax.random.fold_in(jax.random.wrap_key_data(key), number))


def on_a_batch(own: Oracle, key: jax.Array, batch: int) -> Oracle:
    """A party's functions on `batch` of its rows, weighted so that they are right on average."""
    return own.sample(draw(batch_key(own, key), own.count, batch), own.count / batch)


def batch_key(own: Oracle, key: jax.Array) -> jax.Array:
    """The key of a party's own batch: another for each party, and one that only the party knows where it has a secret."""
    key = folded_key(key, own.index)
    if own.batch_secret is None:
        return key
    return folded_key(folded_key(own.batch_secret, key[0]), key[1])


def rows_of(own: Oracle, key: jax.Array, batch: int | None) -> Oracle:
    """A party's functions on a batch of its rows, or on all of them."""
    return own if batch is None else on_a_batch(own, key, batch)


def takes_part(own: Oracle, key: jax.Array, participation: float) -> jax.Array:
    """1 for a party that is among those asked, 0 for the others."""
    count = answering(own.parties, participation)
    if count == own.parties:
        return jnp.asarray(1.0)
    return jnp.where(chosen(key, own.index, own.parties, count), 1.0, 0.0)


def asked(own: Oracle, key: jax.Array, participation: float) -> jax.Array:
    """The weight of a party that is among those asked, 0 for the others: right on average."""
    return takes_part(own, key, participation) * (own.parties / answering(own.parties, participation))


def drawn_places(key: jax.Array, parties: int, participation: float) -> jax.Array:
    """The places of the parties that are among those asked, ascending."""
    count = answering(parties, participation)
    return jnp.nonzero(chosen(key, jnp.arange(parties), parties, count), size=count)[0]


def answering(parties: int, participation: float) -> int:
    """How many parties are asked in a round."""
    return max(1, round(participation * parties))


def check_sampling(owner: str, batch: int, participation: float) -> None:
    """The options of methods that draw rows and parties."""
    check(owner, "batch", batch, lambda x: x >= 1, "a mini-batch has at least one row", whole=True)
    words = "the part of the parties that is asked in a round, over 0 and up to 1"
    check(owner, "participation", participation, lambda x: 0 < x <= 1, words)


def check_batch(owner: str, batch: int | None, setting: Setting) -> None:
    """No party has fewer rows than are drawn."""
    if batch is None:
        return
    few = min(setting.rows, key=setting.rows.__getitem__)
    if batch > setting.rows[few]:
        raise ValueError(
            f"{owner}(batch={batch}): party {few!r} has only {setting.rows[few]} rows; draw fewer, or give it more"
        )


def check_plain(owner: str, setting: Setting, draws: bool = True) -> None:
    """For methods of plain gradient steps: no regulariser but l2, and where rows are drawn, no function of a whole table."""
    if draws and setting.whole_table_function is not None:
        raise ValueError(
            f"{setting.whole_table_function} reads tables whole, but {owner} draws rows; write it as fp.mean(fn)"
        )
    if setting.ridge is None:
        raise ValueError(f"{owner} takes no regulariser but fp.l2(a) on all parameters")
