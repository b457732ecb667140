"""The programs of the front door run as they stand; examples/ holds them."""

import os
import pathlib
import subprocess
import sys

import pytest
from conftest import GIVEN_FLAGS

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"
SHARED = pathlib.Path(__file__).parents[2] / "shared"
FRONT_DOOR, SECOND_HALF = SHARED / "front_door", SHARED / "front_door_2"


@pytest.mark.parametrize("program", sorted(p.name for p in EXAMPLES.glob("*.py")))
def test_it_runs(program: str, tmp_path: pathlib.Path) -> None:
    settings = {"JAX_NUMPY_DTYPE_PROMOTION": "standard", "FEDPACT_CACHE": str(tmp_path)}
    settings["XLA_FLAGS"] = GIVEN_FLAGS  # compiled as users compile
    settings["SCIPY_ARRAY_API"] = "1"  # else scikit-learn's suite skips a check, with a warning
    command = [sys.executable, "-W", "error", str(EXAMPLES / program)]
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not FRONT_DOOR.is_dir(), reason="the front door is not beside this checkout")
def test_the_examples_are_the_front_door_to_the_letter() -> None:
    wanted = {path.name.partition("_")[2]: path.read_text() for path in FRONT_DOOR.glob("*.py")}
    later = {path.name.partition("_")[2]: path.read_text() for path in SECOND_HALF.glob("*.py")}
    there = {path.name: path.read_text() for path in EXAMPLES.glob("*.py")}
    assert wanted.items() <= there.items() <= (wanted | later).items()
