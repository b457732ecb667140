"""docs/reproduce.md, made from the JSON files that `fedpact reproduce ... --out docs/reproduced/NAME.json` left.

    python docs_site/reproduced.py    # `make reproduce-docs`: gathers parts, draws the figures, writes the page

The prose is docs_site/reproduce.md. There `<!-- table NAME -->` stands for the table of an experiment with its commands and where
it was computed, `<!-- figure NAME -->` for its figure, `<!-- choice PAPER -->` for what a reader should use now.
tests/test_site.py compares the page in the repository with what comes out here.
"""

import json
import pathlib
import re
from collections.abc import Callable
from typing import Any

from fedpact.reproduce import fair_vfl_figures, fair_vfl_paces, pc_fedavg, prox_al_figures, ssca_figures
from fedpact.reproduce.fair_vfl import DATA as FAIR_DATA
from fedpact.reproduce.markdown import TABLES, Column, Row, grid, line_place, over_data, plain, size
from fedpact.reproduce.prox_al_tables import CENTRAL, PRINTED
from fedpact.reproduce.ssca import LIMIT as MOST_COST
from fedpact.reproduce.ssca import PARTIES as IMAGE_PARTIES

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "reproduced"
PAGE = ROOT / "docs" / "reproduce.md"
TEMPLATE = ROOT / "docs_site" / "reproduce.md"
HEAD = (
    "<!-- Made by `make reproduce-docs` from docs_site/reproduce.md and docs/reproduced/*.json; change these. -->\n\n"
)
PLACE = re.compile(r"^<!-- (table|figure|choice) (\S+) -->$", re.MULTILINE)


def file_of(name: str) -> pathlib.Path:
    return RESULTS / f"{name.replace('/', '-')}.json"


def gather() -> None:
    """Runs of parts of an experiment, in files of their own, become one file for each experiment."""
    found: dict[str, list[pathlib.Path]] = {}
    for path in sorted(RESULTS.glob("*.json")):
        found.setdefault(json.loads(path.read_text("utf-8"))["name"], []).append(path)
    for name, paths in found.items():
        if paths == [file_of(name)]:
            continue
        runs: list[dict[str, str]] = []
        rows: list[Row] = []
        for path in sorted(paths, key=lambda path: (path != file_of(name), path)):
            part = json.loads(path.read_text("utf-8"))
            for row in part["rows"]:
                run = part["runs"][row["run"]]
                runs += [] if run in runs else [run]
                rows.append(row | {"run": runs.index(run)})
        for path in paths:
            for ending in (".json", ".png", ".svg"):
                path.with_suffix(ending).unlink(missing_ok=True)
        lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        head = f'{{"name": {json.dumps(name)},\n"runs": {json.dumps(runs, indent=1)},\n"rows": [\n'
        file_of(name).write_text(f"{head}{lines}\n]}}\n", "utf-8")


def results(name: str) -> dict[str, Any]:
    """Of an experiment; without rows where there are none yet."""
    path = file_of(name)
    return json.loads(path.read_text("utf-8")) if path.exists() else {"name": name, "runs": [], "rows": []}


FIGURES: dict[str, Callable[[pathlib.Path, list[Row]], None]] = {
    "prox-al/figures": lambda out, rows: prox_al_figures.draw(out, over_data(rows, prox_al_figures.DATA)),
    "ssca/rows": lambda out, rows: ssca_figures.draw(out, "rows", sorted(rows, key=line_place)),
    "ssca/columns": lambda out, rows: ssca_figures.draw(out, "columns", sorted(rows, key=line_place)),
    "ssca/tradeoff": ssca_figures.draw_tradeoff,
    "fair-vfl/figures": lambda out, rows: fair_vfl_figures.draw(
        out, sorted(rows, key=lambda row: (row["kind"], FAIR_DATA.index(row["data"])))
    ),
    "fair-vfl/paces": fair_vfl_paces.draw,
    "pc-fedavg/mnist": pc_fedavg.draw,
    "pc-fedavg/cifar10": pc_fedavg.draw,
    "pc-fedavg/local-steps": pc_fedavg.draw,
}


def provenance(name: str) -> str:
    """The commands, and when, at which commit and on what machine they ran."""
    found = results(name)
    used = [found["runs"][place] for place in sorted({row["run"] for row in found["rows"]})]
    commands = "\n".join(dict.fromkeys(run["command"] for run in used)) or f"fedpact reproduce {name}"
    where = dict.fromkeys(f"{run['date']}, commit {run['commit']}, {run['machine']}" for run in used)
    return f"```\n{commands}\n```\n\n" + ("*" + "; ".join(where) + ".*" if where else "*Not computed yet.*")


def table(name: str) -> str:
    rows = results(name)["rows"]
    return f"{provenance(name)}\n\n{TABLES[name](rows)}" if rows else provenance(name)


def figure(name: str) -> str:
    words = f"![{name}](reproduced/{file_of(name).with_suffix('.png').name})" if results(name)["rows"] else ""
    return words if name in TABLES else f"{provenance(name)}\n\n{words}".rstrip()


# what to use now


