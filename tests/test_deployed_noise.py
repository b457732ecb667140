"""Differential privacy across organisations: every party draws its own noise, anew for each answer, and keeps account."""

import dataclasses
import json
import math
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pacts
import pytest
from test_deploy import Loopback
from test_secure_sums import with_keys

import fedpact as fp
from fedpact.deploy.message_list import wire
from fedpact.deploy.noise import OwnNoise
from fedpact.deploy.party import Site
from fedpact.deploy.policy import Policy
from fedpact.deploy.server import serve
from fedpact.deploy.wire_text import as_text
from fedpact.engines.remote import PartyLost
from fedpact.engines.serialization import Refused, pack, unpack
from fedpact.run.pact import Pact

ROUNDS = 5
PACT = (
    f"{pacts.ROWS}problem = pooled\nalgorithm = fp.PrimalDual(rounds={ROUNDS}, step=1.0)\n"
    "options = {'privacy': fp.DifferentialPrivacy(3.0, 1e-5, clip=4.0, summed=SUMMED)}\n"
)


def written(folder: pathlib.Path, source: str = PACT, summed: bool = True) -> pathlib.Path:
    file = folder / "pact.py"
    file.write_text(source.replace("SUMMED", str(summed)))
    return file


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Loopback, fp.Result, pathlib.Path, list[Any]]:
    folder = tmp_path_factory.mktemp("run")
    pact, heard = written(folder), []

    def listen(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        heard.append((party, message, unpack(answer)))
        return answer

    channel = Loopback.of(pact, folder, meddle=listen)
    result = serve(pact, channel, folder / "server")
    assert isinstance(result, fp.Result)
    return channel, result, folder, heard


def test_what_was_spent_is_told_and_kept(deployed: tuple[Loopback, fp.Result, pathlib.Path, list[Any]]) -> None:
    channel, result, folder, heard = deployed
    assert result.rounds == ROUNDS
    assert result.status == "max_rounds"
    assert result.privacy is not None
    assert result.privacy.epsilon == pytest.approx(3.0, rel=1e-6)
    assert "ε = 3 (δ = 1e-05) spent over 5 rounds" in str(result)
    assert "holds against those who see sums over the parties only" in str(result)
    assert result.secure, "shares of noise are added up in secret"
    saved = json.loads((folder / "server" / "privacy.json").read_text())
    assert fp.PrivacySpent(**saved) == result.privacy
    told = {name: json.loads((folder / name / "privacy.json").read_text()) for name in channel.sites}
    assert list(told.values()) == [{Pact(folder / "pact.py").digest: {"round": ROUNDS, "certificate": 1}}] * 3
    replies = [arrays for _, message, (_, arrays) in heard if "release" in str(unpack(message)[0].get("exchange"))]
    assert [set(arrays) for arrays in replies] == [{"sums"}] * (3 * ROUNDS)


def test_noise_is_never_used_twice(deployed: tuple[Loopback, fp.Result, pathlib.Path, list[Any]]) -> None:
    """A server that asks for the same version of the state again, at the same point, gets other noise, or nothing."""
    channel, _, _, heard = deployed
    party, message, _ = next(each for each in heard if "release" in str(unpack(each[1])[0].get("exchange")))
    site = channel.sites[party]
    assert site.run is not None
    words, arrays = unpack(message)
    again = {**words, "number": site.run.last + 1, "versions": dict.fromkeys(channel.sites, -1)}
    refused = unpack(site.answer(pack(again, arrays)))[0]["refused"]
    assert f"it has told {ROUNDS} noisy answers for a round in this run" in refused
    noise = site.run.noise
    assert noise is not None
    noise.told.clear()
    one, other = (np.asarray(noise.fresh(site.run.own, "round").noise) for _ in range(2))
    assert not np.intersect1d(one, other).size
    assert noise.fresh(site.run.own, "end") is site.run.own
    assert np.isnan(np.asarray(site.run.own.noise)).all(), "what is kept holds none"


Maker = Callable[..., OwnNoise]


@pytest.fixture
def made(deployed: tuple[Loopback, fp.Result, pathlib.Path, list[Any]], tmp_path: pathlib.Path) -> Maker:
    """Makes a party's noise for a run of a pact with this digest, in one folder."""
    run = deployed[0].sites["north"].run
    assert run is not None
    assert run.noise is not None
    private, bound = run.noise.private, run.bound
    return lambda policy, digest="digest": OwnNoise(private, bound, tmp_path, digest, policy)


def test_shares_have_the_noise_that_is_accounted(made: Maker) -> None:
    """Of three shares, 1/3 of the variance each; the certificate's is √10 times smaller."""
    own = made(Policy())
    expected, many = own.multiplier * 4.0 / 180 / math.sqrt(3), (20_000,)
    alone = dataclasses.replace(own.private.privacy, summed=False)
    for privacy, last, deviation in (
        (own.private.privacy, False, expected),
        (own.private.privacy, True, expected / math.sqrt(10)),
        (alone, False, expected * math.sqrt(3)),
    ):
        drawn = privacy.drawn_once(own.multiplier, own.rows, own.parties, many, last)
        assert np.std(drawn) == pytest.approx(deviation, rel=6 / math.sqrt(2 * many[0]))


def test_all_runs_of_a_pact_are_accounted_together(
    made: Maker, deployed: tuple[Loopback, fp.Result, pathlib.Path, list[Any]]
) -> None:
    run = deployed[0].sites["north"].run
    assert run is not None
    strict = Policy(max_epsilon=3.0)
    first = made(strict)
    for _ in range(ROUNDS):
        first.fresh(run.own, "round")
    first.fresh(run.own, "certificate")
    with pytest.raises(Refused, match="as many as its noise is planned for"):
        first.fresh(run.own, "certificate")
    with pytest.raises(
        Refused, match="its policy allows ε = 3 over all runs of this pact, and with this answer it would"
    ):
        made(strict)
    made(strict, "of another pact")
    made(Policy(max_epsilon=6.0)).fresh(run.own, "round")


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ("max_epsilon = 2", "its policy allows ε = 2 at a δ of 1e-05, and the pact has ε = 3 at 1e-05"),
        ("max_epsilon = 3.0\nmax_delta = 1e-6", "at a δ of 1e-06"),
        ("min_noise = 100", "its policy demands a noise multiplier of 100, and the pact's is"),
        ("secure_summation = true", "its policy demands secure sums, and the pact has no `keys`"),
    ],
)
def test_noise_that_a_policy_refuses(policy: str, told: str, tmp_path: pathlib.Path) -> None:
    pact = written(tmp_path)
    channel = Loopback.of(pact, tmp_path)
    (tmp_path / "policy.toml").write_text(policy)
    channel.sites["west"] = Site(pact, "west", tmp_path / "west", tmp_path / "policy.toml")
    with pytest.raises(PartyLost, match=f"party 'west': it refuses: .*{told}"):
        serve(pact, channel, tmp_path / "server")
    without = tmp_path / "without.py"
    without.write_text(f"{pacts.ROWS}problem = pooled\nalgorithm = fp.PrimalDual()\n")
    if "secure" not in policy:
        channel = Loopback.of(without, tmp_path)
        channel.sites["west"] = Site(without, "west", tmp_path / "west", tmp_path / "policy.toml")
        with pytest.raises(PartyLost, match="its policy demands noise, and the pact has none"):
            serve(without, channel, tmp_path / "other")


