"""NVIDIA FLARE for real: provisioned, mutual TLS, server and sites as processes on loopback, started once for all tests here."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
import pacts
import pytest
import soak
from test_prepared_runs import PACT as PREPARED

import fedpact as fp
from fedpact.deploy.flare.job import write_job
from fedpact.deploy.flare.kit import write_kit

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed")

from fedpact.deploy.flare.local_run import JobResult, LocalFederation, try_here
from fedpact.deploy.overview import statuses
from fedpact.deploy.this_machine import free_port
from fedpact.evaluation.table import Evaluation
from fedpact.precision import cache_folder
from fedpact.run.pact import Pact
from fedpact.run.promise import Promise

pytestmark = [
    pytest.mark.deploy,
    pytest.mark.filterwarnings("ignore:ssl_context is deprecated:DeprecationWarning"),  # FLARE's way to call aiohttp
]

PARTIES = ["north", "south", "west"]
ENDS = {"server": "flare_ends.Server", "party": "flare_ends.Party"}
WAIT = 12.0  # seconds for a reply, on a loaded machine

ECHO = """
def answer(party, folder, message):
    return party.encode() + b" " + message

def serve(channel, folder, resume):
    (folder / "kept.txt").write_text("the server's own")
    both = channel.ask(bytes(range(256)), ["south", "north"])
    assert both == {name: name.encode() + b" " + bytes(range(256)) for name in ("south", "north")}
    assert list(both) == ["south", "north"]
    assert channel.ask(b"", ["west"]) == {"west": b"west "}
    return "all came back"
"""

LARGE = """
def answer(party, folder, message):
    return message[::-1]

def serve(channel, folder, resume):
    message = bytes(1_000) + b"end" * 1_000_000
    answers = channel.ask(message, ["north", "west"])
    return set(map(len, answers.values())) == {len(message)} and set(answers.values()) == {message[::-1]}
"""

MEMORY = """
def answer(party, folder, message):
    seen = folder / "seen.txt"
    seen.write_text(seen.read_text() + message.decode() if seen.exists() else message.decode())
    return seen.read_bytes()

def serve(channel, folder, resume):
    for letter in "abc":
        answers = channel.ask(letter.encode(), ["north", "south", "west"])
    return sorted(answer.decode() for answer in answers.values())
"""

THREADS = """
from concurrent.futures import ThreadPoolExecutor

def answer(party, folder, message):
    return message + party.encode()

def serve(channel, folder, resume):
    with ThreadPoolExecutor(3) as pool:
        asked = {name: pool.submit(channel.ask, b"for ", [name]) for name in ("north", "south", "west")}
        return {name: future.result()[name].decode() for name, future in asked.items()}
"""

FAILS = """
def answer(party, folder, message):
    if party == "south":
        raise OSError("the disk is full")
    return b""

def serve(channel, folder, resume):
    channel.ask(b"", ["north", "south"])
"""

LATE = """
import time

def answer(party, folder, message):
    if party != "north":
        time.sleep(7.0)
    return b""

def serve(channel, folder, resume):
    channel.wait = 4.0
    assert channel.ask(b"", ["west", "north"], some=True) == {"north": b""}
    channel.ask(b"", ["west", "north"])
"""

STRANGER = """
def answer(party, folder, message): ...

def serve(channel, folder, resume):
    channel.ask(b"", ["north", "east"])
