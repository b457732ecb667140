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
from fedpact.algorithms.parts.in_units import LEARN_UNITS
from fedpact.engines.local import LocalNetwork
from fedpact.federation import buckets as bucketing
from fedpact.federation.buckets import FILL, SMALL, buckets, in_one
from fedpact.problem.oracle import Oracle
from fedpact.protocol.algorithm import Answer, Begin, Goal, Info, Method, Status
from fedpact.protocol.messages import Reply, combine, merge, size_in_bytes
from fedpact.protocol.phases import Ask, GradientStep, Phase, Phases, ServerData, play
from fedpact.run import drivers
from fedpact.settings import bind
from fedpact.settings.base import Bound

# replies


def test_replies_are_combined_by_their_field() -> None:
    stacked = Reply(
        sum={"a": jnp.array([[1.0, 2.0], [3.0, 4.0]]), "b": jnp.array([1, 10])},
        max=jnp.array([[5.0, -1.0], [2.0, 7.0]]),
        per_party=jnp.array([[1.0], [2.0]]),
    )
    both = combine(stacked)
    assert both.sum["a"].tolist() == [4.0, 6.0]
    assert both.sum["b"].item() == 11
    assert both.max.tolist() == [5.0, 7.0]
    assert both.per_party.tolist() == [[1.0], [2.0]]


def test_buckets_are_merged_in_party_order() -> None:
    large = Reply(sum=jnp.array([1.0]), max=jnp.array(-3.0), per_party=jnp.array([30.0, 10.0]))  # parties 2 and 0
    small = Reply(sum=jnp.array([2.0]), max=jnp.array(-4.0), per_party=jnp.array([20.0]))  # party 1
    merged = merge([large, small], jnp.array([1, 2, 0]))
    assert merged.sum.tolist() == [3.0]
    assert merged.max.item() == -3.0
    assert merged.per_party.tolist() == [10.0, 20.0, 30.0]


def test_empty_replies_stay_empty() -> None:
    nothing = merge([combine(Reply()), combine(Reply())], jnp.array([0, 1]))
    assert (nothing.sum, nothing.max, nothing.per_party) == (None, None, None)


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


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 3))
def test_consecutive_parts_are_one_array(sizes: list[int], before: int) -> None:
    rows = np.arange(3 * (before + sum(sizes))).reshape(-1, 3)
    ends = before + np.cumsum(sizes)
    parts = [rows[end - size : end] for size, end in zip(sizes, ends, strict=True)]
    whole = in_one(parts)
    assert whole is not None
    np.testing.assert_array_equal(whole, rows[before:])
    assert np.shares_memory(whole, rows)
    assert not whole.flags.writeable
    assert in_one([part.copy() for part in parts]) is None
    if len(parts) > 1:
        assert in_one(parts[::-1]) is None
        assert in_one([parts[0], *(part.astype(float) for part in parts[1:])]) is None


def test_many_rows_are_neither_padded_nor_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    table = fp.Table(x=rng.normal(size=(51, 2)), y=rng.normal(size=51))
    shapes = []
    monkeypatch.setattr(jax, "device_put", lambda bound: shapes.append(bound.stacks[0].rows["x"]) or bound)
    for much in (bucketing.MUCH, 0):
        monkeypatch.setattr(bucketing, "MUCH", much)
        parties = fp.split_rows(dict(zip("abc", table.cut([17, 17, 17]), strict=True)))  # anew: bindings are remembered
        bind(fp.minimize(fp.mean(SQUARED)), parties, None, start=None, seed=0, disclose=None)
    few, many = shapes
    assert few.shape == (3, 32, 2)
    assert not np.shares_memory(few, table["x"])
    assert np.shares_memory(many, table["x"])
    np.testing.assert_array_equal(many.reshape(51, 2), table["x"])


# exchanges


def objective(own: Oracle, state: None, message: jax.Array) -> tuple[None, Reply]:
    value = own(message).objective
    return state, Reply(sum=value, max=value, per_party=(own.index, value))


