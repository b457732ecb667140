"""What a kit, a party, a server and a saved run leave on disk can be read by its owner only, whatever the umask."""

import os
import pathlib
import stat
from collections.abc import Iterator

import pytest
from test_deploy import Loopback

import fedpact as fp
from fedpact.deploy.server import serve

PACT = """
import numpy as np
import fedpact as fp

parties = ["north", "south"]
problem = fp.minimize(fp.mean(fp.squared_loss(fp.linear())))
algorithm = fp.FedAvg()
options = {"max_rounds": 2}


def load(party):
    x = np.random.default_rng(len(party)).normal(size=(6, 2))
    return fp.Table(x=x, y=x[:, 0])
"""


@pytest.fixture
def pact(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A pact, under the umask that most machines have."""
    before = os.umask(0o022)
    file = tmp_path / "pact.py"
    file.write_text(PACT)
    yield file
    os.umask(before)


def readable_by_others(folder: pathlib.Path) -> list[str]:
    """Names and modes of what others may read, write or enter."""
    modes = {path: stat.S_IMODE(os.stat(path).st_mode) for path in (folder, *folder.rglob("*"))}
    assert len(modes) > 3
    return [f"{path} {mode:o}" for path, mode in modes.items() if mode & 0o077]


def test_folders_of_server_and_parties(pact: pathlib.Path, tmp_path: pathlib.Path) -> None:
    channel = Loopback.of(pact, tmp_path / "parties")
    serve(pact, channel, tmp_path / "server")
    assert list((tmp_path / "parties" / "north").rglob("own.npz"))
    assert list((tmp_path / "parties" / "north").rglob("state-*.npz"))
    assert not readable_by_others(tmp_path / "parties")
    assert not readable_by_others(tmp_path / "server")


def test_saved_runs_and_models(pact: pathlib.Path, tmp_path: pathlib.Path) -> None:
    table = fp.Table(x=[[1.0], [2.0], [3.0]], y=[1.0, 2.0, 3.0])
    problem = fp.minimize(fp.mean(fp.squared_loss(fp.linear())))
    result = fp.solve(problem, {"a": table, "b": table}, save=tmp_path / "run")
    assert not readable_by_others(tmp_path / "run")
    result.save(tmp_path / "of_the_user" / "model")
    assert not readable_by_others(tmp_path / "of_the_user")


def test_a_folder_that_was_there_keeps_its_mode(pact: pathlib.Path, tmp_path: pathlib.Path) -> None:
    table = fp.Table(x=[[1.0], [2.0], [3.0]], y=[1.0, 2.0, 3.0])
    (tmp_path / "shared").mkdir()
    fp.solve(fp.minimize(fp.mean(fp.squared_loss(fp.linear()))), {"a": table}, save=tmp_path / "shared")
    assert stat.S_IMODE(os.stat(tmp_path / "shared").st_mode) == 0o755
    assert stat.S_IMODE(os.stat(tmp_path / "shared" / "state.npz").st_mode) == 0o600


@pytest.mark.parametrize("engine", ["flare", "flower"])
def test_kits(engine: str, pact: pathlib.Path, tmp_path: pathlib.Path) -> None:
    pytest.importorskip({"flare": "nvflare", "flower": "flwr"}[engine])
    from fedpact.deploy.engine import find_engine

    find_engine(engine).write_kit(pact, ["north", "south"], tmp_path / "kit")
    assert not readable_by_others(tmp_path / "kit")
    scripts = list((tmp_path / "kit" / "north").rglob("start.sh"))
    assert scripts
    assert all(os.access(script, os.X_OK) for script in scripts)
    if engine == "flare":
        assert list((tmp_path / "kit" / "provision").rglob("cert.json"))
