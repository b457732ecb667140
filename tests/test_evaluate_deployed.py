"""Evaluations at the end of deployed runs: the counts of one process, nothing but counts on the wire, and what is withheld."""

import pathlib
from typing import Any

import numpy as np
import pacts
import pytest
from test_deploy import Loopback, with_policy

import fedpact as fp
from fedpact.deploy.message_list import wire
from fedpact.deploy.server import serve
from fedpact.engines.remote import PartyLost
from fedpact.engines.serialization import pack, unpack
from fedpact.run.pact import Pact


def written(folder: pathlib.Path, source: str) -> pathlib.Path:
    file = folder / "pact.py"
    file.write_text(source)
    return file


@pytest.mark.parametrize("name", pacts.EVALUATED)
def test_deployed_as_in_one_process(name: str, tmp_path: pathlib.Path) -> None:
    pact = written(tmp_path, pacts.EVALUATED[name])
    deployed = serve(pact, Loopback.of(pact, tmp_path), tmp_path / "server")
    stated = Pact(pact)
    local = stated.run(stated.tables())
    assert deployed.evaluation is not None
    assert local.evaluation is not None
    pacts.assert_same_counts(deployed.evaluation, local.evaluation)
    pacts.assert_same_counts(fp.Evaluation.read(tmp_path / "server" / "evaluation.json"), local.evaluation)
    assert local.evaluation.at().rows == (80 if name == "columns" else 180)
    if name == "rows":
        here = fp.evaluate(deployed, stated.tables(), label="y", group="age")
        assert here.at("north").rows == 60
        pacts.assert_same_counts(here.summed(), local.evaluation)


CLEAR = "options['privacy'] = None\n"


