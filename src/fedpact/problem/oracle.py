"""A problem's functions on one holder's rows: all that a party (or the server) can evaluate.

An `Oracle` is a program with the rows of one holder. With n parties the problem is

    minimise Σ_i objective_i(w) + objective_0(w) + h(w)
    s.t.     constraints_i(w) <= 0 (or == 0) at every holder,   Σ_i pooled_i(w) + pooled_0(w) <= 0 (or == 0)
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fedpact.arrays import on_host, xp
from fedpact.compiling import Jitted
from fedpact.problem.personal import Own
from fedpact.problem.program import Linear, Program, RateNumbers, with_other_terms
from fedpact.problem.symmetric import SymmetricSum
from fedpact.problem.units import HolderUnits
from fedpact.records import Record

FEW = 4  # functions whose gradients are faster one by one: products with vectors instead of narrow matrices
ROUNDING = 1e-12  # what is left of a sum is rounding where it is smaller than this part of its terms


class Values(Record):
    """Objective, constraints and pooled contributions of one holder at one point."""

    objective: jax.Array
    constraints: jax.Array
    pooled: jax.Array


class Multipliers(Record):
    """Of a holder's own scalar constraints, and of the pooled ones."""

    constraints: jax.Array
    pooled: jax.Array


class Oracle(Record):
    """One holder's functions of the flat parameter vector."""

    rows: dict[str, jax.Array]
    weights: jax.Array
    index: jax.Array
    count: jax.Array  # of rows that are not padding, which comes last
    constants: Values  # of the functions: minus the bounds of constraints
    rates: RateNumbers
    program: Program = eqx.field(static=True)
    discloses: bool = eqx.field(static=True, default=False)
    personal: Own | None = None  # a party's own set and weight, where every party has a model of its own
    units: HolderUnits | None = None  # what w and the values are in (None: the problem's own units)
    batch_secret: jax.Array | None = (
        None  # of a party elsewhere, uint32 (2,): mixed into the keys that draw its mini-batches
    )
    first: Multipliers | None = None  # to begin with, in the problem's own units (None: zeros)
    place: jax.Array | None = None  # of this holder in `rows` and `weights`, where these still are several holders'

    @classmethod
    def of(cls, program: Program, rows: Any, weights: Any, index: Any, count: Any, discloses: bool = False) -> "Oracle":
        """The functions of a program on one holder's rows, or on those of several with a leading axis over holders."""
        objective, constraints, pooled = (np.asarray(side.constants, float) for side in program.sides)
        own: Any = objective[0], constraints, pooled
        given = Values(*own), RateNumbers.of(program.rates)
        constants, rates = jax.tree.map(lambda c: np.broadcast_to(c, (*np.shape(index), *np.shape(c))), given)
        return cls(rows, weights, index, count, constants, rates, program, discloses)

    def picked(self, places: jax.Array) -> tuple["Oracle", Any]:
        """Of a stack of holders those at `places`, and the axes of a `vmap` over them.

        Rows are not copied: every holder knows its place among all, and a mini-batch reads no rows but its own.
        """
        picked = jax.tree.map(lambda leaf: leaf[places], dataclasses.replace(self, rows={}, weights=self.count))
        picked = dataclasses.replace(picked, rows=self.rows, weights=self.weights, place=places)
        axes: Any = jax.tree.map(lambda _: 0, picked)
        return picked, dataclasses.replace(axes, rows=None, weights=None)

    def with_own_rows(self) -> "Oracle":
        """The same, with this holder's rows taken out of several holders'."""
        if self.place is None:
            return self
        rows, weights = jax.tree.map(lambda leaf: leaf[self.place], (self.rows, self.weights))
        return dataclasses.replace(self, rows=rows, weights=weights, place=None)

    def softened(self, factor: jax.Array) -> "Oracle":
        """The same functions with the temperatures of smooth rates multiplied by a factor."""
        if not self.program.rates:
            return self
        return dataclasses.replace(
            self, rates=dataclasses.replace(self.rates, temperatures=factor * self.rates.temperatures)
        )

    def shifted(self, by: Any) -> "Oracle":
        """The same functions with the thresholds of counted decisions moved, in units of their temperatures."""
        decided = np.array([float(rate.is_decision) for rate in self.program.rates])
        moved = self.rates.thresholds + by * decided * self.rates.temperatures
        return dataclasses.replace(self, rates=dataclasses.replace(self.rates, thresholds=moved))

    def limited(self, constraints: Any = 0.0, pooled: Any = 0.0) -> "Oracle":
        """The same functions with these numbers added to constraints and pooled contributions."""
        now = self.constants
        moved = Values(now.objective, now.constraints + constraints, now.pooled + pooled)
        return dataclasses.replace(self, constants=moved)

    def in_units(self, units: HolderUnits) -> "Oracle":
        """The same functions with w and all values in other units."""
        return dataclasses.replace(self, units=units)

    def first_multipliers(self) -> Multipliers:
        """What this holder begins with."""
        if self.first is None:
            return Multipliers(xp.zeros(self.equality.size), xp.zeros(self.pooled_equality.size))
        if self.units is None:
            return self.first
        return Multipliers(
            self.first.constraints * self.units.constraints / self.units.objective,
            self.first.pooled * self.units.pooled_constraints / self.units.objective,
        )

    def disclose(self, values: Any) -> Any:
        """`values` where this holder discloses them in every round, for the report's curves; else None."""
        return values if self.discloses else None

    def __call__(self, w: jax.Array) -> Values:
        return self._values(w, counted=False)

    def counted(self, w: jax.Array) -> Values:
        """The same with decisions counted, not smoothed."""
        return self._values(w, counted=True)

    def jumps(self) -> Values:
        """The most by which one decision on a row changes each function."""
        counted = np.array(
            [atom.rate is not None and atom.rate.is_decision for atom, _ in self.program.over_rows], bool
        )
        places = [place for place, (atom, _) in enumerate(self.program.atoms) if atom.over_rows]
        weights = xp.where(counted[:, None], self._known_weights, 0.0)

        def most(side: Linear) -> jax.Array:
            lines = side.matrix(len(self.program.atoms))[:, places]
            return xp.max(xp.abs(lines @ weights), axis=1, initial=0.0)

        objective, constraints, pooled = (most(side) for side in self.program.sides)
        return Values(objective[0], constraints, pooled)

    def strictest(self) -> Values:
        """What smooth stand-ins of each function need not go below: there every row is decided as that function likes it best.

        -∞ where other things than decisions are among its terms.
        """
        rows = [place for place, (atom, _) in enumerate(self.program.atoms) if atom.over_rows]

        def least(side: Linear, constants: jax.Array, holders: int = 1) -> jax.Array:
            lines, others = side.matrix(len(self.program.atoms)), with_other_terms(self.program, side)
            liked = xp.sum(xp.minimum(lines[:, rows] @ self._known_weights, 0.0), axis=1)
            shares = xp.abs(lines[:, rows] @ self._known_weights)
            lightest = xp.min(xp.where(shares > 0, shares, xp.inf), axis=1, initial=xp.inf)
            half = xp.where(xp.isfinite(lightest), 0.5 * lightest / holders, 0.0)
            return xp.where(others, -xp.inf, constants + liked + half)

        now = self.constants
        objective = least(self.program.objective, now.objective[None])
        return Values(
            objective[0],
            least(self.program.constraints, now.constraints),
            least(self.program.pooled, now.pooled, self.parties),
        )

    @property
    def _known_weights(self) -> Any:
        """The rows' weights, on the host where they are no arguments of a program that is being traced."""
        weights = self.with_own_rows().weights
        return weights if isinstance(weights, Tracer) else np.asarray(weights)

    def _values(self, w: jax.Array, counted: bool) -> Values:
        program, units = self.program, self.units
        if program.atoms and on_host(w):
            return _compiled(Oracle.counted if counted else Oracle.__call__, self, w)
        atoms, constants = self._atoms(w, counted), self.constants
        values = Values(
            program.objective(atoms, constants.objective[None])[0],
            program.constraints(atoms, constants.constraints),
            program.pooled(atoms, constants.pooled),
        )
        return values if units is None else divided(values, units)

    def _atoms(self, w: jax.Array, counted: bool) -> jax.Array:
        inside = w if self.units is None else self.units.parameters * w
        own = self.with_own_rows()
        return self.program.evaluate(inside, own.rows, own.weights, self.rates, counted)

    def terms_cancel(self, w: jax.Array) -> jax.Array:
        """Whether the objective, without its constant, is nothing but the rounding of terms that cancel."""
        if self.program.atoms and on_host(w):
            return _compiled(Oracle.terms_cancel, self, w)
        terms = xp.asarray(self.program.objective.coefficients[0], w.dtype) * self._atoms(w, counted=False)
        return xp.abs(xp.sum(terms)) <= ROUNDING * xp.sum(xp.abs(terms))

    def objective_weight(self) -> jax.Array:
        """The sum of the objective's weights on this holder's rows; 0 where it reads none."""
        over_rows = [place for place, (atom, _) in enumerate(self.program.atoms) if atom.over_rows]
        coefficients = np.asarray(self.program.objective.coefficients[0])[over_rows]
        weights = self.weights if self.place is None else self.weights[self.place]
        return xp.asarray(coefficients) @ weights.sum(1)

    def sample(self, places: jax.Array, factor: jax.Array) -> "Oracle":
        """The same functions on the rows at `places`, with weights multiplied by `factor`."""
        own, weights = ((), self.weights) if self.place is None else ((self.place,), self.weights[self.place])
        rows = {name: column[*own, places] for name, column in self.rows.items()}
        return dataclasses.replace(self, rows=rows, weights=factor * weights[:, places], place=None)

    def curvature(self, w: jax.Array, weights: Values) -> SymmetricSum:
        """∇² of the weighted sum of this holder's functions."""
        program, units = self.program, self.units
        if not program.atoms:
            return SymmetricSum((), xp.zeros((w.size, w.size), w.dtype))
        if on_host(w):
            return SymmetricSum((), _compiled(Oracle._curvature_matrix, self, w, weights))
        if units is not None:
            inside = dataclasses.replace(self, units=None).curvature(units.parameters * w, divided(weights, units))
            return inside.in_units(units.parameters)
        count = len(program.atoms)
        of_sides = (weights.objective[None], weights.constraints, weights.pooled)
        pulls = (side.back(of_side, count) for side, of_side in zip(program.sides, of_sides, strict=True))
        pull = sum(pulls, xp.zeros(count))
        own = self.with_own_rows()
        return program.curvature(w, own.rows, own.weights, self.rates, pull)

    def _curvature_matrix(self, w: jax.Array, weights: Values) -> jax.Array:
        return self.curvature(w, weights).matrix()

    @property
    def is_constant(self) -> bool:
        """Whether no function depends on the parameters."""
        return not self.program.atoms

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


