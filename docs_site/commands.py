"""docs/commands.md: every command with its `--help`, made from the command line itself.

python docs_site/commands.py    # writes the page; tests/test_site.py compares it
"""

import pathlib

import click
import typer.main

from fedpact.cli import app

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "commands.md"
WIDTH = 100
HEAD = """# Commands

Every command of `fedpact` with what its `--help` says. A pact is [one Python file](deploy.md) that every site has.
"""


def page() -> str:
    """The text of the page."""
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group)
    parts = [HEAD, _block("fedpact --help", _help(group, "fedpact"))]
    for name, command in group.commands.items():
        parts += [f"\n## fedpact {name}\n", _block(f"fedpact {name} --help", _help(command, f"fedpact {name}"))]
    return "\n".join(parts) + "\n"


def _block(command: str, text: str) -> str:
    return f"```\n$ {command}\n{text}\n```"


def _help(command: click.Command, name: str) -> str:
    """As on a terminal without colours and frames."""
    command.rich_markup_mode = None  # an attribute of typer's commands
    context = click.Context(command, info_name=name, max_content_width=WIDTH, terminal_width=WIDTH)
    text = command.get_help(context).replace("\\[", "[")  # typer escapes brackets for rich
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


if __name__ == "__main__":
    PAGE.write_text(page())
