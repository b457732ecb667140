"""What all commands share."""

import typer

NAMES = "Names of the parties, of a pact that has none: north,south (default: those of the pact)."

app = typer.Typer(
    help="Train models across parties who cannot share their data, under constraints, with a certificate.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # "rich" keeps the line breaks of docstrings
)


def party_names(parties: str | None) -> list[str] | None:
    """As given on the command line, separated by commas."""
    return None if parties is None else [name.strip() for name in parties.split(",") if name.strip()]
