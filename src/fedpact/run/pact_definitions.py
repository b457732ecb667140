"""What a pact's file defines, read and checked one definition at a time."""

import importlib.util
import pathlib
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedpact.protocol.algorithm import Algorithm
from fedpact.protocol.options import check

EVALUATE = ("label", "group", "positive", "threshold", "weights", "bins", "confidence", "min_rows")
OPTIONS = (
    "tolerance",
    "max_rounds",
    "start",
    "starts",
    "seed",
    "disclose",
    "driver",
    "privacy",
    "scale",
    "largest_reply",
)
TERMS = ("confidence", "held_out", "power", "ranges")  # of a promise; its seed is that of the options


class Definitions:
    """The definitions of a file, by name.

    - `path`: of the Python file.

    Raises FileNotFoundError, and ValueError where the file cannot be read.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.by_name: dict[str, Any] = dict(vars(_module(path)))

    def get(self, name: str) -> Any:
        """A definition, or None."""
        return self.by_name.get(name)

    def part(self, name: str, kind: Any, words: str) -> Any:
        """A definition that every pact has, of this type; `words` say what it is."""
        if name not in self.by_name:
            raise ValueError(f"{self.path}: a pact has `{name}`, {words}")
        if not isinstance(self.by_name[name], kind):
            raise TypeError(f"{self.path}: `{name}` should be {words}, not a {type(self.by_name[name]).__name__}")
        return self.by_name[name]

    def parties(self, given: Sequence[str] | None) -> tuple[str, ...]:
        """The names of the parties: those of the file, or, where it has none, those given."""
        if given is not None:
            self.by_name.setdefault("parties", list(given))
        words = 'the names of the parties, such as ["north", "south"], unless --parties north,south names them'
        names = self.part("parties", list | tuple, words)
        if given is not None and set(given) != set(names):
            raise ValueError(f"the parties are {', '.join(given)}, but those of {self.path} are {', '.join(names)}")
        if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
            raise ValueError(f"{self.path}: parties = {names!r} should be the parties' names, each once")
        return tuple(names)

    def algorithm(self) -> Algorithm | None:
        algorithm = self.get("algorithm")
        if not isinstance(algorithm, Algorithm | None):
            raise TypeError(f"{self.path}: `algorithm` should be one, such as fp.ProxAL(), not {algorithm!r}")
        return algorithm

    def options(self) -> Mapping[str, Any]:
        options = self.get("options") or {}
        if not isinstance(options, Mapping):
            raise TypeError(f"{self.path}: `options` should be a dict such as {{'tolerance': 1e-6}}, not {options!r}")
        self._known("options", options, OPTIONS)
        if options.get("largest_reply") is not None:
            owner, words = f"{self.path}: options", "the largest number that a party may send, over 0"
            check(owner, "largest_reply", options["largest_reply"], lambda x: x > 0, words)
        return options

    def evaluate(self) -> Mapping[str, Any] | None:
        evaluate = self.get("evaluate")
        if evaluate is None:
            return None
        if not isinstance(evaluate, Mapping):
            raise TypeError(f"{self.path}: `evaluate` should be a dict such as {{'label': 'y'}}, not {evaluate!r}")
        self._known("evaluate", evaluate, EVALUATE)
        return evaluate

    def promise(self) -> Mapping[str, Any] | None:
        """The terms of a promise."""
        terms = self.get("promise")
        if terms is not None and (not isinstance(terms, Mapping) or not set(terms) <= set(TERMS)):
            raise ValueError(f"{self.path}: promise = {terms!r} should be a dict that may have {', '.join(TERMS)}")
        return terms

    def watch(self) -> Callable[[], Any] | None:
        watch = self.get("watch")
        if watch is not None and not callable(watch):
            raise TypeError(
                f"{self.path}: `watch` should be a function without arguments that gives a tracker, such as lambda: "
                f"fp.trackers.TensorBoard('runs'), not {watch!r}"
            )
        return watch

    def active(self, parties: Sequence[str], split: bool) -> tuple[str, ...]:
        """The parties that hold labels and groups where columns are split; none where rows are."""
        active = self.get("active")
        if active is None:
            return tuple(parties[:1]) if split else ()
        named = [active] if isinstance(active, str) else list(active)
        unknown = [name for name in named if name not in parties]
        if unknown or not named:
            raise ValueError(f"{self.path}: active = {active!r} should name some of {', '.join(parties)}")
        return tuple(name for name in parties if name in named)

    def align(self, columns: bool) -> str | None:
        """The column of ids by which rows are matched before a run."""
        align, own = self.get("align"), self.get("id")
        if align is None:
            return None
        if not isinstance(align, str):
            raise TypeError(f"{self.path}: `align` should be the name of the column of ids, not {align!r}")
        if not columns:
            raise ValueError(f"{self.path}: align = {align!r} is for parties that hold columns of the same rows")
        if own not in (None, align):
            raise ValueError(f"{self.path}: rows are matched by align = {align!r}, so `id` is the same, not {own!r}")
        return align

    def keys(self, parties: Sequence[str]) -> dict[str, str] | None:
        """The parties' public keys, where the file has them."""
        keys = self.get("keys")
        if keys is None:
            return None
        from fedpact.privacy.masks import checked_public

        if not isinstance(keys, Mapping) or set(keys) != set(parties):
            raise ValueError(
                f"{self.path}: `keys` should be a dict with the public key of each of {', '.join(parties)}"
            )
        for name, key in keys.items():
            try:
                checked_public(key)
            except ValueError as error:
                raise ValueError(f"{self.path}: keys[{name!r}]: {error}") from None
        return dict(keys)

    def _known(self, what: str, given: Mapping[str, Any], allowed: Sequence[str]) -> None:
        unknown = [name for name in given if name not in allowed]
        if unknown:
            raise ValueError(f"{self.path}: {what} has {unknown[0]!r}; it may have {', '.join(allowed)}")


def _module(path: pathlib.Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(
        "pact", path
    )  # one module name at all sites, whatever the file is called
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)  # a pact may import modules of its folder
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
    """The line of the file that raised an error, as text."""
    if isinstance(error, SyntaxError):
        return ""  # its message has the line
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f", line {lines[-1]}" if lines else ""
