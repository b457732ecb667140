"""The party axis over two devices, and over two hosts: the same answers as in one process."""

import json
import os
import pathlib
import socket
import subprocess
import sys
from typing import Any, cast

import pacts
import pytest

import fedpact as fp
from fedpact.run.hosts import join_hosts

METHODS = ["ProxAL LBFGS", "SSCA columns", "FairVFL", "FedAvg", "PCFedAvg"]
COMPARED = """
import json, sys, jax, numpy as np
import fedpact as fp
from fedpact.run.pact import Pact

assert len(jax.devices()) == 2
out = {}
for name, file in json.loads(sys.argv[1]).items():
    pact = Pact(file)
    tables = pact.tables()
    alone, spread = pact.run(tables, privacy=None), pact.run(tables, engine=fp.Mesh())
    pairs = zip(jax.tree.leaves(alone.params), jax.tree.leaves(spread.params), strict=True)
    out[name] = [alone.rounds == spread.rounds, float(max(np.abs(a - b).max() for a, b in pairs))]
pact = Pact(json.loads(sys.argv[1])["FedAvg"])
pact.run(pact.tables(), engine=fp.Mesh(), max_rounds=5, save=sys.argv[2])
again = pact.run(pact.tables(), engine=fp.Mesh(), save=sys.argv[2], resume=True)
whole = pact.run(pact.tables(), engine=fp.Mesh())
out["resumed"] = [again.rounds == whole.rounds, float(np.abs(again.params["w"] - whole.params["w"]).max())]
print(json.dumps(out))
"""


def environment(devices: int) -> dict[str, str]:
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}"
    return {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}


def test_two_devices_give_what_one_gives(tmp_path: pathlib.Path) -> None:
    files = {name: str(pacts.written(tmp_path, name)) for name in METHODS}
    command = [sys.executable, "-c", COMPARED, json.dumps(files), str(tmp_path / "run")]
    run = subprocess.run(command, env=environment(2), capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    assert found.keys() == {*METHODS, "resumed"}
    for name, (as_many_rounds, difference) in found.items():
        assert as_many_rounds, name
        assert difference <= (0.0 if name == "resumed" else 1e-10), (name, difference)


def test_two_hosts_give_what_one_gives(tmp_path: pathlib.Path) -> None:
    pact = pacts.written(tmp_path, "ProxAL Newton")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "fedpact", "run", str(pact)]
    many = [*command, "--hosts", f"127.0.0.1:{port},127.0.0.1", "--save", str(tmp_path / "run"), "--host"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    hosts = [subprocess.Popen([*many, str(place)], env=environment(1), **pipes) for place in range(2)]
    try:
        told = [host.communicate(timeout=300) for host in hosts]
    finally:
        for host in hosts:
            host.kill()
    assert [host.returncode for host in hosts] == [0, 0], told
    assert "converged" in told[0][0]
    assert "converged" not in told[1][0]
    assert fp.verify(tmp_path / "run", *_problem(pact)).certificate.holds(1e-6)


def _problem(pact: pathlib.Path) -> tuple[fp.Problem, fp.Parties]:
    from fedpact.run.pact import Pact

    stated = Pact(pact)
    tables = stated.tables()
    assert isinstance(tables, fp.Parties)
    return stated.problem, tables


@pytest.mark.parametrize(
    ("hosts", "place", "told"),
    [
        ("one.lan", None, "at least two hosts, the first with a port"),
        ("one.lan,two.lan", 0, "at least two hosts, the first with a port"),
        ("one.lan:port,two.lan", 0, "at least two hosts, the first with a port"),
        ("one.lan:9000,two.lan", 2, "there are 2 hosts, counted from 0"),
        ("one.lan:9000,two.lan", None, "say which one with --host"),
    ],
)
def test_hosts_that_cannot_be_joined(hosts: str, place: int | None, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        join_hosts(hosts, place)


def test_an_engine_is_a_mesh(hospitals: fp.Parties, neyman_pearson: fp.Problem) -> None:
    with pytest.raises(TypeError, match=r"engine='mesh': fp.Mesh\(\), or another engine with a method connect"):
        fp.solve(neyman_pearson, hospitals, engine=cast(Any, "mesh"))
