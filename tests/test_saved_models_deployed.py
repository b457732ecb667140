"""Deployed runs leave the model in the server's folder, and what is a party's own in the party's, as one process does."""

import json
import pathlib
from typing import Any

import numpy as np
import pacts
import pytest
from test_deploy import Loopback

import fedpact as fp
from fedpact.deploy.server import serve
from fedpact.engines.serialization import pack, unpack
from fedpact.run.pact import Pact

NAMED = """
_rows = load


def load(party):
    table = _rows(party)
    return table.with_features([f"{party} {place}" for place in range(table["x"].shape[1])])
"""
RECIPE = """
import pandas as pd
import fedpact as fp

parties = ["north", "south"]
recipe = fp.Recipe(x=[fp.standardize("age", missing="mean"), fp.one_hot("ward")], y=fp.label("end", positive="died"))
problem = fp.minimize(fp.mean(fp.logistic_loss(fp.linear(bias=True))), regularizer=fp.l2(1e-2))
algorithm = fp.FedSGD(batch=4, step=0.1)
options = {"max_rounds": 5}


def load(party):
    ward = ["a", "b", "a", "b"] if party == "north" else ["b", "c", "c", "b"]
    frame = pd.DataFrame({"age": [50.0, 60.0, None, 70.0], "ward": ward, "end": ["died", "alive", "died", "alive"]})
    return pd.concat([frame] * 3)
"""


def both(
    pact: pathlib.Path, folder: pathlib.Path
) -> tuple[fp.Predictor, fp.Predictor, dict[str, fp.Predictor], fp.Result]:
    """The server's model after a deployed run and the one of one process; the parties' parts; the result of one process."""
    serve(pact, Loopback.of(pact, folder), folder / "server")
    stated = Pact(pact)
    local = stated.run(stated.tables(), save=folder / "here")
    assert isinstance(local, fp.Result)
    parts = {party: next((folder / party).glob("*/model"), None) for party in stated.parties}
    own = {party: fp.load(part) for party, part in parts.items() if part is not None}
    return fp.load(folder / "server" / "model"), fp.load(folder / "here" / "model"), own, local


def assert_same_model(one: fp.Predictor, other: fp.Predictor) -> None:
    names = (
        "form",
        "rule",
        "features",
        "recipe",
        "status",
        "problem",
        "digest",
        "version",
        "split",
        "parties",
        "party",
    )
    for name in names:
        assert getattr(one, name) == getattr(other, name), name
    assert one.params.keys() == other.params.keys()
    for name, array in one.params.items():
        np.testing.assert_allclose(array, other.params[name], rtol=0, atol=1e-10)
    for name in ("tolerance", "stationarity", "feasibility"):
        assert one.certificate[name] == pytest.approx(other.certificate[name], abs=1e-10)


def written(folder: pathlib.Path, text: str) -> pathlib.Path:
    file = folder / "pact.py"
    file.write_text(text)
    return file


def test_one_model_is_with_the_server_alone(tmp_path: pathlib.Path) -> None:
    pact = written(tmp_path, pacts.PACTS["FedSGD"])
    server, here, own, local = both(pact, tmp_path)
    assert_same_model(server, here)
    assert not own
    rows = Pact(pact).table("north")
    np.testing.assert_allclose(server.scores(rows), local.scores(rows), rtol=0, atol=1e-10)
    assert server.certificate["constraints"] == here.certificate["constraints"]


def test_a_recipe_is_with_the_server(tmp_path: pathlib.Path) -> None:
    pact = written(tmp_path, RECIPE)
    server, here, _, _ = both(pact, tmp_path)
    assert_same_model(server, here)
    assert server.features == ("age", "ward=a", "ward=b", "ward=c")
    raw = Pact(pact).load("south")
    assert set(server.predict(raw)) <= {"died", "alive"}
    np.testing.assert_array_equal(server.predict(raw), here.predict(raw))


