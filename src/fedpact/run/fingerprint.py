"""Digests that tell whether a saved run belongs to this problem, this method and these parties.

Functions are told apart by their code, defaults and closures, so the same file gives the same digest in another process
(of the same Python version); data by names, shapes and contents.
"""

import dataclasses
import functools
import hashlib
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from fedpact.federation.rows import Parties
from fedpact.federation.table import Table


def digest(thing: Any) -> str:
    """A short hexadecimal digest of a problem, an algorithm, or anything made of the same stuff."""
    return hashlib.sha256(_text(thing, set()).encode()).hexdigest()[:16]


def digest_of_data(parties: Parties, server: Table | None) -> str:
    """A digest of who holds which rows."""
    sha = hashlib.sha256()
    for name, table in [*parties.items(), *([("", server)] if server is not None else [])]:
        sha.update(name.encode())
        for column in table.columns:
            sha.update(f"{column}{table[column].dtype}{table[column].shape}".encode())
            sha.update(np.ascontiguousarray(table[column]).tobytes())
    return sha.hexdigest()[:16]


def _text(thing: Any, seen: set[int]) -> str:
    if isinstance(thing, str | int | float | bool | bytes | complex | types.NoneType):
        return repr(thing)
    if id(thing) in seen:
        return "again"
    seen = seen | {id(thing)}
    if isinstance(thing, tuple | list | frozenset | set):
        parts = [_text(x, seen) for x in thing]
        return f"[{', '.join(sorted(parts) if isinstance(thing, set | frozenset) else parts)}]"
    if isinstance(thing, dict):
        return "{" + ", ".join(f"{k}: {_text(v, seen)}" for k, v in thing.items()) + "}"
    if hasattr(thing, "dtype") and hasattr(thing, "shape"):
        array = np.ascontiguousarray(np.asarray(thing))
        return f"array {array.dtype}{array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        fields = ", ".join(f"{f.name}={_text(getattr(thing, f.name), seen)}" for f in dataclasses.fields(thing))
        return f"{type(thing).__qualname__}({fields})"
    if isinstance(thing, types.CodeType):
        return f"code {thing.co_code.hex()} {_text(thing.co_consts, seen)} {thing.co_names}"
    if isinstance(thing, types.ModuleType):
        return f"module {thing.__name__}"
    if callable(thing):
        return _function(thing, seen)
    return f"{type(thing).__qualname__} {thing!r}"


def _function(function: Callable[..., Any], seen: set[int]) -> str:
    plain = getattr(function, "__wrapped__", function)
    name = f"{getattr(plain, '__module__', '')}.{getattr(plain, '__qualname__', type(plain).__qualname__)}"
    code = getattr(plain, "__code__", None)
    if name.startswith(("jax.", "numpy.", "equinox.", "optax.")):
        return name
    if isinstance(plain, functools.partial):
        return f"{name} {_text([plain.func, plain.args, plain.keywords], seen)}"
    if code is None:  # an object with __call__
        return f"{name} {_text(getattr(plain, '__dict__', None), seen)}"
    closure = [cell.cell_contents for cell in getattr(plain, "__closure__", None) or ()]
    held = (
        [plain.__defaults__, plain.__kwdefaults__, closure, _globals_read(plain)]
        if isinstance(plain, types.FunctionType)
        else []
    )
    bound = getattr(plain, "__self__", None)
    return f"{name} {_text(code, seen)} {_text([*held, None if isinstance(bound, type) else bound], seen)}"


def _globals_read(function: types.FunctionType) -> dict[str, Any]:
    """Constants and functions of its module that a function, or one inside it, reads by name."""

    def names(code: types.CodeType) -> set[str]:
        return set(code.co_names).union(*(names(c) for c in code.co_consts if isinstance(c, types.CodeType)))

    kept = (str, int, float, bool, tuple, np.ndarray, types.FunctionType)
    found = {
        name: function.__globals__[name] for name in sorted(names(function.__code__)) if name in function.__globals__
    }
    return {name: thing for name, thing in found.items() if isinstance(thing, kept)}
