"""The pages on writing a method and an engine are programs that run as they stand."""

import pathlib
import re
from typing import Any

import numpy as np
import pytest

import fedpact as fp

DOCS = pathlib.Path(__file__).parents[1] / "docs"


def run_page(name: str) -> dict[str, Any]:
    """The page's Python blocks, run one after the other."""
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(), re.DOTALL)
    assert blocks
    names: dict[str, Any] = {"__name__": name}
    exec(compile("\n".join(blocks), name, "exec"), names)
    return names


@pytest.fixture(scope="module")
def method_page() -> dict[str, Any]:
    return run_page("write_a_method.md")


def test_a_method_of_ones_own_is_certified(method_page: dict[str, Any]) -> None:
    result = method_page["result"]
    assert result.converged
    assert result.certificate.holds(1e-5)
    assert result.method == "GradientDescent"
    reference = fp.solve(method_page["problem"], method_page["hospitals"], fp.InteriorPoint(), tolerance=1e-9)
    np.testing.assert_allclose(result.objective, reference.objective, atol=1e-8)


def test_a_method_of_ones_own_refuses_what_it_does_not_declare(method_page: dict[str, Any]) -> None:
    limited = fp.minimize(fp.mean(method_page["loss"]), [fp.mean(method_page["loss"]) <= 1.0])
    with pytest.raises(ValueError, match="GradientDescent keeps no constraints"):
        fp.solve(limited, method_page["hospitals"], method_page["GradientDescent"]())
    with pytest.raises(ValueError, match=r"GradientDescent\(step=-1\)"):
        method_page["GradientDescent"](step=-1)


def test_a_method_of_ones_own_stops_and_resumes(method_page: dict[str, Any], tmp_path: pathlib.Path) -> None:
    def solve(**options: Any) -> fp.Result:
        algorithm = method_page["GradientDescent"]()
        return fp.solve(method_page["problem"], method_page["hospitals"], algorithm, tolerance=1e-5, **options)

    assert solve(save=tmp_path, max_rounds=7).status == "max_rounds"
    resumed = solve(save=tmp_path, resume=True)
    np.testing.assert_array_equal(resumed.history["objective"], method_page["result"].history["objective"])


def test_an_engine_of_ones_own_gives_the_same_rounds(tmp_path: pathlib.Path) -> None:
    page = run_page("write_an_engine.md")
    result, problem, hospitals = page["result"], page["problem"], page["hospitals"]
    local = fp.solve(problem, hospitals, tolerance=1e-6)
    assert (result.status, result.rounds, result.exchanges) == (local.status, local.rounds, local.exchanges)
    assert (result.bytes_up, result.bytes_down) == (local.bytes_up, local.bytes_down)
    np.testing.assert_allclose(result.params["w"], local.params["w"], rtol=0, atol=1e-10)
    engine = page["Threads"]()
    fp.solve(problem, hospitals, engine=engine, tolerance=1e-6, save=tmp_path, max_rounds=4)
    resumed = fp.solve(problem, hospitals, engine=engine, tolerance=1e-6, save=tmp_path, resume=True)
    np.testing.assert_array_equal(resumed.params["w"], result.params["w"])


def test_what_is_no_engine_is_refused() -> None:
    no_engine: Any = object()
    with pytest.raises(TypeError, match="connect"):
        fp.solve(fp.minimize(fp.mean(lambda w, rows: rows["y"])), [fp.Table(y=[1.0])], start=0.0, engine=no_engine)
