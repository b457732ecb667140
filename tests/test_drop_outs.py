"""Secure sums where parties may miss exchanges: the run goes on without them, and no reply is in two sums."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pacts
import pytest
from test_deploy import Loopback, as_in_one_process

import fedpact as fp
from fedpact.deploy.message_list import wire
from fedpact.deploy.party import Site
from fedpact.deploy.server import serve
from fedpact.deploy.wire_text import as_text
from fedpact.engines.exchanges import ExchangePlan
from fedpact.engines.remote import PartyLost
from fedpact.engines.sealing import check_sums
from fedpact.engines.serialization import pack, unpack
from fedpact.run.pact import Pact

NAMES = ["north", "south", "west", "east"]
PACT = (
    pacts.ROWS.replace('["north", "south", "west"]', str(NAMES))
    + "problem = free\nalgorithm = fp.FedAvg(local_steps=2, step=0.1, participation=0.99)\n"
    + "options = {'tolerance': 1e-9, 'max_rounds': 6}\n"
)


@dataclasses.dataclass
class Missing(Loopback):
    """`missed(words, party)`: whether a message does not reach a party."""

    missed: Callable[[dict[str, Any], str], bool] = lambda words, party: False
    sent: list[tuple[str, dict[str, Any], bytes]] = dataclasses.field(default_factory=list)

    def ask(self, message: bytes, parties: Sequence[str], some: bool = False) -> dict[str, bytes]:
        words = unpack(message)[0]
        away = [party for party in parties if self.missed(words, party)]
        if away and not some:
            raise PartyLost(away[0], "stays away")
        answers = super().ask(message, [party for party in parties if party not in away], some)
        self.sent += [(party, words, message) for party in answers]
        return answers


@pytest.fixture(scope="module")
def pact(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    file = tmp_path_factory.mktemp("pact") / "pact.py"
    file.write_text(PACT)
    return file


def away(words: dict[str, Any], party: str) -> bool:
    """West misses two exchanges, and south one of them."""
    missing = {"west": (3, 4), "south": (4,)}.get(party, ())
    return words["kind"] == "step" and words["number"] in missing


@pytest.fixture(scope="module")
def gone_on(pact: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Missing, fp.Result, pathlib.Path]:
    """West alone misses two exchanges, in a run that goes on."""
    folder = tmp_path_factory.mktemp("run")
    channel = Missing.of(pact, folder, missed=lambda words, party: party == "west" and away(words, party))
    result = serve(pact, channel, folder / "server")
    assert isinstance(result, fp.Result)
    return channel, result, folder


def test_a_run_goes_on_without_a_party_as_it_does_in_the_clear(
    gone_on: tuple[Missing, fp.Result, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    channel, result, _ = gone_on
    clear = tmp_path / "clear.py"
    clear.write_text(PACT + "options['privacy'] = None\n")
    assert Pact(channel.sites["west"].pact.path).is_secure, "the default: one of four can be missed"
    in_the_clear = serve(clear, Missing.of(clear, tmp_path, missed=channel.missed), tmp_path / "server")
    assert isinstance(in_the_clear, fp.Result)
    assert result.rounds == 6
    np.testing.assert_allclose(result.params["w"], in_the_clear.params["w"], rtol=0, atol=1e-12)
    lists = {words["number"]: list(words["keys"]) for _, words, _ in channel.sent if words["kind"] == "seal"}
    assert [number for number, names in lists.items() if names != NAMES] == [3, 4]
    assert lists[3] == lists[4] == ["north", "south", "east"]
    assert lists[5] == NAMES, "and west is back"


def test_nothing_of_a_reply_is_sent_before_it_is_known_who_is_there(
    gone_on: tuple[Missing, fp.Result, pathlib.Path],
) -> None:
    channel = gone_on[0]
    north, step = channel.sites["north"], [m for p, w, m in channel.sent if p == "north" and w["kind"] == "step"][-1]
    words, arrays = unpack(north.answer(step))
    assert set(words) == {"run", "session", "party", "number", "finite", "session_key"}
    assert not arrays


def test_a_reply_is_sealed_for_one_list_only(gone_on: tuple[Missing, fp.Result, pathlib.Path]) -> None:
    channel = gone_on[0]
    last = [m for p, w, m in channel.sent if p == "north" and w["kind"] == "seal"][-1]
    north, (words, _) = channel.sites["north"], unpack(last)
    assert list(words["keys"]) == NAMES
    once, again = (unpack(north.answer(last))[1]["sums"] for _ in range(2))
    np.testing.assert_array_equal(once, again)
    fewer = {name: key for name, key in words["keys"].items() if name != "west"}
    told = unpack(north.answer(pack({**words, "keys": fewer})))[0]["refused"]
    assert "sealed this reply for other parties already: a second sum would tell the difference" in told
    other = unpack(north.answer(pack({**words, "number": words["number"] - 1})))[0]["refused"]
    assert "no reply to message" in other


def sealing_site(pact: pathlib.Path, folder: pathlib.Path, policy: str) -> tuple[Site, dict[str, Any]]:
    """A party that has just done a step, and the message by which the server says that all are there."""
    found: list[tuple[Site, dict[str, Any]]] = []
    channel = Missing.of(pact, folder)
    file = folder / "policy.toml"
    file.write_text(policy)
    channel.sites["north"] = Site(pact, "north", folder / "north", file)

    def first(words: dict[str, Any], party: str) -> bool:
        if words["kind"] == "seal" and party == "north":
            found.append((channel.sites["north"], words))
            raise ConnectionError
        return False

    channel.missed = first
    with pytest.raises(ConnectionError):
        serve(pact, channel, folder / "server")
    return found[0]


def test_lists_that_a_party_refuses(pact: pathlib.Path, tmp_path: pathlib.Path) -> None:
    site, words = sealing_site(pact, tmp_path, "min_parties = 4\nsecret_batches = false\n")
    keys = words["keys"]

    def says(names: Sequence[str], **more: Any) -> str:
        told = {name: keys[name] for name in names}
        return unpack(site.answer(pack({**words, "keys": {**told, **more}})))[0].get("refused", "")

    assert "a sum over north, south, west alone: there have to be 4 parties" in says(["north", "south", "west"])
    assert "it is not among them itself" in says(["south", "west", "east"])
    assert "not among the pact's parties" in says(NAMES, more=keys["west"])
    assert "the key of party 'west' for this session is no key" in says(NAMES, west={"key": "x"})
    assert "its own key for this session was replaced" in says(NAMES, north={"key": 43 * "A"})
    assert says(NAMES) == ""


def test_who_is_lost_is_named(pact: pathlib.Path, tmp_path: pathlib.Path) -> None:
    channel = Missing.of(pact, tmp_path, missed=away)
    with pytest.raises(PartyLost, match="party 'south': no answer, and a secure sum is over 3 parties at least; 2 are"):
        serve(pact, channel, tmp_path / "server")
    channel.missed = lambda words, party: words["kind"] == "seal" and words["number"] == 5 and party == "east"
    with pytest.raises(PartyLost, match="party 'east': stays away"):
        serve(pact, channel, tmp_path / "server", resume=True)
    channel.missed = lambda words, party: False
    resumed = serve(pact, channel, tmp_path / "server", resume=True)
    assert isinstance(resumed, fp.Result)
    assert resumed.rounds == 6


def test_a_party_whose_process_was_restarted_comes_back(pact: pathlib.Path, tmp_path: pathlib.Path) -> None:
    channel = Missing.of(pact, tmp_path)

    def kill(words: dict[str, Any], party: str) -> bool:
        if words["kind"] == "step" and words["number"] == 4 and party == "west" and "west" not in killed:
            killed.append(party)
            channel.sites["west"] = as_in_one_process(pact, "west", tmp_path / "west")
        return False

    killed: list[str] = []
    channel.missed = kill
    result = serve(pact, channel, tmp_path / "server")
    assert isinstance(result, fp.Result)
    assert result.rounds == 6
    lists = {words["number"]: list(words["keys"]) for _, words, _ in channel.sent if words["kind"] == "seal"}
    assert lists[4] == ["north", "south", "east"]
    assert lists[5] == NAMES


METHODS = (
    "fp.FedProx(local_steps=2, step=0.1, mu=0.1, participation=0.5)",
    "fp.SCAFFOLD(local_steps=2, step=0.1, participation=0.5)",
    "fp.FedSGD(batch=10, step=0.1, participation=0.5)",
    "fp.SSCA(batch=10, participation=0.5)",
)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_whose_parties_may_miss_rounds_needs_sums_only(method: str, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "pact.py"
    file.write_text(f"{PACT}\nalgorithm = {method}\n")
    pact = Pact(file)
    assert pact.is_secure
    assert pact.some_missing
    bound = pact.bind(pact.tables())
    plan = ExchangePlan.of(pact.method_for(bound.setting), bound)
    check_sums(plan, discloses=False)
    assert any(exchange.part == "round" for exchange in plan.exchanges.values())


def test_what_is_said_of_it(pact: pathlib.Path, tmp_path: pathlib.Path) -> None:
    text = " ".join(as_text(wire(Pact(pact))).split())
    assert "masked for those who are. A sum is over these, 3 at least." in text
    three = tmp_path / "three.py"
    three.write_text(PACT.replace(str(NAMES), str(NAMES[:3])))
    assert not Pact(three).is_secure, "of three parties nobody can be missed in a secure sum"
    checked = tmp_path / "checked.py"
    checked.write_text(PACT + "options['privacy'] = fp.SecureAggregation(checked=True)\n")
    with pytest.raises(ValueError, match=r"where parties may miss rounds .* cannot compute its points"):
        Pact(checked)
