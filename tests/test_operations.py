"""What operators see and keep of deployed runs: status files, logs, report pages, earlier runs, certificates measured again."""

import json
import logging
import os
import pathlib
import socket
import subprocess
import time
from collections.abc import Sequence

import pacts
import pytest
from typer.testing import CliRunner

import fedpact as fp
from fedpact.cli import app
from fedpact.deploy.engine import ENGINES, KIT
from fedpact.deploy.overview import as_text, is_well, statuses
from fedpact.deploy.party import Site
from fedpact.deploy.server import serve
from fedpact.deploy.status import LOG, Status, Watched, start_log
from fedpact.deploy.verification import OnThisMachine
from fedpact.engines.remote import PartyLost
from fedpact.run.pact import Pact

runner = CliRunner()
PARTIES = ("north", "south", "west")


class Kit:
    """A pact in folders as Flower's kits have them, and runs of it without an engine."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        for owner in ("server", *PARTIES):
            (folder / owner).mkdir(parents=True)
            (folder / owner / "start.sh").write_text("")
            pacts.written(folder / owner, "FedAvg").rename(folder / owner / "pact.py")
        self.pact, self.server = folder / "server" / "pact.py", folder / "server" / "state"

    def run(self, resume: bool = False) -> fp.Result:
        sites = {party: Site(self.pact, party, self.folder / party / "state") for party in PARTIES}
        result = serve(self.pact, OnThisMachine(sites), self.server, resume=resume)
        assert isinstance(result, fp.Result)
        return result


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Kit, fp.Result]:
    kit = Kit(tmp_path_factory.mktemp("operations") / "kit")
    return kit, kit.run()


def test_all_say_how_the_run_ended(ran: tuple[Kit, fp.Result]) -> None:
    kit, result = ran
    found = {words["who"]: words for words in statuses(kit.folder)}
    assert list(found) == ["server", *PARTIES]
    assert all(words["phase"] == "ended" and is_well(words) for words in found.values())
    server = found["server"]
    assert (server["round"], server["bytes_up"], server["bytes_down"]) == (
        result.rounds,
        result.bytes_up,
        result.bytes_down,
    )
    assert server["message"] == str(result).splitlines()[0]
    for party in PARTIES:
        assert found[party]["round"] == result.rounds
        assert found[party]["message"] == result.status
        assert found[party]["bytes_up"] > 0
        assert statuses(kit.folder / party) == [found[party]], "an owner's folder alone"


def test_the_command_prints_it(ran: tuple[Kit, fp.Result]) -> None:
    kit, result = ran
    done = runner.invoke(app, ["status", str(kit.folder)])
    assert done.exit_code == 0, done.output
    assert f"round {result.rounds}" in done.output
    told = runner.invoke(app, ["status", str(kit.folder), "--json", "--watch"])
    assert [json.loads(line)["who"] for line in told.output.splitlines()] == ["server", *PARTIES]


def test_a_report_page_and_a_model_are_at_the_server(ran: tuple[Kit, fp.Result]) -> None:
    kit, result = ran
    assert "fedpact run report" in (kit.server / "report.html").read_text()
    assert fp.load(kit.server / "model").digest == result.digest


def test_the_certificate_is_measured_again(ran: tuple[Kit, fp.Result]) -> None:
    kit, result = ran
    before = {file: file.read_bytes() for file in kit.server.rglob("*") if file.is_file()}
    done = runner.invoke(app, ["verify", str(kit.folder), "--tolerance", "1e9"])
    assert done.exit_code == 0, done.output
    assert f"objective: measured {result.objective:.3e}, claimed {result.objective:.3e}" in done.output
    assert {file: file.read_bytes() for file in kit.server.rglob("*") if file.is_file()} == before
    strict = runner.invoke(app, ["verify", str(kit.folder), "--tolerance", "1e-12"])
    assert (strict.exit_code, "does NOT hold" in strict.output) == (3, True)
    alone = runner.invoke(app, ["verify", str(kit.folder / "server")])
    assert alone.exit_code == 1
    assert "admin/jobs/verify" in alone.output


def test_a_run_that_has_ended_makes_room_for_the_next(ran: tuple[Kit, fp.Result]) -> None:
    kit, first = ran
    with pytest.raises(KeyError, match="north"):
        serve(kit.pact, OnThisMachine({}), kit.server, resume=True)  # nobody is there
    assert statuses(kit.folder)[0]["phase"] == "failed"
    again = kit.run()
    assert again.rounds == first.rounds
    (kept,) = (kit.server / "earlier").iterdir()
    assert json.loads((kept / "run.json").read_text())["objective"] == first.objective
    assert {"state.npz", "answer.npz", "model", "report.html", "status.json"} <= {file.name for file in kept.iterdir()}
    assert statuses(kit.folder)[0]["run"] != json.loads((kept / "status.json").read_text())["run"]


def test_a_status_says_who_is_awaited_and_who_failed(tmp_path: pathlib.Path) -> None:
    seen = []

    class Slow:
        interrupts = False
        on_reply = staticmethod(lambda party: None)

        def ask(self, message: bytes, parties: Sequence[str], some: bool = False) -> dict[str, bytes]:
            self.on_reply("north")
            while "awaits south" not in as_text(statuses(tmp_path)):  # written soon, though nothing is said any more
                time.sleep(0.05)
            seen.append(as_text(statuses(tmp_path)))
            raise PartyLost("south", "did not answer within 4 s")

    status = Status(tmp_path / "state", "server", "d")
    status.say(phase="rounds", round=3)
    with pytest.raises(PartyLost):
        Watched(Slow(), status).ask(b"", ["north", "south"])
    assert "awaits south since" in seen[0]
    assert "north" not in seen[0]
    status.say(phase="failed", reason="party 'south': did not answer within 4 s")
    done = runner.invoke(app, ["status", str(tmp_path)])
    assert done.exit_code == 1
    assert "party 'south': did not answer within 4 s" in done.output


def test_a_process_that_is_gone_is_no_run_at_work(tmp_path: pathlib.Path) -> None:
    with subprocess.Popen(["true"]) as ended:
        gone = ended.pid
    status = Status(tmp_path / "state", "server", "d")
    status.say(process=gone, phase="rounds")
    (words,) = statuses(tmp_path)
    assert words["gone"]
    assert as_text([words]).startswith("server  gone")
    assert runner.invoke(app, ["status", str(tmp_path)]).exit_code == 1
    assert runner.invoke(app, ["status", str(tmp_path / "nowhere")]).exit_code == 1


def test_the_health_of_an_engine(tmp_path: pathlib.Path) -> None:
    def health() -> tuple[int, str]:
        done = runner.invoke(app, ["status", str(tmp_path), "--health"])
        return done.exit_code, done.output.strip()

    assert health() == (0, "well"), "a site that waits for its first run"
    (tmp_path / "pid.fl").write_text(f"{os.getpid()}\n")
    server = tmp_path / "server"
    (server / "keys").mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        (server / "start.sh").write_text(f"exec flower-superlink --host 0.0.0.0 --port {port} --database x")
        assert health() == (0, "well")
    assert health() == (1, f"{server}: nothing listens on the server's port {port}")


@pytest.mark.parametrize("form", ["text", "json"])
def test_lines_of_the_log(
    form: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    top = logging.getLogger("fedpact")
    monkeypatch.setenv(LOG, form)
    monkeypatch.setattr(top, "handlers", [])
    monkeypatch.setattr(top, "propagate", True)
    monkeypatch.setattr(top, "level", top.level)
    start_log()
    status = Status(tmp_path, "north", "d")
    status.say("asked for 'step' of round 7", phase="rounds", round=7)
    status.say("within two seconds", round=8)
    status.failed(ValueError("Mary Smith"))
    first, second = capsys.readouterr().err.splitlines()
    assert "Mary" not in first + second
    if form == "json":
        told = json.loads(first)
        assert (told["level"], told["message"], told["round"]) == ("INFO", "north: asked for 'step' of round 7", 7)
        assert json.loads(second)["level"] == "ERROR"
    else:
        assert first.endswith("fedpact north: asked for 'step' of round 7")
        assert second.endswith("failure.txt says why")


def test_the_same_kit_again_is_left_as_it_is(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("flwr", reason="Flower is not installed")
    engine, pact, kit = ENGINES["flower"], pacts.written(tmp_path, "FedAvg"), tmp_path / "kit"
    engine.write_kit(pact, PARTIES, kit)
    key = (kit / "north" / "node.key").read_bytes()
    assert engine.write_kit(pact, PARTIES, kit) == kit / "README.md"
    with pytest.raises(FileExistsError, match="another port; its keys are not overwritten"):
        engine.write_kit(pact, PARTIES, kit, port=9999)
    pact.write_text(pact.read_text() + "\n# changed\n")
    with pytest.raises(FileExistsError, match=r"another pact; .* copy .* over the pact"):
        engine.write_kit(pact, PARTIES, kit)
    assert (kit / "north" / "node.key").read_bytes() == key


def test_an_earlier_try_goes_on_or_is_kept_under_another_name(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedpact.deploy.flower import local_run

    pact, out, told, resumed = pacts.written(tmp_path, "FedAvg"), tmp_path / "try", [], []

    def try_here(*_: object, resume: bool, written: object, **__: object) -> str:
        out.mkdir(exist_ok=True)
        assert callable(written)
        written()
        resumed.append(resume)
        return "done"

    def again() -> None:
        ENGINES["flower"].try_here(pact, PARTIES, out, tell=told.append)

    monkeypatch.setattr(local_run, "try_here", try_here)
    again()
    state = out / "server" / "state"
    status = Status(state, "server", Pact(pact).digest)
    status.say(phase="failed", reason="party 'south': is gone")
    again()
    assert told == [f"the earlier try in {out} is kept in {out}-1"], "nothing was saved, so it begins anew"
    status.say(phase="rounds")
    (state / "state.npz").write_bytes(b"")
    again()
    assert told[1:] == [f"{out} holds a try that has not ended: it goes on"]
    status.say(phase="ended")
    again()
    assert told[2:] == [f"the earlier try in {out} is kept in {out}-2"]
    assert resumed == [False, False, True, False]
    (out / KIT).rename(out / "else.json")
    with pytest.raises(FileExistsError, match="holds no earlier try"):
        again()
