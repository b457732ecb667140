"""Programs of earlier processes, with the plans that they were made for.

JAX keeps compiled programs, too, but to find one it has to trace and lower the function again, which takes a second where the
program runs for milliseconds. Here it is found by the problem: a second process that solves the same problem, on tables of the
same shape, traces nothing. This is done only where every function is fedpact's own, so that what a program does is known from
the statement; the version of everything that takes part is in the name of the file.
"""

import contextlib
import functools
import hashlib
import os
import pathlib
import pickle
import platform
import sys
import tempfile
import zlib
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np

from fedpact import __about__
from fedpact.files import private_folder
from fedpact.precision import cache_folder, keeps_programs, without_kept_programs
from fedpact.problem.fingerprint import Foreign, digest
from fedpact.protocol.algorithm import Begin, Method
from fedpact.protocol.engine import RunNetwork
from fedpact.protocol.phases import ServerData
from fedpact.run.host_server import Plan, Planned, together
from fedpact.settings.base import Bound

MOST = 100  # files; the oldest go. One has about 200 kB.
PART = "part-"  # before the name of a file that is being written
NOT_OF_PROGRAMS = ("cache", "log", "traceback", "profil")  # in names of JAX's settings: these change no program


def planned(
    method: Method, bound: Bound, network: RunNetwork, own: ServerData, begin: Begin, rehearse: Callable[[], Plan]
) -> Planned:
    """The program of an earlier process; else of the plan that `rehearse()` returns, to be kept once it is compiled."""
    name = _name(method, bound, network, own, begin)
    if name is None:
        return Planned(rehearse())
    file = cache_folder() / "plans" / name
    return _read(file, network, rehearse) or _ToBeKept(rehearse(), file)


class _Kept(Planned):
    """The program of an earlier process. If it does not run here after all, it is compiled again."""

    def __init__(self, plan: Plan, program: Any, file: pathlib.Path, rehearse: Callable[[], Plan]) -> None:
        super().__init__(plan, program)
        self.file = file
        self.rehearse: Callable[[], Plan] | None = rehearse

    def __call__(self, place: int, network: RunNetwork, message: Any, state: Any) -> tuple[Any, Any]:
        if self.rehearse is None:  # it has run
            return super().__call__(place, network, message, state)
        try:
            first = jax.block_until_ready(super().__call__(place, network, message, state))
        except (jax.errors.JaxRuntimeError, TypeError, ValueError):
            self.file.unlink(missing_ok=True)
            # this exchange is at the same place, since a rehearsal always goes the same way
            self._program = together.ahead(self.rehearse(), np.int32(place), network, message, state)
            first = super().__call__(place, network, message, state)
        self.rehearse = None  # which holds the parties' rows
        return first


class _ToBeKept(Planned):
    """A plan whose program is written to a file when it is compiled."""

    def __init__(self, plan: Plan, file: pathlib.Path) -> None:
        super().__init__(plan)
        self.file = file

    def compiled(self, place: Any, network: RunNetwork, message: Any, state: Any) -> Any:
        with without_kept_programs():  # what JAX has read from its own files cannot be written again
            program = together.ahead(self.plan, place, network, message, state)
        with contextlib.suppress(Exception):  # a program that is not kept is compiled again
            _write(self.file, self.plan, program)
        return program


def _name(method: Method, bound: Bound, network: RunNetwork, own: ServerData, begin: Begin) -> str | None:
    """The name of the file; None where nothing is kept."""
    programs = bound.compiled.party, bound.compiled.server
    atoms = [atom for program in programs for atom, _ in program.atoms]
    known = all(atom.is_squared_norm or (atom.loss is not None and atom.loss.known) for atom in atoms)
    if not known or not keeps_programs() or jax.default_backend() != "cpu":
        return None
    shapes = jax.tree.map(lambda leaf: f"{np.shape(leaf)} {np.asarray(leaf).dtype}", (network, own, begin))
    try:
        return digest((_surroundings(), method, type(bound).__name__, shapes), compiled=True)
    except Foreign:  # a method of the user's own, for instance
        return None


@functools.cache
def _machine() -> tuple[Any, ...]:
    """Everything that takes part, but for the problem and JAX's settings: versions, the sources of fedpact, the processor."""
    from jaxlib import version

    root = pathlib.Path(__file__).parents[1]
    sources = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        sources.update(f"{file.relative_to(root)} {file.stat().st_size} ".encode() + file.read_bytes())
    cpu = pathlib.Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else []
    features = {line for line in lines if line.lower().startswith(("flags", "features", "model"))}
    processor = platform.machine(), *(sorted(features) or [platform.processor()])  # which on Linux starts a program
    versions = __about__.VERSION, jax.__version__, version.__version__, eqx.__version__, np.__version__, sys.version
    return versions, sources.hexdigest(), processor


def _surroundings() -> tuple[Any, ...]:
    settings = sorted(
        (name, repr(value)) for name, value in jax.config.values.items() if not any(w in name for w in NOT_OF_PROGRAMS)
    )
    return _machine(), settings, os.environ.get("XLA_FLAGS", "")


def _read(file: pathlib.Path, network: RunNetwork, rehearse: Callable[[], Plan]) -> Planned | None:
    """None where there is no such file, or it is not whole."""
    from jax.experimental import serialize_executable

    try:
        content = file.read_bytes()
        if hashlib.sha256(content[32:]).digest() != content[:32]:
            return None
        exchanges, payload, returned = pickle.loads(zlib.decompress(content[32:]))
        plan = Plan(exchanges)
        arguments = np.int32(0), network, *(dict.fromkeys(lengths, 0) for lengths in plan.lengths[::2])
        given = jax.tree.structure((arguments, {}))
        program = serialize_executable.deserialize_and_load(payload, given, returned)
        os.utime(file)
    except Exception:  # it is not there, or whatever else: it is made
        return None
    return _Kept(plan, program, file, rehearse)


def _write(file: pathlib.Path, plan: Plan, program: Any) -> None:
    from jax.experimental import serialize_executable

    payload, _, returned = serialize_executable.serialize(program)
    content = zlib.compress(pickle.dumps((plan.named().exchanges, payload, returned)), 1)
    private_folder(file.parent)
    with tempfile.NamedTemporaryFile(dir=file.parent, prefix=PART, delete=False) as part:
        try:
            part.write(hashlib.sha256(content).digest() + content)
            part.close()
            os.replace(part.name, file)
        except OSError:
            os.unlink(part.name)
            raise
    kept = [path for path in file.parent.iterdir() if not path.name.startswith(PART)]
    for old in sorted(kept, key=lambda path: path.stat().st_mtime)[:-MOST]:
        old.unlink(missing_ok=True)
