"""The functions of `jax.numpy` that a server's arithmetic needs, on NumPy arrays too.

What a server computes in a round is small: matrices of the parameters' size. For a method of a dozen rounds, compiling that
takes a thousand times longer than computing it. Code written with `xp` and the control flow below runs in both ways: given
NumPy arrays it computes on the host and compiles nothing; given JAX arrays, or inside a compiled program, it is `jax.numpy`.

Linear algebra on the host gives NaN where it has no answer, as `jax.numpy` does, instead of raising an error.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer

_OF_HOST: dict[type, bool] = {list: False, tuple: False, dict: False}  # a container is as its entries are


def on_host(*values: Any) -> bool:
    """Whether these are numbers and NumPy arrays, and lists of such."""
    for value in values:
        kind = type(value)
        known = _OF_HOST.get(kind)
        if known is None:
            known = _OF_HOST[kind] = not issubclass(kind, (jax.Array, Tracer, list, tuple, dict))
        if known:
            continue
        if not isinstance(value, (list, tuple)) or not on_host(*value):
            return False
    return True


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """For matrices of this size waking more threads takes longer than all of the arithmetic, very much longer where another
    program has a core; and sums are rounded alike on machines with different numbers of cores."""
    with _libraries().limit(limits=1, user_api="blas"):
        yield


@contextlib.contextmanager
def host_arithmetic() -> Iterator[None]:
    """Within it NumPy says nothing of overflow, and BLAS takes one thread."""
    with np.errstate(all="ignore"), one_blas_thread():
        yield


@functools.cache
def _libraries() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class _Either:
    """A module whose functions are NumPy's where all arguments are on the host, else those of `jax.numpy`."""

    def __init__(self, host: Any, traced: Any, instead: dict[str, Callable[..., Any]] | None = None) -> None:
        self._host, self._traced, self._instead = host, traced, instead or {}

    def __getattr__(self, name: str) -> Any:
        traced = getattr(self._traced, name)
        here = self._instead.get(name) or getattr(self._host, name)
        if not callable(traced) or isinstance(traced, type):
            return here

        def call(*args: Any, **options: Any) -> Any:
            if not options and all(
                map(_OF_HOST.get, map(type, args))
            ):  # nearly always so on the host, where calls are many
                return here(*args)
            of_host = on_host(*args) and (not options or on_host(*options.values()))
            return (here if of_host else traced)(*args, **options)

        setattr(self, name, call)
        return call


def _or_nan(function: Callable[..., Any], shapes: Callable[..., Any]) -> Callable[..., Any]:
    def attempted(*args: Any) -> Any:
        try:
            return function(*args)
        except np.linalg.LinAlgError:
            return jax.tree.map(lambda shape: np.full(shape, np.nan), shapes(*args), is_leaf=_is_shape)

    return attempted


def _is_shape(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(n, int) for n in value)


xp: Any = _Either(np, jnp)
linalg: Any = _Either(
    np.linalg,
    jnp.linalg,
    {
        "cholesky": _or_nan(np.linalg.cholesky, lambda a: a.shape),
        "solve": _or_nan(np.linalg.solve, lambda a, b: b.shape),
        "eigh": _or_nan(np.linalg.eigh, lambda a: [a.shape[:1], a.shape]),
        "eigvalsh": _or_nan(np.linalg.eigvalsh, lambda a: a.shape[:1]),
    },
)


# random keys


def key_words(seed: int) -> np.ndarray:
    """The data of JAX's (threefry) key of a seed, uint32 (2,), from 0 to 2⁶³ − 1: computed here, where JAX would compile it."""
    return np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32)


def key_of(seed: int) -> jax.Array:
    """`jax.random.key(seed)`, without compiling it."""
    words: Any = key_words(seed)
    return jax.random.wrap_key_data(words, impl="threefry2x32")


# control flow


def cond(predicate: Any, yes: Callable[..., Any], no: Callable[..., Any], *operands: Any) -> Any:
    """`yes(*operands)` where the predicate holds, else `no(*operands)`."""
    if on_host(predicate):
        return yes(*operands) if predicate else no(*operands)
    return lax.cond(predicate, yes, no, *operands)


def while_loop(more: Callable[[Any], Any], once: Callable[[Any], Any], carry: Any) -> Any:
    """`once` applied to the carry as long as `more(carry)`; on the host where all of the carry is."""
    if not on_host(*jax.tree.leaves(carry)):
        return lax.while_loop(more, once, carry)
    while more(carry):
        carry = once(carry)
    return carry


def repeat(times: int, once: Callable[[Any], Any], carry: Any) -> Any:
    """`once` applied to the carry this often."""
    if on_host(*jax.tree.leaves(carry)):
        for _ in range(times):
            carry = once(carry)
        return carry
    return lax.fori_loop(0, times, lambda _, carry: once(carry), carry)


def each(function: Callable[[Any], Any], points: Any) -> Any:
    """What the function is at every entry of the first axis of an array, leaf by leaf in one array."""
    if on_host(points):
        return jax.tree.map(lambda *leaves: xp.stack(leaves), *(function(point) for point in points))
    return jax.vmap(function)(points)


def choose(predicate: Any, yes: Any, no: Any) -> Any:
    """`yes` where the predicate holds, leaf by leaf."""
    if on_host(predicate):
        return yes if predicate else no
    return jax.tree.map(lambda a, b: jnp.where(predicate, a, b), yes, no)


# indexing


def put(x: Any, place: Any, value: Any) -> Any:
    """A copy of x with the entry at `place` replaced."""
    if on_host(x, place, value):
        x = np.array(x)
        x[place] = value
        return x
    return jnp.asarray(x).at[place].set(value)


def segment_sum(x: Any, segment: Any, segments: int) -> Any:
    """The sum of the entries of each segment; entries of segment -1 are in none."""
    if on_host(x, segment):
        return np.bincount(segment[segment >= 0], x[segment >= 0], segments)
    return jax.ops.segment_sum(x, segment, segments)


def segment_max(x: Any, segment: Any, segments: int) -> Any:
    """The largest entry of each segment; entries of segment -1 are in none."""
    if on_host(x, segment):
        largest = np.full(segments, -np.inf)
        np.maximum.at(largest, segment[segment >= 0], x[segment >= 0])
        return largest
    return jax.ops.segment_max(x, segment, segments)
