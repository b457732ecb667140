"""fp.verify: recompute the certificate of a saved run, independently of the run."""

import dataclasses
import os
from typing import Any

import numpy as np

from fedpact.algorithms.parts.in_units import LEARN_UNITS
from fedpact.certificate import Certificate
from fedpact.engines.local import LocalNetwork
from fedpact.federation.columns import ColumnParties
from fedpact.federation.rows import Parties, split_rows
from fedpact.precision import in_double
from fedpact.problem.statement import Problem
from fedpact.problem.units import Units
from fedpact.protocol.algorithm import Answer, Begin, Corrections, Goal
from fedpact.run import drivers
from fedpact.run.checkpoint import Folder
from fedpact.run.fingerprint import digest
from fedpact.run.infeasible import impossible, proves_infeasible
from fedpact.settings import bind
from fedpact.settings.base import Bound
from fedpact.tolerance import Tolerance


@dataclasses.dataclass(frozen=True)
class Verification:
    """The recomputed certificate of a saved run. Made by `fp.verify`.

    - `ok`: whether stationarity, feasibility and complementarity are all at most `tolerance`.
    - `tolerance`: > 0, or two numbers (stationarity; feasibility and complementarity), in the units of `certificate.units`, or of
      the problem where it has none.
    - `certificate`: as recomputed, an `fp.Certificate`.
    - `claimed`: stationarity, feasibility, complementarity and objective as saved by the run.
    - `infeasible`: of a run that ended "infeasible", whether the multipliers prove it: no parameters within
      `certificate.infeasible_radius` (in units, at least ten times 1 + the norm of the parameters) meet all constraints, which
      are convex. Or whether there are constraints that no parameters meet.
    - `impossible`: the names of the latter: rates that are to be above 1, for instance.
    """

    ok: bool
    tolerance: float | tuple[float, float]
    certificate: Certificate
    claimed: dict[str, float]
    infeasible: bool = False
    impossible: tuple[str, ...] = ()

    @property
    def stationarity(self) -> float:
        """As recomputed."""
        return self.certificate.stationarity

    @property
    def feasibility(self) -> float:
        """As recomputed."""
        return self.certificate.feasibility

    @property
    def complementarity(self) -> float:
        """As recomputed."""
        return self.certificate.complementarity

    def __str__(self) -> str:
        lines = [f"{'holds' if self.ok else 'does NOT hold'} to {Tolerance.of(self.tolerance)}"]
        if self.impossible:
            lines.append(
                f"  infeasible, which is confirmed: no parameters meet {', '.join(map(repr, self.impossible))}"
            )
        elif self.infeasible:
            radius = self.certificate.infeasible_radius
            lines.append(
                f"  infeasible, which is confirmed: the constraints are convex, and no parameters within {radius:.1e} units of "
                "these meet all of them"
            )
        if self.certificate.units is not None:
            unit = float(self.certificate.units.objective)
            lines.append(f"  in units found where the run began, stationarity relative to an objective of {unit:.3g}")
        for name, claim in self.claimed.items():
            lines.append(f"  {name}: measured {getattr(self.certificate, name):.3e}, claimed {claim:.3e}")
        return "\n".join(lines)


