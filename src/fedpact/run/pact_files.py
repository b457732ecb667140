"""The files that a pact consists of, found without executing any: the pact and the modules of its folder that it imports."""

import ast
import hashlib
import os
import pathlib

EXECUTED = (".py", ".pyc", ".so", ".pyd")  # what an import may execute


def pact_files(path: str | os.PathLike[str]) -> dict[str, str]:
    """By name, relative to the pact's folder, the sha256 of a pact file and of what it imports from its folder.

    Imports are those that the files state, anywhere in them, and of a package all its modules; those of installed libraries
    are not followed. Raises FileNotFoundError, and ValueError where a file is no Python.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    found: dict[str, str] = {}
    waiting = [path]
    while waiting:
        file = waiting.pop()
        name = file.relative_to(path.parent).as_posix()
        if name in found:
            continue
        content = file.read_bytes()
        found[name] = hashlib.sha256(content).hexdigest()
        if file.suffix == ".py":
            waiting += _imported(file, content, path.parent)
    return found


def _imported(file: pathlib.Path, content: bytes, folder: pathlib.Path) -> list[pathlib.Path]:
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"{file} cannot be read as Python: {error}") from None
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.add(node.module.partition(".")[0])
    return [each for name in sorted(names) for each in _modules(folder, name)]


def _modules(folder: pathlib.Path, name: str) -> list[pathlib.Path]:
    """The files in a folder that `import name` may execute: a module, or all that a package has, compiled ones too."""
    inside = (folder / name).rglob("*")
    there = (*folder.glob(f"{name}.*"), *inside)
    return [each for each in there if each.suffix in EXECUTED and each.parent.name != "__pycache__" and each.is_file()]
