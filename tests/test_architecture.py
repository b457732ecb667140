"""Imports go one way: what stands later in ORDER may use what stands before it, never the other way round."""

import ast
import pathlib

import pytest

import fedpact

ROOT = pathlib.Path(fedpact.__file__).parent
PUBLIC = "fedpact"  # `import fedpact as fp`, which gathers everything before it
ROOMS = [
    "problem",
    "sets",
    "federation",
    "preparation",
    "protocol",
    "privacy",
    "algorithms",
    "certificate",
    "settings",
    "engines",
    "report",
    "evaluation",
    "promises",
    "prediction",
    "run",
    "deploy",
    "datasets",
]
INSIDE = [*ROOMS, "postprocess", "trackers", "sklearn"]
ORDER = [*INSIDE, PUBLIC, "reproduce", "cli", "__main__"]
FOR_ALL = {"arrays", "extras", "records", "precision", "compiling", "files", "sums", "tolerance", "__about__"}
FORBIDDEN = {
    "certificate": {"algorithms", "privacy"},
    "settings": {"algorithms", "privacy"},
    "engines": {"algorithms", "privacy"},
    "datasets": set(INSIDE) - {"federation"},
    "evaluation": {"algorithms", "privacy", "engines", "settings"},
    "trackers": set(INSIDE) - {"run"},
    "prediction": set(INSIDE) - {"problem", "federation", "preparation"},
    "postprocess": set(INSIDE) - {"evaluation"},
    "sklearn": set(INSIDE) - {"problem", "federation", "protocol", "run"},
}  # though their place would allow it
SOURCES = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def imported(source: str) -> set[str]:
    """The rooms of fedpact that a module imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    parts = [name.split(".") for name in names]
    return {name[1] if len(name) > 1 else PUBLIC for name in parts if name[0] == "fedpact"}


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_imports_go_one_way(path: pathlib.Path) -> None:
    own = path.parts[0].removesuffix(".py")
    before = [] if own in FOR_ALL else ORDER[: ORDER.index(own)]
    wrong = imported((ROOT / path).read_text()) - {own} - FOR_ALL - (set(before) - FORBIDDEN.get(own, set()))
    assert not wrong, f"{path} of {own} may not import {', '.join(wrong)}"


def test_the_rule_sees_what_it_forbids() -> None:
    assert imported("from fedpact.run.solve import solve") == {"run"}
    assert imported("def f():\n    import fedpact.engines.local") == {"engines"}
    assert imported("from fedpact import cli, __about__") == {"cli", "__about__"}
    assert imported("import fedpact") == {PUBLIC}
    assert imported("import jax.numpy as jnp") == set()
