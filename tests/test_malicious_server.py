"""What a server that does not keep to the protocol gets out of a party, and the words with which the party refuses."""

import hashlib
import pathlib
import tracemalloc

import malicious
import numpy as np
import pacts
import pytest
from malicious import MaliciousServer, Refusal, found

from fedpact.deploy.party import Site
from fedpact.deploy.row_sets import admit_row_sets, sets_held_out
from fedpact.engines.serialization import Refused
from fedpact.run.pact import Pact
from fedpact.run.pact_files import pact_files


def site(pact: pathlib.Path, folder: pathlib.Path, policy: str | None = None) -> Site:
    """Of the party south, with a policy."""
    if policy is None:
        return Site(pact, "south", folder / "south")
    (folder / "policy.toml").write_text(policy)
    return Site(pact, "south", folder / "south", folder / "policy.toml")


def true_rows(own: Site) -> np.ndarray:
    return own.pact.load("south")["x"]


# batches


@pytest.mark.parametrize(("policy", "read"), [("secret_batches = false", 60), ("min_rows = 20", 0)])
def test_keys_that_the_server_chooses_tell_no_rows_of_a_batch(policy: str, read: int, tmp_path: pathlib.Path) -> None:
    own = site(malicious.written(tmp_path, batch=20), tmp_path, policy)
    server = MaliciousServer(own)
    rows = malicious.rows_by_chosen_keys(server.gradient_on_a_batch, place=1, batch=20)
    assert found(rows, true_rows(own)) == read


def test_the_secret_of_a_partys_batches_is_its_own_and_lasts(tmp_path: pathlib.Path) -> None:
    pact = malicious.written(tmp_path, batch=20)
    key, w = np.array([1, 2], np.uint32), np.zeros(5)
    answers = [MaliciousServer(site(pact, tmp_path), run).gradient_on_a_batch(w, key) for run in ("a" * 16, "b" * 16)]
    np.testing.assert_array_equal(answers[0], answers[1])  # in another run and another process, the same rows
    secret = tmp_path / "south" / "batch_secret"
    assert (secret.stat().st_mode & 0o777, len(secret.read_bytes())) == (0o600, 32)
    secret.unlink()
    assert np.abs(MaliciousServer(site(pact, tmp_path), "c" * 16).gradient_on_a_batch(w, key) - answers[0]).max() > 1e-6
    secret.write_bytes(b"short")
    with pytest.raises(Refusal, match="its process failed"):
        MaliciousServer(site(pact, tmp_path), "d" * 16).gradient_on_a_batch(w, key)


# rounds


def test_chosen_points_tell_every_row_of_a_party_without_limits_and_fewer_than_its_rounds_with(
    tmp_path: pathlib.Path,
) -> None:
    """Only whoever checks the points stops this; the policy's rounds, counted for the pact, say how far it comes."""
    pact = malicious.written(tmp_path, batch=60)
    free = site(pact, tmp_path, "min_rows = 20")
    assert found(malicious.rows_by_chosen_points(MaliciousServer(free).gradient), true_rows(free)) == 60
    (tmp_path / "limited").mkdir()
    limited = site(pact, tmp_path / "limited", "min_rows = 20\nmax_rounds = 25")
    asked, server = 0, MaliciousServer(limited)

    def in_many_runs(w: np.ndarray) -> np.ndarray:
        nonlocal asked, server
        asked += 1
        if asked % 10 == 0:
            server = MaliciousServer(limited, f"{asked:016x}")
        return server.gradient(w)

    rows = malicious.rows_by_chosen_points(in_many_runs)
    assert asked == 26
    assert 0 < found(rows, true_rows(limited)) < 25
    with pytest.raises(Refusal, match="allows 25 rounds of this pact over all runs, and this is round 26"):
        MaliciousServer(site(pact, tmp_path / "limited", "max_rounds = 25"), "f" * 16).gradient(np.full(5, 0.125))


# differences of means

