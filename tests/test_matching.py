"""Private matching of ids, in one process and across organisations: the same rows, what is refused, what is seen by whom."""

import hashlib
import pathlib
import sys
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from pacts import assert_same, assert_same_counts
from test_deploy import Loopback, Server

import fedpact as fp
from fedpact.deploy.message_list import wire
from fedpact.deploy.party import Site
from fedpact.deploy.server import serve
from fedpact.engines.remote import PartyLost
from fedpact.engines.serialization import pack, unpack
from fedpact.privacy import blinded_ids
from fedpact.privacy.blinded_ids import BlindedIds, Ids, shared_by_all
from fedpact.privacy.matching import LocalPeer, compare
from fedpact.run.pact import Pact


def table(ids: Any, **columns: Any) -> fp.Table:
    return fp.Table(customer=np.asarray(ids), x=np.arange(len(ids), dtype=float)[:, None], **columns)


# in one process


@hypothesis.given(
    st.lists(st.sets(st.integers(-5, 12), min_size=1, max_size=12), min_size=2, max_size=4), st.booleans()
)
@hypothesis.settings(max_examples=20)
def test_what_is_matched_is_the_intersection(sets: list[set[int]], as_strings: bool) -> None:
    common = set.intersection(*sets)
    write: Any = (lambda k: f"é{k}") if as_strings else int
    tables = {f"p{i}": table([write(k) for k in own]) for i, own in enumerate(sets)}
    if not common:
        with pytest.raises(ValueError, match="no id is in common"):
            fp.match(tables, id="customer")
        return
    matched = fp.match(tables, id="customer")
    first = matched["p0"]["customer"].tolist()
    assert set(first) == {write(k) for k in common}
    assert matched.common == len(common)
    for name in matched:
        assert matched[name]["customer"].tolist() == first
        places = matched[name]["x"][:, 0].astype(int)
        assert tables[name]["customer"][places].tolist() == first, "the other columns go with their ids"


def test_the_order_depends_on_the_ids_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = np.arange(40)
    one = fp.match({"a": table(ids), "b": table(ids[::-1])}, id="customer")["a"]["customer"]
    monkeypatch.setattr(blinded_ids, "CHUNK", 7)  # lists in several parts
    monkeypatch.setattr("fedpact.privacy.matching.CHUNK", 7)
    other = fp.match({"b": table(np.roll(ids, 3)), "a": table(ids), "c": table(ids)}, id="customer")["b"]["customer"]
    assert one.tolist() == other.tolist()
    assert one.tolist() != sorted(one.tolist()), "a place in the list does not tell an id's rank"


