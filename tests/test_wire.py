"""`fedpact wire` for a privacy officer: words for every field, whom it reaches, what it reveals, bytes, at 80 columns."""

import dataclasses
import pathlib
import re
from typing import Any

import pacts
import pytest
from test_deploy import Loopback
from test_matching import PACT as MATCHED
from test_secure_sums import HESSIANS, with_keys
from typer.testing import CliRunner

from fedpact.cli import app
from fedpact.deploy import wire_words
from fedpact.deploy.message_list import COMBINED, MessageList, wire
from fedpact.deploy.server import serve
from fedpact.deploy.wire_notes import notes
from fedpact.deploy.wire_text import as_text, messages, totals
from fedpact.deploy.wire_words import DOWN, LABELS, NO_VALUES, STEPS, UP, reveals, words_for
from fedpact.engines.serialization import unpack
from fedpact.run.pact import Pact

runner = CliRunner()
CLEAR = ("front door", "InteriorPoint counting", "PersonalProjected")  # also with `privacy` None, "… in the clear"
CHECKED = "ProxAL Newton"  # also with the parties' keys, "… checked"
MORE = {
    "FedAvg with fewer steps later": pacts.PACTS["FedAvg"].replace("local_steps=3", "local_steps=[3, 2]"),
    "FedBCD in a box": pacts.PACTS["FedBCD"]
    .replace("fp.l2(0.01)", "fp.box(-1, 1)")
    .replace("FedBCD()", "FedBCD(step=0.1)"),
    "SSCA with surrogates": f"""{pacts.ROWS}
problem = free
own = fp.Surrogate(lambda w, rows: rows["x"], lambda q, w: q @ w["w"])
algorithm = fp.SSCA(10, surrogates={{"objective": own}})
""",
}


@pytest.fixture(scope="module")
def listings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, MessageList]:
    folder = tmp_path_factory.mktemp("pacts")
    found = {name: wire(Pact(pacts.written(folder, name))) for name in pacts.PACTS}
    for name, text in MORE.items():
        (folder / "more.py").write_text(text)
        found[name] = wire(Pact(folder / "more.py"))
    for name in CLEAR:
        pact = pacts.written(folder, name)
        pact.write_text(f"{pact.read_text()}\noptions = {{**globals().get('options', {{}}), 'privacy': None}}\n")
        found[f"{name} in the clear"] = wire(Pact(pact))
    with_keys(pacts.written(folder, CHECKED), folder)
    return {**found, f"{CHECKED} checked": wire(Pact(folder / "keys.py"))}


def test_every_field_of_every_method_has_words(listings: dict[str, MessageList]) -> None:
    used: set[str] = set()
    for name, listing in listings.items():
        for exchange in listing.exchanges:
            assert exchange.title in STEPS, f"{name}: what a party does in {exchange.title!r}"
            for layout, table in ((exchange.message, DOWN), (exchange.reply, UP)):
                for leaf in layout.leaves:
                    field = re.sub("|".join(map(re.escape, COMBINED)), "", leaf.name, count=1).lstrip(".")
                    words = words_for(field, exchange.title, table)
                    assert words is not None, f"{name}: {leaf.name} of {exchange.title}"
                    used.add(words)
    unused = {words for words in (*UP.values(), *DOWN.values()) if words not in used}
    assert not unused, "no method sends this any more"
    assert {key.split(": ")[-1] for key in LABELS | NO_VALUES} <= {key.split(": ")[-1] for key in {*UP, *DOWN}}


@pytest.mark.parametrize(
    ("kind", "plain", "secure"),
    [
        ("sum", "one party", "a sum over 3 parties"),
        ("max", "one party", "a power of two"),
        ("each", "one party", "one party"),
        ("answer", "all 3 parties together", "all 3 parties together"),
        ("labels", "one party", "one party"),
        ("no values", "nothing", "nothing"),
    ],
)
def test_what_is_revealed(kind: wire_words.Kind, plain: str, secure: str) -> None:
    assert (reveals(kind, False, 3), reveals(kind, True, 3)) == (plain, secure)
    assert reveals(kind, True, 1) in ("one party", "nothing"), "a sum over one party is that party's"


