"""What active and passive parties do in a round (Algorithms 2 and 3): move, take a gradient, propose the next move.

A party proposes a displacement z of its block, and tells what its bottom gives there. The server says how much of it is
taken, and how much of the last move again: w ← w + a z + b m.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax

from fedpact.algorithms.fair_vfl.lagrangian import Dual, Point, merit, newton_along, numbers, slopes, weights
from fedpact.federation.blocks import Block
from fedpact.privacy import traced_ckks
from fedpact.protocol.embedding import share
from fedpact.protocol.messages import Reply

if TYPE_CHECKING:
    from fedpact.algorithms.fair_vfl.method import FairVFL


class Move(eqx.Module):
    """w ← w + along z + Σ again_i m_i, with m the last moves, the latest first."""

    along: jax.Array
    again: jax.Array


class Held(eqx.Module):
    """A party's block, its proposal z, its last moves; XᵀX/n of a linear bottom by eigenvectors and eigenvalues.

    gradient: of the data's part, as of the last round. seal: what encrypted residuals need, else None.
    """

    w: jax.Array
    proposal: jax.Array
    last: jax.Array
    basis: jax.Array
    spectrum: jax.Array
    gradient: jax.Array
    seal: "Seal | None" = None

    def moved(self, move: Move) -> "Held":
        step = move.along * self.proposal + move.again @ self.last
        return dataclasses.replace(self, w=self.w + step, last=remembered(self.last, step))


def remembered(last: jax.Array, step: jax.Array) -> jax.Array:
    """The latest first; the oldest is forgotten."""
    return jnp.concatenate([step[None], last[:-1]])


class Seal(eqx.Module):
    """The server's public key, a secret of the party for its masks, and what takes the last mask off."""

    public: jax.Array
    seed: jax.Array
    opening: jax.Array


class Encrypted(eqx.Module):
    """Enc(ν)."""

    move: Move
    residual: jax.Array


class ToPassive(eqx.Module):
    """ν (12), and nothing of labels, groups or multipliers besides.

    Under encryption moves are made before, and in place of ν there are all passive parties' gradients, each masked.
    """

    move: Move
    slope: jax.Array
    ridge: jax.Array  # ∂Λ/∂N
    curvature: jax.Array


class ToActive(eqx.Module):
    """What an active party needs to compute the Lagrangian by itself."""

    move: Move
    point: Point
    dual: Dual
    curvature: jax.Array
    key: jax.Array


class Told(eqx.Module):
    """Inner products of w, z and the last moves."""

    products: jax.Array


def join(method: "FairVFL", own: Block, state: None, message: None) -> tuple[Held, Reply]:
    del state, message
    none = jnp.zeros_like(own.start)
    last = jnp.zeros((method.memory, own.start.size))
    basis, spectrum = jnp.zeros((0, 0)), jnp.zeros(0)
    if method.searches:
        spectrum, basis = jnp.linalg.eigh(_gram(own))
    return Held(own.start, none, last, basis, spectrum, none), _shown(own, own.embed(own.start), own.start @ own.start)


def passive(method: "FairVFL", own: Block, state: Held, message: ToPassive) -> tuple[Held, Reply]:
    """Algorithm 3, lines 3 to 6: one step, or some with ν as it was."""
    if state.seal is None:
        state = state.moved(message.move)
        data = jax.vjp(own.embed, state.w)[1](share(own, message.slope))[0]
    else:
        data = traced_ckks.unmask(message.slope[own.index], state.seal.opening)[: own.start.size]
    state = dataclasses.replace(state, gradient=data)

    def once(_: Any, z: jax.Array) -> jax.Array:
        gradient = data + 2.0 * message.ridge * (state.w + z)
        return z + _direction(method, state, gradient, message.ridge, message.curvature)

    z = lax.fori_loop(0, method.passive_steps, once, _momentum(method, state))
    residual = jnp.max(jnp.abs(data + 2.0 * message.ridge * state.w))
    return _told(method, own, state, z, residual)


def keep_key(method: "FairVFL", own: Block, state: Held, public: jax.Array) -> tuple[Held, Reply]:
    """Before the first round under encryption."""
    opening = jnp.zeros((2, method.widest))
    return dataclasses.replace(state, seal=Seal(public, traced_ckks.fresh_seed(own.index), opening)), Reply()


