"""What a method is: options that are checked where they are made, and what runs once they are bound to a setting."""

import abc
import dataclasses
import enum
from collections.abc import Callable
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import equinox as eqx
import jax
import numpy as np

from fedpact.arrays import xp
from fedpact.federation.setting import Setting
from fedpact.problem.atoms import Scope
from fedpact.problem.oracle import Oracle
from fedpact.problem.units import Units
from fedpact.protocol.messages import Reply
from fedpact.protocol.options import Options
from fedpact.protocol.phases import Phase, Phases, ServerData
from fedpact.records import Record

Server = TypeVar("Server")
Split = Literal["rows", "columns", "personal"]


class Status(enum.IntEnum):
    """How a run stands. The word is what users see; the number is what travels through compiled code."""

    running = 0
    converged = 1
    max_rounds = 2
    infeasible = 3
    diverged = 4
    stopped = 5
    stalled = 6

    def as_array(self) -> jax.Array:
        return xp.asarray(int(self))


class Goal(Record):
    """What a run aims at: both tolerances of Definition 1 of He, Peng and Sun (2024), in the units of the problem's numbers.

    - `stationarity`: on the gradient of the Lagrangian, a scalar array.
    - `feasibility`: on violations and complementarity, a scalar array.
    """

    stationarity: jax.Array
    feasibility: jax.Array


class Begin(Record):
    """What a run begins with.

    - `w`: the first parameters, flat (d,).
    - `goal`: the tolerances to reach.
    - `key`: of everything random, uint32 (2,) as of `jax.random.key_data`.
    """

    w: jax.Array
    goal: Goal
    key: jax.Array


class FirstParameters(Record):
    """What parties are sent before the first round, unless a method says otherwise.

    - `parameters`: flat (d,).
    """

    parameters: jax.Array


class Corrections(Record):
    """What is added to constraints with counted rates, so that their smooth stand-ins pass through what was counted.

    - `server`, `pooled`: of the server's own and of the pooled scalar constraints.
    """

    server: jax.Array
    pooled: jax.Array


class Answer(Record):
    """What a method hands out, as the server knows it.

    - `parameters`: flat (d,).
    - `server_multipliers`, `pooled_multipliers`: of the server's own and of the pooled scalar constraints, >= 0 for inequalities.
    - `infeasible_radius`: no feasible point lies this near, if constraints are convex (0 where nothing is known).
    - `descent`: the direction (d,) in which the objective falls without end, zero where it does not (default None: not known).
    - `units`: that the certificate is measured in (default None: the problem's own).
    - `corrections`: of the server's own and the pooled constraints (default None: no counted rates are among them).
    - `threshold_shift`: by which the threshold of counted decisions was moved, in units of their temperature (default: 0).
    """

    parameters: jax.Array
    server_multipliers: jax.Array
    pooled_multipliers: jax.Array
    infeasible_radius: jax.Array
    units: Units | None = dataclasses.field(default=None, kw_only=True)
    descent: jax.Array | None = dataclasses.field(default=None, kw_only=True)
    corrections: Corrections | None = dataclasses.field(default=None, kw_only=True)
    threshold_shift: Any = dataclasses.field(default=np.float64(0.0), kw_only=True)

    @classmethod
    def without_multipliers(cls, w: jax.Array, *more: Any) -> Self:
        """Of a method that keeps no constraints; `more`: fields that a subclass adds."""
        none = xp.zeros(0)
        return cls(w, none, none, xp.zeros(()), *more)


class Info(Record):
    """One line of the history, of scalar arrays. Methods add fields of their own by subclassing.

    - `objective`: with the regulariser, at the point that was evaluated.
    - `violation`: the largest violation of a constraint there.
    - `stationarity`: the method's own measure of it.
    """

    objective: jax.Array
    violation: jax.Array
    stationarity: jax.Array


class PersonalInfo(Info):
    """Where sets are personal, with each party's distance from its set, of parties that disclose it."""

    infeasibility: Any = None


class Disclosed(Record):
    """What a party discloses for the report, where it agreed to.

    - `constraints`, `multipliers`: of its own scalar constraints at the point just evaluated.
    - `party_objective`: its part of the objective there; the parts, the server's own and the regulariser add up to it.
    """

    constraints: jax.Array
    multipliers: jax.Array
    party_objective: jax.Array