MEANS = """
import fedpact as fp
import jax.numpy as jnp
import numpy as np

parties = ["north", "south", "west"]
model = fp.linear(bias=True)
loss = fp.logistic_loss(model)
options = {"privacy": None}


def load(party):
    data = fp.datasets.breast_cancer()[:180]
    table = fp.split_rows(fp.Table(x=data["x"][:, :4], y=data["y"]), parties=parties, seed=7)[party]
    return table.with_columns(row=np.arange(60), half=np.arange(60) % 2)


def one_row(w, rows):
    return jnp.where(rows["row"] == 5, rows["x"] @ w["w"], 1.0)


def all_rows(w, rows):
    return rows["x"] @ w["w"]


def all_but_one(w, rows):
    return jnp.where(rows["row"] != 5, all_rows(w, rows), 0.0)


half = fp.col("half") == 1


def one_row_in_a_value(w, rows):
    return jnp.sum(one_row(w, rows))


def spread(w, rows):
    return jnp.var(rows["x"] @ w["w"])


def number_of_a_row(w, rows):
    return jnp.where(rows["row"] == 5, rows["half"], 0).sum().astype(float)


def stated(*means):
    return fp.minimize(fp.mean(loss) + sum(means[1:], means[0]), regularizer=fp.l2(1e-2))


algorithm = fp.InteriorPoint()
"""


FEW, SAME, UNKNOWN = (
    "is over fewer of its rows than the 20",
    "are over the same of its rows but for fewer",
    "cannot be told",
)


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        ('stated(fp.mean(loss, where=fp.col("row") != 5))', rf"mean\(.*\) and mean\(.* \| row != 5\) {SAME}"),
        ('stated(fp.mean(loss, where=fp.col("row") < 30), fp.mean(loss, where=fp.col("row") < 29))', SAME),
        ("stated(fp.mean(one_row))", rf"mean\(one_row\) {FEW}"),
        ("stated(fp.mean(all_but_one))", SAME),
        ("stated(fp.value(one_row_in_a_value))", rf"value\(one_row_in_a_value\) {FEW}"),
        (
            "stated(fp.value(number_of_a_row))",
            rf"value\(number_of_a_row\) reads its table, and of which rows {UNKNOWN}",
        ),
        ('stated(fp.mean(loss, where=fp.col("half") == 1))\nevaluate = {"label": "y", "group": "row"}', None),
        ("stated(fp.mean(loss, where=half), fp.mean(all_rows), fp.value(spread), fp.value(fp.squared_norm))", None),
    ],
)
def test_means_whose_difference_is_a_few_rows_are_refused(
    problem: str, told: str | None, tmp_path: pathlib.Path
) -> None:
    pact = tmp_path / "pact.py"
    pact.write_text(f"{MEANS}problem = {problem}\n")
    MaliciousServer(site(pact, tmp_path, "min_rows = 1")).meet()  # whoever does not mind takes part
    server = MaliciousServer(site(pact, tmp_path, "min_rows = 20"))
    if told is None:
        server.meet()
        return
    with pytest.raises(Refusal, match=told):
        server.meet()


def test_sets_of_an_evaluation_are_compared_with_those_of_means(tmp_path: pathlib.Path) -> None:
    pact = tmp_path / "pact.py"
    left_out = "int(np.flatnonzero(load('south')['y'] == 1)[0])"
    problem = f"stated(fp.mean(loss, where=(fp.col('y') == 1) & (fp.col('row') != {left_out})))"
    pact.write_text(f"{MEANS}problem = {problem}\n")
    MaliciousServer(site(pact, tmp_path, "min_rows = 10")).meet()
    pact.write_text(f"{MEANS}problem = {problem}\nevaluate = {{'label': 'y'}}\n")
    with pytest.raises(Refusal, match="and what `evaluate` counts are over the same of its rows but for fewer"):
        MaliciousServer(site(pact, tmp_path, "min_rows = 10")).meet()


