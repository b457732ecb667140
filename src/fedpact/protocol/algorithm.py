"""What a method is: immutable options, and pure functions of explicit state."""

import abc
import enum
from collections.abc import Callable
from typing import Any, ClassVar, Generic, Literal, TypeVar

import equinox as eqx
import jax

from fedpact.federation.blocks import Block
from fedpact.federation.setting import Setting
from fedpact.problem.oracle import Oracle
from fedpact.protocol.network import Network, PartyStates

Server = TypeVar("Server")


class Status(enum.IntEnum):
    """How a run stands. The word is what users see; the number is what travels through compiled code."""

    running = 0
    converged = 1
    max_rounds = 2
    infeasible = 3
    diverged = 4
    stopped = 5
    stalled = 6


class Goal(eqx.Module):
    """What a run aims at: both tolerances of Definition 1 (dimensionless, as the problem's numbers are)."""

    stationarity: jax.Array
    feasibility: jax.Array


class Answer(eqx.Module):
    """What a method has found, as the server knows it: the point, and the multipliers that the server holds."""

    w: jax.Array
    server_multipliers: jax.Array
    pooled_multipliers: jax.Array
    empty_radius: jax.Array  # no feasible point lies this near to w (convex constraints); 0 where nothing is known


class Info(eqx.Module):
    """One line of the history. Methods add fields of their own by subclassing."""

    objective: jax.Array
    violation: jax.Array
    stationarity: jax.Array


class PersonalInfo(Info):
    """Where sets are personal, with how far each party's model is outside its set, of the parties that tell it."""

    infeasibility: Any = None


class Told(eqx.Module):
    """What a party discloses for the report: its constraints and multipliers at the point just evaluated."""

    constraints: jax.Array
    multipliers: jax.Array


class Algorithm(eqx.Module, Generic[Server]):
    """A method. `init` and `round` talk to parties through `net` alone."""

    def prepared(self, setting: Setting) -> "Algorithm[Server]":
        """The same method with choices that depend on the problem made; called once before `init`, it may refuse."""
        del setting
        return self

    def deployed(self, enough: Callable[[], bool]) -> "Algorithm[Server]":
        """The same method for a party on a machine of its own; `enough` tells a patient step that the others have answered."""
        del enough
        return self

    @abc.abstractmethod
    def init(self, net: Network, w: jax.Array, goal: Goal, key: jax.Array) -> tuple[Server, PartyStates]:
        """The state before the first round."""

    @abc.abstractmethod
    def round(self, server: Server, parties: PartyStates, net: Network) -> tuple[Server, PartyStates, Info]:
        """One round of communication."""

    @abc.abstractmethod
    def status(self, server: Server) -> jax.Array:
        """A `Status`, as a number."""

    @abc.abstractmethod
    def answer(self, server: Server, net: Network) -> Answer:
        """The point to be certified and handed out."""

    @abc.abstractmethod
    def multipliers(self, own: Oracle, state: Any, answer: Answer) -> jax.Array:
        """A party's step: its own multipliers at the answer."""

    @abc.abstractmethod
    def aim(self, server: Server, goal: Goal) -> Server:
        """Go on towards another goal: a stricter one where the certificate did not confirm what the method believed."""


class PersonalAlgorithm(Algorithm[Server]):
    """A method that takes problems with personal sets: one model for all, or a model for each party."""

    models: ClassVar[Literal["one", "each"]]

    @abc.abstractmethod
    def block(self, own: Oracle, state: Any, answer: Any) -> jax.Array:
        """A party's step where sets are personal: its own model at the answer, or the one that all share."""


class ColumnAlgorithm(Algorithm[Server]):
    """A method that takes parties who hold columns."""

    @abc.abstractmethod
    def block(self, own: Block, state: Any, answer: Any) -> jax.Array:
        """A party's step where columns are split: its own block of parameters at the answer."""
