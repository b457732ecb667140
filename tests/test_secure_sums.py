"""Secure sums: the same answers, nothing of single parties, keys that are the parties' own, and what is refused."""

import pathlib
from typing import Any

import numpy as np
import pacts
import pytest
from test_deploy import Loopback, Server

import fedpact as fp
from fedpact.deploy.party import Site
from fedpact.deploy.server import serve
from fedpact.engines.exchanges import ExchangePlan
from fedpact.engines.remote import PartyLost
from fedpact.engines.sealing import added, opened, sealed, sealed_layout
from fedpact.engines.serialization import Layout, pack, unpack
from fedpact.engines.summing import opened_sums, sealed_sums, sealed_sums_layout
from fedpact.privacy.masks import Masks, SessionKey, SigningKey, check_told, transcript_of
from fedpact.protocol import Reply
from fedpact.run.pact import Pact
from fedpact.sums import exact_sum

NAMES = ("north", "south", "west")
LOSS = fp.logistic_loss(fp.linear(bias=True))


@pytest.fixture(scope="module")
def small() -> tuple[fp.Problem, fp.Parties]:
    data = fp.datasets.breast_cancer()[:180]
    data = fp.Table(x=data["x"][:, :4], y=data["y"])
    missed = (fp.mean(LOSS, where=fp.col("y") == 1) <= 0.3).named("missed")
    pooled = (fp.mean(LOSS, where=fp.col("y") == 0).pooled() <= 0.4).named("alarms")
    problem = fp.minimize(fp.mean(LOSS), [missed, pooled], fp.l2(1e-2))
    return problem, fp.split_rows(data, parties=list(NAMES), seed=7)


@pytest.fixture(scope="module")
def both(small: tuple[fp.Problem, fp.Parties]) -> tuple[fp.Result, fp.Result]:
    plain = fp.solve(*small, tolerance=1e-8)
    return plain, fp.solve(*small, tolerance=1e-8, privacy=fp.SecureAggregation())


# in one process


def test_the_answer_is_that_of_sums_in_the_clear(both: tuple[fp.Result, fp.Result]) -> None:
    plain, secure = both
    assert secure.converged
    assert abs(secure.rounds - plain.rounds) <= 2
    assert secure.objective == pytest.approx(plain.objective, rel=1e-9)
    for name in ("w", "b"):
        np.testing.assert_allclose(secure.params[name], plain.params[name], rtol=1e-6, atol=1e-8)


def test_a_certificate_says_that_a_constraint_holds_everywhere_and_no_more(both: tuple[fp.Result, fp.Result]) -> None:
    plain, secure = both
    report = secure.constraint("missed")
    assert report.hidden
    assert report.holders == ("every party",)
    assert np.isnan(report.values).all()
    assert report.multipliers[0] == pytest.approx(sum(plain.constraint("missed").multipliers), rel=1e-4)
    assert report.violations[0] >= max(plain.constraint("missed").violations) - 1e-8
    assert np.isnan(secure.certificate.party_multipliers).all()
    told = secure.constraint("alarms")
    assert not told.hidden
    assert told.values[0] == pytest.approx(plain.constraint("alarms").values[0], abs=1e-7)
    assert "at each party: holds" in str(secure)
    assert "values are hidden" in str(secure)
    assert secure.certificate.feasibility >= plain.certificate.feasibility - 1e-8


def test_the_page_says_hidden(both: tuple[fp.Result, fp.Result], tmp_path: pathlib.Path) -> None:
    page = both[1].report(tmp_path / "page.html").read_text()
    assert "hidden" in page
    assert "nan" not in page.lower().replace("nanosecond", "")


def test_a_violation_is_never_told_smaller_than_it_is(small: tuple[fp.Problem, fp.Parties]) -> None:
    problem, parties = small
    plain = fp.solve(problem, parties, max_rounds=3)
    secure = fp.solve(problem, parties, max_rounds=3, privacy=fp.SecureAggregation())
    seen, most = secure.constraint("missed"), max(plain.constraint("missed").violations)
    assert seen.violations[0] == pytest.approx(2.0 ** np.ceil(np.log2(most)), rel=1e-6) or most == 0


