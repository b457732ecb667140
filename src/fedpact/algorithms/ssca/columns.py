"""Columns split: Algorithms 3 and 4. A party's block of parameters, and its part of the surrogates, never leave it.

Two exchanges a round: (1) a party moves its block by the last round's multipliers and shows what its bottom gives on the
batch, as a sum with the others' where the top takes a sum; (2) it gets the slope there, folds its own gradient into its
surrogates, and tells their inner products, which is all that the dual needs.
"""

import dataclasses
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp

from fedpact.algorithms.parts.batches import folded_key
from fedpact.algorithms.parts.descent import choose
from fedpact.algorithms.ssca.box_dual import solve_box_dual
from fedpact.algorithms.ssca.rows import Penalty, RoundInfo
from fedpact.algorithms.ssca.surrogates import folded, folded_constants, violation
from fedpact.federation.blocks import Block
from fedpact.problem.oracle import Oracle
from fedpact.problem.split import EMBEDDED
from fedpact.protocol.algorithm import Answer, Status
from fedpact.protocol.embedding import joined, share, shown
from fedpact.protocol.messages import Reply
from fedpact.protocol.network import Network, PartyStates
from fedpact.protocol.sampling import draw

if TYPE_CHECKING:
    from fedpact.algorithms.ssca.method import SSCA


class Move(eqx.Module):
    """How to go on from the last round: w ← (1 − γ) w + γ Σ weights_m a_m; before it, w is the best so far where `keep`."""

    weights: jax.Array
    gamma: jax.Array
    keep: jax.Array
    curvature: jax.Array  # of the surrogate problem at its minimum


class Batch(eqx.Module):
    """Exchange 1, down."""

    move: Move
    key: jax.Array


class Slope(eqx.Module):
    """Exchange 2, down: ∂F̂/∂(what the bottoms gave), line by line."""

    key: jax.Array
    slope: jax.Array
    rho: jax.Array


class ToPeers(eqx.Module):
    """Without relay, down."""

    move: Move
    key: jax.Array
    top: jax.Array
    rho: jax.Array


class Products(eqx.Module):
    """Exchange 2, up: inner products of the surrogates' slopes, ∇F̂·w of each line, and ‖w‖²."""

    gram: jax.Array
    along: jax.Array
    norm: jax.Array


class Held(eqx.Module):
    """A holder's part of the parameters and of the surrogates' slopes; the label holder has one for the top."""

    w: jax.Array
    slopes: jax.Array
    best: jax.Array

    @classmethod
    def fresh(cls, method: "SSCA", w: jax.Array) -> "Held":
        return cls(w, jnp.zeros((len(method.made.lines), w.size)), w)

    def residual(self, method: "SSCA", move: Move) -> jax.Array:
        """The slope of the surrogate problem's Lagrangian at w, largest entry: how far there was to go."""
        target = method.made.combined(move.weights, self.slopes)
        return jnp.max(jnp.abs(2.0 * move.curvature * (self.w - target)), initial=0.0)

    def moved(self, method: "SSCA", move: Move) -> "Held":
        target = method.made.combined(move.weights, self.slopes)
        best = jnp.where(move.keep, self.w, self.best)
        return Held((1.0 - move.gamma) * self.w + move.gamma * target, self.slopes, best)

    def folded(self, method: "SSCA", rho: jax.Array, gradients: jax.Array) -> tuple["Held", Products]:
        slopes = folded(self.slopes, rho, gradients, self.w, method.tau)
        products = Products(method.made.gram(slopes), gradients @ self.w, self.w @ self.w)
        return Held(self.w, slopes, self.best), products


class Server(eqx.Module):
    top: Held
    constants: jax.Array
    nu: jax.Array
    move: Move
    penalty: Penalty
    best: "Seen"
    key: jax.Array
    t: jax.Array
    status: jax.Array


class Seen(eqx.Module):
    """What a measurement on all rows has found."""

    objective: jax.Array
    violation: jax.Array
    nu: jax.Array

    def beats(self, other: "Seen") -> jax.Array:
        both = (self.violation <= 0) & (other.violation <= 0)
        return jnp.where(both, self.objective < other.objective, self.violation < other.violation)


class ColumnAnswer(Answer):
    move: Move
    best: jax.Array  # whether the best block is handed out, not the last


