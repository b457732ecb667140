"""What a party mixes into the keys of its mini-batches, so that the server cannot choose or know the rows of a batch.

Keys come from the server. Where rows were drawn by these alone, a server that sends as many keys as a party has rows, at one
point, would get a linear system in the rows. With a secret of the party in between, it does not know which rows are in a sum.
"""

import hashlib
import hmac
import os
import pathlib
import secrets

import numpy as np

from fedpact.files import only_for_owner, private_folder

SECRET = "batch_secret"  # in a party's folder
BYTES = 32


def batch_secret(folder: pathlib.Path, digest: str) -> np.ndarray:
    """The words that a party's batches of one pact are drawn by, uint32 (2,): all that a key of JAX has room for.

    They are HMAC-SHA256 of the pact's digest under 32 random bytes in the party's folder, which are made on first use and which
    only their owner can read. A run that is resumed finds them again. Raises ValueError where the file is damaged.
    """
    file = private_folder(folder) / SECRET
    try:
        with open(file, "xb", opener=only_for_owner) as made:
            made.write(secrets.token_bytes(BYTES))
            made.flush()
            os.fsync(made.fileno())
    except FileExistsError:
        pass
    secret = file.read_bytes()
    if len(secret) != BYTES:
        raise ValueError(
            f"{file} is damaged: it has {len(secret)} bytes, not {BYTES}; restore it, or remove it and begin new runs"
        )
    return np.frombuffer(hmac.digest(secret, f"mini-batches {digest}".encode(), hashlib.sha256)[:8], np.uint32)
