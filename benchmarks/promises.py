"""Promises on simulated people whose truth is known: how many are broken, how many are kept; and seldonian-engine beside them.

`python -m benchmarks promises` repeats every promise `FEDPACT_PROMISES` times (default 400). The comparison with
seldonian-engine 0.8.11 runs where `FEDPACT_SELDONIAN` is the Python of an environment of its own. Its pinned matplotlib cannot be
built for Python 3.11, so it is installed without its dependencies:

    python -m venv /tmp/seldonian && /tmp/seldonian/bin/pip install --no-deps seldonian-engine==0.8.11
    /tmp/seldonian/bin/pip install numpy pandas scipy scikit-learn autograd cma tqdm matplotlib graphviz
    FEDPACT_SELDONIAN=/tmp/seldonian/bin/python python -m benchmarks promises
"""

import dataclasses
import functools
import json
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import special, stats

import fedpact as fp

CONFIDENCE, PARTIES, ROWS, FRESH = 0.9, 3, 1000, 400_000
TRUTH = np.array([1.0, -1.0, 0.5, 0.8, 0.0])
LIMIT = 0.85  # of the ill, found: binding, since the model without limits finds about 0.72
BESIDE = 40  # repetitions beside seldonian-engine


@dataclasses.dataclass(frozen=True)
class Case:
    """A promise that is repeated: its title, the problem, the power that it is trained for, rows and features of noise."""

    title: str
    problem: fp.Problem
    power: float = 0.9
    rows: int = ROWS
    noise: int = 0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Of one repetition: kept; whether the truth breaks a limit; whether its slack is twice the test's margin; accuracy."""

    kept: bool
    breaks: bool
    is_easy: bool
    accuracy: float


