"""Expressions: numbers that depend on the model's parameters and on rows, written as on paper.

    fp.mean(loss, where=mask)      (1/|S|) Σ_{r in S} loss(params, row r),  S the rows that the mask selects
    fp.value(fn)                   fn(params, rows), any function that gives one number
    fp.largest(a, b, …)            the largest of several expressions
    a + b, a - b, 2 * a, abs(a)    and comparisons with a number, which give constraints

Scope says over which rows an expression is taken: at each party (default), `.pooled()` over the union of all parties'
rows, `.at_server()` on the server's own rows.
"""

import abc
import dataclasses
import itertools
import math
import numbers
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NoReturn

import jax

from fedpact.problem.atoms import Atom, Mean, RowFunction, Scope, Value, check_hash
from fedpact.problem.columns import Mask
from fedpact.problem.losses import Loss

MOST_PARTS = 64  # smooth inequalities that may stand for one constraint: each abs in a sum doubles them


class Nonsmooth(abc.ABC):
    """The largest of several expressions; smooth problems take it only where it is bounded from above."""

    name: ClassVar[str]

    @property
    @abc.abstractmethod
    def parts(self) -> tuple["Expression", ...]:
        """What it is the largest of."""


@dataclasses.dataclass(frozen=True, eq=False)
class Abs(Nonsmooth):
    """The absolute value of an expression."""

    name: ClassVar[str] = "abs"

    inside: "Expression"

    @property
    def parts(self) -> tuple["Expression", ...]:
        return (self.inside, -self.inside)

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

    def __str__(self) -> str:
        return f"largest({', '.join(map(str, self.inside))})"


@dataclasses.dataclass(frozen=True)
class Term:
    """coefficient * atom, over the rows of a scope."""

    coefficient: float
    atom: Atom | Nonsmooth
    scope: Scope = "party"

    @property
    def evaluated(self) -> tuple[Atom, Scope]:
        """What is evaluated, and over which rows; only for terms of smooth parts, where absolute values are opened."""
        assert isinstance(self.atom, Atom)
        return self.atom, self.scope