def test_by_consent_values_are_told(small: tuple[fp.Problem, fp.Parties], both: tuple[fp.Result, fp.Result]) -> None:
    told = fp.solve(*small, tolerance=1e-8, privacy=fp.SecureAggregation(), disclose=True)
    report, plain = told.constraint("missed"), both[0].constraint("missed")
    assert not report.hidden
    np.testing.assert_allclose(report.values, plain.values, atol=1e-7)


def test_counted_limits_beside_limits_on_losses_over_all_rows(small: tuple[fp.Problem, fp.Parties]) -> None:
    problem, parties = small
    found = fp.mean(fp.decisions(fp.linear(bias=True)), where=fp.col("y") == 1)
    loss = problem.objective.pooled()
    limits = [found >= 0.9, loss <= 0.5, loss - found.pooled() <= -0.5]
    plain, secure = (
        fp.solve(fp.minimize(problem.objective, limits, fp.l2(1e-2)), parties, privacy=privacy)
        for privacy in (None, fp.SecureAggregation())
    )
    assert secure.converged
    np.testing.assert_allclose(secure.params["w"], plain.params["w"], atol=1e-6)


def test_a_saved_run_is_verified_and_resumed_to_the_bit(
    small: tuple[fp.Problem, fp.Parties], both: tuple[fp.Result, fp.Result], tmp_path: pathlib.Path
) -> None:
    problem, parties = small
    options: dict[str, Any] = {"tolerance": 1e-8, "privacy": fp.SecureAggregation()}
    fp.solve(problem, parties, save=tmp_path / "run", max_rounds=4, **options)
    with pytest.raises(ValueError, match="secure"):
        fp.solve(problem, parties, save=tmp_path / "run", resume=True, tolerance=1e-8, disclose=False)
    resumed = fp.solve(problem, parties, save=tmp_path / "run", resume=True, **options)
    np.testing.assert_array_equal(resumed.params["w"], both[1].params["w"])
    assert fp.verify(tmp_path / "run", problem, parties, tolerance=1e-7).ok


def test_a_party_whose_numbers_are_not_finite_spoils_the_sum(small: tuple[fp.Problem, fp.Parties]) -> None:
    result = fp.solve(*small, fp.ProxAL(fp.LBFGS()), start={"w": np.full(4, 1e200), "b": np.zeros(())},
                      privacy=fp.SecureAggregation(), max_rounds=3)  # fmt: skip
    assert not result.converged


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"parties": 2}, "at least 3"),
        ({"engine": fp.Mesh()}, "adds up in the clear"),
    ],
)
def test_what_cannot_be_summed_in_secret_says_so(
    more: dict[str, Any], told: str, small: tuple[fp.Problem, fp.Parties]
) -> None:
    problem, parties = small
    if "parties" in more:
        parties = fp.split_rows({name: parties[name] for name in NAMES[: more.pop("parties")]})
    with pytest.raises(ValueError, match=told):
        fp.solve(problem, parties, privacy=fp.SecureAggregation(), **more)


def test_replies_side_by_side_cannot_be_summed() -> None:
    rng = np.random.default_rng(0)
    tables = {
        "a": fp.Table(x=rng.normal(size=(40, 2)), y=rng.integers(0, 2, 40)),
        "b": fp.Table(x=rng.normal(size=(40, 1))),
        "c": fp.Table(x=rng.normal(size=(40, 1))),
    }
    columns = fp.split_columns(tables, active=["a"])
    model = fp.split_model(bottom=lambda width: fp.linear(bias=False), combine="concat", top=fp.linear(bias=True))
    problem = fp.minimize(fp.mean(fp.logistic_loss(model)))
    with pytest.raises(ValueError, match="one by one"):
        fp.solve(problem, columns, fp.FairVFL(), privacy=fp.SecureAggregation())