def multiply(method: "FairVFL", own: Block, state: Held, message: Encrypted) -> tuple[Held, Reply]:
    """Enc(Jᵀν + mask) from Enc(ν), J the Jacobian of the party's bottom; narrower blocks are filled up with zeros."""
    state, seal = state.moved(message.move), state.seal
    assert seal is not None
    lines = jax.vmap(lambda e: jax.jvp(own.embed, (state.w,), (e,))[1])(jnp.eye(own.start.size))
    jacobian = jnp.pad(lines.reshape(own.start.size, -1).T, ((0, 0), (0, method.widest - own.start.size)))
    product, opening = traced_ckks.masked_product(seal.public, message.residual, jacobian, seal.seed)
    state = dataclasses.replace(state, seal=dataclasses.replace(seal, opening=opening))
    return state, Reply(each=(own.index, product))


def active(method: "FairVFL", own: Block, state: Held, message: ToActive) -> tuple[Held, Reply]:
    """Algorithm 2, lines 3 to 8: local steps against what the others gave when the round began."""
    assert own.labels is not None
    labels, terms = own.labels, method.known
    state = state.moved(message.move)
    here, norm = own.embed(state.w), state.w @ state.w

    def there(z: jax.Array) -> Point:
        w = state.w + z
        embedded = _added(own, message.point.embedded, own.embed(w) - here)
        return Point(message.point.top, embedded, message.point.norm - norm + w @ w)

    def gradient(z: jax.Array) -> tuple[jax.Array, jax.Array]:
        point, pull = jax.vjp(there, z)
        pi = weights(terms, message.dual, numbers(terms, labels, point)[1])
        slope = slopes(terms, labels, point, pi)
        return pull(slope)[0], slope.norm

    def once(_: Any, z: jax.Array) -> jax.Array:
        downhill, ridge = gradient(z)
        d = _direction(method, state, downhill, ridge, message.curvature)
        if not method.searches:
            return z + d
        return z + newton_along(lambda a: merit(terms, labels, message.dual, there(z + a * d))) * d

    residual = jnp.max(jnp.abs(gradient(jnp.zeros_like(state.w))[0]))
    z = method.paced.repeated(once, _momentum(method, state), own.index, message.key)
    return _told(method, own, state, z, residual)


def _direction(
    method: "FairVFL", state: Held, gradient: jax.Array, ridge: jax.Array, curvature: jax.Array
) -> jax.Array:
    """Down the gradient: by a given step, by the curvature of a linear bottom, or by an estimate of any bottom's."""
    if method.step is not None:
        return -method.step * gradient
    if method.searches:
        bent = curvature * state.spectrum + 2.0 * jnp.maximum(ridge, 0.0)
        return -state.basis @ ((state.basis.T @ gradient) / jnp.maximum(bent, 1e-8 * jnp.max(bent, initial=1e-30)))
    return -gradient / curvature


def _momentum(method: "FairVFL", state: Held) -> jax.Array:
    """Where a proposal begins: at 0, or some of the last move on."""
    return method.momentum * state.last[0] if method.step is None and not method.searches else jnp.zeros_like(state.w)


def _told(method: "FairVFL", own: Block, state: Held, z: jax.Array, residual: jax.Array) -> tuple[Held, Reply]:
    """What the bottom gives for the proposal: by itself where the bottom is linear, else at its end."""
    vectors = jnp.concatenate([state.w[None], z[None], state.last])
    given = own.embed(z) if method.searches else own.embed(state.w + z)
    reply = _shown(own, given, Told(vectors @ vectors.T))
    return dataclasses.replace(state, proposal=z), dataclasses.replace(reply, max=residual)


def block(own: Block, state: Held, move: tuple[Move, Move]) -> jax.Array:
    """The block after the last move."""
    return state.moved(move[0] if own.active else move[1]).w


# what is shown to the label holder


def _shown(own: Block, embedded: jax.Array, more: Any) -> Reply:
    if own.combine == "sum":
        return Reply(sum=(embedded, more))
    return Reply(sum=(None, more), each=(own.index, embedded))


def united(reply: Reply, parties: int) -> jax.Array:
    """What the asked parties gave, as part of what all give: (rows, width), or (rows, parties, width)."""
    if reply.each is None:
        return reply.sum[0]
    index, embedded = reply.each
    blank = jnp.zeros((parties, *embedded.shape[1:]), embedded.dtype)
    return jnp.moveaxis(blank.at[index].set(embedded), 0, 1)


def _added(own: Block, embedded: jax.Array, change: jax.Array) -> jax.Array:
    return embedded + change if own.combine == "sum" else embedded.at[:, own.index].add(change)


def _gram(own: Block) -> jax.Array:
    """JᵀJ/n of a bottom that is linear in its parameters."""
    lines = jax.vmap(own.embed)(jnp.eye(own.start.size))
    flat = lines.reshape(own.start.size, -1)
    return flat @ flat.T / lines.shape[1]