def divided(values: Values, units: HolderUnits) -> Values:
    """Values in units; or weights of values in units, as weights of the values themselves."""
    pooled = values.pooled / units.pooled_constraints
    return Values(values.objective / units.objective, values.constraints / units.constraints, pooled)


def derivatives(holder: "Oracle | SlackOracle", w: jax.Array) -> tuple[Values, Values]:
    """A holder's functions at w, and their gradients (functions, parameters)."""
    if on_host(w):
        if holder.is_constant:
            values = holder(w)
            return values, jax.tree.map(lambda value: np.zeros((*value.shape, w.size)), values)
        return _compiled(derivatives, holder, w)
    values, pull = jax.vjp(holder, w)
    m, p = values.constraints.size, values.pooled.size
    unit = xp.eye(1 + m + p, dtype=w.dtype)

    def line(e: jax.Array) -> jax.Array:
        return pull(Values(e[0], e[1 : 1 + m], e[1 + m :]))[0]

    lines = xp.stack([line(e) for e in unit]) if len(unit) <= FEW else jax.vmap(line)(unit)
    return values, Values(lines[0], lines[1 : 1 + m], lines[1 + m :])


def weighted_gradients(
    holder: "Oracle | SlackOracle", w: jax.Array, *weights: Callable[[Values], Values]
) -> tuple[Values, list[jax.Array]]:
    """A holder's functions at w, and the gradients of their sums with each of these weights, which may depend on the values."""
    if on_host(w):
        values, slopes = derivatives(holder, w)
        all_by = [by(values) for by in weights]
        return values, [
            by.objective * slopes.objective + by.constraints @ slopes.constraints + by.pooled @ slopes.pooled
            for by in all_by
        ]
    values, pull = jax.vjp(holder, w)
    pulled = [by(values) for by in weights]
    program = holder.own.program if isinstance(holder, SlackOracle) else holder.program
    if all(len(shape) < 2 for shape in program.shape.shapes):  # rows times vectors: one product each is faster on CPUs
        return values, [pull(by)[0] for by in pulled]
    together = jax.tree.map(lambda *parts: jnp.stack(parts), *pulled)
    return values, list(jax.vmap(pull)(together)[0])