# masks


def sessions(names: tuple[str, ...] = NAMES) -> dict[str, Masks]:
    keys = {name: SessionKey("run", "session", name) for name in names}
    told = {name: key.signed(None, "digest") for name, key in keys.items()}
    return {name: Masks(name, key.pairs(told, transcript_of(told))) for name, key in keys.items()}


LAYOUT = Layout.of(Reply(sum={"a": np.zeros(3), "n": np.zeros((), np.int64)}, max={"b": np.zeros(2)}))


def reply(k: int) -> dict[str, np.ndarray]:
    return LAYOUT.by_name(
        Reply(sum={"a": np.arange(3) * 0.1 + k, "n": np.asarray(k)}, max={"b": np.array([0.3 * k, 0.0])})
    )


def test_masks_cancel_over_all_and_over_nobody_else() -> None:
    masks = sessions()
    sent = {n: sealed(LAYOUT, reply(k), m, NAMES, 5, b"digest") for k, (n, m) in enumerate(masks.items())}
    for arrays in sent.values():
        sealed_layout(LAYOUT).check(arrays)
    total, finite = opened(LAYOUT, added(list(sent.values())))
    assert finite
    np.testing.assert_allclose(total[".sum['a']"], 3 * np.arange(3) * 0.1 + 3, rtol=1e-15)
    assert total[".sum['n']"] == 3
    np.testing.assert_array_equal(total[".max['b']"], [1.0, 0.0])
    _, finite = opened(LAYOUT, added([sent["north"], sent["south"]]))
    assert not finite, "without west nothing can be read"


def test_sums_outside_of_rounds_are_exact_whatever_their_size() -> None:
    """As `math.fsum` rounds them, from 1e-25 to 1e27, also where large ones cancel."""
    masks, rng = sessions(), np.random.default_rng(0)
    specs = {"a": ((40,), "f"), "n": ((2, 2), "i")}
    own = {
        name: {"a": rng.normal(size=40) * 10.0 ** rng.integers(-25, 28, 40), "n": rng.integers(-(2**40), 2**40, (2, 2))}
        for name in NAMES
    }
    own["north"]["a"][:10] = -own["south"]["a"][:10]
    sent = [sealed_sums(own[name], masks[name], NAMES, b"digest", {"least": np.ones(2)}) for name in NAMES]
    for arrays in sent:
        sealed_sums_layout(specs, {"least": ((2,), "f")}).check(arrays)
    total = opened_sums(specs, sent)
    assert total is not None
    for name, sums in total.items():
        np.testing.assert_array_equal(sums, exact_sum([each[name] for each in own.values()]))
    assert opened_sums(specs, sent[:2]) is None, "without west nothing can be read"
    own["west"]["a"][3] = np.inf
    sent[2] = sealed_sums(own["west"], masks["west"], NAMES, b"digest")
    assert opened_sums(specs, sent) is None


def test_a_reply_looks_random_whatever_it_says() -> None:
    masks = sessions()["north"]
    bits = [
        np.unpackbits(sealed(LAYOUT, reply(k), masks, NAMES, number, b"")[part].view(np.uint8))
        for part in ("sums",)
        for k in (0, 1)
        for number in range(400)
    ]
    share = np.concatenate(bits).mean()
    assert abs(share - 0.5) < 6 * 0.5 / np.sqrt(sum(b.size for b in bits))
    rungs = np.stack([sealed(LAYOUT, reply(1), masks, NAMES, number, b"")["maxima"] for number in range(400)])
    shares = (rungs / 2.0**61).mean(axis=0)  # uniform below a prime, on lit rungs and on dark ones
    assert (abs(shares - 0.5) < 6 * np.sqrt(1 / 12 / 400)).all()
    again = sealed(LAYOUT, reply(1), masks, NAMES, 3, b"")["sums"]
    np.testing.assert_array_equal(again, sealed(LAYOUT, reply(1), masks, NAMES, 3, b"")["sums"])
    for number, message in ((4, b""), (3, b"other")):
        assert not np.array_equal(again, sealed(LAYOUT, reply(1), masks, NAMES, number, message)["sums"])