@settings(max_examples=12)
@given(st.lists(st.sampled_from([1, 2, 3, 7, 8, 30]), min_size=1, max_size=6))
def test_an_exchange_is_a_plain_sum_over_unequal_parties(sizes: list[int]) -> None:
    tables = regression(0, sizes, [1.0] * len(sizes), d=2)
    w = np.array([0.5, -2.0])
    by_hand = np.array([np.mean(0.5 * (t["x"] @ w - t["y"]) ** 2) for t in tables]) / len(tables)
    network = LocalNetwork.of(bind(fp.minimize(fp.mean(SQUARED)), fp.split_rows(tables)))
    (reply,), _ = jax.jit(lambda network, w: network.exchange([Ask(objective, w)], None))(network, jnp.asarray(w))
    index, values = reply.per_party
    assert index.tolist() == list(range(len(sizes)))
    np.testing.assert_allclose(values, by_hand, rtol=1e-13)
    np.testing.assert_allclose(reply.sum, by_hand.sum(), rtol=1e-13)
    np.testing.assert_allclose(reply.max, by_hand.max(), rtol=1e-13)


@pytest.fixture(scope="module")
def bound() -> Bound:
    """Four parties in two buckets, and a server with rows of its own."""
    *tables, own = regression(1, (9, 4, 8, 4, 17), (1.0,) * 5, d=3)
    constraints = [fp.mean(excess) <= 0.0, fp.mean(excess).at_server() <= 0.0]
    bound = bind(fp.minimize(fp.mean(SQUARED), constraints), fp.split_rows(tables), own)
    assert len(bound.stacks) == 2
    return bound


def test_states_come_back_to_their_parties(bound: Bound) -> None:
    def compare(own: Oracle, state: jax.Array, message: None) -> tuple[jax.Array, Reply]:
        return state + 1, Reply(per_party=(own.index, state))

    network = LocalNetwork.of(bound)
    (reply,), after = network.exchange([Ask(compare, None)], bound.by_bucket(list(np.arange(4))))
    assert reply.per_party[0].tolist() == reply.per_party[1].tolist() == [0, 1, 2, 3]
    (reply,), _ = network.exchange([Ask(compare, None)], after)
    assert reply.per_party[1].tolist() == [1, 2, 3, 4]
    assert [int(state) for state in bound.by_name(after).values()] == [1, 2, 3, 4]


def test_a_gradient_step_is_the_same_party_by_party(bound: Bound) -> None:
    """In one process the sum is differentiated; elsewhere each party sends its own values and gradients."""

    def functions(own: Oracle, state: None, context: jax.Array, w: jax.Array) -> jax.Array:
        values = own(context * w)
        return jnp.append(values.constraints, values.objective)

    step, message = GradientStep(functions), (jnp.asarray(2.0), jnp.array([1.0, -2.0, 0.5]))
    (reply,), _ = LocalNetwork.of(bound).exchange([Ask(step, message)], None)
    each = [step(bound.own_data(name), None, message)[1].sum for name in bound.names]
    np.testing.assert_allclose(reply.sum.values, sum(r.values for r in each), rtol=1e-13)
    np.testing.assert_allclose(reply.sum.gradients, sum(r.gradients for r in each), rtol=1e-13)


def test_a_step_sees_its_own_rows_and_nothing_of_the_server(bound: Bound) -> None:
    seen = []

    def look(own: Any, state: Any, message: Any) -> tuple[None, Reply]:
        seen.append((own, state, message))
        return None, Reply()

    LocalNetwork.of(bound).exchange([Ask(look, jnp.zeros(3))], None)
    assert len(seen) == len(bound.stacks)
    for (own, state, message), stack in zip(seen, bound.stacks, strict=True):
        assert type(own) is Oracle
        assert own.program == stack.program != bound.server_data.functions.program
        assert {name: column.shape for name, column in own.rows.items()} == {
            name: column.shape[1:] for name, column in stack.rows.items()
        }
        assert state is None
        assert message.shape == (3,)