def test_it_says_what_each_side_learned() -> None:
    three = {"bank": table([1, 2, 3, 4]), "shop": table([2, 3, 9]), "post": table([3, 2])}
    said = str(fp.match(three, id="customer"))
    assert said.startswith("2 ids in common, in the column 'customer' of bank, shop, post\n")
    assert "bank learned which of its 4 ids all have, and that shop has 3, post has 2" in said
    assert "no id" in said
    assert f"{32 * 9 * 3} bytes from the parties, {32 * 9 * 2 + 3} to them" in said


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        ([1, 2, 2, 2], "column 'customer' of party 'shop' has 2 duplicate ids in 4 rows"),
        ([1.0, np.nan, np.nan], "column 'customer' of party 'shop' has 2 missing ids in 3 rows"),
        (["a", "", "  "], "column 'customer' of party 'shop' has 2 missing ids in 3 rows"),
        ([1.0, 2.5], "column 'customer' of party 'shop' holds numbers with decimals; ids are whole numbers or strings"),
        ([True, False], "holds yes or no; ids are"),
        ([[1, 2], [3, 4]], "ids are whole numbers or strings, one for each row"),
        (["1", "2"], "column 'customer' holds strings at party 'shop' and whole numbers at party 'bank'"),
        ([7, 8], "no id is in common"),
    ],
)
def test_ids_that_cannot_be_matched(ids: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        fp.match({"bank": table([1, 2, 3]), "shop": table(ids)}, id="customer")


def test_tables_that_cannot_be_matched() -> None:
    with pytest.raises(ValueError, match="'client' of party 'a' is missing: it has customer, x"):
        fp.match({"a": table([1]), "b": table([1])}, id="client")
    with pytest.raises(ValueError, match="two or more parties, and there is 1"):
        fp.match({"a": table([1])}, id="customer")
    with pytest.raises(TypeError, match="a mapping of party names to tables"):
        fp.match(table([1]), id="customer")
    with pytest.raises(ValueError, match="the table of party 'b': column 'customer' has 1 missing"):
        fp.match({"a": table(["u"]), "b": {"customer": ["u", None]}}, id="customer")


def test_without_rbcl_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rbcl", None)
    with pytest.raises(ImportError, match="private matching of ids needs rbcl: pip install"):
        fp.match({"a": table([1]), "b": table([1])}, id="customer")


def test_features_stay_named() -> None:
    named = table([3, 1, 2]).with_features(["age"])
    assert fp.match({"a": named, "b": table([1, 2])}, id="customer")["a"].features == ("age",)


# the group


def blinded(ids: Any) -> BlindedIds:
    return BlindedIds(Ids.of("party 'a'", table(ids), "customer"))


def test_a_list_of_known_ids_is_nothing_to_others() -> None:
    """Neither the hash of an id nor its place in the table shows in the list; twice blinded, the order does not matter."""
    import rbcl

    one, other = blinded([1, 2, 3]), blinded([1, 2, 3])
    digest = hashlib.sha512(blinded_ids.PREFIX + b"whole numbers\0" + b"1").digest()
    plain = rbcl.crypto_core_ristretto255_from_hash(digest)
    assert plain not in [point.tobytes() for point in one.own(0)]
    assert not {p.tobytes() for p in one.own(0)} & {p.tobytes() for p in other.own(0)}, "each draws a number of its own"
    both = [{p.tobytes() for p in b.blind(a.own(0))} for a, b in ((one, other), (other, one))]
    assert both[0] == both[1]


@pytest.mark.parametrize(
    "point",
    [
        bytes(32),  # the neutral element
        b"\xff" * 32,  # not canonical
        b"\x01" + bytes(31),  # an odd, so "negative", encoding
        bytes.fromhex("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),  # p, which stands for 0
        bytes.fromhex(
            "26948d35ca62e643e26a83177332e6b6afeb9d08e4268b650f1f5bbd8d81d371"
        ),  # not on the curve: RFC 9496, A.2
    ],
)
def test_what_is_no_point_is_refused(point: bytes) -> None:
    good = blinded([1, 2]).own(0)
    bad = np.concatenate([good, np.frombuffer(point, np.uint8)[None]])
    with pytest.raises(ValueError, match="no blinded id"):
        blinded([5]).blind(bad)


@pytest.mark.parametrize("points", [np.zeros((2, 31), np.uint8), np.zeros(32, np.uint8), np.zeros((1, 32))])
def test_arrays_that_are_no_points_are_refused(points: np.ndarray) -> None:
    with pytest.raises(ValueError, match="no list of blinded ids"):
        blinded([5]).blind(points)


def test_a_point_twice_in_a_list_is_refused() -> None:
    points = blinded([1, 2]).own(0)
    with pytest.raises(ValueError, match="the list of party 'b' has an id twice"):
        shared_by_all({"a": points, "b": np.concatenate([points, points[:1]])})


def test_who_fails_stops_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedpact.privacy.matching.CHUNK", 2)
    monkeypatch.setattr(blinded_ids, "CHUNK", 2)

    class Broken(LocalPeer):
        def blind(self, of: str, chunk: int, points: np.ndarray) -> np.ndarray:
            raise ConnectionError("is gone")

    with pytest.raises(ConnectionError, match="is gone"):
        compare({"a": LocalPeer(blinded(range(9))), "b": Broken(blinded(range(9)))})


# across organisations

PACT = """
import numpy as np
import fedpact as fp

parties = ["bank", "shop", "network"]
active = ["bank"]
align = "customer"
loss = fp.logistic_loss(fp.split_model(bottom=lambda width: fp.linear(bias=False)), labels=(-1, 1))
problem = fp.minimize(fp.mean(loss), regularizer=fp.l2(0.01))
algorithm = fp.FedBCD()
options = {"max_rounds": 3, "tolerance": 1e-9}
evaluate = {"label": "y"}
FEATURES = {"bank": [0], "shop": [1, 2], "network": [3, 4]}


def load(party):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(60, 5))
    y = np.where(x.sum(1) > 0, 1, -1)
    own = np.random.default_rng(parties.index(party)).permutation(60)[:48]
    labels = {"y": y[own]} if party in active else {}
    return fp.Table(x=x[own][:, FEATURES[party]], customer=np.array([f"c{k}" for k in own]), **labels)
"""


@pytest.fixture
def pact(tmp_path: pathlib.Path) -> pathlib.Path:
    file = tmp_path / "pact.py"
    file.write_text(PACT)
    return file


@pytest.fixture(scope="module")
def in_one_process(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pact, fp.Result]:
    file = tmp_path_factory.mktemp("pact") / "pact.py"
    file.write_text(PACT)
    stated = Pact(file)
    result = stated.run(stated.tables())
    assert isinstance(result, fp.Result)
    return stated, result


def test_a_pact_that_aligns_gives_the_same_elsewhere(
    in_one_process: tuple[Pact, fp.Result], pact: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    stated, local = in_one_process
    assert stated.matched is not None
    everybody = set.intersection(*(set(stated.table(party)["customer"]) for party in stated.parties))
    assert stated.matched.common == local.rows[0] == len(everybody)
    said: list[tuple[str, bytes, bytes]] = []

    def listen(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        said.append((party, message, answer))
        return answer

    deployed = serve(pact, Loopback.of(pact, tmp_path, meddle=listen), tmp_path / "server")
    assert isinstance(deployed, fp.Result)
    assert_same(deployed, local, {party: tmp_path / party for party in stated.parties})
    assert_same_counts(deployed.evaluation, local.evaluation)
    assert not any(b'"c7"' in message or b'"c7"' in answer for _, message, answer in said)
    hellos = [unpack(answer)[0] for _, message, answer in said if unpack(message)[0]["kind"] == "hello"]
    assert [hello["description"]["ids"] for hello in hellos] == ["", "", ""], "no digest confirms a guess of the ids"
    rows = {party for party, message, answer in said if "rows" in unpack(answer)[1]}
    assert rows == {"bank"}, "only the label holder tells which rows of its table are in common"
    moved = [unpack(answer)[1].get("points", np.zeros(0)).nbytes for _, _, answer in said]
    assert sum(moved) == stated.matched.bytes_up


def test_an_aligned_run_is_resumed(
    in_one_process: tuple[Pact, fp.Result], pact: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedpact.run.loop.SAVE_SECONDS", 0.0)
    _, undisturbed = in_one_process

    def killed(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        if unpack(message)[0].get("number", 0) >= 6:
            raise ConnectionError("the server is gone")
        return answer

    with pytest.raises(ConnectionError):
        serve(pact, Loopback.of(pact, tmp_path, meddle=killed), tmp_path / "server")
    kinds = []

    def listen(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        kinds.append(unpack(message)[0]["kind"])
        return answer

    resumed = serve(pact, Loopback.of(pact, tmp_path, meddle=listen), tmp_path / "server", resume=True)
    assert "match" not in kinds
    assert resumed.rounds == undisturbed.rounds
    assert resumed.objective == pytest.approx(undisturbed.objective, abs=1e-12)
    channel = Loopback.of(pact, tmp_path)
    load = channel.sites["shop"].pact.load
    channel.sites["shop"].pact.load = lambda party: load(party)[1:]
    with pytest.raises(PartyLost, match="'shop': it refuses: its ids are not those that were matched"):
        serve(pact, channel, tmp_path / "server", resume=True)


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ("matching = false", "its policy allows no matching of ids"),
        ("max_ids = 47", "its policy allows 47 ids in another party's list, and that of '(bank|network)' has more"),
        ("min_rows = 2", "over columns every row's output is sent"),
    ],
)
def test_a_policy_speaks_of_matching(policy: str, told: str, pact: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "policy.toml").write_text(policy)
    channel = Loopback.of(pact, tmp_path)
    channel.sites["shop"] = Site(pact, "shop", tmp_path / "shop", tmp_path / "policy.toml")
    with pytest.raises(PartyLost, match=told) as caught:
        serve(pact, channel, tmp_path / "server")
    assert caught.value.party == "shop"
    assert not list((tmp_path / "shop").glob("*/matched.npz"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            "numbers",
            "column 'customer' holds whole numbers at party 'shop' and strings",
        ),
        (
            "twice",
            "party 'shop': it refuses: it cannot match ids: column 'customer' of party 'shop' has 1 duplicate ids",
        ),
    ],
)
def test_ids_of_a_party_elsewhere_that_cannot_be_matched(
    change: str, told: str, pact: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    channel = Loopback.of(pact, tmp_path)
    load = channel.sites["shop"].pact.load

    def changed(party: str) -> fp.Table:
        rows = load(party)
        numbers = np.array([int(name[1:]) for name in rows["customer"]])
        return rows.with_columns(customer=numbers) if change == "numbers" else rows[[0, *range(47)]]

    channel.sites["shop"].pact.load = changed
    with pytest.raises((PartyLost, ValueError), match=told):
        serve(pact, channel, tmp_path / "server")


def test_a_server_that_does_not_keep_to_the_matching(pact: pathlib.Path, tmp_path: pathlib.Path) -> None:
    site = Site(pact, "shop", tmp_path / "shop")
    server = Server(site)

    def refused(part: str, arrays: dict[str, np.ndarray] | None = None, **words: Any) -> str:
        return server.says("match", arrays, part=part, **words)["refused"]

    assert "begun no matching in this run" in refused("own", chunk=0)
    assert "has matched no ids in this run" in server.says("hello")["refused"]
    assert server.says("match", part="count") == server.says("match", part="count")
    points, others = blinded(["c1", "c2"]).own(0), blinded(["c3"]).own(0)
    assert "'shop' is no other party" in refused("blind", {"points": points}, of="shop", chunk=0)
    assert "'east' is no other party" in refused("blind", {"points": points}, of="east", chunk=0)
    assert "no blinded id" in refused("blind", {"points": np.zeros((1, 32), np.uint8)}, of="bank", chunk=0)
    assert "nothing in place of 'points'" in refused("blind", of="bank", chunk=0)
    assert "is unknown in a matching" in refused("secret", chunk=0)
    assert "is unknown in a matching" in refused("own", chunk=-1)
    again = pack({**server.words, "kind": "match", "part": "blind", "of": "bank", "chunk": 0}, {"points": points})
    assert site.answer(again) == site.answer(again), "a message that comes twice"
    assert "already, with other ids" in refused("blind", {"points": others}, of="bank", chunk=0)
    assert "of 48 ids which are in common" in refused("common", {"shared": np.zeros(5, np.uint8)})
    assert "no id is in common" in refused("common", {"shared": np.zeros(6, np.uint8)})
    assert "refused" not in server.says("match", {"shared": np.full(6, 1, np.uint8)}, part="common")
    assert "and others" in refused("common", {"shared": np.full(6, 2, np.uint8)})
    assert "the matching of this run is over" in refused("blind", {"points": others}, of="bank", chunk=1)
    assert server.says("hello")["description"]["rows"] == 6


@pytest.mark.parametrize(
    ("part", "change", "told"),
    [
        ("count", lambda words, arrays: words.pop("ids"), "does not say how many ids"),
        ("own", lambda words, arrays: arrays.update(points=arrays["points"][1:]), "not a list of 48 blinded ids"),
        ("blind", lambda words, arrays: arrays.clear(), "not a list of 48 blinded ids"),
        ("common", lambda words, arrays: arrays.clear(), "does not say which of its rows are in common"),
        ("common", lambda words, arrays: arrays.update(rows=arrays["rows"] + 48), "does not say which of its rows"),
    ],
)
def test_a_party_that_does_not_keep_to_the_matching(
    part: str, change: Any, told: str, pact: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    def meddle(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        if party != "bank" or unpack(message)[0].get("part") != part:
            return answer
        words, arrays = unpack(answer)
        change(words, arrays)
        return pack(words, arrays)

    with pytest.raises(PartyLost, match=told) as caught:
        serve(pact, Loopback.of(pact, tmp_path, meddle=meddle), tmp_path / "server")
    assert caught.value.party == "bank"


def test_labels_at_the_server_in_another_order_are_refused(pact: pathlib.Path, tmp_path: pathlib.Path) -> None:
    channel = Loopback.of(pact, tmp_path)
    pact.write_text(PACT.replace("[:48]\n", "[:48][::-1]\n"))  # the server reads the file now: the same rows, reversed
    with pytest.raises(ValueError, match="does not have the rows of party 'bank' in the same order"):
        serve(pact, channel, tmp_path / "server")


def test_pacts_that_align(pact: pathlib.Path) -> None:
    before = Pact(pact).digest
    assert Pact(pact).id == "customer"
    for more, error, told in (
        ("align = 3", TypeError, "the name of the column of ids"),
        ("id = 'other'", ValueError, "so `id` is the same, not 'other'"),
        (
            "problem = fp.minimize(fp.mean(fp.logistic_loss(fp.linear())))\ndel active",
            ValueError,
            "is for parties that hold columns",
        ),
    ):
        pact.write_text(f"{PACT}\n{more}\n")
        with pytest.raises(error, match=told):
            Pact(pact)
    pact.write_text(PACT.replace('align = "customer"', 'id = "customer"'))
    assert Pact(pact).digest != before


def test_a_look_at_the_messages_gives_the_same_rows(pact: pathlib.Path) -> None:
    plain, private = Pact(pact).tables(blinded=False), Pact(pact).tables()
    assert all(np.array_equal(plain[name]["x"], private[name]["x"]) for name in plain)
    assert f"its {plain.rows} rows" in wire(Pact(pact)).description