def test_parties_that_were_asked_different_things_cannot_be_added_up() -> None:
    masks = sessions()
    sent = [sealed(LAYOUT, reply(1), m, NAMES, 5, b"other" if n == "west" else b"same") for n, m in masks.items()]
    assert not opened(LAYOUT, added(sent))[1]


def test_numbers_that_are_not_finite_leave_no_trace_but_one() -> None:
    masks = sessions()
    bad = {**reply(1), ".sum['a']": np.array([np.nan, 1.0, 2.0])}
    sent = [sealed(LAYOUT, bad if n == "west" else reply(1), m, NAMES, 5, b"") for n, m in masks.items()]
    total, finite = opened(LAYOUT, added(sent))
    assert not finite
    assert np.isnan(total[".sum['a']"]).all()


# keys


def test_a_session_key_has_to_be_signed_by_the_party_that_the_pact_names() -> None:
    own = {name: SigningKey.new() for name in NAMES}
    known = {name: key.public for name, key in own.items()}
    told = {name: SessionKey("run", "session", name).signed(own[name], "digest") for name in NAMES}
    check_told(told, NAMES, "run", "session", "digest", known)
    for changed, why in (
        ({"west": SessionKey("run", "session", "west").signed(own["south"], "digest")}, "not signed"),
        ({"west": SessionKey("run", "session", "west").signed(None, "digest")}, "not signed"),
        ({"west": {"key": "short"}}, "no key"),
        ({"west": told["south"]}, "not signed"),
    ):
        with pytest.raises(ValueError, match=why):
            check_told(told | changed, NAMES, "run", "session", "digest", known)
    for run, session, digest in (("x", "session", "digest"), ("run", "x", "digest"), ("run", "session", "x")):
        with pytest.raises(ValueError, match="not signed"):
            check_told(told, NAMES, run, session, digest, known)
    with pytest.raises(ValueError, match="same key"):
        check_told(told | {"west": told["south"]}, NAMES, "run", "session", "digest", None)
    with pytest.raises(ValueError, match="are not those of the pact"):
        check_told({**told, "more": told["west"]}, NAMES, "run", "session", "digest", None)


