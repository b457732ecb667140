"""Which method fits a problem, and what it will cost: `fp.explain`."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from fedpact.algorithms.fair_vfl.fed_bcd import FedBCD
from fedpact.algorithms.fair_vfl.method import FairVFL
from fedpact.algorithms.interior_point.method import InteriorPoint
from fedpact.algorithms.personal.projected import PersonalProjected
from fedpact.algorithms.prox_al.admm import ADMM
from fedpact.algorithms.prox_al.central import CentralProxAL
from fedpact.algorithms.prox_al.lbfgs import LBFGS
from fedpact.algorithms.prox_al.method import ProxAL
from fedpact.algorithms.prox_al.newton import Newton
from fedpact.engines.local import LocalNetwork, Metered
from fedpact.federation.binding import Bound
from fedpact.federation.blocks import BoundColumns, bind_any
from fedpact.federation.columns import ColumnParties
from fedpact.federation.rows import Parties
from fedpact.federation.setting import Setting
from fedpact.precision import in_double
from fedpact.privacy.residuals import EncryptedResiduals
from fedpact.problem.statement import Problem
from fedpact.protocol.algorithm import Algorithm, ColumnAlgorithm, Goal, PersonalAlgorithm
from fedpact.report.words import in_bytes

INTERIOR_UP_TO = (
    400  # parameters; above, factoring a Hessian takes longer than L-BFGS's many rounds (docs/benchmarks.md)
)
# rounds to 1e-6 on the problems of `fedpact reproduce rounds`, least median and worst; L-BFGS and ADMM to 1e-3
ROUNDS: dict[type, tuple[int, int]] = {
    InteriorPoint: (8, 48),
    Newton: (24, 68),
    CentralProxAL: (24, 68),
    LBFGS: (37, 231),
    ADMM: (28, 487),
}


def automatic(size: int) -> Algorithm:
    """The method that `fp.solve` takes when none is given, for this many parameters."""
    return InteriorPoint() if size <= INTERIOR_UP_TO else ProxAL(LBFGS())


def chosen(algorithm: Algorithm | None, setting: Setting) -> Algorithm:
    """The method that was given, or the automatic choice; refused where it cannot take split columns or personal sets."""
    if setting.personal:
        algorithm = algorithm or PersonalProjected()
        if not isinstance(algorithm, PersonalAlgorithm):
            raise ValueError(
                f"{type(algorithm).__name__} trains one model for all and knows no personal sets; solve with "
                "fp.PersonalProjected() or fp.PCFedAvg, or with fp.FedAvg, fp.FedProx or fp.SCAFFOLD as baselines"
            )
        return algorithm
    if isinstance(algorithm, PersonalAlgorithm) and algorithm.models == "each":
        raise ValueError(
            f"{type(algorithm).__name__} gives every party a model of its own; state the sets they must lie in by "
            "fp.minimize(..., personal=fp.Personal(sets, pull))"
        )
    if not setting.columns:
        return algorithm or automatic(setting.size)
    algorithm = algorithm or FairVFL()
    if not isinstance(algorithm, ColumnAlgorithm):
        raise ValueError(
            f"{type(algorithm).__name__} takes parties who hold rows; over columns use fp.FairVFL(), or fp.SSCA(batch=100)"
        )
    return algorithm


def protected(algorithm: Algorithm, privacy: EncryptedResiduals | None) -> Algorithm:
    """The same method with what it sends protected."""
    if privacy is None:
        return algorithm
    if not isinstance(privacy, EncryptedResiduals):
        raise TypeError(f"privacy={privacy!r}: fp.EncryptedResiduals(), or None")
    if not isinstance(algorithm, FairVFL | FedBCD):
        raise ValueError(f"fp.EncryptedResiduals protects fp.FairVFL and fp.FedBCD, not {type(algorithm).__name__}")
    return dataclasses.replace(algorithm, privacy=privacy)


def title(algorithm: Algorithm) -> str:
    """A method in words: "ProxAL with Newton"."""
    inner = getattr(algorithm, "inner", None)
    return type(algorithm).__name__ + (f" with {type(inner).__name__}" if inner is not None else "")


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What `fp.solve` would do. Bytes are per round, of one party; rounds are what like problems have taken."""

    method: str
    reason: str
    size: int
    parties: int
    rounds: tuple[int, int] | None
    bytes_up: int
    bytes_down: int

    def __str__(self) -> str:
        lines = [
            f"{self.method}, for {self.size} parameters over {self.parties} parties: {self.reason}.",
            f"A round sends {in_bytes(self.bytes_up)} up from each party and {in_bytes(self.bytes_down)} down to it.",
        ]
        if self.rounds is not None:
            fewest, most = self.rounds
            low, high = (in_bytes(n * (self.bytes_up + self.bytes_down)) for n in self.rounds)
            lines.append(
                f"Like problems took {fewest} to {most} rounds (`fedpact reproduce rounds`): {low} to {high} for each party."
            )
        return "\n".join(lines)


@in_double
def explain(
    problem: Problem,
    parties: Parties | ColumnParties | Any,
    algorithm: Algorithm | None = None,
    *,
    server: Any = None,
    start: Any = None,
) -> Explanation:
    """Say which method `fp.solve` would take for this problem, why, and what its rounds cost; nothing is solved.

    Arguments as in `fp.solve`. `print(fp.explain(problem, parties))` reads as text.
    """
    bound = bind_any(problem, parties, server, start=start)
    size = bound.setting.size
    reason = "as you asked" if algorithm is not None else _reason(bound.setting)
    prepared = chosen(algorithm, bound.setting).prepared(bound.setting)
    up, down = _bytes_per_round(bound, prepared)
    solver = getattr(prepared, "inner", None) or prepared
    n = len(bound.names)
    return Explanation(title(prepared), reason, size, n, ROUNDS.get(type(solver)), up // n, down // n)


def _reason(setting: Setting) -> str:
    if setting.personal:
        return "every party has a model of its own in a set of its own, which stays with it"
    if setting.columns:
        return "columns are split, and it keeps constraints over labels and groups; for very many rows see fp.SSCA"
    if setting.size <= INTERIOR_UP_TO:
        return f"up to {INTERIOR_UP_TO} parameters a Hessian can be sent and factored, and it saves nearly all rounds"
    return f"above {INTERIOR_UP_TO} parameters a Hessian is too much to send and to factor; many small rounds cost less"


class _Certain(Metered):
    """Counts what every round exchanges, not what a round may ask besides."""

    def when(self, predicate: jax.Array, branch: Any, *operands: Any) -> Any:
        return self.net.when(predicate, branch, *operands)


def _bytes_per_round(bound: Bound | BoundColumns, algorithm: Algorithm) -> tuple[int, int]:
    net = LocalNetwork.of(bound)
    counted = _Certain(net)

    def once(w: jax.Array) -> Any:
        goal = Goal(jnp.asarray(1e-4), jnp.asarray(1e-4))
        server, parties = algorithm.init(net, w, goal, jax.random.key_data(jax.random.key(0)))
        return algorithm.round(server, parties, counted)

    jax.eval_shape(once, bound.start)
    return counted.bytes_up, counted.bytes_down
