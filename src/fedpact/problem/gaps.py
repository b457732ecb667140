"""The gap between groups: the largest less the smallest of their means."""

import dataclasses
import itertools
from typing import ClassVar

from fedpact.problem.atoms import RowFunction
from fedpact.problem.columns import Mask, col
from fedpact.problem.expressions import MOST_PARTS, Expression, Term
from fedpact.problem.functions import mean
from fedpact.problem.losses import Loss
from fedpact.problem.models import Model
from fedpact.problem.nonsmooth import Nonsmooth, Tag, Values


@dataclasses.dataclass(frozen=True, eq=False)
class Gap(Nonsmooth):
    """max over groups a, b of m(a) - m(b), with m(a) the mean of a function over the rows of group a.

    - `function`: row-wise.
    - `group`: the column of group membership.
    - `groups`: the values of that column that are compared; None while they are open, that is all values that it will have.
    - `among`: a mask of the rows that are looked at (default None: all).
    - `weights`: the column of the rows' weights (default None: all alike).
    """

    name: ClassVar[str] = "gap"

    function: RowFunction
    group: str
    groups: tuple[Tag, ...] | None = None
    among: Mask | None = None
    weights: str | None = None

    def __post_init__(self) -> None:
        pairs = len(self.groups or ()) * (len(self.groups or ()) - 1)
        if self.groups is not None and pairs > MOST_PARTS:
            raise ValueError(
                f"column {self.group!r} has {len(self.groups)} groups, so the gap between all of them expands to {pairs} smooth "
                f"inequalities; a constraint may have at most {MOST_PARTS}: choose fewer, by groups=(a, b, …)"
            )
        self.means()  # raises here, where the gap was written

    def means(self) -> tuple[Expression, ...]:
        """The mean of each group; while they are open that of all, in which the same function is read."""
        if self.groups is None:
            return (mean(self.function, self.among, self.weights),)
        masks = (col(self.group) == value for value in self.groups)
        both = (mask if self.among is None else self.among & mask for mask in masks)
        return tuple(mean(self.function, mask, self.weights) for mask in both)

    @property
    def parts(self) -> tuple[Expression, ...]:
        """m(a) - m(b) of all ordered pairs; of a single mean, the gap from itself on both sides."""
        means = self.means()
        if len(means) == 1:
            return (means[0] - means[0],) * 2
        return tuple(a - b for a, b in itertools.permutations(means, 2))

    def with_groups(self, values: Values) -> "Gap":
        return self if self.groups is not None else dataclasses.replace(self, groups=values(self.group))

    def with_model(self, model: Model) -> "Gap":
        if not isinstance(self.function, Loss):
            return self
        return dataclasses.replace(self, function=self.function.with_model(model))

    @property
    def expression(self) -> Expression:
        return Expression((Term(1.0, self),))

    def __str__(self) -> str:
        (of_all,) = dataclasses.replace(self, groups=None).means()
        chosen = "" if self.groups is None else f" in {', '.join(map(repr, self.groups))}"
        return f"gap({of_all} by {self.group}{chosen})"