@dataclasses.dataclass(frozen=True, eq=False)
class Expression:
    """Σ coefficient · atom + constant. Immutable; comparing it with a number gives a `Constraint`."""

    terms: tuple[Term, ...]
    constant: float = 0.0
    __array_ufunc__ = None  # numpy leaves `array * expression` to us, who say what is wrong with it

    def pooled(self) -> "Expression":
        """Take every mean over the union of all parties' rows: one number for the federation."""
        return self.scoped("pooled")

    def at_server(self) -> "Expression":
        """Evaluate on the server's own rows (`fp.solve(..., server=table)`)."""
        return self.scoped("server")

    def between(self, lower: float, upper: float) -> "Constraint":
        """The two-sided constraint lower <= expression <= upper."""
        lower, upper = _number(lower, "a bound"), _number(upper, "a bound")
        if lower > upper:
            raise ValueError(f"between({lower:g}, {upper:g}): the lower bound is above the upper one")
        return Constraint(self, lower, upper)

    @property
    def scope(self) -> Scope:
        """The scope that all terms share; an error where they differ."""
        scopes: set[Scope] = {term.scope for term in self.terms}
        if len(scopes) > 1:
            raise ValueError(
                f"{self} mixes the scopes {', '.join(sorted(scopes))}; a constraint holds over one of them: "
                "call .pooled() or .at_server() on the whole expression"
            )
        return self.terms[0].scope if self.terms else "party"

    def smooth_parts(self) -> tuple["Expression", ...]:
        """Smooth expressions whose maximum is this one: each abs(a) is the larger of a and -a."""
        nonsmooth = [(term, term.atom) for term in self.terms if isinstance(term.atom, Nonsmooth)]
        if not nonsmooth:
            return (self,)
        for term, atom in nonsmooth:
            if term.coefficient < 0:
                raise ValueError(
                    f"{self} is bounded on the side where {atom.name}(...) is not convex; only {atom.name}(...) <= bound "
                    "can be kept"
                )
        count = math.prod(len(atom.parts) for _, atom in nonsmooth)
        if count > MOST_PARTS:
            raise ValueError(f"{self} opens into {count} smooth inequalities; at most {MOST_PARTS} in one constraint")
        rest = Expression(tuple(term for term in self.terms if isinstance(term.atom, Atom)), self.constant)
        parts = []
        for chosen in itertools.product(*(atom.parts for _, atom in nonsmooth)):
            part = rest
            for (term, _), one in zip(nonsmooth, chosen, strict=True):
                part = part + term.coefficient * one.scoped(term.scope)
            parts.extend(part.smooth_parts())
        return tuple(parts)

    @property
    def is_smooth(self) -> bool:
        """Whether it has no absolute value or maximum."""
        return all(isinstance(term.atom, Atom) for term in self.terms)

    def atoms(self) -> tuple[tuple[Atom, Scope], ...]:
        """What it evaluates, and over which rows, also inside absolute values and maxima."""
        out: list[tuple[Atom, Scope]] = []
        for term in self.terms:
            if isinstance(term.atom, Atom):
                out.append((term.atom, term.scope))
            else:
                out += [inner for part in term.atom.parts for inner in part.scoped(term.scope).atoms()]
        return tuple(out)

    def scoped(self, scope: Scope) -> "Expression":
        """The same expression with every term over the rows of `scope`."""
        for term in self.terms:
            if term.scope not in ("party", scope):
                raise ValueError(f"{self} is already {term.scope}; it cannot be {scope} as well")
        return Expression(tuple(dataclasses.replace(term, scope=scope) for term in self.terms), self.constant)

    def __add__(self, other: "Expression | float") -> "Expression":
        if isinstance(other, Expression):
            return Expression(self.terms + other.terms, self.constant + other.constant)
        return Expression(self.terms, self.constant + _number(other, "what is added to an expression"))

    def __mul__(self, factor: float) -> "Expression":
        if isinstance(factor, Expression):
            raise TypeError("expressions are multiplied by numbers; write a product of two inside fp.value(fn)")
        factor = _number(factor, "a factor")
        terms = tuple(dataclasses.replace(term, coefficient=factor * term.coefficient) for term in self.terms)
        return Expression(terms, factor * self.constant)

    def __truediv__(self, divisor: float) -> "Expression":
        divisor = _number(divisor, "a divisor")
        if divisor == 0:
            raise ZeroDivisionError(f"{self} is divided by zero")
        return self * (1.0 / divisor)

    def __rtruediv__(self, other: Any) -> NoReturn:
        raise TypeError(f"{self} stands below a fraction; expressions are linear: write it inside fp.value(fn)")

    def __pow__(self, exponent: Any) -> NoReturn:
        raise TypeError(f"{self} is raised to a power; expressions are linear: write it inside fp.value(fn)")

    def __neg__(self) -> "Expression":
        return self * -1.0

    def __sub__(self, other: "Expression | float") -> "Expression":
        if not isinstance(other, Expression):
            other = _number(other, "what is subtracted from an expression")
        return self + -other

    def __rsub__(self, other: float) -> "Expression":
        return -self + other

    __radd__ = __add__
    __rmul__ = __mul__

    def __abs__(self) -> "Expression":
        return Expression((Term(1.0, Abs(_without_scope(self)), self.scope),))

    def __le__(self, bound: "Expression | float") -> "Constraint":
        return self._compare(bound, -math.inf, 0.0)

    def __ge__(self, bound: "Expression | float") -> "Constraint":
        return self._compare(bound, 0.0, math.inf)

    def __eq__(self, bound: "Expression | float") -> "Constraint":  # type: ignore[override]  # builds a constraint
        return self._compare(bound, 0.0, 0.0)

    __hash__ = object.__hash__

    def __lt__(self, bound: Any) -> Any:
        raise TypeError("a strict inequality cannot be kept by an optimiser; write <= or >=")

    __gt__ = __lt__

    def _compare(self, bound: "Expression | float", lower: float, upper: float) -> "Constraint":
        if isinstance(bound, Expression):
            return Constraint(self - bound, lower, upper)
        shift = _number(bound, "a bound")
        return Constraint(self, lower + shift, upper + shift)

    def __bool__(self) -> bool:
        raise TypeError(f"{self} has no truth value; it is a number only once a model and rows are given")

    def __str__(self) -> str:
        parts = [f"{'' if t.coefficient == 1 else f'{t.coefficient:g} * '}{t.atom}" for t in self.terms]
        if self.constant or not parts:
            parts.append(f"{self.constant:g}")
        return " + ".join(parts)

    __repr__ = __str__


