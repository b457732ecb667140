"""What a curious server knows of derivatives: gradients and Hessians at known points, read off what it received.

    gradient   o ∇f(w) + Σ_m μ_m ∇c_m(w) + Σ_k ν_k ∇p_k(w)         f, c, p: objective, constraints and pooled contributions
    hessian    o ∇²f(w) + Σ_m μ_m ∇²c_m(w) + Σ_k ν_k ∇²p_k(w)      of the holders whose replies the view has

in the problem's own units, with known weights o, μ, ν. Each of them is a sum over rows, which is what the attacks make use of.
Messages are told apart by the names of their classes: whoever has the pact knows the protocol.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np

from fedpact.privacy.views import Received, View
from fedpact.problem.symmetric import unpacked


@dataclasses.dataclass(frozen=True)
class Reading:
    """A gradient (d,) or Hessian (d, d) at `w` with weights of objective, constraints and pooled contributions.

    - `softening`: by which the temperatures of smooth rates were multiplied.
    - `exact`: whether it holds to rounding (default), or is a mean over steps that went on from `w`.
    """

    kind: Literal["gradient", "hessian"]
    w: np.ndarray
    value: np.ndarray
    objective: float
    constraints: np.ndarray
    pooled: np.ndarray
    softening: float = 1.0
    exact: bool = True


@dataclasses.dataclass
class Known:
    """What the server knows beside the messages.

    - `size`: d. `equality`: of a party's own scalar constraints; `pooled`: how many pooled ones there are.
    - `parties`: whose replies the view has added up. `members`: of the federation. `rows`: of those in the view.
    - `method`: as it is bound.
    - `units`: as they were broadcast (None: the problem's own).
    - `objective_slope`: ∇f at a point, once the rows behind the objective are known (None: they are not).
    """

    size: int
    equality: np.ndarray
    pooled: int
    parties: int
    members: int
    rows: int
    method: Any
    units: Any = None
    objective_slope: Callable[[np.ndarray], np.ndarray] | None = None
    controls: Any = 0.0  # SCAFFOLD: the parties' control variates so far

    @property
    def scale(self) -> np.ndarray:
        return np.ones(self.size) if self.units is None else np.asarray(self.units.parameters)

    @property
    def objective_unit(self) -> float:
        return 1.0 if self.units is None else float(self.units.objective)

    @property
    def constraint_units(self) -> np.ndarray:
        return np.ones(len(self.equality)) if self.units is None else np.asarray(self.units.constraints)

    @property
    def pooled_units(self) -> np.ndarray:
        return np.ones(self.pooled) if self.units is None else np.asarray(self.units.pooled_constraints)

    def gradient(self, u: Any, value: Any, objective: Any, constraints: Any, pooled: Any, **more: Any) -> Reading:
        """From units to the problem's own: `value` is the gradient by u of the weighted sum of f/φ, c/σ and p/σ."""
        return self._reading("gradient", u, np.asarray(value) / self.scale, objective, constraints, pooled, more)

    def hessian(self, u: Any, value: Any, objective: Any, constraints: Any, pooled: Any, **more: Any) -> Reading:
        inside = np.asarray(value) / self.scale[:, None] / self.scale
        return self._reading("hessian", u, inside, objective, constraints, pooled, more)

    def _reading(
        self, kind: Any, u: Any, value: Any, objective: Any, constraints: Any, pooled: Any, more: Any
    ) -> Reading:
        phi = self.objective_unit
        return Reading(
            kind,
            self.scale * np.asarray(u),
            phi * value,
            float(objective),
            phi * np.asarray(constraints, float) / self.constraint_units,
            phi * np.asarray(pooled, float) / self.pooled_units,
            **more,
        )

    @property
    def no_constraint(self) -> np.ndarray:
        return np.zeros(len(self.equality))

    @property
    def none_pooled(self) -> np.ndarray:
        return np.zeros(self.pooled)


def readings(view: View, known: Known) -> list[Reading]:
    """All gradients and Hessians that the view gives. Where none can be read off, the list is empty."""
    found: list[Reading] = []
    evaluations: list[_Evaluation] = []
    for exchange in view.exchanges:
        name = type(exchange.message).__name__
        if name == "Joining":
            known.units = exchange.message.units
        elif name == "Evaluate":
            evaluations += _evaluation(exchange, known, evaluations)
        elif name in READERS:
            found += READERS[name](exchange, known)
    at_start = [reading for reading in found if reading.kind == "gradient" and not reading.constraints.any()]
    found += _of_evaluations(evaluations, known, at_start)
    return [reading for reading in found if np.isfinite(reading.value).all() and reading.w.size == known.size]


def _at_start(exchange: Received, known: Known) -> Iterator[Reading]:
    """Before the first round, with which units are learnt."""
    sums, w = exchange.reply.sum, exchange.message.parameters
    if type(sums).__name__ != "PartyStart":
        return
    sums = sums.functions
    yield known.gradient(w, sums.gradient, 1.0, known.no_constraint, known.none_pooled)
    yield from _pooled(w, sums.pooled_jacobian, known)


def _pooled(w: Any, jacobian: Any, known: Known, **more: Any) -> Iterator[Reading]:
    for line, unit in zip(np.asarray(jacobian), np.eye(known.pooled), strict=True):
        yield known.gradient(w, line, 0.0, known.no_constraint, unit, **more)


def _matrix(triangle: Any, size: int) -> Any:
    """The symmetric matrix behind what was sent of it."""
    return unpacked(triangle, size)


def _trial(exchange: Received, known: Known) -> Iterator[Reading]:
    """InteriorPoint. A party's JᵀWJ is subtracted from its Hessian: of one inequality, all of it can be computed."""
    trial, sums, largest = exchange.message, exchange.reply.sum, exchange.reply.max
    u, nothing, pooled = trial.parameters, known.no_constraint, np.asarray(trial.pooled_multipliers)
    more = {"softening": 1.0 if trial.rates is None else float(trial.rates.softening)}
    yield known.gradient(u, sums.gradient, 1.0, nothing, known.none_pooled, **more)
    yield from _pooled(u, sums.pooled_jacobian, known, **more)
    searching = bool(trial.searching)
    hessian = _matrix(np.asarray(sums.hessian), known.size)
    if not nothing.size:
        yield known.hessian(u, hessian, 0.0 if searching else 1.0, nothing, pooled, **more)
    if nothing.size != 1 or known.equality.any() or known.parties > 1 or searching:
        return
    mu, active = float(largest.multiplier), float(sums.multiplier_sum)
    barrier = np.asarray(sums.right_hand_side_barrier)  # W/μ J
    length = float(np.linalg.norm(barrier))
    if not (mu > 0 and length > 0):
        return
    along = barrier / length
    if active > 0:
        slope = float(sums.constraint_gradient @ along) / active  # ‖J‖
    else:
        slope = float(sums.right_hand_side @ along) / mu + float(sums.slack_products) / mu * length
    yield known.gradient(u, slope * along, 0.0, np.ones(1), known.none_pooled, **more)
    stiff = length * mu * slope * np.outer(along, along)  # JᵀWJ
    yield known.hessian(u, hessian - stiff, 1.0, np.array([mu]), pooled, **more)


@dataclasses.dataclass(frozen=True)
class _Evaluation:
    """A round of ProxAL at one party: ∇P but for the prox term, and the Hessian with βJᵀJ in it (None: not sent)."""

    u: np.ndarray
    gradient: np.ndarray
    gradient_change: np.ndarray  # with the multipliers of the next subproblem, [μ⁺ + βc]₊
    hessian: np.ndarray | None
    multipliers: np.ndarray  # μ⁺
    base: np.ndarray  # μ, of the subproblem
    penalty: float
    pooled: np.ndarray


def _evaluation(exchange: Received, known: Known, before: list[_Evaluation]) -> Iterator[_Evaluation]:
    """ProxAL with a solver at the server. μ⁺ is disclosed, or follows from the penalty's value where there is one constraint."""
    message, sums = exchange.message, exchange.reply.sum
    u, m = np.asarray(message.parameters), len(known.equality)
    if u.size != known.size or type(sums).__name__ != "Evaluation" or (m and known.parties > 1):
        return
    share = known.parties / (known.members + 1) / float(message.prox_length)
    away = u - np.asarray(message.centre)
    disclosed = exchange.reply.per_party
    base = np.zeros(m)
    if before:
        base = before[-1].multipliers if message.new_subproblem else before[-1].base
    if m and disclosed is not None:
        multipliers = np.asarray(disclosed.multipliers) * known.constraint_units / known.objective_unit
    elif m <= 1:
        growth = float(sums.value - sums.objective - share / 2 * away @ away)  # (μ⁺² − μ²)/2β
        change = 0.0 if not m else float(exchange.reply.max.multiplier_change)  # |μ⁺ − μ|
        multipliers = np.maximum(base + np.sign(growth) * change, 0.0)
    else:
        return
    hessian = None if sums.hessian is None else _matrix(np.asarray(sums.hessian), known.size)
    pooled = np.asarray(getattr(message.inner, "pooled_multipliers", known.none_pooled))
    gradient = np.asarray(sums.value_gradient) - share * away
    change = np.asarray(sums.gradient_change)
    yield _Evaluation(u, gradient, change, hessian, multipliers, base, float(message.penalty), pooled)


def _of_evaluations(evaluations: list[_Evaluation], known: Known, at_start: list[Reading]) -> Iterator[Reading]:
    """Gradients of all rounds, and Hessians of those where βJᵀJ is known: J is the difference of two gradients at one point
    with different multipliers, of which every reply has two; or it follows from ∇f."""
    for one in evaluations:
        yield known.gradient(one.u, one.gradient, 1.0, one.multipliers, known.none_pooled)
        if one.hessian is None:
            continue
        stiff = _penalty(one, evaluations, known, at_start)
        if stiff is not None:
            yield known.hessian(one.u, one.hessian - stiff, 1.0, one.multipliers, one.pooled)


def _penalty(
    one: _Evaluation, evaluations: list[_Evaluation], known: Known, at_start: list[Reading]
) -> np.ndarray | None:
    """βJᵀJ of active constraints; None where J cannot be told."""
    if not (known.equality.any() or one.multipliers.any()):
        return np.zeros((known.size, known.size))
    if len(one.multipliers) != 1 or known.equality.any():
        return None
    others = [(e.gradient, float(e.multipliers[0])) for e in evaluations if np.array_equal(e.u, one.u)]
    w, phi = known.scale * one.u, known.objective_unit
    others += [
        (r.value * known.scale / phi, 0.0) for r in at_start if r.objective == 1 and np.allclose(r.w, w, 1e-14, 0)
    ]
    if known.objective_slope is not None:
        others.append((known.objective_slope(w) * known.scale / phi, 0.0))
    own = float(one.multipliers[0])
    others.append((one.gradient + one.gradient_change, max(2 * own - float(one.base[0]), 0.0)))
    gradient, other = max(others, key=lambda pair: abs(pair[1] - own))
    if not abs(own - other) > 1e-6 * own:
        return None
    slope = (one.gradient - gradient) / (own - other)
    return one.penalty * np.outer(slope, slope)


def _local_task(exchange: Received, known: Known) -> Iterator[Reading]:
    """FedAvg and FedProx: a change of parameters is the sum of the steps' gradients; of one step, its gradient."""
    steps = known.method.steps
    if steps.batch is not None or steps.participation < 1 or steps.penalty is not None:
        return
    sums, w, count = (
        exchange.reply.sum,
        np.asarray(exchange.message.parameters),
        float(steps.count_in(exchange.message)),
    )
    slope = -np.asarray(sums.parameter_change) / (float(exchange.message.step_size) * count)
    slope = slope - 2 * steps.ridge * float(sums.weight) * w
    yield known.gradient(w, slope, 1.0, known.no_constraint, known.none_pooled, exact=count == 1)


def _controlled_task(exchange: Received, known: Known) -> Iterator[Reading]:
    """SCAFFOLD: the same, after control variates that the server has followed from the start."""
    steps, message, sums = known.method.steps, exchange.message, exchange.reply.sum
    if steps.batch is not None or steps.participation < 1 or steps.penalty is not None:
        return
    w, control = np.asarray(message.task.parameters), np.asarray(message.control_variate)
    count = float(steps.count_in(message.task))
    mean = -np.asarray(sums.parameter_change) / (float(message.task.step_size) * count)
    slope = mean - known.parties * control + known.controls - known.parties * 2 * steps.ridge * w
    known.controls = known.controls + np.asarray(sums.control_variate_change)
    value = slope / known.members
    yield known.gradient(w, value, 1.0, known.no_constraint, known.none_pooled, exact=count == 1)


def _gradient_request(exchange: Received, known: Known) -> Iterator[Reading]:
    """FedSGD, where all rows are drawn."""
    method = known.method
    if type(method).__name__ != "FedSGDOverRows" or method.options.participation < 1:
        return
    if method.options.batch * known.parties != known.rows:
        return
    w = np.asarray(exchange.message.parameters)
    yield known.gradient(w, exchange.reply.sum.gradients[0], 1.0, known.no_constraint, known.none_pooled)


READERS: dict[str, Callable[[Received, Known], Iterator[Reading]]] = {
    "FirstParameters": _at_start,
    "Trial": _trial,
    "LocalTask": _local_task,
    "ControlledTask": _controlled_task,
    "GradientRequest": _gradient_request,
}
