"""fp.verify: somebody else measures the certificate of a saved run again."""

import dataclasses
import os
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedpact.certificate import Certificate
from fedpact.engines.local import LocalNetwork
from fedpact.federation.columns import ColumnParties
from fedpact.federation.rows import Parties, split_rows
from fedpact.precision import in_double
from fedpact.problem.statement import Problem
from fedpact.protocol.algorithm import Answer
from fedpact.protocol.options import check
from fedpact.run import drivers
from fedpact.run.checkpoint import Folder
from fedpact.run.fingerprint import digest
from fedpact.settings import bind


@dataclasses.dataclass(frozen=True)
class Verification:
    """`ok`: the certificate, measured again, holds to `tolerance`. `certificate` has it in full, `claimed` what was said."""

    ok: bool
    tolerance: float
    certificate: Certificate
    claimed: dict[str, float]

    @property
    def stationarity(self) -> float:
        return self.certificate.stationarity

    @property
    def feasibility(self) -> float:
        return self.certificate.feasibility

    @property
    def complementarity(self) -> float:
        return self.certificate.complementarity

    def __str__(self) -> str:
        lines = [f"{'holds' if self.ok else 'does NOT hold'} to {self.tolerance:g}"]
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
    tolerance: float | None = None,
) -> Verification:
    """Recompute the certificate of a run saved in `folder` from the parties' data.

    Read from the folder: the parameters and multipliers (answer.npz); the tolerance that the run claims, the numbers that it
    claims, its parties' names and its problem's digest (run.json). All that is measured comes from `problem` and `parties`.

    - `folder`: of the run, as it was given as `save=`.
    - `problem`, `parties`, `server`: as in `fp.solve`.
    - `params`: a tree of the parameters' shape, for problems without a model (default: a plain vector).
    - `tolerance`: to which the certificate must hold (default: the run's own claim, which whoever wrote the folder chose).

    Returns an `fp.Verification`. Raises ValueError where the folder holds a run of another problem or of other parties.
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"a problem is made by fp.minimize(...), not {type(problem).__name__}")
    if not isinstance(folder, str | os.PathLike) or not os.fspath(folder):
        raise TypeError(f"fp.verify takes the folder of a run, as it was given as save=, not {folder!r}")
    if tolerance is not None:
        check("verify", "tolerance", tolerance, lambda x: x > 0, "a positive number, or None for the run's own")
    arrays, words = Folder(folder).load_answer()
    if words.get("problem") != digest(problem.public):
        raise ValueError(f"{folder} holds a run of another problem than the one given")
    parties = parties if isinstance(parties, Parties | ColumnParties) else split_rows(parties)
    if list(parties.names) != words["parties"]:
        raise ValueError(
            f"the run was over {', '.join(words['parties'])}; these parties are {', '.join(parties.names)}"
        )
    guessed = problem.model is None and params is None
    start = params if problem.model is None else None
    try:
        bound = bind(problem, parties, server, start=np.zeros_like(arrays["w"]) if guessed else start)
    except ValueError as error:
        if not guessed:
            raise
        raise ValueError(
            f"the problem has no model, so the parameters were taken for a plain vector, and then {error}; give "
            "fp.verify(..., params=...), a tree of the parameters' shape such as result.params"
        ) from None
    expected = {
        "w": (bound.shape.size,),
        "party_multipliers": (len(bound.names), len(bound.compiled.party.constraints)),
        **{f"block {name}": shape for name, shape in bound.block_shapes().items()},
        "server_multipliers": (len(bound.compiled.server.constraints),),
        "pooled_multipliers": (len(bound.compiled.party.pooled),),
    }
    for name, shape in expected.items():
        if name not in arrays or arrays[name].shape != shape:
            raise ValueError(f"{folder}: {name} has the shape {getattr(arrays.get(name), 'shape', None)}, not {shape}")
    w, held, pooled = (jnp.asarray(arrays[n]) for n in ("w", "server_multipliers", "pooled_multipliers"))
    answer = Answer(w, held, pooled, jnp.asarray(0.0))
    network, kept = LocalNetwork.of(bound), bound.kept_in(arrays)
    measured, _ = drivers.run_phases(bound.measurement, network, bound.server_data, answer, kept)
    certificate = bound.certify(measured, answer)
    claimed = {name: float(words[name]) for name in ("stationarity", "feasibility", "complementarity", "objective")}
    asked = float(words["tolerance"] if tolerance is None else tolerance)
    return Verification(certificate.holds(asked), asked, certificate, claimed)
