"""Columns split over parties: each has a bottom model and its block of parameters, the label holder the rest.

The label holder evaluates objective and constraints as functions of what the bottom models give, over all rows. An answer is
the parties' blocks and the top model's parameters; two exchanges measure it.
"""

import dataclasses
import hashlib
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from fedpact.certificate import Certificate, Counted, Measured, certificate_of
from fedpact.federation.blocks import Block, blocks_of, flat_of_block, of_blocks, over_all_rows, top_parameters
from fedpact.federation.columns import INPUTS, ColumnParties
from fedpact.federation.description import Description
from fedpact.federation.function_checks import alone, check_slopes
from fedpact.federation.groups import groups_at, with_described_groups, with_groups
from fedpact.federation.rows import checked_seed, title
from fedpact.federation.setting import Setting
from fedpact.federation.table import Table
from fedpact.federation.table_checks import Holder, checked_columns, columns_read, mean_weights
from fedpact.problem.oracle import Oracle, Values
from fedpact.problem.parameter_names import leaf_names
from fedpact.problem.program import compile_problem
from fedpact.problem.regularizers import Regularizer
from fedpact.problem.shape import Shape
from fedpact.problem.split import EMBEDDED, TOP, SplitModel
from fedpact.problem.statement import Problem
from fedpact.protocol.algorithm import Answer, Method
from fedpact.protocol.embedding import combined, contribution, own_share
from fedpact.protocol.messages import Reply
from fedpact.protocol.phases import Phase, Phases, ServerData, send_nothing
from fedpact.records import Record
from fedpact.settings.base import Agreement, Bound, HandedOut


class EmbeddingGradient(Record):
    """The gradient of the Lagrangian in what the bottom models gave, and its factor of the blocks' squared norm."""

    gradient: jax.Array
    ridge: jax.Array


class OwnNorm(Record):
    squared_norm: jax.Array  # of a party's block
    regularizer: jax.Array | None = None  # h of it beside ‖w‖²


class OwnGradient(Record):
    largest_gradient_entry: jax.Array  # of the Lagrangian, for a party's block; with h, the distance of 0 from it
    outside_box: jax.Array | None = None


class Evaluated(Record):
    """At the label holder, between the two exchanges."""

    values: Values
    counted: Values | None  # with decisions counted; None where none are
    top: jax.Array
    top_gradient: jax.Array
    message: EmbeddingGradient


def embed_all_rows(own: Block, block: jax.Array, message: None) -> tuple[jax.Array, Reply]:
    return block, contribution(own, own.embed(block))


def evaluate_with_labels(own: ServerData, answer: Answer, reply: Reply) -> Evaluated:
    objective_norm, _, pooled_norms = own.functions.program.norm_shares()

    def of_rows(embedded: jax.Array) -> Oracle:
        return dataclasses.replace(own.functions, rows={**own.functions.rows, EMBEDDED: embedded})

    def functions(w: jax.Array, embedded: jax.Array) -> Values:
        oracle, corrections = of_rows(embedded), answer.corrections
        return (oracle if corrections is None else oracle.limited(pooled=corrections.pooled))(w)

    def counted_at(oracle: Oracle) -> Values:
        return oracle.shifted(answer.threshold_shift).counted(answer.parameters)

    counted = None if answer.corrections is None else counted_at(of_rows(combined(reply)))
    values, pull = jax.vjp(functions, answer.parameters, combined(reply))
    none = jnp.zeros_like(values.constraints)
    gradient, slope = pull(Values(jnp.ones_like(values.objective), none, answer.pooled_multipliers))
    ridge = objective_norm[0] + jnp.asarray(pooled_norms) @ answer.pooled_multipliers
    return Evaluated(values, counted, answer.parameters, gradient, EmbeddingGradient(slope, ridge))


def send_gradient(own: ServerData, at: Evaluated) -> EmbeddingGradient:
    return at.message


def block_residual(own: Block, block: jax.Array, message: EmbeddingGradient) -> tuple[jax.Array, Reply]:
    """How far this block is from stationary, and its ‖·‖²."""
    _, pull = jax.vjp(own.embed, block)
    gradient = pull(own_share(own, message.gradient))[0] + 2.0 * message.ridge * block
    norm, h = jnp.sum(block**2), own.regularizer
    if h is None:
        return block, Reply(sum=OwnNorm(norm), max=OwnGradient(jnp.max(jnp.abs(gradient))))
    largest = OwnGradient(h.distance(block, gradient), h.outside(block))
    return block, Reply(sum=OwnNorm(norm, h.nonsmooth(block)), max=largest)


