"""Functions are tried at the start: those that look across rows, and those that are not finite on rows left out."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fedpact as fp
from fedpact.federation import function_checks
from fedpact.settings import bind

START = {"w": np.zeros(1)}
UNEQUAL = fp.split_rows(fp.Table(z=np.arange(11.0) ** 2), parties=2)
EQUAL = fp.split_rows(fp.Table(z=np.arange(12.0) ** 2), parties=2)


def centred(p: Any, rows: Any) -> Any:
    return p["w"][0] * (rows["z"] - jnp.mean(rows["z"])) + p["w"][0] ** 2


def shared_out(p: Any, rows: Any) -> Any:
    return (p["w"][0] - rows["z"] / len(rows["z"])) ** 2


def gap(p: Any, rows: Any) -> Any:
    return (p["w"][0] - rows["z"]) ** 2


@pytest.mark.parametrize("function", [centred, shared_out])
def test_a_mean_that_looks_across_rows_is_refused_where_parties_are_padded(function: Any) -> None:
    problem = fp.minimize(fp.mean(function))
    for _ in range(2):
        with pytest.raises(ValueError, match=rf"mean\({function.__name__}\).*party 2.*each row by itself.*fp.value"):
            fp.solve(problem, UNEQUAL, start=START)
    assert fp.solve(problem, EQUAL, start=START).converged


def test_the_way_out_is_a_value() -> None:
    problem = fp.minimize(fp.value(lambda p, rows: jnp.mean(shared_out(p, rows))))
    result = fp.solve(problem, UNEQUAL, start=START)
    wanted = np.mean([np.mean(table["z"] / table.rows) for table in UNEQUAL.values()])
    assert result.params["w"][0] == pytest.approx(wanted, abs=1e-4)


def test_a_function_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fp.solve(fp.minimize(fp.mean(gap)), UNEQUAL, start=START).converged

    def not_again(*_: Any) -> Any:
        raise AssertionError("tried again")

    monkeypatch.setattr(function_checks, "arrays", not_again)
    assert fp.solve(fp.minimize(fp.mean(gap)), UNEQUAL, start=START).converged


# rows that a mask leaves out

MIXED = fp.split_rows([{"z": [-1.0, 4.0, 0.0, 2.0]}, {"z": [1.0, 2.0, 3.0]}], ["north", "south"])
POSITIVE = fp.col("z") > 0


def log_gap(p: Any, rows: Any) -> Any:
    return (p["w"][0] - jnp.log(rows["z"])) ** 2


def log_score(scores: Any, labels: Any) -> Any:
    return (scores - jnp.log(labels)) ** 2


def root(p: Any, rows: Any) -> Any:
    """Finite on all rows, but with no slope where z is 0."""
    return (jnp.sqrt(rows["z"] ** 2 * (1 + p["w"][0] ** 2)) - 3.0 + p["w"][0]) ** 2


LOG_LOSS = fp.loss(log_score, fp.linear(inputs="one"), label="z")


@pytest.mark.parametrize(("function", "method"), [(log_gap, fp.ProxAL(fp.Newton())), (LOG_LOSS, fp.InteriorPoint())])
def test_rows_left_out_do_not_count(function: Any, method: fp.Algorithm) -> None:
    parties = fp.split_rows({name: table.with_columns(one=np.ones(table.rows)) for name, table in MIXED.items()})
    mean = fp.mean(function, where=POSITIVE)
    logs = [np.log(table["z"][table["z"] > 0]) for table in MIXED.values()]
    for problem, wanted in (
        (fp.minimize(mean), np.mean([np.mean(mine) for mine in logs])),
        (fp.minimize(mean.pooled(), [mean.at_server() <= 9]), np.mean(np.concatenate(logs))),
    ):
        result = fp.solve(problem, parties, method, start=START, server=parties["north"], tolerance=1e-6)
        assert result.converged, result.message
        assert result.params["w"][0] == pytest.approx(wanted, abs=1e-5)


def test_rows_left_out_need_no_slope() -> None:
    bare = fp.split_rows([{"z": MIXED[name]["z"][MIXED[name]["z"] > 0]} for name in MIXED], list(MIXED))
    masked, plain = (
        fp.solve(fp.minimize(fp.mean(root, where=where)), parties, start={"w": np.full(1, 0.5)}, tolerance=1e-6)
        for where, parties in ((POSITIVE, MIXED), (None, bare))
    )
    assert masked.converged
    assert masked.params["w"] == pytest.approx(plain.params["w"], abs=1e-5)


def test_a_party_without_a_row_to_put_there_is_told() -> None:
    parties = fp.split_rows({"north": MIXED["south"], "south": {"z": [-1.0, 0.0, -2.0]}})
    with pytest.raises(ValueError, match=r"mean\(log_gap \| z > 0\) has no finite value.*party 'south'.*jnp.where"):
        fp.solve(fp.minimize(fp.mean(log_gap, where=POSITIVE).pooled()), parties, start=START)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda p, rows: jnp.log(p["w"][0]) + rows["z"], "no finite value"),
        (lambda p, rows: jnp.sqrt(p["w"][0]) + rows["z"], "no finite slope"),
        (log_gap, "no finite value at party 'north'"),
    ],
)
def test_a_start_that_is_not_finite_is_told(function: Any, told: str) -> None:
    result = fp.solve(fp.minimize(fp.mean(function)), MIXED, start=START, max_rounds=20)
    assert not result.converged
    assert told in result.message
    assert "start=" in result.message


# step functions


def step(p: Any, rows: Any) -> Any:
    return jnp.where(p["w"][0] * rows["z"] > 3.0, 1.0, 0.0)


def whole(p: Any, rows: Any) -> Any:
    return jnp.round(7.0 * p["w"][0])


def share(p: Any, rows: Any) -> Any:
    return jnp.mean(p["w"][0] * rows["z"] - 0.01 > 0)


SQUARE = fp.value(lambda p, rows: (p["w"][0] - 1.0) ** 2)


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        (fp.mean(step) <= 0.5, r"'share': mean\(step\) is a step function at party 1.*fp\.decisions\(model\)"),
        (fp.mean(step, where=POSITIVE).pooled() <= 0.5, r"mean\(step \| z > 0\) is a step function"),
        (fp.value(whole) <= 3, r"value\(whole\) is a step function at party 1"),
        (fp.value(share) <= 0.5, r"value\(share\) is a step function"),
        (fp.mean(step).at_server() <= 0.5, r"mean\(step\) is a step function at the server"),
    ],
)
def test_a_step_function_is_refused_with_a_pointer(limit: fp.Constraint, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        fp.solve(fp.minimize(SQUARE, [limit.named("share")]), EQUAL, start=START, server=EQUAL["party 1"])


def test_a_step_function_in_the_objective_or_in_a_model_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the objective: mean\(step\) is a step function"):
        fp.solve(fp.minimize(fp.mean(step)), EQUAL, start=START)
    rows = fp.split_rows({"x": np.linspace(-1, 1, 8)[:, None], "y": np.arange(8) % 2}, parties=2)

    def wrong(scores: Any, labels: Any) -> Any:
        return jnp.where((scores > 0) == (labels == 1), 0.0, 1.0)

    with pytest.raises(ValueError, match=r"mean\(wrong\) is a step function"):
        fp.solve(fp.minimize(fp.mean(fp.loss(wrong, fp.linear()))), rows)


def test_a_step_function_is_refused_over_columns() -> None:
    table = fp.Table(x=np.linspace(-1, 1, 16).reshape(8, 2), y=np.arange(8) % 2)
    parties = fp.split_columns(table, {"a": [0], "b": [1]}, active=["a"])
    model = fp.split_model(bottom=lambda width: fp.linear())
    chosen = fp.mean(fp.loss(lambda scores, labels: jnp.where(scores > 0, 1.0, 0.0), model))
    with pytest.raises(ValueError, match=r"'chosen'.*is a step function at party 'a'"):
        fp.solve(fp.minimize(fp.mean(fp.logistic_loss(model)), [(chosen <= 0.4).named("chosen")]), parties)


@pytest.mark.parametrize(
    "function",
    [
        lambda p, rows: 0.0 * p["w"][0] + jnp.sum(rows["z"]),  # depends on no parameter
        lambda p, rows: jnp.maximum(p["w"][0] - 10.0, 0.0),  # flat near the start
        lambda p, rows: jnp.maximum(p["w"][0], 0.0),
        lambda p, rows: p["w"][0] ** 4,  # flat at the start alone
        lambda p, rows: jnp.clip(1e3 * (p["w"][0] - 0.02), 0.0, 1.0),  # flat at all points that are tried
        lambda p, rows: jnp.where(p["w"][0] > 0.01, 1.0, 0.0) + p["w"][0] ** 2,  # jumps, and has slopes
    ],
)
def test_functions_with_slopes_somewhere_are_not_refused(function: Any) -> None:
    assert bind(fp.minimize(SQUARE, [fp.value(function) <= 1e6]), EQUAL, start=START).setting.parties == 2
