"""The commands that README and docs tell users to type, from these very files."""

import os
import pathlib
import re
import shlex
import subprocess
import sys

from fedpact.precision import cache_folder

ROOT = pathlib.Path(__file__).parents[1]
PAGES = ("README.md", "docs/flare.md", "docs/flower.md")


def commands(page: str) -> list[str]:
    """The lines `fedpact …` of a page's blocks that are in no language, without their comments."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    typed = [line for language, block in blocks if not language for line in block.splitlines()]
    lines = [line.partition("#")[0].strip() for line in typed]
    return [line for line in lines if line.startswith("fedpact ")]


def trial(engine: str) -> str:
    """The command by which the engine's page lets users try it on their machine."""
    (command,) = (line for line in commands(f"docs/{engine}.md") if "--poc" in line)
    return command


PATH = ":".join(filter(None, sys.path))
ENVIRONMENT = {"FEDPACT_CACHE": str(cache_folder()), "JAX_PLATFORMS": "cpu", "PYTHONPATH": PATH}


def typed_in(folder: pathlib.Path, command: str) -> str:
    """What a command prints that is typed in this folder, by a program of its own, and ends well."""
    program = [sys.executable, "-c", "from fedpact.cli import main; main()", *shlex.split(command)[1:]]
    env = {**os.environ, **ENVIRONMENT}
    ran = subprocess.run(program, cwd=folder, env=env, capture_output=True, text=True, timeout=900)
    assert ran.returncode == 0, f"{command}\n{ran.stderr}{ran.stdout}"
    return ran.stdout
