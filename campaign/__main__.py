"""Run the campaign, or a part of it: `python -m campaign [--sample 60] [--family np] [--kind raw] [--only NAME]`."""

import argparse
import pathlib

import platformdirs
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from campaign import solvers
from campaign.choice import spread
from campaign.families import problems
from campaign.runner import Record, read, run
from campaign.statement import Case
from campaign.summary import to_markdown, to_terminal


def main() -> None:
    options = _options()
    console = Console()
    if not solvers.has_ipopt():
        raise SystemExit("the campaign needs IPOPT: pip install --group campaign")
    cases = _chosen(options)
    if not cases:
        raise SystemExit("no problem has this family, kind or name; --list prints them all")
    if options.list:
        print("\n".join(case.name for case in cases))
        return
    done = {} if options.again else read(options.out)
    left = [case for case in cases if case.name not in done]
    console.print(f"{len(cases)} problems, {len(cases) - len(left)} of them in {options.out} already")
    try:
        _run(left, options, done, console)
    except KeyboardInterrupt:
        console.print("stopped; the same command continues")
    names = {case.name for case in cases}
    records = [record for name, record in done.items() if name in names]
    families = list(dict.fromkeys(case.family for case in cases))
    to_terminal(records, families, console)
    if options.markdown:
        options.markdown.write_text(to_markdown(records, families))
        console.print(f"written to {options.markdown}")


def _run(left: list[Case], options: argparse.Namespace, done: dict[str, Record], console: Console) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with options.out.open("a") as file, Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        task = progress.add_task("campaign", total=len(left))

        def note(record: Record) -> None:
            file.write(record.line() + "\n")
            file.flush()
            done[record.name] = record
            progress.update(task, advance=1, description=record.name)
            if record.outcome in ("false", "error", "out of time"):
                progress.console.print(f"{record.outcome}: {record.name}: {record.why}", markup=False, soft_wrap=True)

        run(left, options.references, options.max_rounds, options.workers, note, options.first_seed)


def _chosen(options: argparse.Namespace) -> list[Case]:
    cases = [
        case
        for case in problems(options.first_seed).values()
        if (not options.family or case.family in options.family)
        and (not options.kind or case.kind in options.kind)
        and (not options.only or case.name in options.only)
    ]
    return spread(cases, options.sample) if options.sample else cases


def _options() -> argparse.Namespace:
    kept = pathlib.Path(platformdirs.user_cache_dir("fedpact")) / "campaign"
    parser = argparse.ArgumentParser(prog="python -m campaign", description=__doc__)
    parser.add_argument("--family", action="append", help="only this family; may be repeated")
    parser.add_argument("--kind", action="append", help="only this kind of data; may be repeated")
    parser.add_argument("--only", action="append", metavar="NAME", help="only this problem; may be repeated")
    parser.add_argument("--sample", type=int, metavar="N", help="a fixed sample, spread over families and kinds")
    parser.add_argument(
        "--out", type=pathlib.Path, default=pathlib.Path("campaign.jsonl"), help="results; a rerun continues"
    )
    parser.add_argument("--again", action="store_true", help="run problems again that are in the file already")
    parser.add_argument("--references", type=pathlib.Path, default=kept, help=f"where references are kept ({kept})")
    parser.add_argument("--max-rounds", type=int, default=500)
    parser.add_argument("--first-seed", type=int, default=0, metavar="N", help="from 7 on: problems never looked at")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--markdown", type=pathlib.Path, metavar="FILE", help="write the table as markdown, too")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    return parser.parse_args()


if __name__ == "__main__":  # workers import this module again
    main()
