"""docs/soak.md, from the records of a soak's runs."""

import re
from collections.abc import Sequence
from typing import Any

LINE = re.compile(r"fault \d+ of \d+: ([a-z ]+), after round \d+ was saved: (.*)")


def kind_of(fault: str) -> str:
    """A fault without the party's name."""
    who, _, what = fault.partition(" ")
    return fault if who in ("server", "a") else f"a party {what}".strip()


def page(seen: Sequence[dict[str, Any]], combinations: int | None = None) -> str:
    """The page, of the runs that finished and of those that failed.

    - `combinations`: of engine, method and kind of fault that there are (default: None, not said).
    """
    good, failed = [run for run in seen if "failed" not in run], [run for run in seen if "failed" in run]
    count, worst = sum(len(run["faults"]) for run in good), max((run["far"] for run in good), default=0.0)
    tried = len({(run["engine"], run["method"], kind_of(fault)) for run in good for fault in run["faults"]})
    of_all = (
        f"Of {combinations} combinations of engine, method and kind of fault {tried} were tried. "
        if combinations
        else ""
    )
    went_on = sum(line.endswith(": went on") for run in good for line in run["lines"])
    commits = ", ".join(sorted({run["commit"] for run in good}))
    return "\n".join(
        [
            "# What runs survive",
            "",
            f"Written by `make soak` (records: [soak.jsonl](soak.jsonl); commits {commits}): {count} faults in {len(good)} runs, "
            f"{count} recoveries; the worst answer is {worst:.1e} from that of the undisturbed run in one process. {of_all}"
            "What each fault is, is in [tests/soak.py](../tests/soak.py).",
            "",
            *_failures(failed),
            "| engine | what happened | times | what the run said |",
            "|---|---|---|---|",
            *_by_kind(good),
            "",
            f"“went on”: the run did not stop ({went_on} of {count} times). After every other sentence it was resumed; "
            "`FINISHED:EXECUTION_EXCEPTION` is FLARE's for a job whose process at the server ended.",
            "",
            "| engine | method | runs | faults | kinds of fault | answers differ by at most |",
            "|---|---|---|---|---|---|",
            *_by_method(good),
            "",
        ]
    )


def _by_kind(good: Sequence[dict[str, Any]]) -> list[str]:
    table: dict[tuple[str, str], dict[str, int]] = {}
    for run in good:
        for found in filter(None, map(LINE.fullmatch, run["lines"])):
            kind, said = kind_of(found[1]), re.sub(r"'?(north|south|west)'?|(?<=room for )\d+", "…", found[2])
            who, what = ("the server", kind[6:]) if kind.startswith("server") else ("a party", kind[7:])
            counts = table.setdefault((run["engine"], f"{who}: {what.strip() or 'killed'}"), {})
            counts[said] = counts.get(said, 0) + 1
    return [
        f"| {engine} | {what} | {sum(said.values())} | {'; '.join(f'{n} x “{words}”' for words, n in said.items())} |"
        for (engine, what), said in sorted(table.items())
    ]


def _by_method(good: Sequence[dict[str, Any]]) -> list[str]:
    rows = []
    for engine, method in sorted({(run["engine"], run["method"]) for run in good}):
        runs = [run for run in good if (run["engine"], run["method"]) == (engine, method)]
        faults = [kind_of(fault) for run in runs for fault in run["faults"]]
        far = max(run["far"] for run in runs)
        rows.append(f"| {engine} | {method} | {len(runs)} | {len(faults)} | {len(set(faults))} | {far:.1e} |")
    return rows


def _failures(failed: Sequence[dict[str, Any]]) -> list[str]:
    lines = [
        f"- {run['engine']}, {run['method']}, {', '.join(run['meant'])}: {run['failed'].strip().splitlines()[-1]}"
        for run in failed
    ]
    return [f"**{len(failed)} runs failed:**", "", *lines, ""] if failed else []
