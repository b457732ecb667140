"""Parties that send false numbers: what is refused, who is named, and how far they move an average."""

import dataclasses
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_deploy import Loopback, changed

import fedpact as fp
from fedpact.algorithms.averaging.robust import over_finite
from fedpact.deploy.server import serve
from fedpact.engines.remote import PartyLost
from fedpact.engines.serialization import unpack
from fedpact.run.pact import Pact

PACT = """
import fedpact as fp

parties = [f"clinic {n}" for n in range(PARTIES)]
loss = fp.logistic_loss(fp.linear(bias=True))
problem = fp.minimize(fp.mean(loss), regularizer=fp.l2(1e-2))
algorithm = fp.FedAvg(local_steps=5, step=0.5, average=AVERAGE)
options = {"max_rounds": 20, "privacy": None}


def load(party):
    data = fp.datasets.breast_cancer()
    return fp.split_rows(fp.Table(x=data["x"][:, :4], y=data["y"]), parties=parties, stratify="y", seed=7)[party]
"""


def written(folder: pathlib.Path, parties: int, average: str = "None", more: str = "") -> pathlib.Path:
    pact = folder / "pact.py"
    pact.write_text(PACT.replace("PARTIES", str(parties)).replace("AVERAGE", average) + more)
    return pact


def with_a_liar(pact: pathlib.Path, folder: pathlib.Path, number: float, liar: str = "clinic 1") -> fp.Result:
    """A run in which one party says that number for all its changes of the parameters."""

    def lie(words: dict, arrays: dict[str, np.ndarray]) -> None:
        for name, array in arrays.items():
            if "parameter_change" in name:
                array[...] = number

    def meddle(count: int, party: str, message: bytes, answer: bytes) -> bytes:
        in_a_round = unpack(message)[0].get("exchange", "").startswith("AveragingMethod.step")
        return changed(answer, lie) if party == liar and in_a_round else answer

    return serve(pact, Loopback.of(pact, folder / "sites", meddle=meddle), folder / f"server {number}")


# what is refused


def test_a_number_above_the_pacts_largest_is_refused_with_its_senders_name(tmp_path: pathlib.Path) -> None:
    pact = written(tmp_path, 3, more="options['largest_reply'] = 100.0\n")
    assert with_a_liar(pact, tmp_path, 0.5).rounds == 20
    with pytest.raises(PartyLost, match=r"holds 1e\+300, and the pact's largest_reply is 100") as caught:
        with_a_liar(pact, tmp_path, 1e300)
    assert caught.value.party == "clinic 1"
    with pytest.raises(PartyLost, match="largest_reply is 100"):
        with_a_liar(pact, tmp_path, -101.0)


def test_an_honest_party_does_not_send_what_the_pact_does_not_allow(tmp_path: pathlib.Path) -> None:
    pact = written(tmp_path, 3, more="options['largest_reply'] = 1e-3\n")
    with pytest.raises(PartyLost, match=r"it refuses: '.*' holds .*, and the pact's largest_reply is 0.001"):
        serve(pact, Loopback.of(pact, tmp_path / "sites"), tmp_path / "server")
    assert Pact(pact).run(Pact(pact).tables()).rounds == 20, "in one process nobody lies"


def test_the_limit_is_a_part_of_the_pact(tmp_path: pathlib.Path) -> None:
    plain = Pact(written(tmp_path, 3)).digest
    assert Pact(written(tmp_path, 3, more="options['largest_reply'] = 1e6\n")).digest != plain
    with pytest.raises(ValueError, match="largest_reply=-1"):
        Pact(written(tmp_path, 3, more="options['largest_reply'] = -1\n"))


def test_a_finite_lie_that_makes_a_run_diverge_is_its_senders(tmp_path: pathlib.Path) -> None:
    result = with_a_liar(written(tmp_path, 3), tmp_path, 1e300)
    assert result.status == "diverged"
    assert "party 'clinic 1' sent numbers" in result.message
    assert "clinic 0" not in result.message
    assert "clinic 2" not in result.message


# robust averages