def test_where_sums_are_secure_counts_are_added_up_in_secret(tmp_path: pathlib.Path) -> None:
    pact = written(tmp_path, pacts.EVALUATED["rows"].replace("batch=10, ", ""))
    channel = with_policy(pact, tmp_path, "min_rows = 8")
    replies: list[tuple[dict[str, Any], dict[str, np.ndarray]]] = []
    asked: list[bytes] = []

    def listen(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        if unpack(message)[0]["kind"] == "evaluate":
            asked.append(message)
            replies.append(unpack(answer))
        return answer

    channel.meddle = listen
    evaluation = serve(pact, channel, tmp_path / "server").evaluation
    assert evaluation is not None
    assert all(set(words) == {"run", "session", "party"} for words, _ in replies)
    assert [{name: a.shape for name, a in arrays.items()} for _, arrays in replies] == [{"sums": (4009, 2)}] * 3
    shares = [np.unpackbits(arrays["sums"].view(np.uint8)).mean() for _, arrays in replies]
    np.testing.assert_allclose(shares, 0.5, atol=6 * 0.5 / np.sqrt(4009 * 128))  # a histogram's counts are nearly all 0
    with pytest.raises(KeyError, match="sums are secure, so rates of single parties are not known"):
        evaluation.at("south")
    table = Pact(pact).table("south")
    small = [
        g for g in ("old", "young") if any(0 < np.sum((table["age"] == g) & (table["y"] == y)) < 8 for y in (0, 1))
    ]
    assert evaluation.withheld == (("all", small[0]),), "the policy has something to withhold"
    assert f"withheld for having too few rows, and in no number here: {small[0]} at some party" in str(evaluation)
    assert evaluation.at().rows == 180 - np.sum(table["age"] == small[0])
    assert evaluation.at(group=small[0]).rows, "other parties tell of that group"
    # a party whose groups are left out does not answer, nor does one that is asked something else add up
    words, arrays = unpack(asked[0])
    north = channel.sites["north"]
    assert "leave out one that it counts" in unpack(north.answer(pack({**words, "groups": []}, arrays)))[0]["refused"]
    other = unpack(north.answer(pack({**words, "groups": ["young", "old"]}, arrays)))[1]["sums"]
    again = unpack(north.answer(asked[0]))[1]["sums"]
    np.testing.assert_array_equal(again, replies[0][1]["sums"])
    assert not np.intersect1d(other, again).size, "its masks are others"


def test_parties_that_agree_to_disclose_tell_their_own_counts(tmp_path: pathlib.Path) -> None:
    stated = Pact(written(tmp_path, pacts.EVALUATED["rows"] + "options['disclose'] = True\n"))
    assert stated.is_secure
    assert not stated.hides_counts
    assert Pact(written(tmp_path, pacts.EVALUATED["rows"])).hides_counts
    assert not Pact(written(tmp_path, pacts.EVALUATED["columns"])).hides_counts


def test_only_counts_travel_and_small_groups_do_not(tmp_path: pathlib.Path) -> None:
    pact = written(tmp_path, pacts.EVALUATED["rows"].replace("batch=10, ", "") + CLEAR)
    channel = with_policy(pact, tmp_path, "min_rows = 8")
    replies: dict[str, tuple[dict[str, Any], dict[str, np.ndarray]]] = {}

    def listen(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        if unpack(message)[0]["kind"] == "evaluate":
            replies[party] = unpack(answer)
        return answer

    channel.meddle = listen
    evaluation = serve(pact, channel, tmp_path / "server").evaluation
    assert evaluation is not None
    assert {name: (a.dtype, a.shape) for name, a in replies["north"][1].items()} == {
        "rows": (np.int64, (2, 2, 2)),
        "histogram": (np.int64, (2, 2, 1000)),
    }
    table = Pact(pact).table("south")
    small = [
        group
        for group in ("old", "young")
        if any(0 < np.sum((table["age"] == group) & (table["y"] == y)) < 8 for y in (0, 1))
    ]
    assert small, "the policy has something to withhold"
    assert evaluation.withheld == tuple(("south", group) for group in small)
    told = replies["south"][0]
    assert told["withheld"] == small
    assert evaluation.at("south").rows == sum(np.sum(table["age"] == group) for group in told["groups"])
    with pytest.raises(KeyError, match="withheld"):
        evaluation.at("south", small[0])
    assert f"{small[0]} at south" in str(evaluation)


def test_what_does_not_answer_the_question_is_refused(tmp_path: pathlib.Path) -> None:
    pact = written(tmp_path, pacts.EVALUATED["rows"] + CLEAR)

    def lie(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        if unpack(message)[0]["kind"] == "evaluate" and party == "west":
            words, arrays = unpack(answer)
            return pack(words, {**arrays, "rows": -arrays["rows"]})
        return answer

    with pytest.raises(PartyLost, match="party 'west': its evaluation is refused: its counts are negative"):
        serve(pact, Loopback.of(pact, tmp_path, meddle=lie), tmp_path / "server")
    assert (tmp_path / "server" / "run.json").exists(), "the result is saved before it is evaluated"


def test_a_missing_column_is_told_before_the_first_round(tmp_path: pathlib.Path) -> None:
    pact = written(tmp_path, pacts.EVALUATED["rows"].replace('"group": "age"', '"group": "sex"'))
    channel = Loopback.of(pact, tmp_path)
    with pytest.raises(PartyLost, match="its own log says why"):
        serve(pact, channel, tmp_path / "server")
    assert channel.asked == 1
    columns = written(tmp_path, pacts.EVALUATED["columns"].replace('"group": "sex"', '"group": "age"'))
    with pytest.raises(
        ValueError, match="evaluate\\(group='age'\\): party 'north' has no such column; it has x, y, sex"
    ):
        serve(columns, Loopback.of(columns, tmp_path), tmp_path / "columns")


def test_parties_that_agreed_to_no_evaluation_do_not_answer_one(tmp_path: pathlib.Path) -> None:
    pact = written(tmp_path, pacts.PACTS["FedAvg"])
    channel = Loopback.of(pact, tmp_path)
    last: list[bytes] = []

    def keep(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        last[:] = [message]
        return answer

    channel.meddle = keep
    serve(pact, channel, tmp_path / "server")
    words = {**unpack(last[0])[0], "kind": "evaluate", "threshold": 0.0}
    answer = unpack(channel.sites["north"].answer(pack(words, {"message": np.zeros(5)})))[0]
    assert "asks for no evaluation" in answer["refused"]
    assert Pact(pact).digest != Pact(written(tmp_path, pacts.EVALUATED["rows"])).digest


def test_the_list_of_messages_has_it(tmp_path: pathlib.Path) -> None:
    row = wire(Pact(written(tmp_path, pacts.EVALUATED["rows"]))).rows()[-1]
    assert row[:4] == ("once, after the end", "evaluate", "all parties", "48")
    assert row[5] == "32,064 for each group"
    assert row[6].startswith("the server learns the sum over all who are asked of: rows by label")
    assert "2 x 1000 integers" in row[6]
    listing = wire(Pact(written(tmp_path, pacts.EVALUATED["rows"] + CLEAR)))
    assert listing.rows()[-1][5] == "16,032 for each group"
    assert "names of groups" in listing.rows()[-1][6]
    assert "for the evaluation" not in listing.description
    assert (
        "the groups of column age, for the evaluation: 'old', 'young'"
        in wire(Pact(written(tmp_path, pacts.EVALUATED["rows"]))).description
    )
