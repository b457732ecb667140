"""What a user waits for: importing, and a fresh process that imports, compiles and solves."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parents[1]
EXAMPLE = HERE / "examples" / "neyman_pearson.py"
NAMES = "import jax; import fedpact as fp; fp.solve, fp.linear, fp.logistic_loss, fp.split_rows, fp.InteriorPoint"
TIMED = "import time; began = time.perf_counter(); {}; print(time.perf_counter() - began)"


def measure() -> str:
    # an installed package is imported from bytecode, which pip writes
    usual = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def output(command: list[str], cache: str) -> str:
        env = {**usual, "FEDPACT_CACHE": cache}
        return subprocess.run([sys.executable, *command], env=env, check=True, capture_output=True, text=True).stdout

    def seconds(command: list[str], cache: str) -> float:
        began = time.perf_counter()
        output(command, cache)
        return time.perf_counter() - began

    with tempfile.TemporaryDirectory() as cache:
        bare, ours = (
            min(float(output(["-c", TIMED.format(what)], cache)) for _ in range(5)) for what in ("import jax", NAMES)
        )
        cold, warm = seconds([str(EXAMPLE)], cache), min(seconds([str(EXAMPLE)], cache) for _ in range(2))
    readme = (HERE / "README.md").read_text().split("```python\n")[1].split("```")[0]
    with tempfile.TemporaryDirectory() as cache:
        seconds(["-c", readme], cache)  # for bytecode that is not there yet
    with tempfile.TemporaryDirectory() as cache:
        first, again = seconds(["-c", readme], cache), min(seconds(["-c", readme], cache) for _ in range(2))
    return (
        "## Cold start\n\n"
        "| | seconds |\n|---|---|\n"
        f"| `import jax` | {bare:.2f} |\n| `import fedpact` and the names of the README's example (jax included) | {ours:.2f} |\n"
        f"| a fresh process runs the README's example, empty cache | {first:.2f} |\n"
        f"| the same again, programs kept in the cache folder | {again:.2f} |\n"
        f"| a fresh process runs examples/neyman_pearson.py (two methods), empty cache | {cold:.2f} |\n"
        f"| the same again, programs kept in the cache folder | {warm:.2f} |\n"
    )