def init(method: "SSCA", net: Network, w: jax.Array, key: jax.Array) -> tuple[Server, PartyStates]:
    _, parties = net.exchange(method.begin, None, None)
    lines, rows = len(method.made.lines), len(method.made.norms) - 1
    nu, endless = jnp.zeros(rows), jnp.asarray(jnp.inf)
    nothing = jnp.asarray(0.0)
    stay = Move(jnp.zeros(1 + rows), nothing, jnp.asarray(False), nothing)
    server = Server(
        top=Held.fresh(method, w),
        constants=jnp.zeros(lines),
        nu=nu,
        move=stay,
        penalty=Penalty.first(method.penalty),
        best=Seen(endless, endless, nu),
        key=key,
        t=jnp.ones((), int),
        status=jnp.asarray(int(Status.running)),
    )
    return server, parties


# party steps


def begin(method: "SSCA", own: Block, state: None, message: None) -> tuple[Held, Reply]:
    del state, message
    return Held.fresh(method, own.start), Reply()


def embed(method: "SSCA", own: Block, state: Held, message: Batch) -> tuple[Held, Reply]:
    residual, state = state.residual(method, message.move), state.moved(method, message.move)
    places = draw(message.key, jnp.asarray(own.x.shape[0]), method.batch)
    reply = shown(own, method.on_the_wire(own.embed(state.w, places)))
    return state, dataclasses.replace(reply, max=residual)


def differentiate(method: "SSCA", own: Block, state: Held, message: Slope) -> tuple[Held, Reply]:
    places = draw(message.key, jnp.asarray(own.x.shape[0]), method.batch)
    _, pull = jax.vjp(lambda w: own.embed(w, places), state.w)
    slope = share(own, message.slope).astype(state.w.dtype)
    state, products = state.folded(method, message.rho, jax.vmap(lambda line: pull(line)[0])(slope))
    return state, Reply(sum=products)


def tell_peers(method: "SSCA", own: Block, state: Held, message: ToPeers) -> jax.Array:
    """Section V: ω·x of every feature by itself, and what is left without any, to all other parties (features + 1, …)."""
    w = state.moved(method, message.move).w
    x = own.x[draw(message.key, jnp.asarray(own.x.shape[0]), method.batch)]
    x = x.reshape(len(x), -1)
    apart = x[None] * jnp.eye(x.shape[1])[:, None, :]

    def given(x: jax.Array) -> jax.Array:
        return dataclasses.replace(own, x=x).embed(w)

    nothing = given(jnp.zeros_like(x))
    return method.on_the_wire(jnp.concatenate([nothing[None], jax.vmap(given)(apart) - nothing]))


def hear_peers(method: "SSCA", own: Block, state: Held, message: tuple[ToPeers, jax.Array]) -> tuple[Held, Reply]:
    """Every party computes the loss and its slope by itself; one of them also for the top (lines 5 and 6)."""
    down, heard = message
    assert own.labels is not None
    residual, state = state.residual(method, down.move), state.moved(method, down.move)
    places = draw(down.key, own.labels.count, method.batch)
    batch = own.labels.sample(places, own.labels.count / method.batch)
    values, gradients, slope = _lines(method, batch, down.top, heard.astype(down.top.dtype))
    _, pull = jax.vjp(lambda w: own.embed(w, places), state.w)
    state, products = state.folded(method, down.rho, jax.vmap(lambda line: pull(line)[0])(slope))
    first = jnp.where(own.index == 0, 1.0, 0.0)
    return state, Reply(sum=(products, first * values, first * gradients), max=residual)


def embed_all(own: Block, state: Held, message: None) -> tuple[Held, Reply]:
    del message
    given = shown(own, own.embed(state.w))
    return state, dataclasses.replace(given, sum=(given.sum, state.w @ state.w))


def block(method: "SSCA", own: Block, state: Held, answer: ColumnAnswer) -> jax.Array:
    del own
    after = state.moved(method, answer.move)
    return jnp.where(answer.best, after.best, after.w)


# the label holder's steps


def round(method: "SSCA", server: Server, parties: PartyStates, net: Network) -> tuple[Server, PartyStates, RoundInfo]:
    made = method.made
    key = folded_key(folded_key(server.key, server.t), 0)  # as one party with all rows would draw
    rho, gamma = method.steps(server.t)
    top = server.top.moved(method, server.move)
    estimated = _by_the_server if method.relay else _by_peers
    values, gradients, theirs, residual, parties = estimated(method, server, parties, net, key, top.w, rho)
    residual = jnp.maximum(residual, server.top.residual(method, server.move))
    top, mine = top.folded(method, rho, gradients)
    products: Products = jax.tree.map(jnp.add, theirs, mine)

    constants = folded_constants(server.constants, rho, values, products.along, products.norm, method.tau)
    problem = made.quadratics(constants, products.gram, method.tau, jnp.asarray(0.0), method.margin)
    found = solve_box_dual(problem, server.penalty.c)  # Problem 10
    weights = problem.combination(found.nu)

    seen = _measured(method, server, parties, net, top)
    keep = jnp.isfinite(seen.violation) & seen.beats(server.best)
    slack = jnp.max(found.slack, initial=0.0)
    sound = jnp.all(jnp.isfinite(weights)) & jnp.all(jnp.isfinite(constants))
    after = Server(
        top=top,
        constants=constants,
        nu=found.nu,
        move=Move(weights, gamma, keep, problem.curvature(found.nu)),
        penalty=server.penalty.after(slack, method),
        best=choose(keep, seen, server.best),
        key=server.key,
        t=server.t + 1,
        status=server.status,
    )
    broken = eqx.tree_at(lambda s: s.status, server, jnp.asarray(int(Status.diverged)))
    numbers = made.numbers(values, products.norm)
    info = RoundInfo(
        objective=numbers[0],
        violation=violation(numbers),
        stationarity=residual,  # of the round before
        slack=slack,
        penalty=server.penalty.c,
        measured_objective=seen.objective,
        measured_violation=seen.violation,
    )
    return choose(sound, after, broken), parties, info


