"""A whole number in place of a float is the same option: constructed and bound to a problem, nothing differs."""

import functools
import inspect
import typing
from typing import Any

import columns
import equinox as eqx
import jax
import numpy as np
import pytest

import fedpact as fp
from fedpact.protocol.options import Options
from fedpact.settings import bind

NEEDED: dict[str, dict[str, Any]] = {
    "ADMM": {},
    "Decay": {"scale": 0.5},
    "FairVFL": {"step": 0.5},
    "FedProx": {"mu": 0.5},
    "FedSGD": {"batch": 4, "step": 0.5},
    "Growth": {"scale": 0.5, "power": 0.5},
    "PCFedAvg": {"step": 0.1, "local_steps": 2, "penalty": 0.5},
    "PrimalDual": {"rounds": 4},
    "SSCA": {"batch": 4},
}
WHOLE = (1, 0, 2, 10**9)  # of which an option allows one
BELOW_ONE = {
    ("ADMM", "q"),
    ("Geometric", "ratio"),
    ("InteriorPoint", "centering"),
    ("TrimmedMean", "share"),
}  # and over 0


def choices() -> dict[str, type[Options]]:
    named = {name: getattr(fp, name) for name in fp.__all__}
    return {
        n: c for n, c in named.items() if inspect.isclass(c) and issubclass(c, Options) and not inspect.isabstract(c)
    }


def float_options() -> list[tuple[str, str]]:
    found = []
    for name, choice in choices().items():
        for option, kind in inspect.get_annotations(choice).items():
            if typing.get_origin(kind) is not typing.ClassVar and float in (kind, *typing.get_args(kind)):
                found.append((name, option))
    return found


def made(name: str, option: str, value: Any) -> Any:
    return choices()[name](**(NEEDED.get(name, {}) | {option: value}))


@functools.cache
def settings() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    tables = [fp.Table(x=rng.normal(size=(8, 3)), y=rng.integers(0, 2, 8)) for _ in range(3)]
    loss = fp.mean(fp.logistic_loss(fp.linear()))
    personal = fp.minimize(loss, personal=fp.Personal([fp.l1_ball(1)] * 3, 1))
    over_columns = fp.minimize(fp.mean(columns.LOSS), regularizer=fp.l2(1))
    return {
        "rows": bind(fp.minimize(loss), fp.split_rows(tables)).setting,
        "personal": bind(personal, fp.split_rows(tables)).setting,
        "columns": bind(over_columns, columns.PARTIES).setting,
    }


def assert_same(one: Any, two: Any) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(two)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        assert type(a) is type(b)
        assert getattr(a, "dtype", None) == getattr(b, "dtype", None)
        assert np.array_equal(a, b)


@pytest.mark.parametrize(("name", "option"), float_options())
def test_a_whole_number_is_as_good(name: str, option: str) -> None:
    allowed = []
    for number in WHOLE:
        try:
            made(name, option, float(number))
        except ValueError:
            continue
        allowed.append(number)
    assert bool(allowed) != ((name, option) in BELOW_ONE)
    for number in allowed[:2]:
        for whole in (number, np.int64(number)):
            given, wanted = made(name, option, whole), made(name, option, float(number))
            assert_same(given, wanted)
            if isinstance(given, fp.Algorithm):
                for split in given.supports:
                    if split == "personal" or option != "penalty" or name == "SSCA":
                        assert_same(given.bind(settings()[split]), wanted.bind(settings()[split]))


def test_all_methods_are_tried() -> None:
    """Every option that is a number, but counts, is among those above."""
    names = {name for name, choice in choices().items() if issubclass(choice, fp.Algorithm)}
    assert {name for name, _ in float_options()} >= names
    assert len(float_options()) > 40


def test_numbers_within_other_options() -> None:
    assert_same(fp.ADMM(rho=(1, 2)), fp.ADMM(rho=(1.0, 2.0)))
    listed: Any = [1, 2]
    assert_same(fp.ADMM(rho=listed), fp.ADMM(rho=(1.0, 2.0)))
    assert_same(fp.Clock(step={"bank": 1}), fp.Clock(step={"bank": 1.0}))
    assert eqx.tree_equal(fp.l2(1), fp.l2(1.0))
    for whole, real in ((fp.l1(1), fp.l1(1.0)), (fp.group(2), fp.group(2.0)), (fp.box(0, 1), fp.box(0.0, 1.0))):
        assert whole == real
        assert repr(whole) == repr(real)
