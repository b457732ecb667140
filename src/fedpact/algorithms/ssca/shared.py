"""What SSCA over rows and SSCA over columns share: step sizes, the price of slack, measurements, a line of the history."""

import dataclasses
from typing import Any, Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

from fedpact.algorithms.parts.schedules import Schedule
from fedpact.algorithms.ssca.surrogates import Surrogates
from fedpact.protocol.algorithm import Info, Method
from fedpact.protocol.phases import Phase
from fedpact.records import Record

Server = TypeVar("Server")
VANISHED = 1e-9  # slack


@dataclasses.dataclass(frozen=True)
class PenaltyRule:
    """c begins at `first` and grows `growth`-fold, up to `most`, where the slack has not vanished within `patience` rounds."""

    first: float
    growth: float
    most: float
    patience: int


class Penalty(eqx.Module):
    """c_j, the price of slack (Section III-B)."""

    c: jax.Array
    least_slack: jax.Array  # since c was chosen
    rounds: jax.Array  # since c was chosen

    @classmethod
    def first(cls, rule: PenaltyRule) -> "Penalty":
        return cls(jnp.asarray(rule.first), jnp.asarray(jnp.inf), jnp.zeros((), int))

    def after(self, slack: jax.Array, rule: PenaltyRule) -> "Penalty":
        least, rounds = jnp.minimum(self.least_slack, slack), self.rounds + 1
        over = rounds >= rule.patience
        grown = jnp.where(least > VANISHED, jnp.minimum(rule.growth * self.c, rule.most), self.c)
        return Penalty(jnp.where(over, grown, self.c), jnp.where(over, jnp.inf, least), jnp.where(over, 0, rounds))


class Measurement(Record):
    """The problem on all rows at one point, with the multipliers there."""

    objective: jax.Array
    violation: jax.Array
    nu: jax.Array

    @classmethod
    def missing(cls, nu: jax.Array) -> "Measurement":
        """In place of one that was not made; it beats none."""
        nothing = jnp.asarray(jnp.nan)
        return cls(nothing, nothing, nu)

    @classmethod
    def worst(cls, nu: jax.Array) -> "Measurement":
        """In place of the best, before there was any."""
        endless = jnp.asarray(jnp.inf)
        return cls(endless, endless, nu)

    def beats(self, other: "Measurement") -> jax.Array:
        """Of two feasible points the one of lower objective is better, else the one of less violation."""
        both = (self.violation <= 0) & (other.violation <= 0)
        return jnp.where(both, self.objective < other.objective, self.violation < other.violation)


class RoundInfo(Info):
    slack: jax.Array
    penalty: jax.Array
    measured_objective: jax.Array  # on all rows; NaN in rounds without a measurement
    measured_violation: jax.Array


class SSCAMethod(Method[Server]):
    """What runs, over rows or columns. The fields are options of `SSCA`, with the schedules of this setting and:

    - `surrogates`: which functions of the problem have one. `nonsmooth`: whether the regulariser has kinks.
    """

    batch: int
    margin: float
    rho: Schedule
    gamma: Schedule
    tau: float
    penalty: PenaltyRule
    participation: float
    parties: int
    measure: int | None
    wire: Literal["float64", "float32"]
    surrogates: Surrogates = eqx.field(static=True)
    nonsmooth: bool = eqx.field(static=True)

    def steps(self, t: jax.Array) -> tuple[jax.Array, jax.Array]:
        """ρ_t and γ_t."""
        now = t.astype(float)
        return jnp.minimum(self.rho(now), 1.0), jnp.minimum(self.gamma(now), 1.0)

    def on_the_wire(self, array: jax.Array) -> jax.Array:
        """As it is sent."""
        return array.astype(self.wire)

    def measurement(self, ask: Any, step: Any, hear: Any) -> tuple[Phase, ...]:
        """The last phase of a round: w before its move is measured on all rows."""
        return () if self.measure is None else (Phase(ask, step, hear, only_if=self.measures_now),)

    def measures_now(self, own: Any, carry: Any) -> jax.Array:
        """In the first round and every `measure` rounds."""
        return (carry.server.t - 1) % (self.measure or 1) == 0
