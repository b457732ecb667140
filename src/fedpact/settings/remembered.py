"""Bindings that are remembered: to solve an equal problem over the same tables again checks and stacks nothing again.

Tables do not change, and a problem is known by its digest. But a user's function may read what no digest sees; so only bindings
are kept in which every function is fedpact's own. They go with the tables that they are of.
"""

import threading
import weakref
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fedpact.federation.table import Table, TablesByParty
from fedpact.problem.fingerprint import Foreign, digest
from fedpact.problem.statement import Problem
from fedpact.settings.base import Bound

KEPT = 4  # bindings; the oldest go
MOST = 2_000_000  # numbers in a binding that is kept: as much memory again as the rows take
LONGEST = 100_000  # numbers in a start that is compared
SETTINGS = ("jax_enable_x64", "jax_default_device", "jax_default_prng_impl", "jax_threefry_partitionable")  # of JAX

_bindings: dict[Any, tuple[tuple[weakref.ref[Any], ...], Bound]] = {}
_lock = threading.Lock()


def bound_once(problem: Problem, tables: tuple[Any, ...], start: Any, rest: Any, bind: Callable[[], Bound]) -> Bound:
    """What `bind()` returns, or returned before for an equal problem, the same tables and equal numbers.

    - `tables`: the parties', and the server's where it has one. `start`: as in `fp.solve`. `rest`: what else it depends on.
    """
    key = _key(problem, tables, start, rest)
    if key is None:
        return bind()
    found = _bindings.get(key)
    if found is not None and all(kept() is table for kept, table in zip(found[0], tables, strict=True)):
        return found[1]
    bound = bind()
    if sum(np.size(leaf) for leaf in jax.tree.leaves(bound)) > MOST:
        return bound

    def forget(_: Any) -> None:
        _bindings.pop(key, None)

    with _lock:
        _bindings[key] = tuple(weakref.ref(table, forget) for table in tables), bound
        for oldest in list(_bindings)[:-KEPT]:
            _bindings.pop(oldest, None)
    return bound


def _key(problem: Problem, tables: tuple[Any, ...], start: Any, rest: Any) -> Any:
    """What a binding is found by; None where it is not remembered."""
    if not all(isinstance(table, Table | TablesByParty) for table in tables):
        return None  # a frame or a mapping, which its owner may change
    leaves, tree = jax.tree.flatten(start)
    arrays = [np.asarray(leaf) for leaf in leaves]
    if sum(array.size for array in arrays) > LONGEST or any(array.dtype.kind not in "biuf" for array in arrays):
        return None
    try:
        known = digest(problem, own=True)
    except Foreign:
        return None
    numbers = tuple((array.shape, array.dtype.str, array.tobytes()) for array in arrays)
    settings = tuple(str(getattr(jax.config, name)) for name in SETTINGS)
    return known, *map(id, tables), tree, numbers, repr(rest), settings
