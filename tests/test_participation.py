"""Rounds that ask a part of the parties: the others compute nothing and send nothing, in one process and deployed."""

import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pacts
import pytest
from problems import classes
from test_deploy import Loopback

import fedpact as fp
from fedpact.deploy.server import serve
from fedpact.engines.local import LocalNetwork
from fedpact.engines.serialization import unpack
from fedpact.protocol import Ask
from fedpact.run import drivers
from fedpact.run.loop import goal_of
from fedpact.run.pact import Pact
from fedpact.settings import bind
from fedpact.settings.base import Bound
from fedpact.tolerance import Tolerance

SIZES = (20, 24, 24, 50, 52, 50, 24)  # two buckets
PROBLEM = fp.minimize(fp.mean(fp.logistic_loss(fp.linear())), regularizer=fp.l2(1e-2))


@pytest.fixture(scope="module")
def parties() -> fp.Parties:
    return fp.split_rows(classes(3, SIZES, d=3))


class Everybody(LocalNetwork):
    """A network that does not know of the draw and asks all parties."""

    def exchange(self, asks: Sequence[Ask], states: Any) -> Any:
        return super().exchange([ask._replace(drawn=None) for ask in asks], states)


class AsksEverybody:
    def connect(self, bound: Bound) -> tuple[Bound, Everybody]:
        network = LocalNetwork.of(bound)
        return bound, Everybody(network.stacks, network.places)


@pytest.mark.parametrize(
    "method",
    [
        fp.FedAvg(batch=5, local_steps=2, participation=0.43, average=fp.TrimmedMean(0.34)),
        fp.SCAFFOLD(local_steps=2, participation=0.43),
        fp.FedSGD(batch=5, step=0.1, participation=0.43),
    ],
    ids=lambda method: type(method).__name__,
)
def test_who_is_not_drawn_has_no_part_in_a_round(method: fp.Algorithm, parties: fp.Parties) -> None:
    """With parties in two buckets, of which other numbers are drawn in every round."""
    found = fp.solve(PROBLEM, parties, method, max_rounds=6)
    every = fp.solve(PROBLEM, parties, method, max_rounds=6, engine=AsksEverybody())
    np.testing.assert_allclose(found.params["w"], every.params["w"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.history["objective"], every.history["objective"], rtol=1e-12)


def test_a_tenth_of_the_parties_costs_a_tenth() -> None:
    """Bytes exactly, and floating-point operations of a compiled round nearly."""
    many, cost, sent = fp.split_rows(classes(3, (12,) * 40, d=30)), {}, {}
    one_round = jax.jit(drivers.traced_round, static_argnums=0)
    with jax.enable_x64(True):
        bound = bind(PROBLEM, many)
        network, own = LocalNetwork.of(bound), bound.server_data
        for part in (1.0, 0.1):
            method = fp.FedAvg(local_steps=2, participation=part).bind(bound.setting)
            server, states = drivers.begin(method, network, own, bound.start, goal_of(Tolerance(1e-9, 1e-9), method), 0)
            compiled = one_round.lower(method, network, own, server, states).compile()
            analysis: Any = compiled.cost_analysis()
            cost[part] = analysis["flops"]
            line = compiled(network, own, server, states)[2]
            sent[part] = np.array([line.cost.bytes_up, line.cost.bytes_down])
    np.testing.assert_array_equal(10 * sent[0.1], sent[1.0])
    assert cost[0.1] < 0.2 * cost[1.0]


# deployed


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, Any]:
    """A pact whose rounds ask one party of three, and its run in one process."""
    pact = pacts.written(tmp_path_factory.mktemp("pact"), "FedAvg")
    text = pact.read_text()
    pact.write_text(text.replace("step=0.1)", "step=0.1, participation=0.34)"))
    assert pact.read_text() != text
    return pact, Pact(pact).run(Pact(pact).tables())


def test_only_those_who_are_drawn_are_asked(drawn: tuple[pathlib.Path, Any], tmp_path: pathlib.Path) -> None:
    pact, local = drawn
    asked: list[tuple[str, ...]] = []

    class Counting(Loopback):
        def ask(self, message: bytes, parties: Sequence[str], some: bool = False) -> dict[str, bytes]:
            words = unpack(message)[0]
            if words["kind"] == "step" and words["exchange"].startswith("AveragingMethod.step"):
                asked.append(tuple(parties))
            return super().ask(message, parties, some)

    deployed: Any = serve(pact, Counting.of(pact, tmp_path), tmp_path / "server")
    pacts.assert_same(deployed, local, {party: tmp_path / party for party in Pact(pact).parties})
    assert [len(parties) for parties in asked] == [1] * local.rounds
    assert len(set(asked)) > 1


def test_a_party_refuses_a_round_whose_draw_leaves_it_out(
    drawn: tuple[pathlib.Path, Any], tmp_path: pathlib.Path
) -> None:
    pact, _ = drawn
    channel, tried = Loopback.of(pact, tmp_path), []

    def elsewhere(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        if unpack(message)[0].get("exchange", "").startswith("AveragingMethod.step"):
            other = next(name for name in channel.sites if name != party)
            tried.append(unpack(channel.sites[other].answer(message))[0]["refused"])
        return answer

    channel.meddle = elsewhere
    serve(pact, channel, tmp_path / "server")
    assert tried
    assert set(tried) == {"it is asked to take part in a round whose draw leaves it out"}
