"""The reference of a problem: what the independent solvers and the construction say, kept on disk by name."""

import dataclasses
import hashlib
import json
import pathlib
import re
from typing import Any, Literal

import numpy as np

from campaign import formulas, solvers
from campaign.formulas import Formulas
from campaign.solvers import Found
from campaign.statement import Stated

Verdict = Literal["optimal", "feasible", "infeasible", "unbounded", "not attained", "unsure"]
MET, BROKEN = 1e-7, 1e-5  # relative violations: below the first a point is feasible; above the second it is not
AGREE = 1e-6  # relative difference of two solvers' objectives
STARTS = 4


@dataclasses.dataclass(frozen=True, eq=False)
class Reference:
    """What is true of a problem.

    - `verdict`: "optimal": `w` is the best point known; of a convex problem, two solvers or a solver's proof agree on it;
      "feasible": `w` is feasible, its objective is not known to be the least.
    - `objective`, `multipliers`: at w.
    - `violation`: the least relative violation found, where none is feasible.
    - `said`: by whom.
    """

    verdict: Verdict
    w: np.ndarray | None = None
    objective: float = np.nan
    multipliers: np.ndarray | None = None
    violation: float = np.nan
    said: str = ""


def refer(stated: Stated, ipopt: bool = True) -> Reference:
    """The reference of a problem; without IPOPT only of convex ones and of those that are known by construction."""
    f = stated.formulas
    if stated.known == "unbounded":
        return Reference("unbounded", stated.point, said=stated.why)
    if stated.known == "not attained":
        return Reference("not attained", objective=stated.infimum, said=stated.why)
    ipopt = ipopt and solvers.has_ipopt() and not f.groups
    machine = solvers.Ipopt(f) if ipopt else None
    starts = _starts(f, stated.point)
    points = _optima(f, machine, stated.point, starts[:1] if f.convex or stated.known == "infeasible" else starts)
    met = [(name, found) for name, found in points if f.relative_violation(found.w) <= MET]
    if met:
        if stated.known == "infeasible":
            return Reference("unsure", said=f"{met[0][0]} meets constraints that were made to be impossible")
        return _best(f, met)
    if stated.known == "infeasible":
        return Reference("infeasible", violation=np.nan, said=stated.why)
    return _least(f, machine, starts[:1] if f.convex else starts)


Starts = list[np.ndarray]


def _optima(
    f: Formulas, machine: solvers.Ipopt | None, point: np.ndarray | None, starts: Starts
) -> list[tuple[str, Found]]:
    points: list[tuple[str, Found | None]] = []
    if f.convex:
        points.append(("Clarabel", solvers.clarabel(f)))
    if machine is not None:
        points += [("IPOPT", machine.solve(start)) for start in starts]
    if point is not None:
        points.append(("construction", Found(point, np.zeros(len(f.rows)), "known")))
    return _finite(points)


def _finite(points: list[tuple[str, Found | None]]) -> list[tuple[str, Found]]:
    return [(name, found) for name, found in points if found is not None and np.all(np.isfinite(found.w))]


def _best(f: Formulas, met: list[tuple[str, Found]]) -> Reference:
    values = [f.value(found.w) for _, found in met]
    at = int(np.argmin(values))
    name, best = met[at]
    sure = not f.convex and name != "construction"
    for (other, found), value in zip(met, values, strict=True):
        close = value - values[at] <= AGREE * max(abs(values[at]), 1e-12)
        proof = found.word in ("optimal", "Solve_Succeeded")
        sure |= (other != name and other != "construction" and name != "construction" and close) or (close and proof)
    said = "; ".join(f"{n} {found.word} {v:.10g}" for (n, found), v in zip(met, values, strict=True))
    return Reference("optimal" if sure else "feasible", best.w, values[at], best.multipliers, 0.0, said)


def _least(f: Formulas, machine: solvers.Ipopt | None, starts: Starts) -> Reference:
    points: list[tuple[str, Found | None]] = []
    if f.convex:
        points.append(("Clarabel", solvers.clarabel_least_violation(f)))
    if machine is not None:
        points += [("IPOPT", machine.least_violation(start)) for start in starts]
    tried = _finite(points)
    if not tried:
        return Reference("unsure", said="no solver found a point")
    violations = [f.relative_violation(found.w) for _, found in tried]
    least = min(violations)
    best = tried[int(np.argmin(violations))][1]
    said = "; ".join(f"{n} {found.word} {v:.3g}" for (n, found), v in zip(tried, violations, strict=True))
    if least <= MET:
        return Reference("feasible", best.w, f.value(best.w), None, least, said)
    proof = any(found.word in ("optimal", "Solve_Succeeded") for _, found in tried)
    return Reference("infeasible" if least > BROKEN and proof else "unsure", violation=least, said=said)


def _starts(f: Formulas, point: np.ndarray | None) -> Starts:
    rng = np.random.default_rng(0)
    drawn = [f.scaling @ (size * rng.normal(size=f.size)) for size in (0.1, 1.0, 1.0, 3.0)[:STARTS]]
    return [*([point + 1e-3 * drawn[0]] if point is not None else []), *drawn]


# on disk


class Kept:
    """References in a folder, one file per problem; a problem whose numbers have changed is solved again."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def refer(self, name: str, stated: Stated) -> Reference:
        file = self.folder / (re.sub(r"[^A-Za-z0-9.-]+", "_", name) + ".json")
        digest = _digest(stated)
        if file.is_file():
            kept = json.loads(file.read_text())
            if kept.pop("digest") == digest:
                arrays = {k: None if kept[k] is None else np.array(kept[k], float) for k in ("w", "multipliers")}
                return Reference(**(kept | arrays))
        reference = refer(stated)
        fields: dict[str, Any] = dataclasses.asdict(reference) | {"digest": digest}
        for k in ("w", "multipliers"):
            fields[k] = None if fields[k] is None else fields[k].tolist()
        part = file.with_suffix(".part")
        part.write_text(json.dumps(fields))
        part.replace(file)
        return reference


def _digest(stated: Stated) -> str:
    """Of all numbers in the formulas, and of the text of this file, the solvers and the formulas."""
    f, hashed = stated.formulas, hashlib.sha256()
    for source in (__file__, solvers.__file__, formulas.__file__):
        hashed.update(pathlib.Path(source).read_bytes())
    numbers: list[Any] = [f.l1, f.l2, f.lower, f.upper, f.weight, *(list(g) for g in f.groups)]
    for terms, constant in [(f.objective, 0.0), *((row.terms, row.constant) for row in f.rows)]:
        numbers.append(constant)
        for term in terms:
            numbers += [term.A, term.t, term.coefficient, term.parameter, term.hidden]
            hashed.update(term.kind.encode())
    for row in f.rows:
        numbers += [row.unit, row.equality]
    for number in numbers:
        hashed.update(np.ascontiguousarray(number, float).tobytes())
    hashed.update(f"{stated.known} {f.convex}".encode())
    return hashed.hexdigest()
