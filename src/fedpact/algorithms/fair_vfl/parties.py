"""What active and passive parties do in a round (Algorithms 2 and 3): move, take a gradient, propose the next move."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax

from fedpact.algorithms.fair_vfl.lagrangian import Dual, Point, Terms, gradient, merit, newton_length, values, weights
from fedpact.algorithms.fair_vfl.moves import Move, MoveRule, Proposal, remembered
from fedpact.algorithms.fair_vfl.pace import Timing
from fedpact.federation.blocks import Block
from fedpact.privacy import traced_ckks
from fedpact.protocol.embedding import own_share
from fedpact.protocol.messages import Reply
from fedpact.records import Record

# messages


class Residuals(Record):
    """To passive parties: ν (12), and nothing of labels, groups or multipliers besides."""

    move: Move
    residuals: jax.Array
    norm_derivative: jax.Array  # ∂Λ/∂N
    curvature: jax.Array


class Ciphertext(Record):
    """To passive parties under encryption: Enc(ν)."""

    move: Move
    encrypted_residuals: jax.Array


class MaskedGradients(Record):
    """To passive parties under encryption: the gradients of all of them, each under its party's mask."""

    move: Move  # which was made with the ciphertext
    masked_gradients: jax.Array
    norm_derivative: jax.Array
    curvature: jax.Array


class PublicKey(Record):
    """To passive parties under encryption, before the first round."""

    public_key: jax.Array


class LabelView(Record):
    """To active parties: what they need to compute the Lagrangian by themselves."""

    move: Move
    point: Point
    dual: Dual
    curvature: jax.Array
    random_key: jax.Array


class FirstSums(Record):
    embedding: jax.Array | None
    squared_norm: jax.Array


class ProposalSums(Record):
    embedding: jax.Array | None
    inner_products: jax.Array
    regularizer: jax.Array | None  # h of the block beside ‖w‖²


class ProposalMaximum(Record):
    gradient_entry: jax.Array


class PartyEmbedding(Record):
    """What one bottom gives, where the top wants embeddings side by side."""

    party: jax.Array
    embedding: jax.Array


class EncryptedGradient(Record):
    """Enc(Jᵀν + mask) of one party."""

    party: jax.Array
    encrypted_masked_gradient: jax.Array


# states


class PartyKeys(Record):
    """Under encryption: the server's public key, a secret of the party for its masks, and what takes the last mask off."""

    public: jax.Array
    mask_seed: jax.Array
    opening: jax.Array


class PartyState(Record):
    """A party's block, its proposal z and its last moves.

    - `basis`, `spectrum`: eigenvectors and eigenvalues of XᵀX/n of a linear bottom.
    - `gradient`: of the data's part of Λ, as of the last round.
    - `keys`: None without encryption.
    """

    w: jax.Array
    proposal: jax.Array
    last_moves: jax.Array
    basis: jax.Array
    spectrum: jax.Array
    gradient: jax.Array
    keys: PartyKeys | None = None

    def moved(self, move: Move) -> "PartyState":
        step = move.proposal_weight * self.proposal + move.last_move_weights @ self.last_moves
        return dataclasses.replace(self, w=self.w + step, last_moves=remembered(self.last_moves, step))


# steps


