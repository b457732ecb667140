"""A problem's functions on one holder's rows: all that a party (or the server) can evaluate.

A problem is compiled into a `Program`: the atoms that it evaluates, and how objective and constraints are linear
in them. An `Oracle` is a program with the rows of one holder. With n parties the problem is

    minimise Σ_i objective_i(w) + objective_0(w) + h(w)
    s.t.     constraints_i(w) <= 0 (or == 0) at every holder,   Σ_i pooled_i(w) + pooled_0(w) <= 0 (or == 0)
"""

import dataclasses
import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedpact.problem.atoms import Atom, Evaluator, Scope
from fedpact.problem.expressions import Constraint, Expression
from fedpact.problem.fingerprint import digest
from fedpact.problem.personal import Own
from fedpact.problem.shape import Shape as Shape
from fedpact.problem.statement import Problem


@dataclasses.dataclass(frozen=True)
class Linear:
    """Linear functions of a program's atoms: coefficients (functions, atoms) and constants (functions,)."""

    coefficients: tuple[tuple[float, ...], ...]
    constants: tuple[float, ...]

    def __call__(self, atoms: jax.Array) -> jax.Array:
        if not self.constants:
            return jnp.zeros(0, atoms.dtype)
        constants = jnp.asarray(self.constants, atoms.dtype)
        return constants + jnp.asarray(self.coefficients, atoms.dtype) @ atoms if atoms.size else constants

    def back(self, weights: jax.Array, atoms: int) -> jax.Array:
        """The transpose: weights of the functions to weights of the atoms."""
        return weights @ jnp.asarray(self.coefficients, weights.dtype).reshape(len(self), atoms)

    def __len__(self) -> int:
        return len(self.constants)


@dataclasses.dataclass(frozen=True)
class Program:
    """The compiled problem of one holder; hashable, so that equal problems share compiled code.

    - `digests`: of each atom's function with the constants that it reads, so that a changed constant is another program.
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

    def evaluate(self, w: jax.Array, rows: Any, weights: jax.Array) -> jax.Array:
        """The atoms' values (atoms,); `weights` (atoms over rows, rows) are already divided by the counts of rows."""
        params = self.shape.unravel(w)
        on_all = Evaluator(params, rows, w.dtype)
        values = []
        for place, ((atom, _), line) in enumerate(zip(self.atoms, self.lines(weights), strict=True)):
            call = on_all
            if line is not None and self.is_guarded(place):
                call = Evaluator(params, selected_rows(rows, line), w.dtype)
            values.append(atom.evaluate(call, line))
        return jnp.stack(values) if values else jnp.zeros(0, w.dtype)

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
        return tuple(
            np.asarray(side.coefficients, float).reshape(len(side), len(self.atoms))[:, places].sum(1)
            for side in self.sides
        )

    def moving(self) -> tuple[np.ndarray, ...]:
        """Whether objective, constraints and pooled contributions depend on the parameters."""
        return tuple(np.array([any(line) for line in side.coefficients], bool) for side in self.sides)

    def is_guarded(self, place: int) -> bool:
        return bool(self.guarded) and self.guarded[place]

    def curvature(self, w: jax.Array, rows: Any, weights: jax.Array, pull: jax.Array) -> jax.Array:
        """∇²_w of pullᵀ atoms(w): for losses of linear scores by one Gram matrix, for the others by differentiation."""
        params = self.shape.unravel(w)
        rest: list[int] = []
        alike: dict[Any, list[int]] = {}  # atoms of the same class and function
        of_rows: dict[Any, jax.Array] = {}  # the sum of their weights on each row
        for place, ((atom, _), line) in enumerate(zip(self.atoms, self.lines(weights), strict=True)):
            if line is None or self.is_guarded(place):
                rest.append(place)
                continue
            key = type(atom), atom.function
            alike.setdefault(key, []).append(place)
            of_rows[key] = of_rows.get(key, 0.0) + pull[place] * line
        total = jnp.zeros((w.size, w.size), w.dtype)
        for key, places in alike.items():
            part = self.atoms[places[0]][0].curvature(params, rows, of_rows[key])
            if part is None:
                rest += places
            else:
                total = total + part
        if rest:
            chosen = np.isin(np.arange(len(self.atoms)), rest)
            masked = jnp.where(chosen, pull, 0.0)
            total = total + jax.hessian(lambda v: masked @ self.evaluate(v, rows, weights))(w)
        return total


def selected_rows(rows: Any, weights: jax.Array) -> Any:
    """The rows, with each row of weight zero replaced by the first row of positive weight."""
    chosen = weights > 0
    places = jnp.where(chosen, jnp.arange(chosen.size), jnp.argmax(chosen))
    return {name: column[places] for name, column in rows.items()}


class Values(eqx.Module):
    """Objective, constraints and pooled contributions of one holder at one point."""

    objective: jax.Array
    constraints: jax.Array
    pooled: jax.Array


