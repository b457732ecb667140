"""A problem of the campaign: stated with fedpact over a federation, and by hand for the referee."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import numpy as np

import fedpact as fp
from campaign.formulas import Formulas

Known = Literal["feasible", "infeasible", "unbounded", "not attained"]
TOLERANCE = 1e-6  # of every run


@dataclasses.dataclass(frozen=True, eq=False)
class Stated:
    """Both statements, and what is known by construction.

    - `known`: "feasible": `point` is; "infeasible", "unbounded", "not attained": for the reason in `why`.
    - `infimum`: where it is not attained.
    """

    problem: fp.Problem
    parties: fp.Parties
    formulas: Formulas
    server: fp.Table | None = None
    start: Any = None
    known: Known | None = None
    point: np.ndarray | None = None
    infimum: float = 0.0
    why: str = ""

    def solve(self, max_rounds: int) -> fp.Result:
        return fp.solve(
            self.problem,
            self.parties,
            tolerance=TOLERANCE,
            max_rounds=max_rounds,
            server=self.server,
            start=self.start,
            progress=False,
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """A problem by name (family/kind/seed), made when it is asked for. Cases of one `shape` share compiled programs."""

    family: str
    kind: str
    seed: str
    shape: str
    make: Callable[[], Stated]

    @property
    def name(self) -> str:
        return f"{self.family}/{self.kind}/{self.seed}"


def tables(parties: Sequence[dict[str, Any]]) -> fp.Parties:
    return fp.split_rows([fp.Table(columns) for columns in parties])


def flat(params: Any) -> np.ndarray:
    """Parameters as one vector, in the order of their names."""
    return np.concatenate([np.ravel(np.asarray(leaf, float)) for leaf in jax.tree.leaves(params)])


def seed_of(*parts: Any) -> np.random.Generator:
    """The random numbers of a problem, from its name."""
    text = "/".join(map(str, parts))
    return np.random.default_rng(list(text.encode()))