METHODS = {
    "Newton": fp.ProxAL(fp.Newton()),
    "LBFGS": fp.ProxAL(fp.LBFGS()),
    "ADMM": fp.ProxAL(fp.ADMM()),
    "as printed": fp.ProxAL.as_printed(),
    "central": fp.CentralProxAL(),
    "interior point": fp.InteriorPoint(),
}


@pytest.mark.parametrize("name", METHODS)
def test_only_named_steps_leave_the_server(bound: Bound, name: str) -> None:
    """A party runs a named function of a hashable object: no closure, no array of the server's inside."""
    method = METHODS[name].bind(bound.setting)
    steps = []
    phases = [phase for phase in (*method.opening, *method.round) if phase is not LEARN_UNITS]
    assert len(phases) == len([*method.opening, *method.round]) - (name != "as printed")
    for phase in phases:
        assert isinstance(phase, Phase)
        hash(phase.step)
        step: Any = getattr(phase.step, "wrapped", phase.step)  # in units, or as it is
        hash(step.__self__)
        function = step.__func__
        assert function.__closure__ is None
        assert list(inspect.signature(function).parameters) == ["self", "own", "state", "message"]
        assert typing.get_type_hints(function)["own"] is Oracle
        steps.append(function.__name__)
    assert steps == ["join", "step"] if name == "interior point" else ["join", "step", "pull"]


# what is counted


class Place(eqx.Module):
    w: jax.Array
    k: jax.Array
    worst: jax.Array


class Line(eqx.Module):
    """The server within a round."""

    server: Place
    info: Info


class Descent(fp.Algorithm):
    """Gradient descent on Σ f_i. Every third round asks for the largest loss too, and if it is low a number more."""

    low: float

    def bound(self, setting: Any) -> "DescentMethod":
        return DescentMethod(self.low)


class DescentMethod(Method[Place]):
    low: float

    @property
    def round(self) -> Phases:
        return (
            Phase(self.ask, self.slope, self.hear),
            Phase(self.ask, self.loss, self.hear_loss, only_if=third),
            Phase(self.ask_more, self.nothing, self.unchanged, only_if=self.is_low),
        )

    def start(self, own: ServerData, begin: Begin, reply: Reply) -> Place:
        return Place(begin.w, jnp.zeros((), int), jnp.asarray(jnp.inf))

    def ask(self, own: ServerData, carry: Any) -> jax.Array:
        return carry.w if isinstance(carry, Place) else carry.server.w

    def slope(self, own: Oracle, state: Any, message: jax.Array) -> tuple[Any, Reply]:
        return state, Reply(sum=jax.value_and_grad(lambda w: own(w).objective)(message))

    def hear(self, own: ServerData, server: Place, reply: Reply) -> Line:
        value, gradient = reply.sum
        info = Info(value, jnp.zeros(()), jnp.max(jnp.abs(gradient)))
        return Line(Place(server.w - 0.1 * gradient, server.k + 1, server.worst), info)

    def loss(self, own: Oracle, state: Any, message: jax.Array) -> tuple[Any, Reply]:
        return state, Reply(max=own(message).objective, per_party=own.index)

    def hear_loss(self, own: ServerData, carry: Line, reply: Reply) -> Line:
        return Line(Place(carry.server.w, carry.server.k, reply.max), carry.info)

    def is_low(self, own: ServerData, carry: Line) -> jax.Array:
        return third(own, carry) & (carry.server.worst < self.low)

    def ask_more(self, own: ServerData, carry: Line) -> jax.Array:
        return carry.server.worst

    def nothing(self, own: Oracle, state: Any, message: Any) -> tuple[Any, Reply]:
        return state, Reply()

    def unchanged(self, own: ServerData, carry: Line, reply: Reply) -> Line:
        return carry

    def finish(self, own: ServerData, carry: Line) -> tuple[Place, Info]:
        return carry.server, carry.info

    def status(self, server: Place) -> jax.Array:
        return Status.running.as_array()

    def answer(self, own: ServerData, carry: Place) -> Answer:
        return Answer(carry.w, jnp.zeros(0), jnp.zeros(0), jnp.asarray(0.0))


