"""Consensus ADMM for the subproblem: Algorithm 2, as printed by name, and with what makes it converge sooner by default.

    symbol          here              meaning
    w^{t+1}         point             the server's iterate, solution of (18)
    u_i, λ_i        Local.u, lam      party i's copy and its multiplier, solution of (19), update (20)
    ρ ũ_i           ρ u_i + λ_i       what the server needs the sum of, (21)
    ε̃_i             residual          (22), evaluated before the local solve, since it needs only u^t, λ^t and w^{t+1}
    ε_t, q          eps, q            accuracy of (18) and (19)

Party i sends ρũ_i and a few scalars, of which the server needs the sums. Where we leave Algorithm 2
(`ADMM.as_printed()` does not):
  - the server's measured residual stands for ε_{t+1} in (23), whose q^t alone costs log τ / log q rounds a subproblem;
  - ε_t has a floor near 0.01 τ/(n+1), below which float64 cannot reach it;
  - u and λ are kept from one subproblem to the next. The paper resets λ; Theorem 9's constants assume that;
  - ρ is balanced between primal and dual residual, starting from 0.1;
  - safeguarded Anderson acceleration of the map (λ_1, …, λ_n, Σρũ_i) → itself: parties keep their own differences and send
    inner products, which are summed; the server solves for the weights and broadcasts them.
"""

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from fedpact.algorithms.parts.descent import minimise, newton_target, positive_solve
from fedpact.algorithms.prox_al.inner import Inner, Progress
from fedpact.algorithms.prox_al.merit import Merit, ServerMerit
from fedpact.arrays import choose
from fedpact.problem.oracle import Values
from fedpact.protocol.options import check, check_flag
from fedpact.records import Record

DENSE_UP_TO = 400  # parameters: a party factors its Hessian up to here and runs conjugate gradients above
REACHABLE = 1e-12  # accuracy of a local solve that float64 can give; q^t falls below it
WILDEST = 1e3  # weights larger than this come from differences that are all but dependent
GROWN = 2.0  # an accelerated step that multiplies the residual by more than this is taken back
FAR_APART = 30.0  # primal and dual residual, for ρ to change: with less it changes too often for the acceleration


class SolverSettings(Record):
    """To the parties with the point v: settings, and the weights of the accelerated step from the last round's."""

    penalty: jax.Array  # ρ, or one for each party
    accuracy: jax.Array  # ε
    restart: jax.Array
    acceleration_weights: jax.Array
    acceleration_slot: jax.Array


class LocalSums(Record):
    local_solution: jax.Array  # Σ ρ u_i + λ_i
    value_gradient: jax.Array | None  # Σ ∇P_i(v)
    residual: jax.Array  # Σ ε̃_i
    objective: jax.Array
    distance_squared: jax.Array | None  # Σ ‖u_i − v‖²
    acceleration_products: jax.Array | None  # ⟨ΔF_j, f⟩, then ⟨ΔF_j, ΔF_new⟩, then ‖f‖²


class Trail(Record):
    """Differences for Anderson acceleration of a map x → g(x), f = g − x; a ring of `memory` places."""

    df: jax.Array
    dg: jax.Array
    f: jax.Array
    g: jax.Array

    @classmethod
    def empty(cls, size: int, memory: int) -> "Trail":
        return cls(jnp.zeros((memory, size)), jnp.zeros((memory, size)), jnp.zeros(size), jnp.zeros(size))

    def extended(self, f: jax.Array, g: jax.Array, slot: jax.Array) -> "Trail":
        """With the newest difference in place `slot`; slot < 0 restarts."""
        begins = slot < 0
        df = jnp.where(begins, 0.0, self.df.at[slot].set(f - self.f))
        dg = jnp.where(begins, 0.0, self.dg.at[slot].set(g - self.g))
        return Trail(df, dg, f, g)

    def products(self, slot: jax.Array) -> jax.Array:
        newest = self.df[jnp.maximum(slot, 0)]
        return jnp.concatenate([self.df @ self.f, self.df @ newest, (self.f @ self.f)[None]])


class Local(Record):
    u: jax.Array
    lam: jax.Array
    trail: Trail


class Central(Record):
    z: jax.Array  # Σ ρũ_i that the next v is made of
    v: jax.Array
    step: jax.Array  # ‖v − the v before‖
    rho: jax.Array
    t: jax.Array  # rounds in this subproblem
    restart: jax.Array  # the parties have to send Σ ρũ_i afresh: at the start, and when ρ has changed
    trail: Trail
    gram: jax.Array
    weights: jax.Array
    slot: jax.Array  # where the next difference goes; -1: restart
    least: jax.Array  # the smallest ‖f‖ since the trail began
    since: jax.Array  # rounds since ρ changed

    def q_to_t(self, q: float) -> jax.Array:
        """ε_{t+1} = q^t."""
        return q ** self.t.astype(self.rho.dtype)


