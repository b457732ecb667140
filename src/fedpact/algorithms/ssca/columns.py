"""Columns split: Algorithms 3 and 4. A party's block of parameters, and its part of the surrogates, never leave it.

Two exchanges a round: (1) a party moves its block by the last round's multipliers and sends the output of its bottom model on
the batch, as a sum with the others' where the top takes a sum; (2) it gets the gradient there, folds its own gradients into
its surrogates, and sends their inner products, which is all that the dual needs.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp

from fedpact.algorithms.parts.batches import folded_key
from fedpact.algorithms.ssca.box_dual import solve_box_dual
from fedpact.algorithms.ssca.shared import Measurement, Penalty, RoundInfo, SSCAMethod
from fedpact.algorithms.ssca.surrogates import violation
from fedpact.arrays import choose
from fedpact.federation.blocks import Block
from fedpact.problem.flat_regularizer import FlatRegularizer
from fedpact.problem.oracle import Oracle
from fedpact.problem.split import EMBEDDED
from fedpact.protocol.algorithm import Answer, Begin, Status
from fedpact.protocol.embedding import Embedding, combined, contribution, own_share
from fedpact.protocol.messages import Reply
from fedpact.protocol.phases import Phase, Phases, ServerData
from fedpact.protocol.sampling import draw
from fedpact.records import Record

# messages


class Move(Record):
    """How to go on from the last round: w ← (1 − γ) w + γ Σ weights_m a_m, once w is kept as the best so far where it is."""

    surrogate_weights: jax.Array
    step_size: jax.Array  # γ
    keep_as_best: jax.Array
    curvature: jax.Array  # of the surrogate problem at its minimum


class BatchRequest(Record):
    """Exchange 1, down."""

    move: Move
    random_key: jax.Array


class Residual(Record):
    """Exchange 1, up, next to the output of the bottom model: how far the block was from its part of the minimum."""

    stationarity: jax.Array


class EmbeddingGradient(Record):
    """Exchange 2, down: ∂F̂/∂(combined embedding), of each surrogate."""

    random_key: jax.Array
    gradient: jax.Array
    averaging_weight: jax.Array  # ρ


class Products(Record):
    """Exchange 2, up: inner products of the surrogates' slopes, ∇F̂·w of each, and ‖w‖²."""

    slope_products: jax.Array
    gradient_times_parameters: jax.Array
    squared_norm: jax.Array
    regularizer: jax.Array | None  # h of the block beside ‖w‖²


class EmbeddingOfAllRows(Record):
    """Measurement, up: the output of the bottom model (where it is added up), and ‖w‖²."""

    all_rows: Embedding | None
    squared_norm: jax.Array
    regularizer: jax.Array | None  # h of the block beside ‖w‖²


class ColumnAnswer(Answer):
    move: Move
    use_best: jax.Array  # whether the best block is handed out, not the last


# states


class BlockState(Record):
    """A holder's part of the parameters and of the surrogates' slopes; the label holder has one for the top."""

    w: jax.Array
    slopes: jax.Array
    best_w: jax.Array


class ServerState(Record):
    top: BlockState
    constants: jax.Array
    nu: jax.Array
    move: Move
    penalty: Penalty
    best: Measurement
    key: jax.Array
    t: jax.Array
    status: jax.Array


class Embedded(Record):
    """The label holder after exchange 1: value of each surrogate's estimate, its gradients for the top and for the embedding."""

    server: ServerState
    values: jax.Array
    gradients: jax.Array
    embedding_gradient: jax.Array
    residual: jax.Array


class Estimated(Record):
    """The label holder after exchange 2, and after the measurement."""

    server: ServerState
    values: jax.Array
    gradients: jax.Array
    products: Products
    residual: jax.Array
    measured: Measurement