class Method(eqx.Module, Generic[Server]):
    """What runs: pure functions of explicit state, in phases. Hashable, so that equal methods share compiled programs.

    A method is made of `opening` (before the first round), `round` and `closing` (before the answer); most need only the
    functions of `OnePhase`.

    - `personal_models`: whether `block` is a model of the party's own (default: one model for all).
    - `few_rounds`: whether runs are so short that compiling the server's functions would take longer than computing them: a
      driver then calls these with NumPy arrays, on the host (default: no). They are written with `fedpact.arrays`. Before the
      first run on some kind of data they are called once with replies of zeros, to learn what messages look like.
    - `caution`: the part of the tolerance on constraints that it aims at (default 0.25: violations add up in the parameters).
    """

    personal_models: ClassVar[bool] = False

    @property
    def few_rounds(self) -> bool:
        return False

    @property
    def caution(self) -> float:
        return 0.25

    # the phases

    @property
    def opening(self) -> Phases:
        """Before the first round: from `Begin` to the server's first state."""
        return (Phase(self.invite, self.join, self.start),)

    @property
    @abc.abstractmethod
    def round(self) -> Phases:
        """One round of communication: from the server's state to what `finish` takes."""

    @property
    def closing(self) -> Phases:
        """After the last round: from the server's state to what `answer` takes (default: nothing to be done)."""
        return ()

    # at the server

    def invite(self, own: ServerData, begin: Begin) -> Any:
        """The message before the first round (default: `FirstParameters`)."""
        return FirstParameters(begin.w)

    def start(self, own: ServerData, begin: Begin, reply: Reply) -> Any:
        """The server's state before the first round; `reply` combines what `join` replied. Only `opening` calls it."""
        raise TypeError(f"{type(self).__name__} has no start, and no opening that does without one")

    def finish(self, own: ServerData, carry: Any) -> tuple[Server, Info]:
        """The end of a round: the server's state and the line of the history (default: what the last `hear` returned)."""
        return carry

    def status(self, server: Server) -> jax.Array:
        """A `Status`, as a number (default: the state's own field)."""
        return server.status  # pyright: ignore[reportAttributeAccessIssue]

    def promises_more(self, server: Server) -> Any:
        """Whether next steps would still lower the objective by more than the tolerance is worth, even where the certificate's
        three numbers hold already (default: no). A run that has to end then is not called converged."""
        return False

    @abc.abstractmethod
    def answer(self, own: ServerData, carry: Any) -> Answer:
        """The point to be certified and handed out."""

    def aim(self, server: Server, goal: Goal) -> Server:
        """Go on towards another goal: a stricter one where the certificate did not confirm the method's own measure (default:
        the new goal in the state's field `goal`, where it has one)."""
        if not hasattr(server, "goal"):
            return server
        changes: Any = {"goal": goal, "status": Status.running.as_array()}
        return dataclasses.replace(server, **changes)  # pyright: ignore[reportArgumentType, reportCallIssue]

    def renewed(self, own: ServerData, server: Server) -> Server:
        """Go on from where it is after bounds or rates have changed a little, towards the same goal. Only methods whose
        algorithm `counts_rates` need it."""
        raise TypeError(f"{type(self).__name__} cannot go on with other bounds")

    # at a party

    def join(self, own: Any, state: None, message: Any) -> tuple[Any, Reply]:
        """Before the first round (default: the party has no state)."""
        return (), Reply()

    def multipliers(self, own: Oracle, state: Any, answer: Any) -> jax.Array:
        """The party's own multipliers at the answer (default: zero)."""
        return xp.zeros(own.equality.size)

    def block(self, own: Any, state: Any, answer: Any) -> jax.Array:
        """The party's own parameters at the answer, where it has some: its block over columns, or its own model (default: the
        model that all parties share)."""
        return answer.parameters

    def correction(self, state: Any, answer: Any) -> jax.Array | None:
        """What was added to the party's own constraints (default: nothing, no counted rates are among them)."""
        return None

    def deployed(self, enough: Callable[[], bool]) -> Self:
        """The same method at a party on a machine of its own; `enough()` says that the other parties have replied."""
        return self


class OnePhase(Method[Server]):
    """A method whose round is one exchange: ask, step, hear."""

    @property
    def round(self) -> Phases:
        return (Phase(self.ask, self.step, self.hear),)

    @abc.abstractmethod
    def start(self, own: ServerData, begin: Begin, reply: Reply) -> Server:
        """The server's state before the first round; `reply` combines what `join` replied."""

    @abc.abstractmethod
    def ask(self, own: ServerData, server: Server) -> Any:
        """At the server: the message of a round."""

    @abc.abstractmethod
    def step(self, own: Oracle, state: Any, message: Any) -> tuple[Any, Reply]:
        """At a party: from its own data, its state and the message to its new state and its reply."""

    @abc.abstractmethod
    def hear(self, own: ServerData, server: Server, reply: Reply) -> tuple[Server, Info]:
        """At the server: from the combined reply to the new state and the line of the history."""


