"""A problem compiled into programs: the atoms that a holder evaluates, and how objective and constraints are linear in them."""

import dataclasses
import itertools
from typing import Any

import jax
import numpy as np

from fedpact.arrays import xp
from fedpact.problem.atoms import Atom, Evaluator, Scope
from fedpact.problem.expressions import Constraint, Expression
from fedpact.problem.fingerprint import digest
from fedpact.problem.rates import Rate
from fedpact.problem.shape import Shape
from fedpact.problem.statement import Problem
from fedpact.problem.symmetric import SymmetricSum
from fedpact.records import Record

DIGITS = 12  # to which coefficients are compared


@dataclasses.dataclass(frozen=True)
class Linear:
    """Linear functions of a program's atoms: coefficients (functions, atoms) and constants (functions,).

    The constants, that is the bounds of constraints, are no part of what is compiled: an oracle has them as an array, so that
    problems with other bounds share a program.
    """

    coefficients: tuple[tuple[float, ...], ...]
    constants: tuple[float, ...] = dataclasses.field(compare=False)

    def __call__(self, atoms: jax.Array, constants: jax.Array) -> jax.Array:
        return constants + xp.asarray(self.coefficients, atoms.dtype) @ atoms if atoms.size and len(self) else constants

    def back(self, weights: jax.Array, atoms: int) -> jax.Array:
        """The transpose: weights of the functions to weights of the atoms."""
        return weights @ xp.asarray(self.coefficients, weights.dtype).reshape(len(self), atoms)

    def matrix(self, atoms: int) -> np.ndarray:
        """The coefficients (functions, atoms)."""
        return np.asarray(self.coefficients, float).reshape(len(self), atoms)

    def __len__(self) -> int:
        return len(self.constants)


class RateNumbers(Record):
    """Of the different rates of a program, in its order."""

    temperatures: Any
    thresholds: Any

    @classmethod
    def of(cls, rates: tuple[Rate, ...]) -> "RateNumbers":
        return cls(*(np.array([getattr(rate, name) for rate in rates], float) for name in ("temperature", "threshold")))


