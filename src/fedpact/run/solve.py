"""fp.solve: bind, run, certify, hand back; stop cleanly and go on later."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from fedpact import __about__
from fedpact.engines.local import LocalNetwork
from fedpact.engines.mesh import Mesh
from fedpact.federation.binding import Bound
from fedpact.federation.blocks import bind_any
from fedpact.federation.columns import ColumnParties
from fedpact.federation.rows import Parties, checked_seed, split_rows
from fedpact.federation.table import as_table
from fedpact.precision import in_double, kept_programs
from fedpact.privacy.residuals import EncryptedResiduals
from fedpact.problem.statement import Problem
from fedpact.protocol.algorithm import Algorithm
from fedpact.run.checkpoint import Folder
from fedpact.run.fingerprint import digest, digest_of_data
from fedpact.run.history import History
from fedpact.run.loop import Driver, Running, checked_limits
from fedpact.run.progress import ProgressLine
from fedpact.run.result import Result
from fedpact.run.selection import chosen, protected


@in_double
def solve(
    problem: Problem,
    parties: Parties | Any,
    algorithm: Algorithm | None = None,
    *,
    tolerance: float = 1e-4,
    max_rounds: int = 10_000,
    server: Any = None,
    start: Any = None,
    seed: int = 0,
    save: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: bool | None = None,
    disclose: bool | None = None,
    driver: Driver = "chunked",
    watch: Callable[[History], None] | None = None,
    privacy: EncryptedResiduals | None = None,
    engine: Mesh | None = None,
) -> Result:
    """Solve a problem over parties and certify the answer.

    parties: from `fp.split_rows`. server: the server's own table, for constraints `.at_server()`.
    algorithm: default `fp.InteriorPoint()` up to 400 parameters, `fp.ProxAL(fp.LBFGS())` above; over columns `fp.FairVFL()`,
        with personal sets `fp.PersonalProjected()`; see `fp.explain`.
    tolerance: on stationarity, feasibility and complementarity (default 1e-4, in the units of the problem's own numbers).
    max_rounds: rounds of communication in all, those before a resume included (default 10,000).
    start: parameters to begin with (default: the model's own). seed: of everything random.
    save: a folder for the run; resume: go on with the run that it holds (or begin, if it holds none).
    progress: a live line on stderr (default: on a terminal). watch: called with the history between calls of the driver.
    disclose: whether parties tell their constraint values and multipliers in every round, for the report (default: up to
        512 of them). The certificate at the end tells them in any case.
    privacy: fp.EncryptedResiduals() hides the residuals of fp.FairVFL and fp.FedBCD from passive parties (default: nothing).
    engine: fp.Mesh() spreads the parties over devices or hosts (default: all in one, vectorised).
    driver: "chunked" rounds with history (default), "fused" (one program, no history), "stepwise" (one round per call).

    Ctrl-C ends the run with status "stopped"; what was reached is returned, and saved where `save` is given.
    """
    if algorithm is not None and not isinstance(algorithm, Algorithm):
        raise TypeError(f"an algorithm is wanted, such as fp.ProxAL(), not {algorithm!r}")
    tolerance, max_rounds = checked_limits(tolerance, max_rounds)
    for name, flag in (("progress", progress), ("disclose", disclose)):
        if flag is not None and not isinstance(flag, bool):
            raise TypeError(f"{name}={flag!r}: True, False, or None for the default")
    if not isinstance(resume, bool):
        raise TypeError(f"resume={resume!r}: True or False")
    if watch is not None and not callable(watch):
        raise TypeError(f"watch={watch!r}: a function of the history")
    if driver not in ("chunked", "fused", "stepwise"):
        raise ValueError(f"driver={driver!r}: 'chunked', 'fused' or 'stepwise'")
    if engine is not None and not isinstance(engine, Mesh):
        raise TypeError(f"engine={engine!r}: fp.Mesh(), or None; across organisations see `fedpact deploy`")
    if resume and save is None:
        raise ValueError("resume=True needs save=, the folder of the run to go on with")
    parties = parties if isinstance(parties, Parties | ColumnParties) else split_rows(parties)
    own = None if server is None else as_table(server)
    seed = checked_seed(seed)
    bound = bind_any(problem, parties, own, start=start, seed=seed, disclose=disclose)
    algorithm = protected(chosen(algorithm, bound.setting), privacy).prepared(bound.setting)
    with kept_programs():
        bound, net = (bound, LocalNetwork.of(bound)) if engine is None else engine.spread(bound)
        run = Running(bound, algorithm, tolerance, seed, driver, net)
        if save is not None:
            owner = {
                "version": __about__.VERSION,
                "problem": digest(problem.public),
                "algorithm": digest(algorithm),
                "data": digest_of_data(parties, own, problem.personal),
                "start": digest(np.asarray(bound.start)),
                "seed": seed,
                "disclose": isinstance(bound, Bound) and bound.oracles[0].discloses,
            }
            run.open(Folder(save), owner, resume)
            if net.agreed(run.rounds) != run.rounds:
                raise ValueError(
                    f"{save} holds {run.rounds} rounds, and the first host's folder another number: they were not saved "
                    "together; begin again in a new folder"
                )
        with ProgressLine(progress) as line:
            status = run.go(max_rounds, line, watch)
        return run.result(problem, status)
