"""The programs of docs/from_pytorch.md, one after the other: ported networks have the scores of PyTorch's."""

import pathlib
from typing import Any

import jax
import pytest

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "from_pytorch.md"


def test_the_page_runs() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
    names: dict[str, Any] = {}
    programs = [part.split("```")[0] for part in PAGE.read_text().split("```python\n")[1:]]
    assert len(programs) == 2
    with jax.numpy_dtype_promotion("standard"):
        for program in programs:
            exec(program, names)
    assert names["result"].rounds == 5
