"""The narrow waist: what is exchanged, how it is combined, what it costs, and how often it is traced."""

import contextvars
import inspect
import math
import typing
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import SQUARED, excess, regression

import fedpact as fp
from fedpact.engines.local import LocalNetwork, Metered
from fedpact.federation.binding import bind
from fedpact.federation.blocks import Block
from fedpact.federation.buckets import FILL, SMALL, buckets
from fedpact.federation.setting import Setting
from fedpact.problem.oracle import Oracle
from fedpact.protocol.algorithm import Answer, Goal, Info, Status
from fedpact.protocol.messages import Reply, combine, merge, size_in_bytes
from fedpact.protocol.network import Step
from fedpact.run import drivers

# replies


def test_replies_are_combined_by_their_field() -> None:
    stacked = Reply(
        sum={"a": jnp.array([[1.0, 2.0], [3.0, 4.0]]), "b": jnp.array([1, 10])},
        max=jnp.array([[5.0, -1.0], [2.0, 7.0]]),
        each=jnp.array([[1.0], [2.0]]),
    )
    both = combine(stacked)
    assert both.sum["a"].tolist() == [4.0, 6.0]
    assert both.sum["b"].item() == 11
    assert both.max.tolist() == [5.0, 7.0]
    assert both.each.tolist() == [[1.0], [2.0]]


def test_buckets_are_merged_in_party_order() -> None:
    large = Reply(sum=jnp.array([1.0]), max=jnp.array(-3.0), each=jnp.array([30.0, 10.0]))  # parties 2 and 0
    small = Reply(sum=jnp.array([2.0]), max=jnp.array(-4.0), each=jnp.array([20.0]))  # party 1
    merged = merge([large, small], jnp.array([1, 2, 0]))
    assert merged.sum.tolist() == [3.0]
    assert merged.max.item() == -3.0
    assert merged.each.tolist() == [10.0, 20.0, 30.0]


def test_empty_replies_stay_empty() -> None:
    nothing = merge([combine(Reply()), combine(Reply())], jnp.array([0, 1]))
    assert (nothing.sum, nothing.max, nothing.each) == (None, None, None)


def test_bytes_of_a_message() -> None:
    message = {"w": jnp.zeros((2, 3)), "on": jnp.asarray(True), "k": jnp.asarray(1, jnp.int32), "nothing": None}
    assert size_in_bytes(message) == 6 * 8 + 1 + 4
    assert size_in_bytes(None) == 0


# buckets

sizes_of_parties = st.lists(st.integers(1, 3000), min_size=1, max_size=40)


@given(sizes_of_parties, st.booleans())
def test_every_party_is_in_one_bucket(sizes: list[int], exact: bool) -> None:
    if exact and len(set(sizes)) > 32:
        with pytest.raises(ValueError, match="different sizes"):
            buckets(sizes, exact)
        return
    found = buckets(sizes, exact)
    assert sorted(party for bucket in found for party in bucket) == list(range(len(sizes)))
    assert all(list(bucket) == sorted(bucket) for bucket in found)


@given(sizes_of_parties)
def test_padding_is_bounded(sizes: list[int]) -> None:
    padded = sum(len(bucket) * max(sizes[i] for i in bucket) for bucket in buckets(sizes, exact=False))
    levels = 1 + math.floor(math.log(max(sizes) / min(sizes)) / math.log(1 / FILL))  # buckets before small ones merge
    assert padded <= (1 / FILL + SMALL * levels) * sum(sizes)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40))
def test_tables_read_whole_are_not_padded(sizes: list[int]) -> None:
    assert all(len({sizes[i] for i in bucket}) == 1 for bucket in buckets(sizes, exact=True))


# exchanges


def told(own: Oracle, state: None, message: jax.Array) -> tuple[None, Reply]:
    value = own(message).objective
    return state, Reply(sum=value, max=value, each=(own.index, value))


@settings(max_examples=12)
@given(st.lists(st.sampled_from([1, 2, 3, 7, 8, 30]), min_size=1, max_size=6))
def test_an_exchange_is_a_plain_sum_over_unequal_parties(sizes: list[int]) -> None:
    tables = regression(0, sizes, [1.0] * len(sizes), d=2)
    w = np.array([0.5, -2.0])
    by_hand = np.array([np.mean(0.5 * (t["x"] @ w - t["y"]) ** 2) for t in tables]) / len(tables)
    net = LocalNetwork.of(bind(fp.minimize(fp.mean(SQUARED)), fp.split_rows(tables)))
    reply, _ = jax.jit(lambda net, w: net.exchange(told, None, w))(net, jnp.asarray(w))
    index, values = reply.each
    assert index.tolist() == list(range(len(sizes)))
    np.testing.assert_allclose(values, by_hand, rtol=1e-13)
    np.testing.assert_allclose(reply.sum, by_hand.sum(), rtol=1e-13)
    np.testing.assert_allclose(reply.max, by_hand.max(), rtol=1e-13)


