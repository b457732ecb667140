"""Strict test mode: float64 outside the library's own context too, no silent promotion, warnings are errors (pyproject)."""

import gc
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest

# The tests wait for the compiler more than for what it compiles. Programs that tests start inherit this; the examples do not
# (tests/test_front_door.py), since they run as users run them. XLA reads the flags once, so they are set before JAX is imported.
COMPILED_QUICKLY = {
    "--xla_backend_optimization_level": "0",
    "--xla_llvm_disable_expensive_passes": "true",
    "--xla_cpu_use_fusion_emitters": "false",  # as fedpact.compiling; here also for what tests compile themselves
    "--xla_cpu_parallel_codegen_split_count": "1",  # two workers have two cores
}
GIVEN_FLAGS = os.environ.get("XLA_FLAGS", "")
os.environ["XLA_FLAGS"] = " ".join(
    [GIVEN_FLAGS, *(f"{flag}={value}" for flag, value in COMPILED_QUICKLY.items() if flag not in GIVEN_FLAGS)]
).strip()

# Three workers have two cores, where threads of BLAS that wait for each other take most of the time: SLSQP on the pooled rows of
# Adult took 330 seconds instead of 16. Libraries that are loaded, as NumPy's is by plugins of pytest, do not read this any more.
for library in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(library, "1")

# Very many programs are started, which would each compile the package's sources to bytecode.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import jax  # noqa: E402
import threadpoolctl  # noqa: E402

import fedpact as fp  # noqa: E402

# Tracing makes very many objects, and looking through all that are kept for cycles takes a twentieth of the tests' time.
gc.freeze()
gc.set_threshold(100_000, 50, 100)

threadpoolctl.threadpool_limits(1)

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")

hypothesis.settings.register_profile("fedpact", deadline=None, max_examples=50, derandomize=True)
hypothesis.settings.load_profile("fedpact")

# One worker runs these one after the other, from the start: two engines at once disturb each other. Of three workers it runs
# nothing else: while it waits for an engine, the others have the cores.
ENGINES = ("test_flare.py", "test_flower.py", "test_flower_run.py", "test_as_written.py")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ and item.path.name not in ENGINES and os.nice(0) == 0:
        os.nice(5)  # engines wait for replies a certain time only, so their processes go first


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in ENGINES)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests are shared out by file, and the engines' files as one."""
    from xdist.scheduler import LoadFileScheduling

    class ByEngine(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "engines" if pathlib.Path(file).name in ENGINES else file

        def _reschedule(self, node: Any) -> None:
            if self.numnodes < 3 or "engines" not in self.assigned_work[node]:
                super()._reschedule(node)
            elif self._pending_of(self.assigned_work[node]) <= 2 and not node.shutting_down:
                node.shutdown()  # after what it has been given

    return ByEngine(config, log)


SHARED_DATA = pathlib.Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture
def data_folder(monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The folder with the papers' data sets: FEDPACT_DATA, or ../shared/data beside the checkout."""
    folder = pathlib.Path(os.environ.get("FEDPACT_DATA", SHARED_DATA))
    if not folder.is_dir():
        pytest.skip("the papers' data sets are not on this machine; set FEDPACT_DATA")
    monkeypatch.setenv("FEDPACT_DATA", str(folder))
    return folder


# Compiled programs hold several mappings of memory each; the kernel allows a process 65,530, and past that is a crash.
MOST_MAPS = 30_000


@pytest.fixture(scope="module", autouse=True)
def few_programs() -> Iterator[None]:
    """A worker that has compiled very many programs forgets them before its next module."""
    yield
    maps = pathlib.Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()


@pytest.fixture(scope="session")
def hospitals() -> fp.Parties:
    return fp.split_rows(fp.datasets.breast_cancer(), parties=5, stratify="y", seed=0)


@pytest.fixture(scope="session")
def neyman_pearson() -> fp.Problem:
    loss = fp.logistic_loss(fp.linear(bias=True))
    return fp.minimize(
        fp.mean(loss, where=fp.col("y") == 0),
        subject_to=[(fp.mean(loss, where=fp.col("y") == 1) <= 0.2).named("missed cancers")],
        regularizer=fp.l2(1e-3),
    )
