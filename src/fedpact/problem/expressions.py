"""Expressions: scalar functions of the model's parameters and of rows.

    fp.mean(loss, where=mask)      (1/|S|) Σ_{r in S} loss(params, row r),  S the rows that the mask selects
    fp.value(fn)                   fn(params, rows), any function that returns one number
    fp.largest(a, b, …)            the largest of several expressions
    a + b, a - b, 2 * a, abs(a)    linear combinations and absolute values
    a <= 0.2, a >= b, a == 0       constraints

The scope of an expression is the rows that it is evaluated on: at each party (default), `.pooled()` over the union of all
parties' rows, `.at_server()` on the server's own rows.
"""

import dataclasses
import itertools
import math
import numbers
from collections.abc import Callable
from typing import Any, Literal, NoReturn

from fedpact.problem.atoms import Atom, Scope
from fedpact.problem.models import Model
from fedpact.problem.nonsmooth import Abs, Nonsmooth, Tag, Values

MOST_PARTS = 64  # smooth inequalities that one constraint may expand to: each abs in a sum doubles them


@dataclasses.dataclass(frozen=True)
class Term:
    """coefficient · atom, evaluated on the rows of a scope."""

    coefficient: float
    atom: Atom | Nonsmooth
    scope: Scope = "party"

    @property
    def evaluated(self) -> tuple[Atom, Scope]:
        """The atom and its scope; only for terms of `smooth_parts`, which hold no absolute values or maxima."""
        assert isinstance(self.atom, Atom)
        return self.atom, self.scope