def test_personal_models_are_with_their_parties(tmp_path: pathlib.Path) -> None:
    pact = written(tmp_path, pacts.PACTS["PCFedAvg"])
    server, here, own, local = both(pact, tmp_path)
    assert_same_model(server, here)
    rows = Pact(pact).table("north")
    assert own.keys() == here.parts.keys() == {"north", "south", "west"}
    for party, part in own.items():
        assert_same_model(part, here.parts[party])
        assert part.party == party
        np.testing.assert_allclose(part.scores(rows), local.scores(rows, party), rtol=0, atol=1e-10)
        np.testing.assert_array_equal(here.scores(rows, party), local.scores(rows, party))
    np.testing.assert_array_equal(here.scores(rows), local.scores(rows))
    with pytest.raises(ValueError, match="is with that party"):
        server.scores(rows, "north")
    with pytest.raises(ValueError, match="there is no such model; there is north, south, west"):
        server.scores(rows, "nobody")


def test_over_columns_every_party_has_its_part(tmp_path: pathlib.Path) -> None:
    pact = written(tmp_path, pacts.PACTS["FedBCD"] + NAMED)
    server, here, own, local = both(pact, tmp_path)
    assert_same_model(server, here)
    tables = Pact(pact).tables()
    for party, part in own.items():
        assert_same_model(part, here.parts[party])
        assert part.features == tables[party].features
        assert "constraints" not in part.certificate
    expected = local.scores(tables)
    np.testing.assert_array_equal(here.scores(tables), expected)
    outputs = {party: part.scores(tables[party]) for party, part in own.items()}
    by_hand = sum(tables[party]["x"] @ part.params["w"] for party, part in own.items())
    np.testing.assert_allclose(server.combine(outputs), by_hand, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(server.combine(outputs), expected, rtol=0, atol=1e-9)  # of parameters within 1e-10
    np.testing.assert_array_equal(server.decide(server.combine(outputs)), local.predict(tables))
    copied = here.save(tmp_path / "copied")
    np.testing.assert_array_equal(fp.load(copied).scores(tables), expected)
    assert not fp.load(server.save(copied)).parts  # those of the model before are gone
    fp.load(tmp_path / "here" / "model" / "parties" / "north").save(copied / "parties" / "south")
    with pytest.raises(ValueError, match="not the part of 'south'"):
        fp.load(copied)
    with pytest.raises(ValueError, match="the label holder decides"):
        own["south"].predict(tables["south"])
    with pytest.raises(ValueError, match="the part of 'north' is with that party"):
        server.predict(tables)
    with pytest.raises(ValueError, match="there are none of 'west'"):
        server.combine({"north": outputs["north"], "south": outputs["south"]})
    with pytest.raises(ValueError, match="'south 0' at place 2"):
        own["south"].scores(tables["south"].with_features(["south 1", "south 0"]))


def test_a_party_learns_nothing_of_others_from_the_end(tmp_path: pathlib.Path) -> None:
    """Its folder has status, threshold and the certificate's three numbers; an end without them is refused."""
    pact = written(tmp_path, pacts.PACTS["FedBCD"])
    ends: list[dict[str, Any]] = []

    def listen(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        words, _ = unpack(message)
        if words["kind"] == "end":
            ends.append(words)
            lying = {**words, "outcome": {**words["outcome"], "numbers": {"others": 1.0}}}
            refused, _ = unpack(channel.sites[party].answer(pack(lying)))
            assert "no status with a few numbers" in refused["refused"]
        return answer

    channel = Loopback.of(pact, tmp_path, meddle=listen)
    serve(pact, channel, tmp_path / "server")
    assert len(ends) == 3
    assert set(ends[0]["outcome"]["numbers"]) == {"tolerance", "stationarity", "feasibility", "complementarity"}
    (file,) = (tmp_path / "south").glob("*/model/model.json")
    words = json.loads(file.read_text())
    assert words["certificate"] == ends[0]["outcome"]["numbers"]
    assert (words["message"], words["run"]) == ("", {})