@in_double
def verify(
    folder: str | os.PathLike[str],
    problem: Problem,
    parties: Parties | ColumnParties | Any,
    server: Any = None,
    params: Any = None,
    *,
    tolerance: float | tuple[float, float] | None = None,
) -> Verification:
    """Recompute the certificate of a run saved in `folder` from the parties' data.

    The folder provides the parameters and multipliers and where the run began (answer.npz), and the run's tolerance, claimed
    numbers, party names and digest of the problem (run.json). Everything else is evaluated from `problem` and `parties`, the
    units of the certificate too: they are found at the start as the run found them.

    - `folder`: of the run, the `save=` of `fp.solve`.
    - `problem`: from `fp.minimize`, the same as that of the run.
    - `parties`: the same as those of the run.
    - `server`: the server's own table (default: none).
    - `params`: a tree of the parameters' shape, for problems without a model (default: a plain vector).
    - `tolerance`: > 0, or two numbers as of `fp.solve`, to which the certificate must hold (default: the one saved by the run,
      chosen by whoever ran it).

    Returns an `fp.Verification`. Raises FileNotFoundError where the folder has no run, and ValueError where it has a run of
    another problem or of other parties or is damaged.

        fp.solve(problem, parties, save="run")
        assert fp.verify("run", problem, parties, tolerance=1e-4).ok
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"a problem is made by fp.minimize(...), not {type(problem).__name__}")
    if not isinstance(folder, str | os.PathLike) or not os.fspath(folder):
        raise TypeError(f"fp.verify takes the folder of a run, the save= of fp.solve, not {folder!r}")
    given = None if tolerance is None else Tolerance.of(tolerance, "verify")
    arrays, words = Folder(folder).load_answer()
    if words.get("problem") != digest(problem.public):
        raise ValueError(f"{folder} holds a run of another problem")
    parties = parties if isinstance(parties, Parties | ColumnParties) else split_rows(parties)
    if list(parties.names) != words["parties"]:
        raise ValueError(
            f"the run was over {', '.join(words['parties'])}; these parties are {', '.join(parties.names)}"
        )
    if "w" not in arrays:
        raise ValueError(f"{folder}: answer.npz holds no parameters")
    guessed = problem.model is None and params is None
    start = params if problem.model is None else None
    try:
        bound = bind(problem, parties, server, start=np.zeros_like(arrays["w"]) if guessed else start)
    except ValueError as error:
        if not guessed:
            raise
        raise ValueError(
            f"the problem has no model, so the parameters were assumed to be a plain vector, and then {error}; pass "
            "fp.verify(..., params=...), a tree of the parameters' shape such as result.params"
        ) from None
    expected = {
        "w": (bound.shape.size,),
        "party_multipliers": (len(bound.names), len(bound.compiled.party.constraints)),
        **{f"block {name}": shape for name, shape in bound.block_shapes().items()},
        "server_multipliers": (len(bound.compiled.server.constraints),),
        "pooled_multipliers": (len(bound.compiled.party.pooled),),
        **({"start": (bound.shape.size,)} if "start" in arrays else {}),
    }
    counts = any(program.decides for program in bound.setting.programs)
    if counts:
        scopes = ("party", "server", "pooled")
        expected |= {f"{scope}_corrections": expected[f"{scope}_multipliers"] for scope in scopes}
        expected["threshold_shift"] = ()
    for name, shape in expected.items():
        if name not in arrays or arrays[name].shape != shape:
            raise ValueError(f"{folder}: {name} has the shape {getattr(arrays.get(name), 'shape', None)}, not {shape}")
    stated: list[Any] = [*(arrays[name] for name in ("w", "server_multipliers", "pooled_multipliers")), np.zeros(())]
    network, kept = LocalNetwork.of(bound), bound.kept_in(arrays)
    units = None if "start" not in arrays else _units(bound, network, arrays["start"])
    moved: list[Any] = [arrays[f"{scope}_corrections"] for scope in ("server", "pooled") if counts]
    corrections = Corrections(*moved) if moved else None
    shift = np.float64(0.0)
    if counts:
        decided = [rate for program in bound.setting.programs for rate in program.rates if rate.is_decision]
        shift = arrays["threshold_shift"] / decided[0].temperature
    answer = Answer(*stated, units=units, corrections=corrections, threshold_shift=shift)
    measured = drivers.measure(bound, network, answer, kept)
    certificate = bound.certify(measured, answer)
    claimed = {name: float(words[name]) for name in ("stationarity", "feasibility", "complementarity", "objective")}
    asked = given or Tolerance.of(words["tolerance"])
    broken = certificate.feasibility > asked.feasibility and words.get("status") == "infeasible"
    never = impossible(certificate, (c for c, _, _ in bound.compiled.rows), asked.feasibility) if broken else ()
    infeasible = broken and (bool(never) or proves_infeasible(certificate, problem, arrays["w"]))
    names = tuple(report.name for report in never)
    return Verification(certificate.holds(asked), asked.given, certificate, claimed, infeasible, names)


def _units(bound: Bound, network: LocalNetwork, start: np.ndarray) -> Units:
    """The units of the run, found again at its start."""
    nothing: Any = np.zeros(())
    first: Any = start, Goal(nothing, nothing), np.zeros(2, np.uint32)
    on_host = drivers.ServerOnHost(network)
    return drivers.run_phases((LEARN_UNITS,), on_host, drivers.server_data(bound, on_host), Begin(*first), None)[
        0
    ].units
