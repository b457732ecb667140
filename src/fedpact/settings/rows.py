"""Rows split over parties, one model for all: an answer is parameters and multipliers, and one exchange measures it."""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import jax
import numpy as np

from fedpact.arrays import xp
from fedpact.certificate import Certificate, Counted, Hidden, Measured, certificate_of
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


class HiddenSums(Record):
    """What the sums tell of the parties' own constraints, where nobody tells its own."""

    lagrangian: LagrangianSums
    multipliers: jax.Array  # their sizes, of each scalar constraint


class HiddenMaxima(Record):
    """What maxima over parties tell of each of their scalar constraints; all are >= 0."""

    violation: jax.Array
    gap: jax.Array  # |c| where the multiplier is above 0
    negative: jax.Array  # −μ where the multiplier of an inequality is below 0
    counted: jax.Array | None  # violation with decisions counted; None where none are


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


def _measured(own: Oracle, kept: Kept, answer: Answer) -> tuple[Values, Values | None, LagrangianSums]:
    """A party's functions at the answer, with decisions counted where they are, and its share of the sums."""
    counted = None
    if kept.correction is not None:
        counted = own.shifted(answer.threshold_shift).counted(answer.parameters)
        own = own.limited(constraints=kept.correction)
    values, sums = lagrangian(own, answer, kept.multipliers, counted)
    return values, counted, sums


def measure_at_party(own: Oracle, kept: Kept, answer: Answer) -> tuple[Kept, Reply]:
    values, counted, sums = _measured(own, kept, answer)
    counts = None if counted is None else counted.constraints
    told = OwnConstraints(values.constraints, kept.multipliers, counts, kept.correction)
    return kept, Reply(sum=sums, per_party=told)


def measure_hidden_at_party(own: Oracle, kept: Kept, answer: Answer) -> tuple[Kept, Reply]:
    """The same without telling the party's own values: sums, and maxima over the parties."""
    values, counted, sums = _measured(own, kept, answer)
    equal, c, mu = own.equality, values.constraints, kept.multipliers
    maxima = HiddenMaxima(
        violation=_broken(c, equal),
        gap=xp.where((mu > 0) & ~equal, xp.abs(c), 0.0),
        negative=xp.where((mu < 0) & ~equal, -mu, 0.0),
        counted=None if counted is None else _broken(counted.constraints, equal),
    )
    return kept, Reply(sum=HiddenSums(sums, xp.abs(mu)), max=maxima)


def _broken(c: jax.Array, equality: np.ndarray) -> jax.Array:
    return xp.where(equality, xp.abs(c), xp.maximum(c, 0.0))


def measure_hidden_at_server(own: ServerData, answer: Answer, reply: Reply) -> Measured:
    at: HiddenMaxima = reply.max
    apart = OwnConstraints(*([xp.full((own.parties, at.gap.size), np.nan)] * 4))
    told = Reply(sum=reply.sum.lagrangian, per_party=apart)
    hidden = Hidden(reply.sum.multipliers, at.violation, at.gap, at.negative, at.counted)
    return dataclasses.replace(measure_at_server(own, answer, told), hidden=hidden)


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

    @property
    def measurement(self) -> Phases:
        if self.hides:
            return (Phase(send_carry, measure_hidden_at_party, measure_hidden_at_server),)
        return (Phase(send_carry, measure_at_party, measure_at_server),)

    @staticmethod
    def keep(method: Method, own: Oracle, state: Any, answer: Any) -> Kept:
        return Kept(method.multipliers(own, state, answer), method.correction(state, answer))

    def certify(self, measured: Measured, answer: Answer) -> Certificate:
        return certificate_of(self.names, self.compiled, measured, answer)

    def hand_out(self, method: Method, answer: Answer, measured: Any, kept: Mapping[str, Any] | None) -> HandedOut:
        w = np.asarray(answer.parameters)
        own = {}
        if self.hides and kept is not None:  # all parties are in this process, and so is what they keep
            own["party_multipliers"] = np.stack([each.multipliers for each in kept.values()])
            if answer.corrections is not None:
                own["party_corrections"] = np.stack([each.correction for each in kept.values()])
        return HandedOut(w, jax.tree.map(np.asarray, self.shape.unravel(w)), own)

    def block_shapes(self) -> dict[str, tuple[int, ...]]:
        return {}

    def kept_in(self, arrays: Mapping[str, np.ndarray]) -> Any:
        corrections = arrays.get("party_corrections", itertools.repeat(None))
        return self.by_bucket([Kept(*both) for both in zip(arrays["party_multipliers"], corrections, strict=False)])
