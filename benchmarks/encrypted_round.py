"""One round of gradients from encrypted residuals for five parties: CPU seconds, bytes and error."""

import time

import jax
import jax.numpy as jnp
import numpy as np

from fedpact.precision import in_double
from fedpact.privacy import ckks, traced_ckks

PARTIES = 5
SIZES = ((40_000, 17), (4_800, 2))  # rows, features a party: Adult, Compas
REPEATS = 3


@in_double
def measure() -> str:
    lines = [
        "## Gradients from encrypted residuals\n",
        f"Linear bottoms, {PARTIES} passive parties: encrypting ν, all parties' products and masks, decrypting. "
        f"CPU time of the process, best of {REPEATS}; bytes per party, ν to it and its product back.\n",
        "| rows | features a party | CPU s | bytes down | bytes up | largest error of a gradient |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join(lines + [_line(rows, columns) for rows, columns in SIZES]) + "\n"


def _line(rows: int, columns: int) -> str:
    rng = np.random.default_rng(0)
    jacobians = jnp.asarray(rng.uniform(-1, 1, (PARTIES, rows, columns)))
    nu = jnp.asarray(rng.normal(size=rows) / rows)
    server, *secrets = (jnp.asarray(ckks.fresh_seed()) for _ in range(1 + PARTIES))
    public = traced_ckks.public_key(server)

    @jax.jit
    def one_round(server: jax.Array, secrets: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        message = traced_ckks.encrypt(server, nu)
        replies, openings = jax.vmap(traced_ckks.masked_product, (None, None, 0, 0))(
            public, message, jacobians, secrets
        )
        masked = jax.vmap(lambda reply: traced_ckks.decrypt(server, reply, rows, columns))(replies)
        return jax.vmap(traced_ckks.unmask)(masked, openings), message, replies[0]

    gradients, message, reply = jax.block_until_ready(one_round(server, jnp.stack(secrets)))
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        gradients, message, reply = jax.block_until_ready(one_round(server, jnp.stack(secrets)))
        times.append(time.process_time() - start)
    error = jnp.abs(gradients - jnp.einsum("kij,i->kj", jacobians, nu)).max()
    return f"| {rows:,} | {columns} | {min(times):.2f} | {message.nbytes:,} | {reply.nbytes:,} | {error:.1e} |"


if __name__ == "__main__":
    print(measure())
