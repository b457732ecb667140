"""Whether a pact's sums are secure: what it says, else whether its method needs sums only; and what is refused in the clear."""

from typing import Any

from fedpact.federation.setting import Setting
from fedpact.privacy.residuals import EncryptedResiduals
from fedpact.privacy.secure_sums import SecureAggregation
from fedpact.problem.split import SplitModel
from fedpact.problem.statement import Problem
from fedpact.protocol.algorithm import Algorithm
from fedpact.protocol.ring import FEWEST

EXPOSED = 2  # times as many rows as parameters: with fewer, two rounds' Hessians give a party's rows away


def usual_privacy(problem: Problem, parties: int, active: int, algorithm: Algorithm | None) -> SecureAggregation | None:
    """Of a deployed run that says nothing else: secure sums, where the server needs nothing but sums.

    Where parties may miss rounds, there have to be enough that one can be missed. Over columns, `active` parties hold labels,
    and a sum over one passive party is what it said.
    """
    apart = isinstance(problem.model, SplitModel) and (problem.model.combine != "sum" or parties - active < 2)
    if algorithm is not None:
        apart = apart or algorithm.reads_single_replies or (algorithm.may_miss and parties <= FEWEST)
        apart = apart or isinstance(getattr(algorithm, "privacy", None), EncryptedResiduals)
    return None if apart or parties < FEWEST else SecureAggregation()


def exposed(algorithm: Algorithm, setting: Setting) -> tuple[str, ...]:
    """The parties whose rows the server could read from Hessians in the clear."""
    if setting.split != "rows" or not algorithm.sends_hessians(setting):
        return ()
    return tuple(name for name, rows in setting.rows.items() if rows < EXPOSED * setting.size)


def exposed_in_words(names: tuple[str, ...], size: int) -> str:
    """What is to be said of such parties; size: the number of parameters."""
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return (
        f"rows of {listed} could be read from two rounds' Hessians: fewer rows than {EXPOSED} times the {size} "
        "parameters"
    )


def check_in_the_clear(algorithm: Algorithm, setting: Setting, options: Any) -> None:
    """Raises ValueError where Hessians in the clear give rows away, and the pact does not say `privacy: None` itself."""
    names = exposed(algorithm, setting)
    if names and "privacy" not in options:
        raise ValueError(
            f"sums are in the clear, and {exposed_in_words(names, setting.size)}; use a method without Hessians such as "
            "fp.ProxAL(fp.LBFGS()), three parties or more and secure sums, or say options = {'privacy': None} in the pact"
        )