class ColumnsMethod(SSCAMethod[ServerState]):
    """SSCA over columns as it runs."""

    @property
    def round(self) -> Phases:
        return (
            Phase(self.ask_embedding, self.embed, self.hear_embedding),
            Phase(self.ask_products, self.differentiate, self.hear_products),
            *self.measurement(self.ask_all_rows, self.embed_all, self.hear_all_rows),
        )

    # at every holder: of a block, or of the top

    def _fresh(self, w: jax.Array) -> BlockState:
        return BlockState(w, jnp.zeros((len(self.surrogates.functions), w.size)), w)

    def _target(self, state: BlockState, move: Move, h: FlatRegularizer | None) -> jax.Array:
        """This block of the surrogate problem's minimum."""
        target = self.surrogates.weighted_sum(move.surrogate_weights, state.slopes)
        if h is None:
            return target
        return h.prox(
            target, jnp.where(move.curvature > 0, 0.5 / jnp.where(move.curvature > 0, move.curvature, 1.0), 0.0)
        )

    def _residual(self, state: BlockState, move: Move, h: FlatRegularizer | None) -> jax.Array:
        """The gradient of the surrogate problem's Lagrangian at w, largest entry: how far there was to go."""
        return jnp.max(jnp.abs(2.0 * move.curvature * (state.w - self._target(state, move, h))), initial=0.0)

    def _moved(self, state: BlockState, move: Move, h: FlatRegularizer | None) -> BlockState:
        target = self._target(state, move, h)
        best_w = jnp.where(move.keep_as_best, state.w, state.best_w)
        return BlockState((1.0 - move.step_size) * state.w + move.step_size * target, state.slopes, best_w)

    def _folded(
        self, state: BlockState, rho: jax.Array, gradients: jax.Array, h: FlatRegularizer | None
    ) -> tuple[BlockState, Products]:
        slopes = self.surrogates.folded(state.slopes, rho, gradients, state.w, self.tau)
        added = None if h is None else h.nonsmooth(state.w)
        products = Products(self.surrogates.gram(slopes), gradients @ state.w, state.w @ state.w, added)
        return BlockState(state.w, slopes, state.best_w), products

    # at a party

    def join(self, own: Block, state: None, message: None) -> tuple[BlockState, Reply]:
        return self._fresh(own.start), Reply()

    def embed(self, own: Block, state: BlockState, message: BatchRequest) -> tuple[BlockState, Reply]:
        move, h = message.move, own.regularizer
        residual, state = self._residual(state, move, h), self._moved(state, move, h)
        places = draw(message.random_key, jnp.asarray(own.x.shape[0]), self.batch)
        reply = contribution(own, self.on_the_wire(own.embed(state.w, places)))
        return state, dataclasses.replace(reply, max=Residual(residual))

    def differentiate(self, own: Block, state: BlockState, message: EmbeddingGradient) -> tuple[BlockState, Reply]:
        places = draw(message.random_key, jnp.asarray(own.x.shape[0]), self.batch)
        _, pull = jax.vjp(lambda w: own.embed(w, places), state.w)
        slope = own_share(own, message.gradient).astype(state.w.dtype)
        gradients = jax.vmap(lambda line: pull(line)[0])(slope)
        state, products = self._folded(state, message.averaging_weight, gradients, own.regularizer)
        return state, Reply(sum=products)

    def embed_all(self, own: Block, state: BlockState, message: None) -> tuple[BlockState, Reply]:
        reply = contribution(own, own.embed(state.w))
        added = None if own.regularizer is None else own.regularizer.nonsmooth(state.w)
        return state, dataclasses.replace(reply, sum=EmbeddingOfAllRows(reply.sum, state.w @ state.w, added))

    def block(self, own: Block, state: BlockState, answer: ColumnAnswer) -> jax.Array:
        after = self._moved(state, answer.move, own.regularizer)
        return jnp.where(answer.use_best, after.best_w, after.w)

    # at the label holder

    def invite(self, own: ServerData, begin: Begin) -> None:
        """Every party begins with its own block."""

    def start(self, own: ServerData, begin: Begin, reply: Reply) -> ServerState:
        nu, nothing = jnp.zeros(self.surrogates.constraints), jnp.asarray(0.0)
        return ServerState(
            top=self._fresh(begin.w),
            constants=jnp.zeros(len(self.surrogates.functions)),
            nu=nu,
            move=Move(jnp.zeros(1 + nu.size), nothing, jnp.asarray(False), nothing),
            penalty=Penalty.first(self.penalty),
            best=Measurement.worst(nu),
            key=begin.key,
            t=jnp.ones((), int),
            status=Status.running.as_array(),
        )

    def ask_embedding(self, own: ServerData, server: ServerState) -> BatchRequest:
        """Algorithm 4, line 3."""
        return BatchRequest(server.move, _batch_key(server))

    def hear_embedding(self, own: ServerData, server: ServerState, reply: Reply) -> Embedded:
        """Algorithm 4, lines 4 and 5."""
        top, labels = self._moved(server.top, server.move, self._of_top(own)).w, own.functions
        batch = labels.sample(draw(_batch_key(server), labels.count, self.batch), labels.count / self.batch)

        def estimates(top: jax.Array, embedding: jax.Array) -> jax.Array:
            values = self._functions(batch, top, embedding)
            return self.surrogates.to_surrogates(values, tuple(range(values.size)))

        values, pull = jax.vjp(estimates, top, combined(reply).astype(top.dtype))
        gradients, slope = jax.vmap(pull)(jnp.eye(values.size, dtype=values.dtype))
        return Embedded(server, values, gradients, self.on_the_wire(slope), reply.max.stationarity)

    def ask_products(self, own: ServerData, carry: Embedded) -> EmbeddingGradient:
        """Algorithm 4, line 6."""
        rho, _ = self.steps(carry.server.t)
        return EmbeddingGradient(_batch_key(carry.server), carry.embedding_gradient, rho)

    def hear_products(self, own: ServerData, carry: Embedded, reply: Reply) -> Estimated:
        unmeasured = Measurement.missing(carry.server.nu)
        return Estimated(carry.server, carry.values, carry.gradients, reply.sum, carry.residual, unmeasured)

    def ask_all_rows(self, own: ServerData, carry: Estimated) -> None:
        del own, carry

    def hear_all_rows(self, own: ServerData, carry: Estimated, reply: Reply) -> Estimated:
        h = self._of_top(own)
        top = self._moved(carry.server.top, carry.server.move, h).w
        embedding = combined(Reply(reply.sum.all_rows, per_party=reply.per_party))
        values = self._functions(own.functions, top, embedding)
        values = values + self.surrogates.all_norms * (reply.sum.squared_norm + top @ top)
        objective = values[0]
        if reply.sum.regularizer is not None and h is not None:
            objective = objective + reply.sum.regularizer + h.nonsmooth(top)
        return dataclasses.replace(carry, measured=Measurement(objective, violation(values), carry.server.nu))

    def finish(self, own: ServerData, carry: Estimated) -> tuple[ServerState, RoundInfo]:
        server, measured = carry.server, carry.measured
        rho, gamma = self.steps(server.t)
        h = self._of_top(own)
        top, of_top = self._folded(self._moved(server.top, server.move, h), rho, carry.gradients, h)
        products: Products = jax.tree.map(jnp.add, carry.products, of_top)
        along, norm = products.gradient_times_parameters, products.squared_norm
        constants = self.surrogates.folded_constants(server.constants, rho, carry.values, along, norm, self.tau)
        none = jnp.asarray(0.0)
        problem = self.surrogates.quadratics(constants, products.slope_products, self.tau, none, self.margin)
        dual = solve_box_dual(problem, server.penalty.c)  # Problem 10
        weights, slack = problem.combination(dual.nu), jnp.max(dual.slack, initial=0.0)
        keep = measured.beats(server.best)
        after = ServerState(
            top=top,
            constants=constants,
            nu=dual.nu,
            move=Move(weights, gamma, keep, problem.curvature(dual.nu)),
            penalty=server.penalty.after(slack, self.penalty),
            best=choose(keep, measured, server.best),
            key=server.key,
            t=server.t + 1,
            status=server.status,
        )
        broken = eqx.tree_at(lambda s: s.status, server, Status.diverged.as_array())
        finite = jnp.all(jnp.isfinite(weights)) & jnp.all(jnp.isfinite(constants))
        values = self.surrogates.values(carry.values, norm)
        info = RoundInfo(
            objective=values[0] if products.regularizer is None else values[0] + products.regularizer,
            violation=violation(values),
            stationarity=jnp.maximum(carry.residual, self._residual(server.top, server.move, h)),  # of the round before
            slack=slack,
            penalty=server.penalty.c,
            measured_objective=measured.objective,
            measured_violation=measured.violation,
        )
        return choose(finite, after, broken), info

    def _of_top(self, own: ServerData) -> FlatRegularizer | None:
        """h of the top beside ‖w‖²; None where there is no other."""
        return own.regularizer if self.nonsmooth else None

    def _functions(self, labels: Oracle, top: jax.Array, embedding: jax.Array) -> jax.Array:
        """Objective and constraints without ‖w‖², from what the bottom models give on the rows of `labels`."""
        program, rows = self.surrogates.party, {**labels.rows, EMBEDDED: embedding}
        values = dataclasses.replace(labels, rows=rows, program=program)(top)
        return jnp.concatenate([values.objective[None], values.pooled]) + jnp.asarray(self.surrogates.constants)

    def answer(self, own: ServerData, carry: ServerState) -> ColumnAnswer:
        """The best point that was measured; the last one where none was."""
        known = jnp.isfinite(carry.best.violation)
        last = self._moved(carry.top, carry.move, self._of_top(own))
        multipliers = self.surrogates.multipliers(jnp.where(known, carry.best.nu, carry.nu))
        w = jnp.where(known, last.best_w, last.w)
        return ColumnAnswer(w, *multipliers, jnp.asarray(0.0), carry.move, known)


def _batch_key(server: ServerState) -> jax.Array:
    """As one party with all rows would draw."""
    return folded_key(folded_key(server.key, server.t), 0)