def test_it_fits_into_80_columns(listings: dict[str, MessageList]) -> None:
    for name, listing in listings.items():
        wide = [line for line in as_text(listing).splitlines() if len(line) > 80]
        assert not wide, name


def test_totals_are_of_the_messages(listings: dict[str, MessageList]) -> None:
    rows = {total.when: total for total in totals(listings["front door in the clear"])}
    assert (rows["in a round, at most"].down, rows["in a round, at most"].up) == (556, 5368)
    assert rows["in a round, at most"].together == 3 * (556 + 5368)
    assert rows["once, before the first round"].together == 3 * (248 + 760 + 512)
    listing = listings["FairVFL"]
    columns = {total.when: total for total in totals(listing)}["in a round, at most"]
    sent = [e for e in listing.exchanges if e.part == "round"]
    assert columns.together == sum((listing.down(e) + listing.up(e)) * e.asked for e in sent)
    assert columns.up == max(map(listing.up, sent)), "a party is active or passive, never both"


class Weighing(Loopback):
    """Bytes of the numbers that are sent, by exchange: down and up."""

    def ask(self, message: bytes, parties: Any, some: bool = False) -> dict[str, bytes]:
        answers = super().ask(message, parties, some)
        words, arrays = unpack(message)
        if words["kind"] == "step":
            sent = self.__dict__.setdefault("sent", {}).setdefault(words["exchange"], [])
            sizes = (sum(a.nbytes for a in each.values()) for each in (arrays, unpack(answers["west"])[1]))
            sent.append(tuple(sizes))
        return answers


def test_bytes_are_those_that_are_sent_where_points_are_checked(tmp_path: pathlib.Path) -> None:
    channel = Weighing(with_keys(pacts.written(tmp_path, "FedAvg"), tmp_path).sites)
    listing = wire(Pact(tmp_path / "keys.py"))
    assert (listing.secure, listing.checked, listing.keys) == (True, True, True)
    result = serve(tmp_path / "keys.py", channel, tmp_path / "server")
    sent = channel.__dict__["sent"]
    assert sent.keys() == {e.name for e in listing.exchanges}
    for exchange in listing.exchanges:
        down, up = (max(sizes) for sizes in zip(*sent[exchange.name], strict=True))
        assert (down, up) == (listing.down(exchange), listing.up(exchange)), exchange.name
    (in_a_round,) = [total for total in totals(listing) if total.when.startswith("in a round")]
    assert in_a_round.down * 3 * result.rounds == result.bytes_down
    assert in_a_round.up * 3 * result.rounds == result.bytes_up


def test_sums_that_are_told_are_those_of_the_largest_exchange_that_may_come_before(
    listings: dict[str, MessageList],
) -> None:
    plain, checked = listings[CHECKED], listings[f"{CHECKED} checked"]
    assert [checked.up(e) - plain.up(e) for e in plain.exchanges if plain.up(e)] == [8] * 5
    look, join, step, pull, keep, measure = checked.exchanges
    assert [checked.told(e) for e in (look, join, step, pull, keep, measure)] == [
        0,
        checked.up(look),
        checked.up(step),
        checked.up(step),
        checked.up(step),
        0,
    ], "the first has none before it, and the certificate comes after a reply without sums"


def test_labels_and_what_is_encrypted_are_told_apart(listings: dict[str, MessageList]) -> None:
    def to_parties(name: str, title: str) -> dict[str, str]:
        (message,) = [each for each in messages(listings[name]) if each.title == STEPS[title]]
        return {field.words: field.reveals for field in message.down.fields}

    assert to_parties("FairVFL", "passive")[DOWN["residuals"]] == "one party"
    assert to_parties("FairVFL", "active")[DOWN["point.embedding"]] == "all 3 parties together"
    assert to_parties("FairVFL encrypted", "multiply")[DOWN["encrypted_residuals"]] == "nothing"
    assert to_parties("FairVFL encrypted", "block_residual")[DOWN["block_residual: gradient"]] == "one party"