Estimate = tuple[jax.Array, jax.Array, Products, jax.Array, PartyStates]  # values, the top's gradients, …, residual, …


def _by_the_server(
    method: "SSCA", server: Server, parties: PartyStates, net: Network, key: jax.Array, top: jax.Array, rho: jax.Array
) -> Estimate:
    """Algorithm 4, lines 3 to 6, in two exchanges: the label holder gets what the bottoms give and sends its slope."""
    reply, parties = net.exchange(method.embed, parties, Batch(server.move, key))
    residual = reply.max
    places = draw(key, net.server.count, method.batch)
    batch = net.server.sample(places, net.server.count / method.batch)
    values, gradients, slope = _lines(method, batch, top, joined(reply).astype(top.dtype))
    down = Slope(key, method.on_the_wire(slope), rho)
    reply, parties = net.exchange(method.differentiate, parties, down)
    return values, gradients, reply.sum, residual, parties


def _by_peers(
    method: "SSCA", server: Server, parties: PartyStates, net: Network, key: jax.Array, top: jax.Array, rho: jax.Array
) -> Estimate:
    """The same lines as Section V has them: parties tell one another, and each computes the slope by itself."""
    down = ToPeers(server.move, key, top, rho)
    reply, parties = net.share(method.tell_peers, method.hear_peers, parties, down)
    products, values, gradients = reply.sum
    return values, gradients, products, reply.max, parties


def _lines(method: "SSCA", own: Oracle, w: jax.Array, embedded: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Every line's value on the batch, its gradient for the top, and its slope in what the bottoms gave."""
    made = method.made

    def lines(w: jax.Array, embedded: jax.Array) -> jax.Array:
        given = dataclasses.replace(own, rows={**own.rows, EMBEDDED: embedded}, program=made.party)(w)
        numbers = jnp.concatenate([given.objective[None], given.pooled]) + jnp.asarray(made.constants)
        return made.of_lines(numbers, tuple(range(len(made.constants))))

    values, pull = jax.vjp(lines, w, embedded)
    gradients, slope = jax.vmap(pull)(jnp.eye(values.size, dtype=values.dtype))
    return values, gradients, slope


def _measured(method: "SSCA", server: Server, parties: PartyStates, net: Network, top: Held) -> Seen:
    """Every so many rounds w is measured on all rows."""
    nothing = jnp.asarray(jnp.nan)
    unseen = Seen(nothing, nothing, server.nu)
    if method.measure is None:
        return unseen

    def look(net: Network, seen: Seen) -> tuple[Seen]:
        reply, _ = net.exchange(embed_all, parties, None)
        embedded, norm = reply.sum
        embedded = joined(Reply(embedded, each=reply.each))
        given = dataclasses.replace(net.server, rows={**net.server.rows, EMBEDDED: embedded}, program=method.made.party)
        found = given(top.w)
        numbers = jnp.concatenate([found.objective[None], found.pooled]) + jnp.asarray(method.made.constants)
        numbers = numbers + jnp.asarray(method.made.norms) * (norm + top.w @ top.w)
        return (Seen(numbers[0], violation(numbers), seen.nu),)

    (seen,) = net.when((server.t - 1) % method.measure == 0, look, unseen)
    return seen


def answer(method: "SSCA", server: Server) -> ColumnAnswer:
    """The best point that was measured; the last one where none was."""
    known = jnp.isfinite(server.best.violation)
    last = server.top.moved(method, server.move)
    own, pooled = method.made.multipliers(jnp.where(known, server.best.nu, server.nu))
    w = jnp.where(known, last.best, last.w)
    return ColumnAnswer(w, own, pooled, jnp.asarray(0.0), server.move, known)
