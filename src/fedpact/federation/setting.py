"""What a method may know about a problem and its federation before it begins."""

import dataclasses

from fedpact.problem.oracle import Program


@dataclasses.dataclass(frozen=True)
class Setting:
    """What a method is told about the problem before it begins."""

    size: int  # parameters
    parties: int
    pooled: int = 0  # scalar constraints over all rows
    at_each: tuple[str, ...] = ()  # names of the constraints at each party
    rows: dict[str, int] = dataclasses.field(default_factory=dict)  # of each party
    whole: str | None = None  # a function that reads tables whole
    bent: bool = False  # whether h has kinks
    ridge: float | None = 0.0  # a where h is a‖w‖², None where it is another one
    constraints: tuple[str, ...] = ()  # names of all
    columns: bool = False  # whether columns are split, not rows
    active: tuple[bool, ...] = ()  # of holders of columns, whether each is
    blocks: tuple[int, ...] = ()  # of holders of columns, parameters of each
    combine: str = "sum"  # how a split model puts together what bottoms give
    linear: bool = False  # whether every bottom is linear in its parameters
    personal: bool = False  # whether every party has a model of its own, in a set of its own
    programs: tuple[Program, Program] | None = None  # of a party, of the server
