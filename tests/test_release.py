"""What a release says of itself. `make package` installs one in a clean environment (tests/installed.py)."""

import importlib.metadata
import pathlib
import re
import tomllib

import pytest

import fedpact as fp
from fedpact.extras import install

ROOT = pathlib.Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_citation_has_the_version() -> None:
    assert f"version: {fp.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_extras_in_the_documentation_exist() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    named = {name for page in pages for name in re.findall(r"pip install '\.\[(\w+)\]'", page.read_text())}
    assert {"frames", "flare", "flower", "encrypted"} <= named <= set(PROJECT["optional-dependencies"])


def test_hints_work_without_a_published_package() -> None:
    """Messages name libraries; `pip install 'fedpact[frames]'` would look for fedpact on an index."""
    told = [path for path in (ROOT / "src").rglob("*.py") if re.search(r"pip install ['\"]fedpact\[", path.read_text())]
    assert told == []
    assert install("images") == f"pip install '{PROJECT['optional-dependencies']['images'][0]}'"


def test_without_an_installation_the_checkout_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", missing)
    assert install("flare") == "pip install '.[flare]', in a checkout of fedpact"