@pytest.fixture(scope="module")
def net() -> LocalNetwork:
    """Four parties in two buckets, and a server with rows of its own."""
    *tables, own = regression(1, (9, 4, 8, 4, 17), (1.0,) * 5, d=3)
    constraints = [fp.mean(excess) <= 0.0, fp.mean(excess).at_server() <= 0.0]
    bound = bind(fp.minimize(fp.mean(SQUARED), constraints), fp.split_rows(tables), own)
    assert len(bound.oracles) == 2
    return LocalNetwork.of(bound)


def test_states_come_back_to_their_parties(net: LocalNetwork) -> None:
    def compare(own: Oracle, state: jax.Array, message: None) -> tuple[jax.Array, Reply]:
        return state + 1, Reply(each=(own.index, state))

    given_to = net.scattered(jnp.arange(4))
    reply, after = net.exchange(compare, given_to, None)
    assert reply.each[0].tolist() == reply.each[1].tolist() == [0, 1, 2, 3]
    assert net.exchange(compare, after, None)[0].each[1].tolist() == [1, 2, 3, 4]


def test_a_step_sees_its_own_rows_and_nothing_of_the_server(net: LocalNetwork) -> None:
    seen = []

    def look(own: Any, state: Any, message: Any) -> tuple[None, Reply]:
        seen.append((own, state, message))
        return None, Reply()

    net.exchange(look, None, jnp.zeros(3))
    assert len(seen) == len(net.oracles)
    for (own, state, message), stack in zip(seen, net.oracles, strict=True):
        assert type(own) is Oracle
        assert own.program == stack.program != net.server.program
        assert {name: column.shape for name, column in own.rows.items()} == {
            name: column.shape[1:] for name, column in stack.rows.items()
        }
        assert state is None
        assert message.shape == (3,)
    assert {typing.get_args(kind)[0][0] for kind in typing.get_args(Step)} == {Oracle, Block}
    assert all(len(typing.get_args(kind)[0]) == 3 for kind in typing.get_args(Step))


METHODS = {
    "Newton": fp.ProxAL(fp.Newton()),
    "LBFGS": fp.ProxAL(fp.LBFGS()),
    "ADMM": fp.ProxAL(fp.ADMM()),
    "as printed": fp.ProxAL.as_printed(),
    "central": fp.CentralProxAL(),
}


class Guard:
    """A network that lets only named methods of a hashable object out to the parties: no closure, no array inside."""

    def __init__(self, net: Any, steps: list[str]):
        self.net, self.steps = net, steps
        self.parties, self.server, self.regularizer = net.parties, net.server, net.regularizer

    def exchange(self, step: Any, parties: Any, message: Any) -> Any:
        hash(step.__self__)  # options only; an array of the server's would not be hashable
        function = step.__func__
        assert function.__closure__ is None
        assert list(inspect.signature(function).parameters) == ["self", "own", "state", "message"]
        assert typing.get_type_hints(function)["own"] is Oracle
        self.steps.append(function.__name__)
        return self.net.exchange(step, parties, message)

    def when(self, predicate: Any, branch: Callable[..., Any], *operands: Any) -> Any:
        return self.net.when(predicate, lambda net, *given: branch(Guard(net, self.steps), *given), *operands)


@pytest.mark.parametrize("name", METHODS)
def test_only_named_steps_leave_the_server(net: LocalNetwork, name: str) -> None:
    method = METHODS[name].prepared(Setting(3, net.parties))
    steps: list[str] = []
    goal = Goal(jnp.asarray(1e-6), jnp.asarray(1e-6))

    def two_rounds(net: LocalNetwork) -> Any:
        server, parties = method.init(Guard(net, steps), jnp.zeros(3), goal, 0)
        return method.round(server, parties, Guard(net, steps))

    jax.eval_shape(two_rounds, net)
    assert steps == ["join", "step", "pull"]


# what is counted


class Place(eqx.Module):
    w: jax.Array
    k: jax.Array
    worst: jax.Array


class Descent(fp.Algorithm):
    """Gradient descent on Σ f_i. Every third round asks for the largest loss too, and if it is low a number more."""

    low: float

    def init(self, net: Any, w: jax.Array, goal: Goal, key: jax.Array) -> tuple[Place, Any]:
        return Place(w, jnp.zeros((), int), jnp.asarray(jnp.inf)), net.exchange(self.nothing, None, None)[1]

    def round(self, server: Place, parties: Any, net: Any) -> tuple[Place, Any, Info]:
        reply, parties = net.exchange(self.slope, parties, server.w)
        value, gradient = reply.sum
        server = Place(server.w - 0.1 * gradient, server.k + 1, server.worst)
        server, parties = net.when(server.k % 3 == 0, self.ask, server, parties)
        return server, parties, Info(value, jnp.zeros(()), jnp.max(jnp.abs(gradient)))

    def ask(self, net: Any, server: Place, parties: Any) -> tuple[Place, Any]:
        reply, parties = net.exchange(self.loss, parties, server.w)
        server = Place(server.w, server.k, reply.max)
        return net.when(server.worst < self.low, self.ask_more, server, parties)

    def ask_more(self, net: Any, server: Place, parties: Any) -> tuple[Place, Any]:
        return server, net.exchange(self.nothing, parties, server.worst)[1]

    def nothing(self, own: Oracle, state: Any, message: Any) -> tuple[jax.Array, Reply]:
        return jnp.zeros(()), Reply()

    def slope(self, own: Oracle, state: Any, message: jax.Array) -> tuple[Any, Reply]:
        return state, Reply(sum=jax.value_and_grad(lambda w: own(w).objective)(message))

    def loss(self, own: Oracle, state: Any, message: jax.Array) -> tuple[Any, Reply]:
        return state, Reply(max=own(message).objective, each=own.index)

    def status(self, server: Place) -> jax.Array:
        return jnp.asarray(int(Status.running))

    def answer(self, server: Place, net: Any) -> Answer:
        return Answer(server.w, jnp.zeros(0), jnp.zeros(0), jnp.asarray(0.0))

    def multipliers(self, own: Oracle, state: Any, answer: Answer) -> jax.Array:
        return jnp.zeros(0)

    def aim(self, server: Place, goal: Goal) -> Place:
        return server


