"""NVIDIA FLARE for real: provisioned, mutual TLS, server and sites as processes on loopback, started once for all tests here."""

import json
import pathlib
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from fedpact.deploy.flare_kit import write_job, write_kit

pytest.importorskip("nvflare", reason='NVIDIA FLARE is not installed; pip install "fedpact[flare]"')

from fedpact.deploy.flare_poc import Ended, Federation, free_port

pytestmark = [pytest.mark.deploy, pytest.mark.filterwarnings("default")]  # the engine's own warnings are not ours

PARTIES = ["north", "south", "west"]
ENDS = {"server": "flare_ends.Server", "party": "flare_ends.Party"}
TIMEOUT = 6.0  # seconds for an answer
LOST_AFTER = 15.0

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
    message = bytes(1_000) + b"end" * 4_000_000
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
        time.sleep(9.0)
    return b""

def serve(channel, folder, resume):
    channel.ask(b"", ["west", "north"])
"""

STRANGER = """
def answer(party, folder, message): ...

def serve(channel, folder, resume):
    channel.ask(b"", ["north", "east"])
"""

# Counts to 100 on every disk, slowly enough to be killed on the way; goes on where the server's own count is.
COUNT = """
import time

def answer(party, folder, message):
    time.sleep(0.05)
    (folder / "count").write_bytes(message)
    return (folder / "count").read_bytes()

def serve(channel, folder, resume):
    count = folder / "count"
    begin = int(count.read_text()) if resume else 0
    for number in range(begin + 1, 101):
        answers = channel.ask(str(number).encode(), ["north", "south", "west"])
        assert set(answers.values()) == {str(number).encode()}
        count.write_text(str(number))
    return f"from {begin} to {count.read_text()}"