@pytest.mark.parametrize("last", [40, 59])
def test_sets_of_held_out_rows_are_compared(last: int, tmp_path: pathlib.Path) -> None:
    pact = tmp_path / "pact.py"
    found = f"[(fp.mean(fp.decisions(model), where=fp.col('row') < n) >= 0.1).named(str(n)) for n in ({last}, 60)]"
    promise = "options, promise = {'seed': 5, 'privacy': None}, {'confidence': 0.9, 'held_out': 0.5}"
    pact.write_text(f"{MEANS}problem = fp.minimize(fp.mean(loss), {found}, fp.l2(1e-2))\n{promise}\n")
    stated = Pact(pact)
    assert stated.promise is not None
    sets = list(sets_held_out(stated.promise.statements.means, stated.load("south")))
    assert sorted(each.rows.sum() for each in sets) == [last, 60]
    if last == 40:
        admit_row_sets(sets, 20)
        return
    with pytest.raises(Refused, match=r"held out, and .*, held out, are over the same of its rows"):
        admit_row_sets(sets, 20)


# files


def test_a_pinned_file_and_its_modules_are_not_even_executed_when_they_change(tmp_path: pathlib.Path) -> None:
    """The digest covers neither `load` nor what a file does when it is read."""
    pact = malicious.written(tmp_path, batch=20)
    reviewed = Pact(pact).digest
    pact.write_text(f"import helper\n{pact.read_text()}")
    (tmp_path / "helper.py").write_text("import inner.part\n")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "__init__.py").write_text("")
    (tmp_path / "inner" / "part.py").write_text("number = 1\n")
    files = pact_files(pact)
    assert set(files) == {"pact.py", "helper.py", "inner/__init__.py", "inner/part.py"}
    assert files["pact.py"] == hashlib.sha256(pact.read_bytes()).hexdigest()
    policy = f"digests = ['{reviewed}']\nfiles = {list(files.values())}"
    MaliciousServer(site(pact, tmp_path, policy)).meet()
    mark = tmp_path / "executed"
    for file in (pact, tmp_path / "helper.py", tmp_path / "inner" / "part.py"):
        before = file.read_text()
        file.write_text(f"open({str(mark)!r}, 'w').close()\n{before}")
        with pytest.raises(ValueError, match=rf"that of .*{file.name} is [0-9a-f]{{64}}; nothing of it was executed"):
            site(pact, tmp_path, policy)
        assert not mark.exists()
        file.write_text(before)


@pytest.mark.parametrize(
    ("policy", "told"), [("files = ['12']", "'12', which is no sha256"), ("secret_batches = 1", "a bool")]
)
def test_conditions_that_cannot_be_read(policy: str, told: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=told):
        site(malicious.written(tmp_path, batch=20), tmp_path, policy)


# sizes


def test_a_party_that_describes_a_large_table_costs_the_others_no_memory(tmp_path: pathlib.Path) -> None:
    pact = pacts.written(tmp_path, "FedBCD")
    pact.write_text(pact.read_text() + "options['privacy'] = None\n")
    own = site(pact, tmp_path)
    server = MaliciousServer(own)
    described = {name: MaliciousServer(Site(pact, name, tmp_path / name)).says("hello")[0] for name in own.pact.parties}
    told = [words["description"] for words in described.values()]
    rows = told[0]["rows"]
    wide = {**told[2], "columns": {"x": ["float64", [50_000_000 // (8 * rows)]]}}  # 50 MB in all
    server.says("hello")
    tracemalloc.start()
    server.says("meet", descriptions=[told[0], told[1], wide], resume=None)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 20_000_000
    far_too_wide = {**told[2], "columns": {"x": ["float64", [10**9]]}}
    server = MaliciousServer(own, "a" * 16)
    server.says("hello")
    with pytest.raises(Refusal, match="its process failed"):
        server.says("meet", descriptions=[told[0], told[1], far_too_wide], resume=None)


def test_a_server_that_describes_a_partys_own_table_otherwise_is_refused(tmp_path: pathlib.Path) -> None:
    server = MaliciousServer(site(malicious.written(tmp_path, batch=20), tmp_path))
    told = server.says("hello")[0]["description"]
    with pytest.raises(Refusal, match="describes its table otherwise than it did itself"):
        server.says("meet", descriptions=[told, {**told, "rows": 59}, told], resume=None)


def test_words_are_refused_by_their_length_before_they_are_read(tmp_path: pathlib.Path) -> None:
    own = site(malicious.written(tmp_path, batch=20), tmp_path)
    with pytest.raises(Refusal, match="more than the 4194304 that were agreed on"):
        MaliciousServer(own).says("hello", padding="x" * 5_000_000)
