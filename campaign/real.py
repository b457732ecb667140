"""Problems on real rows, stated as a user would: breast cancer, Adult and COMPAS, raw and standardised.

The family "users" varies one on which a new user met a false `infeasible`: a smooth sensitivity at each hospital.

Only where the folder FEDPACT_DATA or ../shared/data is there (breast cancer: bundled with scikit-learn).
"""

import dataclasses
import functools
import os
import pathlib
from typing import Any

import numpy as np

import fedpact as fp
from campaign.classification import average, cap
from campaign.data import with_one
from campaign.formulas import Formulas, Row, Term
from campaign.statement import Case, Stated

MODEL = fp.linear(bias=True)
LOSS = fp.logistic_loss(MODEL)
POSITIVE = fp.col("y") == 1
DATA = ("breast", "adult", "compas")
VARIANTS = ("np", "np-hard", "np-out", "l1", "box", "group", "rate", "rate-sharp", "gap", "gap-each", "rate-gap")
ROWS = 2400  # of Adult and COMPAS


def folder() -> pathlib.Path | None:
    named = os.environ.get("FEDPACT_DATA") or str(pathlib.Path(__file__).parents[2] / "shared" / "data")
    path = pathlib.Path(named)
    return path if (path / "adult.npz").is_file() and (path / "compas.npz").is_file() else None


def cases() -> list[Case]:
    if folder() is None:
        return []
    found = []
    for data in DATA:
        for units in ("standardised", "raw"):
            for variant in VARIANTS:
                if data == "breast" and "gap" in variant:
                    continue
                for parties in (3, 6):
                    seed = f"{data}-{variant}-{parties}"
                    make = functools.partial(state, data, units, variant, parties)
                    found.append(Case("real", units, seed, f"real {data} {variant} {parties}", make))
    for temperature in (1.0, 0.25, 0.1):
        for rows in (400, 450, 500, 569):
            for parties in (4, 5, 6, 8):
                make = functools.partial(sensitivity, temperature, rows, parties)
                found.append(Case("users", f"T{temperature:g}", f"{rows}-{parties}", f"users {rows} {parties}", make))
    return found


@functools.cache
def arrays(data: str, units: str) -> dict[str, np.ndarray]:
    """x, y in {0, 1} and g of a data set; raw columns or standardised ones (columns of 0 and 1 are left alone)."""
    if data == "breast":
        import sklearn.datasets

        x, y = sklearn.datasets.load_breast_cancer(return_X_y=True)
        x, y, g = np.asarray(x), 1 - np.asarray(y), np.zeros(len(y), int)
    else:
        where = folder()
        assert where is not None
        with np.load(where / f"{data}.npz") as file:
            x = np.hstack([file["X_num"], file["X_cat"]]).astype(float) if data == "adult" else file["X"]
            y, g = (file["y"] > 0).astype(int), file["sensitive"].astype(int)
        mine = np.random.default_rng(0).permutation(len(y))[:ROWS]
        x, y, g = x[mine], y[mine], g[mine]
    if units == "standardised":
        numbers = ~np.isin(x, (0, 1)).all(axis=0)
        x = np.where(numbers, (x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1.0), x)
    return {"x": x, "y": y, "g": g}


def _split(data: str, units: str, parties: int) -> fp.Parties:
    columns = arrays(data, units)
    table = fp.Table(**columns, part=2 * columns["y"] + columns["g"])
    return fp.split_rows(table, parties=parties, stratify="part", seed=1)


def _terms(holder: list[Any], kind: Any, y: int | None, g: int | None = None, parameter: float = 1.0) -> Term:
    """The mean of a loss or rate over the rows of these tables with this label and group."""
    x, labels, groups = (np.concatenate([np.asarray(t[c]) for t in holder]) for c in ("x", "y", "g"))
    mine = np.ones(len(labels), bool) if y is None else labels == y
    mine &= (groups == g) if g is not None else True
    return Term(kind, with_one(x[mine]), np.where(labels[mine] == 1, 1.0, -1.0), parameter=parameter)


def _difference(first: Term, second: Term, bound: float) -> list[Row]:
    """|first - second| <= bound."""
    return [
        Row((dataclasses.replace(first, coefficient=s), dataclasses.replace(second, coefficient=-s)), -bound)
        for s in (1.0, -1.0)
    ]


