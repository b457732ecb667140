"""The first tutorial as a notebook: `python docs_site/notebook.py` writes docs/tutorial.ipynb from docs/tutorial.md.

A Python block becomes a cell, with the block of text after it as its output; what is between becomes a cell of Markdown.
"""

import json
import pathlib
import re
from typing import Any

DOCS = pathlib.Path(__file__).parents[1] / "docs"
PAGE, NOTEBOOK = DOCS / "tutorial.md", DOCS / "tutorial.ipynb"
PROGRAM = re.compile(r"```python\n(?P<code>.*?)```\n(?:```\n(?P<output>.*?)```\n)?", re.DOTALL)
ABOUT_KERNEL = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}


def lines(text: str) -> list[str]:
    return text.strip("\n").splitlines(keepends=True)


def words_cell(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": lines(text)}


def program_cell(code: str, output: str | None) -> dict[str, Any]:
    printed = [] if output is None else [{"name": "stdout", "output_type": "stream", "text": lines(output)}]
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": printed, "source": lines(code)}


def notebook(page: str) -> str:
    """A page of Markdown as the text of a notebook (nbformat 4.5)."""
    cells, end = [], 0
    for program in PROGRAM.finditer(page):
        cells += [words_cell(page[end : program.start()]), program_cell(program["code"], program["output"])]
        end = program.end()
    cells = [cell for cell in [*cells, words_cell(page[end:])] if cell["source"]]
    numbered = [{"id": f"cell-{number}", **cell} for number, cell in enumerate(cells)]
    whole = {"cells": numbered, "metadata": ABOUT_KERNEL, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    NOTEBOOK.write_text(notebook(PAGE.read_text()))
