"""Points that every party computes itself: honest runs are as before, and a server that asks for another point is refused."""

import pathlib
from collections.abc import Callable
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pacts
import pytest
from test_deploy import Loopback, changed
from test_secure_sums import with_keys

import fedpact as fp
from fedpact.deploy.party import Site
from fedpact.deploy.server import serve
from fedpact.engines import tags
from fedpact.engines.remote import PartyLost
from fedpact.engines.serialization import pack, unpack
from fedpact.protocol import ring
from fedpact.run.pact import Pact

PRIME = int(tags.PRIME)
BELOW = st.integers(0, PRIME - 1)


@hypothesis.given(st.lists(st.tuples(BELOW, BELOW), min_size=1, max_size=6))
def test_arithmetic_modulo_the_prime(pairs: list[tuple[int, int]]) -> None:
    a, b = (np.array(side, np.uint64) for side in zip(*pairs, strict=True))
    for mine, exact in ((tags.plus, int.__add__), (tags.minus, int.__sub__), (tags.times, int.__mul__)):
        assert mine(a, b).tolist() == [exact(x, y) % PRIME for x, y in pairs]
    assert int(tags.total(a)) == sum(a.tolist()) % PRIME
    assert int(tags.tag(a, b)) == sum(x * y for x, y in pairs) % PRIME


@hypothesis.given(st.lists(st.floats(-(2.0**60), 2.0**60), min_size=1, max_size=5))
def test_numbers_of_the_ring_keep_their_sums_modulo_the_prime(numbers: list[float]) -> None:
    words = ring.encode(np.array(numbers))
    whole = ring.total(ring.Words(words.high[:, None], words.low[:, None]))
    assert int(tags.of_ring(whole)[0]) == int(tags.total(tags.of_ring(words)))


@pytest.mark.parametrize("name", ["FedAvg", "InteriorPoint counting", "ProxAL Newton", "PersonalProjected"])
def test_an_honest_run_is_the_same(name: str, tmp_path: pathlib.Path) -> None:
    channel = with_keys(pacts.written(tmp_path, name), tmp_path)
    pact = Pact(tmp_path / "keys.py")
    assert pact.checks_points
    deployed = serve(pact.path, channel, tmp_path / "server")
    pacts.assert_same(deployed, pact.run(pact.tables()), {party: tmp_path / party / "state" for party in pact.parties})
    followed = channel.sites["west"].run
    assert followed is not None
    assert followed.follower is not None
    assert followed.follower.answer is not None


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Callable[[pathlib.Path], Loopback], fp.Result]:
    folder = tmp_path_factory.mktemp("pact")
    pact = pacts.written(folder, "FedAvg")
    return lambda folder: with_keys(pact, folder), Pact(pact).run(Pact(pact).tables())


class Lying(Loopback):
    """A server that changes a message on its way to the parties."""

    change: Any = None

    def ask(self, message: bytes, parties: Any, some: bool = False) -> dict[str, bytes]:
        words, arrays = unpack(message)
        arrays = {name: array.copy() for name, array in arrays.items()}
        if self.change is not None and self.change(words, arrays):
            message = pack(words, arrays)
        return super().ask(message, parties, some)


def other_point(words: dict[str, Any], arrays: dict[str, np.ndarray]) -> bool:
    if words.get("number", 0) < 4:
        return False
    arrays[".parameters"] += 1e-3
    return True


def other_key(words: dict[str, Any], arrays: dict[str, np.ndarray]) -> bool:
    if words.get("number", 0) < 4:
        return False
    arrays[".random_key"] += np.uint32(1)
    return True


def other_sums(words: dict[str, Any], arrays: dict[str, np.ndarray]) -> bool:
    if "told.sums" not in arrays:
        return False
    arrays["told.sums"][0, 1] += np.uint64(1)
    return True


def no_sums(words: dict[str, Any], arrays: dict[str, np.ndarray]) -> bool:
    return arrays.pop("told.sums", None) is not None


def other_first(words: dict[str, Any], arrays: dict[str, np.ndarray]) -> bool:
    if words.get("kind") != "step" or ".parameters" not in arrays:
        return False
    arrays[".parameters"] += 1.0
    return True


def other_envelope(words: dict[str, Any], arrays: dict[str, np.ndarray]) -> bool:
    if "envelopes" not in words:
        return False
    words["envelopes"] = dict.fromkeys(words["envelopes"], "A" * 64)
    return True


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (other_point, "lead to another point than the server's"),
        (other_key, "lead to another point than the server's"),
        (other_sums, "are not those of the parties' replies"),
        (no_sums, "'sums' is missing"),
        (other_first, "lead to another point than the server's"),
        (other_envelope, "not one of this session"),
    ],
)
def test_a_server_that_does_not_keep_to_the_sums_is_refused(
    change: Any, told: str, keyed: tuple[Any, fp.Result], tmp_path: pathlib.Path
) -> None:
    channel = Lying(keyed[0](tmp_path).sites)
    channel.change = change
    with pytest.raises(PartyLost, match=told):
        serve(tmp_path / "keys.py", channel, tmp_path / "server")


