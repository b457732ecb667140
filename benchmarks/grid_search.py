"""scikit-learn's grid search over a federated classifier: what is compiled, and what it takes."""

import os
import subprocess
import sys

PROGRAM = """
import time
import jax.monitoring
import numpy as np
from sklearn.model_selection import GridSearchCV
import fedpact.sklearn
from fedpact.sklearn import FederatedClassifier

compiled, fits, solve = [], [], fedpact.sklearn.solve

def note(event, seconds, **details):
    if event == "/jax/core/compile/backend_compile_duration":
        compiled.append(seconds)

def counted(*arguments, **options):
    before, began = len(compiled), time.perf_counter()
    result = solve(*arguments, **options)
    fits.append((len(compiled) - before, time.perf_counter() - began))
    return result

jax.monitoring.register_event_duration_secs_listener(note)
fedpact.sklearn.solve = counted
rng = np.random.default_rng(0)
X = rng.normal(size=(3000, 4))
y = np.where(X @ np.array([1.0, -1, 0.5, 0.8]) + rng.normal(size=3000) > 0.5, "grant", "refuse")
began, worked = time.perf_counter(), time.process_time()
GridSearchCV(FederatedClassifier(parties=3), {"l2": [1e-4, 1e-3, 1e-2]}, cv=3).fit(X, y)
whole, worked = time.perf_counter() - began, time.process_time() - worked
others = [seconds for programs, seconds in fits if not programs]
print(len(fits), sum(programs > 0 for programs, _ in fits), len(compiled))
print(f"{whole:.1f} {worked:.1f} {1e3 * np.median(others):.0f}")
"""


def measure() -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "FEDPACT_CACHE": ""},
        check=True,
        capture_output=True,
        text=True,
    )
    fits, compiling, programs, seconds, worked, usual = done.stdout.split()
    return (
        "## Grid search in scikit-learn\n\n"
        "`GridSearchCV(FederatedClassifier(parties=3), …, cv=3)` over three weights of l2, 3,000 rows, 4 features, in a fresh "
        "process with nothing kept from earlier ones. The folds share the programs of the first fit; the last fit, on all rows, "
        "has a size of its own.\n\n"
        "| fits | of which compile | programs compiled | seconds in all | processor seconds "
        "| a fit that compiles nothing, median, ms |\n"
        "|---|---|---|---|---|---|\n"
        f"| {fits} | {compiling} | {programs} | {seconds} | {worked} | {usual} |\n"
    )