def test_a_branch_costs_only_when_it_is_taken() -> None:
    tables = regression(2, (6, 5), (1.0, 1.0), d=3)
    path = _descended(tables, 60)
    losses = np.array([max(np.mean(0.5 * (t["x"] @ w - t["y"]) ** 2) / 2 for t in tables) for w in path])
    method = Descent(low=float(np.median(losses)))
    run = fp.solve(fp.minimize(fp.mean(SQUARED)), fp.split_rows(tables), method, tolerance=1e-9, max_rounds=60)
    assert run.status == "max_rounds"
    asked = run.history["round"] % 3 == 0
    more = asked & (losses < method.low)
    assert 0 < more.sum() < asked.sum()
    n, number = 2, 8
    np.testing.assert_array_equal(run.history["exchanges"], 1 + asked + more)
    np.testing.assert_array_equal(run.history["bytes_up"], n * number * (4 + asked * 2))  # value, gradient; loss, index
    np.testing.assert_array_equal(run.history["bytes_down"], n * number * (3 + asked * 3 + more))
    assert run.exchanges == run.history["exchanges"].sum()
    assert run.bytes_up == run.history["bytes_up"].sum()


def _descended(tables: list[fp.Table], rounds: int) -> list[np.ndarray]:
    w, path = np.zeros(3), []
    for _ in range(rounds):
        w = w - 0.1 * np.mean([((t["x"] @ w - t["y"])[:, None] * t["x"]).mean(0) for t in tables], axis=0)
        path.append(w)
    return path


def test_a_meter_counts_what_passes(net: LocalNetwork) -> None:
    def spent(flag: jax.Array) -> tuple[Any, Any, Any]:
        meter = Metered(net)
        meter.when(flag, lambda inner, w: (inner.exchange(told, None, w)[0].sum * w,), jnp.ones(3))
        return tuple(jnp.asarray(x) for x in (meter.exchanges, meter.bytes_up, meter.bytes_down))

    counted = jax.jit(spent)
    assert [int(x) for x in counted(jnp.asarray(False))] == [0, 0, 0]
    up = 4 * (8 + 8) + 4 * (8 + 8)  # sum and max from each of four parties, and what each tells about itself
    assert [int(x) for x in counted(jnp.asarray(True))] == [1, up, 4 * 3 * 8]


# how often a round is traced

CALLS = contextvars.ContextVar("CALLS", default=0)  # cannot be copied, so a program's fingerprint leaves it out


def counted(params: Any, rows: Any) -> Any:
    CALLS.set(CALLS.get() + 1)
    return (rows["x"] @ params["w"] - rows["y"]) ** 2


def calls_in(action: Callable[[], Any]) -> int:
    before = CALLS.get()
    action()
    return CALLS.get() - before


@pytest.mark.parametrize("method", [fp.ProxAL(fp.Newton()), fp.ProxAL(fp.ADMM.as_printed())], ids=["Newton", "printed"])
def test_a_round_is_traced_once(method: fp.ProxAL) -> None:
    parties = fp.split_rows(regression(3, (6, 5), (1.0, 1.0), d=3))
    start = {"w": np.zeros(3)}

    def stated() -> fp.Problem:
        return fp.minimize(fp.mean(counted), [(fp.mean(counted).pooled() >= -1.0).named("limit")])

    bound = bind(stated(), parties, start=start)
    net = LocalNetwork.of(bound)
    chosen = method.prepared(Setting(3, 2, 1))
    goal = Goal(jnp.asarray(1e-30), jnp.asarray(1e-30))
    server, states = drivers.begin(chosen, net, bound.start, goal, 0)
    once = calls_in(lambda: jax.eval_shape(lambda *x: drivers.metered_round(chosen, *x), net, server, states))
    assert once > 0
    assert calls_in(lambda: drivers.chunk(chosen, net, server, states, jnp.asarray(50))) == once

    def solve(rounds: int) -> fp.Result:
        return fp.solve(stated(), parties, method, start=start, tolerance=1e-30, max_rounds=rounds)

    solve(1)
    binding = calls_in(lambda: bind(stated(), parties, start=start))
    assert calls_in(lambda: solve(50)) == binding  # an equal problem, built anew: nothing is traced again