def test_what_the_server_learns_of_secure_sums(listings: dict[str, MessageList]) -> None:
    secure, clear = (as_text(listings[name]) for name in ("front door", "front door in the clear"))
    assert "reveals a sum over 3 parties:" in secure
    assert "reveals a power of two:" in secure
    assert "reveals a sum over" not in clear
    sent = {field.reveals for each in messages(listings["front door"])[2:-1] for field in each.up.fields}
    assert "one party" not in sent
    (holder,) = [each for each in messages(listings["FairVFL"]) if each.title == STEPS["active"]]
    assert {field.reveals for field in holder.up.fields} == {"one party"}, "there is one label holder"
    held = next(row for row in listings["FairVFL"].rows() if row[1:3] == ("active", "active parties"))
    assert "the server adds up: " in held[-1]
    (others,) = [each for each in messages(listings["FairVFL"]) if each.title == STEPS["passive"]]
    assert {field.reveals for field in others.up.fields} <= {"a sum over 2 parties", "a power of two"}


def test_words_on_top_say_what_protects_the_run(listings: dict[str, MessageList]) -> None:
    def top(name: str, **changed: Any) -> str:
        return " ".join(notes(dataclasses.replace(listings[name], **changed)))

    assert "not against one that puts its own keys in the parties' places" in top("front door")
    assert "Points are not checked" in top("front door")
    assert "a server that puts its own keys in the parties' places is refused" in top(f"{CHECKED} checked")
    assert "Points are checked" in top(f"{CHECKED} checked")
    assert "the server receives what each party says" in top("front door in the clear")
    for name in ("SCAFFOLD", "FairVFL encrypted"):
        assert "the server receives the reply of every party by itself" in top(name)
        assert "The pact says" not in top(name)
    text = " ".join(as_text(listings[f"{CHECKED} checked"]).split())
    assert "the sums of the last exchange, so that the party can check the point" in text
    assert "its public key for this run, signed with its own key" in text
    assert "a tag, by which parties know that sums are their own" in text
    assert "key for this run" not in as_text(listings["front door in the clear"])


def test_hessians_that_give_rows_away_are_told_before_the_run(tmp_path: pathlib.Path) -> None:
    pact = tmp_path / "pact.py"
    pact.write_text(HESSIANS.format(names=["north", "south"]))
    assert wire(Pact(pact)).warning.startswith(
        "This run would be refused: sums are in the clear, and rows of north, south"
    )
    pact.write_text(pact.read_text() + "options = {'privacy': None}\n")
    listing = wire(Pact(pact))
    assert listing.warning.startswith("Beware: rows of north, south could be read from two rounds' Hessians")
    assert listing.warning in notes(listing)


def test_messages_of_a_matching(tmp_path: pathlib.Path) -> None:
    pact = tmp_path / "pact.py"
    pact.write_text(MATCHED)
    told = messages(wire(Pact(pact)))
    assert [each.title for each in told[:4]] == [
        "count its ids",
        "blind its ids",
        "blind the others' ids",
        "keep the rows in common",
    ]
    assert [each.up.fields[0].reveals for each in told[:4]] == [
        "one party",
        "nothing",
        "how many ids parties share",
        "one party",
    ]
    text = as_text(wire(Pact(pact)))
    assert "32 bytes for each id, reveals nothing:" in text
    assert told[3].down.fields[0].reveals == "the ids that all parties have"


def test_the_command_prints_text_and_writes_a_page(tmp_path: pathlib.Path) -> None:
    pact, page = pacts.written(tmp_path, "front door"), tmp_path / "new" / "wire.html"
    done = runner.invoke(app, ["wire", str(pact)])
    assert done.exit_code == 0, done.output
    assert f"the pact's digest is {Pact(pact).digest}\n" in done.output
    assert re.search(r"the Hessian of its objective and its limits +496 numbers\n", done.output)
    written = runner.invoke(app, ["wire", str(pact), "--html", str(page)])
    assert written.exit_code == 0, written.output
    html = page.read_text()
    assert str(page) in written.output.replace("\n", "")
    assert "the Hessian of its objective and its limits <small>496 numbers</small>" in html
    assert '<span class="verdict">a sum over 3 parties</span>' in html
    assert "sums are secure against a server that looks" in html
    assert "http" not in html.replace("http-equiv", ""), "it loads nothing"
    assert "<script" not in html
