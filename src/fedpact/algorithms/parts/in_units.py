"""A method in units that are learnt at the start, so that those of columns, constraints and objective do not matter.

    u = w/S     f(Su)/φ     c(Su)/σ     h(Su)/φ

One exchange before the first round asks every holder for value, slope and curvature of its functions at w⁰. With g and H
the gradient and the diagonal of the Hessian of f there:

    φ       |f|: the objective without its constant; where that is 0, or its parts cancel, max_j g_j²/H_j, what a Newton step
            along an axis gains
    S_j     1/√(H_j/φ + (g_j/φ)² + b_j), with b_j the mean of the constraints' squared slopes, each relative to its mean
    σ       max_j S_j |∂_j c|, but within a factor of ten of the constraint's limit; 1.25 of the mean over parties

Each of them changes with the units of the data as it should: a column in cents instead of dollars has S_j 100 times smaller,
and u is the same.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Self

import jax

from fedpact.arrays import linalg, xp
from fedpact.federation.setting import Setting
from fedpact.problem.oracle import Oracle, Values, derivatives
from fedpact.problem.units import HolderUnits, Units
from fedpact.protocol.algorithm import Answer, Begin, Disclosed, FirstParameters, Goal, Info, Method
from fedpact.protocol.messages import Reply
from fedpact.protocol.phases import Phase, Phases, ServerData, Step
from fedpact.records import Record

MOST_PARAMETERS = 400  # above, curvature is not asked for, and the units of parameters stay as they are
NOTHING = 1e-20  # what a Newton step promises is rounding, where it is this small beside the curvature
ROUNDING = 1e-8  # a slope so small beside the others of its constraint is what a sum that cancels leaves
LIMITS = 10.0  # a constraint's unit is within this factor of its limit,
LEAST = 1e-3  # but not less than this part of its slope
ABOVE_MEAN = 1.25  # times the parties' mean is near the largest among parties that are somewhat alike

# messages


class StartSums(Record):
    """A holder's functions at the first parameters; every leaf is summed over holders."""

    objective: jax.Array
    gradient: jax.Array
    hessian_diagonal: jax.Array
    constraint_slopes: jax.Array  # squares, each relative to its constraint's mean
    pooled_jacobian: jax.Array


class PartyStart(Record):
    """From a party before the first round; every leaf is summed over parties."""

    functions: StartSums
    constraint_units: jax.Array  # of each scalar constraint, as the party's own functions suggest


class Joining(Record):
    """From the server before the first round, once: the units, and the method's own first message."""

    units: HolderUnits
    message: Any


# states


class InUnitsState(Record):
    """A state with the units that it is in: the server's with all units, a party's with those of its functions."""

    units: Any
    inner: Any


# learning


def look_at_start(own: Oracle, state: None, message: FirstParameters) -> tuple[tuple[()], Reply]:
    """At a party, before the first round."""
    sums, units = start_of(own, message.parameters)
    return (), Reply(sum=PartyStart(sums, units))


def start_of(own: Oracle, w: jax.Array) -> tuple[StartSums, jax.Array]:
    """A holder's sums, and units of its constraints."""
    values, slopes = derivatives(own, w)
    if w.size <= MOST_PARAMETERS:
        only = Values(xp.ones(()), xp.zeros_like(values.constraints), xp.zeros_like(values.pooled))
        bends = own.curvature(w, only).diagonal()
    else:
        bends = xp.zeros_like(w)
    value = xp.where(own.terms_cancel(w), 0.0, values.objective - own.constants.objective)
    _, shape = objective_units(value, slopes.objective, bends)
    relative = xp.abs(slopes.constraints)
    limits = xp.abs(own.constants.constraints)
    squares = _relative_squares(relative, shape, xp.maximum(xp.abs(values.constraints), limits))
    local = 1.0 / xp.sqrt(_positive(shape + xp.sum(squares, axis=0) / max(1, len(own.program.constraints))))
    sums = StartSums(value, slopes.objective, bends, xp.sum(squares, axis=0), slopes.pooled)
    return sums, _constraint_units(xp.max(relative * local, axis=1, initial=0.0), limits)


def objective_units(value: jax.Array, gradient: jax.Array, bends: jax.Array) -> tuple[jax.Array, jax.Array]:
    """φ (0 where the objective has no curvature and so no size of its own), and H/φ + (g/φ)² along each axis."""
    bends = xp.abs(bends)
    gains = xp.max(xp.where(bends > 0, gradient**2 / _positive(bends), 0.0))
    gains = xp.where(gains > NOTHING * xp.max(bends), gains, xp.max(bends))  # at a minimum: per unit of the parameters
    phi = xp.where(value == 0, gains, xp.abs(value))
    phi = xp.where(xp.any(bends > 0), phi, 0.0)
    safe = _positive(phi)
    return phi, xp.where(phi > 0, bends / safe + (gradient / safe) ** 2, 0.0)


