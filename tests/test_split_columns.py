"""Who holds which columns: dealing them out, matching rows, and what passive parties cannot read."""

from typing import Any

import jax
import numpy as np
import pytest

import fedpact as fp

RNG = np.random.default_rng(0)
TABLE = fp.Table(x=RNG.normal(size=(12, 5)), y=np.arange(12) % 2, sex=np.arange(12) % 3 == 0, id=np.arange(100, 112))


def test_by_count_and_by_groups() -> None:
    parties = fp.split_columns(TABLE, parties=2)
    assert parties.names == ("party 1", "party 2")
    assert parties.widths == (3, 2)
    np.testing.assert_array_equal(np.concatenate([parties[n]["x"] for n in parties], axis=1), TABLE["x"])
    named = fp.split_columns(TABLE, {"bank": range(2), "shop": [4, 2]}, active=["shop"], id="id")
    assert named["bank"].columns == ("x",)
    assert named["shop"].columns == ("x", "y", "sex")
    np.testing.assert_array_equal(named["shop"]["x"], TABLE["x"][:, [4, 2]])
    frame = fp.Table(age=np.arange(4.0), income=np.ones(4), visits=np.zeros((4, 2)), y=np.ones(4))
    columns = fp.split_columns(frame, {"bank": ["age", "income"], "shop": "visits"})
    assert columns.widths == (2, 2)
    assert columns["bank"].columns == ("x", "y")
    assert columns["shop"].columns == ("x",)


def test_passive_parties_hold_no_labels() -> None:
    parties = fp.split_columns(TABLE, parties=3, active=["party 2"])
    for name in ("party 1", "party 3"):
        assert parties[name].columns == ("x",)
        with pytest.raises(KeyError):
            parties[name]["y"]
    everybody = fp.split_columns(TABLE, parties=3, active="all")
    assert all("y" in everybody[name].columns for name in everybody)
    assert everybody.active == everybody.names


