"""What a user waits for: importing, and a fresh process that imports, compiles and solves."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

EXAMPLE = pathlib.Path(__file__).parents[1] / "examples" / "neyman_pearson.py"


def measure() -> str:
    def seconds(command: list[str], cache: str) -> float:
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, *command], env={**os.environ, "FEDPACT_CACHE": cache}, check=True, capture_output=True
        )
        return time.perf_counter() - began

    with tempfile.TemporaryDirectory() as cache:
        nothing = min(seconds(["-c", "pass"], cache) for _ in range(3))
        bare = min(seconds(["-c", "import jax"], cache) for _ in range(3)) - nothing
        ours = min(seconds(["-c", "import fedpact"], cache) for _ in range(3)) - nothing
        cold, warm = seconds([str(EXAMPLE)], cache), min(seconds([str(EXAMPLE)], cache) for _ in range(2))
    return (
        "## Cold start\n\n"
        "| | seconds |\n|---|---|\n"
        f"| `import jax` | {bare:.2f} |\n| `import fedpact` (jax included) | {ours:.2f} |\n"
        f"| a fresh process solves examples/neyman_pearson.py, empty cache | {cold:.2f} |\n"
        f"| the same again, programs kept in the cache folder | {warm:.2f} |\n"
    )