class Oracle(eqx.Module):
    """One holder's functions of the flat parameter vector."""

    rows: dict[str, jax.Array]
    weights: jax.Array
    index: jax.Array
    count: jax.Array  # of rows that are not padding, which comes last
    program: Program = eqx.field(static=True)
    discloses: bool = eqx.field(static=True, default=False)
    personal: Own | None = None  # a party's own set and weight, where every party has a model of its own

    def disclose(self, values: Any) -> Any:
        """`values` where this holder discloses them in every round, for the report's curves; else None."""
        return values if self.discloses else None

    def __call__(self, w: jax.Array) -> Values:
        atoms = self.program.evaluate(w, self.rows, self.weights)
        program = self.program
        return Values(program.objective(atoms)[0], program.constraints(atoms), program.pooled(atoms))

    def objective_weight(self) -> jax.Array:
        """The sum of the objective's weights on this holder's rows; 0 where it reads none."""
        over_rows = [place for place, (atom, _) in enumerate(self.program.atoms) if atom.over_rows]
        coefficients = np.asarray(self.program.objective.coefficients[0])[over_rows]
        return jnp.asarray(coefficients) @ self.weights.sum(1)

    def sample(self, places: jax.Array, factor: jax.Array) -> "Oracle":
        """The same functions on the rows at `places`, with weights multiplied by `factor`."""
        rows = {name: column[places] for name, column in self.rows.items()}
        return dataclasses.replace(self, rows=rows, weights=factor * self.weights[:, places])

    def curvature(self, w: jax.Array, weights: Values) -> jax.Array:
        """∇² of the weighted sum of this holder's functions."""
        program = self.program
        if not program.atoms:
            return jnp.zeros((w.size, w.size), w.dtype)
        count = len(program.atoms)
        of_sides = (weights.objective[None], weights.constraints, weights.pooled)
        pulls = (side.back(of_side, count) for side, of_side in zip(program.sides, of_sides, strict=True))
        pull = sum(pulls, jnp.zeros(count))
        return program.curvature(w, self.rows, self.weights, pull)

    @property
    def equality(self) -> np.ndarray:
        return np.asarray(self.program.equality, bool)

    @property
    def pooled_equality(self) -> np.ndarray:
        return np.asarray(self.program.pooled_equality, bool)

    @property
    def own_set(self) -> Own:
        """The party's own set and weight; only where every party has a model of its own."""
        assert self.personal is not None
        return self.personal

    @property
    def parties(self) -> int:
        return self.program.parties


def derivatives(holder: "Oracle | SlackOracle", w: jax.Array) -> tuple[Values, Values]:
    """A holder's functions at w, and their gradients (functions, parameters)."""
    values, pull = jax.vjp(holder, w)
    m, p = values.constraints.size, values.pooled.size
    unit = jnp.eye(1 + m + p, dtype=w.dtype)
    lines = jax.vmap(lambda e: pull(Values(e[0], e[1 : 1 + m], e[1 + m :]))[0])(unit)
    return values, Values(lines[0], lines[1 : 1 + m], lines[1 + m :])


class SlackOracle(eqx.Module):
    """Form (4) of He, Peng and Sun (2024): pooled constraints decoupled by slacks s_i, which follow the parameters in w.

    Σ_i pooled_i(w) <= 0 becomes pooled_i(w) <= s_i/n at party i and Σ_i s_i/n + pooled_0(w) <= 0 at the server.
    """

    own: Oracle
    at_server: bool = eqx.field(static=True)

    def disclose(self, values: Any) -> Any:
        return self.own.disclose(values)

    def __call__(self, w: jax.Array) -> Values:
        n, p = self.own.parties, len(self.own.program.pooled)
        theta, slacks = w[: w.size - n * p], w[w.size - n * p :].reshape(n, p) / n
        values = self.own(theta)
        pooled = values.pooled + slacks.sum(0) if self.at_server else values.pooled - slacks[self.own.index]
        return Values(values.objective, jnp.concatenate([values.constraints, pooled]), jnp.zeros(0, w.dtype))

    def curvature(self, w: jax.Array, weights: Values) -> jax.Array:
        n, p = self.own.parties, len(self.own.program.pooled)
        m = weights.constraints.size - p
        inside = Values(weights.objective, weights.constraints[:m], weights.constraints[m:])
        return jnp.pad(self.own.curvature(w[: w.size - n * p], inside), (0, n * p))

    @property
    def equality(self) -> np.ndarray:
        return np.concatenate([self.own.equality, self.own.pooled_equality])

    @property
    def pooled_equality(self) -> np.ndarray:
        return np.zeros(0, bool)

    @property
    def parties(self) -> int:
        return self.own.parties


@dataclasses.dataclass(frozen=True)
class Compiled:
    """The two programs of a problem, and for each constraint its scope and the indices of its scalar inequalities."""

    party: Program
    server: Program
    rows: tuple[tuple[Constraint, Scope, tuple[int, ...]], ...]


def compile_problem(problem: Problem, shape: Shape, parties: int) -> Compiled:
    """Compile a problem into the program of every party and that of the server."""
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
        for function in {atom.function for atom, _ in order}:
            digests[function] = digests.get(function) or digest(function)

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
        return Program(
            atoms=tuple(order),
            digests=tuple(digests[atom.function] for atom, _ in order),
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
