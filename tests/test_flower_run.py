"""Pacts on Flower, for real: the page's own command, then other methods on the same kit; the same answers as in this process.

`make deploy-check` runs every method; `make test` two, as starting server and sites takes longer than most runs.
"""

import json
import pathlib
import shutil
from collections.abc import Iterator

import jax
import numpy as np
import pacts
import pytest
from as_written import ENVIRONMENT, commands, typed_in

pytest.importorskip("flwr", reason="Flower is not installed")

import fedpact as fp
from fedpact.deploy.flower.local_run import LocalFederation
from fedpact.run.pact import Pact

pytestmark = pytest.mark.deploy
PARTIES = ["north", "south", "west"]
OTHERS = [name for name in pacts.PACTS if name != "front door"] if pacts.RELEASE else ["FedAvg"]


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, list[str]]:
    """The folder of the page's commands, typed in a new folder that holds pact.py, and what they printed."""
    here = tmp_path_factory.mktemp("flower")
    pacts.written(here, "front door").rename(here / "pact.py")
    lines = [line for line in commands("docs/flower.md") if "--server" not in line]  # kits are in test_as_written.py
    assert [line.split()[1] for line in lines] == ["deploy", "status", "verify"]
    return here / "try", [typed_in(here, line) for line in lines]


def test_the_front_door_gives_what_it_gives_in_this_process(tried: tuple[pathlib.Path, list[str]]) -> None:
    kit, (printed, status, verified) = tried
    state = kit / "server" / "state"
    stated = Pact(kit / "server" / "pact.py")
    local = stated.run(stated.tables())
    assert isinstance(local, fp.Result)
    assert local.message in printed
    assert f"The result is in {state}" in printed
    assert "fedpact run report" in (state / "report.html").read_text()
    assert [line.split()[:2] for line in status.splitlines() if " ended " in line] == [
        [who, "ended"] for who in ("server", *PARTIES)
    ]
    assert status.count(f"round {local.rounds}") == 1 + len(PARTIES)
    for log in (state / "log.txt", *(kit / party / "log.txt" for party in PARTIES)):  # where operators look
        assert "round 1" in log.read_text()
        assert local.status in log.read_text()
    compare(kit, local, "front door")
    model = fp.load(state / "model")
    for party in stated.parties:
        rows = stated.table(party)
        np.testing.assert_allclose(model.scores(rows), local.scores(rows), rtol=0, atol=1e-9)
    assert verified.startswith("holds to 1e-06")


def compare(kit: pathlib.Path, local: fp.Result, name: str) -> None:
    state = kit / "server" / "state"
    record = json.loads((state / "run.json").read_text())
    assert (record["status"], record["rounds"]) == (local.status, local.rounds)
    within = pacts.NOISY.get(name, 1e-10)
    assert record["objective"] == pytest.approx(local.objective, abs=within)
    folders = {party: kit / party / "state" for party in PARTIES}
    assert all(list(folder.glob("*/own.npz")) for folder in folders.values()), "what is a party's own is with the party"
    assert not list(state.rglob("*own*"))
    if isinstance(local.params, dict) and set(PARTIES) <= local.params.keys():
        pacts.assert_own(local, folders, name)
        return
    with np.load(state / "answer.npz") as saved:
        flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(local.params)])
        np.testing.assert_allclose(saved["w"], flat, rtol=0, atol=within)


@pytest.fixture(scope="module")
def federation(tried: tuple[pathlib.Path, list[str]]) -> Iterator[LocalFederation]:
    kit, _ = tried
    policy = pathlib.Path(__file__).parent / "as_in_one_process.toml"
    for party in PARTIES:
        shutil.copy(policy, kit / party / "policy.toml")
    give(kit, OTHERS[0])
    with LocalFederation(kit, ENVIRONMENT) as running:
        yield running


def give(kit: pathlib.Path, name: str) -> None:
    for owner in ("server", *PARTIES):
        (kit / owner / "pact.py").write_text(pacts.PACTS[name])
    for party in PARTIES:  # of earlier runs
        shutil.rmtree(kit / party / "state")


@pytest.mark.parametrize("name", OTHERS)
def test_other_methods_on_the_same_kit(federation: LocalFederation, name: str) -> None:
    kit = federation.kit
    if name != OTHERS[0]:
        for party in PARTIES:
            federation.stop(party)
        give(kit, name)
        for party in PARTIES:
            federation.start(party)
    assert "fedpact: finished" in federation.run(limit=1500)
    stated = Pact(kit / "server" / "pact.py")
    local = stated.run(stated.tables())
    assert isinstance(local, fp.Result)
    compare(kit, local, name)
    assert list((kit / "server" / "state" / "earlier").iterdir()), "the run before has made room"
