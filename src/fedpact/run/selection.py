"""The automatic choice of a method, and its cost per round: `fp.explain`."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from fedpact.engines.local import LocalNetwork
from fedpact.federation.columns import ColumnParties
from fedpact.federation.rows import Parties
from fedpact.federation.setting import Setting
from fedpact.precision import in_double
from fedpact.privacy.differential import DifferentialPrivacy
from fedpact.privacy.residuals import EncryptedResiduals
from fedpact.privacy.secure_sums import SecureAggregation, checked_parties, is_secure
from fedpact.problem.statement import Problem
from fedpact.protocol.algorithm import Algorithm, Begin, Goal, Method
from fedpact.protocol.options import check
from fedpact.protocol.phases import play
from fedpact.report.markup import text
from fedpact.report.words import in_bytes
from fedpact.run.summed import exposed, exposed_in_words
from fedpact.settings import bind
from fedpact.settings.base import Bound

INTERIOR_UP_TO = (
    400  # parameters; above, factoring a Hessian takes longer than L-BFGS's many rounds (docs/benchmarks.md)
)
MOST_WORK = 4e9  # multiplications for Hessians in a round over all parties: above, L-BFGS is faster in one process


def automatic(setting: Setting) -> Algorithm:
    """The default method of `fp.solve` for a setting; only its own module is imported."""
    if setting.split == "personal":
        from fedpact.algorithms.personal.projected import PersonalProjected

        return PersonalProjected()
    if setting.split == "columns":
        from fedpact.algorithms.fair_vfl.method import FairVFL

        return FairVFL()
    if of_second_order(setting):
        from fedpact.algorithms.interior_point.method import InteriorPoint

        return InteriorPoint()
    from fedpact.algorithms.prox_al.lbfgs import LBFGS
    from fedpact.algorithms.prox_al.method import ProxAL

    return ProxAL(LBFGS())


def of_second_order(setting: Setting) -> bool:
    """Whether Hessians are worth their work. Smooth rates need them: only `fp.InteriorPoint` sharpens temperatures."""
    rates = any(program.rates for program in setting.programs)
    return setting.size <= INTERIOR_UP_TO and (rates or hessian_work(setting) <= MOST_WORK)


def hessian_work(setting: Setting) -> float:
    """Multiplications that the Hessians of a round take over all parties: d² for each row and each of their constraints."""
    lines = sum(setting.rows.values()) + setting.parties * (len(setting.programs[0].constraints) + setting.pooled)
    return float(lines) * setting.size**2


def chosen(algorithm: Algorithm | None, setting: Setting, privacy: Any = None) -> Algorithm:
    """The method that the user chose, or the default one."""
    if algorithm is None and isinstance(privacy, DifferentialPrivacy):
        from fedpact.algorithms.primal_dual.method import PrimalDual

        return PrimalDual()
    return algorithm or automatic(setting)


def protected(algorithm: Algorithm, privacy: EncryptedResiduals | SecureAggregation | None) -> Algorithm:
    """The same method, with its residuals encrypted where that is wanted. Raises ValueError for methods that send none."""
    if privacy is None or isinstance(privacy, SecureAggregation):
        return algorithm
    if not isinstance(privacy, EncryptedResiduals):
        raise TypeError(
            f"privacy={privacy!r}: fp.SecureAggregation(), fp.EncryptedResiduals(), in fp.solve also fp.DifferentialPrivacy, or "
            "None"
        )
    if not algorithm.sends_residuals:
        raise ValueError(f"fp.EncryptedResiduals protects fp.FairVFL and fp.FedBCD, not {type(algorithm).__name__}")
    return dataclasses.replace(algorithm, privacy=privacy)


def checked_starts(starts: Any, disclose: bool | None = None) -> int:
    """As a user gave them."""
    check("solve", "starts", starts, lambda x: x >= 1, "a positive whole number; 1 is the default", whole=True)
    if starts > 1 and disclose:
        raise ValueError(f"disclose=True: from {starts} starts parties tell nothing in rounds; leave one of them out")
    return int(starts)


def from_starts(algorithm: Algorithm, setting: Setting, starts: int) -> Method[Any]:
    """The method bound to a setting, from so many starts. Raises ValueError for methods that begin from one."""
    if starts == 1:
        return algorithm.bind(setting)
    if not algorithm.from_several_starts:
        raise ValueError(
            f"starts={starts}: {type(algorithm).__name__} begins from one start, unlike fp.InteriorPoint, fp.ProxAL, "
            "fp.CentralProxAL; call fp.solve with one seed= after another"
        )
    from fedpact.algorithms.parts.several_starts import SeveralStarts

    return SeveralStarts(algorithm.bind(setting), starts)


def titled(algorithm: Algorithm, setting: Setting, starts: int) -> str:
    """The method in words, with its starts where there are several."""
    title = algorithm.title(setting)
    return f"{title}, {starts} starts" if starts > 1 else title


@dataclasses.dataclass(frozen=True)
class Explanation:
    """Which method `fp.solve` would use, and its cost. Made by `fp.explain`; `print` shows it as text.

    - `method`: its name.
    - `reason`: for choosing it, in words.
    - `size`: the number of parameters.
    - `parties`: the number of parties.
    - `rounds`: the least and the most rounds on similar benchmark problems; None where there are none.
    - `bytes_up`, `bytes_down`: sent by and to one party in a round, without headers.
    - `exposed`: parties whose rows the server could read from the Hessians that they send in the clear: those with fewer rows
      than twice the parameters; empty with secure sums, and for methods without Hessians.
    """

    method: str
    reason: str
    size: int
    parties: int
    rounds: tuple[int, int] | None
    bytes_up: int
    bytes_down: int
    exposed: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [
            f"{self.method}, for {self.size} parameters over {self.parties} parties: {self.reason}.",
            f"A round sends {in_bytes(self.bytes_up)} up from each party and {in_bytes(self.bytes_down)} down to it.",
        ]
        if self.rounds is not None:
            fewest, most = self.rounds
            low, high = (in_bytes(n * (self.bytes_up + self.bytes_down)) for n in self.rounds)
            lines.append(
                f"Similar problems took {fewest} to {most} rounds (`fedpact reproduce rounds`): {low} to {high} for each party."
            )
        if self.exposed:
            lines.append(
                f"Beware: in the clear, {exposed_in_words(self.exposed, self.size)}. Across organisations use secure sums "
                "(privacy=fp.SecureAggregation(), three parties or more), or a method without Hessians such as "
                "fp.ProxAL(fp.LBFGS())."
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return "".join(f"<p>{text(line)}</p>" for line in str(self).splitlines())


@in_double
def explain(
    problem: Problem,
    parties: Parties | ColumnParties | Any,
    algorithm: Algorithm | None = None,
    *,
    server: Any = None,
    start: Any = None,
    privacy: SecureAggregation | None = None,
) -> Explanation:
    """Which method `fp.solve` would use for a problem, why, and what its rounds cost; nothing is solved.

    - `problem`: from `fp.minimize`.
    - `parties`: from `fp.split_rows` or `fp.split_columns`, or a list or mapping of tables.
    - `algorithm`: the method whose cost is asked for (default: the one that `fp.solve` would choose).
    - `server`: the server's own table (default: none).
    - `start`: initial parameters, a tree of the model's shape (default: the model's own).
    - `privacy`: `fp.SecureAggregation()`, whose bytes are counted then (default None: sums in the clear).

    Returns an `fp.Explanation`; `print(fp.explain(problem, parties))` shows it as text, and names the parties whose rows a
    server could read from Hessians in the clear. Raises ValueError or TypeError where
    problem, data and method do not fit together.
    """
    if privacy is not None and not is_secure(privacy):
        raise TypeError(f"explain(privacy={privacy!r}): fp.SecureAggregation(), or None for sums in the clear")
    bound = bind(problem, parties, server, start=start, disclose=False if privacy else None)
    if privacy is not None:
        checked_parties(len(bound.names))
        bound = bound.secured(bool(privacy.checked))
    setting, n = bound.setting, len(bound.names)
    reason = "as requested" if algorithm is not None else _reason(setting)
    algorithm = chosen(algorithm, setting)
    up, down = _bytes_per_round(bound, algorithm.bind(setting))
    rounds = algorithm.usual_rounds(setting)
    shown = () if privacy else exposed(algorithm, setting)
    return Explanation(algorithm.title(setting), reason, setting.size, n, rounds, up // n, down // n, shown)


def _reason(setting: Setting) -> str:
    if setting.split == "personal":
        return "every party has a model of its own in a private set"
    if setting.split == "columns":
        return "columns are split, and it satisfies constraints on labels and groups; for very many rows see fp.SSCA"
    if setting.size <= INTERIOR_UP_TO and not of_second_order(setting):
        return (
            f"Hessians would take {hessian_work(setting):.1e} multiplications a round over all parties, gradients take "
            f"{setting.size} times fewer; where rounds cost more than arithmetic, fp.InteriorPoint() needs fewer of them"
        )
    if setting.size <= INTERIOR_UP_TO:
        return f"up to {INTERIOR_UP_TO} parameters a Hessian can be sent and factored, and it saves nearly all rounds"
    return (
        f"above {INTERIOR_UP_TO} parameters a Hessian is too large to send and to factor; many small rounds cost less"
    )


def _bytes_per_round(bound: Bound, method: Method) -> tuple[int, int]:
    """Bytes up and down over all parties in a round, without exchanges that only some rounds have."""
    own, network = bound.server_data, LocalNetwork.of(bound)
    traffic = []

    def once(w: jax.Array) -> Any:
        goal = Goal(jnp.asarray(1e-4), jnp.asarray(1e-4))
        begin = Begin(w, goal, jax.random.key_data(jax.random.key(0)))
        server, states, _ = play(method.opening, own, network, begin, None)
        carry, _, cost = play(method.round, own, network, server, states, optional_traffic=False)
        traffic.append((cost.bytes_up, cost.bytes_down))
        return carry

    jax.eval_shape(once, bound.start)
    return traffic[0]