def test_a_party_that_changes_its_reply_changes_the_sum_and_is_not_seen(
    keyed: tuple[Any, fp.Result], tmp_path: pathlib.Path
) -> None:
    """Tags show that a sum is that of the replies, not that replies are true: words that were changed on the way do not pass."""
    channel = keyed[0](tmp_path)

    def meddle(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        def one_more(words: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
            if "sums" in arrays:
                arrays["sums"][0, 0] += np.uint64(1)

        return changed(answer, one_more) if party == "west" else answer

    channel.meddle = meddle
    with pytest.raises(PartyLost, match="are not those of the parties' replies"):
        serve(tmp_path / "keys.py", channel, tmp_path / "server")


def test_a_resumed_run_is_followed_from_what_the_party_saved(
    keyed: tuple[Any, fp.Result], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedpact.run import loop

    monkeypatch.setattr(loop, "SAVE_SECONDS", 0.0)
    channel = keyed[0](tmp_path)
    channel.away = lambda number, party: party == "west" and number == 14
    with pytest.raises(PartyLost, match="stays away"):
        serve(tmp_path / "keys.py", channel, tmp_path / "server")
    sites = channel.sites.items()
    fresh = Loopback({n: Site(s.pact.path, n, s.folder, s.folder.parent / "policy.toml") for n, s in sites})
    resumed = serve(tmp_path / "keys.py", fresh, tmp_path / "server", resume=True)
    np.testing.assert_allclose(resumed.params["w"], keyed[1].params["w"], rtol=0, atol=1e-12)
    assert resumed.rounds == keyed[1].rounds


def test_a_message_that_fails_at_a_party_leaves_nothing_behind(
    keyed: tuple[Any, fp.Result], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it fails, in what follows the server or in the party's own step, the same message is answered afterwards."""
    channel = Lying(keyed[0](tmp_path).sites)
    failed = []

    def first_in_vain(words: dict[str, Any], arrays: dict[str, np.ndarray]) -> bool:
        if words.get("number") in (5, 6):
            site = channel.sites["west"]
            assert site.run is not None
            assert site.run.follower is not None
            with monkeypatch.context() as now:
                if words["number"] == 5:
                    now.setattr(site.run.follower, "_call", None)
                else:
                    now.setattr(site.run, "steps", dict.fromkeys(site.run.steps))
                failed.append(unpack(site.answer(pack(words, arrays)))[0]["refused"])
        return False

    channel.change = first_in_vain
    result = serve(tmp_path / "keys.py", channel, tmp_path / "server")
    assert failed == ["its process failed (TypeError); its own log says why"] * 2
    np.testing.assert_allclose(result.params["w"], keyed[1].params["w"], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("", None),
        ("keys = None\n", "has no `keys` of the parties"),
        ("options['privacy'] = fp.SecureAggregation(checked=False)\n", "the pact does not check them"),
    ],
)
def test_a_party_that_demands_checked_points_takes_part_in_nothing_else(
    change: str, told: str | None, keyed: tuple[Any, fp.Result], tmp_path: pathlib.Path
) -> None:
    pact, fresh = tmp_path / "keys.py", Loopback({})
    names = list(keyed[0](tmp_path).sites)
    pact.write_text(pact.read_text() + change)
    for name in names:
        policy = tmp_path / name / "policy.toml"
        demanded = "checked_points = true" if name == "west" else ""
        policy.write_text(policy.read_text().replace("secure_summation = true", demanded))
        fresh.sites[name] = Site(pact, name, tmp_path / name / "state", policy)
    if told is None:
        assert serve(pact, fresh, tmp_path / "server").rounds == keyed[1].rounds
        return
    with pytest.raises(PartyLost, match=f"its policy demands checked points, and .*{told}") as caught:
        serve(pact, fresh, tmp_path / "server")
    assert caught.value.party == "west"


def test_rows_are_decided_with_the_answer_and_with_nothing_else(tmp_path: pathlib.Path) -> None:
    pact = tmp_path / "pact.py"
    pact.write_text(pacts.EVALUATED["rows"])
    channel = Lying(with_keys(pact, tmp_path).sites)
    result = serve(tmp_path / "keys.py", channel, tmp_path / "server")
    assert result.evaluation is not None
    (tmp_path / "again").mkdir()

    def other(words: dict[str, Any], arrays: dict[str, np.ndarray]) -> bool:
        if words.get("kind") != "evaluate":
            return False
        words["threshold"] += 0.5
        return True

    channel = Lying(with_keys(pact, tmp_path / "again").sites)
    channel.change = other
    with pytest.raises(PartyLost, match="decide with another model"):
        serve(tmp_path / "again" / "keys.py", channel, tmp_path / "again" / "server")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("options['privacy'] = fp.SecureAggregation(checked=True)\nserver = load('north')\n", "rows of its own"),
        ("options['privacy'] = fp.SecureAggregation(checked=1.5)\n", "True, False"),
    ],
)
def test_where_parties_cannot_compute_the_points_it_says_so(more: str, told: str, tmp_path: pathlib.Path) -> None:
    pact = pacts.written(tmp_path, "FedAvg")
    pact.write_text(pact.read_text() + more)
    with pytest.raises((TypeError, ValueError), match=told):
        Pact(pact)
