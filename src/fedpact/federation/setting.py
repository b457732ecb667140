"""What a method may know about a problem and its federation before it begins."""

import dataclasses
from typing import Literal

from fedpact.problem.atoms import Scope
from fedpact.problem.program import Program


@dataclasses.dataclass(frozen=True)
class Setting:
    """What a method knows of the problem before it begins; no values of any row.

    - `size`: parameters in all. `parties`: how many.
    - `split`: what parties hold: "rows", "columns", or "personal" (rows, and a set for a model of their own).
    - `programs`: the compiled problem of a party, and of the server.
    - `rows`: of each party, by name.
    - `constraints`: names and scopes.
    - `whole_table_function`: a function that reads tables whole, in words (None where there is none).
    - `nonsmooth`: whether the regulariser h has kinks. `ridge`: a where h is a‖w‖², None where it is another one.
    - `active`, `blocks`: over columns, for each party whether it is active, and its parameters.
    - `scale`: whether a method may measure in units that it learns at the start (default True).
    - `private`: whether parties tell noisy releases of their values and gradients and nothing else (default False).
    - `combine`, `linear_bottoms`: over columns, how outputs of bottom models are combined, and whether all of these are linear.
    """

    size: int
    parties: int
    split: Literal["rows", "columns", "personal"]
    programs: tuple[Program, Program]
    rows: dict[str, int] = dataclasses.field(default_factory=dict)
    constraints: tuple[tuple[str, Scope], ...] = ()
    whole_table_function: str | None = None
    nonsmooth: bool = False
    ridge: float | None = 0.0
    active: tuple[bool, ...] = ()
    blocks: tuple[int, ...] = ()
    combine: Literal["sum", "concat"] = "sum"
    linear_bottoms: bool = False
    scale: bool = True
    private: bool = False

    @property
    def pooled(self) -> int:
        """Scalar constraints over all rows."""
        return len(self.programs[0].pooled)