def test_how_far_one_lying_party_of_ten_moves_an_average(tmp_path: pathlib.Path) -> None:
    """The figures of docs/deploy.md: `pytest -s tests/test_liars.py -k ten` prints them."""
    moved = {}
    for average in ("None", "fp.TrimmedMean(0.2)", "fp.MedianOfMeans(5)"):
        folder = tmp_path / average
        folder.mkdir()
        pact = written(folder, 10, average)
        honest = Pact(pact).run(Pact(pact).tables())
        lied = with_a_liar(pact, folder, 10.0)
        moved[average] = float(np.linalg.norm(np.asarray(lied.params["w"]) - np.asarray(honest.params["w"])))
    print({average: round(far, 3) for average, far in moved.items()})
    plain, trimmed, median = moved.values()
    assert plain > 10.0
    assert trimmed < 0.5
    assert median < 0.5


HONEST = st.lists(st.floats(-1, 1), min_size=9, max_size=9)


@given(HONEST, st.sampled_from([1e300, -1e300, 5.0, float("nan"), float("inf")]), st.integers(0, 9))
def test_a_liar_cannot_move_a_robust_average_out_of_the_others_range(
    honest: list[float], lie: float, place: int
) -> None:
    replies = np.array([*honest[:place], lie, *honest[place:]])
    for average in (fp.TrimmedMean(0.2), fp.MedianOfMeans(5)):
        found = float(over_finite(average, jnp.asarray(replies), jnp.ones(len(replies))))
        assert min(honest) - 1e-9 <= found <= max(honest) + 1e-9


def test_robust_averages_of_known_numbers() -> None:
    replies = jnp.asarray([[5.0, 0.0], [1.0, 1.0], [2.0, 2.0], [3.0, 3.0], [100.0, -100.0]])
    every = jnp.ones(5)
    np.testing.assert_allclose(over_finite(fp.TrimmedMean(0.2), replies, every), [10 / 3, 1.0])
    # groups: places 0 and 3, 1 and 4, 2
    np.testing.assert_allclose(over_finite(fp.MedianOfMeans(3), replies, every), [4.0, 1.5])
    without_last = jnp.asarray([1.0, 1.0, 1.0, 1.0, 0.0])
    np.testing.assert_allclose(over_finite(fp.TrimmedMean(0.25), replies, without_last), [2.5, 1.5])
    np.testing.assert_allclose(over_finite(fp.TrimmedMean(0.25), replies, jnp.zeros(5)), [0.0, 0.0])
    np.testing.assert_allclose(over_finite(fp.MedianOfMeans(3), replies, jnp.zeros(5)), [0.0, 0.0])


@pytest.mark.parametrize(
    "method",
    [
        fp.FedAvg(local_steps=2),
        fp.FedProx(mu=0.1, local_steps=2),
        fp.SCAFFOLD(local_steps=2),
        fp.FedSGD(batch=8, step=0.1),
    ],
    ids=lambda method: type(method).__name__,
)
def test_where_all_parties_are_alike_a_robust_average_is_the_plain_one(method: fp.Algorithm) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(8, 2))
    table = fp.Table(x=x, y=(x[:, 0] > 0).astype(int))
    parties = fp.split_rows({f"p{n}": table for n in range(5)})
    problem = fp.minimize(fp.mean(fp.logistic_loss(fp.linear())), regularizer=fp.l2(1e-2))
    robust = dataclasses.replace(method, average=fp.TrimmedMean(0.2))
    assert (method.reads_single_replies, robust.reads_single_replies) == (False, True)
    answers = [fp.solve(problem, parties, each, max_rounds=5).params["w"] for each in (method, robust)]
    np.testing.assert_allclose(answers[0], answers[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: fp.TrimmedMean(0.5), r"TrimmedMean\(share=0.5\): left out at either end"),
        (lambda: fp.MedianOfMeans(2), r"MedianOfMeans\(groups=2\): at least 3 groups"),
        (lambda: fp.FedAvg(average="median"), r"FedAvg\(average='median'\): fp.TrimmedMean\(\)"),
    ],
)
def test_averages_are_checked_where_they_are_made(make, told: str) -> None:
    with pytest.raises((TypeError, ValueError), match=told):
        make()


def test_averages_that_do_not_fit_the_parties(hospitals: fp.Parties) -> None:
    problem = fp.minimize(fp.mean(fp.logistic_loss(fp.linear())), regularizer=fp.l2(1e-2))
    with pytest.raises(ValueError, match="of 5 parties that leaves out none"):
        fp.solve(problem, hospitals, fp.FedAvg(average=fp.TrimmedMean(0.1)), max_rounds=1)
    with pytest.raises(ValueError, match="only 5 parties answer"):
        fp.solve(problem, hospitals, fp.FedAvg(average=fp.MedianOfMeans(7)), max_rounds=1)