def test_tables_apart() -> None:
    bank = fp.Table(x=TABLE["x"][:, :2], y=TABLE["y"], id=TABLE["id"])
    shop = fp.Table(x=TABLE["x"][:, 2:], id=TABLE["id"])
    parties = fp.split_columns({"bank": bank, "shop": shop}, id="id")
    assert parties["bank"].columns == ("x", "y")
    assert parties["shop"].columns == ("x",)
    assert repr(parties) == "ColumnParties(2 over 12 rows with features {bank: 2, shop: 3})"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda: fp.split_columns(TABLE, {"a": [0, 1], "b": [1]}), "feature 1 is assigned to .*a.* and .*b"),
        (lambda: fp.split_columns(TABLE, {"a": [0], "b": []}), "b.* has no columns"),
        (lambda: fp.split_columns(TABLE, {"a": [0, 7]}), "no feature 7: column 'x' has features 0 to 4"),
        (lambda: fp.split_columns(TABLE, {"a": ["age"]}), "column 'age' of the table is missing"),
        (lambda: fp.split_columns(TABLE, parties=9), "has 5 features, at least one for each party"),
        (lambda: fp.split_columns(TABLE, parties=2, active=["bank"]), "no party 'bank'; there are party 1, party 2"),
        (lambda: fp.split_columns(TABLE, parties=2, active=[]), "no party holds labels"),
        (lambda: fp.split_columns(fp.Table(x=TABLE["x"]), parties=2), "no party holds labels"),
        (lambda: fp.split_columns(fp.Table(y=TABLE["y"]), parties=2), "column 'x' of the table is missing"),
    ],
)
def test_what_cannot_be_split_is_said(given: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        given()


def test_rows_that_do_not_match_are_counted() -> None:
    bank = fp.Table(x=TABLE["x"][:, :2], y=TABLE["y"], id=TABLE["id"])

    def shop(ids: np.ndarray) -> fp.Table:
        return fp.Table(x=np.zeros((len(ids), 1)), id=ids)

    ids = TABLE["id"]
    swapped = ids.copy()
    swapped[[0, 5]] = swapped[[5, 0]]
    twice = ids.copy()
    twice[3] = twice[2]
    for wrong, words in (
        (swapped, "2 ids in other places"),
        (twice, "1 duplicate ids.*lacks 1 of the ids"),
        (ids[:-2], "lacks 2 of the ids of .*bank.* and has 0 others"),
        (ids + 1, "lacks 1 of the ids of .*bank.* and has 1 others"),
    ):
        with pytest.raises(ValueError, match=f"rows do not match.*shop.*{words}"):
            fp.split_columns({"bank": bank, "shop": shop(wrong)}, id="id")
    with pytest.raises(ValueError, match="they hold bank: 12, shop: 10"):
        fp.split_columns({"bank": bank, "shop": shop(ids[:-2])})
    with pytest.raises(ValueError, match=r"shop.* is passive, but its table holds 'y'"):
        fp.split_columns({"bank": bank, "shop": fp.Table(x=np.zeros((12, 1)), y=np.zeros(12))})
    other = fp.Table(x=np.zeros((12, 1)), y=1 - TABLE["y"])
    with pytest.raises(ValueError, match=r"column 'y' of .*shop.* differs from that of .*bank.* in 12 rows"):
        fp.split_columns({"bank": fp.Table(x=bank["x"], y=bank["y"]), "shop": other}, active="all")


# models


def problem(**options: Any) -> fp.Problem:
    made = fp.split_model(**{"bottom": lambda width: fp.mlp([width, 4], bias=False), "top": fp.mlp([4, 2]), **options})
    return fp.minimize(fp.mean(fp.softmax_loss(made)))


def test_models_that_do_not_fit_are_said() -> None:
    parties = fp.split_columns(TABLE, parties=2)
    method = fp.FedSGD(batch=4, step=0.1)
    with pytest.raises(ValueError, match="the top model does not fit what the bottoms give"):
        fp.solve(problem(top=fp.mlp([5, 2])), parties, method)
    with pytest.raises(ValueError, match="all bottoms need one width"):
        fp.solve(problem(bottom=lambda width: fp.mlp([width, width])), parties, method)
    with pytest.raises(TypeError, match=r"bottom.*gives a int, not a model"):
        fp.solve(problem(bottom=lambda width: width), parties, method)
    with pytest.raises(ValueError, match="start= has no parameters for 'party 2'"):
        fp.solve(problem(), parties, method, start={"party 1": {"w1": np.zeros((3, 4))}})
    with pytest.raises(ValueError, match=r"every loss takes one fp.split_model"):
        fp.solve(fp.minimize(fp.mean(fp.logistic_loss(fp.linear()))), parties, method)
    with pytest.raises(ValueError, match=r"the parties hold rows; see fp.split_columns"):
        fp.solve(problem(), fp.split_rows(TABLE, parties=2), method)
    with pytest.raises(ValueError, match="server= is for parties who hold rows"):
        fp.solve(problem(), parties, method, server=TABLE)
    assert fp.explain(problem(), parties).method == "FairVFL"
    for wrong in ({"combine": "mean"}, {"top": 3}, {"bottom": fp.linear()}):
        with pytest.raises((ValueError, TypeError), match=f"split_model\\({next(iter(wrong))}="):
            problem(**wrong)
    with pytest.raises(ValueError, match="at least one model"):
        fp.chain(jax.nn.swish)


@pytest.mark.parametrize("combine", ["sum", "concat"])
def test_a_run_predicts_and_is_reported(combine: Any, tmp_path: Any) -> None:
    parties = fp.split_columns(TABLE, parties=2)
    stated = problem(combine=combine, top=fp.chain(jax.nn.tanh, fp.mlp([4 if combine == "sum" else 8, 2])))
    method = fp.SSCA(batch=4, measure=5)
    whole = fp.solve(stated, parties, method, max_rounds=20)
    scores = whole.scores(parties)
    assert scores.shape == (12, 2)
    loss = np.mean([np.log(np.exp(s).sum()) - s[k] for s, k in zip(scores, TABLE["y"], strict=True)])
    assert loss == pytest.approx(whole.objective, rel=1e-9)
    with pytest.raises(ValueError, match="there is none of 'party 2'"):
        whole.scores({"party 1": parties["party 1"]})
    assert (tmp_path / "page.html").exists() is False
    assert whole.report(tmp_path / "page.html").exists()
    assert "2 parties" in str(fp.explain(stated, parties, method))
