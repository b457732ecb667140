"""Double precision and the compilation cache inside the library's own context.

fedpact certifies to 1e-6 and below, which float32 cannot carry. Every public entry therefore runs in float64, and what
it compiles is kept in the user's cache folder, without touching the user's own JAX settings.
"""

import contextlib
import functools
import os
import pathlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, ParamSpec, TypeVar

import jax
from jax.experimental.compilation_cache import compilation_cache

try:
    import fcntl
except ImportError:  # not on Unix
    fcntl = None

FOLDER = "jax_compilation_cache_dir"
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


class _ProgramCache:
    """The state of `kept_programs` in this process, whose threads share JAX's settings."""

    lock: ClassVar = threading.Lock()
    within: ClassVar[int] = 0  # threads that keep programs
    without: ClassVar[int] = 0  # of these, threads that compile past the cache now
    mine: ClassVar[dict[str, Any]] = {}
    before: ClassVar[dict[str, Any]] = {}

    @classmethod
    def changed(cls, within: int = 0, without: int = 0) -> None:
        with cls.lock:
            if not cls.within:
                cls.mine = {
                    FOLDER: str(cache_folder() / "programs"),
                    "jax_persistent_cache_min_compile_time_secs": 0.1,
                    "jax_persistent_cache_min_entry_size_bytes": 0,
                }
                cls.before = {name: getattr(jax.config, name) for name in cls.mine}
            cls.within, cls.without = cls.within + within, cls.without + without
            for name, value in (cls.mine if cls.within and not cls.without else cls.before).items():
                if getattr(jax.config, name) != value:
                    jax.config.update(name, value)
                    if name == FOLDER:
                        compilation_cache.reset_cache()


@contextlib.contextmanager
def kept_programs() -> Iterator[None]:
    """Compiled programs are read from and written to the cache folder; a cache the user has set stays the user's."""
    of_user = not _ProgramCache.within and getattr(jax.config, FOLDER) is not None
    if of_user or os.environ.get("FEDPACT_CACHE") == "":
        yield
        return
    _ProgramCache.changed(within=1)
    try:
        yield
    finally:
        _ProgramCache.changed(within=-1)


def keeps_programs() -> bool:
    """Whether it is fedpact's own folder that compiled programs are kept in now."""
    return getattr(jax.config, FOLDER) == str(cache_folder() / "programs")


@contextlib.contextmanager
def without_kept_programs() -> Iterator[None]:
    """Within `kept_programs`: JAX neither reads nor writes programs, in other threads either."""
    _ProgramCache.changed(without=1)
    try:
        yield
    finally:
        _ProgramCache.changed(without=-1)


@contextlib.contextmanager
def compiled_by_one() -> Iterator[None]:
    """Within `kept_programs`: processes of this machine with the same cache folder compile one after the other, at most a minute.

    Parties that are tried on one machine compile the same programs at the same moment; so all but the first read them.
    """
    folder = getattr(jax.config, FOLDER)
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
