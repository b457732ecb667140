"""Rows split over parties who have a model each, in a set of their own.

    minimise over x_j ∈ X_j     (1/m) Σ_i [ f_i(x̄) + (σ_i/2) ‖x_i − x̄‖² ],      x̄ = (1/m) Σ_i x_i

An answer is the parties' models. With Ḡ = (1/m) Σ_i [∇f_i(x̄) − σ_i(x_i − x̄)] three exchanges measure it:

    stationarity     the largest ‖x_j − Π_j(x_j − Ḡ − σ_j(x_j − x̄))‖∞ of the parties
    feasibility      the largest distance ‖x_j − Π_j(x_j)‖
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from fedpact.certificate import EVERY_PARTY, Certificate, PersonalReport
from fedpact.problem.oracle import Oracle
from fedpact.protocol.algorithm import Answer, Method
from fedpact.protocol.messages import Reply
from fedpact.protocol.phases import Phase, Phases, ServerData, send_carry, send_nothing
from fedpact.records import Record
from fedpact.settings.base import HandedOut
from fedpact.settings.row_tables import RowTables


class OwnModel(Record):
    """A party's model as it is handed out, and as the method left it, before it was projected."""

    point: jax.Array
    unprojected: jax.Array


class MeanModel(Record):
    """The mean of the parties' models, and the gradient Ḡ there."""

    mean: jax.Array
    gradient: jax.Array
    objective: jax.Array


class OwnParameters(Record):
    parameters: jax.Array


class MeanParameters(Record):
    parameters: jax.Array


class ObjectiveSums(Record):
    objective: jax.Array
    gradient: jax.Array


class OwnResidual(Record):
    """How far a party's model is from stationary, and from its own set."""

    stationarity: jax.Array
    distance_to_set: jax.Array


class MeasuredModels(Record):
    mean: jax.Array
    objective: jax.Array
    residuals: OwnResidual  # one entry for each party


def send_model(own: Oracle, model: OwnModel, message: None) -> tuple[OwnModel, Reply]:
    return model, Reply(sum=OwnParameters(model.point))


def mean_of_models(own: ServerData, answer: Answer, reply: Reply) -> MeanParameters:
    return MeanParameters(reply.sum.parameters / own.parties)


def gradient_at_mean(own: Oracle, model: OwnModel, message: MeanParameters) -> tuple[OwnModel, Reply]:
    def part(mean: jax.Array) -> jax.Array:
        return own(mean).objective + own.own_set.cost(model.point, mean) / own.parties

    return model, Reply(sum=ObjectiveSums(*jax.value_and_grad(part)(message.parameters)))


def total_at_mean(own: ServerData, at: MeanParameters, reply: Reply) -> MeanModel:
    h, mean = own.regularizer, at.parameters
    objective = reply.sum.objective + own.functions(mean).objective + h.smooth(mean)
    return MeanModel(mean, reply.sum.gradient + 2 * h.ridge * mean, objective)


def own_residual(own: Oracle, model: OwnModel, at: MeanModel) -> tuple[OwnModel, Reply]:
    x = model.point
    onward = own.own_set.project(x - at.gradient - own.own_set.pull * (x - at.mean))
    return model, Reply(per_party=OwnResidual(jnp.max(jnp.abs(x - onward)), own.own_set.distance(x)))


def residuals_of_all(own: ServerData, at: MeanModel, reply: Reply) -> MeasuredModels:
    return MeasuredModels(at.mean, at.objective, reply.per_party)


def largest_residual(own: Oracle, model: OwnModel, at: MeanModel) -> tuple[OwnModel, Reply]:
    """The same without telling whose it is."""
    model, reply = own_residual(own, model, at)
    return model, Reply(max=reply.per_party)


def largest_of_all(own: ServerData, at: MeanModel, reply: Reply) -> MeasuredModels:
    return MeasuredModels(at.mean, at.objective, jax.tree.map(lambda x: x[None], reply.max))


class PersonalBound(RowTables):
    """A problem over rows with a model, a set and a pull for every party."""

    split: ClassVar[Literal["rows", "personal"]] = "personal"

    @property
    def measurement(self) -> Phases:
        last = (largest_residual, largest_of_all) if self.hides else (own_residual, residuals_of_all)
        return (
            Phase(send_nothing, send_model, mean_of_models),
            Phase(send_carry, gradient_at_mean, total_at_mean),
            Phase(send_carry, *last),
        )

    @staticmethod
    def keep(method: Method, own: Oracle, state: Any, answer: Any) -> OwnModel:
        block = method.block(own, state, answer)
        if not method.personal_models:
            return OwnModel(block, block)
        # twice, since rounding leaves a block from far outside not quite inside
        return OwnModel(own.own_set.project(own.own_set.project(block)), block)

    @staticmethod
    def decides_with(kept: OwnModel, parameters: Any) -> jax.Array:
        return kept.point

    def own_parameters(self, method: Method, name: str, kept: OwnModel) -> Any:
        return self.shape.unravel(np.asarray(kept.point)) if method.personal_models else None

    def certify(self, measured: MeasuredModels, answer: Answer) -> Certificate:
        residuals, distances = (np.asarray(x) for x in jax.tree.leaves(measured.residuals))
        holders = (EVERY_PARTY,) if self.hides else self.names
        by_name = [dict(zip(holders, map(float, x), strict=True)) for x in (residuals, distances)]
        none = np.zeros(0)
        return Certificate(
            stationarity=float(residuals.max()),
            feasibility=float(distances.max()),
            complementarity=0.0,
            objective=float(measured.objective),
            constraints=(),
            party_multipliers=np.zeros((len(self.names), 0)),
            server_multipliers=none,
            pooled_multipliers=none,
            personal=PersonalReport(*by_name),
        )

    def hand_out(
        self, method: Method, answer: Answer, measured: MeasuredModels, kept: Mapping[str, OwnModel] | None
    ) -> HandedOut:
        w = np.asarray(measured.mean)
        average = jax.tree.map(np.asarray, self.shape.unravel(w))
        if kept is None:
            return HandedOut(w, average, more={"average": average} if method.personal_models else {})
        blocks = {f"block {name}": np.asarray(model.point) for name, model in kept.items()}
        if not method.personal_models:
            return HandedOut(w, average, blocks)
        more = {
            "average": average,
            "unprojected": {name: self.shape.unravel(model.unprojected) for name, model in kept.items()},
            "moved": {name: float(np.linalg.norm(model.unprojected - model.point)) for name, model in kept.items()},
        }
        return HandedOut(w, {name: self.shape.unravel(model.point) for name, model in kept.items()}, blocks, more)

    def block_shapes(self) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys(self.names, (self.shape.size,))

    def kept_in(self, arrays: Mapping[str, np.ndarray]) -> Any:
        points = [arrays[f"block {name}"] for name in self.names]
        return self.by_bucket([OwnModel(point, point) for point in points])  # pyright: ignore[reportArgumentType]
