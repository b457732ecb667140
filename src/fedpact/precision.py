"""Double precision and the compilation cache inside the library's own context.

fedpact certifies to 1e-6 and below, which float32 cannot carry. Every public entry therefore runs in float64, and what
it compiles is kept in the user's cache folder, without touching the user's own JAX settings.
"""

import contextlib
import functools
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

import jax
from jax.experimental.compilation_cache import compilation_cache

try:
    import fcntl
except ImportError:  # not on Unix
    fcntl = None

LOCK_SECONDS = 60.0  # that a process waits for another one to compile

Args = ParamSpec("Args")
Out = TypeVar("Out")


def cache_folder() -> pathlib.Path:
    """Where fedpact keeps what it can make again: compiled programs, downloaded data. FEDPACT_CACHE moves it."""
    given = os.environ.get("FEDPACT_CACHE")
    if given:
        return pathlib.Path(given)
    import platformdirs

    return pathlib.Path(platformdirs.user_cache_dir("fedpact"))


def in_double(function: Callable[Args, Out]) -> Callable[Args, Out]:
    """Run `function` in float64, whatever the user's own setting."""

    @functools.wraps(function)
    def wrapped(*args: Args.args, **kwargs: Args.kwargs) -> Out:
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return wrapped


@contextlib.contextmanager
def kept_programs() -> Iterator[None]:
    """Compiled programs are read from and written to the cache folder; a cache the user has set stays the user's."""
    mine = {
        "jax_compilation_cache_dir": str(cache_folder() / "programs"),
        "jax_persistent_cache_min_compile_time_secs": 0.1,
        "jax_persistent_cache_min_entry_size_bytes": 0,
    }
    before = {name: getattr(jax.config, name) for name in mine}
    if before["jax_compilation_cache_dir"] is not None or os.environ.get("FEDPACT_CACHE") == "":
        yield
        return
    for name, value in mine.items():
        jax.config.update(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()


def keeps_programs() -> bool:
    """Whether it is fedpact's own folder that compiled programs are kept in now."""
    return getattr(jax.config, "jax_compilation_cache_dir") == str(cache_folder() / "programs")  # noqa: B009 (as below)


@contextlib.contextmanager
def without_kept_programs() -> Iterator[None]:
    """Within `kept_programs`: JAX neither reads nor writes programs."""
    name = "jax_compilation_cache_dir"
    before = getattr(jax.config, name)
    jax.config.update(name, None)
    compilation_cache.reset_cache()
    try:
        yield
    finally:
        jax.config.update(name, before)
        compilation_cache.reset_cache()


@contextlib.contextmanager
def compiled_by_one() -> Iterator[None]:
    """Within `kept_programs`: processes of this machine with the same cache folder compile one after the other, at most a minute.

    Parties that are tried on one machine compile the same programs at the same moment; so all but the first read them.
    """
    folder = getattr(jax.config, "jax_compilation_cache_dir")  # noqa: B009 (pyright does not know it)
    if fcntl is None or folder is None:
        yield
        return
    with contextlib.ExitStack() as opened:
        with contextlib.suppress(OSError):
            pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
            lock = opened.enter_context(open(pathlib.Path(folder) / "compiling.lock", "w"))
            deadline = time.monotonic() + LOCK_SECONDS
            while not _locked(lock.fileno()) and time.monotonic() < deadline:
                time.sleep(0.05)
        yield


def _locked(file: int) -> bool:
    """Whether this process has got the lock, which it loses when it closes the file or ends."""
    assert fcntl is not None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