def test_a_policy_says_what_is_no_number(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "policy.toml"
    for wrong in ("-1.0", "0", "true", "'3'", "inf"):
        file.write_text(f"max_epsilon = {wrong}\n")
        with pytest.raises(ValueError, match=r"max_epsilon = .* should be a number above 0"):
            Policy.read(file)


def test_points_are_checked_behind_noise_too(tmp_path: pathlib.Path) -> None:
    """Where the pact has keys: every party computes the next point from the noisy sums."""
    channel = with_keys(written(tmp_path), tmp_path, "secure_summation = true\n")
    assert Pact(tmp_path / "keys.py").checks_points
    result = serve(tmp_path / "keys.py", channel, tmp_path / "server")
    assert isinstance(result, fp.Result)
    assert result.rounds == ROUNDS
    assert all(site.run is not None and site.run.follower is not None for site in channel.sites.values())


def test_each_party_adds_all_of_the_noise_where_sums_are_in_the_clear(tmp_path: pathlib.Path) -> None:
    pact = written(tmp_path, summed=False)
    assert not Pact(pact).is_secure
    result = serve(pact, Loopback.of(pact, tmp_path), tmp_path / "server")
    assert isinstance(result, fp.Result)
    assert result.privacy is not None
    assert not result.privacy.summed
    with pytest.raises(ValueError, match="holds a run with noise, whose rounds would be told, and accounted, twice"):
        serve(pact, Loopback.of(pact, tmp_path), tmp_path / "server", resume=True)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("options['privacy'] = fp.DifferentialPrivacy(3.0, 1e-5, clip=4.0, seed=1)\n", "could subtract the noise"),
        ("algorithm = fp.InteriorPoint()\n", "InteriorPoint sends numbers on which one row has no bounded influence"),
        ("problem = limited\n", "constraints are over all rows"),
    ],
)
def test_what_cannot_be_accounted_is_refused(change: str, told: str, tmp_path: pathlib.Path) -> None:
    pact = written(tmp_path, PACT + change)
    with pytest.raises(ValueError, match=told):
        serve(pact, Loopback.of(pact, tmp_path), tmp_path / "server")


def test_counts_without_noise_are_refused(tmp_path: pathlib.Path) -> None:
    for more in ("evaluate = {'label': 'y'}\n", "promise = {'ranges': {'missed': (0, 9)}}\n"):
        with pytest.raises(ValueError, match="counts rows without noise"):
            Pact(written(tmp_path, PACT + more))


def test_the_list_of_messages_tells_of_noise(tmp_path: pathlib.Path) -> None:
    text = " ".join(as_text(wire(Pact(written(tmp_path)))).split())
    assert "a run is differentially private with ε = 3 at δ = 1e-05" in text
    assert "on its own rows, clipped and with noise" in text