@dataclasses.dataclass(frozen=True, eq=False)
class Expression:
    """A scalar function of the parameters and of rows: Σ coefficient · atom + constant. Immutable.

    - `terms`: coefficient, atom and scope of each term.
    - `constant`: added to their sum (default 0).

    Made by `fp.mean`, `fp.value`, `fp.largest` and the fairness gaps. Add and subtract expressions and numbers, multiply and
    divide by numbers, take `abs`; compare by `<=`, `>=` or `==` with a number or another expression for a `Constraint`:

        loss = fp.mean(fp.logistic_loss(fp.linear()))
        constraint = (loss - 0.1 <= 0.2).named("loss")

    Raises TypeError for strict inequalities, products of two expressions, powers, and use as a truth value.
    """

    terms: tuple[Term, ...]
    constant: float = 0.0
    __array_ufunc__ = None  # so that `array * expression` calls __rmul__, which raises a readable error

    def pooled(self) -> "Expression":
        """The same expression with every mean over the union of all parties' rows: one number for the federation.

        Raises ValueError where a part of it is `.at_server()` already.
        """
        return self.scoped("pooled")

    def at_server(self) -> "Expression":
        """The same expression on the server's own rows, the table in `fp.solve(..., server=table)`.

        Raises ValueError where a part of it is `.pooled()` already.
        """
        return self.scoped("server")

    def between(self, lower: float, upper: float) -> "Constraint":
        """The two-sided constraint lower <= expression <= upper.

        - `lower`, `upper`: finite numbers, lower <= upper, in the units of the expression; equal ones state an equality.

        Returns a `Constraint`. Raises ValueError where lower > upper.
        """
        lower, upper = _number(lower, "a bound"), _number(upper, "a bound")
        if lower > upper:
            raise ValueError(f"between({lower:g}, {upper:g}): the lower bound is above the upper one")
        return Constraint(self, lower, upper)

    @property
    def scope(self) -> Scope:
        """The scope of all terms: "party", "pooled" or "server". Raises ValueError where terms differ in it."""
        scopes: set[Scope] = {term.scope for term in self.terms}
        if len(scopes) > 1:
            raise ValueError(
                f"{self} mixes the scopes {', '.join(sorted(scopes))}; a constraint holds over one of them: "
                "call .pooled() or .at_server() on the whole expression"
            )
        return self.terms[0].scope if self.terms else "party"

    def smooth_parts(self) -> tuple["Expression", ...]:
        """Smooth expressions whose maximum is this one: abs(a) is the larger of a and -a.

        Raises ValueError where an abs, largest or gap has a negative coefficient, or where there are more than 64 parts.
        """
        nonsmooth = [(term, term.atom) for term in self.terms if isinstance(term.atom, Nonsmooth)]
        if not nonsmooth:
            return (self,)
        for term, atom in nonsmooth:
            if term.coefficient < 0:
                raise ValueError(
                    f"{self} is bounded on the side where {atom.name}(...) is not convex; only {atom.name}(...) <= bound "
                    "is convex"
                )
        self._check_count(math.prod(len(atom.parts) for _, atom in nonsmooth))
        rest = Expression(tuple(term for term in self.terms if isinstance(term.atom, Atom)), self.constant)
        parts = []
        for chosen in itertools.product(*(atom.parts for _, atom in nonsmooth)):
            part = rest
            for (term, _), one in zip(nonsmooth, chosen, strict=True):
                part = part + term.coefficient * one.scoped(term.scope)
            parts.extend(part.smooth_parts())
        self._check_count(len(parts))
        return tuple(parts)

    def _check_count(self, count: int) -> None:
        if count > MOST_PARTS:
            raise ValueError(
                f"{self} expands to {count} smooth inequalities; a constraint may have at most {MOST_PARTS}: state several, "
                "or compare fewer groups, by groups=(a, b, …)"
            )

    @property
    def is_smooth(self) -> bool:
        """Whether it contains no absolute value or maximum."""
        return all(isinstance(term.atom, Atom) for term in self.terms)

    def atoms(self) -> tuple[tuple[Atom, Scope], ...]:
        """The atoms that it evaluates with their scopes, those inside absolute values and maxima included."""
        out: list[tuple[Atom, Scope]] = []
        for term in self.terms:
            if isinstance(term.atom, Atom):
                out.append((term.atom, term.scope))
            else:
                out += [inner for part in term.atom.parts for inner in part.scoped(term.scope).atoms()]
        return tuple(out)

    def with_groups(self, values: Values) -> "Expression":
        """The same with the values of groups that gaps leave open; itself where they leave none open."""
        atoms = [t.atom.with_groups(values) if isinstance(t.atom, Nonsmooth) else t.atom for t in self.terms]
        if all(new is term.atom for new, term in zip(atoms, self.terms, strict=True)):
            return self
        terms = (dataclasses.replace(term, atom=new) for new, term in zip(atoms, self.terms, strict=True))
        return Expression(tuple(terms), self.constant)

    def with_model(self, model: Model) -> "Expression":
        """The same with this model in losses that name none."""
        terms = (dataclasses.replace(term, atom=term.atom.with_model(model)) for term in self.terms)
        return Expression(tuple(terms), self.constant)

    def scoped(self, scope: Scope) -> "Expression":
        """The same expression with every term in `scope`. Raises ValueError where a term has another one already."""
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
        raise TypeError(f"{self} cannot be a divisor; expressions are linear: write the quotient inside fp.value(fn)")

    def __pow__(self, exponent: Any) -> NoReturn:
        raise TypeError(
            f"{self} cannot be raised to a power; expressions are linear: write the power inside fp.value(fn)"
        )

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
        return Expression((Term(1.0, Abs(without_scope(self)), self.scope),))

    def __le__(self, bound: "Expression | float") -> "Constraint":
        return self._compare(bound, -math.inf, 0.0)

    def __ge__(self, bound: "Expression | float") -> "Constraint":
        return self._compare(bound, 0.0, math.inf)

    def __eq__(self, bound: "Expression | float") -> "Constraint":  # type: ignore[override]  # builds a constraint
        return self._compare(bound, 0.0, 0.0)

    __hash__ = object.__hash__

    def __lt__(self, bound: Any) -> Any:
        raise TypeError("a strict inequality is not supported; write <= or >=")

    __gt__ = __lt__

    def _compare(self, bound: "Expression | float", lower: float, upper: float) -> "Constraint":
        if isinstance(bound, Expression):
            return Constraint(self - bound, lower, upper)
        shift = _number(bound, "a bound")
        return Constraint(self, lower + shift, upper + shift)

    def __bool__(self) -> bool:
        raise TypeError(f"{self} has no truth value; it has a value only at parameters and rows")

    def __str__(self) -> str:
        parts = [f"{'' if t.coefficient == 1 else f'{t.coefficient:g} * '}{t.atom}" for t in self.terms]
        if self.constant or not parts:
            parts.append(f"{self.constant:g}")
        return " + ".join(parts)

    __repr__ = __str__