@dataclasses.dataclass(frozen=True, eq=False)
class Constraint:
    """lower <= expression <= upper; equal bounds are an equality. Made by comparing an expression with a number."""

    expression: Expression
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
    def scope(self) -> Scope:
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

    def inequalities(self) -> tuple[Expression, ...]:
        """Smooth g with g <= 0 each; a single g with g == 0 for an equality."""
        if self.kind == "==":
            return self._one_sided(self.expression - self.upper, exact=True)
        above = self._one_sided(self.expression - self.upper) if not math.isinf(self.upper) else ()
        below = self._one_sided(self.lower - self.expression) if not math.isinf(self.lower) else ()
        return above + below

    def _one_sided(self, expression: Expression, exact: bool = False) -> tuple[Expression, ...]:
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


def mean(function: RowFunction, where: Mask | None = None) -> Expression:
    """The mean of `function(params, rows) -> (rows,)` over the rows that `where` selects (default: all)."""
    if not callable(function):
        raise TypeError(f"fp.mean takes a row-wise function such as fp.logistic_loss(model), not {function!r}")
    check_hash(function)
    if where is not None and not isinstance(where, Mask):
        raise TypeError(f'where= takes a mask such as fp.col("y") == 1, not {where!r}')
    return Expression((Term(1.0, Mean(function, where)),))


def value(function: Callable[[Any, Any], jax.Array]) -> Expression:
    """The number `function(params, rows)`. A function that never reads `rows` may be pooled; else use `fp.mean`."""
    if not callable(function):
        raise TypeError(f"fp.value takes a function (params, rows) -> number, not {function!r}")
    if isinstance(function, Loss):
        raise TypeError(f"{function.name} gives one number per row; take its mean: fp.mean(loss)")
    check_hash(function)
    return Expression((Term(1.0, Value(function)),))


def largest(*expressions: Expression) -> Expression:
    """The largest of expressions over the same scope; `fp.largest(a, b) <= 0.1` bounds each of them."""
    if not expressions:
        raise ValueError("fp.largest takes at least one expression, such as fp.largest(abs(a), abs(b))")
    parts = tuple(as_expression(expression) for expression in expressions)
    scopes: set[Scope] = {part.scope for part in parts}
    if len(scopes) > 1:
        raise ValueError(
            f"fp.largest mixes the scopes {', '.join(sorted(scopes))}; call .pooled() or .at_server() on the whole"
        )
    return Expression((Term(1.0, Largest(tuple(_without_scope(part) for part in parts)), scopes.pop()),))


def as_expression(thing: Expression | Constraint | Callable[[Any, Any], Any]) -> Expression:
    """Plain functions of (params, rows) are expressions."""
    if isinstance(thing, Expression):
        return thing
    if isinstance(thing, Constraint):
        raise TypeError(f"the constraint {thing} stands where an expression is wanted")
    if callable(thing):
        return value(thing)
    raise TypeError(f"an expression is wanted, such as fp.mean(loss), not {thing!r}")


def bound_in_words(lower: float, upper: float) -> str:
    """The bound as it was written: "<= 0.2", ">= 1", "== 0" or "in [0, 1]"."""
    kind = _kind(lower, upper)
    if kind == "between":
        return f"in [{lower:g}, {upper:g}]"
    return f"{kind} {lower if kind == '>=' else upper:g}"


def _without_scope(expression: Expression) -> Expression:
    terms = tuple(dataclasses.replace(term, scope="party") for term in expression.terms)
    return Expression(terms, expression.constant)


def _number(thing: Any, what: str) -> float:
    if isinstance(thing, bool) or not isinstance(thing, numbers.Real):
        raise TypeError(f"{what} must be a number, not {thing!r}")
    number = float(thing)
    if not math.isfinite(number):
        raise ValueError(f"{what} must be finite, not {number}")
    return number


def _kind(lower: float, upper: float) -> Literal["<=", ">=", "==", "between"]:
    if lower == upper:
        return "=="
    if math.isinf(lower):
        return "<="
    return ">=" if math.isinf(upper) else "between"