def measure() -> str:
    times = int(os.environ.get("FEDPACT_PROMISES", "400"))
    lines = [
        "## Promises on simulated people\n",
        f"Confidence {CONFIDENCE}, {PARTIES} parties with {ROWS:,} rows each, 40 % held out; {times} repetitions, each with new "
        f"people; the truth is counted on {FRESH:,} others. Bad: candidates whose truth breaks a limit. Broken: promises "
        "that are kept although it does, with the upper 99 % bound of their share. Easy: the truth is inside every limit by "
        "twice the margin of its test. Accuracy: of kept ones. Overfitted: 80 rows at each party, 30 features of noise.\n",
        "| promise | power | kept | bad | broken | 99 % bound | kept where easy | accuracy |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case in cases():
        outcomes = [repeated(case, seed) for seed in range(times)]
        lines.append(_line(case, outcomes))
        print(lines[-1], flush=True)
    python = os.environ.get("FEDPACT_SELDONIAN")
    return "\n".join(lines) + "\n" + (beside(pathlib.Path(python), min(times, BESIDE)) if python else "")


def cases() -> tuple[Case, ...]:
    model = fp.linear(bias=True)
    decided, loss = fp.decisions(model), fp.mean(fp.logistic_loss(model))
    found = fp.mean(decided, where=fp.col("y") == 1)
    gap = abs(fp.mean(decided, where=fp.col("sex") == 0) - fp.mean(decided, where=fp.col("sex") == 1))
    pooled, each = (found.pooled() >= LIMIT).named("found"), (found >= LIMIT).named("found")

    def stated(*constraints: fp.Constraint) -> fp.Problem:
        return fp.minimize(loss, constraints, fp.l2(1e-4))

    return (
        Case("found, all rows", stated(pooled)),
        Case("found, all rows, trained with no room for noise", stated(pooled), 0.5),
        Case("found, all rows, overfitted", stated(pooled), 0.5, 80, 30),
        Case("found, at each party", stated(each)),
        Case("gap, all rows", stated((gap.pooled() <= 0.15).named("gap"))),
        Case("found and gap, all rows", stated(pooled, (gap.pooled() <= 0.2).named("gap"))),
    )


def people(rows: int, seed: int, noise: int = 0) -> fp.Table:
    """New people: ill where a noisy score is above 1, with a shift between the sexes, and further features of noise."""
    rng = np.random.default_rng([16, seed])
    sex = rng.integers(0, 2, rows)
    x = rng.normal(size=(rows, 5)) + 0.5 * sex[:, None]
    y = (x @ TRUTH + rng.normal(size=rows) > 1.0).astype(int)
    return fp.Table(x=np.hstack([x, rng.normal(size=(rows, noise))]), y=y, sex=sex)


@functools.cache
def fresh() -> fp.Table:
    return people(FRESH, 2**32)


def repeated(case: Case, seed: int) -> Outcome:
    """One repetition."""
    parties = fp.split_rows(people(PARTIES * case.rows, seed, case.noise), parties=PARTIES, seed=0)
    promise = fp.promise(case.problem, parties, confidence=CONFIDENCE, power=case.power, seed=seed, progress=False)
    rates = truths(_scores(promise.result.params) > 0)
    slacks = {"found": rates["found"] - LIMIT, "gap": -rates["gap"]}
    breaks, is_easy = False, bool(promise.constraints)
    for shown in promise.constraints:
        slack = slacks[shown.name] + (shown.limit if shown.name == "gap" else 0.0)
        breaks |= slack < 0
        is_easy &= slack >= 2 * abs(shown.observed - shown.bound)
    return Outcome(promise.kept, breaks, is_easy, rates["accuracy"])


def truths(decided: np.ndarray) -> dict[str, float]:
    """Rates of decisions on the fresh people."""
    y, sex = fresh()["y"], fresh()["sex"]
    return {
        "found": float(decided[y == 1].mean()),
        "gap": float(abs(decided[sex == 0].mean() - decided[sex == 1].mean())),
        "accuracy": float((decided == y).mean()),
    }


def _scores(params: Mapping[str, np.ndarray]) -> np.ndarray:
    """Of the fresh people; what a model makes of features of noise is a normal number for each."""
    w, b = params["w"], params["b"]
    known, noise = w[: len(TRUTH)], np.linalg.norm(w[len(TRUTH) :])
    return fresh()["x"] @ known + b + noise * _normal()


@functools.cache
def _normal() -> np.ndarray:
    return np.random.default_rng(17).normal(size=FRESH)


def _line(case: Case, outcomes: Sequence[Outcome]) -> str:
    times, bad, broken = len(outcomes), sum(o.breaks for o in outcomes), sum(o.breaks and o.kept for o in outcomes)
    easy, kept = [o for o in outcomes if o.is_easy], [o for o in outcomes if o.kept]
    bound = float(stats.beta.ppf(0.99, broken + 1, times - broken))
    where_easy = f"{sum(o.kept for o in easy) / len(easy):.3f} of {len(easy)}" if easy else "none is"
    accuracy = f"{np.mean([o.accuracy for o in kept]):.4f}" if kept else "-"
    cells = (
        f"{len(kept) / times:.3f}",
        f"{bad / times:.3f}",
        f"{broken / times:.4f}",
        f"{bound:.4f}",
        where_easy,
        accuracy,
    )
    return f"| {case.title} | {case.power:g} | {' | '.join(cells)} |"


def beside(python: pathlib.Path, times: int) -> str:
    """The same people, pooled, with seldonian-engine: share of solutions and accuracy side by side."""
    case = cases()[0]
    with tempfile.TemporaryDirectory() as folder:
        given, answer = pathlib.Path(folder) / "people.npz", pathlib.Path(folder) / "answer.json"
        tables = [people(PARTIES * ROWS, seed) for seed in range(times)]
        arrays = {f"{name}{seed}": table[name] for seed, table in enumerate(tables) for name in ("x", "y")}
        np.savez(given, **arrays)
        script = pathlib.Path(__file__).with_name("beside_seldonian.py")
        subprocess.run([python, script, given, answer, str(times), str(LIMIT), str(1 - CONFIDENCE)], check=True)
        models = json.loads(answer.read_text())
    x = fresh()["x"]
    theirs = [truths(x @ np.array(w[1:]) + w[0] > 0) for w in models if w is not None]
    drawn = [_found_by_lot(np.array(w)) for w in models if w is not None]
    ours = [o for o in (repeated(case, seed) for seed in range(times)) if o.kept]
    own = f"{np.mean([o.accuracy for o in ours]):.4f}" if ours else "-"
    mean = f"{np.mean([t['accuracy'] for t in theirs]):.4f}" if theirs else "-"
    found = f"{sum(t['found'] < LIMIT for t in theirs)}, {sum(d < LIMIT for d in drawn)}"
    return "\n".join(
        [
            f"\nThe first of these promises on the same people, pooled, {times} repetitions. seldonian-engine 0.8.11 bounds the "
            "mean probability of the ill (a decision by lot) with Student's t, fedpact counts decisions at score > 0. Broken by "
            "decisions, and by lot: solutions whose truth breaks the limit.\n",
            "| | solutions | accuracy of decisions | broken by decisions, by lot |",
            "|---|---|---|---|",
            f"| fedpact | {len(ours) / times:.3f} | {own} | {sum(o.breaks for o in ours)}, - |",
            f"| seldonian-engine | {len(theirs) / times:.3f} | {mean} | {found} |",
            "",
        ]
    )


def _found_by_lot(w: np.ndarray) -> float:
    """The mean probability of the ill, which seldonian-engine calls the true-positive rate."""
    ill = fresh()["x"][fresh()["y"] == 1]
    return float(special.expit(ill @ w[1:] + w[0]).mean())
