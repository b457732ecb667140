"""Pacts for every method, as files: small problems whose runs over parties elsewhere are compared with those in one process."""

import os
import pathlib
import tempfile

import jax
import numpy as np
import pytest

import fedpact as fp

ROWS = """
import numpy as np
import fedpact as fp

parties = ["north", "south", "west"]
loss = fp.logistic_loss(fp.linear(bias=True))


def load(party):
    data = fp.datasets.breast_cancer()[:180]
    data = fp.Table(x=data["x"][:, :4], y=data["y"])
    return fp.split_rows(data, parties=parties, seed=7)[party]


limited = fp.minimize(fp.mean(loss), [(fp.mean(loss, where=fp.col("y") == 1) <= 0.3).named("missed")], fp.l2(1e-2))
pooled = fp.minimize(fp.mean(loss), [(fp.mean(loss, where=fp.col("y") == 1).pooled() <= 0.2).named("missed")], fp.l2(1e-2))
free = fp.minimize(fp.mean(loss), regularizer=fp.l2(1e-2))
"""
COLUMNS = """
import numpy as np
import fedpact as fp

parties = ["north", "south", "west"]
active = ["north"]
model = fp.split_model(bottom=lambda width: fp.linear(bias=False))
loss = fp.logistic_loss(model, labels=(-1, 1))
FEATURES = {"north": [0], "south": [1, 2], "west": [3, 4, 5]}


def load(party):
    rng = np.random.default_rng(5)
    sex = rng.integers(0, 2, 80)
    x = rng.normal(size=(80, 6)) + 0.6 * sex[:, None]
    y = np.where(x @ np.array([1.0, -0.5, 0.8, 0.3, 0.6, 0.1]) + rng.normal(size=80) > 1.3, 1, -1)
    labels = {"y": y, "sex": sex} if party in active else {}
    return fp.Table(x=x[:, FEATURES[party]], **labels)


gap = fp.equal_opportunity_gap(loss, group="sex")
fair = fp.minimize(fp.mean(loss), [(gap <= 0.02).named("gap")], fp.l2(0.01))
limited = fp.minimize(fp.value(fp.squared_norm), [(fp.mean(loss) <= 0.5).named("cost")])
"""
PERSONAL = (
    ROWS
    + """
own = {"north": fp.l1_ball(0.5), "south": fp.sets.l2_ball(0.7), "west": fp.sets.box(-0.4, 0.4)}
problem = fp.minimize(fp.mean(loss), personal=fp.Personal(own.__getitem__, [0.1, 0.2, 0.3]))
"""
)
COUNTED = """
found = fp.mean(fp.decisions(fp.linear(bias=True)), where=fp.col("y") == 1)
problem = fp.minimize(fp.mean(loss), [(found >= 0.9).named("found"), (found.pooled() >= 0.95).named("all found")], fp.l2(1e-2))
"""
COUNTED_COLUMNS = """
gap = fp.demographic_parity_gap(fp.decisions(model), group="sex")
problem = fp.minimize(fp.mean(loss), [(gap <= 0.4).named("gap")], fp.l2(0.01))
"""
TIGHT = "options = {'tolerance': 1e-6, 'max_rounds': 3000}\n"


def _some(rounds: int) -> str:
    return f"options = {{'tolerance': 1e-9, 'max_rounds': {rounds}, 'seed': 3}}\n"