def state(data: str, units: str, variant: str, parties: int) -> Stated:
    split = _split(data, units, parties)
    held = [[split[name]] for name in split]
    size = 1 + split[next(iter(split))]["x"].shape[1]
    negative = [_terms(h, "logistic", 0) for h in held]
    positive = [_terms(h, "logistic", 1) for h in held]
    objective: Any = fp.mean(LOSS, where=~POSITIVE)
    terms = average(negative)
    h = fp.l2(1e-3)
    parts: dict[str, Any] = {"l2": 1e-3}
    bound = {"np-hard": 0.1 if data == "breast" else 0.3}.get(variant, 0.2 if data == "breast" else 0.5)
    limits: list[Any] = [(fp.mean(LOSS, where=POSITIVE) <= bound).named("missed")]
    rows = [cap(term, bound) for term in positive]
    convex = True
    if variant == "np-out":
        limits.append((fp.mean(LOSS, where=~POSITIVE) <= 0.01).named("false"))
        rows += [cap(term, 0.01) for term in negative]
        if data == "breast":
            limits[0], rows = (fp.mean(LOSS, where=POSITIVE) <= -0.01).named("missed"), rows[parties:]
            rows += [cap(term, -0.01) for term in positive]
    elif variant == "l1":
        h, parts = fp.l1(0.01), {"l1": 0.01}
    elif variant == "box":
        h, parts = fp.l2(1e-3) + fp.box(-1.0, 1.0), {"l2": 1e-3, "lower": -1.0, "upper": 1.0}
    elif variant == "group":
        listed = [list(range(k, min(k + 5, size - 1))) for k in range(0, size - 1, 5)]
        h = fp.group(0.02, groups=listed)
        parts = {"groups": tuple(tuple(1 + i for i in g) for g in listed), "weight": 0.02}
    elif variant.startswith("rate") and variant != "rate-gap":
        T = 0.25 if variant == "rate-sharp" else 1.0
        limits = [(fp.mean(fp.positive_rate(MODEL, temperature=T), where=POSITIVE) >= 0.8).named("sensitivity")]
        rows = [cap(_terms(h, "rate", 1, parameter=T), 0.8, -1.0) for h in held]
        convex = False
    elif "gap" in variant:
        objective, terms, convex = fp.mean(LOSS), average([_terms(h, "logistic", None) for h in held]), False
        holders = held if variant == "gap-each" else [[t for h in held for t in h]]
        if variant == "rate-gap":
            limits = [(fp.demographic_parity_gap(MODEL, group="g").pooled() <= 0.05).named("parity")]
            rows = [
                r for h in holders for r in _difference(_terms(h, "rate", None, 0), _terms(h, "rate", None, 1), 0.05)
            ]
        else:
            gap = fp.equal_opportunity_gap(LOSS, group="g")
            limits = [((gap if variant == "gap-each" else gap.pooled()) <= 0.01).named("gap")]
            rows = [
                r for h in holders for r in _difference(_terms(h, "logistic", 1, 0), _terms(h, "logistic", 1, 1), 0.01)
            ]
    formulas = Formulas(size, terms, tuple(rows), convex=convex, **parts)
    known = "infeasible" if variant == "np-out" and data == "breast" else None
    return Stated(fp.minimize(objective, limits, h), split, formulas, known=known)


def sensitivity(temperature: float, rows: int, parties: int) -> Stated:
    """Few false alarms under a smooth sensitivity of 0.95 at each of the hospitals."""
    d = fp.datasets.breast_cancer()
    d = d[np.random.default_rng(0).permutation(569)[:rows]]
    split = fp.split_rows(d, parties=parties, stratify="y", seed=0)
    rate = fp.positive_rate(MODEL, temperature=temperature)
    problem = fp.minimize(
        fp.mean(LOSS, where=~POSITIVE),
        [(fp.mean(rate, where=POSITIVE) >= 0.95).named("sensitivity")],
        fp.l2(1e-3),
    )
    held = [[{**{c: split[name][c] for c in ("x", "y")}, "g": split[name]["y"]}] for name in split]
    lines = [cap(_terms(h, "rate", 1, parameter=temperature), 0.95, -1.0) for h in held]
    formulas = Formulas(31, average([_terms(h, "logistic", 0) for h in held]), tuple(lines), l2=1e-3, convex=False)
    point = np.zeros(31)
    point[0] = 20.0 * temperature
    return Stated(problem, split, formulas, known="feasible", point=point, why="a large intercept has rate 1")