def test_a_key_is_a_file_of_its_owners(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "keys" / "own.key"
    key = SigningKey.new()
    key.save(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert SigningKey.read(file).public == key.public
    with pytest.raises(FileExistsError):
        key.save(file)
    file.chmod(0o644)
    with pytest.raises(ValueError, match="chmod 600"):
        SigningKey.read(file)
    other = tmp_path / "junk"
    other.write_text("junk")
    other.chmod(0o600)
    with pytest.raises(ValueError, match="holds no key"):
        SigningKey.read(other)


def test_the_command_makes_a_key_and_shows_it_again(tmp_path: pathlib.Path) -> None:
    from typer.testing import CliRunner

    from fedpact.cli import app

    first, again = (CliRunner().invoke(app, ["keys", str(tmp_path / "own.key")]) for _ in range(2))
    assert first.exit_code == again.exit_code == 0
    assert "is new" in first.output
    assert "was there already" in again.output
    assert (
        first.output.splitlines()[-1] == again.output.splitlines()[-1] == SigningKey.read(tmp_path / "own.key").public
    )


# across organisations


def test_the_readme_of_a_kit_says_what_the_server_can_read() -> None:
    from fedpact.deploy.flare.readme import readme_text

    text = readme_text(pathlib.Path("pact.py"), NAMES, "host:8002", pathlib.Path("jobs"), 600, 60, 2)
    assert "sums are secure unless the pact says otherwise" in text
    assert "In `local/policy.toml` of a party: `secure_summation = true` (default false)" in text
    assert '`options = {"privacy": None}` in the pact means that the server receives what each party says' in text


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, fp.Result]:
    pact = pacts.written(tmp_path_factory.mktemp("pact"), "FedAvg")
    return pact, Pact(pact).run(Pact(pact).tables())


POLICY = "secure_summation = true\nsecret_batches = false\n"


def with_keys(pact: pathlib.Path, folder: pathlib.Path, policy: str = POLICY) -> Loopback:
    """A copy of a pact with the parties' keys, and sites that have them."""
    own = {name: SigningKey.new() for name in NAMES}
    stated = folder / "keys.py"
    stated.write_text(f"{pact.read_text()}\nkeys = { ({name: key.public for name, key in own.items()})!r}\n")
    sites = {}
    for name, key in own.items():
        key.save(folder / name / "own.key")
        file = folder / name / "policy.toml"
        file.write_text(f'{policy}signing_key = "own.key"\n')
        sites[name] = Site(stated, name, folder / name / "state", file)
    return Loopback(sites)


def test_sums_are_secure_unless_the_pact_says_otherwise(quick: tuple[pathlib.Path, fp.Result]) -> None:
    pact, _ = quick
    assert Pact(pact).is_secure
    clear = pact.with_name("clear.py")
    clear.write_text(pact.read_text() + "options['privacy'] = None\n")
    assert not Pact(clear).is_secure
    assert Pact(clear).digest != Pact(pact).digest
    for name in ("SCAFFOLD", "FairVFL encrypted"):
        assert not Pact(pacts.written(pact.parent, name)).is_secure, name


def test_a_party_that_demands_secure_sums_takes_part_where_keys_are_known(
    quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path
) -> None:
    channel = with_keys(quick[0], tmp_path)
    result = serve(tmp_path / "keys.py", channel, tmp_path / "server")
    np.testing.assert_allclose(result.params["w"], quick[1].params["w"], rtol=0, atol=1e-12)
    rounds, parties, tag = quick[1].rounds, len(NAMES), 8
    assert result.bytes_up == quick[1].bytes_up + rounds * parties * tag, "where keys are known, points are checked"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("keys = None\n", "has no `keys` of the parties"),
        ("options['privacy'] = None\n", "adds up in the clear"),
        ("options['disclose'] = True\n", "one by one"),
    ],
)
def test_a_party_that_demands_secure_sums_refuses_the_rest(
    change: str, told: str, quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path
) -> None:
    with_keys(quick[0], tmp_path)
    file = tmp_path / "keys.py"
    file.write_text(file.read_text() + change)
    site = Site(file, "south", tmp_path / "state", tmp_path / "south" / "policy.toml")
    assert told in Server(site).says("hello")["refused"]


def test_a_party_without_its_key_or_with_another_takes_no_part(
    quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path
) -> None:
    with_keys(quick[0], tmp_path)
    (tmp_path / "south" / "own.key").unlink()
    site = Site(tmp_path / "keys.py", "south", tmp_path / "state", tmp_path / "south" / "policy.toml")
    assert "no key to sign with" in Server(site).says("hello")["refused"]
    SigningKey.new().save(tmp_path / "south" / "own.key")
    assert "another than the one that the pact names" in Server(site).says("hello")["refused"]


def test_a_server_that_puts_its_own_key_in_a_partys_place_is_refused(
    quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path
) -> None:
    channel = with_keys(quick[0], tmp_path)

    def meddle(number: int, party: str, message: bytes, answer: bytes) -> bytes:
        words, arrays = unpack(answer)
        if party == "west" and "session_key" in words:
            words["session_key"] = SessionKey(words["run"], words["session"], "west").signed(None, "")
            return pack(words, arrays)
        return answer

    channel.meddle = meddle
    with pytest.raises(PartyLost, match="not signed with its key in the pact"):
        serve(tmp_path / "keys.py", channel, tmp_path / "server")