PACTS = {
    "front door": (pathlib.Path(__file__).parents[1] / "examples" / "pact.py").read_text(),
    "InteriorPoint pooled": f"{ROWS}problem = pooled\nalgorithm = fp.InteriorPoint()\n{TIGHT}",
    "InteriorPoint counting": f"{ROWS}{COUNTED}algorithm = fp.InteriorPoint()\n{TIGHT}",
    "ProxAL Newton": f"{ROWS}problem = limited\nalgorithm = fp.ProxAL(fp.Newton())\n{TIGHT}",
    "ProxAL LBFGS": f"{ROWS}problem = pooled\nalgorithm = fp.ProxAL(fp.LBFGS())\n{TIGHT}",
    "ProxAL ADMM": f"{ROWS}problem = limited\nalgorithm = fp.ProxAL(fp.ADMM())\n{TIGHT}",
    "CentralProxAL": f"{ROWS}problem = limited\nalgorithm = fp.CentralProxAL()\n{TIGHT}",
    "PrimalDual": f"{ROWS}problem = pooled\nalgorithm = fp.PrimalDual()\n{_some(12)}",
    "SSCA rows": f"{ROWS}problem = pooled\nalgorithm = fp.SSCA(batch=10)\n{_some(12)}",
    "SSCA columns": f"{COLUMNS}problem = limited\nalgorithm = fp.SSCA(batch=20)\n{_some(12)}",
    "FedSGD": f"{ROWS}problem = free\nalgorithm = fp.FedSGD(batch=10, step=0.1)\n{_some(12)}",
    "FedSGD columns": f"{COLUMNS}problem = fp.minimize(fp.mean(loss))\nalgorithm = fp.FedSGD(batch=20, step=0.1)\n{_some(12)}",
    "FedAvg": f"{ROWS}problem = free\nalgorithm = fp.FedAvg(batch=10, local_steps=3, step=0.1)\n{_some(6)}",
    "FedAvg personal": f"{PERSONAL}algorithm = fp.FedAvg(batch=10, local_steps=3, step=0.1, penalty=1.0)\n{_some(6)}",
    "FedProx rows": f"{ROWS}problem = free\nalgorithm = fp.FedProx(batch=10, local_steps=3, step=0.1, mu=0.1)\n{_some(6)}",
    "SCAFFOLD rows": f"{ROWS}problem = free\nalgorithm = fp.SCAFFOLD(batch=10, local_steps=3, step=0.1)\n{_some(6)}",
    "FairVFL": f"{COLUMNS}problem = fair\nalgorithm = fp.FairVFL()\n{TIGHT}",
    "FairVFL encrypted": f"{COLUMNS}problem = fair\nalgorithm = fp.FairVFL()\n"
    "options = {'tolerance': 1e-4, 'max_rounds': 6, 'privacy': fp.EncryptedResiduals()}\n",
    "FairVFL as printed": f"{COLUMNS}problem = fair\nalgorithm = fp.FairVFL.as_printed()\n{_some(12)}",
    # later rounds begin where the problem is solved already, and their searches are decided by rounding
    "FairVFL counting": f"{COLUMNS}{COUNTED_COLUMNS}algorithm = fp.FairVFL()\n{_some(8)}",
    "FedBCD": f"{COLUMNS}problem = fp.minimize(fp.mean(loss), regularizer=fp.l2(0.01))\nalgorithm = fp.FedBCD()\n{_some(12)}",
    "PCFedAvg": f"{PERSONAL}algorithm = fp.PCFedAvg(0.05, 3, 10.0, 10)\n{_some(12)}",
    "PersonalProjected": f"{PERSONAL}algorithm = fp.PersonalProjected()\n{TIGHT}",
    "FedProx": f"{PERSONAL}algorithm = fp.FedProx(batch=10, local_steps=3, step=0.1, mu=0.1)\n{_some(12)}",
    "SCAFFOLD": f"{PERSONAL}algorithm = fp.SCAFFOLD(batch=10, local_steps=3, step=0.1, participation=0.67)\n{_some(12)}",
}

BY_AGE = """
_rows = load


def load(party):
    table = _rows(party)
    return table.with_columns(age=np.where(table["x"][:, 0] > 0.5, "old", "young"), w=1.0 + table["x"][:, 1] ** 2)


evaluate = {"label": "y", "group": "age"}
"""
BY_SEX = 'evaluate = {"group": "sex", "confidence": 0.9}\n'
EVALUATED = {
    "rows": PACTS["FedAvg"] + BY_AGE,
    "weighted rows": PACTS["FedAvg"] + BY_AGE.replace('"age"}', '"age", "weights": "w", "bins": 50}'),
    "personal": PACTS["PCFedAvg"] + BY_AGE,
    "columns": PACTS["FedBCD"] + BY_SEX,
}

PROMISED = """
import numpy as np
import fedpact as fp

parties = ["north", "south", "west"]
model = fp.linear(bias=True)
found = fp.mean(fp.decisions(model), where=fp.col("y") == 1)
loss = fp.mean(fp.logistic_loss(model))
problem = fp.minimize(
    loss, [(found >= 0.6).named("found"), (loss.pooled() <= 1.5).named("loss")], fp.l2(1e-3)
)
options = {"seed": 5}
promise = {"confidence": 0.9, "held_out": 0.5, "ranges": {"loss": (0, 12)}}


def load(party):
    rng = np.random.default_rng(parties.index(party))
    x = rng.normal(size=(600, 2))
    return fp.Table(x=x, y=(x @ [1.0, -1.0] + rng.normal(size=600) > 0.3).astype(int))
"""


NOISY = {"FairVFL encrypted": 1e-6}  # encryption adds noise, which is drawn anew in every run
# A search that keeps directions down to 1e-6 of the largest curvature divides rounding errors by as much: after 5 rounds blocks
# differ by 1e-11, after 50 by 1e-9, between a round that is one program and one whose steps are compiled each by itself.
BY_BYTES = ("FairVFL",)  # so it is compared with a run in one process through the bytes that an engine carries


# On real engines all of them run in `make deploy-check` only, since it takes long; elsewhere without an engine (test_deploy.py).
RELEASE = bool(os.environ.get("FEDPACT_RELEASE"))
ON_ENGINES = list(PACTS) if RELEASE else ["front door", "FedAvg"]
in_release_checks = pytest.mark.skipif(not RELEASE, reason="make deploy-check runs it")


