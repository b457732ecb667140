"""Runs over parties elsewhere, through the very bytes that an engine carries: the same answers, and what is refused."""

import dataclasses
import json
import pathlib
import platform
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import pacts
import pytest
from pacts import assert_same

import fedpact as fp
from fedpact.deploy import party_run
from fedpact.deploy.message_list import wire
from fedpact.deploy.party import Site
from fedpact.deploy.server import serve
from fedpact.engines.remote import PartyLost
from fedpact.engines.serialization import HEADER, pack, unpack
from fedpact.run.pact import Pact


def as_in_one_process(pact: pathlib.Path, party: str, folder: pathlib.Path) -> Site:
    """A site that draws its mini-batches without a secret of its own, so that runs can be compared with those in one process."""
    return Site(pact, party, folder, pathlib.Path(__file__).parent / "as_in_one_process.toml")


@dataclasses.dataclass
class Loopback:
    """Parties as objects; `meddle` may change an answer, or kill somebody; `away` says who does not hear a message."""

    sites: dict[str, Site]
    meddle: Callable[[int, str, bytes, bytes], bytes] = lambda number, party, message, answer: answer
    away: Callable[[int, str], bool] = lambda number, party: False
    asked: int = 0
    heard: list[tuple[int, str]] = dataclasses.field(default_factory=list)
    interrupts: bool = True

    @classmethod
    def of(cls, pact: pathlib.Path, folder: pathlib.Path, **more: Any) -> Self:
        return cls({party: as_in_one_process(pact, party, folder / party) for party in Pact(pact).parties}, **more)

    def ask(self, message: bytes, parties: Sequence[str], some: bool = False) -> dict[str, bytes]:
        self.asked += 1
        number, answers = self.asked, {}
        for party in parties:
            if not self.away(number, party):
                self.heard.append((number, party))
                answers[party] = self.meddle(number, party, message, self.sites[party].answer(message))
            elif not some:
                raise PartyLost(party, "stays away")
        return answers


@pytest.mark.parametrize(  # all on FLARE: test_flare.py
    "name", ["ProxAL LBFGS", "PersonalProjected", "InteriorPoint counting", "FairVFL counting"]
)
def test_methods_give_the_same_elsewhere(name: str, tmp_path: pathlib.Path) -> None:
    pact = pacts.written(tmp_path, name)
    deployed = serve(pact, Loopback.of(pact, tmp_path), tmp_path / "server")
    stated = Pact(pact)
    folders = {party: tmp_path / party for party in stated.parties}
    assert_same(deployed, stated.run(stated.tables()), folders)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, fp.Result]:
    """A pact whose rounds compile fast, and its run in one process."""
    pact = pacts.written(tmp_path_factory.mktemp("pact"), "FedAvg")
    pact.write_text(pact.read_text() + "options['privacy'] = None\n")  # secure sums: test_secure_sums.py
    return pact, Pact(pact).run(Pact(pact).tables())


# faults


