"""Commands for runs across organisations."""

import pathlib
import time
from json import dumps
from typing import Annotated

import typer

from fedpact.cli.app import NAMES, app, party_names
from fedpact.deploy.engine import DEFAULT_WAIT, ENGINES, find_engine


@app.command()
def wire(
    pact: Annotated[
        pathlib.Path, typer.Argument(help="The pact: a Python file with problem, parties and load(party).")
    ],
    parties: Annotated[str | None, typer.Option(help=NAMES)] = None,
    html: Annotated[pathlib.Path | None, typer.Option(help="An HTML file for the same as a page.")] = None,
    markdown: Annotated[
        bool, typer.Option(help="As a table in Markdown, with the names of fields in the code.")
    ] = False,
) -> None:
    """List every message of a pact's run before it is run: what it is, whom it reaches, what it reveals, and its bytes.

    Loads every party's table here to see its columns, traces the method, solves nothing. Bytes are of one party and one
    message, without its header. The digest, and the sha256 of the pact's files, are what a party's policy may allow.
    """
    from fedpact.deploy import message_list as wires
    from fedpact.deploy.wire_notes import notes
    from fedpact.deploy.wire_page import write_wire
    from fedpact.deploy.wire_text import as_text
    from fedpact.run.pact import Pact
    from fedpact.run.pact_files import pact_files

    try:
        listing = wires.wire(Pact(pact, party_names(parties)))
        page = None if html is None else write_wire(html, listing)
    except (OSError, TypeError, ValueError) as error:
        typer.echo(f"fedpact: {error}", err=True)
        raise typer.Exit(1) from None
    for name, sha256 in pact_files(pact).items():
        typer.echo(f"sha256 {sha256}  {name}")
    if markdown:
        typer.echo(f"{listing.method} over {', '.join(listing.parties)}; the pact's digest is {listing.digest}")
        typer.echo("\n".join([listing.description, *notes(listing)]))
        for row in (wires.TITLES, ["---"] * len(wires.TITLES), *listing.rows()):
            typer.echo(f"| {' | '.join(row)} |")
    elif page is None:
        typer.echo(as_text(listing))
    else:
        typer.echo(f"the pact's digest is {listing.digest}; the page is {page.resolve()}")