def _relative_squares(slope: jax.Array, shape: jax.Array, size: jax.Array) -> jax.Array:
    """Constraints' squared slopes, in the units of the objective's: a constraint's mean slope (the geometric one) is 1."""
    relative = xp.where(shape > 0, slope / xp.sqrt(_positive(shape)), 0.0)
    there = relative > ROUNDING * xp.max(relative, axis=1, keepdims=True)
    count = xp.sum(xp.where(there, 1.0, 0.0), axis=1)
    logs = xp.where(there, xp.log(_positive(relative)), 0.0)
    typical = xp.where(count > 0, xp.exp(xp.sum(logs, axis=1) / xp.maximum(count, 1.0)), size)
    typical = xp.where(typical > 0, typical, linalg.norm(slope, axis=1))
    return (slope / _positive(typical)[:, None]) ** 2


def _positive(x: jax.Array) -> jax.Array:
    return xp.where(x > 0, x, 1.0)


def learnt(own: ServerData, w: jax.Array, reply: Reply) -> Units:
    """All units, from the sums at the start."""
    h, functions = own.regularizer, own.functions
    mine, own_units = start_of(functions, w)
    total: StartSums = jax.tree.map(xp.add, reply.sum.functions, mine)
    gradient, bends = total.gradient + 2 * h.ridge * w, total.hessian_diagonal + 2 * h.ridge
    phi, shape = objective_units(total.objective + h.value(w), gradient, bends)
    limits = xp.abs(functions.constants.pooled)
    pooled_slopes = xp.abs(total.pooled_jacobian)
    pooled_squares = _relative_squares(pooled_slopes, shape, limits)
    # of sums, secure ones are exact: a largest unit would be known up to a power of two
    party_units = ABOVE_MEAN / own.parties * reply.sum.constraint_units
    held = own.parties * party_units.size + own_units.size + limits.size
    pull = (total.constraint_slopes + xp.sum(pooled_squares, axis=0)) / max(1, held)
    # an objective without curvature has the size that the constraints give it
    phi = xp.where(phi > 0, phi, xp.max(xp.abs(gradient) / xp.sqrt(_positive(pull)), where=pull > 0, initial=0.0))
    phi = _positive(xp.where(phi > 0, phi, xp.max(xp.abs(gradient))))
    parameters = xp.ones_like(w)
    if w.size <= MOST_PARAMETERS:
        # a linear objective's own slope counts only where nothing else does
        squares = xp.where(shape + pull > 0, shape + pull, (gradient / phi) ** 2)
        parameters = 1.0 / xp.sqrt(_positive(h.alike_in_groups(squares)))
    units = Units(
        parameters=parameters,
        objective=phi,
        party_constraints=party_units,
        server_constraints=own_units,
        pooled_constraints=_constraint_units(xp.max(pooled_slopes * parameters, axis=1, initial=0.0), limits),
    )
    finite = xp.all(xp.stack([xp.all(xp.isfinite(leaf)) for leaf in jax.tree.leaves(units)]))
    return jax.tree.map(lambda unit: xp.where(finite, unit, 1.0), units)


def _constraint_units(slopes: jax.Array, limits: jax.Array) -> jax.Array:
    most = xp.maximum(LIMITS * limits, LEAST * slopes)
    return _positive(xp.where(limits > 0, xp.clip(slopes, limits / LIMITS, most), slopes))


# the phases of a method, in units


def server_in_units(own: ServerData, units: Units) -> ServerData:
    return dataclasses.replace(
        own, functions=own.functions.in_units(units.of_server), regularizer=own.regularizer.in_units(units)
    )


def send_first(own: ServerData, begin: Begin) -> FirstParameters:
    return FirstParameters(own.regularizer.prox(begin.w, 0.0))


def learn(own: ServerData, begin: Begin, reply: Reply) -> InUnitsState:
    units = learnt(own, send_first(own, begin).parameters, reply)
    return InUnitsState(units, dataclasses.replace(begin, w=begin.w / units.parameters))


LEARN_UNITS = Phase(send_first, look_at_start, learn)


@dataclasses.dataclass(frozen=True)
class AskInUnits:
    wrapped: Callable[[ServerData, Any], Any]

    def __call__(self, own: ServerData, carry: InUnitsState) -> Any:
        return self.wrapped(server_in_units(own, carry.units), carry.inner)


@dataclasses.dataclass(frozen=True)
class AskToJoin(AskInUnits):
    def __call__(self, own: ServerData, carry: InUnitsState) -> Joining:
        return Joining(carry.units.of_party, super().__call__(own, carry))


@dataclasses.dataclass(frozen=True)
class StepInUnits:
    wrapped: Step

    def __call__(self, own: Oracle, state: InUnitsState, message: Any) -> tuple[InUnitsState, Reply]:
        units: HolderUnits = state.units
        inner, reply = self.wrapped(own.in_units(units), state.inner, message)
        if isinstance(reply.per_party, Disclosed):
            told = Disclosed(
                units.constraints * reply.per_party.constraints,
                units.objective / units.constraints * reply.per_party.multipliers,
                units.objective * reply.per_party.party_objective,
            )
            reply = dataclasses.replace(reply, per_party=told)
        return InUnitsState(units, inner), reply


