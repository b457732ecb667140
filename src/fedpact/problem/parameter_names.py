"""Names of parameters: which arrays of a tree a regulariser or a set is on."""

from collections.abc import Iterable, Sequence
from typing import Any

import jax


def parameter_names(on: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if on is None or isinstance(on, str):
        return None if on is None else (on,)
    names = tuple(on) if isinstance(on, Iterable) else ()
    if not names or not all(isinstance(name, str) for name in names):
        raise TypeError(f"on={on!r}: names of parameters, such as 'w' or ['w', 'b']; None for all")
    return names


def leaf_names(params: Any) -> list[tuple[str, Any]]:
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    return [("".join(str(getattr(k, "key", getattr(k, "name", k))) for k in path[-1:]), leaf) for path, leaf in leaves]
