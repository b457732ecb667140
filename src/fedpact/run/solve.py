"""fp.solve: bind, run, certify, hand back; stop cleanly and go on later."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from fedpact import __about__
from fedpact.engines.local import Local
from fedpact.federation.columns import ColumnParties
from fedpact.federation.rows import Parties, checked_seed, split_rows
from fedpact.federation.table import as_table
from fedpact.precision import in_double, kept_programs
from fedpact.privacy.residuals import EncryptedResiduals
from fedpact.problem.statement import Problem
from fedpact.protocol.algorithm import Algorithm
from fedpact.protocol.engine import Engine
from fedpact.run.checkpoint import Folder
from fedpact.run.fingerprint import digest, digest_of_data
from fedpact.run.history import History
from fedpact.run.loop import Driver, Run, checked_limits
from fedpact.run.progress import ProgressLine
from fedpact.run.result import Result
from fedpact.run.selection import chosen, protected
from fedpact.settings import bind


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
    engine: Engine | None = None,
) -> Result:
    """Solve a problem over parties and certify the answer.

    - `problem`: what to solve, from `fp.minimize`.
    - `parties`: who holds which rows or columns: from `fp.split_rows` or `fp.split_columns`, or a list or mapping of tables.
    - `algorithm`: the method and its options (default: `fp.InteriorPoint()` up to 400 parameters, `fp.ProxAL(fp.LBFGS())`
      above; over columns `fp.FairVFL()`, with personal sets `fp.PersonalProjected()`; `fp.explain` says which and why).
    - `tolerance`: on stationarity, feasibility and complementarity, in the units of the problem's own numbers (> 0, default
      1e-4).
    - `max_rounds`: rounds of communication in all, those before a resume included (>= 1, default 10,000).
    - `server`: the server's own table, for constraints and objectives `.at_server()` (default: none).
    - `start`: parameters to begin with, a tree of the model's shape (default: the model's own initial parameters).
    - `seed`: of everything random, a whole number from 0 (default 0).
    - `save`: a folder that the run is saved to, every 10 s and at the end (default: nothing is saved).
    - `resume`: go on with the run in that folder, or begin one if it holds none (default: no).
    - `progress`: a live line on stderr (default: on a terminal).
    - `disclose`: whether parties tell their constraint values and multipliers in every round, for the report's curves (default:
      up to 512 of them). The certificate at the end tells them in any case.
    - `driver`: "chunked" (default: many rounds per call, with history), "fused" (one program for the whole run, no history) or
      "stepwise" (one round per call). The rounds are the same.
    - `watch`: a function of the history so far (`fp.History`), called between calls of the driver (default: none).
    - `privacy`: `fp.EncryptedResiduals()` hides the residuals of fp.FairVFL and fp.FedBCD from passive parties (default: none).
    - `engine`: where the parties are: `fp.Mesh()` spreads them over devices or hosts, or anything with
      `connect(bound) -> (bound, network)`, see docs/write_an_engine.md (default: all in this process, vectorised).

    Returns an `fp.Result`. Ctrl-C ends the run with status "stopped"; what was reached is returned, and saved where `save` is
    given.

    Raises ValueError or TypeError where problem, data and method do not fit together, with the party, column or constraint
    and the way out.
    """
    if algorithm is not None and not isinstance(algorithm, Algorithm):
        raise TypeError(f"expected an algorithm such as fp.ProxAL(), not {algorithm!r}")
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
    if engine is not None and not callable(getattr(engine, "connect", None)):
        raise TypeError(
            f"engine={engine!r}: fp.Mesh(), or another engine with a method connect(bound); across organisations see "
            "`fedpact deploy`"
        )
    if resume and save is None:
        raise ValueError("resume=True needs save=, the folder of the run to go on with")
    parties = parties if isinstance(parties, Parties | ColumnParties) else split_rows(parties)
    own = None if server is None else as_table(server)
    seed = checked_seed(seed)
    bound = bind(problem, parties, own, start=start, seed=seed, disclose=disclose)
    setting = bound.setting
    algorithm = protected(chosen(algorithm, setting), privacy)
    method = algorithm.bind(setting)
    with kept_programs():
        bound, network = (engine or Local()).connect(bound)
        run = Run(bound, method, algorithm.title(setting), tolerance, seed, driver, network)
        if save is not None:
            owner = {
                "version": __about__.VERSION,
                "problem": digest(problem.public),
                "algorithm": digest(method),
                "data": digest_of_data(parties, own, problem.personal),
                "start": digest(np.asarray(bound.start)),
                "seed": seed,
                "disclose": bound.discloses,
            }
            run.open(Folder(save), owner, resume)
            if network.agree(run.rounds) != run.rounds:
                raise ValueError(
                    f"{save} holds {run.rounds} rounds, and the first host's folder another number: they were not saved "
                    "together; begin again in a new folder"
                )
        with ProgressLine(progress) as line:
            status = run.go(max_rounds, line, watch)
        return run.result(problem, status)
