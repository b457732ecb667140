"""The soak's own tools: a network that stalls, faults that a process brings upon itself, and the page that is written."""

import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed")
pytest.importorskip("flwr", reason="Flower is not installed")

import soak
from soak_network import Proxy
from soak_page import kind_of, page

TESTS = pathlib.Path(__file__).parent
SAVING = """
import pathlib, runpy, sys, time
sys.path.insert(0, {tests!r})
import soak_faults
root = pathlib.Path({root!r})
soak_faults.install(str(root / "orders"), str(root / "kits"))
write = runpy.run_path({files!r})["write"]
write(root / "kits" / "north" / "state.npz", bytes(range(250)))
print(round(time.time() - float(sys.argv[1]), -2))
"""


def test_a_proxy_lets_nothing_through_while_it_stalls() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        proxy = Proxy(server.getsockname()[1])
        with socket.create_connection(("127.0.0.1", proxy.port)) as site:
            there, _ = server.accept()
            with there:
                site.sendall(b"before")
                assert there.recv(100) == b"before"
                began = time.monotonic()
                proxy.stall(0.3)
                site.sendall(b"after")
                assert there.recv(100) == b"after"
                assert time.monotonic() - began >= 0.3
        proxy.close()


@pytest.mark.parametrize("fault", ["saving", "full disk", "clock"])
def test_a_process_carries_out_its_own_order_and_the_old_file_stays_whole(fault: str, tmp_path: pathlib.Path) -> None:
    for folder in ("orders", "kits/north"):
        (tmp_path / folder).mkdir(parents=True)
    state = tmp_path / "kits" / "north" / "state.npz"
    state.write_bytes(b"before")
    for who in ("north", "south"):
        (tmp_path / "orders" / f"{who} {fault}").write_text("3600")
    code = SAVING.format(tests=str(TESTS), root=str(tmp_path), files=str(TESTS.parent / "src" / "fedpact" / "files.py"))
    ended = subprocess.run([sys.executable, "-c", code, repr(time.time())], capture_output=True, text=True, check=False)
    assert sorted(file.name for file in (tmp_path / "orders").iterdir()) == [f"south {fault}"]
    if fault == "clock":
        assert (ended.stdout.strip(), state.read_bytes()) == ("3600.0", bytes(range(250)))
        return
    assert state.read_bytes() == b"before"
    assert ended.returncode == -signal.SIGKILL if fault == "saving" else "make room for 250 bytes" in ended.stderr


PAIRS = [("flare", "SCAFFOLD"), ("flower", "SCAFFOLD")]


def test_every_kind_of_fault_comes_before_any_comes_again() -> None:
    runs = soak.plans(PAIRS, [], each=4, seed=0)
    for engine, many in (("flare", 11), ("flower", 10)):
        kinds = [kind_of(fault) for run in runs if run.engine == engine for fault in run.faults]
        assert sorted(kinds) == sorted(soak.kinds_on(engine))
        assert len(kinds) == many
    assert max(len(run.faults) for run in runs) == 4
    twice = [kind_of(fault) for run in soak.plans(PAIRS[:1], [], each=4, seed=0, count=22) for fault in run.faults]
    assert sorted(twice) == sorted(2 * soak.kinds_on("flare"))


def test_a_soak_goes_on_where_it_was_interrupted() -> None:
    first, *others = soak.plans(PAIRS, [], each=4, seed=0)
    finished = {**first._asdict(), "lines": [], "far": 0.0, "seconds": 1.0}
    failed = {
        **others[0]._asdict(),
        "faults": [],
        "meant": others[0].faults,
        "lines": [],
        "failed": "AssertionError: far",
    }
    left = [
        (run.engine, kind_of(fault))
        for run in soak.plans(PAIRS, [finished, failed], each=4, seed=0)
        for fault in run.faults
    ]
    assert sorted(left) == sorted((run.engine, kind_of(fault)) for run in others for fault in run.faults)


def test_a_run_that_fails_is_recorded_with_what_it_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Iterator[str]:
        yield "fault 1 of 1: server, after round 7 was saved: went on"
        raise AssertionError("for 300 s the run neither saved nor stopped")

    class Federation:
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(soak, "disturbed", broken)
    monkeypatch.setattr(soak, "flare", lambda *_: (Federation(), {}))
    record = soak.soak(soak.Plan("flare", "SCAFFOLD", ["server"], 0), 1.0, None)
    assert (record["faults"], record["meant"], len(record["lines"])) == ([], ["server"], 1)
    assert "- flare, SCAFFOLD, server: AssertionError: for 300 s the run neither saved nor stopped" in page([record])


def test_the_page_counts_what_happened_and_quotes_what_was_said() -> None:
    lines = [
        "fault 1 of 3: north saving, after round 7 was saved: PartyLost: party 'north': is gone",
        "fault 2 of 3: west saving, after round 9 was saved: PartyLost: party 'west': is gone",
        "fault 3 of 3: server, after round 12 was saved: went on",
        "final result: finished",
    ]
    faults = ["north saving", "west saving", "server"]
    seen = {
        "engine": "flare",
        "method": "SCAFFOLD",
        "faults": faults,
        "lines": lines,
        "far": 2e-15,
        "commit": "0123abc",
    }
    text = page([seen])
    assert "commits 0123abc): 3 faults in 1 runs, 3 recoveries; the worst answer is 2.0e-15 from" in text
    assert "| flare | a party: saving | 2 | 2 x “PartyLost: party …: is gone” |" in text
    assert "| flare | the server: killed | 1 | 1 x “went on” |" in text
    assert "| flare | SCAFFOLD | 1 | 3 | 2 | 2.0e-15 |" in text