@dataclasses.dataclass(frozen=True, eq=False)
class Constraint:
    """lower <= expression <= upper. Made by comparing an expression with a number or another expression.

    - `expression`: what is bounded.
    - `lower`, `upper`: the bounds, in the units of the expression; −∞ or ∞ for none, equal ones for an equality.
    - `given_name`: the name set by `named` (default None: the constraint is called by its formula).

    `fp.mean(loss) <= 0.2` holds at every party separately; `(fp.mean(loss) <= 0.2).pooled()` over all parties' rows together.
    """

    expression: Expression
    lower: float
    upper: float
    given_name: str | None = None

    def named(self, name: str) -> "Constraint":
        """The same constraint under a name, for reports, errors and `result.constraint(name)`.

        - `name`: a non-empty string, different for each constraint of a problem.
        """
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"a constraint's name is a non-empty string, not {name!r}")
        return dataclasses.replace(self, given_name=name)

    def pooled(self) -> "Constraint":
        """The same constraint over the union of all parties' rows, which no party can evaluate alone."""
        return dataclasses.replace(self, expression=self.expression.pooled())

    def at_server(self) -> "Constraint":
        """The same constraint on the server's own rows, the table in `fp.solve(..., server=table)`."""
        return dataclasses.replace(self, expression=self.expression.at_server())

    @property
    def scope(self) -> Scope:
        """Where it holds: "party" (at each party), "pooled" (over all rows) or "server"."""
        return self.expression.scope

    @property
    def name(self) -> str:
        """The name set by `named`, else the formula."""
        return self.given_name or str(self)

    @property
    def kind(self) -> Literal["<=", ">=", "==", "between"]:
        """The relation of expression and bounds."""
        return _kind(self.lower, self.upper)

    @property
    def bound(self) -> str:
        """The relation and right-hand side as text: "<= 0.2" or "in [0, 1]"."""
        return bound_in_words(self.lower, self.upper)

    def inequalities(self) -> tuple[Expression, ...]:
        """Smooth expressions g with g <= 0, which together are this constraint; a single g with g == 0 for an equality."""
        if self.kind == "==":
            if any(atom.rate is not None and atom.rate.is_decision for atom, _ in self.expression.atoms()):
                raise ValueError(
                    f"constraint {self.name!r}: a counted rate jumps from row to row and meets no equality; give it room: "
                    "expression.between(lower, upper)"
                )
            return self._one_sided(self.expression - self.upper, exact=True)
        above = self._one_sided(self.expression - self.upper) if not math.isinf(self.upper) else ()
        below = self._one_sided(self.lower - self.expression) if not math.isinf(self.lower) else ()
        return above + below

    def with_groups(self, values: Callable[[str, Scope], tuple[Tag, ...]]) -> "Constraint":
        """The same under its name, with the values of groups that gaps leave open, by column and scope."""
        try:
            expression = self.expression.with_groups(lambda column: values(column, self.scope))
        except ValueError as error:
            raise ValueError(f"constraint {self.name!r}: {error}") from None
        if expression is self.expression:
            return self
        return dataclasses.replace(self, expression=expression, given_name=self.name)

    def with_model(self, model: Model) -> "Constraint":
        """The same with this model in losses that name none."""
        return dataclasses.replace(self, expression=self.expression.with_model(model))

    @property
    def is_convex(self) -> bool:
        """Whether it is known to admit a convex set of parameters."""
        terms = [term for part in self.inequalities() for term in part.terms]
        return self.kind != "==" and all(t.coefficient >= 0 and t.evaluated[0].is_convex for t in terms)

    def _one_sided(self, expression: Expression, exact: bool = False) -> tuple[Expression, ...]:
        try:
            parts = expression.smooth_parts()
        except ValueError as error:
            raise ValueError(f"constraint {self.name!r}: {error}") from None
        if exact and len(parts) > 1:
            raise ValueError(
                f"constraint {self.name!r}: abs(...), largest(...) or a gap == number is not smooth; write abs(...) <= number"
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
    """Bounds as text: "<= 0.2", ">= 1", "== 0" or "in [0, 1]"."""
    kind = _kind(lower, upper)
    if kind == "between":
        return f"in [{lower:g}, {upper:g}]"
    return f"{kind} {lower if kind == '>=' else upper:g}"


def without_scope(expression: Expression) -> Expression:
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
