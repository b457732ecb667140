"""A digest of the data, to check that a saved run belongs to these parties, and to key what they draw from their rows."""

import hashlib
from collections.abc import Mapping

import numpy as np

from fedpact.federation.table import Table
from fedpact.problem.fingerprint import digest
from fedpact.problem.personal import Personal


def digest_of_data(parties: Mapping[str, Table], server: Table | None, personal: Personal | None = None) -> str:
    """A digest of 16 hexadecimal characters of all parties' and the server's tables and of the parties' own sets."""
    sha = hashlib.sha256()
    for name, table in [*parties.items(), *([("", server)] if server is not None else [])]:
        sha.update(name.encode())
        for column in table.columns:
            sha.update(f"{column}{table[column].dtype}{table[column].shape}".encode())
            sha.update(np.ascontiguousarray(table[column]).tobytes())
    if personal is not None:
        sha.update(digest(personal).encode())
    return sha.hexdigest()[:16]
