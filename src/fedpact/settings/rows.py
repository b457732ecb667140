"""Rows split over parties, one model for all: an answer is parameters and multipliers, and one exchange measures it."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedpact.certificate import Certificate, Measured, certificate_of
from fedpact.problem.oracle import Oracle, Values
from fedpact.protocol.algorithm import Answer, Method
from fedpact.protocol.messages import Reply
from fedpact.protocol.phases import Phase, Phases, ServerData, send_carry
from fedpact.settings.base import HandedOut
from fedpact.settings.row_tables import RowTables


class LagrangianSums(eqx.Module):
    """A party's share of the Lagrangian at the answer."""

    objective: jax.Array
    lagrangian_gradient: jax.Array
    pooled_constraints: jax.Array


class OwnConstraints(eqx.Module):
    """A party's own constraints and multipliers at the answer, which it discloses here."""

    constraints: jax.Array
    multipliers: jax.Array


def measure_at_party(own: Oracle, multipliers: jax.Array, answer: Answer) -> tuple[jax.Array, Reply]:
    values, pull = jax.vjp(own, answer.parameters)
    weights = Values(jnp.ones_like(values.objective), multipliers, answer.pooled_multipliers)
    sums = LagrangianSums(values.objective, pull(weights)[0], values.pooled)
    return multipliers, Reply(sum=sums, per_party=OwnConstraints(values.constraints, multipliers))


def measure_at_server(own: ServerData, answer: Answer, reply: Reply) -> Measured:
    values, pull = jax.vjp(own.functions, answer.parameters)
    weights = Values(jnp.ones_like(values.objective), answer.server_multipliers, answer.pooled_multipliers)
    h, w = own.regularizer, answer.parameters
    gradient = reply.sum.lagrangian_gradient + pull(weights)[0] + 2 * h.ridge * w
    return Measured(
        stationarity=h.distance(w, gradient),
        outside=h.outside(w),
        objective=reply.sum.objective + values.objective + h.value(w),
        party_constraints=reply.per_party.constraints,
        party_multipliers=reply.per_party.multipliers,
        server_constraints=values.constraints,
        pooled_constraints=reply.sum.pooled_constraints + values.pooled,
    )


class RowsBound(RowTables):
    """A problem over rows with one model for all parties."""

    split: ClassVar[Literal["rows", "personal"]] = "rows"
    measurement: ClassVar[Phases] = (Phase(send_carry, measure_at_party, measure_at_server),)

    @staticmethod
    def keep(method: Method, own: Oracle, state: Any, answer: Any) -> jax.Array:
        return method.multipliers(own, state, answer)

    def certify(self, measured: Measured, answer: Answer) -> Certificate:
        return certificate_of(self.names, self.compiled, measured, answer)

    def hand_out(self, method: Method, answer: Answer, measured: Any, kept: Mapping[str, Any] | None) -> HandedOut:
        w = np.asarray(answer.parameters)
        return HandedOut(w, jax.tree.map(np.asarray, self.shape.unravel(w)))

    def block_shapes(self) -> dict[str, tuple[int, ...]]:
        return {}

    def kept_in(self, arrays: Mapping[str, np.ndarray]) -> Any:
        return self.by_bucket(list(arrays["party_multipliers"]))