class FairVFLParty(eqx.Module):
    """FairVFL, or FedBCD, at a party.

    - `passive_steps`: steps of a passive party in a round.
    - `widest`: parameters of the largest passive block.
    """

    terms: Terms
    timing: Timing
    rule: MoveRule
    passive_steps: int
    widest: int

    def join(self, own: Block, state: None, message: None) -> tuple[PartyState, Reply]:
        w, none = own.start, jnp.zeros_like(own.start)
        basis, spectrum = jnp.zeros((0, 0)), jnp.zeros(0)
        if self.rule.search:
            spectrum, basis = jnp.linalg.eigh(_gram(own))
        added, apart = _by_combination(own, own.embed(w))
        reply = Reply(sum=FirstSums(added, w @ w), per_party=apart)
        return PartyState(w, none, jnp.zeros((self.rule.memory, w.size)), basis, spectrum, none), reply

    def active(self, own: Block, state: PartyState, message: LabelView) -> tuple[PartyState, Reply]:
        """Algorithm 2, lines 3 to 8: local steps against the others' embeddings as of the beginning of the round."""
        assert own.labels is not None
        labels, terms = own.labels, self.terms
        state = state.moved(message.move)
        here, norm = own.embed(state.w), state.w @ state.w

        def there(z: jax.Array) -> Point:
            w = state.w + z
            embedding = _added(own, message.point.embedding, own.embed(w) - here)
            return Point(message.point.top_parameters, embedding, message.point.squared_norm - norm + w @ w)

        def slopes(z: jax.Array) -> tuple[jax.Array, jax.Array]:
            point, pull = jax.vjp(there, z)
            pi = weights(terms, message.dual, values(terms, labels, point)[1])
            slope = gradient(terms, labels, point, pi)
            return pull(slope)[0], slope.squared_norm

        def once(_: Any, z: jax.Array) -> jax.Array:
            slope, ridge = slopes(z)
            d = self._direction(state, slope, ridge, message.curvature)
            if not self.rule.search:
                return self._inside(own, state, z + d, message.curvature)
            return z + newton_length(lambda a: merit(terms, labels, message.dual, there(z + a * d))) * d

        largest_slope = _largest(own, state.w, slopes(jnp.zeros_like(state.w))[0])
        z = self.timing.repeated(once, self._first_proposal(state), own.index, message.random_key)
        return self._proposed(own, state, z, largest_slope)

    def passive(self, own: Block, state: PartyState, message: Residuals) -> tuple[PartyState, Reply]:
        """Algorithm 3, lines 3 to 6."""
        state = state.moved(message.move)
        slope = jax.vjp(own.embed, state.w)[1](own_share(own, message.residuals))[0]
        return self._down(own, state, slope, message)

    def keep_key(self, own: Block, state: PartyState, message: PublicKey) -> tuple[PartyState, Reply]:
        """Before the first round under encryption."""
        opening = jnp.zeros((2, self.widest))
        keys = PartyKeys(message.public_key, traced_ckks.fresh_seed(own.index), opening)
        return dataclasses.replace(state, keys=keys), Reply()

    def multiply(self, own: Block, state: PartyState, message: Ciphertext) -> tuple[PartyState, Reply]:
        """Enc(Jᵀν + mask) from Enc(ν), J the Jacobian of the party's bottom; narrower blocks are filled up with zeros."""
        state, keys = state.moved(message.move), state.keys
        assert keys is not None
        lines = jax.vmap(lambda e: jax.jvp(own.embed, (state.w,), (e,))[1])(jnp.eye(own.start.size))
        jacobian = jnp.pad(lines.reshape(own.start.size, -1).T, ((0, 0), (0, self.widest - own.start.size)))
        product, opening = traced_ckks.masked_product(
            keys.public, message.encrypted_residuals, jacobian, keys.mask_seed
        )
        state = dataclasses.replace(state, keys=dataclasses.replace(keys, opening=opening))
        return state, Reply(per_party=EncryptedGradient(own.index, product))

    def passive_unmasked(self, own: Block, state: PartyState, message: MaskedGradients) -> tuple[PartyState, Reply]:
        """Algorithm 3, lines 3 to 6, after `multiply`."""
        assert state.keys is not None
        slope = traced_ckks.unmask(message.masked_gradients[own.index], state.keys.opening)[: own.start.size]
        return self._down(own, state, slope, message)

    def _down(
        self, own: Block, state: PartyState, data: jax.Array, message: Residuals | MaskedGradients
    ) -> tuple[PartyState, Reply]:
        """One step, or some with ν as it was; `data` is the gradient without the regulariser's part."""
        state, ridge = dataclasses.replace(state, gradient=data), message.norm_derivative

        def once(_: Any, z: jax.Array) -> jax.Array:
            slope = data + 2.0 * ridge * (state.w + z)
            return self._inside(
                own, state, z + self._direction(state, slope, ridge, message.curvature), message.curvature
            )

        z = lax.fori_loop(0, self.passive_steps, once, self._first_proposal(state))
        return self._proposed(own, state, z, _largest(own, state.w, data + 2.0 * ridge * state.w))

    def _inside(self, own: Block, state: PartyState, z: jax.Array, curvature: jax.Array) -> jax.Array:
        """A step of proximal gradient descent, where h has more than ‖w‖²."""
        return z if own.regularizer is None else own.regularizer.prox(state.w + z, 1.0 / curvature) - state.w

    def _direction(self, state: PartyState, slope: jax.Array, ridge: jax.Array, curvature: jax.Array) -> jax.Array:
        """Down the gradient: by a step that was set, by the curvature of a linear bottom, or by an estimate of any bottom's."""
        if self.rule.search:
            stiffness = curvature * state.spectrum + 2.0 * jnp.maximum(ridge, 0.0)
            stiffness = jnp.maximum(stiffness, 1e-8 * jnp.max(stiffness, initial=1e-30))
            return -state.basis @ ((state.basis.T @ slope) / stiffness)
        return -slope / curvature

    def _first_proposal(self, state: PartyState) -> jax.Array:
        """0, or some of the last move again."""
        if self.rule.step is None and not self.rule.search:
            return self.rule.momentum * state.last_moves[0]
        return jnp.zeros_like(state.w)

    def _proposed(
        self, own: Block, state: PartyState, z: jax.Array, largest_slope: jax.Array
    ) -> tuple[PartyState, Reply]:
        """What the bottom gives for the proposal: by itself where the bottom is linear, else at its end."""
        vectors = jnp.concatenate([state.w[None], z[None], state.last_moves])
        added, apart = _by_combination(own, own.embed(z) if self.rule.search else own.embed(state.w + z))
        h = None if own.regularizer is None else own.regularizer.nonsmooth(state.w)
        reply = Reply(ProposalSums(added, vectors @ vectors.T, h), ProposalMaximum(largest_slope), apart)
        return dataclasses.replace(state, proposal=z), reply


