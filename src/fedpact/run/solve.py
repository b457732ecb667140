"""fp.solve: bind, run, certify, hand back; stop cleanly and go on later."""

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any, get_args

from fedpact import __about__
from fedpact.engines.local import Local
from fedpact.engines.secure import SecureLocal
from fedpact.federation.binding import drawn_starts
from fedpact.federation.columns import ColumnParties
from fedpact.federation.rows import Parties, checked_seed, split_rows
from fedpact.federation.table import as_table
from fedpact.precision import in_double, kept_programs
from fedpact.privacy.differential import DifferentialPrivacy
from fedpact.privacy.residuals import EncryptedResiduals
from fedpact.privacy.secure_sums import SecureAggregation, checked_parties, is_secure
from fedpact.problem.statement import Problem
from fedpact.protocol.algorithm import Algorithm
from fedpact.protocol.engine import Engine
from fedpact.run.checkpoint import Folder
from fedpact.run.fingerprint import digest, digest_of_data
from fedpact.run.first_multipliers import begun_with, digest_of_start
from fedpact.run.history import History
from fedpact.run.loop import Driver, Run, checked_limits
from fedpact.run.private import PrivateRun
from fedpact.run.progress import ProgressLine
from fedpact.run.result import Result
from fedpact.run.saved_model import reads_features
from fedpact.run.selection import checked_starts, chosen, from_starts, protected, titled
from fedpact.run.watching import finished
from fedpact.settings import bind