class Algorithm(Options):
    """Options of a method, checked where they are made. `bind` gives what runs.

    What a method can do is declared here and read by `fp.solve`, `fp.explain`, `fp.audit` and a party's policy:

    - `supports`: the settings it runs in: "rows", "columns", "personal" (default: rows).
    - `keeps`: the scopes of the constraints it keeps: "party", "pooled", "server" (default: none; it then refuses them).
    - `personal_models`: whether it gives every party a model of its own (default: one model for all).
    - `sends_residuals`: whether parties without labels get residuals of single rows, from which labels can be inferred and
      which `fp.EncryptedResiduals` protects (default: no). The options then have a field `privacy`, and a party's state has
      its own gradient in a field `gradient`, which `fp.audit` reads.
    - `begins_with_multipliers`: whether it begins with `own.first_multipliers()` of parties and server, which
      `fp.solve(..., multipliers=...)` sets (default: no).
    - `counts_rates`: whether it keeps constraints on counted rates of decisions, `fp.decisions` (default: no).
    - `from_several_starts`: whether it may begin from several starts at once, `fp.solve(..., starts=5)` (default: no).
    """

    supports: ClassVar[frozenset[Split]] = frozenset({"rows"})
    keeps: ClassVar[frozenset[Scope]] = frozenset()
    personal_models: ClassVar[bool] = False
    sends_residuals: ClassVar[bool] = False
    begins_with_multipliers: ClassVar[bool] = False
    counts_rates: ClassVar[bool] = False
    from_several_starts: ClassVar[bool] = False

    def bind(self, setting: Setting) -> Method[Any]:
        """The method for this setting; raises ValueError where the declarations or the options do not fit it."""
        _check_declared(self, setting)
        method = self.bound(setting)
        if method.personal_models != self.personal_models:
            name = type(self).__name__
            raise TypeError(f"{name} declares personal_models={self.personal_models}, and what it binds the opposite")
        return method

    @abc.abstractmethod
    def bound(self, setting: Setting) -> Method[Any]:
        """The method for a setting that the declarations allow; may still refuse it."""

    def sends_hessians(self, setting: Setting) -> bool:
        """Whether parties send Hessians of their functions (default: no)."""
        return False

    @property
    def may_miss(self) -> bool:
        """Whether parties may miss rounds (default: where the options have a field `participation`, and it is below 1)."""
        return getattr(self, "participation", 1.0) < 1.0

    @property
    def reads_single_replies(self) -> bool:
        """Whether the server's part of a round needs every party's reply by itself, as a robust average does; secure sums, which
        show no single reply, are then impossible (default: no, sums and maxima are enough)."""
        return False

    @property
    def rows_per_mean(self) -> int | None:
        """The rows of a party behind every mean that it sends, of methods that draw some (default None: all rows)."""
        return None

    @property
    def noisy_rounds(self) -> int | None:
        """The rounds of a run with `fp.DifferentialPrivacy`, of methods that ask parties for values and gradients of means over
        all rows and for nothing else (default None: it asks for more, and is refused)."""
        return None

    def title(self, setting: Setting) -> str:
        """The method in words: "ProxAL with Newton"."""
        return type(self).__name__

    def usual_rounds(self, setting: Setting) -> tuple[int, int] | None:
        """Rounds that like problems took, least median and worst, as `fedpact reproduce rounds` counts them."""
        return None


INSTEAD: dict[Split, str] = {
    "rows": "over rows use fp.InteriorPoint(), or without constraints fp.FedAvg()",
    "columns": "over columns use fp.FairVFL(), or fp.SSCA(batch=100)",
    "personal": "with personal sets use fp.PersonalProjected() or fp.PCFedAvg, or a baseline such as fp.FedAvg",
}
HOLDERS: dict[Split, str] = {
    "rows": "parties who hold rows: fp.split_rows",
    "columns": "parties who hold columns: fp.split_columns",
    "personal": "a model for every party: fp.minimize(..., personal=fp.Personal(sets, pull))",
}

COUNTING: dict[Split, str] = {
    "rows": "fp.InteriorPoint() or fp.ProxAL()",
    "columns": "fp.FairVFL()",
}
CONSTRAINED: dict[Split, str] = {
    "rows": "solve with fp.InteriorPoint() or fp.ProxAL()",
    "columns": "solve with fp.FairVFL(), or fp.SSCA(batch=100)",
    "personal": "state it as one of the parties' own sets",
}
SCOPES: dict[Scope, str] = {"party": "at each party", "pooled": "over all rows", "server": "on the server's own rows"}


def _check_declared(algorithm: Algorithm, setting: Setting) -> None:
    name = type(algorithm).__name__
    if setting.split not in algorithm.supports:
        taken = " or ".join(HOLDERS[split] for split in HOLDERS if split in algorithm.supports)
        raise ValueError(f"{name} is for {taken}; {INSTEAD[setting.split]}")
    if any(program.decides for program in setting.programs) and not algorithm.counts_rates:
        counting = COUNTING.get(setting.split)
        raise ValueError(
            f"{name} cannot count decisions, and the problem has rates of fp.decisions; "
            + (f"solve with {counting}" if counting else "state the smooth rate fp.positive_rate(model) in their place")
        )
    for constraint, scope in setting.constraints:
        if scope not in algorithm.keeps:
            kept = " and ".join(SCOPES[kept] for kept in SCOPES if kept in algorithm.keeps)
            keeps = f"keeps constraints {kept} only" if kept else "keeps no constraints"
            raise ValueError(
                f"{name} {keeps}, but {constraint!r} holds {SCOPES[scope]}; {CONSTRAINED[setting.split]}, state the constraint "
                "over other rows (.pooled(), .at_server()), or leave it out"
            )