@dataclasses.dataclass(frozen=True)
class Program:
    """The compiled problem of one holder; hashable, so that equal problems share compiled code.

    - `digests`: of each atom's function with the constants that it reads, so that a changed constant is another program.
    - `rates`: the different rates, and for each atom which of them is its own (`rate_of`; None: it has none). Like constants
      their temperatures and thresholds are arrays of an oracle and no part of what is compiled; the rates in `atoms` are smooth
      and have temperature 1 and threshold 0.
    - `guarded`: for each atom, whether the rows outside its mask are replaced, because its function or gradient is not finite
      there.
    """

    atoms: tuple[tuple[Atom, Scope], ...]
    digests: tuple[str, ...]
    objective: Linear
    constraints: Linear
    pooled: Linear
    equality: tuple[bool, ...]
    pooled_equality: tuple[bool, ...]
    shape: Shape
    parties: int
    guarded: tuple[bool, ...] = ()
    rates: tuple[Rate, ...] = dataclasses.field(compare=False, default=())
    rate_of: tuple[int | None, ...] = ()

    def evaluate(
        self, w: jax.Array, rows: Any, weights: jax.Array, rates: RateNumbers, counted: bool = False
    ) -> jax.Array:
        """The atoms' values (atoms,).

        - `weights`: (atoms over rows, rows), already divided by the counts of rows.
        - `counted`: whether decisions are counted, not smoothed (default: no).
        """
        params = self.shape.unravel(w)
        on_all = Evaluator(params, rows, w.dtype)
        values = []
        for place, ((atom, _), line) in enumerate(zip(self.atoms, self.lines(weights), strict=True)):
            call = on_all
            if line is not None and self.is_guarded(place):
                call = Evaluator(params, selected_rows(rows, line), w.dtype)
            atom, key = self._at(place, atom, rates, counted)
            values.append(atom.evaluate(call, line, key))
        return xp.stack(values) if values else xp.zeros(0, w.dtype)

    def _at(self, place: int, atom: Atom, rates: RateNumbers, counted: bool = False) -> tuple[Atom, Any]:
        """An atom with the numbers of its rate, and the key of its function; None where that is the function itself."""
        which, rate = self.rate_of[place] if self.rate_of else None, atom.rate
        if which is None or rate is None:
            return atom, None
        if counted and rate.is_decision:
            return atom.with_rate(rate.counted(rates.thresholds[which])), (atom.function, which, "counted")
        now = rate.at(rates.temperatures[which], rates.thresholds[which])
        return atom.with_rate(now), (atom.function, which)

    @property
    def decides(self) -> bool:
        """Whether counted rates of decisions are among its functions."""
        return any(rate.is_decision for rate in self.rates)

    @property
    def over_rows(self) -> tuple[tuple[Atom, Scope], ...]:
        """The atoms over rows, in the order of the first axis of the weights."""
        return tuple((atom, scope) for atom, scope in self.atoms if atom.over_rows)

    def lines(self, weights: jax.Array) -> tuple[jax.Array | None, ...]:
        """For each atom its weights (rows,); None where it is not over rows."""
        numbers = itertools.count()
        return tuple(weights[next(numbers)] if atom.over_rows else None for atom, _ in self.atoms)

    def without_norm(self, objective: bool, constraints: tuple[bool, ...], pooled: tuple[bool, ...]) -> "Program":
        """The same program without ‖params‖² in the selected functions; `norm_shares` has its coefficients."""
        chosen = (objective,), constraints, pooled

        def stripped(side: Linear, which: tuple[bool, ...]) -> Linear:
            lines = (
                tuple(0.0 if out and place in self.norms else c for place, c in enumerate(line))
                for line, out in zip(side.coefficients, which, strict=True)
            )
            return Linear(tuple(lines), side.constants)

        sides = (stripped(side, which) for side, which in zip(self.sides, chosen, strict=True))
        program = dataclasses.replace(self, **dict(zip(("objective", "constraints", "pooled"), sides, strict=True)))
        return program._without_atoms(tuple(place for place in self.norms if not program._reads(place)))

    def _reads(self, place: int) -> bool:
        return any(line[place] for side in self.sides for line in side.coefficients)

    def _without_atoms(self, places: tuple[int, ...]) -> "Program":
        """Without these atoms, none of which may be over rows, since the weights are not changed."""

        def kept(per_atom: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(entry for place, entry in enumerate(per_atom) if place not in places)

        sides = (Linear(tuple(kept(line) for line in side.coefficients), side.constants) for side in self.sides)
        objective, constraints, pooled = sides
        return dataclasses.replace(
            self,
            atoms=kept(self.atoms),
            digests=kept(self.digests),
            rate_of=kept(self.rate_of),
            guarded=kept(self.guarded),
            objective=objective,
            constraints=constraints,
            pooled=pooled,
        )

    @property
    def sides(self) -> tuple[Linear, Linear, Linear]:
        return self.objective, self.constraints, self.pooled

    @property
    def norms(self) -> tuple[int, ...]:
        """The positions of the atoms that are ‖params‖²."""
        return tuple(place for place, (atom, _) in enumerate(self.atoms) if atom.is_squared_norm)

    def norm_shares(self) -> tuple[np.ndarray, ...]:
        """The coefficients of ‖params‖² in objective, constraints and pooled contributions."""
        places = list(self.norms)
        return tuple(side.matrix(len(self.atoms))[:, places].sum(1) for side in self.sides)

    def moving(self) -> tuple[np.ndarray, ...]:
        """Whether objective, constraints and pooled contributions depend on the parameters."""
        return tuple(np.array([any(line) for line in side.coefficients], bool) for side in self.sides)

    def is_guarded(self, place: int) -> bool:
        return bool(self.guarded) and self.guarded[place]

    def curvature(
        self, w: jax.Array, rows: Any, weights: jax.Array, rates: RateNumbers, pull: jax.Array
    ) -> SymmetricSum:
        """∇²_w of pullᵀ atoms(w): for losses of linear scores from outer products, for the others by differentiation."""
        params = self.shape.unravel(w)
        rest: list[int] = []
        alike: dict[Any, list[int]] = {}  # atoms of the same class and function
        of_rows: dict[Any, jax.Array] = {}  # the sum of their weights on each row
        for place, ((atom, _), line) in enumerate(zip(self.atoms, self.lines(weights), strict=True)):
            if line is None or self.is_guarded(place):
                rest.append(place)
                continue
            key = type(atom), self._at(place, atom, rates)[1] or atom.function
            alike.setdefault(key, []).append(place)
            of_rows[key] = of_rows.get(key, 0.0) + pull[place] * line
        products, matrix = [], None
        for key, places in alike.items():
            atom, _ = self._at(places[0], self.atoms[places[0]][0], rates)
            part = atom.curvature(params, rows, of_rows[key])
            if part is None:
                rest += places
            else:
                products.append(part)
        if rest:
            chosen = np.isin(np.arange(len(self.atoms)), rest)
            masked = xp.where(chosen, pull, 0.0)
            matrix = jax.hessian(lambda v: masked @ self.evaluate(v, rows, weights, rates))(w)
        return SymmetricSum(tuple(products), matrix)


def rate_factors(program: Program) -> tuple[np.ndarray, ...]:
    """For objective, constraints and pooled contributions: the largest factor of a counted rate, 0 where there is none."""
    counted = [atom.rate is not None and atom.rate.is_decision for atom, _ in program.atoms]
    lines = (side.matrix(len(counted)) for side in program.sides)
    return tuple(np.abs(line[:, counted]).max(1, initial=0.0) for line in lines)


def with_other_terms(program: Program, side: Linear) -> np.ndarray:
    """Which of the functions of a side have other terms than counted rates."""
    others = [atom.rate is None or not atom.rate.is_decision for atom, _ in program.atoms]
    return np.any(side.matrix(len(others))[:, others] != 0, axis=1)


def directions(*lines: np.ndarray) -> np.ndarray:
    """A number for each function: the same for coefficients that differ by a positive factor, its negative for the opposite ones.

    Two-sided bounds have opposite ones. `lines`: coefficients (functions, atoms), of one or several programs; 0: all vanish.
    """
    numbers: dict[tuple[float, ...], int] = {}
    found = []
    for line in np.concatenate(lines, axis=1):
        first = next((coefficient for coefficient in line if coefficient), 0.0)
        normal = tuple(np.round(line / (first or 1.0), DIGITS).tolist())
        found.append(int(np.sign(first)) * numbers.setdefault(normal, len(numbers) + 1))
    return np.array(found, int)


def selected_rows(rows: Any, weights: jax.Array) -> Any:
    """The rows, with each row of weight zero replaced by the first row of positive weight."""
    chosen = weights > 0
    places = xp.where(chosen, xp.arange(chosen.size), xp.argmax(chosen))
    return {name: column[places] for name, column in rows.items()}


@dataclasses.dataclass(frozen=True)
class Compiled:
    """The two programs of a problem, and for each constraint its scope and the indices of its scalar inequalities."""

    party: Program
    server: Program
    rows: tuple[tuple[Constraint, Scope, tuple[int, ...]], ...]


def compile_problem(problem: Problem, shape: Shape, parties: int) -> Compiled:
    """Compile a problem, of which no groups are open, into the program of every party and that of the server."""
    assert not problem.open_groups()
    sides: dict[Scope, list[Expression]] = {"party": [], "pooled": [], "server": []}
    equal: dict[Scope, list[bool]] = {"party": [], "pooled": [], "server": []}
    digests: dict[Any, str] = {}
    rows = []
    for constraint in problem.constraints:
        parts, scope = constraint.inequalities(), constraint.scope
        start = len(sides[scope])
        sides[scope] += parts
        equal[scope] += [constraint.kind == "=="] * len(parts)
        rows.append((constraint, scope, tuple(range(start, start + len(parts)))))

    def side(scopes: tuple[Scope, ...], constraints: list[Expression], equality: list[bool]) -> Program:
        expressions = [problem.objective, *constraints, *sides["pooled"]]
        atoms = dict.fromkeys(t.evaluated for e in expressions for t in e.terms if t.scope in scopes)
        order = {atom: place for place, atom in enumerate(atoms)}

        def linear(expressions: list[Expression], constant: bool, averaged: bool) -> Linear:
            lines = []
            for expression in expressions:
                line = [0.0] * len(order)
                for term in expression.terms:
                    if term.scope in scopes:
                        atom, scope = term.evaluated
                        share = atom.share(scope, parties) if averaged else 1.0
                        line[order[atom, scope]] += term.coefficient * share
                lines.append(tuple(line))
            return Linear(tuple(lines), tuple(e.constant if constant else 0.0 for e in expressions))

        at_server = "server" in scopes
        rates = {atom.function: atom.rate for atom, _ in order if atom.rate is not None}
        which = {function: place for place, function in enumerate(rates)}
        alike: list[tuple[Atom, Scope]] = [
            (atom if atom.rate is None else atom.with_rate(atom.rate.at(1.0, 0.0)), scope) for atom, scope in order
        ]
        for atom, _ in alike:
            digests[atom.function] = digests.get(atom.function) or digest(atom.function)
        return Program(
            atoms=tuple(alike),
            digests=tuple(digests[atom.function] for atom, _ in alike),
            rates=tuple(rates.values()),
            rate_of=tuple(which.get(atom.function) for atom, _ in order),
            objective=linear([problem.objective], constant=at_server, averaged=True),
            constraints=linear(constraints, constant=True, averaged=False),
            pooled=linear(sides["pooled"], constant=at_server, averaged=True),
            equality=tuple(equality),
            pooled_equality=tuple(equal["pooled"]),
            shape=shape,
            parties=parties,
        )

    return Compiled(
        party=side(("party", "pooled"), sides["party"], equal["party"]),
        server=side(("server",), sides["server"], equal["server"]),
        rows=tuple(rows),
    )