@app.command(
    epilog="Engines: "
    + "; ".join(f"{name}: {known.description}" for name, known in ENGINES.items())
    + "; see docs/engines.md."
)
def deploy(
    engine: Annotated[str, typer.Argument(help=f"One of {', '.join(ENGINES)}.")],
    pact: Annotated[
        pathlib.Path, typer.Argument(help="The pact: a Python file with problem, parties and load(party).")
    ],
    out: Annotated[
        pathlib.Path,
        typer.Option(
            resolve_path=True,
            help="A new folder for what server and sites need. With --poc that of an earlier try may be given: it goes on, or if "
            "it has ended is kept under another name.",
        ),
    ] = pathlib.Path("fedpact-kit"),
    parties: Annotated[str | None, typer.Option(help=NAMES)] = None,
    server: Annotated[str, typer.Option(help="The server's host name, as the sites reach it.")] = "localhost",
    port: Annotated[
        int | None,
        typer.Option(
            help="The server's port (default: "
            + ", ".join(f"{known.default_port} for {name}" for name, known in ENGINES.items())
            + ")."
        ),
    ] = None,
    wait: Annotated[float, typer.Option(help="Seconds that a party has for one reply.")] = DEFAULT_WAIT,
    poc: Annotated[bool, typer.Option(help="Try it: start everything on this machine, run, stop.")] = False,
    retry: Annotated[
        int,
        typer.Option(
            min=0, help="With --poc: how often a run that stopped is resumed, what has ended is started again."
        ),
    ] = 0,
) -> None:
    """Write what the server and every site need to run a pact on NVIDIA FLARE or Flower: keys, certificates, settings, commands.

    The folder's README has the four commands. Every party gets its own subfolder with a copy of the pact, keeps its state there,
    and may put conditions into its policy.toml. With --poc server and sites run as processes of this machine instead, and what
    they say of the run is shown; `fedpact status` shows the same elsewhere. The same command again leaves a kit as it is.
    """
    from rich.console import Console

    from fedpact.deploy.this_machine import progress_in, reasons_in
    from fedpact.run.pact import Pact
    from fedpact.run.pact_files import pact_files
    from fedpact.run.progress import each_half_second

    agreement = None
    try:
        chosen = find_engine(engine)
        agreement = Pact(pact, party_names(parties))
        with agreement.with_parties() as file:
            files = pact_files(file)
            if poc:
                names = ", ".join(agreement.parties)
                status = f"{engine}: starting the server and {names}, running the pact; the logs are in {out}"
                with (
                    Console(stderr=True).status(status) as live,
                    each_half_second(lambda: live.update(f"{status}\n{progress_in(out)}")),
                ):
                    tell = live.console.print
                    message = chosen.try_here(file, agreement.parties, out, wait=wait, retry=retry, tell=tell)
            else:
                readme = chosen.write_kit(file, agreement.parties, out, server=server, port=port, wait=wait)
                message = f"The commands for the server and the sites are in {readme}"
    except (ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
        typer.echo(f"fedpact: {error}", err=True)
        if poc and agreement is not None and reasons_in(out, agreement.parties):
            typer.echo(reasons_in(out, agreement.parties), err=True)
        raise typer.Exit(1) from None
    typer.echo(message)
    typer.echo(f"For the parties' policies: the pact's digest is {agreement.digest}")
    for name, sha256 in files.items():
        typer.echo(f"sha256 {sha256}  {name}")


@app.command()
def status(
    kit: Annotated[
        pathlib.Path,
        typer.Argument(help="The folder of a kit, or of its server or one of its parties, on this machine."),
    ],
    watch: Annotated[bool, typer.Option(help="Show it again every second until nobody is at work.")] = False,
    json: Annotated[bool, typer.Option(help="One JSON object for each, with times in seconds since 1970.")] = False,
    health: Annotated[
        bool,
        typer.Option(
            help="Look at the engine instead, whatever became of runs: its process is there, a server listens."
        ),
    ] = False,
) -> None:
    """Ask a deployment how its run is going: round, violation and bytes, who is awaited and since when, why somebody failed.

    Reads what the server and the parties of this machine say in their folders, and asks nobody over the network. Parties know
    the round and their own messages; objective and violation are the server's. Ends with 0 where all is well, and with 1 where
    the last run failed, a process is gone, or there has been no run.
    """
    from fedpact.deploy import overview

    if health:
        wrong = overview.ailments(kit)
        typer.echo("\n".join(wrong) or "well")
        raise typer.Exit(bool(wrong))
    found = overview.statuses(kit)
    while watch and any(words["phase"] in overview.AT_WORK and not words["gone"] for words in found):
        typer.echo(overview.as_text(found))
        time.sleep(1.0)
        found = overview.statuses(kit)
    if not found:
        typer.echo(f"fedpact: nobody in {kit} has taken part in a run yet", err=True)
    elif json:
        typer.echo("\n".join(map(dumps, found)))
    else:
        typer.echo(overview.as_text(found))
    if not found or not all(map(overview.is_well, found)):
        raise typer.Exit(1)


@app.command()
def verify(
    kit: Annotated[pathlib.Path, typer.Argument(help="The folder of a kit, with those of the server and all parties.")],
    tolerance: Annotated[float | None, typer.Option(help="To which it has to hold (default: the run's own).")] = None,
) -> None:
    """Measure the certificate of a kit's last run again, from the parties' rows, in no further round.

    Loads every party's rows here, as after `fedpact deploy … --poc`, and reads what each party keeps in its folder. Where parties
    are elsewhere, the job admin/jobs/verify on FLARE, or server/run.sh --verify on Flower, asks them.
    Ends with 0 where the certificate holds, 3 where not, 1 where it cannot be measured.
    """
    from fedpact.deploy.verification import verify_here

    try:
        verification = verify_here(kit, tolerance)
    except Exception as error:  # a party that refuses too
        typer.echo(f"fedpact: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(str(verification))
    if not verification.ok:
        raise typer.Exit(3)


@app.command()
def keys(
    file: Annotated[
        pathlib.Path | None,
        typer.Argument(help="The file for the private half (default: FEDPACT_KEY, else in your folder for settings)."),
    ] = None,
) -> None:
    """Make a party's own key for secure sums, or show the public half of the one that it has.

    A pact names the public half of every party: keys = {"north": "…", "south": "…", "west": "…"}. With its private half, which
    stays in a file that only its owner may read, a party signs what it tells the others before a run, so that nobody in
    between, the server included, can take its place. A party's policy says where the file is: signing_key = "own.key".
    To change a key, make a new one in another file, and let everybody use a pact that names it.
    """
    try:
        from fedpact.deploy.secure_sums import key_file
        from fedpact.privacy.masks import SigningKey

        path = key_file() if file is None else file
        if path.exists():
            key, what = SigningKey.read(path), "was there already"
        else:
            key, what = SigningKey.new(), "is new; keep it to yourself, and keep a copy"
            key.save(path)
    except (ImportError, OSError, ValueError) as error:
        typer.echo(f"fedpact: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"The private half in {path} {what}.\nThe public half, for the pact:\n{key.public}")