@pytest.mark.parametrize("victim", ["north", "server"])
def test_whoever_is_killed_and_restarted_ends_where_the_undisturbed_run_ends(
    victim: str, quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pact, undisturbed = quick
    monkeypatch.setattr("fedpact.run.loop.SAVE_SECONDS", 0.0)
    channel = Loopback.of(pact, tmp_path)

    def kill(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        if number == 17 and party == "north":
            if victim == "server":
                raise ConnectionError("the server is gone")
            channel.sites["north"] = as_in_one_process(pact, "north", tmp_path / "north")
            return channel.sites["north"].answer(message)
        return answer

    channel.meddle = kill
    with pytest.raises((PartyLost, ConnectionError), match=r"was restarted|is gone"):
        serve(pact, channel, tmp_path / "server")
    with pytest.raises(ValueError, match="has not ended: resume it"):
        serve(pact, Loopback.of(pact, tmp_path), tmp_path / "server")
    resumed = serve(pact, Loopback.of(pact, tmp_path), tmp_path / "server", resume=True)
    assert resumed.rounds == undisturbed.rounds
    np.testing.assert_allclose(resumed.params["w"], undisturbed.params["w"], rtol=0, atol=1e-10)


def test_a_message_that_comes_twice_gets_the_same_answer_and_a_late_one_none(
    quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path
) -> None:
    pact, undisturbed = quick
    channel, first = Loopback.of(pact, tmp_path), []

    def again(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        if unpack(message)[0]["kind"] == "step":
            assert channel.sites[party].answer(message) == answer
            first.append(message)
            if len(first) == 12:
                assert "comes late" in unpack(channel.sites[party].answer(first[0]))[0]["refused"]
        return answer

    channel.meddle = again
    result = serve(pact, channel, tmp_path / "server")
    np.testing.assert_allclose(result.params["w"], undisturbed.params["w"], rtol=0, atol=1e-12)


def test_rows_that_changed_are_not_resumed(
    quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pact, _ = quick
    serve(pact, Loopback.of(pact, tmp_path), tmp_path / "server")
    channel = Loopback.of(pact, tmp_path)
    load = channel.sites["south"].pact.load
    channel.sites["south"].pact.load = lambda party: load(party).with_columns(x=load(party)["x"] + 1.0)
    with pytest.raises(PartyLost, match="'south': it refuses: its rows are not those"):
        serve(pact, channel, tmp_path / "server", resume=True)


# parties that stay away


@pytest.fixture(scope="module")
def partial(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, fp.Result]:
    """A pact whose rounds a party may miss, and its run in one process."""
    pact = pacts.written(tmp_path_factory.mktemp("pact"), "SCAFFOLD")
    pact.write_text(pact.read_text().replace("participation=0.67", "participation=0.99"))  # all three are asked
    return pact, Pact(pact).run(Pact(pact).tables())


def test_a_party_that_is_away_for_some_rounds_keeps_its_state_and_comes_back(
    partial: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path
) -> None:
    pact, undisturbed = partial
    channel = Loopback.of(pact, tmp_path, away=lambda number, party: party == "west" and 8 <= number < 12)
    result = serve(pact, channel, tmp_path / "server")
    assert (result.status, result.rounds) == (undisturbed.status, undisturbed.rounds)
    assert np.isfinite(result.objective)
    far = np.isnan(result.history["infeasibility"])
    assert far.sum(0).tolist() == [0, 0, 4]
    assert "west" in {party for number, party in channel.heard if number >= 12}


def test_a_party_that_was_restarted_is_greeted_and_takes_part_again(
    partial: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path
) -> None:
    pact, undisturbed = partial
    channel = Loopback.of(pact, tmp_path)

    def kill(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        if number == 9 and party == "west":
            channel.sites["west"] = as_in_one_process(pact, "west", tmp_path / "west")
            return channel.sites["west"].answer(message)
        return answer

    channel.meddle = kill
    result = serve(pact, channel, tmp_path / "server")
    assert (result.status, result.rounds) == (undisturbed.status, undisturbed.rounds)
    run = channel.sites["west"].run
    assert run is not None
    assert run.last > 9
    assert np.isnan(result.history["infeasibility"]).sum(0).tolist() == [0, 0, 1]


def test_a_run_in_which_a_party_was_away_is_resumed(
    partial: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pact, undisturbed = partial
    monkeypatch.setattr("fedpact.run.loop.SAVE_SECONDS", 0.0)
    away = Loopback.of(pact, tmp_path, away=lambda number, party: party == "west" and number >= 9)
    with pytest.raises(PartyLost, match="party 'west': stays away"):
        serve(pact, away, tmp_path / "server")  # whoever answers for its rows has to be there at the end
    assert away.asked > 20
    result = serve(pact, Loopback.of(pact, tmp_path), tmp_path / "server", resume=True)
    assert (result.status, result.rounds) == (undisturbed.status, undisturbed.rounds)


def test_where_everybody_has_to_take_part_a_party_that_stays_away_stops_the_run(
    quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pact, undisturbed = quick
    monkeypatch.setattr("fedpact.run.loop.SAVE_SECONDS", 0.0)
    channel = Loopback.of(pact, tmp_path, away=lambda number, party: party == "west" and number >= 9)
    with pytest.raises(PartyLost, match="party 'west': stays away"):
        serve(pact, channel, tmp_path / "server")
    resumed = serve(pact, Loopback.of(pact, tmp_path), tmp_path / "server", resume=True)
    np.testing.assert_allclose(resumed.params["w"], undisturbed.params["w"], rtol=0, atol=1e-10)


# asynchronous parties


class Slow(Loopback):
    """Passive parties take their time."""

    def ask(self, message: bytes, parties: Sequence[str], some: bool = False) -> dict[str, bytes]:
        if "north" not in parties:
            time.sleep(0.05)
        return super().ask(message, parties, some)


def test_an_active_party_works_on_until_the_passive_ones_have_answered(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pact = pacts.written(tmp_path, "FairVFL")
    pact.write_text(pact.read_text().replace("fp.FairVFL()", "fp.FairVFL(local_steps=10_000, pace='clock')"))
    channel = Slow.of(pact, tmp_path)
    own_steps = 0

    def counted(run: Any) -> bool:
        nonlocal own_steps
        own_steps += 1
        return is_enough(run)

    is_enough = party_run.PartyRun._is_enough
    monkeypatch.setattr(party_run.PartyRun, "_is_enough", counted)
    result = serve(pact, channel, tmp_path / "server")
    assert result.converged
    exact = fp.solve(Pact(pact).problem, Pact(pact).tables(), fp.FairVFL(), tolerance=1e-6)
    assert result.objective == pytest.approx(exact.objective, abs=1e-6)
    assert result.rounds < own_steps < 10_000 * result.rounds, "it took steps of its own, and was told to stop"


# the door


def changed(answer: bytes, change: Callable[[dict[str, Any], dict[str, np.ndarray]], None]) -> bytes:
    words, arrays = unpack(answer)
    arrays = {name: array.copy() for name, array in arrays.items()}
    change(words, arrays)
    return pack(words, arrays)


def spoil(words: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    max(arrays.values(), key=np.size)[...] = np.nan


def shorten(words: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    name = max(arrays, key=lambda n: arrays[n].size)
    arrays[name] = arrays[name][:-1]


def halve(words: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    name = max(arrays, key=lambda n: arrays[n].size)
    arrays[name] = arrays[name].astype(np.float32)


def add(words: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    arrays["more"] = np.zeros(3)


def drop(words: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    arrays.pop(next(iter(arrays)))


def pretend(words: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    words["party"] = "north"


def delay(words: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    words["number"] -= 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (spoil, "NaN or infinite"),
        (shorten, r"float64\[\d+\], not float64\[\d+\]"),
        (halve, "float32"),
        (add, "'more' is in it, which nobody asked for"),
        (drop, "is missing"),
        (pretend, "another party"),
        (delay, "it answers message"),
    ],
)
def test_replies_are_checked_at_the_servers_door(
    change: Any, told: str, quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path
) -> None:
    pact, _ = quick

    def meddle(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        return changed(answer, change) if party == "west" and number == 4 else answer

    with pytest.raises(PartyLost, match=told) as caught:
        serve(pact, Loopback.of(pact, tmp_path, meddle=meddle), tmp_path / "server")
    assert caught.value.party == "west"


@pytest.mark.parametrize("junk", [b"", b"junk", b"\xff" * 100, (1 << 40).to_bytes(8, "little") + b"{}"])
def test_bytes_that_are_no_message_are_refused_on_both_sides(
    junk: bytes, quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path
) -> None:
    pact, _ = quick
    site = Site(pact, "north", tmp_path / "alone")
    assert "cannot be read" in unpack(site.answer(junk))[0]["refused"]
    channel = Loopback.of(pact, tmp_path, meddle=lambda n, party, m, answer: junk if party == "south" else answer)
    with pytest.raises(PartyLost, match="party 'south': the message cannot be read"):
        serve(pact, channel, tmp_path / "server")


def test_a_party_refuses_what_was_not_agreed_on(quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path) -> None:
    pact, _ = quick
    channel = Loopback.of(pact, tmp_path)
    steps: list[bytes] = []

    def listen(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        if unpack(message)[0]["kind"] == "step":
            steps.append(message)
        return answer

    channel.meddle = listen
    serve(pact, channel, tmp_path / "server")
    site = channel.sites["north"]
    words, arrays = unpack(steps[-1])
    later = {**words, "number": words["number"] + 1}

    def refused(words: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
        return unpack(site.answer(pack(words, arrays)))[0]["refused"]

    name = max(arrays, key=lambda n: arrays[n].size)
    assert "holds NaN" in refused(later, {**arrays, name: np.full_like(arrays[name], np.nan)})
    assert "not float64" in refused(later, {**arrays, name: arrays[name][:-1]})
    assert "no exchange of this run" in refused({**later, "exchange": "os.system"}, arrays)
    assert "does not know this run" in refused({**later, "run": "0" * 16}, arrays)
    assert "has no version" in refused({**later, "versions": {"north": 999}}, arrays)
    assert "unknown here" in refused({**later, "kind": "shell"}, arrays)
    assert "more than the" in unpack(site.answer(b"\0" * (5 * HEADER)))[0]["refused"]


def test_only_parties_of_the_pact_have_a_site_and_are_heard(
    quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path
) -> None:
    pact, _ = quick
    with pytest.raises(ValueError, match="'east' is not in the pact, whose parties are north, south, west"):
        Site(pact, "east", tmp_path)

    class Crowd(Loopback):
        def ask(self, message: bytes, parties: Sequence[str], some: bool = False) -> dict[str, bytes]:
            return {**super().ask(message, parties), "east": b""}

    crowd = Crowd(Loopback.of(pact, tmp_path).sites)
    with pytest.raises(PartyLost, match="party 'east': it answered though nobody asked it"):
        serve(pact, crowd, tmp_path / "server")


# what a party agrees to


def with_policy(pact: pathlib.Path, folder: pathlib.Path, text: str) -> Loopback:
    policy = folder / "policy.toml"
    policy.write_text(f"secret_batches = false\n{text}")
    channel = Loopback.of(pact, folder)
    channel.sites["south"] = Site(pact, "south", folder / "south", policy)
    return channel


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ('digests = ["0123"]', "allows the pacts 0123, and this one is"),
        ("min_rows = 11", "demands 11 rows behind a mean, and the method's batch has 10"),
        ("min_rows = 61", "is over fewer of its rows than the 61 that its policy demands"),
        ("max_rounds = 5", "allows 5 rounds of this pact over all runs, and this is round 6"),
        ("secure_summation = true", "demands secure sums, and the pact adds up in the clear"),
    ],
)
def test_a_policy_is_the_partys(
    policy: str, told: str, quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path
) -> None:
    pact, _ = quick
    if policy == "min_rows = 61":
        pact = tmp_path / "all_rows.py"
        pact.write_text(quick[0].read_text().replace("batch=10, ", ""))
    with pytest.raises(PartyLost, match=told) as caught:
        serve(pact, with_policy(pact, tmp_path, policy), tmp_path / "server")
    assert caught.value.party == "south"


def test_a_policy_that_allows_a_pact(quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path) -> None:
    pact, undisturbed = quick
    allowed = f'digests = ["{Pact(pact).digest}"]\nmin_rows = 10\nmax_rounds = 12\n'
    result = serve(pact, with_policy(pact, tmp_path, allowed), tmp_path / "server")
    np.testing.assert_allclose(result.params["w"], undisturbed.params["w"], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ("min_rows = 0", "min_rows = 0 should be a positive whole number"),
        ("rows = 3", "'rows' is no condition; there are digests, min_rows"),
        ("min_rows = [", "is no TOML file"),
        ("secure_summation = 1", "should be a bool"),
    ],
)
def test_a_policy_that_cannot_be_read_lets_nothing_run(
    policy: str, told: str, quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path
) -> None:
    with pytest.raises(ValueError, match=told):
        with_policy(quick[0], tmp_path, policy)
    with pytest.raises(FileNotFoundError, match="there is no policy file"):
        Site(quick[0], "south", tmp_path, tmp_path / "none.toml")


def test_another_pact_is_refused(quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path) -> None:
    pact, _ = quick
    other = tmp_path / "other.py"
    other.write_text(pact.read_text().replace("fp.l2(1e-2)", "fp.l2(2e-2)"))
    channel = Loopback.of(pact, tmp_path)
    channel.sites["west"] = Site(other, "west", tmp_path / "west")
    with pytest.raises(PartyLost, match="party 'west': it refuses: its pact has the digest"):
        serve(pact, channel, tmp_path / "server")


# a server that does not keep to the protocol


class Server:
    """Says what it likes to one site, in a run of its own."""

    def __init__(self, site: Site, **words: Any):
        self.site = site
        python = ".".join(platform.python_version_tuple()[:2])
        self.words = {"run": "0" * 16, "session": "1" * 16, "versions": {"fedpact": fp.__version__, "Python": python}}
        self.words |= {"digest": site.pact.digest, **words}

    def says(self, kind: str, arrays: dict[str, np.ndarray] | None = None, **words: Any) -> dict[str, Any]:
        return unpack(self.site.answer(pack({**self.words, "kind": kind, **words}, arrays)))[0]

    def described(self) -> list[dict[str, Any]]:
        """All parties like this one."""
        return [self.says("hello")["description"]] * len(self.site.pact.parties)


def test_whoever_was_refused_at_the_greeting_is_refused_afterwards(
    quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path
) -> None:
    described = Server(Site(quick[0], "south", tmp_path)).described()
    policy = tmp_path / "policy.toml"
    policy.write_text("min_rows = 1000")
    server = Server(Site(quick[0], "south", tmp_path, policy))
    assert "demands 1000 rows" in server.says("hello")["refused"]
    assert "has not greeted this run" in server.says("meet", descriptions=described)["refused"]


@pytest.mark.parametrize("name", ["../../elsewhere", "/tmp/elsewhere", "", 3])
def test_a_runs_name_is_no_path(name: Any, quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path) -> None:
    server = Server(Site(quick[0], "south", tmp_path / "own"))
    described = server.described()
    assert "no proper name" in server.says("hello", run=name)["refused"]
    assert "has not greeted this run" in server.says("meet", run=name, descriptions=described)["refused"]
    assert {path.name for path in tmp_path.rglob("*")} <= {"own", "status.json", "failure.txt"}


def test_a_policys_rounds_are_counted_over_runs_and_restarts_and_repeated_questions_once(
    quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path
) -> None:
    pact, steps = quick[0], []
    channel = Loopback.of(pact, tmp_path / "other")

    def listen(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        words, arrays = unpack(message)
        if party == "south" and words["kind"] == "step":
            steps.append((words, arrays))
        return answer

    channel.meddle = listen
    serve(pact, channel, tmp_path / "server")
    policy = tmp_path / "policy.toml"
    policy.write_text("max_rounds = 2")
    begin, first, certificate = steps[0], steps[1], steps[-1]
    said = []
    for run in range(4):
        server = Server(Site(pact, "south", tmp_path / "own", policy), run=f"{run // 2:016x}")
        assert "plan" in server.says("meet", descriptions=server.described(), resume=None)
        for number, (words, arrays) in enumerate([begin, first, *[certificate] * 6], 1):
            own = {"south": -1 if number == 1 else 1}
            told = {"exchange": words["exchange"], "number": number, "versions": own, "oldest": {"south": -1}}
            moved = (run if number == 2 else 10 * run + number) * (run > 0)
            asked = {name: array + array.dtype.type(moved) for name, array in arrays.items()}
            for _ in range(2):
                said.append((words["exchange"], run, server.says("step", asked, **told).get("refused")))
    rounds = [why for name, _, why in said if name == first[0]["exchange"]]
    refused = "its policy allows 2 rounds of this pact over all runs, and this is round 3"
    assert rounds == [None, None, None, None, refused, refused, refused, refused]
    measured = [run for name, run, why in said if name == certificate[0]["exchange"] and "allows" in str(why)]
    assert min(measured) == 2, "1 question in the run 0, and 6 in each other: 12 are answered"


def test_a_run_that_is_repeated_asks_nothing_new(quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path) -> None:
    pact, undisturbed = quick
    for number in range(3):
        channel = with_policy(pact, tmp_path, "max_rounds = 12")
        result = serve(pact, channel, tmp_path / f"server {number}")
        np.testing.assert_allclose(result.params["w"], undisturbed.params["w"], rtol=0, atol=1e-12)
    (file,) = (tmp_path / "south" / "askings").iterdir()
    assert (file.stem, file.stat().st_mode & 0o777) == (Pact(pact).digest, 0o600)


def test_a_run_with_secret_batches_is_resumed_as_if_undisturbed(
    quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pact, in_one_process = quick
    monkeypatch.setattr("fedpact.run.loop.SAVE_SECONDS", 0.0)

    def parties() -> dict[str, Site]:
        return {name: Site(pact, name, tmp_path / name) for name in Pact(pact).parties}

    def gone(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        if number == 17:
            raise ConnectionError("the server is gone")
        return answer

    undisturbed = serve(pact, Loopback(parties()), tmp_path / "undisturbed")
    with pytest.raises(ConnectionError):
        serve(pact, Loopback(parties(), meddle=gone), tmp_path / "server")
    resumed = serve(pact, Loopback(parties()), tmp_path / "server", resume=True)
    np.testing.assert_allclose(resumed.params["w"], undisturbed.params["w"], rtol=0, atol=1e-12)
    assert np.abs(resumed.params["w"] - in_one_process.params["w"]).max() > 1e-6, "other rows were drawn"


def test_what_failed_at_a_party_stays_in_its_folder(
    quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    site = Site(quick[0], "south", tmp_path)

    def load(party: str) -> fp.Table:
        raise ValueError("could not convert 'Mary Smith, HIV+'")

    site.pact.load = load
    assert Server(site).says("hello")["refused"] == "its process failed (ValueError); its own log says why"
    told = json.loads((tmp_path / "status.json").read_text())
    assert told["phase"] == "failed"
    assert told["reason"].endswith("failure.txt says why"), "where its operator looks"
    assert "Mary Smith" in (tmp_path / "failure.txt").read_text()
    assert "Mary Smith" not in json.dumps(told) + capfd.readouterr().err, "no log holds rows"


def test_messages_of_a_server_that_was_killed_do_not_count_after_the_resume(
    quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pact, undisturbed = quick
    monkeypatch.setattr("fedpact.run.loop.SAVE_SECONDS", 0.0)
    old: list[bytes] = []

    def until_killed(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        if unpack(message)[0]["kind"] == "step":
            old.append(message)
        if number == 17:
            raise ConnectionError("the server is gone")
        return answer

    with pytest.raises(ConnectionError):
        serve(pact, Loopback.of(pact, tmp_path, meddle=until_killed), tmp_path / "server")
    channel, refused = Loopback.of(pact, tmp_path), []

    def late(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        refused.extend(unpack(channel.sites[party].answer(each))[0]["refused"] for each in old[-6:])
        return answer

    channel.meddle = late
    resumed = serve(pact, channel, tmp_path / "server", resume=True)
    np.testing.assert_allclose(resumed.params["w"], undisturbed.params["w"], rtol=0, atol=1e-12)
    assert all("does not know this run" in why for why in refused)


def test_a_meeting_that_is_announced_twice_changes_nothing(
    quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path
) -> None:
    pact, undisturbed = quick
    channel, meetings = Loopback.of(pact, tmp_path), []

    def again(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        if unpack(message)[0]["kind"] == "meet":
            meetings.append((message, answer))
        elif meetings:
            assert channel.sites["north"].answer(meetings[0][0]) == meetings[0][1]
        return answer

    channel.meddle = again
    result = serve(pact, channel, tmp_path / "server")
    np.testing.assert_allclose(result.params["w"], undisturbed.params["w"], rtol=0, atol=1e-12)


def test_a_save_that_fails_again_and_again_leaves_what_was_saved(
    quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pact, undisturbed = quick
    monkeypatch.setattr("fedpact.run.loop.SAVE_SECONDS", 0.0)
    for saves in (3, 2, 2):
        kept = 0

        def in_a_save(number: int, party: str, message: bytes, answer: bytes, saves: int = saves) -> bytes:
            nonlocal kept
            if unpack(message)[0]["kind"] == "keep" and party == "west":
                kept += 1
                if kept == saves:
                    raise PartyLost("west", "is gone")
            return answer

        channel = Loopback.of(pact, tmp_path, meddle=in_a_save)
        with pytest.raises(PartyLost, match="is gone"):
            serve(pact, channel, tmp_path / "server", resume=True)
        assert kept == saves, "a save that failed is not tried again"
    resumed = serve(pact, Loopback.of(pact, tmp_path), tmp_path / "server", resume=True)
    assert resumed.rounds == undisturbed.rounds
    np.testing.assert_allclose(resumed.params["w"], undisturbed.params["w"], rtol=0, atol=1e-10)


def test_a_returning_party_that_goes_again_is_away(
    partial: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path
) -> None:
    pact, undisturbed = partial
    gone = False

    def away(number: int, party: str) -> bool:
        return party == "west" and gone

    channel = Loopback.of(pact, tmp_path, away=away)

    def kill(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        nonlocal gone
        gone = 9 <= number < 15
        if number == 9 and party == "west":
            channel.sites["west"] = as_in_one_process(pact, "west", tmp_path / "west")
            return channel.sites["west"].answer(message)
        return answer

    channel.meddle = kill
    result = serve(pact, channel, tmp_path / "server")
    assert (result.status, result.rounds) == (undisturbed.status, undisturbed.rounds)


# numbers that are not finite


def test_a_trial_point_outside_of_a_functions_domain_is_the_methods_business(tmp_path: pathlib.Path) -> None:
    pact = tmp_path / "pact.py"
    pact.write_text(
        "import jax.numpy as jnp\nimport numpy as np\nimport fedpact as fp\n"
        "parties = ['north', 'south']\n"
        "problem = fp.minimize(fp.mean(lambda w, row: row['a'] * w[0] - jnp.log(w[0])))\n"
        "algorithm = fp.InteriorPoint()\n"
        "options = {'start': np.ones(1), 'tolerance': 1e-6}\n"
        "def load(party):\n    return fp.Table(a=np.full(6, 10.0 if party == 'north' else 11.0))\n"
    )
    local = Pact(pact).run(Pact(pact).tables())
    deployed = serve(pact, Loopback.of(pact, tmp_path), tmp_path / "server")
    assert local.converged
    assert deployed.rounds == local.rounds
    np.testing.assert_allclose(deployed.params, local.params, rtol=0, atol=1e-10)


def test_a_run_that_diverges_says_whose_numbers_did(
    quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path
) -> None:
    pact = tmp_path / "pact.py"
    pact.write_text(quick[0].read_text().replace("step=0.1", "step=1e200"))
    deployed = serve(pact, Loopback.of(pact, tmp_path), tmp_path / "server")
    assert deployed.status == "diverged"
    assert "party 'north'" in deployed.message


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"rows": -5}, "party 'west': that is no description"),
        ({"rows": float("inf")}, "party 'west': that is no description"),
        ({"rows": 10**14}, "party 'west': that is no description"),
        ({"totals": {"all rows": -120}}, "party 'west': that is no description"),
        ({"totals": {"all rows": float("nan")}}, "party 'west': that is no description"),
        ({"totals": {"all rows": 1000}}, "party 'west' describes 60 rows, and a mean over 1000 of them"),
        ({"totals": {}}, "party 'west' describes 0 means, and the problem has 1 others"),
        ({"groups": {"sex": [None]}}, "party 'west': that is no description"),
        ({"columns": 3}, "party 'west': that is no description"),
    ],
)
def test_a_party_that_describes_nonsense_is_named(
    change: dict[str, Any], told: str, quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path
) -> None:
    pact, _ = quick

    def lie(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        words, arrays = unpack(answer)
        if party == "west" and "description" in words:
            return pack({**words, "description": {**words["description"], **change}}, arrays)
        return answer

    with pytest.raises((PartyLost, ValueError), match=told):
        serve(pact, Loopback.of(pact, tmp_path, meddle=lie), tmp_path / "server")


def test_over_columns_a_policy_with_rows_behind_means_takes_no_part(tmp_path: pathlib.Path) -> None:
    pact = pacts.written(tmp_path, "FedBCD")
    with pytest.raises(PartyLost, match="over columns every row's output is sent") as caught:
        serve(pact, with_policy(pact, tmp_path, "min_rows = 2"), tmp_path / "server")
    assert caught.value.party == "south"


def test_the_folder_of_a_run_in_one_process_is_not_resumed(
    quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path
) -> None:
    pact, _ = quick
    Pact(pact).run(Pact(pact).tables(), save=tmp_path / "server", max_rounds=2)
    with pytest.raises(ValueError, match="holds a run in one process"):
        serve(pact, Loopback.of(pact, tmp_path), tmp_path / "server", resume=True)


def test_a_digest_is_of_the_meaning_and_not_of_the_files_name(
    quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path
) -> None:
    pact, _ = quick
    other = tmp_path / "another_name.py"
    other.write_text("# with a comment\n" + pact.read_text())
    assert Pact(other).digest == Pact(pact).digest
    other.write_text(pact.read_text().replace("fp.l2(1e-2)", "fp.l2(2e-2)"))
    assert Pact(other).digest != Pact(pact).digest


@pytest.mark.parametrize("name", ["front door", "InteriorPoint counting", "SSCA columns", "SCAFFOLD"])
def test_the_page_of_messages_is_what_is_sent(name: str, tmp_path: pathlib.Path) -> None:
    page = pathlib.Path(__file__).parents[1] / "docs" / "wire.md"
    assert pacts.messages(name, tmp_path) in page.read_text(), "make wire"


def test_the_wire_table_follows_the_options(tmp_path: pathlib.Path) -> None:
    pact = pacts.written(tmp_path, "ProxAL Newton")
    sizes = []
    for told in ("True", "False"):
        pact.write_text(pacts.PACTS["ProxAL Newton"] + f"options['disclose'] = {told}\n")
        listing = wire(Pact(pact))
        sizes.append(sum(listing.up(e) for e in listing.exchanges if e.part == "round"))
    assert sizes[0] - sizes[1] == 3 * 8, "a constraint, its multiplier and the part of the objective, as they are"


# what stays at home


def test_sets_of_other_parties_are_never_asked_for(tmp_path: pathlib.Path) -> None:
    """Each party's set is a function's value at that party; the server never calls it."""
    pact = pacts.written(tmp_path, "PCFedAvg")
    seen = "asked = []\n"
    text = pact.read_text().replace("own.__getitem__", "lambda party: (asked.append(party), own[party])[1]")
    pact.write_text(seen + text)
    channel = Loopback.of(pact, tmp_path)
    asked = {name: site.pact.problem.personal.sets.__globals__["asked"] for name, site in channel.sites.items()}
    serve(pact, channel, tmp_path / "server")
    assert all(set(calls) == {name} for name, calls in asked.items())


def test_labels_stay_with_active_parties_and_the_server(tmp_path: pathlib.Path) -> None:
    pact = pacts.written(tmp_path, "FairVFL")
    channel, hellos = Loopback.of(pact, tmp_path), {}

    def listen(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        hellos.setdefault(party, unpack(answer)[0])
        return answer

    channel.meddle = listen
    serve(pact, channel, tmp_path / "server")
    assert hellos["north"]["description"]["labels"] == ["y", "sex"]
    assert channel.sites["north"].run is not None
    for name in ("south", "west"):
        run = channel.sites[name].run
        assert run is not None
        assert hellos[name]["description"]["labels"] == []
        assert run.table.columns == ("x",)
        assert run.own.labels is None


def test_rows_that_do_not_match_over_columns(tmp_path: pathlib.Path) -> None:
    pact = pacts.written(tmp_path, "FedBCD")
    channel = Loopback.of(pact, tmp_path)
    load = channel.sites["west"].pact.load
    channel.sites["west"].pact.load = lambda party: load(party)[:70]
    with pytest.raises(ValueError, match="rows do not match: party 'west' holds 70 rows, party 'north' 80"):
        serve(pact, channel, tmp_path / "server")


def test_columns_that_differ_between_parties(quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path) -> None:
    pact, _ = quick
    channel = Loopback.of(pact, tmp_path)
    load = channel.sites["west"].pact.load
    channel.sites["west"].pact.load = lambda party: load(party).with_columns(x=load(party)["x"][:, :3])
    with pytest.raises(
        ValueError, match=r"column 'x' has float64\[3\] a row at party 'west' and float64\[4\] at party 'north'"
    ):
        serve(pact, channel, tmp_path / "server")


# the wire


def test_the_wire_table_tells_the_bytes_that_are_sent(quick: tuple[pathlib.Path, fp.Result]) -> None:
    pact, result = quick
    told = wire(Pact(pact))
    rounds = [e for e in told.exchanges if e.part == "round"]
    assert sum(map(told.down, rounds)) * 3 * result.rounds == result.bytes_down
    assert sum(map(told.up, rounds)) * 3 * result.rounds == result.bytes_up
    assert told.digest == Pact(pact).digest
    assert next(row[0] for row in told.rows()) == "once, before the first round"


MASKED = """
import jax.numpy as jnp
import numpy as np
import fedpact as fp

def squared(w, rows):
    return (w["a"] - jnp.log(rows["x"])) ** 2  # no finite value on the rows that the mask leaves out

parties = ["north", "south"]
problem = fp.minimize(
    fp.mean(squared, where=fp.col("k") == 1).pooled() + fp.mean(squared, where=fp.col("k") == 1).at_server(),
    regularizer=fp.l2(1e-2),
)
algorithm = fp.SSCA(batch=4, measure=None)
options = {"start": {"a": 0.5}, "max_rounds": 3}

def rows(seed):
    rng = np.random.default_rng(seed)
    k = np.arange(8) % 2
    return fp.Table(x=np.where(k == 1, rng.uniform(1, 2, 8), 0.0), k=k)

def load(party):
    return rows(parties.index(party))

server = rows(2)
"""


def test_rows_that_a_mask_leaves_out_do_not_spoil_a_deployed_run(tmp_path: pathlib.Path) -> None:
    pact = tmp_path / "masked.py"
    pact.write_text(MASKED)
    local = Pact(pact).run(Pact(pact).tables())
    deployed = serve(pact, Loopback.of(pact, tmp_path), tmp_path / "server")
    assert np.isfinite(local.objective)
    pacts.assert_same(deployed, local, {})