"""

ASYNCHRONOUS = pacts.PACTS["FairVFL"].replace("fp.FairVFL()", "fp.FairVFL(local_steps=10_000, pace='clock')")
CARRIED = {"echo": ECHO, "large": LARGE, "memory": MEMORY, "threads": THREADS, "fails": FAILS, "late": LATE}
PACTS = {**CARRIED, "stranger": STRANGER}


def edit(path: pathlib.Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def give(kits: pathlib.Path, pacts: Mapping[str, str]) -> None:
    """Copy these pacts to the server and every site, and enter them in their settings."""
    for who in ("server", *PARTIES):
        for name, source in pacts.items():
            (kits / who / "local" / f"{name}.py").write_text(source)
            edit(
                kits / who / "local" / "fedpact.json",
                **{name: {"pact": f"local/{name}.py", "folder": f"fedpact/{name}"}},
            )


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    root = tmp_path_factory.mktemp("flare")
    pact = root / "echo.py"
    pact.write_text(ECHO)
    kits = root / "kits"
    policy = pathlib.Path(__file__).parent / "as_in_one_process.toml"
    write_kit(pact, PARTIES, kits, port=free_port(), wait=WAIT, policy=policy)
    give(kits, PACTS)
    for who in ("server", *PARTIES):
        resources = kits / who / "local" / "resources.json"
        allowed = json.loads(resources.read_text())["class_allow_list"]
        edit(resources, class_allow_list=[*allowed, "flare_ends."])
    path = [str(pathlib.Path(__file__).parent), *(entry for entry in sys.path if entry)]
    env = {"HOME": str(root), "NVFLARE_POC_WORKSPACE": str(root / "poc"), "PYTHONPATH": ":".join(path)}
    env["FEDPACT_CACHE"] = str(cache_folder())
    with LocalFederation(kits, PARTIES, env) as running:
        yield running


def job(federation: LocalFederation, name: str, *pacts: str, resume: bool = False) -> pathlib.Path:
    return write_job(federation.folder.parent / name, pacts, PARTIES, resume=resume, wait=WAIT, **ENDS)


@pytest.fixture(scope="module")
def carried(federation: LocalFederation) -> JobResult:
    """One job that runs one pact after the other: starting its processes costs more than all of them."""
    return federation.run(job(federation, "carried", *CARRIED, "stranger", "nowhere"), timeout=240.0)


@pytest.fixture(scope="module")
def methods(federation: LocalFederation) -> JobResult:
    """One job that runs a pact for each of these methods."""
    files = {pacts.slug(name): pacts.PACTS[name] for name in pacts.ON_ENGINES} | {"asynchronous": ASYNCHRONOUS}
    if pacts.RELEASE:
        files |= {pacts.slug(f"evaluated {name}"): source for name, source in pacts.EVALUATED.items()}
        files |= {"promised": pacts.PROMISED, "prepared": PREPARED}
    give(federation.folder, files)
    every = write_job(federation.folder.parent / "methods", list(files), PARTIES, wait=300.0)
    return federation.run(every, timeout=600.0)


@pytest.mark.parametrize("name", pacts.ON_ENGINES)
def test_every_method_gives_what_it_gives_in_one_process(
    methods: JobResult, federation: LocalFederation, name: str
) -> None:
    slug = pacts.slug(name)
    assert methods.pacts[slug]["finished"], methods.pacts[slug]["message"]
    stated = Pact(federation.folder / "server" / "local" / f"{slug}.py")
    local = stated.run(stated.tables())
    with np.load(methods.folder / "fedpact" / slug / "answer.npz") as saved:
        w = saved["w"]
    record = json.loads((methods.folder / "fedpact" / slug / "run.json").read_text())
    assert (record["status"], record["rounds"]) == (local.status, local.rounds)
    within = pacts.NOISY.get(name, 1e-10)
    assert record["objective"] == pytest.approx(local.objective, abs=within)
    folders = {party: federation.folder / party / "fedpact" / slug for party in PARTIES}
    model = fp.load(methods.folder / "fedpact" / slug / "model")
    assert (model.status, model.digest) == (local.status, local.digest)
    if isinstance(local.params, dict) and set(PARTIES) <= local.params.keys():
        pacts.assert_own(local, folders, name)
        for party, folder in folders.items():
            (part,) = folder.glob("*/model")
            assert fp.load(part).party == party
        return
    for own, theirs in zip(model.params.values(), jax.tree.leaves(local.params), strict=True):
        np.testing.assert_allclose(own, theirs, rtol=0, atol=1e-10)
    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(local.params)])
    np.testing.assert_allclose(w, flat, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", pacts.EVALUATED)
@pacts.in_release_checks
def test_evaluations_have_the_counts_of_one_process(methods: JobResult, federation: LocalFederation, name: str) -> None:
    slug = pacts.slug(f"evaluated {name}")
    assert methods.pacts[slug]["finished"], methods.pacts[slug]["message"]
    stated = Pact(federation.folder / "server" / "local" / f"{slug}.py")
    local = stated.run(stated.tables()).evaluation
    assert local is not None
    pacts.assert_same_counts(Evaluation.read(methods.folder / "fedpact" / slug / "evaluation.json"), local)
    assert textwrap.indent(str(local), "  ") in methods.pacts[slug]["message"]


@pacts.in_release_checks
def test_promises_have_the_counts_of_one_process(methods: JobResult, federation: LocalFederation) -> None:
    assert methods.pacts["promised"]["finished"], methods.pacts["promised"]["message"]
    stated = Pact(federation.folder / "server" / "local" / "promised.py")
    local = stated.run(stated.tables())
    assert isinstance(local, Promise)
    assert local.kept
    assert (methods.folder / "fedpact" / "promised" / "promise.txt").read_text() == f"{local}\n"
    for party in PARTIES:
        assert (federation.folder / party / "fedpact" / "promised" / "promises.json").is_file()


@pacts.in_release_checks
def test_a_recipe_is_fitted_as_in_one_process(methods: JobResult, federation: LocalFederation) -> None:
    assert methods.pacts["prepared"]["finished"], methods.pacts["prepared"]["message"]
    stated = Pact(federation.folder / "server" / "local" / "prepared.py")
    tables = stated.tables()
    local = stated.run(tables)
    model = fp.load(methods.folder / "fedpact" / "prepared" / "model")
    assert model.recipe == tables.recipe
    np.testing.assert_allclose(model.params["w"], local.params["w"], rtol=0, atol=1e-10)
    frame = stated.frame("south").dropna(subset=["smoker"])
    np.testing.assert_array_equal(model.predict(frame), local.predict(frame))


def test_server_and_sites_say_how_the_run_ended(methods: JobResult, federation: LocalFederation) -> None:
    record = json.loads((methods.folder / "fedpact" / "asynchronous" / "run.json").read_text())
    found = [words for words in statuses(federation.folder) if "asynchronous" in words["file"]]
    assert [words["who"] for words in found] == ["server", *PARTIES]
    assert {(words["phase"], words["round"]) for words in found} == {("ended", record["rounds"])}
    for party in PARTIES:  # where a site's operator looks
        logs = "".join(log.read_text() for log in (federation.folder / party).glob("*/log.txt"))
        assert f"{party}: the run has ended: converged" in logs


def test_an_active_party_works_on_while_the_passive_ones_do(methods: JobResult, tmp_path: pathlib.Path) -> None:
    assert methods.pacts["asynchronous"]["finished"], methods.pacts["asynchronous"]["message"]
    record = json.loads((methods.folder / "fedpact" / "asynchronous" / "run.json").read_text())
    stated = Pact(pacts.written(tmp_path, "FairVFL"))
    assert record["status"] == "converged"
    assert record["objective"] == pytest.approx(stated.run(stated.tables()).objective, abs=1e-6)


def test_the_same_bytes_reach_those_asked_and_nobody_else(carried: JobResult) -> None:
    assert carried.pacts["echo"] == {"finished": True, "message": "all came back"}


def test_three_megabytes_go_there_and_back(carried: JobResult) -> None:
    assert carried.pacts["large"] == {"finished": True, "message": "True"}


def test_a_party_keeps_its_state_between_messages(carried: JobResult, federation: LocalFederation) -> None:
    assert carried.pacts["memory"]["message"] == "['abc', 'abc', 'abc']"
    for party in PARTIES:
        assert (federation.folder / party / "fedpact" / "memory" / "seen.txt").read_text() == "abc"


def test_threads_ask_at_once(carried: JobResult) -> None:
    assert carried.pacts["threads"]["message"] == str({name: f"for {name}" for name in PARTIES})


def test_a_party_that_fails_is_named_with_the_reason(carried: JobResult) -> None:
    assert carried.pacts["fails"]["finished"] is False
    assert (
        "PartyLost: party 'south': did not answer, its site failed: OSError: the disk is full"
        in carried.pacts["fails"]["message"]
    )


def test_a_party_that_is_late_is_named(carried: JobResult) -> None:
    assert carried.pacts["late"]["message"] == "PartyLost: party 'west': did not answer within 4 s"


def test_a_party_without_a_site_is_named(carried: JobResult) -> None:
    assert carried.pacts["stranger"]["message"].startswith("PartyLost: party 'east': has no site in this job")


def test_a_pact_that_the_server_does_not_have_is_named(carried: JobResult) -> None:
    assert "server: no pact 'nowhere' in" in carried.pacts["nowhere"]["message"]


def test_a_job_with_a_pact_that_failed_has_failed(carried: JobResult) -> None:
    assert carried.status == "FINISHED:EXECUTION_EXCEPTION"
    assert not carried.finished


def test_the_results_are_fetched_and_hold_no_party_state(carried: JobResult) -> None:
    assert (carried.folder / "fedpact" / "echo" / "kept.txt").read_text() == "the server's own"
    assert not list(carried.folder.rglob("seen.txt"))


def test_a_party_and_then_the_server_are_killed_and_the_run_ends_where_the_undisturbed_one_does(
    federation: LocalFederation,
) -> None:
    give(federation.folder, {"soak": soak.pact(rounds=400)})
    lines = list(soak.disturbed(federation, "soak", ["south job", "server"], random.Random(0)))
    assert "FLARE has stopped the job" in lines[0], lines[0]
    assert soak.distance(federation.folder, "soak") <= 1e-10


def test_a_job_that_brings_code_is_refused(federation: LocalFederation) -> None:
    with_code = job(federation, "with-code", "echo")
    (with_code / "app" / "custom").mkdir()
    (with_code / "app" / "custom" / "surprise.py").write_text("")
    result = federation.run(with_code, timeout=60.0)
    assert result.status == "FINISHED:FAILED_TO_RUN"


def test_a_job_with_a_class_that_the_sites_do_not_allow_is_refused(federation: LocalFederation) -> None:
    foreign = write_job(federation.folder.parent / "foreign", ["echo"], PARTIES, server="subprocess.Popen")
    result = federation.run(foreign, timeout=60.0)
    assert not result.finished
    assert not result.pacts


def test_a_kit_holds_its_own_key_and_nobody_elses(federation: LocalFederation) -> None:
    kits = federation.folder
    keys = {path: path.read_bytes() for path in kits.rglob("*.key")}
    owners = [path.relative_to(kits).parts[0] for path in keys if "provision" not in path.parts]
    assert sorted(owners) == sorted(["server", "admin", *PARTIES])
    assert len(set(keys.values())) == len(keys)


def test_the_readme_has_the_commands(federation: LocalFederation) -> None:
    text = (federation.folder / "README.md").read_text()
    for command in ("server/startup/start.sh", "west/startup/start.sh", "nvflare job submit -j admin/jobs/run"):
        assert command in text
    for file in ("server/startup/start.sh", "west/startup/start.sh", "admin/jobs/run/meta.json", "west/local/echo.py"):
        assert (federation.folder / file).is_file()


TRY = """
import pathlib, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever this was started from
from fedpact.deploy.flare.local_run import try_here
try_here(pathlib.Path(sys.argv[1]), ["north", "south"], pathlib.Path(sys.argv[2]))
"""


@pytest.mark.parametrize(
    ("how", "at"), [(signal.SIGINT, 3), (signal.SIGTERM, 5)], ids=["while it starts", "while a job runs"]
)
def test_what_was_started_is_ended_with_it(tmp_path: pathlib.Path, how: signal.Signals, at: int) -> None:
    import psutil

    def running() -> list[int]:
        commands = ((process.pid, process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"]))
        return [pid for pid, words in commands if any(str(out / who) in words for who in ("server", "north", "south"))]

    pact, out = tmp_path / "pact.py", tmp_path / "out"
    pact.write_text("")
    env = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": ":".join(filter(None, sys.path))}
    command = [sys.executable, "-c", TRY, str(pact), str(out)]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE) as trial:
        deadline = time.monotonic() + 120.0
        while len(running()) < at:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        trial.send_signal(how)
        _, stderr = trial.communicate(timeout=60.0)
    assert trial.returncode != 0
    assert b"KeyboardInterrupt" in stderr
    assert not running()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parties": ["north", "north"]}, "each only once"),
        ({"parties": []}, "at least one party"),
        ({"parties": ["no rth"]}, "party 'no rth'"),
        ({"parties": ["server"]}, "this name is reserved"),
        ({"wait": 0.0}, "wait=0.0: must be > 0"),
        ({"lost_after": 1.0}, "lost_after=1.0"),
        ({"port": 0}, "port=0"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_written(
    tmp_path: pathlib.Path, changes: dict[str, Any], message: str
) -> None:
    pact = tmp_path / "pact.py"
    pact.write_text("")
    with pytest.raises(ValueError, match=message):
        write_kit(**{"pact": pact, "parties": PARTIES, "out": tmp_path / "out", **changes})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["a try", "it's", "#1", "back\\slash"])
def test_a_folder_in_which_no_job_would_start_is_said_at_once(tmp_path: pathlib.Path, name: str) -> None:
    with pytest.raises(ValueError, match="spaces, quotes, backslashes or #") as raised:
        try_here(pacts.written(tmp_path, "front door"), PARTIES, tmp_path / name)
    assert str(tmp_path / name) in str(raised.value)
    assert not (tmp_path / name).exists()


def test_keys_are_not_written_over(tmp_path: pathlib.Path) -> None:
    pact = tmp_path / "pact.py"
    pact.write_text("")
    with pytest.raises(FileExistsError, match="is not empty"):
        write_kit(pact, PARTIES, tmp_path)


def test_without_flare_the_way_to_get_it_is_said(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pact = tmp_path / "pact.py"
    pact.write_text("")
    monkeypatch.setitem(sys.modules, "nvflare.lighter.provision", None)
    with pytest.raises(ImportError, match="pip install 'nvflare"):
        write_kit(pact, PARTIES, tmp_path / "out")