def third(own: ServerData, carry: Line) -> jax.Array:
    return carry.server.k % 3 == 0


@pytest.mark.parametrize("driver", ["chunked", "stepwise"])
def test_a_branch_costs_only_when_it_is_taken(driver: Any) -> None:
    tables = regression(2, (6, 5), (1.0, 1.0), d=3)
    path = _descended(tables, 60)
    losses = np.array([max(np.mean(0.5 * (t["x"] @ w - t["y"]) ** 2) / 2 for t in tables) for w in path])
    method = Descent(low=float(np.median(losses)))
    problem, parties = fp.minimize(fp.mean(SQUARED)), fp.split_rows(tables)
    run = fp.solve(problem, parties, method, tolerance=1e-9, max_rounds=60, driver=driver)
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


@pytest.mark.parametrize("traced", [True, False])
def test_phases_count_what_passes(bound: Bound, traced: bool) -> None:
    phase = Phase(lambda own, w: w, objective, lambda own, w, reply: reply.sum * w, only_if=lambda own, w: w[0] > 0)

    def spent(network: LocalNetwork, own: ServerData, w: jax.Array) -> tuple[jax.Array, Any]:
        carry, _, traffic = play([phase], own, network, w, (None, None))
        return carry, jax.tree.leaves(traffic)

    counted = jax.jit(spent) if traced else spent
    network, own = LocalNetwork.of(bound), bound.server_data
    carry, traffic = counted(network, own, jnp.zeros(3))
    assert carry.tolist() == [0.0, 0.0, 0.0]
    assert [int(x) for x in traffic] == [0, 0, 0]
    up = 4 * (8 + 8) + 4 * (8 + 8)  # sum and max from each of four parties, and what each sends of its own
    assert [int(x) for x in counted(network, own, jnp.ones(3))[1]] == [1, up, 4 * 3 * 8]


def test_messages_of_phases_at_the_same_time_are_made_before_any_reply_is_heard() -> None:
    order: list[str] = []

    def phase(name: str) -> Phase:
        def ask(own: Any, carry: Any) -> Any:
            order.append(f"ask {name}")
            return carry

        def hear(own: Any, carry: Any, reply: Reply) -> Any:
            order.append(f"hear {name}")
            return carry

        return Phase(ask, lambda own, state, message: (state, Reply()), hear)

    tables = regression(0, (3, 3), (1.0, 1.0), d=2)
    bound = bind(fp.minimize(fp.mean(SQUARED)), fp.split_rows(tables))
    play([(phase("a"), phase("b")), phase("c")], bound.server_data, LocalNetwork.of(bound), jnp.zeros(2), None)
    assert order == ["ask a", "ask b", "hear a", "hear b", "ask c", "hear c"]


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
    network, own = LocalNetwork.of(bound), bound.server_data
    chosen = method.bind(bound.setting)
    goal = Goal(jnp.asarray(1e-30), jnp.asarray(1e-30))
    server, states = drivers.begin(chosen, network, own, bound.start, goal, 0)
    state = network, own, server, states
    once = calls_in(lambda: jax.eval_shape(lambda *x: drivers.traced_round(chosen, *x), *state))
    assert once > 0
    assert calls_in(lambda: drivers.rounds(chosen, *state, jnp.asarray(50))) == once

    def solve(rounds: int) -> fp.Result:
        return fp.solve(stated(), parties, method, start=start, tolerance=1e-30, max_rounds=rounds)

    solve(1)
    binding = calls_in(lambda: bind(stated(), parties, start=start))
    assert calls_in(lambda: solve(50)) == binding  # an equal problem, built anew: nothing is traced again
