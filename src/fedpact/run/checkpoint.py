"""The files of a saved run: arrays as npz, text as json, nothing that is executed on reading.

    state.npz     everything to resume with identical results: states of server and parties, history, the run's identity
    answer.npz    the flat parameters and all multipliers, for `fp.verify`
    run.json      the run in readable form: status, tolerance, rounds, certificate

Each file is written under a temporary name and renamed, so that an interrupted write leaves the old one.
"""

import io
import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fedpact.files import private_folder, write

FORMAT = 2  # 1 was that of version 0.1, whose states and digests differ


def _number(thing: Any) -> bool:
    return isinstance(thing, int | float) and not isinstance(thing, bool)


def _tolerance(thing: Any) -> bool:
    both = thing if isinstance(thing, list) else [thing]
    return len(both) <= 2 and all(_number(x) and x > 0 for x in both)


RUN_FIELDS: dict[str, Callable[[Any], bool]] = {  # the fields of run.json, with a check of each
    "format": lambda x: x == FORMAT,
    "problem": lambda x: isinstance(x, str),
    "tolerance": _tolerance,
    "parties": lambda x: isinstance(x, list) and all(isinstance(name, str) for name in x),
    **dict.fromkeys(("objective", "stationarity", "feasibility", "complementarity"), _number),
}
OWNER_FIELDS: dict[str, Callable[[Any], bool]] = {  # the identity of the run in state.npz, with a check of each field
    **dict.fromkeys(("problem", "data", "algorithm", "start"), lambda x: isinstance(x, str)),
    **dict.fromkeys(("seed", "rounds", "sharpened"), lambda x: isinstance(x, int)),
    "seconds": _number,
    "tolerance": _tolerance,
}


class Folder:
    """The folder of a saved run."""

    def __init__(self, path: str | os.PathLike[str]):
        if not isinstance(path, str | os.PathLike) or not os.fspath(path):
            raise ValueError(f"save={path!r}: the path of a folder")
        self.path = pathlib.Path(path)

    @property
    def holds_a_run(self) -> bool:
        return (self.path / "state.npz").exists()

    def check_room(self) -> None:
        """Raise ValueError where the folder is a file or cannot be written."""
        for place in (self.path, *self.path.parents):
            if place.exists() and not place.is_dir():
                raise ValueError(f"save={str(self.path)!r}: {place} is a file; a run is saved in a folder")
        probe = self.path / ".room.part"
        try:
            private_folder(self.path)
            probe.write_bytes(b"?")
            probe.unlink()
        except OSError as error:
            raise ValueError(
                f"save={str(self.path)!r}: the folder cannot be written ({error}); choose another"
            ) from None

    def check_free(self) -> None:
        """Raise ValueError where there is an answer without a state, which a new run would overwrite."""
        for name in ("answer.npz", "run.json"):
            if (self.path / name).exists():
                raise ValueError(
                    f"{self.path} holds the {name} of a run but no state.npz to resume from; restore that file, or choose "
                    "another folder for save=; nothing was changed"
                )

    def save_state(self, states: Any, history: dict[str, np.ndarray], owner: dict[str, Any]) -> None:
        arrays = {f"state{name}": np.asarray(leaf) for name, leaf in named_leaves(states)}
        arrays |= {f"history.{name}": column for name, column in history.items()}
        arrays["owner"] = np.frombuffer(json.dumps({"format": FORMAT, **owner}).encode(), np.uint8)
        self._write("state.npz", npz(arrays))

    def save_answer(self, arrays: dict[str, np.ndarray], words: dict[str, Any]) -> None:
        self._write("answer.npz", npz(arrays))
        self._write("run.json", json.dumps({"format": FORMAT, **words}, indent=2).encode())

    def owner(self) -> dict[str, Any]:
        """The identity of the saved run. Raises ValueError where it is damaged."""
        owner = json.loads(self._arrays("state.npz")["owner"].tobytes())
        wrong = [name for name, fits in OWNER_FIELDS.items() if not fits(owner.get(name))]
        if wrong:
            raise ValueError(f"{self.path / 'state.npz'} is damaged: its {wrong[0]} is invalid")
        return owner

    def load_state(self, template: Any) -> tuple[Any, dict[str, np.ndarray]]:
        """The saved states in the shape of `template`, and the history's columns."""
        arrays = self._arrays("state.npz")
        leaves = []
        for name, leaf in named_leaves(template):
            saved = arrays.get(f"state{name}")
            if saved is None or saved.shape != leaf.shape or saved.dtype != leaf.dtype:
                raise ValueError(
                    f"{self.path / 'state.npz'} does not fit this run: it has {_described(saved)} where "
                    f"{name.lstrip('.')} of {leaf.dtype}{list(leaf.shape)} is expected; it was made by another version or method"
                )
            leaves.append(saved)
        history = {name.removeprefix("history."): a for name, a in arrays.items() if name.startswith("history.")}
        return jax.tree.unflatten(jax.tree.structure(template), leaves), history

    def load_answer(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        arrays = self._arrays("answer.npz")
        file = self.path / "run.json"
        try:
            words = json.loads(file.read_text())
        except FileNotFoundError:
            raise FileNotFoundError(f"{self.path} holds no run.json; is it the save= folder of a run?") from None
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{file} is damaged: {error}") from None
        wrong = [name for name, fits in RUN_FIELDS.items() if not isinstance(words, dict) or not fits(words.get(name))]
        if wrong:
            raise ValueError(f"{file} is damaged: {wrong[0]} is invalid; restore it from a copy")
        return arrays, words

    def _arrays(self, name: str) -> dict[str, np.ndarray]:
        file = self.path / name
        if not file.exists():
            raise FileNotFoundError(f"{self.path} holds no {name}; is it the save= folder of a run?")
        try:
            with open(file, "rb") as opened, np.load(opened, allow_pickle=False) as saved:
                arrays = {key: saved[key] for key in saved.files}
        except Exception as error:  # a damaged archive may raise any exception
            raise ValueError(
                f"{file} is truncated or not a fedpact file ({error}); restore it from a copy, or start again elsewhere"
            ) from None
        if name == "state.npz":
            try:
                version = json.loads(arrays["owner"].tobytes())["format"]
            except (KeyError, ValueError, TypeError):
                raise ValueError(f"{file} is not a fedpact checkpoint; choose another folder for save=") from None
            if version != FORMAT:
                raise ValueError(
                    f"{file} has format {version}; this fedpact reads format {FORMAT}: go on with the version that wrote "
                    "it, or begin again in another folder"
                )
        return arrays

    def _write(self, name: str, content: bytes) -> None:
        write(self.path / name, content)


def named_leaves(tree: Any) -> list[tuple[str, Any]]:
    """Leaves of a tree with their paths as text."""
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]]


def npz(arrays: dict[str, np.ndarray]) -> bytes:
    """Named arrays as the bytes of an npz file."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _described(array: np.ndarray | None) -> str:
    return "nothing" if array is None else f"{array.dtype}{list(array.shape)}"