def slug(name: str) -> str:
    return name.replace(" ", "_").lower()


def written(folder: pathlib.Path, name: str) -> pathlib.Path:
    """The pact as a file."""
    file = folder / f"{slug(name)}.py"
    file.write_text(PACTS[name])
    return file


def own(folder: pathlib.Path) -> np.ndarray:
    """What a party kept of the answer in its folder: its block, or its own model."""
    (file,) = folder.glob("*/own.npz")
    with np.load(file) as saved:
        return saved["own"] if "own" in saved else saved["point"]


def assert_same(deployed: fp.Result, local: fp.Result, folders: dict[str, pathlib.Path]) -> None:
    """The same run; what is a party's own is in the party's folder and nowhere else."""
    assert (deployed.status, deployed.rounds, deployed.exchanges) == (local.status, local.rounds, local.exchanges)
    assert (deployed.bytes_up, deployed.bytes_down) == (local.bytes_up, local.bytes_down)
    assert deployed.objective == pytest.approx(local.objective, abs=1e-10)
    if not (isinstance(local.params, dict) and folders.keys() <= local.params.keys()):
        for mine, theirs in zip(jax.tree.leaves(deployed.params), jax.tree.leaves(local.params), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-10)
        return
    assert not isinstance(deployed.params, dict) or not folders.keys() & deployed.params.keys()
    assert_own(local, folders)


def assert_own(local: fp.Result, folders: dict[str, pathlib.Path], name: str = "") -> None:
    """What each party kept is what the run in one process gives it. `name`: of the pact (default: one without exceptions)."""
    expected = {
        party: np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(local.params[party])]) for party in folders
    }
    if name in BY_BYTES:
        expected = own_by_bytes(name)
    for party, folder in folders.items():
        np.testing.assert_allclose(own(folder), expected[party], rtol=0, atol=NOISY.get(name, 1e-10))


def own_by_bytes(name: str) -> dict[str, np.ndarray]:
    """What each party keeps of a run in this process through the bytes that an engine carries."""
    from test_deploy import Loopback

    from fedpact.deploy.server import serve

    with tempfile.TemporaryDirectory() as here:
        folder = pathlib.Path(here)
        pact = written(folder, name)
        channel = Loopback.of(pact, folder)
        serve(pact, channel, folder / "server")
        return {party: own(folder / party) for party in channel.sites}


def messages(name: str, folder: pathlib.Path) -> str:
    """A section of docs/wire.md."""
    from fedpact.deploy.message_list import TITLES, wire
    from fedpact.run.pact import Pact

    told = wire(Pact(written(folder, name)))
    rows = [TITLES, ["---"] * len(TITLES), *told.rows()]
    sums = "sums are secure" if told.secure else "the server receives every reply by itself"
    return "\n".join(
        [f"## {name}", "", f"`{told.method}`; {sums}.", "", *(f"| {' | '.join(row)} |" for row in rows), ""]
    )


HEAD = """# Every message, by method

What is in each message of a run and how many bytes of numbers it has, for one party; names and words add about 1 kB. Made by
`make wire`, which lets `fedpact wire` trace the small pacts of tests/pacts.py: three parties, four features and a bias over rows;
one, two and three features and 80 rows over columns. `fedpact wire pact.py --markdown` does the same for yours. Names are those
of the methods' code; `fedpact wire pact.py` says it in plain words, with what each message reveals, and so does
[threat_model.md](threat_model.md).

Where sums are secure, a number that is added up takes 16 bytes and a maximum 1,024, and every such reply has one number more,
which is 0 where all others are finite. The pacts here have no `keys`. With keys of the parties points are checked: a message
down then also brings the sums of the exchange before it, as many bytes as one party's reply to that exchange, so that the party
can check the point, and a reply has 8 bytes more, for its tag. Before the first round, with words that are not listed here, every
party sends a public key for the run with the description of its table, and receives those of all parties.
"""


def main() -> None:
    """Write docs/wire.md."""
    with tempfile.TemporaryDirectory() as folder:
        sections = [messages(name, pathlib.Path(folder)) for name in PACTS]
    (pathlib.Path(__file__).parents[1] / "docs" / "wire.md").write_text("\n".join([HEAD, *sections]))


if __name__ == "__main__":
    main()


def assert_same_counts(one: fp.Evaluation, other: fp.Evaluation) -> None:
    assert (one.question, one.confidence, one.parties) == (other.question, other.confidence, other.parties)
    for party in one.parties:
        mine, theirs = one.counts[party], other.counts[party]
        assert (mine.groups, mine.withheld) == (theirs.groups, theirs.withheld)
        for name, array in mine.arrays().items():
            np.testing.assert_array_equal(array, theirs.arrays()[name])
