"""The commands that README and docs tell users to type, from these very files."""

import pathlib
import re

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
