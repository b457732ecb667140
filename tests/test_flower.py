"""Flower carries bytes: the real engine with TLS and node keys on this machine; the channel's decisions on a grid of lists."""

import json
import os
import pathlib
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from fedpact.deploy.this_machine import free_port

pytest.importorskip("flwr", reason="Flower is not installed")

STAND_INS = pathlib.Path(__file__).parent / "flower_stand_ins"


@pytest.fixture(scope="module")
def deploy() -> Iterator[SimpleNamespace]:
    """The adapter's modules, with stand-ins for the server's loop and the sites, which are tested elsewhere."""
    import runpy
    import sys

    before = {name: module for name, module in sys.modules.items() if name.startswith("fedpact.deploy")}
    runpy.run_path(str(STAND_INS / "sitecustomize.py"))
    from fedpact.deploy import flower
    from fedpact.deploy.flower import channel, kit, local_run, server_app

    yield SimpleNamespace(
        package=flower,
        channel=channel,
        kit=kit,
        local_run=local_run,
        server_app=server_app,
        PartyLost=channel.PartyLost,
    )
    for name in [name for name in sys.modules if name.startswith("fedpact.deploy")]:
        del sys.modules[name]
    sys.modules.update(before)


@pytest.fixture(scope="module")
def kit(deploy: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    out = tmp_path_factory.mktemp("flower") / "kit"
    port = free_port()
    readme = deploy.kit.write_kit(STAND_INS / "plays.py", ["north", "west"], out, server="127.0.0.1", port=port)
    assert readme == out / "README.md"
    return out


@pytest.fixture(scope="module")
def federation(deploy: SimpleNamespace, kit: pathlib.Path) -> Iterator[Any]:
    path = os.pathsep.join([str(STAND_INS), str(pathlib.Path(deploy.kit.__file__).parents[3])])
    with deploy.local_run.LocalFederation(kit, {"PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}) as running:
        yield running
    assert not processes_of(kit), "a process was left behind"


def processes_of(kit: pathlib.Path) -> list[str]:
    """The commands of all processes whose working folder is in the kit."""
    commands = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if kit.resolve() in pathlib.Path(os.readlink(process / "cwd")).parents:
                commands.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return commands


def wait_for(path: pathlib.Path, seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} did not come"
        time.sleep(0.05)


@pytest.mark.deploy
def test_a_run_on_the_real_engine(federation: Any, kit: pathlib.Path) -> None:
    state = kit / "server" / "state"
    run = subprocess.Popen(
        [str(kit / "server" / "run.sh")], env=federation.environment, stdout=-1, stderr=-2, text=True
    )
    try:
        wait_for(state / "asked")
        time.sleep(4)  # the message is on its way to west, or with it, who takes 8 s
        federation.stop("west", signal.SIGTERM)
        assert not (state / "answered").exists()
        federation.start("west")
        output = run.communicate(timeout=120)[0]
    finally:
        run.kill()
        run.wait()

    seen = json.loads((state / "seen.json").read_text())
    heads = {name: head.split() for name, head in seen["heads"].items()}
    assert {name: (head[0], head[2]) for name, head in heads.items()} == {
        "north": ("north", "1"),
        "west": ("west", "1"),
    }
    assert seen["failed"][0] == "west"
    assert "its log at the site says why" in seen["failed"][1]
    assert "secret" not in seen["failed"][1]
    assert "a secret of the party" in (kit / "west" / "log.txt").read_text()
    assert seen["away"] == [
        "nobody",
        "no answer within 3 s; its node is not online, or its key is not registered under this name",
    ]
    assert (state / "answered").exists(), "a site that is started again is asked again"
    assert run.returncode == 1
    assert "fedpact: RuntimeError: the server's own failure" in output

    output = federation.run(resume=True, limit=90)
    assert "fedpact: finished\nwhat the loop returns" in output
    resumed = json.loads((state / "resumed.json").read_text())
    assert resumed["north"] == f"north {heads['north'][1]} 3 again", "the same process has answered all along"
    party, process, *_ = resumed["west"].split()
    assert party == "west"
    assert process != heads["west"][1], "the site that was started again"


class Grid:
    """A grid whose nodes are started and answer when a test says so."""

    def __init__(self, **nodes: str):
        self.nodes, self.pushed, self.replies = dict(nodes), [], {}

    def get_nodes(self) -> list[Any]:
        return [
            SimpleNamespace(name=name, node_id=number, last_activated_at=start)
            for number, (name, start) in enumerate(self.nodes.items())
        ]

    def push_messages(self, messages: list[Any]) -> list[str]:
        keys = [f"m{len(self.pushed) + number}" for number in range(len(messages))]
        self.pushed += messages
        return keys

    def pull_messages(self, keys: list[str]) -> list[Any]:
        return [self.replies.pop(key) for key in keys if key in self.replies]

    def reply(self, key: str, answer: Any = b"", error: Any = None) -> None:
        content = SimpleNamespace(config_records={"fedpact": {"message": answer}})
        metadata = SimpleNamespace(reply_to_message_id=key)
        self.replies[key] = SimpleNamespace(
            metadata=metadata, has_error=lambda: error is not None, error=error, content=content
        )


@pytest.fixture
def quick(deploy: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    monkeypatch.setattr(deploy.channel, "NODE_POLL", 0.0)
    monkeypatch.setattr(deploy.channel, "REPLY_POLL", 0.001)
    return deploy


def channel(deploy: SimpleNamespace, grid: Grid, wait: float = 5.0) -> Any:
    return deploy.channel.FlowerChannel(
        grid, wait, make_message=lambda content, node, ttl: (content["party"], node, ttl)
    )


def test_the_same_bytes_to_all_at_once(quick: SimpleNamespace) -> None:
    grid = Grid(west="1", other="1", north="1")
    grid.reply("m0", b"n")
    grid.reply("m1", b"w")
    assert channel(quick, grid).ask(b"?", ["north", "west"]) == {"north": b"n", "west": b"w"}
    assert grid.pushed == [("north", 2, 65.0), ("west", 0, 65.0)]


def test_a_node_that_was_started_again_is_asked_again(quick: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = Grid(west="1")
    steps = iter([lambda: grid.nodes.clear(), lambda: grid.nodes.update(west="2"), lambda: grid.reply("m1", b"w")])
    monkeypatch.setattr(quick.channel.time, "sleep", lambda _: next(steps)())
    assert channel(quick, grid).ask(b"?", ["west"]) == {"west": b"w"}
    assert len(grid.pushed) == 2


def test_a_late_reply_and_a_second_one_are_not_taken_for_the_next_answer(quick: SimpleNamespace) -> None:
    grid = Grid(west="1")
    grid.reply("m0", b"first")
    asked = channel(quick, grid)
    assert asked.ask(b"?", ["west"]) == {"west": b"first"}
    grid.reply("m0", b"first again")
    grid.reply("m1", b"second")
    assert asked.ask(b"?", ["west"]) == {"west": b"second"}


def test_a_node_that_lost_its_heartbeat_is_asked_again_when_it_is_back(quick: SimpleNamespace) -> None:
    from flwr.common.constant import ErrorCode

    grid = Grid(west="1")
    grid.reply("m0", error=SimpleNamespace(code=ErrorCode.NODE_UNAVAILABLE, reason="no heartbeat"))
    grid.reply("m1", b"w")
    assert channel(quick, grid).ask(b"?", ["west"]) == {"west": b"w"}


def test_a_party_whose_app_fails_is_lost_at_once(quick: SimpleNamespace) -> None:
    from flwr.common.constant import ErrorCode

    grid = Grid(west="1", north="1")
    grid.reply("m0", error=SimpleNamespace(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason="no process"))
    with pytest.raises(quick.PartyLost, match="'west': its app failed: no process"):
        channel(quick, grid).ask(b"?", ["west", "north"])


@pytest.mark.parametrize("taken", [[], ["m0"], ["m0", ""]])
def test_a_message_that_the_server_does_not_take(
    quick: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, taken: list[str]
) -> None:
    grid = Grid(north="1", west="1")
    monkeypatch.setattr(grid, "push_messages", lambda messages: taken)
    with pytest.raises(
        quick.PartyLost, match=f"'{'west' if taken else 'north'}': .* did not accept the message of 1 bytes"
    ):
        channel(quick, grid).ask(b"?", ["north", "west"])


def test_an_answer_is_bytes(quick: SimpleNamespace) -> None:
    grid = Grid(west="1")
    grid.reply("m0", 10**12)
    with pytest.raises(quick.PartyLost, match="'west': its app is not fedpact's"):
        channel(quick, grid).ask(b"?", ["west"])


def test_a_party_that_stays_away_is_named(quick: SimpleNamespace) -> None:
    grid = Grid(north="1", west="1")
    grid.reply("m0", b"n")
    with pytest.raises(quick.PartyLost, match=r"'west': no answer within 0\.05 s; its node is online"):
        channel(quick, grid, 0.05).ask(b"?", ["north", "west"])
    with pytest.raises(quick.PartyLost, match=r"'east': no answer .* not online"):
        channel(quick, grid, 0.05).ask(b"?", ["east"])


def test_two_keys_under_one_name_are_refused(quick: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = Grid(west="1")
    monkeypatch.setattr(grid, "get_nodes", lambda: Grid(west="1").get_nodes() * 2)
    with pytest.raises(quick.PartyLost, match="'west': two keys"):
        channel(quick, grid).ask(b"?", ["west"])


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ({}, "messages of fedpact only"),
        ({"fedpact": {"party": "west"}}, "messages of fedpact only"),
        ({"fedpact": {"party": "west", "message": 10**12}}, "messages of fedpact only"),
        ({"fedpact": {"party": "north", "message": b"?"}}, "key for 'north', but it is the site of 'west'"),
        ({"fedpact": {"message": b"?"}}, "key for None, but it is the site of 'west'"),
    ],
)
def test_a_site_refuses_what_is_not_for_it(deploy: SimpleNamespace, records: dict[str, Any], words: str) -> None:
    from flwr.app import ConfigRecord

    from fedpact.deploy.flower import site_process

    content = {name: ConfigRecord(record) for name, record in records.items()}
    with pytest.raises(site_process.MessageRejected, match=words):
        site_process._message_bytes("west", SimpleNamespace(content=SimpleNamespace(config_records=content)))


def test_what_a_kit_holds(kit: pathlib.Path) -> None:
    for name in ("server", "north", "west"):
        start = (kit / name / "start.sh").read_text()
        assert "FLWR_TELEMETRY_ENABLED=0" in start
        assert "FLWR_DISABLE_UPDATE_CHECK=1" in start
        assert (kit / name / "pact.py").read_text() == (STAND_INS / "plays.py").read_text()
    for secret in [kit / "server" / "server.key", kit / "north" / "node.key", kit / "west" / "node.key"]:
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
        assert stat.S_IMODE(secret.parent.stat().st_mode) == 0o700
    assert "--isolation process" in (kit / "west" / "start.sh").read_text(), "a site runs no code that it is sent"
    superlink = (kit / "server" / "start.sh").read_text()
    assert "--enable-supernode-auth" in superlink
    assert "--disable-runtime-dependency-installation" in superlink
    assert "--insecure" not in superlink
    readme = (kit / "README.md").read_text()
    for command in (
        "server/start.sh",
        "server/register.sh",
        "north/start.sh",
        "server/run.sh",
        "server/run.sh --resume",
    ):
        assert f"`{command}`" in readme
    assert "Telemetry and update checks of Flower are switched off" in readme
    assert "sums are secure unless the pact says otherwise" in readme
    assert "In `policy.toml` of a party: `secure_summation = true`" in readme
    assert 'keys = {"north": "…", …}' in readme


def test_the_servers_certificate_is_signed_for_its_name(deploy: SimpleNamespace, tmp_path: pathlib.Path) -> None:
    from cryptography import x509
    from cryptography.x509 import verification

    deploy.kit.write_kit(STAND_INS / "plays.py", ["a"], tmp_path / "kit", server="fed.example.org")
    authority, server = (
        x509.load_pem_x509_certificate((tmp_path / "kit/server" / name).read_bytes())
        for name in ("ca.crt", "server.crt")
    )
    store = verification.Store([authority])
    for host in ("fed.example.org", "localhost"):
        verification.PolicyBuilder().store(store).build_server_verifier(x509.DNSName(host)).verify(server, [])
    with pytest.raises(verification.VerificationError):
        verification.PolicyBuilder().store(store).build_server_verifier(x509.DNSName("else.org")).verify(server, [])
    assert "--host 0.0.0.0" in (tmp_path / "kit/server/start.sh").read_text()


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"parties": []}, ValueError, "each only once"),
        ({"parties": ["a", "a"]}, ValueError, "each only once"),
        ({"parties": ["server"]}, ValueError, "'server'"),
        ({"parties": ["a b"]}, ValueError, "letters, digits"),
        ({"parties": ["$(rm)"]}, ValueError, "letters, digits"),
        ({"port": 0}, ValueError, "between 1 and 65535"),
        ({"wait": 0.0}, ValueError, r"wait=0\.0: must be > 0"),
        ({"server": "x; rm -rf /"}, ValueError, "host name or IPv4 address"),
        ({"pact": pathlib.Path("nowhere.py")}, FileNotFoundError, r"pact file nowhere\.py does not exist"),
    ],
)
def test_a_kit_is_refused_in_words(
    deploy: SimpleNamespace, tmp_path: pathlib.Path, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        deploy.kit.write_kit(**{"pact": STAND_INS / "plays.py", "parties": ["a"], "out": tmp_path / "kit", **options})
    assert not (tmp_path / "kit").exists()


def test_a_kit_is_not_overwritten(deploy: SimpleNamespace, kit: pathlib.Path) -> None:
    with pytest.raises(FileExistsError, match="choose another folder"):
        deploy.kit.write_kit(STAND_INS / "plays.py", ["north"], kit)


def test_without_flower_the_way_out_is_named(
    deploy: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(deploy.package, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install .*'flwr"):
        deploy.kit.write_kit(STAND_INS / "plays.py", ["a"], tmp_path / "kit")
    with pytest.raises(ModuleNotFoundError, match="pip install"):
        deploy.server_app.server_app()
