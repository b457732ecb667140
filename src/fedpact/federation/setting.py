"""What a method may know about a problem and its federation before it begins."""

import dataclasses
from typing import Literal

from fedpact.problem.atoms import Scope
from fedpact.problem.oracle import Program


@dataclasses.dataclass(frozen=True)
class Setting:
    """What a method is told about the problem before it begins; no values of any row."""

    size: int  # parameters
    parties: int
    split: Literal[
        "rows", "columns", "personal"
    ]  # what parties hold; "personal": rows, and a set for a model of their own
    programs: tuple[Program, Program]  # of a party, of the server
    rows: dict[str, int] = dataclasses.field(default_factory=dict)  # of each party
    constraints: tuple[tuple[str, Scope], ...] = ()  # names and scopes
    whole_table_function: str | None = None  # a function that reads tables whole, in words
    nonsmooth: bool = False  # whether h has kinks
    ridge: float | None = 0.0  # a where h is a‖w‖², None where it is another one
    active: tuple[bool, ...] = ()  # of holders of columns, whether each is
    blocks: tuple[int, ...] = ()  # of holders of columns, parameters of each
    combine: Literal["sum", "concat"] = "sum"  # how a split model combines what bottom models give
    linear_bottoms: bool = False  # whether every bottom model is linear in its parameters

    @property
    def pooled(self) -> int:
        """Scalar constraints over all rows."""
        return len(self.programs[0].pooled)
