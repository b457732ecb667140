"""Digests of functions and problems by their code and data.

A function enters with its code, its defaults, its closure, and the globals and module attributes that it reads; an object with
its class and its state; an array with its contents. So the same file has the same digest in another process (of the same
Python version), and a changed constant changes it. Whatever belongs to Python, JAX or fedpact itself enters by name.
"""

import dataclasses
import dis
import functools
import hashlib
import sys
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

BY_NAME = {*sys.stdlib_module_names, "jax", "jaxlib", "numpy", "scipy", "equinox", "optax", "pandas", "fedpact"}


class Foreign(Exception):
    """Something that belongs neither to Python nor to JAX nor to fedpact, and so enters by what can be read of it."""


def digest(thing: Any, compiled: bool = False, own: bool = False) -> str:
    """A digest of 16 hexadecimal characters of a function, a problem, an algorithm, or any object that is composed of them.

    - `compiled`: of what is compiled only: fields with `compare=False`, which are arguments of programs, are left out. It has 32
      characters (default: of all).
    - `own`: raises `Foreign` at a function or class that does not enter by its name, as `compiled` does (default: no).
    """
    return _short(_Reader(compiled, own or compiled).text(thing))[: 32 if compiled else 16]


class _Reader:
    """One traversal. It keeps a reference to every object visited, so that ids are not reused meanwhile."""

    def __init__(self, compiled: bool, own: bool) -> None:
        self.compiled, self.own = compiled, own
        self.read: dict[int, tuple[Any, str]] = {}

    def text(self, thing: Any) -> str:
        if thing is None or type(thing) in (str, int, float, bool, bytes, complex):
            return repr(thing)
        if id(thing) in self.read:
            return self.read[id(thing)][1]
        self.read[id(thing)] = (thing, "again")  # a cycle: the object refers to itself
        text = _short(self._text(thing))
        self.read[id(thing)] = (thing, text)
        return text

    def _text(self, thing: Any) -> str:
        if isinstance(thing, type):
            return self._class(thing)
        if type(thing) in (tuple, list):
            return f"{type(thing).__name__} {[self.text(x) for x in thing]}"
        if type(thing) in (set, frozenset):
            return f"set {sorted(self.text(x) for x in thing)}"
        if isinstance(thing, dict | types.MappingProxyType):
            return f"{type(thing).__qualname__} {[(self.text(k), self.text(v)) for k, v in thing.items()]}"
        if isinstance(thing, np.ndarray | np.generic | jax.Array):
            return self._array(thing)
        if isinstance(thing, types.ModuleType):
            return f"module {thing.__name__}"
        if isinstance(thing, types.FunctionType):
            return self._function(thing)
        if isinstance(thing, types.MethodType):
            return f"method {self.text(thing.__func__)} {self.text(thing.__self__)}"
        if isinstance(thing, staticmethod | classmethod):
            return f"{type(thing).__name__} {self.text(thing.__func__)}"
        if isinstance(thing, property):
            return f"property {self.text(thing.fget)}"
        if isinstance(thing, functools.partial):
            return f"partial {self.text(thing.func)} {self.text(thing.args)} {self.text(thing.keywords)}"
        wrapped = getattr(thing, "__wrapped__", None)
        if callable(thing) and callable(wrapped):  # jax.jit(function), functools.cache(function)
            return f"{type(thing).__qualname__} {self.text(wrapped)}"
        if dataclasses.is_dataclass(thing):
            fields = [f for f in dataclasses.fields(thing) if f.compare is not False or not self.compiled]
            fields = [(f.name, self.text(getattr(thing, f.name, None))) for f in fields]
            return f"{self.text(type(thing))} {fields}"
        return f"{self.text(type(thing))} {self._state(thing)}"

    def _state(self, thing: Any) -> str:
        """The state that `copy` would copy; the object's name where it cannot be copied."""
        try:
            reduced = thing.__reduce_ex__(4)
        except Exception:
            return getattr(thing, "__qualname__", "")
        if isinstance(reduced, str):
            return reduced
        items = [list(part or ()) for part in reduced[3:5]]  # of a list, of a mapping
        return self.text([*reduced[:3], *items])

    def _array(self, thing: Any) -> str:
        if isinstance(thing, jax.Array) and jnp.issubdtype(thing.dtype, jax.dtypes.prng_key):
            thing = jax.random.key_data(thing)
        array = np.ascontiguousarray(np.asarray(thing))
        contents = self.text(array.tolist()) if array.dtype.hasobject else hashlib.sha256(array.tobytes()).hexdigest()
        return f"array {array.dtype} {array.shape} {contents}"

    def _class(self, kind: type) -> str:
        name = f"class {kind.__module__}.{kind.__qualname__}"
        if _by_name(kind.__module__):
            return name
        if self.own:
            raise Foreign(name)
        own = {
            key: part
            for key, part in vars(kind).items()
            if isinstance(part, types.FunctionType) or not (key.startswith("__") or key == "_abc_impl")
        }
        return f"{name} {self.text(kind.__bases__)} {self.text(own)}"

    def _function(self, function: types.FunctionType) -> str:
        module = function.__globals__.get("__name__", "")  # functools.wraps overwrites __module__
        name = f"{module}.{function.__qualname__}"
        constants = self.text(
            [function.__defaults__, function.__kwdefaults__, *map(_contents, function.__closure__ or ())]
        )
        if _by_name(module):
            return f"function {name} {constants}"
        if self.own:
            raise Foreign(name)
        names, attributes = _names(function.__code__)
        read = {n: function.__globals__[n] for n in names if n in function.__globals__}
        read = {n: self._read_of(x, attributes) if isinstance(x, types.ModuleType) else x for n, x in read.items()}
        return f"function {name} {_code(function.__code__)} {constants} {self.text(read)}"

    def _read_of(self, module: types.ModuleType, names: tuple[str, ...]) -> Any:
        """A module with those of its attributes that a function may read."""
        if _by_name(module.__name__):
            return module
        attributes = {name: vars(module)[name] for name in names if name in vars(module)}
        for name, thing in attributes.items():
            if isinstance(thing, types.ModuleType):
                attributes[name] = self._read_of(thing, tuple(other for other in names if other != name))
        return [module, attributes]


def _short(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _by_name(module: str | None) -> bool:
    return (module or "").partition(".")[0] in BY_NAME


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that is not bound yet
        return None


@functools.lru_cache(maxsize=4096)
def _code(code: types.CodeType) -> str:
    def text(constant: Any) -> str:
        if isinstance(constant, types.CodeType):
            return _code(constant)
        if isinstance(constant, frozenset):
            return str(sorted(map(repr, constant)))
        return repr(constant)

    return _short(f"{code.co_code.hex()} {[text(c) for c in code.co_consts]} {code.co_names} {code.co_freevars}")


@functools.lru_cache(maxsize=4096)
def _names(code: types.CodeType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The globals that a function or a function inside it reads, and all names in it."""
    read = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    every = set(code.co_names)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            below, named = _names(inner)
            read, every = read.union(below), every.union(named)
    return tuple(sorted(read)), tuple(sorted(every))
