"""Rows split, with surrogates of the user's own: Algorithms 1 and 2 in their general form, (3) and (10).

    F̄_m ← (1 − ρ) F̄_m + ρ Σ_i N_i/(BN) Σ_n f̄_m(w, w_t, x_n),     Σ_n f̄_m(w, w_t, x_n) = p_m(Σ_n q_m(w_t, x_n), w)

p is linear in its first argument, so the average of the q's is all that has to be kept: F̄_m(w) = p_m(q̄_m, w). Problems 2 and 5
have no closed form then; the server solves them by Newton's method on a barrier for s_m >= F̄_m and s_m >= 0.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpact.algorithms.parts.batches import asked, folded_key, on_a_batch
from fedpact.algorithms.parts.descent import positive_solve
from fedpact.algorithms.parts.schedules import Schedule
from fedpact.algorithms.ssca.shared import Penalty, PenaltyRule, RoundInfo
from fedpact.algorithms.ssca.surrogates import Surrogates, violation
from fedpact.arrays import choose
from fedpact.federation.setting import Setting
from fedpact.problem.oracle import Oracle
from fedpact.problem.program import Program
from fedpact.protocol.algorithm import Answer, Begin, FirstParameters, OnePhase, Status
from fedpact.protocol.messages import Reply
from fedpact.protocol.options import Options
from fedpact.protocol.phases import ServerData
from fedpact.records import Record

OBJECTIVE = "objective"  # its name among the surrogates
MOST_PARAMETERS = 400
KAPPAS = tuple(
    0.1**k for k in range(9)
)  # weights of the barrier, relative to the objective; below, ν drowns in rounding
STEPS, HALVINGS, FLAT, ROUNDING = 30, 40, 1e-12, 1e-14  # of Newton's method at one weight


class Surrogate(Options):
    """A convex approximation f̄(ω, ω_t, x) of a function around ω_t, for `fp.SSCA(surrogates={...})`.

    - `q`: `(params, rows) -> (rows, D)` in JAX: of each row what is told of it at ω_t = params.
    - `p`: `(q, params) -> scalar` in JAX: with `q` (D,) the sum of such lines, linear in q and convex in params.

    f̄ = p(q(ω_t, x), ω) has to have the gradient of f at ω = ω_t, for constraints its value too, and to be strongly convex in ω
    (Assumption 2 of the paper), which is not checked.
    """

    q: Callable[[Any, Any], Any] = eqx.field(static=True)
    p: Callable[[Any, Any], Any] = eqx.field(static=True)

    def __check_init__(self) -> None:
        if not callable(self.q) or not callable(self.p):
            raise TypeError("fp.Surrogate(q, p): two functions, (params, rows) -> (rows, D) and (q, params) -> number")


# messages


class BatchTask(Record):
    """Down."""

    parameters: jax.Array
    random_key: jax.Array


class Summaries(Record):
    """Up: sums."""

    q: tuple[jax.Array, ...]  # of each function with a surrogate
    values: jax.Array  # of these functions


# states


class ServerState(Record):
    w: jax.Array
    q: tuple[jax.Array, ...]  # averages
    share: jax.Array  # of the bounds in the averages: 1 − Π(1 − ρ)
    nu: jax.Array
    penalty: Penalty
    key: jax.Array
    t: jax.Array
    status: jax.Array


class GeneralRowsMethod(OnePhase[ServerState]):
    """SSCA over rows with surrogates of the user's own; the fields are as of `SSCAMethod`.

    - `own`: for each function that has a surrogate, what the user gave.
    """

    batch: int
    margin: float
    rho: Schedule
    gamma: Schedule
    penalty: PenaltyRule
    participation: float
    surrogates: Surrogates = eqx.field(static=True)
    own: tuple[Surrogate, ...] = eqx.field(static=True)

    # at a party

    def step(self, own: Oracle, state: tuple[()], message: BatchTask) -> tuple[tuple[()], Reply]:
        """Algorithm 2, line 4."""
        batch = on_a_batch(own, message.random_key, self.batch)
        batch = dataclasses.replace(batch, program=self.surrogates.party)
        part, params = asked(own, message.random_key, self.participation), own.program.shape.unravel(message.parameters)
        sums = []
        for place, each in zip(self.surrogates.functions, self.own, strict=True):
            atom, factor = single_mean(self.surrogates.party, place)
            lines = jnp.asarray(each.q(params, batch.rows), message.parameters.dtype)
            sums.append(part * factor * (batch.weights[atom] @ lines))
        values = batch(message.parameters)
        every = jnp.concatenate([values.objective[None], values.pooled])
        return state, Reply(sum=Summaries(tuple(sums), part * every[np.asarray(self.surrogates.functions, int)]))

    def join(self, own: Oracle, state: None, message: FirstParameters) -> tuple[tuple[()], Reply]:
        """Before the first round, so that the server knows how many numbers a summary has: zeros."""
        _, reply = jax.eval_shape(self.step, own, (), BatchTask(message.parameters, jnp.zeros(2, jnp.uint32)))
        return (), Reply(sum=jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), reply.sum))

    # at the server

    def start(self, own: ServerData, begin: Begin, reply: Reply) -> ServerState:
        nu, running = jnp.zeros(self.surrogates.constraints), Status.running.as_array()
        first = Penalty.first(self.penalty)
        return ServerState(begin.w, reply.sum.q, jnp.asarray(0.0), nu, first, begin.key, jnp.ones((), int), running)

    def ask(self, own: ServerData, server: ServerState) -> BatchTask:
        return BatchTask(server.w, folded_key(server.key, server.t))

    def hear(self, own: ServerData, server: ServerState, reply: Reply) -> tuple[ServerState, RoundInfo]:
        sums, w, now = reply.sum, server.w, server.t.astype(float)
        rho, gamma = jnp.minimum(self.rho(now), 1.0), jnp.minimum(self.gamma(now), 1.0)
        q = jax.tree.map(lambda old, new: (1.0 - rho) * old + rho * new, server.q, sums.q)
        share = (1.0 - rho) * server.share + rho
        functions = self._functions(own, q, share)
        target, nu, slack = barrier_minimum(functions, w, server.penalty.c)
        after = ServerState(
            w=(1.0 - gamma) * w + gamma * target,  # (5)
            q=q,
            share=share,
            nu=nu,
            penalty=server.penalty.after(jnp.max(slack, initial=0.0), self.penalty),
            key=server.key,
            t=server.t + 1,
            status=server.status,
        )
        broken = dataclasses.replace(server, status=Status.diverged.as_array())
        known = jnp.asarray(self.surrogates.constants)
        known = known + self.surrogates.to_functions(sums.values) + self.surrogates.all_norms * (w @ w)
        slope = jax.grad(lambda v: jnp.append(1.0, nu) @ functions(v))(w)
        unmeasured = jnp.asarray(jnp.nan)
        info = RoundInfo(
            objective=known[0] + self.surrogates.kept_ridge(own.regularizer) * (w @ w),
            violation=violation(known),
            stationarity=jnp.max(jnp.abs(slope)),
            slack=jnp.max(slack, initial=0.0),
            penalty=server.penalty.c,
            measured_objective=unmeasured,
            measured_violation=unmeasured,
        )
        return choose(jnp.all(jnp.isfinite(after.w)), after, broken), info

    def _functions(
        self, own: ServerData, q: tuple[jax.Array, ...], share: jax.Array
    ) -> Callable[[jax.Array], jax.Array]:
        """ω -> F̄_0, …, F̄_M; of constraints with the margin."""
        surrogates, shape = self.surrogates, own.functions.program.shape
        constants = jnp.where(surrogates.exists, share, 1.0) * jnp.asarray(surrogates.constants)
        constants = constants.at[1:].add(self.margin)
        norms = jnp.asarray(surrogates.all_norms).at[0].add(surrogates.kept_ridge(own.regularizer))

        def functions(w: jax.Array) -> jax.Array:
            params = shape.unravel(w)
            values = [jnp.asarray(each.p(mine, params), w.dtype) for each, mine in zip(self.own, q, strict=True)]
            return surrogates.to_functions(jnp.stack(values)) + norms * (w @ w) + constants

        return functions

    def answer(self, own: ServerData, carry: ServerState) -> Answer:
        return Answer(carry.w, *self.surrogates.multipliers(carry.nu), jnp.asarray(0.0))


def barrier_minimum(
    functions: Callable[[jax.Array], jax.Array], start: jax.Array, penalty: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """argmin F̄_0(ω) + c Σ s_m with s >= 0 and s_m >= F̄_m(ω), all convex: ω, the multipliers ν and [F̄_m(ω)]₊."""
    d = start.size

    def height(z: jax.Array, kappa: jax.Array) -> jax.Array:
        values, s = functions(z[:d]), z[d:]
        room = jnp.concatenate([s - values[1:], s])
        inside = jnp.all(room > 0)
        walls = kappa * jnp.sum(jnp.log(jnp.where(room > 0, room, 1.0)))
        return jnp.where(inside, values[0] + penalty * jnp.sum(s) - walls, jnp.inf)

    def newton(carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        z, kappa, turn, _ = carry
        gradient = jax.grad(height)(z, kappa)
        step = positive_solve(jax.hessian(height)(z, kappa), -gradient)
        decrease = -gradient @ step
        lengths = 0.5 ** jnp.arange(HALVINGS, dtype=z.dtype)
        heights = jax.vmap(lambda length: height(z + length * step, kappa))(lengths)
        here = height(z, kappa)
        enough = heights <= here - 0.1 * lengths * decrease + ROUNDING * (1.0 + jnp.abs(here))
        length = jnp.where(jnp.any(enough), lengths[jnp.argmax(enough)], 0.0)
        return z + length * step, kappa, turn + 1, (decrease <= FLAT * kappa) | (length == 0)

    def centred(z: jax.Array, kappa: jax.Array) -> tuple[jax.Array, None]:
        first = (z, kappa, jnp.zeros((), int), jnp.asarray(False))
        return lax.while_loop(lambda c: ~c[3] & (c[2] < STEPS), newton, first)[0], None

    values = functions(start)
    z = jnp.concatenate([start, jnp.maximum(values[1:], 0.0) + 1.0])
    kappas = jnp.asarray(KAPPAS) * (1.0 + jnp.abs(values[0]))
    z, _ = lax.scan(centred, z, kappas)
    values = functions(z[:d])[1:]
    return z[:d], kappas[-1] / (z[d:] - values), jnp.maximum(values, 0.0)


def single_mean(program: Program, function: int) -> tuple[int, float]:
    """Of the objective (0) or a pooled constraint: its only mean, by its place among those over rows, and its factor.

    Raises ValueError where it is not one mean.
    """
    side = (*program.objective.coefficients, *program.pooled.coefficients)[function]
    read = [place for place, factor in enumerate(side) if factor]
    over_rows = [place for place, (atom, _) in enumerate(program.atoms) if atom.over_rows]
    if len(read) != 1 or read[0] not in over_rows:
        raise ValueError("a surrogate of your own stands for one fp.mean, beside ‖params‖² and numbers")
    return over_rows.index(read[0]), side[read[0]]


def given_surrogates(given: Mapping[str, Surrogate], setting: Setting, surrogates: Surrogates) -> tuple[Surrogate, ...]:
    """One for each function that has a surrogate, in their order; raises ValueError where they do not fit the problem."""
    if setting.split != "rows":
        raise ValueError("SSCA(surrogates=...) is for parties who hold rows; over columns leave surrogates= out")
    if setting.size > MOST_PARAMETERS:
        raise ValueError(
            f"SSCA(surrogates=...) solves for {setting.size} parameters by Newton's method; it does so up to {MOST_PARAMETERS}"
        )
    if setting.ridge is None:
        raise ValueError("SSCA(surrogates=...) takes no regulariser but fp.l2(a) on all parameters")
    if len(surrogates.server.constraints) or any(map(any, surrogates.server.objective.coefficients)):
        raise ValueError("SSCA(surrogates=...) is for functions of the parties' rows; leave .at_server() out")
    names = [OBJECTIVE, *(name for name, _ in setting.constraints)]
    needed = [names[place] for place in surrogates.functions if place < len(names)]
    if len(names) != 1 + surrogates.constraints or set(given) != set(needed):
        raise ValueError(
            f"SSCA(surrogates=...) names {', '.join(map(repr, given)) or 'none'}; one is needed for each of "
            f"{', '.join(map(repr, needed))}, constraints being single inequalities"
        )
    for place in surrogates.functions:
        single_mean(surrogates.party, place)
    return tuple(given[name] for name in needed)
