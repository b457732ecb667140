"""Run every benchmark and write docs/benchmarks.md."""

import argparse
import pathlib
import platform
import subprocess

import jax

from benchmarks import (
    against_slsqp,
    against_torch,
    audit,
    cold_start,
    compiling,
    crossing,
    decisions,
    encrypted_round,
    flare,
    flower,
    gpu,
    grid_search,
    large,
    many_parties,
    matching,
    mesh,
    overhead,
    participation,
    personal,
    private,
    promises,
    scaling,
    secure,
    sharp_rates,
    torch_callback,
)

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "benchmarks.md"
PARTS = {
    "slsqp": against_slsqp,
    "torch": against_torch,
    "crossing": crossing,
    "overhead": overhead,
    "scaling": scaling,
    "personal": personal,
    "rates": sharp_rates,
    "large": large,
    "cold": cold_start,
    "compiling": compiling,
    "grid": grid_search,
    "encrypted": encrypted_round,
}
# These want an engine, a device, the whole machine or much time: only where they are named.
APART = {
    "audit": audit,
    "decisions": decisions,
    "flare": flare,
    "flower": flower,
    "matching": matching,
    "mesh": mesh,
    "gpu": gpu,
    "participation": participation,
    "parties": many_parties,
    "private": private,
    "promises": promises,
    "secure": secure,
    "callback": torch_callback,
}
WHICH = f"which (default: all but {', '.join(APART)}, and the page is written; sections of other parts stay in it)"


def machine() -> str:
    cores = len(__import__("os").sched_getaffinity(0))
    model = subprocess.run(["lscpu"], capture_output=True, text=True, check=False).stdout
    named = [line.split(":", 1)[1].strip() for line in model.splitlines() if line.startswith("Model name")]
    cpu = named[0] if named and named[0] != "-" else platform.machine()
    return f"{cpu}, {cores} cores, {platform.system()}, Python {platform.python_version()}, JAX {jax.__version__} (CPU, float64)"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, *APART, []], help=WHICH)
    chosen = parser.parse_args().parts
    texts = []
    for name, part in (PARTS | APART).items():
        if name in chosen or (not chosen and name in PARTS):
            text = part.measure()
            print(text, flush=True)
            texts.append(text)
    if not chosen:
        head = (
            "# Benchmarks\n\n`make bench` measures this in one run and writes this page, but for sections that name "
            "their own command; those of engines are on the pages of [NVIDIA FLARE](flare.md), [Flower](flower.md) and [the "
            "mesh](mesh.md). The machine is shared and noisy: read the ratios.\n\n"
            f"Machine: {machine()}.\n\n"
        )
        measured = {_title(text) for text in texts}
        kept = [section for section in _sections(PAGE.read_text()) if _title(section) not in measured]
        PAGE.write_text(head + "\n".join(texts + kept))
        print(f"written to {PAGE}")


def _sections(page: str) -> list[str]:
    return [f"## {part}" for part in page.split("\n## ")[1:]]


def _title(section: str) -> str:
    return section.splitlines()[0]


main()