def measure_with_norms(own: ServerData, at: Evaluated, reply: Reply) -> Measured:
    objective_norm, _, pooled_norms = own.functions.program.norm_shares()
    norm, residual, nothing = reply.sum.squared_norm, reply.max.largest_gradient_entry, jnp.zeros(0)
    counted, none = at.counted, jnp.zeros((own.parties, 0))
    if counted is not None:
        objective = counted.objective + objective_norm[0] * norm
        counted = Counted(objective, none, nothing, counted.pooled + jnp.asarray(pooled_norms) * norm, none)
    h, top = own.regularizer, at.top
    added, outside = h.nonsmooth(top), h.outside(top)
    if reply.sum.regularizer is not None:
        added, outside = added + reply.sum.regularizer, jnp.maximum(outside, reply.max.outside_box)
    if counted is not None:
        counted = dataclasses.replace(counted, objective=counted.objective + added)
    return Measured(
        stationarity=jnp.maximum(residual, h.distance(top, at.top_gradient)),
        outside=outside,
        objective=at.values.objective + objective_norm[0] * norm + added,
        party_constraints=none,
        party_multipliers=none,
        server_constraints=nothing,
        pooled_constraints=at.values.pooled + jnp.asarray(pooled_norms) * norm,
        counted=counted,
    )


def hear_embedding(own: ServerData, answer: Answer, reply: Reply) -> jax.Array:
    return combined(reply)


EMBED = Phase(send_nothing, embed_all_rows, hear_embedding)  # what the bottom models give for all rows, without labels