class ADMM(Inner):
    """`ProxAL(inner=ADMM())`.

    - `rho`: the penalty ρ > 0 on u_i = w to begin with (default 0.1); or several, ρ_i for each party in order.
    - `q`: ε_{t+1} = q^t, between 0 and 1 (default 0.5).
    - `memory`: differences kept by Anderson acceleration (default 10; 0: none).
    - `balance`: whether ρ is adapted to the two residuals (default: yes).
    - `warm`: whether u and λ are kept between subproblems (default: yes).
    - `measured`: whether the measured residual stands in (23) (default: yes).
    - `exact`: whether (18) and (19) are solved as accurately as float64 can, and ε_{t+1} is left out of (23) (default: no).
    - `dense`: whether a party factors its Hessian, or runs conjugate gradients; `ProxAL` sets it by size.
    """

    rho: float | tuple[float, ...] = 0.1
    q: float = 0.5
    memory: int = eqx.field(default=10, static=True)
    balance: bool = True
    warm: bool = True
    measured: bool = True
    dense: bool = True
    exact: bool = False
    needs_slacks: ClassVar[bool] = True
    usual_rounds: ClassVar[tuple[int, int] | None] = (26, 434)  # to 1e-3
    prox_growth: ClassVar[float] = 3.0  # it converges as fast as the subproblem is strongly convex

    def __check_init__(self) -> None:
        for rho in self.rho if isinstance(self.rho, tuple) and self.rho else (self.rho,):
            check(
                "ADMM",
                "rho",
                rho,
                lambda x: x > 0,
                "rho must be > 0; it is ρ of Algorithm 2, or a tuple of one for each party",
            )
        check("ADMM", "q", self.q, lambda x: 0 < x < 1, "q must lie between 0 and 1; ε_t = q^t")
        words = "memory must be a whole number >= 0; 0 switches acceleration off"
        check("ADMM", "memory", self.memory, lambda x: x >= 0, words, whole=True)
        for name in ("balance", "warm", "measured", "dense", "exact"):
            check_flag("ADMM", name, getattr(self, name))

    @classmethod
    def as_printed(cls, rho: float | tuple[float, ...] = 0.01, q: float = 0.5, exact: bool = False) -> "ADMM":
        """Algorithm 2 with nothing added; q is not stated in the paper. `exact`: as in its section E.2."""
        return cls(rho, q, 0, balance=False, warm=False, measured=False, exact=exact)

    def sized(self, size: int, parties: int) -> "ADMM":
        if isinstance(self.rho, tuple) and len(self.rho) != parties:
            raise ValueError(
                f"ADMM(rho=...) has {len(self.rho)} penalties for {parties} parties; give one each, or one number"
            )
        return dataclasses.replace(self, dense=size <= DENSE_UP_TO)

    def penalty(self, size: int) -> tuple[float, float]:
        return 100.0, 3.0  # fewest rounds in most rows of `fedpact reproduce rounds`

    def start(self, w: jax.Array, pooled: int) -> Central:
        m = self.memory
        return Central(
            z=jnp.zeros_like(w),
            v=w,
            step=jnp.zeros(()),
            rho=jnp.asarray(self.rho),
            t=jnp.zeros((), int),
            restart=jnp.asarray(True),
            trail=Trail.empty(w.size, m),
            gram=jnp.zeros((m, m)),
            weights=jnp.zeros(m),
            slot=jnp.asarray(-1),
            least=jnp.asarray(jnp.inf),
            since=jnp.zeros((), int),
        )

    def join(self, w: jax.Array) -> Local:
        return Local(w, jnp.zeros_like(w), Trail.empty(w.size, self.memory))

    # the server proposes

    def propose(self, state: Central, own: ServerMerit, tau: jax.Array) -> tuple[Central, jax.Array, SolverSettings]:
        floor = 0.01 * tau / (own.merit.own.parties + 1)
        eps = jnp.maximum(floor, tau * state.q_to_t(self.q)) if self.measured else state.q_to_t(self.q)
        eps = jnp.full_like(eps, REACHABLE) if self.exact else jnp.maximum(eps, REACHABLE)
        v = jnp.where(state.restart, state.v, self._server_update(state, own, eps))
        message = SolverSettings(state.rho, eps, state.restart, state.weights, state.slot)
        return eqx.tree_at(lambda s: (s.v, s.step), state, (v, jnp.linalg.norm(v - state.v))), v, message

    def _server_update(self, state: Central, own: ServerMerit, eps: jax.Array) -> jax.Array:
        """(18): P_0 + h + Σ ρ/2 ‖ũ_i − w‖², one proximal operator where the server has no functions of its own."""
        h, merit = own.regularizer, own.merit
        weight = jnp.sum(jnp.broadcast_to(state.rho, merit.own.parties))

        def evaluate(v: jax.Array) -> tuple[jax.Array, jax.Array]:
            values, gradient = merit.gradient(v)
            del values
            value = merit.value(v) + h.smooth(v) + 0.5 * weight * v @ v - state.z @ v
            return value, gradient + 2 * h.ridge * v + weight * v - state.z

        if own.is_plain:
            curvature = weight + merit.share / merit.gamma + 2 * h.ridge
            pull = state.z + merit.share / merit.gamma * merit.centre
            return h.prox(pull / curvature, 1.0 / curvature)

        def target(v: jax.Array, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
            hessian = merit.hessian(v) + jnp.diag(weight + 2 * h.ridge)
            return newton_target(v, gradient, hessian, h)

        return minimise(evaluate, target, h, state.v, jnp.maximum(0.1 * eps, REACHABLE))[0]

    # a party answers

    def answer(
        self, merit: Merit, state: Local, point: jax.Array, message: SolverSettings, fresh: jax.Array
    ) -> tuple[Local, Values, LocalSums]:
        rho, slot, restart = message.penalty, message.acceleration_slot, message.restart
        rho = rho[merit.own.index] if rho.ndim else rho
        values, gradient = merit.gradient(point)
        lam = (
            state.lam - message.acceleration_weights @ state.trail.dg
        )  # the accelerated step, from g of the round before
        residual = jnp.max(jnp.abs(gradient + lam - rho * (point - state.u)))  # (22)
        delta = self._local_update(merit, lam, rho, point, state.u - point, message.accuracy)  # (19)
        kept = (state.u, state.lam) if self.warm else (point, -gradient)  # Algorithm 2, line 1
        u = jnp.where(restart, kept[0], point + delta)
        new = jnp.where(restart, kept[1], lam + rho * delta)  # (20)
        trail = state.trail.extended(new - lam, new, slot) if self.memory else state.trail
        sums = LocalSums(
            local_solution=rho * u + new,
            value_gradient=gradient if self.measured else None,
            residual=residual,
            objective=values.objective,
            distance_squared=delta @ delta if self.balance else None,
            acceleration_products=trail.products(slot) if self.memory else None,
        )
        return Local(u, new, trail), values, sums

    def _local_update(
        self, merit: Merit, lam: jax.Array, rho: jax.Array, v: jax.Array, start: jax.Array, eps: jax.Array
    ) -> jax.Array:
        """(19) solved for δ = u − v: with a large ρ rounding in u − v would be multiplied by ρ."""

        def evaluate(delta: jax.Array) -> tuple[jax.Array, jax.Array]:
            _, gradient = merit.gradient(v + delta)
            value = merit.value(v + delta) + lam @ delta + 0.5 * rho * delta @ delta
            return value, gradient + lam + rho * delta

        def newton(delta: jax.Array, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
            hessian = merit.hessian(v + delta) + rho * jnp.eye(v.size)
            direction = positive_solve(hessian, -gradient)
            return delta + direction, gradient @ direction

        def conjugate(delta: jax.Array, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
            def curved(p: jax.Array) -> jax.Array:
                return jax.jvp(lambda x: merit.gradient(v + x)[1], (delta,), (p,))[1] + rho * p

            direction, _ = jax.scipy.sparse.linalg.cg(curved, -gradient, tol=0.1, maxiter=50)
            downhill = gradient @ direction < 0
            direction = jnp.where(downhill, direction, -gradient)
            return delta + direction, gradient @ direction

        return minimise(evaluate, newton if self.dense else conjugate, None, start, eps)[0]

    # the server learns

    def learn(
        self, state: Central, own: ServerMerit, point: jax.Array, sums: LocalSums, fresh: jax.Array
    ) -> tuple[Central, Progress]:
        h, merit = own.regularizer, own.merit
        mine, gradient = merit.gradient(point)
        if sums.value_gradient is not None:  # dist∞(0, ∂ℓ_k), from the summed gradient
            whole = sums.value_gradient + gradient + 2 * h.ridge * point
            residual = h.distance(point, whole)
            kkt = h.distance(point, whole - (point - merit.centre) / merit.gamma)
        else:  # (23), and what Theorem 2 makes of it
            residual = sums.residual if self.exact else state.q_to_t(self.q) + sums.residual
            kkt = residual + jnp.max(jnp.abs(point - merit.centre)) / merit.gamma
        progress = Progress(
            settled=~state.restart | jnp.asarray(self.measured),
            exhausted=jnp.asarray(False),
            residual=residual,
            stationarity=kkt,
            objective=sums.objective + mine.objective + h.value(point),
            pooled=jnp.zeros(0),
            constraints=mine.constraints,
        )
        t = jnp.where(state.restart, state.t, state.t + 1)
        moved = eqx.tree_at(
            lambda s: (s.z, s.t, s.restart, s.since),
            state,
            (sums.local_solution, t, jnp.asarray(False), state.since + 1),
        )
        if sums.acceleration_products is not None:
            moved = self._accelerated(state, moved, sums.local_solution, sums.acceleration_products, merit.own.parties)
        if sums.distance_squared is not None:
            moved = self._balanced(moved, sums.distance_squared, merit.own.parties)
        return moved, progress

    def _accelerated(self, before: Central, after: Central, z: jax.Array, products: jax.Array, n: int) -> Central:
        """Weights γ = argmin ‖f − ΔF γ‖ over parties and server together, and the server's own accelerated Σρũ_i."""
        m, slot = self.memory, before.slot
        scale = 1.0 / jnp.sqrt(1.0 * n)  # Σ_i ‖Δλ_i‖² + ‖ΔΣρũ_i‖²/n is the norm in which Douglas-Rachford contracts
        trail = before.trail.extended(scale * (z - before.z), scale * z, slot)
        products = products + trail.products(slot)
        against, newest, size = products[:m], products[m : 2 * m], jnp.sqrt(products[-1])
        place = jnp.maximum(slot, 0)
        gram = jnp.where(slot < 0, 0.0, before.gram.at[place, :].set(newest).at[:, place].set(newest))
        gamma = _least_squares(gram, against)
        bad = ~(jnp.max(jnp.abs(gamma)) < WILDEST) | (size > GROWN * before.least) | before.restart
        gamma = jnp.where(bad, 0.0, gamma)
        following = jnp.where(bad, -1, (slot + 1) % m)
        least = jnp.where(bad, jnp.inf, jnp.minimum(size, before.least))
        return eqx.tree_at(
            lambda s: (s.z, s.trail, s.gram, s.weights, s.slot, s.least),
            after,
            (z - gamma @ trail.dg / scale, trail, gram, gamma, following, least),
        )

    def _balanced(self, state: Central, primal: jax.Array, n: int) -> Central:
        """ρ doubled or halved when primal and dual residual are far apart; Anderson acceleration restarts."""
        primal, dual = jnp.sqrt(primal), jnp.linalg.norm(jnp.broadcast_to(state.rho, n)) * state.step
        factor = jnp.where(primal > FAR_APART * dual, 2.0, jnp.where(dual > FAR_APART * primal, 0.5, 1.0))
        change = (factor != 1.0) & (state.since >= 10)
        changed = eqx.tree_at(
            lambda s: (s.rho, s.restart, s.since), self._restarted(state), (state.rho * factor, jnp.asarray(True), 0)
        )
        return choose(change, changed, state)

    def _restarted(self, state: Central) -> Central:
        return eqx.tree_at(
            lambda s: (s.weights, s.slot, s.least), state, (0.0 * state.weights, jnp.asarray(-1), jnp.asarray(jnp.inf))
        )

    def reopen(self, state: Central, w: jax.Array, growth: jax.Array) -> Central:
        state = eqx.tree_at(lambda s: (s.v, s.t), self._restarted(state), (w, jnp.zeros((), int)))
        return state if self.warm else eqx.tree_at(lambda s: s.restart, state, jnp.asarray(True))


def _least_squares(gram: jax.Array, against: jax.Array) -> jax.Array:
    """argmin_γ of the quadratic with this Gram matrix, scaled to a unit diagonal, with a relative ridge; empty places 0."""
    filled = jnp.diag(gram) > 0
    root = jnp.sqrt(jnp.where(filled, jnp.diag(gram), 1.0))
    unit = jnp.where(filled[:, None] & filled[None, :], gram / root[:, None] / root[None, :], 0.0)
    unit = unit + jnp.diag(jnp.where(filled, 1e-10, 1.0))
    return jnp.linalg.solve(unit, jnp.where(filled, against / root, 0.0)) / root
