"""The command line: `fedpact --help`. Commands are listed in the order in which their modules are imported."""

import atexit
import gc

import typer

from fedpact.cli.app import app

from fedpact.cli import here, across  # isort: skip

__all__ = ["across", "app", "here", "main"]


@app.command()
def version() -> None:
    """Print the version."""
    from fedpact.__about__ import VERSION

    typer.echo(VERSION)


def main() -> None:
    # else Python looks through all that JAX has left for cycles: 0.3 s before a command ends
    atexit.register(gc.freeze)
    app()
