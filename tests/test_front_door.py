"""The programs of the front door run as they stand; examples/ holds them."""

import os
import pathlib
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize("program", sorted(p.name for p in EXAMPLES.glob("*.py")))
def test_it_runs(program: str, tmp_path: pathlib.Path) -> None:
    settings = {"JAX_NUMPY_DTYPE_PROMOTION": "standard", "FEDPACT_CACHE": str(tmp_path)}
    command = [sys.executable, "-W", "error", str(EXAMPLES / program)]
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