@in_double
def solve(
    problem: Problem,
    parties: Parties | Any,
    algorithm: Algorithm | None = None,
    *,
    tolerance: float | tuple[float, float] = 1e-4,
    max_rounds: int = 10_000,
    server: Any = None,
    start: Any = None,
    multipliers: Mapping[str, Any] | None = None,
    starts: int = 1,
    seed: int = 0,
    save: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: bool | None = None,
    disclose: bool | None = None,
    driver: Driver | None = None,
    watch: Callable[[History], None] | None = None,
    privacy: EncryptedResiduals | SecureAggregation | DifferentialPrivacy | None = None,
    engine: Engine | None = None,
    scale: bool = True,
) -> Result:
    """Solve a problem over parties and certify the answer.

    - `problem`: what to solve, from `fp.minimize`.
    - `parties`: who holds which rows or columns: from `fp.split_rows` or `fp.split_columns`, or a list or mapping of tables.
    - `algorithm`: the method and its options (default: `fp.InteriorPoint()` up to 400 parameters, `fp.ProxAL(fp.LBFGS())`
      above, or where Hessians would take 4e9 multiplications a round; over columns `fp.FairVFL()`, with personal sets
      `fp.PersonalProjected()`, with `fp.DifferentialPrivacy` `fp.PrimalDual()`; `fp.explain` says which and why).
    - `tolerance`: on stationarity, feasibility and complementarity (> 0, default 1e-4), in the units that `scale` says; or two,
      the first on stationarity, the second on feasibility and complementarity: `tolerance=(1e-4, 1e-6)`.
    - `max_rounds`: rounds of communication in all, those before a resume included (>= 1, default 10,000).
    - `server`: the server's own table, for constraints and objectives `.at_server()` (default: none).
    - `start`: parameters to begin with, a tree of the model's shape (default: the model's own initial parameters); or an
      `fp.Result`, whose parameters and multipliers these are, by name of constraint, for instance after a bound has changed.
    - `multipliers`: to begin with, by name of constraint: one number, one for each holder, or an array (holders, scalar
      inequalities); those of inequalities >= 0, in units of the objective per unit of the constraint (default: those of a result
      in `start`, else 0). `fp.ProxAL`, `fp.CentralProxAL`, `fp.FairVFL` and `fp.PrimalDual` begin with them; other methods
      take the parameters of a result only, and refuse `multipliers`.
    - `starts`: how many starts to solve from at once (>= 1, default 1), for nonconvex problems, with `fp.InteriorPoint`,
      `fp.ProxAL` and `fp.CentralProxAL`. The first is `start`; the others are the model's own initial parameters with the
      seeds `seed + 1`, `seed + 2`, … where these are random, else w ± z (1 + |w|) with z standard normal, in the units that
      `scale` says. One exchange serves all starts, with messages `starts` times as long. The run goes on until all have ended
      or `max_rounds`; the best is then certified: of those that converged the one with the lowest objective, else the least
      violated one. The history has the best start so far, which it is (`start`) and how many still run (`running`):
      docs/runs.md.
    - `seed`: of everything random, a whole number from 0 (default 0).
    - `save`: a folder that the run is saved to, every 10 s and at the end (default: nothing is saved).
    - `resume`: go on with the run in that folder, or begin one if it holds none (default: no).
    - `progress`: a live line on stderr: seconds of compiling, then the rounds (default: on a terminal and in notebooks).
    - `disclose`: whether parties tell their constraint values, their multipliers and their part of the objective in every round,
      for the report's curves (default: while parties times constraints are at most 512, not with several starts, and not where
      sums are secure). The certificate at the end tells constraint values and multipliers in any case but with secure sums,
      where `disclose=True` says that parties agree to tell them.
    - `driver`: what is compiled. "host": only what parties do, the server computes with NumPy (default of methods of few rounds);
      "chunked": whole rounds, many per call (default of the others); "stepwise": whole rounds, one per call; "fused": all rounds
      in one call, without history. The rounds are the same.
    - `watch`: a function of the history so far (`fp.History`), called between calls of the driver; or a tracker such as
      `fp.trackers.MLflow()`, whose `finish` is called with the result too (default: none).
    - `privacy`: `fp.SecureAggregation()` lets the server have sums over parties only; `fp.EncryptedResiduals()` hides the
      residuals of fp.FairVFL and fp.FedBCD from passive parties; `fp.DifferentialPrivacy(epsilon, delta, clip)` adds noise to
      what parties tell of their rows, docs/differential_privacy.md (default: none).
    - `engine`: where the parties are: `fp.Mesh()` spreads them over devices or hosts, or anything with
      `connect(bound) -> (bound, network)`, see docs/write_an_engine.md (default: all in this process, vectorised).
    - `scale`: whether `fp.InteriorPoint`, `fp.ProxAL` and `fp.CentralProxAL` learn units of the parameters, the objective and
      each constraint at the start, by one more exchange, and work and are certified in these (default True): then neither the
      units of a column nor a factor before a constraint or the objective matter. `certificate.units` has them, docs/units.md
      says how they are found. With False, and for other methods, the tolerance is in the units of the problem's own numbers.

    Returns an `fp.Result`. Ctrl-C ends the run with status "stopped"; what was reached is returned, and saved where `save` is
    given.

    Raises ValueError or TypeError where problem, data and method do not fit together, with the party, column or constraint
    and the way out.
    """
    if algorithm is not None and not isinstance(algorithm, Algorithm):
        raise TypeError(f"expected an algorithm such as fp.ProxAL(), not {algorithm!r}")
    within, max_rounds = checked_limits(tolerance, max_rounds)
    for name, flag in (("progress", progress), ("disclose", disclose)):
        if flag is not None and not isinstance(flag, bool):
            raise TypeError(f"{name}={flag!r}: True, False, or None for the default")
    for name, flag in (("resume", resume), ("scale", scale)):
        if not isinstance(flag, bool):
            raise TypeError(f"{name}={flag!r}: True or False")
    if watch is not None and not callable(watch):
        raise TypeError(f"watch={watch!r}: a function of the history")
    if driver not in (None, *get_args(Driver)):
        raise ValueError(f"driver={driver!r}: one of {', '.join(map(repr, get_args(Driver)))}")
    if engine is not None and not callable(getattr(engine, "connect", None)):
        raise TypeError(
            f"engine={engine!r}: fp.Mesh(), or another engine with a method connect(bound); across organisations see "
            "`fedpact deploy`"
        )
    if resume and save is None:
        raise ValueError("resume=True needs save=, the folder of the run to go on with")
    parties = parties if isinstance(parties, Parties | ColumnParties) else split_rows(parties)
    own = None if server is None else as_table(server)
    seed, starts = checked_seed(seed), checked_starts(starts, disclose)
    secure = is_secure(privacy) or bool(getattr(privacy, "summed", False))  # shares of noise protect sums
    if is_secure(privacy):
        checked_parties(len(parties.names))
    if secure:
        disclose = bool(disclose)
        if engine is not None:
            raise ValueError(f"engine={engine!r} adds up in the clear; leave engine= or privacy= out")
        engine = SecureLocal()
    before = start.certificate if isinstance(start, Result) else None
    start = start.params if isinstance(start, Result) else start
    bound = bind(problem, parties, own, start=start, seed=seed, disclose=disclose if starts == 1 else False)
    bound = bound.secured(bool(getattr(privacy, "checked", None))) if secure else bound
    setting = dataclasses.replace(bound.setting, scale=scale)
    algorithm, private = chosen(algorithm, setting, privacy), None
    if isinstance(privacy, DifferentialPrivacy):
        private = PrivateRun.of(privacy, algorithm, bound, save)
        bound = private.behind_noise(bound)
        setting = dataclasses.replace(bound.setting, scale=scale)
    else:
        algorithm = protected(algorithm, privacy)
    bound = begun_with(bound, algorithm, setting, multipliers, before, starts)
    method = from_starts(algorithm, setting, starts)
    if starts > 1 and isinstance(parties, Parties):
        bound = bound.with_starts(drawn_starts(problem, parties, seed, starts - 1))
    begun = None if save is None else digest_of_start(bound)  # before hosts have parts of it only
    with kept_programs(), ProgressLine(progress) as line:
        bound, network = (engine or Local()).connect(bound)
        with line.waiting("compiling ..."):
            run = Run(bound, method, titled(algorithm, setting, starts), within, seed, driver, network)
        if save is not None:
            owner = {
                "version": __about__.VERSION,
                "problem": digest(problem.public),
                "algorithm": digest(method),
                "data": digest_of_data(parties, own, problem.personal),
                "start": begun,
                "seed": seed,
                "disclose": bound.discloses,
                **({"secure": True} if secure else {}),
            }
            run.open(Folder(save), owner, resume)
            if network.agree(run.rounds) != run.rounds:
                raise ValueError(
                    f"{save} holds {run.rounds} rounds, and the first host's folder another number: they were not saved "
                    "together; begin again in a new folder"
                )
        status = run.go(max_rounds, line, watch)
        result = run.result(problem, status, parties.features if reads_features(problem) else None, parties.recipe)
        result = result if private is None else private.told(result)
    finished(watch, result)
    return result
