"""Absolute values and maxima of expressions: what may be bounded from above and nothing else."""

import abc
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Self

if TYPE_CHECKING:
    from fedpact.problem.expressions import Expression
    from fedpact.problem.models import Model

Tag = float | str  # a value of a column of labels or groups
Values = Callable[[str], tuple[Tag, ...]]  # of a column of groups


class Nonsmooth(abc.ABC):
    """The largest of several expressions; only an upper bound on it can be written as smooth inequalities."""

    name: ClassVar[str]

    @property
    @abc.abstractmethod
    def parts(self) -> tuple["Expression", ...]:
        """The expressions that it is the largest of."""

    @abc.abstractmethod
    def with_groups(self, values: Values) -> Self:
        """The same with the values of groups that were left open; itself where none were."""

    @abc.abstractmethod
    def with_model(self, model: "Model") -> Self:
        """The same with this model in losses that name none."""


@dataclasses.dataclass(frozen=True, eq=False)
class Abs(Nonsmooth):
    """The absolute value of an expression."""

    name: ClassVar[str] = "abs"

    inside: "Expression"

    @property
    def parts(self) -> tuple["Expression", ...]:
        return (self.inside, -self.inside)

    def with_groups(self, values: Values) -> "Abs":
        inside = self.inside.with_groups(values)
        return self if inside is self.inside else Abs(inside)

    def with_model(self, model: "Model") -> "Abs":
        return Abs(self.inside.with_model(model))

    def __str__(self) -> str:
        return f"abs({self.inside})"


@dataclasses.dataclass(frozen=True, eq=False)
class Largest(Nonsmooth):
    """The largest of several expressions."""

    name: ClassVar[str] = "largest"

    inside: tuple["Expression", ...]

    @property
    def parts(self) -> tuple["Expression", ...]:
        return self.inside

    def with_groups(self, values: Values) -> "Largest":
        inside = tuple(part.with_groups(values) for part in self.inside)
        same = all(new is old for new, old in zip(inside, self.inside, strict=True))
        return self if same else Largest(inside)

    def with_model(self, model: "Model") -> "Largest":
        return Largest(tuple(part.with_model(model) for part in self.inside))

    def __str__(self) -> str:
        return f"largest({', '.join(map(str, self.inside))})"
