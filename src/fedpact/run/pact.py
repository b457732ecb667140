"""A pact: one Python file that every site has, with the problem, the parties and how each loads its own rows."""

import contextlib
import importlib.util
import os
import pathlib
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fedpact import __about__
from fedpact.federation.columns import ColumnParties, split_columns
from fedpact.federation.rows import Parties, checked_seed, split_rows
from fedpact.federation.setting import Setting
from fedpact.federation.table import Table, as_table
from fedpact.problem.fingerprint import digest
from fedpact.problem.split import SplitModel
from fedpact.problem.statement import Problem
from fedpact.protocol.algorithm import Algorithm
from fedpact.run.result import Result
from fedpact.run.selection import chosen, protected
from fedpact.run.solve import solve
from fedpact.settings import bind, setting_of
from fedpact.settings.base import Agreement, Bound
from fedpact.settings.row_tables import DISCLOSED

OPTIONS = ("tolerance", "max_rounds", "start", "seed", "disclose", "driver", "privacy")


class Pact:
    """`problem`, `parties` and `load` of a pact file, and its `algorithm`, `options` and `server` where it has them; over
    columns also `active`, the parties with labels and groups (default: the first), and `id`, the column that names rows.

    parties: their names, of a file that has none.
    """

    def __init__(self, path: str | os.PathLike[str], parties: Sequence[str] | None = None):
        self.path = pathlib.Path(path)
        module = dict(vars(_module(self.path)))
        self.problem: Problem = self._part(module, "problem", Problem, "what fp.minimize(...) gives")
        self.names_parties = "parties" in module
        if parties is not None:
            module.setdefault("parties", list(parties))
        words = 'the names of the parties, such as ["north", "south"], unless they are given: --parties north,south'
        names = self._part(module, "parties", list | tuple, words)
        if parties is not None and set(parties) != set(names):
            raise ValueError(f"parties {', '.join(parties)} are given, and those of {self.path} are {', '.join(names)}")
        if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
            raise ValueError(f"{self.path}: parties = {names!r} should be the parties' names, each once")
        self.parties: tuple[str, ...] = tuple(names)
        self.load: Callable[[str], Table] = self._part(module, "load", Callable, "a function load(party) -> fp.Table")
        self.algorithm: Algorithm | None = module.get("algorithm")
        if not isinstance(self.algorithm, Algorithm | None):
            raise TypeError(f"{self.path}: `algorithm` should be one, such as fp.ProxAL(), not {self.algorithm!r}")
        self.options: Mapping[str, Any] = module.get("options") or {}
        if not isinstance(self.options, Mapping):
            raise TypeError(
                f"{self.path}: `options` should be a dict such as {{'tolerance': 1e-6}}, not {self.options!r}"
            )
        unknown = [name for name in self.options if name not in OPTIONS]
        if unknown:
            raise ValueError(f"{self.path}: options has {unknown[0]!r}; it may have {', '.join(OPTIONS)}")
        self._server: Any = module.get("server")
        self.active = self._active(module.get("active"))
        self.id: str | None = module.get("id")

    def _part(self, module: Mapping[str, Any], name: str, kind: Any, words: str) -> Any:
        if name not in module:
            raise ValueError(f"{self.path}: a pact has `{name}`, {words}")
        if not isinstance(module[name], kind):
            raise TypeError(f"{self.path}: `{name}` should be {words}, not a {type(module[name]).__name__}")
        return module[name]

    def _active(self, given: Any) -> tuple[str, ...]:
        """Over columns, who holds labels and groups; where rows are split, nobody is named."""
        if given is None:
            return self.parties[:1] if isinstance(self.problem.model, SplitModel) else ()
        named = [given] if isinstance(given, str) else list(given)
        unknown = [name for name in named if name not in self.parties]
        if unknown or not named:
            raise ValueError(f"{self.path}: active = {given!r} should name some of {', '.join(self.parties)}")
        return tuple(name for name in self.parties if name in named)

    @contextlib.contextmanager
    def with_parties(self) -> Iterator[pathlib.Path]:
        """The file for the sites: itself, or a copy that has the parties' names too."""
        if self.names_parties:
            yield self.path
            return
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / self.path.name
            copy.write_text(
                f"{self.path.read_text()}\n\nparties = {list(self.parties)!r}  # as given to `fedpact deploy`\n"
            )
            yield copy

    @property
    def columns(self) -> bool:
        """Whether the parties hold columns."""
        return bool(self.active)

    @property
    def discloses(self) -> bool:
        """Whether parties tell their constraints and multipliers each round: as the options say, else where there are few."""
        if self.columns:
            return False
        constraints = sum(constraint.scope == "party" for constraint in self.problem.constraints)
        told = self.options.get("disclose")
        return len(self.parties) * max(1, constraints) <= DISCLOSED if told is None else bool(told)

    @property
    def digest(self) -> str:
        """Of what all sites must agree on: problem, parties, method, options, and the version of fedpact."""
        agreed = [self.parties, self.active, self.id, self.algorithm, dict(self.options), __about__.VERSION]
        return digest([digest(self.problem.public), *agreed])

    def options_for(self, setting: Setting) -> Algorithm:
        """The method's options for a setting: the pact's own or the automatic choice, with its privacy."""
        return protected(chosen(self.algorithm, setting), self.options.get("privacy"))

    @property
    def setting(self) -> type[Bound]:
        """How the parties hold the data."""
        return setting_of(self.problem)

    @property
    def agreement(self) -> Agreement:
        """What all sites agree on, beside the method."""
        start, seed = self.options.get("start"), checked_seed(self.options.get("seed", 0))
        return Agreement(self.problem, self.parties, self.active, self.id, start, seed, self.discloses)

    def bind(self) -> Bound:
        """The problem over its parties' tables, all loaded in this process."""
        agreed, server = self.agreement, None if self.columns else self.server
        return bind(self.problem, self.tables(), server, start=agreed.start, seed=agreed.seed, disclose=agreed.disclose)

    @property
    def server(self) -> Table | None:
        """The server's own rows; where `server` is a function, it is called at the server alone."""
        given = self._server() if callable(self._server) else self._server
        return None if given is None else as_table(given)

    def table(self, party: str) -> Table:
        """A party's rows."""
        try:
            return as_table(self.load(party))
        except Exception as error:
            raise ValueError(f"{self.path}: load({party!r}) fails: {type(error).__name__}: {error}") from error

    def tables(self) -> Parties | ColumnParties:
        """Every party's rows or columns, loaded in this process."""
        loaded = {party: self.table(party) for party in self.parties}
        return split_columns(loaded, active=self.active, id=self.id) if self.columns else split_rows(loaded)

    def run(self, parties: Parties | ColumnParties, **options: Any) -> Result:
        """Solve in this process; options given here come before the pact's own."""
        server = {} if self.columns else {"server": self.server}
        return solve(self.problem, parties, self.algorithm, **server, **{**self.options, **options})


def _module(path: pathlib.Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(
        "pact", path
    )  # one name for all: sites may call the file as they like
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)  # a pact may import its neighbours
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(
            f"{path} cannot be read as Python{_line(path, error)}: {type(error).__name__}: {error}"
        ) from error
    finally:
        sys.path.remove(folder)
    return module


def _line(path: pathlib.Path, error: Exception) -> str:
    """Where in the file an error was raised."""
    if isinstance(error, SyntaxError):
        return ""  # which says it itself
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f", line {lines[-1]}" if lines else ""