class ColumnsBound(Bound):
    """A problem over columns: one stack of blocks for each bucket of parties of like width and role."""

    sends_row_outputs: ClassVar[bool] = True

    @property
    def measurement(self) -> Phases:
        return (
            Phase(send_nothing, embed_all_rows, evaluate_with_labels),
            Phase(send_gradient, block_residual, measure_with_norms),
        )

    @property
    def setting(self) -> Setting:
        sizes = self._block_sizes()
        return Setting(
            size=self.shape.size + sum(sizes.values()),
            parties=len(self.names),
            split="columns",
            programs=(self.compiled.party, self.compiled.server),
            rows=dict(zip(self.names, self.rows, strict=True)),
            constraints=tuple((c.name, scope) for c, scope, _ in self.compiled.rows),
            active=self.server_data.active,
            blocks=tuple(sizes[name] for name in self.names),
            nonsmooth=self.stacks[0].regularizer is not None,
            ridge=0.0 if self.stacks[0].regularizer is None else None,
            combine=self.stacks[0].combine,
            linear_bottoms=all(stack.model.is_linear for stack in self.stacks),
        )

    def _block_sizes(self) -> dict[str, int]:
        return {
            self.names[i]: stack.shape.size
            for stack, bucket in zip(self.stacks, self.order, strict=True)
            for i in bucket
        }

    def _widths(self) -> dict[str, int]:
        """How many features each party has."""
        found = {
            self.names[i]: math.prod(stack.x.shape[2:])
            for stack, bucket in zip(self.stacks, self.order, strict=True)
            for i in bucket
        }
        return {name: found[name] for name in self.names}

    @staticmethod
    def keep(method: Method, own: Block, state: Any, answer: Any) -> jax.Array:
        return method.block(own, state, answer)

    def own_parameters(self, method: Method, name: str, kept: jax.Array) -> Any:
        return self.own_data(name).shape.unravel(np.asarray(kept))

    def certify(self, measured: Measured, answer: Answer) -> Certificate:
        constants = self.compiled.server  # of the objective and the constraints; no party adds them

        def complete(part: Any) -> Any:
            return dataclasses.replace(
                part,
                objective=part.objective + constants.objective.constants[0],
                pooled_constraints=part.pooled_constraints + jnp.asarray(constants.pooled.constants),
            )

        measured = complete(measured)
        if measured.counted is not None:
            measured = dataclasses.replace(measured, counted=complete(measured.counted))
        return certificate_of(self.names, self.compiled, measured, answer)

    def hand_out(
        self, method: Method, answer: Answer, measured: Any, kept: Mapping[str, np.ndarray] | None
    ) -> HandedOut:
        w = np.asarray(answer.parameters)
        top = {TOP: self.shape.unravel(w)} if self.shape.size else {}
        if kept is None:
            return HandedOut(w, top)
        shapes = {
            self.names[i]: stack.shape for stack, bucket in zip(self.stacks, self.order, strict=True) for i in bucket
        }
        params = {name: shapes[name].unravel(block) for name, block in kept.items()}
        blocks = {f"block {name}": block for name, block in kept.items()}
        return HandedOut(w, params | top, blocks, {"widths": self._widths()})

    def block_shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: (size,) for name, size in self._block_sizes().items()}

    def kept_in(self, arrays: Mapping[str, np.ndarray]) -> Any:
        return self.by_bucket([arrays[f"block {name}"] for name in self.names])

    # binding

    @classmethod
    def bind(cls, problem: Problem, parties: Any, server: Any, *, start: Any, seed: int, disclose: bool | None) -> Self:
        if server is not None:
            raise ValueError(
                "server= is for parties who hold rows; over columns the active parties hold labels and groups"
            )
        return jax.device_put(cls._bind(problem, parties, start, seed))

    @classmethod
    def _bind(cls, problem: Problem, parties: ColumnParties, start: Any, seed: int, labels_known: bool = True) -> Self:
        """`labels_known`: False where zeros stand in place of labels and groups, on which nothing is checked; then the problem
        leaves no groups open."""
        if problem.personal is not None:
            raise ValueError(
                "personal= is for parties who hold rows: where columns are split, all share one model's parts"
            )
        model = problem.model
        if not isinstance(model, SplitModel):
            raise ValueError(
                "the parties hold columns, so every loss takes one fp.split_model(bottom=..., combine=..., top=...)"
            )
        if TOP in parties.names:
            raise ValueError(
                f"a party is called {TOP!r}, which names the parameters of the top model; call it otherwise"
            )
        labels = Holder.of(parties.active[0], parties.labels)
        stated = with_groups(over_all_rows(problem), [labels])
        h = of_blocks(problem)
        blocks, embedded = blocks_of(model, parties, start, checked_seed(seed), h)
        top = top_parameters(model, embedded, start, checked_seed(seed))
        _check_names(h, [top, *(block.shape.specs() for _, block in blocks)])
        shape = Shape.of(top)
        compiled = compile_problem(stated, shape, 1)
        embedding = {EMBEDDED: embedded}
        weights: Any
        if labels_known:
            columns = checked_columns(stated, compiled.party, labels, top, embedding)
            weights = mean_weights(compiled, [labels])[0]
        else:
            columns, _ = columns_read(compiled.party, labels, embedding)
            weights = np.zeros((len(compiled.party.over_rows), parties.rows))
        for atom, _ in compiled.party.atoms:
            if not (atom.over_rows or atom.is_squared_norm):
                raise ValueError(
                    f"{atom} reads parameters of several parties at once; over columns fp.value takes fp.squared_norm only"
                )
        rows: Any = {name: np.asarray(parties.labels[name]) for name in columns}
        index: Any = np.asarray(-1)
        count: Any = np.asarray(parties.rows)
        oracle = Oracle.of(compiled.party, rows, weights, index, count)
        of_top = flat_of_block(h, top)
        flat: Any = shape.ravel(top)
        w: Any = of_top.prox(flat, 0.0)
        if labels_known:
            check_slopes(compiled, [alone(oracle)], [[labels.title]], w, {EMBEDDED: np.zeros(embedded.shape)})
        order = tuple(bucket for bucket, _ in blocks)
        stacks = tuple(_with_labels(block, bucket, oracle, parties) for bucket, block in blocks)
        active = tuple(name in parties.active for name in parties.names)
        # fp.l2 stands in the objective
        own = ServerData(oracle, of_top, len(parties), active)
        sizes = (parties.rows,) * len(parties)
        return cls(stacks, own, w, order, parties.names, sizes, compiled)

    # deployed

    @classmethod
    def describe(cls, agreement: Agreement, name: str, table: Table) -> tuple[Description, list[tuple[str, int]]]:
        """Its features, and which labels and groups it has if it is active."""
        id = agreement.id
        if INPUTS not in table.columns:
            raise ValueError(f"column {INPUTS!r} of {title(name)} is missing: it has {', '.join(table.columns)}")
        labels = tuple(column for column in table.columns if column not in (INPUTS, id))
        if labels and name not in agreement.active:
            raise ValueError(
                f"{title(name)} is passive, but its table holds {', '.join(map(repr, labels))}: take it out, or name the party "
                "in `active`"
            )
        ids = "" if id is None or agreement.matched else _digest_of_ids(name, table, id)
        groups = groups_at(agreement.problem, Holder.of(name, table)) if name in agreement.active else {}
        return Description.of(table, (INPUTS, *labels), labels=labels, groups=groups, ids=ids), []

    @classmethod
    def bind_at_party(cls, agreement: Agreement, name: str, table: Table) -> tuple[Self, Block]:
        labels = None
        if name in agreement.active:
            known = agreement.descriptions[agreement.names.index(name)].labels
            labels = Table({column: table[column] for column in table.columns if column in known})
        bound = cls._bind_described(agreement, {name: table}, labels)
        return bound, jax.device_put(bound.own_data(name))

    @classmethod
    def bind_at_server(
        cls, agreement: Agreement, server: Table | None, load: Callable[[str], Table]
    ) -> tuple[Self, Description | None]:
        """Labels and groups are the server's table, or those of the first active party: the server is the label holder's."""
        table = server or load(agreement.active[0])
        labels = Table({name: table[name] for name in table.columns if name not in (INPUTS, agreement.id)})
        return cls._bind_described(agreement, {}, labels), None

    @classmethod
    def _bind_described(cls, agreement: Agreement, own_tables: Mapping[str, Table], labels: Table | None) -> Self:
        """The problem over tables of zeros in place of those that are elsewhere.

        - `labels`: labels and groups, where they are known; None at a passive party.
        """
        names, active, descriptions = agreement.names, agreement.active, agreement.descriptions
        first = descriptions[0]
        for name, each in zip(names, descriptions, strict=True):
            if (each.rows, each.ids) != (first.rows, first.ids):
                what = "other rows, or the same in another order" if each.rows == first.rows else f"{each.rows} rows"
                raise ValueError(
                    f"rows do not match: {title(name)} holds {what}, {title(names[0])} {first.rows} rows; align them by their "
                    "ids"
                )
        known = labels
        if known is None:
            of_active = descriptions[names.index(active[0])]
            known = Table({name: of_active.zeros_to_read(name) for name in of_active.labels})
        tables = {}
        for name, each in zip(names, descriptions, strict=True):
            features = own_tables[name][INPUTS] if name in own_tables else each.zeros_to_read(INPUTS)
            tables[name] = Table.of_arrays({INPUTS: features, **(dict(known.items()) if name in active else {})})
        parties = ColumnParties(tables, active)
        holder = names.index(active[0])
        problem = with_described_groups(agreement.problem, names[holder : holder + 1], [descriptions[holder]], None)
        bound = cls._bind(problem, parties, agreement.start, agreement.seed, labels is not None)
        # what stands for others' features stays one number: it is only looked at for its shape
        here: Any = jax.device_put((bound.server_data, bound.start))
        return dataclasses.replace(bound, server_data=here[0], start=here[1])


def _check_names(h: Regularizer, trees: list[Any]) -> None:
    known = dict.fromkeys(name for tree in trees for name, _ in leaf_names(tree))
    for part in h.parts:
        for name in part.on or ():
            if name not in known:
                raise ValueError(f"a regulariser is on {name!r}, but the parameters are {', '.join(known)}")


def _with_labels(block: Block, bucket: tuple[int, ...], oracle: Oracle, parties: ColumnParties) -> Block:
    """The bucket of active parties gets what it may know, once for each of them."""
    if parties.names[bucket[0]] not in parties.active:
        return block
    return dataclasses.replace(block, labels=jax.tree.map(lambda leaf: np.stack([leaf] * len(bucket)), oracle))


def _digest_of_ids(name: str, table: Table, id: str) -> str:
    if id not in table.columns:
        raise ValueError(f"column {id!r} of {title(name)} is missing: it has {', '.join(table.columns)}")
    twice = table.rows - len(np.unique(table[id]))
    if twice:
        raise ValueError(f"rows do not match: {title(name)} has {twice} duplicate ids")
    return hashlib.sha256(repr(table[id].tolist()).encode()).hexdigest()[:16]