def test_a_party_sees_that_its_own_key_was_replaced(
    quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path
) -> None:
    site = Site(quick[0], "south", tmp_path / "south")
    server = Server(site)
    described = server.described()
    told = {name: SessionKey("0" * 16, "1" * 16, name).signed(None, "") for name in NAMES}
    assert (
        "its own key for this session was replaced" in server.says("meet", descriptions=described, keys=told)["refused"]
    )
    assert "not those of the pact" in server.says("meet", descriptions=described)["refused"]


def test_a_lost_party_ends_the_run_which_is_resumed(
    quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedpact.run import loop

    monkeypatch.setattr(loop, "SAVE_SECONDS", 0.0)
    pact, undisturbed = quick
    channel = Loopback.of(pact, tmp_path, away=lambda number, party: party == "west" and number == 9)
    with pytest.raises(PartyLost, match="stays away"):
        serve(pact, channel, tmp_path / "server")
    resumed = serve(pact, Loopback.of(pact, tmp_path), tmp_path / "server", resume=True)
    np.testing.assert_allclose(resumed.params["w"], undisturbed.params["w"], rtol=0, atol=1e-12)
    assert resumed.rounds == undisturbed.rounds


def test_a_run_that_diverges_says_that_nobody_knows_whose_numbers_did(
    quick: tuple[pathlib.Path, fp.Result], tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    pact = tmp_path / "pact.py"
    pact.write_text(quick[0].read_text().replace("step=0.1", "step=1e200"))
    deployed = serve(pact, Loopback.of(pact, tmp_path), tmp_path / "server")
    assert deployed.status == "diverged"
    assert "secure sums hide whose" in deployed.message
    assert "its numbers in" in caplog.text, "the party's own log says so"


HESSIANS = """
import fedpact as fp
parties = {names}
loss = fp.logistic_loss(fp.linear(bias=True))
problem = fp.minimize(fp.mean(loss), regularizer=fp.l2(1e-2))
algorithm = fp.InteriorPoint()


def load(party):
    data = fp.datasets.breast_cancer()[:120]
    return fp.split_rows(data, parties=parties, seed=7)[party]
"""


def test_hessians_that_give_rows_away_are_refused_in_the_clear(tmp_path: pathlib.Path) -> None:
    pact = tmp_path / "pact.py"
    pact.write_text(HESSIANS.format(names=["north", "south"]))
    with pytest.raises(ValueError, match="could be read from two rounds' Hessians"):
        serve(pact, Loopback.of(pact, tmp_path), tmp_path / "server")
    site = Site(pact, "south", tmp_path / "alone")
    server = Server(site)
    assert "two rounds' Hessians" in server.says("meet", descriptions=server.described(), resume=None)["refused"]
    pact.write_text(HESSIANS.format(names=["north", "south"]) + "options = {'privacy': None}\n")
    server = Server(Site(pact, "south", tmp_path / "other"))
    assert "plan" in server.says("meet", descriptions=server.described(), resume=None)
    pact.write_text(HESSIANS.format(names=["north", "south", "west"]))
    assert Pact(pact).is_secure


def test_every_reply_of_every_method_can_be_summed(tmp_path: pathlib.Path) -> None:
    """All pacts but two are secure by default, so on every engine; no exchange has replies that the server wants one by one."""
    clear = ["FairVFL encrypted", "SCAFFOLD"]  # its parties may miss rounds: test_drop_outs.py
    assert sorted(name for name in pacts.PACTS if not Pact(pacts.written(tmp_path, name)).is_secure) == clear
    for name in pacts.PACTS:
        pact = Pact(pacts.written(tmp_path, name))
        if name in clear:
            continue
        bound = pact.bind(pact.tables())
        plan = ExchangePlan.of(pact.method_for(bound.setting), bound)
        apart = [
            e.name for e in plan.exchanges.values() for leaf in e.reply.leaves if leaf.name.startswith(".per_party")
        ]
        assert not apart, (name, apart)