def choice(paper: str) -> str:
    """The paper's method, its best baseline and fedpact's choice on the same data."""
    lines = [line for line in CHOICES[paper]() if line is not None]
    columns: tuple[Column, ...] = (
        ("problem", plain("problem")),
        ("whose", plain("whose")),
        ("method", plain("method")),
        ("rounds", lambda row: f"{row['rounds']:,}"),
        ("bytes per party", lambda row: size(row.get("bytes"))),
        ("violation", plain("violation")),
        ("objective", lambda row: f"{row['objective']:.5g}"),
        ("s", plain("seconds", 2)),
    )
    return grid(lines, columns) if lines else "*Not computed yet.*"


PAPERS, BASELINE, OURS = "the paper's method", "its best baseline", "fedpact's choice"


def _line(problem: str, whose: str, method: str, row: Row | None, **changed: Any) -> Row | None:
    if row is None:
        return None
    names = ("rounds", "bytes", "violation", "objective", "seconds")
    return {"problem": problem, "whose": whose, "method": method, **{name: row.get(name) for name in names}, **changed}


def _first(name: str, **fields: Any) -> Row | None:
    """The first row with these entries."""
    rows = results(name)["rows"]
    return next((row for row in rows if all(row.get(key) == value for key, value in fields.items())), None)


def prox_al_choice() -> list[Row | None]:
    lines: list[Row | None] = []
    cases = (
        ("Neyman-Pearson, adult-a, n = 10", "prox-al/np", {"data": "adult-a", "n": 10}, 1e-3),
        ("Neyman-Pearson, breast-cancer-wisc, n = 5", "prox-al/np", {"data": "breast-cancer-wisc", "n": 5}, 1e-3),
        ("fairness, adult-b, n = 5", "prox-al/fairness", {"n": 5}, 1e-3),
        ("quadratic, d = 100, n = 10", "prox-al/lcqp", {"d": 100, "n": 10}, 1e-6),
    )
    for title, name, where, within in cases:
        lines += [
            _line(title, PAPERS, f"{PRINTED}, 1e-3", _first(name, **where, solver=PRINTED, tolerance=1e-3)),
            _line(title, BASELINE, f"{CENTRAL}, rows in one place", _first(name, **where, solver=CENTRAL)),
            _line(title, OURS, "interior point", _first(name, **where, solver="interior point", tolerance=within)),
        ]
    return lines


def ssca_choice() -> list[Row | None]:
    lines: list[Row | None] = []
    for kind, scale, second in (("rows", 1, 2), ("columns", 10, 4)):
        title = f"MNIST, cost at most {MOST_COST}, {kind} split, B = {100 * scale}"
        for whose, method, last in (
            (PAPERS, f"Algorithm {second}", 3000),
            (BASELINE, "SGD, tuned", 1000),
            (OURS, f"Algorithm {second}, ours", 3000),
        ):
            row = _first(f"ssca/{kind}", method=method, batch=100 * scale, iterations=last)
            if row is not None:
                told = method + (" (minimises the cost, no limit)" if whose == BASELINE else "")
                changed = {
                    "rounds": last,
                    "bytes": last * row["bytes_per_round"] / IMAGE_PARTIES,
                    "violation": max(row["cost"] - MOST_COST, 0.0),
                    "objective": row["norm"],
                }
                lines.append(_line(title, whose, told, row, **changed))
    return lines


def fair_choice() -> list[Row | None]:
    lines: list[Row | None] = []
    for level in (1e-3, 1e-2, 5e-2):
        row = _first("fair-vfl/linear", dataset="compas", method=f"FairVFL(ε={level:g})")
        free = _first("fair-vfl/linear", dataset="compas", method="FedBCD")
        if row is None or free is None:
            continue
        title = f"Compas, linear, ε = {level:g}"
        broken = {"violation": max(free["deo"] - level, 0.0)}
        lines += [
            _line(title, PAPERS, "Algorithms 1 to 3, until near L*", row.get("near_printed")),
            _line(title, BASELINE, "FedBCD (no constraint)", free, **broken),
            _line(title, OURS, "FairVFL(), until near L*", row.get("near")),
        ]
    return lines


def budget_choice() -> list[Row | None]:
    lines: list[Row | None] = []
    for data in ("mnist", "cifar10"):
        name = f"pc-fedavg/{data}"
        for whose, method, last in (
            (PAPERS, "PC-FedAvg", {"iterations": 100}),
            (BASELINE, "FedAvg, penalised", {"iterations": 100}),
            (OURS, pc_fedavg.EXACT, {}),
        ):
            row = _first(name, method=method, **last)
            if row is not None:
                told = "PersonalProjected, 1e-6" if method == pc_fedavg.EXACT else method
                changed = {"rounds": row["iterations"], "violation": row["infeasibility"]}
                lines.append(_line(data, whose, told, row, **changed))
    return lines


CHOICES: dict[str, Callable[[], list[Row | None]]] = {
    "prox-al": prox_al_choice,
    "ssca": ssca_choice,
    "fair-vfl": fair_choice,
    "pc-fedavg": budget_choice,
}


def page() -> str:
    """The text of the page."""
    made = {"table": table, "figure": figure, "choice": choice}
    return HEAD + PLACE.sub(lambda place: made[place[1]](place[2]), TEMPLATE.read_text("utf-8"))


def draw() -> None:
    for name, drawn in FIGURES.items():
        if rows := results(name)["rows"]:
            drawn(file_of(name), rows)


if __name__ == "__main__":
    gather()
    draw()
    PAGE.write_text(page(), "utf-8")
