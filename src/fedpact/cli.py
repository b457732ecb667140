"""The command line: `fedpact --help`."""

import contextlib
import os
import pathlib
import threading
import time
from collections.abc import Callable, Iterator
from json import dumps
from typing import Annotated

import typer

from fedpact.deploy.engine import DEFAULT_WAIT, ENGINES, find_engine

NAMES = "Names of the parties, of a pact that has none: north,south (default: those of the pact)."

app = typer.Typer(
    help="Train models across parties who cannot share their data, under constraints, with a certificate.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # "rich" keeps the line breaks of docstrings
)


@app.command()
def demo(
    out: Annotated[pathlib.Path, typer.Option(help="Folder for the run and its report page.")] = pathlib.Path(
        "fedpact-demo"
    ),
) -> None:
    """Five hospitals, one model, no shared rows: solve the Neyman-Pearson example and write its report page."""
    import fedpact as fp

    hospitals = fp.split_rows(fp.datasets.breast_cancer(), parties=5, stratify="y", seed=0)
    loss = fp.logistic_loss(fp.linear(bias=True))
    problem = fp.minimize(
        fp.mean(loss, where=fp.col("y") == 0),
        subject_to=[(fp.mean(loss, where=fp.col("y") == 1) <= 0.2).named("missed cancers")],
        regularizer=fp.l2(1e-3),
    )
    typer.echo(f"{problem}\nover {hospitals}\n")
    result = fp.solve(problem, hospitals, tolerance=1e-6, progress=True)
    typer.echo(f"\n{result}\n")
    report = result.constraint("missed cancers")
    for name, value, margin, multiplier in zip(
        report.holders, report.values, report.margins, report.multipliers, strict=True
    ):
        typer.echo(
            f"  {name}: {report.name} {value:.6f} {report.bound}, margin {margin:.1e}, multiplier {multiplier:.4f}"
        )
    page = result.report(out / "report.html")
    typer.echo(f"\nThe report page is {page.resolve()}; open it in a browser.")


