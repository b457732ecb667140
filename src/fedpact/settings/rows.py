"""Rows split over parties, one model for all: an answer is parameters and multipliers, and one exchange measures it."""

import itertools
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import jax
import numpy as np

from fedpact.arrays import xp
from fedpact.certificate import Certificate, Counted, Measured, certificate_of
from fedpact.problem.infeasibility import empty_radius
from fedpact.problem.oracle import Oracle, Values, weighted_gradients
from fedpact.protocol.algorithm import Answer, Method
from fedpact.protocol.messages import Reply
from fedpact.protocol.phases import Phase, Phases, ServerData, send_carry
from fedpact.records import Record
from fedpact.settings.base import HandedOut
from fedpact.settings.row_tables import RowTables


class CountedSums(Record):
    """A holder's share of the objective and the pooled constraints, with decisions counted."""

    objective: jax.Array
    pooled_constraints: jax.Array


class LagrangianSums(Record):
    """A holder's share of the Lagrangian at the answer."""

    objective: jax.Array
    lagrangian_gradient: jax.Array
    constraint_gradient: jax.Array  # Jᵀμ alone, and μᵀc: do they prove that there is no feasible point?
    weighted_violation: jax.Array
    pooled_constraints: jax.Array
    counted: CountedSums | None  # None where no decisions are counted


class OwnConstraints(Record):
    """A party's own constraints and multipliers at the answer, which it discloses here."""

    constraints: jax.Array
    multipliers: jax.Array
    counted: jax.Array | None  # with decisions counted, and what corrects the stand-ins; None where none are
    correction: jax.Array | None


class Kept(Record):
    """What a party keeps of an answer."""

    multipliers: jax.Array
    correction: jax.Array | None  # of its own constraints; None where no decisions are counted


def lagrangian(
    own: Oracle, answer: Answer, multipliers: jax.Array, counted: Values | None
) -> tuple[Values, LagrangianSums]:
    """A holder's functions at the answer, and its share of the sums."""

    def of_constraints(at: Values) -> Values:
        return Values(xp.zeros_like(at.objective), multipliers, answer.pooled_multipliers)

    def of_objective(at: Values) -> Values:
        return Values(xp.ones_like(at.objective), 0.0 * at.constraints, 0.0 * at.pooled)

    values, (slope, pull) = weighted_gradients(own, answer.parameters, of_objective, of_constraints)
    violation = multipliers @ values.constraints + answer.pooled_multipliers @ values.pooled
    counts = None if counted is None else CountedSums(counted.objective, counted.pooled)
    return values, LagrangianSums(values.objective, slope + pull, pull, violation, values.pooled, counts)


def measure_at_party(own: Oracle, kept: Kept, answer: Answer) -> tuple[Kept, Reply]:
    multipliers, correction, counted = kept.multipliers, kept.correction, None
    if correction is not None:
        counted = own.shifted(answer.threshold_shift).counted(answer.parameters)
        own = own.limited(constraints=correction)
    values, sums = lagrangian(own, answer, multipliers, counted)
    counts = None if counted is None else counted.constraints
    return kept, Reply(sum=sums, per_party=OwnConstraints(values.constraints, multipliers, counts, correction))


def measure_at_server(own: ServerData, answer: Answer, reply: Reply) -> Measured:
    functions, corrections, mine_counted = own.functions, answer.corrections, None
    if corrections is not None:
        mine_counted = functions.shifted(answer.threshold_shift).counted(answer.parameters)
        functions = functions.limited(corrections.server, corrections.pooled)
    values, mine = lagrangian(functions, answer, answer.server_multipliers, mine_counted)
    total: LagrangianSums = jax.tree.map(xp.add, reply.sum, mine)
    counted = None
    if mine_counted is not None and total.counted is not None:
        counted = Counted(
            objective=total.counted.objective + own.regularizer.value(answer.parameters),
            party_constraints=reply.per_party.counted,
            server_constraints=mine_counted.constraints,
            pooled_constraints=total.counted.pooled_constraints,
            party_corrections=reply.per_party.correction,
        )
    h, w = own.regularizer, answer.parameters
    gradient, pull = total.lagrangian_gradient + 2 * h.ridge * w, total.constraint_gradient
    objective = total.objective + h.value(w)
    if answer.units is not None:
        units = answer.units.at(w, objective)
        h, w, gradient = h.in_units(units), w / units.parameters, units.parameters * gradient / units.objective
        pull = units.parameters * pull
    return Measured(
        stationarity=h.distance(w, gradient),
        outside=h.outside(w),
        objective=objective,
        party_constraints=reply.per_party.constraints,
        party_multipliers=reply.per_party.multipliers,
        server_constraints=values.constraints,
        pooled_constraints=total.pooled_constraints,
        infeasible_radius=empty_radius(total.weighted_violation, pull, w, h),
        counted=counted,
    )


class RowsBound(RowTables):
    """A problem over rows with one model for all parties."""

    split: ClassVar[Literal["rows", "personal"]] = "rows"
    measured_on_host: ClassVar[bool] = True
    measurement: ClassVar[Phases] = (Phase(send_carry, measure_at_party, measure_at_server),)

    @staticmethod
    def keep(method: Method, own: Oracle, state: Any, answer: Any) -> Kept:
        return Kept(method.multipliers(own, state, answer), method.correction(state, answer))

    def certify(self, measured: Measured, answer: Answer) -> Certificate:
        return certificate_of(self.names, self.compiled, measured, answer)

    def hand_out(self, method: Method, answer: Answer, measured: Any, kept: Mapping[str, Any] | None) -> HandedOut:
        w = np.asarray(answer.parameters)
        return HandedOut(w, jax.tree.map(np.asarray, self.shape.unravel(w)))

    def block_shapes(self) -> dict[str, tuple[int, ...]]:
        return {}

    def kept_in(self, arrays: Mapping[str, np.ndarray]) -> Any:
        corrections = arrays.get("party_corrections", itertools.repeat(None))
        return self.by_bucket([Kept(*both) for both in zip(arrays["party_multipliers"], corrections, strict=False)])