def _largest(own: Block, w: jax.Array, slope: jax.Array) -> jax.Array:
    """The largest entry of the gradient; with h, the distance of 0 from the subdifferential."""
    return jnp.max(jnp.abs(slope)) if own.regularizer is None else own.regularizer.distance(w, slope)


def _by_combination(own: Block, embedding: jax.Array) -> tuple[jax.Array | None, PartyEmbedding | None]:
    """A party's embedding: to be added to the others', or to be kept apart."""
    return (embedding, None) if own.combine == "sum" else (None, PartyEmbedding(own.index, embedding))


def _added(own: Block, embedding: jax.Array, change: jax.Array) -> jax.Array:
    return embedding + change if own.combine == "sum" else embedding.at[:, own.index].add(change)


def _gram(own: Block) -> jax.Array:
    """JᵀJ/n of a bottom that is linear in its parameters."""
    lines = jax.vmap(own.embed)(jnp.eye(own.start.size))
    flat = lines.reshape(own.start.size, -1)
    return flat @ flat.T / lines.shape[1]


# at the label holder


def combined_embedding(reply: Reply, parties: int) -> jax.Array:
    """The part of h of the parties asked: (rows, width), or (rows, parties, width)."""
    if reply.per_party is None:
        return reply.sum.embedding
    apart: PartyEmbedding = reply.per_party
    blank = jnp.zeros((parties, *apart.embedding.shape[1:]), apart.embedding.dtype)
    return jnp.moveaxis(blank.at[apart.party].set(apart.embedding), 0, 1)


def combined_proposal(reply: Reply, parties: int) -> Proposal:
    sums, largest = reply.sum, reply.max.gradient_entry
    return Proposal(combined_embedding(reply, parties), sums.inner_products, largest, sums.regularizer)