@app.command()
def run(
    pact: Annotated[
        pathlib.Path, typer.Argument(help="The pact: a Python file with problem, parties and load(party).")
    ],
    parties: Annotated[str | None, typer.Option(help=NAMES)] = None,
    tolerance: Annotated[float | None, typer.Option(help="In place of the pact's own.")] = None,
    max_rounds: Annotated[int | None, typer.Option(help="In place of the pact's own.")] = None,
    save: Annotated[pathlib.Path | None, typer.Option(help="A folder for the run.")] = None,
    resume: Annotated[bool, typer.Option(help="Go on with the run in that folder.")] = False,
    report: Annotated[pathlib.Path | None, typer.Option(help="An HTML file for the report page.")] = None,
    explain: Annotated[bool, typer.Option(help="Say what would be done and what it would cost, and stop.")] = False,
    mesh: Annotated[bool, typer.Option(help="Spread the parties over this machine's devices.")] = False,
    hosts: Annotated[
        str | None,
        typer.Option(
            help="Spread the parties over these hosts, the first with a port: one.lan:9000,two.lan; start it on each."
        ),
    ] = None,
    host: Annotated[
        int | None, typer.Option(help="Which of --hosts this one is, from 0 (default: by its name).", min=0)
    ] = None,
) -> None:
    """Try a pact in this process: load every party's rows here, solve, print the certificate.

    A pact is a Python file that every site has: `problem` (what fp.minimize gives) and `load(party)`, which gives a party its
    fp.Table on its own machine; `parties` (their names, or give --parties); `algorithm`, `options` and `server` if wanted.
    With --hosts it is started on every host and spreads simulated parties over all of them; the first prints the result.
    Ends with 0 where the result is certified and what the pact promises is kept, 3 where not, 1 where the pact cannot run.
    """
    import fedpact as fp
    from fedpact.run.hosts import join_hosts
    from fedpact.run.pact import Pact

    given = {"tolerance": tolerance, "max_rounds": max_rounds, "save": save}
    place = 0
    try:
        if hosts is not None:
            place = join_hosts(hosts, host)
        if mesh or hosts is not None:
            given["engine"] = fp.Mesh()
        if place > 0:
            given["save"], report = save and save / f"host {place}", None
        stated = Pact(pact, _names(parties))
        tables = stated.tables()
        if explain:
            server = stated.server_table(tables.recipe)
            sums = stated.secure_sums
            typer.echo(str(fp.explain(stated.problem, tables, stated.algorithm, server=server, privacy=sums)))
            return
        if stated.matched is not None and place == 0:
            typer.echo(str(stated.matched))
        options = {name: value for name, value in given.items() if value is not None}
        result = stated.run(tables, resume=resume, **options)
    except (ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
        typer.echo(f"fedpact: {error}", err=True)
        raise typer.Exit(1) from None
    if place == 0:
        typer.echo(str(result))
    candidate = result.result if isinstance(result, fp.Promise) else result
    if report is not None:
        typer.echo(f"The report page is {candidate.report(report).resolve()}")
    if not (result.kept if isinstance(result, fp.Promise) else result.converged):
        raise typer.Exit(3)


@app.command()
def evaluate(
    pact: Annotated[
        pathlib.Path, typer.Argument(help="The pact: a Python file with problem, parties and load(party).")
    ],
    parties: Annotated[str | None, typer.Option(help=NAMES)] = None,
    run: Annotated[
        pathlib.Path | None,
        typer.Option(
            help="The folder of a run of this pact (`fedpact run --save`); without it the pact is solved first."
        ),
    ] = None,
    label: Annotated[str | None, typer.Option(help="The column of labels (default: the pact's, else y).")] = None,
    group: Annotated[str | None, typer.Option(help="A column of groups (default: the pact's, else none).")] = None,
    weights: Annotated[
        str | None, typer.Option(help="A column of row weights (default: the pact's, else none).")
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(help="Decided positive is score > threshold (default: the pact's, else the problem's)."),
    ] = None,
    confidence: Annotated[float | None, typer.Option(help="Of intervals (default: the pact's, else 0.95).")] = None,
    out: Annotated[pathlib.Path | None, typer.Option(help="A JSON file for rates and counts.")] = None,
) -> None:
    """Count what a pact's model decides: accuracy, selection, true and false positives, precision and AUC by party and group.

    Loads every party's rows here. A run that was stopped is finished first. In a deployed run no rows leave their party: put
    `evaluate = {"label": "y", "group": "sex"}` into the pact, and the parties send their counts when the run ends; the table is
    printed with the result and saved beside it as evaluation.json.
    """
    import fedpact as fp
    from fedpact.run.pact import Pact

    given = {"label": label, "group": group, "weights": weights, "threshold": threshold, "confidence": confidence}
    try:
        stated = Pact(pact, _names(parties))
        tables = stated.tables()
        asked = {**(stated.evaluate or {}), **{name: value for name, value in given.items() if value is not None}}
        if run is not None and not (run / "state.npz").exists():
            raise ValueError(f"{run} holds no run; `fedpact run {pact} --save {run}` makes one")
        result = stated.run(tables, **({} if run is None else {"save": run, "resume": True}))
        evaluation = fp.evaluate(result.result if isinstance(result, fp.Promise) else result, tables, **asked)
        if out is not None:
            evaluation.save(out)
    except (ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
        typer.echo(f"fedpact: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(str(evaluation))


@app.command()
def predict(
    model: Annotated[
        pathlib.Path, typer.Argument(help="The folder of a model: of result.save, or `model` in that of a run.")
    ],
    rows: Annotated[pathlib.Path, typer.Argument(help="New rows: a .csv, .csv.gz or .parquet file.")],
    out: Annotated[
        pathlib.Path | None, typer.Option(help="A CSV file for the answers (default: they are printed).")
    ] = None,
    party: Annotated[str | None, typer.Option(help="Whose own model, where every party has one.")] = None,
    keep: Annotated[
        str | None, typer.Option(help="Columns of the rows to be copied beside the answers: id,ward (default: none).")
    ] = None,
) -> None:
    """Predict with a saved model: score, label and probabilities of every row, in the rows' order.

    The file has the columns that the model was trained on: raw ones where it has a recipe, else its features by name. Other
    columns are ignored. A part of a model over columns gives its part of the scores alone. Linear models and networks of
    fp.mlp start no JAX; models of your own code predict in Python only, with fp.load(folder, model=...).
    Warns where the run behind the model ended infeasible or stopped, and ends with 1 where a column is missing or has NaN.
    """
    import warnings

    from fedpact.prediction.folder import load
    from fedpact.prediction.to_file import answers

    try:
        with warnings.catch_warnings(record=True) as doubts:
            warnings.simplefilter("always", UserWarning)
            text = answers(load(model), rows, party, _names(keep) or [])
        if out is not None:
            out.write_text(text, encoding="utf-8")
    except (ImportError, OSError, TypeError, ValueError) as error:
        typer.echo(f"fedpact: {error}", err=True)
        raise typer.Exit(1) from None
    for doubt in dict.fromkeys(str(doubt.message) for doubt in doubts):
        typer.echo(f"fedpact: warning: {doubt}", err=True)
    typer.echo(text.rstrip("\n") if out is None else f"{text.count(chr(10)) - 1:,} rows are in {out}")


@app.command()
def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="rounds, prox-al/np, prox-al/fairness, prox-al/lcqp, ssca/rows, ssca/columns, ssca/tradeoff, fair-vfl/linear, "
            "fair-vfl/mlp, fair-vfl/convergence, fair-vfl/audit, pc-fedavg/mnist, pc-fedavg/cifar10 or pc-fedavg/local-steps."
        ),
    ],
    trials: Annotated[
        int | None,
        typer.Option(
            help="Starting points per row, of fair-vfl/* splits (default 10; of fair-vfl/linear and mlp 5, of the others 1).",
            min=1,
            max=10,
        ),
    ] = None,
    data: Annotated[
        pathlib.Path | None,
        typer.Option(help="Folder with the data sets (else FEDPACT_DATA, the cache, the internet)."),
    ] = None,
    out: Annotated[pathlib.Path | None, typer.Option(help="A JSON file for the rows, written after each.")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Of rounds, prox-al/np or fair-vfl/* these data sets only, of ssca/* these batch sizes, of pc-fedavg/* these "
            "methods or data sets; may be given again."
        ),
    ] = None,
) -> None:
    """Compute a paper's table again and print it beside the published figures.

    rounds: rounds and bytes of every method on all of the problems below, median and worst (about half an hour).
    prox-al/np: Neyman-Pearson classification, three data sets, n = 1, 5, 10, 20, four inner solvers (about half an hour
    with ten trials on two cores; --trials 1 takes a few minutes).
    prox-al/fairness: loss disparity on adult-b, nonconvex constraints at the parties and at the server.
    prox-al/lcqp: quadratic programs with linear equalities against their exact solution.
    ssca/rows, ssca/columns: MNIST over ten parties, SSCA with and without a limit on the cost against tuned SGD (about an
    hour each with --trials 1 on two cores). ssca/tradeoff: cost against ‖ω‖² (half an hour). With --out also a page of plots.
    fair-vfl/linear, fair-vfl/mlp: Adult, Compas and Crime over the columns of six parties, equal opportunity within ε.
    fair-vfl/convergence: the same on Compas over the rounds and simulated seconds, with --out also a page of plots.
    fair-vfl/audit: what passive parties can infer, in the plain protocol and with encrypted residuals, and what these cost.
    pc-fedavg/mnist, pc-fedavg/cifar10: ℓ1 budgets at four parties, personal models against one for all, and the exact optimum.
    pc-fedavg/local-steps: PC-FedAvg with 1 to 40 local steps on both. With --out also a page of plots.
    """
    from fedpact.reproduce.experiments import EXPERIMENTS, NAMES, TRIALS

    if name not in EXPERIMENTS:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(EXPERIMENTS)}", param_hint="NAME")
    if only and not set(only) <= set(NAMES.get(name, ())):
        allowed = "; ".join(f"{of} with {', '.join(names)}" for of, names in NAMES.items())
        raise typer.BadParameter(f"goes with {allowed}", param_hint="--only")
    if data is not None:
        os.environ["FEDPACT_DATA"] = str(data)
    try:
        EXPERIMENTS[name](trials or TRIALS.get(name, 10), out, **({"names": only} if only else {}))
    except (FileNotFoundError, NotADirectoryError, ConnectionError, ImportError, ValueError) as error:
        typer.echo(f"fedpact: {error}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo(f"\nstopped; {'the rows so far are in ' + str(out) if out else 'give --out to keep rows'}", err=True)
        raise typer.Exit(130) from None


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
        listing = wires.wire(Pact(pact, _names(parties)))
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

    agreement = None
    try:
        chosen = find_engine(engine)
        agreement = Pact(pact, _names(parties))
        with agreement.with_parties() as file:
            files = pact_files(file)
            if poc:
                names = ", ".join(agreement.parties)
                status = f"{engine}: starting the server and {names}, running the pact; the logs are in {out}"
                with (
                    Console(stderr=True).status(status) as live,
                    _each_half_second(lambda: live.update(f"{status}\n{progress_in(out)}")),
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


@contextlib.contextmanager
def _each_half_second(call: Callable[[], None]) -> Iterator[None]:
    """Call something again and again while the block lasts."""
    ended = threading.Event()

    def again() -> None:
        while not ended.wait(0.5):
            call()

    calling = threading.Thread(target=again, daemon=True)
    calling.start()
    try:
        yield
    finally:
        ended.set()
        calling.join()


def _names(parties: str | None) -> list[str] | None:
    return None if parties is None else [name.strip() for name in parties.split(",") if name.strip()]


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


@app.command()
def version() -> None:
    """Print the version."""
    from fedpact.__about__ import VERSION

    typer.echo(VERSION)


def main() -> None:
    app()
