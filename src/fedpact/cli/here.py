"""Commands that run in this process."""

import os
import pathlib
from typing import Annotated

import typer

from fedpact.cli.app import NAMES, app, party_names


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
        stated = Pact(pact, party_names(parties))
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
        stated = Pact(pact, party_names(parties))
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
            text = answers(load(model), rows, party, party_names(keep) or [])
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
            help="rounds, prox-al/np, prox-al/fairness, prox-al/lcqp, prox-al/figures, ssca/rows, ssca/columns, ssca/tradeoff, "
            "fair-vfl/linear, fair-vfl/mlp, fair-vfl/figures, fair-vfl/paces, fair-vfl/audit, pc-fedavg/mnist, "
            "pc-fedavg/cifar10 or pc-fedavg/local-steps."
        ),
    ],
    trials: Annotated[
        int | None,
        typer.Option(
            help="Starting points per row, of fair-vfl/* splits, of ssca/* and pc-fedavg/* seeds (default: 10 of rounds and "
            "prox-al/*, 20 of ssca/rows and columns, 5 of fair-vfl/linear and mlp, else 1).",
            min=1,
        ),
    ] = None,
    data: Annotated[
        pathlib.Path | None,
        typer.Option(help="Folder with the data sets (else FEDPACT_DATA, the cache, the internet)."),
    ] = None,
    out: Annotated[
        pathlib.Path | None,
        typer.Option(
            help="A JSON file for the rows, written after each; rows that it has already are not computed again. Figures are "
            "drawn beside it, as PNG and SVG."
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="A part: data sets, n=5 for a number of parties (prox-al/*), batch sizes and lines (ssca/*), methods "
            "(pc-fedavg/*); may be given again."
        ),
    ] = None,
) -> None:
    """Compute a paper's table or figure again and print it beside the published numbers.

    rounds: rounds and bytes of every method on all of the problems below, median and worst.
    prox-al/np: Neyman-Pearson classification, three data sets, n = 1, 5, 10, 20. prox-al/fairness: loss disparity on adult-b,
    nonconvex constraints at the parties and at the server. prox-al/lcqp: quadratic programs with linear equalities.
    prox-al/figures: objective and constraint of the single clients over the outer iterations.
    ssca/rows, ssca/columns: MNIST over ten parties, SSCA with and without a limit on the cost against tuned SGD, all seeds of a
    line in one program. ssca/tradeoff: cost against ‖ω‖².
    fair-vfl/linear, fair-vfl/mlp: Adult, Compas and Crime over the columns of six parties, equal opportunity within ε.
    fair-vfl/figures: objective and gap over the rounds for every ε. fair-vfl/paces: over simulated seconds, on Compas.
    fair-vfl/audit: what passive parties can infer, in the plain protocol and with encrypted residuals, and what these cost.
    pc-fedavg/mnist, pc-fedavg/cifar10: ℓ1 budgets at four parties, personal models against one for all, and the exact optimum.
    pc-fedavg/local-steps: PC-FedAvg with 1 to 40 local steps on both.

    Says beforehand about how long it takes. An interrupted run goes on where it was with the same --out.
    """
    from fedpact.reproduce.experiments import EXPERIMENTS

    if name not in EXPERIMENTS:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(EXPERIMENTS)}", param_hint="NAME")
    experiment = EXPERIMENTS[name]
    if only and not set(only) <= set(experiment.choices):
        allowed = "; ".join(experiment.choices) or "nothing: it has no parts"
        raise typer.BadParameter(f"{name} goes with {allowed}", param_hint="--only")
    trials = trials or experiment.trials
    if trials > experiment.most_trials:
        raise typer.BadParameter(f"{name} has at most {experiment.most_trials}", param_hint="--trials")
    if data is not None:
        os.environ["FEDPACT_DATA"] = str(data)
    typer.echo(f"{name}: about {experiment.takes}, all of it on two cores.", err=True)
    try:
        experiment.run(trials, out, **({"names": only} if only else {}))
    except (FileNotFoundError, NotADirectoryError, ConnectionError, ImportError, ValueError) as error:
        typer.echo(f"fedpact: {error}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo(f"\nstopped; {'the rows so far are in ' + str(out) if out else 'give --out to keep rows'}", err=True)
        raise typer.Exit(130) from None