"""

CARRIED = {"echo": ECHO, "large": LARGE, "memory": MEMORY, "threads": THREADS, "fails": FAILS, "late": LATE}
PACTS = {**CARRIED, "stranger": STRANGER, "count": COUNT}


def edit(path: pathlib.Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def give(kits: pathlib.Path, pacts: Mapping[str, str]) -> None:
    """Every end gets these pacts on its own disk, and its own settings say where."""
    for who in ("server", *PARTIES):
        for name, source in pacts.items():
            (kits / who / "local" / f"{name}.py").write_text(source)
            edit(
                kits / who / "local" / "fedpact.json",
                **{name: {"pact": f"local/{name}.py", "folder": f"fedpact/{name}"}},
            )


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    root = tmp_path_factory.mktemp("flare")
    pact = root / "echo.py"
    pact.write_text(ECHO)
    kits = root / "kits"
    write_kit(pact, PARTIES, kits, port=free_port(), timeout=TIMEOUT, lost_after=LOST_AFTER)
    give(kits, PACTS)
    for who in ("server", *PARTIES):
        resources = kits / who / "local" / "resources.json"
        allowed = json.loads(resources.read_text())["class_allow_list"]
        edit(resources, class_allow_list=[*allowed, "flare_ends."])
    path = [str(pathlib.Path(__file__).parent), *(entry for entry in sys.path if entry)]
    env = {"HOME": str(root), "NVFLARE_POC_WORKSPACE": str(root / "poc"), "PYTHONPATH": ":".join(path)}
    with Federation(kits, PARTIES, env) as running:
        yield running


def job(federation: Federation, name: str, *pacts: str, resume: bool = False) -> pathlib.Path:
    return write_job(federation.folder.parent / name, pacts, PARTIES, resume=resume, timeout=TIMEOUT, **ENDS)


@pytest.fixture(scope="module")
def carried(federation: Federation) -> Ended:
    """One job that runs one pact after the other: starting its processes costs more than all of them."""
    return federation.run(job(federation, "carried", *CARRIED, "stranger", "nowhere"), timeout=120.0)


def test_the_same_bytes_reach_those_asked_and_nobody_else(carried: Ended) -> None:
    assert carried.pacts["echo"] == {"finished": True, "says": "all came back"}


def test_twelve_megabytes_go_there_and_back(carried: Ended) -> None:
    assert carried.pacts["large"] == {"finished": True, "says": "True"}


def test_a_party_keeps_its_state_between_messages(carried: Ended, federation: Federation) -> None:
    assert carried.pacts["memory"]["says"] == "['abc', 'abc', 'abc']"
    for party in PARTIES:
        assert (federation.folder / party / "fedpact" / "memory" / "seen.txt").read_text() == "abc"


def test_threads_ask_at_once(carried: Ended) -> None:
    assert carried.pacts["threads"]["says"] == str({name: f"for {name}" for name in PARTIES})


def test_a_party_that_fails_is_named_with_the_reason(carried: Ended) -> None:
    assert carried.pacts["fails"]["finished"] is False
    assert "PartyLost: south: its site failed: OSError: the disk is full" in carried.pacts["fails"]["says"]


def test_a_party_that_is_late_is_named(carried: Ended) -> None:
    assert carried.pacts["late"]["says"] == "PartyLost: west: did not answer within 6 s"


def test_a_party_without_a_site_is_named(carried: Ended) -> None:
    assert carried.pacts["stranger"]["says"].startswith("PartyLost: east: has no site in this job")


def test_a_pact_that_the_server_does_not_have_is_named(carried: Ended) -> None:
    assert "server: no pact 'nowhere' in" in carried.pacts["nowhere"]["says"]


def test_a_job_with_a_pact_that_failed_has_failed(carried: Ended) -> None:
    assert carried.status == "FINISHED:EXECUTION_EXCEPTION"
    assert not carried.finished


def test_the_results_are_fetched_and_hold_no_party_state(carried: Ended) -> None:
    assert (carried.folder / "fedpact" / "echo" / "kept.txt").read_text() == "the server's own"
    assert not list(carried.folder.rglob("seen.txt"))


def reach(path: pathlib.Path, count: int) -> None:
    deadline = time.monotonic() + 60.0
    while not (
        path.is_file() and (path.read_text() or "0") >= str(count).zfill(1) and int(path.read_text() or 0) >= count
    ):
        assert time.monotonic() < deadline, f"{path} never came to {count}"
        time.sleep(0.05)


def test_a_site_that_is_killed_is_named_and_the_run_goes_on_later(federation: Federation) -> None:
    counting = federation.submit(job(federation, "count", "count"))
    kept = federation.folder / "server" / "fedpact" / "count" / "count"
    reach(kept, 10)
    began = time.monotonic()
    federation.kill("south")
    ended = federation.wait(counting, timeout=120.0)
    print(f"site killed: {time.monotonic() - began:.1f} s, {ended}")
    assert ended.pacts["count"]["says"].startswith("PartyLost: south: ")
    at = int(kept.read_text())
    assert 10 <= at < 100
    federation.start("south")
    federation.connect()
    again = federation.run(job(federation, "count-again", "count", resume=True), timeout=120.0)
    assert again.finished
    assert again.pacts["count"]["says"] == f"from {at} to 100"


def test_a_server_that_is_killed_goes_on_later(federation: Federation) -> None:
    federation.submit(job(federation, "count-server", "count"))
    kept = federation.folder / "server" / "fedpact" / "count" / "count"
    kept.write_text("0")
    reach(kept, 10)
    federation.kill("server")
    at = int(kept.read_text())
    assert 10 <= at < 100
    began = time.monotonic()
    federation.start("server")
    federation.connect()
    print(f"server back after {time.monotonic() - began:.1f} s")
    again = federation.run(job(federation, "count-server-again", "count", resume=True), timeout=180.0)
    print(f"and done after {time.monotonic() - began:.1f} s")
    assert again.finished
    assert again.pacts["count"]["says"] == f"from {at} to 100"
