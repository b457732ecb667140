"""Run every benchmark and write docs/benchmarks.md."""

import argparse
import importlib
import pathlib
import platform
import subprocess

import jax

from benchmarks import (
    against_slsqp,
    against_torch,
    cold_start,
    crossing,
    encrypted_round,
    overhead,
    personal,
    scaling,
)

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "benchmarks.md"
PARTS = {
    "slsqp": against_slsqp,
    "torch": against_torch,
    "crossing": crossing,
    "overhead": overhead,
    "scaling": scaling,
    "personal": personal,
    "cold": cold_start,
    "encrypted": encrypted_round,
}
ON_REQUEST = {"flare": "benchmarks.flare"}  # start a deployment engine, so only when named


def machine() -> str:
    cores = len(__import__("os").sched_getaffinity(0))
    model = subprocess.run(["lscpu"], capture_output=True, text=True, check=False).stdout
    named = [line.split(":", 1)[1].strip() for line in model.splitlines() if line.startswith("Model name")]
    cpu = named[0] if named and named[0] != "-" else platform.machine()
    return f"{cpu}, {cores} cores, {platform.system()}, Python {platform.python_version()}, JAX {jax.__version__} (CPU, float64)"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "parts",
        nargs="*",
        choices=[*PARTS, *ON_REQUEST, []],
        help="which (default: all but flare, and the page is written)",
    )
    chosen = parser.parse_args().parts
    texts = []
    for name, part in PARTS.items():
        if not chosen or name in chosen:
            text = part.measure()
            print(text, flush=True)
            texts.append(text)
    for name, module in ON_REQUEST.items():
        if name in chosen:
            print(importlib.import_module(module).measure(), flush=True)
    if not chosen:
        head = (
            "# Benchmarks\n\n`make bench` measures all of this in one run and writes this page. The machine is shared and "
            f"noisy: read the ratios.\n\nMachine: {machine()}.\n\n"
        )
        PAGE.write_text(head + "\n".join(texts))
        print(f"written to {PAGE}")


main()
