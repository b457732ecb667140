"""Expressions: numbers that depend on the model's parameters and on rows, written as on paper.

    fp.mean(loss, where=mask)      (1/|S|) Σ_{r in S} loss(params, row r),  S the rows that the mask selects
    fp.value(fn)                   fn(params, rows), any function that gives one number
    fp.largest(a, b, …)            the largest of several expressions
    a + b, a - b, 2 * a, abs(a)    and comparisons with a number, which give constraints

Scope says over which rows an expression is taken: at each party (default), `.pooled()` over the union of all parties'
rows, `.at_server()` on the server's own rows.
"""

import dataclasses
import itertools
import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any, Literal, NoReturn

import jax

from fedpact.problem.columns import Mask
from fedpact.problem.constraints import Constraint
from fedpact.problem.losses import Loss

Scope = Literal["party", "pooled", "server"]
RowFunction = Callable[[Any, Mapping[str, jax.Array]], jax.Array]

MOST_PARTS = 64  # smooth inequalities that may stand for one constraint: each abs in a sum doubles them


@dataclasses.dataclass(frozen=True)
class Mean:
    """The mean of a row-wise function over the rows of a mask."""

    function: RowFunction
    where: Mask | None = None

    def __str__(self) -> str:
        return f"mean({name_of(self.function)}{'' if self.where is None else f' | {self.where}'})"


@dataclasses.dataclass(frozen=True)
class Value:
    """Any function of parameters and rows that gives one number."""

    function: Callable[[Any, Any], jax.Array]

    def __str__(self) -> str:
        return f"value({name_of(self.function)})"


@dataclasses.dataclass(frozen=True, eq=False)
class Abs:
    """The absolute value of an expression; smooth problems take it only where it is bounded from above."""

    inside: "Expression"

    @property
    def parts(self) -> tuple["Expression", ...]:
        """What it is the largest of."""
        return (self.inside, -self.inside)

    def __str__(self) -> str:
        return f"abs({self.inside})"


@dataclasses.dataclass(frozen=True, eq=False)
class Largest:
    """The largest of several expressions, bounded from above only, like an absolute value."""

    parts: tuple["Expression", ...]

    def __str__(self) -> str:
        return f"largest({', '.join(map(str, self.parts))})"


Bent = Abs | Largest
Atom = Mean | Value | Bent


@dataclasses.dataclass(frozen=True)
class Term:
    """coefficient * atom, over the rows of a scope."""

    coefficient: float
    atom: Atom
    scope: Scope = "party"

    @property
    def evaluated(self) -> tuple[Mean | Value, Scope]:
        """What is evaluated, and over which rows; only for terms of smooth parts, where absolute values are opened."""
        assert isinstance(self.atom, Mean | Value)
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

    def between(self, lower: float, upper: float) -> Constraint:
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
        bent = [(term, term.atom) for term in self.terms if isinstance(term.atom, Bent)]
        if not bent:
            return (self,)
        for term, atom in bent:
            if term.coefficient < 0:
                kind = "abs" if isinstance(atom, Abs) else "largest"
                raise ValueError(
                    f"{self} is bounded on the side where {kind}(...) is not convex; only {kind}(...) <= bound can be kept"
                )
        count = math.prod(len(atom.parts) for _, atom in bent)
        if count > MOST_PARTS:
            raise ValueError(f"{self} opens into {count} smooth inequalities; at most {MOST_PARTS} in one constraint")
        rest = Expression(tuple(term for term in self.terms if not isinstance(term.atom, Bent)), self.constant)
        parts = []
        for chosen in itertools.product(*(atom.parts for _, atom in bent)):
            part = rest
            for (term, _), one in zip(bent, chosen, strict=True):
                part = part + term.coefficient * one.scoped(term.scope)
            parts.extend(part.smooth_parts())
        return tuple(parts)

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

    def __le__(self, bound: "Expression | float") -> Constraint:
        return self._compare(bound, -math.inf, 0.0)

    def __ge__(self, bound: "Expression | float") -> Constraint:
        return self._compare(bound, 0.0, math.inf)

    def __eq__(self, bound: "Expression | float") -> Constraint:  # type: ignore[override]  # builds a constraint
        return self._compare(bound, 0.0, 0.0)

    __hash__ = object.__hash__

    def __lt__(self, bound: Any) -> Any:
        raise TypeError("a strict inequality cannot be kept by an optimiser; write <= or >=")

    __gt__ = __lt__

    def _compare(self, bound: "Expression | float", lower: float, upper: float) -> Constraint:
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


def mean(function: RowFunction, where: Mask | None = None) -> Expression:
    """The mean of `function(params, rows) -> (rows,)` over the rows that `where` selects (default: all)."""
    if not callable(function):
        raise TypeError(f"fp.mean takes a row-wise function such as fp.logistic_loss(model), not {function!r}")
    _check_hash(function)
    if where is not None and not isinstance(where, Mask):
        raise TypeError(f'where= takes a mask such as fp.col("y") == 1, not {where!r}')
    return Expression((Term(1.0, Mean(function, where)),))


def value(function: Callable[[Any, Any], jax.Array]) -> Expression:
    """The number `function(params, rows)`. A function that never reads `rows` may be pooled; else use `fp.mean`."""
    if not callable(function):
        raise TypeError(f"fp.value takes a function (params, rows) -> number, not {function!r}")
    if isinstance(function, Loss):
        raise TypeError(f"{function.name} gives one number per row; take its mean: fp.mean(loss)")
    _check_hash(function)
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


def name_of(function: Any) -> str:
    """A function's name as a reader would know it."""
    return str(getattr(function, "name", None) or getattr(function, "__name__", None) or type(function).__name__)


def _check_hash(function: Any) -> None:
    try:
        hash(function)
    except TypeError:
        raise TypeError(
            f"{name_of(function)} cannot be hashed, so its compiled program could not be found again; wrap it in a "
            "function: lambda params, rows: fn(params, rows)"
        ) from None


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