@dataclasses.dataclass(frozen=True)
class JoinInUnits(StepInUnits):
    def __call__(self, own: Oracle, state: Any, message: Joining) -> tuple[InUnitsState, Reply]:
        inner = state.inner if isinstance(state, InUnitsState) else None
        return super().__call__(own, InUnitsState(message.units, inner), message.message)


@dataclasses.dataclass(frozen=True)
class HearInUnits:
    wrapped: Callable[[ServerData, Any, Reply], Any]

    def __call__(self, own: ServerData, carry: InUnitsState, reply: Reply) -> InUnitsState:
        return InUnitsState(carry.units, self.wrapped(server_in_units(own, carry.units), carry.inner, reply))


@dataclasses.dataclass(frozen=True)
class OnlyIf:
    wrapped: Callable[[ServerData, Any], jax.Array]

    def __call__(self, own: ServerData, carry: InUnitsState) -> jax.Array:
        return self.wrapped(server_in_units(own, carry.units), carry.inner)


def phases_in_units(
    phases: Phases, ask: type[AskInUnits] = AskInUnits, step: type[StepInUnits] = StepInUnits
) -> Phases:
    def wrapped(phase: Phase) -> Phase:
        return dataclasses.replace(
            phase,
            ask=ask(phase.ask),
            step=step(phase.step),
            hear=HearInUnits(phase.hear),
            only_if=None if phase.only_if is None else OnlyIf(phase.only_if),
        )

    return tuple(tuple(map(wrapped, entry)) if isinstance(entry, tuple) else wrapped(entry) for entry in phases)


def _own_units(info: Info, units: Units) -> Info:
    """A line of the history in the problem's own units, but for violation and stationarity, which the goal is compared with."""
    changes: dict[str, Any] = {"objective": units.objective * info.objective}
    server, pooled = units.server_constraints, units.pooled_constraints
    for name, mine in (("server_multipliers", xp.concatenate([server, pooled])), ("pooled_multipliers", pooled)):
        multipliers = getattr(info, name, None)
        if multipliers is not None:  # the server's own come first; form (4) appends the pooled ones
            changes[name] = units.objective / mine[: multipliers.size] * multipliers
    return dataclasses.replace(info, **changes)


class InUnits(Method[InUnitsState]):
    """A method that sees the problem in units learnt at the start. What it hands out is in the problem's own."""

    method: Method

    @property
    def few_rounds(self) -> bool:
        return self.method.few_rounds

    @property
    def opening(self) -> Phases:
        return LEARN_UNITS, *phases_in_units(self.method.opening, AskToJoin, JoinInUnits)

    @property
    def round(self) -> Phases:
        return phases_in_units(self.method.round)

    @property
    def closing(self) -> Phases:
        return phases_in_units(self.method.closing)

    def finish(self, own: ServerData, carry: InUnitsState) -> tuple[InUnitsState, Info]:
        finish = type(self.method).finish  # of the class: reading it of a module makes another module, in every round
        inner, info = finish(self.method, server_in_units(own, carry.units), carry.inner)
        return InUnitsState(carry.units, inner), _own_units(info, carry.units)

    def status(self, server: InUnitsState) -> jax.Array:
        return type(self.method).status(self.method, server.inner)

    def promises_more(self, server: InUnitsState) -> Any:
        return self.method.promises_more(server.inner)

    def answer(self, own: ServerData, carry: InUnitsState) -> Answer:
        units = carry.units
        answer = self.method.answer(server_in_units(own, units), carry.inner)
        return dataclasses.replace(
            answer,
            parameters=units.parameters * answer.parameters,
            server_multipliers=units.objective / units.server_constraints * answer.server_multipliers,
            pooled_multipliers=units.objective / units.pooled_constraints * answer.pooled_multipliers,
            descent=None if answer.descent is None else units.parameters * answer.descent,
            units=units,
        )

    def aim(self, server: InUnitsState, goal: Goal) -> InUnitsState:
        return InUnitsState(server.units, self.method.aim(server.inner, goal))

    def renewed(self, own: ServerData, server: InUnitsState) -> InUnitsState:
        return InUnitsState(server.units, self.method.renewed(server_in_units(own, server.units), server.inner))

    def multipliers(self, own: Oracle, state: InUnitsState, answer: Answer) -> jax.Array:
        units: HolderUnits = state.units
        inside = dataclasses.replace(answer, parameters=answer.parameters / units.parameters)
        inner = self.method.multipliers(own.in_units(units), state.inner, inside)
        return units.objective / units.constraints * inner

    def deployed(self, enough: Callable[[], bool]) -> Self:
        return dataclasses.replace(self, method=self.method.deployed(enough))


def in_units(method: Method[Any], setting: Setting) -> Method[Any]:
    """The method in units learnt at the start; unchanged where the setting wants the problem's own."""
    return InUnits(method) if setting.scale else method
