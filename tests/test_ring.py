"""Arithmetic of secure sums: exact in the ring, equal on the host and in a compiled program; ladders for maxima."""

import math

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import pytest

from fedpact.protocol import ring

NUMBERS = st.floats(-(2.0**60), 2.0**60, allow_nan=False)


@hypothesis.given(st.lists(NUMBERS, min_size=1, max_size=8))
def test_a_sum_is_exact_to_its_last_bit_and_to_a_part_in_two_to_the_64(terms: list[float]) -> None:
    words = ring.total(ring.encode(np.array(terms)[:, None]))
    exact = sum(round(abs(x) * 2**64) * (1 if x >= 0 else -1) for x in map(_whole, terms))
    assert _number(words) == exact
    told = float(ring.decode(words, np.float64)[0])
    assert told == pytest.approx(exact / 2**64, rel=2**-51, abs=0)


def _whole(x: float) -> "_Exact":
    return _Exact(x)


class _Exact:
    """A float whose product with 2⁶⁴ is rounded as a fraction of integers."""

    def __init__(self, x: float) -> None:
        self.x = x

    def __abs__(self) -> "_Exact":
        return _Exact(abs(self.x))

    def __ge__(self, other: float) -> bool:
        return self.x >= other

    def __mul__(self, power: int) -> "_Exact":
        return self

    def __round__(self) -> int:
        top, bottom = self.x.as_integer_ratio()
        scaled = top << 64
        whole, rest = divmod(scaled, bottom)
        return whole + (2 * rest > bottom or (2 * rest == bottom and whole % 2 == 1))


def _number(words: ring.Words) -> int:
    number = (int(words.high[0]) << 64) + int(words.low[0])
    return number - (1 << 128) if number >= 1 << 127 else number


@hypothesis.given(
    st.lists(NUMBERS, min_size=2, max_size=2), st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=2)
)
def test_a_mask_that_is_added_and_taken_away_leaves_the_number(x: list[float], mask: list[int]) -> None:
    numbers = ring.encode(np.array(x))
    masks = ring.Words(np.array(mask, np.uint64), np.array(mask[::-1], np.uint64))
    back = ring.minus(ring.plus(numbers, masks), masks)
    np.testing.assert_array_equal(back.high, numbers.high)
    np.testing.assert_array_equal(back.low, numbers.low)


def test_a_compiled_program_rounds_as_the_host_does() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(7, 50)) * 10.0 ** rng.integers(-25, 15, (7, 50))
    x[0, :4] = [0.0, -0.0, 2.0**-65, -(2.0**-64)]
    on_host = ring.decode(ring.total(ring.encode(x)), np.float64)
    compiled = jax.jit(lambda x: ring.decode(ring.total(ring.encode(x)), np.float64))(x)
    np.testing.assert_array_equal(np.asarray(compiled), on_host)
    np.testing.assert_array_equal(np.asarray(jax.jit(ring.power_above)(np.abs(x))), ring.power_above(np.abs(x)))
    whole = rng.integers(-(10**12), 10**12, (7, 3))
    np.testing.assert_array_equal(ring.decode(ring.total(ring.encode(whole)), np.int64), whole.sum(0))


@hypothesis.given(st.floats(0, 2.0**61))
def test_a_ladder_tells_the_least_power_of_two_that_is_not_below(x: float) -> None:
    told = float(ring.height_of(ring.rungs_of(np.array([x])))[0])
    assert told == float(ring.power_above(np.array([x]))[0])
    if x == 0:
        assert told == 0
    else:
        assert math.frexp(told)[0] == 0.5
        assert told / 2 < x <= told or (told == ring.LEAST and x <= told)


def test_the_ladder_of_several_is_that_of_the_largest() -> None:
    values = np.array([0.0, 3e-9, 0.7, 1e-30, 0.7])
    lit = ring.rungs_of(values).any(axis=0)
    assert float(ring.height_of(lit)) == 1.0
    assert float(ring.height_of(np.zeros(ring.RUNGS, bool))) == 0.0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_seen(bad: float) -> None:
    tree = {"a": np.ones(3), "b": np.array([1.0, bad])}
    assert not ring.is_finite(tree)
    assert ring.is_finite({"a": np.ones(3), "b": np.array([2.0**59])})
    assert np.isnan(ring.power_above(np.array([np.inf])))
    assert np.isnan(ring.unknown(tree)["b"]).all()


@hypothesis.given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=8))
def test_what_is_huge_stays_huge_and_keeps_its_sign(terms: list[float]) -> None:
    huge = ring.bounded(np.array([terms]), len(terms)).T
    told = float(ring.decode(ring.total(ring.encode(huge)), np.float64)[0])
    assert told == pytest.approx(math.fsum(huge[:, 0]), rel=1e-9, abs=len(terms) * ring.LEAST)
    assert np.abs(huge).max() * len(terms) < ring.MOST
    assert all(np.sign(huge[:, 0]) == np.sign(terms))
    small = np.abs(terms) < ring.largest(len(terms)) / 2
    np.testing.assert_array_equal(huge[small, 0], np.array(terms)[small])
