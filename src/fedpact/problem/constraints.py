"""Constraints: lower <= expression <= upper, with a name, over the scope of the expression."""

import dataclasses
import math
from typing import TYPE_CHECKING, Literal, NoReturn

if TYPE_CHECKING:  # an expression's comparison makes a constraint, a constraint holds an expression
    from fedpact.problem.expressions import Expression, Scope


@dataclasses.dataclass(frozen=True, eq=False)
class Constraint:
    """lower <= expression <= upper; equal bounds are an equality. Made by comparing an expression with a number."""

    expression: "Expression"
    lower: float
    upper: float
    given_name: str | None = None

    def named(self, name: str) -> "Constraint":
        """The same constraint under a name for reports, errors and `result.constraint(name)`."""
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"a constraint's name is a non-empty string, not {name!r}")
        return dataclasses.replace(self, given_name=name)

    def pooled(self) -> "Constraint":
        """Hold over the union of all parties' rows; no party can check it alone."""
        return dataclasses.replace(self, expression=self.expression.pooled())

    def at_server(self) -> "Constraint":
        """Hold on the server's own rows."""
        return dataclasses.replace(self, expression=self.expression.at_server())

    @property
    def scope(self) -> "Scope":
        return self.expression.scope

    @property
    def name(self) -> str:
        return self.given_name or str(self)

    @property
    def kind(self) -> Literal["<=", ">=", "==", "between"]:
        return _kind(self.lower, self.upper)

    @property
    def bound(self) -> str:
        """The right-hand side in words."""
        return bound_in_words(self.lower, self.upper)

    def inequalities(self) -> tuple["Expression", ...]:
        """Smooth g with g <= 0 each; a single g with g == 0 for an equality."""
        if self.kind == "==":
            return self._one_sided(self.expression - self.upper, exact=True)
        above = self._one_sided(self.expression - self.upper) if not math.isinf(self.upper) else ()
        below = self._one_sided(self.lower - self.expression) if not math.isinf(self.lower) else ()
        return above + below

    def _one_sided(self, expression: "Expression", exact: bool = False) -> tuple["Expression", ...]:
        try:
            parts = expression.smooth_parts()
        except ValueError as error:
            raise ValueError(f"constraint {self.name!r}: {error}") from None
        if exact and len(parts) > 1:
            raise ValueError(
                f"constraint {self.name!r}: abs(...) or largest(...) == number is not smooth; write abs(...) <= number"
            )
        return parts

    def _again(self, bound: object) -> NoReturn:
        raise TypeError(
            f"{self} is a constraint and is not compared with {bound!r}; a range is written e.between(0, 1)"
        )

    __le__ = __ge__ = __lt__ = __gt__ = _again

    def __bool__(self) -> bool:
        raise TypeError(
            f"the constraint {self} has no truth value; a chain such as 0 <= e <= 1 is written e.between(0, 1)"
        )

    def __str__(self) -> str:
        return f"{self.expression} {self.bound}"

    __repr__ = __str__


def bound_in_words(lower: float, upper: float) -> str:
    """The bound as it was written: "<= 0.2", ">= 1", "== 0" or "in [0, 1]"."""
    kind = _kind(lower, upper)
    if kind == "between":
        return f"in [{lower:g}, {upper:g}]"
    return f"{kind} {lower if kind == '>=' else upper:g}"


def _kind(lower: float, upper: float) -> Literal["<=", ">=", "==", "between"]:
    if lower == upper:
        return "=="
    if math.isinf(lower):
        return "<="
    return ">=" if math.isinf(upper) else "between"
