"""A digest tells problems apart by what their functions do, and finds them again in another process."""

import functools
import subprocess
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedpact as fp
from fedpact.run.fingerprint import digest

LIMIT = 3.0
TARGET: object = 1.0
SETTINGS = types.ModuleType("settings")
SETTINGS.target = 1.0


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


def times(factor):
    def wrap(function):
        @functools.wraps(function)
        def wrapper(p, rows):
            return factor * function(p, rows)

        return wrapper

    return wrap


def test_a_wrapper_counts_with_what_it_holds():
    two, three = times(2.0)(scaled), times(3.0)(scaled)
    parts = [scaled, two, three, jax.jit(two), jax.jit(three), jax.grad(two), jax.grad(three)]
    assert len({digest(part) for part in parts}) == len(parts)
    assert digest(times(2.0)(scaled)) == digest(two)


def aimed(p, rows):
    return jnp.sum((p["w"] - jnp.asarray(read(TARGET))) ** 2)


def read(target):
    return target["at"] if isinstance(target, dict) else getattr(target, "weight", target)


def aimed_by_settings(p, rows):
    return jnp.sum((p["w"] - SETTINGS.target) ** 2)


HELD = {
    "number": (1.0, 5.0),
    "numpy": (np.ones(1), np.full(1, 5.0)),
    "jax": (jnp.ones(1), jnp.full(1, 5.0)),
    "list": ([1.0], [5.0]),
    "tuple": ((1.0,), (5.0,)),
    "dictionary": ({"at": 1.0}, {"at": 5.0}),
    "object": (Weighted(1.0), Weighted(5.0)),
}
PARTIES = fp.split_rows(fp.Table(a=np.arange(4.0)), parties=2)


@pytest.mark.parametrize("kind", HELD)
def test_globals_of_all_kinds_count(kind, monkeypatch):
    found = []
    for held in HELD[kind]:
        monkeypatch.setitem(globals(), "TARGET", held)
        found.append(digest(aimed))
    assert found[0] != found[1]


@pytest.mark.parametrize("kind", ["number", "object"])
def test_a_global_that_changes_is_read_again(kind, monkeypatch):
    problem = fp.minimize(fp.value(aimed))
    one, five = HELD[kind]
    seen = []
    for held in (one, five, one):
        monkeypatch.setitem(globals(), "TARGET", held)
        result = fp.solve(problem, PARTIES, start={"w": np.zeros(1)})
        seen.append((digest(problem), round(float(result.params["w"][0]), 3)))
    assert [w for _, w in seen] == [1.0, 5.0, 1.0]
    assert seen[0] == seen[2] != seen[1]


def test_attributes_closures_and_modules_that_change_are_read_again(monkeypatch):
    goal = Weighted(1.0)
    cell = [1.0]
    for function in (
        lambda p, rows: jnp.sum((p["w"] - goal.weight) ** 2),
        lambda p, rows: jnp.sum((p["w"] - cell[0]) ** 2),
        aimed_by_settings,
    ):
        problem = fp.minimize(fp.value(function))
        for target in (1.0, 5.0):
            goal.weight = cell[0] = target
            monkeypatch.setattr(SETTINGS, "target", target)
            assert fp.solve(problem, PARTIES, start={"w": np.zeros(1)}).params["w"][0] == pytest.approx(target)


class Slope(fp.Model):
    power = 1

    def __init__(self, scale):
        self.scale = scale

    def init(self, key, rows):
        return {"w": np.zeros(1)}

    def apply(self, params, rows):
        return self.scale * params["w"][0] * rows["a"] ** self.power


def test_a_plain_model_is_its_class_and_its_attributes(monkeypatch):
    assert digest(Slope(1.0)) == digest(Slope(1.0)) != digest(Slope(2.0))
    before = digest(Slope(1.0))
    monkeypatch.setattr(Slope, "power", 2)
    assert digest(Slope(1.0)) != before


def test_what_holds_itself_is_read_to_an_end():
    ring: list = [1.0]
    ring.append(ring)
    other: list = [2.0]
    other.append(other)
    assert digest(ring) != digest(other)


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
