"""Program 7 of the front door on Flower, for real: the same file, the same answer as in this process.

An exchange takes four seconds there, so one method has to do; all are run on FLARE (test_flare.py), with the same two sides.
"""

import json
import pathlib

import jax
import numpy as np
import pacts
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

import fedpact as fp
from fedpact.deploy.flower.kit import write_kit
from fedpact.deploy.flower.local_run import LocalFederation
from fedpact.deploy.this_machine import free_port
from fedpact.precision import cache_folder
from fedpact.run.pact import Pact

ENVIRONMENT = {"FEDPACT_CACHE": str(cache_folder()), "JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "JAX_PLATFORMS": "cpu"}


@pytest.mark.deploy
def test_the_front_door_gives_what_it_gives_in_this_process(tmp_path: pathlib.Path) -> None:
    file = pacts.written(tmp_path, "front door")
    stated = Pact(file)
    local = stated.run(stated.tables())
    kit = tmp_path / "kit"
    write_kit(file, stated.parties, kit, server="127.0.0.1", port=free_port())
    with LocalFederation(kit, ENVIRONMENT) as federation:
        assert "fedpact: finished" in federation.run(limit=400)
    state = kit / "server" / "state"
    record = json.loads((state / "run.json").read_text())
    assert (record["status"], record["rounds"]) == (local.status, local.rounds)
    assert record["objective"] == pytest.approx(local.objective, abs=1e-10)
    folders = {party: kit / party / "state" for party in stated.parties}
    assert all(list(folder.glob("*/own.npz")) for folder in folders.values()), "what is a party's own is with the party"
    assert not list(state.rglob("*own*"))
    with np.load(state / "answer.npz") as saved:
        flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(local.params)])
        np.testing.assert_allclose(saved["w"], flat, rtol=0, atol=1e-10)
    model = fp.load(state / "model")
    for party in stated.parties:
        rows = stated.table(party)
        np.testing.assert_allclose(model.scores(rows), local.scores(rows), rtol=0, atol=1e-9)