@functools.partial(Jitted, static=1)
def evaluated_on_host(function: Callable[..., Any], holder: Any, *arguments: Any) -> Any:
    return function(holder, *arguments)


def _compiled(function: Callable[..., Any], holder: Any, *arguments: Any) -> Any:
    """What a compiled function answers, on the host."""
    return jax.tree.map(np.asarray, evaluated_on_host(function, holder, *arguments))


class SlackOracle(Record):
    """Form (4) of He, Peng and Sun (2024): pooled constraints decoupled by slacks s_i, which follow the parameters in w.

    Σ_i pooled_i(w) <= 0 becomes pooled_i(w) <= s_i/n at party i and Σ_i s_i/n + pooled_0(w) <= 0 at the server.
    """

    own: Oracle
    at_server: bool = eqx.field(static=True)

    @property
    def index(self) -> jax.Array:
        return self.own.index

    def disclose(self, values: Any) -> Any:
        return self.own.disclose(values)

    def __call__(self, w: jax.Array) -> Values:
        n, p = self.own.parties, len(self.own.program.pooled)
        theta, slacks = w[: w.size - n * p], w[w.size - n * p :].reshape(n, p) / n
        values = self.own(theta)
        pooled = values.pooled + slacks.sum(0) if self.at_server else values.pooled - slacks[self.own.index]
        return Values(values.objective, xp.concatenate([values.constraints, pooled]), xp.zeros(0, w.dtype))

    def curvature(self, w: jax.Array, weights: Values) -> SymmetricSum:
        n, p = self.own.parties, len(self.own.program.pooled)
        m = weights.constraints.size - p
        inside = Values(weights.objective, weights.constraints[:m], weights.constraints[m:])
        return SymmetricSum((), xp.pad(self.own.curvature(w[: w.size - n * p], inside).matrix(), (0, n * p)))

    def first_multipliers(self) -> Multipliers:
        """Stationarity in the slacks gives every holder the pooled multipliers."""
        own = self.own.first_multipliers()
        return Multipliers(xp.concatenate([own.constraints, own.pooled]), xp.zeros(0))

    @property
    def is_constant(self) -> bool:
        return False

    @property
    def equality(self) -> np.ndarray:
        return np.concatenate([self.own.equality, self.own.pooled_equality])

    @property
    def pooled_equality(self) -> np.ndarray:
        return np.zeros(0, bool)

    @property
    def parties(self) -> int:
        return self.own.parties
