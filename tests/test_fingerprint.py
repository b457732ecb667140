"""A digest tells problems apart by what their functions do, and finds them again in another process."""

import functools
import subprocess
import sys

import numpy as np

import fedpact as fp
from fedpact.run.fingerprint import digest

LIMIT = 3.0


def stated(bound: float = 0.2, factor: float = 2.0) -> fp.Problem:
    return fp.minimize(fp.value(lambda p, rows: factor * p["w"] @ p["w"]), [fp.value(fp.squared_norm) <= bound])


def scaled(p, rows, *, by=1.0):
    return by * p["w"].sum()


def limited(p, rows):
    return LIMIT * p["w"].sum()


class Weighted:
    def __init__(self, weight):
        self.weight = weight

    def __call__(self, p, rows):
        return self.weight * p["w"].sum()

    def method(self, p, rows):
        return self(p, rows)


def test_equal_problems_have_equal_digests():
    assert digest(stated()) == digest(stated())


def test_bounds_closures_partials_and_state_count():
    parts = [
        stated(),
        stated(bound=0.3),
        stated(factor=3.0),
        scaled,
        functools.partial(scaled, by=2.0),
        functools.partial(scaled, by=3.0),
        Weighted(1.0),
        Weighted(2.0),
        Weighted(1.0).method,
        Weighted(2.0).method,
        Weighted(np.ones(2)),
        fp.linear(),
        fp.linear(bias=True),
        fp.ProxAL(),
        fp.ProxAL(beta=11.0),
    ]
    assert len({digest(part) for part in parts}) == len(parts)


def test_keyword_defaults_and_globals_count(monkeypatch):
    before = digest(scaled), digest(limited)
    monkeypatch.setitem(scaled.__kwdefaults__, "by", 5.0)
    monkeypatch.setitem(globals(), "LIMIT", 4.0)
    assert digest(scaled) != before[0]
    assert digest(limited) != before[1]


def test_another_process_agrees():
    program = (
        "import fedpact as fp; from fedpact.run.fingerprint import digest; loss = fp.logistic_loss(fp.linear());"
        "print(digest(fp.minimize(fp.mean(loss), [fp.value(lambda p, r: p['w'][0]) <= 1])))"
    )
    first, second = (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert first == second
