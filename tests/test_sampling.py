"""Sampling: different numbers, all equally likely, alone and in pairs; the parties of a round."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from fedpact.protocol.sampling import chosen, draw

MANY = 20_000


@functools.cache
def keys(count: int) -> jax.Array:
    """The keys of the seeds 0, 1, …: neighbours, as users choose them."""
    return jax.vmap(lambda seed: jax.random.key_data(jax.random.key(seed)))(jnp.arange(count))


@functools.partial(jax.jit, static_argnames="count")
def compiled(keys: jax.Array, n: jax.Array, count: int) -> jax.Array:
    return jax.vmap(lambda key: draw(key, n, count))(keys)


@functools.cache
def draws(n: int, count: int, times: int = MANY, room: int = 100) -> np.ndarray:
    """(times, count): the first of `room`, so that few programs are compiled."""
    return np.asarray(compiled(keys(times), jnp.int32(n), room))[:, :count]


def surprise(counts: np.ndarray, scale: float = 1) -> float:
    """How likely counts at least this uneven are, where every cell is equally likely; `scale` of their variance."""
    statistic = ((counts - counts.mean()) ** 2).sum() / counts.mean() / scale
    return float(scipy.stats.chi2.sf(statistic, counts.size - 1))


@pytest.mark.parametrize(("n", "count"), [(1, 1), (2, 2), (3, 2), (7, 7), (140, 100), (6000, 100)])
def test_numbers_are_different_and_inside(n: int, count: int):
    found = draws(n, count)
    assert found.shape == (MANY, count)
    assert found.dtype == np.int32
    assert found.min() >= 0
    assert found.max() < n
    assert np.diff(np.sort(found, axis=1), axis=1).all()


@pytest.mark.parametrize("n", [1, 2, 5, 64, 140, 6000])
def test_all_of_them_are_a_permutation(n: int):
    for line in draws(n, n, times=3, room=6000):
        np.testing.assert_array_equal(np.sort(line), np.arange(n))


def test_the_largest_n():
    found = draws(2**31 - 1, 6000, times=3, room=6000)[0]
    assert len(set(found.tolist())) == 6000
    assert found.min() >= 0
    assert scipy.stats.kstest(found / 2**31, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("n", [1, 3, 7])
def test_more_than_there_are_come_round_evenly(n: int):
    for line in draws(n, 17)[:5]:
        assert set(np.bincount(line, minlength=n).tolist()) <= {17 // n, 17 // n + 1}
        np.testing.assert_array_equal(line[n:], line[:-n])


@pytest.mark.parametrize(("n", "count"), [(2, 1), (3, 2), (7, 1), (7, 3), (140, 10), (6000, 100)])
def test_every_number_is_drawn_equally_often(n: int, count: int):
    without_replacement = (n - count) / (n - 1)
    assert surprise(np.bincount(draws(n, count).ravel(), minlength=n), without_replacement) > 1e-3


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_every_order_is_equally_likely(n: int):
    counts = np.unique(draws(n, n), axis=0, return_counts=True)[1]
    assert len(counts) == np.prod(np.arange(1, n + 1))
    assert surprise(counts) > 1e-3


@pytest.mark.parametrize(("n", "bins"), [(7, 7), (20, 20), (140, 20), (6000, 20)])
def test_every_pair_is_equally_likely(n: int, bins: int):
    found = draws(n, 7)
    for second in (1, 6):
        pairs = np.histogram2d(found[:, 0], found[:, second], bins=bins, range=[(0, n)] * 2)[0]
        assert surprise(pairs[~np.eye(bins, dtype=bool)]) > 1e-3


def test_neighbours_in_a_draw_are_unrelated():
    steps = np.diff(draws(6000, 100)[:1000], axis=1) % 6000
    assert surprise(np.histogram(steps, bins=50, range=(0, 6000))[0]) > 1e-3


def test_the_key_decides():
    found = draws(6000, 100)[:200]
    np.testing.assert_array_equal(draws(6000, 100, times=3, room=6000), found[:3])
    shared = [len(set(a) & set(b)) for a, b in zip(found[:-1].tolist(), found[1:].tolist(), strict=True)]
    assert np.mean(shared) == pytest.approx(100 * 100 / 6000, rel=0.2)


def test_parties_of_different_sizes_draw_together():
    sizes = [1, 2, 7, 140, 6000]
    together = jax.jit(jax.vmap(functools.partial(draw, count=5)))(keys(MANY)[:5], jnp.array(sizes))
    for party, n in enumerate(sizes):
        np.testing.assert_array_equal(together[party], draws(n, 5)[party])


@functools.partial(jax.jit, static_argnames=("parties", "count"))
def rounds(keys: jax.Array, parties: int, count: int) -> jax.Array:
    return jax.vmap(lambda key: chosen(key, jnp.arange(parties), parties, count))(keys)


@pytest.mark.parametrize(("parties", "count"), [(1, 1), (10, 0), (10, 3), (10, 10), (100, 10)])
def test_exactly_so_many_parties_are_chosen_all_equally_often(parties: int, count: int):
    found = np.asarray(rounds(keys(MANY), parties, count))
    assert found.shape == (MANY, parties)
    assert found.dtype == bool
    np.testing.assert_array_equal(found.sum(axis=1), count)
    if 0 < count < parties:
        assert surprise(found.sum(axis=0), (parties - count) / (parties - 1)) > 1e-3
        together = (found.T.astype(float) @ found)[np.triu_indices(parties, 1)]
        expected = MANY * count * (count - 1) / (parties * (parties - 1))
        np.testing.assert_allclose(together, expected, atol=5 * np.sqrt(expected))


def test_a_party_finds_out_by_itself():
    key = keys(MANY)[7]
    alone = jax.vmap(lambda index: chosen(key, index, 10, 3))(jnp.arange(10, dtype=jnp.int32))
    np.testing.assert_array_equal(alone, rounds(keys(MANY), 10, 3)[7])
